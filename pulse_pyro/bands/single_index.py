"""One-dimensional bands along a direction of a multivariate summary."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from pulse_pyro.arrays import Float1, Float2
from pulse_pyro.bands.band import Band, BandFit, Values
from pulse_pyro.bands.curves import curve
from pulse_pyro.bands.sample import BandMethod, Sample
from pulse_pyro.errors import DataError

SHARE = 0.3  # of the units the direction is fitted on
FEWEST = 10


@dataclass(frozen=True, eq=False)
class IndexShape:
    """One curve per coordinate, each along its own direction (q, p)."""

    direction: Float2
    curves: tuple[Band, ...]

    @property
    def domain(self) -> str:
        """The intervals."""
        return "; ".join(one.shape.domain for one in self.curves[:3])

    def at(self, x: Float2) -> Values:
        """Evaluate at x (n, p); inside if every coordinate's index is."""
        parts = [b.at(x @ d) for b, d in zip(self.curves, self.direction, strict=True)]
        inside = np.all([part.inside for part in parts], axis=0)
        return Values(
            np.concatenate([part.centre for part in parts], axis=1),
            np.concatenate([part.half for part in parts], axis=1),
            np.asarray(inside),
        )


def single_index(
    sample: Sample, method: BandMethod, level: float, rng: np.random.Generator
) -> BandFit:  # fmt: skip
    """Make a band for g(x'd), d fitted by least squares on 30 % of the units, g on the others.

    Least squares finds the direction for any monotone g, and for others if x is elliptical;
    coordinates are combined by Bonferroni. What x holds beyond the index is for the lack-of-fit
    test: the band is for E[y | x'd].
    """
    units = np.unique(sample.unit)
    first = max(round(SHARE * len(units)), 1)
    if len(units) - first < FEWEST:
        raise DataError(
            f"bands: a single index needs at least {round(FEWEST / (1 - SHARE)) + 1} held-out "
            f"units, {len(units)} came: some fit the direction, others the band."
        )
    for_index = np.isin(sample.unit, rng.permutation(units)[:first])
    direction = _directions(sample.take(for_index))
    rest = sample.take(~for_index)
    each = 1.0 - (1.0 - level) / len(sample.y_names)
    fits = []
    kind = replace(method, kind="auto")
    for j, d in enumerate(direction):
        one = Sample(
            rest.x @ d[:, None], rest.y[:, j : j + 1], rest.unit, (f"index of {rest.y_names[j]}",),
            rest.y_names[j : j + 1],
        )  # fmt: skip
        fits.append(curve(one, kind, each, rng))
    bands = tuple(fit.band for fit in fits)
    kept = np.logical_and.reduce([fit.kept for fit in fits])
    residual = np.stack([_spread(fit)[kept] for fit in fits], axis=1)
    band = Band(
        "single_index", tuple(f"single index, {b.made[0]}" for b in bands), level,
        np.concatenate([b.critical for b in bands]), bands[0].noise, sample.x_names,
        sample.y_names, int(kept.sum()), rest.units, IndexShape(direction, bands),
    )  # fmt: skip
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
    return BandFit(band, whole, residual, smooth, rough)


def _directions(part: Sample) -> Float2:
    """Return unit directions (q, p) of the least-squares fits."""
    b = np.concatenate([np.ones((len(part.x), 1)), part.x], axis=1)
    coef = np.linalg.lstsq(b, part.y, rcond=None)[0][1:].T
    length = np.linalg.norm(coef, axis=1, keepdims=True)
    if not (length > 0).all():
        raise DataError("bands: no direction of the summary predicts; use another summary.")
    out: Float2 = coef / length
    return out


def _spread(fit: BandFit) -> Float1:
    out = np.full(len(fit.kept), np.nan)
    out[fit.kept] = fit.residual[:, 0]
    return out
