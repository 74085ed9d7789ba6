"""A self-contained HTML page: no network, no script, readable on a phone and on paper."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from pathlib import Path

from pulse_pyro.errors import PulseError
from pulse_pyro.files import write_whole
from pulse_pyro.report.glossary import entries_in, glossary_section
from pulse_pyro.report.section import Section
from pulse_pyro.report.style import STYLE
from pulse_pyro.report.svg import figure_svg, inline_svg
from pulse_pyro.report.tables import scrolled


def write_report(path: str | Path, title: str, verdict: str, sections: Sequence[Section]) -> Path:
    """Write a page to ``path`` (atomically) and return the path: the verdict, then the evidence.

    Contents come first and a glossary of the symbols that are used last. A figure without a
    reading is refused: a reader must be told what it shows.
    """
    target = Path(path)
    if target.is_dir():
        raise PulseError(f"write_report: {target} is a folder; name a file such as report.html.")
    return write_whole(target, page_html(title, verdict, sections))


def page_html(title: str, verdict: str, sections: Sequence[Section]) -> str:
    """Return the text of the page."""
    anchors = _anchors([section.title for section in sections])
    shown = [_section(a, s) for a, s in zip(anchors, sections, strict=True)]
    words = f"{title} {verdict} {plain_text(''.join(shown))}"
    listed = [*zip(anchors, (s.title for s in sections), strict=True)]
    if entries_in(words) and "glossary" not in anchors:
        shown.append(_section("glossary", glossary_section(words)))
        listed.append(("glossary", "Glossary"))
    contents = "".join(
        f'<li><a href="#{anchor}">{html.escape(name)}</a></li>' for anchor, name in listed
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)}</title><style>{STYLE}</style></head><body>"
        f'<header><h1>{html.escape(title)}</h1><p class="verdict">{html.escape(verdict)}</p>'
        f'</header><nav id="contents" aria-label="Contents"><ol>{contents}</ol></nav>'
        f"<main>{''.join(shown)}</main></body></html>\n"
    )


def plain_text(page: str) -> str:
    """Return what a reader sees of a piece of HTML, captions inside figures included."""
    return html.unescape(re.sub(r"<style.*?</style>|<[^>]+>", " ", page, flags=re.DOTALL))


def _anchors(titles: Sequence[str]) -> list[str]:
    """One id a title, made of letters, digits and dashes; the same title twice gets a number."""
    out: list[str] = []
    for title in titles:
        name = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-") or "section"
        taken = sum(anchor == name or anchor.startswith(f"{name}--") for anchor in out)
        out.append(f"{name}--{taken + 1}" if taken else name)
    return out


def _section(anchor: str, section: Section) -> str:
    parts = [f'<section><h2 id="{anchor}" tabindex="-1">{html.escape(section.title)}</h2>']
    if section.text:
        parts += [f"<p>{html.escape(part)}</p>" for part in section.text.split("\n\n")]
    if section.table is not None:
        parts.append(scrolled(section.table, f"Table: {section.title}"))
    if section.figure is not None:
        parts.append(_figure(anchor, section))
    for i, (sentence, table) in enumerate(section.more, start=2):
        label = f"Table {i}: {section.title}"
        parts.append(f"<p>{html.escape(sentence)}</p>{scrolled(table, label)}")
    if section.plain:
        parts.append(f"<pre>{html.escape(section.plain)}</pre>")
    parts.append('<p class="top"><a href="#contents">Contents</a></p></section>')
    return "".join(parts)


def _figure(anchor: str, section: Section) -> str:
    if not section.reading:
        raise PulseError(
            f"write_report: the figure of section {section.title!r} has no reading; say in one "
            "sentence what it shows: Section(..., reading=...)."
        )
    draw = inline_svg if isinstance(section.figure, str) else figure_svg
    drawn = draw(section.figure, anchor, section.reading)  # type: ignore[arg-type]
    return f"<figure>{drawn}<figcaption>{html.escape(section.reading)}</figcaption></figure>"
