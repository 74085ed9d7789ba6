"""Sections and tables as plain data, and back: a page is put together without refitting."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

from pulse_pyro.errors import BundleError
from pulse_pyro.report import Section, figure_svg

if TYPE_CHECKING:
    from pandas import DataFrame

KINDS = {"b": "bool", "i": "int64", "f": "float64", "O": "object"}


def sections_to_plain(sections: Sequence[Section], stage: str) -> list[dict[str, Any]]:
    """Return sections as values JSON knows; figures become the text of an SVG."""
    out = []
    for i, section in enumerate(sections):
        figure = section.figure
        if figure is not None and not isinstance(figure, str):
            figure = figure_svg(figure, f"{stage}{i}", section.reading or section.title)
        out.append({
            "title": section.title, "text": section.text,
            "table": None if section.table is None else table_to_plain(section.table),
            "figure": figure, "reading": section.reading, "plain": section.plain,
            "more": [[text, table_to_plain(table)] for text, table in section.more],
        })  # fmt: skip
    return out


def sections_from_plain(values: Sequence[dict[str, Any]]) -> list[Section]:
    """Return the sections that :func:`sections_to_plain` described."""
    try:
        return [
            Section(
                v["title"], v["text"], None if v["table"] is None else table_from_plain(v["table"]),
                v["figure"], v["reading"], v["plain"],
                tuple((text, table_from_plain(table)) for text, table in v["more"]),
            )
            for v in values
        ]  # fmt: skip
    except (KeyError, TypeError, ValueError) as cause:
        raise BundleError(
            f"report: these are not stored sections ({type(cause).__name__}: {cause}); run the "
            "stage again."
        ) from cause


def table_to_plain(table: DataFrame) -> dict[str, Any]:
    """Return columns, their kinds and the rows; a named index is the first column."""
    named = table.index.name is not None
    shown = table.reset_index() if named else table
    kinds = "".join(_kind(dtype.kind) for dtype in shown.dtypes)
    rows = [[_plain(value) for value in row] for row in shown.itertuples(index=False, name=None)]
    return {
        "indexed": named, "columns": [str(name) for name in shown.columns], "kinds": kinds,
        "rows": rows,
    }  # fmt: skip


def table_from_plain(values: dict[str, Any]) -> DataFrame:
    """Return the table that :func:`table_to_plain` described."""
    import pandas as pd

    columns, rows = values["columns"], values["rows"]
    table = pd.DataFrame({
        name: pd.Series([math.nan if row[j] is None else row[j] for row in rows], dtype="object")
        .astype(KINDS[kind])  # type: ignore[call-overload]
        for j, (name, kind) in enumerate(zip(columns, values["kinds"], strict=True))
    })  # fmt: skip
    return table.set_index(columns[0]) if values["indexed"] else table


def records(table: DataFrame) -> list[dict[str, Any]]:
    """Return one dict a row, the index first; JSON knows neither NaN nor infinity."""
    plain = table_to_plain(table)
    rows: list[dict[str, Any]] = [
        dict(zip(plain["columns"], row, strict=True)) for row in plain["rows"]
    ]
    return rows


def to_json(values: object) -> str:
    """Return JSON that every reader knows: NaN becomes null, infinity the text inf."""
    return json.dumps(_cleaned(values), indent=1, allow_nan=False)


def _cleaned(values: object) -> object:
    if isinstance(values, Mapping):
        return {str(name): _cleaned(value) for name, value in values.items()}
    if isinstance(values, list | tuple):
        return [_cleaned(value) for value in values]
    return _plain(values)


def _kind(kind: str) -> str:
    return {"u": "i"}.get(kind, kind if kind in KINDS else "O")


def _plain(value: object) -> object:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool) or type(value).__name__ == "bool_":
        return bool(value)
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        number = float(value)
        if math.isfinite(number):
            return number
        return None if math.isnan(number) else str(number)  # float("inf") reads it back
    return str(value)
