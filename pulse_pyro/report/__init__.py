"""Pages for readers: sections about each stage of a study, and the page that holds them."""

from typing import Any

from pulse_pyro._core.namespace import lazy_names

# name -> function(result, ..., ax) -> Axes: what the .plot() of a result calls
PLOTS = {
    "band_plot": "pulse_pyro.report.plots:band_plot",
    "budget_plot": "pulse_pyro.report.plots:budget_plot",
    "committee_weights": "pulse_pyro.report.plots:committee_weights",
    "decay_plot": "pulse_pyro.report.plots:decay_plot",
    "domain_plot": "pulse_pyro.report.plots:domain_plot",
    "four_panels": "pulse_pyro.report.plots:four_panels",
    "groups_plot": "pulse_pyro.report.rung_plots:groups_plot",
    "ratio_table": "pulse_pyro.report.plots:ratio_table",
    "rank_histogram": "pulse_pyro.report.plots:rank_histogram",
    "reliability_plot": "pulse_pyro.report.rung_plots:reliability_plot",
    "regret_curves": "pulse_pyro.report.plots:regret_curves",
    "utility_dots": "pulse_pyro.report.plots:utility_dots",
}
# stage -> name -> function(the stage's result) -> list of Section. The results are a FittedLaw,
# Diagnostics, a Calibration, a Run; all but diagnose put theirs after others, which need more.
SECTIONS: dict[str, dict[str, Any]] = {
    "fit": {},
    "diagnose": {"diagnostics": "pulse_pyro.report.law:diagnostics_sections"},
    "calibrate": {},
    "simulate": {},
}
_HOMES = {
    "page": "Section figure_svg page_html sections_from_plain sections_to_plain stage_sections "
    "table_html write_report write_svg",
    "law": "data_sections law_sections diagnostics_sections",
    "calibration": "calibration_sections calibration_verdict beyond_domain in_domain "
    "write_calibration_report",
    "ladder": "headline ladder_sections ladder_table",
    "policy": "Votes policy_sections radius_parts radius_sections",
    "provenance": "provenance_sections",
}
__getattr__, __dir__, _names = lazy_names(__name__, _HOMES)
__all__ = ["PLOTS", "SECTIONS", *_names]
