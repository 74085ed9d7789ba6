"""A self-contained HTML page: no network, no script, readable on a phone and on paper."""

from __future__ import annotations

import html
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pulse_pyro._core.as_json import table_from_plain, table_to_plain
from pulse_pyro._core.errors import BundleError, PulseError
from pulse_pyro._core.files import write_whole
from pulse_pyro._core.registry import named
from pulse_pyro.report import SECTIONS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

# What a page is made of: a section, and nothing about how it looks.


@dataclass(frozen=True)
class Section:
    """A heading, paragraphs (apart by empty lines), a table, a figure with its reading, plain text.

    Attributes
    ----------
    figure : an Axes, whose whole figure is drawn, or the text of an SVG made earlier.
    reading : one sentence that says what the figure shows; a page refuses a figure without it.
    more : further tables behind the figure, each with a sentence before it.
    """

    title: str
    text: str = ""
    table: DataFrame | None = None
    figure: Axes | str | None = None
    reading: str = ""
    plain: str = ""
    more: tuple[tuple[str, DataFrame], ...] = ()


# The look of a page: dark text on white, one column, tables that scroll, paper kept in mind.


# contrast of every text on its ground is at least 7 : 1
STYLE = """
:root { color-scheme: light; }
* { box-sizing: border-box; }
body { font: 16px/1.55 system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif;
  color: #1a1a1a; background: #fff; max-width: 52rem; margin: 0 auto; padding: 1rem;
  overflow-wrap: break-word; }
h1 { font-size: 1.6rem; line-height: 1.2; margin: .6rem 0 1rem; }
h2 { font-size: 1.25rem; line-height: 1.3; margin: 2.6rem 0 .6rem; padding-top: .6rem;
  border-top: 1px solid #ccc; }
a { color: #004c7a; }
a:focus-visible, .scroll:focus-visible { outline: 3px solid #0072B2; outline-offset: 2px; }
.verdict { border-left: .4rem solid #0072B2; margin: 0 0 1.2rem; padding: .6rem 1rem;
  background: #f3f7fa; font-size: 1.05rem; }
nav ol { columns: 2 16rem; padding-left: 2rem; margin: 0; }
nav li { break-inside: avoid; padding: .15rem 0; }
.top { font-size: .85rem; }
.scroll { overflow-x: auto; margin: .8rem 0;
  background: linear-gradient(to left, #fff 1.5rem, #fff0) right / 3rem 100% no-repeat local,
    linear-gradient(to left, #0003, #0000) right / .7rem 100% no-repeat scroll; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .7rem; text-align: right; vertical-align: top;
  border-bottom: 1px solid #ddd; font-weight: normal; }
thead th { border-bottom: 2px solid #666; vertical-align: bottom; font-weight: 600; }
th.text, td.text { text-align: left; } td.num, tbody th:not(.long) { white-space: nowrap; }
.long { min-width: 15rem; overflow-wrap: anywhere; }
td.pass, td.warn, td.fail { font-weight: 600; } td.info { white-space: nowrap; }
td.pass { color: #00563f; } td.warn { color: #7a3600; background: #fff4e5; }
td.fail { color: #8a0f0f; background: #fdecec; }
figure { margin: 1.2rem 0; } svg { display: block; width: 100%; height: auto; }
figcaption { color: #333; margin-top: .4rem; }
figcaption::before { content: "Reading: "; font-weight: 600; }
pre { white-space: pre-wrap; background: #f6f6f6; padding: .8rem; font-size: .82rem;
  overflow-wrap: anywhere; }
@media screen and (max-width: 40rem) {
  .told, .told tbody, .told tr { display: block; }
  .told thead { position: absolute; clip-path: inset(50%); }
  .told tr { padding: .5rem 0; border-bottom: 1px solid #ddd; }
  .told th, .told td { display: inline-block; border: 0; padding: 0 1rem 0 0; text-align: left; }
  .told tbody th { font-weight: 600; } .told .long { display: block; min-width: 0; }
  .told td.num:not(:empty)::before { content: attr(data-name) " "; color: #444; }
  .told td:empty { display: none; }
}
@media print {
  @page { margin: 14mm; }
  body { font-size: 10.5pt; max-width: none; padding: 0; }
  h2 { break-after: avoid; margin-top: 1.4rem; }
  figure, tr, pre, section:not(:has(table)) { break-inside: avoid; }
  thead { display: table-header-group; }
  .top { display: none; } .scroll { overflow: visible; background: none; }
  table { font-size: 8pt; width: 100%; }
  th, td { padding: .15rem .35rem; } .long { min-width: 0; }
  td.num { white-space: normal; } svg { width: 96mm; }
  a { color: inherit; text-decoration: none; }
}
"""


