"""The compiled loop of the linear core: score the arms, choose, draw, learn."""

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from pulse_pyro._core.arrays import Array, Float, Float1, Float2
from pulse_pyro.radius import CAP, GIVEN, SAMPLED, WEIGHT, sqrt_gamma

FAST = {"reassoc", "contract"}  # reorder sums, fuse multiply-add; NaN and infinity keep meaning


class Extra(NamedTuple):
    """What only some policies bring along; size 0 where it is not used.

    taught : (run, time, action, d) features learned from, where they differ from those scored.
    noise : (run, time, d) standard normal, for posterior sampling. spent : (run, time) e_t of the
    arm played, filled in.
    """

    taught: Float
    noise: Float
    spent: Float2


NOTHING = Extra(np.zeros((0, 0, 0, 0)), np.zeros((0, 0, 0)), np.zeros((0, 0)))


# The compiled steps of a round: score the arms, choose, draw, learn.


SMALL = 12  # dimensions up to which rows one by one are faster
MANY = 8  # arms from which one matrix product is faster


@njit(error_model="numpy", fastmath=FAST, inline="always")
def dot(theta: Float1, x: Float, r: int, t: int, a: int) -> float:
    """Return theta' x of an arm."""
    total = 0.0
    for i in range(theta.shape[0]):
        total += theta[i] * x[r, t, a, i]
    return total


@njit(error_model="numpy", fastmath=False, inline="always")
def _open(allowed: Array, r: int, t: int, a: int) -> bool:
    if allowed.shape[2] == 0:
        return True
    found: bool = allowed[min(r, allowed.shape[0] - 1), min(t, allowed.shape[1] - 1), a]
    return found


@njit(error_model="numpy", fastmath=FAST, inline="always")
def choose(
    inverse: Float2, theta: Float1, x: Float, r: int, t: int, allowed: Array, root: float
) -> int:
    """Best allowed arm, lowest index on ties; -1: a score is not finite, -2: none is allowed."""
    best, top, total = -2, -np.inf, 0.0
    for a in range(x.shape[2]):
        if not _open(allowed, r, t, a):
            continue
        square = 0.0
        for i in range(theta.shape[0]):
            row = 0.0
            for j in range(theta.shape[0]):
                row += inverse[i, j] * x[r, t, a, j]
            square += row * x[r, t, a, i]
        score = dot(theta, x, r, t, a) + root * math.sqrt(max(square, 0.0))
        total += score
        if score > top:
            best, top = a, score
    return best if math.isfinite(total) else -1


@njit(cache=True, error_model="numpy", fastmath=FAST)
def choose_wide(
    inverse: Float2,
    theta: Float1,
    x: Float,
    r: int,
    t: int,
    allowed: Array,
    root: float,
    reach: Float2,
) -> int:
    """As :func:`choose`, for many features: all arms at once, or four rows of a matrix at a time.

    reach : (action, d) is filled with Sigma^{-1} x of each arm.
    """
    best, top, total = -2, -np.inf, 0.0
    many = x.shape[2] >= MANY
    if many:
        np.dot(x[r, t], inverse, reach)
    for a in range(x.shape[2]):
        if not _open(allowed, r, t, a):
            continue
        if not many:
            reach_of(inverse, x, r, t, a, reach)
        square = 0.0
        for i in range(theta.shape[0]):
            square += reach[a, i] * x[r, t, a, i]
        score = dot(theta, x, r, t, a) + root * math.sqrt(max(square, 0.0))
        total += score
        if score > top:
            best, top = a, score
    return best if math.isfinite(total) else -1


@njit(cache=True, error_model="numpy", fastmath=FAST)
def reach_of(inverse: Float2, x: Float, r: int, t: int, a: int, out: Float2) -> None:
    """Fill row a with Sigma^{-1} x."""
    d = out.shape[1]
    block = d - d % 4
    for i in range(d):
        out[a, i] = 0.0
    for j in range(0, block, 4):
        x0, x1, x2, x3 = x[r, t, a, j], x[r, t, a, j + 1], x[r, t, a, j + 2], x[r, t, a, j + 3]
        for i in range(d):
            out[a, i] += (
                inverse[j, i] * x0
                + inverse[j + 1, i] * x1
                + inverse[j + 2, i] * x2
                + inverse[j + 3, i] * x3
            )
    for j in range(block, d):
        for i in range(d):
            out[a, i] += inverse[j, i] * x[r, t, a, j]


