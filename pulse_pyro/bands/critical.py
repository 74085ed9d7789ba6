"""Critical values of a supremum: the one engine every band shares.

Given the data, the multiplier bootstrap of sup_x |m*(x)| / se(x) with Gaussian weights is the law
of max |N(0, R)|, R the correlation of the estimate over the grid; so it is drawn from R, or, for
any weights, row by row or unit by unit with :func:`multiplier_sup`.
"""

from __future__ import annotations

import numpy as np
from scipy import linalg, optimize, stats

from pulse_pyro._core.arrays import Float, Float1, Float2

LEFT = 1e-6  # variance, of 1, that the factor of a correlation may leave out
VALUES = 4_000_000  # of the process held at a time
FURTHEST = 35.0  # normal critical value whose tail can still be told from 0
MOST = 2000  # points of the process that are drawn
NEAR = 0.99  # correlation with a neighbour that then stands for it


def correlation(cov: Float2) -> Float2:
    """Scale a covariance (m, m) to a correlation; a point without variance gets none."""
    sd = np.sqrt(np.maximum(np.diag(cov), 0.0))
    safe = np.where(sd > 0, sd, 1.0)
    out: Float2 = cov / safe[:, None] / safe
    return out


def sup_draws(cov: Float2, draws: int, rng: np.random.Generator) -> Float1:
    """Draw max_g |N(0, R)_g| of the process with covariance (m, m): (draws,).

    Of more than 2,000 points every k-th is drawn where it correlates by .99 with those it stands
    for, as on the fine grid of a curve. Else all are drawn as if they were independent: whatever
    R is, that supremum is the larger one (Sidak's inequality), and the same if they are.
    """
    step = -(-len(cov) // MOST)
    if step > 1 and not _near(cov, step):
        live = int((np.diag(cov) > 0).sum())
        tail = -np.expm1(np.log(rng.random(draws)) / live) / 2.0
        out: Float1 = stats.norm.isf(tail)
        return out
    r = correlation(cov[::step, ::step])
    # neighbours are nearly the same: few pivots carry all but a millionth of every variance;
    # rounded, so that ties between pivots do not hang on the unit y is measured in
    packed, pivot, rank, _ = linalg.lapack.dpstrf(r.round(10), lower=1, tol=LEFT)
    factor = np.empty((len(r), rank))
    factor[pivot - 1] = np.tril(packed)[:, :rank]
    return factor_draws(factor, draws, rng)


def _near(cov: Float2, step: int) -> bool:
    """Tell whether every point with variance correlates by .99 with the one it is thinned to."""
    var, at = np.diag(cov), np.arange(len(cov))
    kept = at // step * step
    bound = NEAR * np.sqrt(np.maximum(var, 0.0) * np.maximum(var[kept], 0.0))
    return bool(((cov[at, kept] >= bound) & (var[kept] > 0) | (var <= 0)).all())


def factor_draws(factor: Float2, draws: int, rng: np.random.Generator) -> Float1:
    """Draw max |F z| / sd for a process of low rank with covariance F F', F (m, r): (draws,)."""
    sd = np.sqrt((factor**2).sum(1))
    unit = factor[sd > 0] / sd[sd > 0, None]
    out = np.zeros(draws)
    if not len(unit):
        return out  # nothing varies
    block = max(VALUES // max(len(unit), 1), 1)
    for start in range(0, draws, block):
        some = out[start : start + block]
        some[:] = np.abs(unit @ rng.standard_normal((factor.shape[1], len(some)))).max(0)
    return out


def multiplier_sup(psi: Float2, draws: int, rng: np.random.Generator) -> Float1:
    """Draw sup |sum_i g_i psi_i| / se with explicit Gaussian weights on rows or units.

    psi : (rows or units, m) contributions to the estimate at m points. Returns (draws,). Only one
    batch of weights is held at a time.
    """
    se = np.sqrt((psi**2).sum(0))
    out = [
        np.abs(rng.standard_normal((min(256, draws - k), len(psi))) @ psi / se).max(1)
        for k in range(0, draws, 256)
    ]
    return np.concatenate(out)


def tube(r: Float2, level: float) -> float:
    """Return c with level = P(sup |Z| <= c) by the volume of the tube around the path.

    alpha = kappa / pi exp(-c^2 / 2) + 2 (1 - Phi(c)); kappa = sum of angles between neighbours of
    the correlation r (m, m) of a one-dimensional process on a fine grid.
    """
    length = path_length(r)

    def excess(c: float) -> float:
        return tube_tail(c, length) - (1.0 - level)

    return float(optimize.brentq(excess, 0.0, 40.0)) if excess(0.0) > 0 else 0.0


def path_length(r: Float2) -> float:
    """Return kappa, the length of the path of unit vectors whose correlation is r."""
    near = np.clip(np.diagonal(r, 1), -1.0, 1.0)
    return float(np.arccos(near).sum())


def tube_tail(c: float, length: float) -> float:
    """Return the tube formula's P(sup |Z| > c), at most 1."""
    tail = length / np.pi * np.exp(-c * c / 2.0) + 2.0 * stats.norm.sf(c)
    return float(min(tail, 1.0))


def quantile(sups: Float1, level: float) -> float:
    """Return the level-quantile of drawn suprema, two standard errors of the drawing upwards."""
    error = np.sqrt(level * (1.0 - level) / len(sups))
    return float(np.quantile(sups, min(level + 2.0 * error, 1.0), method="higher"))


def student(c: Float | float, nu: Float | float) -> Float:
    """Map a normal critical value to the t quantile with the same tail and ``nu`` freedom."""
    c, nu = np.asarray(c, dtype=np.float64), np.asarray(nu, dtype=np.float64)
    near = np.minimum(c, FURTHEST)
    mapped = np.maximum(stats.t.isf(stats.norm.sf(near), np.clip(nu, 2.0, 1e6)), near)
    return np.where(c > FURTHEST, mapped * c / FURTHEST, mapped)
