"""Figures as inline SVG: text stays text, ids cannot clash, every picture has a name."""

from __future__ import annotations

import html
import io
import re
from typing import TYPE_CHECKING

from pulse_pyro.errors import PulseError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# what a picture has no use for: a page must stay one file that runs and loads nothing
ENLARGED = 1.13 * 4 / 3  # pixels a point of a figure: labels as large as the page's own text
ALIVE = re.compile(r"<script|<foreignObject|\son\w+\s*=|href\s*=\s*[\"'](?!#)", re.IGNORECASE)


def figure_svg(ax: Axes, anchor: str, label: str) -> str:
    """Return the axis' figure as inline SVG named ``label``, every id led by ``anchor``."""
    from matplotlib import rc_context

    buffer = io.StringIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": anchor}):
        ax.figure.savefig(buffer, format="svg", metadata=nothing)  # type: ignore[union-attr]
    return inline_svg(buffer.getvalue(), anchor, label)


def inline_svg(svg: str, anchor: str, label: str) -> str:
    """Return the text of an SVG ready for a page that holds others.

    Every id, and every reference to it, is led by ``anchor``; an earlier name gives way to
    ``label``. What is not an SVG, or one that runs or loads something, is refused.
    """
    start = svg.find("<svg")
    if start < 0 or ALIVE.search(svg):
        raise PulseError(
            f"report: the figure of {anchor!r} must be an Axes or the text of an SVG without "
            "scripts, handlers and outside links; figure_svg(ax, name, label) makes one."
        )
    svg = svg[start:].rstrip()
    head, rest = svg.split(">", 1)
    head = re.sub(r'\s(?:role|aria-label|style)="[^"]*"', "", head)
    wide = re.search(r'\bwidth="([\d.]+)pt"', head)
    style = f' style="max-width:{ENLARGED * float(wide[1]):.0f}px"' if wide else ""
    head = head.replace("<svg", f'<svg role="img" aria-label="{html.escape(label)}"{style}', 1)
    svg = f"{head}>{rest}"
    svg = re.sub(r'\bid="([^"]+)"', rf'id="{anchor}-\1"', svg)
    svg = re.sub(r'href="#([^"]+)"', rf'href="#{anchor}-\1"', svg)
    return re.sub(r"url\(#([^)]+)\)", rf"url(#{anchor}-\1)", svg)
