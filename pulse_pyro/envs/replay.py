"""Recorded contexts with the utility of every arm: what each agent would have earned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pulse_pyro._core.arrays import Array, Bool, Float1, Float2, Float3, Float4, Int, whole
from pulse_pyro._core.errors import DataError, FeatureError, SettingError, nearest
from pulse_pyro._core.seeds import stream
from pulse_pyro.base import picture
from pulse_pyro.data.history import History
from pulse_pyro.envs.simulation import Agent, Team, laid_out, scored
from pulse_pyro.features import Features
from pulse_pyro.policies.guard import Series
from pulse_pyro.policies.horizon import play_horizon

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

# Recorded contexts of which the utility of every arm is known: bandits without a made-up world.


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
    contexts or outcomes; units so unequal that they make no rectangle (unit, time), on which every
    agent's features are laid out.
    """

    history: History
    utility: Float3
    features: Features
    block: Int | None = None

    def __post_init__(self) -> None:
        grid, arms = _rectangle(self.history), self.features.actions
        value = np.array(self.utility, np.float64)
        if value.shape != (*grid, arms):
            raise DataError(
                f"Replay: utility must be (unit, time, action) = {(*grid, arms)}, but its shape is "
                f"{value.shape}."
            )
        if np.isinf(value).any():
            raise DataError("Replay: a utility is infinite; use NaN where it is not known.")
        block = np.arange(grid[0])[:, None] if self.block is None else np.array(self.block)
        if self.block is not None and block.shape != grid:
            raise DataError(f"Replay: block must be (unit, time) = {grid}, not {block.shape}.")
        if not np.issubdtype(block.dtype, np.integer) or block.min(initial=0) < 0:
            raise DataError("Replay: block must hold whole numbers >= 0, one per row.")
        block = np.ascontiguousarray(np.broadcast_to(block, grid), np.int64)
        for name, array in (("utility", value), ("block", block)):
            array.flags.writeable = False
            object.__setattr__(self, name, array)

    @property
    def s(self) -> Float3:
        """What is seen online, (unit, time, s_dim)."""
        return self.history.grid.s

    @property
    def w(self) -> Float3:
        """What is not, (unit, time, w_dim)."""
        return self.history.grid.w

    @property
    def lead(self) -> int:
        """Every row may be a round; lags reach back within the unit."""
        return 0

    @cached_property
    def phi(self) -> Float4:
        """Features of the full context, (unit, time, action, d); NaN where S or W is."""
        s, w = (v.reshape(-1, v.shape[-1]) for v in (self.s, self.w))
        rows = np.stack([self.features(s, w, a) for a in range(self.features.actions)], axis=1)
        return rows.reshape(*self.history.grid.seen.shape, self.features.actions, -1)

    @property
    def complete(self) -> Bool:
        """Rows (unit, time) that exist, with S, W and every utility known."""
        rows = self.history.grid.seen & np.isfinite(self.utility).all(-1)
        return np.asarray(rows & np.isfinite(self.s).all(-1) & np.isfinite(self.w).all(-1))


def _rectangle(history: History) -> tuple[int, int]:
    """Return (units, steps of the longest), or say why such units cannot be replayed."""
    try:
        units, steps = history.grid.seen.shape
    except DataError as cause:
        raise DataError(
            f"Replay: utilities and agents' features are laid out as (unit, time, action), and "
            f"{len(history.units)} units padded to the {history.step.max() + 1} steps of the "
            "longest do not fit into memory; cut the longest units into several before History is "
            "made, each with a name of its own, or leave them out with history.take()."
        ) from cause
    return units, steps


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
    order: Int = stream(seed, "order").permutation(at)[:count]
    return order


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


# Agents side by side on recorded rounds: what each earned, and how sure that is.


class Contrast(NamedTuple):
    """Mean difference of two agents, with two standard errors.

    se : over runs, whose orders and fits differ, the data being the same. block_se : over blocks of
    the data, the order being what it was. Neither knows of the other's chance.
    """

    difference: float
    se: float
    block_se: float

    @property
    def total_se(self) -> float:
        """Both together, sqrt(se^2 + block_se^2): cautious, as blocks share luck of order."""
        return float(np.hypot(self.se, self.block_se))

    @property
    def ratio(self) -> float:
        """The difference in standard errors of both kinds together; 0 for agents that are alike."""
        if self.difference == 0:
            return 0.0
        spread = self.total_se
        return (
            self.difference / spread if spread > 0 else float(np.copysign(np.inf, self.difference))
        )


