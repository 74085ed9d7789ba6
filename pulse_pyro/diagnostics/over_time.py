"""Does what the law leaves change with time? Over a unit's steps, and over the calendar if known.

With v the rank of a row's step among all rows, in (0, 1), (w - mean) sqrt(2k + 1) P_k(2v - 1) has
mean 0 for k = 1, 2, 3 if the mean is right; the same over the rank of a row's date where units
share a calendar, and for sine and cosine of the day and of the week where a step is known as a
part of a day. t tests over clusters, Bonferroni over all shapes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from pulse_pyro._core.arrays import Float1, Int
from pulse_pyro.base import Check, verdict
from pulse_pyro.diagnostics.by_unit import UnitMean, few, unit_mean
from pulse_pyro.diagnostics.trend import MARGINS, shapes_over

if TYPE_CHECKING:
    from pulse_pyro.diagnostics.case import HeldOut

FLAT = 1e-6  # spread below which a wave is rounding: one over the week, of steps of a week


def ask_time(case: HeldOut, j: int) -> list[Check]:
    """Ask whether the mean is right at every time."""
    judged = case.judged
    residual = judged.w[:, j] - judged.mean[:, j]
    dates, step_days = case.history.dates, case.history.step_days
    return [
        time_check(
            case.names[j],
            residual,
            judged.place.step,
            judged.cluster,
            case.extra,
            date=None if dates is None else dates[judged.row],
            per_day=1.0 / step_days if step_days > 0 else 0.0,
            looks=len(case.names),
        )
    ]


def time_check(
    name: str,
    residual: Float1,
    step: Int,
    cluster: Int,
    extra: float,
    *,
    date: Int | None = None,
    per_day: float = 0.0,
    looks: int = 1,
) -> Check:
    """Test that residuals (n,) do not change with time.

    step, cluster : (n,). date : (n,) step of the calendar all units share, or None. per_day : steps
    a day; 0 where not known. looks : columns of W that are asked the same. Units that share dates
    may move together without any error of the law: then clusters of time are needed, or a calendar
    trend is found where there is a common shock. NOT seen: changes that slopes, bends and an S do
    not show, such as one bad day.
    """
    scale = float(np.sqrt(np.nanmean(residual**2))) or 1.0
    tests = list(_shapes(residual / scale, step, cluster, extra, date, per_day))
    label = f"time {name}"
    if not tests:
        why = "Not judged: every row has the same step."
        return Check(label, "info", float("nan"), MARGINS[1], why)
    what, test = min(tests, key=lambda found: found[1].p)
    if (why_not := few(test)) is not None:
        return Check(label, "info", test.mean, MARGINS[1], why_not)
    p = min(1.0, test.p * len(tests) * looks)
    word = verdict(p, abs(test.mean), MARGINS)
    text = (
        f"Correlation of what is left of {name} with {what}, the clearest of {len(tests)} shapes "
        f"({test.units} units, p = {p:.2g}; it fails below 0.001 if the correlation is "
        f"{MARGINS[1]} or more)."
    )
    if word != "pass":
        text += (
            " The law drifts: make time (days since the start, weekday, hour) an input, or fit on"
            " recent rows; if units share dates, declare clusters of time."
        )
    return Check(label, word, test.mean, MARGINS[1], text)


def _shapes(
    value: Float1, step: Int, cluster: Int, extra: float, date: Int | None, per_day: float
) -> Iterator[tuple[str, UnitMean]]:
    """Yield each shape over time in words, and its test."""
    if step.min(initial=0) < step.max(initial=0):
        for shape, test in shapes_over(value, step.astype(np.float64), cluster, extra):
            yield f"{shape} over a unit's steps", test
    if date is None or not date.min() < date.max():
        return
    for shape, test in shapes_over(value, date.astype(np.float64), cluster, extra):
        yield f"{shape} over the calendar", test
    if not per_day > 0:
        return
    days = date / per_day
    cycles = {"day": 1.0} if per_day > 1.0 else {}
    if days.max() - days.min() >= 7.0:
        cycles["week"] = 7.0
    for cycle, period in cycles.items():
        angle = 2.0 * np.pi * days / period
        for wave in (np.sqrt(2.0) * np.sin(angle), np.sqrt(2.0) * np.cos(angle)):
            wave = wave - wave.mean()
            if wave.std() < FLAT:
                continue
            test = unit_mean(value * wave, cluster, extra=extra, least=1 / np.sqrt(len(value)))
            yield f"a wave over the {cycle}", test
