"""Where the policies of a study are played: a world made up from its archive, or a known one."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

import numpy as np

from pulse_pyro._core.arrays import Array, Bool, Float, Float2, Float3, Float4, Int
from pulse_pyro._core.errors import DataError
from pulse_pyro._core.progress import bar
from pulse_pyro._core.registry import named
from pulse_pyro._core.seeds import stream
from pulse_pyro._pyro.inference import Inference
from pulse_pyro.base import FittedLaw, UnfittedLaw
from pulse_pyro.calibration.calibration import Calibration
from pulse_pyro.calibration.checks import GATES
from pulse_pyro.calibration.recipe import StoredLaw, fit_law
from pulse_pyro.calibration.stakes import Stakes
from pulse_pyro.data.history import History
from pulse_pyro.diagnostics.by_unit import Place
from pulse_pyro.diagnostics.serial import serial_check, serial_rows
from pulse_pyro.envs import POLICIES
from pulse_pyro.envs.policy_setup import PolicySetup
from pulse_pyro.envs.simulation import Agent, Run, Team, cond_oracle, laid_out, simulate
from pulse_pyro.envs.world import Environment, World
from pulse_pyro.features import Features, expected_features
from pulse_pyro.laws.remembering import memory_of, residuals
from pulse_pyro.policies.guard import Series
from pulse_pyro.report.policy import Votes, radius_parts

# What a world is handed, and what comes of playing in it.


@dataclass(frozen=True, eq=False)
class StudyPolicies:
    """The policies of a study, and what each of them is made from.

    Attributes
    ----------
    names : of ``envs.POLICIES``, in the order they are played.
    law : of W given the past of S; archive : the units it was fitted on.
    calibration : how wrong the law can be. stakes : of [policy]. seed : of everything.
    memory : why what the law leaves of W has memory, see :func:`memory_left`; "" if it has none.
    """

    names: tuple[str, ...]
    law: StoredLaw
    archive: History
    calibration: Calibration
    stakes: Stakes
    seed: int
    memory: str = ""

    def agents(self, world: World, notes: list[str]) -> dict[str, Agent | Team]:
        """Return the policies that can play in a world, by name; warnings are noted, once."""
        setup = PolicySetup(
            world=world,
            law=self.law,
            archive=self.archive,
            calibration=self.calibration,
            stakes=self.stakes,
            seed=self.seed,
        )
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            made: dict[str, Agent | Team | None] = {
                name: named(POLICIES, name)(setup) for name in self.names
            }
        messages = [str(warning.message) for warning in warned]
        notes += [message for message in messages if message not in notes]
        return {name: self._called(agent) for name, agent in made.items() if agent}

    def _called(self, agent: Agent | Team) -> Agent | Team:
        """Call a ball a heuristic where what it rests on is refuted by held-out units.

        An agent without a guard has the ridge of [policy].
        """
        if isinstance(agent, Agent):
            why = self._doubt(agent.heuristic, agent.rests_on) if agent.rests_on else ""
            return replace(agent, ridge=self.stakes.ridge, heuristic=why)
        ball = agent.ball
        if ball is None:
            return agent
        return replace(
            agent, ball=replace(ball, heuristic=self._doubt(ball.heuristic, ball.rests_on))
        )

    def _doubt(self, heuristic: str, rests_on: tuple[str, ...]) -> str:
        """Add to why a ball need not hold: W has memory, or is not of the form it rests on."""
        linear = any(each.startswith("E[W | S] is linear") for each in rests_on)
        new = [self.memory, self._misfit if linear else ""]
        return "; ".join(filter(None, [heuristic, *(why for why in new if why not in heuristic)]))

    @property
    def _misfit(self) -> str:
        """Which tests of the calibration show that E[W | S] is not of the law's form, if any."""
        checks = self.calibration.rung("uniform").checks
        failed = [check.name for check in checks if check.name in GATES and check.verdict == "fail"]
        return f"E[W | S] is not of the law's form ({', '.join(failed)})" if failed else ""


