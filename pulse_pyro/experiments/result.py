"""Measured beside published: rows, verdicts, and what goes to a file."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pulse_pyro.experiments.setting import Experiment, Published, Setting
from pulse_pyro.simulation.run import Run

if TYPE_CHECKING:
    from pandas import DataFrame

CLOSE = 0.15  # relative; "reproduced" = within 15 % or two combined standard errors
UNEXPLAINED = "unexplained"


@dataclass(frozen=True)
class Row:
    """Measured beside published, for one agent in one setting."""

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

    @property
    def extra(self) -> DataFrame | None:
        """The experiment's further table, if it has one."""
        make = self.experiment.extra
        return None if make is None else make(self)

    @property
    def counts(self) -> dict[str, int]:
        """How many published figures were reproduced, differ for a stated reason, or do not."""
        found = Counter(
            UNEXPLAINED if row.why == UNEXPLAINED else row.verdict
            for row in self.rows
            if row.published is not None
        )
        return {kind: found[kind] for kind in ("reproduced", "differs", UNEXPLAINED)}

    def to_json(self) -> dict[str, Any]:
        """Plain values, as printed by ``reproduce --json``."""
        extra = self.extra
        return {
            "name": self.name, "seed": self.seed, "rows": [asdict(row) for row in self.rows],
            "extra": None if extra is None else extra.to_dict("records"),
            "counts": self.counts, "seconds": round(self.seconds, 2),
        }  # fmt: skip

    def __repr__(self) -> str:
        counts = self.counts
        return (
            f"{self.experiment.title}: of {sum(counts.values())} published figures "
            f"{counts['reproduced']} reproduced, {counts['differs']} differ for a stated reason, "
            f"{counts[UNEXPLAINED]} unexplained; {self.seconds:.1f} s of work"
        )


def rows_of(setting: Setting, run: Run, notes: Mapping[str, str]) -> list[Row]:
    """Judge every agent of a setting: at the last round, and at earlier ones that were printed."""
    rounds = run.regret.shape[-1]
    last = [_row(setting, setting.label, run, agent, rounds, setting.published, notes)
            for agent in run.names]  # fmt: skip
    before = [
        _row(setting, f"{setting.label}, t={t}", run, agent, t, printed, notes)
        for t, printed in setting.earlier.items()
        if t <= rounds
        for agent in printed
    ]
    return [*before, *last]


def _row(
    setting: Setting, label: str, run: Run, agent: str, t: int, published: Mapping[str, Published],
    notes: Mapping[str, str],
) -> Row:  # fmt: skip
    at = run.names.index(agent)
    final, cond = run.regret[at, :, t - 1], run.regret_cond[at, :, t - 1]
    regret, se = float(final.mean()), float(final.std(ddof=1) / math.sqrt(len(final)))
    printed = published.get(agent)
    verdict, ratio = "", None
    if printed is not None:
        apart = abs(regret - printed.mean)
        close = max(CLOSE * printed.mean, 2 * math.hypot(se, printed.se))
        verdict = "reproduced" if apart <= close + printed.digit / 2 else "differs"
        ratio = regret / printed.mean if printed.mean else None
    why = setting.notes.get(agent, notes.get(agent, UNEXPLAINED))
    if verdict == "differs" and why.startswith("not published"):
        why = UNEXPLAINED  # says why there is no figure, not why it differs
    return Row(
        label, agent, regret, se, float(cond.mean()), _gap(run, t), len(final),
        None if printed is None else printed.mean, ratio, verdict,
        "" if verdict == "reproduced" else why,
    )  # fmt: skip


def _gap(run: Run, t: int) -> float:
    """Information gap after t rounds: what the best policy that sees only S has lost by then."""
    if t == run.regret.shape[-1]:
        return float(np.mean(run.info_gap))
    if "cond_oracle" not in run.names:
        return math.nan
    return float(run.of("cond_oracle")[:, t - 1].mean())
