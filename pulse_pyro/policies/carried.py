"""What a unit's own earlier rewards tell of its next round, carried from round to round.

A member of a committee may score features that depend on what its unit was paid before,

    x_a = given_a + sum_e coef_{a,e} z[row_e]   at column_e,

with a state z of the unit. Two kinds of state:

    memory   z is what the law leaves of W, z_t = keep z_{t-1} + N(0, shock): the predicted z enters
             the features through M_a; a reward R corrects it by Kalman's rule with slope
             h = d(theta_hat' x_a)/dz, innovation R - theta_hat' x_a and measurement variance
             reward_sd^2 + s^2 (x' Sigma^{-1} x + tr(Cov(h) V)), so that a theta that is not known
             yet moves z little: the gain allows for the uncertainty of theta and of h.
    past     z holds the last k rewards learned, each as (R e_A, e_A), e_A the unit vector of its
             arm: no archive is needed, the regression learns what they tell.

Features are those predicted BEFORE the reward, frozen at the decision: regressing on the corrected
state would put the reward on both sides.

NOT covered: no ball is valid once what the law leaves has memory; whoever plays such a member
inside a guard must name another member for the ball, or call it heuristic.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numba import njit

from pulse_pyro._core.arrays import Float, Float1, Float2, Float3, Int, positive, whole
from pulse_pyro._core.errors import SettingError

MEMORY, PAST = range(2)


@dataclass(frozen=True, eq=False)
class MemoryCarry:
    """A latent state of each unit that rewards tell of.

    Attributes
    ----------
    keep : (m,). shock, start : (m, m), of the state; start is its covariance before a first reward.
    reward_sd : of a reward given the full context.
    columns, rows : (e,) which of the member's features each entry adds to, and which part of z.
    coef : (run or 1, time or 1, action, e).
    """

    keep: Float1
    shock: Float2
    start: Float2
    reward_sd: float
    columns: Int
    rows: Int
    coef: Float

    @property
    def size(self) -> int:
        """Entries of z."""
        return len(self.keep)


@dataclass(frozen=True, eq=False)
class PastCarry:
    """The last ``depth`` rewards of the unit, as (R e_A, e_A) each, newest first.

    columns, rows, coef : as in :class:`MemoryCarry`.
    """

    depth: int
    actions: int
    columns: Int
    rows: Int
    coef: Float

    @property
    def size(self) -> int:
        """Entries of z: 2 actions for each reward."""
        return 2 * self.actions * self.depth


Carry = MemoryCarry | PastCarry


@dataclass(frozen=True)
class PastRewards:
    """The last ``count`` rewards of a unit as context; make it with :func:`past_rewards`."""

    count: int

    def carry(self, actions: int, start: int) -> PastCarry:
        """Return them as features from column ``start`` on, with interactions.

        q = 2 actions count features z for all arms alike, and q more for each arm k >= 1, z where
        a = k and 0 elsewhere.
        """
        q = 2 * actions * self.count
        coef = np.zeros((1, 1, actions, q * actions))
        coef[..., :q] = 1.0
        for k in range(1, actions):
            coef[0, 0, k, k * q : (k + 1) * q] = 1.0
        columns, rows = start + np.arange(q * actions), np.tile(np.arange(q), actions)
        return PastCarry(self.count, actions, columns, rows, coef)


def past_rewards(count: int = 1) -> PastRewards:
    """Return the last ``count`` rewards of a unit, (R e_A, e_A) each, as features of an agent.

    The honest rival of every law of W: it needs no archive. Rewards count in the order they are
    learned; before a unit's first one the features are 0.
    """
    return PastRewards(whole(count, "past_rewards: count", 1))


class CarrySetup(NamedTuple):
    """All members' carries side by side, as the compiled loop wants them; p of them.

    kind, member : (p,). begin, squares, entries : (p + 1,) where the state, its covariance
    and the entries of each start. keep : (Q,). shock, start : flat. noise : (p,) variances.
    owner, columns, rows : (E,) an entry's member, its feature there, and its place among the states
    of all. coef : (run or 1, time or 1, action, E).
    """

    kind: Int
    member: Int
    begin: Int
    squares: Int
    entries: Int
    keep: Float1
    shock: Float1
    start: Float1
    noise: Float1
    owner: Int
    columns: Int
    rows: Int
    coef: Float


class CarryState(NamedTuple):
    """State of every unit: mean (run, unit, Q), cov (run, unit, flat), clock (run, unit).

    The clock is when it was last told of, in the unit's own time; -1: never.
    """

    mean: Float3
    cov: Float3
    clock: Int


def carry_setup(carries: Sequence[Carry | None], actions: int) -> CarrySetup:
    """Lay the carries of members, None for those without, side by side."""
    kind, member, noise = [], [], []
    begin, squares, entries = [0], [0], [0]
    keep, shock, start, owner, columns, rows, coef = [], [], [], [], [], [], []
    for k, one in enumerate(carries):
        if one is None:
            continue
        if one.coef.ndim != 4 or one.coef.shape[2:] != (actions, len(one.columns)):
            raise SettingError(
                f"carry: coef must be (run, time, action, entries) = (.., {actions}, "
                f"{len(one.columns)}), but its shape is {one.coef.shape}."
            )
        member.append(k)
        owner.append(np.full(len(one.columns), k))
        columns.append(np.asarray(one.columns))
        rows.append(begin[-1] + np.asarray(one.rows))
        coef.append(one.coef)
        begin.append(begin[-1] + one.size)
        entries.append(entries[-1] + len(one.columns))
        if isinstance(one, MemoryCarry):
            kind.append(MEMORY)
            noise.append(positive(one.reward_sd, "carry: reward_sd", zero=True) ** 2)
            squares.append(squares[-1] + one.size**2)
            keep.append(one.keep)
            shock.append(np.ravel(one.shock))
            start.append(np.ravel(one.start))
        else:
            kind.append(PAST)
            noise.append(0.0)
            squares.append(squares[-1])
            keep.append(np.zeros(one.size))
    lead = np.broadcast_shapes((1, 1), *(c.shape[:2] for c in coef))
    wide = [np.broadcast_to(c, (*lead, *c.shape[2:])) for c in coef]
    return CarrySetup(
        kind=np.array(kind, np.int64),
        member=np.array(member, np.int64),
        begin=np.array(begin, np.int64),
        squares=np.array(squares, np.int64),
        entries=np.array(entries, np.int64),
        keep=np.concatenate([*keep, np.zeros(0)]),
        shock=np.concatenate([*shock, np.zeros(0)]),
        start=np.concatenate([*start, np.zeros(0)]),
        noise=np.array(noise, np.float64),
        owner=np.concatenate([*owner, np.zeros(0, np.int64)]).astype(np.int64),
        columns=np.concatenate([*columns, np.zeros(0, np.int64)]).astype(np.int64),
        rows=np.concatenate([*rows, np.zeros(0, np.int64)]).astype(np.int64),
        coef=np.ascontiguousarray(np.concatenate([*wide, np.zeros((*lead, actions, 0))], axis=-1)),
    )


def carry_state(setup: CarrySetup, runs: int, units: int) -> CarryState:
    """Return the state of units of which no reward is known."""
    return CarryState(
        np.zeros((runs, units, setup.begin[-1])),
        np.zeros((runs, units, setup.squares[-1])),
        np.full((runs, units), -1, np.int64),
    )


@njit(cache=True, error_model="numpy", fastmath=False)
def propagate(mean: Float1, cov: Float2, keep: Float1, shock: Float2, steps: int) -> None:
    """Move a state ``steps`` steps on, in place: mean (m,), cov (m, m)."""
    m = keep.shape[0]
    for i in range(m):
        mean[i] *= keep[i] ** steps
        for j in range(m):
            both = keep[i] * keep[j]
            power = both**steps
            grown = float(steps) if both == 1.0 else (1.0 - power) / (1.0 - both)
            cov[i, j] = cov[i, j] * power + shock[i, j] * grown


@njit(cache=True, error_model="numpy", fastmath=False)
def correct(mean: Float1, cov: Float2, slope: Float1, innovation: float, variance: float) -> None:
    """Learn y = slope' z + N(0, variance), in place; innovation = y - slope' mean."""
    m = mean.shape[0]
    reach = np.empty(m)
    total = variance
    for i in range(m):
        reach[i] = 0.0
        for j in range(m):
            reach[i] += cov[i, j] * slope[j]
        total += reach[i] * slope[i]
    if not total > 0.0:
        return
    for i in range(m):
        mean[i] += reach[i] * innovation / total
        for j in range(m):
            cov[i, j] -= reach[i] * reach[j] / total


@njit(cache=True, error_model="numpy", fastmath=False)
def predict(
    setup: CarrySetup, state: CarryState, r: int, unit: int, clock: int, mean: Float1, cov: Float1
) -> None:
    """Fill mean (Q,) and cov (flat) with the states of a unit at its own time ``clock``."""
    known = state.clock[r, unit]
    for i in range(mean.shape[0]):
        mean[i] = state.mean[r, unit, i]
    for i in range(cov.shape[0]):
        cov[i] = state.cov[r, unit, i] if known >= 0 else setup.start[i]
    for p in range(setup.kind.shape[0]):
        if setup.kind[p] != MEMORY or known < 0 or clock <= known:
            continue
        begin, end = setup.begin[p], setup.begin[p + 1]
        low, high = setup.squares[p], setup.squares[p + 1]
        m = end - begin
        propagate(
            mean[begin:end],
            cov[low:high].reshape((m, m)),
            setup.keep[begin:end],
            setup.shock[low:high].reshape((m, m)),
            clock - known,
        )


@njit(cache=True, error_model="numpy", fastmath=False)
def memory_slope(setup: CarrySetup, p: int, coef: Float1, theta: Float1, out: Float1) -> None:
    """Fill h = d(theta' x)/dz of one memory, (m,); coef (E,) of the arm, theta of its member."""
    for i in range(out.shape[0]):
        out[i] = 0.0
    for e in range(setup.entries[p], setup.entries[p + 1]):
        out[setup.rows[e] - setup.begin[p]] += theta[setup.columns[e]] * coef[e]


@njit(cache=True, error_model="numpy", fastmath=False)
def slope_doubt(setup: CarrySetup, p: int, coef: Float1, inverse: Float2, cov: Float2) -> float:
    """Return tr(Cov(h) V) / s^2 of one memory: what theta leaves open of h.

    inverse : Sigma^{-1} of its member. cov : (m, m) V.
    """
    total, begin = 0.0, setup.begin[p]
    for e in range(setup.entries[p], setup.entries[p + 1]):
        if coef[e] == 0.0:
            continue
        i, row = setup.columns[e], setup.rows[e] - begin
        for f in range(setup.entries[p], setup.entries[p + 1]):
            if coef[f] != 0.0:
                j, column = setup.columns[f], setup.rows[f] - begin
                total += coef[e] * coef[f] * inverse[i, j] * cov[row, column]
    return max(total, 0.0)


@njit(cache=True, error_model="numpy", fastmath=False)
def push_past(values: Float1, actions: int, action: int, reward: float) -> None:
    """Put a reward first among the past ones, in place; values (2 actions depth,)."""
    width = 2 * actions
    for i in range(values.shape[0] - 1, width - 1, -1):
        values[i] = values[i - width]
    for i in range(width):
        values[i] = 0.0
    values[action], values[actions + action] = reward, 1.0
