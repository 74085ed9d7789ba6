"""What an experiment is made of: settings, their agents, and the figures that were printed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from pulse_pyro._core.progress import bar
from pulse_pyro._core.seeds import stream
from pulse_pyro.base import UnfittedLaw
from pulse_pyro.data.history import History
from pulse_pyro.envs.simulation import Agent, Fixed, PerRun, Team
from pulse_pyro.envs.world import Environment, World

if TYPE_CHECKING:
    from pandas import DataFrame

    from pulse_pyro.paper.result import Result

FIGURE = (
    "pulse",
    "pulse_adaptive",
    "pulse_calibrated",
    "oful",
    "oful_paper",
    "oful_full",
    "clbbf_paper",
)


@dataclass(frozen=True)
class Published:
    """A printed figure: mean, sd over runs, number of runs, and unit of the last printed digit.

    sd : None where no spread was printed; the measured one then stands for it.
    """

    mean: float
    sd: float | None
    runs: int
    digit: float = 0.1


@dataclass(frozen=True)
class Reason:
    """Why a figure differs, with what must be true for it to count.

    text : the sentence. pooled : all printed lines that repeat this one figure; the measurement
    must agree with their mean. see : (setting, agent) whose own figure must be explained or
    reproduced. Without either it is taken as it is.
    """

    text: str
    pooled: Published | None = None
    see: tuple[str, str] | None = None


def pool(printed: Sequence[Published]) -> Published:
    """Return the mean of lines that repeat one figure, with the spread of all their runs."""
    runs = sum(each.runs for each in printed)
    mean = sum(each.mean * each.runs for each in printed) / runs
    inside = sum((each.sd or 0.0) ** 2 * each.runs for each in printed)
    between = sum((each.mean - mean) ** 2 * each.runs for each in printed)
    return Published(mean, math.sqrt((inside + between) / runs), runs, printed[0].digit)


@dataclass(frozen=True, eq=False)
class Ready:
    """What the agents of a setting are made from.

    Attributes
    ----------
    world : the online rounds of all runs.
    archives : one per run.
    laws : name -> the law fitted on each run's archive.
    seed : of the experiment; agents that draw use streams of it.
    """

    world: World
    archives: tuple[History, ...]
    laws: Mapping[str, list[Any]]
    seed: int


Agents: TypeAlias = Callable[[Ready], Sequence[Agent | Team | PerRun | Fixed]]


@dataclass(frozen=True)
class Setting:
    """One line of a published table: an environment, the size of an archive, laws and agents.

    Attributes
    ----------
    label : as the table calls it.
    environment : draws archives and online rounds.
    units, length, horizon : N, T0 and the number of scored rounds.
    laws : name -> law, fitted on an archive of ``units`` x ``length`` for each run.
    agents : makes the agents from what is ready.
    published : agent -> figure printed for the last round.
    earlier : round -> agent -> figure printed for it.
    notes : agent -> why its figure differs here, or has none; before the experiment's own.
    group : settings of one group are one sweep, joined by lines in the figure.
    """

    label: str
    environment: Environment
    units: int
    length: int
    horizon: int
    laws: Mapping[str, UnfittedLaw]
    agents: Agents
    published: Mapping[str, Published] = field(default_factory=dict)
    earlier: Mapping[int, Mapping[str, Published]] = field(default_factory=dict)
    notes: Mapping[str, str | Reason] = field(default_factory=dict)
    group: str = ""

    def prepared(self, runs: int, seed: int) -> Ready:
        """Draw the rounds and an archive per run, and fit the laws; the same for the same seed."""
        world = self.environment.world(runs, self.horizon, rng=stream(seed, "online"))
        archives = tuple(
            self.environment.archive(self.units, self.length, rng=stream(seed, "archive", r))
            for r in range(runs)
        )
        laws: dict[str, list[Any]] = {name: [] for name in self.laws}
        for archive in bar(archives, label=f"fit {self.label}"):
            for name, law in self.laws.items():
                laws[name].append(law.fit(archive, seed=seed))
        return Ready(world, archives, laws, seed)


@dataclass(frozen=True)
class Experiment:
    """A published table or figure.

    Attributes
    ----------
    name, title : for the command line and for people.
    about : the protocol, and what to know when reading the table.
    settings : its lines. runs : as published.
    notes : agent -> why its figure differs, or why none was printed.
    shown : agents in the figure, seven at most.
    extra : makes a further table from the result, e.g. slopes.
    """

    name: str
    title: str
    about: str
    settings: tuple[Setting, ...]
    runs: int
    notes: Mapping[str, str | Reason]
    shown: tuple[str, ...] = FIGURE
    extra: Callable[[Result], DataFrame] | None = None
