"""A study in a file: read it, check it, run its stages, report; the demo is one."""

from pulse_pyro._core.namespace import lazy_names

_HOMES = {
    "file": "read_study",
    "new": "new_study",
    "check": "StudyCheck check_study",
    "stages": "fit_study diagnose_study calibrate_study simulate_study plan_study",
    "scenarios": "Scenario SCENARIOS",
    "design": "Design DesignSettings design_study",
    "report": "StudyReport report_study",
    "run": "StudyRun run_study",
}
__getattr__, __dir__, __all__ = lazy_names(__name__, _HOMES)
