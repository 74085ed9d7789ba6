"""Recorded contexts of which the utility of every arm is known: bandits without a made-up world."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pulse_pyro.arrays import Array, Bool, Float3, Float4, Int, whole
from pulse_pyro.errors import DataError, SettingError
from pulse_pyro.features import Features
from pulse_pyro.history import History
from pulse_pyro.seeds import stream


@dataclass(frozen=True, eq=False)
class Replay:
    """Units met online, with what every arm would have been worth at each of their rows.

    Attributes
    ----------
    history : S as seen online, and W, which is kept for scoring and for agents that may see it.
    utility : (unit, time, action); NaN where it is not known.
    features : Phi.
    block : (unit, time) which independent piece of the data a row belongs to (a week, a person);
        the unit itself by default. For standard errors over what was recorded.

    Made from outcomes that do not depend on the action (the weather goes its way), so that the
    utility of arms that were not played is known too. NOT covered: actions that change later
    contexts or outcomes.
    """

    history: History
    utility: Float3
    features: Features
    block: Int | None = None

    def __post_init__(self) -> None:
        grid, arms = self.history.seen.shape, self.features.actions
        value = np.array(self.utility, np.float64)
        if value.shape != (*grid, arms):
            raise DataError(
                f"Replay: utility must be (unit, time, action) = {(*grid, arms)}, but its shape is "
                f"{value.shape}."
            )
        if np.isinf(value).any():
            raise DataError("Replay: a utility is infinite; use NaN where it is not known.")
        own = np.arange(grid[0])[:, None] if self.block is None else np.array(self.block)
        if self.block is not None and own.shape != grid:
            raise DataError(f"Replay: block must be (unit, time) = {grid}, not {own.shape}.")
        if not np.issubdtype(own.dtype, np.integer) or own.min(initial=0) < 0:
            raise DataError("Replay: block must hold whole numbers >= 0, one per row.")
        own = np.ascontiguousarray(np.broadcast_to(own, grid), np.int64)
        for name, array in (("utility", value), ("block", own)):
            array.flags.writeable = False
            object.__setattr__(self, name, array)

    @property
    def s(self) -> Float3:
        """What is seen online, (unit, time, s_dim)."""
        return self.history.s

    @property
    def w(self) -> Float3:
        """What is not, (unit, time, w_dim)."""
        return self.history.w

    @property
    def lead(self) -> int:
        """Every row may be a round; lags reach back within the unit."""
        return 0

    @cached_property
    def phi(self) -> Float4:
        """Features of the full context, (unit, time, action, d); NaN where S or W is."""
        s, w = (v.reshape(-1, v.shape[-1]) for v in (self.s, self.w))
        rows = np.stack([self.features(s, w, a) for a in range(self.features.actions)], axis=1)
        return rows.reshape(*self.history.seen.shape, self.features.actions, -1)

    @property
    def complete(self) -> Bool:
        """Rows (unit, time) that exist, with S, W and every utility known."""
        known = np.isfinite(self.utility).all(-1) & self.history.seen
        return known & np.isfinite(self.s).all(-1) & np.isfinite(self.w).all(-1)


def shuffled(rows: Bool, *, seed: int, rounds: int | None = None) -> Int:
    """Return rounds (time,) as positions in the flat (unit * time) grid, in random order.

    rows : (unit, time) those that can be played. rounds : how many of them; all by default.
    Lags are taken in each unit's own time before: only the order of decisions is random.
    """
    at = np.flatnonzero(rows)
    if not len(at):
        raise DataError("shuffled: no row can be played by every agent; use fewer lags.")
    count = len(at) if rounds is None else whole(rounds, "shuffled: rounds", 1)
    if count > len(at):
        raise SettingError(f"shuffled: {count} rounds were asked for, {len(at)} can be played.")
    found: Int = stream(seed, "order").permutation(at)[:count]
    return found


def by_time(rows: Bool, *, seed: int) -> Int:
    """Return the rounds in order of time, rows of one time in random order of their units.

    Rewards are learned at once: of two units at one time the second profits from the first's
    reward, even where that only comes to be known later.
    """
    order = stream(seed, "order").permutation(len(rows))
    time, rank = np.nonzero(rows[order].T)
    return np.asarray(order[rank] * rows.shape[1] + time)


def in_line(values: Array, order: Int) -> Array:
    """Put values (unit, time, ...) in the order they are played, (rounds, ...)."""
    return values.reshape(-1, *values.shape[2:])[order]
