"""Plots that results draw of themselves, and sections that stages of a study put on the page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pulse_pyro._core.registry import named

if TYPE_CHECKING:
    from pulse_pyro.report.page import Section

# name -> function(result, ..., ax) -> Axes: what the .plot() of a result calls
PLOTS = {
    "band_plot": "pulse_pyro.report.plots:band_plot",
    "budget_plot": "pulse_pyro.report.plots:budget_plot",
    "decay_plot": "pulse_pyro.report.plots:decay_plot",
    "domain_plot": "pulse_pyro.report.plots:domain_plot",
    "four_panels": "pulse_pyro.report.plots:four_panels",
    "rank_histogram": "pulse_pyro.report.plots:rank_histogram",
    "regret_curves": "pulse_pyro.report.plots:regret_curves",
    "utility_dots": "pulse_pyro.report.plots:utility_dots",
}
# stage -> name -> function(what the stage found) -> list of Section. The stage finds a FittedLaw,
# Diagnostics, a Calibration, a Run; fit and simulate put theirs after sections that need more.
SECTIONS: dict[str, dict[str, Any]] = {
    "fit": {},
    "diagnose": {"diagnostics": "pulse_pyro.report.law:diagnostics_sections"},
    "calibrate": {"calibration": "pulse_pyro.report.calibration:calibration_sections"},
    "simulate": {},
}


def stage_sections(stage: str, found: object) -> list[Section]:
    """Return every registered section about what a stage found."""
    known = SECTIONS[stage]
    return [section for name in known for section in named(known, name)(found)]
