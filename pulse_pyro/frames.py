"""From a long data frame to the padded arrays of a History, every bad input named."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pulse_pyro.arrays import Array, Bool, Float2, Float3, Int
from pulse_pyro.errors import DataError, nearest

if TYPE_CHECKING:
    from pandas import DataFrame, Series

Grid = tuple[Float3, Float3, Bool, tuple[str, ...], tuple[str, ...], tuple[str, ...]]


def column_names(path: str | Path) -> list[str]:
    """Return the names of a table's columns; of a CSV only the header is read."""
    return [str(name) for name in _read(Path(path), rows=0).columns]


def read_frame(path: str | Path, *, dates: str | None = None) -> DataFrame:
    """Read a table from CSV or, by its ending, Parquet; text in the column ``dates`` as dates."""
    import pandas as pd

    file = Path(path)
    frame = _read(file)
    if dates in frame.columns and not pd.api.types.is_numeric_dtype(frame[dates]):
        try:
            frame[dates] = pd.to_datetime(frame[dates], format="ISO8601")
        except (ValueError, TypeError) as cause:
            raise DataError(
                f"{file}: column {dates!r} holds neither whole numbers nor dates like 2024-05-31: "
                f"{cause}."
            ) from cause
    return frame


def _read(file: Path, *, rows: int | None = None) -> DataFrame:
    """Read the first ``rows`` of a CSV, None for all; a Parquet file is read whole."""
    import pandas as pd

    parquet = file.suffix.lower() in (".parquet", ".pq")
    try:
        return pd.read_parquet(file) if parquet else pd.read_csv(file, nrows=rows)
    except ImportError as cause:
        raise DataError(
            f"{file}: reading Parquet needs pyarrow; pip install pyarrow, or save it as CSV."
        ) from cause
    except (ValueError, UnicodeDecodeError) as cause:  # pyarrow's and pandas' own are ValueErrors
        kind = "Parquet" if parquet else "CSV"
        raise DataError(f"{file} cannot be read as {kind}: {cause}.") from cause


def grid_from_frame(
    frame: DataFrame, unit: str, time: str, observed: Sequence[str], missing: Sequence[str]
) -> Grid:
    """Return (s, w, seen, units, s_names, w_names) on the regular grid the times fall on."""
    s_names, w_names = _names(frame, unit, time, observed, missing)
    if len(frame) == 0:
        raise DataError("from_frame: the frame has no rows.")
    values = np.column_stack([_numeric(frame[name], name) for name in (*s_names, *w_names)])
    units, code = _units(frame[unit], unit)
    tick = _ticks(frame[time], time)
    order = np.lexsort((tick, code))
    code, tick, values = code[order], tick[order], values[order]
    start = np.flatnonzero(np.r_[True, code[1:] != code[:-1]])
    same = code[1:] == code[:-1]
    gap = np.diff(tick)[same]
    if (gap == 0).any():
        at = order[np.flatnonzero(same & (np.diff(tick) == 0))[0] + 1]
        raise DataError(
            f"from_frame: {unit}={frame[unit].iloc[at]!r} has two rows at "
            f"{time}={frame[time].iloc[at]}; aggregate or drop the duplicates first."
        )
    step = int(np.gcd.reduce(gap)) if len(gap) else 1
    position = (tick - np.repeat(tick[start], np.diff(np.r_[start, len(tick)]))) // step
    length = int(position.max()) + 1
    if len(units) * length > max(50 * len(frame), 10**6):
        raise DataError(
            f"from_frame: on its common step {time} would need {len(units)} x {length} cells for "
            f"{len(frame)} rows; if times are irregular number each unit's decision points 0, 1, "
            "2, ...; if one unit is far longer than the others, cut it into several."
        )
    grid = np.full((len(units), length, values.shape[1]), np.nan)
    grid[code, position] = values
    seen = np.zeros((len(units), length), dtype=np.bool_)
    seen[code, position] = True
    split = len(s_names)
    return grid[..., :split], grid[..., split:], seen, units, s_names, w_names


