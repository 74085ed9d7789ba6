"""Decisions with incomplete context: context laws in Pyro, expected features, PULSE-UCB.

Names are loaded when first used, so ``import pulse_pyro`` loads neither torch nor numba. What is
needed every day stands here; the rest in ``pp.data``, ``pp.laws``, ``pp.bands``,
``pp.diagnostics``, ``pp.radius``, ``pp.calibration``, ``pp.policies``, ``pp.envs``,
``pp.offpolicy``, ``pp.report``, ``pp.study`` and ``pp.errors``.
"""

from importlib import import_module
from typing import Any

_HOMES = {
    "base": "Schema",
    "data.history": "History",
    "data.summary": "Lags Window",
    "features": "Features terms",
    "laws.law": "Law",
    "laws.step": "StepLaw",
    "laws.linear": "linear_lags",
    "laws.generalised": "generalised_lags",
    "laws.gp": "gaussian_process",
    "laws.neural": "neural_density",
    "laws.filtering": "state_space",
    "laws.files": "law_from_file",
    "_pyro.inference": "Exact Nuts Svi Laplace Ensemble",
    "diagnostics.held_out": "diagnose",
    "diagnostics.domain": "Domain",
    "diagnostics.calibration_ranks": "sbc",
    "calibration.ladder": "calibrate",
    "calibration.calibration": "Calibration",
    "calibration.planner": "plan",
    "radius": "constant corrected thompson",
    "policies.pulse": "PulseUCB",
    "policies.committee": "Committee",
    "policies.adaptive": "AdaptivePulseUCB",
    "laws.growing": "GrowingArchive",
    "envs.simulation": "simulate",
    "study.design": "design",
    "study.run": "run_study",
    "report.page": "write_report",
    "_core.errors": "PulseError",
    "_core.saved": "save load",
    "_core.seeds": "stream",
}
_NAMESPACES = (
    "base",
    "data",
    "features",
    "laws",
    "bands",
    "diagnostics",
    "radius",
    "calibration",
    "policies",
    "envs",
    "offpolicy",
    "report",
    "study",
)
_WHERE = {name: home for home, names in _HOMES.items() for name in names.split()}
__all__ = sorted(_WHERE)
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(import_module(f"pulse_pyro.{_WHERE[name]}"), name)
    if name in _NAMESPACES:
        return import_module(f"pulse_pyro.{name}")
    if name == "errors":
        return import_module("pulse_pyro._core.errors")
    raise AttributeError(f"module 'pulse_pyro' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, *_NAMESPACES, "errors"]