# Figures as inline SVG: text stays text, ids cannot clash, every picture has a name.


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


def write_svg(path: Path, ax: Axes, label: str) -> Path:
    """Write the axis' figure as a file of its own, the same bytes every time; return its path."""
    return write_whole(path, figure_svg(ax, path.stem, label))


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


# Data frames as HTML: row and column headers, four significant digits, a box that scrolls.


LONG = 24  # characters from which a text cell asks for room to wrap in
# of a check and of a rung -> how a cell that says so looks
VERDICTS = {
    "pass": "pass",
    "warn": "warn",
    "fail": "fail",
    "info": "info",
    "stands": "pass",
    "conditional": "warn",
    "fails": "fail",
    "not asked": "info",
}
FIGURE = re.compile(r"[-+]?[\d.,]+ ?%?")  # 1,200 or 3.5 %: text that is read as a number


def table_html(table: DataFrame) -> str:
    """Return a table whose first column names its rows; text columns are left-aligned.

    A table with sentences in it is marked ``told``: on a phone its rows become paragraphs, so that
    the sentence is not out of sight. Roles are spelled out, as browsers drop them with the layout.
    """
    shown = table.reset_index() if table.index.name else table
    names = [html.escape(str(name)) for name in shown.columns]
    kinds = [
        "num" if kind.kind in "iuf" or shown[name].map(_is_figure).all() else "text"
        for name, kind in shown.dtypes.items()
    ]
    head = "".join(
        f'<th scope="col" role="columnheader" class="{kind}">{name}</th>'
        for name, kind in zip(names, kinds, strict=True)
    )
    about = list(zip(names, kinds, strict=True))
    body = "".join(
        '<tr role="row">'
        + "".join(_cell(value, *about[j], first=j == 0) for j, value in enumerate(row))
        + "</tr>"
        for row in shown.itertuples(index=False)
    )
    told = ' class="told"' if 'class="text long' in body else ""
    return (
        f'<table role="table"{told}><thead role="rowgroup"><tr role="row">{head}</tr></thead>'
        f'<tbody role="rowgroup">{body}</tbody></table>'
    )


def scrolled(table: DataFrame, label: str) -> str:
    """Return a table in a box that scrolls by itself, also by keyboard, named ``label``."""
    return (
        f'<div class="scroll" role="region" aria-label="{html.escape(label)}" tabindex="0">'
        f"{table_html(table)}</div>"
    )


def number(value: float) -> str:
    """Four significant digits; nothing for NaN."""
    if value != value:
        return ""
    short = f"{value:.4g}"
    return f"{value:,.0f}" if "e+" in short and abs(value) < 1e9 else short


def _is_figure(value: object) -> bool:
    return isinstance(value, str) and FIGURE.fullmatch(value) is not None


def _cell(value: object, name: str, kind: str, *, first: bool) -> str:
    if isinstance(value, Real) and not isinstance(value, Integral):
        text = number(float(value))
    else:
        text = html.escape(str(value))
        kind += " long" if len(str(value)) > LONG else ""
        kind += f" {VERDICTS[text]}" if text in VERDICTS else ""
    if first:
        return f'<th scope="row" role="rowheader" class="{kind}">{text}</th>'
    return f'<td role="cell" class="{kind}" data-name="{name}">{text}</td>'


# Paper symbols and technical words in plain words; a page lists those it uses.


@dataclass(frozen=True)
class Entry:
    """A symbol, what it means, and the pattern that finds it in a text."""

    symbol: str
    words: str
    pattern: str


