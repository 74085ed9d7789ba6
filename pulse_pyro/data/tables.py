"""From a long data frame to the flat rows of a History, every bad input named."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from pulse_pyro._core.arrays import Array, Float2, Int
from pulse_pyro._core.errors import DataError, SettingError, nearest
from pulse_pyro.base import Column, Schema, level_text

if TYPE_CHECKING:
    from pandas import DataFrame, Series

# what stands for a number that is missing, in a CSV; a name is missing only where its cell is empty
NO_NUMBER = ["", "<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null", "-NaN", "-nan"]
NO_NUMBER += ["#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "1.#IND", "1.#QNAN"]
MOST_STEPS = 50  # steps of the grid for each row: beyond this times are not on a grid


def column_names(path: str | Path) -> list[str]:
    """Return the names of a table's columns; of a CSV only the header is read."""
    return [str(name) for name in _read(Path(path), rows=0).columns]


def read_frame(path: str | Path, *, text: Sequence[str], dates: str | None = None) -> DataFrame:
    """Read a table from CSV or, by its ending, Parquet; text in the column ``dates`` as dates.

    text : columns of a CSV that are names, not numbers: units, clusters, categories. They must be
    said, since a CSV does not say it: read as numbers, the ids 1, 01 and 001 are one. In a column
    of text only an empty cell is missing, "NA" is a name like others; in others NA, NaN, null and
    the like are missing numbers. A Parquet file has types of its own, and is read as it is.
    """
    import pandas as pd

    file = Path(path)
    text = (text,) if isinstance(text, str) else text
    frame = _read(file, text=text)
    for name in text:
        if name not in frame.columns:
            raise DataError(f"{file}: there is no column {name!r}{nearest(name, frame.columns)}")
    if dates in frame.columns and not pd.api.types.is_numeric_dtype(frame[dates]):
        try:
            frame[dates] = pd.to_datetime(frame[dates], format="ISO8601")
        except (ValueError, TypeError) as cause:
            raise DataError(
                f"{file}: column {dates!r} holds neither whole numbers nor dates like 2024-05-31: "
                f"{cause}."
            ) from cause
    return frame


def s_columns(
    path: str | Path, observed: Sequence[str], kinds: Mapping[str, str | Column]
) -> tuple[Column, ...]:
    """Return the columns of S with their levels.

    Of a CSV only categorical columns are read whose levels are not declared.
    """
    file = Path(path)
    declared = [declare(name, "S", kinds.get(name) or "real") for name in observed]
    lacking = [c.name for c in declared if c.kind == "categorical" and not c.levels]
    if not lacking and not _is_parquet(file):
        return tuple(declared)
    frame = _read(file, text=lacking, only=lacking)
    return tuple(
        _column(frame[column.name], column.name, "S", kinds.get(column.name))
        if column.name in frame
        else column
        for column in declared
    )


def _is_parquet(file: Path) -> bool:
    return file.suffix.lower() in (".parquet", ".pq")


def _read(
    file: Path,
    *,
    rows: int | None = None,
    text: Sequence[str] = (),
    only: list[str] | None = None,
) -> DataFrame:
    """Read a CSV, ``only`` some columns or the header alone; a Parquet file is read whole."""
    import pandas as pd

    parquet, columns = _is_parquet(file), None if only is None else list(only)
    try:
        if parquet:
            return pd.read_parquet(file)
        if rows == 0:
            return pd.read_csv(file, nrows=0)
        header = pd.read_csv(file, nrows=0).columns
        absent = {name: [""] if name in text else NO_NUMBER for name in header}
        return pd.read_csv(
            file,
            dtype=dict.fromkeys(text, str),
            usecols=columns,
            na_values=absent,
            keep_default_na=False,
        )
    except ImportError as cause:
        raise DataError(
            f"{file}: reading Parquet needs pyarrow; pip install pyarrow, or save it as CSV."
        ) from cause
    except (ValueError, UnicodeDecodeError) as cause:  # pyarrow's and pandas' own are ValueErrors
        kind = "Parquet" if parquet else "CSV"
        raise DataError(f"{file} cannot be read as {kind}: {cause}.") from cause


