"""Compare imputing, leaving out and seeing W on the recorded rounds of a data set."""

from __future__ import annotations

import dataclasses
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from pulse_pyro.arrays import Bool, Float1, Float3, Int, whole
from pulse_pyro.cases.result import Comparison, LawFacts
from pulse_pyro.datasets.dataset import Dataset
from pulse_pyro.environments.replay import Replay, shuffled
from pulse_pyro.errors import DataError
from pulse_pyro.history import History
from pulse_pyro.parallel import Engine, Local, in_order
from pulse_pyro.progress import bar
from pulse_pyro.radius import Radius
from pulse_pyro.seeds import stream
from pulse_pyro.simulation.agents import oful, oful_full, oful_lags, pulse, pulse_adaptive
from pulse_pyro.simulation.replayed import Replayed, beside, joined, replay_run
from pulse_pyro.simulation.run import Agent
from pulse_pyro.summary import Summary

HERE = Local()


class Fittable(Protocol):
    """A law that can be fitted, built in or custom."""

    @property
    def summary(self) -> Summary:
        """What of the past of S it looks at."""

    def fit(self, history: History, *, seed: int) -> Any:
        """Return the fitted law."""


@dataclass(frozen=True)
class Imputer:
    """A law to be compared, as agent ``pulse_<name>``.

    anew : fitted anew in every run, with a seed of its own, because its fit depends on chance;
        otherwise once for all runs. adaptive : also played by ``pulse_adaptive``.
    """

    name: str
    law: Fittable
    anew: bool = False
    adaptive: bool = False


class Order(Protocol):
    """Which round comes when."""

    def __call__(self, rows: Bool, *, seed: int) -> Int:
        """Return rounds (time,) as positions in the flat grid of rows (unit, time)."""


class Way(NamedTuple):
    """How rounds are played: the radius of every agent, and the order."""

    radius: Radius
    order: Order = shuffled


class Job(NamedTuple):
    """One imputer, or the agents without any, in some of the runs."""

    dataset: Dataset
    imputer: Imputer | None
    lags: Summary
    rows: Bool
    ways: Mapping[str, Way]
    seeds: tuple[int, ...]


def compare(
    dataset: Dataset, imputers: Sequence[Imputer], lags: Summary, *, ways: Mapping[str, Way],
    runs: int, seed: int = 0, engine: Engine = HERE,
) -> Comparison:  # fmt: skip
    """Play every agent on every setting of a data set.

    Parameters
    ----------
    dataset : archive and recorded rounds. imputers : laws fitted on the archive.
    lags : the summary that ``oful_lags``, OFUL on raw lags, sees, and the longest memory of all:
        a round counts if it is complete, for every agent alike.
    ways : how to play, by name; the first on every setting, the others on the first setting only.
    runs : each with an order of the rounds of its own.
    engine : where; it changes no figure but the seconds.

    Agents: oful (S alone), oful_lags (lags of S, no archive), pulse_<law>, pulse_adaptive, and
    oful_full, which sees W. NOT covered: what other data would show; see :class:`Replayed`.
    """
    whole(runs, "compare: runs", 2)
    start = time.perf_counter()
    rows = _rows(dataset, [lags, *(each.law.summary for each in imputers)])
    # streams of their own: runs of neighbouring seeds would otherwise be the same ones
    seeds = tuple(int(stream(seed, "run", r).integers(2**31)) for r in range(runs))
    jobs = []
    for each in imputers:
        batches = [(one,) for one in seeds] if each.anew else [seeds]
        jobs += [Job(dataset, each, lags, rows, ways, batch) for batch in batches]
    jobs.append(Job(dataset, None, lags, rows, ways, seeds))
    done = list(bar(in_order(_run, jobs, engine), label=dataset.name, total=len(jobs)))
    parts: dict[str, list[tuple[dict[str, Replayed], LawFacts | None]]] = {}
    for job, found in zip(jobs, done, strict=True):
        parts.setdefault("" if job.imputer is None else job.imputer.name, []).append(found)
    settings = {
        setting: beside([joined([p[setting] for p, _ in each]) for each in parts.values()])
        for setting in done[0][0]
    }
    facts = {
        name: LawFacts.over([fact for _, fact in each if fact is not None])
        for name, each in parts.items() if name
    }  # fmt: skip
    return Comparison(
        dataset.name, dataset.about, dataset.source, settings, facts, seed,
        time.perf_counter() - start,
    )  # fmt: skip


def _rows(dataset: Dataset, summaries: Sequence[Summary]) -> Bool:
    """Tell which rows (unit, time) have every input of every agent, W and all utilities."""
    known: list[Bool] = [replay.complete for replay in dataset.replays.values()]
    s = next(iter(dataset.replays.values())).s
    known += [np.asarray(np.isfinite(summary(s)).all(-1)) for summary in summaries]
    rows: Bool = np.logical_and.reduce(known)
    if not rows.any():
        raise DataError(f"{dataset.name}: no round has all inputs of all agents; use fewer lags.")
    return rows


def _run(job: Job) -> tuple[dict[str, Replayed], LawFacts | None]:
    facts, made = None, None
    if job.imputer is not None:
        start = time.perf_counter()
        made = job.imputer.law.fit(job.dataset.archive, seed=job.seeds[0])
        seconds = time.perf_counter() - start
        first = next(iter(job.dataset.replays.values()))
        facts = LawFacts(
            seconds, _explained(made.mean(first.s), first, job.rows), first.history.w_names
        )
    played = {}
    for k, (setting, replay) in enumerate(job.dataset.replays.items()):
        agents = _agents(job, replay, made)
        for j, (name, way) in enumerate(job.ways.items()):
            if j == 0 or k == 0:
                played[f"{setting}, {name}"] = _played(job, replay, agents, way)
    return played, facts


def _played(job: Job, replay: Replay, agents: Sequence[Agent], way: Way) -> Replayed:
    ready = [dataclasses.replace(agent, radius=way.radius) for agent in agents]
    return joined([replay_run(replay, ready, way.order(job.rows, seed=one)) for one in job.seeds])


def _agents(job: Job, replay: Replay, law: Any) -> list[Agent]:
    if job.imputer is None:
        return [oful(replay), oful_lags(replay, job.lags), oful_full(replay)]
    name, seed = job.imputer.name, job.seeds[0]
    agents = [pulse(replay, law, name=f"pulse_{name}", seed=seed)]
    if job.imputer.adaptive:
        with warnings.catch_warnings():
            # an ensemble has too few members to judge what its directions leave out
            warnings.simplefilter("ignore", UserWarning)
            agents.append(pulse_adaptive(replay, law, job.dataset.archive.s, seed=seed))
    return agents


def _explained(mean: Float3, replay: Replay, rows: Bool) -> Float1:
    """Share of the variance of each W that its conditional mean explains online, (w_dim,)."""
    truth, guess = replay.w[rows], mean[rows]
    spread = ((truth - truth.mean(0)) ** 2).mean(0)
    return np.asarray(1.0 - ((truth - guess) ** 2).mean(0) / spread)
