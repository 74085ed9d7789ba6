"""Is the law as sure as it should be? PIT and interval coverage of held-out W, by unit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pulse_pyro._core.arrays import Float1, Int
from pulse_pyro.base import Check, verdict
from pulse_pyro.diagnostics.by_unit import few, unit_mean
from pulse_pyro.diagnostics.form import told_by_form

if TYPE_CHECKING:
    from pulse_pyro.diagnostics.case import HeldOut

LEVELS = (0.5, 0.8, 0.9, 0.95)
MAIN = 0.9  # the level whose coverage is the check's figure
COVERAGE = (0.01, 0.03)  # smallest deviations that warn, that fail
SHAPE = (0.05, 0.1)
UNSEEN = ", inputs unseen"
COMPONENTS = (
    ("off centre: the law says too {}", ("much", "little")),
    ("{}", ("too narrow: over-confident", "too wide: cautious")),
    ("lopsided: the noise has more of a tail {} than the law", ("above", "below")),
    ("{} than the law in centre and far tails at once", ("heavier", "lighter")),
)


def ask_coverage(case: HeldOut, j: int) -> list[Check]:
    """Ask whether the law's intervals hold W as often as they say."""
    name, looks = case.names[j], len(case.names)
    judged = case.judged
    check = coverage_check(name, judged.pit[:, j], judged.cluster, case.extra, looks)
    return told_by_form(case, j, [check])


def ask_inputs_unseen(case: HeldOut, j: int) -> list[Check]:
    """Ask the same of rows that lack an input: answers there rest on more assumptions."""
    if case.gaps is None:
        return []
    gaps, extra = case.gaps
    name, looks = case.names[j] + UNSEEN, len(case.names)
    check = coverage_check(name, gaps.pit[:, j], gaps.cluster, extra, looks)
    return told_by_form(case, j, [check])


def ask_pit(case: HeldOut, j: int) -> list[Check]:
    """Ask whether W falls evenly among the law's draws."""
    name, looks = case.names[j], len(case.names)
    judged = case.judged
    check = pit_check(name, judged.pit[:, j], judged.cluster, case.extra, looks)
    return told_by_form(case, j, [check])


def coverage_check(name: str, pit: Float1, unit: Int, extra: float, looks: int = 1) -> Check:
    """Compare coverage of central intervals with 50, 80, 90 and 95 %.

    pit, unit (n,), pit NaN where not judged; looks : columns of W that are asked the same. A t test
    over units for each level, Bonferroni over levels and looks: warns a right law 1 time in 100 at
    most, fails it 1 time in 1,000. Fewer than 8 units, or lengths that make them worth fewer, are
    not judged.
    """
    alone = _row_error(pit, unit)
    coverage, least_p, apart = {}, 1.0, 0.0
    for level in LEVELS:
        inside = np.where(np.isfinite(pit), np.abs(pit - 0.5) <= level / 2, np.nan)
        least = np.sqrt(level * (1 - level)) * alone
        test = unit_mean(inside - level, unit, extra=extra, least=least)
        coverage[level], units = float(np.nanmean(inside)), test.units
        if test.p < least_p:
            least_p, apart = test.p, test.mean
    value = coverage[MAIN]
    if (why := few(test)) is not None:
        return Check(f"coverage {name}", "info", value, MAIN, why)
    p = min(1.0, least_p * len(LEVELS) * looks)
    word = verdict(p, abs(apart), COVERAGE)
    shown = ", ".join(f"{100 * level:.3g} %: {coverage[level]:.3f}" for level in LEVELS)
    text = f"Share of held-out {name} inside its 90 % predictive interval. All levels: {shown} "
    text += f"({units} units, p = {p:.2g})."
    if word != "pass":
        side = "wide: cautious" if apart > 0 else "narrow: over-confident"
        text += f" Intervals are too {side}; try another noise model or summary."
    return Check(f"coverage {name}", word, value, MAIN, text)


def pit_check(name: str, pit: Float1, unit: Int, extra: float, looks: int = 1) -> Check:
    """Test that the PIT is uniform, by its first four Legendre components.

    With u uniform, sqrt(2k + 1) P_k(2u - 1) have mean 0 and variance 1: k = 1 sees bias, 2 spread,
    3 skewness, 4 tails. A t test over units for each, Bonferroni over the four. The figure is the
    root of their summed squares, the distance of the PIT's density from 1. Not seen: errors that
    cancel over the rows, such as a law too narrow here and too wide there.
    """
    alone = _row_error(pit, unit)
    tests = [
        unit_mean(_component(k, pit), unit, extra=extra, least=alone)
        for k in range(1, len(COMPONENTS) + 1)
    ]
    size = float(np.sqrt(sum(test.mean**2 for test in tests)))
    if (why := few(tests[0])) is not None:
        return Check(f"pit {name}", "info", size, SHAPE[1], why)
    p = min(1.0, min(test.p for test in tests) * len(tests) * looks)
    word = verdict(p, size, SHAPE)
    text = (
        f"Distance of held-out {name}'s PIT from uniform ({tests[0].units} units, p = {p:.2g}; it "
        f"fails below 0.001 if the distance is {SHAPE[1]} or more)."
    )
    if word != "pass":
        worst = min(range(len(tests)), key=lambda k: tests[k].p)
        sentence, sides = COMPONENTS[worst]
        text += f" Clearest: {sentence.format(sides[0 if _first(worst, tests[worst].mean) else 1])}"
        text += "; look at .plot()."
    return Check(f"pit {name}", word, size, SHAPE[1], text)


def _component(k: int, pit: Float1) -> Float1:
    """Return sqrt(2k + 1) P_k(2u - 1): mean 0 and variance 1 for uniform u."""
    value: Float1 = np.sqrt(2 * k + 1) * np.polynomial.legendre.Legendre.basis(k)(2 * pit - 1)
    return value


def _row_error(pit: Float1, unit: Int) -> float:
    """Return the error of the mean of a row statistic of variance 1, if u is uniform.

    1 / sqrt(rows), times a design effect that all components share: a few units, each of one piece,
    may agree in one statistic by chance, and its own error over units would then be next to none.
    """
    rows = max(int(np.isfinite(pit).sum()), 1)
    errors = [unit_mean(_component(k, pit), unit).error for k in range(1, len(COMPONENTS) + 1)]
    pooled = np.mean(np.square(errors)) if np.isfinite(errors).all() else 0.0
    return float(np.sqrt(max(pooled, 1.0 / rows)))


def _first(component: int, mean: float) -> bool:
    """Tell whether a component's sign means the first of its two readings."""
    return mean < 0 if component == 0 else mean > 0
