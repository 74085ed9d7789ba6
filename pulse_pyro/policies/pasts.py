"""The recent past of S of every unit, as much of it as a law looks at."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pulse_pyro.arrays import Float
from pulse_pyro.errors import DataError


class Pasts:
    """Rolling windows by unit: (memory, s_dim), or (arms, memory, s_dim) with a context per arm.

    Rows before a unit's first are NaN: not seen.
    """

    def __init__(self, names: tuple[str, ...], arms: int, memory: int) -> None:
        self.names, self.arms, self.memory = names, arms, memory
        self.rows: dict[str, Float] = {}

    def push(self, seen: ArrayLike, unit: str) -> Float:
        """Append S_t, (s_dim,) or (arms, s_dim), and return the unit's window, newest row last.

        A labelled pandas Series is read by its labels. What does not fit is refused, and nothing
        is appended.
        """
        s = self._row(seen)
        past = self.rows.get(unit)
        if past is None:
            past = np.full((*s.shape[:-1], self.memory, len(self.names)), np.nan)
        if past.ndim != s.ndim + 1:
            raise DataError(f"act: unit {unit!r} mixes shared contexts and contexts per arm.")
        past[..., :-1, :] = past[..., 1:, :]
        past[..., -1, :] = s
        self.rows[unit] = past
        return past

    def _row(self, seen: Any) -> Float:
        labels = getattr(seen, "index", None) if hasattr(seen, "iloc") else None
        if labels is not None and set(labels) != set(self.names):
            raise DataError(f"act: s is labelled {list(labels)}, but the law needs {self.names}.")
        try:
            row = seen.loc[list(self.names)] if labels is not None else seen
            s = np.asarray(row, dtype=np.float64)
        except (TypeError, ValueError) as cause:
            raise DataError(f"act: s must hold numbers for {self.names}: {cause}.") from cause
        wanted = len(self.names)
        if s.shape not in ((wanted,), (self.arms, wanted)):
            raise DataError(
                f"act: s must be ({wanted},) for columns {self.names}, or ({self.arms}, {wanted}) "
                f"with one context per arm, but its shape is {s.shape}."
            )
        if np.isinf(s).any():
            raise DataError(f"act: s holds an infinite value ({s}); use NaN for not seen.")
        return s
