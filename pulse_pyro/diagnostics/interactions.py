"""Do inputs act together in a way the law does not know? Residuals against products of inputs.

Inputs are replaced by their ranks, z_i = sqrt(3) (2 v_i - 1), v_i in (0, 1), scaled to variance 1,
so that no row and no unit rules a product. With r what the law leaves of W and b = z_i z_j less
its mean, scaled to variance 1, E[r b] = 0 if the law's mean is right. Every pair i <= j is tested
(i = j: a bend in one input, b = z_i^2 less its regression on 1 and z_i), by a t test over clusters
as in ``by_unit``, Bonferroni over pairs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy import sparse, stats

from pulse_pyro._core.arrays import Float1, Float2, Int
from pulse_pyro.base import Check, verdict
from pulse_pyro.diagnostics.by_unit import UnitMean, few

if TYPE_CHECKING:
    from pulse_pyro.diagnostics.case import HeldOut

MARGINS = (0.05, 0.1)  # correlations that warn, that fail
MOST = 60  # inputs; beyond, those that move the expectation most


class ClearestPair(NamedTuple):
    """The pair of inputs whose product shows most clearly, its test, and p over all pairs."""

    first: int
    second: int
    test: UnitMean
    p: float
    pairs: int


def ask_interactions(case: HeldOut, j: int) -> list[Check]:
    """Ask whether products of two inputs tell of what the law leaves."""
    judged = case.judged
    residual, mean = judged.w[:, j] - judged.mean[:, j], judged.mean[:, j]
    x = case.x[judged.row]
    found = clearest_pair(residual, x, mean, judged.cluster, case.extra)
    return [interactions_check(case.names[j], found, case.x_names, len(case.names))]


def clearest_pair(
    residual: Float1, x: Float2, mean: Float1, cluster: Int, extra: float
) -> ClearestPair | None:
    """Return the clearest product of two inputs; None where no product varies.

    residual, mean, cluster (n,), x (n, p) without NaN. Of more than 60 inputs, those whose ranks
    go most with the law's expectation are looked at. NOT seen: three inputs that act together, and
    pairs whose product of ranks they are not (a threshold in both at once is seen in part).
    """
    kept, z = _rank_scores(x, mean)
    rows = len(residual)
    scale = float(np.sqrt(np.mean(residual**2))) or 1.0
    r = residual / scale
    code = np.unique(cluster, return_inverse=True)[1]
    sums = sparse.csr_matrix((np.ones(rows), (code, np.arange(rows))))
    count, plain = np.bincount(code).astype(np.float64), np.bincount(code, r)
    centre = z.T @ z / rows
    spread = np.sqrt(np.maximum((z**2).T @ (z**2) / rows - centre**2, 0.0))
    # a square is taken beside its own input: that of a flag then has nothing of its own
    slope = (z**3).mean(0)
    own = np.maximum(np.diag(spread) ** 2 - slope**2, 0.0)
    np.fill_diagonal(spread, np.sqrt(own))
    best: tuple[float, int, int, UnitMean] | None = None
    pairs = 0
    for i in range(len(kept)):
        wide = np.flatnonzero((spread[i] > 1e-3) & (np.arange(len(kept)) >= i))
        if not len(wide):
            continue
        moved = sums @ ((r * z[:, i])[:, None] * z[:, wide]) - np.outer(plain, centre[i, wide])
        if wide[0] == i:
            moved[:, 0] -= slope[i] * (sums @ (r * z[:, i]))
        value, error, p, worth = _column_tests(moved / spread[i, wide], count, extra)
        pairs += len(wide)
        at = int(np.argmin(p))
        if best is None or p[at] < best[0]:
            test = UnitMean(float(value[at]), float(error[at]), float(p[at]), len(count), worth)
            best = float(p[at]), int(kept[i]), int(kept[wide[at]]), test
    if best is None:
        return None
    return ClearestPair(best[1], best[2], best[3], min(1.0, best[0] * pairs), pairs)


def interactions_check(
    name: str, found: ClearestPair | None, x_names: tuple[str, ...], looks: int = 1
) -> Check:
    """Return the verdict: fails at p < 0.001 and a correlation of 0.1, warns at 0.01 and 0.05.

    x_names : of the inputs. looks : columns of W that are asked the same.
    """
    label = f"interactions {name}"
    if found is None:
        why = "Not judged: no product of two inputs varies."
        return Check(label, "info", float("nan"), MARGINS[1], why)
    value = found.test.mean
    if (why_not := few(found.test)) is not None:
        return Check(label, "info", value, MARGINS[1], why_not)
    p = min(1.0, found.p * looks)
    word = verdict(p, abs(value), MARGINS)
    one, other = x_names[found.first], x_names[found.second]
    what = f"the square of {one}" if one == other else f"the product of {one} and {other}"
    text = (
        f"Correlation of what is left of {name} with {what} (ranks), the clearest of {found.pairs} "
        f"({found.test.units} units, p = {p:.2g} over all; it fails below 0.001 if the correlation "
        f"is {MARGINS[1]} or more)."
    )
    if word != "pass":
        text += (
            " The mean is wrong where these inputs go together: add the product as an input, or try"
            " gaussian_process or neural_density."
            if one != other
            else " The mean bends in this input: try gaussian_process, or add its square as an"
            " input."
        )
    return Check(label, word, value, MARGINS[1], text)


def _rank_scores(x: Float2, mean: Float1) -> tuple[Int, Float2]:
    """Return which inputs vary, MOST at most, and their rank scores (n, kept), variance 1."""
    z = (2.0 * stats.rankdata(x, axis=0) - 1.0) / len(x) - 1.0
    sd = z.std(0)
    kept = np.flatnonzero(sd > 1e-6)
    z = (z[:, kept] - z[:, kept].mean(0)) / sd[kept]
    if len(kept) > MOST:
        along = stats.rankdata(mean)
        order = np.argsort(-np.abs(z.T @ (along - along.mean())), kind="stable")[:MOST]
        some = np.sort(order)
        kept, z = kept[some], z[:, some]
    return kept, z


def _column_tests(
    total: Float2, rows: Float1, extra: float
) -> tuple[Float1, Float1, Float1, float]:
    """Return mean, error and p of each column of cluster sums (G, m), see ``unit_mean``."""
    clusters, n = len(rows), rows.sum()
    mean = total.sum(0) / n
    share = rows / n
    worth = float(1.0 / (share**2).sum())
    if clusters < 2:
        return mean, np.full(len(mean), np.nan), np.ones(len(mean)), worth
    left = (total / n - mean * share[:, None]) / (1.0 - share[:, None])
    error = np.sqrt((clusters - 1) / clusters * (left**2).sum(0))
    error = np.maximum(error, 1.0 / np.sqrt(n))  # no surer than independent rows
    p = 2.0 * stats.t.sf(np.abs(mean) / (error * np.sqrt(extra)), worth - 1.0)
    return mean, error, p, worth