class FlatTable(NamedTuple):
    """An archive as flat rows, sorted by unit and step.

    s (rows, s_dim), w (rows, w_dim); offsets (units + 1,): where each unit's rows begin; step
    (rows,): which step of the unit's regular grid a row is; cluster (rows,): number among
    ``clusters``; start (units,): steps from the table's first time to each unit's first row,
    rounded down; step_days: length of a step in days, 0 where times are plain numbers.
    """

    s: Float2
    w: Float2
    offsets: Int
    step: Int
    units: tuple[str, ...]
    schema: Schema
    cluster: Int
    clusters: tuple[str, ...]
    start: Int
    step_days: float


def flat_from_frame(
    frame: DataFrame,
    roles: Roles,
    kinds: Mapping[str, str | Column] | None = None,
    cluster: str | tuple[str] | None = None,
) -> FlatTable:
    """Return the rows of a long table on the regular step its times fall on."""
    unit, time = roles.unit, roles.time
    s_names, w_names = _names(frame, roles, cluster)
    if len(frame) == 0:
        raise DataError("from_frame: the frame has no rows.")
    schema = _schema(frame, s_names, w_names, kinds or {})
    schema = replace(schema, cluster=cluster)

    def place(i: int) -> str:
        return f"row {i}, {unit} {frame[unit].iloc[i]!r}, {time} {frame[time].iloc[i]}"

    values = np.concatenate([_encoded(frame[c.name], c, place) for c in schema.columns], axis=1)
    units, code = _units(frame[unit], unit)
    tick = _ticks(frame[time], time)
    order = np.lexsort((tick, code))
    label, names = _clusters(frame, roles, cluster, units, code, order)
    code, tick, values = code[order], tick[order], values[order]
    start = np.flatnonzero(np.r_[True, code[1:] != code[:-1]])
    offsets = np.r_[start, len(tick)]
    same = code[1:] == code[:-1]
    gap = np.diff(tick)[same]
    if (gap == 0).any():
        at = order[np.flatnonzero(same & (np.diff(tick) == 0))[0] + 1]
        raise DataError(
            f"from_frame: {unit}={frame[unit].iloc[at]!r} has two rows at "
            f"{time}={frame[time].iloc[at]}; aggregate or drop the duplicates first."
        )
    # where no unit has two rows the calendar's step is that between units
    apart = gap if len(gap) else np.diff(np.unique(tick))
    width = int(np.gcd.reduce(apart)) if len(apart) else 1
    step = (tick - np.repeat(tick[start], np.diff(offsets))) // width
    steps = int((step[offsets[1:] - 1] + 1).sum())
    if steps > max(MOST_STEPS * len(frame), 10**6):
        raise DataError(
            f"from_frame: on its common step {time} runs over {steps} steps for {len(frame)} rows; "
            "if times are irregular number each unit's decision points 0, 1, 2, ..."
        )
    split = len(schema.s_names)
    s, w = np.ascontiguousarray(values[:, :split]), np.ascontiguousarray(values[:, split:])
    return FlatTable(
        s=s,
        w=w,
        offsets=offsets,
        step=step,
        units=units,
        schema=schema,
        cluster=label,
        clusters=names,
        start=(tick[start] - tick.min()) // width,
        step_days=width * _tick_days(frame[time]),
    )


class Roles(NamedTuple):
    """Which column is what: unit, time, those seen online, those only the archive has."""

    unit: str
    time: str
    observed: Sequence[str]
    missing: Sequence[str]