COMMITTEE = "committee lets all that do not see W vote, by the evidence of rewards, "
FENCED = "inside the ball of guarded: votes are measured, the guard's bound stands on that ball"
WHO = (  # a sentence each
    {"committee": COMMITTEE + FENCED},
    {
        "guarded": "guarded plays the constant radius sigma inside the ball of the calibration",
        "adaptive_guarded": "adaptive_guarded learns what the archive leaves open of the law, "
        "inside a ball of its own",
        "memory": "memory tracks by rewards what the law leaves of W, measured, not guaranteed",
    },
    {
        "pulse": "pulse plays the constant radius 2, which nothing guarantees",
        "pulse_calibrated": "pulse_calibrated takes the ball as a bonus, and explores too much",
        "pulse_adaptive": "pulse_adaptive lets rewards repair the law, with the radius 2",
    },
    {
        "oful": "oful leaves W out",
        "oful_lags": "oful_lags uses the raw lags of S",
        "oful_lags_rewards": "oful_lags_rewards the last reward too, and no archive",
        "oful_full": "oful_full knows W but must learn theta",
        "cond_oracle": "cond_oracle knows theta but not W",
    },
)


def who_plays(agents: Mapping[str, Agent | Team]) -> str:
    """Say who plays, for the reader of the page, and which guards promise nothing."""
    names = {*agents, "cond_oracle"}
    said = ["; ".join(words[name] for name in words if name in names) for words in WHO]
    voting = agents.get("committee")
    if isinstance(voting, Team) and voting.ball is None:
        said[0] = COMMITTEE + "without a guard: nothing is guaranteed"
    text = " ".join(f"{sentence}." for sentence in said if sentence)
    reasons = heuristics(agents)
    for why in dict.fromkeys(reasons.values()):
        who = ", ".join(name for name in reasons if reasons[name] == why)
        text += f" No guarantee here: {why}; the guard of {who} is a heuristic."
    return text


def heuristics(agents: Mapping[str, Agent | Team]) -> dict[str, str]:
    """Return name -> why the ball need not hold, of agents with such a guard."""
    fenced = {
        name: agent.ball
        for name, agent in agents.items()
        if isinstance(agent, Team) and agent.ball is not None
    }
    return {name: ball.heuristic for name, ball in fenced.items() if ball.heuristic}


def memory_left(law: StoredLaw, held_out: History) -> str:
    """Say why what a law leaves of W has memory, "" if held-out units do not show any.

    The check ``serial`` of ``diagnose``, of the law's own residuals. No ball is valid where it
    fails, nor where the law was fitted with memory.
    """
    if memory_of(law) is not None:
        return "what the law leaves of W was fitted with memory"
    left = residuals(law, held_out, "simulate")
    x, place = held_out.inputs(law.summary), Place(held_out.unit_of, held_out.step)
    failed = [
        name
        for name, column in zip(held_out.w_names, left.T, strict=True)
        if serial_check(name, serial_rows(column, x, place)).verdict == "fail"
    ]
    return f"what the law leaves of {', '.join(failed)} has memory" if failed else ""


@dataclass(frozen=True, eq=False)
class StudySimulation:
    """What came of playing the policies of a study.

    Attributes
    ----------
    run : of every policy.
    parts : (rounds, 3) of the radius of pulse_calibrated, see :func:`radius_parts`; None if it did
        not play.
    outside : share of the rounds beyond the calibrated domain.
    text, agents : for the reader of the page: what was played, and who played.
    truth_id : of the law W was drawn from; None if the world is known.
    notes : what went otherwise than meant.
    heuristic : agent -> why its guard promises nothing.
    votes : of the committee's members; None if it did not play.
    """

    run: Run
    parts: Float2 | None
    outside: float
    text: str
    agents: str
    truth_id: str | None = None
    notes: tuple[str, ...] = ()
    heuristic: Mapping[str, str] = field(default_factory=dict)
    votes: Votes | None = None


class StudyWorld(Protocol):
    """Contexts, rewards and noise for the policies of a study.

    name : tells it from other worlds; a simulation in a world of another name is made again.
    """

    @property
    def name(self) -> str:
        """What it is called in a stage's record."""

    def play(self, policies: StudyPolicies) -> StudySimulation:
        """Play every policy."""


# A world that is known.


