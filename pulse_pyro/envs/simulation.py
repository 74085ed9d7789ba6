"""Measure agents against each other on the same contexts, noise and rounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pulse_pyro._core.arrays import Array, Float1, Float2, Float3, Float4, Int
from pulse_pyro._core.errors import FeatureError, SettingError, nearest
from pulse_pyro._core.packed import Packed, pack_value, unpack_value
from pulse_pyro.base import picture
from pulse_pyro.envs.world import World
from pulse_pyro.policies.ball import BallRounds
from pulse_pyro.policies.guard import (
    ONE_UNIT,
    Ball,
    GuardedPlay,
    Learner,
    Series,
    play_guarded,
)
from pulse_pyro.policies.horizon import play_horizon
from pulse_pyro.radius import Radius, constant

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

PUBLISHED = constant(2.0)  # what every published synthetic run used


@dataclass(frozen=True, eq=False)
class Agent:
    """The linear core on given features.

    x : (run, time, action, d) scored features. error : e_{t,a}, same shape without d.
    taught : features learned from, if not those scored; see :func:`play_horizon`.
    rests_on : what the bound of a radius with a benchmark is conditional on. heuristic : why it
    need not hold, "" where nothing speaks against it.
    """

    name: str
    x: Float4
    radius: Radius = PUBLISHED
    ridge: float = 1.0
    error: Float3 | None = None
    taught: Float4 | None = None
    rests_on: tuple[str, ...] = ()
    heuristic: str = ""


@dataclass(frozen=True, eq=False)
class Team:
    """Learners inside a guard, a committee of them, or both; see ``policies.guard``.

    Attributes
    ----------
    learners : the first is the one the ball speaks of. labels : their names.
    ball, rounds : the fence, and what the law's error is at each round; None: no guard.
    advisor : whose arms are played inside the fence, as in :func:`play_guarded`.
    slack : c. votes : how a committee weighs its members.
    series : units, their own times, late rewards.
    truth : (run or 1, d) what the first learner's ball should hold, where that is not the world's
        own theta*, to see whether it does.
    """

    name: str
    learners: tuple[Learner, ...]
    labels: tuple[str, ...]
    ball: Ball | None = None
    rounds: BallRounds | None = None
    advisor: Radius | str | Int = "committee"
    slack: float = 3.0
    votes: str = "tempered"
    series: Series = ONE_UNIT
    truth: Float2 | None = None

    def play(self, reward: Float3, theta: Float2 | None = None) -> GuardedPlay:
        """Play rewards (run, time, action); theta (run or 1, d) is the world's, where known."""
        truth = self.truth
        if truth is None and theta is not None and self.learners[0].x.shape[-1] == theta.shape[-1]:
            truth = theta
        return play_guarded(
            self.learners,
            reward,
            ball=self.ball,
            rounds=self.rounds,
            advisor=self.advisor,
            slack=self.slack,
            series=self.series,
            votes=self.votes,
            truth=truth,
        )


@dataclass(frozen=True, eq=False)
class PerRun:
    """An agent that is another team in every run, each with a law and a ball of its own.

    teams : one for each run, made on :meth:`World.one` of it.
    """

    name: str
    teams: tuple[Team, ...]


