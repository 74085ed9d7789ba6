"""What would halve a calibrated bound: more units, or a better law."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from pandas import DataFrame

    from pulse_pyro.calibration.calibration import Calibration

# r falls like n^-rate: coefficients of a line; curves with two derivatives; curves with one
PARAMETRIC, SMOOTH, ROUGH = 1 / 2, 2 / 5, 1 / 3
CHANCE = 0.01  # share of contexts a right law may leave a band at: some bands speak of 1,000 only
RATES = {"linear": PARAMETRIC, "ridge": PARAMETRIC, "lipschitz": ROUGH}


@dataclass(frozen=True)
class Halving:
    """The mean bound on a target, r + |mu_p0 - mu_phat| + Monte Carlo, and what halves it.

    Attributes
    ----------
    half, difference, monte_carlo : means over the held-out contexts in the domain.
    leaves : share of those contexts at which the law lies outside the band: there it is off, with
        the probability of the band, by its form or by what it was fitted on.
    rate : r falls like n^-rate, known from the band's kind, not measured.
    units : n now.

    The figures are orders of magnitude: rates hold for large n, and how much of the difference is
    chance cannot be told from one archive. ``plan`` measures the decay on sub-archives instead.
    """

    target: str
    half: float
    difference: float
    monte_carlo: float
    leaves: float
    rate: float
    units: int

    @property
    def bound(self) -> float:
        """The mean bound."""
        return self.half + self.difference + self.monte_carlo

    @property
    def units_at_best(self) -> float:
        """Units at which the bound is half, if the difference is chance and falls like r."""
        return self._needed(self.half + self.difference, self.monte_carlo)

    @property
    def units_if_it_stays(self) -> float:
        """Units at which the bound is half, if the difference stays; infinite if none do."""
        return self._needed(self.half, self.difference + self.monte_carlo)

    @property
    def sentence(self) -> str:
        """What to do, in one sentence."""
        shares = [piece / self.bound for piece in (self.half, self.difference)]
        made = f"{self.target}: r makes {shares[0]:.0%} of the mean bound {self.bound:.3g}, the "
        made += f"difference {shares[1]:.0%}"
        if 2 * self.monte_carlo >= self.bound:
            return (
                f"{made}; Monte Carlo error makes the rest, which no units take away: a law with "
                "expectations in closed form, or Phi affine in W, has none."
            )
        best, stays = round_up(self.units_at_best), round_up(self.units_if_it_stays)
        reach = math.isfinite(self.units_if_it_stays)
        if self.leaves > CHANCE:
            text = (
                f"{made}; the law leaves the band at {self.leaves:.0%} of the contexts. If it was "
            )
            text += f"fitted on too few units, about {best} units instead of {self.units} for law "
            text += "and band alike halve the bound; if its form is wrong, "
            more = f"a better law does, or about {stays} units for the band alone."
            return text + (more if reach else "only a better law does.")
        text = (
            f"{made}; the law stays inside the band, so the difference may be chance. Then about "
        )
        text += f"{best} units instead of {self.units} halve the bound; if the difference stays, "
        return text + (f"{stays} do." if reach else "only a better law does.")

    def _needed(self, falls: float, stays: float) -> float:
        room = self.bound / 2 - stays
        return math.inf if room <= 0 else self.units * (falls / room) ** (1 / self.rate)


def halvings(calibration: Calibration) -> list[Halving]:
    """Return, for each target (of each half, after cross-fitting), what halves its mean bound.

    Only where that bound holds, ``calibration.usable``.
    """
    calibration.require_usable("halvings")
    out = []
    for part in calibration.parts:
        budget = part.budget(calibration.contexts)
        seen = budget.inside if budget.inside.any() else np.isfinite(budget.half).all(-1)
        gap = np.abs(budget.centre - budget.predicted)[seen]
        half, extra = budget.half[seen], budget.monte_carlo[seen]
        out += [
            Halving(
                target=name,
                half=float(half[:, j].mean()),
                difference=float(gap[:, j].mean()),
                monte_carlo=float(extra[:, j].mean()),
                leaves=float((gap[:, j] > half[:, j] + extra[:, j]).mean()),
                rate=RATES.get(part.band.kind, SMOOTH),
                units=part.band.units,
            )
            for j, name in enumerate(part.targets.names)
        ]
    return out


def halving_table(halves: list[Halving]) -> DataFrame:
    """One line per target: shares of the bound, where the law leaves the band, units needed."""
    import pandas as pd

    drawn = {"share of Monte Carlo": [f"{half.monte_carlo / half.bound:.0%}" for half in halves]}
    return pd.DataFrame(
        {
            "target": [half.target for half in halves],
            "bound mean": [half.bound for half in halves],
            "share of r": [f"{half.half / half.bound:.0%}" for half in halves],
            "share of difference": [f"{half.difference / half.bound:.0%}" for half in halves],
            **(drawn if any(half.monte_carlo for half in halves) else {}),
            "law outside band": [f"{half.leaves:.1%}" for half in halves],
            "r falls like": [f"n^-{half.rate:.2g}" for half in halves],
            "units now": [half.units for half in halves],
            "units, difference is chance": [round_up(half.units_at_best) for half in halves],
            "units, difference stays": [round_up(half.units_if_it_stays) for half in halves],
        }
    ).set_index("target")


def round_up(units: float) -> str:
    """Two digits, rounded up: more would pretend to knowledge."""
    if math.isinf(units) or units > 1e9:
        return "none do"
    step = 10.0 ** max(math.floor(math.log10(max(units, 1.0))) - 1, 0)
    return f"{math.ceil(units / step - 1e-9) * step:,.0f}"