@dataclass(frozen=True, eq=False)
class Replayed:
    """What agents earned on the same recorded rounds.

    Attributes
    ----------
    names : agents, in order.
    earned : (agent, run, time) utility of the arm played.
    action : (agent, run, time).
    block : (run, time) the independent piece of the data each round belongs to.
    fixed, best : mean utility of the best single arm, and of the best arm in every round.

    The spread over runs is that of the order of rounds and of whatever each run fitted anew. It
    says nothing about other cities, people or years; the spread over blocks speaks of the recorded
    period as a draw from more like it.
    """

    names: tuple[str, ...]
    earned: Float3
    action: Int
    block: Int
    fixed: float
    best: float

    @property
    def runs(self) -> int:
        """How many."""
        return int(self.earned.shape[1])

    def of(self, name: str) -> Float2:
        """Utility (run, time) one agent earned."""
        if name not in self.names:
            raise SettingError(f"Replayed.of: no agent {name!r}{nearest(name, self.names)}")
        utility: Float2 = self.earned[self.names.index(name)]
        return utility

    def contrast(self, name: str, other: str) -> Contrast:
        """Return how much more one agent earned a round than another, with both standard errors."""
        apart = self.of(name) - self.of(other)
        return Contrast(
            float(apart.mean()), _se(apart.mean(1)), clustered_se(apart.ravel(), self.block.ravel())
        )

    def closed(self, name: str, floor: str, ceiling: str) -> tuple[float, float]:
        """Return the share of the gap between two agents that one closes, and its jackknife se.

        NaN where there is no gap, in the mean or without one of the runs.
        """
        low, at, high = (self.of(each).mean(1) for each in (floor, name, ceiling))
        share = _share(low.mean(), at.mean(), high.mean())
        if self.runs < 2:
            return float(share), np.nan
        without = _share(*((v.sum() - v) / (self.runs - 1) for v in (low, at, high)))
        spread = (self.runs - 1) * ((without - without.mean()) ** 2).mean()
        return float(share), float(np.sqrt(spread))

    @property
    def table(self) -> DataFrame:
        """One line per agent: mean utility a round with both standard errors, arms played."""
        import pandas as pd

        arms = int(self.action.max()) + 1
        blocks = [clustered_se(e.ravel(), self.block.ravel()) for e in self.earned]
        columns = {
            "utility": self.earned.mean((1, 2)),
            "se": [_se(e.mean(1)) for e in self.earned],
            "block_se": blocks,
        } | {f"arm {a}": (self.action == a).mean((1, 2)) for a in range(arms)}
        return pd.DataFrame(columns, index=pd.Index(self.names, name="agent"))

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the mean utility of each agent, with two standard errors over runs."""
        return picture("utility_dots")(self, ax)

    def __repr__(self) -> str:
        table = self.table.sort_values("utility", ascending=False)
        head = (
            f"Replayed: {self.earned.shape[2]:,} rounds x {self.runs} runs; best single arm "
            f"{self.fixed:.4g}, best arm every round {self.best:.4g}"
        )
        return head + "\n" + table.head(10).to_string(float_format="{:.4g}".format)

    def _repr_html_(self) -> str:
        return self.table.to_html(float_format="{:.4g}".format)


def playable(replay: Replay, agents: Sequence[Agent | Team]) -> Bool:
    """Tell which rows (unit, time) every agent can score and every utility is known of."""
    rows = replay.complete
    for agent in agents:
        for x in scored(agent):
            if x.shape[:3] != replay.utility.shape:
                raise FeatureError(
                    f"replay: agent {agent.name!r} has features {x.shape}, but the recorded rows "
                    f"are (unit, time, action) = {replay.utility.shape}."
                )
            rows = rows & np.isfinite(x).all((2, 3))
    return rows


def replay_run(replay: Replay, agents: Sequence[Agent | Team], order: Int) -> Replayed:
    """Play every agent once through the same recorded rounds.

    Parameters
    ----------
    replay : contexts and utilities. agents : made on it, e.g. ``pulse(replay, law)``; they learn
    from the utility of the arm they play, without further noise.
    order : (time,) rounds, from :func:`shuffled` or :func:`by_time`.
    """
    names = tuple(agent.name for agent in agents)
    if not agents or len(set(names)) < len(names):
        raise SettingError(f"replay needs at least one agent and distinct names, not {names}.")
    reward = in_line(replay.utility, order)
    if not np.isfinite(reward).all():
        raise SettingError("replay: a utility of a round is not known; see playable().")
    shape = replay.utility.shape[:2]
    action = np.stack([_actions(agent, reward, order, shape) for agent in agents])[:, None]
    if (action < 0).any():
        raise SettingError("replay: an agent cannot score one of its rounds; see playable().")
    earned = np.take_along_axis(reward[None, None], action[..., None], -1)[..., 0]
    assert replay.block is not None
    block = in_line(replay.block, order)[None]
    return Replayed(
        names, earned, action, block, float(reward.mean(0).max()), float(reward.max(1).mean())
    )


def joined(runs: Sequence[Replayed]) -> Replayed:
    """Return several runs of the same agents over equally many rounds as one result."""
    first = runs[0]
    if any(r.names != first.names or r.earned.shape[2] != first.earned.shape[2] for r in runs):
        raise SettingError("joined: runs must have the same agents and the same number of rounds.")
    earned, action = (
        np.concatenate([getattr(r, name) for r in runs], axis=1) for name in ("earned", "action")
    )
    block = np.concatenate([r.block for r in runs])
    fixed, best = (float(np.mean([getattr(r, name) for r in runs])) for name in ("fixed", "best"))
    return Replayed(first.names, earned, action, block, fixed, best)


def beside(parts: Sequence[Replayed]) -> Replayed:
    """Return several agents' results on the same rounds as one."""
    first = parts[0]
    if any(not np.array_equal(p.block, first.block) for p in parts):
        raise SettingError("beside: results must be of the same rounds in the same order.")
    names = tuple(name for p in parts for name in p.names)
    if len(set(names)) < len(names):
        raise SettingError(f"beside: agents must have distinct names, not {names}.")
    earned, action = (np.concatenate([getattr(p, k) for p in parts]) for k in ("earned", "action"))
    return Replayed(names, earned, action, first.block, first.fixed, first.best)


