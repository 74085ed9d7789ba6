"""Rung R, the free line: how far the law's forecasts are from W, which bounds its error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy import stats

from pulse_pyro._core.arrays import Float1
from pulse_pyro._core.errors import DataError
from pulse_pyro.bands.band import check_level
from pulse_pyro.base import Checks
from pulse_pyro.calibration.forecast import cluster_check
from pulse_pyro.calibration.rung import Ask, ErrorRows, Rung, no_rung, percent, rounded_up

if TYPE_CHECKING:
    from pandas import DataFrame

FEWEST = 6.0  # clusters of equal size
FURTHER = 1.5  # size of the cluster that is added to those seen, as a share of the furthest's


@dataclass(frozen=True, eq=False)
class FreeLine:
    """What rung R was made of: q targets.

    Attributes
    ----------
    names : of the q targets.
    rms : (q,) root mean square of W - mu_hat over the held-out rows.
    upper : (q,) its upper limit, in units of W. in_sds : (q,) the same in its standard deviations.
    explained : (q,) 1 - mean square of W - mu_hat / variance of W, a plain estimate; below 0 where
        the mean of W would be the better forecast.
    level : at which all limits hold at once. clusters : N.
    """

    names: tuple[str, ...]
    rms: Float1
    upper: Float1
    in_sds: Float1
    explained: Float1
    level: float
    clusters: int

    @property
    def largest_bound(self) -> Float1:
        """(q,) what the root mean square of the law's error is at most, in units of W."""
        return self.upper

    @property
    def table(self) -> DataFrame:
        """One line a target."""
        import pandas as pd

        return pd.DataFrame(
            {
                "target": self.names,
                "rms_error": self.rms,
                "upper": self.upper,
                "in_sds": self.in_sds,
                "explained": self.explained,
            }
        )


def free_rung(rows: ErrorRows, ask: Ask) -> Rung:
    """Bound the root mean square of W - mu_hat, and with it that of the law's error.

    rms(delta) <= rms(y), y = W - mu_hat, delta(s) = E[y given S]: what W varies by around its mean
    only adds. rms(y)^2 is a ratio of cluster sums, sum y^2 / sum n_c; its upper limit (q,) is the
    larger of two that allow for skewness, see :func:`upper_ratio`; Bonferroni over q targets.

    Parameters
    ----------
    rows : held-out rows, n of them in N independent clusters, worth six of equal size at least.
    ask.level : probability that the limits of all targets hold. Nothing is drawn.

    Not covered: clusters that depend on each other, contexts that shift, and mean squares that rest
    on clusters too rare to be among the N: with 20 clusters whose intercepts are exponential
    (squared, a tail that 20 draws seldom show) the limit held in about 80 %, not in 95.
    """
    level = check_level(ask.level, "free_rung")
    if not np.isfinite(rows.error).all():
        raise DataError(
            "free_rung: error has values that are not finite (NaN or infinite); leave these rows "
            "out."
        )
    clusters = rows.clusters
    size = np.bincount(rows.cluster, minlength=clusters).astype(np.float64)
    # (sum n)^2 / sum n^2 clusters of equal size would be as good; of 5 such the limit held in 88 %
    if clusters < 2 or size.sum() ** 2 / (size**2).sum() < FEWEST:
        return no_rung(
            "free",
            "fails",
            f"Not even the law's error as a forecast can be bounded: {clusters} clusters of such "
            "sizes are too few independent pieces.",
            "About 10 clusters of like size or more, better 20.",
        )
    q = len(rows.names)
    sd, spread = rows.target.std(0), rows.spread
    each = 1.0 - (1.0 - level) / q
    mean, upper = np.empty(q), np.empty(q)
    for j in range(q):
        y = rows.error[:, j] / spread[j]
        squares = np.bincount(rows.cluster, y * y, minlength=clusters).astype(np.float64)
        mean[j] = squares.sum() / size.sum()
        upper[j] = np.sqrt(upper_ratio(squares, size, each))
    explained = np.where(sd > 0, 1.0 - mean, np.nan)
    line = FreeLine(
        rows.names, np.sqrt(mean) * spread, upper * spread, upper, explained, level, clusters
    )
    sizes = ", ".join(
        f"{rounded_up(u)} sd of {name}" for u, name in zip(upper, rows.names, strict=True)
    )
    claim = (
        f"{percent(level)}, the root mean square of W - forecast, and so that of the "
        f"law's error, is at most {sizes}."
    )
    checks = Checks([cluster_check(clusters)])
    return Rung("free", "stands", claim, upper, checks=checks, details=line)


def upper_ratio(sums: Float1, size: Float1, level: float) -> float:
    """Return an upper limit of E[sum] / E[size] from N clusters, sums >= 0 and sizes > 0, (N,).

    Sums of squares are skewed: where the mean is too low its standard error is too. Three repairs,
    each needed with 20 clusters: t with (sum n_c^2)^2 / sum n_c^4 - 1 degrees of freedom; one more
    cluster like the one that lies furthest above, half as large again (what N clusters did not
    show, the next may); and the larger of the limit on the log scale and of Hall's cubic
    transformation (Hall 1992), which takes the estimated skewness out of t.
    """
    # 20 clusters at 95 %: t(4) noise was covered in 89 % without the further cluster, 93 with a
    # plain copy, 96 with this one; spreads of clusters that are lognormal in 87, 91 and 94
    furthest = int((sums - sums.sum() / size.sum() * size).argmax())
    sums = np.append(sums, FURTHER * sums[furthest])
    size = np.append(size, FURTHER * size[furthest])
    total = size.sum()
    mean = float(sums.sum() / total)
    apart = (sums - mean * size) / total
    square = float((apart**2).sum())
    if square <= (1e-14 * mean) ** 2:
        return mean
    freedom = max(float((size**2).sum() ** 2 / (size**4).sum()) - 1.0, 1.0)
    t = float(stats.t.ppf(level, freedom))
    se = np.sqrt(square * len(size) / (len(size) - 1.0))
    skew = float((apart**3).sum() / square**1.5)
    by_log = mean * np.exp(min(t * se / mean, 50.0))
    if abs(skew) < 1e-6:
        return float(by_log)
    # solves x + skew x^2 / 3 + skew^2 x^3 / 27 + skew / 6 = -t
    x = 3.0 / skew * (np.cbrt(1.0 - skew * (t + skew / 6.0)) - 1.0)
    return float(max(by_log, mean - se * x))
