"""Pages for readers: sections about each stage of a study, and the page that holds them."""

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
    table_html,
    write_report,
    write_svg,
)
from pulse_pyro.report.policy import policy_sections, radius_parts, radius_sections
from pulse_pyro.report.provenance import provenance_sections
from pulse_pyro.report.registry import PLOTS, SECTIONS, stage_sections

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
    "stage_sections",
    "table_html",
    "write_calibration_report",
    "write_report",
    "write_svg",
]
