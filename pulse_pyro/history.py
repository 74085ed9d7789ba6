"""The archive: full contexts (S, W) of many units over time, as padded arrays with labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from pulse_pyro.arrays import Bool, Float2, Float3, Int
from pulse_pyro.errors import DataError, SettingError
from pulse_pyro.frames import grid_from_frame
from pulse_pyro.seeds import stream
from pulse_pyro.summary import Summary

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True, eq=False)
class Rows:
    """Complete regression rows of an archive: n rows, p inputs.

    Attributes
    ----------
    x : (n, p) summary of the past of S, in the order of ``x_names``.
    w : (n, w_dim) what is missing online.
    unit, time : (n,) which unit and which step of it each row is.
    dropped : how many existing rows were left out because x or w is not complete.
    """

    x: Float2
    w: Float2
    unit: Int
    time: Int
    x_names: tuple[str, ...]
    dropped: int


@dataclass(frozen=True, eq=False)
class History:
    """Archive of units observed over time on a regular grid.

    Attributes
    ----------
    s : (unit, time, s_dim) what is also seen online; NaN = not seen at that moment.
    w : (unit, time, w_dim) what only the archive has; NaN = not recorded.
    seen : (unit, time) the row exists (units may be shorter, or have gaps).
    units, s_names, w_names : labels.

    Step 0 is each unit's own first row: calendar dates of different units are not aligned.
    """

    s: Float3
    w: Float3
    seen: Bool
    units: tuple[str, ...]
    s_names: tuple[str, ...]
    w_names: tuple[str, ...]

    def __post_init__(self) -> None:
        s, w = np.array(self.s, np.float64), np.array(self.w, np.float64)  # copies: see below
        seen = np.array(self.seen, np.bool_)
        grid = (len(self.units), seen.shape[1] if seen.ndim == 2 else -1)
        wanted = {
            "seen": (seen.shape, grid),
            "s": (s.shape, (*grid, len(self.s_names))),
            "w": (w.shape, (*grid, len(self.w_names))),
        }
        for name, (came, shape) in wanted.items():
            if came != shape:
                raise DataError(f"History.{name} must have shape {shape}, but {came} came.")
        if not self.s_names or not self.w_names or not self.units:
            raise DataError("A History needs at least one unit, one S column and one W column.")
        if np.isinf(s).any() or np.isinf(w).any():
            raise DataError("History.s and .w must be finite or NaN, but an infinite value came.")
        twice = [name for name, count in Counter(self.units).items() if count > 1]
        if twice:
            raise DataError(f"History.units must be distinct, but {twice[0]!r} stands twice.")
        s[~seen] = w[~seen] = np.nan  # a row that does not exist must not reach into a lag
        for name, array in (("s", s), ("w", w), ("seen", seen)):
            array.flags.writeable = False  # a stage's value never changes under the next stage
            object.__setattr__(self, name, array)

    @classmethod
    def from_frame(
        cls,
        frame: DataFrame,
        *,
        unit: str,
        time: str,
        observed: Sequence[str],
        missing: Sequence[str],
    ) -> History:
        """Build an archive from a long data frame, one row per unit and time.

        Parameters
        ----------
        frame : long table; its rows may come in any order.
        unit, time : columns naming the unit and its time (integers or dates).
        observed : columns that are also seen online (S); NaN = not seen at that moment.
        missing : columns that only the archive has (W).

        Times of all units must fall on one regular step (the greatest common divisor of the
        gaps); a time that is absent is a gap, and lags that reach into it are NaN.

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
        return cls(*grid_from_frame(frame, unit, time, observed, missing))

    @property
    def rows_seen(self) -> int:
        """How many (unit, time) rows exist."""
        return int(self.seen.sum())

    def take(self, index: Sequence[int] | Int) -> History:
        """Return the archive of the units at these positions."""
        at = np.asarray(index)
        at = np.flatnonzero(at) if at.dtype == np.bool_ else at.astype(np.int64)
        if len(at) and not (-len(self.units) <= at.min() and at.max() < len(self.units)):
            raise DataError(
                f"History.take: positions run from 0 to {len(self.units) - 1}, but "
                f"{at.max() if at.max() >= len(self.units) else at.min()} came."
            )
        units = tuple(self.units[i] for i in at)
        return History(self.s[at], self.w[at], self.seen[at], units, self.s_names, self.w_names)

    def split(self, fit: float = 0.5, *, seed: int) -> tuple[History, History]:
        """Split at random by unit into (fit, held_out); ``fit`` is the share of units to fit on.

        Examples
        --------
        >>> import pulse_pyro as pp
        >>> history = pp.w_times_action().archive(units=60, length=60, rng=pp.stream(0, "archive"))
        >>> fit, held_out = history.split(0.75, seed=0)
        >>> len(fit.units), len(held_out.units), set(fit.units) & set(held_out.units)
        (45, 15, set())
        """
        if len(self.units) < 2:
            raise DataError(
                f"split needs at least 2 units, but this archive has {len(self.units)}; rows of "
                "one unit depend on each other, so it cannot be both fitted on and held out."
            )
        if not 0 < fit < 1:
            raise SettingError(f"split: fit must lie between 0 and 1, but {fit!r} came.")
        order = stream(seed, "split").permutation(len(self.units))
        first = min(max(round(fit * len(self.units)), 1), len(self.units) - 1)
        return self.take(np.sort(order[:first])), self.take(np.sort(order[first:]))

    def rows(self, summary: Summary, *, holes: Literal["", "x", "w"] = "") -> Rows:
        """Return the regression rows under a causal summary of the past.

        Rows with a NaN in x (warm-up, gaps, unseen S) or in w are left out and counted: the fit
        is a complete-case fit, valid when incompleteness does not depend on w given x. With
        ``holes`` = "x" or "w", rows whose x, or whose w, is not complete are kept for a law that
        can use them; the other side must be complete.
        """
        x = summary(self.s)
        # a sum is NaN where a term is: one pass, no temporary of the size of x
        total = x.sum(-1)
        if np.isinf(total).any() or (holes == "x" and np.isinf(x).any()):
            raise DataError(f"{summary!r} gives an infinite value; what does it do at 0?")
        keep = self.seen.copy()
        if holes != "x":
            keep &= ~np.isnan(total)
        if holes != "w":
            keep &= ~np.isnan(self.w.sum(-1))
        if not keep.any():
            raise DataError(
                f"No complete row is left: {summary!r} needs {summary.memory} consecutive rows, "
                f"and no unit has more than {_longest_run(self.seen)} without a gap in time; use "
                "fewer lags or longer units, number decision points 0, 1, 2, ... if the gaps mean "
                "nothing, and look for NaN in the S and W columns."
            )
        unit, time = np.nonzero(keep)
        names = tuple(f"{s}.{part}" for part in summary.names for s in self.s_names)
        whole = bool(keep.all())
        return Rows(
            x.reshape(-1, x.shape[-1]) if whole else x[keep],
            self.w.reshape(-1, self.w.shape[-1]) if whole else self.w[keep],
            unit, time, names, self.rows_seen - len(unit),
        )  # fmt: skip

    def to_frame(self) -> DataFrame:
        """Return the long table of existing rows: unit, time (step within the unit), S and W."""
        import pandas as pd

        unit, time = np.nonzero(self.seen)
        keys = {"unit": np.array(self.units, dtype=object)[unit], "time": time}
        columns = {name: self.s[unit, time, j] for j, name in enumerate(self.s_names)}
        columns |= {name: self.w[unit, time, j] for j, name in enumerate(self.w_names)}
        return pd.DataFrame(keys | columns)

    @property
    def table(self) -> DataFrame:
        """One line per column: role, share of existing rows with a value, mean, sd, range."""
        import pandas as pd

        values = np.concatenate([self.s, self.w], axis=-1)[self.seen]
        roles = ["seen online (S)"] * len(self.s_names) + ["archive only (W)"] * len(self.w_names)
        frame = pd.DataFrame(values, columns=[*self.s_names, *self.w_names])
        out = frame.agg(["mean", "std", "min", "max"]).T
        out.insert(0, "present", frame.notna().mean())
        out.insert(0, "role", roles)
        return out.rename_axis("column")

    def __repr__(self) -> str:
        lengths = self.seen.sum(1)
        return (
            f"History: {len(self.units)} units, {self.rows_seen} rows "
            f"({lengths.min()} to {lengths.max()} a unit)\n"
            f"  seen online (S): {', '.join(self.s_names)}\n"
            f"  archive only (W): {', '.join(self.w_names)}"
        )

    def _repr_html_(self) -> str:
        return f"<pre>{self!r}</pre>{self.table.to_html(float_format='{:.4g}'.format)}"


def _longest_run(seen: Bool) -> int:
    """Most consecutive existing rows of any unit."""
    gone = np.pad(~seen, ((0, 0), (1, 1)), constant_values=True)
    at = np.flatnonzero(gone.ravel())
    return int(np.diff(at).max()) - 1
