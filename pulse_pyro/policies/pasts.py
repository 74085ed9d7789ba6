"""The past of S of every unit, as much of it as a law needs."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pulse_pyro.arrays import Float
from pulse_pyro.errors import DataError, SettingError
from pulse_pyro.laws.fitted import FittedLaw
from pulse_pyro.laws.follow import Follower, OnlineLaw
from pulse_pyro.laws.growing import GrowingArchive
from pulse_pyro.policies.asked import labelled


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

    def followed_by(
        self, law: FittedLaw, archive: GrowingArchive | None
    ) -> dict[str, list[Follower]]:
        """Return every unit's past as another law follows it: a law with memory sees it all again.

        A law of other columns, or that looks at something else, is refused.
        """
        mine, new = _looks_at(self.law), _looks_at(law)
        if mine != new:
            raise SettingError(f"swap_law: the law that plays looks at {mine}, this one at {new}.")
        units = {}
        for unit, past in self.units.items():
            units[unit] = [law.follow() for _ in past]
            for follower, old in zip(units[unit], past, strict=True):
                if "rows" in old.state():
                    follower.restore(old.state())
                    continue
                if archive is None:
                    raise SettingError(
                        "swap_law: a law with memory needs all of S again; use a GrowingArchive."
                    )
                for row in archive.rows(unit):
                    follower.push(row)
        return units

    def _row(self, seen: Any) -> Float:
        s = labelled(seen, self.names, "act: s")
        wanted = len(self.names)
        if s.shape not in ((wanted,), (self.arms, wanted)):
            raise DataError(
                f"act: s must be ({wanted},) for columns {self.names}, or ({self.arms}, {wanted}) "
                f"with one context per arm, but its shape is {s.shape}."
            )
        if np.isinf(s).any():
            raise DataError(f"act: s holds an infinite value ({s}); use NaN for not seen.")
        return s


def _looks_at(law: object) -> tuple[object, ...]:
    summary = getattr(law, "summary", None)
    about = (getattr(summary, "names", None), getattr(summary, "memory", None))
    return (
        type(law).__name__,
        getattr(law, "s_names", None),
        getattr(law, "w_names", None),
        *about,
    )
