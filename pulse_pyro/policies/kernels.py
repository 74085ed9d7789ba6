"""The compiled loop of the linear core.

There is ONE loop, :func:`play`. A single decision is a horizon of one round whose reward is not
known yet (NaN), a single update a horizon of one round with one arm; so streaming and batch run
the same machine code and agree to the last bit although sums may be reordered for speed.
"""

import math

import numpy as np
from numba import njit

from pulse_pyro.arrays import Array, Float, Float1, Float2
from pulse_pyro.radius import sqrt_gamma

REFRESH = 1024  # rewards between re-factorisations of the inverse
FAST = {"reassoc", "contract"}  # reorder sums, fuse multiply-add; NaN and infinity keep meaning


@njit(error_model="numpy", fastmath=FAST, inline="always")
def _dot(theta: Float1, x: Float, r: int, t: int, a: int) -> float:
    total = 0.0
    for i in range(theta.shape[0]):
        total += theta[i] * x[r, t, a, i]
    return total


@njit(error_model="numpy", fastmath=FAST, inline="always")
def _choose(
    inverse: Float2, theta: Float1, x: Float, r: int, t: int, allowed: Array, root: float
) -> int:
    """Best allowed arm, lowest index on ties; -1: a score is not finite, -2: none is allowed."""
    best, top, total = -2, -np.inf, 0.0
    for a in range(x.shape[2]):
        if (
            allowed.shape[2] > 0
            and not allowed[min(r, allowed.shape[0] - 1), min(t, allowed.shape[1] - 1), a]
        ):
            continue
        square = 0.0
        for i in range(theta.shape[0]):
            row = 0.0
            for j in range(theta.shape[0]):
                row += inverse[i, j] * x[r, t, a, j]
            square += row * x[r, t, a, i]
        score = _dot(theta, x, r, t, a) + root * math.sqrt(max(square, 0.0))
        total += score
        if score > top:
            best, top = a, score
    return best if math.isfinite(total) else -1


@njit(error_model="numpy", fastmath=FAST, inline="always")
def _absorb(
    inverse: Float2, theta: Float1, x: Float, r: int, t: int, a: int, reward: float, work: Float1
) -> float:
    """Sherman-Morrison step: inverse -= v v' / (1 + u^2), theta likewise; return u^2 (old)."""
    d = theta.shape[0]
    square = 0.0
    for i in range(d):
        row = 0.0
        for j in range(d):
            row += inverse[i, j] * x[r, t, a, j]
        work[i] = row
        square += row * x[r, t, a, i]
    square = max(square, 0.0)
    shrink = 1.0 / (1.0 + square)
    surprise = (reward - _dot(theta, x, r, t, a)) * shrink
    for i in range(d):
        scaled = work[i] * shrink
        for j in range(d):
            inverse[i, j] -= scaled * work[j]
        theta[i] += work[i] * surprise
    return square


@njit(cache=True, error_model="numpy", fastmath=FAST)
def _gather(
    precision: Float2, b: Float1, x: Float, reward: Float, action: Array, r: int, start: int,
    stop: int,
) -> None:  # fmt: skip
    """Add rounds [start, stop) to Sigma and b; inside the main loop this would cost twice."""
    for t in range(start, stop):
        a = action[r, t]
        if a < 0 or not math.isfinite(reward[r, t, a]):
            continue
        for i in range(b.shape[0]):
            xi = x[r, t, a, i]
            for j in range(b.shape[0]):
                precision[i, j] += xi * x[r, t, a, j]
            b[i] += reward[r, t, a] * xi


@njit(cache=True, error_model="numpy")
def _refactor(
    precision: Float2, inverse: Float2, b: Float1, theta: Float1, ridge: float
) -> tuple[float, float]:
    """Recompute inverse and theta from Sigma; return (logdet, relative drift of the inverse)."""
    d = b.shape[0]
    factor = np.linalg.cholesky(precision)
    fresh = np.linalg.inv(precision)
    gap, size, logdet = 0.0, 0.0, 0.0
    for i in range(d):
        logdet += 2.0 * math.log(factor[i, i])
        for j in range(d):
            gap = max(gap, abs(fresh[i, j] - inverse[i, j]))
            size = max(size, abs(fresh[i, j]))
    for i in range(d):
        theta[i] = 0.0
        for j in range(d):
            inverse[i, j] = 0.5 * (fresh[i, j] + fresh[j, i])
            theta[i] += inverse[i, j] * b[j]
    return logdet - d * math.log(ridge), gap / size


@njit(cache=True, error_model="numpy", fastmath=FAST)
def play(
    x: Float, reward: Float, error: Float, allowed: Array, kind: int, params: Float1,
    ridge: float, precision: Float, inverse: Float, b: Float2, theta: Float2, sums: Float2,
    action: Array, root_gamma: Float2,
) -> None:  # fmt: skip
    """Play horizons in place: x (run, time, action, d), reward (run, time, action).

    error and allowed are (run, time, action), of length 1 along run or time if shared, or of
    size 0 for "no error" and "all allowed". A round that cannot be scored (-1, -2), or whose
    reward is NaN, teaches nothing. ``sums`` = (rounds, logdet, sum_e2, sum_tri, drift).
    """
    runs, horizon, _, d = x.shape
    work = np.empty(d)
    for r in range(runs):
        pr, iv, br, th = precision[r], inverse[r], b[r], theta[r]
        n, logdet, e2, tri = int(sums[r, 0]), sums[r, 1], sums[r, 2], sums[r, 3]
        gathered = 0
        for t in range(horizon):
            root = sqrt_gamma(kind, params, d, ridge, n, logdet, e2, tri)
            a = _choose(iv, th, x, r, t, allowed, root)
            action[r, t] = a
            root_gamma[r, t] = root
            if a < 0 or not math.isfinite(reward[r, t, a]):
                continue
            square = _absorb(iv, th, x, r, t, a, reward[r, t, a], work)
            n += 1
            logdet += math.log1p(square)
            if error.shape[2] > 0:
                e = error[min(r, error.shape[0] - 1), min(t, error.shape[1] - 1), a]
                e2 += e * e
                tri += e * math.sqrt(square / (1.0 + square))
            if n % REFRESH == 0:
                _gather(pr, br, x, reward, action, r, gathered, t + 1)
                gathered = t + 1
                logdet, drift = _refactor(pr, iv, br, th, ridge)
                sums[r, 4] = max(drift, sums[r, 4])
        _gather(pr, br, x, reward, action, r, gathered, horizon)
        sums[r, 0], sums[r, 1], sums[r, 2], sums[r, 3] = n, logdet, e2, tri


@njit(cache=True, error_model="numpy", fastmath=FAST)
def scores(x: Float, inverse: Float, theta: Float2, mean: Float2, width: Float2) -> None:
    """Fill x' theta_hat and ||x||_{Sigma^{-1}}, (run, action) each, for x (run, 1, action, d)."""
    for r in range(x.shape[0]):
        for a in range(x.shape[2]):
            square = 0.0
            for i in range(x.shape[3]):
                row = 0.0
                for j in range(x.shape[3]):
                    row += inverse[r, i, j] * x[r, 0, a, j]
                square += row * x[r, 0, a, i]
            mean[r, a] = _dot(theta[r], x, r, 0, a)
            width[r, a] = math.sqrt(max(square, 0.0))
