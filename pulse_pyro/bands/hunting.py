"""A test that hunts: boosted trees look for whatever a band leaves, in anything that is known."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy import stats

from pulse_pyro._core.arrays import Bool, Float1, Float2, Int
from pulse_pyro._core.errors import DataError
from pulse_pyro.bands.band import Sample, consecutive
from pulse_pyro.bands.dependence import alike
from pulse_pyro.bands.form import Form, free_of

if TYPE_CHECKING:
    from sklearn.ensemble import HistGradientBoostingRegressor

TREES, LEAVES, FOLDS = 60, 8, 5
FEWEST_CLUSTERS = 10
BINS = 63  # cuts of a column that trees choose from
LEAF_ROWS, RIDGE = 40, 20.0  # a leaf's least rows, and rows' worth of pull towards 0
ROUNDING = 1e-9  # share of a prediction that counts as nothing
SPLIT_ROWS = 2 * LEAF_ROWS  # of fewer no tree is grown: a single leaf would be rounding noise
MOST_ROWS, FEWEST_ROWS = 50_000, 5_000  # of all coordinates together; of one, at least
MANY_CLUSTERS = 200  # of which none is left out: rows of each are, where there are too many
LOOK = 0.2  # p-value below which culprits are looked for
PROBES = 2_000  # rows of a fold on which columns are permuted
MOST_ALIKE = 0.9  # correlation of rows of a stretch that is allowed for
NAMED, CLEAR = 3, 0.25  # culprits named, and their least share of the first one's use


class Hunt(NamedTuple):
    """What the hunt found.

    p : smallest of the coordinates' p-values times their number; NaN where it was not run.
    statistic : the t of that coordinate. culprits : candidates the trees used most, first the most
    useful; empty where p >= .2. note : "" or why it was not run.
    """

    p: float
    statistic: float
    culprits: tuple[str, ...]
    note: str = ""


def hunt(
    sample: Sample,
    form: Form,
    candidates: Float2,
    names: tuple[str, ...],
    rng: np.random.Generator,
    *,
    run: Int | None = None,
) -> Hunt:
    """Test whether anything in ``candidates`` (n, m) tells of what the band leaves of y (n, q).

    sample : the band's own inputs x, y, and as unit the cluster of each row. form : what the band
    can follow, b(x); see :func:`pulse_pyro.bands.form.form_of`. candidates : whatever is known at a
    row; NaN where it is not there. run : (n,) stretch of time of one unit that a row belongs to,
    rows of a stretch in order of time; by default the cluster.

    Clusters are dealt into five folds. For fold j = 2 .. 5: least squares of y on b(x) in the
    EARLIER folds; trees h (60 of 8 leaves) of its residuals on the candidates; in fold j the
    prediction is freed of b(x), g = h - b (b'b)^- b'h, so that sum_i g_i y_i = sum_i g_i eps_i for
    whatever function of the band's form y has. T = sum_c s_c / (sd of s_c sqrt(C)), s_c = sum of
    g_i e_i over the cluster's rows, over the C clusters of folds 2 to 5 (of those only before which
    there are 80 rows, so that a tree can split), is a martingale's last
    value over its spread: one-sided t with (sum_c v_c)^2 / sum_c v_c^2 - 1 degrees of freedom, v_c
    = sum of g_i^2: unequal clusters have fewer than C - 1. Bonferroni over coordinates. Rows of a
    cluster may depend on each other. (k-fold instead of earlier folds would share training
    rows between terms of the sum, and its t has not sd 1.)

    Not covered: misfit the trees cannot learn from these rows; clusters that depend on each other;
    a few clusters that hold most of the rows.
    """
    n, q = sample.y.shape
    if candidates.shape != (n, len(names)):
        raise DataError(
            f"hunt: candidates must be ({n}, {len(names)}), a column for each name, but got "
            f"{candidates.shape}."
        )
    code, clusters = consecutive(sample.unit)
    if clusters < FEWEST_CLUSTERS:
        note = f"not run: it needs {FEWEST_CLUSTERS} clusters, but there are {clusters}"
        return Hunt(float("nan"), float("nan"), (), note)
    place = rng.permutation(clusters)
    rows = some_rows(code, place, max(MOST_ROWS // q, FEWEST_ROWS), rng)
    stretch = code if run is None else consecutive(run)[0]
    fold = (place % FOLDS)[code[rows]]
    learned_from = int((fold < FOLDS - 1).sum())
    if learned_from < SPLIT_ROWS:
        note = (
            f"not run: it needs {SPLIT_ROWS} rows in the earlier folds, about "
            f"{SPLIT_ROWS * FOLDS // (FOLDS - 1)} in all, but there are {learned_from}"
        )
        return Hunt(float("nan"), float("nan"), (), note)
    z = np.where(np.isfinite(candidates[rows]), candidates[rows], np.nan)
    # trees cannot be grown on a column of which the first fold has nothing
    z[:, np.isnan(z[fold == 0]).all(0)] = 0.0
    part = _Part(b=form(sample.x[rows]), z=z, cluster=code[rows], fold=fold, run=stretch[rows])
    from threadpoolctl import threadpool_limits

    trees = int(rng.integers(2**31))
    with threadpool_limits(1):  # small trees: threads would only wait for each other
        found = [_one(part, sample.y[rows, j], trees) for j in range(q)]
        best = min(found, key=lambda each: each.p)
        p = min(best.p * q, 1.0)
        culprits = _culprits(part, best, names, rng) if p < LOOK else ()
    return Hunt(p, best.t, culprits)


class _Part(NamedTuple):
    """The rows that take part: b (n, K), z (n, m), and of each its cluster, fold and stretch."""

    b: Float2
    z: Float2
    cluster: Int
    fold: Int
    run: Int


class _Found(NamedTuple):
    """One coordinate: p, t, what the band left, and of each fold its rows, trees and scale."""

    p: float
    t: float
    residual: Float1
    folds: list[tuple[Bool, HistGradientBoostingRegressor, float, float]]


def some_rows(code: Int, place: Int, most: int, rng: np.random.Generator) -> Int:
    """Return the numbers of at most ``most`` rows: of whole clusters, of few clusters some rows.

    code : (n,) cluster of each row. place : (clusters,) their random order.
    """
    if len(code) <= most:
        return np.arange(len(code))
    size = np.bincount(code)[np.argsort(place)]
    wanted = max(int((np.cumsum(size) <= most).sum()), min(MANY_CLUSTERS, len(size)))
    rows = np.flatnonzero(place[code] < wanted)
    return rows if len(rows) <= most else np.sort(rng.choice(rows, most, replace=False))


def _one(part: _Part, y: Float1, trees: int) -> _Found:
    """Hunt in one coordinate y (n,)."""
    residual = free_of(part.b, y[:, None])[:, 0]
    folds, sums, weights = [], [], []
    for j in range(1, FOLDS):
        before, now = part.fold < j, part.fold == j
        if before.sum() < SPLIT_ROWS:
            continue
        left = free_of(part.b[before], y[before, None])[:, 0]
        share = min(alike(left, part.run[before]), MOST_ALIKE)
        model = _trees(trees).fit(part.z[before], _less_own_level(left, part.run[before], share))
        g = _freed(part, model, now, share)
        spread = np.sqrt((g**2).mean())
        # later folds were learned from more rows: their share grows, as is known beforehand
        scale = float(np.sqrt(j) / spread) if spread > 0 else 0.0
        code, _ = consecutive(part.cluster[now])
        sums.append(np.bincount(code, scale * g * residual[now]))
        weights.append(np.bincount(code, (scale * g) ** 2))
        folds.append((now, model, share, scale))
    s = np.concatenate(sums)
    sd = float(s.std(ddof=1))
    t = float(s.sum() / (sd * np.sqrt(len(s)))) if sd > 0 else 0.0
    v = np.concatenate(weights)
    freedom = max(float(v.sum() ** 2 / (v**2).sum()) - 1.0, 1.0) if v.any() else 1.0
    return _Found(float(stats.t.sf(t, freedom)), t, residual, folds)


def _trees(seed: int) -> HistGradientBoostingRegressor:
    from sklearn.ensemble import HistGradientBoostingRegressor

    return HistGradientBoostingRegressor(
        max_iter=TREES,
        max_leaf_nodes=LEAVES,
        min_samples_leaf=LEAF_ROWS,
        l2_regularization=RIDGE,
        max_bins=BINS,
        early_stopping=False,
        random_state=seed,
    )


def _freed(part: _Part, model: HistGradientBoostingRegressor, now: Bool, alike: float) -> Float1:
    """Return the weights g of a fold's rows: predictions, made steady, freed of the band's form."""
    h = _steadied(model.predict(part.z[now]), part.run[now], alike)
    g = free_of(part.b[now], h[:, None])[:, 0]
    # of predictions that the band can follow, such as one leaf's, rounding is left: no direction
    return g if np.abs(g).max() > ROUNDING * np.abs(h).max() else np.zeros_like(g)


def _less_own_level(e: Float1, run: Int, alike: float) -> Float1:
    """Take off each stretch's own level, as far as it has one, which is noise to the trees."""
    code, _ = consecutive(run)
    count = np.bincount(code)
    share = count * alike / (1.0 - alike + count * alike)
    out: Float1 = e - (share * np.bincount(code, e) / count)[code]
    return out


