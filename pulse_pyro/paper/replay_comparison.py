"""Compare imputing, leaving out and seeing W on the recorded rounds of a data set."""

from __future__ import annotations

import dataclasses
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from pulse_pyro._core.arrays import Bool, Float1, Float3, Int, whole
from pulse_pyro._core.errors import DataError
from pulse_pyro._core.parallel import Engine, Local, in_order
from pulse_pyro._core.progress import bar
from pulse_pyro._core.seeds import stream
from pulse_pyro.base import Fittable, Summary
from pulse_pyro.envs.agents import oful, oful_full, oful_lags, pulse, pulse_adaptive
from pulse_pyro.envs.replay import Contrast, Replay, Replayed, beside, joined, replay_run, shuffled
from pulse_pyro.envs.simulation import Agent
from pulse_pyro.paper.datasets import Dataset
from pulse_pyro.radius import Radius

if TYPE_CHECKING:
    from pandas import DataFrame

# The table a data set answers with: utility, share of the gap closed, facts about the laws.


FLOOR, LAGS, CEILING = "oful", "oful_lags", "oful_full"


@dataclass(frozen=True, eq=False)
class LawFacts:
    """seconds : of the fit. explained : (w_dim,) share of the variance of each W online."""

    seconds: float
    explained: Float1
    w_names: tuple[str, ...]

    @staticmethod
    def over(runs: Sequence[LawFacts]) -> LawFacts:
        """Return the mean over runs."""
        seconds = float(np.mean([each.seconds for each in runs]))
        explained = np.mean([each.explained for each in runs], axis=0)
        return LawFacts(seconds, explained, runs[0].w_names)


@dataclass(frozen=True, eq=False)
class Comparison:
    """Agents on the recorded rounds of a data set.

    Attributes
    ----------
    name, about, source : of the data set.
    settings : setting -> what every agent earned. laws : law -> facts about its fit.
    seed, seconds : of everything.
    """

    name: str
    about: str
    source: str
    settings: Mapping[str, Replayed]
    laws: Mapping[str, LawFacts]
    seed: int
    seconds: float

    def table(self, setting: str) -> DataFrame:
        """One line per agent of a setting.

        utility, se : mean a round over runs. closed, closed_se : share of the gap between oful and
        oful_full. over_lags, over_lags_se, over_lags_block_se : gain over OFUL on raw lags, with
        standard errors over runs and over blocks of the data, see :class:`Contrast`.
        fit_seconds : of its law.
        """
        played = self.settings[setting]
        table = played.table
        table = table[[name for name in table if not str(name).startswith("arm ")]]
        closed = [played.closed(name, FLOOR, CEILING) for name in played.names]
        table["closed"], table["closed_se"] = zip(*closed, strict=True)
        gains = [played.contrast(name, LAGS) for name in played.names]
        for k, column in enumerate(("over_lags", "over_lags_se", "over_lags_block_se")):
            table[column] = [gain[k] for gain in gains]
        table["fit_seconds"] = [self._seconds(name) for name in played.names]
        return table

    @property
    def explained(self) -> DataFrame:
        """Share of the variance of each W that each law explains online."""
        import pandas as pd

        names = next(iter(self.laws.values())).w_names
        rows = {
            name: dict(zip(names, fact.explained, strict=True)) for name, fact in self.laws.items()
        }
        return pd.DataFrame(rows).T.rename_axis("law")

    def best(self, setting: str) -> str:
        """Return the PULSE agent that earned most."""
        table = self.settings[setting].table["utility"]
        return str(table[table.index.str.startswith("pulse")].idxmax())

    def gap(self, setting: str) -> Contrast | None:
        """Return what seeing W gains over leaving it out; None if that may be nothing.

        Below two standard errors, of both kinds together, a share of it would say nothing.
        """
        gap = self.settings[setting].contrast(CEILING, FLOOR)
        return gap if gap.difference >= 2.0 * gap.total_se else None

    def headline(self, setting: str) -> str:
        """Say in a clause what the setting shows of the PULSE agent that earned most."""
        played, best = self.settings[setting], self.best(setting)
        gain, share = played.contrast(best, LAGS), played.closed(best, FLOOR, CEILING)
        apart = f"{gain.ratio:+.1f} standard errors from raw lags"
        if self.gap(setting) is None:
            return f"{self.name}: seeing W gains nothing that shows; {best} is {apart}"
        return (
            f"{self.name}: {best} closes {share[0]:.0%} (se {share[1]:.0%}) of the gap between "
            f"leaving W out and seeing it, and is {apart}"
        )

    def verdict(self, setting: str, agent: str | None = None) -> str:
        """Say in a sentence what the setting shows.

        agent : of which; by default of the PULSE agent that earned most in this very setting, a
        choice that flatters it a little.
        """
        played, best = self.settings[setting], agent or self.best(setting)
        count = sum(name.startswith("pulse") for name in played.names)
        chosen = "chosen before" if agent else f"best of {count} here"
        gain, share = played.contrast(best, LAGS), played.closed(best, FLOOR, CEILING)
        table, worth = played.table["utility"], played.contrast(CEILING, FLOOR)
        closes = f"it closes {share[0]:.0%} (se {share[1]:.0%}) of the gap, and"
        if self.gap(setting) is None:
            closes = (
                f"seeing W gains {worth.difference:+.2g} (se {worth.total_se:.2g}): no gap to "
                "close; it"
            )
        return (
            f"{self.name}, {setting}: {best} ({chosen}) earns {table[best]:.4g} a "
            f"round, {FLOOR} "
            f"{table[FLOOR]:.4g}, raw lags {table[LAGS]:.4g}, sees W {table[CEILING]:.4g}; "
            f"{closes} is {gain.difference:+.4f} from raw lags (se {gain.se:.4f} over runs, "
            f"{gain.block_se:.4f} over blocks of the data: {gain.ratio:+.1f} "
            "of both together)."
        )

    def __repr__(self) -> str:
        return "\n".join(self.verdict(name) for name in self.settings)

    def _seconds(self, agent: str) -> float:
        fact = self.laws.get(agent.removeprefix("pulse_"))
        return np.nan if fact is None else fact.seconds


