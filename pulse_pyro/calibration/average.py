"""Rung A, the average error: how large the part of a law's error is that k functions can see."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy import linalg, stats

from pulse_pyro._core.arrays import Float1, Float2, Float3, Int
from pulse_pyro._core.errors import DataError
from pulse_pyro._core.seeds import stream
from pulse_pyro.bands.band import check_level
from pulse_pyro.base import Checks
from pulse_pyro.calibration.forecast import cluster_check
from pulse_pyro.calibration.rung import Ask, ErrorRows, Rung, no_rung, percent, rounded_up

if TYPE_CHECKING:
    from pandas import DataFrame

KNOTS = (0.05, 0.275, 0.5, 0.725, 0.95)  # five of a natural cubic spline: a line and three bends
REACH = 4.0  # standard deviations at which inputs are cut off: one far row must not decide
AROUND = 106  # functions of the largest basis, where the splines leave room for them
MIXED = 40  # products and waves where they do not
MOST_FUNCTIONS = 250
MOST_PIECES = 500  # independent pieces whose Gram matrices are held at a time
ROWS = 16_384  # worked on at a time
KNOT_ROWS = 50_000  # rows that quantiles are taken of
PER_SD = 1.5  # radians that a wave turns in one standard deviation
# share of a function's mean square that those before it must leave: what is left of a wave among
# too many of them is carried by a few rows far out, and costs more noise than it sees
NEW, NEW_MIX = 1e-4, 1e-2
ONE_PIECE = 0.5  # share of a function's variance that one cluster may carry
TOO_MUCH = 1.0  # sds of W: a basis that would tell a law without error more is not shown
FEWEST = 5  # clusters, for one function
INPUTS, BENDS, WAVES = "each input", "splines of each input", "random waves"
PAIRS, SOME_PAIRS = "products of pairs", "products of some pairs"
FORECASTS, MEAN = "the forecasts", "the mean error"


@dataclass(frozen=True, eq=False)
class SeenFunctions:
    """The k functions b(x) of p inputs in which error is looked for.

    Attributes
    ----------
    mean, sd : (p,) by which inputs are measured; sd 0 for a constant, which gives no function.
    knots : for each input its distinct knots, in standard deviations.
    pairs : (m, 2) which inputs are multiplied. frequency, phase : (p, r) and (r,) of the waves.
    count : of functions laid out: a constant, the inputs, their bends, products, waves.
    kept : (k,) which of them are used, in order: those that do not repeat the ones before.
    """

    mean: Float1
    sd: Float1
    knots: tuple[Float1, ...]
    pairs: Int
    frequency: Float2
    phase: Float1
    count: int
    kept: Int

    def design(self, x: Float2) -> Float2:
        """Return the functions that are used, (n, k), at x (n, p)."""
        live = self.sd > 0
        u = np.clip((x[:, live] - self.mean[live]) / self.sd[live], -REACH, REACH)
        made = [np.ones((1, len(x))), u.T]
        have = 1 + u.shape[1]
        if self.count > have:
            made += [_bends(column, knots) for column, knots in zip(u.T, self.knots, strict=True)]
            have = sum(map(len, made))
        if self.count > have:
            made += [u.T[self.pairs[:, 0]] * u.T[self.pairs[:, 1]]]
            have += len(self.pairs)
        if self.count > have:
            made += [np.cos(self.frequency.T @ u.T + self.phase[:, None])]
        out: Float2 = np.concatenate(made)[self.kept].T
        return out


def _bends(u: Float1, knots: Float1) -> Float2:
    """Return the curved functions of a natural cubic spline at u (n,): (knots - 2, n)."""
    if len(knots) < 3:
        return np.empty((0, len(u)))
    last, before = knots[-1], knots[-2]
    above = np.maximum(u - knots[:, None], 0.0)
    cubes = above * above * above
    wide = last - before
    out: Float2 = cubes[:-2] - np.outer((last - knots[:-2]) / wide, cubes[-2])
    out += np.outer((before - knots[:-2]) / wide, cubes[-1])
    out /= (last - knots[0]) ** 2
    return out


def _functions(
    x: Float2, moments: Float2 | None, rng: np.random.Generator
) -> tuple[SeenFunctions, tuple[int, ...]]:
    """Lay out lines, splines, products and waves over inputs x (n, p); and how many with each."""
    mean, sd = (x.mean(0), x.std(0)) if moments is None else _checked(moments, x.shape[1])
    sd = np.where(sd > 1e-9 * np.abs(mean), sd, 0.0)
    live = sd > 0
    some = x[:: -(-len(x) // KNOT_ROWS), live]
    u = np.clip((some - mean[live]) / sd[live], -REACH, REACH)
    knots = tuple(np.unique(column.round(6)) for column in np.quantile(u, KNOTS, axis=0).T)
    p = u.shape[1]
    splines = 1 + p + sum(max(len(k) - 2, 0) for k in knots)
    room = max(AROUND - splines, MIXED) if p else 0
    every = np.array(np.triu_indices(p, 1)).T
    most = len(every) if len(every) <= room - MIXED // 2 else room // 2
    pairs = every[np.sort(rng.permutation(len(every))[:most])]
    waves = room - len(pairs)
    ends = (1 + p, splines, splines + len(pairs), splines + room)
    functions = SeenFunctions(
        mean=mean,
        sd=sd,
        knots=knots,
        pairs=pairs,
        frequency=rng.standard_normal((p, waves)) * PER_SD / np.sqrt(max(p, 1)),
        phase=rng.uniform(0.0, 2.0 * np.pi, waves),
        count=ends[-1],
        kept=np.arange(ends[-1]),
    )
    return functions, ends


def _checked(moments: Float2, p: int) -> Float2:
    moments = np.asarray(moments, dtype=np.float64)
    if moments.shape != (2, p) or not np.isfinite(moments).all() or (moments[1] < 0).any():
        raise DataError(
            f"average_rung: moments must be mean and standard deviation of {p} inputs, (2, {p}) "
            f"and finite, but got an array of shape {moments.shape}; leave them out to use the "
            "held-out rows' own."
        )
    return moments


class PieceSums(NamedTuple):
    """Sums over the rows of each of N pieces, divided by n."""

    share: Float1  # (N,) of the rows
    gram: Float3  # (N, k, k) of b b'
    score: Float3  # (N, k, q) of b y

    def take(self, kept: Int) -> PieceSums:
        """Return the sums of some functions."""
        return PieceSums(self.share, self.gram[:, kept[:, None], kept], self.score[:, kept])


def _sums(functions: SeenFunctions, x: Float2, y: Float2, piece: Int) -> PieceSums:
    """Add up blocks of rows: memory is that of a block and of the N Gram matrices."""
    n, count = len(x), int(piece.max()) + 1
    k = len(functions.kept)
    order = np.argsort(piece, kind="stable")
    sizes = np.bincount(piece, minlength=count)
    ends = np.cumsum(sizes)
    gram, score = np.zeros((count, k, k)), np.zeros((count, k, y.shape[1]))
    for start in range(0, n, ROWS):
        at = order[start : start + ROWS]
        b, some = functions.design(x[at]), y[at]
        first, last = piece[at[0]], piece[at[-1]]
        for c in range(first, last + 1):
            rows = slice(max(ends[c] - sizes[c] - start, 0), ends[c] - start)
            gram[c] += b[rows].T @ b[rows]
            score[c] += b[rows].T @ some[rows]
    gram /= n
    score /= n
    return PieceSums(sizes / n, gram, score)


def _usable(sums: PieceSums, mixes: int) -> Int:
    """Return the functions, in order, that are new and that no single piece decides.

    mixes : the number of the first product.
    """
    total = sums.gram.sum(0)
    mean, size = total[0], np.diag(total)
    own = np.diagonal(sums.gram, axis1=1, axis2=2)
    around = own - 2.0 * mean * sums.gram[:, 0] + sums.share[:, None] * mean**2
    spread = around.sum(0)
    shared = around.max(0) <= ONE_PIECE * np.maximum(spread, 1e-300)
    shared[0] = True
    left = total.copy()
    kept = []
    for j in np.flatnonzero(shared):
        if left[j, j] > (NEW if j < mixes else NEW_MIX) * size[j]:
            kept.append(int(j))
            left -= np.outer(left[:, j], left[j]) / left[j, j]
    return np.array(kept, dtype=np.int64)


# Whitening on a third of the clusters, set aside, was measured against fits without one cluster at
# a time (200 clusters of 20 rows, 100 functions, noise .46 sd, level .95). A law without error is
# told .13 sd even if the smallest eigenvalue of the Gram (.35), which the whitening then owes, were
# known exactly, and .14 with an estimate of it; here .05. A bend of .17 sd: .38 and .44; here .19.
# So theta' G^-1 theta is estimated as a whole, on all clusters, and leverage is taken out exactly.


def seen_square(sums: PieceSums, gram: Float2, beta: Float2) -> tuple[Float1, Float3]:
    """Return U (q,) and what each piece moves: beta - beta without it, (N, k, q).

    U = sum_c theta_c' beta_-c, beta_-c the least-squares fit of y on b without piece c: every
    piece's error meets a fit that has not seen it, so noise adds nothing to U on average. With
    b whitened by the true Gram it is (||sum g_c||^2 - sum ||g_c||^2) / (N (N - 1)).
    """
    k = len(gram)
    ridge = 1e-10 * np.diag(np.diag(gram))
    without = np.linalg.solve(
        gram + ridge - sums.gram[:, :k, :k], sums.score[:, :k].sum(0) - sums.score[:, :k]
    )
    u: Float1 = np.einsum("ckq,ckq->q", sums.score[:, :k], without)
    return u, beta - without


class _Estimate(NamedTuple):
    """U and what its limit needs, for each of q columns: T = ||beta||^2 in whitened terms."""

    u: Float1  # (q,)
    trace2: Float1  # (q,) tr V^2
    along: Float1  # (q,) variance of beta in its own direction, at least an average one
    uneven: Float1  # (q,) how much clusters differ in the mean square of b'beta, as a share of it
    freedom: float

    def upper(self, level: float) -> Float1:
        """Return upper limits of T, (q,)."""
        t = float(stats.t.ppf(level, self.freedom))
        low = np.maximum(self.u, 0.0)  # a mean square is not negative
        # T = low + t sqrt(2 tr V^2 + 4 T along), solved for T - low
        half = 2.0 * t * t * self.along
        noise = half + np.sqrt(half**2 + 2.0 * low * half + 2.0 * t * t * self.trace2)
        # on the log scale: solved for T as well it would have no solution with few clusters
        mixture = low * np.expm1(np.minimum(t * self.uneven, 50.0))
        out: Float1 = low + np.hypot(noise, mixture)
        return out


def _estimate(sums: PieceSums, k: int) -> _Estimate:
    """Look at the first k functions."""
    gram = sums.gram[:, :k, :k].sum(0)
    factor = linalg.cholesky(gram, lower=True)
    theta = sums.score[:, :k].sum(0)
    beta = linalg.cho_solve((factor, True), theta)
    u, moved = seen_square(sums, gram, beta)
    count, q = len(sums.share), theta.shape[1]
    freedom = float((sums.share**2).sum() ** 2 / (sums.share**4).sum()) - 1.0
    trace2, along, uneven = np.zeros(q), np.zeros(q), np.zeros(q)
    for j in range(q):
        xi = moved[:, :, j] @ factor * np.sqrt((count - 1.0) / count)
        v = xi.T @ xi
        whole, trace = float((v**2).sum()), float(np.trace(v))
        # a cluster's product with itself is mostly noise, which would count k / N too much
        trace2[j] = max(whole - float(((xi**2).sum(1) ** 2).sum()), whole / 4.0)
        b = factor.T @ beta[:, j]
        length = float(b @ b)
        if trace > 0.0 and length > 0.0:
            along[j] = max(float(((xi @ b) ** 2).sum()) / length, whole / trace)
            own = (sums.gram[:, :k, :k] @ beta[:, j]) @ beta[:, j] / length
            uneven[j] = np.sqrt(((own - sums.share) ** 2).sum())
    return _Estimate(u, trace2, along, uneven, max(freedom, 1.0))


@dataclass(frozen=True, eq=False)
class AverageErrors:
    """What rung A was made of: m bases, q targets.

    Attributes
    ----------
    names : of the q targets. kinds : (m) what each basis adds to the one before.
    k : (m,) how many functions each holds, those that only repeat others left out.
    bound : (m, q) upper limit of the root mean square of the error's part in them, in units of W.
    in_sds : (m, q) the same in standard deviations of W.
    level : at which all of them hold at once. clusters : N.
    functions : the largest basis; the smaller ones are its first k functions.
    """

    names: tuple[str, ...]
    kinds: tuple[str, ...]
    k: Int
    bound: Float2
    in_sds: Float2
    level: float
    clusters: int
    functions: SeenFunctions

    @property
    def largest_bound(self) -> Float1:
        """(q,) bound of the largest basis, in units of W."""
        out: Float1 = self.bound[-1]
        return out

    @property
    def table(self) -> DataFrame:
        """One line a basis and target."""
        import pandas as pd

        lines = [
            {
                "k": int(self.k[m]),
                "target": name,
                "bound": float(self.bound[m, j]),
                "in_sds": float(self.in_sds[m, j]),
                "holds": _holds(self.kinds[: m + 1]),
                "cannot_see": _BLIND[self.kinds[m]],
            }
            for m in range(len(self.k))
            for j, name in enumerate(self.names)
        ]
        return pd.DataFrame(lines)


_BLIND = {
    MEAN: "anything but the mean error",
    FORECASTS: "anything but the mean error and a slope in the forecasts",
    INPUTS: "bends, interactions, jumps, and what is not an input of the law",
    BENDS: "interactions, jumps, and what is not an input of the law",
    PAIRS: "interactions that are no products of two inputs, jumps, and what is not an input",
    SOME_PAIRS: "most interactions, jumps, and what is not an input of the law",
    WAVES: "sharp interactions, jumps, and what is not an input of the law",
}


def _holds(kinds: tuple[str, ...]) -> str:
    shown = [kind for kind in kinds if not (kind == INPUTS and BENDS in kinds)]
    return ", ".join(shown if shown[0] == MEAN else ["a constant", *shown])


def average_rung(rows: ErrorRows, ask: Ask, *, moments: Float2 | None = None) -> Rung:
    """Bound the root mean square of the part of a law's error that k functions can see.

    Parameters
    ----------
    rows : held-out rows, n of them in N independent clusters, q targets, p inputs.
    ask.level : probability that every bound shown holds, all k and all targets at once.
    ask.seed : of the random waves, of which pairs are multiplied, and of how clusters are put
        together where there are more than 500.
    moments : (2, p) mean and standard deviation of the inputs in the fit half; the held-out rows'
        own by default.

    With b(x) in R^k, theta = E[b y], G = E[b b'] (rows weighted alike), the claim is about
    T = theta' G^-1 theta, the mean square of the projection of delta(s) = E[W - mu_hat given S] on
    the k functions. U = sum_c theta_c' beta_-c (see :func:`seen_square`) estimates it without
    the upward pull of noise; the limit solves

        T = U + t sqrt(2 tr V^2 + 4 beta'V beta),   ||beta||^2 = T in whitened terms,

    V the leave-one-cluster-out covariance of beta, widened by how much the clusters differ in the
    mean square of b'beta; t has (sum n_c^2)^2 / sum n_c^4 - 1 degrees of freedom, Bonferroni over
    targets and bases. Nested bases: the limit of a larger one also bounds a smaller one. A basis is
    left out if it has more functions than there are clusters, or if a law without error would be
    told more than a standard deviation of W; if all are, the forecasts' lines or the mean remain.

    Not covered: error outside the k functions, which may be of any size (an interaction that no
    product or wave follows); contexts whose distribution shifts; clusters that are not independent.
    Knots and scales come from the inputs of the same rows, and the functions are then taken as
    given.
    """
    level = check_level(ask.level, "average_rung")
    return _stated(rows, _measure(rows, ask.seed, moments), level)


class _Measured(NamedTuple):
    """The functions that the clusters carry, and what is known of the error in each basis."""

    functions: SeenFunctions
    k: Int
    kinds: tuple[str, ...]
    estimates: tuple[_Estimate, ...]


def _stated(rows: ErrorRows, measured: _Measured | None, level: float) -> Rung:
    if measured is None:
        return _too_few(rows.clusters)
    functions, k, kinds, estimates = measured
    q = len(rows.names)
    each = 1.0 - (1.0 - level) / (len(k) * q)
    square = np.stack([estimate.upper(each)[:q] for estimate in estimates])
    in_sds = np.sqrt(np.minimum.accumulate(square[::-1])[::-1])
    details = AverageErrors(
        names=rows.names,
        kinds=kinds,
        k=k,
        bound=in_sds * rows.spread,
        in_sds=in_sds,
        level=level,
        clusters=rows.clusters,
        functions=functions,
    )
    # the next basis, where it is clusters that it lacks
    p = rows.x.shape[1]
    bends, pairs = 1 + 4 * p, p * (p - 1) // 2
    larger = {INPUTS: bends, BENDS: bends + pairs, PAIRS: AROUND, SOME_PAIRS: bends + MIXED}
    more = (
        ""
        if kinds[-1] == WAVES or (wanted := larger.get(kinds[-1], 1 + p)) <= rows.clusters
        else f"About {wanted} clusters or more: a larger basis could then be looked at."
    )
    told = Checks([cluster_check(rows.clusters)])
    claim = _claim(details)
    return Rung("average", "stands", claim, in_sds[-1], remedy=more, checks=told, details=details)


def _measure(rows: ErrorRows, seed: int, moments: Float2 | None) -> _Measured | None:
    _check_finite(rows)
    clusters = rows.clusters
    if clusters < FEWEST:
        return None
    rng = stream(seed, "average")
    piece = rows.cluster
    if clusters > MOST_PIECES:  # groups of independent clusters are independent, and enough
        piece = (rng.permutation(clusters) % MOST_PIECES)[rows.cluster]
    # a column of pure noise beside the targets, half of it the cluster's own: what a law without
    # error would be told
    noise = rng.standard_normal(len(rows.error)) + rng.standard_normal(clusters)[rows.cluster]
    y = np.column_stack([rows.error / rows.spread, noise / np.sqrt(2.0)])
    none = rows.forecast[:, :0]
    return (
        _carried(rows.x, y, piece, moments, rng, clusters, (INPUTS, BENDS, PAIRS, WAVES))
        or _carried(rows.forecast, y, piece, None, rng, clusters, (FORECASTS,))
        or _carried(none, y, piece, None, rng, clusters, (MEAN,))
    )


def _carried(
    x: Float2,
    y: Float2,
    piece: Int,
    moments: Float2 | None,
    rng: np.random.Generator,
    clusters: int,
    kinds: tuple[str, ...],
) -> _Measured | None:
    """Return the bases over x that the clusters can carry; None if there are none.

    Which they are is decided by x and by planted noise, never by the law's errors.
    """
    functions, laid_out = _functions(x, moments, rng)
    live = int((functions.sd > 0).sum())
    if len(functions.pairs) < live * (live - 1) // 2:
        kinds = tuple(SOME_PAIRS if kind == PAIRS else kind for kind in kinds)
    # far more functions than clusters are not worth adding up; a few more may repeat each other
    most = min(MOST_FUNCTIONS, 4 * clusters)
    ends = [end for end in laid_out[: len(kinds)] if end <= most]
    if not ends:
        return None
    functions = replace(functions, count=ends[-1], kept=np.arange(ends[-1]))
    sums = _sums(functions, x, y, piece)
    kept = _usable(sums, laid_out[1])
    ranks = [int((kept < end).sum()) for end in ends]
    sums = sums.take(kept)
    shown, estimates = [], []
    for i, rank in enumerate(ranks):
        # a kind that adds nothing (bends of 0/1 inputs) makes no basis of its own
        if rank > clusters or (i > 0 and rank == ranks[i - 1]):
            continue
        estimate = _estimate(sums, rank)
        if rank > 1 and np.sqrt(estimate.upper(0.95)[-1]) > TOO_MUCH:
            break
        shown.append(i)
        estimates.append(estimate)
    if not shown:
        return None
    names = tuple(MEAN if ranks[i] == 1 else kinds[i] for i in shown)
    k = np.array([ranks[i] for i in shown], dtype=np.int64)
    return _Measured(replace(functions, kept=kept[: k[-1]]), k, names, tuple(estimates))


def _claim(details: AverageErrors) -> str:
    k, largest = int(details.k[-1]), details.in_sds[-1]
    sizes = ", ".join(
        f"{rounded_up(size)} sd of {name}"
        for size, name in zip(largest, details.names, strict=True)
    )
    return (
        f"{percent(details.level)}, the root mean square of the part of the law's error "
        f"that {k} function{'s' if k > 1 else ''} ({_holds(details.kinds)}) can see is at most "
        f"{sizes}; error outside {'these functions' if k > 1 else 'it'} is not seen."
    )


def _too_few(clusters: int) -> Rung:
    return no_rung(
        "average",
        "fails",
        f"The average error is not bounded: {clusters} independent "
        f"cluster{'s are' if clusters != 1 else ' is'} too few to tell error from noise.",
        f"At least {FEWEST} clusters bound the mean error; a basis of k functions needs k or more.",
    )


def _check_finite(rows: ErrorRows) -> None:
    for what, values in (("error", rows.error), ("x", rows.x), ("forecast", rows.forecast)):
        for start in range(0, len(values), ROWS):
            if not np.isfinite(values[start : start + ROWS]).all():
                raise DataError(
                    f"average_rung: {what} has values that are not finite (NaN or infinite); "
                    "leave these rows out, or fill them in the same way as for the law."
                )
