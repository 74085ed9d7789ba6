"""Bands by penalised splines, undersmoothed and twiced, on bins.

Uniform cubic B-splines with a difference penalty of order 2 (smooth truths) or 1 (the Lipschitz
band: kinks allowed). Twicing fits the residuals once more, so the bias is of second order; the
smooth band also divides the REML penalty by 4.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np
from scipy import linalg
from scipy.interpolate import BSpline

from pulse_pyro._core.arrays import Float1, Float2
from pulse_pyro.bands.band import BandFit, BandMethod, Sample
from pulse_pyro.bands.bins import (
    Bins,
    Weights,
    local_spread,
    most_on_levels,
    neighbour_differences,
    own_levels,
)
from pulse_pyro.bands.curve import curve

DEGREE = 3
FEWEST, MOST = 20, 150  # coefficients
LEAST_EDF = 6.0
CROWDED = {1: 0.85, 2: 0.75}  # by order, share of coefficients in use from which to double them
UNDERSMOOTH = 4.0
LARGEST = 1e8  # times the REML penalty, where raising it ends
WEIGHTS = (0.05, 20.0)  # of rows where the noise is large or small


def spline(sample: Sample, method: BandMethod, level: float, rng: np.random.Generator) -> BandFit:
    """Make the band of a smooth spline for a one-dimensional summary."""
    return curve(sample, spline_weights, method, level, rng)


def lipschitz(
    sample: Sample, method: BandMethod, level: float, rng: np.random.Generator
) -> BandFit:
    """Make the band of a spline that may have kinks: wider than the smooth one."""
    return curve(sample, lipschitz_weights, method, level, rng)


def spline_weights(bins: Bins, grid: Float1) -> list[Weights]:
    """Return the weights of each coordinate: second differences, REML / 4, twiced."""
    return _weights(bins, grid, 2)


def lipschitz_weights(bins: Bins, grid: Float1) -> list[Weights]:
    """Return the weights of each coordinate: first differences, REML, twiced."""
    return _weights(bins, grid, 1)


def reml_smoothers(bins: Bins) -> list[Float2]:
    """Return the REML smoother of each coordinate, (B, B), neither undersmoothed nor twiced."""
    return [base.design @ base.inner(base.reml) @ base.weighted for base in _bases(bins, 2)]


class _Base:
    """Basis and penalty for one coordinate, rows weighted by ``weight`` (B,)."""

    def __init__(self, bins: Bins, j: int, order: int, weight: Float1, size: int) -> None:
        self.order, self.n = order, len(bins.x)
        self.knots = knots_for(bins, size)
        self.design: Float2 = BSpline.design_matrix(bins.at, self.knots, DEGREE).toarray()
        self.weighted: Float2 = self.design.T * weight
        self.gram: Float2 = (self.weighted * bins.count) @ self.design
        self.penalty = difference_penalty(len(self.gram), order)
        y = bins.y[:, j] - bins.y[:, j].mean()
        self.moment: Float1 = self.weighted @ bins.sums(y[:, None])[:, 0]
        self.total = float(bins.sums(y[:, None] ** 2)[:, 0] @ weight)

    @cached_property
    def reml(self) -> float:
        """The REML penalty."""
        return reml(self.gram, self.penalty, self.moment, self.total, self.n, self.order)

    @property
    def crowded(self) -> bool:
        """Whether the REML fit uses most of its coefficients: then it wants more."""
        used = float(np.trace(self.inner(self.reml) @ self.gram)) / len(self.gram)
        return used > CROWDED[self.order]

    def inner(self, lam: float) -> Float2:
        """Return (G + lam P)^-1."""
        return inverse(self.gram + lam * self.penalty)

    def twiced(self, lam: float) -> Float2:
        """Return (G + lam P)^-1 with the residuals fitted once more."""
        inner = self.inner(lam)
        return 2.0 * inner - inner @ self.gram @ inner


def _bases(bins: Bins, order: int) -> Iterator[_Base]:
    """Yield one base a coordinate, rows weighted by the inverse variance around them.

    Where the noise is small the curve is followed more closely: one penalty for all x would
    oversmooth there.
    """
    for j, y in enumerate(bins.y.T):
        spread = local_spread(bins, neighbour_differences(bins, y))
        weight = np.clip((np.median(spread) / spread) ** 2, *WEIGHTS)
        size = spline_coefficients(bins)
        base = _Base(bins, j, order, weight, size)
        while base.crowded and 2 * size <= min(2 * MOST, len(bins.at)):
            size *= 2
            base = _Base(bins, j, order, weight, size)
        yield base


def _weights(bins: Bins, grid: Float1, order: int) -> list[Weights]:
    out = []
    levels, most = own_levels(bins), most_on_levels(bins)
    for base in _bases(bins, order):
        lam = base.reml
        if order == 2:
            lam = _at_least(base.gram, base.penalty, lam / UNDERSMOOTH)
        twiced = base.twiced(lam)
        # where x hardly varies within units, rows would let the curve run through their levels
        on_levels = base.weighted @ levels @ base.design
        while float((twiced * on_levels.T).sum()) > most and lam < LARGEST * base.reml:
            lam *= 2.0
            twiced = base.twiced(lam)
        edf = float(np.trace(twiced @ base.gram))
        kind = "penalised spline, undersmoothed" if order == 2 else "Lipschitz spline"
        made = f"{kind} and twiced, {edf:.1f} degrees of freedom"
        right = twiced @ base.weighted
        on_grid = BSpline.design_matrix(grid, base.knots, DEGREE).toarray()
        out.append(Weights(on_grid @ right, base.design @ right, made, order + 1.0))
    return out


def spline_coefficients(bins: Bins) -> int:
    """Return how many coefficients to begin with: ceil(6 n^(1/4)), 20 to 150."""
    return int(np.clip(np.ceil(6.0 * len(bins.x) ** 0.25), FEWEST, MOST))


def knots_for(bins: Bins, wanted: int) -> Float1:
    """Return uniform knots over the rows' range for so many coefficients."""
    low = min(float(bins.at[0]), bins.domain[0])
    return uniform_knots(low, max(float(bins.at[-1]), bins.domain[1]), wanted)


