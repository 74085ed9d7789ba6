"""Following one series online: take in S_t, ask for W_t, as much of the past kept as is needed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np

from pulse_pyro.arrays import Float, Float1, Float2

if TYPE_CHECKING:
    from pulse_pyro.laws.fitted import FittedLaw


class Follower(Protocol):
    """One series as it unfolds."""

    @property
    def now(self) -> Float1:
        """The newest S_t, (s_dim,)."""

    def push(self, s: Float1) -> None:
        """Take in S_t, (s_dim,), NaN where it is not seen."""

    def inputs(self) -> Float1:
        """Return x_t, (p,): what the law looks at now, in raw units."""

    def mean(self) -> Float1:
        """Return E[W_t | S_1:t], (w_dim,)."""

    def state(self) -> dict[str, Float]:
        """Return all that has been taken in, as arrays."""

    def restore(self, state: Mapping[str, Float]) -> None:
        """Go on from where :meth:`state` was taken."""

    def sample(self, size: int, rng: np.random.Generator) -> Float2:
        """Draw W_t given S_1:t, (size, w_dim)."""


@runtime_checkable
class OnlineLaw(Protocol):
    """A fitted law that can be asked one decision at a time."""

    @property
    def s_names(self) -> tuple[str, ...]:
        """Columns of S."""

    @property
    def w_names(self) -> tuple[str, ...]:
        """Columns of W."""

    @property
    def contexts(self) -> Float2:
        """(2, s_dim) mean and sd of S in the archive."""

    @property
    def exact_mean(self) -> bool:
        """Whether means carry no Monte Carlo error."""

    def follow(self) -> Follower:
        """Start to follow a series of which nothing has been seen yet."""


class Window:
    """The last rows of a series, as many as the law looks at; rows before its first are NaN."""

    def __init__(self, law: FittedLaw) -> None:
        self._law = law
        self._rows = np.full((law.summary.memory, len(law.s_names)), np.nan)

    @property
    def now(self) -> Float1:
        """The newest row."""
        row: Float1 = self._rows[-1]
        return row

    def push(self, s: Float1) -> None:
        """Drop the oldest row, append the newest."""
        self._rows[:-1] = self._rows[1:]
        self._rows[-1] = s

    def inputs(self) -> Float1:
        """Return x_t of the window."""
        return self._law.newest(self._rows)

    def state(self) -> dict[str, Float]:
        """Return the window."""
        return {"rows": self._rows.copy()}

    def restore(self, state: Mapping[str, Float]) -> None:
        """Take over a window."""
        self._rows[:] = state["rows"]

    def mean(self) -> Float1:
        """Return E[W_t | window]."""
        return self._law.mean_now(self._rows)

    def sample(self, size: int, rng: np.random.Generator) -> Float2:
        """Draw W_t given the window."""
        return self._law.sample_now(self._rows, size, rng=rng)