def laid_out(
    agents: Sequence[Agent | Team], pick: Callable[[list[Array]], Array], series: Series
) -> Agent | Team:
    """Return one agent of several blocks of rounds, put in the order they are played.

    agents : the same one made on each block (series, time, ...). pick : puts arrays of each block
    (series, time, ...) in a row, (1, rounds, ...). series : whose rounds these are.
    """
    first = agents[0]
    if isinstance(first, Agent):
        fields: dict[str, Any] = {
            name: pick([getattr(agent, name) for agent in agents])
            for name in ("x", "error", "taught")
            if isinstance(getattr(first, name), np.ndarray)
        }
        return replace(first, **fields)
    teams = [agent for agent in agents if isinstance(agent, Team)]
    learners = []
    for k, learner in enumerate(first.learners):
        carry = learner.carry
        x = pick([team.learners[k].x for team in teams])
        if carry is not None and carry.coef.shape[:2] != (1, 1):
            every = [team.learners[k] for team in teams]
            carry = replace(
                carry, coef=pick([_spread(e.carry.coef, e.x) for e in every if e.carry])
            )
        learners.append(replace(learner, x=x, carry=carry))
    rounds = first.rounds
    if rounds is not None:
        parts = [(team.rounds, team.learners[0].x) for team in teams if team.rounds is not None]
        coef, psi = rounds
        if coef.shape[:2] != (1, 1):
            coef = pick([_spread(one.coef, x) for one, x in parts])
        if psi.size:
            psi = pick([one.psi for one, _ in parts])
        rounds = BallRounds(coef, psi)
    advisor = first.advisor
    if isinstance(advisor, np.ndarray):
        advisor = pick([np.asarray(team.advisor) for team in teams])
    return replace(first, learners=tuple(learners), rounds=rounds, advisor=advisor, series=series)


def scored(agent: Agent | Team) -> list[Float4]:
    """Return all features an agent scores, (series, time, action, d) of each learner."""
    return [one.x for one in agent.learners] if isinstance(agent, Team) else [agent.x]


def _spread(values: Array, x: Float4) -> Array:
    """Return values with one entry for each series and time of x."""
    return np.broadcast_to(values, (*x.shape[:2], *values.shape[2:]))


@dataclass(frozen=True, eq=False)
class Fixed:
    """An agent whose actions (run, time) were found elsewhere, on the same world."""

    name: str
    action: Int


def cond_oracle(world: World) -> Fixed:
    """Knows theta* and E[Phi | S_1:t], not W: its full-context regret is the information gap."""
    return Fixed("cond_oracle", world.mean_cond.argmax(-1))


class RegretBound(NamedTuple):
    """What is claimed of an agent's regret: nothing if there is no benchmark.

    benchmark : whom it is compared with. rests_on : what the claim is conditional on. heuristic :
    why it need not hold, "" where nothing speaks against it.
    """

    benchmark: str
    rests_on: str
    heuristic: str

    def sentence(self, who: str) -> str:
        """Say it of agents: conditional on what, or why nothing is promised."""
        if self.heuristic:
            return f"Heuristic, no guarantee: {self.heuristic}; so the ball of {who} need not hold."
        against = f"The bound of {who} is against {self.benchmark}"
        return f"{against}, conditional on: {self.rests_on}." if self.rests_on else f"{against}."


