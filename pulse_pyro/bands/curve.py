"""One-dimensional bands on a grid, of any linear smoother: variance, supremum, t map, domain."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np

from pulse_pyro._core.arrays import Float1, Float2, Float4
from pulse_pyro._core.errors import DataError, SettingError
from pulse_pyro.bands import critical
from pulse_pyro.bands.band import (
    Band,
    BandFit,
    BandMethod,
    Critical,
    Sample,
    Values,
    consecutive,
)
from pulse_pyro.bands.bins import (
    MOST_ROWS,
    SKEWED,
    Bins,
    Weights,
    bin_rows,
    skew_ratio,
    studentised_sup,
    studentised_units,
)
from pulse_pyro.bands.dependence import alike, choose_noise

# A band on a grid: between its points, and beyond its ends.


@dataclass(frozen=True, eq=False)
class GridShape:
    """Centre and half-width (q, G) on a grid (G,), linear in between.

    Half-widths include the modulus, so that the band holds between grid points too. Outside the
    grid the centre stays and the half-width grows by ``steep`` (q,), the largest
    average slope over a tenth of the domain that the band allows, or that the centre has over a
    fiftieth, per unit of x. ``modulus`` is its mean share of the half-width.
    """

    name: str
    grid: Float1
    centre: Float2
    half: Float2
    steep: Float1
    modulus: float

    @property
    def domain(self) -> str:
        """The interval."""
        return f"{self.name} in [{self.grid[0]:.3g}, {self.grid[-1]:.3g}]"

    def at(self, x: Float2) -> Values:
        """Interpolate at x (n, 1)."""
        point = x[:, 0]
        clipped = np.clip(point, self.grid[0], self.grid[-1])
        beyond = np.abs(point - clipped)
        centre = np.stack([np.interp(clipped, self.grid, row) for row in self.centre], axis=1)
        half = np.stack([np.interp(clipped, self.grid, row) for row in self.half], axis=1)
        return Values(centre, half + beyond[:, None] * self.steep, beyond == 0)


def grid_shape(name: str, grid: Float1, centre: Float2, cov: Float4, critical: Float2) -> GridShape:
    """Build the shape from centre (q, G), covariance (q, G, q, G) and critical values (q, G)."""
    half = critical * _contrast(cov, (1.0,))
    modulus = _modulus(centre, cov, critical)
    span = max(len(grid) // 10, 1)
    rise = np.maximum(critical[:, span:], critical[:, :-span]) * _rise_error(cov, span)
    steep = (np.abs(centre[:, span:] - centre[:, :-span]) + rise).max(1) / (grid[span] - grid[0])
    near = max(len(grid) // 50, 1)  # noise of so short a rise says little, the centre's own does
    local = np.abs(centre[:, near:] - centre[:, :-near]).max(1) / (grid[near] - grid[0])
    steep = np.maximum(steep, local)
    return GridShape(name, grid, centre, half + modulus, steep, float((modulus / half).mean()))


def _contrast(cov: Float4, weights: tuple[float, ...]) -> Float2:
    """Return the standard error of a weighted sum of neighbours on the grid: (q, G - k + 1)."""
    k, points = len(weights), cov.shape[1]
    out = np.zeros((len(cov), points - k + 1))
    for a, wa in enumerate(weights):
        for b, wb in enumerate(weights):
            low = min(a, b)
            line = np.stack([np.diagonal(block, b - a) for block in _blocks(cov)])
            out += wa * wb * line[:, low : low + points - k + 1]
    return np.sqrt(np.maximum(out, 0.0))


def _rise_error(cov: Float4, span: int) -> Float2:
    """Return the standard error of the estimate's rise over ``span`` steps: (q, G - span)."""
    var = [
        np.diag(block)[span:] + np.diag(block)[:-span] - 2.0 * np.diagonal(block, span)
        for block in _blocks(cov)
    ]
    return np.sqrt(np.maximum(np.stack(var), 0.0))


def _blocks(cov: Float4) -> list[Float2]:
    """Return each coordinate's own covariance over the grid, q of (G, G)."""
    return [rows[:, j] for j, rows in enumerate(cov)]


def _modulus(centre: Float2, cov: Float4, critical: Float2) -> Float2:
    """Return what the half-widths need so that the band also holds between grid points: (q, G).

    Halfway between grid points a curve leaves its chord by a quarter of what it does at a grid
    point against the chord of both neighbours; that second difference of the true curve is bounded
    by the estimate's own plus its band, with the same critical value.
    """
    bend = np.abs(centre[:, 1:-1] - (centre[:, 2:] + centre[:, :-2]) / 2.0)
    bend += critical[:, 1:-1] * _contrast(cov, (-0.5, 1.0, -0.5))
    padded = np.pad(bend / 4.0, ((0, 0), (2, 2)), mode="edge")
    out: Float2 = np.max([padded[:, :-2], padded[:, 1:-1], padded[:, 2:]], axis=0)
    return out


