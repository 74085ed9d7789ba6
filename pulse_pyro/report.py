"""A self-contained HTML page: tables and inline figures, no network, readable when printed."""

from __future__ import annotations

import html
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pulse_pyro.errors import PulseError
from pulse_pyro.files import write_whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

    from pulse_pyro.calibration.calibration import Calibration

TEXT = ' class="text"'
STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, sans-serif; color: #1a1a1a; background: #fff;
       max-width: 54rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.6rem; line-height: 1.2; } h2 { font-size: 1.2rem; margin-top: 2.2rem; }
.verdict { border-left: .4rem solid #0072B2; padding: .4rem 1rem; background: #f3f7fa; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-size: .9rem; }
th, td { padding: .25rem .7rem; text-align: right; border-bottom: 1px solid #ddd; }
th:first-child, td:first-child, .text { text-align: left; }
figure { margin: 1rem 0; } svg { max-width: 100%; height: auto; } figcaption { color: #444; }
pre { white-space: pre-wrap; background: #f6f6f6; padding: .6rem; }
@media print { h2 { break-after: avoid; } figure, table { break-inside: avoid; } }
"""


@dataclass(frozen=True)
class Section:
    """A heading, paragraphs (apart by empty lines), a table, a figure with its reading, plain text.

    more : further tables behind the figure, each with a sentence before it.
    """

    title: str
    text: str = ""
    table: DataFrame | None = None
    figure: Axes | None = None
    reading: str = ""
    plain: str = ""
    more: tuple[tuple[str, DataFrame], ...] = ()


def write_report(path: str | Path, title: str, verdict: str, sections: Sequence[Section]) -> Path:
    """Write a page to ``path`` (atomically) and return the path: the verdict, then the evidence."""
    target = Path(path)
    if target.is_dir():
        raise PulseError(f"write_report: {target} is a folder; name a file such as report.html.")
    anchors = [re.sub(r"\W+", "-", section.title.lower()).strip("-") for section in sections]
    contents = "".join(
        f'<li><a href="#{anchor}">{html.escape(section.title)}</a></li>'
        for anchor, section in zip(anchors, sections, strict=True)
    )
    body = "".join(_section(a, s) for a, s in zip(anchors, sections, strict=True))
    page = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)}</title><style>{STYLE}</style></head><body><main>"
        f'<h1>{html.escape(title)}</h1><p class="verdict">{html.escape(verdict)}</p>'
        f'<nav aria-label="Contents"><ol>{contents}</ol></nav>{body}</main></body></html>'
    )
    return write_whole(target, page)


def calibration_sections(calibration: Calibration) -> list[Section]:
    """Return the sections that show a calibration: verdict and band, budget, checks, references."""
    from pulse_pyro.calibration.calibration import Calibration
    from pulse_pyro.calibration.references import references

    if not isinstance(calibration, Calibration):
        raise PulseError(
            f"calibration_sections: a Calibration was expected, {type(calibration).__name__} came; "
            "of a CrossFit pass its .calibration."
        )
    part = calibration.parts[0]
    one = len(part.band.x_names) == 1
    reading = (
        "The law's curve may leave the band: the bound counts how far."
        if one
        else "Averages over groups of contexts with similar expectation; 0 is the law itself. "
        "Where the averaged band leaves 0 the law is off; errors that cancel within a group do not "
        "show here, the bound counts them context by context."
    )
    fresh = (
        "all units, the law's own included"
        if calibration.mode == "all"
        else "units the law has not seen"
    )
    failed = [check.text for check in calibration.checks if check.verdict in ("warn", "fail")]
    warning = " Read the checks first: " + " ".join(failed) if failed else ""
    return [
        Section(
            "Calibration of D_t",
            f"How far the law's expected features can be from the truth, over "
            f"{part.band.shape.domain}, with probability {100 * calibration.level:.4g}%: at each "
            f"context the half-width r of a band around a reference fit on {fresh}, plus the "
            f"distance between that fit and the law (mode {calibration.mode}). Band: "
            f"{part.band.kind.replace('_', ' ')}; {calibration.why}. "
            f"{calibration.outside_share:.1%} of held-out contexts lie outside that "
            f"domain; their bound is widened.{warning}",
            calibration.table, calibration.plot(), reading, repr(calibration),
        ),
        Section(
            "Error budget",
            "What the bound is made of. More held-out units shrink r (four times as many halve it "
            "for a linear band); a better law shrinks the difference.",
            references(calibration), calibration.plot_budget(),
            "The table sets the bound beside the divergence route, which pays a factor 1 / noise "
            "sd, and beside theoretical rates, orders without constants.",
        ),
        Section("Calibration checks", "What the bound relies on, as far as held-out units can "
                "tell.", calibration.checks_table),
    ]  # fmt: skip


def _section(anchor: str, section: Section) -> str:
    parts = [f'<section><h2 id="{anchor}">{html.escape(section.title)}</h2>']
    if section.text:
        parts += [f"<p>{html.escape(part)}</p>" for part in section.text.split("\n\n")]
    if section.table is not None:
        parts.append(_scrolled(section.table))
    if section.figure is not None:
        parts.append(
            f"<figure>{figure_svg(section.figure, anchor, section.reading or section.title)}"
            f"<figcaption>{html.escape(section.reading)}</figcaption></figure>"
        )
    for sentence, table in section.more:
        parts.append(f"<p>{html.escape(sentence)}</p>{_scrolled(table)}")
    if section.plain:
        parts.append(f"<pre>{html.escape(section.plain)}</pre>")
    return "".join([*parts, "</section>"])


def _scrolled(table: DataFrame) -> str:
    return f'<div class="scroll" tabindex="0">{table_html(table)}</div>'


def table_html(table: DataFrame) -> str:
    """Return a table with four significant digits; text columns are left-aligned."""
    shown = table.reset_index() if table.index.name else table
    head = "".join(
        f'<th scope="col"{"" if kind.kind in "biuf" else TEXT}>{html.escape(str(name))}</th>'
        for name, kind in shown.dtypes.items()
    )
    rows = "".join(
        "<tr>" + "".join(_cell(value) for value in row) + "</tr>"
        for row in shown.itertuples(index=False)
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"<td>{'' if value != value else f'{value:.4g}'}</td>"
    kind = "" if isinstance(value, int) else TEXT
    return f"<td{kind}>{html.escape(str(value))}</td>"


def figure_svg(ax: Axes, anchor: str, label: str) -> str:
    """Return the axis' figure as inline SVG with text kept as text and ids that cannot clash."""
    from matplotlib import rc_context

    buffer = io.StringIO()
    figure = ax.figure
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": anchor}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})  # type: ignore[union-attr]
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :].replace(
        "<svg", f'<svg role="img" aria-label="{html.escape(label)}"', 1
    )
    # several figures share one page: make every id, and every reference to it, its own
    svg = re.sub(r'id="([^"]+)"', rf'id="{anchor}-\1"', svg)
    svg = re.sub(r'xlink:href="#([^"]+)"', rf'xlink:href="#{anchor}-\1"', svg)
    return re.sub(r"url\(#([^)]+)\)", rf"url(#{anchor}-\1)", svg)
