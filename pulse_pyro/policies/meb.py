"""MEB: bandits with a predicted context, corrected for measurement error (Guo, Xu and Murphy 2024).

The context is seen with an error of known covariance, x_t = phi_t + e_t, E[e_t | phi_t] = 0,
Cov(e_t) = E_t: classical measurement error, under which least squares of rewards on x shrinks
theta, E[x x'] = E[phi phi'] + E. Corrected, with w = 1 / (K pi_t(A_t)) because arms are chosen by
the error too,

    theta_hat = ( sum w (x x' - E) )^+ sum w x R,

the pseudo-inverse of the part whose eigenvalues are positive. The arm of largest x' theta_hat is
played, but with probability p_t = min(1, explore t^(-1/3)) one drawn uniformly: the floor of
exploration that keeps weights bounded.

An expectation given S has the other error, Berkson's: phi = xbar + e with E[e | xbar] = 0. Then
E[xbar R] = E[xbar xbar'] theta as it stands, nothing is to be corrected, and to subtract E makes
theta too large: ``reproduce meb`` has both kinds side by side. Nor is the correction needed for a
classical error of one size: least squares on x then predicts rewards from x best, shrunk theta and
all. It is needed where the error's size changes from round to round.

Not covered: contexts of which E_t is not known; no bonus, no radius, and regret of order T^(2/3).
"""

from __future__ import annotations

import numpy as np

from pulse_pyro._core.arrays import Float, Float2, Float3, Float4, Int, positive
from pulse_pyro._core.errors import FeatureError, RewardError
from pulse_pyro._core.seeds import stream

SINGULAR = 1e-6  # eigenvalues below this share of the largest count as none


def play_meb(
    x: Float4, reward: Float3, error: Float, *, explore: float = 1.0, seed: int = 0
) -> Int:
    """Play MEB; return actions (run, time).

    Parameters
    ----------
    x : (run, time, action, d) features as they are seen, with their error.
    reward : (run, time, action) what each arm would pay; only the played arm's is read.
    error : (time or 1, action, d, d) covariance of the error of each arm's features; zeros: plain
        weighted least squares under the same exploration.
    explore : the share of exploration at the first round; it falls as t^(-1/3).
    seed : of the exploration.
    """
    x, reward = np.asarray(x, np.float64), np.asarray(reward, np.float64)
    if x.ndim != 4 or not np.isfinite(x).all():
        raise FeatureError(
            f"play_meb: features must be finite (run, time, action, d), not {x.shape}."
        )
    runs, horizon, arms, d = x.shape
    if reward.shape != x.shape[:3]:
        raise RewardError(
            f"play_meb: reward must be {x.shape[:3]}, but its shape is {reward.shape}."
        )
    noise = np.asarray(error, np.float64)
    if noise.shape not in ((1, arms, d, d), (horizon, arms, d, d)):
        raise FeatureError(
            f"play_meb: error must be (time or 1, action, d, d) = ({horizon} or 1, {arms}, {d}, "
            f"{d}), but its shape is {noise.shape}."
        )
    positive(explore, "play_meb: explore", zero=True)
    rng = stream(seed, "meb")
    coin, drawn = rng.random((runs, horizon)), rng.integers(arms, size=(runs, horizon))
    action = np.empty((runs, horizon), np.int64)
    gram, cross, theta = np.zeros((runs, d, d)), np.zeros((runs, d)), np.zeros((runs, d))
    every = np.arange(runs)
    for t in range(horizon):
        floor = min(1.0, explore * (t + 1.0) ** (-1.0 / 3.0))
        greedy = np.einsum("rad,rd->ra", x[:, t], theta).argmax(-1)
        arm = np.where(coin[:, t] < floor, drawn[:, t], greedy)
        chance = floor / arms + (1.0 - floor) * (arm == greedy)
        weight = 1.0 / (arms * chance)
        seen, own = x[every, t, arm], noise[min(t, len(noise) - 1), arm]
        gram += weight[:, None, None] * (seen[:, :, None] * seen[:, None, :] - own)
        cross += (weight * reward[every, t, arm])[:, None] * seen
        theta = corrected_least_squares(gram, cross)
        action[:, t] = arm
    return action


def corrected_least_squares(gram: Float3, cross: Float2) -> Float2:
    """Return G^+ c, (run, d), of the positive part of symmetric G (run, d, d); c (run, d)."""
    value, vector = np.linalg.eigh(gram)
    keep = value > SINGULAR * np.maximum(value[:, -1:], 0.0)
    scale = np.where(keep & (value > 0.0), 1.0 / np.where(keep, value, 1.0), 0.0)
    along = np.einsum("rij,ri->rj", vector, cross)
    out: Float2 = np.einsum("rij,rj->ri", vector, scale * along)
    return out
