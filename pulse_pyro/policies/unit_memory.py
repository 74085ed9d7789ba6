"""What rewards have told of one unit's memory so far, whenever and in whatever order they came.

The state z_t, (m,), of a unit follows its :class:`~pulse_pyro.laws.memory.Memory`,

    z_1 ~ N(0, start),    z_t = keep z_{t-1} + N(0, shock),    u_t = sum over parts of z_t,

and a reading (a reward, or a W that is revealed) tells y = slope' u_t + N(0, variance) of the step
it belongs to. Readings that are late or out of order are put in their place: the filter keeps its
state just before the oldest step that still waits, and the readings since, and runs again from
there. What it says is the exact conditional law of z at the newest step given all readings taken.

Work and storage grow with what is pending, not with time: steps without a reading cost nothing,
since many of them are passed at once, in closed form.
"""

from __future__ import annotations

import warnings
from bisect import bisect_right, insort
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import ArrayLike

from pulse_pyro._core.arrays import Array, Float1, Float2, Int
from pulse_pyro._core.errors import SettingError
from pulse_pyro.laws.memory import Memory
from pulse_pyro.policies.carried import correct, propagate

LONGEST = 512  # steps that wait, or readings that wait behind one, before the oldest is closed
EXACT = 1e-12  # share of its own variance that a value counts as known to, whatever is said


class Reading(NamedTuple):
    """What was told of a step: value = slope' z + N(0, variance), slope (m,)."""

    at: int
    slope: Float1
    value: float
    variance: float


