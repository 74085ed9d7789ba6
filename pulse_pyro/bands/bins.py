"""Mean-binning of a one-dimensional summary: O(n) once, then everything costs O(bins^2).

A bin stands for its rows at their mean x, so any function that is linear within a bin is kept
exactly; what is lost is at most width^2 / 8 * |f''| inside a bin.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from pulse_pyro.arrays import Bool, Float1, Float2, Int
from pulse_pyro.bands.sample import Sample, consecutive
from pulse_pyro.errors import DataError

COUNT = 400  # bins
MARGIN = 0.25  # rows this share of the domain's length beyond it still help at its edge
LEAST = 10  # distinct x a curve needs


@dataclass(frozen=True, eq=False)
class Bins:
    """Rows grouped by x.

    Attributes
    ----------
    at, count : (B,) mean x and number of rows of each occupied bin, in order of x.
    kept : (n,) rows that take part: those within a margin of the domain.
    index, unit : (kept,) bin and unit of each kept row.
    x, y : (kept,) and (kept, q).
    domain : where the band is uniform.
    """

    at: Float1
    count: Float1
    kept: Bool
    index: Int
    unit: Int
    x: Float1
    y: Float2
    domain: tuple[float, float]

    def sums(self, values: Float2) -> Float2:
        """Add rows up within bins: (kept, q) -> (B, q)."""
        columns = [np.bincount(self.index, v, len(self.at)) for v in values.T]
        return np.stack(columns, axis=1)

    def scores(self, residual: Float1) -> sparse.csr_array:
        """Sum residuals within unit and bin: (units, B)."""
        code, units = consecutive(self.unit)
        shape = (units, len(self.at))
        return sparse.coo_array((residual, (code, self.index)), shape=shape).tocsr()


def bin_rows(sample: Sample, share: float) -> Bins:
    """Bin a one-dimensional sample; ``share`` is the central share of x that is the domain."""
    x = sample.x[:, 0]
    if not len(x):
        raise DataError("bands: no held-out row came.")
    tail = (1.0 - share) / 2.0
    low, high = (float(v) for v in np.quantile(x, [tail, 1.0 - tail]))
    name = sample.x_names[0]
    if not high > low:
        raise DataError(
            f"bands: the summary {name!r} is {low:g} in nearly every one of {len(x)} held-out "
            "rows; a band needs a summary that varies. Choose another summary or a wider domain."
        )
    length = high - low
    kept = (x >= low - MARGIN * length) & (x <= high + MARGIN * length)
    if not kept.any() or np.ptp(x[kept]) == 0:
        raise DataError(
            f"bands: the central {share:.3g} of {name!r}, [{low:.6g}, {high:.6g}], holds fewer "
            "than two distinct values; use a wider domain."
        )
    rows = sample if kept.all() else sample.take(kept)
    inside = rows.x[:, 0]
    first, last = float(inside.min()), float(inside.max())
    raw = np.minimum(((inside - first) * (COUNT / (last - first))).astype(np.int64), COUNT - 1)
    index, occupied = consecutive(raw)
    count = np.bincount(index).astype(np.float64)
    at = np.bincount(index, inside) / count
    if occupied < LEAST:
        raise DataError(
            f"bands: the summary {name!r} has values at only {occupied} places of its central "
            f"range ({len(inside)} rows), a curve needs at least {LEAST}; for few levels use the "
            'linear band on indicator columns (band="linear"), for a few far values a narrower '
            "domain."
        )
    return Bins(at, count, kept, index, rows.unit, inside, rows.y, (low, high))
