"""How the size of the noise changes with x."""

from __future__ import annotations

import numpy as np

from pulse_pyro.arrays import Float1
from pulse_pyro.bands.bins import Bins


def local_spread(bins: Bins, residual: Float1) -> Float1:
    """Return the root mean square of the residuals (kept,) around each bin, (B,)."""
    # a window of a tenth of the rows: wide enough to be steady, narrow enough to follow x
    total = np.concatenate([[0.0], np.cumsum(bins.sums(residual[:, None] ** 2)[:, 0])])
    rows = np.concatenate([[0.0], np.cumsum(bins.count)])
    middle = (rows[1:] + rows[:-1]) / 2.0
    reach = max(0.05 * rows[-1], 25.0)
    low = np.clip(middle - reach, 0.0, rows[-1] - 2 * reach)
    ends = np.stack([low, np.minimum(low + 2 * reach, rows[-1])])
    inside = np.diff(np.interp(ends, rows, total), axis=0)[0] / np.diff(ends, axis=0)[0]
    out: Float1 = np.sqrt(np.maximum(inside, 1e-300))
    return out


def neighbour_differences(bins: Bins, y: Float1) -> Float1:
    """Return the difference of each row (kept,) from the next in x, over sqrt(2).

    As large as the noise on average, and free of any curve: no fit is needed first.
    """
    order = np.argsort(bins.x, kind="stable")
    out = np.empty_like(y)
    out[order[:-1]] = np.diff(y[order]) / np.sqrt(2.0)
    out[order[-1]] = out[order[-2]]
    return out
