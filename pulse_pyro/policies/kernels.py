"""The compiled loop of the linear core.

There is ONE loop, :func:`play`. A single decision is a horizon of one round whose reward is not
known yet (NaN), a single update a horizon of one round with one arm; so streaming and batch run
the same machine code and agree to the last bit although sums may be reordered for speed.
"""

import math

import numpy as np
from numba import njit

from pulse_pyro.arrays import Array, Float, Float1, Float2
from pulse_pyro.policies.refine import FAST, Extra, arm_errors, choose_refined
from pulse_pyro.policies.steps import (
    MANY,
    SMALL,
    absorb,
    choose,
    choose_wide,
    dot,
    draw,
    reach_of,
)
from pulse_pyro.radius import (
    BIAS,
    CAP,
    GIVEN,
    OPTIMISTIC,
    RIDGE,
    SAMPLED,
    WEIGHT,
    bias_part,
    sqrt_gamma,
)

REFRESH = 1024  # rewards between re-factorisations of the inverse


@njit(cache=True, error_model="numpy", fastmath=FAST)
def _gather(
    precision: Float2, b: Float1, x: Float, reward: Float, action: Array, counts: Float1, r: int,
    start: int, stop: int,
) -> None:  # fmt: skip
    """Add rounds [start, stop) to Sigma and b; inside the main loop this would cost twice."""
    for t in range(start, stop):
        a = action[r, t]
        if a < 0 or not math.isfinite(reward[r, t, a]):
            continue
        for i in range(b.shape[0]):
            xi = counts[t] * x[r, t, a, i]
            for j in range(b.shape[0]):
                precision[i, j] += xi * x[r, t, a, j]
            b[i] += reward[r, t, a] * xi


@njit(cache=True, error_model="numpy")
def _refactor(
    precision: Float2, inverse: Float2, b: Float1, theta: Float1, ridge: float
) -> tuple[float, float]:
    """Recompute inverse and theta from Sigma; return (logdet, relative drift of the inverse).

    A Sigma that rounding has made singular is left alone: logdet NaN, drift infinite.
    """
    d = b.shape[0]
    try:
        factor = np.linalg.cholesky(precision)
        fresh = np.linalg.inv(precision)
    except Exception:  # the only form of except that is compiled
        return math.nan, math.inf
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


@njit(cache=True, error_model="numpy")  # rounded alike wherever it is compiled into
def _count_error(e2: float, tri: float, e: float, square: float) -> tuple[float, float]:
    """Add e to sum e^2 and sum e u / sqrt(1 + u^2), u^2 = square; e may be infinite."""
    if square > 0.0:
        tri += e * math.sqrt(square / (1.0 + square))
    return e2 + e * e, tri


@njit(cache=True, error_model="numpy", fastmath=FAST)
def play(
    x: Float, reward: Float, error: Float, allowed: Array, extra: Extra | None, kind: int,
    params: Float1, ridge: float, precision: Float, inverse: Float, b: Float2, theta: Float2,
    sums: Float2, action: Array, root_gamma: Float2,
) -> None:  # fmt: skip
    """Play horizons in place: x (run, time, action, d), reward (run, time, action).

    error and allowed are (run, time, action), of length 1 along run or time if shared, or of
    size 0 for "no error" and "all allowed". A round that cannot be scored (-1, -2), or whose
    reward is NaN, teaches nothing. ``sums`` = (rounds, logdet, sum_e2, sum_tri, drift). A radius
    that is GIVEN is read from root_gamma, any other written there. ``extra`` is what only some
    rules need; None for a constant, paper or corrected radius without refinements. A rule with a
    budget counts a round without an error as one of infinite error: its cap stands for them all.
    """
    runs, horizon, arms, d = x.shape
    reach, counts, wide = np.empty((arms, d)), np.ones(horizon), d > SMALL
    if extra is None:  # this branch is left out when the other is compiled, and the reverse
        y, has_error = x, error.shape[2] > 0
        again = wide and arms >= MANY
    else:
        y = extra.taught if extra.taught.shape[3] > 0 else x
        sampled, sensitive = kind == SAMPLED, extra.slopes.shape[3] > 0
        refined = sensitive or params[BIAS] + params[RIDGE] + params[OPTIMISTIC] > 0.0
        told = sensitive or error.shape[2] > 0
        has_error = told or params[CAP] < math.inf
        again = wide
        drawn, e_now = np.empty(d), np.zeros(arms)
    for r in range(runs):
        pr, iv, br, th = precision[r], inverse[r], b[r], theta[r]
        n, logdet, e2, tri = int(sums[r, 0]), sums[r, 1], sums[r, 2], sums[r, 3]
        gathered = 0
        for t in range(horizon):
            if kind == GIVEN:
                root = root_gamma[r, t]
            else:
                root = sqrt_gamma(kind, params, d, ridge, n, logdet, e2, tri)
            if extra is None:
                if wide:
                    a = choose_wide(iv, th, x, r, t, allowed, root, reach)
                else:
                    a = choose(iv, th, x, r, t, allowed, root)
            elif refined:
                bias = bias_part(params, e2, tri) if n > 0 else 0.0
                arm_errors(iv, th, root, params[0], error, extra, r, t, e_now)
                a = choose_refined(
                    iv, th, x, r, t, allowed, params, root, bias, ridge, e_now, extra, n
                )
            elif sampled:
                draw(iv, th, extra.noise, r, t, root, drawn)
                a = choose_wide(iv, drawn, x, r, t, allowed, 0.0, reach)
            elif wide:
                a = choose_wide(iv, th, x, r, t, allowed, root, reach)
            else:  # a weighted round chooses as any other does
                a = choose(iv, th, x, r, t, allowed, root)
            action[r, t] = a
            root_gamma[r, t] = root
            e = 0.0
            if error.shape[2] > 0 and a >= 0:
                e = error[min(r, error.shape[0] - 1), min(t, error.shape[1] - 1), a]
            if extra is not None:
                if refined and a >= 0:
                    e = e_now[a]
                if not told and params[CAP] < math.inf:
                    e = math.inf
                if extra.spent.shape[1] > 0:
                    extra.spent[r, t] = e
            if a < 0 or not math.isfinite(reward[r, t, a]):
                continue
            if again:  # as an update with one arm does it, to the last bit
                reach_of(iv, y, r, t, a, reach)
            if extra is None:
                square, _ = absorb(iv, th, y, r, t, a, reward[r, t, a], reach, math.inf)
            else:
                square, w = absorb(iv, th, y, r, t, a, reward[r, t, a], reach, params[WEIGHT])
                counts[t] = w
                square *= w
                e *= math.sqrt(w)
                if extra.past.shape[1] > 0:
                    for i in range(d):
                        extra.past[r, n, i] = math.sqrt(w) * y[r, t, a, i]
                    extra.past_error[r, n] = e
            n += 1
            logdet += math.log1p(square)
            if has_error:
                e2, tri = _count_error(e2, tri, e, square)
            if n % REFRESH == 0:
                _gather(pr, br, y, reward, action, counts, r, gathered, t + 1)
                gathered = t + 1
                found, drift = _refactor(pr, iv, br, th, ridge)
                logdet = found if math.isfinite(found) else logdet
                sums[r, 4] = max(drift, sums[r, 4])
        _gather(pr, br, y, reward, action, counts, r, gathered, horizon)
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
            mean[r, a] = dot(theta[r], x, r, 0, a)
            width[r, a] = math.sqrt(max(square, 0.0))
