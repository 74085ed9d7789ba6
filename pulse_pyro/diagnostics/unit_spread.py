"""Is the law too wide for some units and too narrow for others? Spreads of units of their own.

With g = Phi^-1(PIT), standard normal if the law is right, each unit's judged rows are cut in two
halves; L_1, L_2 are the logs of the variances of g about each half's own mean (so a unit's level
does not count), less what the log of a variance of n normal values misses, psi((n - 1) / 2) -
log((n - 1) / 2), and less their mean over all. If units do not differ, the two halves of a unit go
apart by chance alone and L_1 L_2 has mean 0; if they do, its mean is the variance of the logs of
the units' own variances. A one-sided t test over clusters of L_1 L_2, weighted by rows. Halves
rather than all pairs of rows, because spread that comes and goes with a short memory is no unit's
own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy import special

from pulse_pyro._core.arrays import Float1, Int
from pulse_pyro.base import Check, verdict
from pulse_pyro.diagnostics.by_unit import few, unit_mean
from pulse_pyro.diagnostics.form import told_by_form

if TYPE_CHECKING:
    from pulse_pyro.diagnostics.case import HeldOut

MARGINS = (0.15, 0.3)  # sd of the logs of the units' variances that warn, that fail
ROWS = 6  # of a unit, at least: three in each half
LEAST = 1e-4  # of the largest variance
FURTHEST = 3.0  # normal score, so that one row does not make a unit


def ask_unit_spread(case: HeldOut, j: int) -> list[Check]:
    """Ask whether units have spreads of their own."""
    judged = case.judged
    name, looks = case.names[j], len(case.names)
    check = unit_spread_check(name, judged.pit[:, j], judged.unit, judged.cluster, looks)
    return told_by_form(case, j, [check])


def unit_spread_check(name: str, pit: Float1, unit: Int, cluster: Int, looks: int = 1) -> Check:
    """Test that the spread about the law is the same for all units.

    pit, unit, cluster (n,), rows in order of time within a unit. looks : columns of W that are
    asked the same. Units of fewer than 6 rows are left out. NOT seen: spread that differs within a
    unit but not between them (see ``spread``), and a law too narrow for all alike (see ``pit``).
    """
    label = f"unit spread {name}"
    used = np.isfinite(pit)
    g = np.clip(special.ndtri(pit[used]), -FURTHEST, FURTHEST)
    # a cluster of time may cut a unit: then its parts are judged apart
    both = unit[used] * (int(cluster.max(initial=0)) + 1) + cluster[used]
    code = np.unique(both, return_inverse=True)[1]
    order = np.argsort(code, kind="stable")
    g, code, piece = g[order], code[order], cluster[used][order]
    rows = np.bincount(code, minlength=1)
    enough = rows[code] >= ROWS
    if not enough.any():
        why = f"Not judged: no unit has {ROWS} rows."
        return Check(label, "info", float("nan"), MARGINS[1], why)
    start = np.concatenate([[0], np.cumsum(rows)[:-1]])
    half = (np.arange(len(code)) - start[code] >= rows[code] // 2).astype(np.int64)
    key = 2 * code + half
    cells = 2 * len(rows)
    n = np.bincount(key, minlength=cells).astype(np.float64)
    mean = np.bincount(key, g, minlength=cells) / np.maximum(n, 1.0)
    square = np.bincount(key, (g - mean[key]) ** 2, minlength=cells)
    variance = (square / np.maximum(n - 1.0, 1.0)).reshape(-1, 2)
    keep = rows >= ROWS
    weight = rows[keep].astype(np.float64)
    if not variance[keep].max() > 0:
        why = f"Not judged: {name} does not vary within units."
        return Check(label, "info", float("nan"), MARGINS[1], why)
    free = np.maximum(n - 1.0, 1.0).reshape(-1, 2)[keep] / 2.0
    floor = LEAST * variance[keep].max()  # a half in which W never moved has no log
    logs = np.log(np.maximum(variance[keep], floor)) - special.digamma(free) + np.log(free)
    off = logs - (logs.mean(1) * weight).sum() / weight.sum()
    # every row of a unit carries its unit's product, so that long units count by their rows
    product = np.zeros(len(rows))
    product[keep] = off[:, 0] * off[:, 1]
    test = unit_mean(product[code[enough]], piece[enough])
    value = float(np.sqrt(max(test.mean, 0.0)))
    if (why_not := few(test)) is not None:
        return Check(label, "info", value, MARGINS[1], why_not)
    p = min(1.0, (1.0 - test.p_below) * looks)
    word = verdict(p, value, MARGINS)
    text = (
        f"How far units differ in the variance of {name} about the law: sd of its log over units "
        f"({test.units} units, p = {p:.2g}; it fails below 0.001 if the sd is {MARGINS[1]} or "
        "more)."
    )
    if word != "pass":
        text += (
            " Intervals are too wide for some units and too narrow for others: make what sets them"
            " apart an input, or give units a scale of their own in a model file (models/"
            "hierarchical_units)."
        )
    return Check(label, word, value, MARGINS[1], text)
