"""Which values W takes, where it takes a few, and whether a law gives such values."""

from __future__ import annotations

import numpy as np

from pulse_pyro._core.arrays import Float1, Float2
from pulse_pyro.base import Column

VALUES = 10  # distinct values of W, up to which it is discrete whatever it was declared
REPEATED = 5.0  # times, on average, that a value must come for this to be no accident


def levels_of(w: Float1, column: Column) -> Float1 | None:
    """Return the values a discrete W takes, rising; None if it is not discrete, or constant.

    w : (n,). Discrete: declared binary, ordinal or categorical (0/1 columns), or of 10 distinct
    values at most, each of which comes 5 times on average. Counts of more values are judged like
    numbers.
    """
    levels = np.unique(w[np.isfinite(w)])
    if len(levels) < 2:
        return None
    declared = column.kind in ("binary", "ordinal", "categorical")
    return levels if declared or _few(len(levels), len(w)) else None


def has_ties(draws: Float2) -> bool:
    """Tell whether a law gives values that come again: draws (size, n) of one W."""
    return bool((draws[0] == draws[1]).any())


def _few(levels: int, rows: int) -> bool:
    return levels <= VALUES and rows >= REPEATED * levels
