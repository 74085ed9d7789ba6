"""Play the candidates of a design in one environment: many runs, the same ones for all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from pulse_pyro._core.arrays import Float1, Float2, Float3, Int
from pulse_pyro._core.seeds import stream
from pulse_pyro.calibration.calibration import Calibration
from pulse_pyro.envs.agents import oful_full, pulse
from pulse_pyro.envs.simulation import Agent, Run, Team, bound_of, laid_out, simulate
from pulse_pyro.envs.teams import RewardScale, learner
from pulse_pyro.envs.world import World
from pulse_pyro.policies.guard import Learner, Series
from pulse_pyro.radius import CONSTANT, CORRECTED, SAMPLED, SUM, constant
from pulse_pyro.study.scenarios import Scenario, TrialRows
from pulse_pyro.study.worlds import (
    Reward,
    SimulatedRun,
    StudyPolicies,
    UnseenContext,
    left_open,
    simulated_run,
)

CEILING = "oful_full"  # sees W: shown beside the candidates, never among them
TENTH = 0.1

# Who plays.


@dataclass(frozen=True)
class Candidate:
    """A policy that may be recommended, or the ceiling.

    Attributes
    ----------
    name : of ``envs.POLICIES``, or "constant 0.5 sigma". about : a sentence.
    tuned : its setting is one of several that are compared here: tuned by simulation.
    fenced : it plays inside a ball, and so with a guarantee if what the ball rests on is true.
    rests_on : that, in words. doubt : why it is known not to be true, "" where nothing speaks
        against it. ceiling : it sees W.
    """

    name: str
    about: str
    tuned: bool = False
    fenced: bool = False
    rests_on: str = ""
    doubt: str = ""
    ceiling: bool = False

    @property
    def guaranteed(self) -> bool:
        """Whether its ball can be taken at its word."""
        return self.fenced and not self.doubt

    @property
    def standing(self) -> str:
        """What stands behind it, in a word or two."""
        if self.ceiling:
            return "sees W: a ceiling"
        if self.fenced:
            return "ball, heuristic here" if self.doubt else "conditional guarantee"
        return "tuned by simulation" if self.tuned else "measured"


def constant_name(share: float) -> str:
    """Return the name of the candidate whose radius is so many times sigma."""
    return f"constant {share:g} sigma"


def constants(
    policies: StudyPolicies, world: World, shares: Sequence[float]
) -> dict[str, Agent | Team]:
    """Return PULSE with constant radii, shares of sigma, and the ridge d (sigma / S)^2."""
    if not shares:
        return {}
    stakes = policies.stakes
    x = pulse(world, policies.law, seed=policies.seed).x
    one = learner(x, RewardScale(stakes.sigma, stakes.theta_bound, 0.0))
    made: dict[str, Agent | Team] = {}
    for share in shares:
        name, alpha = constant_name(share), share * stakes.sigma
        mine = replace(one, alpha=alpha)
        made[name] = Team(name, (mine,), (name,), advisor=constant(alpha))
    return made


def fenced(agent: Agent | Team) -> bool:
    """Tell whether an agent plays inside a ball that counts the law's error."""
    if isinstance(agent, Team):
        return agent.ball is not None
    return agent.error is not None and agent.radius.kind in (CORRECTED, SUM)


def on_trust(agent: Agent | Team, calibration: Calibration) -> tuple[str, str]:
    """Return what an agent's ball rests on, and why it need not hold; nothing without a ball."""
    if not fenced(agent):
        return "", ""
    _, rests_on, heuristic = bound_of(agent)
    doubt = "" if calibration.usable else "a check of the calibration failed"
    own = isinstance(agent, Team)  # a ball knows whether it hangs on the calibration
    return rests_on or "the calibration, sigma, theta_bound", heuristic or ("" if own else doubt)


def patient(agent: Agent | Team, sigma: float) -> Team | None:
    """Return an agent that can wait for its rewards; None if it takes them in order only."""
    if isinstance(agent, Team):
        return agent
    if agent.taught is not None or agent.radius.kind not in (CONSTANT, SAMPLED):
        return None
    one = Learner(agent.x, agent.ridge, agent.radius.params[0], sigma)
    return Team(agent.name, (one,), (agent.name,), advisor=agent.radius)


# What is played, and what comes of it.


@dataclass(frozen=True)
class Pilot:
    """What rewards of a pilot say of theta*: N(centre, root root'), centre (d,), root (d, d)."""

    centre: Float1
    root: Float2

    def draw(self, rng: np.random.Generator) -> Float1:
        """Draw theta*."""
        return np.asarray(self.centre + self.root @ rng.standard_normal(len(self.centre)))


@dataclass(frozen=True, eq=False)
class Rehearsal:
    """An environment, ready to be played: arrays alone, no law.

    Attributes
    ----------
    scenario : which one. rows : the contexts. unseen : W, of each block, once or for each run.
    agents : candidate -> its agent on each block, at all rows.
    reward : how rewards are made up. pilot : where theta* is drawn from, if not from the sphere.
    ceiling : whether the policy that sees W plays, too.
    """

    scenario: Scenario
    rows: TrialRows
    unseen: tuple[tuple[UnseenContext, ...], ...]
    agents: Mapping[str, Sequence[Agent | Team]]
    reward: Reward
    pilot: Pilot | None
    ceiling: bool
    rounds: int
    runs: int
    seed: int


