"""The estimated value of a policy with an interval over units, and the difference of two."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from pulse_pyro._core.arrays import Float1, share
from pulse_pyro._core.errors import DataError, SettingError
from pulse_pyro.offpolicy.logged import Logged


@dataclass(frozen=True, eq=False)
class Value:
    """Mean reward a decision under a policy, as a log tells it.

    Attributes
    ----------
    estimate, se, low, high, level : the estimate and its interval.
    units, rows : of the log. effective : rows that would tell as much if all weighed the same,
        (sum w)^2 / sum w^2.
    mean_weight : 1 but for chance if propensities are right and overlap holds.
    bias : of clipping, estimated as clipped minus unclipped estimate; 0 without clipping. The
        interval is NOT widened by it: it covers the clipped target.
    left_out : (units,) the estimate without each unit, in the order of their numbers.
    logged : the log, so that only values of one log are subtracted.

    The standard error is the jackknife over units,
    se^2 = (C - 1) / C sum_c (V_(-c) - mean of V_(-c))^2, and the interval V +- t_{C-1} se. For
    units of one row each and equal denominators it is that of a mean. NOT covered: few units of
    very different sizes or weights, where C - 1 degrees of freedom are too many; a heavy weight
    that was never drawn; units that depend on each other.
    """

    estimate: float
    se: float
    low: float
    high: float
    level: float
    units: int
    rows: int
    effective: float
    mean_weight: float
    bias: float
    left_out: Float1 = field(repr=False)
    logged: Logged = field(repr=False)

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        large = ("left_out", "logged")
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name not in large}

    def holds(self, number: float) -> bool:
        """Tell whether the interval contains a number."""
        return self.low <= number <= self.high

    def __repr__(self) -> str:
        return (
            f"Value {self.estimate:.4g}, {self.level:.0%} interval {self.low:.4g} to "
            f"{self.high:.4g} (se {self.se:.3g}; {self.units} units, {self.effective:,.0f} of "
            f"{self.rows:,} rows effective)"
        )


def ratio_value(
    logged: Logged, top: Float1, bottom: Float1, *, weight: Float1, level: float, bias: float = 0.0
) -> Value:
    """Return V = sum top / sum bottom over rows (n,), with its jackknife over units.

    weight : (n,) of the rows, for the effective number of them.
    """
    above, below = (_by_unit(logged, rows) for rows in (top, bottom))
    if len(above) < 2:
        raise DataError(
            "off-policy values: the log has a single unit, so no interval can be told; number the "
            "units (people, sessions, rows) that are independent of each other."
        )
    rest = below.sum() - below
    if (rest <= 0).any():
        raise DataError(
            "off-policy values: all the weight rests on one unit of the log; the policy is too "
            "far from the logging policy."
        )
    left_out = (above.sum() - above) / rest
    return _with_interval(
        float(above.sum() / below.sum()),
        left_out,
        logged,
        level,
        effective=float(weight.sum() ** 2 / (weight**2).sum()),
        mean_weight=float(weight.mean()),
        bias=bias,
    )


def difference(first: Value, second: Value) -> Value:
    """Return V_1 - V_2 of two policies on the same log, with a paired interval over units.

    The jackknife leaves a unit out of both at once, so what they share cancels. ``effective`` is
    the smaller of the two.
    """
    if first.logged is not second.logged:
        raise SettingError("difference: the two values must come from the same Logged.")
    if first.level != second.level:
        raise SettingError(f"difference: levels {first.level} and {second.level} are not the same.")
    return _with_interval(
        first.estimate - second.estimate,
        first.left_out - second.left_out,
        first.logged,
        first.level,
        effective=min(first.effective, second.effective),
        mean_weight=min(first.mean_weight, second.mean_weight),
        bias=first.bias - second.bias,
    )


def averaged(values: Sequence[Value]) -> Value:
    """Return the mean of values of one log that differ in how folds were drawn, V = mean V_k.

    se^2 = mean of se_k^2 + (V_k - V)^2 (Chernozhukov et al. 2018, Econometrics Journal 21, section
    3.4): the draw of folds adds to the error. Differences: subtract first, then average.
    """
    if not values:
        raise SettingError("averaged: at least one value is needed.")
    first = values[0]
    if any(v.logged is not first.logged or v.level != first.level for v in values):
        raise SettingError("averaged: values must come from the same Logged, with the same level.")
    each = np.array([v.estimate for v in values])
    se = float(np.sqrt(np.mean([v.se**2 for v in values] + (each - each.mean()) ** 2)))
    left_out = np.mean([v.left_out for v in values], axis=0)
    middle, reach = float(each.mean()), _quantile(first.level, first.units) * se
    return replace(
        first,
        estimate=middle,
        se=se,
        low=middle - reach,
        high=middle + reach,
        left_out=left_out,
        effective=float(np.mean([v.effective for v in values])),
        mean_weight=float(np.mean([v.mean_weight for v in values])),
        bias=float(np.mean([v.bias for v in values])),
    )


def _quantile(level: float, units: int) -> float:
    from scipy.stats import t

    return float(t.isf((1.0 - share(level, "level")) / 2.0, units - 1))


def _with_interval(
    estimate: float,
    left_out: Float1,
    logged: Logged,
    level: float,
    *,
    effective: float,
    mean_weight: float,
    bias: float,
) -> Value:
    count = len(left_out)
    apart = left_out - left_out.mean()
    se = float(np.sqrt((count - 1) / count * (apart**2).sum()))
    reach = _quantile(level, count) * se
    return Value(
        estimate=estimate,
        se=se,
        low=estimate - reach,
        high=estimate + reach,
        level=level,
        units=count,
        rows=logged.rows,
        effective=effective,
        mean_weight=mean_weight,
        bias=bias,
        left_out=left_out,
        logged=logged,
    )


def _by_unit(logged: Logged, rows: Float1) -> Float1:
    """Sum rows (n,) within units, (C,)."""
    _, code = np.unique(logged.unit, return_inverse=True)
    return np.bincount(code, rows).astype(np.float64)
