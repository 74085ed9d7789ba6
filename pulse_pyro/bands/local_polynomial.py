"""Bands by local polynomials with robust bias correction, on bins.

The local linear estimate at bandwidth h, its bias estimated at the same h, IS the local quadratic
estimate at h: estimate, weights and variance are taken from there. Epanechnikov kernel.
"""

from __future__ import annotations

import numpy as np

from pulse_pyro._core.arrays import Float1, Float2
from pulse_pyro.bands.band import BandFit, BandMethod, Sample
from pulse_pyro.bands.bins import Bins, Weights, most_on_levels, own_levels
from pulse_pyro.bands.curve import curve

NEIGHBOURS = 25  # rows a window holds at least
POINTS = 5  # and distinct x
CANDIDATES = 14
CAUTION = 1.4  # what a degree of freedom counts in GCV, lest it follow the noise
# bandwidths tried, as shares of the domain's length. Wider than .6 the fit is one parabola, which
# GCV takes where bends are small against the noise, though they are not against the band: with 0/1
# W and 5,000 rows it covered 86 %, up to .6 it covers 96 % and is no wider
NARROWEST, WIDEST = 0.02, 0.6


def local_polynomial(
    sample: Sample, method: BandMethod, level: float, rng: np.random.Generator
) -> BandFit:
    """Make the band of a local polynomial fit for a one-dimensional summary."""
    return curve(sample, local_polynomial_weights, method, level, rng)


def local_polynomial_weights(bins: Bins, grid: Float1) -> list[Weights]:
    """Return the weights of each coordinate, its bandwidth chosen by GCV of the linear fit."""
    chosen = gcv_bandwidth(bins)
    made = {h: _weights(bins, grid, h) for h in sorted(set(chosen))}
    return [made[h] for h in chosen]


def _weights(bins: Bins, grid: Float1, h: float) -> Weights:
    value = local_weights(bins, grid, h, 2)
    hat = local_weights(bins, bins.at, h, 2)
    share = h / (bins.domain[1] - bins.domain[0])
    made = f"local polynomial, robust bias correction, bandwidth {h:.3g} ({share:.0%} of domain)"
    return Weights(value, hat, made, 3.0)


def gcv_bandwidth(bins: Bins) -> list[float]:
    """Return the bandwidth of the local linear fit of each coordinate by GCV over rows.

    Bandwidths that spend more than a third of the units on the units' own levels are left out:
    where x hardly varies within units, rows would let the curve run through every level.
    """
    length = bins.domain[1] - bins.domain[0]
    candidates = np.geomspace(NARROWEST * length, WIDEST * length, CANDIDATES)
    centred = bins.y - bins.y.mean(0)
    sums = bins.sums(centred)
    mean = sums / bins.count[:, None]
    within = (centred**2).sum(0) - (mean * sums).sum(0)
    reach = _reach(bins, bins.at)
    n = len(bins.x)
    scores = np.empty((CANDIDATES, bins.y.shape[1]))
    levels, most = own_levels(bins), most_on_levels(bins)
    for k, h in enumerate(candidates):
        hat = local_weights(bins, bins.at, h, 1, reach)
        rss = within + ((mean - hat @ sums) ** 2 * bins.count[:, None]).sum(0)
        freedom = n - CAUTION * float(hat.diagonal() @ bins.count)
        scores[k] = rss / max(freedom, 1e-9) ** 2
        if k < CANDIDATES - 1 and float((hat * levels).sum()) > most:
            scores[k] = np.inf
    return [float(candidates[k]) for k in scores.argmin(0)]


def local_weights(
    bins: Bins, points: Float1, h: float, order: int, reach: Float1 | None = None
) -> Float2:
    """Return weights per row (m, B) of the local fit at ``points`` (m,).

    ``order`` is 1 or 2. Where a window holds fewer than 25 rows or 5 distinct x it is widened
    until it does; ``reach`` (m,) is that least half-width, if known.
    """
    width = np.maximum(h, _reach(bins, points) if reach is None else reach)[:, None]
    u = (bins.at - points[:, None]) / width
    kernel = np.maximum(1.0 - u * u, 0.0)
    moments = np.empty((len(points), 2 * order + 1))
    power = kernel
    for k in range(2 * order + 1):
        moments[:, k] = power @ bins.count
        power = power * u if k < 2 * order else power
    index = np.arange(order + 1)
    first = np.linalg.inv(moments[:, index[:, None] + index])[:, 0]
    value = first[:, :1] + first[:, 1:2] * u
    if order == 2:
        value += first[:, 2:] * u * u
    return value * kernel


def _reach(bins: Bins, points: Float1) -> Float1:
    """Return the half-width that holds enough rows and bins around each point: (m,)."""
    distance = np.abs(bins.at - points[:, None])
    order = np.argsort(distance, axis=1)
    rows = np.cumsum(bins.count[order], axis=1)
    enough = (rows >= min(NEIGHBOURS, rows[0, -1])).argmax(1)
    last = np.maximum(enough, min(POINTS, distance.shape[1]) - 1)
    at = np.take_along_axis(order, last[:, None], axis=1)
    # slightly beyond: the kernel is 0 at its very edge
    out: Float1 = 1.05 * np.take_along_axis(distance, at, axis=1)[:, 0]
    return out
