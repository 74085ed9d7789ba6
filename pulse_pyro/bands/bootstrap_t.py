"""Studentised (bootstrap-t) suprema for skewed noise in small samples."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from pulse_pyro.arrays import Float1, Float2
from pulse_pyro.bands.bins import Bins
from pulse_pyro.bands.spread import local_spread
from pulse_pyro.bands.weights import Weights
from pulse_pyro.errors import SettingError

MOST_ROWS = 50_000  # beyond, skewness no longer matters and the draws would be slow
SKEWED = 0.05  # skewness over the root of the local sample size, from which it matters


def skew_ratio(bins: Bins, scaled: Float2, nu: Float2) -> float:
    """Return the largest |skewness| / sqrt(local degrees of freedom) over coordinates.

    It is the order of the error a normal critical value makes; nu (q, G).
    """
    standard = np.stack([e / local_spread(bins, e)[bins.index] for e in scaled.T], axis=1)
    standard = np.clip(standard - standard.mean(0), -1e6, 1e6)
    moment = (standard**3).mean(0) / (standard**2).mean(0) ** 1.5
    return float((np.abs(moment) / np.sqrt(np.maximum(np.median(nu, axis=1), 1.0))).max())


def studentised_sup(
    bins: Bins, weights: list[Weights], scaled: Float2, draws: int, rng: np.random.Generator
) -> Float1:
    """Draw sup |m*(x) - m(x)| / se*(x) over grid and coordinates, se* re-estimated: (draws,).

    Residuals ``scaled`` (kept, q) are divided by their local spread, drawn with replacement (whole
    rows, so coordinates stay together) and multiplied by the spread where they land: the noise may
    change its scale with x, but is taken to keep its shape.
    """
    n = len(bins.x)
    if n > MOST_ROWS:
        raise SettingError(
            f'BandMethod: critical="bootstrap_t" is meant for small samples, at most {MOST_ROWS} '
            f'rows; {n} came, use critical="simulate".'
        )
    member = sparse.csr_array((np.ones(n), (bins.index, np.arange(n))))
    spread = np.stack([local_spread(bins, e)[bins.index] for e in scaled.T], axis=1)
    standard = scaled / spread
    standard -= standard.mean(0)
    out = np.zeros(draws)
    batch = max(min(draws, 2_000_000 // n), 1)
    for start in range(0, draws, batch):
        stop = min(start + batch, draws)
        pick = rng.integers(n, size=(n, stop - start))
        for j, w in enumerate(weights):
            noise = standard[:, j][pick] * spread[:, j, None]
            sums: Float2 = np.asarray(member @ noise)
            left = (noise - (w.hat @ sums)[bins.index]) / (1.0 - w.leverage()[bins.index, None])
            se = np.sqrt(w.grid**2 @ np.asarray(member @ left**2))
            sup = (np.abs(w.grid @ sums) / se).max(0)
            out[start:stop] = np.maximum(out[start:stop], sup)
    return out