@njit(error_model="numpy", fastmath=FAST, inline="always")
def absorb(
    inverse: Float2,
    theta: Float1,
    x: Float,
    r: int,
    t: int,
    a: int,
    reward: float,
    reach: Float2,
    weight: float,
) -> tuple[float, float]:
    """Sherman-Morrison step: inverse -= w v v' / (1 + w u^2), theta likewise; return u^2 (old), w.

    reach : (action, d), v = Sigma^{-1} x, found here where d is small. w = min(1, weight / u).
    """
    d = theta.shape[0]
    square = 0.0
    if d <= SMALL:
        for i in range(d):
            row = 0.0
            for j in range(d):
                row += inverse[i, j] * x[r, t, a, j]
            reach[a, i] = row
            square += row * x[r, t, a, i]
    else:
        for i in range(d):
            square += reach[a, i] * x[r, t, a, i]
    square = max(square, 0.0)
    w = 1.0
    if weight < math.inf and square > 0.0:
        w = min(1.0, weight / math.sqrt(square))
    shrink = w / (1.0 + w * square)
    surprise = (reward - dot(theta, x, r, t, a)) * shrink
    for i in range(d):
        scaled = reach[a, i] * shrink
        for j in range(d):
            inverse[i, j] -= scaled * reach[a, j]
        theta[i] += reach[a, i] * surprise
    return square, w


@njit(cache=True, error_model="numpy", fastmath=False)
def draw(
    inverse: Float2, theta: Float1, noise: Float, r: int, t: int, scale: float, out: Float1
) -> None:
    """Draw theta ~ N(theta_hat, scale^2 Sigma^{-1}) from standard normal noise."""
    values, vectors = np.linalg.eigh(inverse)
    factor = vectors * np.sqrt(np.maximum(values, 0.0))  # a Cholesky factor may not exist
    for i in range(theta.shape[0]):
        out[i] = theta[i]
        for j in range(theta.shape[0]):
            out[i] += scale * factor[i, j] * noise[r, t, j]


# The compiled loop of the linear core.
#
# There is ONE loop, :func:`play`. A single decision is a horizon of one round whose reward is not
# known yet (NaN), a single update a horizon of one round with one arm; so streaming and batch run
# the same machine code and agree to the last bit although sums may be reordered for speed.


REFRESH = 1024  # rewards between re-factorisations of the inverse


@njit(cache=True, error_model="numpy", fastmath=FAST)
def _gather(
    precision: Float2,
    b: Float1,
    x: Float,
    reward: Float,
    action: Array,
    counts: Float1,
    r: int,
    start: int,
    stop: int,
) -> None:
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


@njit(cache=True, error_model="numpy", fastmath=False)
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


@njit(cache=True, error_model="numpy", fastmath=False)  # rounded alike wherever it is compiled into
def _count_error(e2: float, tri: float, e: float, square: float) -> tuple[float, float]:
    """Add e to sum e^2 and sum e u / sqrt(1 + u^2), u^2 = square; e may be infinite."""
    if square > 0.0:
        tri += e * math.sqrt(square / (1.0 + square))
    return e2 + e * e, tri


@njit(cache=True, error_model="numpy", fastmath=FAST)
def play(
    x: Float,
    reward: Float,
    error: Float,
    allowed: Array,
    extra: Extra | None,
    kind: int,
    params: Float1,
    ridge: float,
    precision: Float,
    inverse: Float,
    b: Float2,
    theta: Float2,
    sums: Float2,
    action: Array,
    root_gamma: Float2,
) -> None:
    """Play horizons in place: x (run, time, action, d), reward (run, time, action).

    error and allowed are (run, time, action), of length 1 along run or time if shared, or of
    size 0 for "no error" and "all allowed". A round that cannot be scored (-1, -2), or whose
    reward is NaN, teaches nothing. ``sums`` = (rounds, logdet, sum_e2, sum_tri, drift). A radius
    that is GIVEN is read from root_gamma, any other written there. ``extra`` is what only some
    rules need; None for a constant, paper or corrected radius alone. A rule with a
    budget counts a round without an error as one of infinite error: its cap stands for them all.
    """
    runs, horizon, arms, d = x.shape
    reach, counts, wide = np.empty((arms, d)), np.ones(horizon), d > SMALL
    if extra is None:  # this branch is left out when the other is compiled, and the reverse
        y, has_error = x, error.shape[2] > 0
        again = wide and arms >= MANY
    else:
        y = extra.taught if extra.taught.shape[3] > 0 else x
        sampled, told = kind == SAMPLED, error.shape[2] > 0
        has_error = told or params[CAP] < math.inf
        again = wide
        drawn = np.empty(d)
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