@dataclass(frozen=True, eq=False)
class KnownWorld:
    """An environment whose W, theta* and noise are known: what the policies miss can be told.

    runs : each on contexts of its own.
    """

    name: str
    environment: Environment
    runs: int

    def play(self, policies: StudyPolicies) -> StudySimulation:
        """Play all runs at once."""
        rounds = policies.stakes.horizon
        world = self.environment.world(self.runs, rounds, rng=stream(policies.seed, "online"))
        notes: list[str] = []
        agents = policies.agents(world, notes)
        run = simulate(world, [*agents.values(), cond_oracle(world)])
        inside = float(policies.calibration.inside_at(world.s)[:, world.lead :].mean())
        text = (
            f"The world {self.name}, which also made the archive: new contexts S, with W, theta* "
            f"and the noise of rewards as they truly are, {self.runs} runs of {rounds:,} "
            "rounds. Policies know nothing of it but what [policy] states. Regret is measured "
            "against the truth itself; a study of real data has no such world, and plays in one "
            "made up from its archive."
        )
        return StudySimulation(
            run=run,
            parts=_calibrated_parts(agents, run),
            outside=1.0 - inside,
            text=text + _noted(notes),
            agents=who_plays(agents),
            notes=tuple(notes),
            heuristic=heuristics(agents),
            votes=_votes(agents, [_weights(agents, world)]),
        )


# Real contexts with made-up W and rewards: what a study can simulate without any rewards.


SIZE = 512  # Monte Carlo draws of expected features, where they are not closed form
POOL = 128  # draws of W a round's own is picked from


@dataclass(frozen=True)
class Reward:
    """How rewards are made up: theta* on the sphere of radius S, Gaussian noise.

    noise_sd : of the reward given the full context; None: whatever is left of ``stakes.sigma``
        after what W adds, so that the reward given S varies with sd sigma on average.
    """

    stakes: Stakes
    noise_sd: float | None = None

    def theta(self, dim: int, rng: np.random.Generator) -> Float:
        """Draw theta*, (d,), uniformly on the sphere."""
        direction = rng.standard_normal(dim)
        return np.asarray(self.stakes.theta_bound * direction / np.linalg.norm(direction))

    def sd(self, context: Sequence[Float]) -> float:
        """Return the sd of the noise.

        context : of each block theta*'(Phi - E[Phi | S]), (unit, time, action), NaN off the rounds.
        """
        if self.noise_sd is not None:
            return self.noise_sd
        added = sum(float(np.nansum(block**2)) for block in context)
        count = sum(int(np.isfinite(block).sum()) for block in context)
        return math.sqrt(max(self.stakes.sigma**2 - added / count, 0.0))


@dataclass(frozen=True, eq=False)
class SimulatedRun:
    """One run: whole units one after the other, each in its own order of time.

    Attributes
    ----------
    blocks : units of like length, each a world (unit, time, ...), so that lags and filters see
        each unit from its start and a long unit pads no short one.
    rounds : of each block (unit, time), which rows are rounds.
    order : (rounds,) which of the rounds of all blocks, one block after the other, comes when.
    """

    blocks: tuple[World, ...]
    rounds: tuple[Bool, ...]
    order: Int

    def in_a_row(self, values: Sequence[Array]) -> Array:
        """Put values (unit, time, ...) of each block in the order they are played: (1, rounds)."""
        of_blocks = [value[rounds] for value, rounds in zip(values, self.rounds, strict=True)]
        return np.concatenate(of_blocks)[self.order][None]

    @property
    def world(self) -> World:
        """The rounds in a row, as one run."""
        fields: dict[str, Any] = {
            name: self.in_a_row([getattr(block, name) for block in self.blocks])
            for name in ("s", "w", "phi", "phibar", "noise")
        }
        return replace(self.blocks[0], **fields)

    @property
    def series(self) -> Series:
        """Whose rounds these are, and when in the unit's own time."""
        unit, clock, units = [], [], 0
        for rounds in self.rounds:
            count, length = rounds.shape
            unit.append(np.broadcast_to(units + np.arange(count)[:, None], rounds.shape))
            clock.append(np.broadcast_to(np.arange(length), rounds.shape))
            units += count
        return Series(self.in_a_row(unit), self.in_a_row(clock))

    def agent(self, agents: Sequence[Agent | Team]) -> Agent | Team:
        """Return a policy's agents, one for each block, as one that plays the rounds in a row."""
        return laid_out(agents, self.in_a_row, self.series)