def uniform_knots(low: float, high: float, wanted: int) -> Float1:
    """Return uniform knots over [low, high] for so many cubic coefficients."""
    knots = low + (high - low) / (wanted - DEGREE) * np.arange(-DEGREE, wanted + 1.0)
    knots[DEGREE], knots[-DEGREE - 1] = low, high  # rounding must not push an end outside
    return knots


def inverse(matrix: Float2) -> Float2:
    """Invert a positive definite matrix."""
    out: Float2 = linalg.cho_solve(linalg.cho_factor(matrix), np.eye(len(matrix)))
    return out


def difference_penalty(size: int, order: int) -> Float2:
    """Return D'D for differences of the coefficients of the given order."""
    d = np.diff(np.eye(size), order, axis=0)
    out: Float2 = d.T @ d
    return out


def reml(gram: Float2, penalty: Float2, moment: Float1, total: float, n: int, null: int) -> float:
    """Return the penalty's weight by restricted maximum likelihood.

    gram = B'B, moment = B'y, total = y'y; the penalty leaves ``null`` directions free:
    minimise (n - null) log s2 + log |G + lam P| - (K - null) log lam.
    """
    size = np.trace(gram) / np.trace(penalty)
    candidates = size * np.geomspace(1e-7, 1e6, 66)
    scores = []
    for lam in candidates:
        factor = linalg.cholesky(gram + lam * penalty, lower=True)
        half = linalg.solve_triangular(factor, moment, lower=True)
        rss = max(total - float(half @ half), 1e-14 * max(total, 1e-300))
        logdet = 2.0 * float(np.log(factor.diagonal()).sum())
        scores.append((n - null) * np.log(rss) + logdet - (len(gram) - null) * np.log(lam))
    return float(candidates[int(np.argmin(scores))])


def _at_least(gram: Float2, penalty: Float2, lam: float) -> float:
    """Lower the penalty until the plain fit has at least 6 degrees of freedom."""
    while np.trace(linalg.solve(gram + lam * penalty, gram, assume_a="pos")) < LEAST_EDF:
        lam /= 2.0
        if lam < 1e-12:
            break
    return lam