def _schema(
    frame: DataFrame,
    s_names: tuple[str, ...],
    w_names: tuple[str, ...],
    kinds: Mapping[str, str | Column],
) -> Schema:
    """Return the columns with their kinds, declared or found, and their levels."""
    for name in kinds:
        if name not in (*s_names, *w_names):
            raise DataError(
                f"from_frame: kinds names {name!r}, which is not among the observed or missing "
                f"columns{nearest(name, (*s_names, *w_names))}"
            )
    seen = [_column(frame[name], name, "S", kinds.get(name)) for name in s_names]
    return Schema((*seen, *(_column(frame[name], name, "W", kinds.get(name)) for name in w_names)))


def _column(
    values: Series, name: str, role: Literal["S", "W"], kind: str | Column | None
) -> Column:
    """Return one column's declaration; a pandas category counts as one."""
    dtype: Any = values.dtype
    categories = getattr(dtype, "categories", None)
    numbers = role == "W" and categories is not None and categories.dtype.kind in "iuf"
    if kind is None and categories is not None and (dtype.ordered or not numbers):
        levels = tuple(level_text(level) for level in categories)
        if not dtype.ordered:
            _two_levels(name, levels)
        kind = Column(name, role, "ordinal" if dtype.ordered else "categorical", levels)
    column = declare(name, role, kind or "real")
    if role == "W" and column.kind == "clock":
        raise DataError(
            f"from_frame: column {name!r} must be numeric, because it is W, but it is a clock; "
            "give its sine and cosine instead."
        )
    if column.kind == "ordinal" and not column.levels:
        raise DataError(
            f"from_frame: the levels of ordinal column {name!r} must be named in order: "
            f"Column({name!r}, kind='ordinal', levels=('low', 'high'))."
        )
    if column.kind == "categorical" and not column.levels:
        there = sorted({level_text(value) for value in values[values.notna()].unique()})
        if not there:
            raise DataError(f"from_frame: column {name!r} holds no level, all values are missing.")
        if column.unknown != "other":
            _two_levels(name, there)
        column = replace(column, levels=tuple(there))
    return column


def _two_levels(name: str, levels: Sequence[str]) -> None:
    """Refuse a category of one level: it would become no column at all."""
    if len(levels) == 1:
        raise DataError(
            f"from_frame: categorical column {name!r} has only one level, {levels[0]!r}, which "
            "tells nothing; leave the column out, or declare the levels it may have with a Column."
        )


def declare(name: str, role: Literal["S", "W"], kind: str | Column) -> Column:
    """Return a column by its kind in words, such as "count" or "clock 24", or as it is declared."""
    if isinstance(kind, Column):
        return replace(kind, name=name, role=role)
    word, _, period = kind.partition(" ")
    if period and word != "clock":
        raise SettingError(
            f"Column {name!r}: only a clock has a period, as in 'clock 24', but got {kind!r}."
        )
    try:
        length = float(period or 0.0)
    except ValueError:
        length = 0.0
    return Column(name, role, word, period=length)  # type: ignore[arg-type]


def _encoded(values: Series, column: Column, place: Callable[[int], str]) -> Float2:
    """Return the numeric columns, (rows, len(column.names)), of one column of the table."""
    if column.kind in ("categorical", "ordinal"):
        code, found = values.factorize()
        known = column.encode(
            [*found, None], "from_frame", lambda i: place(int((code == i).argmax()))
        )
        out: Float2 = known[code]  # -1, a missing value, is the last
        return out
    return column.encode(_numeric(values, column.name, column.role), "from_frame", place)


def _clusters(
    frame: DataFrame,
    roles: Roles,
    cluster: str | tuple[str] | None,
    units: tuple[str, ...],
    code: Int,
    order: Int,
) -> tuple[Int, tuple[str, ...]]:
    """Return the cluster of each row, in order, as a number, and the clusters' names."""
    if cluster is None:
        return code[order], units
    if isinstance(cluster, tuple):
        column = _periods(frame[roles.time], roles.time, cluster)
    else:
        column = frame[cluster]
        if column.isna().any():
            raise DataError(f"from_frame: the cluster column {cluster!r} has a missing value.")
    names, number = _units(column, "cluster")
    if not isinstance(cluster, tuple):
        pairs = np.unique(np.stack([code, number]), axis=1)
        cut = np.flatnonzero(np.bincount(pairs[0]) > 1)
        if len(cut):
            raise DataError(
                f"from_frame: unit {units[cut[0]]!r} has rows in several clusters of {cluster!r}; "
                "a cluster must hold whole units, unless it is of time: cluster=('week',)."
            )
    return number[order], names


