"""How the bound of each rung falls with the archive, and at how many clusters it is half."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pulse_pyro._core.arrays import Float2
from pulse_pyro.calibration.average import AverageErrors
from pulse_pyro.calibration.calibration import FREE, UNIFORM, Calibration
from pulse_pyro.calibration.decay import FEWEST, Crossing, Decay, fit_decay, reach
from pulse_pyro.calibration.forecast import Reliability
from pulse_pyro.calibration.groups import GroupErrors
from pulse_pyro.calibration.rung import Rung

NOISE_STAYS = "cannot be had: it is how W varies around its forecast, which no history takes away"


@dataclass(frozen=True, eq=False)
class RungDecay:
    """The bound of one rung over sizes of the archive.

    Attributes
    ----------
    name : of the rung. clusters : of the archive now.
    size : its bound now, in standard deviations of W, mean over orderings; NaN if it fails.
    alike : of what that speaks, and the bound at every size that is compared: how many bins, lines
        of groups and targets, functions.
    decay : of its size over clusters; None where there is none. why : why, then.
    """

    name: str
    clusters: int
    size: float
    alike: str
    decay: Decay | None
    why: str

    @property
    def half(self) -> Crossing | None:
        """Clusters at which the fitted line is half of what it is now, with the band's interval."""
        if self.decay is None:
            return None
        return self.decay.crossing(float(self.decay.at(self.clusters)[1]) / 2.0)

    @property
    def answer(self) -> str:
        """How many clusters, in words; "not known" where they span more than tenfold."""
        if self.half is None:
            return self.why
        n, low, high = (count(value) for value in self.half)
        found = reach(self.half, self.clusters)
        if found == "reachable":
            return f"about {n} ({low} to {high})"
        if found == "not reachable":
            return "not reachable by this rate: a better law, or summary, comes first"
        return f"not known: by these orderings anything from {low} to {high}"

    @property
    def line(self) -> dict[str, Any]:
        """Plain values for a table; no number of clusters where it is not known."""
        nothing = Crossing(math.nan, math.nan, math.nan)
        known = self.half is not None and reach(self.half, self.clusters) == "reachable"
        half = self.half if known and self.half is not None else nothing
        return {
            "rung": self.name,
            "clusters now": self.clusters,
            "size now, sds": self.size,
            "alike": self.alike,
            "falls like n to the minus": math.nan if self.decay is None else self.decay.rate,
            "clusters for half": half.n,
            "at least": half.low,
            "at most": half.high,
            "answer": self.answer,
        }

    def __repr__(self) -> str:
        size = f"{self.size:.2g} sd" if math.isfinite(self.size) else ""
        alike = f", {self.alike}" if self.alike and self.decay is not None else ""
        return f"{self.name:9} {size:8} {self.answer}{alike}"


def rung_decays(
    judged: Sequence[tuple[int, Sequence[Calibration]]], uniform: Rung
) -> tuple[RungDecay, ...]:
    """Follow the bound of every rung over sizes of the archive, each with its calibrations.

    judged : rising sizes, in clusters, and one calibration an ordering. uniform : that rung of the
    whole archive, tested: its figures are refused where it fails.

    Bounds compare only where they speak of as much: the same number of bins, of groups that are
    judged, of functions k (the largest that three sizes have in common). Sizes go, the smallest
    first, until half of the orderings have them all; what decides whether a small archive has so
    many bins or functions is its clusters and inputs, never the law's error. Sizes of all targets
    are told by the largest.

    Not covered: the level of the rung average is shared among its bases, of which small archives
    have fewer; and what :class:`Decay` says of its band.
    """
    clusters, largest = judged[-1]
    out = []
    for name in (rung.name for rung in largest[0].rungs):
        if name == UNIFORM and not uniform.holds:
            out.append(RungDecay(name, clusters, math.nan, "", None, f"refused: {uniform.claim}"))
        else:
            out.append(_followed(name, judged))
    return tuple(out)


def _followed(name: str, judged: Sequence[tuple[int, Sequence[Calibration]]]) -> RungDecay:
    clusters = judged[-1][0]
    rungs = [[calibration.rung(name) for calibration in made] for _, made in judged]
    units = np.array([units for units, _ in judged], dtype=np.float64)
    now = [rung.size for rung in rungs[-1] if rung.holds]
    if not now:
        return RungDecay(name, clusters, math.nan, "", None, rungs[-1][0].claim)
    size = float(np.mean(now))
    if name == FREE:
        return RungDecay(name, clusters, size, "", None, NOISE_STAYS)
    told = [[_told(rung) for rung in each] for each in rungs]
    kinds = list(dict.fromkeys(kind for found in told[-1] for kind in found))
    for kind in reversed(kinds):  # the most functions first
        values = np.array([[found.get(kind, math.nan) for found in each] for each in told]).T
        kept = _kept(values)
        if kept is not None:
            first, some = kept
            size = float(some[:, -1].mean())  # of as many functions as its decay is
            return RungDecay(name, clusters, size, kind, fit_decay(units[first:], some), "")
    few = f"not known: fewer than {FEWEST} sizes of the archive have so many {_OF[name]}"
    return RungDecay(name, clusters, size, kinds[-1], None, few)


_OF = {"uniform": "contexts", "forecast": "bins", "groups": "groups", "average": "functions"}


def _told(rung: Rung) -> dict[str, float]:
    """Return sizes by what has to be alike for them to be compared; nothing of one that fails."""
    if not rung.holds:
        return {}
    details = rung.details
    if isinstance(details, AverageErrors):
        return {
            f"k = {k}": float(sds.max()) for k, sds in zip(details.k, details.in_sds, strict=True)
        }
    if isinstance(details, Reliability):
        return {f"{len(details.target)} bins": rung.size}
    if isinstance(details, GroupErrors):
        return {f"{int(details.judged.sum())} groups": rung.size}
    return {"": rung.size}


def _kept(values: Float2) -> tuple[int, Float2] | None:
    """Return from which size on, and the orderings (ordering, sizes) that have all of them."""
    known = np.isfinite(values) & (values > 0)
    for first in range(values.shape[1] - FEWEST + 1):
        every = known[:, first:].all(1)
        if every.sum() >= max(2, len(values) / 2):
            return first, values[every, first:]
    return None


def count(n: float) -> str:
    """Write a number of units as a person would."""
    if math.isinf(n):
        return "infinitely many"
    return f"{math.ceil(n):,}" if n < 1e7 else f"{n:.0e}"
