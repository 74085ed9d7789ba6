"""Do units that leave early differ from those that stay? Residuals against how long a unit stays.

If leaving has nothing to do with what the law leaves of W, the residual r has mean 0 among rows of
short and of long units alike, and at rows near a unit's end as elsewhere: with z the rank over rows
of (i) how long the row's unit stays, (ii) how many steps it still has, or (iii) 1 in the last row
of a unit that leaves before the longest, each scaled to mean 0 and variance 1, r z has mean 0. t
tests over clusters, Bonferroni over the three.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy import stats

from pulse_pyro._core.arrays import Float1, Int
from pulse_pyro.base import Check, verdict
from pulse_pyro.diagnostics.by_unit import few, unit_mean

if TYPE_CHECKING:
    from pulse_pyro.diagnostics.case import HeldOut

MARGINS = (0.05, 0.1)  # correlations that warn, that fail
WHAT = ("how long its unit stays", "how many steps its unit still has", "being its unit's last")


def ask_unit_length(case: HeldOut, j: int) -> list[Check]:
    """Ask whether units that leave early differ; nothing is asked where all stay equally long."""
    judged, history = case.judged, case.history
    if history.schema.by_time:  # units were cut into periods: their lengths tell nothing
        return []
    last = history.step[history.offsets[1:] - 1]
    stays = last + 1 - history.step[history.offsets[:-1]]
    if stays.min() == stays.max():
        return []
    residual = judged.w[:, j] - judged.mean[:, j]
    stay, left = stays[judged.unit], last[judged.unit] - judged.place.step
    name, looks = case.names[j], len(case.names)
    return [unit_length_check(name, residual, stay, left, judged.cluster, case.extra, looks)]


def unit_length_check(
    name: str, residual: Float1, stay: Int, left: Int, cluster: Int, extra: float, looks: int = 1
) -> Check:
    """Test that residuals (n,) go neither with the unit's length nor with the steps it still has.

    stay, left, cluster : (n,) steps the row's unit has in all, steps after this row, and its
    independent piece. looks : columns of W that are asked the same. NOT seen: leaving that hangs on
    W in both directions alike, and units that never came.
    """
    scale = float(np.sqrt(np.nanmean(residual**2))) or 1.0
    tests = []
    gone = ((left == 0) & (stay < stay.max())).astype(np.float64)
    for z in (stats.rankdata(stay), stats.rankdata(left), gone):
        sd = z.std()
        z = (z - z.mean()) / sd if sd > 0 else np.zeros(len(z))
        least = 1 / np.sqrt(len(residual))
        tests.append(unit_mean(residual / scale * z, cluster, extra=extra, least=least))
    worst = min(range(len(WHAT)), key=lambda k: tests[k].p)
    test, label = tests[worst], f"unit length {name}"
    if (why := few(test)) is not None:
        return Check(label, "info", test.mean, MARGINS[1], why)
    p = min(1.0, test.p * len(tests) * looks)
    word = verdict(p, abs(test.mean), MARGINS)
    text = (
        f"Correlation of what is left of {name} in a row with {WHAT[worst]}, the clearest of three "
        f"({test.units} units, p = {p:.2g}; it fails below 0.001 if the correlation is "
        f"{MARGINS[1]} or more)."
    )
    if word != "pass":
        text += (
            f" Units leave by what the law does not know of {name}: what is left in the archive is"
            " not what comes online. Make why they leave an input, or model it (models/"
            "mnar_selection), and read bounds as those of units that stay."
        )
    return Check(label, word, test.mean, MARGINS[1], text)
