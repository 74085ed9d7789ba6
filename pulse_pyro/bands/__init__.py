"""Uniform confidence bands for a regression function: NumPy and SciPy only."""

from pulse_pyro._core.namespace import lazy_names

# kind -> function(sample, method, level, rng) -> BandFit; "auto" chooses among some of them
BANDS = {
    "local_polynomial": "pulse_pyro.bands.local_polynomial:local_polynomial",
    "spline": "pulse_pyro.bands.spline:spline",
    "lipschitz": "pulse_pyro.bands.spline:lipschitz",
    "linear": "pulse_pyro.bands.linear:linear",
    "additive": "pulse_pyro.bands.additive:additive",
    "tensor": "pulse_pyro.bands.tensor:tensor",
    "single_index": "pulse_pyro.bands.single_index:single_index",
}
_HOMES = {
    "band": "Band BandMethod Sample",
    "auto": "make_band",
    "linear": "ridge_band",
}
__getattr__, __dir__, __all__ = lazy_names(__name__, _HOMES)
