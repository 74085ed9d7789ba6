"""Log-log slopes of means over runs, with an interval."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy import stats

from pulse_pyro.arrays import Float1, Float2, share
from pulse_pyro.errors import SettingError


class Slope(NamedTuple):
    """The power b of y = c x^b, and an interval for it."""

    value: float
    low: float
    high: float


def power_of(x: Float1, y: Float2, *, level: float = 0.95) -> Slope:
    """Fit log E[y] = c + b log x by least squares through the means over runs.

    Parameters
    ----------
    x : (point,) positive sizes. y : (point, run) what each run measured, its means positive;
        run r of one point may depend on run r of another (one archive, one set of rounds), but
        runs must not depend on each other.
    level : of the interval.

    The estimate is sum_k c_k log(mean_r y_kr) with c the least-squares weights. Its interval is a
    Student t over runs of the linearised sum_k c_k y_kr / mean_r y_kr (delta method). It covers
    what runs draw anew and nothing else: not what all runs share, such as one instance, nor a
    power law that bends; with many runs it therefore excludes any power that is not exact. NaN
    where a mean is not positive: no power law goes through it, or there are too few runs.
    """
    x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
    share(level, "power_of: level")
    if x.ndim != 1 or y.ndim != 2 or len(x) != len(y) or y.shape[1] < 2:
        raise SettingError(
            f"power_of: x must be (point,) and y (point, run) with 2 runs or more, but {x.shape} "
            f"and {y.shape} came."
        )
    mean = y.mean(1)
    if not (x > 0).all() or len(np.unique(x)) < 2:
        raise SettingError("power_of: x must be positive with two different sizes.")
    if not (mean > 0).all():
        return Slope(math.nan, math.nan, math.nan)
    at = np.log(x) - np.log(x).mean()
    weight = at / (at @ at)
    runs = y.shape[1]
    value = float(weight @ np.log(mean))
    spread = float((weight @ (y / mean[:, None])).std(ddof=1))
    reach = float(stats.t.ppf((1.0 + level) / 2.0, runs - 1)) * spread / math.sqrt(runs)
    return Slope(value, value - reach, value + reach)