@dataclass(frozen=True, eq=False)
class Run:
    """Noise-free cumulative regret of each agent, of both kinds.

    Attributes
    ----------
    names : agents, in order.
    action : (agent, run, time); negative where a round could not be scored.
    regret, regret_cond : (agent, run, time) cumulative, against the best arm given the full
        context and given S alone. Their expected difference is the same for every policy that
        sees only S: sum_t J_t, what none of them can earn.
    info_gap : (run,) realised full-context regret of the best policy that sees only S.
    overruled : (agent, run) share of rounds in which a guard did not follow its advisor.
    radius : (agent, run) mean over rounds of r, the radius of its ball.
    held : (agent, run) 1 where the ball held theta* in all rounds, 0 where it did not. These three
        are NaN for agents without a guard.
    benchmarks : (agent) whom the bound on each agent's regret speaks of; "" where it has none.
    rests_on, heuristic : (agent) what that bound is conditional on, and why it need not hold, ""
        where nothing speaks against it.
    """

    names: tuple[str, ...]
    action: Int
    regret: Float3
    regret_cond: Float3
    info_gap: Float1
    overruled: Float2 | None = None
    radius: Float2 | None = None
    held: Float2 | None = None
    benchmarks: tuple[str, ...] = ()
    rests_on: tuple[str, ...] = ()
    heuristic: tuple[str, ...] = ()

    def of(self, name: str) -> Float2:
        """Cumulative full-context regret (run, time) of one agent."""
        if name not in self.names:
            raise SettingError(f"Run.of: there is no agent {name!r}{nearest(name, self.names)}")
        found: Float2 = self.regret[self.names.index(name)]
        return found

    @property
    def table(self) -> DataFrame:
        """One line per agent: final regret of both kinds with standard errors over runs."""
        import pandas as pd

        final, cond = self.regret[..., -1], self.regret_cond[..., -1]
        return pd.DataFrame(
            {
                "regret": final.mean(1),
                "se": _se(final),
                "regret_cond": cond.mean(1),
                "se_cond": _se(cond),
                "info_gap": self.info_gap.mean(),
                "runs": final.shape[1],
                "refused": (self.action < 0).sum((1, 2)),
                "overruled": np.nan if self.overruled is None else self.overruled.mean(1),
                "benchmark": [
                    f"{bound.benchmark} (heuristic)".strip() if bound.heuristic else bound.benchmark
                    for bound in self.bounds
                ],
            },
            index=pd.Index(self.names, name="agent"),
        )

    @property
    def bounds(self) -> tuple[RegretBound, ...]:
        """What is claimed of each agent's regret, in the order of ``names``."""
        told = (self.benchmarks, self.rests_on, self.heuristic)
        filled = (words or ("",) * len(self.names) for words in told)
        return tuple(map(RegretBound, *filled))

    def bound_sentences(self, names: Sequence[str] | None = None) -> list[str]:
        """Say what is claimed of agents' regret, a sentence for all of whom the same is."""
        who: dict[RegretBound, list[str]] = {}
        for name, bound in zip(self.names, self.bounds, strict=True):
            if (bound.benchmark or bound.heuristic) and (names is None or name in names):
                same = RegretBound("", "", bound.heuristic) if bound.heuristic else bound
                who.setdefault(same, []).append(name)
        return [bound.sentence(", ".join(agents)) for bound, agents in who.items()]

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw mean cumulative regret with a band of one standard error over runs."""
        return picture("regret_curves")(self, ax)

    def __repr__(self) -> str:
        table = self.table
        whole = table[table["refused"] == 0]["regret_cond"].drop("cond_oracle", errors="ignore")
        head = f"Run: lowest conditional regret: {whole.idxmin()}" if len(whole) else "Run"
        if (table["refused"] > 0).any():
            head += "; agents that refused rounds are flattered: those cost nothing"
        for name, share in table["overruled"].dropna().items():
            head += f"; the guard of {name} overruled its advisor in {share:.1%} of rounds"
        told = [head, *(f"  {each}" for each in self.bound_sentences())]
        return "\n".join([*told, table.head(10).to_string(float_format="{:.4g}".format)])

    def _repr_html_(self) -> str:
        return self.table.to_html(float_format="{:.4g}".format)


def pack_run(run: Run) -> Packed:
    """Write a run as plain values and arrays; see ``save``."""
    return pack_value(run, (Run,))


def unpack_run(packed: Packed, law: object = None, features: object = None) -> Run:
    """Make a run anew."""
    run = unpack_value(packed, Run, (Run,))
    wanted = (len(run.names), len(run.info_gap), run.action.shape[2])
    if {run.action.shape, run.regret.shape, run.regret_cond.shape} != {wanted}:
        raise ValueError(f"actions and regrets are not all {wanted}")
    return run


def simulate(world: World, agents: Sequence[Agent | Team | PerRun | Fixed]) -> Run:
    """Play every agent on the same world.

    Contexts do not depend on actions, so each agent's whole horizon is handed to the compiled
    loop at once. Rounds with a feature that is not finite are refused, counted and cost nothing.

    Examples
    --------
    >>> import pulse_pyro as pp
    >>> world = pp.envs.w_times_action().world(runs=2, horizon=50, rng=pp.stream(0, "online"))
    >>> run = simulate(world, [pp.envs.oful(world), pp.envs.cond_oracle(world)])
    >>> run.regret.shape, float(run.table["regret_cond"]["cond_oracle"])
    ((2, 2, 50), 0.0)
    """
    names = tuple(agent.name for agent in agents)
    if not agents or len(set(names)) < len(names):
        raise SettingError(f"simulate needs at least one agent and distinct names, not {names}.")
    played = [_played(world, agent) for agent in agents]
    action = np.stack([each.action for each in played])
    overruled, radius, held = (
        np.stack([getattr(each, kind) for each in played]) for kind in _Played._fields[1:]
    )
    gap = world.regret(cond_oracle(world).action, full=True).sum(-1)
    full = np.stack([world.regret(a, full=True) for a in action]).cumsum(-1)
    cond = np.stack([world.regret(a, full=False) for a in action]).cumsum(-1)
    against, rests_on, heuristic = zip(*(bound_of(agent) for agent in agents), strict=True)
    return Run(
        names, action, full, cond, gap, overruled, radius, held, against, rests_on, heuristic
    )


def bound_of(agent: Agent | Team | PerRun | Fixed) -> RegretBound:
    """Return what is claimed of an agent's regret; of one that differs by run, of all of them."""
    if isinstance(agent, PerRun):
        each = zip(*(bound_of(team) for team in agent.teams), strict=True)
        return RegretBound._make("; ".join(dict.fromkeys(filter(None, words))) for words in each)
    if isinstance(agent, Agent):
        return RegretBound(agent.radius.benchmark, "; ".join(agent.rests_on), agent.heuristic)
    ball = agent.ball if isinstance(agent, Team) else None
    if ball is None:
        return RegretBound("", "", "")
    return RegretBound(ball.benchmark, "; ".join(ball.rests_on), ball.heuristic)


