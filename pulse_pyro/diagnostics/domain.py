"""Covariate shift: whether online contexts are like those of an archive.

Inputs are put on one scale, g = asinh((x - median) / scale): straight in the middle, logarithmic
far out, so that heavy tails weigh little and a stream far away still stands out. A unit, or an
online stream, is one observation:
    level_j = mean over its rows of g_j,   spread_j = log mean of g_j^2,   joint = log mean of d^2,
d the Mahalanobis distance of g, for a unit by the covariance of the OTHER units, as it is for a
stream. Logs of means rise with the rows averaged, so each stream is set beside units cut to its
own length. With n units and B streams, (mean over streams - mean over units) / (sd of units
sqrt(1/n + 1/B)), with sd averaged over lengths where they differ (:func:`shift`), is compared
with Student's t, n - 1 degrees of freedom: rows of a unit may depend on each other in any way.
Spread and joint are judged upwards alone: a narrower stream is inside.

Inputs that run by the clock, and constants, have no level or spread to shift: they are judged by
whether their values are among the archive's (``clocks``), and take no part in the joint distance. A
context is supported, beside its distance, if an archived one is near: not further, in d, than
contexts of one half of the units are from the other half's, 99.5 % of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats
from scipy.spatial import cKDTree

from pulse_pyro._core.arrays import Bool, Float, Float1, Float2, Float3, Int, whole
from pulse_pyro._core.errors import DataError
from pulse_pyro.base import Check, Checks, Summary, Verdict, picture
from pulse_pyro.data.history import History
from pulse_pyro.data.summary import as_summary
from pulse_pyro.diagnostics.by_unit import FEWEST, verdict
from pulse_pyro.diagnostics.clocks import clock_groups, seen_values
from pulse_pyro.diagnostics.result import Diagnostics

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

# Units and online streams as single observations: what the monitor of contexts compares.


RIDGE = 1e-3  # share of each variance added to it: lags of a smooth series nearly repeat


class Shift(NamedTuple):
    """How far streams are from units, and p of no shift."""

    size: float
    p: float


def shift(units: Float2, streams: Float1, row_sd: float) -> Shift:
    """Return the t test of streams against units: two-sided with a row_sd, upwards without.

    streams : (B,). units : (n, B), units cut to the length of each stream, NaN where too short.
    With m_b, sd_b over the n_b units of column b, error^2 = (mean_b sd_b / sqrt n_b)^2 + mean_b
    sd_b^2 / B: the means m_b, of the same units, count as one. Student's t, least n_b - 1.
    """
    count = np.isfinite(units).sum(0)
    least = int(count.min())
    mean = np.where(np.isfinite(units), units, 0.0).sum(0) / np.maximum(count, 1)
    apart = float((streams - mean).mean()) if least else np.nan
    if row_sd > 0:
        size, t, sides = abs(apart) / row_sd, abs(apart), 2.0
    else:
        size, t, sides = apart / 2.0, apart, 1.0
    if least < 2:
        return Shift(size, 1.0)
    square = np.where(np.isfinite(units), (units - mean) ** 2, 0.0).sum(0) / (count - 1)
    error = float(np.sqrt(np.sqrt(square / count).mean() ** 2 + square.mean() / len(streams)))
    if not error > 1e-12:  # a constant input
        return Shift(np.inf, 0.0) if abs(apart) > 1e-9 else Shift(0.0, 1.0)
    return Shift(size, float(sides * stats.t.sf(t / error, least - 1)))


def whitening(gram: Float2, count: int) -> Float2:
    """Return A with A A' the inverse of the covariance, a ridge added; constants are left out."""
    cov = gram / max(count, 1)
    sd = np.sqrt(np.diag(cov))
    keep = sd > 1e-9
    inverse = np.where(keep, 1.0 / np.where(keep, sd, 1.0), 0.0)
    value, vector = np.linalg.eigh(cov * np.outer(inverse, inverse) + RIDGE * np.eye(len(cov)))
    out: Float2 = inverse[:, None] * vector / np.sqrt(value)
    return out


class Pieces(NamedTuple):
    """Streams cut to lengths that units have: x (piece, length, p), NaN after a piece's end.

    owner : (piece,), the stream of each. lengths : (stream,), rows of each of its pieces.
    """

    x: Float3
    owner: Int
    lengths: Int

    def mean(self, values: Float1) -> Float1:
        """Average a figure of pieces (piece,) over those of each stream, (stream,)."""
        return np.asarray(np.bincount(self.owner, values) / np.bincount(self.owner))


