"""The emission of a state space law: W regressed on lags that are known only in part.

At row t the filter gives the expected window x_t and leaves the covariance V_t of b'window open,
so w_t = (1, x_t) b + u_t with u_t ~ N(0, S + V_t): least squares weighted by (S + V_t)^-1, with S,
the noise of W, put at its maximum likelihood.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy import stats

from pulse_pyro.arrays import Float, Float2, Float3, Int
from pulse_pyro.laws.linear_exact import Conjugate

ROUNDS = 4  # of regression, open variance and noise in turn
TURNS = 60  # of the noise alone
PRIOR = Conjugate()


def draw_emission(
    x: Float2, w: Float2, unit: Int, open_at: Callable[[Float2], Float3], draws: int,
    rng: np.random.Generator,
) -> dict[str, Float]:  # fmt: skip
    """Return draws of coef, variance and link, as ``exact_draws``, for rows x (n, p), w (n, q).

    unit : (n,) whose rows depend on each other: one unseen value enters many windows. open_at :
    slopes (p, q) -> V (n, q, q). Draws of the coefficients have the covariance of the estimating
    equations summed by unit (where units are few, their average factor over independence); those
    of the noise are inverse-Wishart with as many degrees of freedom as rows tell of it. Where
    nearly everything is unseen, noise and open variance cannot be told apart.
    """
    n, q = w.shape
    z = np.concatenate([np.ones((n, 1)), x], axis=1)
    sigma, left = w.T @ w / n + 1e-9 * np.eye(q), np.zeros((n, q, q))
    for _ in range(ROUNDS):
        mean, _ = _regress(z, w, sigma + left, sigma)
        left = open_at(mean[1:])
        sigma = _noise(w - z @ mean, left, sigma)
    mean, precision = _regress(z, w, sigma + left, sigma)
    root = _root(z, w - z @ mean, np.linalg.inv(sigma + left), unit, precision)
    free = root @ rng.standard_normal((mean.size, draws))
    coef = mean + (free - free.mean(1, keepdims=True)).T.reshape(draws, q, -1).swapaxes(1, 2)
    own = np.diagonal(sigma)
    told = (own / (own + np.diagonal(left, axis1=1, axis2=2))) ** 2
    df = max(float(told.sum(0).min()), 1.0)
    noise = stats.invwishart.rvs(df + q + 1, sigma * df, size=draws, random_state=rng)
    return _triangular(coef, np.asarray(noise).reshape(draws, q, q))


def _regress(z: Float2, w: Float2, cov: Float3, sigma: Float2) -> tuple[Float2, Float2]:
    """Return generalised least squares (1 + p, q) and its precision, columns stacked."""
    weight = np.linalg.inv(cov)
    p1, q = z.shape[1], w.shape[1]
    precision = np.empty((q, p1, q, p1))
    for i in range(q):
        for j in range(i + 1):
            precision[i, :, j] = (z * weight[:, i, j, None]).T @ z
            precision[j, :, i] = precision[i, :, j]
    right = np.einsum("na,nij,nj->ia", z, weight, w)
    flat = precision.reshape(q * p1, q * p1)
    prior = np.full(p1, PRIOR.slope_sd(p1 - 1) ** -2)
    prior[0] = PRIOR.intercept**-2
    flat = flat + np.kron(np.linalg.inv(sigma), np.diag(prior))
    return np.linalg.solve(flat, right.ravel()).reshape(q, p1).T, flat


def _root(z: Float2, miss: Float2, weight: Float3, unit: Int, precision: Float2) -> Float2:
    """Return a root of the coefficients' covariance, rows of a unit dependent."""
    score = np.einsum("nij,nj,na->nia", weight, miss, z).reshape(len(z), -1)
    _, code = np.unique(unit, return_inverse=True)
    total = np.zeros((code.max() + 1, score.shape[1]))
    np.add.at(total, code, score)
    inverse = np.linalg.inv(precision)
    cov = inverse @ (total.T @ total) @ inverse
    if len(total) < 2 * len(cov):  # too few units for a matrix of their own: one factor for all
        cov = inverse * max(float(np.trace(precision @ cov)) / len(cov), 1.0)
    value, vector = np.linalg.eigh((cov + cov.T) / 2.0)
    out: Float2 = vector * np.sqrt(np.maximum(value, 0.0))
    return out


def _noise(miss: Float2, left: Float3, sigma: Float2) -> Float2:
    """Return S that maximises the likelihood of miss ~ N(0, S + left), by accelerated EM."""
    floor = 1e-10 * np.diag((miss**2).mean(0)) + 1e-12 * np.eye(miss.shape[1])

    def step(s: Float2) -> Float2:
        gain = s @ np.linalg.inv(s + left)
        guess = np.einsum("nij,nj->ni", gain, miss)
        spare = s - gain @ s
        out: Float2 = guess.T @ guess / len(miss) + spare.mean(0) + floor
        return out

    for _ in range(TURNS):
        one = step(sigma)
        two = step(one)
        first, second = one - sigma, two - one - (one - sigma)
        size = np.sqrt((first**2).sum() / max((second**2).sum(), 1e-300))
        # squared extrapolation: EM alone creeps where most rows are open
        leap = sigma + 2.0 * size * first + size**2 * second
        leap = (leap + leap.T) / 2.0
        safe = np.linalg.eigvalsh(leap).min() > floor.min()
        before, sigma = sigma, step(leap) if safe else two
        if np.abs(sigma - before).max() < 1e-8 * np.abs(before).max():
            break
    return sigma


def _triangular(coef: Float3, noise: Float3) -> dict[str, Float]:
    """Turn reduced-form coefficients and covariances into coef, variance and link."""
    q = noise.shape[1]
    root = np.linalg.cholesky(noise)
    scale = np.diagonal(root, axis1=1, axis2=2)
    mix = np.linalg.inv(root / scale[:, None, :])  # T w = T (1, x) b + sqrt(variance) noise
    out = {"coef": coef @ np.swapaxes(mix, 1, 2), "variance": scale**2}
    if q > 1:
        row, column = np.tril_indices(q, -1)
        out["link"] = -mix[:, row, column]
    return out
