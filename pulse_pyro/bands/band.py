"""Held-out rows as every band wants them, how a band is to be made, and what any maker returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol, get_args

import numpy as np

from pulse_pyro._core.arrays import Bool, Float, Float1, Float2, Int, whole
from pulse_pyro._core.errors import DataError, SettingError, nearest
from pulse_pyro.bands import BANDS

# Held-out rows as every band wants them, and how a band is to be made.


Noise = Literal["auto", "rows", "units"]
Coordinates = Literal["joint", "bonferroni"]
Critical = Literal["auto", "simulate", "tube", "scheffe", "bootstrap_t"]
Smoothed = Literal["auto", "error", "target"]


@dataclass(frozen=True)
class BandMethod:
    """How a band is made; ``band="spline"`` is short for ``band=BandMethod("spline")``.

    Attributes
    ----------
    kind : auto (see :func:`pulse_pyro.bands.auto.make_band`), local_polynomial, spline, lipschitz
        (kinks allowed, wider), linear, additive, tensor, single_index, or another of ``BANDS``.
    noise : rows (independent given x: HC3), units (dependent within a unit: clustered), or auto:
        units from 20 units on or where residuals of a unit are seen to depend.
    coordinates : joint (one supremum over all coordinates) or bonferroni.
    critical : simulate (sup of the estimated Gaussian process); tube (one-dimensional kinds,
        Bonferroni over coordinates); scheffe (linear kind: every x at once); bootstrap_t
        (one-dimensional kinds: skewed noise in small samples); auto: bootstrap_t
        where the residuals are skewed for their number and independent, else simulate.
    of : what is smoothed: the law's own error ("error": narrow where the law caught the bends; only
        on rows it was not fitted on, and not for laws with jumps), or W itself ("target": speaks of
        the truth, so it also serves a law that is refitted); auto: error where that is valid.
    domain : central share of held-out x on which the band is uniform.
    grid, draws : points of the grid; draws of the supremum.
    tested : whether ``calibrate`` tests what the band leaves; untested it is faster, and says so.
    """

    kind: str = "auto"
    noise: Noise = "auto"
    coordinates: Coordinates = "joint"
    critical: Critical = "auto"
    of: Smoothed = "auto"
    domain: float = 0.98
    grid: int = 400
    draws: int = 4000
    tested: bool = True

    def __post_init__(self) -> None:
        options = {
            "kind": ("auto", *BANDS),
            "noise": get_args(Noise),
            "coordinates": get_args(Coordinates),
            "critical": get_args(Critical),
            "of": get_args(Smoothed),
        }
        for name, names in options.items():
            value = getattr(self, name)
            if value not in names:
                raise SettingError(
                    f"BandMethod: {name} {value!r} is not known{nearest(str(value), names)}"
                )
        number = isinstance(self.domain, int | float | np.number)
        if not number or not 0 < self.domain <= 1:
            raise SettingError(f"BandMethod: domain must lie in (0, 1], but got {self.domain!r}.")
        whole(self.grid, "BandMethod: grid", 10)
        whole(self.draws, "BandMethod: draws", 100)


def check_level(level: float, where: str) -> float:
    """Return a level in (0, 1) as a float, or say what was got."""
    number = isinstance(level, int | float | np.number) and not isinstance(level, bool)
    if not number or not 0 < level < 1:
        hint = f"; did you mean {level / 100:g}?" if number and 50 <= level < 100 else "."
        raise SettingError(f"{where}: level must lie between 0 and 1, but got {level!r}{hint}")
    return float(level)


def consecutive(labels: Int) -> tuple[Int, int]:
    """Renumber labels >= 0 as 0 .. k - 1, in order: (codes, k)."""
    if len(labels) and labels.max() > 100 * len(labels):
        distinct, codes = np.unique(labels, return_inverse=True)  # a table would not fit
        return codes, len(distinct)
    present = np.bincount(labels) > 0
    return (np.cumsum(present) - 1)[labels], int(present.sum())


@dataclass(frozen=True, eq=False)
class Sample:
    """Rows a band is made from.

    Attributes
    ----------
    x : (n, p) summary of the past.
    y : (n, q) coordinates whose mean given x is wanted.
    unit : (n,) unit of each row, 0 .. units - 1.
    """

    x: Float2
    y: Float2
    unit: Int
    x_names: tuple[str, ...]
    y_names: tuple[str, ...]

    def __post_init__(self) -> None:
        n = len(self.x)
        if self.x.shape != (n, len(self.x_names)) or self.y.shape != (n, len(self.y_names)):
            raise DataError(
                f"Sample: x must be (n, {len(self.x_names)}) and y (n, {len(self.y_names)}), but "
                f"they are {self.x.shape} and {self.y.shape}."
            )
        for name, values, labels in (("x", self.x, self.x_names), ("y", self.y, self.y_names)):
            bad = np.argwhere(~np.isfinite(values))
            if len(bad):
                row, column = bad[0]
                raise DataError(
                    f"Sample: {name} must be finite, but {labels[column]!r} is "
                    f"{values[row, column]} in row {row}."
                )
        whole_numbers = np.issubdtype(np.asarray(self.unit).dtype, np.integer)
        if np.shape(self.unit) != (n,) or not whole_numbers or (n and np.min(self.unit) < 0):
            raise DataError(
                f"Sample: unit must be {n} whole numbers >= 0, one per row, but got "
                f"{np.shape(self.unit)} of {np.asarray(self.unit).dtype}."
            )

    @property
    def units(self) -> int:
        """How many distinct units the rows come from."""
        return consecutive(self.unit)[1]

    def take(self, rows: Bool | Int) -> Sample:
        """Return the sample of these rows."""
        return Sample(self.x[rows], self.y[rows], self.unit[rows], self.x_names, self.y_names)


# A uniform confidence band, and what any maker of one returns.


class Values(NamedTuple):
    """A band at n points: centre and half-width (n, q), and which points are in the domain (n,)."""

    centre: Float2
    half: Float2
    inside: Bool


class BandShape(Protocol):
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
    shape: BandShape

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
            for array, values in zip(out, self.shape.at(x[seen]), strict=True):
                array[seen] = values
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