def usable_rows(law: FittedLaw, history: History) -> Bool:
    """Tell which rows can be rounds, (rows,): S_t and all inputs are seen."""
    x = history.inputs(law.summary)
    seen: Bool = np.asarray(np.isfinite(x).all(-1) & np.isfinite(history.s).all(-1))
    if not seen.any():
        raise DataError("simulate: no held-out row has all its inputs; use fewer lags.")
    return seen


def draw_run(
    truth: FittedLaw,
    held_out: History,
    usable: Bool,
    features: Features,
    reward: Reward,
    *,
    rounds: int,
    rng: np.random.Generator,
) -> SimulatedRun:
    """Draw one run of so many rounds on the contexts of held-out units, in random order.

    Parameters
    ----------
    truth : the law W is drawn from; each round is a draw of its own from the posterior predictive,
        so that W_t given S_1:t is free of earlier W, as the theorem wants.
    usable : (rows,) of :func:`usable_rows`; at least ``rounds`` of them.
    reward : how theta* and the noise are made up.

    Memory goes with the rows of the units that are played, up to the last round of any of them.
    """
    count = np.bincount(held_out.unit_of[usable], minlength=len(held_out.units))
    order = rng.permutation(len(held_out.units))
    order = order[count[order] > 0]
    order = order[: int(np.searchsorted(np.cumsum(count[order]), rounds)) + 1]
    part, played = held_out.take(order), usable[held_out.rows_of(order)]
    played &= np.cumsum(played) <= rounds
    needed = part.step <= part.step[played].max()  # of a long unit only the rows up to there
    part, played = part.where(needed), played[needed]
    blocks = list(part.blocks())
    chosen = [np.where(block.seen, played[block.row], False) for block in blocks]
    contexts = [unseen_context(truth, features, block.s, rng).draw(rng) for block in blocks]
    theta = reward.theta(contexts[0].phi.shape[-1], rng)
    sd = reward.sd(left_open(contexts, chosen, theta))
    place = [block.row for block in blocks]
    return simulated_run(contexts, chosen, place, features, theta=theta, sd=sd, rng=rng)


def left_open(
    contexts: Sequence[FullContexts], chosen: Sequence[Bool], theta: Float
) -> list[Float]:
    """Return theta*'(Phi - E[Phi | S]) of each block, (unit, time, action), NaN off the rounds."""
    return [
        np.where(at[..., None], (full.phi - full.phibar) @ theta, np.nan)
        for full, at in zip(contexts, chosen, strict=True)
    ]


def simulated_run(
    contexts: Sequence[FullContexts],
    chosen: Sequence[Bool],
    place: Sequence[Int],
    features: Features,
    *,
    theta: Float,
    sd: float,
    rng: np.random.Generator,
) -> SimulatedRun:
    """Return the run in which these contexts are met, with noise of its own.

    chosen : of each block (unit, time), which rows are rounds. place : (unit, time), rounds are
    played in rising order of it. sd : of the noise.
    """
    worlds = tuple(
        World(
            s=full.s,
            w=full.w,
            phi=full.phi,
            phibar=full.phibar,
            theta=theta,
            noise=sd * rng.standard_normal(full.s.shape[:2]),
            features=features,
            lead=0,
        )
        for full in contexts
    )
    rows = np.concatenate([where[at] for where, at in zip(place, chosen, strict=True)])
    return SimulatedRun(worlds, tuple(chosen), np.argsort(rows))


class FullContexts(NamedTuple):
    """s, w (unit, time, ...), phi and phibar (unit, time, action, d) of a block, as in World."""

    s: Float3
    w: Float3
    phi: Float4
    phibar: Float4


class Persisting(Protocol):
    """What a law leaves of W, as a sum of parts that persist: z_t = keep z_{t-1} + N(0, shock).

    keep (m,), shock and start (m, m), m a multiple of w_dim; see ``laws.with_memory``.
    """

    @property
    def keep(self) -> Float:
        """What stays of each part from one step to the next."""

    @property
    def shock(self) -> Float:
        """Covariance of what is added at each step."""

    @property
    def start(self) -> Float:
        """Covariance at a unit's first row."""


