"""Is a fitted law fit for use? Checks on units it has not seen: verdict first, then evidence."""

from pulse_pyro._core.namespace import lazy_names

# What diagnose asks, in this order: of the law as a whole, function(HeldOut) -> list of Check, ...
LAW_CHECKS = {
    "rows": "pulse_pyro.diagnostics.held_out:ask_rows",
    "leak": "pulse_pyro.diagnostics.leaks:ask_leak",
    "convergence": "pulse_pyro.diagnostics.convergence:ask_convergence",
    "log score": "pulse_pyro.diagnostics.scores:ask_log_score",
}
# ... and of every column j of W, function(HeldOut, j) -> list of Check.
CHECKS = {
    "form": "pulse_pyro.diagnostics.form:ask_form",
    "skill": "pulse_pyro.diagnostics.scores:ask_skill",
    "trend": "pulse_pyro.diagnostics.trend:ask_trend",
    "interactions": "pulse_pyro.diagnostics.interactions:ask_interactions",
    "time": "pulse_pyro.diagnostics.over_time:ask_time",
    "unit length": "pulse_pyro.diagnostics.unit_length:ask_unit_length",
    "coverage": "pulse_pyro.diagnostics.pit:ask_coverage",
    "pit": "pulse_pyro.diagnostics.pit:ask_pit",
    "spread": "pulse_pyro.diagnostics.trend:ask_spread",
    "unit spread": "pulse_pyro.diagnostics.unit_spread:ask_unit_spread",
    "crps": "pulse_pyro.diagnostics.scores:ask_crps",
    "replicates": "pulse_pyro.diagnostics.replicates:ask_replicates",
    "serial": "pulse_pyro.diagnostics.serial:ask_serial",
    "dependence": "pulse_pyro.diagnostics.within_units:ask_within_units",
    "inputs unseen": "pulse_pyro.diagnostics.pit:ask_inputs_unseen",
}
_HOMES = {
    "result": "Diagnostics",
    "case": "HeldOut GAPS",
    "held_out": "diagnose",
    "domain": "Domain",
    "serial": "SerialTest serial_dependence",
    "calibration_ranks": "Sbc sbc",
}
__getattr__, __dir__, __all__ = lazy_names(__name__, _HOMES)
