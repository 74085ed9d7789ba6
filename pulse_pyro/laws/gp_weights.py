"""Posterior of a Gaussian process law: its parameters, its weights, the size of its basis."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np
from scipy import stats
from scipy.linalg import solve_triangular

from pulse_pyro._core.arrays import Float, Float1, Float2, Float3, Int
from pulse_pyro._core.errors import ConvergenceError, ModelError
from pulse_pyro.laws.conjugate import LOG_2PI, reduced_form
from pulse_pyro.laws.hilbert import JOINT, Hilbert
from pulse_pyro.laws.law import FitData
from pulse_pyro.laws.linear import observe_linear

# The Gaussian process law as a Pyro model, and its posterior with the weights integrated out.
#
# In standardised units, for coordinate j of w,
#
#     w_j = b_0 + b'x + f_j(x) + sum_{k<j} g_jk w_k + sqrt(v_j) noise,
#
# with f_j in the Hilbert-space basis and v_j the site "variance" plus a floor. Given amplitude,
# length scales and v_j this is a conjugate regression on the columns (1, x, phi, w_1, ...,
# w_{j-1}), so only those few parameters need an engine: the weights follow in closed form.


FIXED = 3.0  # prior sd of intercept, slopes and links
AMPLITUDE, LENGTH, VARIANCE = (-0.5, 1.0), (0.0, 0.7), (-2.0, 2.0)  # log-normal priors
FLOOR = 1e-6  # of the noise variance, in units of the variance of w: keeps matrices definite
LEAST = 1e-150  # of a prior sd: one that underflows is no distribution


def _parameters(basis: Hilbert, w_dim: int) -> tuple[Any, Any, Any]:
    """Sample amplitude (w_dim, processes), length (w_dim, p) and variance (w_dim,)."""
    import pyro
    import pyro.distributions as dist

    def positive(name: str, prior: tuple[float, float], *shape: int) -> Any:
        law = dist.LogNormal(*prior).expand(list(shape)).to_event(len(shape))
        return pyro.sample(name, law)

    return (
        positive("amplitude", AMPLITUDE, w_dim, basis.processes),
        positive("length", LENGTH, w_dim, basis.p),
        positive("variance", VARIANCE, w_dim),
    )


def prior_sd(basis: Hilbert, amplitude: Any, length: Any, ops: Any) -> Any:
    """Prior sd of the columns (1, x, phi): (..., 1 + p + M)."""
    weights = basis.spread(amplitude, length, ops) + LEAST
    shape = (*weights.shape[:-1], 1 + basis.p)
    return ops.concatenate([ops.full(shape, FIXED), weights], -1)


def gp_model(basis: Hilbert, w_dim: int) -> Callable[..., None]:
    """Return model(x, w=None) for x (n, p) and w (n, w_dim) in standardised units."""

    def model(x: Any, w: Any = None) -> None:
        import pyro
        import pyro.distributions as dist
        import torch

        amplitude, length, variance = _parameters(basis, w_dim)
        sd = prior_sd(basis, amplitude, length, torch)
        coef = pyro.sample("coef", dist.Normal(0.0, sd.transpose(-1, -2)).to_event(2))
        link = None
        if w_dim > 1:
            wide = torch.full((w_dim * (w_dim - 1) // 2,), FIXED)
            link = pyro.sample("link", dist.Normal(0.0, wide).to_event(1))
        z = torch.as_tensor(basis.design(x.numpy()))
        observe_linear(z, w, coef, link, variance + FLOOR)

    return model


def log_marginal(basis: Hilbert, gram: Float2, w_dim: int) -> Callable[[Any, Any, Any], Any]:
    """Return log p(w | amplitude, length, variance), weights integrated out, from the Gram matrix.

    For column j, -1/2 (n log 2 pi + (n - m) log v + log det A + (y'y - r' A^-1 r) / v) with
    A = v I + D G D, r = D Z'y, D the prior sds and G, Z'y, y'y blocks of the Gram matrix.
    """
    import torch

    full = torch.as_tensor(gram)
    n, base = float(gram[0, 0]), len(gram) - w_dim
    eyes = [torch.eye(base + j, dtype=full.dtype) for j in range(w_dim)]
    links = [torch.full((j,), FIXED, dtype=full.dtype) for j in range(w_dim)]

    def marginal(amplitude: Any, length: Any, variance: Any) -> Any:
        prior = prior_sd(basis, amplitude, length, torch)
        total = -0.5 * n * w_dim * math.log(2 * math.pi)
        for j in range(w_dim):
            m, v = base + j, variance[j] + FLOOR
            sd = torch.cat([prior[j], links[j]]) if j else prior[j]
            factor = torch.linalg.cholesky(sd[:, None] * full[:m, :m] * sd + v * eyes[j])
            right = torch.linalg.solve_triangular(factor, (sd * full[:m, m])[:, None], upper=False)
            quadratic = (full[m, m] - right.square().sum()) / v
            log_det = (n - m) * v.log() + 2.0 * factor.diagonal().log().sum()
            total = total - 0.5 * (log_det + quadratic)
        return total

    return marginal


def marginal_model(basis: Hilbert, gram: Float2, w_dim: int) -> Callable[[], None]:
    """Return the posterior of amplitude, length and variance as a Pyro model without rows."""
    marginal = log_marginal(basis, gram, w_dim)

    def model() -> None:
        import pyro

        pyro.factor("marginal", marginal(*_parameters(basis, w_dim)))

    return model


def marginal_energy(basis: Hilbert, gram: Float2, w_dim: int) -> Callable[[Mapping[str, Any]], Any]:
    """Return -log posterior of :func:`marginal_model` at the logs of its sites.

    What Pyro computes for that model, without tracing it: half the time of a gradient.
    """
    marginal = log_marginal(basis, gram, w_dim)
    priors = (("amplitude", AMPLITUDE), ("length", LENGTH), ("variance", VARIANCE))

    def energy(log: Mapping[str, Any]) -> Any:
        out = -marginal(*(log[name].exp() for name, _ in priors))
        for name, (mean, sd) in priors:
            constant = log[name].numel() * math.log(sd * math.sqrt(2 * math.pi))
            out = out + 0.5 * ((log[name] - mean) / sd).square().sum() + constant
        return out

    return energy


# The weights of a Gaussian process law given its few parameters, and the parameters' own weight.
#
# Given amplitude, length scales and noise, column j of w is a conjugate regression, so its weights
# are drawn exactly; and its marginal likelihood comes out of the same factorisation, which corrects
# draws of the parameters from an approximation towards their true posterior.


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
                amplitude, lengths = np.ones(basis.processes), np.full(basis.p, length)
                fit = solve(
                    basis, gram, w_dim, j, amplitude=amplitude, length=lengths, v=v
                ).fit + _length_prior(lengths)
                if fit > best:
                    best = fit
                    out["amplitude"][j], out["length"][j], out["variance"][j] = (
                        amplitude,
                        lengths,
                        v,
                    )
        for d in range(basis.p if 1 < basis.p <= JOINT else 0):
            for factor in (2.0, 2.0, 2.0):
                longer = out["length"][j].copy()
                longer[d] *= factor
                v = float(out["variance"][j])
                fit = solve(
                    basis, gram, w_dim, j, amplitude=out["amplitude"][j], length=longer, v=v
                ).fit
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
    parameters = {name: np.asarray(value)[kept][use] for name, value in draws.items()}
    return _joined(columns, len(gram) - w_dim) | parameters


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
    columns, parameters, worst = (
        [],
        {name: np.array(value) for name, value in draws.items()},
        -np.inf,
    )
    for j in range(w_dim):
        flat = np.log(np.concatenate([draws[n][:, j].reshape(count, -1) for n in NAMES], axis=1))
        best = _propose(basis, gram, w_dim, j, like=flat, size=distinct, rng=rng)
        for _ in range(ROUNDS):
            if best.shape <= GOOD or not len(best.log):
                break
            use = by_importance(best.ratio, count, rng)
            again = _propose(basis, gram, w_dim, j, like=best.log[use], size=distinct, rng=rng)
            best = min(best, again, key=lambda proposed: proposed.shape)
        worst = max(worst, best.shape)
        if not best.shape <= RELIABLE:
            return draw_weights(basis, gram, draws, rng), own
        use = by_importance(best.ratio, count, rng)
        parts = np.split(np.exp(best.log), [basis.processes, basis.processes + basis.p], axis=1)
        for name, part in zip(NAMES, parts, strict=True):
            parameters[name][:, j] = part[use].reshape(parameters[name][:, j].shape)
        columns.append(_column(best.solved, use, parts[2][:, 0], rng))
    return _joined(columns, len(gram) - w_dim) | parameters, worst


class Proposed(NamedTuple):
    """Proposals of the log parameters, solved, with log importance and its Pareto shape."""

    log: Float2
    solved: list[Solved]
    ratio: Float1
    shape: float


def _propose(
    basis: Hilbert,
    gram: Float2,
    w_dim: int,
    j: int,
    like: Float2,
    size: int,
    rng: np.random.Generator,
) -> Proposed:
    """Propose parameters of column j like the given ones (n, dim) and weigh them.

    Proposals so far out that their matrix has no factor in double precision are left out: their
    posterior weight is nothing beside the others'.
    """
    from pulse_pyro._pyro.engines import pareto_shape

    log, log_q = heavy_proposals(like, size, rng)
    cut = [basis.processes, basis.processes + basis.p]
    parts = np.split(np.exp(log), cut, axis=1)
    tried = [
        _tried(basis, gram, w_dim, j, amplitude=a, length=b, v=float(c[0]))
        for a, b, c in zip(*parts, strict=True)
    ]
    kept = [i for i, solution in enumerate(tried) if solution is not None]
    solved = [solution for solution in tried if solution is not None]
    log, log_q = log[kept], log_q[kept]
    ratio = np.array([solution.fit for solution in solved]) + _log_prior(log, cut) - log_q
    enough = len(kept) > size // 2
    return Proposed(log, solved, ratio, pareto_shape(ratio) if enough else np.inf)


def _tried(
    basis: Hilbert, gram: Float2, w_dim: int, j: int, amplitude: Float1, length: Float1, v: float
) -> Solved | None:
    try:
        return solve(basis, gram, w_dim, j, amplitude=amplitude, length=length, v=v)
    except np.linalg.LinAlgError:
        return None


def heavy_proposals(flat: Float2, size: int, rng: np.random.Generator) -> tuple[Float2, Float1]:
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


def by_importance(log_ratio: Float1, count: int, rng: np.random.Generator) -> Int:
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


# Is the basis of a Gaussian process law large enough: by its length scale, and by what is left.


ROWS = 20_000  # residuals looked at
FINER = 120  # frequencies an input beyond the basis
MATTERS = 0.01  # share of the noise variance below which a process is taken as absent


def basis_quality(
    basis: Hilbert,
    gram: Float2,
    data: FitData,
    draws: Mapping[str, Float],
    rng: np.random.Generator,
) -> dict[str, float]:
    """Return "basis" and "finer", both to be at most 1.

    basis : functions and box an input needs at its fitted length scale, over what it has; the worst
    over processes that explain at least 1 % of the noise variance. finer : how much of the
    residuals is explained by 120 finer sines of any input: Pearson's statistic over its 99.9 %
    point under independent residuals. A wave the basis cannot follow looks like noise to the
    first figure; the second sees it.
    """
    return {
        "basis": _needed(basis, gram, draws),
        "finer": _finer(basis, data, draws, rng),
    }


def _needed(basis: Hilbert, gram: Float2, draws: Mapping[str, Float]) -> float:
    coef, variance = draws["coef"].mean(0), np.median(draws["variance"], axis=0)
    length = np.median(draws["length"], axis=0)
    first, worst = 1 + basis.p, 0.0
    for j in range(len(variance)):
        for process in range(basis.processes):
            own = first + np.flatnonzero(basis.process == process)
            b = coef[own, j]
            explained = b @ gram[np.ix_(own, own)] @ b / gram[0, 0]
            if explained < MATTERS * variance[j]:
                continue
            inputs = np.arange(basis.p) if basis.joint else np.array([process])
            worst = max(worst, float(basis.strain(length[j])[inputs].max()))
    return worst


def _finer(
    basis: Hilbert, data: FitData, draws: Mapping[str, Float], rng: np.random.Generator
) -> float:
    some = np.sort(rng.permutation(data.n)[:ROWS])
    x = data.x[some]
    coef = reduced_form(draws)[0].mean(0)
    left = data.w[some] - coef[0] - basis.design(x) @ coef[1:]
    return finer_waves(basis, x, left)


def finer_waves(basis: Hilbert, x: Float2, left: Float2) -> float:
    """Return how much of what is left of w, (n, w_dim), 120 finer sines of an input x explain."""
    left = left - left.mean(0)
    scale = np.sqrt((left**2).mean(0))
    if not scale.min() > 1e-6:  # nothing is left to explain
        return 0.0
    worst = 0.0
    for d in range(basis.p):
        if np.ptp(x[:, d]) < 1e-9:
            continue
        own = (basis.high[d] - basis.low[d]) / 2.0  # steps that a wave on the data can tell apart
        step = np.pi / (2.0 * own) * np.arange(1, FINER + 1)
        rate = basis.size * np.pi / (2.0 * basis.half[d]) + step
        sine = np.sin((x[:, d, None] - basis.low[d]) * rate)
        sine -= sine.mean(0)
        # orthonormal, because sines on part of the box overlap; near copies are left out
        value, vector = np.linalg.eigh(sine.T @ sine)
        keep = value > 1e-8 * value[-1]
        z = (left / scale).T @ (sine @ (vector[:, keep] / np.sqrt(value[keep])))
        limit = stats.chi2.isf(1e-3 / (basis.p * len(scale)), int(keep.sum()))
        worst = max(worst, float(((z**2).sum(1) / limit).max()))
    return worst


PILOT = 3000  # rows that suggest a length scale
MOST = 3000  # columns of the basis: beyond this one factorisation takes seconds


def box_around(x: Float2, size: int | None) -> Hilbert:
    """Put a box around rows x (n, p), or refuse one with too many functions."""
    box = Hilbert.around(x, size)
    if box.columns > MOST:
        most = int(MOST ** (1 / box.p)) if box.p <= JOINT else MOST // box.p
        raise ModelError(
            f"gaussian_process: {box.size} functions for each of {box.p} inputs make "
            f"{box.columns} columns (limit {MOST}); ask for basis={most} or use fewer lags."
        )
    return box


def box_spec(box: Hilbert | None) -> dict[str, Any] | None:
    """Plain values that rebuild a box."""
    if box is None:
        return None
    return {k: list(v) if k != "size" else v for k, v in asdict(box).items()}


def box_from(spec: Mapping[str, Any] | None) -> Hilbert | None:
    """Rebuild a box from :func:`box_spec`."""
    if spec is None:
        return None
    low, high, reach = (tuple(spec[name]) for name in ("low", "high", "reach"))
    return Hilbert(low, high, spec["size"], reach)
