"""Pages for readers: sections about each stage of a study, and the page that holds them."""

from pulse_pyro.report.calibration import (
    beyond_domain,
    calibration_sections,
    calibration_verdict,
    in_domain,
    write_calibration_report,
)
from pulse_pyro.report.page import page_html, write_report
from pulse_pyro.report.policy import policy_sections, radius_parts, radius_sections
from pulse_pyro.report.provenance import file_hashes, provenance_sections
from pulse_pyro.report.section import Section
from pulse_pyro.report.study import data_sections, diagnostics_sections, law_sections
from pulse_pyro.report.svg import figure_svg
from pulse_pyro.report.tables import table_html

__all__ = [
    "Section",
    "beyond_domain",
    "calibration_sections",
    "calibration_verdict",
    "data_sections",
    "diagnostics_sections",
    "figure_svg",
    "file_hashes",
    "in_domain",
    "law_sections",
    "page_html",
    "policy_sections",
    "provenance_sections",
    "radius_parts",
    "radius_sections",
    "table_html",
    "write_calibration_report",
    "write_report",
]