def clustered_se(values: Float1, cluster: Int) -> float:
    """Return the standard error of a mean of values (n,) that depend within clusters (n,).

    sqrt(C / (C - 1) sum_c (sum_{i in c} (v_i - mean))^2) / n; NaN for a single cluster.
    """
    _, code = np.unique(cluster, return_inverse=True)
    total = np.bincount(code, values - values.mean())
    count = len(total)
    if count < 2:
        return float("nan")
    return float(np.sqrt(count / (count - 1) * (total**2).sum()) / len(values))


def _actions(agent: Agent | Team, reward: Float2, order: Int, shape: tuple[int, int]) -> Int:
    if isinstance(agent, Agent) and agent.taught is not None:
        raise SettingError(f"replay: agent {agent.name!r} must have plain errors and features.")
    now = laid_out([agent], lambda blocks: in_line(blocks[0], order)[None], _series(order, shape))
    if isinstance(now, Team):
        return np.asarray(now.play(reward[None]).action[0])
    action, _, _ = play_horizon(now.x, reward[None], now.radius, ridge=now.ridge, error=now.error)
    return np.asarray(action[0])


def _series(order: Int, shape: tuple[int, int]) -> Series:
    """Return whose rounds these are; out of their time, every round stands for itself."""
    unit, clock = np.divmod(order, shape[1])
    by_unit = np.argsort(unit, kind="stable")
    same = np.diff(unit[by_unit]) == 0
    if (np.diff(clock[by_unit])[same] > 0).all():
        return Series(unit[None], clock[None])
    return Series(np.arange(len(order))[None], clock[None])


def _share(low: Float1, at: Float1, high: Float1) -> Float1:
    gap = high - low
    return np.where(gap == 0, np.nan, (at - low) / np.where(gap == 0, 1.0, gap))


def _se(values: Float1) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("nan")