def _entry(symbol: str, words: str, *forms: str) -> Entry:
    """An entry found by its symbol as a word of its own, or by any of ``forms`` (patterns)."""
    found = forms or (re.escape(symbol),)
    return Entry(symbol, words, rf"(?<![\w^])(?:{'|'.join(found)})(?!\w)")


GLOSSARY = (
    _entry(
        "S",
        "the part of the context that is seen online; S_1:t is all of it up to round t",
        "S",
        r"S_t",
        r"S_1:t",
    ),
    _entry(
        "W",
        "the part of the context that only the archive has; W_t is its value in round t",
        "W",
        r"W_t",
    ),
    _entry("t, T", "a round, that is one decision; T is the number of rounds", "T", "t"),
    _entry("a", "an action, one of the arms that can be played", r"action \d+", r"a,j"),
    _entry("law", "the fitted model of W given the past of S, p^ in the paper", "law"),
    _entry(
        "Phi",
        "the features: what the reward is linear in, made from S, W and the action",
        r"Phi(?:_j)?",
    ),
    _entry(
        "E[...]",
        "the expectation of what stands in the brackets, given what is seen of S",
        r"E\[[^\]]+\]",
    ),
    _entry("phibar", "the features' true expectation given what is seen of S"),
    _entry("phihat", "the same expectation under the law: what the policy works with"),
    _entry(
        "mu_p0",
        "the reference fit: expectation of the target estimated anew from other units",
        "mu_p0",
        "reference fit",
    ),
    _entry("mu_phat", "the law's own expectation of the target", "mu_phat", r"mu_p\^"),
    _entry(
        "r(s)",
        "half-width of the confidence band around the reference fit at a context",
        r"r\(s\)",
        r"half-width r",
        "r",
    ),
    _entry(
        "difference",
        "|mu_p0 - mu_phat|: how far the reference fit and the law are apart",
        r"differences?",
    ),
    _entry(
        "E_{t,a,j}",
        "bound on the error of feature j of action a in round t: r + difference",
        r"E_\{t,a,j\}",
        "bound mean",
        "bound sup",
    ),
    _entry(
        "D_t",
        "the largest E_{t,a,j}^2 over actions and features: how wrong the law can be",
        r"D_t",
        r"D",
    ),
    _entry(
        "domain",
        "the contexts the band speaks of; beyond it the bound is widened by extrapolation",
        "domain",
    ),
    _entry(
        "level", "probability, over held-out units, with which all bounds hold at once", "level"
    ),
    _entry("held out", "units the law was not fitted on", "held out", "held-out"),
    _entry("Monte Carlo", "error of averages over finitely many simulated draws"),
    _entry("n", "number of units the band is made from", r"n\^-[\d.]+"),
    _entry("KL route", "the paper's bound by way of a divergence between laws", "KL route"),
    _entry("critical", "how many standard errors wide the band must be to hold everywhere"),
    _entry(
        "theta",
        "the unknown weights of the features in the reward; theta* are the true ones",
        r"theta\*?",
    ),
    _entry(
        "e_{t,a}",
        "bound on the error of the expected reward of action a: E weighed by theta",
        r"e_\{t,a\}",
    ),
    _entry(
        "gamma_t",
        "squared radius of the confidence ball around the estimate of theta",
        r"gamma_t",
        r"gamma",
    ),
    _entry(
        "ridge",
        "lambda: what keeps the estimate of theta near 0 before there are rewards",
        "ridge",
        "lambda",
    ),
    _entry("imputation", "using the law's expectation in place of the W that is not seen"),
    _entry("sigma", "scale of the noise in a reward, given S"),
    _entry("delta", "probability with which the confidence ball may miss theta*"),
    _entry("regret", "reward lost, summed over rounds, against the best action given S and W"),
    _entry(
        "regret_cond",
        "reward lost against the best action that can be found from S alone",
        "regret_cond",
        "conditional regret",
    ),
    _entry(
        "info_gap",
        "the information gap: regret no policy can avoid that does not see W",
        "info_gap",
        "information gap",
    ),
    _entry(
        "se",
        "standard error: how much a mean over runs would vary in other runs",
        "se",
        "se_cond",
        r"standard errors?",
    ),
    _entry("refused", "rounds a policy could not score, because an input was not seen", "refused"),
    _entry("overruled", "share of rounds in which a guard did not follow its advisor", "overruled"),
    _entry("law_id", "fingerprint of the fitted law: another fit has another one"),
    _entry("SHA-256", "fingerprint of a file: one changed byte changes it"),
    _entry(
        "seed",
        "the number all random draws start from; the same seed gives the same page",
        "seed",
        "Seed",
    ),
    _entry(
        "rung",
        "one claim about the law's error; the higher it stands on the ladder, the more it says",
        "rungs?",
    ),
    _entry(
        "conditional", "true if what the claim rests on is true, which was tested and not proved"
    ),
    _entry(
        "reliability",
        "how far, among all rows with a like forecast, the mean outcome is from the forecast",
        "[Rr]eliability",
    ),
    _entry("sd", "standard deviation of a target, so that errors of unlike things compare", "sds?"),
    _entry(
        "cluster",
        "an independent piece of the archive: a unit, or what was declared instead",
        "clusters?",
    ),
    _entry("skill", "share of the variance of held-out W that the law explains"),
    _entry("coverage", "share of held-out W inside the law's predictive interval"),
    _entry(
        "PIT",
        "share of the law's draws that lie below the recorded value; evenly spread if "
        "the law is right",
        "PIT",
        "pit",
    ),
    _entry(
        "CRPS",
        "a score of forecasts: how far the law's draws are from what happened, small is good",
        "CRPS",
        "crps",
    ),
    _entry(
        "log score",
        "logarithm of the density the law gave to what happened, in nats; large is good",
        "log score",
        "nats",
    ),
    _entry("climatology", "a guess that ignores S: the spread of W in the archive"),
    _entry("serial", "whether what is left of W depends on what was left before"),
    _entry("r_hat", "agreement of sampling chains; near 1 is good"),
    _entry("pareto_k", "whether importance weights can be trusted; small is good"),
)


