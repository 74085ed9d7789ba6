"""Can the law's distribution be judged at all? A density has no place for W of a few values.

W of 0 and 1, of grades, or of a few counts, under a law that has a density (a normal, say): its
intervals, PIT and log density are wrong by construction and tell nothing about the fit, while its
MEAN may well be right. So the form is told once, as a warning; the checks of the distribution are
not judged; the mean is (skill, trend, interactions, ...); and scores are those of a discrete law:
Brier's for two values, the ranked probability score (RPS) for more. For a law that draws values of
W itself nothing changes: its PIT is randomised between F(w-) and F(w), which is exactly uniform.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pulse_pyro.base import Check
from pulse_pyro.diagnostics.levels import VALUES, has_ties

if TYPE_CHECKING:
    from pulse_pyro.diagnostics.case import HeldOut


def why_no_form(case: HeldOut, j: int) -> str | None:
    """Return why the distribution of the j-th W is not judged, or None if it is."""
    levels = case.levels[j]
    if levels is None or has_ties(case.judged.draws[..., j]):
        return None
    return (
        f"Not judged: {case.names[j]} takes {len(levels)} values, and the law has a density, which "
        "cannot be right for it whatever its mean is; see the check form."
    )


def told_by_form(case: HeldOut, j: int, checks: list[Check]) -> list[Check]:
    """Return checks of the distribution as they are, or as not judged where there is no form."""
    why = why_no_form(case, j)
    return checks if why is None else [replace(c, verdict="info", text=why) for c in checks]


def ask_form(case: HeldOut, j: int) -> list[Check]:
    """Say where only the mean of the law is to be used; nothing otherwise."""
    if why_no_form(case, j) is None:
        return []
    levels, name = case.levels[j], case.names[j]
    assert levels is not None  # or there would be no reason
    text = (
        f"Distinct values of {name}, which the law takes for continuous: use its MEAN only (skill, "
        "trend and the checks beside them judge it, and calibrate bounds it). Its intervals, draws "
        "and log densities are not to be used, nor compared with those of other laws: a density "
        "can be made as large as one likes at a few points. Fit a law of such values (a model file "
        "with a Bernoulli, ordered or count likelihood) where more than the mean is needed."
    )
    return [Check(f"form {name}", "warn", float(len(levels)), float(VALUES), text)]
