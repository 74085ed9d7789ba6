"""Skill: how much of W the law explains."""

from __future__ import annotations

import numpy as np

from pulse_pyro.arrays import Float2
from pulse_pyro.diagnostics.by_unit import FAIL, unit_mean
from pulse_pyro.verdicts import Check, Verdict

LITTLE = 0.05


def skill_check(name: str, w: Float2, mean: Float2, extra: float) -> Check:
    """Return the share of held-out variance of W explained, 1 - E (w - mean)^2 / Var w.

    w, mean (unit, time). Fails if expecting the same everywhere would have been better, at p <
    0.001 over units (or if there are too few units to say); warns below 0.05: S may not tell.
    """
    spread = float(np.nanvar(w))
    value = float(1 - np.nanmean((w - mean) ** 2) / spread) if spread > 0 else float("nan")
    gain = (w - np.nanmean(w)) ** 2 - (w - mean) ** 2
    test = unit_mean(gain, extra=extra)
    worse = value <= 0 and (test.units < 2 or test.p_below < FAIL)
    verdict: Verdict = "pass" if value > LITTLE else "fail" if worse or spread <= 0 else "warn"
    text = f"Share of the held-out variance of {name} the law explains; below 0 it misleads."
    if verdict != "pass":
        text += " Other lags or more units may help, or S may not tell."
    return Check(f"skill {name}", verdict, value, 0.0, text)
