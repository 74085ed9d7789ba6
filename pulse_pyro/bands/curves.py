"""The one-dimensional bands by name, and the choice among them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pulse_pyro.bands.band import BandFit
from pulse_pyro.bands.bins import bin_rows
from pulse_pyro.bands.curve import curve_band, grid_of
from pulse_pyro.bands.local_polynomial import local_polynomial
from pulse_pyro.bands.roughness import GATE, kink_p
from pulse_pyro.bands.sample import BandMethod, Kind, Sample
from pulse_pyro.bands.spline import lipschitz, spline
from pulse_pyro.errors import DataError

MAKERS = {"local_polynomial": local_polynomial, "spline": spline, "lipschitz": lipschitz}
MANY_ROWS = 2000


def curve(
    sample: Sample, method: BandMethod, level: float, rng: np.random.Generator
) -> BandFit:  # fmt: skip
    """Make a band for a one-dimensional summary.

    auto: local polynomial from 2,000 rows on, penalised spline below; if a kink is left in the
    residuals of any coordinate (p < 0.2), the Lipschitz band for all of them.
    """
    bins = bin_rows(sample, method.domain)
    grid = grid_of(bins, method)
    still = np.flatnonzero(np.ptp(bins.y, axis=0) == 0)
    if len(still):
        raise DataError(
            f"bands: {sample.y_names[still[0]]!r} has no noise around its curve: it is constant, "
            f"{bins.y[0, still[0]]:g}, in the held-out rows."
        )
    if method.kind in MAKERS:
        weights = MAKERS[method.kind](bins, grid)
        return curve_band(sample, bins, weights, grid, method, level, rng)
    kind: Kind = "local_polynomial" if len(bins.x) >= MANY_ROWS else "spline"
    weights = MAKERS[kind](bins, grid)
    smooth = curve_band(sample, bins, weights, grid, replace(method, kind=kind), level, rng)
    p = kink_p(bins, smooth.band.noise)
    if p >= GATE:
        return replace(smooth, roughness=p)
    weights = lipschitz(bins, grid)
    rough = curve_band(sample, bins, weights, grid, replace(method, kind="lipschitz"), level, rng)
    return replace(rough, roughness=p)
