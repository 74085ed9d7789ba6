"""Make a band by name, or choose one by the summary's dimension, and say why."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from pulse_pyro._core.errors import DataError, SettingError
from pulse_pyro._core.registry import named
from pulse_pyro.bands import BANDS
from pulse_pyro.bands.additive import MOST_INPUTS, additive
from pulse_pyro.bands.band import BandFit, BandMethod, Sample, check_level
from pulse_pyro.bands.curve import curve_band, curve_rows, hull
from pulse_pyro.bands.kinks import GATE, kink_p
from pulse_pyro.bands.lack_of_fit import lack_of_fit
from pulse_pyro.bands.linear import linear
from pulse_pyro.bands.local_polynomial import local_polynomial_weights
from pulse_pyro.bands.spline import lipschitz_weights, spline_weights
from pulse_pyro.bands.tensor import fewest_rows, tensor

MANY_ROWS = 2000
ADDITIVE_LEVEL = 0.01
MOST_DRAWS = 200_000


@dataclass(frozen=True, eq=False)
class Choice:
    """A band and the reason for its kind."""

    fit: BandFit
    why: str


def make_band(sample: Sample, method: BandMethod, level: float, rng: np.random.Generator) -> Choice:
    """Make the band ``method`` asks for.

    auto: one input, a curve (local polynomial from 2,000 rows on, spline below, where a kink shows
    put together with the Lipschitz band); two or three, a tensor product of splines from 480 and
    1,920 rows on, below a sum of splines, refused if the inputs interact; more, the linear band.

    Why a tensor product even where inputs seem to act as a sum: the test of a sum looks for what it
    knows. It passed .6 cos(3 x1) cos(3 x2) and a step in one corner, and given a pass the band of a
    sum covered them in no replication. The tensor band needs no such form. It
    is wider for that, about three times on sin(3 x1) + x2^2 with 3,000 rows; whoever knows that the
    inputs act as a sum asks for band="additive", and the claim is then conditional on it.
    """
    check_level(level, "bands")
    method = replace(method, draws=_enough_draws(method, level, sample.y.shape[1]))
    if method.kind != "auto":
        make = named(BANDS, method.kind)
        return Choice(make(sample, method, level, rng), "asked for")
    p = sample.x.shape[1]
    if p == 1:
        return _curve(sample, method, level, rng)
    if p > MOST_INPUTS:
        why = f"{p} inputs: a uniform band needs structure, linear is assumed"
        return Choice(linear(sample, method, level, rng), why)
    if len(sample.x) * method.domain**p >= fewest_rows(p):
        return _tensor(sample, method, level, rng)
    return _additive(sample, method, level, rng)


def _enough_draws(method: BandMethod, level: float, coordinates: int) -> int:
    """Return at least ten draws beyond the quantile that is asked for."""
    each = (1.0 - level) / (1 if method.coordinates == "joint" else coordinates)
    needed = int(np.ceil(10.0 / each))
    if needed > MOST_DRAWS:
        raise SettingError(
            f"bands: level {level} needs {needed} draws of the supremum; ask for a lower level."
        )
    return max(method.draws, needed)


def auto_curve(
    sample: Sample, method: BandMethod, level: float, rng: np.random.Generator
) -> BandFit:
    """Choose a band for a one-dimensional summary.

    Local polynomial from 2,000 rows on, penalised spline below; if a kink is left in the residuals
    of any coordinate (p < 0.2), the hull of that band and the Lipschitz band for all of them.
    """
    bins, grid = curve_rows(sample, method)
    many = len(bins.x) >= MANY_ROWS
    weights = (local_polynomial_weights if many else spline_weights)(bins, grid)
    kind = replace(method, kind="local_polynomial" if many else "spline")
    smooth = curve_band(sample, bins, grid, weights, method=kind, level=level, rng=rng)
    p = kink_p(bins, smooth.band.noise)
    if p >= GATE:
        return replace(smooth, roughness=p)
    weights, kind = lipschitz_weights(bins, grid), replace(method, kind="lipschitz")
    rough = curve_band(sample, bins, grid, weights, method=kind, level=level, rng=rng)
    # one smooth curve in five shows a kink by chance, and it is the noise that made it which the
    # Lipschitz band then follows: alone it missed 13 % of those, the hull holds the smooth one too
    return replace(rough, band=hull(rough.band, smooth.band), roughness=p)


def _curve(sample: Sample, method: BandMethod, level: float, rng: np.random.Generator) -> Choice:
    fit = auto_curve(sample, method, level, rng)
    side = "at least" if fit.band.rows >= MANY_ROWS else "fewer than"
    why = f"one input, {side} {MANY_ROWS} rows"
    if fit.band.kind == "lipschitz":
        why += f", and a kink shows (p = {fit.roughness:.2g} < {GATE})"
    return Choice(fit, why)


def _tensor(sample: Sample, method: BandMethod, level: float, rng: np.random.Generator) -> Choice:
    fit = tensor(sample, replace(method, kind="tensor"), level, rng)
    why = f"{sample.x.shape[1]} inputs, at least {fewest_rows(sample.x.shape[1])} rows"
    if fit.roughness < GATE:
        why += f", and a ridge shows (p = {fit.roughness:.2g} < {GATE})"
    return Choice(fit, why)


def _additive(sample: Sample, method: BandMethod, level: float, rng: np.random.Generator) -> Choice:
    p = sample.x.shape[1]
    fit = additive(sample, replace(method, kind="additive"), level, rng)
    x = sample.x[fit.kept]
    u = (x - x.mean(0)) / x.std(0)
    pairs = [(i, k) for i in range(p) for k in range(i + 1, p)]
    products = np.stack([u[:, i] * u[:, k] for i, k in pairs], axis=1)
    names = tuple(f"{sample.x_names[i]} x {sample.x_names[k]}" for i, k in pairs)
    test = lack_of_fit(
        fit,
        np.concatenate([products, u], axis=1),
        (*names, *sample.x_names),
        sample.unit[fit.kept],
        rng,
    )
    if test.p < ADDITIVE_LEVEL:
        raise DataError(
            f"bands: {p} inputs do not act as a sum (p = {test.p:.2g}, strongest: {test.worst}); a "
            "uniform band without structure is not to be had in several dimensions. Give the "
            'product as an input, use band="single_index", or band="linear" with a richer summary.'
        )
    why = f"{p} inputs that act as a sum (additivity p = {test.p:.2g})"
    return Choice(fit, why)
