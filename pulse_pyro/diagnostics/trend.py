"""Do errors depend on what the law expected? Their level (trend) and their size (spread)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy import stats

from pulse_pyro._core.arrays import Float1, Int
from pulse_pyro.base import Check, verdict
from pulse_pyro.diagnostics.by_unit import UnitMean, few, unit_mean
from pulse_pyro.diagnostics.form import told_by_form

if TYPE_CHECKING:
    from pulse_pyro.diagnostics.case import HeldOut

MARGINS = (0.05, 0.1)  # correlations that warn, that fail
SHAPES = ("a slope", "a bend", "an S")


class TrendShape(NamedTuple):
    """The shape over the expectation that shows most clearly, and p over all shapes."""

    name: str
    test: UnitMean
    p: float


def ask_trend(case: HeldOut, j: int) -> list[Check]:
    """Ask whether the mean is right wherever it points."""
    w, mean = case.judged.w[:, j], case.judged.mean[:, j]
    name, looks = case.names[j], len(case.names)
    return [trend_check(name, w, mean, case.judged.cluster, case.extra, looks)]


def ask_spread(case: HeldOut, j: int) -> list[Check]:
    """Ask whether the law is as wide as it should be wherever its mean points."""
    pit, mean = case.judged.pit[:, j], case.judged.mean[:, j]
    name, looks = case.names[j], len(case.names)
    check = spread_check(name, pit, mean, case.judged.cluster, case.extra, looks)
    return told_by_form(case, j, [check])


def trend_check(
    name: str, w: Float1, mean: Float1, unit: Int, extra: float, looks: int = 1
) -> Check:
    """Test that residuals have no slope, bend or S over the law's expectation.

    w, mean, unit (n,), NaN where not judged; looks : columns of W that are asked the same. With v
    the rank of a row's expectation among all, in (0, 1), (w - mean) sqrt(2k + 1) P_k(2v - 1) has
    mean 0 for k = 1, 2, 3 if the mean is right: t tests over units, Bonferroni over the three. The
    figure is the clearest correlation. Not seen: errors of the mean along inputs that hardly move
    the expectation; ``interactions`` and ``calibrate`` test those.
    """
    residual = w - mean
    scale = float(np.sqrt(np.nanmean(residual**2))) or 1.0
    clearest = _clearest(residual / scale, mean, unit, extra, looks)
    remedy = " The mean is wrong: try gaussian_process, or another summary."
    return _check(f"trend {name}", f"what is left of {name}", clearest, remedy)


def spread_check(
    name: str, pit: Float1, mean: Float1, unit: Int, extra: float, looks: int = 1
) -> Check:
    """Test that the size of errors, beside what the law says, is even over its expectation.

    pit, mean, unit (n,). As the trend, with sqrt(5) P_2(2u - 1) of the PIT u for the residual: it
    is large where W falls far out, and has mean 0 wherever the law is as wide as it should be.
    """
    size = np.sqrt(5.0) * np.polynomial.legendre.Legendre.basis(2)(2 * pit - 1)
    size = size - np.nanmean(size)  # its overall level is pit's question
    clearest = _clearest(size, mean, unit, extra, looks)
    remedy = " The law is too narrow here and too wide there: try neural_density, or a model file."
    return _check(f"spread {name}", f"the size of errors of {name}", clearest, remedy)


def shapes_over(
    value: Float1, along: Float1, unit: Int, extra: float
) -> list[tuple[str, UnitMean]]:
    """Correlate a row statistic (n,) of variance 1 with a slope, a bend and an S over ranks.

    along : (n,) what the ranks are of. unit : (n,) independent pieces. Returns each shape's name
    and its test over these.
    """
    used = np.isfinite(value) & np.isfinite(along)
    rows = max(int(used.sum()), 1)
    rank = (stats.rankdata(along[used]) - 0.5) / rows
    tests = []
    for k, name in enumerate(SHAPES, start=1):
        wave = np.sqrt(2 * k + 1) * np.polynomial.legendre.Legendre.basis(k)(2 * rank - 1)
        test = unit_mean(value[used] * wave, unit[used], extra=extra, least=1 / np.sqrt(rows))
        tests.append((name, test))
    return tests


def _clearest(value: Float1, mean: Float1, unit: Int, extra: float, looks: int) -> TrendShape:
    """Return the clearest shape over the expectation; p over shapes and columns of W."""
    tests = shapes_over(value, mean, unit, extra)
    name, test = min(tests, key=lambda found: found[1].p)
    return TrendShape(name, test, min(1.0, test.p * len(tests) * looks))


def _check(label: str, what: str, found: TrendShape, remedy: str) -> Check:
    value, units = found.test.mean, found.test.units
    if (why := few(found.test)) is not None:
        return Check(label, "info", value, MARGINS[1], why)
    word = verdict(found.p, abs(value), MARGINS)
    text = (
        f"Correlation of {what} with {found.name} over its expectation, the clearest of "
        f"{len(SHAPES)} shapes ({units} units, p = {found.p:.2g}; it fails below 0.001 if the "
        f"correlation is {MARGINS[1]} or more)."
    )
    return Check(label, word, value, MARGINS[1], text + (remedy if word != "pass" else ""))
