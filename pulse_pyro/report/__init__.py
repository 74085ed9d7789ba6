"""Pages for readers: sections about each stage of a study, and the page that holds them."""

from __future__ import annotations

from typing import Any

from pulse_pyro._core.registry import named
from pulse_pyro.report.calibration import (
    beyond_domain,
    calibration_sections,
    calibration_verdict,
    in_domain,
    write_calibration_report,
)
from pulse_pyro.report.law import data_sections, diagnostics_sections, law_sections
from pulse_pyro.report.page import (
    Section,
    figure_svg,
    page_html,
    sections_from_plain,
    sections_to_plain,
    table_html,
    write_report,
    write_svg,
)
from pulse_pyro.report.policy import policy_sections, radius_parts, radius_sections
from pulse_pyro.report.provenance import provenance_sections

__all__ = [
    "PLOTS",
    "SECTIONS",
    "Section",
    "beyond_domain",
    "calibration_sections",
    "calibration_verdict",
    "data_sections",
    "diagnostics_sections",
    "figure_svg",
    "in_domain",
    "law_sections",
    "page_html",
    "policy_sections",
    "provenance_sections",
    "radius_parts",
    "radius_sections",
    "sections_from_plain",
    "sections_to_plain",
    "stage_sections",
    "table_html",
    "write_calibration_report",
    "write_report",
    "write_svg",
]

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
# stage -> name -> function(the stage's result) -> list of Section. The results are a FittedLaw,
# Diagnostics, a Calibration, a Run; fit and simulate put theirs after sections that need more.
SECTIONS: dict[str, dict[str, Any]] = {
    "fit": {},
    "diagnose": {"diagnostics": "pulse_pyro.report.law:diagnostics_sections"},
    "calibrate": {"calibration": "pulse_pyro.report.calibration:calibration_sections"},
    "simulate": {},
}


def stage_sections(stage: str, result: object) -> list[Section]:
    """Return every registered section about a stage's result."""
    registered = SECTIONS[stage]
    return [section for name in registered for section in named(registered, name)(result)]
