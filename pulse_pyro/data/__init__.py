"""Tables in, archives out: History, and the causal summaries of its past."""

from pulse_pyro._core.namespace import lazy_names

_HOMES = {
    "history": "History Rows",
    "summary": "Lags Window Identity Stack",
    "tables": "read_frame",
}
__getattr__, __dir__, __all__ = lazy_names(__name__, _HOMES)
