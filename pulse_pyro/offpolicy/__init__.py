"""What another policy would have earned, from a log of one whose probabilities are known."""

from pulse_pyro._core.namespace import lazy_names

_HOMES = {
    "logged": "Logged",
    "estimators": "replay_value ips snips direct doubly_robust outcome_model always greedy "
    "uniform as_logged",
    "value": "Value difference averaged",
}
__getattr__, __dir__, __all__ = lazy_names(__name__, _HOMES)
