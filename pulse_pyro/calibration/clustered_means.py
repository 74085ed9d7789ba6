"""Means of a law's error in many cells at once, from rows that depend on each other in clusters.

For cell k (a bin of forecasts, a group of rows) the target is delta_k = E[y | cell k], a row drawn
at random; its estimate is the mean m_k of y over the n_k rows there, n_ck of them of cluster c.
With residual sums r_ck = sum of y - m_k over the rows of c in k::

    se_k^2 = sum_c (r_ck / (1 - n_ck / n_k))^2 / n_k^2
    df_k   = (sum_c n_ck^2)^2 / sum_c n_ck^4 - 1
    m_k +- t(c, df_k) se_k

The division by 1 - n_ck / n_k undoes that a cluster pulls the mean towards itself; df_k + 1 is how
many clusters of equal size would be as good. c is the quantile of max_k |Z_k|, Z normal with the
correlation of the estimates over clusters, and t(c, df) has the tail in Student's t that c has in
the normal, so that cells of few clusters get wider limits than cells of many. Sums of skewed or
rare values are skewed too, so the limit on the long side is pushed out: see :func:`_t_limits`.

Where nearly every row of a cell has one and the same value, no variance can be read off: there the
limits are those of Clopper and Pearson with a design effect (Korn and Graubard 1998).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import sparse, stats

from pulse_pyro._core.arrays import Bool, Float1, Float2, Int
from pulse_pyro._core.errors import DataError
from pulse_pyro.bands.critical import quantile, student, sup_draws

DRAWS, BEYOND = 4000, 20  # of the supremum: at least, and of these beyond the quantile
LEAST_FREEDOM = 4.0  # df_k below which a cell is not judged
RARE = 10  # rows of a value other than the usual one that a variance needs
FEW_VALUES = 50  # distinct values up to which the usual one is looked for cell by cell
SKEW_FREEDOM = 10.0  # least df of the quantile that skewness is told at
ROWS_A_VALUE = 5  # rows each of few values has on average; else they are single measurements
LOOK = 2000  # rows at which it is seen whether a target has few values
USUAL = 0.1  # share of rows a value of a continuous target needs to be called usual


class Cells(NamedTuple):
    """Rows sorted into cells that do not overlap; several of these may.

    code : (n,) cell of each row, 0 .. many - 1; -1 where it is in none. columns : the targets
    whose mean is wanted in each of the cells.
    """

    code: Int
    many: int
    columns: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class ClusteredMeans:
    """Simultaneous limits of the mean error of M (cell, target) pairs, at ``level``.

    Attributes
    ----------
    part, cell, column : (M,) which :class:`Cells`, which cell of it and which target; parts in the
        order they came, in each target after target, in each cell after cell.
    mean, low, high : (M,) mean error and its limits; NaN limits where it is not judged.
    rows, clusters, df : (M,) what it was made from.
    judged : (M,) whether there were clusters enough, df >= 4. counted : (M,) limits by counts of
        rare values rather than by Student's t.
    critical : c, on the scale of the normal; the t quantile of each cell has the same tail.

    Not covered: clusters that depend on each other; rows that are missing for a reason that has to
    do with the error; single contexts within a cell; cells chosen by looking at the errors.
    """

    level: float
    part: Int
    cell: Int
    column: Int
    mean: Float1
    low: Float1
    high: Float1
    rows: Int
    clusters: Int
    df: Float1
    judged: Bool
    counted: Bool
    critical: float

    @property
    def bound(self) -> Float1:
        """(M,) largest size the mean error may have, max(|low|, |high|)."""
        out: Float1 = np.maximum(np.abs(self.low), np.abs(self.high))
        return out


def freedom_by_cell(cluster: Int, code: Int, cells: int) -> tuple[Float1, Float1]:
    """Return df_k = (sum_c n_ck^2)^2 / sum_c n_ck^4 - 1 and rows n_k, (K,) each.

    cluster, code : (n,) of each row. df is -1 of a cell without rows.
    """
    pairs = _Pairs.of(cluster, code, cells)
    rows = _sums(pairs.cell, pairs.size, cells)
    return _freedom(*(_sums(pairs.cell, pairs.size**p, cells) for p in (2, 4))), rows


def cell_means(
    values: Float1, cluster: Int, code: Int, cells: int
) -> tuple[Float1, Float1, Float1]:
    """Return mean, standard error and df of values (n,) in each of K cells, (K,) each.

    cluster, code : (n,) of each row. Taken one by one; NaN means where a cell has no rows.
    """
    pairs = _Pairs.of(cluster, code, cells)
    rows = _sums(pairs.cell, pairs.size, cells)
    mean, influence = _centred(values, code, rows, pairs)
    se = np.sqrt(_sums(pairs.cell, influence**2, cells))
    return mean, se, freedom_by_cell(cluster, code, cells)[0]


def clusters_needed(df: float, clusters: int) -> int:
    """Return about how many clusters, of sizes like these, give the least df a cell must have."""
    each = (df + 1.0) / clusters if clusters and df > -1 else 0.0  # of equal size, for one of these
    least = math.ceil(LEAST_FREEDOM + 1.0)
    return max(least, math.ceil(least / each)) if each > 0 else least


def clustered_means(
    error: Float2,
    forecast: Float2,
    cluster: Int,
    parts: Sequence[Cells],
    *,
    level: float,
    rng: np.random.Generator,
) -> ClusteredMeans:
    """Return simultaneous limits of the mean error in every cell of ``parts``.

    error, forecast : (n, q) y and what was forecast, so that the target is their sum. cluster :
    (n,) 0 .. N - 1. level : probability that all limits hold at once. O(n) in rows.
    """
    for name, values in (("error", error), ("forecast", forecast)):
        if not np.isfinite(values.sum()):
            row, column = np.argwhere(~np.isfinite(values))[0]
            raise DataError(
                f"clustered_means: {name} must be finite, but it is {values[row, column]} in row "
                f"{row}, target {column}; leave out rows without W or without a forecast."
            )
    target = error + forecast
    usual = {j: _usual_value(target[:, j]) for part in parts for j in part.columns}
    pieces = [_Piece.of(part, error, target, forecast, cluster, usual) for part in parts]
    total = sum(int(piece.judged.sum()) * len(piece.columns) for piece in pieces)
    alpha = (1.0 - level) / max(total, 1)  # of one cell, where cells are taken one by one
    counted = np.concatenate([piece.counted.ravel() for piece in pieces])
    judged = np.concatenate([np.tile(piece.judged, len(piece.columns)) for piece in pieces])
    smooth = judged & ~counted
    n_clusters = int(cluster.max()) + 1 if len(cluster) else 0
    psi = _stacked([piece.influence(n_clusters) for piece in pieces], smooth)
    critical = 0.0
    if smooth.any():
        draws = max(DRAWS, math.ceil(BEYOND / (1.0 - level)))
        sups = sup_draws((psi.T @ psi).toarray(), draws, rng)
        critical = quantile(sups, 1.0 - alpha * smooth.sum())
    shape = [(i, j, k) for i, p in enumerate(parts) for j in p.columns for k in range(p.many)]
    part, column, cell = (np.array(each, np.int64) for each in zip(*shape, strict=True))
    mean = np.concatenate([piece.mean.ravel() for piece in pieces])
    df = np.concatenate([np.tile(piece.df, len(piece.columns)) for piece in pieces])
    half = np.full((2, len(mean)), np.nan)
    if smooth.any():
        se = np.sqrt(np.asarray(psi.power(2).sum(0)).ravel())
        third = np.asarray(psi.power(3).sum(0), np.float64).ravel()
        half[:, smooth] = _t_limits(critical, df[smooth], se, third, column[smooth])
    low, high = mean + half[0], mean + half[1]
    start = 0
    for piece in pieces:
        here = slice(start, start + piece.mean.size)
        piece.count_limits(low[here], high[here], alpha)
        start = here.stop
    return ClusteredMeans(
        level=level,
        part=part,
        cell=cell,
        column=column,
        mean=mean,
        low=low,
        high=high,
        rows=np.concatenate([np.tile(p.rows, len(p.columns)) for p in pieces]).astype(np.int64),
        clusters=np.concatenate([np.tile(p.clusters, len(p.columns)) for p in pieces]),
        df=df,
        judged=judged,
        counted=counted & judged,
        critical=critical,
    )


def _t_limits(critical: float, df: Float1, se: Float1, third: Float1, column: Int) -> Float2:
    """Return how far the limits lie from the mean, (2, M): below (negative) and above.

    A t statistic of skewed clusters is skewed the other way: its quantile on the long side of the
    data is larger by a (2 t^2 + 1) / 6 (Johnson 1978), a = sum psi^3 / (sum psi^2)^(3/2). A sample
    that missed the long tail has both too small a mean and too small an a, so a is taken from the
    cell or from all cells of the target together, whichever is larger. No limit is ever drawn in.
    """
    reach = student(critical, df)
    cube = se**3
    own = np.divide(third, cube, out=np.zeros_like(se), where=cube > 0)
    size = df + 1.0
    # skewness of one cluster, pooled; a mean of so many has it over the root of their number
    total = _sums(column, size**1.5 * own, int(column.max()) + 1)
    pooled = (total / np.maximum(_sums(column, size, len(total)), 1.0))[column] / np.sqrt(size)
    # few clusters have wide limits by their t already
    at = student(critical, np.maximum(df, SKEW_FREEDOM))
    more = (2.0 * at**2 + 1.0) / 6.0
    sides = [np.maximum(np.maximum(side * own, side * pooled), 0.0) for side in (-1.0, 1.0)]
    return np.stack([-(reach + more * sides[0]) * se, (reach + more * sides[1]) * se])


def _freedom(second: Float1, fourth: Float1) -> Float1:
    safe = np.where(fourth > 0, fourth, 1.0)
    out: Float1 = np.where(fourth > 0, second**2 / safe, 0.0) - 1.0
    return out


def _stacked(blocks: list[sparse.csc_array], keep: Bool) -> sparse.csc_array:
    """Return the kept columns of matrices side by side, (N, kept)."""
    out: sparse.csc_array = sparse.hstack(blocks, format="csc")[:, np.flatnonzero(keep)]
    return out


def _sums(code: Int, values: Float1, many: int) -> Float1:
    """Add values of rows up by code, (many,)."""
    return np.asarray(np.bincount(code, values, many), np.float64)


class _Pairs(NamedTuple):
    """The (cluster, cell) pairs that have rows: where each row goes, and how many there are."""

    row: Int  # (kept rows,) which pair
    cluster: Int  # (P,)
    cell: Int
    size: Float1  # (P,) n_ck

    @classmethod
    def of(cls, cluster: Int, code: Int, cells: int) -> _Pairs:
        flat = cluster * cells + code
        top = int(flat.max()) + 1 if len(flat) else 0
        if top <= 4 * len(flat) + 100_000:  # a table is faster than sorting
            table = np.bincount(flat, minlength=top)
            there = np.flatnonzero(table)
            place = np.empty(top, np.int64)
            place[there] = np.arange(len(there))
            row, count = place[flat], table[there]
        else:
            there, row, count = np.unique(flat, return_inverse=True, return_counts=True)
        return cls(row, there // cells, there % cells, count.astype(np.float64))

    def sums(self, values: Float1) -> Float1:
        """Add values of rows up in each pair, (P,)."""
        return _sums(self.row, values, len(self.size))


@dataclass(frozen=True, eq=False)
class _Piece:
    """One partition of the rows: K cells, T targets."""

    columns: tuple[int, ...]
    pairs: _Pairs
    rows: Float1  # (K,) n_k
    clusters: Int  # (K,)
    df: Float1  # (K,)
    mean: Float2  # (T, K) of the error
    residual: Float2  # (T, P) r_ck / (1 - n_ck / n_k) / n_k
    value: list[_Values]  # (T,)
    counted: Bool  # (T, K)

    @classmethod
    def of(
        cls,
        part: Cells,
        error: Float2,
        target: Float2,
        forecast: Float2,
        cluster: Int,
        usual: dict[int, _Usual],
    ) -> _Piece:
        inside = part.code >= 0
        at = slice(None) if inside.all() else np.flatnonzero(inside)
        code, k = part.code[at], part.many
        pairs = _Pairs.of(cluster[at], code, k)
        rows = _sums(pairs.cell, pairs.size, k)
        squares = [_sums(pairs.cell, pairs.size**power, k) for power in (2, 4)]
        means, residuals, values = [], [], []
        for j in part.columns:
            mean, residual = _centred(error[at, j], code, rows, pairs)
            means.append(mean)
            residuals.append(residual)
            values.append(_Values.of(target[at, j], forecast[at, j], code, rows, pairs, usual[j]))
        df = _freedom(*squares)
        return cls(
            columns=part.columns,
            pairs=pairs,
            rows=rows,
            clusters=np.bincount(pairs.cell, minlength=k),
            df=df,
            mean=np.stack(means),
            residual=np.stack(residuals),
            value=values,
            counted=np.stack([value.rare for value in values]) & (df >= LEAST_FREEDOM),
        )

    @property
    def judged(self) -> Bool:
        """(K,) whether a cell has clusters enough."""
        return np.asarray(self.df >= LEAST_FREEDOM)

    def influence(self, clusters: int) -> sparse.csc_array:
        """Return what each cluster adds to each mean, (N, T K)."""
        k, many = len(self.rows), len(self.columns)
        column = np.concatenate([self.pairs.cell + t * k for t in range(many)])
        row = np.tile(self.pairs.cluster, many)
        return sparse.coo_array(
            (self.residual.ravel(), (row, column)), shape=(clusters, many * k)
        ).tocsc()

    def count_limits(self, low: Float1, high: Float1, alpha: float) -> None:
        """Write limits by counts into low and high, (T K,), where values are rare."""
        k = len(self.rows)
        for t, value in enumerate(self.value):
            cells = np.flatnonzero(self.counted[t])
            if len(cells):
                low[t * k + cells], high[t * k + cells] = value.limits(
                    cells, self.rows, self.df, alpha
                )


def _centred(values: Float1, code: Int, rows: Float1, pairs: _Pairs) -> tuple[Float1, Float1]:
    """Return the mean of each cell, (K,), and what each pair adds to its error, (P,)."""
    safe = np.maximum(rows, 1.0)
    mean = _sums(code, values, len(rows)) / safe
    share = pairs.size / safe[pairs.cell]
    left = np.where(share < 1.0, 1.0 - share, 1.0)  # a cluster alone in its cell is not judged
    total = pairs.sums(values - mean[code])
    return np.where(rows > 0, mean, np.nan), total / left / safe[pairs.cell]


# Values that nearly every row of a cell has.


class _Usual(NamedTuple):
    """What is known of a target's values: all of them if they are few, else the usual one."""

    values: Float1
    few: bool
    lowest: float
    highest: float


