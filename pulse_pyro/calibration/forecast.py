"""Rung F, reliability: how far the average of W is from the forecast, bin by bin of forecasts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pulse_pyro._core.arrays import Bool, Float1, Float2, Int
from pulse_pyro._core.errors import DataError
from pulse_pyro._core.seeds import stream
from pulse_pyro.bands.band import check_level
from pulse_pyro.base import Check, Checks
from pulse_pyro.calibration.clustered_means import (
    LEAST_FREEDOM,
    Cells,
    clustered_means,
    clusters_needed,
    freedom_by_cell,
)
from pulse_pyro.calibration.rung import Ask, ErrorRows, Rung, no_rung, percent, rounded_up

if TYPE_CHECKING:
    from pandas import DataFrame

LEAST_BINS, MOST_BINS = 5, 20
ROWS_A_BIN = 30
FEW_CLUSTERS = 30


@dataclass(frozen=True, eq=False)
class Reliability:
    """Mean error of a law given its own forecast, bin by bin, all bins and targets at once.

    With probability ``level``, for every target j and every bin B of its forecast::

        lower <= E[W_j - mu_hat_j(S) | mu_hat_j(S) in B] <= upper

    Attributes
    ----------
    names : of the q targets. spread : (q,) their standard deviations.
    target : (M,) which target a bin belongs to; bins stand target after target, in order of the
        forecast.
    start, stop : (M,) the bin is start < forecast <= stop; the first is open below, the last above.
    first, last : (M,) least and largest forecast met in it; equal where it is one repeated value.
    forecast, outcome, error : (M,) means over its rows; outcome = forecast + error.
    lower, upper : (M,) limits of the mean error.
    rows, clusters, df : (M,) what they were made from. counted : (M,) limits by counts of rare
        values (Clopper and Pearson, design effect) rather than by Student's t.

    Not covered: another mix of contexts online than in the held-out rows, which shifts what a
    forecast stands for; single contexts, or single forecasts, within a bin: errors may cancel
    there. So it is a statement for people and does NOT feed gamma_t.
    """

    level: float
    names: tuple[str, ...]
    spread: Float1
    target: Int
    start: Float1
    stop: Float1
    first: Float1
    last: Float1
    forecast: Float1
    outcome: Float1
    error: Float1
    lower: Float1
    upper: Float1
    rows: Int
    clusters: Int
    df: Float1
    counted: Bool

    @property
    def bound(self) -> Float1:
        """(M,) E_k = max(|lower|, |upper|), in the units of the target."""
        out: Float1 = np.maximum(np.abs(self.lower), np.abs(self.upper))
        return out

    @property
    def sizes(self) -> Float1:
        """(q,) mean of E over the held-out rows, in sds of each target."""
        total = np.bincount(self.target, self.rows * self.bound, len(self.names))
        out: Float1 = total / np.bincount(self.target, self.rows, len(self.names)) / self.spread
        return out

    @property
    def worst(self) -> Float1:
        """(q,) the largest E, in sds of each target."""
        most = [self.bound[self.target == j].max() for j in range(len(self.names))]
        out: Float1 = np.array(most) / self.spread
        return out

    def bound_at(self, forecast: Float2) -> Float2:
        """Return E of the bin each forecast (n, q) falls in, (n, q); NaN where it is NaN."""
        asked = np.asarray(forecast, np.float64)
        if asked.ndim != 2 or asked.shape[1] != len(self.names):
            raise DataError(
                f"Reliability.bound_at: forecast must be (n, {len(self.names)}) with columns "
                f"{self.names}, but its shape is {asked.shape}."
            )
        out = np.full(asked.shape, np.nan)
        for j in range(len(self.names)):
            own = self.target == j
            seen = np.isfinite(asked[:, j])
            bins = np.searchsorted(self.stop[own][:-1], asked[seen, j], side="left")
            out[seen, j] = self.bound[own][bins]
        return out

    @property
    def table(self) -> DataFrame:
        """One line a bin of each target."""
        import pandas as pd

        return pd.DataFrame(
            {
                "target": [self.names[j] for j in self.target],
                "from": self.start,
                "to": self.stop,
                "forecast": self.forecast,
                "outcome": self.outcome,
                "error": self.error,
                "lower": self.lower,
                "upper": self.upper,
                "bound": self.bound,
                "bound in sds": self.bound / self.spread[self.target],
                "rows": self.rows,
                "clusters": self.clusters,
                "df": self.df,
                "by counts": self.counted,
            }
        )


def forecast_rung(rows: ErrorRows, ask: Ask) -> Rung:
    """Bound the mean error given the forecast, in bins, for every target at once (rung F).

    rows : held-out rows (n, q) of clusters the law was not fitted on. ask : level, the probability
    that the bounds of all bins and targets hold, and seed, of the simulated critical value.

    Each forecast is cut into bins of equal mass, five, or 1.2 N^(1/5) where N clusters make that
    more (9 of 20,000); a forecast that is repeated often is a bin of its own; bins whose rows come
    from too few clusters (df < 4) are joined with a neighbour. The cuts hang on forecasts and
    clusters, never on W. Fewer bins make smaller bounds and a coarser claim, since errors of
    opposite sign within a bin cancel: sizes compare only at the same number of bins. In each bin
    the mean error has limits as in :func:`clustered_means`, for every kind of W. Needs independent
    clusters, and nothing of the law. For what is not covered see :class:`Reliability`: shift,
    contexts within a bin; it does not feed gamma_t.
    """
    level = check_level(ask.level, "forecast_rung")
    clusters = rows.clusters
    parts, edges = [], []
    for j in range(len(rows.names)):
        cuts = forecast_bins(rows.forecast[:, j], rows.cluster, clusters)
        code = np.searchsorted(cuts, rows.forecast[:, j], side="left")
        parts.append(Cells(code, len(cuts) + 1, (j,)))
        edges.append(cuts)
    found = clustered_means(
        rows.error,
        rows.forecast,
        rows.cluster,
        parts,
        level=level,
        rng=stream(ask.seed, "forecast rung"),
    )
    if not found.judged.all():
        return _too_few(float(found.df.min()), clusters)
    forecast, first, last = _forecasts(rows.forecast, parts)
    details = Reliability(
        level=level,
        names=rows.names,
        spread=rows.spread,
        target=found.column,
        start=np.concatenate([[-np.inf, *cuts] for cuts in edges]),
        stop=np.concatenate([[*cuts, np.inf] for cuts in edges]),
        first=first,
        last=last,
        forecast=forecast,
        outcome=forecast + found.mean,
        error=found.mean,
        lower=found.low,
        upper=found.high,
        rows=found.rows,
        clusters=found.clusters,
        df=found.df,
        counted=found.counted,
    )
    return Rung(
        name="forecast",
        verdict="stands",
        claim=_claim(details),
        sizes=details.sizes,
        checks=Checks([cluster_check(clusters), _bin_check(details)]),
        details=details,
    )


def forecast_bins(forecast: Float1, cluster: Int, clusters: int) -> Float1:
    """Return where a forecast (n,) is cut into bins, rising: bin k is cut k-1 < forecast <= cut k.

    Cuts lie half-way between forecasts that were met, so that a repeated one is never cut.
    """
    n = len(forecast)
    # a bound falls like the root of rows in a bin: few bins, and more only where clusters abound
    wanted = int(np.clip(round(1.2 * clusters**0.2), LEAST_BINS, MOST_BINS))
    wanted = max(min(wanted, n // ROWS_A_BIN), 1)
    order = np.sort(forecast)
    near = 1e-9 * max(float(order[-1] - order[0]), 1e-300) if n else 0.0
    begins = np.flatnonzero(np.diff(order, prepend=-np.inf) > near)  # first row of each value
    count = np.diff(np.append(begins, n))
    heavy = count >= n / (2.0 * wanted) if wanted > 1 else np.zeros(len(count), np.bool_)
    cut = _equal_mass(count, heavy, n / wanted)
    place = begins[cut]  # a bin begins at these values
    cuts: Float1 = (order[place - 1] + order[place]) / 2.0
    cuts = np.maximum(cuts, order[place - 1])  # rounding must not put a value on the wrong side
    return _joined(cuts, forecast, cluster)


def _equal_mass(count: Int, heavy: Bool, mass: float) -> Int:
    """Return which of the distinct values begin a bin, the first left out.

    Repeated (heavy) values stand alone; each run of others is cut into pieces of about ``mass``.
    """
    run = np.cumsum(np.diff(heavy.astype(np.int64), prepend=heavy[:1]) != 0)
    run = np.where(heavy, np.cumsum(heavy) + len(heavy), run)  # two heavy values are two runs
    first = np.flatnonzero(np.diff(run, prepend=-1) != 0)
    length = np.diff(np.append(first, len(count)))
    total = np.add.reduceat(count, first)
    pieces = np.maximum(np.round(total / mass), 1.0)
    before = np.cumsum(count) - count
    inside = before - np.repeat(before[first], length) + count / 2.0  # rows up to a value's middle
    piece = np.floor(inside / np.repeat(total / pieces, length)).astype(np.int64)
    label = np.repeat(np.arange(len(first)), length) * (int(pieces.max()) + 1) + piece
    return np.flatnonzero(np.diff(label) != 0) + 1


def _joined(cuts: Float1, forecast: Float1, cluster: Int) -> Float1:
    """Join bins with df < 4 with the smaller neighbour, the worst first, until none is left."""
    kept = list(cuts)
    while kept:
        code = np.searchsorted(np.array(kept), forecast, side="left")
        df, rows = freedom_by_cell(cluster, code, len(kept) + 1)
        worst = int(df.argmin())
        if df[worst] >= LEAST_FREEDOM:
            break
        sides = [side for side in (worst - 1, worst + 1) if 0 <= side <= len(kept)]
        other = min(sides, key=lambda side: rows[side])
        del kept[min(worst, other)]
    return np.array(kept)


def _forecasts(forecast: Float2, parts: Sequence[Cells]) -> tuple[Float1, Float1, Float1]:
    """Return mean, least and largest forecast of every bin, (M,) each."""
    out = []
    for part in parts:
        values = forecast[:, part.columns[0]]
        mean = np.bincount(part.code, values, part.many) / np.bincount(part.code)
        ends = np.full((2, part.many), np.inf)
        np.minimum.at(ends[0], part.code, values)
        np.minimum.at(ends[1], part.code, -values)
        out.append(np.stack([mean, ends[0], -ends[1]]))
    mean, first, last = np.concatenate(out, axis=1)
    return mean, first, last


def _too_few(df: float, clusters: int) -> Rung:
    needed = clusters_needed(df, clusters)
    return no_rung(
        "forecast",
        "fails",
        f"Reliability cannot be had from {clusters} clusters of such sizes: their rows are too few "
        "independent pieces for a mean with limits, even in one bin of all forecasts.",
        f"Hold out about {needed} clusters or more, or clusters of more equal size.",
    )


def cluster_check(clusters: int) -> Check:
    """Warn where clusters are few: limits then lean on Student's t."""
    few = clusters < FEW_CLUSTERS
    text = f"{clusters} held-out clusters" + (
        f": fewer than {FEW_CLUSTERS}; the limits lean on Student's t, and cannot be checked."
        if few
        else "."
    )
    return Check("clusters", "warn" if few else "pass", clusters, FEW_CLUSTERS, text)