PERIODS = {"day": "D", "week": "W", "month": "M", "quarter": "Q", "year": "Y"}


def _periods(times: Series, name: str, cluster: tuple[str]) -> Series:
    """Return the period of time each row falls in, as text."""
    if len(cluster) != 1 or cluster[0] not in PERIODS:
        raise DataError(
            f"from_frame: a cluster of time is one of {', '.join(PERIODS)}, as in "
            f"cluster=('week',), but got {cluster!r}."
        )
    if getattr(times.dtype, "kind", "O") != "M":
        raise DataError(
            f"from_frame: cluster={cluster!r} needs dates, but {name!r} is {times.dtype}; convert "
            "it with pandas.to_datetime, or name a cluster column."
        )
    plain = times.dt.tz_localize(None) if getattr(times.dtype, "tz", None) else times
    found: Series = plain.dt.to_period(PERIODS[cluster[0]]).astype(str)
    return found


def _names(
    frame: DataFrame, roles: Roles, cluster: str | tuple[str] | None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    unit, time, observed, missing = roles
    columns = getattr(frame, "columns", None)
    if columns is None:
        raise DataError(
            f"from_frame: a pandas DataFrame was expected, but got {type(frame).__name__}."
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
    wanted = [unit, time, *s_names, *w_names, *([cluster] if isinstance(cluster, str) else [])]
    for name in dict.fromkeys(wanted):
        if name not in columns:
            raise DataError(f"from_frame: there is no column {name!r}{nearest(name, columns)}")
        if list(columns).count(name) > 1:
            raise DataError(f"from_frame: column {name!r} is in the frame twice; rename one.")
    asked = [unit, time, *s_names, *w_names]
    twice = sorted({name for name in asked if asked.count(name) > 1})
    if twice:
        raise DataError(
            f"from_frame: column {twice[0]!r} is asked for in two roles; give it one of them."
        )
    return s_names, w_names


def _numeric(column: Series, name: str, role: Literal["S", "W"]) -> Float2:
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
            declare = f", or declare it: kinds={{{name!r}: 'categorical'}}, [data.kinds] in a study"
            declare = declare if role == "S" else ""
            raise DataError(
                f"from_frame: column {name!r} must be numeric, but it holds {held} "
                f"({column.dtype}; of a file, row 0 is the first below the header); convert it"
                f"{declare}."
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
    labels = list(map(str, np.asarray(found, dtype=object).tolist()))
    if len(set(labels)) < len(labels):
        raise DataError(
            f"from_frame: two units of {name!r} read alike as text; make them distinct."
        )
    # sorted, so that shuffling the rows of the frame changes nothing, the split included
    names = sorted(labels)
    place = dict(zip(names, range(len(names)), strict=True))
    rank = np.fromiter(map(place.__getitem__, labels), np.int64, len(labels))
    return tuple(names), rank[code]


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


def _tick_days(column: Series) -> float:
    """Return how many days a tick of the time column is; 0 where times are plain numbers."""
    if getattr(column.dtype, "kind", "O") != "M":
        return 0.0
    plain = column.dt.tz_localize(None) if getattr(column.dtype, "tz", None) else column
    unit, count = np.datetime_data(plain.to_numpy().dtype)
    tick = np.ones(1, np.int64).astype(f"timedelta64[{count}{unit}]")
    return float((tick / np.timedelta64(1, "D"))[0])
