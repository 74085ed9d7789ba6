"""Run an experiment's settings and set measured regret beside the published figure."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from pulse_pyro.arrays import whole
from pulse_pyro.environments.arma import ArmaWorld
from pulse_pyro.environments.world import World
from pulse_pyro.laws.law import Law
from pulse_pyro.progress import bar
from pulse_pyro.seeds import stream
from pulse_pyro.simulation.agents import pulse, pulse_adaptive
from pulse_pyro.simulation.run import Agent, Fixed, Run, simulate

if TYPE_CHECKING:
    from pandas import DataFrame

CLOSE = 0.15  # relative; "reproduced" = within 15 % or two combined standard errors


@dataclass(frozen=True)
class Published:
    """A printed figure: mean, sd over runs, number of runs."""

    mean: float
    sd: float
    runs: int

    @property
    def se(self) -> float:
        """Standard error of the printed mean."""
        return self.sd / math.sqrt(self.runs)


@dataclass(frozen=True)
class Setting:
    """One column of a published table: an environment, an archive size, the agents' laws.

    laws : agent name -> law it is fitted with, on an archive of ``units`` x ``length`` per run.
    others : agents that need no archive. published : agent name -> printed figure. adaptive :
    name of an adaptive agent -> the agent whose law it starts from.
    """

    label: str
    environment: ArmaWorld
    units: int
    length: int
    horizon: int
    laws: dict[str, Law]
    others: Callable[[World], Sequence[Agent | Fixed]]
    published: dict[str, Published]
    adaptive: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Experiment:
    """A published table: settings, default number of runs, and what to know when reading it."""

    name: str
    title: str
    settings: tuple[Setting, ...]
    runs: int
    notes: dict[str, str]


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
    """All rows of an experiment, and the last setting's curves."""

    name: str
    title: str
    rows: tuple[Row, ...]
    seconds: float
    seed: int
    curves: dict[str, Run]

    @property
    def table(self) -> DataFrame:
        """One line per setting and agent."""
        import pandas as pd

        return pd.DataFrame([asdict(row) for row in self.rows])

    def to_json(self) -> dict[str, Any]:
        """Plain values, as printed by ``reproduce --json``."""
        return {
            "name": self.name, "seed": self.seed, "rows": [asdict(row) for row in self.rows],
            "seconds": round(self.seconds, 2),
        }  # fmt: skip

    def __repr__(self) -> str:
        count = sum(row.verdict == "reproduced" for row in self.rows)
        of = sum(row.published is not None for row in self.rows)
        return f"{self.title}: {count} of {of} published figures reproduced, {self.seconds:.1f} s"


def run_experiment(experiment: Experiment, *, runs: int | None = None, seed: int = 0) -> Result:
    """Run every setting; contexts and noise are shared by all agents and, within a table, settings.

    Every run draws its own archive and fits its own law, so the spread over runs contains the
    luck of the archive.
    """
    count = whole(experiment.runs if runs is None else runs, "runs", 2)
    start = time.perf_counter()
    rows: list[Row] = []
    curves: dict[str, Run] = {}
    for setting in bar(experiment.settings, label=experiment.name):
        run = run_setting(setting, count, seed)
        curves[setting.label] = run
        rows.extend(_rows(setting, run, experiment.notes))
    return Result(
        experiment.name, experiment.title, tuple(rows), time.perf_counter() - start, seed, curves
    )


def run_setting(setting: Setting, runs: int, seed: int) -> Run:
    """Fit the laws on one archive per run and play every agent on one world."""
    world = setting.environment.world(runs, setting.horizon, rng=stream(seed, "online"))
    fitted: dict[str, list[Any]] = {name: [] for name in setting.laws}
    for r in bar(range(runs), label=f"fit {setting.label}"):
        archive = setting.environment.archive(
            setting.units, setting.length, rng=stream(seed, "archive", r)
        )
        for name, law in setting.laws.items():
            fitted[name].append(law.fit(archive, seed=seed))
    agents = [pulse(world, laws, name=name) for name, laws in fitted.items()]
    agents += [
        pulse_adaptive(world, fitted[law], name=name) for name, law in setting.adaptive.items()
    ]
    return simulate(world, [*agents, *setting.others(world)])


def _rows(setting: Setting, run: Run, notes: dict[str, str]) -> list[Row]:
    rows = []
    for name, line in run.table.iterrows():
        agent = str(name)
        printed = setting.published.get(agent)
        regret, se = float(line["regret"]), float(line["se"])
        verdict, ratio = "", None
        if printed is not None:
            apart = abs(regret - printed.mean)
            close = apart <= max(CLOSE * printed.mean, 2 * math.hypot(se, printed.se))
            verdict, ratio = "reproduced" if close else "differs", regret / printed.mean
        rows.append(
            Row(
                setting.label, agent, regret, se, float(line["regret_cond"]),
                float(line["info_gap"]), int(line["runs"]),
                None if printed is None else printed.mean, ratio, verdict,
                "" if verdict == "reproduced" else notes.get(agent, "unexplained"),
            )
        )  # fmt: skip
    return rows
