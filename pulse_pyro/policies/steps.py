"""The compiled steps of a round: score the arms, choose, draw, learn."""

import math

import numpy as np
from numba import njit

from pulse_pyro.arrays import Array, Float, Float1, Float2
from pulse_pyro.policies.refine import FAST

SMALL = 12  # dimensions up to which rows one by one are faster
MANY = 8  # arms from which one matrix product is faster


@njit(error_model="numpy", fastmath=FAST, inline="always")
def dot(theta: Float1, x: Float, r: int, t: int, a: int) -> float:
    """Return theta' x of an arm."""
    total = 0.0
    for i in range(theta.shape[0]):
        total += theta[i] * x[r, t, a, i]
    return total


@njit(error_model="numpy", inline="always")
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
    inverse: Float2, theta: Float1, x: Float, r: int, t: int, allowed: Array, root: float,
    reach: Float2,
) -> int:  # fmt: skip
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
                inverse[j, i] * x0 + inverse[j + 1, i] * x1 + inverse[j + 2, i] * x2
                + inverse[j + 3, i] * x3
            )  # fmt: skip
    for j in range(block, d):
        for i in range(d):
            out[a, i] += inverse[j, i] * x[r, t, a, j]


@njit(error_model="numpy", fastmath=FAST, inline="always")
def absorb(
    inverse: Float2, theta: Float1, x: Float, r: int, t: int, a: int, reward: float, reach: Float2,
    weight: float,
) -> tuple[float, float]:  # fmt: skip
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


@njit(cache=True, error_model="numpy")
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
