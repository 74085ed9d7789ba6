"""The Kalman oracle of a latent autoregression: knows every parameter, and learns z from rewards.

    z_t = g_0 + sum_j g_j z_{t-j} + xi_t,  xi ~ N(0, sd^2),      W_t = offset_t + z_t,
    R_t = mu_A + beta_A W_t + N(0, reward_sd^2),                  A_t plays the largest mu_a +
    beta_a E[W_t | offsets, earlier rewards].
With the companion matrix G and state (z_t, ..., z_{t-k+1}), the filter observes
y = (R - mu_A) / beta_A - offset with variance reward_sd^2 / beta_A^2; an arm with beta_A = 0 tells
nothing. It starts in the stationary law and is exact for the arms played. Published comparators
use the steady state of one filter in which every arm observes as badly as the least informative
one; ours coincides with it, in the long run, where all |beta_a| are equal.

It is the best policy where all |beta_a| are equal. Elsewhere it is myopic: it never plays an arm
for what the arm would tell about z.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg

from pulse_pyro._core.arrays import Float, Float1, Float2, Float3, Int, positive
from pulse_pyro._core.errors import RewardError, SettingError


class Autoregression(NamedTuple):
    """z_t = intercept + sum_j ar[j-1] z_{t-j} + N(0, sd^2), stationary."""

    ar: tuple[float, ...]
    intercept: float
    sd: float

    @property
    def mean(self) -> float:
        """E z."""
        return self.intercept / (1.0 - sum(self.ar))

    @property
    def companion(self) -> Float2:
        """The matrix G that moves (z_{t-1}, ..., z_{t-k}) one step on, (k, k)."""
        out = np.eye(len(self.ar), k=-1)
        out[0] = self.ar
        return out

    @property
    def covariance(self) -> Float2:
        """Covariance of (z_t, ..., z_{t-k+1}) in the stationary law, (k, k)."""
        shock = np.zeros((len(self.ar), len(self.ar)))
        shock[0, 0] = self.sd**2
        found = np.asarray(linalg.solve_discrete_lyapunov(self.companion, shock), np.float64)
        return (found + found.T) / 2.0


def autoregression(
    ar: Sequence[float], *, intercept: float = 0.0, sd: float = 1.0
) -> Autoregression:
    """Return a checked :class:`Autoregression`; coefficients must be stationary."""
    g = np.asarray(ar, np.float64)
    if g.ndim != 1 or not g.size or not np.isfinite(g).all():
        raise SettingError(f"autoregression: ar must be finite coefficients, but got {ar!r}.")
    if not np.isfinite(intercept):
        raise SettingError(f"autoregression: intercept must be finite, but got {intercept!r}.")
    made = Autoregression(tuple(g.tolist()), float(intercept), positive(sd, "autoregression: sd"))
    largest = float(np.abs(np.linalg.eigvals(made.companion)).max())
    if not largest < 1.0 - 1e-9:
        raise SettingError(
            f"autoregression: coefficients {made.ar} are not stationary (largest root "
            f"{largest:.4g}, it must be below 1): z would wander off; shrink them."
        )
    return made


class KalmanRun(NamedTuple):
    """What the oracle did.

    action : (run, time). z : (run, time) E[z_t | earlier rewards], before R_t.
    variance : (run, time) its mean squared error.
    """

    action: Int
    z: Float2
    variance: Float2


def kalman(
    reward: Float3,
    latent: Autoregression,
    *,
    mu: ArrayLike,
    beta: ArrayLike,
    reward_sd: float,
    offset: Float2 | None = None,
) -> KalmanRun:
    """Play the Kalman oracle.

    Parameters
    ----------
    reward : (run, time, action) what each arm would pay; only the played arm's is read. NaN: lost.
    latent : the law of z.
    mu, beta : (action,) intercept and slope in W of each arm.
    reward_sd : of the reward noise.
    offset : (run, time) the part of W known from S; 0 by default.
    """
    reward = np.asarray(reward, np.float64)
    if reward.ndim != 3 or not reward.size:
        raise RewardError(f"kalman: reward must be (run, time, action), not {reward.shape}.")
    runs, horizon, arms = reward.shape
    mu, beta = _arms(mu, arms, "mu"), _arms(beta, arms, "beta")
    noise = positive(reward_sd, "kalman: reward_sd", zero=True) ** 2
    known = np.zeros((runs, horizon)) if offset is None else np.asarray(offset, np.float64)
    if known.shape != (runs, horizon) or not np.isfinite(known).all():
        raise SettingError(
            f"kalman: offset must be finite, one per (run, time) = {(runs, horizon)}, but got "
            f"an array of shape {known.shape}."
        )
    step, shock = latent.companion, np.zeros(len(latent.ar))
    shock[0] = latent.sd**2
    state = np.zeros((runs, len(latent.ar)))  # measured from E z
    spread = np.tile(latent.covariance, (runs, 1, 1))
    action = np.empty((runs, horizon), np.int64)
    z, variance = np.empty((2, runs, horizon))
    every = np.arange(runs)
    for t in range(horizon):
        z[:, t], variance[:, t] = latent.mean + state[:, 0], spread[:, 0, 0]
        action[:, t] = (mu + beta * (known[:, t] + z[:, t])[:, None]).argmax(1)
        slope, paid = beta[action[:, t]], reward[every, t, action[:, t]]
        gain, surprise = _learn(spread, slope, noise)
        seen = np.isfinite(paid)
        told = np.where(seen, paid, 0.0) - mu[action[:, t]] - slope * (known[:, t] + z[:, t])
        gain[~seen] = 0.0
        state = (state + gain * told[:, None]) @ step.T
        spread = spread - surprise[:, None, None] * gain[:, :, None] * gain[:, None, :]
        spread = step @ spread @ step.T + np.diag(shock)
    return KalmanRun(action, z, variance)


def _learn(spread: Float3, slope: Float1, noise: float) -> tuple[Float2, Float1]:
    """Return the gain (run, k), and the variance of the reward before it is seen (run,)."""
    surprise: Float1 = slope**2 * spread[:, 0, 0] + noise
    # slope in the numerator instead of y divided by it: an arm of slope 0 simply has no gain
    gain: Float = slope[:, None] * spread[:, :, 0]
    return np.divide(gain, surprise[:, None], out=np.zeros_like(gain), where=gain != 0), surprise


def _arms(value: ArrayLike, arms: int, what: str) -> Float1:
    out = np.asarray(value, np.float64)
    if out.shape != (arms,) or not np.isfinite(out).all():
        raise SettingError(f"kalman: {what} must be {arms} finite numbers, but got {value!r}.")
    return out
