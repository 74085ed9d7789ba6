"""How wrong a law's expected features can be: bands on held-out units turned into D_t."""

from pulse_pyro._core.namespace import lazy_names

_HOMES = {
    "calibration": "Calibration",
    "uniform": "calibrate calibrate_all",
    "online": "CalibratedErrors",
    "crossfit": "CrossFit calibrate_crossfit",
    "coverage": "CoverageStudy calibration_study",
    "reference_values": "references kl_error gaussian_kl gaussian_tv parametric_rate holder_rate",
    "stakes": "Stakes",
    "recipe": "Recipe",
    "planner": "Plan plan",
}
__getattr__, __dir__, __all__ = lazy_names(__name__, _HOMES)
