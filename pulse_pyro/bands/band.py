"""A uniform confidence band, and what any maker of one returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from pulse_pyro.arrays import Bool, Float, Float1, Float2
from pulse_pyro.errors import DataError


class Values(NamedTuple):
    """A band at n points: centre and half-width (n, q), and which points are in the domain (n,)."""

    centre: Float2
    half: Float2
    inside: Bool


class Shape(Protocol):
    """How a band looks: what it gives at x (n, p), and its domain in words."""

    @property
    def domain(self) -> str:
        """Where the band is uniform."""

    def at(self, x: Float2) -> Values:
        """Evaluate at x (n, p)."""


@dataclass(frozen=True, eq=False)
class Band:
    """With probability ``level``, |E[y_j | x] - centre_j(x)| <= half_j(x) for all x and all j.

    Attributes
    ----------
    kind : the method that made it.
    made : how, one sentence per coordinate.
    level : nominal probability, over the domain (for the linear band: over as many contexts as its
        domain says) and all coordinates at once.
    critical : (q,) critical values under the normal, before the Student-t map.
    noise : "rows" if rows were taken as independent given x, "units" if only units were.
    x_names, y_names : p inputs and q coordinates.
    rows, units : what it was made from.
    shape : centre, half-width and domain as functions of x.

    Not covered: that E[y | S_1:t] depends on S through x alone (see the lack-of-fit test), contexts
    outside the domain (widened on the assumption that the curve gets no steeper there), and curves
    rougher than the method allows.
    """

    kind: str
    made: tuple[str, ...]
    level: float
    critical: Float1
    noise: str
    x_names: tuple[str, ...]
    y_names: tuple[str, ...]
    rows: int
    units: int
    shape: Shape

    def at(self, x: Float) -> Values:
        """Evaluate at x (n, p), or (n,) when p = 1; NaN in, NaN out, and not inside."""
        x = np.asarray(x, dtype=np.float64)
        x = x[:, None] if x.ndim == 1 and len(self.x_names) == 1 else x
        if x.ndim != 2 or x.shape[1] != len(self.x_names):
            raise DataError(
                f"Band.at: x must be (n, {len(self.x_names)}) with columns {self.x_names}, but its "
                f"shape is {x.shape}."
            )
        seen = np.isfinite(x).all(1)
        if seen.all():
            return self.shape.at(x)
        blank = np.full((len(x), len(self.y_names)), np.nan)
        out = Values(blank, blank.copy(), np.zeros(len(x), np.bool_))
        if seen.any():
            for mine, found in zip(out, self.shape.at(x[seen]), strict=True):
                mine[seen] = found
        return out

    def __repr__(self) -> str:
        lines = [f"  {n}: {m}" for n, m in zip(self.y_names, self.made, strict=True)][:6]
        c = ", ".join(f"{v:.2f}" for v in np.unique(self.critical.round(2))[:4])
        unit = "rows independent given x" if self.noise == "rows" else "clustered by unit"
        return "\n".join(
            [
                f"Band {self.kind}, {100 * self.level:.4g}% over {self.shape.domain}, critical "
                f"value {c}",
                f"  {self.rows} rows of {self.units} units, {unit}",
                *lines,
            ]
        )


@dataclass(frozen=True, eq=False)
class BandFit:
    """A band with what later checks need.

    Attributes
    ----------
    band : the band.
    kept : (n,) rows of the sample that took part.
    residual : (kept, q) what the centre leaves.
    smooth : applies the estimator of coordinate j to other columns, (kept, m) -> (kept, m).
    roughness : smallest p-value of the test for a kink in what is left; NaN where not run.
    skewness : |skewness| of the noise over the root of the local sample size; NaN where not known.
    """

    band: Band
    kept: Bool
    residual: Float2
    smooth: Callable[[Float2, int], Float2]
    roughness: float = float("nan")
    skewness: float = float("nan")
