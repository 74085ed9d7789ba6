"""Do residuals of one unit depend on each other? Decides between row and cluster variances."""

from __future__ import annotations

from typing import Literal

import numpy as np
from scipy import stats

from pulse_pyro._core.arrays import Float1, Float2, Int
from pulse_pyro._core.errors import DataError
from pulse_pyro.bands.band import Noise, consecutive

MANY = 50  # units from which clustering costs next to nothing
FEWEST = 5  # units below which nothing can be said about dependence
FEWEST_CLUSTERS = 10
LEVEL = 0.1


def dependence_p(residual: Float1, unit: Int) -> float:
    """Return the p-value of "residuals of one unit are uncorrelated".

    Rows of a unit stand together, in order of time. Two scores: products of neighbours (either
    sign) and products of all pairs (positive), each over its standard deviation under independence
    with unequal variances, Bonferroni over the two.
    """
    same = unit[1:] == unit[:-1]
    near = (residual[1:] * residual[:-1])[same]
    code, _ = consecutive(unit)
    total, square, fourth = (np.bincount(code, residual**k) for k in (1, 2, 4))
    pair_var = 2.0 * (square**2 - fourth).sum()
    near_var = (near**2).sum()
    near_z = near.sum() / np.sqrt(near_var) if near_var > 0 else 0.0
    pair_z = (total**2 - square).sum() / np.sqrt(pair_var) if pair_var > 0 else 0.0
    p = min(2.0 * stats.norm.sf(abs(near_z)), stats.norm.sf(pair_z))
    return float(min(2.0 * p, 1.0))


def choose_noise(
    residual: Float2, unit: Int, wanted: Noise, regressors: int = 0
) -> Literal["rows", "units"]:
    """Return "units" or "rows": as asked, or units from 50 on or where they are seen to depend.

    ``regressors``: a cluster variance of that many free coefficients needs more units than that.
    """
    _, units = consecutive(unit)
    if units < FEWEST:
        raise DataError(
            f"bands: at least {FEWEST} held-out units are needed to judge the noise, but got "
            f"{units}; hold out more units."
        )
    needed = max(FEWEST_CLUSTERS, regressors + 1)
    if wanted == "rows":
        return "rows"
    if wanted == "units":
        if units < needed:
            raise DataError(
                f'bands: noise="units" needs at least {needed} held-out units here, but got '
                f"{units}; hold out more units, use fewer regressors, or the scheffe critical "
                "value."
            )
        return "units"
    depends = units >= MANY or any(dependence_p(r, unit) < LEVEL for r in residual.T)
    return "units" if depends and units >= needed else "rows"
