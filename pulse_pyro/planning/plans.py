"""The answer of the planner: a verdict in words, the decay behind it, a table and a picture."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from pulse_pyro.arrays import Float1, Float2
from pulse_pyro.planning.decay import Crossing, Decay
from pulse_pyro.study.recipe import Recipe
from pulse_pyro.study.stakes import Parts, Stakes
from pulse_pyro.verdicts import Check

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

FARTHEST = 1000.0  # times the archive: beyond this a straight line is no forecast
FLAT = 0.05  # p-value below which the decay is said to flatten out

Answer = Literal["already there", "reachable", "not reachable"]


@dataclass(frozen=True, eq=False)
class Plan:
    """How much history until imputation no longer dominates regret at horizon T.

    Attributes
    ----------
    stakes, recipe, seed : what was asked; the recipe has the band that was settled on.
    rows : (sizes,) rows of the archive at each size, mean over orderings.
    mean_e : (ordering, sizes) plain mean of e, beside the root mean square the bound needs.
    decay, error_decay : of the root mean D, and of e, see :class:`Decay`.
    dim, norm : d and B, the largest norm of the expected features at the contexts.
    contexts, bounded : how many contexts every size was judged at, and how many have a bound from
        the whole archive, which sets the level of both curves.
    monte_carlo : share of the bound, at the largest size, that is Monte Carlo error of the law's
        expectations (0 where they are closed form): no history makes it smaller.
    worst : the worst check of the first calibration at the largest size.
    left_out : sizes that could not be judged, and why, a sentence each.

    See :func:`plan` for the formulas, and for what a plan does not cover.
    """

    stakes: Stakes
    recipe: Recipe
    seed: int
    rows: Float1
    mean_e: Float2
    decay: Decay
    error_decay: Decay
    dim: int
    norm: float
    contexts: int
    bounded: int
    monte_carlo: float
    worst: Check
    left_out: tuple[str, ...]

    @property
    def units(self) -> int:
        """The largest size, in units."""
        return int(self.decay.units[-1])

    @property
    def e(self) -> float:
        """The error e at the largest size, on the fitted line."""
        return float(self.error_decay.at(self.units)[1])

    @property
    def target(self) -> float:
        """e*: the error at which the imputation part equals the statistical part."""
        return self.stakes.balance(dim=self.dim, norm=self.norm)

    @property
    def parts(self) -> Parts:
        """The bound at the largest size: statistical and imputation part."""
        return self.stakes.parts(self.e, dim=self.dim, norm=self.norm)

    @property
    def needed(self) -> Crossing:
        """Units at which e(n) = e*, with the interval of the band; infinite if never."""
        return self.error_decay.crossing(self.target)

    @property
    def answer(self) -> Answer:
        """Already there, reachable, or not reachable: never, or beyond 1,000 times the archive."""
        if self.e <= self.target:
            return "already there"
        return "reachable" if self.needed.n <= FARTHEST * self.units else "not reachable"

    @property
    def verdict(self) -> str:
        """The answer in one sentence."""
        n, low, high = self.needed
        where = f"at horizon {self.stakes.horizon:,}"
        share = self.parts.imputation / self.parts.statistical
        if self.answer == "already there":
            sure = high <= self.units
            doubt = "" if sure else f", though the band reaches to {_count(high)} units"
            return (
                f"already there; with {self.units:,} units imputation is {share:.2g} of the "
                f"statistical part {where}{doubt}."
            )
        if self.answer == "reachable":
            return (
                f"about {_count(n)} units until imputation no longer dominates {where} (95 % band "
                f"{_count(low)} to {_count(high)}); with {self.units:,} it is {share:.2g} times "
                "the statistical part."
            )
        known = self.units < low < math.inf
        least = f", {_count(low)} units at the very least" if known else ""
        return (
            f"not reachable by this rate {where}{least}; with {self.units:,} units imputation is "
            f"{share:.2g} times the statistical part: improve the law, or its summary."
        )

    @property
    def table(self) -> DataFrame:
        """One line per size; se is over orderings, of the root mean D."""
        import pandas as pd

        d = self.decay.values
        return pd.DataFrame(
            {
                "units": self.decay.units.astype(int), "rows": self.rows.round().astype(int),
                "root_mean_D": d.mean(0), "se": d.std(0, ddof=1) / np.sqrt(len(d)),
                "rms_e": self.error_decay.values.mean(0), "mean_e": self.mean_e.mean(0),
            }
        )  # fmt: skip

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw e and the root mean D over n, the fitted lines, and where e meets e*."""
        from pulse_pyro.plots import decay_plot

        return decay_plot(self, ax)

    def to_json(self) -> dict[str, Any]:
        """Plain values; an end that is infinite is None."""
        method = self.recipe.method
        return {
            "verdict": self.verdict, "answer": self.answer,
            "needed_units": dict(zip(("n", "low", "high"), map(_finite, self.needed), strict=True)),
            "target_e": self.target, "e": self.e, "bound": self.parts._asdict(),
            "rate_sqrt_D": self.decay.rate, "rate_sqrt_D_interval": list(self.decay.rate_interval),
            "rate_e": self.error_decay.rate,
            "rate_e_interval": list(self.error_decay.rate_interval),
            "flattening_p": self.error_decay.flattening, "dim": self.dim, "norm": self.norm,
            "contexts": self.contexts,
            "bounded_contexts": self.bounded,
            "monte_carlo_share": self.monte_carlo, "orderings": len(self.decay.values),
            "band": {"kind": method.kind, "noise": method.noise, "level": self.recipe.level,
                     "mode": self.recipe.mode},
            "check": {"name": self.worst.name, "verdict": self.worst.verdict,
                      "text": self.worst.text},
            "stakes": asdict(self.stakes), "seed": self.seed,
            "sizes": self.table.to_dict("records"), "left_out": list(self.left_out),
        }  # fmt: skip

    def __repr__(self) -> str:
        low, high = self.decay.rate_interval
        method, parts = self.recipe.method, self.parts
        sizes = ", ".join(f"{n:,.0f}" for n in self.decay.units)
        flat = self.error_decay.flattening
        lines = [
            f"Plan: {self.verdict}",
            f"  sqrt(D) goes like n^{-self.decay.rate:.3f} (95 % {-high:.3f} to {-low:.3f}, "
            f"{len(self.decay.values)} orderings), at {sizes} units",
            f"  e is {self.e:.3g} with {self.units:,} units; {self.target:.3g} is wanted (d = "
            f"{self.dim}, B = {self.norm:.3g}, {self.contexts:,} of {self.bounded:,} contexts)",
            f"  bound on regret: {parts.statistical:.4g} statistical + {parts.imputation:.4g} "
            f"imputation; band {method.kind}, noise by {method.noise}, mode {self.recipe.mode}",
        ]
        if parts.statistical >= 2.0 * self.stakes.horizon:
            lines.append("  the statistical part alone exceeds 2 T: at this horizon the bound says "
                         "nothing yet")  # fmt: skip
        if self.monte_carlo > 0:
            lines.append(f"  {self.monte_carlo:.0%} of D's root is Monte Carlo error at "
                         f"{self.units:,} units: history does not make it smaller")  # fmt: skip
        if flat < FLAT:
            lines.append(f"  warn flattening: p = {flat:.2g}. The decay bends upwards: more units "
                         "than the line says will be needed.")  # fmt: skip
        if self.worst.verdict in ("warn", "fail"):
            lines.append(f"  {self.worst.verdict} {self.worst.name}: {self.worst.text}")
        lines += [f"  left out: {why}" for why in self.left_out]  # one at most: three are needed
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        from html import escape

        shown = self.table.to_html(float_format="{:.4g}".format, index=False)
        return f"<pre>{escape(repr(self))}</pre>{shown}"


def _count(n: float) -> str:
    """Write a number of units as a person would."""
    if math.isinf(n):
        return "infinitely many"
    return f"{math.ceil(n):,}" if n < 1e7 else f"{n:.0e}"


def _finite(n: float) -> float | None:
    return n if math.isfinite(n) else None
