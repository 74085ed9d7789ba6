"""One-dimensional bands on a grid: variance, supremum, Student-t map, domain."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np

from pulse_pyro.arrays import Float1, Float2, Float4
from pulse_pyro.bands import bootstrap
from pulse_pyro.bands.band import Band, BandFit
from pulse_pyro.bands.bins import Bins
from pulse_pyro.bands.bootstrap_t import MOST_ROWS, SKEWED, skew_ratio, studentised_sup
from pulse_pyro.bands.dependence import LEVEL as DEPENDENT
from pulse_pyro.bands.dependence import choose_noise, dependence_p
from pulse_pyro.bands.grid import grid_shape
from pulse_pyro.bands.sample import BandMethod, Critical, Sample, consecutive
from pulse_pyro.bands.weights import Weights
from pulse_pyro.errors import DataError, SettingError

FEWEST_ROWS = 60
MOST_POINTS = 4000
WILD = 2.5  # a studentised critical value this many times the normal one is not believed


def grid_of(bins: Bins, method: BandMethod) -> Float1:
    """Return the grid of the domain, (G,)."""
    if len(bins.x) < FEWEST_ROWS:
        raise DataError(
            f"bands: {len(bins.x)} held-out rows lie in the central range, a curve needs at least "
            f'{FEWEST_ROWS}; hold out more units, or use band="linear".'
        )
    # the covariance over grid and coordinates must fit into memory
    points = min(method.grid, max(MOST_POINTS // bins.y.shape[1], 60))
    return np.linspace(*bins.domain, points)


def curve_band(
    sample: Sample, bins: Bins, weights: list[Weights], grid: Float1, method: BandMethod,
    level: float, rng: np.random.Generator,
) -> BandFit:  # fmt: skip
    """Turn the weights of each coordinate into a band, uniform over the grid and coordinates."""
    sums = bins.sums(bins.y)
    fitted = np.stack(
        [np.interp(bins.x, bins.at, w.hat @ sums[:, j]) for j, w in enumerate(weights)], axis=1
    )
    residual = bins.y - fitted
    scaled = residual / (1.0 - np.stack([w.leverage()[bins.index] for w in weights], axis=1))
    noise = choose_noise(residual, bins.unit, method.noise)
    nu = np.stack([w.freedom(bins, noise == "units") for w in weights])
    skew = skew_ratio(bins, scaled, nu)
    noise, how = _treatment(bins, residual, skew, noise, method)
    cov = _covariance(bins, [w.grid for w in weights], scaled, noise)
    _check_noise(cov, sample, grid)
    c = critical_values(bins, weights, scaled, cov, replace(method, critical=how), level, rng)
    if how == "bootstrap_t" and method.critical == "auto":
        plain = critical_values(
            bins, weights, scaled, cov, replace(method, critical="simulate"), level, rng
        )
        if (c > WILD * plain).any():  # isolated rows: redrawn noise there has no variance to divide
            c, how = plain, "simulate"
    spread = np.repeat(c[:, None], len(grid), axis=1)
    # a studentised bootstrap knows about small samples; Student's t would count them twice
    mapped = spread if how == "bootstrap_t" else bootstrap.student(spread, nu)
    centre = np.stack([w.grid @ sums[:, j] for j, w in enumerate(weights)])
    shape = grid_shape(sample.x_names[0], grid, centre, cov, mapped)
    how_made = f"critical value by {how.replace('_', ' ')}, {shape.modulus:.1%} for the grid"
    made = tuple(f"{w.made}, {how_made}" for w in weights)
    band = Band(
        method.kind, made, level, c, noise, sample.x_names,
        sample.y_names, len(bins.x), consecutive(bins.unit)[1], shape,
    )  # fmt: skip

    def smooth(columns: Float2, j: int) -> Float2:
        out: Float2 = (weights[j].hat @ bins.sums(columns))[bins.index]
        return out

    return BandFit(band, bins.kept, residual, smooth, skewness=skew)


def _treatment(
    bins: Bins, residual: Float2, skew: float, noise: Literal["rows", "units"], method: BandMethod
) -> tuple[Literal["rows", "units"], Critical]:
    """Return what noise is taken to be independent, and how the critical value is found.

    Skewed noise wants the studentised bootstrap, which redraws rows: so only where rows of a unit
    do not depend, or where rows were asked for.
    """
    if method.critical == "bootstrap_t":
        if method.noise == "units":
            raise SettingError('BandMethod: critical="bootstrap_t" is for noise="rows".')
        return "rows", "bootstrap_t"
    if method.critical != "auto":
        return noise, method.critical
    if skew > SKEWED and len(bins.x) <= MOST_ROWS and method.noise != "units":
        depends = min(dependence_p(e, bins.unit) for e in residual.T) < DEPENDENT
        if noise == "rows" or not depends:
            return "rows", "bootstrap_t"
    return noise, "simulate"


def _covariance(bins: Bins, weights: list[Float2], scaled: Float2, noise: str) -> Float4:
    """Return covariances of the estimates over grid and coordinates: (q, G, q, G)."""
    q, points = len(weights), len(weights[0])
    out = np.zeros((q, points, q, points))
    if noise == "units":
        score = [bins.scores(column) for column in scaled.T]
        units = score[0].shape[0]
    for j in range(q):
        for k in range(j, q):
            if noise == "rows":
                both = bins.sums((scaled[:, j] * scaled[:, k])[:, None])[:, 0]
                block = (weights[j] * both) @ weights[k].T
            else:
                meat = (score[j].T @ score[k]).toarray() * (units / (units - 1.0))
                block = weights[j] @ meat @ weights[k].T
            out[j, :, k], out[k, :, j] = block, block.T
    return out


def _check_noise(cov: Float4, sample: Sample, grid: Float1) -> None:
    least = np.einsum("jgjg->jg", cov).min(1) - (1e-10 * np.ptp(sample.y, axis=0)) ** 2
    if not (least > 0).all():
        raise DataError(
            f"bands: {sample.y_names[int(least.argmin())]!r} has no noise around its curve "
            f"somewhere in [{grid[0]:.3g}, {grid[-1]:.3g}]; is it a copy of the summary, "
            "constant, or an event that does not happen there?"
        )


def _fewer(method: BandMethod, level: float) -> int:
    """Return the draws of a bootstrap that refits every row: a thousand, or ten in the tail."""
    return min(method.draws, max(1000, int(np.ceil(10.0 / (1.0 - level)))))


def critical_values(
    bins: Bins, weights: list[Weights], scaled: Float2, cov: Float4, method: BandMethod,
    level: float, rng: np.random.Generator,
) -> Float1:  # fmt: skip
    """Return the critical value of each coordinate, (q,): one for all when joint."""
    q, points = cov.shape[:2]
    if method.critical == "scheffe":
        raise SettingError('BandMethod: critical="scheffe" is for kind="linear".')
    each = 1.0 - (1.0 - level) / q
    if method.critical == "tube":
        # Bonferroni over coordinates: the tube formula is for one path
        r = [bootstrap.correlation(cov[j, :, j]) for j in range(q)]
        return np.array([bootstrap.tube(one, each) for one in r])
    if method.coordinates == "joint":
        if method.critical == "bootstrap_t":
            sups = studentised_sup(bins, weights, scaled, _fewer(method, level), rng)
        else:
            sups = bootstrap.sup_draws(cov.reshape(q * points, -1), method.draws, rng)
        return np.full(q, bootstrap.quantile(sups, level))
    out = np.empty(q)
    for j in range(q):
        if method.critical == "bootstrap_t":
            sups = studentised_sup(
                bins, weights[j : j + 1], scaled[:, [j]], _fewer(method, each), rng
            )
        else:
            sups = bootstrap.sup_draws(cov[j, :, j], method.draws, rng)
        out[j] = bootstrap.quantile(sups, each)
    return out
