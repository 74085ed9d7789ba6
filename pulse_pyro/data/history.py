"""The archive: full contexts (S, W) of many units over time, as flat rows with labels."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from pulse_pyro._core.arrays import Array, Bool, Float1, Float2, Float3, Int
from pulse_pyro._core.errors import DataError, SettingError
from pulse_pyro._core.seeds import stream
from pulse_pyro.base import Column, Schema, Summary
from pulse_pyro.data.tables import Roles, flat_from_frame

if TYPE_CHECKING:
    from pandas import DataFrame

MOST_CELLS = 10**8  # of a rectangle of all units: 800 MB a column


@dataclass(frozen=True, eq=False)
class Rows:
    """Complete regression rows of an archive: n rows, p inputs.

    Attributes
    ----------
    x : (n, p) summary of the past of S, in the order of ``x_names``.
    w : (n, w_dim) what is missing online.
    unit, time : (n,) which unit and which step of it each row is.
    at : (n,) which row of the archive.
    dropped : how many existing rows were left out because x or w is not complete.
    """

    x: Float2
    w: Float2
    unit: Int
    time: Int
    at: Int
    x_names: tuple[str, ...]
    dropped: int


class Block(NamedTuple):
    """Units of like length as rectangles: padded by at most as many steps as there are.

    unit : (n,) which units. s (n, time, s_dim), w (n, time, w_dim): NaN where there is no row. row
    (n, time): which row of the archive, -1 where there is none.
    """

    unit: Int
    s: Float3
    w: Float3
    row: Int

    @property
    def seen(self) -> Bool:
        """(n, time) where there is a row."""
        return np.asarray(self.row >= 0)


class Grid(NamedTuple):
    """All units as one rectangle, NaN where there is no row: seen (unit, time)."""

    s: Float3
    w: Float3
    seen: Bool


@dataclass(frozen=True, eq=False)
class History:
    """Archive of units observed over time, each on a regular grid of steps.

    Attributes
    ----------
    s : (rows, s_dim) what is also seen online; NaN = not seen at that moment.
    w : (rows, w_dim) what only the archive has; NaN = not recorded.
    offsets : (units + 1,) unit i has the rows offsets[i] to offsets[i + 1] - 1.
    step : (rows,) which step of its unit a row is, rising within a unit; a step without a row is a
        gap, and lags that reach into it are NaN.
    units : names of the units, distinct.
    schema : the columns: names, roles and kinds.
    cluster, clusters : (rows,) number of the independent piece a row belongs to, and the names of
        the pieces; by default every unit is one.
    start : (units,) the calendar, where it is known, else None: how many steps after the first time
        of the whole archive each unit's step 0 was, rounded down. Parts keep it, so they share it.
    step_days : length of a step in days; 0 where times are plain numbers, or not known.

    Step 0 is each unit's own first row; :attr:`dates` puts units on one calendar. Nothing is
    padded: one very long unit among short ones costs its own rows. Not checked: that clusters are
    independent of each other.
    """

    s: Float2
    w: Float2
    offsets: Int
    step: Int
    units: tuple[str, ...]
    schema: Schema
    cluster: Int = None  # type: ignore[assignment]  # every unit is one
    clusters: tuple[str, ...] = ()
    start: Int | None = None
    step_days: float = 0.0

    def __post_init__(self) -> None:
        s, w = _own(self.s, np.float64), _own(self.w, np.float64)
        offsets, step = _own(self.offsets, np.int64), _own(self.step, np.int64)
        rows = int(offsets[-1]) if offsets.ndim == 1 and len(offsets) else -1
        wanted = {
            "offsets": (offsets.shape, (len(self.units) + 1,)),
            "s": (s.shape, (rows, len(self.schema.s_names))),
            "w": (w.shape, (rows, len(self.schema.w_names))),
            "step": (step.shape, (rows,)),
        }
        for name, (got, shape) in wanted.items():
            if got != shape:
                raise DataError(f"History.{name} must have shape {shape}, but got {got}.")
        if not self.s_names or not self.w_names or not self.units:
            raise DataError("A History needs at least one unit, one S column and one W column.")
        if offsets[0] != 0 or (np.diff(offsets) < 1).any():
            raise DataError("History.offsets must rise from 0, so that every unit has a row.")
        inside = np.ones(rows, dtype=np.bool_)
        inside[offsets[:-1]] = False
        if (np.diff(step)[inside[1:]] < 1).any() or (step[offsets[:-1]] < 0).any():
            raise DataError("History.step must rise within each unit, from 0 or more.")
        if np.isinf(s).any() or np.isinf(w).any():
            raise DataError("History.s and .w must be finite or NaN, but got an infinite value.")
        self._own_calendar()
        for what, names in (("units", self.units), ("clusters", self.clusters)):
            if len(set(names)) < len(names):
                twice = Counter(names).most_common(1)[0][0]
                raise DataError(f"History.{what} must be distinct, but {twice!r} is there twice.")
        if self.cluster is None:
            cluster, names = np.repeat(np.arange(len(self.units)), np.diff(offsets)), self.units
        else:
            cluster, names = _own(self.cluster, np.int64), self.clusters
            if cluster.shape != (rows,) or cluster.min() < 0 or cluster.max() >= len(names):
                raise DataError(
                    f"History.cluster must hold a number from 0 to {len(names) - 1} for each of "
                    f"{rows} rows."
                )
        pieces = self._pieces(offsets, cluster, names)
        members = () if pieces is None else self.units
        schema = replace(self.schema, cluster=pieces, units=members)
        if schema.moments is None:
            schema = schema.with_moments(_moments(s))
        for name, value in (
            ("s", s),
            ("w", w),
            ("offsets", offsets),
            ("step", step),
            ("cluster", cluster),
        ):
            value.flags.writeable = False  # a stage's value never changes under the next stage
            object.__setattr__(self, name, value)
        object.__setattr__(self, "clusters", tuple(names))
        object.__setattr__(self, "schema", schema)

    def _own_calendar(self) -> None:
        """Keep the calendar as numbers that nobody else can change, or say what is wrong."""
        days = float(self.step_days)
        if not (np.isfinite(days) and days >= 0.0):
            raise DataError(
                f"History.step_days must be a length in days, or 0, but got {self.step_days!r}."
            )
        if self.start is None:
            return
        start = _own(self.start, np.int64)
        if start.shape != (len(self.units),):
            raise DataError(
                f"History.start must have shape {(len(self.units),)}, but got {start.shape}."
            )
        start.flags.writeable = False
        object.__setattr__(self, "start", start)
        object.__setattr__(self, "step_days", days)

    def _pieces(
        self, offsets: Int, cluster: Int, names: tuple[str, ...]
    ) -> str | tuple[str] | None:
        """Return what the independent pieces are: as declared, or by whether they cut units."""
        declared = self.schema.cluster
        if self.cluster is None or (declared is None and names == self.units):
            return None
        if declared is not None:
            return declared
        border = np.zeros(len(cluster), dtype=np.bool_)
        border[offsets[:-1]] = True
        cut = bool((np.diff(cluster, prepend=cluster[0])[~border] != 0).any())
        return ("time",) if cut else "cluster"

    @classmethod
    def from_frame(
        cls,
        frame: DataFrame,
        *,
        unit: str,
        time: str,
        observed: Sequence[str],
        missing: Sequence[str],
        cluster: str | tuple[str] | None = None,
        kinds: Mapping[str, str | Column] | None = None,
    ) -> History:
        """Build an archive from a long data frame, one row per unit and time.

        Parameters
        ----------
        frame : long table; its rows may come in any order.
        unit, time : columns naming the unit and its time (integers or dates).
        observed : columns that are also seen online (S); NaN = not seen at that moment.
        missing : columns that only the archive has (W).
        cluster : the independent pieces, if they are larger than units: a column that is the same
            in all rows of a unit, e.g. "city"; or a period of time, ("week",), ("day",),
            ("month",), ("quarter",) or ("year",), which may cut units: lags do not reach across
            its border after :meth:`split`.
        kinds : what columns are that are not plain numbers: {"city": "categorical", "hour":
            "clock 24"}, or a :class:`Column` with levels (an ordinal needs them),
            ``unknown="other"`` and so on. A pandas category counts as declared. Levels are text.

        Times of all units must fall on one regular step (the greatest common divisor of the
        gaps); a time that is absent is a gap, and lags that reach into it are NaN. What units
        share of the calendar is kept in :attr:`start` and read by :attr:`dates`.

        Examples
        --------
        >>> import pandas as pd
        >>> diary = {"id": ["ann", "ann", "bob"], "day": [1, 2, 1], "steps": [3.0, 4.0, 5.0]}
        >>> frame = pd.DataFrame(diary | {"mood": [1.0, 0.0, 1.0]})
        >>> History.from_frame(frame, unit="id", time="day", observed=["steps"], missing=["mood"])
        History: 2 units, 3 rows (1 to 2 a unit)
          seen online (S): steps
          archive only (W): mood
        """
        table = flat_from_frame(frame, Roles(unit, time, observed, missing), kinds, cluster)
        for array in (table.s, table.w, table.offsets, table.step, table.cluster, table.start):
            array.flags.writeable = False  # nobody else has it: no copy is needed
        return cls(*table)

    @classmethod
    def from_arrays(
        cls,
        s: ArrayLike,
        w: ArrayLike,
        *,
        seen: ArrayLike | None = None,
        units: Sequence[str] | None = None,
        s_names: Sequence[str] | None = None,
        w_names: Sequence[str] | None = None,
    ) -> History:
        """Build an archive from rectangles s (unit, time, s_dim) and w (unit, time, w_dim).

        seen : (unit, time) where there is a row, everywhere by default. units, s_names, w_names :
        labels; u0, u1, ..., s0, ... and w0, ... by default.
        """
        full_s, full_w = np.asarray(s, np.float64), np.asarray(w, np.float64)
        if full_s.ndim != 3 or full_w.ndim != 3 or full_s.shape[:2] != full_w.shape[:2]:
            raise DataError(
                "History.from_arrays: s must be (unit, time, s_dim) and w (unit, time, w_dim), but "
                f"got {full_s.shape} and {full_w.shape}."
            )
        here = np.ones(full_s.shape[:2], np.bool_) if seen is None else np.asarray(seen, np.bool_)
        if here.shape != full_s.shape[:2]:
            raise DataError(
                f"History.from_arrays: seen must be {full_s.shape[:2]}, but got {here.shape}."
            )
        labels = units or [f"u{i}" for i in range(len(full_s))]
        names = [
            given or [f"{letter}{j}" for j in range(values.shape[2])]
            for given, letter, values in ((s_names, "s", full_s), (w_names, "w", full_w))
        ]
        count = here.sum(1)
        if not count.all():
            raise DataError(
                f"History.from_arrays: unit {labels[int(count.argmin())]!r} has no row."
            )
        offsets = np.concatenate([[0], np.cumsum(count)])
        return cls(
            full_s[here],
            full_w[here],
            offsets,
            np.nonzero(here)[1],
            tuple(map(str, labels)),
            Schema.of(*names),
        )

    @property
    def s_names(self) -> tuple[str, ...]:
        """Names of the numeric S columns."""
        return self.schema.s_names

    @property
    def w_names(self) -> tuple[str, ...]:
        """Names of the W columns."""
        return self.schema.w_names

    @property
    def lengths(self) -> Int:
        """(units,) rows of each unit."""
        return np.diff(self.offsets)

    @cached_property
    def unit_of(self) -> Int:
        """(rows,) which unit each row belongs to."""
        return np.repeat(np.arange(len(self.units)), self.lengths)

    @property
    def dates(self) -> Int | None:
        """(rows,) steps since the archive's first time, shared by all units; None if not known."""
        if self.start is None:
            return None
        out: Int = self.start[self.unit_of] + self.step
        return out

    @property
    def id(self) -> str:
        """Fingerprint of all values and where they stand, not of names or the calendar."""
        digest = hashlib.sha256()
        for array in (self.s, self.w, self.offsets, self.step):
            digest.update(repr(array.shape).encode())
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()[:16]

    def unit(self, i: int) -> History:
        """Return the archive of one unit, by its position."""
        return self.take([i])

    def take(self, index: Sequence[int] | Int) -> History:
        """Return the archive of the units at these positions."""
        at = np.asarray(index)
        at = np.flatnonzero(at) if at.dtype == np.bool_ else at.astype(np.int64)
        if len(at) and not (-len(self.units) <= at.min() and at.max() < len(self.units)):
            raise DataError(
                f"History.take: positions run from 0 to {len(self.units) - 1}, but got "
                f"{at.max() if at.max() >= len(self.units) else at.min()}."
            )
        at = at % len(self.units)
        offsets = np.concatenate([[0], np.cumsum(self.lengths[at])])
        return self._part(self.rows_of(at), offsets, at)

    def rows_of(self, units: Int) -> Int:
        """Return the numbers of the rows of some units, by their positions, one after the other."""
        count = self.lengths[units]
        start = np.concatenate([[0], np.cumsum(count)[:-1]])
        rows: Int = np.arange(count.sum()) + np.repeat(self.offsets[:-1][units] - start, count)
        return rows

    def where(self, rows: ArrayLike) -> History:
        """Return the archive of these rows, True or False for each; units without a row are gone.

        Steps stay as they are, so a row that is left out is a gap.
        """
        keep = np.asarray(rows, np.bool_)
        if keep.shape != (len(self.s),):
            raise DataError(
                f"History.where: one True or False for each of {len(self.s)} rows is needed, but "
                f"got {keep.shape}."
            )
        count = np.bincount(self.unit_of[keep], minlength=len(self.units))
        there = np.flatnonzero(count)
        offsets = np.concatenate([[0], np.cumsum(count[there])])
        return self._part(np.flatnonzero(keep), offsets, there)

    def _part(self, rows: Int, offsets: Int, at: Int) -> History:
        """Return the archive of rows by number, grouped into the units at these positions."""
        schema = replace(self.schema, moments=None)
        cluster, names = None, ()
        if schema.cluster is not None:
            there, cluster = np.unique(self.cluster[rows], return_inverse=True)
            names = tuple(self.clusters[i] for i in there)
        return History(
            s=self.s[rows],
            w=self.w[rows],
            offsets=offsets,
            step=self.step[rows],
            units=tuple(self.units[i] for i in at),
            schema=schema,
            cluster=cluster,  # type: ignore[arg-type]  # every unit is one
            clusters=names,
            start=None if self.start is None else self.start[at],
            step_days=self.step_days,
        )

    def take_clusters(self, index: Sequence[int] | Int) -> History:
        """Return the archive of the clusters at these positions, in the order they stand in here.

        Without clusters, of the units. Where a cluster of time cuts units, rows of other clusters
        are left out, and lags across the border are gaps.
        """
        at = np.unique(np.asarray(index, np.int64))
        if self.schema.cluster is None:
            return self.take(at)
        return self.where(np.isin(self.cluster, at))

    def split(self, fit: float = 0.5, *, seed: int) -> tuple[History, History]:
        """Split at random by cluster into (fit, held_out); ``fit`` is the share to fit on.

        Without clusters, by unit. Where a cluster of time cuts units, both parts hold rows of the
        same units, and lags across the border are gaps.

        Examples
        --------
        >>> import pulse_pyro as pp
        >>> world = pp.envs.w_times_action()
        >>> history = world.archive(units=60, length=60, rng=pp.stream(0, "archive"))
        >>> fit, held_out = history.split(0.75, seed=0)
        >>> len(fit.units), len(held_out.units), set(fit.units) & set(held_out.units)
        (45, 15, set())
        """
        what = "units" if self.schema.cluster is None else "clusters"
        if len(self.clusters) < 2:
            raise DataError(
                f"split needs at least 2 {what}, but this archive has {len(self.clusters)}; "
                "rows of one depend on each other, so it cannot be both fitted on and held out."
            )
        if not 0 < fit < 1:
            raise SettingError(f"split: fit must lie between 0 and 1, but got {fit!r}.")
        order = stream(seed, "split").permutation(len(self.clusters))
        first = min(max(round(fit * len(self.clusters)), 1), len(self.clusters) - 1)
        return self.take_clusters(order[:first]), self.take_clusters(order[first:])

    def blocks(self) -> Iterator[Block]:
        """Yield rectangles of units of like length, each padded to less than twice its steps."""
        span = self.step[self.offsets[1:] - 1] + 1
        if span.max() < 2 * span.min():
            yield self._block(np.arange(len(self.units)), span)
            return
        order = np.argsort(-span, kind="stable")
        while len(order):
            near = 2 * span[order] > span[order[0]]
            yield self._block(np.sort(order[near]), span)
            order = order[~near]

    def _block(self, unit: Int, span: Int) -> Block:
        """Return units as a rectangle."""
        time, flat = int(span[unit].max()), self.rows_of(unit)
        shape = (len(unit), time)
        if len(flat) == len(unit) * time:  # no gap and no padding
            rows = _run(flat)
            s, w = self.s[rows], self.w[rows]
            return Block(unit, s.reshape(*shape, -1), w.reshape(*shape, -1), flat.reshape(shape))
        at = np.repeat(np.arange(len(unit)), self.lengths[unit])
        row = np.full(shape, -1, dtype=np.int64)
        row[at, self.step[flat]] = flat
        s = np.full((*row.shape, self.s.shape[1]), np.nan)
        w = np.full((*row.shape, self.w.shape[1]), np.nan)
        s[at, self.step[flat]], w[at, self.step[flat]] = self.s[flat], self.w[flat]
        return Block(unit, s, w, row)

    @cached_property
    def grid(self) -> Grid:
        """All units as one rectangle, padded to the longest; see :meth:`blocks` for long ones."""
        span = self.step[self.offsets[1:] - 1] + 1
        cells = len(self.units) * int(span.max()) * (len(self.s_names) + len(self.w_names))
        if cells > max(MOST_CELLS, 2 * self.s.size + 2 * self.w.size):
            raise DataError(
                f"History.grid: {len(self.units)} units padded to {span.max()} steps are {cells} "
                "cells; cut the longest units into several, or work with history.blocks()."
            )
        block = self._block(np.arange(len(self.units)), span)
        grid = Grid(block.s, block.w, block.seen)
        for array in grid:
            array.flags.writeable = False  # it is kept, and everyone is given the same one
        return grid

    def flat(self, values: Array) -> Array:
        """Return values (unit, time, ...) of :attr:`grid` at the rows, (rows, ...)."""
        out: Array = values[self.unit_of, self.step]
        return out

    def on_grid(self, values: Array, empty: float = np.nan) -> Array:
        """Put values of the rows, (rows, ...), on :attr:`grid`, (unit, time, ...)."""
        out = np.full((*self.grid.seen.shape, *values.shape[1:]), empty, dtype=values.dtype)
        out[self.unit_of, self.step] = values
        return out

    def inputs(self, summary: Summary) -> Float2:
        """Return the summary at every row, (rows, p), NaN where it is not complete."""
        out: Float2 | None = None
        for block in self.blocks():
            x, seen = summary(block.s), block.seen
            full = bool(seen.all())
            if full and len(block.unit) == len(self.units):
                return x.reshape(-1, x.shape[-1])
            if out is None:
                out = np.empty((len(self.s), x.shape[-1]))
            if full:
                out[_run(block.row.ravel())] = x.reshape(-1, x.shape[-1])
            else:
                out[block.row[seen]] = x[seen]
        assert out is not None  # there is at least one unit
        return out

    def unit_sums(self, values: Float1) -> Float1:
        """Return the sum of values (rows,) over each unit's rows, (units,)."""
        out = np.empty(len(self.units))
        for block in self.blocks():
            out[block.unit] = np.where(block.seen, values[block.row], 0.0).sum(1)
        return out

    def rows(self, summary: Summary, *, holes: Literal["", "x", "w"] = "") -> Rows:
        """Return the regression rows under a causal summary of the past.

        Rows with a NaN in x (warm-up, gaps, unseen S) or in w are left out and counted: the fit
        is a complete-case fit, valid when incompleteness does not depend on w given x. With
        ``holes`` = "x" or "w", rows whose x, or whose w, is not complete are kept for a law that
        can use them; the other side must be complete.
        """
        x = self.inputs(summary)
        # a sum is NaN where a term is: one pass, no temporary of the size of x
        total = x.sum(-1)
        if np.isinf(total).any() or (holes == "x" and np.isinf(x).any()):
            raise DataError(f"{summary!r} gives an infinite value; what does it do at 0?")
        keep = np.ones(len(x), dtype=np.bool_)
        if holes != "x":
            keep &= ~np.isnan(total)
        if holes != "w":
            keep &= ~np.isnan(self.w.sum(-1))
        if not keep.any():
            self._refuse_partly_seen(~np.isnan(total))
            raise DataError(
                f"No complete row is left: {summary!r} needs {summary.memory} consecutive rows, "
                f"and no unit has more than {self._longest_run()} without a gap in time; use "
                "fewer lags or longer units, number decision points 0, 1, 2, ... if the gaps mean "
                "nothing, and look for NaN in the S and W columns."
            )
        names = tuple(f"{s}.{part}" for part in summary.names for s in self.s_names)
        at, whole = np.flatnonzero(keep), bool(keep.all())
        return Rows(
            x=x if whole else x[keep],
            w=self.w if whole else self.w[keep],
            unit=self.unit_of[at],
            time=self.step[at],
            at=at,
            x_names=names,
            dropped=len(keep) - len(at),
        )

    def _refuse_partly_seen(self, whole: Bool) -> None:
        """Refuse W that is seen in part, never whole, at rows with all inputs; name one of them."""
        there = np.isfinite(self.w)
        rows = np.flatnonzero(whole & there.any(1))
        if not len(rows):
            return
        never = ~there[whole].any(0)
        name = self.w_names[int((never if never.any() else ~there[rows[0]]).argmax())]
        at = f"unit {self.units[self.unit_of[rows[0]]]!r}, step {self.step[rows[0]]}"
        raise DataError(
            f"No complete row is left: {len(rows)} rows have all inputs and some of W, but none "
            f"has all of it; column {name!r} is "
            + ("never seen in them" if never.any() else f"NaN at {at}, the first of them")
            + "; leave it out, fit W columns apart, or write a model with a site for each W "
            "column, which keeps such rows."
        )

    def partly_seen(self, summary: Summary) -> int:
        """Return how many rows have all inputs and some of W, but not all of it."""
        there = np.isfinite(self.w)
        some = there.any(1) & ~there.all(1)
        if not some.any():
            return 0
        return int((some & ~np.isnan(self.inputs(summary).sum(-1))).sum())

    def to_frame(self, *, calendar: bool = False) -> DataFrame:
        """Return the long table of existing rows: unit, time, S and W.

        time : step within the unit; with ``calendar`` :attr:`dates`, so that an archive made of
        the table anew has the same calendar.
        """
        import pandas as pd

        dates = self.dates if calendar else self.step
        if dates is None:
            raise DataError(
                "History.to_frame: the calendar of this archive is not known; it is read from the "
                "times of History.from_frame."
            )
        keys: dict[str, Any] = {
            "unit": np.array(self.units, dtype=object)[self.unit_of],
            "time": dates,
        }
        columns = {name: self.s[:, j] for j, name in enumerate(self.s_names)}
        columns |= {name: self.w[:, j] for j, name in enumerate(self.w_names)}
        return pd.DataFrame(keys | columns)

    @property
    def table(self) -> DataFrame:
        """One line per column: role, share of existing rows with a value, mean, sd, range."""
        import pandas as pd

        values = np.concatenate([self.s, self.w], axis=-1)
        roles = ["seen online (S)"] * len(self.s_names) + ["archive only (W)"] * len(self.w_names)
        frame = pd.DataFrame(values, columns=[*self.s_names, *self.w_names])
        out = frame.agg(["mean", "std", "min", "max"]).T
        out.insert(0, "present", frame.notna().mean())
        out.insert(0, "role", roles)
        return out.rename_axis("column")

    def __repr__(self) -> str:
        lengths = self.lengths
        pieces = "" if self.schema.cluster is None else f", {len(self.clusters)} clusters"
        return (
            f"History: {len(self.units)} units, {len(self.s)} rows "
            f"({lengths.min()} to {lengths.max()} a unit){pieces}\n"
            f"  seen online (S): {', '.join(self.s_names)}\n"
            f"  archive only (W): {', '.join(self.w_names)}"
        )

    def _repr_html_(self) -> str:
        return f"<pre>{self!r}</pre>{self.table.to_html(float_format='{:.4g}'.format)}"

    def _longest_run(self) -> int:
        """Most consecutive existing rows of any unit."""
        breaks = np.diff(self.step, prepend=-2) != 1
        breaks[self.offsets[:-1]] = True
        return int(np.diff(np.append(np.flatnonzero(breaks), len(self.step))).max())


