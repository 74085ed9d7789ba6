"""Which contexts lie near archived ones: by Mahalanobis and by nearest-neighbour distance."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.spatial import cKDTree

from pulse_pyro._core.arrays import Array, Bool, Float1, Float2, Int, share
from pulse_pyro._core.errors import DataError
from pulse_pyro.bands.band import consecutive

POINTS, VALUES, LEAST = 2000, 100_000, 500  # archived contexts kept, their numbers: quick queries
ROWS = 50_000  # rows the centre, the spread and the limits are found on
FOLDS = 5
FLAT = 1e-12  # sd over mean, of a column that does not move
RANK = 1e-8  # of the largest variance of standardised columns, below which a direction is not there
BROKEN = 1e-3  # sds by which a context may leave the directions the archive has
PAIRS = 4_000_000  # distances held at a time
FEW_INPUTS = 8  # up to which a tree beats looking at every pair


@dataclass(frozen=True, eq=False)
class Support:
    """Where an archive has contexts: plain values, so that it can be saved.

    Attributes
    ----------
    mean, sd : (p,) of the archive's columns; sd is 1 for a column that is constant there.
    still : (p,) which columns are constant: there a context must have the same value.
    white : (p, r) turns (x - mean) / sd into r uncorrelated coordinates u of variance 1.
    null : (p, p - r) directions in which the archive does not vary: columns that repeat others.
    points, square : (m, r) up to 2,000 archived contexts, as u, and (m,) their ||u||^2.
    far : largest Mahalanobis distance ||u|| that is inside.
    gap : largest distance min_k ||u - points_k|| that is inside.
    longest : steps of the archive's longest unit; inf where time is not looked at.

    ``far`` and ``gap`` are the ``share`` quantiles of the distances of archived rows from the rows
    of OTHER units, five folds, each limit at half the share left out: about ``share`` of the rows
    of a new unit that is like the archive's are inside. Being near archived contexts makes no
    claim true there: it only says that the archive has looked.
    """

    mean: Float1
    sd: Float1
    still: Bool
    white: Float2
    null: Float2
    points: Float2
    square: Float1
    far: float
    gap: float
    longest: float = float("inf")

    @staticmethod
    def of(
        x: Float2, unit: Int, share: float = 0.99, *, longest: float = float("inf"), seed: int = 0
    ) -> Support:
        """Find it from archived contexts.

        x : (n, p), finite. unit : (n,) unit or cluster of each row, whole numbers >= 0; with one
        unit rows are left out in five runs instead. share : of new rows that should be inside.
        longest : steps of the archive's longest unit. seed : of the rows that are looked at where
        there are more than 50,000, and of the points that are kept.
        """
        _check(x, unit, share)
        rng = np.random.default_rng(seed)
        rows = np.sort(rng.permutation(len(x))[:ROWS])
        some = x[rows]
        fold = _folds(unit[rows], rng)
        each = 1.0 - (1.0 - share) / 2.0
        distance, nearest = [], []
        for k in range(int(fold.max()) + 1):
            there, new = some[fold != k], some[fold == k]
            metric = _Metric.of(there)
            u, holds = metric(new)
            kept = metric(there[_pick(there, rng)])[0]
            # directions the other units do not have are no distance, but those rows are outside
            distance.append(np.where(holds, np.sqrt((u**2).sum(1)), np.inf))
            nearest.append(np.where(holds, _nearest(u, kept, (kept**2).sum(1)), np.inf))
        metric = _Metric.of(some)
        points, _ = metric(some[_pick(some, rng)])
        return Support(
            mean=metric.mean,
            sd=metric.sd,
            still=metric.still,
            white=metric.white,
            null=metric.null,
            points=points,
            square=(points**2).sum(1),
            far=_limit(np.concatenate(distance), each),
            gap=_limit(np.concatenate(nearest), each),
            longest=float(longest),
        )

    def inside(self, x: Float2, time: Array | None = None) -> Bool:
        """Tell which contexts x (n, p) are near archived ones, (n,); NaN is not.

        time : (n,) step of each, from 0; steps beyond the archive's longest unit are outside.
        """
        x = np.asarray(x, dtype=np.float64)
        if x.ndim != 2 or x.shape[1] != len(self.mean):
            raise DataError(
                f"Support.inside: x must be (n, {len(self.mean)}), but its shape is {x.shape}."
            )
        u, holds = _Metric(self.mean, self.sd, self.still, self.white, self.null)(x)
        near: Bool = np.asarray(holds & (np.einsum("ij,ij->i", u, u) <= self.far**2))
        if near.all():
            near = _nearest(u, self.points, self.square) <= self.gap
        elif near.any():
            near[near] = _nearest(u[near], self.points, self.square) <= self.gap
        if time is not None:
            near &= np.asarray(time) < self.longest
        return near


@dataclass(frozen=True, eq=False)
class _Metric:
    mean: Float1
    sd: Float1
    still: Bool
    white: Float2
    null: Float2

    @staticmethod
    def of(x: Float2) -> _Metric:
        mean, sd = x.mean(0), x.std(0)
        still = ~(sd > FLAT * (np.abs(mean) + 1e-300))
        sd = np.where(still, 1.0, sd)
        mean = np.where(still, x[0], mean)  # the value itself, free of rounding
        z = np.where(still, 0.0, (x - mean) / sd)
        values, vectors = np.linalg.eigh(z.T @ z / len(z))
        there = values > RANK * max(float(values[-1]), 1e-300)
        moving = ~still
        null = vectors[:, ~there]
        # still columns are compared as they are, not in sds
        null = null[:, (null[moving] ** 2).sum(0) > 0.5] * moving[:, None]
        return _Metric(mean, sd, still, vectors[:, there] / np.sqrt(values[there]), null)

    def __call__(self, x: Float2) -> tuple[Float2, Bool]:
        """Return u (n, r), and where the directions the archive lacks are not taken, (n,)."""
        z = (x - self.mean) / self.sd
        holds: Bool = np.asarray(np.isfinite(z).all(1))
        if self.still.any():
            stays = np.abs(z[:, self.still]) <= 1e-9 * (np.abs(self.mean[self.still]) + 1e-300)
            holds &= stays.all(1)
        if self.null.shape[1]:
            holds &= (np.abs(z @ self.null) <= BROKEN).all(1)
        u: Float2 = z @ self.white
        return u, holds


def _nearest(u: Float2, points: Float2, square: Float1) -> Float1:
    """Return the distance of each u (n, r) from the nearest of points (m, r): (n,)."""
    if u.shape[1] <= FEW_INPUTS and len(u) * len(points) > PAIRS // 10:
        seen = np.isfinite(u).all(1)
        out = np.full(len(u), np.inf)
        out[seen] = cKDTree(points).query(u[seen])[0]
        return out
    out = np.empty(len(u))
    block = max(PAIRS // max(len(points), 1), 1)
    for start in range(0, len(u), block):
        part = u[start : start + block]
        least = (square - 2.0 * (part @ points.T)).min(1) + np.einsum("ij,ij->i", part, part)
        out[start : start + block] = np.sqrt(np.maximum(least, 0.0))
    return out


def _folds(unit: Int, rng: np.random.Generator) -> Int:
    """Return a fold for each row, whole units together; runs of rows if there is one unit."""
    code, units = consecutive(unit)
    if units == 1:
        runs: Int = np.arange(len(unit)) * FOLDS // len(unit)
        return runs
    fold: Int = (rng.permutation(units) % min(FOLDS, units))[code]
    return fold


def _pick(x: Float2, rng: np.random.Generator) -> Int:
    most = int(np.clip(VALUES // max(x.shape[1], 1), LEAST, POINTS))
    out: Int = rng.permutation(len(x))[:most]
    return out


def _limit(distance: Float1, level: float) -> float:
    """Return the quantile of those distances that are finite, at least a hair above 0."""
    finite = distance[np.isfinite(distance)]
    if not len(finite):
        return 0.0
    # rounding: a context that is archived itself lies at about 1e-8 of its own
    return max(float(np.quantile(finite, level, method="higher")), 1e-6)


def _check(x: Float2, unit: Int, wanted: float) -> None:
    share(wanted, "Support: share")
    if x.ndim != 2 or len(x) < 2 * FOLDS or np.shape(unit) != (len(x),):
        raise DataError(
            f"Support: x must be (n, p) with at least {2 * FOLDS} rows and unit (n,), but got "
            f"{x.shape} and {np.shape(unit)}."
        )
    bad = np.argwhere(~np.isfinite(x))
    if len(bad):
        row, column = bad[0]
        raise DataError(
            f"Support: archived contexts must be finite, but column {column} is "
            f"{x[row, column]} in row {row}; leave out rows that are not complete."
        )