@dataclass(frozen=True, eq=False)
class UnseenContext:
    """What a law says of W at contexts s (unit, time, s_dim), to be drawn from again and again.

    Attributes
    ----------
    s : (unit, time, s_dim). features : Phi.
    pool : (draw, unit, time, w_dim); a round's own W is picked from it.
    phibar : (unit, time, action, d) E[Phi | S_1:t] under the law.
    memory : of what the law leaves, added to what is picked; then the pool is the law's mean.
    """

    s: Float3
    features: Features
    pool: Float4
    phibar: Float4
    memory: Persisting | None = None

    def draw(self, rng: np.random.Generator) -> FullContexts:
        """Draw W, and Phi with it."""
        shape = self.s.shape[:2]
        pick = rng.integers(len(self.pool), size=shape)
        w = np.take_along_axis(self.pool, pick[None, ..., None], axis=0)[0]
        if self.memory is not None:
            w = w + residual_paths(self.memory, shape, w.shape[-1], rng)
        flat_s, flat_w = (v.reshape(-1, v.shape[-1]) for v in (self.s, w))
        actions = range(self.features.actions)
        phi = np.stack([self.features(flat_s, flat_w, a) for a in actions], axis=1)
        return FullContexts(self.s, w, phi.reshape(*shape, len(actions), -1), self.phibar)


def unseen_context(
    truth: FittedLaw,
    features: Features,
    s: Float3,
    rng: np.random.Generator,
    *,
    pool: int = POOL,
    memory: Persisting | None = None,
) -> UnseenContext:
    """Ask a law of W at contexts s (unit, time, s_dim); see :class:`UnseenContext`."""
    asked, shape = truth(s), s.shape[:2]
    drawn = asked.mean()[None] if memory is not None else asked.draws(pool, rng=rng)
    phibar = expected_features(truth, features, s, size=SIZE, rng=rng).mean
    return UnseenContext(s, features, drawn.reshape(len(drawn), *shape, -1), phibar, memory)


def residual_paths(
    memory: Persisting, shape: tuple[int, int], w_dim: int, rng: np.random.Generator
) -> Float3:
    """Draw what a law leaves of W, (unit, time, w_dim), units independent; gaps are passed."""
    units, time = shape
    shock, state = _root(memory.shock), _root(memory.start)
    z = rng.standard_normal((units, len(state))) @ state.T
    out = np.empty((units, time, w_dim))
    for t in range(time):
        out[:, t] = z.reshape(units, -1, w_dim).sum(1)
        z = memory.keep * z + rng.standard_normal(z.shape) @ shock.T
    return out


def _root(covariance: Float) -> Float:
    """Return R with R R' = covariance, which may be singular."""
    value, vector = np.linalg.eigh(covariance)
    root: Float = vector * np.sqrt(np.maximum(value, 0.0))
    return root


RUNS = 8  # each with a theta* and an order of units of its own
MOST = 2000  # rounds a run, RUNS times: keeps a study short


