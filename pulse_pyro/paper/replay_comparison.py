"""Compare imputing, leaving out and seeing W on the recorded rounds of a data set."""

from __future__ import annotations

import contextlib
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from pulse_pyro._core.arrays import Bool, Float1, Float3, Int, whole
from pulse_pyro._core.errors import DataError, PulseError
from pulse_pyro._core.parallel import Engine, Local, in_order
from pulse_pyro._core.progress import bar
from pulse_pyro._core.seeds import stream
from pulse_pyro.base import Summary, UnfittedLaw
from pulse_pyro.calibration.calibration import Calibration
from pulse_pyro.calibration.ladder import calibrate
from pulse_pyro.envs.agents import oful, oful_full, oful_lags, pulse, pulse_adaptive
from pulse_pyro.envs.replay import Contrast, Replay, Replayed, joined, replay_run, shuffled
from pulse_pyro.envs.simulation import Agent, Team
from pulse_pyro.envs.teams import (
    RewardScale,
    Trust,
    committee,
    guarded,
    remembering,
    with_past_rewards,
)
from pulse_pyro.laws.memory import MemoryKind
from pulse_pyro.laws.remembering import with_memory
from pulse_pyro.paper.committees import at_radius, seated
from pulse_pyro.paper.datasets import Dataset
from pulse_pyro.policies.balls import RewardNoise
from pulse_pyro.policies.carried import past_rewards
from pulse_pyro.radius import Radius

if TYPE_CHECKING:
    from pandas import DataFrame

# The table a data set answers with: utility, share of the gap closed, facts about the laws.


FLOOR, LAGS, CEILING, VOTING = "oful", "oful_lags", "oful_full", "committee"


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

    def voted(self, setting: str) -> tuple[str, Contrast] | None:
        """Return the best other agent that does not see W, and what the committee has over it.

        Which agent that is comes out only here: the committee is held to more than any choice made
        beforehand. None where no committee played.
        """
        played = self.settings[setting]
        if VOTING not in played.names:
            return None
        table = played.table["utility"].drop([VOTING, CEILING])
        best = str(table.idxmax())
        return best, played.contrast(VOTING, best)

    def vote_verdict(self, setting: str) -> str:
        """Say in a sentence how the committee did; nothing where none played."""
        found = self.voted(setting)
        if found is None:
            return ""
        best, gain = found
        return (
            f"The committee earns {gain.difference:+.4f} a round beside {best}, the best agent "
            f"here that does not see W (se {gain.se:.4f} over runs, {gain.block_se:.4f} over "
            f"blocks: {gain.ratio:+.1f} of both together)."
        )

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
        fact = self.laws.get(agent.removeprefix("pulse_").removesuffix("_memory"))
        return np.nan if fact is None else fact.seconds


HERE = Local()


@dataclass(frozen=True)
class Imputer:
    """A law to be compared, as agent ``pulse_<name>``.

    anew : fitted anew in every run, with a seed of its own, because its fit depends on chance;
        otherwise once for all runs. adaptive : also played by ``pulse_adaptive``. fenced : also
        played by ``guarded``, where its calibration allows.
    """

    name: str
    law: UnfittedLaw
    anew: bool = False
    adaptive: bool = False
    fenced: bool = False


class Order(Protocol):
    """Which round comes when."""

    def __call__(self, rows: Bool, *, seed: int) -> Int:
        """Return rounds (time,) as positions in the flat grid of rows (unit, time)."""


class PlayRule(NamedTuple):
    """How rounds are played: the radius of every agent, and the order.

    everyone : agents that carry earlier rewards and the committee play too; else only those that
    score features known beforehand. everywhere : on all settings, not on the first alone.
    """

    radius: Radius
    order: Order = shuffled
    everyone: bool = True
    everywhere: bool = False


@dataclass(frozen=True)
class Carrying:
    """Agents that carry a unit's earlier rewards.

    memory : kind of the memory that every law is given, agents ``pulse_<law>_memory``.
    past : how many rewards are features beside raw lags, an agent each.
    plain : settings without any of them, and without a committee.
    """

    memory: MemoryKind = "ar"
    past: tuple[int, ...] = (1,)
    plain: tuple[str, ...] = ()


CARRYING = Carrying()


class FitJob(NamedTuple):
    """A law to be fitted, with its memory."""

    dataset: Dataset
    imputer: Imputer
    memory: MemoryKind
    rows: Bool
    seed: int