def hull(band: Band, other: Band) -> Band:
    """Return ``band`` in the smallest shape on its grid that holds both: it covers if one does."""
    one, two = band.shape, other.shape
    assert isinstance(one, GridShape)
    assert isinstance(two, GridShape)
    low = np.minimum(one.centre - one.half, two.centre - two.half)
    high = np.maximum(one.centre + one.half, two.centre + two.half)
    both = GridShape(
        one.name,
        one.grid,
        (low + high) / 2.0,
        (high - low) / 2.0,
        np.maximum(one.steep, two.steep),
        max(one.modulus, two.modulus),
    )
    return replace(band, shape=both)


# One-dimensional bands on a grid: variance, supremum, Student-t map, domain.


FEWEST_ROWS = 60
MOST_POINTS = 4000
EVENTS = 4.0  # rows of average noise that are added to those that tell of it
WILD = 2.5  # a studentised critical value this many times the normal one is not believed


Smoother: TypeAlias = Callable[[Bins, Float1], list[Weights]]  # (rows, grid) -> each coordinate


def curve(
    sample: Sample,
    smoother: Smoother,
    method: BandMethod,
    level: float,
    rng: np.random.Generator,
) -> BandFit:
    """Make the band of a linear smoother for a one-dimensional summary."""
    bins, grid = curve_rows(sample, method)
    weights = smoother(bins, grid)
    return curve_band(sample, bins, grid, weights, method=method, level=level, rng=rng)


