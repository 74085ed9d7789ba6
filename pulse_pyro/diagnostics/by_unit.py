"""Means over rows, judged by unit: units are independent pieces, rows of one unit need not be.

With total_i the sum of a row statistic d over the rows_i rows of unit i, G units, and unit i's
share of rows h_i = rows_i / sum rows_j,
    mean = sum total_i / sum rows_i,
    error^2 = (G - 1) / G sum ((total_i - mean rows_i) / (1 - h_i))^2 / (sum rows_i)^2,
the jackknife over units: a long unit pulls the mean towards itself, and 1 - h_i makes up for it.
mean / error is compared with Student's t, G* - 1 degrees of freedom, G* = 1 / sum h_i^2 the number
of units of equal length that are worth as much (Satterthwaite's, for independent rows). With equal
lengths this is the t test of unit means, exactly, under any dependence within units. Otherwise it
is an approximation: with PITs correlated by 0 to 0.9 within units it kept its size in simulations
(one unit of 100 rows beside 29 of 10, lengths of ratio 18); below G* = 8 (``few``) no test speaks.
An error below that of independent rows (``least``) is raised to it, or a few units that happen to
agree would look like certainty.

The law was itself estimated. If it is well specified, estimation moves the mean of d by minus the
projection of d on the law's scores, averaged over the fitted units (the information identity): at
most the variance of d, over those units. So error^2 is multiplied by 1 + held-out / fitted
(``extra``, see :func:`estimated`). What is tested is therefore whether the law is wrong beyond what
its own finite archive explains; how far off the fit is, is the question of ``calibrate``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import stats

from pulse_pyro._core.arrays import Float1, Int
from pulse_pyro.base import FittedLaw
from pulse_pyro.base import verdict as verdict

FEWEST = 8  # units of equal length, or as many longer and shorter ones as are worth that


class UnitMean(NamedTuple):
    """Mean of a row statistic, its error over units, p of mean 0 (two-sided), how many units.

    worth : units of equal length that would tell as much, 1 to ``units``.
    """

    mean: float
    error: float
    p: float
    units: int
    worth: float

    @property
    def p_below(self) -> float:
        """Return p of: the mean is not below 0."""
        return self.p / 2.0 if self.mean < 0 else 1.0 - self.p / 2.0

    @property
    def interval(self) -> tuple[float, float]:
        """95 % interval of the mean; infinite for a single unit."""
        if self.units < 2:
            return -np.inf, np.inf
        half = float(stats.t.isf(0.025, self.worth - 1.0)) * self.error
        return self.mean - half, self.mean + half


def unit_mean(d: Float1, unit: Int, *, extra: float = 1.0, least: float = 0.0) -> UnitMean:
    """Test that a row statistic d (n,), NaN where not judged, has mean 0.

    unit : (n,) whole numbers, which rows belong together. extra : error^2 is multiplied by it in p
    (not in ``error``). least : smallest error. One unit: p is 1.
    """
    here = np.isfinite(d)
    rows, total = np.bincount(unit[here]), np.bincount(unit[here], d[here])
    rows, total = rows[rows > 0], total[rows > 0]
    units = len(rows)
    if not units:
        return UnitMean(np.nan, np.nan, 1.0, 0, 0.0)
    mean = float(total.sum() / rows.sum())
    if units < 2:
        return UnitMean(mean, np.nan, 1.0, units, 1.0)
    share = rows / rows.sum()
    worth = float(1.0 / (share**2).sum())
    left = (total / rows.sum() - mean * share) / (1.0 - share)
    error = float(np.sqrt((units - 1) / units * (left**2).sum()))
    error = max(error, least)
    if error > 1e-14 * abs(mean):
        p = float(2.0 * stats.t.sf(abs(mean) / (error * np.sqrt(extra)), worth - 1.0))
    else:
        p = 0.0 if mean else 1.0
    return UnitMean(mean, error, p, units, worth)


class Place(NamedTuple):
    """Where n rows stand: their unit and their step in it, (n,) each, in this order."""

    unit: Int
    step: Int

    def pairs(self, lag: int) -> tuple[Int, Int]:
        """Return the rows that have one of their own unit ``lag`` steps before, and that one."""
        key = self.unit * (int(self.step.max(initial=0)) + 1) + self.step
        at = np.searchsorted(key, key - lag)
        there = (self.step >= lag) & (key[np.minimum(at, len(key) - 1)] == key - lag)
        return np.flatnonzero(there), at[there]


def few(test: UnitMean) -> str | None:
    """Return why a test is not to speak: too few units, or too few that matter; None if it may."""
    if test.worth >= FEWEST - 1e-9:
        return None
    count = f"{test.units} units have rows" if test.units != 1 else "one unit has rows"
    if test.worth < test.units - 0.05:
        count += f", of lengths so unequal that they are worth {test.worth:.1f}"
    return f"Not judged: {count}, and {FEWEST} are needed."


def estimated(fitted: FittedLaw, unit: Int) -> float:
    """Return 1 + held-out / fitted, by units or by rows, whichever is more.

    unit : (n,) the units of the rows that are judged; those of the archive are counted too, not
    its clusters.
    """
    fitted_on = fitted.units if fitted.schema.cluster is None else fitted.schema.units
    units = len(np.unique(unit)) / max(len(fitted_on), 1)
    record = getattr(fitted, "record", None)
    rows = 0.0 if record is None else len(unit) / max(record.rows, 1)
    return float(1.0 + max(units, rows))
