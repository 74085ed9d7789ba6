"""How wrong a law's expected features can be: bands on held-out units turned into D_t."""

from pulse_pyro._core.namespace import lazy_names

# name -> function(rows, ask) -> Rung: the rungs below the uniform one, strongest first
RUNGS = {
    "forecast": "pulse_pyro.calibration.forecast:forecast_rung",
    "groups": "pulse_pyro.calibration.groups:groups_rung",
    "average": "pulse_pyro.calibration.average:average_rung",
    "free": "pulse_pyro.calibration.free:free_rung",
}
_HOMES = {
    "calibration": "Calibration CalibratedErrors",
    "rung": "Rung",
    "ladder": "calibrate all_units",
    "split_stability": "Stability stability",
    "planted": "SmallestMisfit smallest_misfit",
    "repaired": "Repair RepairedLaw repair",
    "cross_fitting": "CrossFit crossfit",
    "coverage": "CoverageStudy calibration_study",
    "reference_values": "references kl_error gaussian_kl gaussian_tv parametric_rate holder_rate",
    "stakes": "Stakes",
    "recipe": "Recipe",
    "planner": "Plan plan",
}
__getattr__, __dir__, __all__ = lazy_names(__name__, _HOMES)
