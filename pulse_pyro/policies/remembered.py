"""Expected features that follow what a unit's own rewards have told of its memory.

What a law leaves of W persists within a unit (see ``laws.memory``): with u^- its prediction from
rewards before the round, features are phihat + M_a u^-, frozen at the decision. A reward of that
decision, whenever it comes, is a reading of u at its own time,

    R - theta_hat'(phihat) = (M_a theta_hat)' u + noise,
    variance reward_sd^2 + s^2 (x' Sigma^{-1} x + tr(Cov(M_a theta_hat) V)),

V what is not known of u: as long as theta is not known, rewards move u little. Here joint
uncertainty of theta and u enters by that gain alone; the cross term of an extended filter did no
better (measured, ``reproduce memory``), and a committee decides where it still loses.

NOT covered: no ball is valid here; see ``laws.memory``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from pulse_pyro._core.arrays import Float, Float1, Float2, Float4, positive
from pulse_pyro._core.errors import SettingError
from pulse_pyro.base import Conditional, FittedLaw, Follower
from pulse_pyro.features import need_affine, slopes
from pulse_pyro.laws.memory import Memory
from pulse_pyro.laws.units import Acquaintance
from pulse_pyro.policies.core import Belief
from pulse_pyro.policies.imputed import PROBES, Carried, Imputed, condition_on, place_of
from pulse_pyro.policies.streaming_guard import acquaintance_of
from pulse_pyro.policies.unit_memory import UnitMemory


class RememberedFollower:
    """A series as a law follows it, and the memory of its unit."""

    def __init__(self, inner: Follower, memory: Memory) -> None:
        self.inner, self.memory = inner, UnitMemory(memory)

    @property
    def now(self) -> Float1:
        """The newest S_t, (s_dim,)."""
        return self.inner.now

    @property
    def conditional(self) -> Conditional:
        """The law of W_t given S alone."""
        return self.inner.conditional

    @property
    def acquaintance(self) -> Acquaintance | None:
        """How well the law knows the unit."""
        return acquaintance_of(self.inner)

    def push(self, s: Float1, w: Float1 | None = None) -> Conditional:
        """Take in S_t, and W_t where it is seen at once."""
        found = self.inner.push(s, w)
        self.memory.step()
        if w is not None:
            self.reveal(self.memory.now, w, found.mean()[0])
        return found

    arms_alike = True  # a unit with a memory has one context a round

    def place(self) -> Float1:
        """Return what is kept of the newest row for the law's own follower."""
        return place_of(self.inner)

    def condition_on(self, w: Float1, place: Float1 | None = None) -> bool:
        """Let a W tell of the unit's own latents, where the law has some."""
        return condition_on(self.inner, w, place)

    def reveal(self, at: int, w: Float1, mean: Float1) -> bool:
        """Take in the W of a step: it tells u to the last digit. False where it comes too late."""
        taken = True
        for i, rest in enumerate(w - mean):
            if np.isfinite(rest):
                taken &= self.memory.measure(at, np.eye(len(w))[i], float(rest), 0.0)
        return taken

    def inputs(self) -> Float1:
        """Return x_t, what the law looks at."""
        return self.inner.inputs()

    def state(self) -> dict[str, Float]:
        """Return all that has been taken in, as arrays."""
        own = {f"memory.{name}": value for name, value in self.memory.state().items()}
        return self.inner.state() | own

    def restore(self, state: Mapping[str, Float]) -> None:
        """Go on from where :meth:`state` was taken."""
        start = "memory."
        own = {n[len(start) :]: v for n, v in state.items() if n.startswith(start)}
        self.inner.restore({n: v for n, v in state.items() if not n.startswith(start)})
        self.memory.restore(own)


