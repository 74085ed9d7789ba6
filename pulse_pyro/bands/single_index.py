"""One-dimensional bands along a direction of a multivariate summary."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import numpy as np

from pulse_pyro._core.arrays import Float1, Float2
from pulse_pyro._core.errors import DataError
from pulse_pyro.bands import critical
from pulse_pyro.bands.auto import auto_curve
from pulse_pyro.bands.band import Band, BandFit, BandMethod, Sample, Values
from pulse_pyro.bands.basis import fit_basis
from pulse_pyro.bands.curve import GridShape
from pulse_pyro.bands.linear import CLOUD

SHARE = 0.3  # of the units the direction is fitted on
FEWEST = 10


@dataclass(frozen=True, eq=False)
class Index:
    """A direction d^ (p,) and its doubt: |x'(d^ - d)| <= reach sqrt(z'Vz), z = x - mean."""

    direction: Float1
    mean: Float1
    cov: Float2
    reach: float

    def doubt(self, x: Float2) -> Float1:
        """Return the bound on the error of the index at x (n, p): (n,)."""
        z = x - self.mean
        out: Float1 = self.reach * np.sqrt(np.maximum(((z @ self.cov) * z).sum(1), 0.0))
        return out


@dataclass(frozen=True, eq=False)
class IndexShape:
    """One curve per coordinate, each along its own index."""

    indices: tuple[Index, ...]
    curves: tuple[Band, ...]
    steep: tuple[float, ...]

    @property
    def direction(self) -> Float2:
        """The directions, (q, p)."""
        return np.stack([index.direction for index in self.indices])

    @property
    def domain(self) -> str:
        """The intervals."""
        return "; ".join(band.shape.domain for band in self.curves[:3])

    def at(self, x: Float2) -> Values:
        """Evaluate at x (n, p); inside if every coordinate's index is.

        The doubt about the index, times the steepest slope of the curve, widens the band.
        """
        parts = [b.at(x @ i.direction) for b, i in zip(self.curves, self.indices, strict=True)]
        doubt = [i.doubt(x) * slope for i, slope in zip(self.indices, self.steep, strict=True)]
        return Values(
            np.concatenate([part.centre for part in parts], axis=1),
            np.concatenate([part.half for part in parts], axis=1) + np.stack(doubt, axis=1),
            np.asarray(np.all([part.inside for part in parts], axis=0)),
        )


def single_index(
    sample: Sample, method: BandMethod, level: float, rng: np.random.Generator
) -> BandFit:
    """Make a band for g(x'd), d fitted by least squares on 30 % of the units, g on the others.

    Half of the allowed failures go to the direction, half to the curve; coordinates are combined
    by Bonferroni. Least squares finds the direction if x is elliptical (near enough for many x and
    monotone g, not for all) and if it sees a slope: a symmetric g has none. A wrong direction, and
    what x holds beyond the index, are for the lack-of-fit test.
    """
    units = np.unique(sample.unit)
    enough = (u for u in itertools.count(FEWEST) if u - _first(u) >= FEWEST <= 2 * _first(u))
    needed = next(enough)
    if len(units) < needed:
        raise DataError(
            f"bands: a single index needs at least {needed} held-out units, but got {len(units)}: "
            "some fit the direction, others the band."
        )
    for_index = np.isin(sample.unit, rng.permutation(units)[: _first(len(units))])
    each = 1.0 - (1.0 - level) / (2.0 * len(sample.y_names))
    indices = _indices(sample.take(for_index), each, method, rng)
    rest = sample.take(~for_index)
    fits = []
    kind = replace(method, kind="auto")
    for j, index in enumerate(indices):
        along = Sample(
            rest.x @ index.direction[:, None],
            rest.y[:, j : j + 1],
            rest.unit,
            (f"index of {rest.y_names[j]}",),
            rest.y_names[j : j + 1],
        )
        fits.append(auto_curve(along, kind, each, rng))
    bands = tuple(fit.band for fit in fits)
    steep = tuple(float(b.shape.steep[0]) for b in bands if isinstance(b.shape, GridShape))
    kept = np.logical_and.reduce([fit.kept for fit in fits])
    residual = np.stack([_spread(fit)[kept] for fit in fits], axis=1)
    band = Band(
        kind="single_index",
        made=tuple(f"single index, {b.made[0]}" for b in bands),
        level=level,
        critical=np.concatenate([b.critical for b in bands]),
        noise=bands[0].noise,
        x_names=sample.x_names,
        y_names=sample.y_names,
        rows=int(kept.sum()),
        units=rest.units,
        shape=IndexShape(tuple(indices), bands, steep),
    )
    whole = np.zeros(len(sample.x), dtype=np.bool_)
    whole[np.flatnonzero(~for_index)[kept]] = True

    def smooth(columns: Float2, j: int) -> Float2:
        # an estimator wants all of its own rows; those another coordinate left out count 0
        full = np.zeros((len(rest.x), columns.shape[1]))
        full[kept] = columns
        out = np.zeros_like(full)
        out[fits[j].kept] = fits[j].smooth(full[fits[j].kept], 0)
        return out[kept]

    rough = min(fit.roughness for fit in fits)
    skew = max(fit.skewness for fit in fits)
    return BandFit(band, whole, residual, smooth, rough, skew)


def _first(units: int) -> int:
    """Return how many units the direction is fitted on."""
    return max(round(SHARE * units), 1)


def _indices(
    part: Sample, level: float, method: BandMethod, rng: np.random.Generator
) -> list[Index]:
    """Fit the direction of each coordinate with its doubt, simultaneous over the part's x."""
    n, p = part.x.shape
    mean = part.x.mean(0)
    b = np.concatenate([np.ones((n, 1)), part.x - mean], axis=1)
    gram = b.T @ b
    if n < 2 * p + 20 or np.linalg.cond(gram) > 1e12:
        raise DataError(
            f"bands: {n} rows cannot tell a direction of {p} inputs; hold out more units, or leave "
            "out inputs that repeat others."
        )
    q = part.y.shape[1]
    few = method.noise == "units" and part.units <= p + 1
    how = replace(method, noise="rows") if few else method
    fit = fit_basis(b, part.y, part.unit, (np.linalg.inv(gram),) * q, how, p + 1)
    nu = (n if fit.noise == "rows" else part.units) - p - 1.0
    out = []
    for j in range(q):
        slope = fit.coef[1:, j]
        length = float(np.linalg.norm(slope))
        if not length > 0:
            raise DataError("bands: no direction of the summary predicts; use another summary.")
        d = slope / length
        across = np.eye(p) - np.outer(d, d)  # a longer slope is the same direction
        cov = across @ fit.cov[j, 1:, j, 1:] @ across / length**2
        values, vectors = np.linalg.eigh(cov)
        factor = (part.x - mean)[rng.permutation(n)[:CLOUD]] @ (
            vectors * np.sqrt(np.maximum(values, 0.0))
        )
        c = critical.quantile(critical.factor_draws(factor, method.draws, rng), level)
        out.append(Index(d, mean, cov, float(critical.student(c, nu))))
    return out


def _spread(fit: BandFit) -> Float1:
    out = np.full(len(fit.kept), np.nan)
    out[fit.kept] = fit.residual[:, 0]
    return out
