"""Held-out rows as every band wants them, and how a band is to be made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from pulse_pyro.arrays import Bool, Float2, Int, whole
from pulse_pyro.errors import DataError, SettingError, nearest

Kind = Literal[
    "auto", "local_polynomial", "spline", "lipschitz", "linear", "additive", "single_index"
]
Noise = Literal["auto", "rows", "units"]
Coordinates = Literal["joint", "bonferroni"]
Critical = Literal["auto", "simulate", "tube", "scheffe", "bootstrap_t"]


@dataclass(frozen=True)
class BandMethod:
    """How a band is made; ``band="spline"`` is short for ``band=BandMethod("spline")``.

    Attributes
    ----------
    kind : auto (see :func:`pulse_pyro.bands.auto.make_band`), local_polynomial, spline, lipschitz
        (kinks allowed, wider), linear, additive, single_index.
    noise : rows (independent given x: HC3), units (dependent within a unit: clustered), or auto:
        units from 50 units on or where residuals of a unit are seen to depend.
    coordinates : joint (one supremum over all coordinates) or bonferroni.
    critical : simulate (sup of the estimated Gaussian process); tube (one-dimensional kinds,
        Bonferroni over coordinates); scheffe (linear kind: every x at once); bootstrap_t
        (one-dimensional kinds, noise by rows: skewed noise in small samples); auto: bootstrap_t
        where the residuals are skewed for their number and independent, else simulate.
    domain : central share of held-out x on which the band is uniform.
    grid, draws : points of the grid; draws of the supremum.
    """

    kind: Kind = "auto"
    noise: Noise = "auto"
    coordinates: Coordinates = "joint"
    critical: Critical = "auto"
    domain: float = 0.98
    grid: int = 400
    draws: int = 4000

    def __post_init__(self) -> None:
        options = (("kind", Kind), ("noise", Noise), ("coordinates", Coordinates),
                   ("critical", Critical))  # fmt: skip
        for name, allowed in options:
            value, names = getattr(self, name), get_args(allowed)
            if value not in names:
                raise SettingError(
                    f"BandMethod: {name} {value!r} is not known{nearest(str(value), names)}"
                )
        number = isinstance(self.domain, int | float | np.number)
        if not number or not 0 < self.domain <= 1:
            raise SettingError(f"BandMethod: domain must lie in (0, 1], but {self.domain!r} came.")
        whole(self.grid, "BandMethod: grid", 10)
        whole(self.draws, "BandMethod: draws", 100)


def check_level(level: float, where: str) -> float:
    """Return a level in (0, 1) as a float, or say what came."""
    number = isinstance(level, int | float | np.number) and not isinstance(level, bool)
    if not number or not 0 < level < 1:
        hint = f"; did you mean {level / 100:g}?" if number and 50 <= level < 100 else "."
        raise SettingError(f"{where}: level must lie between 0 and 1, but {level!r} came{hint}")
    return float(level)


def consecutive(labels: Int) -> tuple[Int, int]:
    """Renumber labels >= 0 as 0 .. k - 1, in order: (codes, k)."""
    if len(labels) and labels.max() > 100 * len(labels):
        known, codes = np.unique(labels, return_inverse=True)  # far apart: a table would not fit
        return codes, len(known)
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
                f"Sample: unit must be {n} whole numbers >= 0, one per row, but "
                f"{np.shape(self.unit)} of {np.asarray(self.unit).dtype} came."
            )

    @property
    def units(self) -> int:
        """How many distinct units the rows come from."""
        return consecutive(self.unit)[1]

    def take(self, rows: Bool) -> Sample:
        """Return the sample of these rows."""
        return Sample(self.x[rows], self.y[rows], self.unit[rows], self.x_names, self.y_names)