Source: TypeAlias = "History | ArrayLike"  # an archive, or series (batch, time, s_dim)


def series_of(source: ArrayLike, names: tuple[str, ...], where: str) -> Float3:
    """Return (batch, time, s_dim) numbers, or say what was got instead."""
    try:
        series = np.asarray(source, dtype=np.float64)
    except (TypeError, ValueError) as cause:
        raise DataError(
            f"{where}: s must be a History or an array (batch, time, {len(names)}), but got "
            f"{type(source).__name__}."
        ) from cause
    if series.ndim != 3 or series.shape[-1] != len(names):
        raise DataError(
            f"{where}: s must be a History, or (batch, time, {len(names)}) with columns {names}, "
            f"but its shape is {series.shape}; for one series use s[None]."
        )
    if np.isinf(series).any():
        b, t, j = (int(i) for i in np.argwhere(np.isinf(series))[0])
        raise DataError(
            f"{where}: s is infinite at row {t} of series {b}, column {names[j]!r}; use NaN for "
            "not seen."
        )
    return series


def as_history(source: Source, schema: Schema) -> History:
    """Return an archive as it is, or series (batch, time, s_dim) as one, W not recorded."""
    if isinstance(source, History):
        return source
    s = series_of(source, schema.s_names, "History")
    w = np.full((*s.shape[:2], len(schema.w_names)), np.nan)
    return History.from_arrays(s, w, s_names=schema.s_names, w_names=schema.w_names)


