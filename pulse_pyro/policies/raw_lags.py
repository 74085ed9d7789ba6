"""Learning without an archive: raw lags of S, and a unit's own last rewards, with interactions.

The honest rivals of every law of W. x_a = (1, q, 1[a = k], 1[a = k] q for k >= 1) with q the lags
and, where asked for, the last rewards (R e_A, e_A); see ``oful`` and ``carried``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from pulse_pyro._core.arrays import Float, Float1, Float2, Float4
from pulse_pyro._core.errors import SettingError
from pulse_pyro.base import Conditional, FittedLaw, Follower, Summary
from pulse_pyro.features import Features
from pulse_pyro.policies.carried import PastRewards, push_past
from pulse_pyro.policies.core import Belief
from pulse_pyro.policies.imputed import Carried
from pulse_pyro.policies.oful import interactions


class RawFollower:
    """The last rows of a series, as many as the summary looks at, and its last rewards."""

    def __init__(self, scorer: RawLags) -> None:
        self._scorer = scorer
        self._rows = np.full((scorer.summary.memory, len(scorer.law.schema.s_names)), np.nan)
        self.past = np.zeros(scorer.past_size)

    @property
    def now(self) -> Float1:
        """The newest S_t, (s_dim,)."""
        row: Float1 = self._rows[-1]
        return row

    @property
    def conditional(self) -> Conditional:
        """Refuse: nothing is said of W."""
        raise SettingError("raw lags say nothing of W.")

    def push(self, s: Float1, w: Float1 | None = None) -> Any:
        """Take in S_t; nothing is said of W."""
        self._rows[:-1] = self._rows[1:]
        self._rows[-1] = s

    def inputs(self) -> Float1:
        """Return the lags, (p,)."""
        return np.asarray(self._scorer.summary.last(self._rows))

    def state(self) -> dict[str, Float]:
        """Return all that has been taken in, as arrays."""
        return {"rows": self._rows.copy(), "past": self.past.copy()}

    def restore(self, state: Mapping[str, Float]) -> None:
        """Go on from where :meth:`state` was taken."""
        self._rows[:] = state["rows"]
        self.past[:] = state["past"]


class RawLags:
    """Scores raw lags of S with an interaction for each arm.

    law : whose columns of S they are; nothing else of it is used. features : Phi, for its arms.
    summary : which lags, Lags(1) for S alone. past : the unit's last rewards, or None.
    """

    def __init__(
        self,
        law: FittedLaw,
        features: Features,
        summary: Summary,
        past: PastRewards | None = None,
    ) -> None:
        self.law, self.features, self.summary, self.past = law, features, summary, past
        self.w_names, arms = law.schema.w_names, features.actions
        self.past_size = 0 if past is None else 2 * arms * past.count
        lags = [f"{each} {s}" for each in summary.names for s in law.schema.s_names]
        told = [] if past is None else _past_names(arms, past.count)
        self.names = tuple(
            f"{name}*{k}" if k else name
            for part in (["1", *lags], told)
            for k in range(arms)
            for name in part
        )

    def follow(self, unit: str | None = None) -> RawFollower:
        """Return a follower of a unit of which nothing has been seen yet."""
        return RawFollower(self)

    def fill(self, past: list[Follower], arms: list[int], out: Float4) -> None:
        """Fill x, (1, 1, K, d), of these arms; NaN elsewhere."""
        one = _own(past)
        out[:] = np.nan
        lags = interactions(one.inputs()[None, None], self.features.actions)[0, 0]
        width = lags.shape[1]
        for a in arms:
            out[0, 0, a, :width] = lags[a]
            out[0, 0, a, width:] = 0.0
            for k in {0, a}:
                at = width + k * self.past_size
                out[0, 0, a, at : at + self.past_size] = one.past

    def kept(self, past: list[Follower], action: int) -> tuple[Carried, ...]:
        """Return nothing: rewards count in the order they come."""
        return ()

    def tell(
        self,
        past: list[Follower],
        kept: tuple[Carried, ...],
        x: Float1,
        action: int,
        reward: float,
        belief: Callable[[int], Belief],
    ) -> None:
        """Put a reward first among the unit's last ones."""
        if self.past_size:
            push_past(_own(past).past, self.features.actions, action, reward)

    def seen(self, past: list[Follower]) -> tuple[Carried, ...]:
        """Return nothing."""
        return ()

    def reveal(self, past: list[Follower], kept: tuple[Carried, ...], w: Float1) -> bool:
        """W tells raw lags nothing."""
        return True

    def drop(self, past: list[Follower], kept: tuple[Carried, ...]) -> None:
        """A reward that never comes tells nothing."""

    def taught(self, s: Float2, w: Float2, action: int, x: Float1) -> Float1:
        """Return what was scored: W teaches raw lags nothing."""
        return x.copy()

    def swap(self, law: FittedLaw) -> None:
        """There is no law to swap."""
        self.law = law


def _own(past: list[Follower]) -> RawFollower:
    if len(past) != 1 or not isinstance(past[0], RawFollower):
        raise SettingError("raw lags: a unit has one context a round, not one per arm.")
    return past[0]


def _past_names(actions: int, count: int) -> list[str]:
    return [
        f"{what} {lag} ago, arm {a}"
        for lag in range(1, count + 1)
        for what in ("reward", "played")
        for a in range(actions)
    ]
