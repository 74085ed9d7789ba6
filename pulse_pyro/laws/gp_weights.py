"""The weights of a Gaussian process law given its few parameters, and the parameters' own weight.

Given amplitude, length scales and noise, column j of w is a conjugate regression, so its weights
are drawn exactly; and its marginal likelihood comes out of the same factorisation, which corrects
draws of the parameters from an approximation towards their true posterior.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular

from pulse_pyro.arrays import Float, Float1, Float2, Float3, Int
from pulse_pyro.errors import ConvergenceError
from pulse_pyro.laws.gp_model import AMPLITUDE, FIXED, FLOOR, LENGTH, VARIANCE, prior_sd
from pulse_pyro.laws.hilbert import JOINT, Hilbert
from pulse_pyro.laws.linear_exact import LOG_2PI

LARGE, DISTINCT = 128, 200  # beyond so many columns, so many parameter draws are factorised
HEAVY = 5.0  # degrees of freedom of the proposal
RELIABLE, GOOD = 0.62, 0.4  # Pareto shapes: up to which weights are used, and are good enough
ROUNDS = 4  # of adapting the proposal
NAMES = ("amplitude", "length", "variance")


class Solved(NamedTuple):
    """One column at one setting of the parameters: prior sds, factor of A, mean, log marginal."""

    sd: Float1
    factor: Float2
    mean: Float1
    fit: float


def solve(
    basis: Hilbert, gram: Float2, w_dim: int, j: int, amplitude: Float1, length: Float1, v: float
) -> Solved:
    """Factorise A = v I + D G D of column j; the mean of the weights is D A^-1 D Z'y."""
    m = len(gram) - w_dim + j
    noise = v + FLOOR
    sd = np.concatenate([prior_sd(basis, amplitude, length, np), np.full(j, FIXED)])
    factor = np.linalg.cholesky(sd[:, None] * gram[:m, :m] * sd + noise * np.eye(m))
    right = solve_triangular(factor, sd * gram[:m, m], lower=True)
    mean = sd * solve_triangular(factor, right, lower=True, trans=1)
    n = gram[0, 0]
    log_det = (n - m) * np.log(noise) + 2.0 * np.log(np.diag(factor)).sum()
    quadratic = (gram[m, m] - right @ right) / noise
    return Solved(sd, factor, mean, float(-0.5 * (n * LOG_2PI + log_det + quadratic)))


def starts(basis: Hilbert, gram: Float2, w_dim: int) -> dict[str, Float]:
    """Return the best of a grid of parameters: a search from one point takes waves for noise.

    One length scale for all inputs, then, in a joint process, longer ones input by input.
    """
    out = {
        "amplitude": np.empty((w_dim, basis.processes)),
        "length": np.empty((w_dim, basis.p)),
        "variance": np.empty(w_dim),
    }
    shortest = float((1.75 * basis.half / basis.size).max())  # what the basis can follow
    for j in range(w_dim):
        best = -np.inf
        for length in shortest * np.array([1.0, 1.7, 3.0, 5.0, 9.0, 15.0]):
            for v in (0.01, 0.1, 0.5, 1.0):
                one, many = np.ones(basis.processes), np.full(basis.p, length)
                fit = solve(basis, gram, w_dim, j, one, many, v).fit + _length_prior(many)
                if fit > best:
                    best = fit
                    out["amplitude"][j], out["length"][j], out["variance"][j] = one, many, v
        for d in range(basis.p if 1 < basis.p <= JOINT else 0):
            for factor in (2.0, 2.0, 2.0):
                longer = out["length"][j].copy()
                longer[d] *= factor
                v = float(out["variance"][j])
                fit = solve(basis, gram, w_dim, j, out["amplitude"][j], longer, v).fit
                fit += _length_prior(longer)
                if fit <= best:
                    break
                best, out["length"][j] = fit, longer
    return out


def _length_prior(length: Float1) -> float:
    return float(-0.5 * (((np.log(length) - LENGTH[0]) / LENGTH[1]) ** 2).sum())


def draw_weights(
    basis: Hilbert, gram: Float2, draws: Mapping[str, Float], rng: np.random.Generator
) -> dict[str, Float3]:
    """Add coef (draws, 1 + p + M, w_dim) and link to draws of the parameters.

    Where the basis is large, 200 of the parameter draws, spread over all of them, take turns. The
    average weights are shifted to the average of the conditional means, which has less Monte
    Carlo error.
    """
    count, w_dim = draws["variance"].shape
    distinct = min(count, DISTINCT if len(gram) > LARGE else count)
    kept = np.linspace(0, count - 1, distinct).round().astype(np.int64)
    use = np.arange(count) % distinct
    columns = []
    for j in range(w_dim):
        try:
            solved = [
                solve(basis, gram, w_dim, j, *(draws[name][i, j] for name in NAMES)) for i in kept
            ]
        except np.linalg.LinAlgError as cause:
            raise ConvergenceError(
                "gaussian_process: at some draws of its amplitude and length scales the weights "
                "cannot be solved for, so these are hardly told by the rows; use fewer inputs, "
                "linear_lags for inputs of two values, or Nuts()."
            ) from cause
        columns.append(_column(solved, use, draws["variance"][kept, j], rng))
    own = {name: np.asarray(value)[kept][use] for name, value in draws.items()}
    return _joined(columns, len(gram) - w_dim) | own