class Remembered:
    """Scores phihat + M_a u^-, and lets rewards tell of u.

    law : with a ``memory``. reward_sd : of a reward given the full context.
    """

    def __init__(self, inner: Imputed, reward_sd: float) -> None:
        memory = getattr(inner.law, "memory", None)
        if memory is None:
            raise SettingError(
                "memory: the law has none; fit it as law.with_memory('ar'), or give a fitted one "
                "laws.with_memory(law, archive, 'ar')."
            )
        self.inner, self.memory = inner, memory
        self.reward_sd = positive(reward_sd, "memory: reward_sd", zero=True)
        self.law, self.features = inner.law, inner.features
        self.names, self.w_names = inner.names, inner.w_names
        sd = np.sqrt(np.diagonal(memory.variance))
        self._step = np.where(sd > 0, sd, 1.0)
        mean, spread = self.law.schema.contexts
        rng = np.random.default_rng(0)
        s = mean + 2.0 * spread * rng.standard_normal((PROBES, len(mean)))
        w = self._step * rng.standard_normal((PROBES, len(sd)))
        need_affine(self.features, s, w, "memory")

    def follow(self, unit: str | None = None) -> RememberedFollower:
        """Return a follower of a unit of which nothing has been seen yet."""
        return RememberedFollower(self.law.follow(unit), self.memory)

    def fill(self, past: list[Follower], arms: list[int], out: Float4) -> None:
        """Fill x, (1, 1, K, d), of these arms; NaN elsewhere."""
        one = _own(past)
        self.inner.fill([one.inner], arms, out)
        left, _ = one.memory.left()
        for a in arms:
            out[0, 0, a] += left @ self._slope(one, a)

    def kept(self, past: list[Follower], action: int) -> tuple[Carried, ...]:
        """Return what a decision for an arm keeps; its step now waits for a reward."""
        one = _own(past)
        one.memory.open(one.memory.now)
        (found,) = self.seen(past)
        return (found._replace(slope=self._slope(one, action)),)

    def seen(self, past: list[Follower]) -> tuple[Carried, ...]:
        """Return the newest step, of which no reward will come."""
        one = _own(past)
        left, _ = one.memory.left()
        none = np.zeros((len(left), len(self.names)))
        return (Carried(one.memory.now, none, left, one.conditional.mean()[0]),)

    def tell(
        self,
        past: list[Follower],
        kept: tuple[Carried, ...],
        x: Float1,
        action: int,
        reward: float,
        belief: Callable[[int], Belief],
    ) -> None:
        """Let a reward tell of its step, by what was believed before it was learned."""
        if not kept:
            return  # decided before this memory was kept
        one, (step,), (theta, inverse, scale) = _own(past), kept, belief(0)
        slope: Float1 = step.slope @ theta
        _, cov = one.memory.left()
        doubt = float(x @ inverse @ x)
        doubt += max(float((step.slope @ inverse @ step.slope.T * cov).sum()), 0.0)
        value = reward - float(theta @ x) + float(slope @ step.left)
        one.memory.measure(step.at, slope, value, self.reward_sd**2 + scale * doubt)
        one.memory.close(step.at)

    def reveal(self, past: list[Follower], kept: tuple[Carried, ...], w: Float1) -> bool:
        """Take in the W of a step: it tells u itself; False where it came too late."""
        return not kept or _own(past).reveal(kept[0].at, w, kept[0].mean)

    def drop(self, past: list[Follower], kept: tuple[Carried, ...]) -> None:
        """No reward of this step will come."""
        for step in kept:
            _own(past).memory.close(step.at)

    def taught(self, s: Float2, w: Float2, action: int, x: Float1) -> Float1:
        """Return Phi((s, w), action)."""
        return self.inner.taught(s, w, action, x)

    def swap(self, law: FittedLaw) -> None:
        """Refuse: what is left of W by the old law has another memory."""
        raise SettingError(
            "memory: the law cannot be swapped, what rewards told is about what the old law leaves "
            "of W; use a law without memory with a growing archive."
        )

    def _slope(self, one: RememberedFollower, action: int) -> Float2:
        """Return M_a at the newest S, (w, d)."""
        found: Float2 = slopes(
            self.features, one.now[None], one.conditional.mean(), self._step, (action,)
        )[0, 0]
        return found


def _own(past: list[Follower]) -> RememberedFollower:
    if len(past) != 1 or not isinstance(past[0], RememberedFollower):
        raise SettingError("memory: a unit has one context a round, not one per arm.")
    return past[0]
