"""CLBBF: linear UCB on features whose missing entries are imputed from their running moments.

Kim, Yun, Jeong, Nam, Shin and Combes (AISTATS 2023), constants as in their code. In every round
0 .. T-1 the mean and covariance of the vectors seen so far (see ``moments``) fill the gaps; the
linear core plays on (1, xhat) in R^{d+1} with ridge (d+1) log(KT) and

    sqrt(gamma_t) = sqrt((d+1) log((t+2) T)) + xsum e_t + sqrt(d log(KT)),
    e_t = d p^{-3/2} sqrt(log(T) log(kT) / (N_t + k)),   k vectors a round, N_t of them so far.

When t is a power of two all chosen past vectors are filled in anew with today's moments, V and b
rebuilt from them, and xsum = sum ||xhat||_{V^{-1}} frozen until the next one. Nothing but V, b
depends on the actions, so whole horizons are imputed at once.

Not covered: the guarantee asks for Gaussian vectors, drawn afresh for every arm and round, with
entries missing at random at one positive rate. A coordinate never observed online counts as 0:
there CLBBF is OFUL on what is observed, whatever the hidden values are.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from pulse_pyro.arrays import Array, Bool, Float, Float1, Float2, Float3, Float4, Int, positive
from pulse_pyro.errors import FeatureError, RewardError, SettingError
from pulse_pyro.policies import moments
from pulse_pyro.policies.horizon import play_on
from pulse_pyro.policies.linear import NO_ERROR, NO_MASK, State, check_size, init, run_kernel
from pulse_pyro.policies.moments import Estimate, Rates
from pulse_pyro.radius import CONSTANT, CORRECTED, PAPER, Radius
from pulse_pyro.seeds import stream

Again: TypeAlias = Callable[[int, Int], Float3]  # t, past actions -> past features filled in anew

BLOCK = 2**23  # covariance entries in flight: runs are independent, so memory need not grow


@dataclass(frozen=True)
class Exploration:
    """How widely to explore.

    radius : a number multiplies the published sqrt(gamma_t); a Radius (constant, paper or
        corrected) replaces it, and then nothing allows for errors of the imputation.
    ridge : lambda; None for (d+1) log(KT). seed : of the arm of round 0, and of Monte Carlo.
    """

    radius: float | Radius = 1.0
    ridge: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.ridge is not None:
            positive(self.ridge, "Exploration: ridge")
        if not isinstance(self.radius, Radius):
            positive(self.radius, "Exploration: radius", zero=True)
            return
        plain = Radius(self.radius.name, self.radius.kind, self.radius.params)
        if self.radius != plain or plain.kind not in (CONSTANT, PAPER, CORRECTED):
            raise SettingError(
                f"Exploration: {self.radius!r} does not fit CLBBF, which rebuilds what it learned; "
                "use a number, constant(), paper() or corrected()."
            )


PUBLISHED = Exploration()


def clbbf(
    x: Float4, mask: Bool, reward: Float3, *, rates: Rates = "each",
    explore: Exploration = PUBLISHED,
) -> Int:  # fmt: skip
    """Play CLBBF with one vector per arm; return the actions, (run, time).

    Parameters
    ----------
    x : (run, time, action, d) vectors without a constant; values behind the mask are never read.
    mask : same shape, True = observed. Mark whatever is a function of something missing.
    reward : (run, time, action) what each arm would pay; NaN = the reward is lost.
    rates : "each" coordinate's own observation rate, or one "common" to all as published.
    """
    x, mask = moments.checked(x, mask, "clbbf")
    if x.ndim != 4 or x.shape[2] < 2:
        raise FeatureError(
            f"clbbf: x must be (run, time, action, d) with at least 2 actions, but its shape is "
            f"{x.shape}."
        )
    runs, horizon, arms, dim = x.shape
    check_size(np.where(mask, x, 0.0), _ridge(explore, horizon, arms, dim), "clbbf")

    def imputed(part: slice) -> tuple[Float4, Again, Float2]:
        own, seen = x[part], mask[part]
        found = moments.estimate(moments.running(own, seen), rates)

        def again(t: int, action: Int) -> Float3:
            chosen, known = take_arm(own[:, :t], action), take_arm(seen[:, :t], action)
            return moments.impute(chosen, known, found.mean[:, t], found.cov[:, t])

        today = moments.impute(own, seen, found.mean, found.cov)
        return today, again, imputation_error(found, arms, dim, horizon)

    return play_imputed(imputed, reward, (runs, horizon, arms, dim), dim, explore)


def imputation_error(found: Estimate, vectors: int, dim: int, horizon: int) -> Float:
    """e_t = d p^{-3/2} sqrt(log(T) log(kT) / (N_t + k)) with k ``vectors`` a round.

    Counting the vectors of an archive in N_t is our extension; without one it is as published.
    """
    scale = math.log(horizon) * math.log(vectors * horizon)
    error: Float = dim * found.rate**-1.5 * np.sqrt(scale / (found.total + vectors))
    return error


def clbbf_radius(t: Int, horizon: int, arms: int, dim: int, bias: Float) -> Float:
    """sqrt(gamma_t) of rounds t = 0, 1, ..; bias : xsum times :func:`imputation_error`."""
    noise: Float1 = np.sqrt((dim + 1) * np.log((t + 2.0) * horizon))
    return noise + bias + math.sqrt(dim * math.log(arms * horizon))


def _ridge(explore: Exploration, horizon: int, arms: int, dim: int) -> float:
    return explore.ridge or (dim + 1) * math.log(arms * horizon)


def play_imputed(
    imputed: Callable[[slice], tuple[Float4, Again, Float2]], reward: Float3,
    shape: tuple[int, int, int, int], width: int, explore: Exploration,
) -> Int:  # fmt: skip
    """Play (run, time, action, d) = shape, a block of runs at a time.

    imputed : a block of runs -> today's features without the constant, how to fill in chosen past
    ones anew, e_t. width : of the covariances a round needs, which sets the size of blocks.
    """
    runs, horizon, arms, dim = shape
    reward = np.asarray(reward, dtype=np.float64)
    if reward.shape != shape[:3] or np.isinf(reward).any():
        raise RewardError(
            f"clbbf: reward must be (run, time, action) = {shape[:3]}, finite or NaN for a reward "
            f"that is lost, but its shape is {reward.shape}."
        )
    action = np.empty((runs, horizon), dtype=np.int64)
    action[:, 0] = stream(explore.seed, "clbbf").integers(arms, size=runs)
    size = max(BLOCK // (horizon * width**2), 1)
    ridge = _ridge(explore, horizon, arms, dim)
    for start in range(0, runs, size):
        part = slice(start, start + size)
        state = init(dim + 1, ridge, (len(action[part]),))
        _play_block(state, imputed(part), reward[part], action[part], explore.radius)
    return action


def _play_block(
    state: State, imputed: tuple[Float4, Again, Float2], reward: Float3, action: Int,
    radius: float | Radius,
) -> None:  # fmt: skip
    """Fill in action (run, time) from round 1 on: one segment from each power of two."""
    today, again, error = imputed
    _, horizon, arms, dim = today.shape
    today = _with_one(today)
    for t in 2 ** np.arange(max(horizon - 1, 0).bit_length()):
        now = slice(t, min(2 * t, horizon))
        past, earned = again(t, action[:, :t]), take_arm(reward[:, :t], action[:, :t])
        xsum = _rebuild(state, _with_one(past), earned)
        if isinstance(radius, Radius):
            chosen, _ = run_kernel(
                state, np.ascontiguousarray(today[:, now]), np.ascontiguousarray(reward[:, now]),
                NO_ERROR, NO_MASK, radius,
            )  # fmt: skip
        else:
            bias = xsum[:, None] * error[:, now]
            root = clbbf_radius(np.arange(horizon)[now], horizon, arms, dim, bias)
            chosen = play_on(state, today[:, now], reward[:, now], radius * root)
        action[:, now] = chosen


def _rebuild(state: State, x: Float3, reward: Float2) -> Float1:
    """Learn afresh from past x (run, t, d+1) and rewards (run, t); return xsum (run,)."""
    earned = np.isfinite(reward)
    x, reward = x * earned[..., None], np.where(earned, reward, 0.0)
    state.precision[:] = state.ridge * np.eye(x.shape[-1]) + np.swapaxes(x, 1, 2) @ x
    state.inverse[:] = np.linalg.inv(state.precision)
    state.b[:] = (reward[:, None] @ x)[:, 0]
    state.theta[:] = (state.inverse @ state.b[..., None])[..., 0]
    state.sums[:] = 0.0
    state.sums[:, 0] = earned.sum(1)
    state.sums[:, 1] = np.linalg.slogdet(state.precision / state.ridge)[1]
    squares = ((x @ state.inverse) * x).sum(-1)
    lengths: Float1 = np.sqrt(np.maximum(squares, 0.0)).sum(1)
    return lengths


def take_arm(values: Array, action: Int) -> Array:
    """Pick the chosen arm: (run, time, action, ...) -> (run, time, ...)."""
    at = action.reshape(*action.shape, *(1,) * (values.ndim - 2))
    return np.take_along_axis(values, at, axis=2)[:, :, 0]


def _with_one(x: Float) -> Float:
    return np.concatenate([np.ones((*x.shape[:-1], 1)), x], axis=-1)
