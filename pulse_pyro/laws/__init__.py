"""Laws: a Pyro model plus a causal summary; fitted laws: arrays of posterior draws."""

from pulse_pyro._core.namespace import lazy_names

# name -> function(summary) -> a law with these defaults; study files and `pulse-pyro models`
# offer every one of them, and saved laws are rebuilt by them
LAWS = {
    "linear_lags": "pulse_pyro.laws.linear:linear_lags",
    "generalised_lags": "pulse_pyro.laws.generalised:generalised_lags",
    "mixed_lags": "pulse_pyro.laws.mixed:mixed_lags",
    "gaussian_process": "pulse_pyro.laws.gp:gaussian_process",
    "neural_density": "pulse_pyro.laws.neural:neural_density",
    "state_space": "pulse_pyro.laws.filtering:state_space",
}
_HOMES = {
    "law": "Law",
    "step": "StepLaw FittedStepLaw",
    "fitted": "PosteriorLaw",
    "linear": "linear_lags",
    "generalised": "generalised_lags",
    "mixed": "mixed_lags",
    "gp": "gaussian_process",
    "neural": "neural_density",
    "filtering": "state_space FilteredLaw",
    "files": "law_from_file LawCheck list_laws new_law check_law",
    "conjugate": "Conjugate Flat",
    "growing": "GrowingArchive",
    "pulse_pyro.features": "expected_features",
    "adapter": "as_law",
    "regressor": "from_sklearn",
    "memory": "Memory",
    "remembering": "with_memory",
}
__getattr__, __dir__, __all__ = lazy_names(__name__, _HOMES)
