"""A linear smoother on bins: the one shape of every one-dimensional band."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pulse_pyro.arrays import Float1, Float2
from pulse_pyro.bands.bins import Bins

MANY_UNITS = 2000  # beyond, Student's t is the normal


@dataclass(frozen=True, eq=False)
class Weights:
    """Weights l_i(x) of every row, which depend on the row through its bin alone.

    Attributes
    ----------
    grid : (G, B) weights of the estimate on the grid.
    hat : (B, B) weights of the estimate at the bins themselves.
    made : how, in words.
    loss : degrees of freedom the local fit takes (order + 1).
    """

    grid: Float2
    hat: Float2
    made: str
    loss: float

    def leverage(self) -> Float1:
        """Return h of a row in each bin, (B,), clipped so that HC3 stays finite."""
        return self.hat.diagonal().clip(0.0, 0.95)

    def freedom(self, bins: Bins, clustered: bool) -> Float1:
        """Satterthwaite degrees of freedom of the variance on the grid, (G,).

        Rows: (sum l^2)^2 / sum l^4 - (order + 1); units: (sum w)^2 / sum w^2 - 1 with
        w_c = sum of l^2 over the rows of unit c.
        """
        square = self.grid**2
        if not clustered:
            total = square @ bins.count
            nu: Float1 = total**2 / (square**2 @ bins.count) - self.loss
            return nu
        rows_in = bins.scores(np.ones(len(bins.x)))  # (units, B) counts
        if rows_in.shape[0] > MANY_UNITS:
            return np.full(len(square), np.inf)
        by_unit: Float2 = np.asarray(rows_in @ square.T)
        out: Float1 = by_unit.sum(0) ** 2 / (by_unit**2).sum(0) - 1.0
        return out