HERE = Local()


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


class PlayRule(NamedTuple):
    """How rounds are played: the radius of every agent, and the order."""

    radius: Radius
    order: Order = shuffled


class CompareJob(NamedTuple):
    """One imputer, or the agents without any, in some of the runs."""

    dataset: Dataset
    imputer: Imputer | None
    lags: Summary
    rows: Bool
    play_rules: Mapping[str, PlayRule]
    seeds: tuple[int, ...]


def compare(
    dataset: Dataset,
    imputers: Sequence[Imputer],
    lags: Summary,
    *,
    play_rules: Mapping[str, PlayRule],
    runs: int,
    seed: int = 0,
    engine: Engine = HERE,
) -> Comparison:
    """Play every agent on every setting of a data set.

    Parameters
    ----------
    dataset : archive and recorded rounds. imputers : laws fitted on the archive.
    lags : the summary that ``oful_lags``, OFUL on raw lags, sees, and the longest memory of all:
        a round counts if it is complete, for every agent alike.
    play_rules : by name; the first on every setting, the others on the first setting only.
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
        batches = [(run_seed,) for run_seed in seeds] if each.anew else [seeds]
        jobs += [CompareJob(dataset, each, lags, rows, play_rules, batch) for batch in batches]
    jobs.append(CompareJob(dataset, None, lags, rows, play_rules, seeds))
    done = list(bar(in_order(_run, jobs, engine), label=dataset.name, total=len(jobs)))
    parts: dict[str, list[tuple[dict[str, Replayed], LawFacts | None]]] = {}
    for job, result in zip(jobs, done, strict=True):
        parts.setdefault("" if job.imputer is None else job.imputer.name, []).append(result)
    settings = {
        setting: beside([joined([p[setting] for p, _ in each]) for each in parts.values()])
        for setting in done[0][0]
    }
    facts = {
        name: LawFacts.over([fact for _, fact in each if fact is not None])
        for name, each in parts.items()
        if name
    }
    return Comparison(
        name=dataset.name,
        about=dataset.about,
        source=dataset.source,
        settings=settings,
        laws=facts,
        seed=seed,
        seconds=time.perf_counter() - start,
    )


def _rows(dataset: Dataset, summaries: Sequence[Summary]) -> Bool:
    """Tell which rows (unit, time) have every input of every agent, W and all utilities."""
    complete: list[Bool] = [replay.complete for replay in dataset.replays.values()]
    s = next(iter(dataset.replays.values())).s
    complete += [np.asarray(np.isfinite(summary(s)).all(-1)) for summary in summaries]
    rows: Bool = np.logical_and.reduce(complete)
    if not rows.any():
        raise DataError(f"{dataset.name}: no round has all inputs of all agents; use fewer lags.")
    return rows


def _run(job: CompareJob) -> tuple[dict[str, Replayed], LawFacts | None]:
    facts, made = None, None
    if job.imputer is not None:
        start = time.perf_counter()
        made = job.imputer.law.fit(job.dataset.archive, seed=job.seeds[0])
        seconds = time.perf_counter() - start
        first = next(iter(job.dataset.replays.values()))
        facts = LawFacts(
            seconds,
            _explained(made(first.s).mean().reshape(first.w.shape), first, job.rows),
            first.history.w_names,
        )
    played = {}
    for k, (setting, replay) in enumerate(job.dataset.replays.items()):
        agents = _agents(job, replay, made)
        for j, (name, rule) in enumerate(job.play_rules.items()):
            if j == 0 or k == 0:
                played[f"{setting}, {name}"] = _played(job, replay, agents, rule)
    return played, facts


def _played(job: CompareJob, replay: Replay, agents: Sequence[Agent], rule: PlayRule) -> Replayed:
    ready = [dataclasses.replace(agent, radius=rule.radius) for agent in agents]
    return joined(
        [replay_run(replay, ready, rule.order(job.rows, seed=seed)) for seed in job.seeds]
    )


def _agents(job: CompareJob, replay: Replay, law: Any) -> list[Agent]:
    if job.imputer is None:
        return [oful(replay), oful_lags(replay, job.lags), oful_full(replay)]
    name, seed = job.imputer.name, job.seeds[0]
    agents = [pulse(replay, law, name=f"pulse_{name}", seed=seed)]
    if job.imputer.adaptive:
        with warnings.catch_warnings():
            # an ensemble has too few members to judge what its directions leave out
            warnings.simplefilter("ignore", UserWarning)
            agents.append(pulse_adaptive(replay, law, job.dataset.archive, seed=seed))
    return agents


def _explained(mean: Float3, replay: Replay, rows: Bool) -> Float1:
    """Share of the variance of each W that its conditional mean explains online, (w_dim,)."""
    truth, guess = replay.w[rows], mean[rows]
    spread = ((truth - truth.mean(0)) ** 2).mean(0)
    return np.asarray(1.0 - ((truth - guess) ** 2).mean(0) / spread)
