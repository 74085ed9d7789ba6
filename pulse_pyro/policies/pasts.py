"""The past of S of every unit, as much of it as a law needs."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pulse_pyro.arrays import Float
from pulse_pyro.errors import DataError, SettingError
from pulse_pyro.laws.fitted import FittedLaw
from pulse_pyro.laws.follow import Follower, OnlineLaw
from pulse_pyro.laws.growing import GrowingArchive


class Pasts:
    """What has been seen of every unit: one follower of its series, or one per arm."""

    def __init__(self, law: OnlineLaw, arms: int) -> None:
        self.law, self.names, self.arms = law, law.s_names, arms
        self.units: dict[str, list[Follower]] = {}

    def push(self, seen: ArrayLike, unit: str) -> list[Follower]:
        """Take in S_t, (s_dim,) or (arms, s_dim), and return the unit's follower, or one per arm.

        A labelled pandas Series is read by its labels. What does not fit is refused, and nothing
        is taken in.
        """
        s = self._row(seen)
        rows = s[None] if s.ndim == 1 else s
        past = self.units.get(unit)
        if past is None:
            past = [self.law.follow() for _ in rows]
        if len(past) != len(rows):
            raise DataError(f"act: unit {unit!r} mixes shared contexts and contexts per arm.")
        for one, row in zip(past, rows, strict=True):
            one.push(row)
        self.units[unit] = past
        return past

    def swap(self, law: FittedLaw, archive: GrowingArchive | None) -> None:
        """Follow every unit with another law; one with memory sees all of a unit again."""
        self.law = law
        for unit, past in self.units.items():
            fresh = [law.follow() for _ in past]
            for new, old in zip(fresh, past, strict=True):
                if "rows" in old.state():
                    new.restore(old.state())
                elif archive is None:
                    raise SettingError(
                        "swap_law: a law with memory needs all of S again; use a GrowingArchive."
                    )
                else:
                    for row in archive.rows(unit):
                        new.push(row)
            self.units[unit] = fresh

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