class FittedImputer(NamedTuple):
    """An imputer's fitted law, which knows its memory, facts about the fit, and its seed.

    fence : the law fitted on half of the archive's pieces, and its calibration on the others.
    """

    imputer: Imputer
    law: Any
    facts: LawFacts
    seed: int
    fence: tuple[Any, Calibration] | None


class CompareJob(NamedTuple):
    """All agents in one run."""

    dataset: Dataset
    laws: tuple[FittedImputer, ...]
    lags: Summary
    carrying: Carrying
    rows: Bool
    play_rules: Mapping[str, PlayRule]
    seed: int


def compare(
    dataset: Dataset,
    imputers: Sequence[Imputer],
    lags: Summary,
    *,
    play_rules: Mapping[str, PlayRule],
    carrying: Carrying = CARRYING,
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
    play_rules : by name; the first on every setting, others on the first setting unless they say
        everywhere.
    carrying : agents that carry earlier rewards.
    runs : each with an order of the rounds of its own.
    engine : where; it changes no figure but the seconds.

    Agents: oful (S alone), oful_lags (lags of S, no archive), pulse_<law>, pulse_adaptive, and
    oful_full, which sees W; oful_lags_rewards, pulse_<law>_memory; the committee of all that do not
    see W; guarded_<law>, the rule's radius inside the ball of a calibration on half of the
    archive's pieces, its law fitted on the others. All play the rule's radius, ridge 1. Out of the
    order of time a unit's earlier rewards are not to be had: agents that carry them play as those
    without, ties apart (rounding breaks them), and do not vote. NOT covered:
    what other data would show; see :class:`Replayed`.
    """
    whole(runs, "compare: runs", 2)
    start = time.perf_counter()
    rows = _rows(dataset, [lags, *(each.law.summary for each in imputers)])
    # streams of their own: runs of neighbouring seeds would otherwise be the same ones
    seeds = tuple(int(stream(seed, "run", r).integers(2**31)) for r in range(runs))
    fits = [
        FitJob(dataset, each, carrying.memory, rows, own)
        for each in imputers
        for own in (seeds if each.anew else seeds[:1])
    ]
    done = list(
        bar(in_order(_fitted, fits, engine), label=f"{dataset.name}, laws", total=len(fits))
    )
    by_name = {
        each.name: [fitted for fitted in done if fitted.imputer.name == each.name]
        for each in imputers
    }
    jobs = [
        CompareJob(
            dataset=dataset,
            laws=tuple(each[r] if len(each) > 1 else each[0] for each in by_name.values()),
            lags=lags,
            carrying=carrying,
            rows=rows,
            play_rules=play_rules,
            seed=own,
        )
        for r, own in enumerate(seeds)
    ]
    played = list(bar(in_order(_run, jobs, engine), label=f"{dataset.name}, runs", total=runs))
    return Comparison(
        name=dataset.name,
        about=dataset.about,
        source=dataset.source,
        settings={name: joined([each[name] for each in played]) for name in played[0]},
        laws={
            name: LawFacts.over([fitted.facts for fitted in each]) for name, each in by_name.items()
        },
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


def _fitted(job: FitJob) -> FittedImputer:
    start = time.perf_counter()
    law = job.imputer.law.fit(job.dataset.archive, seed=job.seed)
    seconds = time.perf_counter() - start
    first = next(iter(job.dataset.replays.values()))
    explained = _explained(law(first.s).mean().reshape(first.w.shape), first, job.rows)
    facts = LawFacts(seconds, explained, first.history.w_names)
    remembers = with_memory(law, job.dataset.archive, job.memory)
    fence = None
    if job.imputer.fenced:
        with contextlib.suppress(PulseError):  # judge says why there is no calibration
            fence = calibrated(job.dataset, job.imputer, seed=job.seed)
    return FittedImputer(job.imputer, remembers, facts, job.seed, fence)


def calibrated(dataset: Dataset, imputer: Imputer, *, seed: int) -> tuple[Any, Calibration]:
    """Fit on half of the pieces, in units of their sd, and calibrate on the others."""
    fit, held_out = dataset.scale(dataset.pieces).split(seed=seed)
    law = imputer.law.fit(fit, seed=seed)
    features = next(iter(dataset.replays.values())).features
    return law, calibrate(law, held_out, features, seed=seed)


def _run(job: CompareJob) -> dict[str, Replayed]:
    played = {}
    for k, (setting, replay) in enumerate(job.dataset.replays.items()):
        rules = {
            name: rule
            for j, (name, rule) in enumerate(job.play_rules.items())
            if j == 0 or k == 0 or rule.everywhere
        }
        plain = _agents(job, replay)
        noise = job.dataset.noise_of(setting)
        carried: list[Team] = []
        if setting not in job.carrying.plain and any(rule.everyone for rule in rules.values()):
            carried = _carried(job, replay, plain, noise)
        for name, rule in rules.items():
            order = rule.order(job.rows, seed=job.seed)
            timely = rule.order is not shuffled
            agents: list[Agent | Team] = [replace(each, radius=rule.radius) for each in plain]
            if carried and rule.everyone:
                agents += _voting(plain, carried, rule.radius, noise, timely=timely)
                agents += _fenced(job, replay, rule.radius, noise)
            played[f"{setting}, {name}"] = replay_run(replay, agents, order)
    return played


def _agents(job: CompareJob, replay: Replay) -> list[Agent]:
    """Return the agents whose features are known before the first round."""
    agents = []
    for imputer, law, _, seed, _ in job.laws:
        agents.append(pulse(replay, law, name=f"pulse_{imputer.name}", seed=seed))
        if imputer.adaptive:
            with warnings.catch_warnings():
                # an ensemble has too few members to judge what its directions leave out
                warnings.simplefilter("ignore", UserWarning)
                agents.append(pulse_adaptive(replay, law, job.dataset.archive, seed=seed))
    return [*agents, oful(replay), oful_lags(replay, job.lags), oful_full(replay)]


def _carried(job: CompareJob, replay: Replay, plain: Sequence[Agent], noise: float) -> list[Team]:
    """Return the agents that carry earlier rewards, with the ridge of the others."""
    scale = RewardScale(
        noise, 1.0, noise
    )  # ridge and radius are the table's own: only noise counts
    lagged = next(agent for agent in plain if agent.name == LAGS)
    made = [
        with_past_rewards(lagged, past_rewards(count), scale, name=_past_name(count))
        for count in job.carrying.past
    ]
    made += [
        remembering(replay, law, scale, name=f"pulse_{imputer.name}_memory", seed=seed)
        for imputer, law, _, seed, _ in job.laws
    ]
    return [
        replace(team, learners=tuple(replace(one, ridge=lagged.ridge) for one in team.learners))
        for team in made
    ]


def _past_name(count: int) -> str:
    return f"{LAGS}_rewards" + (str(count) if count > 1 else "")


def _voting(
    plain: Sequence[Agent], carried: Sequence[Team], radius: Radius, noise: float, *, timely: bool
) -> list[Team]:
    """Return agents that carry rewards and the committee of all that do not see W, at one radius.

    timely : whether rounds come in order of time; else nothing is carried, and two equal members
    would have two votes.
    """
    here = [at_radius(team, radius) for team in carried]
    members = [
        at_radius(seated(replace(agent, radius=radius), guess=noise), radius)
        for agent in plain
        if agent.name != CEILING
    ]
    return [*here, committee([*members, *(here if timely else ())], name=VOTING)]


def _fenced(job: CompareJob, replay: Replay, radius: Radius, noise: float) -> list[Team]:
    """Return the guard around the table's radius, of laws that have a calibration.

    reward_sd is the archive's, S twice the largest utility: features are in sds. On real data a
    check of the calibration has always failed so far: the guard is then a heuristic.
    """
    made = []
    bound = 2.0 * float(np.nanmax(np.abs(replay.utility)))
    trust = Trust(RewardNoise(noise, False), bound)
    for imputer, _, _, seed, fence in job.laws:
        if fence is None or fence[1].features.names != replay.features.names:
            continue  # a calibration speaks of one Phi
        team = guarded(replay, *fence, trust, name=f"guarded_{imputer.name}", seed=seed)
        own = replace(team.learners[0], ridge=1.0)
        made.append(replace(team, learners=(own,), advisor=radius))
    return made


def _explained(mean: Float3, replay: Replay, rows: Bool) -> Float1:
    """Share of the variance of each W that its conditional mean explains online, (w_dim,)."""
    truth, guess = replay.w[rows], mean[rows]
    spread = ((truth - truth.mean(0)) ** 2).mean(0)
    return np.asarray(1.0 - ((truth - guess) ** 2).mean(0) / spread)