def pieces(x: Float3, longest: int) -> Pieces:
    """Cut the complete rows of streams x (stream, time, p) into pieces of ``longest`` rows at most.

    Pieces of a stream are equally long; fewer rows than it has pieces are left out at its end.
    """
    parts, owner, lengths = [], [], []
    for b, rows in enumerate(row[np.isfinite(row[:, 0])] for row in x):
        count = -(-len(rows) // longest)
        lengths.append(len(rows) // count)
        parts += list(rows[: count * lengths[-1]].reshape(count, lengths[-1], -1))
        owner += [b] * count
    out = np.full((len(parts), max(lengths), x.shape[-1]), np.nan)
    for k, part in enumerate(parts):
        out[k, : len(part)] = part
    return Pieces(out, np.array(owner), np.array(lengths))


def usual_length(rows: Int, fewest: int) -> int:
    """Return how many rows at least half of the units, and ``fewest`` if there are, have.

    rows : (unit,) how many each has.
    """
    falling = np.sort(rows)[::-1]
    return int(falling[min(len(rows), max(fewest, (len(rows) + 1) // 2)) - 1])


def level(values: Float2) -> Float1:
    """Mean over seen rows, NaN for a unit without."""
    here = np.isfinite(values)
    count = here.sum(1)
    total = np.where(here, values, 0.0).sum(1)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def levels_at(values: Float2, lengths: Int) -> Float2:
    """Mean over the first ``lengths`` (stream,) rows, (unit, stream); NaN where too short.

    values : (unit, row), NaN after a unit's last row.
    """
    total = np.cumsum(values, axis=1)[:, lengths - 1]
    return np.asarray(total / lengths)


def log_of(mean: Float) -> Float:
    """Log of a mean of squares, which may be 0. It rises with the rows averaged (Jensen)."""
    return np.asarray(np.log(mean + 1e-12))


def share_of(outside: Bool, x: Float3) -> float:
    """Share of complete rows of x (stream, time, p) that are outside (stream, time)."""
    here = np.isfinite(x[..., 0])
    return float(outside[here].mean())


RANGE = 0.99  # of the archive's rows lie inside, input by input, and jointly
MARGINS = (0.1, 0.25)  # shifts, in row sds (level) or log sds (spread), that warn, that fail
MOSTLY = 0.5  # share of rows outside that is told whatever the test says
UNKNOWN = (0.0, 0.1)  # shares of rows with values of a clock or constant never seen: warn, fail
NEIGHBOURS = 4000  # archived contexts kept to look for near ones
SUPPORT = 0.995  # of one half's contexts have one of the other half's as near


@dataclass(frozen=True, eq=False)
class Domain:
    """Where contexts of an archive lie.

    Attributes
    ----------
    x : (rows, p) the summary of S at every row where it is complete, unit after unit.
    offsets : (units + 1,) unit i has the rows offsets[i] to offsets[i + 1] - 1; units without a
        complete row are left out.
    names : p inputs. summary : what is taken from the past of online streams.
    clocks : groups of inputs that run by the clock, by number; see ``clocks``.
    steps : steps of the longest unit; 0 where not known.

    Make one with :meth:`of`, from the units a law was judged or calibrated on, and ``check`` online
    streams against it. Nothing is padded to the longest unit.

    >>> import pulse_pyro as pp
    >>> made = pp.envs.w_times_action().archive(units=40, length=30, rng=pp.stream(0, "archive"))
    >>> domain = pp.Domain.of(made, pp.Lags(2))
    >>> domain.check(made.grid.s[:3]).verdict, domain.check(made.grid.s[:3] + 2).verdict
    ('pass', 'fail')
    """

    x: Float2
    offsets: Int
    names: tuple[str, ...]
    summary: Summary
    clocks: tuple[tuple[int, ...], ...] = ()
    steps: int = 0

    @classmethod
    def of(cls, history: History, summary: int | Summary) -> Domain:
        """Return the domain of the contexts of ``history`` under a summary, e.g. law.summary."""
        past = as_summary(summary, "Domain.of")
        rows = history.rows(past, holes="w")  # refuses, with a sentence, if no row is complete
        starts = np.flatnonzero(np.diff(rows.unit, prepend=-1))
        clocks = clock_groups(history.schema, len(past.names), rows.x, rows.unit, rows.time)
        return cls(
            x=rows.x,
            offsets=np.append(starts, len(rows.x)),
            names=rows.x_names,
            summary=past,
            clocks=clocks,
            steps=int(history.step.max()) + 1,
        )

    def check(self, s: ArrayLike, *, looks: int = 1) -> Diagnostics:
        """Judge online contexts: one check for each input, then all jointly.

        Parameters
        ----------
        s : (stream, time, s_dim), each stream a unit of its own, or (time, s_dim) for one; NaN =
            not seen. Lengths may differ: a stream is compared with units cut to its length. One
            longer than half of the units is cut into pieces, and the mean of their figures counts
            once, which makes the test cautious.
        looks : how often a growing stream will be looked at, in all. p-values are multiplied by
            it; looking k times with looks=1 gives up to k times as many false alarms.

        The figure is the share of online rows outside the central 99 % of the archive's. A check
        warns at p < 0.01, fails at p < 0.001 (over inputs and looks), if the shift is at least 0.1
        or 0.25 standard deviations. With few streams a shift must exceed what sets units apart. It
        also warns where most rows lie outside: a fact, not a test, which units that hardly vary
        within themselves meet 2 times in n + 1 without any shift. Relies on levels and log spreads
        of units being about normal: where those are Student-t (3 df) with 30 units or fewer, the
        joint check warns up to 3 times in 100. Clocks and constants warn where a value is new, and
        fail where a tenth of the rows has such values. Where streams last longer than the archive's
        longest unit, that is told. Not seen: shifts of neither, and of W given S.
        """
        whole(looks, "Domain.check: looks", 1)
        x = self._online(s)
        x = x[np.isfinite(x[..., 0]).any(1)]
        if not len(x):
            raise DataError(
                f"Domain.check: no row of s is complete; {self.summary!r} needs "
                f"{self.summary.memory} rows in a row."
            )
        cut = pieces(self._standard(x), usual_length(np.diff(self.offsets), FEWEST))
        longest = int(cut.lengths.max())
        units = self._first_rows(self._g, longest)
        outside = (x < self.low) | (x > self.high)
        checks = []
        fixed = self._fixed(x)
        for j, name in enumerate(self.names):
            if j in fixed:
                checks.append(self._value_check(name, share_of(~fixed[j], x), len(x)))
                continue
            unit, g = units[..., j], cut.x[..., j]
            middle = shift(levels_at(unit, cut.lengths), cut.mean(level(g)), self._row_sd[j])
            wide = log_of(levels_at(unit**2, cut.lengths))
            spread = shift(wide, cut.mean(log_of(level(g**2))), 0.0)
            worst = min(middle, spread, key=lambda test: test.p)
            p = 2.0 * worst.p * len(self.names) * looks
            checks.append(self._check(name, share_of(outside[..., j], x), worst.size, p, len(x)))
        streams_far = cut.mean(log_of(level(self._distance(cut.x, self._whiten))))
        units_far = log_of(levels_at(self._first_rows(self._far, longest), cut.lengths))
        joint = shift(units_far, streams_far, 0.0)
        share = share_of(~self._supported(x), x)
        checks += self._late(x)
        checks.append(self._check("jointly", share, joint.size, joint.p * looks, len(x)))
        return Diagnostics(Checks(checks))

    def inside_at(self, s: ArrayLike) -> Bool:
        """Tell which contexts, (stream, time), lie in the archive's 99 % range, jointly and each.

        That is: each input in its range, clocks and constants at values the archive has, jointly no
        further from its centre than 99 % of its rows, with an archived context near, and no later
        in the stream, whose first row is step 0, than its longest unit lasts. Rows that are not
        complete count as outside.
        """
        x = self._online(s)
        fixed = self._fixed(x)
        inside = self._supported(x)
        for j in range(len(self.names)):
            within = (x[..., j] >= self.low[j]) & (x[..., j] <= self.high[j])
            inside &= fixed.get(j, within)
        if self.steps:
            inside[:, self.steps :] = False
        return inside

    @cached_property
    def low(self) -> Float1:
        """(p,) lower end of the central 99 % of rows."""
        return np.asarray(np.quantile(self.x, (1 - RANGE) / 2, axis=0))

    @cached_property
    def high(self) -> Float1:
        """(p,) upper end."""
        return np.asarray(np.quantile(self.x, (1 + RANGE) / 2, axis=0))

    @property
    def table(self) -> DataFrame:
        """One line per input: the range of the archive's rows."""
        import pandas as pd

        columns = {"low": self.low, "median": self._scale[0], "high": self.high}
        return pd.DataFrame(columns, index=pd.Index(self.names, name="input"))

    def plot(self, s: ArrayLike | None = None, ax: Axes | None = None) -> Axes:
        """Draw the range of every input, and where online contexts s lie, if given."""
        return picture("domain_plot")(self, None if s is None else self._online(s), ax)

    def __repr__(self) -> str:
        lines = [
            f"  {name}: {low:.4g} to {high:.4g}"
            for name, low, high in zip(self.names[:9], self.low, self.high, strict=False)
        ]
        more = [f"  ... and {len(self.names) - 9} more, see .table"] if len(self.names) > 9 else []
        head = f"Domain: {len(self.x)} contexts of {self._units} units, central 99 % of"
        return "\n".join([head, *lines, *more])

    @property
    def _units(self) -> int:
        return len(self.offsets) - 1

    def _first_rows(self, values: Float, longest: int) -> Float:
        """Return each unit's first values, (rows, ...) -> (unit, longest, ...), NaN after its last.

        No piece is longer than half of the units: twice the rows at most are held.
        """
        row = self.offsets[:-1, None] + np.arange(longest)
        out = values[np.minimum(row, len(values) - 1)]
        out[row >= self.offsets[1:, None]] = np.nan
        return np.asarray(out)

    @cached_property
    def _scale(self) -> Float2:
        """(2, p) median, and half the central 68 % range or else the sd; 1 for constants."""
        low, median, high = np.quantile(self.x, [0.16, 0.5, 0.84], axis=0)
        scale = (high - low) / 2
        scale = np.where(scale > 0, scale, self.x.std(0))
        return np.stack([median, np.where(scale > 1e-10 * np.abs(median), scale, 1.0)])

    def _standard(self, x: Float) -> Float:
        # clocks are 0 everywhere: constants, which no distance sees
        return np.asarray(np.arcsinh((x - self._scale[0]) / self._scale[1]) * self._free)

    @cached_property
    def _g(self) -> Float2:
        return self._standard(self.x)

    @cached_property
    def _row_sd(self) -> Float1:
        return np.asarray(self._g.std(0))

    @cached_property
    def _mean(self) -> Float1:
        return np.asarray(self._g.mean(0))

    @cached_property
    def _grams(self) -> Float3:
        """(unit, p, p) sums of products of g about its mean over all rows."""
        return np.stack([g.T @ g for g in self._by_unit(self._g - self._mean)])

    @cached_property
    def _whiten(self) -> Float2:
        return whitening(self._grams.sum(0), len(self.x))

    @cached_property
    def _far(self) -> Float1:
        """(rows,) squared distance of every row, by the covariance of the other units."""
        if self._units < 2:
            return self._distance(self._g, self._whiten)
        total, count = self._grams.sum(0), len(self.x)
        return np.concatenate(
            [
                self._distance(g, whitening(total - gram, count - len(g)))
                for g, gram in zip(self._by_unit(self._g), self._grams, strict=True)
            ]
        )

    def _by_unit(self, values: Float2) -> list[Float2]:
        return np.split(values, self.offsets[1:-1])

    @cached_property
    def _limit(self) -> float:
        return float(np.quantile(self._far, RANGE))

    @cached_property
    def _free(self) -> Float1:
        """(p,) 1 for inputs that may shift, 0 for those that run by the clock."""
        out = np.ones(len(self.names))
        out[[j for group in self.clocks for j in group]] = 0.0
        return out

    def _fixed(self, x: Float3) -> dict[int, Bool]:
        """Return for each clock and constant, by number, where (stream, time) it is known."""
        constant = np.flatnonzero((self._row_sd <= 1e-9) & (self._free > 0))
        out: dict[int, Bool] = {}
        for group in (*self.clocks, *((int(j),) for j in constant)):
            columns = x[..., list(group)]
            known = seen_values(self.x[:, list(group)], columns.reshape(-1, len(group)))
            out |= dict.fromkeys(group, known.reshape(x.shape[:-1]))
        return out

    @cached_property
    def _neighbours(self) -> tuple[cKDTree | None, float]:
        """Contexts of every other unit, and how far those of the others are from them."""
        whose = np.repeat(np.arange(self._units), np.diff(self.offsets)) % 2
        if self._units < FEWEST:
            return None, np.inf
        sides = []
        for side in (0, 1):
            rows = np.flatnonzero(whose == side)
            rows = rows[:: -(-len(rows) // NEIGHBOURS)]
            sides.append((self._g[rows] - self._mean) @ self._whiten)
        tree = cKDTree(sides[0])
        return tree, float(np.quantile(tree.query(sides[1])[0], SUPPORT))

    def _supported(self, x: Float3) -> Bool:
        """Tell which contexts (stream, time) are not far from the centre and have a near one.

        Rows that are not complete are not supported.
        """
        g = self._standard(x)
        out = np.asarray(self._distance(g, self._whiten) <= self._limit)
        tree, furthest = self._neighbours
        if tree is not None and out.any():
            out[out] = tree.query((g[out] - self._mean) @ self._whiten)[0] <= furthest + 1e-12
        return out

    def _distance(self, g: Float, whiten: Float2) -> Float:
        return np.asarray((((g - self._mean) @ whiten) ** 2).sum(-1))

    def _online(self, s: ArrayLike) -> Float3:
        wide = len(self.names) // len(self.summary.names)
        wanted = f"Domain: s must be (stream, time, {wide}) or (time, {wide}), NaN where not seen"
        try:
            series = np.asarray(s, np.float64)
        except (TypeError, ValueError) as error:
            raise DataError(
                f"{wanted}, but it is not an array of numbers ({error}); put streams of different "
                "lengths into one array, NaN after the end of each."
            ) from error
        shape = series.shape
        series = series[None] if series.ndim == 2 else series
        if series.ndim != 3 or series.shape[-1] != wide:
            raise DataError(f"{wanted}, but its shape is {shape}.")
        if not series.shape[1]:
            raise DataError(f"{wanted}, but it has no rows: its shape is {shape}.")
        x = np.array(self.summary(series))
        x[~np.isfinite(x).all(-1)] = np.nan
        return x

    def _late(self, x: Float3) -> list[Check]:
        """Say how many rows come later than the archive's longest unit lasts; nothing if none."""
        here = np.isfinite(x[..., 0])
        late = float(here[:, self.steps :].sum() / here.sum()) if self.steps else 0.0
        if not late:
            return []
        text = (
            f"Share of online rows later than the archive's longest unit lasts ({self.steps} "
            "steps): what a law says of them is extrapolated in time, and they count as outside."
        )
        return [Check("domain time", "info", late, 0.0, text)]

    def _value_check(self, name: str, share: float, streams: int) -> Check:
        """Judge a clock or constant by the share of rows whose value the archive does not have."""
        word: Verdict = "pass"
        if share > UNKNOWN[0]:
            word = "fail" if share >= UNKNOWN[1] else "warn"
        text = (
            f"Share of online rows of {streams} stream(s) with a value the archive does not have; "
            "it runs by the clock, or is constant there, so nothing else is asked."
        )
        if word != "pass":
            text += " Collect such times in the archive, or keep to those it has."
        return Check(f"domain {name}", word, share, UNKNOWN[1], text)

    def _check(self, name: str, share: float, size: float, p: float, streams: int) -> Check:
        p = min(1.0, p)
        word: Verdict = verdict(p, size, MARGINS) if self._units >= FEWEST else "info"
        text = f"Share of online rows of {streams} stream(s) outside the archive's 99 % range; "
        if word == "info":
            text += f"no test of a shift: {self._units} units, and {FEWEST} are needed."
        else:
            text += f"p of no shift {p:.2g}, by unit ({self._units} units)."
        if share > MOSTLY and word in ("pass", "info"):
            word = "warn"
        if word in ("warn", "fail"):
            text += (
                " Bounds and checks speak of the archive's contexts: calibrate on units like these,"
                " or widen the errors."
            )
        return Check(f"domain {name}", word, share, 1 - RANGE, text)