class UnitMemory:
    """The filter of one unit's memory, for readings that may be late, out of order or lost.

    memory : what is known of all units, (w_dim columns of W, m entries of z).

    Each step of the unit's time is one call of :meth:`step`, also where nothing is decided. A step
    that may still be told of is marked by :meth:`open` until :meth:`close`; of the newest step
    readings are always taken. Not covered: that slope and variance of a reward depend on a theta
    that is itself learned (they are taken as handed in, frozen), readings whose noise depends on
    each other.
    """

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._exact = EXACT * memory.variance
        self._now = self._base = -1
        self._open: list[int] = []  # rising
        self._held: list[Reading] = []  # by step, none before the base
        m = len(memory.keep)
        self._mean, self._cov = np.zeros(m), memory.start.copy()  # at the base, as told so far
        self._newest = self._mean.copy(), self._cov.copy()

    @property
    def now(self) -> int:
        """The newest step, 0, 1, ...; -1 before the first."""
        return self._now

    @property
    def pending(self) -> tuple[int, ...]:
        """Steps that are open."""
        return tuple(self._open)

    def step(self) -> int:
        """Go on by one step, and return its number."""
        self._now += 1
        if self._now:
            propagate(*self._newest, self._memory.keep, self._memory.shock, 1)
            self._move_base()
        else:
            self._base = 0
        return self._now

    def predicted(self) -> tuple[Float1, Float2]:
        """Return mean (m,) and covariance (m, m) of z at the newest step, given all readings."""
        mean, cov = self._newest
        return mean.copy(), cov.copy()

    def left(self) -> tuple[Float1, Float2]:
        """Return mean (w_dim,) and covariance (w_dim, w_dim) of u = W - mu_hat, newest step."""
        mean, cov = self._newest
        q, parts = self._memory.w_dim, self._memory.parts
        whole: Float2 = cov.reshape(parts, q, parts, q).sum((0, 2))
        total: Float1 = mean.reshape(parts, q).sum(0)
        return total, whole

    def open(self, at: int) -> None:
        """Say that a reading of step ``at`` may still come; it must be the newest, or told of yet.

        Beyond 512 open steps the oldest is closed, with a warning.
        """
        self._check(at, "open")
        if at < self._base:
            raise SettingError(
                f"UnitMemory.open: step {at} is closed, the filter starts at step {self._base} by "
                "now; open a step when it is decided."
            )
        place = bisect_right(self._open, at)
        if not place or self._open[place - 1] != at:
            self._open.insert(place, at)
        if len(self._open) > LONGEST:
            self._give_up()

    def close(self, at: int) -> None:
        """Say that no more readings of step ``at`` will come: its reward is learned, or lost.

        A step that is not open is left alone.
        """
        place = bisect_right(self._open, at)
        if place and self._open[place - 1] == at:
            del self._open[place - 1]
            self._move_base()

    def measure(self, at: int, slope: ArrayLike, value: float, variance: float) -> bool:
        """Take in a reading of step ``at``: value = slope' u_at + N(0, variance).

        Parameters
        ----------
        at : a step from 0 to :attr:`now`.
        slope : (w_dim,) how the reading moves with W: theta'M_a of a reward, a unit vector for a
            revealed W.
        value : of a reward, what it is beyond its expectation at u = 0; of a W, W - mu_hat.
        variance : of what else is in it; 0 for a W, which is then known to 12 digits.

        Returns False, and changes nothing, if the step was closed and the filter has moved on.
        """
        self._check(at, "measure")
        by_w = np.asarray(slope, np.float64)
        q = self._memory.w_dim
        if by_w.shape != (q,) or not np.isfinite(by_w).all():
            raise SettingError(
                f"UnitMemory.measure: slope must be {q} finite numbers, one for each W, but got "
                f"{slope!r}."
            )
        if not np.isfinite(value) or not 0.0 <= variance < np.inf:
            raise SettingError(
                "UnitMemory.measure: value must be finite and variance finite and >= 0, but got "
                f"{value!r} and {variance!r}."
            )
        if at < self._base:
            return False
        if not by_w.any():
            return True  # it tells nothing
        noise = max(float(variance), float(by_w @ self._exact @ by_w))
        reading = Reading(at, np.tile(by_w, self._memory.parts), float(value), noise)
        insort(self._held, reading, key=lambda one: one.at)
        if at == self._now:
            self._run(*self._newest, at, [reading], at)
        else:
            self._newest = self._mean.copy(), self._cov.copy()
            self._run(*self._newest, self._base, self._held, self._now)
        while len(self._held) > LONGEST and self._open:
            self._give_up()
        return True

    def state(self) -> dict[str, Array]:
        """Return all that is known, as arrays."""
        at, slope, value, variance = self._arrays(self._held)
        return {
            "clock": np.array([self._now, self._base]),
            "open": np.array(self._open, np.int64),
            "mean": self._mean.copy(),
            "cov": self._cov.copy(),
            "newest_mean": self._newest[0].copy(),
            "newest_cov": self._newest[1].copy(),
            "at": at,
            "slope": slope,
            "value": value,
            "variance": variance,
        }

    def restore(self, state: Mapping[str, Array]) -> None:
        """Go on from where :meth:`state` was taken, to the last bit."""
        m = len(self._memory.keep)
        count = len(state["at"])
        shapes = {
            "clock": (2,),
            "mean": (m,),
            "cov": (m, m),
            "newest_mean": (m,),
            "newest_cov": (m, m),
            "slope": (count, m),
            "value": (count,),
            "variance": (count,),
        }
        for name, shape in shapes.items():
            if np.shape(state[name]) != shape:
                raise SettingError(
                    f"UnitMemory.restore: {name} must have shape {shape}, but got "
                    f"{np.shape(state[name])}; it was taken of another memory."
                )
        self._now, self._base = (int(value) for value in state["clock"])
        self._open = [int(at) for at in state["open"]]
        self._mean, self._cov = np.array(state["mean"]), np.array(state["cov"])
        self._newest = np.array(state["newest_mean"]), np.array(state["newest_cov"])
        parts = (state[name] for name in ("at", "slope", "value", "variance"))
        self._held = [
            Reading(int(at), np.array(slope), float(value), float(variance))
            for at, slope, value, variance in zip(*parts, strict=True)
        ]

    def _check(self, at: int, where: str) -> None:
        if not 0 <= at <= self._now:
            raise SettingError(
                f"UnitMemory.{where}: there is no step {at!r} yet, the newest is {self._now}; call "
                "step() for each step of the unit's time."
            )

    def _move_base(self) -> None:
        """Forget all before the oldest step that waits: it is in the state there."""
        base = self._open[0] if self._open else self._now
        done = bisect_right(self._held, base, key=lambda one: one.at)
        self._run(self._mean, self._cov, self._base, self._held[:done], base)
        del self._held[:done]
        self._base = base

    def _give_up(self) -> None:
        warnings.warn(
            f"UnitMemory: step {self._open[0]} has waited behind {LONGEST} others for its reward "
            "and is closed; a reward of it will tell nothing of the unit's memory any more. Forget "
            "decisions whose reward is lost.",
            stacklevel=3,
        )
        self.close(self._open[0])

    def _run(
        self, mean: Float1, cov: Float2, clock: int, readings: Sequence[Reading], until: int
    ) -> None:
        """Filter readings from a step to another, in place."""
        _filter(
            mean,
            cov,
            self._memory.keep,
            self._memory.shock,
            clock,
            *self._arrays(readings),
            until,
        )

    def _arrays(self, readings: Sequence[Reading]) -> tuple[Int, Float2, Float1, Float1]:
        return (
            np.array([one.at for one in readings], np.int64),
            np.array([one.slope for one in readings]).reshape(-1, len(self._memory.keep)),
            np.array([one.value for one in readings], np.float64),
            np.array([one.variance for one in readings], np.float64),
        )


@njit(cache=True, error_model="numpy", fastmath=False)
def _filter(
    mean: Float1,
    cov: Float2,
    keep: Float1,
    shock: Float2,
    clock: int,
    at: Int,
    slope: Float2,
    value: Float1,
    variance: Float1,
    until: int,
) -> None:
    """Take in readings in order of their steps, (k,), (k, m), and go on to step ``until``."""
    for k in range(at.shape[0]):
        if at[k] > clock:
            propagate(mean, cov, keep, shock, at[k] - clock)
            clock = at[k]
        expected = 0.0
        for i in range(mean.shape[0]):
            expected += slope[k, i] * mean[i]
        correct(mean, cov, slope[k], value[k] - expected, variance[k])
    if until > clock:
        propagate(mean, cov, keep, shock, until - clock)
