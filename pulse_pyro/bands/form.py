"""The functions a band can follow, as a finite basis: what is left beyond them is a misfit."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.interpolate import BSpline

from pulse_pyro._core.arrays import Float1, Float2
from pulse_pyro.bands.band import Band
from pulse_pyro.bands.basis import BasisShape
from pulse_pyro.bands.linear import Span
from pulse_pyro.bands.single_index import IndexShape
from pulse_pyro.bands.spline import DEGREE, uniform_knots
from pulse_pyro.bands.tensor import TensorShape

Form = Callable[[Float2], Float2]  # x (n, p) -> b(x) (n, K)

FEWEST, MOST = 8, 20  # coefficients of a curve
SAME = 1e-10  # share of a direction's squared length below which it repeats others


def form_of(band: Band, x: Float2) -> Form:
    """Return b(x), (n, p) -> (n, K), whose combinations hold all that the band can follow.

    A band in a basis (linear, sums or products of splines) has its own; a curve gets a spline of up
    to 20 coefficients, more with more rows x (n, p); a single index its splines, the inputs, and
    their products with the index, which is where an error of the direction shows first. Any other
    band of several inputs counts as linear. What a curve does between the knots of the spline is
    not followed: a curve rougher than that is a misfit.
    """
    shape = band.shape
    if isinstance(shape, TensorShape):
        shape = shape.smooth  # what it allows for beyond its basis is width, not form
    if isinstance(shape, BasisShape):
        return shape.basis.design
    coefficients = int(np.clip(round(2.0 * len(x) ** 0.25), FEWEST, MOST))
    if isinstance(shape, IndexShape):
        directions = shape.direction
        splines = [_spline(x @ d, coefficients) for d in directions]

        def along(x: Float2) -> Float2:
            parts = [spline(x @ d) for spline, d in zip(splines, directions, strict=True)]
            parts += [x, *(x * (x @ d)[:, None] for d in directions)]
            return np.concatenate(parts, axis=1)

        return along
    if x.shape[1] == 1:
        curve = _spline(x[:, 0], coefficients)
        return lambda x: curve(x[:, 0])
    span = Span.of(x)
    return lambda x: np.concatenate([np.ones((len(x), 1)), span(x)], axis=1)


def _spline(values: Float1, coefficients: int) -> Callable[[Float1], Float2]:
    """Return cubic B-splines over the range of values (n,), (m,) -> (m, coefficients)."""
    low, high = float(values.min()), float(values.max())
    if not high > low:
        return lambda u: np.ones((len(u), 1))
    knots = uniform_knots(low, high, coefficients)
    return lambda u: BSpline.design_matrix(np.clip(u, low, high), knots, DEGREE).toarray()


def free_of(b: Float2, columns: Float2) -> Float2:
    """Return what least squares on b (n, K) leaves of columns (n, m); b may repeat itself.

    (I - b (b'b)^- b') z, with directions of b that hold a share of less than 1e-10 left out.
    """
    return freed(axes_of(b), columns)


def axes_of(b: Float2) -> Float2:
    """Return orthonormal columns (n, r) that span those of b (n, K)."""
    length = np.sqrt((b**2).sum(0))
    live = length > 0
    unit = b[:, live] / length[live]
    values, vectors = np.linalg.eigh(unit.T @ unit)
    keep = values > SAME * len(values)
    out: Float2 = unit @ (vectors[:, keep] / np.sqrt(values[keep]))
    return out


def freed(axes: Float2, columns: Float2) -> Float2:
    """Return what is left of columns (n, m) once orthonormal axes (n, r) have taken theirs."""
    left = columns
    for _ in range(2):  # once more, for what rounding left
        left = left - axes @ (axes.T @ left)
    return left