def _steadied(h: Float1, run: Int, alike: float) -> Float1:
    """Return weights that make sum g e free of most of what rows of a stretch share.

    sum_t h_t / v_t (e_t - phi_t sum_{s > t} e_s) = sum_s g_s e_s, with phi_t e_t's regression on
    the rows AFTER t of its stretch and v_t its error, for rows that correlate by ``alike``. Only
    later rows are taken off, so g_s hangs on predictions up to s alone: where S answers to earlier
    W, taking off the stretch's mean would be biased, this is not.
    """
    if alike <= 0.0:
        return h
    order = np.argsort(run, kind="stable")
    code, _ = consecutive(run[order])
    count = np.bincount(code)
    first = np.cumsum(count) - count
    later = (first + count)[code] - 1 - np.arange(len(h))
    own = 1.0 - alike
    phi = alike / (own + later * alike)
    u = h[order] / (own + own * phi)
    before = np.cumsum(phi * u) - phi * u
    out = np.empty_like(h)
    out[order] = u - (before - before[first][code])
    return out


def _culprits(
    part: _Part, found: _Found, names: tuple[str, ...], rng: np.random.Generator
) -> tuple[str, ...]:
    """Return the columns whose shuffling, between rows of a test fold, costs the statistic most."""
    use = np.zeros(len(names))
    for now, model, _, scale in found.folds:
        rows = rng.permutation(np.flatnonzero(now))[:PROBES]
        z, e = part.z[rows], scale * found.residual[rows]
        plain = model.predict(z)
        for k in range(len(names)):
            kept = z[:, k].copy()
            z[:, k] = rng.permutation(kept)
            use[k] += float(((plain - model.predict(z)) * e).mean())
            z[:, k] = kept
    order = np.argsort(-use)[:NAMED]
    return tuple(names[k] for k in order if use[k] > 0 and use[k] >= CLEAR * use[order[0]])