def _bin_check(found: Reliability) -> Check:
    counted = int(found.counted.sum())
    text = f"{len(found.target)} bins of forecasts, df from {found.df.min():.1f}" + (
        f"; {counted} of them with rare values, by counts." if counted else "."
    )
    return Check("bins", "info", float(found.df.min()), LEAST_FREEDOM, text)


def _claim(found: Reliability) -> str:
    """Say it in one sentence that can be quoted."""
    mean, worst = found.sizes, found.worst
    bins = np.bincount(found.target, minlength=len(found.names))
    each_of = f"each of {bins.max()} bins of its forecasts" if bins.max() > 1 else "all rows"
    start = f"{percent(found.level)}, over {each_of}"
    if len(found.names) > 3:
        return (
            f"{start}, the average of each of {len(found.names)} targets is within "
            f"{rounded_up(mean.max())} sd of the forecast (mean over bins; at worst "
            f"{rounded_up(worst.max())} sd), for all of them at once."
        )
    each = [
        f"{'the average' if j == 0 else 'that'} of {name} is within {rounded_up(mean[j])} sd of "
        f"the forecast (mean over bins; at worst {rounded_up(worst[j])} sd)"
        for j, name in enumerate(found.names)
    ]
    return f"{start}, " + " and ".join(each) + (", all at once." if len(each) > 1 else ".")
