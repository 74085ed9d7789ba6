"""The sharp ball: how far theta* may be from theta_hat, from running sums alone.

With L = logdet_t + 2 log(1/delta), on an event of probability >= 1 - delta, for all t at once,

    ||theta* - theta_hat||_Sigma <= r(theta*),
    r(theta) = sqrt(lambda size(theta)^2 + sigma(theta)^2 L) + B(theta),

    size(theta)^2 = sum_j weight_j theta_j^2,
    sigma(theta)^2 = reward_sd^2 + max_a ||theta' spread_a||^2,   spread_a = M_a C_W^(1/2),
    B(theta) = bias left by the law's error, linear in the weights theta' m_k (below).

The root of the sum replaces the sum of roots (R1). What theta* is stands on the right too, so the
ball is shrunk by iterating r <- sup {r(theta): ||theta - theta_hat||_Sigma <= r, ||theta|| <= S}
from the worst case (R2); every iterate is valid, because lambda is fixed beforehand.

The error of E[W_i | S] reaches the reward through Phi = c_a(s) + M_a(s) w: it adds
sum_k (theta' m_k) c_k(a, s) delta_i(k)(s) to the mean of a round, with fixed vectors m_k. Either
|delta_i| <= eps_i (a band: c_k then stands for c_k eps_i), then

    B(theta) = sum_k |theta' m_k| T_k,
    T_k = min{ sqrt(sum c_k^2), sum |c_k| u / sqrt(1 + u^2) },

or delta_i = psi_i' v with ||v|| <= chi_i (the ellipsoid of a linear law, R3), then

    B(theta) = sum_i chi_i || Sigma^{-1/2} sum_{k of i} (theta' m_k) C_k ||_op,
    C_k = sum x c_k psi_i'.

Nothing here grows with t. Operator norms are bounded from above by powers of traces.

NOT covered: sigma and S are taken on trust; C_W comes from the law and is a sub-Gaussian scale only
for normal residuals; everything in THEORY about W_t given S_1:t being free of earlier W.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from pulse_pyro._core.arrays import Float, Float1, Float2, Float3, Int

STEPS = 6  # of the iteration; each is valid, and later ones change little
POWER = 4  # squarings in the bound on an operator norm: at most d^(1/32) too large
WIDE = 12  # features from which the Frobenius norm does: squarings would cost d^3


class BallRule(NamedTuple):
    """What is fixed beforehand, for d scored features.

    Attributes
    ----------
    numbers : (5,) S, the reward's sd (or sigma, where there is no spread), delta, sigma at most,
        size at most.
    weights : (d,) of size(theta).
    spread : (action, d, q) M_a C_W^(1/2), q = 0 where sigma is given. top : (action,) its norm.
    directions : (k, d) m_k. norms : (k,) their lengths. of : (k,) which W each is about.
    chi : (w,) radius of each W's ellipsoid; size 0 where errors are a band.
    """

    numbers: Float1
    weights: Float1
    spread: Float3
    top: Float1
    directions: Float2
    norms: Float1
    of: Int
    chi: Float1


class BallRounds(NamedTuple):
    """What the law's error is at each round.

    coef : (run or 1, time or 1, action, k) c_k(a, s), times eps where errors are a band. psi :
    (run, time, w, p) of ellipsoids, or size 0.
    """

    coef: Float
    psi: Float


class BallSums(NamedTuple):
    """Running sums. plain : (run, k, 2) of c^2 and of |c| u / sqrt(1 + u^2).

    outer : (run, k, d, p) of x c psi'.
    """

    plain: Float3
    outer: Float


@njit(cache=True, error_model="numpy", fastmath=False)
def operator_norm(a: Float2, inverse: Float2) -> float:
    """Bound ||Sigma^{-1/2} A||_op from above, A (d, p), inverse = Sigma^{-1}.

    The largest eigenvalue of N = A A' Sigma^{-1} is at most (tr N^m)^(1/m), m = 2^POWER.
    """
    d, p = a.shape
    gram = np.zeros((d, d))
    for i in range(d):
        for j in range(i, d):
            total = 0.0
            for k in range(p):
                total += a[i, k] * a[j, k]
            gram[i, j] = total
            gram[j, i] = total
    trace = 0.0
    for i in range(d):
        for j in range(d):
            trace += gram[i, j] * inverse[i, j]
    if not trace > 0.0:
        return 0.0 if trace == 0.0 or not math.isnan(trace) else math.nan
    if d > WIDE or d == 1:
        return math.sqrt(trace) * (1.0 + 1e-12)
    n = np.zeros((d, d))
    for i in range(d):
        for j in range(d):
            for k in range(d):
                n[i, j] += gram[i, k] * inverse[k, j]
            n[i, j] /= trace
    log_scale = 0.0  # N^m = exp(log_scale) n
    for _ in range(POWER):
        square = np.zeros((d, d))
        for i in range(d):
            for k in range(d):
                for j in range(d):
                    square[i, j] += n[i, k] * n[k, j]
        size = 0.0
        for i in range(d):
            size += square[i, i]
        log_scale = 2.0 * log_scale + math.log(size)
        for i in range(d):
            for j in range(d):
                n[i, j] = square[i, j] / size
    return math.sqrt(trace * math.exp(log_scale / 2.0**POWER)) * (1.0 + 1e-12)


@njit(cache=True, error_model="numpy", fastmath=False)
def ellipsoid_sums(
    directions: Float2,
    of: Int,
    chi: Float1,
    outer: Float3,
    inverse: Float2,
    theta: Float1,
    sums: Float1,
) -> float:
    """Fill chi_i ||Sigma^{-1/2} C_k||_op, (k,); return B(theta_hat) of all directions at once.

    outer : (k, d, p) C_k. At once: signs may cancel.
    """
    count, joint = directions.shape[0], 0.0
    for k in range(count):
        sums[k] = chi[of[k]] * operator_norm(outer[k], inverse)
    for i in range(chi.shape[0]):
        together = np.zeros(outer.shape[1:])
        for k in range(count):
            if of[k] == i:
                value = 0.0
                for j in range(theta.shape[0]):
                    if directions[k, j] != 0.0:
                        value += directions[k, j] * theta[j]
                together += value * outer[k]
        joint += chi[i] * operator_norm(together, inverse)
    return joint


@njit(cache=True, error_model="numpy", fastmath=False)
def w_span(spread: Float3, directions: Float2) -> tuple[int, int]:
    """Return where the features that involve W begin and end: the others add nothing to sums."""
    low, high = directions.shape[1], 0
    for j in range(directions.shape[1]):
        if spread[:, j].any() or directions[:, j].any():
            low, high = min(low, j), j + 1
    return low, high


@njit(cache=True, error_model="numpy", fastmath=False, inline="always")
def ball_root(
    numbers: Float1,
    weights: Float1,
    spread: Float3,
    top: Float1,
    directions: Float2,
    norms: Float1,
    low: int,
    high: int,
    plain: Float2,
    ridge: float,
    rounds: int,
    logdet: float,
    inverse: Float2,
    theta: Float1,
    at: Float1,
    per: Float1,
    value: Float1,
    reach: Float1,
    sums: Float1,
    joint: float,
) -> float:
    """Return r after ``rounds`` rewards; plain (k, 2) are one run's sums.

    The first six are of a :class:`BallRule`; low, high : of :func:`w_span`. joint, sums (k,) :
    as :func:`ellipsoid_sums` left them; where errors are a band, joint is negative. at, per, value,
    reach, sums are room to work in, (actions,) twice and (k,): arrays made in every round would
    cost more than the radius.

    Nothing in here returns early or can raise: only then does the compiler see that no array that
    was passed goes away, and counts no references to them, which would cost more than the radius.
    """
    size, noise, delta = numbers[0], numbers[1], numbers[2]
    most_sigma, most_size = numbers[3], numbers[4]
    d, count = theta.shape[0], directions.shape[0]
    grown = logdet + 2.0 * math.log(1.0 / delta)
    # the size of theta: at theta_hat, and what each unit of r adds
    here, more = 0.0, 0.0
    for j in range(d):
        here += weights[j] * theta[j] * theta[j]
        more += weights[j] * inverse[j, j]
    here, more = math.sqrt(here), math.sqrt(max(more, 0.0))
    # the part of sigma that W leaves open, for each action
    arms, q = spread.shape[0], spread.shape[2]
    for a in range(arms if q > 0 else 0):
        here_w, more_w = 0.0, 0.0
        for i in range(q):
            total = 0.0
            for j in range(low, high):
                if spread[a, j, i] == 0.0:
                    continue
                total += spread[a, j, i] * theta[j]
                row = 0.0
                for k in range(low, high):
                    row += inverse[j, k] * spread[a, k, i]
                more_w += spread[a, j, i] * row
            here_w += total * total
        at[a], per[a] = math.sqrt(here_w), math.sqrt(max(more_w, 0.0))
    # the bias: each m_k's own weight at theta_hat, what r adds to it, and its sums
    bias, slope, worst = 0.0, 0.0, 0.0
    for k in range(count):
        total, square = 0.0, 0.0
        for j in range(low, high):
            if directions[k, j] == 0.0:
                continue
            total += directions[k, j] * theta[j]
            row = 0.0
            for i in range(low, high):
                row += inverse[j, i] * directions[k, i]
            square += directions[k, j] * row
        value[k], reach[k] = total, math.sqrt(max(square, 0.0))
        if joint < 0.0:
            sums[k] = min(math.sqrt(plain[k, 0]), plain[k, 1])
        bias += abs(total) * sums[k]
        slope += reach[k] * sums[k]
        worst += size * norms[k] * sums[k]
    if joint >= 0.0:
        bias = min(bias, joint)
    r = math.sqrt(ridge * most_size * most_size + most_sigma * most_sigma * grown) + worst
    for _ in range(STEPS):
        length = min(most_size, here + r * more)
        open_part = 0.0
        for a in range(arms if q > 0 else 0):
            open_part = max(open_part, min(size * top[a], at[a] + r * per[a]))
        sigma = math.sqrt(noise * noise + open_part * open_part)
        apart = 0.0
        for k in range(count):
            apart += min(size * norms[k], abs(value[k]) + r * reach[k]) * sums[k]
        left = min(apart, bias + r * slope)
        r = min(r, math.sqrt(ridge * length * length + sigma * sigma * grown) + left)
    # theta_hat_0 = 0: exact, no noise yet
    return math.sqrt(ridge) * most_size if rounds == 0 else r


@njit(cache=True, error_model="numpy", fastmath=False, inline="always")
def add_round(
    of: Int,
    chi: Float1,
    coef: Float,
    psi: Float,
    plain: Float2,
    outer: Float3,
    x: Float3,
    at: int,
    square: float,
    r: int,
    t: int,
    a: int,
) -> None:
    """Count a round that was learned from: x[0, at] its features, square = x' Sigma^{-1} x before.

    of, chi : of a :class:`BallRule`. coef, psi : of :class:`BallRounds`.
    """
    run, when = min(r, coef.shape[0] - 1), min(t, coef.shape[1] - 1)
    grow = math.sqrt(square / (1.0 + square)) if square > 0.0 else 0.0
    for k in range(of.shape[0]):
        c, i = coef[run, when, a, k], of[k]
        if chi.shape[0] > 0:
            for j in range(outer.shape[1]):
                for m in range(outer.shape[2]):
                    outer[k, j, m] += c * x[0, at, j] * psi[r, t, i, m]
        else:
            plain[k, 0] += c * c
            plain[k, 1] += abs(c) * grow