def context_rows(
    source: Source, summary: Summary, schema: Schema, where: str
) -> tuple[Float2, Float2]:
    """Return inputs x (n, p) and S_t (n, s_dim) of every row of an archive, or of series.

    schema : of the law; its S columns are needed. where : for the message if S are others.
    """
    if isinstance(source, History):
        schema.expect_s(source.schema, where, "the history has")
        return source.inputs(summary), source.s
    series = series_of(source, schema.s_names, where)
    x = summary(series)
    return x.reshape(-1, x.shape[-1]), series.reshape(-1, series.shape[-1])


def _run(rows: Int) -> Int | slice:
    """Return rising row numbers as a slice where they follow each other: no copy is then made."""
    first, last = int(rows[0]), int(rows[-1])
    return slice(first, last + 1) if last - first + 1 == len(rows) else rows


def _own(values: Array, dtype: Any) -> Array:
    """Return an array that nobody else can change: as it is if it is read-only, else a copy."""
    array = np.asarray(values)
    if array.dtype == dtype and not array.flags.writeable:
        return array
    return np.array(array, dtype)


def _moments(s: Float2) -> Float2:
    """Return mean and sd of each column, (2, s_dim), over what is seen; NaN if nothing is."""
    if np.isnan(s).any():  # ten times slower than the plain ones
        known = np.where(np.isnan(s).all(0), 0.0, s)
        found = np.stack([np.nanmean(known, axis=0), np.nanstd(known, axis=0)])
        return np.where(np.isnan(s).all(0), np.nan, found)
    return np.stack([s.mean(0), s.std(0)])