def _usual_value(target: Float1) -> _Usual:
    """Look at a target's values, (n,)."""
    if not len(target):
        return _Usual(np.zeros(0), False, 0.0, 0.0)
    lowest, highest = float(target.min()), float(target.max())
    # forecast + error is the target but for rounding
    step = max(abs(lowest), abs(highest), 1e-300) * 1e-9
    some = np.round(target[:: max(len(target) // LOOK, 1)] / step)
    values, count = np.unique(some, return_counts=True)
    if len(values) <= FEW_VALUES:
        every = np.unique(np.round(target / step))
        if len(every) <= max(2, min(4 * FEW_VALUES, len(target) // ROWS_A_VALUE)):
            return _Usual(every * step, True, lowest, highest)
    top = int(count.argmax())
    often = count[top] >= max(USUAL * len(some), RARE)
    usual = values[top : top + 1] * step if often else np.zeros(0)
    return _Usual(usual, False, lowest, highest)


@dataclass(frozen=True, eq=False)
class _Values:
    """The usual value of each cell, how many rows lie below and above it, and how they cluster."""

    rare: Bool  # (K,) fewer than ten rows have another
    usual: Float1  # (K,)
    below: Float1  # (K,) rows
    above: Float1
    ends: tuple[float, float]  # of the target
    two: bool  # the target has two values
    size: Float1  # (K,) mean rows of a cluster met by a row
    alike: float  # correlation of events within clusters
    forecast: Float1  # (K,) mean
    forecast_se: Float1

    @classmethod
    def of(
        cls,
        target: Float1,
        forecast: Float1,
        code: Int,
        rows: Float1,
        pairs: _Pairs,
        known: _Usual,
    ) -> _Values:
        k = len(rows)
        nothing = np.zeros(k)
        ends = (known.lowest, known.highest)
        tolerance = 1e-8 * max(abs(ends[0]), abs(ends[1]), 1e-300)
        usual = _cell_usual(target, code, rows, known)
        away = target - usual[code]
        below = np.bincount(code[away < -tolerance], minlength=k).astype(np.float64)
        above = np.bincount(code[away > tolerance], minlength=k).astype(np.float64)
        rare = (below + above < RARE) & (rows > 0) & np.isfinite(usual)
        if not rare.any():
            return cls(rare, usual, below, above, ends, False, nothing, 0.0, nothing, nothing)
        events = (np.abs(away) > tolerance).astype(np.float64)
        mean, influence = _centred(forecast, code, rows, pairs)
        return cls(
            rare=rare,
            usual=usual,
            below=below,
            above=above,
            ends=ends,
            two=known.few and len(known.values) == 2,
            size=_sums(pairs.cell, pairs.size**2, k) / np.maximum(rows, 1.0),
            alike=_alike(events, code, rows, pairs),
            forecast=mean,
            forecast_se=np.sqrt(_sums(pairs.cell, influence**2, k)),
        )

    def limits(self, cells: Int, rows: Float1, df: Float1, alpha: float) -> tuple[Float1, Float1]:
        """Return limits of the mean error of some cells, each at level 1 - alpha."""
        effect = np.maximum(1.0 + (self.size[cells] - 1.0) * self.alike, 1.0)
        n = rows[cells] / effect
        spread = self.forecast_se[cells]
        moves = spread > 1e-9 * max(abs(self.ends[0]), abs(self.ends[1]))
        # where the mean forecast is an estimate too, half of alpha is for it
        part = np.where(moves, alpha / 2.0, alpha)
        few = stats.t.isf(part / 2.0, np.maximum(rows[cells] - 1.0, 1.0))
        n *= (few / stats.t.isf(part / 2.0, df[cells])) ** 2
        below, above = (events[cells] / rows[cells] for events in (self.below, self.above))
        up, down = self.ends[1] - self.usual[cells], self.usual[cells] - self.ends[0]
        if self.two:  # only one of both can be: limits of one share
            one, other = clopper_pearson(n * (below + above), n, part)
            sign = up - down
            first, last = np.minimum(sign * one, sign * other), np.maximum(sign * one, sign * other)
        else:  # at most so many rows lie below, none of them further than the lowest value seen
            first = -down * clopper_pearson(n * below, n, part)[1]
            last = up * clopper_pearson(n * above, n, part)[1]
        reach = np.where(moves, stats.t.isf(part / 2.0, df[cells]) * spread, 0.0)
        centre = self.usual[cells] - self.forecast[cells]
        return centre + first - reach, centre + last + reach


def _cell_usual(target: Float1, code: Int, rows: Float1, known: _Usual) -> Float1:
    """Return the commonest value of each cell, (K,); NaN where there is none."""
    cells = len(rows)
    if known.few:
        step = np.searchsorted((known.values[1:] + known.values[:-1]) / 2.0, target)
        many = len(known.values)
        table = np.bincount(code * many + step, minlength=cells * many).reshape(cells, many)
        out: Float1 = known.values[table.argmax(1)]
        return out
    mean = _sums(code, target, cells) / np.maximum(rows, 1.0)
    square = _sums(code, (target - mean[code]) ** 2, cells)
    constant = square <= rows * (1e-8 * max(abs(known.lowest), abs(known.highest))) ** 2
    usual = known.values[0] if len(known.values) else np.nan
    return np.where(constant, mean, usual)


def _alike(events: Float1, code: Int, rows: Float1, pairs: _Pairs) -> float:
    """Return how alike events are within clusters, in [0, 1], pooled over cells.

    Moments: n_k^2 se_k^2 = n_k p_k (1 - p_k) (1 + (size_k - 1) rho) on average. With fewer than ten
    events in all nothing can be said: 1, every cluster counts as one row.
    """
    if events.sum() < RARE:
        return 1.0
    share, influence = _centred(events, code, rows, pairs)
    share = np.where(rows > 0, share, 0.0)
    seen = _sums(pairs.cell, influence**2, len(rows)) * rows**2
    alone = rows * share * (1.0 - share)
    size = _sums(pairs.cell, pairs.size**2, len(rows)) / np.maximum(rows, 1.0)
    room = float((alone * (size - 1.0)).sum())
    return min(max(float((seen - alone).sum()) / room, 0.0), 1.0) if room > 0 else 1.0


def clopper_pearson(events: Float1, n: Float1, alpha: Float1) -> tuple[Float1, Float1]:
    """Return the limits of a share at level 1 - alpha, from events of n, which may be fractions.

    low = Beta(alpha / 2; x, n - x + 1), high = Beta(1 - alpha / 2; x + 1, n - x).
    """
    x, rest = np.minimum(events, n), np.maximum(n - events, 0.0)
    with np.errstate(invalid="ignore"):
        low = np.where(x > 0, stats.beta.ppf(alpha / 2.0, np.maximum(x, 1e-12), rest + 1.0), 0.0)
        high = np.where(
            rest > 0, stats.beta.isf(alpha / 2.0, x + 1.0, np.maximum(rest, 1e-12)), 1.0
        )
    return low, high