class Rehearsed(NamedTuple):
    """What came of an environment; figures a round, k candidates that could play.

    names : (k,). regret, regret_cond : (k, run). tenth : (k,) mean regret in the worst tenth of
    units. arms : (k, action) share of rounds. overruled : (k,) by a guard, NaN without one.
    random, random_cond : (run,) what playing at random costs. info_gap : (run,).
    refused : names -> rounds it could not score, or -1: it cannot wait for rewards.
    """

    names: tuple[str, ...]
    regret: Float2
    regret_cond: Float2
    tenth: Float1
    arms: Float2
    overruled: Float1
    random: Float1
    random_cond: Float1
    info_gap: Float1
    refused: dict[str, int]


def rehearse(job: Rehearsal) -> Rehearsed:
    """Play every run of an environment."""
    sigma, late = job.reward.stakes.sigma, job.scenario.late
    able: dict[str, list[Agent | Team]] = {}
    refused: dict[str, int] = {}
    for name, agents in job.agents.items():
        waiting = [patient(agent, sigma) if late else agent for agent in agents]
        ready = [agent for agent in waiting if agent is not None]
        if len(ready) < len(waiting):
            refused[name] = -1
        else:
            able[name] = ready
    played, units, costs = [], [], []
    for r in range(job.runs):
        drawn = _drawn(job, r)
        world = _with_losses(drawn.world, job, r)
        series = replace(drawn.series, late=late)
        run = simulate(world, _laid_out(able, drawn, world, series, job))
        played.append(run)
        units.append(np.asarray(series.unit)[0])
        costs.append([_random_cost(mean) for mean in (world.mean_full, world.mean_cond)])
    short = {
        name: int((np.stack([run.action[i] for run in played]) < 0).sum())
        for i, name in enumerate(played[0].names)
    }
    refused |= {name: count for name, count in short.items() if count}
    keep = [i for i, name in enumerate(played[0].names) if not short[name]]
    full, cond, random = (
        _a_round(played, "regret"),
        _a_round(played, "regret_cond"),
        np.array(costs),
    )
    action = np.concatenate([run.action for run in played], axis=1)
    arms = range(job.unseen[0][0].features.actions)
    overruled = np.stack([np.asarray(run.overruled)[:, 0] for run in played], axis=1)
    return Rehearsed(
        names=tuple(played[0].names[i] for i in keep),
        regret=full[keep],
        regret_cond=cond[keep],
        tenth=_worst_tenth(played, units, job.scenario.judged_by)[keep],
        arms=np.stack([(action == a).mean((1, 2)) for a in arms], axis=1)[keep],
        overruled=overruled.mean(1)[keep],
        random=random[:, 0],
        random_cond=random[:, 1],
        info_gap=np.array([run.info_gap[0] for run in played]) / played[0].regret.shape[-1],
        refused=refused,
    )


def _drawn(job: Rehearsal, r: int) -> SimulatedRun:
    """Draw run r: which units, theta* and noise are the same in all environments."""
    own = ("design", "run", r)
    chosen, place = job.rows.chosen(job.rounds, stream(job.seed, *own, "units"))
    unseen, rng = job.unseen[r % len(job.unseen)], stream(job.seed, *own, "w")
    contexts = [one.draw(rng) for one in unseen]
    source = stream(job.seed, *own, "theta")
    dim = contexts[0].phi.shape[-1]
    theta = job.reward.theta(dim, source) if job.pilot is None else job.pilot.draw(source)
    sd = job.reward.sd(left_open(contexts, chosen, theta))
    return simulated_run(
        contexts,
        chosen,
        place,
        unseen[0].features,
        theta=job.scenario.effect * theta,
        sd=sd,
        rng=stream(job.seed, *own, "noise"),
    )


def _with_losses(world: World, job: Rehearsal, r: int) -> World:
    lost = stream(job.seed, "design", "run", r, "lost").random(world.noise.shape)
    return replace(world, noise=np.where(lost < job.scenario.lost, np.nan, world.noise))


def _laid_out(
    able: Mapping[str, Sequence[Agent | Team]],
    drawn: SimulatedRun,
    world: World,
    series: Series,
    job: Rehearsal,
) -> list[Agent | Team]:
    """Return all candidates on the rounds of a run, under the names they go by here."""
    out = [
        replace(laid_out(agents, drawn.in_a_row, series), name=name)
        for name, agents in able.items()
    ]
    if job.ceiling:
        stakes = job.reward.stakes
        top: Agent | Team = replace(oful_full(world), ridge=stakes.ridge)
        waiting = patient(top, stakes.sigma) if series.late else None
        if waiting is not None:
            top = replace(waiting, series=series)
        out.append(top)
    return out


def _random_cost(mean: Float3) -> float:
    """What an arm at random costs a round on average, mean (1, rounds, action)."""
    return float((mean.max(-1) - mean.mean(-1)).mean())


def _a_round(played: Sequence[Run], kind: str) -> Float2:
    """Mean regret a round, (agent, run)."""
    return np.stack([getattr(run, kind)[:, 0, -1] / run.regret.shape[-1] for run in played], axis=1)


def _worst_tenth(played: Sequence[Run], units: Sequence[Int], kind: str) -> Float1:
    """Mean regret a round of the tenth of units, over all runs, that fare worst; (agent,)."""
    every = []
    for run, unit in zip(played, units, strict=True):
        each = np.diff(getattr(run, kind)[:, 0], axis=-1, prepend=0.0)
        there, own = np.unique(unit, return_inverse=True)
        total = np.stack([np.bincount(own, row, minlength=len(there)) for row in each])
        every.append(total / np.bincount(own))
    by_unit = np.sort(np.concatenate(every, axis=1), axis=1)
    count = max(round(TENTH * by_unit.shape[1]), 1)
    return np.asarray(by_unit[:, -count:].mean(1))
