"""One law bounded by one band: what both give at any context."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import stats

from pulse_pyro.arrays import Bool, Float, Float2, Float3, Float4
from pulse_pyro.bands.band import Band
from pulse_pyro.calibration.targets import CalibratedLaw, Targets
from pulse_pyro.errors import DataError
from pulse_pyro.seeds import stream

CONTEXTS = 1_000_000  # a calibration may be asked for, in all, before Monte Carlo failures add up
POLICY_DRAWS = 256  # Monte Carlo draws a policy uses at least
MC_SHARE = 0.05  # of the allowed failures, given to Monte Carlo error where there is any


class Budget(NamedTuple):
    """The pieces of a bound, (batch, time, q), and what is inside the domain, (batch, time)."""

    centre: Float3
    half: Float3
    predicted: Float3
    monte_carlo: Float3
    inside: Bool

    @property
    def total(self) -> Float3:
        """R + |m - mu_p^| + Monte Carlo error."""
        return self.half + np.abs(self.centre - self.predicted) + self.monte_carlo


@dataclass(frozen=True, eq=False)
class Part:
    """A law, the band of a reference fit p0 on other rows, and how errors reach the features.

    band : of E[target | x]. failures : allowed probability for Monte Carlo error, 0 if exact.
    size, seed : Monte Carlo draws where the law's mean is not closed form.
    """

    law: CalibratedLaw
    band: Band
    targets: Targets
    failures: float
    size: int
    seed: int

    def budget(self, s: Float3) -> Budget:
        """Evaluate band and law at the contexts s (batch, time, s_dim); NaN where x is."""
        if s.ndim != 3 or s.shape[-1] != len(self.law.s_names):
            raise DataError(
                f"Calibration: s must be (batch, time, {len(self.law.s_names)}) with columns "
                f"{self.law.s_names}, but its shape is {s.shape}; for one series use s[None]."
            )
        x = self.law.summary(s)
        values = self.band.at(x.reshape(-1, x.shape[-1]))
        lead = s.shape[:2]
        rng = stream(self.seed, "calibration")
        predicted, mcse = self.targets.predicted(self.law, s, self.size, rng)
        # two Monte Carlo errors, either sign: of this prediction, and of a policy's own with fewer
        # draws; as many contexts as a long run may ask for, however they are split into calls
        count = 4.0 * CONTEXTS * mcse.shape[-1] * self.targets.features.actions
        both = 1.0 + np.sqrt(self.size / POLICY_DRAWS)
        z = both * float(stats.norm.isf(self.failures / count)) if self.failures > 0 else 0.0
        return Budget(
            values.centre.reshape(*lead, -1), values.half.reshape(*lead, -1), predicted, z * mcse,
            values.inside.reshape(lead),
        )  # fmt: skip

    def errors(self, s: Float) -> tuple[Float4, Bool]:
        """Return E (batch, time, action, d) and inside (batch, time) at s.

        s is (batch, time, s_dim), or (batch, time, action, s_dim) with a context per action; then
        a round is inside if every action's context is.
        """
        actions = range(self.targets.features.actions)
        if s.ndim == 4 and s.shape[2] != len(actions):
            raise DataError(
                f"Calibration: s must hold a context for each of {len(actions)} actions, but its "
                f"shape is {s.shape}."
            )
        if s.ndim == 4:
            each = [self._errors_of(s[:, :, a], [a]) for a in actions]
            return (
                np.concatenate([e for e, _ in each], axis=2),
                np.all([inside for _, inside in each], axis=0),
            )
        return self._errors_of(s, list(actions))

    def _errors_of(self, s: Float3, actions: list[int]) -> tuple[Float4, Bool]:
        budget = self.budget(s)
        rows: Float2 = s.reshape(-1, s.shape[-1])
        eps = budget.total.reshape(len(rows), -1)
        columns = [self.targets.errors(rows, eps, a) for a in actions]
        return np.stack(columns, axis=1).reshape(*s.shape[:2], len(actions), -1), budget.inside
