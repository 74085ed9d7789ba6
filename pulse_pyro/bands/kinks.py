"""A test for a kink left in what the smooth estimate does not explain."""

from __future__ import annotations

import numpy as np

from pulse_pyro._core.arrays import Float1, Float2
from pulse_pyro.bands import critical
from pulse_pyro.bands.bins import Bins
from pulse_pyro.bands.spline import reml_smoothers

KNOTS = 32
GATE = 0.2  # below this p-value the Lipschitz band is used


def kink_p(bins: Bins, noise: str) -> float:
    """Return the p-value of "no change of slope is left in any coordinate" (Bonferroni).

    The residuals are those of the plain REML spline, which bends less than any band's centre. Each
    hinge |x - knot| is freed of what that spline can follow; the residuals' products with what
    remains, over their robust standard deviation, form a one-dimensional process over 32 knots
    whose supremum is judged by the tube formula.
    """
    sums = bins.sums(bins.y)
    least = min(
        _coordinate_p(bins, hat, bins.y[:, j] - np.interp(bins.x, bins.at, hat @ sums[:, j]), noise)
        for j, hat in enumerate(reml_smoothers(bins))
    )
    return float(min(1.0, least * bins.y.shape[1]))


def _coordinate_p(bins: Bins, hat: Float2, residual: Float1, noise: str) -> float:
    low, high = bins.domain
    knots = np.linspace(low, high, KNOTS + 2)[1:-1]
    hinge = np.abs(bins.at[:, None] - knots)
    freed = hinge - hat @ (hinge * bins.count[:, None])
    score = freed.T @ bins.sums(residual[:, None])[:, 0]
    # the residuals are (I - S) noise, so the noise enters with weights (I - S)' freed
    weight = freed - hat.T @ (freed * bins.count[:, None])
    cov: Float2
    if noise == "rows":
        cov = weight.T @ (weight * bins.sums(residual[:, None] ** 2))
    else:
        by_unit = bins.scores(residual) @ weight
        cov = by_unit.T @ by_unit
    sd = np.sqrt(np.maximum(np.diag(cov), 0.0))
    if not (sd > 0).all():
        return 1.0
    length = critical.path_length(critical.correlation(cov))
    return critical.tube_tail(float(np.abs(score / sd).max()), length)
