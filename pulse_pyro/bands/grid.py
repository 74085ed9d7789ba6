"""A band on a grid: between its points, and beyond its ends."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pulse_pyro.arrays import Float1, Float2, Float4
from pulse_pyro.bands.band import Values


@dataclass(frozen=True, eq=False)
class GridShape:
    """Centre and half-width (q, G) on a grid (G,), linear in between.

    Half-widths include the modulus, so that the band holds between grid points too. Outside the
    grid the centre stays and the half-width grows by ``steep`` (q,), the largest
    average slope over a tenth of the domain that the band allows, or that the centre has over a
    fiftieth, per unit of x. ``modulus`` is its mean share of the half-width.
    """

    name: str
    grid: Float1
    centre: Float2
    half: Float2
    steep: Float1
    modulus: float

    @property
    def domain(self) -> str:
        """The interval."""
        return f"{self.name} in [{self.grid[0]:.3g}, {self.grid[-1]:.3g}]"

    def at(self, x: Float2) -> Values:
        """Interpolate at x (n, 1)."""
        point = x[:, 0]
        clipped = np.clip(point, self.grid[0], self.grid[-1])
        beyond = np.abs(point - clipped)
        centre = np.stack([np.interp(clipped, self.grid, row) for row in self.centre], axis=1)
        half = np.stack([np.interp(clipped, self.grid, row) for row in self.half], axis=1)
        return Values(centre, half + beyond[:, None] * self.steep, beyond == 0)


def grid_shape(
    name: str, grid: Float1, centre: Float2, cov: Float4, critical: Float2
) -> GridShape:  # fmt: skip
    """Build the shape from centre (q, G), covariance (q, G, q, G) and critical values (q, G)."""
    half = critical * _contrast(cov, (1.0,))
    modulus = _modulus(centre, cov, critical)
    span = max(len(grid) // 10, 1)
    rise = np.maximum(critical[:, span:], critical[:, :-span]) * _rise_error(cov, span)
    steep = (np.abs(centre[:, span:] - centre[:, :-span]) + rise).max(1) / (grid[span] - grid[0])
    near = max(len(grid) // 50, 1)  # noise of so short a rise says little, the centre's own does
    local = np.abs(centre[:, near:] - centre[:, :-near]).max(1) / (grid[near] - grid[0])
    steep = np.maximum(steep, local)
    return GridShape(name, grid, centre, half + modulus, steep, float((modulus / half).mean()))


def _contrast(cov: Float4, weights: tuple[float, ...]) -> Float2:
    """Return the standard error of a weighted sum of neighbours on the grid: (q, G - k + 1)."""
    k, points = len(weights), cov.shape[1]
    out = np.zeros((len(cov), points - k + 1))
    for a, wa in enumerate(weights):
        for b, wb in enumerate(weights):
            low = min(a, b)
            line = np.stack([np.diagonal(one[:, j], b - a) for j, one in enumerate(cov)])
            out += wa * wb * line[:, low : low + points - k + 1]
    return np.sqrt(np.maximum(out, 0.0))


def _rise_error(cov: Float4, span: int) -> Float2:
    """Return the standard error of the estimate's rise over ``span`` steps: (q, G - span)."""
    blocks = [one[:, j] for j, one in enumerate(cov)]
    var = [np.diag(c)[span:] + np.diag(c)[:-span] - 2.0 * np.diagonal(c, span) for c in blocks]
    return np.sqrt(np.maximum(np.stack(var), 0.0))


def _modulus(centre: Float2, cov: Float4, critical: Float2) -> Float2:
    """Return what the half-widths need so that the band also holds between grid points: (q, G).

    Halfway between grid points a curve leaves its chord by a quarter of what it does at a grid
    point against the chord of both neighbours; that second difference of the true curve is bounded
    by the estimate's own plus its band, with the same critical value.
    """
    bend = np.abs(centre[:, 1:-1] - (centre[:, 2:] + centre[:, :-2]) / 2.0)
    bend += critical[:, 1:-1] * _contrast(cov, (-0.5, 1.0, -0.5))
    padded = np.pad(bend / 4.0, ((0, 0), (2, 2)), mode="edge")
    out: Float2 = np.max([padded[:, :-2], padded[:, 1:-1], padded[:, 2:]], axis=0)
    return out
