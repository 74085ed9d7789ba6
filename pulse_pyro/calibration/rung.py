"""A rung of the ladder: one claim about a law's error, and the held-out rows it is made from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from pulse_pyro._core.arrays import Array, Float1, Float2, Int
from pulse_pyro.base import Checks, Schema

if TYPE_CHECKING:
    from pandas import DataFrame

RungVerdict = Literal["stands", "conditional", "fails", "not asked"]
ON_S, ON_FORECAST = "the best policy on S", "the best policy on the forecast"  # benchmarks
Groups = Sequence[str] | Mapping[str, Any] | None


@dataclass(frozen=True, eq=False)
class ErrorRows:
    """Held-out rows as every rung sees them: n rows, q targets, N clusters.

    Attributes
    ----------
    names : of the q targets: the columns of W that Phi looks at, or features where Phi bends.
    target : (n, q) what was to be forecast. forecast : (n, q) what the law expects of it.
    x, x_names : (n, p) the law's inputs. s, s_names : (n, s_dim) S_t.
    cluster : (n,) which independent piece a row belongs to, 0 .. N - 1, each of them there.
    unit, time : (n,) which unit, and which step of it. date : (n,) step of the calendar that all
        units share; None where it is not known. per_day : steps a day; 0 where steps are no dates.
    history_row : (n,) which row of the held-out archive.
    """

    names: tuple[str, ...]
    target: Float2
    forecast: Float2
    x: Float2
    x_names: tuple[str, ...]
    s: Float2
    s_names: tuple[str, ...]
    cluster: Int
    unit: Int
    time: Int
    history_row: Int
    date: Int | None = None
    per_day: float = 0.0

    @cached_property
    def error(self) -> Float2:
        """The law's error y = target - forecast, (n, q)."""
        out: Float2 = self.target - self.forecast
        return out

    @property
    def spread(self) -> Float1:
        """Standard deviation of each target, (q,), in which sizes are told; 1 where constant."""
        sd = self.target.std(0)
        return np.where(sd > 0, sd, 1.0)

    @property
    def clusters(self) -> int:
        """How many independent pieces there are, N."""
        return int(self.cluster.max()) + 1 if len(self.cluster) else 0

    def take(self, rows: Array) -> ErrorRows:
        """Return some rows, True or False for each or their numbers; clusters are renumbered."""
        return ErrorRows(
            names=self.names,
            target=self.target[rows],
            forecast=self.forecast[rows],
            x=self.x[rows],
            x_names=self.x_names,
            s=self.s[rows],
            s_names=self.s_names,
            cluster=np.unique(self.cluster[rows], return_inverse=True)[1],
            unit=self.unit[rows],
            time=self.time[rows],
            history_row=self.history_row[rows],
            date=None if self.date is None else self.date[rows],
            per_day=self.per_day,
        )


class RungDetails(Protocol):
    """What a rung was made of, for people: plain values and arrays, so that it can be saved."""

    @property
    def table(self) -> DataFrame:
        """One line a bin, group or basis."""


@dataclass(frozen=True, eq=False)
class Rung:
    """One claim about the law's error, at its own level.

    Attributes
    ----------
    name : uniform, forecast, groups, average or free.
    verdict : "stands"; "conditional" (true if ``rests_on`` is, which nobody proved); "fails" (a
        test of what it rests on failed, or it is not to be had here); "not asked".
    claim : one sentence that a reviewer can quote. A rung that fails, or was not asked, says so and
        states no number.
    sizes : (q,) mean bound over the held-out rows, in standard deviations of each target; empty
        where there is none.
    rests_on : what a conditional claim takes for granted. remedy : what would lift the rung: more
        clusters, and how many, another input, a better law.
    benchmark : whom a policy is compared with whose radius uses this rung; "" if it feeds none.
    checks : what was tested on the way. details : what it was made of.
    """

    name: str
    verdict: RungVerdict
    claim: str
    sizes: Float1
    rests_on: str = ""
    remedy: str = ""
    benchmark: str = ""
    checks: Checks = Checks(())  # noqa: RUF009  (an immutable value)
    details: RungDetails | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "checks", Checks(self.checks))  # any sequence of them will do

    @property
    def holds(self) -> bool:
        """Whether the claim may be stated: it stands, or does under a condition that is named."""
        return self.verdict in ("stands", "conditional")

    @property
    def size(self) -> float:
        """The largest of ``sizes``; NaN where the claim may not be stated."""
        known = self.sizes[np.isfinite(self.sizes)]  # a target without a judged group has none
        return float(known.max()) if self.holds and len(known) else float("nan")


def no_rung(name: str, verdict: RungVerdict, why: str, remedy: str = "") -> Rung:
    """Return a rung that states nothing: it was not asked, or it is not to be had, and why."""
    return Rung(name, verdict, why, np.zeros(0), remedy=remedy)


@dataclass(frozen=True, eq=False)
class Ask:
    """What a rung is asked for, beside the rows.

    level : probability of its claim. seed : of whatever is drawn. groups : declared groups, see
    ``groups``. schema : of the held-out archive. rows : how many rows it has; 0 where not told.
    """

    level: float
    seed: int
    groups: Groups = None
    schema: Schema = Schema(())  # noqa: RUF009  (an immutable value)
    rows: int = 0


def percent(level: float) -> str:
    """Begin a claim: "With 95% confidence"."""
    return f"With {100 * level:.4g}% confidence"


def rounded_up(value: float, digits: int = 2) -> str:
    """Write a size with few digits, rounded up: a claim must not be smaller than its bound."""
    if not np.isfinite(value) or value <= 0:
        return f"{value:g}"
    step = 10.0 ** (np.floor(np.log10(value)) + 1.0 - digits)
    return f"{np.ceil(value / step - 1e-9) * step:.{digits}g}"
