"""Values and tables as JSON knows them, and back: no NaN, no infinity, no NumPy types."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pandas import DataFrame

KINDS = {"b": "bool", "i": "int64", "f": "float64", "O": "object"}


def table_to_plain(table: DataFrame) -> dict[str, Any]:
    """Return columns, their kinds and the rows; a named index is the first column."""
    named = table.index.name is not None
    shown = table.reset_index() if named else table
    kinds = "".join(_kind(dtype.kind) for dtype in shown.dtypes)
    rows = [[_plain(value) for value in row] for row in shown.itertuples(index=False, name=None)]
    return {
        "indexed": named,
        "columns": [str(name) for name in shown.columns],
        "kinds": kinds,
        "rows": rows,
    }


def table_from_plain(values: dict[str, Any]) -> DataFrame:
    """Return the table that :func:`table_to_plain` described."""
    import pandas as pd

    columns, rows = values["columns"], values["rows"]
    table = pd.DataFrame(
        {
            name: pd.Series(
                [math.nan if row[j] is None else row[j] for row in rows], dtype="object"
            ).astype(KINDS[kind])  # type: ignore[call-overload]
            for j, (name, kind) in enumerate(zip(columns, values["kinds"], strict=True))
        }
    )
    return table.set_index(columns[0]) if values["indexed"] else table


def records(table: DataFrame) -> list[dict[str, Any]]:
    """Return one dict a row, the index first; JSON knows neither NaN nor infinity."""
    plain = table_to_plain(table)
    rows: list[dict[str, Any]] = [
        dict(zip(plain["columns"], row, strict=True)) for row in plain["rows"]
    ]
    return rows


def to_json(values: object, indent: int | None = 1) -> str:
    """Return JSON that every reader knows: NaN becomes null, infinity the text inf.

    indent : None puts everything on one line.
    """
    return json.dumps(_cleaned(values), indent=indent, allow_nan=False)


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