@dataclass(frozen=True, eq=False)
class RivalWorld:
    """Contexts of held-out units; W from a rival fit, the same kind of law fitted on those units.

    Attributes
    ----------
    model, inference : the law, not fitted, and its engine.
    held_out : units the policies' law was not fitted on.
    features : Phi. reward_sd : of a reward given the full context, see :class:`Reward`.
    """

    model: UnfittedLaw
    inference: Inference | None
    held_out: History
    features: Features
    reward_sd: float | None
    name: str = "a rival fit"

    def play(self, policies: StudyPolicies) -> StudySimulation:
        """Play several runs of one sequence each, every one with a theta* of its own."""
        stakes, seed = policies.stakes, policies.seed
        truth = fit_law(self.model, self.held_out, self.inference, seed)
        usable = usable_rows(policies.law, self.held_out) & usable_rows(truth, self.held_out)
        rounds = min(stakes.horizon, MOST, int(usable.sum()))
        reward = Reward(stakes, self.reward_sd)
        notes: list[str] = []
        runs, inside, weights, parts = [], [], [], None
        for r in bar(range(RUNS), label="simulate"):
            drawn = draw_run(
                truth,
                self.held_out,
                usable,
                self.features,
                reward,
                rounds=rounds,
                rng=stream(seed, "simulate", r),
            )
            agents = _agents_in_a_row(policies, drawn, notes)
            world = drawn.world
            runs.append(simulate(world, [*agents.values(), cond_oracle(world)]))
            within = [policies.calibration.inside_at(block.s) for block in drawn.blocks]
            inside.append(float(drawn.in_a_row(within).mean()))
            weights.append(_weights(agents, world))
            if r == 0:
                parts = _calibrated_parts(agents, runs[0])
        return StudySimulation(
            run=_merged(runs),
            parts=parts,
            outside=float(1.0 - np.mean(inside)),
            text=self._text(stakes, rounds, int(usable.sum()), truth) + _noted(notes),
            agents=who_plays(agents),
            truth_id=truth.id,
            notes=tuple(notes),
            heuristic=heuristics(agents),
            votes=_votes(agents, weights),
        )

    def _text(self, stakes: Stakes, rounds: int, rows: int, truth: StoredLaw) -> str:
        short = (
            ""
            if rounds == stakes.horizon
            else (
                f" [policy] asks for {stakes.horizon:,} rounds; {rows:,} held-out rows can be "
                f"played, and never more than {MOST:,}."
            )
        )
        return (
            f"Real: the contexts S of {len(self.held_out.units)} held-out units, one unit after "
            f"the other, each in its order of time; {rounds:,} rounds a run.{short}\n\n"
            "Made up, since an archive holds no rewards: W is drawn anew from a truth, the same "
            f"kind of law fitted on the held-out units ({truth.id}), so the policies' law, fitted "
            "on the other units, is wrong by what estimation costs and by nothing else. theta* is "
            f"drawn on the sphere of radius {stakes.theta_bound:g}, anew in each of {RUNS} runs; "
            "the reward noise is that of [policy].\n\n"
            "It shows how policies compare if the law is of the right kind. It is no forecast of "
            "regret: the real theta* is not known, and a law of the wrong kind is not among what "
            "was tried. The truth is fitted on the same held-out units as the calibration's "
            "reference band, so here the calibrated bound is close to true by construction: that "
            "it holds in this simulation is no evidence that it holds elsewhere."
        )


def _agents_in_a_row(
    policies: StudyPolicies, drawn: SimulatedRun, notes: list[str]
) -> dict[str, Agent | Team]:
    """Return the policies that can play in every block, by name."""
    by_block = [policies.agents(block, notes) for block in drawn.blocks]
    return {
        name: drawn.agent([agents[name] for agents in by_block])
        for name in by_block[0]
        if all(name in agents for agents in by_block)
    }


def _calibrated_parts(agents: dict[str, Agent | Team], run: Run) -> Float2 | None:
    cautious = agents.get("pulse_calibrated")
    return radius_parts(cautious, run) if isinstance(cautious, Agent) else None


def _weights(agents: Mapping[str, Agent | Team], world: World) -> Float3:
    """Return the weights of the committee's members, (run, time, k); a Run does not keep them."""
    team = agents.get("committee")
    return team.play(world.reward).weights if isinstance(team, Team) else np.zeros((1, 0, 0))


def _votes(agents: Mapping[str, Agent | Team], weights: Sequence[Float3]) -> Votes | None:
    """Return their mean over runs, None where no committee plays."""
    team = agents.get("committee")
    return Votes(team.labels, np.concatenate(weights).mean(0)) if isinstance(team, Team) else None


def _noted(notes: Sequence[str]) -> str:
    return "".join(f"\n\nNote: {note}" for note in notes)


def _merged(runs: list[Run]) -> Run:
    first = runs[0]
    action, regret, cond = (
        np.concatenate([getattr(run, name) for run in runs], axis=1)
        for name in ("action", "regret", "regret_cond")
    )
    gap = np.concatenate([run.info_gap for run in runs])
    overruled, radius, held = (
        np.concatenate([getattr(run, name) for run in runs], axis=1)
        for name in ("overruled", "radius", "held")
    )
    return replace(
        first,
        action=action,
        regret=regret,
        regret_cond=cond,
        info_gap=gap,
        overruled=overruled,
        radius=radius,
        held=held,
    )
