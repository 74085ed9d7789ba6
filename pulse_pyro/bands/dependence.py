"""Do residuals of one unit depend on each other? Decides between row and cluster variances."""

from __future__ import annotations

from typing import Literal

import numpy as np
from scipy import sparse, stats

from pulse_pyro._core.arrays import Float1, Float2, Int
from pulse_pyro._core.errors import DataError
from pulse_pyro.bands.band import Noise, consecutive

MANY = 20  # units from which variances go by unit, for a test of dependence misses much in so few
FEWEST = 5  # units below which nothing can be said about dependence
FEWEST_CLUSTERS = 10
LEVEL = 0.1
EACH = 3  # clusters a coefficient, for a cluster variance of a basis
DATE_ROWS = 200_000  # rows looked at for shared dates, of clusters drawn at random
DATE_BATCH = 16_000_000  # values of the drawn sums held at a time
BLOCK, FEWEST_BLOCKS = 4, 6  # dates are put together by this factor, while so many blocks are left


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


def alike(e: Float1, unit: Int) -> float:
    """Return the correlation of two rows of one unit, 0 to 1: mean product over mean square."""
    code, _ = consecutive(unit)
    count, total, square = (np.bincount(code, e**k) for k in range(3))
    pairs = float((count * (count - 1.0)).sum())
    size = float(square.sum() / count.sum())
    if not pairs or not size > 0:
        return 0.0
    return float(np.clip((total**2 - square).sum() / pairs / size, 0.0, 1.0))


def choose_noise(
    residual: Float2, unit: Int, wanted: Noise, regressors: int = 0
) -> Literal["rows", "units"]:
    """Return "units" or "rows": as asked, or units from 20 on or where they are seen to depend.

    ``regressors``: a cluster variance of that many free coefficients needs three units for each.
    Where rows of a unit are seen to depend and there are fewer, "rows" is what is left, and it is
    for the caller's check to say that the band does not hold.
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
    enough = units >= max(FEWEST_CLUSTERS, EACH * regressors)
    if units >= MANY and enough:
        return "units"
    depends = any(dependence_p(r, unit) < LEVEL for r in residual.T)
    return "units" if depends and enough else "rows"


def shared_dates_p(
    residual: Float1, cluster: Int, date: Int, rng: np.random.Generator, draws: int = 1999
) -> float:
    """Return the p-value of "clusters that share dates do not move together".

    residual, cluster, date : (n,) of each row. R_cd is the sum of a cluster's residuals in block d
    of dates;

        Q = sum_d ( (sum_c R_cd)^2 - sum_c R_cd^2 ) = sum over pairs of clusters, 2 sum_d R_cd R_c'd

    for blocks of 1, 4, 16, ... dates, as what moves them may last; each Q in standard deviations,
    the largest counts, against the same with each cluster's residuals times a random sign, which
    leaves all that a cluster does within itself. Exact if clusters are independent and each is as
    likely as its negative; else for many clusters. One-sided: moving together is what makes
    variances by cluster too small. 1 where no date is shared. Never below about 2^(1 - clusters).
    Not seen: effects of a date that cancel over clusters, and what is common to all dates.
    """
    code, clusters = consecutive(cluster)
    if len(code) > DATE_ROWS:
        place = rng.permutation(clusters)
        size = np.bincount(code)[np.argsort(place)]
        some = place[code] < max(int((np.cumsum(size) <= DATE_ROWS).sum()), FEWEST_CLUSTERS)
        residual, date = residual[some], date[some]
        code, clusters = consecutive(code[some])
    sums = _sums_by_date(residual, code, date - date.min(), clusters)
    if not sums:
        return 1.0
    # the sum of own squares is the same for every draw: only the first part is compared
    found = np.empty((len(sums), 1 + draws))
    batch = max(DATE_BATCH // max(max(rows.shape) for rows in sums), 1)
    for first in range(0, 1 + draws, batch):
        signs = rng.choice(np.array([-1.0, 1.0]), (clusters, min(batch, 1 + draws - first)))
        if first == 0:
            signs[:, 0] = 1.0
        for k, rows in enumerate(sums):
            found[k, first : first + signs.shape[1]] = (np.asarray(rows @ signs) ** 2).sum(0)
    spread = found.std(1, keepdims=True)
    score = (found - found.mean(1, keepdims=True)) / np.where(spread > 0, spread, 1.0)
    largest = score.max(0)
    return float((largest >= largest[0] - 1e-9).mean())


def _sums_by_date(residual: Float1, code: Int, date: Int, clusters: int) -> list[sparse.csr_array]:
    """Return residuals summed by block of dates and cluster, (blocks, clusters), a size each."""
    out: list[sparse.csr_array] = []
    block = date
    while not out or len(np.unique(block)) >= FEWEST_BLOCKS:
        at, blocks = consecutive(block)
        summed = sparse.csr_array((residual, (code, at)), shape=(clusters, blocks))  # adds up
        there = sparse.csr_array((np.ones(len(code)), (code, at)), shape=(clusters, blocks))
        shared = np.flatnonzero(np.bincount(there.indices, minlength=blocks) > 1)
        if len(shared):
            out.append(summed[:, shared].T.tocsr())
        elif not out:
            break  # no two clusters have a date in common
        block = block // BLOCK
    return out
