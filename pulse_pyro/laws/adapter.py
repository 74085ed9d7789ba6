"""Laws made elsewhere: any object with ``__call__`` and ``schema`` becomes a law like others."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pulse_pyro._core.arrays import Float, Float1
from pulse_pyro._core.errors import ModelError
from pulse_pyro._core.seeds import stream
from pulse_pyro.base import Conditional, FittedLaw, Follower, Schema, Summary
from pulse_pyro.data.history import Source
from pulse_pyro.data.summary import Identity
from pulse_pyro.laws.fitted import by_action
from pulse_pyro.laws.memory import Memory

PROBES = 5  # rows at which a law without a fingerprint of its own is asked for one


def as_law(law: Any, where: str) -> FittedLaw:
    """Return a law that has all the contract asks for.

    One that lacks them is given: a summary of the current row alone, no units of its own (so no
    leak can be noticed), a fingerprint by its answers, and a follower that asks it row by row.
    where : for the message, e.g. "calibrate".
    """
    if isinstance(law, FittedLaw):
        return law
    if not callable(law) or not isinstance(getattr(law, "schema", None), Schema):
        raise ModelError(
            f"{where}: a fitted law was expected, but got {type(law).__name__}; fit it first: "
            "law.fit(history, seed=0). Any object with __call__(source, at) and a Schema will do."
        )
    return LawAdapter(law)


@dataclass(frozen=True, eq=False)
class LawAdapter:
    """A law that brings ``__call__`` and ``schema`` alone, with what is missing filled in.

    memory : see ``with_memory``.
    """

    law: Any
    memory: Memory | None = None

    @property
    def schema(self) -> Schema:
        """Columns of S and W."""
        schema: Schema = self.law.schema
        return schema

    @property
    def summary(self) -> Summary:
        """What it looks at, as it says; else the current row."""
        summary: Summary = getattr(self.law, "summary", Identity())
        return summary

    @property
    def units(self) -> tuple[str, ...]:
        """Units it says it has seen."""
        return tuple(getattr(self.law, "units", ()))

    @property
    def id(self) -> str:
        """Its own fingerprint, or one by its answers at five rows like the archive's."""
        fingerprint = getattr(self.law, "id", None)
        if isinstance(fingerprint, str):
            return fingerprint
        mean, sd = self.schema.contexts
        s = mean + sd * stream(0, "probe").standard_normal((PROBES, len(mean)))
        about = f"{type(self.law).__name__} {self.schema.s_names} {self.schema.w_names}"
        answers = np.ascontiguousarray(self.law(s[None]).mean())
        return hashlib.sha256(about.encode() + answers.tobytes()).hexdigest()[:16]

    def __call__(self, source: Source, at: ArrayLike | None = None) -> Conditional:
        """Ask the law itself, which need not know of actions."""
        answer: Conditional = self.law(*by_action(source, at))
        return answer

    def follow(self, unit: str | None = None) -> Follower:
        """Follow a series the law's own way, or by asking for its newest row."""
        own: Callable[[str | None], Follower] | None = getattr(self.law, "follow", None)
        return SeriesFollower(self) if own is None else own(unit)


class SeriesFollower:
    """The last rows of a series, as many as a law's summary looks at; the law is asked anew."""

    def __init__(self, law: FittedLaw) -> None:
        self._law = law
        self._rows = np.full((law.summary.memory, len(law.schema.s_names)), np.nan)

    @property
    def now(self) -> Float1:
        """The newest S_t."""
        row: Float1 = self._rows[-1]
        return row

    @property
    def conditional(self) -> Conditional:
        """The law of W_t given the rows."""
        return self._law(self._rows[None].copy(), [len(self._rows) - 1])

    def push(self, s: Float1, w: Float1 | None = None) -> Conditional:
        """Drop the oldest row, append the newest."""
        self._rows[:-1] = self._rows[1:]
        self._rows[-1] = s
        return self.conditional

    def inputs(self) -> Float1:
        """Return x_t of the rows."""
        return self._law.summary.last(self._rows)

    def state(self) -> dict[str, Float]:
        """Return the rows."""
        return {"rows": self._rows.copy()}

    def restore(self, state: Mapping[str, Float]) -> None:
        """Take over rows."""
        self._rows[:] = state["rows"]