def entries_in(text: str) -> list[Entry]:
    """Return the entries whose symbols occur in a text, in the glossary's order."""
    return [entry for entry in GLOSSARY if re.search(entry.pattern, text)]


def glossary_table(text: str) -> DataFrame:
    """Return one line per symbol that occurs in a text."""
    import pandas as pd

    found = [(entry.symbol, entry.words) for entry in entries_in(text)]
    return pd.DataFrame(found, columns=["symbol", "in plain words"])


def glossary_section(text: str) -> Section:
    """Return the glossary of a page whose text is given."""
    return Section(
        "Glossary",
        "Symbols of the paper and words of the field, as used on this page.",
        glossary_table(text),
    )


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


# Sections as plain data, and back: a page is put together without refitting.


def sections_to_plain(sections: Sequence[Section], stage: str) -> list[dict[str, Any]]:
    """Return sections as values JSON knows; figures become the text of an SVG."""
    out = []
    for i, section in enumerate(sections):
        figure = section.figure
        if figure is not None and not isinstance(figure, str):
            figure = figure_svg(figure, f"{stage}{i}", section.reading or section.title)
        out.append(
            {
                "title": section.title,
                "text": section.text,
                "table": None if section.table is None else table_to_plain(section.table),
                "figure": figure,
                "reading": section.reading,
                "plain": section.plain,
                "more": [[text, table_to_plain(table)] for text, table in section.more],
            }
        )
    return out


def sections_from_plain(values: Sequence[dict[str, Any]]) -> list[Section]:
    """Return the sections that :func:`sections_to_plain` described."""
    try:
        return [
            Section(
                title=v["title"],
                text=v["text"],
                table=None if v["table"] is None else table_from_plain(v["table"]),
                figure=v["figure"],
                reading=v["reading"],
                plain=v["plain"],
                more=tuple((text, table_from_plain(table)) for text, table in v["more"]),
            )
            for v in values
        ]
    except (KeyError, TypeError, ValueError) as cause:
        raise BundleError(
            f"report: these are not stored sections ({type(cause).__name__}: {cause}); run the "
            "stage again."
        ) from cause


def stage_sections(stage: str, result: object) -> list[Section]:
    """Return every registered section about a stage's result."""
    registered = SECTIONS[stage]
    return [section for name in registered for section in named(registered, name)(result)]