def curve_rows(sample: Sample, method: BandMethod) -> tuple[Bins, Float1]:
    """Return the rows in bins and the grid of the domain, (G,), or say why there is no curve."""
    if sample.x.shape[1] != 1:
        raise DataError(
            f"bands: {method.kind!r} is for one input, the summary has {sample.x.shape[1]} "
            f'({", ".join(sample.x_names[:4])}); use band="auto", "linear" or "single_index".'
        )
    bins = bin_rows(sample, method.domain)
    if len(bins.x) < FEWEST_ROWS:
        raise DataError(
            f"bands: {len(bins.x)} held-out rows lie in the central range, a curve needs at least "
            f'{FEWEST_ROWS}; hold out more units, or use band="linear".'
        )
    constant = np.flatnonzero(np.ptp(bins.y, axis=0) == 0)
    if len(constant):
        raise DataError(
            f"bands: {sample.y_names[constant[0]]!r} has no noise around its curve: it is "
            f"constant, {bins.y[0, constant[0]]:g}, in the held-out rows."
        )
    # the covariance over grid and coordinates must fit into memory
    points = min(method.grid, max(MOST_POINTS // bins.y.shape[1], 60))
    return bins, np.linspace(*bins.domain, points)


def curve_band(
    sample: Sample,
    bins: Bins,
    grid: Float1,
    weights: list[Weights],
    *,
    method: BandMethod,
    level: float,
    rng: np.random.Generator,
) -> BandFit:
    """Turn the weights of each coordinate into a band, uniform over the grid and coordinates."""
    sums = bins.sums(bins.y)
    fitted = np.stack(
        [np.interp(bins.x, bins.at, w.hat @ sums[:, j]) for j, w in enumerate(weights)], axis=1
    )
    residual = bins.y - fitted
    scaled = residual / (1.0 - np.stack([w.leverage()[bins.index] for w in weights], axis=1))
    noise = choose_noise(residual, bins.unit, method.noise)
    if noise == "units":
        own = [w.without_units(bins, e) for w, e in zip(weights, residual.T, strict=True)]
        scaled = np.stack(own, axis=1)
    nu = np.stack([w.freedom(bins, noise == "units") for w in weights])
    skew = skew_ratio(bins, scaled, nu)
    how = _treatment(bins, skew, noise, method)
    cov = _covariance(bins, [w.grid for w in weights], scaled, noise)
    _check_noise(cov, sample, grid)
    wider = _few_events(bins, weights, residual, cov, noise)

    def values_by(how: Critical) -> Float1:
        by = replace(method, critical=how)
        return critical_values(bins, weights, scaled, cov, noise, method=by, level=level, rng=rng)

    c = values_by(how)
    if how == "bootstrap_t" and method.critical == "auto":
        normal = values_by("simulate")
        # isolated rows: redrawn noise there has no variance to divide
        if (c > WILD * normal).any() and noise == "rows":
            c, how = normal, "simulate"
        c = np.minimum(c, WILD * normal)
    spread = np.repeat(c[:, None], len(grid), axis=1)
    if how != "bootstrap_t":
        mapped = critical.student(spread, nu)
    elif noise == "rows":
        mapped = spread  # knows about small samples; Student's t would count them twice
    else:  # redrawn units do not know how few of them decide a value
        mapped = np.maximum(spread, critical.student(values_by("simulate")[:, None], nu))
    centre = np.stack([w.grid @ sums[:, j] for j, w in enumerate(weights)])
    shape = grid_shape(sample.x_names[0], grid, centre, cov, mapped * wider)
    how_made = f"critical value by {how.replace('_', ' ')}, {shape.modulus:.1%} for the grid"
    made = tuple(f"{w.made}, {how_made}" for w in weights)
    band = Band(
        kind=method.kind,
        made=made,
        level=level,
        critical=c,
        noise=noise,
        x_names=sample.x_names,
        y_names=sample.y_names,
        rows=len(bins.x),
        units=consecutive(bins.unit)[1],
        shape=shape,
    )

    def smooth(columns: Float2, j: int) -> Float2:
        out: Float2 = (weights[j].hat @ bins.sums(columns))[bins.index]
        return out

    return BandFit(band, bins.kept, residual, smooth, skewness=skew)


def _treatment(
    bins: Bins, skew: float, noise: Literal["rows", "units"], method: BandMethod
) -> Critical:
    """Return how the critical value is found: skewed noise wants the studentised bootstrap."""
    if method.critical != "auto":
        return method.critical
    return "bootstrap_t" if skew > SKEWED and len(bins.x) <= MOST_ROWS else "simulate"


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
                meat = (score[j].T @ score[k]).toarray() * ((units - 1.0) / units)
                block = weights[j] @ meat @ weights[k].T
            out[j, :, k], out[k, :, j] = block, block.T
    return out


def _few_events(
    bins: Bins, weights: list[Weights], residual: Float2, cov: Float4, noise: str
) -> Float2:
    """Return by how much standard errors grow where few rows tell of the noise: (q, G), from 1 on.

    With 0/1 W, and p = .05 or .95, all of ten rows are often alike: their own variance says that
    there is no noise. So V(x) is at least (n V + 4 V_all) / (n + 4), with V_all the variance if the
    noise were everywhere what it is on average, rows of a unit correlating as they do on average,
    and n = sigma^2 / V_all independent rows behind the estimate: four more of average noise, as
    Agresti and Coull add four to a share. Where hundreds of rows speak it changes nothing.
    """
    sigma2 = (residual**2).mean(0)
    counts = bins.scores(np.ones(len(bins.x))) if noise == "units" else None
    out = np.empty((len(weights), cov.shape[1]))
    for j, w in enumerate(weights):
        alone = w.grid**2 @ bins.count
        share = alone
        if counts is not None:
            rho = alike(residual[:, j], bins.unit)
            together = (np.asarray(counts @ w.grid.T) ** 2).sum(0)
            share = (1.0 - rho) * alone + rho * together
        n = 1.0 / share
        own = np.diagonal(cov[j, :, j])
        least = (n * own + EVENTS * sigma2[j] * share) / (n + EVENTS)
        out[j] = np.sqrt(np.maximum(least / own, 1.0))
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
    return min(method.draws, max(1000, int(np.ceil(20.0 / (1.0 - level)))))


def critical_values(
    bins: Bins,
    weights: list[Weights],
    scaled: Float2,
    cov: Float4,
    noise: str,
    *,
    method: BandMethod,
    level: float,
    rng: np.random.Generator,
) -> Float1:
    """Return the critical value of each coordinate, (q,): one for all when joint."""
    q, points = cov.shape[:2]
    if method.critical == "scheffe":
        raise SettingError('BandMethod: critical="scheffe" is for kind="linear".')
    each = 1.0 - (1.0 - level) / q
    if method.critical == "tube":
        # Bonferroni over coordinates: the tube formula is for one path
        return np.array(
            [critical.tube(critical.correlation(block), each) for block in _blocks(cov)]
        )
    studentised = studentised_sup if noise == "rows" else studentised_units
    if method.coordinates == "joint":
        if method.critical == "bootstrap_t":
            sides = studentised(bins, weights, scaled, _fewer(method, level), rng)
            return np.full(q, _further(sides, level))
        sups = critical.sup_draws(cov.reshape(q * points, -1), method.draws, rng)
        return np.full(q, critical.quantile(sups, level))
    out = np.empty(q)
    for j in range(q):
        if method.critical == "bootstrap_t":
            draws = _fewer(method, each)
            sides = studentised(bins, weights[j : j + 1], scaled[:, [j]], draws, rng)
            out[j] = _further(sides, each)
        else:
            sups = critical.sup_draws(cov[j, :, j], method.draws, rng)
            out[j] = critical.quantile(sups, each)
    return out


def _further(sides: Float2, level: float) -> float:
    """Return the further of two sides (2, draws), each with half of the failures.

    Skewed noise errs to one side, and a law's bias may make just that side count.
    """
    return max(critical.quantile(side, (1.0 + level) / 2.0) for side in sides)
