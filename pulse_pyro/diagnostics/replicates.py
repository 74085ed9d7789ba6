"""Posterior predictive checks: archives drawn from the law beside the held-out one.

Draw m of all rows shares one posterior draw, so draws[m] is a replicated archive given the same S.
For a statistic f of rows (below, z = (w - c) / s with c, s the centre and sd of all replicates)
    d = f(w) - mean over m of f(w_rep,m),           row by row,
has mean 0 if the law is right. It is judged over units (``by_unit``), not by how many replicates
lie beyond the observed value: that share takes rows of a unit for independent, which a law of W_t
given S_1:t does not promise. No data are used twice: units are held out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pulse_pyro._core.arrays import Float, Float1, Float2, Int
from pulse_pyro.base import Check, verdict, worst_verdict
from pulse_pyro.diagnostics.by_unit import Place, UnitMean, few, unit_mean
from pulse_pyro.diagnostics.form import told_by_form

if TYPE_CHECKING:
    from pulse_pyro.diagnostics.case import HeldOut

MARGINS = (0.02, 0.05)  # in standard deviations of f over replicated rows
TAIL = 0.01  # of the replicates, beyond which a value is extreme
TIES = "zeros"
FAR = 2  # times as often as any other value: then 0 is an atom, not a value like others
MEMORY = "lag-1 product"


class Statistic(NamedTuple):
    """A statistic: observed mean, mean and 95 % range over replicates, deviation in sds of f."""

    name: str
    observed: float
    expected: float
    low: float
    high: float
    size: float
    test: UnitMean


def ask_replicates(case: HeldOut, j: int) -> list[Check]:
    """Ask whether archives drawn from the law look like the held-out one."""
    judged = case.judged
    w, draws = judged.w[:, j], judged.draws[..., j]
    name, looks = case.names[j], len(case.names)
    check = replicate_check(name, w, draws, judged.place, case.extra, judged.cluster, looks)
    return told_by_form(case, j, [check])


def replicate_check(
    name: str,
    w: Float1,
    draws: Float2,
    place: Place,
    extra: float,
    cluster: Int | None = None,
    looks: int = 1,
) -> Check:
    """Compare a few statistics of held-out W with those of replicates given the same S.

    w : (n,); draws : (size, n) at the same rows; place : where they stand; cluster : (n,)
    independent pieces, by default the units; looks : columns of W asked the same. Mean square, mean
    cube, share of extremes (beyond the replicates' 1 and 99 %), product of neighbouring rows and,
    where 0 is an atom of the law or of W, share of zeros; t tests over units, Bonferroni over
    statistics. Where W is rounded (all values are multiples of one step), so are replicates. The
    product sees memory that S does not explain, for which the check only warns: the verdict on it
    is that of ``serial``. Not seen: whatever these five do not show.
    """
    cluster = place.unit if cluster is None else cluster
    units = len(np.unique(cluster))
    statistics = list(_statistics(w, draws, place, cluster, extra))
    worst = min(statistics, key=lambda statistic: (statistic.test.p, -statistic.size))
    if (why := few(statistics[0].test)) is not None:
        return Check(f"replicates {name}", "info", worst.size, MARGINS[1], why)
    p = min(1.0, worst.test.p * len(statistics) * looks)
    words = {
        statistic.name: verdict(statistic.test.p * len(statistics) * looks, statistic.size, MARGINS)
        for statistic in statistics
    }
    if words.get(MEMORY) == "fail":
        words[MEMORY] = "warn"
    word = worst_verdict(words.values())
    shown = "; ".join(
        f"{s.name} {s.observed:.3g} (replicates {s.low:.3g} to {s.high:.3g})" for s in statistics
    )
    text = (
        f"Deviation of held-out {name} from archives drawn by the law, in sds of a row, for the "
        f"clearest statistic, {worst.name} ({units} units, p = {p:.2g} over all). {shown}."
    )
    if word != "pass":
        text += " The law does not make data like these."
    return Check(f"replicates {name}", word, worst.size, MARGINS[1], text)


def _statistics(
    w: Float1, draws: Float2, place: Place, cluster: Int, extra: float
) -> Iterator[Statistic]:
    rows, draws = _rounded_alike(w, draws)
    centre, scale = float(draws.mean()), float(draws.std()) or 1.0
    low, high = np.quantile(draws, [TAIL, 1 - TAIL])
    plain: dict[str, Callable[[Float], Float]] = {
        "mean square": lambda v: ((v - centre) / scale) ** 2,
        "mean cube": lambda v: ((v - centre) / scale) ** 2 * ((v - centre) / scale),  # ** 3 is slow
        "share of extremes": lambda v: ((v < low) | (v > high)).astype(np.float64),
    }
    if (draws == 0).any() or _atom(rows):
        plain[TIES] = lambda v: (v == 0).astype(np.float64)
    for name, of in plain.items():
        yield _one(name, of(rows), of(draws), cluster, extra)
    now, before = place.pairs(1)
    if len(now):
        z, drawn = (rows - centre) / scale, (draws - centre) / scale
        both = drawn[:, now] * drawn[:, before]
        yield _one(MEMORY, z[now] * z[before], both, cluster[now], extra)


def _one(name: str, observed: Float1, drawn: Float2, unit: Int, extra: float) -> Statistic:
    """Judge a row statistic, observed (n,) and drawn (size, n), at n rows of these units."""
    off: Float1 = observed - drawn.mean(0)
    each = drawn.mean(1)
    # replicates vary as independent rows do, and as far as the posterior is unsure
    test = unit_mean(off, unit, extra=extra, least=float(each.std()))
    spread = float(drawn.std()) or float(observed.std()) or 1.0  # what is never drawn has no sd
    size = abs(test.mean) / spread
    low, high = np.quantile(each, [0.025, 0.975])
    return Statistic(
        name=name,
        observed=float(observed.mean()),
        expected=float(each.mean()),
        low=low,
        high=high,
        size=size,
        test=test,
    )


def _rounded_alike(rows: Float1, draws: Float2) -> tuple[Float1, Float2]:
    """Return W (n,) and draws (size, n) on the step of W, the least gap between its values.

    Both as they are if some value is no multiple of it: then W is not rounded.
    """
    gaps = np.diff(np.unique(rows))
    gaps = gaps[gaps > 1e-9 * (float(rows.std()) or 1.0)]  # less is the computer's own rounding
    step = float(gaps.min(initial=np.inf))
    steps = np.round(rows / step)
    if not len(gaps) or not np.allclose(rows / step, steps, 0, 1e-3):
        return rows, draws
    return steps * step, np.round(draws / step) * step


def _atom(rows: Float1) -> bool:
    """Tell whether 0 occurs far more often than any other value."""
    value, count = np.unique(rows, return_counts=True)
    return bool(count[value == 0].sum() > FAR * count[value != 0].max(initial=0))
