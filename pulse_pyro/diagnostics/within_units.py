"""Do all rows of a unit depend on each other? What a band asks before it trusts its rows.

``serial`` looks at neighbours. A unit with a level of its own, or noise with a long memory, shows
far more clearly in ALL pairs of its rows, which is what a band's choice of noise looks at
(``bands.dependence``). With e what the law leaves after a regression on powers of its inputs,
h = z (Z'Z)^-1 z' and v_kl = (e_k + h_kl e_l / (1 - h_ll)) e_l as in ``serial``,
    Q = sum over units of sum over k != l of v_kl
has mean 0 if rows of a unit are independent given the inputs. Its variance and third cumulant are
then, with P_r = sum of e^(2r) over a unit's rows,
    sum over units 2 (P_1^2 - P_2)   and   sum over units 8 (P_1^3 - 3 P_1 P_2 + 2 P_3),
whatever the variances of the rows, and p is the upper tail of the gamma law with these three
moments: Q is a sum of squares, and a normal tail (the band's own p, made for a level of 0.1) would
be crossed four times too often at 0.001. Where a cluster holds several units, these may depend on
each other even if rows of a unit do not: p is then that of a t test of the clusters' sums, which
for sums of squares is cautious.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy import stats

from pulse_pyro._core.arrays import Float1, Float2, Int
from pulse_pyro.base import FAIL, Check, verdict
from pulse_pyro.diagnostics.serial import FEWEST, OTHER_SHAPE, TOLD, controls

if TYPE_CHECKING:
    from pulse_pyro.diagnostics.case import HeldOut

BY_INPUTS = (
    ": make what sets units apart an input, fit laws.mixed_lags, or give the law a memory"
    " (laws.with_memory)."
)
MARGINS = (0.01, 0.03)  # correlations of two rows of a unit that warn, that fail


class WithinUnits(NamedTuple):
    """Correlation of two rows of a unit, p of none (upwards), clusters with a pair of rows."""

    correlation: float
    p: float
    clusters: int


def ask_within_units(case: HeldOut, j: int) -> list[Check]:
    """Ask whether all rows of a unit depend on each other beyond what the inputs explain."""
    judged = case.judged
    found = within_units(
        case.left[:, j], case.x[judged.row], judged.unit, judged.cluster, case.memory_extra
    )
    return [within_units_check(case.names[j], found, len(case.names), case.learns)]


def within_units(
    residual: Float1, x: Float2, unit: Int, cluster: Int, extra: float = 1.0
) -> WithinUnits:
    """Test that residuals (n,) of one unit are uncorrelated given inputs x (n, p).

    unit, cluster : (n,) whole numbers. extra : z^2 is divided by it, as in ``serial``. Rows with
    NaN are left out. NOT seen: negative dependence (see ``serial``), dependence of the spread, and
    dependence that a law's error along bends which powers of x do not have would imitate.
    """
    used = np.isfinite(residual) & np.isfinite(x).all(-1)
    y = residual[used]
    piece = np.unique(cluster[used], return_inverse=True)[1]
    # a cluster of time may cut a unit: pairs are of rows that share both
    both = unit[used] * (int(piece.max(initial=0)) + 1) + piece
    code = np.unique(both, return_inverse=True)[1]
    rows = np.bincount(code, minlength=1)
    pairs = float((rows * (rows - 1.0)).sum())
    # clusters that have a pair of rows of one unit
    clusters = len(np.unique(piece[rows[code] > 1])) if len(y) else 0
    if clusters < FEWEST:
        return WithinUnits(np.nan, np.nan, clusters)
    q = controls(x[used])
    e = y - q @ (q.T @ y)
    if not np.abs(e).max() > 1e-9 * np.abs(y).max():
        return WithinUnits(np.nan, np.nan, clusters)
    leverage = (q**2).sum(1)
    part = np.where(leverage < 1.0 - 1e-8, e**2 / np.maximum(1.0 - leverage, 1e-8), 0.0)
    total = np.bincount(code, e)
    first, second, third = (np.bincount(code, e ** (2 * r)) for r in (1, 2, 3))
    sums = np.stack([np.bincount(code, column) for column in q.T], axis=1)
    # sum of h_kl over the other rows k of the unit
    beside = np.einsum("nm,nm->n", q, sums[code]) - leverage
    score = total**2 - first + np.bincount(code, part * beside)
    correlation = float(score.sum() / (pairs * e.var()))
    if int(piece.max()) + 1 == len(rows):  # every cluster is one unit
        variance = 2.0 * float((first**2 - second).sum())
        cube = 8.0 * float((first**3 - 3.0 * first * second + 2.0 * third).sum())
        return WithinUnits(correlation, _gamma_tail(score.sum(), variance, cube, extra), clusters)
    owner = np.zeros(len(rows), np.int64)
    owner[code] = piece
    there = np.unique(piece[rows[code] > 1])
    by_cluster = np.bincount(owner, score, minlength=int(piece.max()) + 1)[there]
    error = by_cluster.std(ddof=1) * np.sqrt(len(there) * extra)
    t = by_cluster.sum() / error if error > 0 else 0.0
    return WithinUnits(correlation, float(stats.t.sf(t, len(there) - 1)), clusters)


def within_units_check(
    name: str, found: WithinUnits, looks: int = 1, learns: bool = False
) -> Check:
    """Return the verdict: fails at p < 0.001 and a correlation of 0.03, warns at 0.01 and 0.01.

    looks : columns of W that are asked the same. learns : as in ``serial_check``.
    """
    label = f"dependence {name}"
    if not np.isfinite(found.p):
        why = (
            f"Not judged: {found.clusters} units have two rows to compare, and {FEWEST} are needed."
        )
        return Check(label, "info", found.correlation, MARGINS[1], why)
    p = min(1.0, found.p * looks)
    word = verdict(p, found.correlation, MARGINS)
    text = (
        f"Correlation of what the law leaves of {name} in any two rows of a unit "
        f"({found.clusters} units, p = {p:.2g}; it fails below {FAIL} if the correlation is "
        f"{MARGINS[1]} or more)."
    )
    if learns:
        text += TOLD.format(name) + (OTHER_SHAPE if word != "pass" else "")
    elif word != "pass":
        text += (
            " Rows of a unit are not independent given the inputs: units have levels of their own,"
            " or the noise has a long memory. Intervals must go by unit (they do here), and earlier"
            f" {name}, hence earlier rewards, tell more than S"
        )
        text += BY_INPUTS
    return Check(label, word, found.correlation, MARGINS[1], text)


def _gamma_tail(score: float, variance: float, cube: float, extra: float) -> float:
    """Return P(Q > score) of the gamma law with mean 0, this variance and third cumulant."""
    if variance <= 0:
        return 1.0
    z = score / np.sqrt(variance * extra)
    shape = 4.0 * variance**3 / cube**2 if cube > 0 else np.inf
    if shape > 1e8:
        return float(stats.norm.sf(z))
    return float(stats.gamma.sf(shape + z * np.sqrt(shape), shape))
