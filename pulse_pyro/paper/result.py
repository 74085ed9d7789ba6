"""Measured beside published: rows, verdicts, and what goes to a file."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from pulse_pyro._core.arrays import Float2
from pulse_pyro._core.as_json import records
from pulse_pyro.envs.simulation import Run
from pulse_pyro.paper.setting import Experiment, Published, Reason, Setting

if TYPE_CHECKING:
    from pandas import DataFrame

CLOSE = 0.15  # relative; "reproduced" = within 15 % or two combined standard errors
UNEXPLAINED = "unexplained"


@dataclass(frozen=True)
class Row:
    """Measured beside published, for one agent in one setting.

    radius, ball, overruled : of a guard: mean radius, share of runs whose ball held theta* in all
    rounds, share of rounds in which the advisor was overruled; None without one.
    """

    setting: str
    agent: str
    regret: float
    se: float
    regret_cond: float
    info_gap: float
    runs: int
    published: float | None
    ratio: float | None
    verdict: str
    why: str
    radius: float | None = None
    ball: float | None = None
    overruled: float | None = None


@dataclass(frozen=True, eq=False)
class Result:
    """All rows of an experiment, and the curves they come from.

    experiment : what was run. seconds : of work, over all workers. curves : label -> Run.
    """

    experiment: Experiment
    rows: tuple[Row, ...]
    seconds: float
    seed: int
    curves: Mapping[str, Run]

    @property
    def name(self) -> str:
        """The experiment's name."""
        return self.experiment.name

    @property
    def table(self) -> DataFrame:
        """One line per setting and agent."""
        import pandas as pd

        return pd.DataFrame([asdict(row) for row in self.rows])

    @cached_property
    def extra(self) -> DataFrame | None:
        """The experiment's further table, if it has one."""
        make = self.experiment.extra
        return None if make is None else make(self)

    @property
    def counts(self) -> dict[str, int]:
        """How many published figures were reproduced, differ for a stated reason, or do not."""
        judged = [(r.verdict, r.why) for r in self.rows if r.published is not None]
        extra = self.extra
        if extra is not None and "published" in extra:
            judged += list(zip(extra["verdict"], extra["why"], strict=True))
        found = Counter(UNEXPLAINED if why == UNEXPLAINED else kind for kind, why in judged)
        return {kind: found[kind] for kind in ("reproduced", "differs", UNEXPLAINED)}

    def to_json(self) -> dict[str, Any]:
        """Plain values, as printed by ``reproduce --json``."""
        extra = self.extra
        return {
            "name": self.name,
            "seed": self.seed,
            "rows": [asdict(row) for row in self.rows],
            "extra": None if extra is None else records(extra),
            "counts": self.counts,
            "seconds": round(self.seconds, 2),
        }

    def __repr__(self) -> str:
        counts = self.counts
        return (
            f"{self.experiment.title}: of {sum(counts.values())} published figures "
            f"{counts['reproduced']} reproduced, {counts['differs']} differ for a stated reason, "
            f"{counts[UNEXPLAINED]} unexplained; {self.seconds:.1f} s of work"
        )


def rows_of(experiment: Experiment, curves: Mapping[str, Run]) -> tuple[Row, ...]:
    """Judge every agent of every setting, at the last round and at earlier ones that were printed.

    A reason counts only if what it rests on holds among these very rows.
    """
    judged = [
        (_row(label, run, agent, t, printed.get(agent)), _reason(experiment, setting, agent, label))
        for setting in experiment.settings
        for run in (curves[setting.label],)
        for t, label, printed, agents in _lines(setting, run)
        for agent in agents
    ]
    known = {(row.setting, row.agent): (row, reason) for row, reason in judged}

    def holds(row: Row, reason: Reason) -> bool:
        if reason.pooled is not None:
            return _agrees(row, reason.pooled)
        if reason.see is None:
            return True
        other, own = known.get(reason.see, (row, Reason(UNEXPLAINED)))
        return other.verdict == "reproduced" or (
            other is not row and own.text != UNEXPLAINED and own.see is None and holds(other, own)
        )

    out = []
    for row, reason in judged:
        why = "" if row.verdict == "reproduced" else reason.text
        if row.verdict == "differs" and (why.startswith("not published") or not holds(row, reason)):
            why = UNEXPLAINED
        out.append(replace(row, why=why))
    return tuple(out)


def _lines(
    setting: Setting, run: Run
) -> Iterator[tuple[int, str, Mapping[str, Published], Sequence[str]]]:
    """Rounds that are judged: the round, its label, what was printed for it, agents."""
    rounds = run.regret.shape[-1]
    for t, printed in setting.earlier.items():
        if t <= rounds:
            yield t, f"{setting.label}, t={t}", printed, list(printed)
    yield rounds, setting.label, setting.published, run.names


def _reason(experiment: Experiment, setting: Setting, agent: str, label: str) -> Reason:
    reason = setting.notes.get(agent, experiment.notes.get(agent, UNEXPLAINED))
    if isinstance(reason, str):
        return Reason(reason)
    if reason.see is None:
        return reason
    later = label.removeprefix(setting.label)  # an earlier round points to that round elsewhere
    return replace(reason, see=(reason.see[0] + later, reason.see[1]))


def _row(label: str, run: Run, agent: str, t: int, printed: Published | None) -> Row:
    at = run.names.index(agent)
    final, cond = run.regret[at, :, t - 1], run.regret_cond[at, :, t - 1]
    regret, se = float(final.mean()), float(final.std(ddof=1) / math.sqrt(len(final)))
    row = Row(
        setting=label,
        agent=agent,
        regret=regret,
        se=se,
        regret_cond=float(cond.mean()),
        info_gap=_gap(run, t),
        runs=len(final),
        published=None,
        ratio=None,
        verdict="",
        why="",
        radius=_mean_of(run.radius, at),
        ball=_mean_of(run.held, at),
        overruled=_mean_of(run.overruled, at),
    )
    if printed is None:
        return row
    return replace(
        row,
        published=printed.mean,
        ratio=regret / printed.mean if printed.mean else None,
        verdict="reproduced" if _agrees(row, printed) else "differs",
    )


def _mean_of(values: Float2 | None, agent: int) -> float | None:
    """Return the mean over runs of what a guard has; None without one."""
    own = None if values is None else values[agent]
    return None if own is None or np.isnan(own).any() else float(own.mean())


def _agrees(row: Row, printed: Published) -> bool:
    """Within 15 % or two combined standard errors, give or take half the last printed digit."""
    sd = row.se * math.sqrt(row.runs) if printed.sd is None else printed.sd
    error = math.hypot(row.se, sd / math.sqrt(printed.runs))
    close = max(CLOSE * printed.mean, 2 * error) + printed.digit / 2
    return abs(row.regret - printed.mean) <= close


def _gap(run: Run, t: int) -> float:
    """Information gap after t rounds: what the best policy that sees only S has lost by then."""
    if t == run.regret.shape[-1]:
        return float(np.mean(run.info_gap))
    if "cond_oracle" not in run.names:
        return math.nan
    return float(run.of("cond_oracle")[:, t - 1].mean())
