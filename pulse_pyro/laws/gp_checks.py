"""Is the basis of a Gaussian process law large enough: by its length scale, and by what is left."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from scipy import stats

from pulse_pyro.arrays import Float, Float2
from pulse_pyro.laws.data import FitData
from pulse_pyro.laws.hilbert import Hilbert
from pulse_pyro.laws.linear_exact import reduced_form

ROWS = 20_000  # residuals looked at
FINER = 120  # frequencies an input beyond the basis
MATTERS = 0.01  # share of the noise variance below which a process is taken as absent


def basis_quality(
    basis: Hilbert, gram: Float2, data: FitData, draws: Mapping[str, Float],
    rng: np.random.Generator,
) -> dict[str, float]:  # fmt: skip
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