def draw_corrected(
    basis: Hilbert, gram: Float2, draws: Mapping[str, Float], rng: np.random.Generator, own: float
) -> tuple[dict[str, Float3], float]:
    """Replace Gaussian draws of the log parameters by draws from their posterior, with weights.

    Each column of w has a posterior of its own. Proposals are Student-t with the draws' mean and
    covariance, resampled by their importance, and adapted to what was resampled while that helps.
    Returns the worst Pareto shape too; where it is too large to rely on, the given draws are kept,
    with their own shape ``own``.
    """
    count, w_dim = draws["variance"].shape
    distinct = min(count, DISTINCT if len(gram) > LARGE else count)
    columns, found, worst = [], {name: np.array(value) for name, value in draws.items()}, -np.inf
    for j in range(w_dim):
        flat = np.log(np.concatenate([draws[n][:, j].reshape(count, -1) for n in NAMES], axis=1))
        best = _propose(basis, gram, w_dim, j, flat, distinct, rng)
        for _ in range(ROUNDS):
            if best.shape <= GOOD or not len(best.log):
                break
            use = _resample(best.ratio, count, rng)
            again = _propose(basis, gram, w_dim, j, best.log[use], distinct, rng)
            best = min(best, again, key=lambda one: one.shape)
        worst = max(worst, best.shape)
        if not best.shape <= RELIABLE:
            return draw_weights(basis, gram, draws, rng), own
        use = _resample(best.ratio, count, rng)
        parts = np.split(np.exp(best.log), [basis.processes, basis.processes + basis.p], axis=1)
        for name, part in zip(NAMES, parts, strict=True):
            found[name][:, j] = part[use].reshape(found[name][:, j].shape)
        columns.append(_column(best.solved, use, parts[2][:, 0], rng))
    return _joined(columns, len(gram) - w_dim) | found, worst


class Proposed(NamedTuple):
    """Proposals of the log parameters, solved, with log importance and its Pareto shape."""

    log: Float2
    solved: list[Solved]
    ratio: Float1
    shape: float


def _propose(
    basis: Hilbert, gram: Float2, w_dim: int, j: int, like: Float2, size: int,
    rng: np.random.Generator,
) -> Proposed:  # fmt: skip
    """Propose parameters of column j like the given ones (n, dim) and weigh them.

    Proposals so far out that their matrix has no factor in double precision are left out: their
    posterior weight is nothing beside the others'.
    """
    from pulse_pyro._pyro.engines import pareto_shape

    log, log_q = _proposals(like, size, rng)
    cut = [basis.processes, basis.processes + basis.p]
    parts = np.split(np.exp(log), cut, axis=1)
    tried = [
        _tried(basis, gram, w_dim, j, a, b, float(c[0])) for a, b, c in zip(*parts, strict=True)
    ]
    kept = [i for i, one in enumerate(tried) if one is not None]
    solved = [one for one in tried if one is not None]
    log, log_q = log[kept], log_q[kept]
    ratio = np.array([one.fit for one in solved]) + _log_prior(log, cut) - log_q
    enough = len(kept) > size // 2
    return Proposed(log, solved, ratio, pareto_shape(ratio) if enough else np.inf)


def _tried(
    basis: Hilbert, gram: Float2, w_dim: int, j: int, amplitude: Float1, length: Float1, v: float
) -> Solved | None:
    try:
        return solve(basis, gram, w_dim, j, amplitude, length, v)
    except np.linalg.LinAlgError:
        return None


def _proposals(flat: Float2, size: int, rng: np.random.Generator) -> tuple[Float2, Float1]:
    """Draw from a Student-t with the mean and covariance of rows; return draws and log density."""
    centre, dim = flat.mean(0), flat.shape[1]
    spread = np.cov(flat.T).reshape(dim, dim)
    root = np.linalg.cholesky(spread + (1e-12 + 1e-10 * np.trace(spread)) * np.eye(dim))
    z = rng.standard_normal((size, dim))
    z /= np.sqrt(rng.chisquare(HEAVY, size) / HEAVY)[:, None]
    log_q = -0.5 * (HEAVY + dim) * np.log1p((z**2).sum(1) / HEAVY)
    # kept where exp() and its square stay finite
    return np.clip(centre + z @ root.T, -60.0, 60.0), log_q


def _log_prior(log: Float2, cut: list[int]) -> Float1:
    total = np.zeros(len(log))
    priors = (AMPLITUDE, LENGTH, VARIANCE)
    for part, (mean, sd) in zip(np.split(log, cut, axis=1), priors, strict=True):
        total -= 0.5 * (((part - mean) / sd) ** 2).sum(1)
    return total


def _resample(log_ratio: Float1, count: int, rng: np.random.Generator) -> Int:
    """Pick ``count`` rows in proportion to their importance, systematically, in random order."""
    weight = np.exp(log_ratio - log_ratio.max())
    edges = np.cumsum(weight / weight.sum())
    at = np.searchsorted(edges, (np.arange(count) + rng.random()) / count)
    return rng.permutation(np.minimum(at, len(weight) - 1))


def _column(solved: list[Solved], use: Int, variance: Float1, rng: np.random.Generator) -> Float2:
    """Draw the weights of one column, (draws, m), draw i at solved[use[i]]."""
    m = len(solved[0].sd)
    out, centre = np.empty((len(use), m)), np.zeros(m)
    for i in np.unique(use):
        one, own = solved[i], np.flatnonzero(use == i)
        noise = rng.standard_normal((m, len(own)))
        spread = np.sqrt(variance[i] + FLOOR) * solve_triangular(
            one.factor, noise, lower=True, trans=1
        )
        out[own] = one.mean + (one.sd[:, None] * spread).T
        centre += len(own) / len(use) * one.mean
    shifted: Float2 = out + (centre - out.mean(0))
    return shifted


def _joined(columns: list[Float2], base: int) -> dict[str, Float3]:
    out = {"coef": np.stack([column[:, :base] for column in columns], axis=2)}
    if len(columns) > 1:
        out["link"] = np.concatenate([column[:, base:] for column in columns], axis=1)
    return out