class _Played(NamedTuple):
    """What an agent did: action (run, time); overruled, radius, held (run,) as in :class:`Run`."""

    action: Int
    overruled: Float1
    radius: Float1
    held: Float1


def _played(world: World, agent: Agent | Team | PerRun | Fixed) -> _Played:
    if isinstance(agent, PerRun):
        if len(agent.teams) != len(world.phi):
            raise SettingError(
                f"simulate: agent {agent.name!r} has {len(agent.teams)} teams for "
                f"{len(world.phi)} runs; one for each."
            )
        each = [_played(world.one(r), team) for r, team in enumerate(agent.teams)]
        return _Played._make(np.concatenate(part) for part in zip(*each, strict=True))
    nothing = np.full(len(world.phi), np.nan)
    if isinstance(agent, Fixed):
        action = np.asarray(agent.action)
        fits = action.shape == world.phi.shape[:2] and np.issubdtype(action.dtype, np.integer)
        if not fits or action.max() >= world.phi.shape[2]:
            raise SettingError(
                f"simulate: agent {agent.name!r} must hold whole actions below "
                f"{world.phi.shape[2]} for (run, time) = {world.phi.shape[:2]}, but it holds "
                f"{action.dtype} of shape {action.shape}."
            )
        return _Played(action, nothing, nothing, nothing)
    for x in scored(agent):
        if x.shape[:3] != world.phi.shape[:3]:
            raise FeatureError(
                f"simulate: agent {agent.name!r} has features {x.shape}, but the world is "
                f"(run, time, action) = {world.phi.shape[:3]}."
            )
    if isinstance(agent, Team):
        play = agent.play(world.reward, np.atleast_2d(world.theta))
        if agent.ball is None:
            return _Played(play.action, nothing, nothing, nothing)
        known = play.apart.any(1)
        held = np.where(known, play.held.astype(np.float64), np.nan)
        return _Played(play.action, play.overruled_by_run, play.root.mean(1), held)
    action, _, _ = play_horizon(
        agent.x,
        world.reward,
        agent.radius,
        ridge=agent.ridge,
        error=agent.error,
        taught=agent.taught,
    )
    return _Played(action, nothing, nothing, nothing)


def _se(values: Float2) -> Float1:
    runs = values.shape[1]
    return values.std(1, ddof=1) / np.sqrt(runs) if runs > 1 else np.full(len(values), np.nan)
