"""Expected features for one decision at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from pulse_pyro._core.arrays import Float, Float1, Float2, Float4
from pulse_pyro._core.seeds import stream
from pulse_pyro.base import FittedLaw, Follower
from pulse_pyro.features import Features
from pulse_pyro.policies.core import Belief

PROBES = 64  # contexts at which Phi is judged affine, once


class Scorer(Protocol):
    """Turns what has been seen of a unit into scored features."""

    @property
    def law(self) -> FittedLaw:
        """The law of W."""

    @property
    def features(self) -> Features:
        """Phi."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the d scored features."""

    @property
    def w_names(self) -> tuple[str, ...]:
        """Columns of W."""

    def fill(self, past: list[Follower], arms: list[int], out: Float4) -> Float1 | None:
        """Fill x, (1, 1, K, d), NaN for other arms; return errors of its own, (K,), if any."""

    def follow(self, unit: str | None = None) -> Follower:
        """Return a follower of a unit of which nothing has been seen yet."""

    def taught(self, s: Float2, w: Float2, action: int, x: Float1) -> Float1:
        """Return the d features of a full context s (1, s_dim), w (1, w_dim); x : those scored."""

    def swap(self, law: FittedLaw) -> None:
        """Go on with another law."""


class Carried(NamedTuple):
    """What a decision keeps, so that its reward can tell of a unit's memory.

    at : step of the unit. slope : (w, d) M_a. left : (w,) u^- in its features. mean : (w,) E[W] of
    the law.
    """

    at: int
    slope: Float2
    left: Float1
    mean: Float1


@runtime_checkable
class Tracking(Protocol):
    """A scorer whose features follow earlier rewards of the unit."""

    def kept(self, past: list[Follower], action: int) -> tuple[Carried, ...]:
        """Return what a decision for an arm keeps, one for each memory."""

    def tell(
        self,
        past: list[Follower],
        kept: tuple[Carried, ...],
        x: Float1,
        action: int,
        reward: float,
        belief: Callable[[int], Belief],
    ) -> None:
        """Let a reward tell of its unit; belief : of a learner by its number, before it learned."""

    def seen(self, past: list[Follower]) -> tuple[Carried, ...]:
        """Return the newest step, of which no reward will come, for :meth:`reveal`."""

    def reveal(self, past: list[Follower], kept: tuple[Carried, ...], w: Float1) -> bool:
        """Let a W tell of its unit, (w_dim,); False where it came too late."""

    def drop(self, past: list[Follower], kept: tuple[Carried, ...]) -> None:
        """No reward of this decision will come."""


@runtime_checkable
class Learning(Protocol):
    """A follower that learns from W: of the unit's own latents, or of its state."""

    @property
    def arms_alike(self) -> bool:
        """Whether the W of one arm, each having contexts of its own, tells of the others too."""

    def place(self) -> Float1:
        """Return what must be kept of the newest row so that its W can be told of later."""

    def condition_on(self, w: Float1, place: Float1 | None = None) -> bool:
        """Take in the W, (w_dim,), of the newest row, or of that whose place was kept.

        False, and nothing is changed, where it comes too late.
        """


NOWHERE: Float1 = np.empty(0)  # of a row whose W tells a follower nothing


def place_of(follower: Follower) -> Float1:
    """Return what a decision keeps of the newest row, so that its W can be told of later."""
    place = getattr(follower, "place", None)  # every round asks: a Protocol would take longer
    found: Float1 = NOWHERE if place is None else place()
    return found


def condition_on(follower: Follower, w: Float1, place: Float1 | None = None) -> bool:
    """Let a W tell of the unit itself, where the law has latents of units or a state.

    place : of the row it belongs to, the newest by default. False where it comes too late.
    """
    if not isinstance(follower, Learning):
        return True
    if place is not None and not place.size:  # kept by a policy that could not use it yet
        return not follower.place().size
    return follower.condition_on(w, place)


class Imputed:
    """phihat = E[Phi((S_t, W), a) | S_1:t], exact where Phi is affine in w, else by Monte Carlo.

    Where W takes finitely many values it is the exact sum over them, whatever Phi is.

    size, seed : draws a round; ONE set serves every arm.
    """

    def __init__(self, law: FittedLaw, features: Features, size: int, seed: int) -> None:
        self.law, self.features, self.size = law, features, size
        self.names, self.w_names = features.names, law.schema.w_names
        self.rng = stream(seed, "pulse")
        self.affine: bool | None = None

    def fill(self, past: list[Follower], arms: list[int], out: Float4) -> None:
        """Fill phihat, (1, 1, K, d), of these arms for the last row of the past; NaN elsewhere."""
        if len(arms) < self.features.actions:
            out[:] = np.nan
        if self.affine is None and arms:
            first = past[0] if len(past) == 1 else past[arms[0]]
            w = first.conditional.draws(PROBES, rng=stream(0, "affine"))[:, 0]
            if not (np.isfinite(first.now).all() and np.isfinite(w).all()):
                self._fill(past, arms, False, out)  # judge on a round that is seen
                return
            affine = self.features.affine_in_w(self._contexts(first.now), w)
            self.affine = affine and first.conditional.exact
        self._fill(past, arms, bool(self.affine), out)

    def follow(self, unit: str | None = None) -> Follower:
        """Return a follower of a unit of which nothing has been seen yet."""
        return self.law.follow(unit)

    def taught(self, s: Float2, w: Float2, action: int, x: Float1) -> Float1:
        """Return Phi((s, w), action)."""
        row: Float1 = self.features(s, w, action)[0]
        return row

    def swap(self, law: FittedLaw) -> None:
        """Go on with another law."""
        self.law = law

    def _contexts(self, now: Float1) -> Float2:
        """Return S_t and contexts like the archive's, to probe Phi at: (PROBES, s_dim)."""
        mean, sd = self.law.schema.contexts
        rows: Float2 = mean + 2.0 * sd * stream(0, "contexts").standard_normal((PROBES, len(now)))
        rows[0] = now
        return rows

    def _fill(self, past: list[Follower], arms: list[int], affine: bool, out: Float) -> None:
        first = past[0] if len(past) == 1 or not arms else past[arms[0]]
        support = None if affine else getattr(first.conditional, "support", None)
        if support is not None:
            for a in arms:
                own = past[0] if len(past) == 1 else past[a]
                chance = own.conditional.probabilities()[0]  # type: ignore[attr-defined]
                rows = np.repeat(own.now[None], len(support), axis=0)
                out[0, 0, a] = chance @ self.features(rows, support, a)
            return
        w: Float2 | None = None
        start = None if affine else self.rng.bit_generator.state
        for a in arms:
            own = past[0] if len(past) == 1 else past[a]
            if w is None or len(past) > 1:
                if start is not None:  # arms with contexts of their own share one set of noise
                    self.rng.bit_generator.state = start
                asked = own.conditional
                w = asked.mean() if affine else asked.draws(self.size, rng=self.rng)[:, 0]
            s = own.now[None]
            if len(w) == 1:  # exact; the kernel notices what is not finite
                out[0, 0, a] = self.features.unchecked(s, w, a)[0]
            else:
                out[0, 0, a] = self.features(np.repeat(s, len(w), axis=0), w, a).mean(0)
