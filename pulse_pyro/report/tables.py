"""Data frames as HTML: row and column headers, four significant digits, a box that scrolls."""

from __future__ import annotations

import html
import re
from numbers import Integral, Real
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pandas import DataFrame

LONG = 24  # characters from which a text cell asks for room to wrap in
VERDICTS = ("pass", "warn", "fail", "info")
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
        '<tr role="row">' + "".join(
            _cell(value, *about[j], first=j == 0) for j, value in enumerate(row)
        ) + "</tr>"
        for row in shown.itertuples(index=False)
    )  # fmt: skip
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
        kind += f" {text}" if text in VERDICTS else ""
    if first:
        return f'<th scope="row" role="rowheader" class="{kind}">{text}</th>'
    return f'<td role="cell" class="{kind}" data-name="{name}">{text}</td>'
