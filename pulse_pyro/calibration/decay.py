"""A power law of the size of the archive, log y = c - rate log n, and when it meets a target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from pulse_pyro._core.arrays import Float, Float1, Float2
from pulse_pyro._core.errors import DataError
from pulse_pyro.bands.band import check_level

FARTHEST = 1000.0  # times the archive: beyond this a straight line is no forecast
TENFOLD = 10.0  # an interval of needed units that is wider tells nothing
Reach = Literal["reachable", "not reachable", "not known"]
FEWEST = 3  # sizes: two points lie on every line


class Crossing(NamedTuple):
    """Where a decay meets a target: at n, with the interval its band gives; infinite if never."""

    n: float
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class Decay:
    """Straight lines through log y over log n, one an ordering, and what they agree on.

    Attributes
    ----------
    units : (sizes,) n. values : (ordering, sizes) y > 0.
    lines : (ordering, 2) height at ``centre`` and slope of each ordering's least-squares line.
    centre : mean of log n.
    level : of every interval here, pointwise.

    The line is the mean over orderings, which is least squares on all points. Its band is a t
    interval over orderings (orderings - 1 degrees of freedom): the points of one ordering may
    depend on each other in any way, because its subsets are nested.

    Not covered: orderings share units, all of them at the full size, so the band shows how far the
    order and the split of this archive matter, and only in part how another archive would differ.
    In 60 archives from a linear law, eight orderings, 95 % intervals of the rate held in 58, and
    bands at 4 n in 58 where splits differ (mode "split"), in 48 where they do not (mode "all":
    there, take the band for two thirds of what it should be). Nor that log y is straight in log n,
    within the sizes (see ``flattening``) and beyond them.
    """

    units: Float1
    values: Float2
    lines: Float2
    centre: float
    level: float

    @property
    def rate(self) -> float:
        """How fast y falls: y ~ n^-rate."""
        return -float(self.lines[:, 1].mean())

    @property
    def rate_interval(self) -> tuple[float, float]:
        """The t interval of the rate."""
        half = self._t * float(np.sqrt(self._cov[1, 1]))
        return self.rate - half, self.rate + half

    def at(self, n: Float | float) -> Float2:
        """Return lower end, line and upper end at n, (3, ...)."""
        z = np.log(np.asarray(n, dtype=np.float64)) - self.centre
        height, slope = self.lines.mean(0)
        cov = self._cov
        se = np.sqrt(np.maximum(cov[0, 0] + 2.0 * cov[0, 1] * z + cov[1, 1] * z**2, 0.0))
        middle = height + slope * z
        out: Float2 = np.exp(np.stack([middle - self._t * se, middle, middle + self._t * se]))
        return out

    def crossing(self, target: float) -> Crossing:
        """Return the smallest n at which y is at most ``target``, with an interval.

        The interval holds every n whose band contains the target (Fieller): the roots of
        (h - log target + b z)^2 = t^2 Var(h + b z), z = log n - centre. Where the slope's own
        interval contains 0 there is no upper end; where the target is inside the band at the centre
        as well, no lower one either.
        """
        (height, slope), cov, t2 = self.lines.mean(0), self._cov, self._t**2
        above = height - np.log(target)
        point = -above / slope if slope < 0 else np.inf if above > 0 else -np.inf
        a = slope**2 - t2 * cov[1, 1]
        b = above * slope - t2 * cov[0, 1]
        c = above**2 - t2 * cov[0, 0]
        root = np.sqrt(max(b * b - a * c, 0.0))
        if a > 0 and slope < 0:
            low, high = (-b - root) / a, (-b + root) / a
        elif a > 0:  # it grows beyond doubt
            low = high = point
        elif c <= 0:
            low, high = -np.inf, np.inf
        else:
            # two branches, before and after the data; 2c / 2(-b -+ root) is finite where a is 0
            ends = [c / (-b + s * root) if -b + s * root != 0 else s * np.inf for s in (1.0, -1.0)]
            low, high = (max(ends), np.inf) if above > 0 else (-np.inf, min(ends))
        return Crossing(*(_size(z + self.centre) for z in (point, low, high)))

    @property
    def flattening(self) -> float:
        """One-sided p-value of "the decay does not flatten out", from each ordering's bend."""
        from scipy import stats

        bend = np.polyfit(np.log(self.units), np.log(self.values).T, 2)[0]
        se = bend.std(ddof=1) / np.sqrt(len(bend))
        return float(stats.t.sf(bend.mean() / max(se, 1e-300), len(bend) - 1))

    @property
    def _t(self) -> float:
        from scipy import stats

        return float(stats.t.ppf((1.0 + self.level) / 2.0, len(self.lines) - 1))

    @property
    def _cov(self) -> Float2:
        out: Float2 = np.cov(self.lines.T) / len(self.lines)
        return out


def fit_decay(units: Float1, values: Float2, *, level: float = 0.95) -> Decay:
    """Fit log y = c - rate log n to y (ordering, sizes) at n (sizes,), ordering by ordering."""
    n, y = np.asarray(units, dtype=np.float64), np.asarray(values, dtype=np.float64)
    check_level(level, "fit_decay")
    if n.ndim != 1 or len(np.unique(n)) < FEWEST or y.ndim != 2 or y.shape[1] != len(n):
        raise DataError(
            f"fit_decay: values must be (orderings, sizes) at {FEWEST} distinct sizes or more, but "
            "got "
            f"{y.shape} for {len(np.unique(n))} sizes."
        )
    if len(y) < 2 or not (np.isfinite(y) & (y > 0)).all() or not (n > 0).all():
        raise DataError("fit_decay: two orderings or more of finite values > 0 are needed.")
    x = np.log(n)
    centre = float(x.mean())
    slope, height = np.polyfit(x - centre, np.log(y).T, 1)
    return Decay(n, y, np.stack([height, slope], axis=1), centre, level)


def _size(log_n: float) -> float:
    """Return e^log_n, infinite rather than an overflow."""
    return float(np.exp(log_n)) if log_n < 700 else float("inf")


def reach(needed: Crossing, now: float) -> Reach:
    """Tell whether so many units can be thought of, with ``now`` of them.

    Not reachable where even the lower end is beyond 1,000 times as many, or there is none. Not
    known where the interval spans more than tenfold, or n alone is beyond that.
    """
    n, low, high = needed
    if low > FARTHEST * now:
        return "not reachable"
    return "reachable" if n <= FARTHEST * now and high <= TENFOLD * low else "not known"
