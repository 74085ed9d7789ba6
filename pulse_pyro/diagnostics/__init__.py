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
    "skill": "pulse_pyro.diagnostics.scores:ask_skill",
    "trend": "pulse_pyro.diagnostics.trend:ask_trend",
    "coverage": "pulse_pyro.diagnostics.pit:ask_coverage",
    "pit": "pulse_pyro.diagnostics.pit:ask_pit",
    "spread": "pulse_pyro.diagnostics.trend:ask_spread",
    "crps": "pulse_pyro.diagnostics.scores:ask_crps",
    "replicates": "pulse_pyro.diagnostics.replicates:ask_replicates",
    "serial": "pulse_pyro.diagnostics.serial:ask_serial",
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