def _names(
    frame: DataFrame, unit: str, time: str, observed: Sequence[str], missing: Sequence[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    columns = getattr(frame, "columns", None)
    if columns is None:
        raise DataError(
            f"from_frame: a pandas DataFrame was expected, {type(frame).__name__} came."
        )
    s_names = (observed,) if isinstance(observed, str) else tuple(observed)
    w_names = (missing,) if isinstance(missing, str) else tuple(missing)
    if not s_names:
        raise DataError("from_frame: observed is empty; name the columns that are seen online.")
    if not w_names:
        raise DataError(
            "from_frame: missing is empty; name the columns only the archive has. If every "
            "context column is seen online there is nothing to impute: use OFUL."
        )
    for name in (unit, time, *s_names, *w_names):
        if name not in columns:
            raise DataError(f"from_frame: there is no column {name!r}{nearest(name, columns)}")
        if list(columns).count(name) > 1:
            raise DataError(f"from_frame: column {name!r} stands twice in the frame; rename one.")
    asked = [unit, time, *s_names, *w_names]
    twice = sorted({name for name in asked if asked.count(name) > 1})
    if twice:
        raise DataError(f"from_frame: column {twice[0]!r} is asked for in two roles; one is meant.")
    return s_names, w_names


def _numeric(column: Series, name: str) -> Float2:
    kind = getattr(column.dtype, "kind", "O")
    if kind not in "biuf":
        bad = [(at, v) for at, v in column[column.notna()].items() if not isinstance(v, Real)]
        if bad or kind in "cmM":
            # one bad cell turns a whole column of a CSV into text: the others are innocent
            culprits = [(at, v) for at, v in bad if not _reads_as_number(v)]
            at, value = (culprits or bad or [(column.index[0], column.iloc[0])])[0]
            held = f"{value!r} at row {at!r}"
            if bad and not culprits:
                held += ", a number as text"
            raise DataError(
                f"from_frame: column {name!r} must be numeric, but it holds {held} "
                f"({column.dtype}; of a file, row 0 is the first below the header); convert it, or "
                "encode categories as 0/1 columns."
            )
        column = column.astype(object).where(column.notna(), np.nan).astype(np.float64)
    values = column.to_numpy(dtype=np.float64, na_value=np.nan)
    if np.isinf(values).any():
        at = column.index[int(np.flatnonzero(np.isinf(values))[0])]
        raise DataError(
            f"from_frame: column {name!r} is infinite at row {at!r}; drop the row or use NaN."
        )
    if np.isnan(values).all():
        raise DataError(
            f"from_frame: column {name!r} holds only NaN; leave it out, or, if it is the W that is "
            "missing online, bring units for which it was recorded."
        )
    return values


def _reads_as_number(value: object) -> bool:
    try:
        float(value)  # type: ignore[arg-type]  # what cannot be read is the question
    except (TypeError, ValueError):
        return False
    return isinstance(value, str)


def _units(column: Series, name: str) -> tuple[tuple[str, ...], Int]:
    if column.isna().any():
        raise DataError(f"from_frame: the unit column {name!r} has a missing value.")
    code, found = column.factorize()
    labels = [str(label) for label in found]
    if len(set(labels)) < len(labels):
        raise DataError(
            f"from_frame: two units of {name!r} read alike as text; make them distinct."
        )
    # sorted, so that shuffling the rows of the frame changes nothing, the split included
    order = sorted(range(len(labels)), key=labels.__getitem__)
    rank = np.empty(len(labels), dtype=np.int64)
    rank[order] = np.arange(len(labels))
    return tuple(labels[i] for i in order), rank[code]


def _ticks(column: Series, name: str) -> Int:
    if column.isna().any():
        raise DataError(f"from_frame: the time column {name!r} has a missing value.")
    kind = getattr(column.dtype, "kind", "O")
    if kind not in "iufM":
        raise DataError(
            f"from_frame: time column {name!r} must hold integers or dates, but is {column.dtype}; "
            "convert it with pandas.to_datetime or number the decision points."
        )
    if getattr(column.dtype, "tz", None):
        # a change of the clocks must neither turn days into hours nor repeat an hour
        daily = column.dt.tz_localize(None)
        same_hour = (daily - daily.dt.normalize()).nunique() == 1
        column = daily if same_hour else column.dt.tz_convert("UTC").dt.tz_localize(None)
    values: Array = column.to_numpy()
    if kind in "fu" and not (np.abs(values.astype(np.float64)) < 2.0**62).all():
        raise DataError(f"from_frame: time column {name!r} holds times beyond 2^62; rescale them.")
    if kind == "f" and not (values == np.round(values)).all():
        raise DataError(
            f"from_frame: time column {name!r} holds fractions; number the decision points of each "
            "unit 0, 1, 2, ... or pass dates."
        )
    return values.astype(np.int64)
