"""The agents every table is played with, and what the published scripts did."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from pulse_pyro._core.arrays import Float, Float4
from pulse_pyro._core.seeds import stream
from pulse_pyro.base import FittedLaw
from pulse_pyro.calibration.calibration import Calibration
from pulse_pyro.calibration.ladder import all_units
from pulse_pyro.data.history import History
from pulse_pyro.envs.agents import oful, oful_full, oful_lags, oful_paper, pulse, pulse_adaptive
from pulse_pyro.envs.arma import ArmaWorld
from pulse_pyro.envs.baselines import clbbf_agent, clbbf_paper_agent, clbbf_warm_agent
from pulse_pyro.envs.simulation import PUBLISHED, Agent, Fixed, PerRun, Team, cond_oracle
from pulse_pyro.envs.world import Environment, World
from pulse_pyro.features import slopes
from pulse_pyro.paper.committees import at_radius, table_committee
from pulse_pyro.paper.setting import Agents, Ready
from pulse_pyro.radius import Radius, corrected, matched_ridge, noise_scale, robust, thompson

# What the published scripts did and the paper does not say, to see if its figures come out.


DRAWS = 30  # Monte Carlo draws of W an arm, as in the scripts


@dataclass(frozen=True)
class Pretrained:
    """An environment whose archive comes from another one."""

    history: Environment
    online: Environment

    def archive(self, units: int, length: int, *, rng: np.random.Generator) -> History:
        """Draw an archive of the first."""
        return self.history.archive(units, length, rng=rng)

    def world(self, runs: int, horizon: int, *, rng: np.random.Generator) -> World:
        """Draw online rounds of the second."""
        return self.online.world(runs, horizon, rng=rng)


def fresh_draws(
    world: World, laws: Sequence[FittedLaw], *, radius: Radius = PUBLISHED, seed: int
) -> Agent:
    """PULSE-UCB that averages 30 draws of W anew for every arm, and anew again to learn.

    The features learned from are then not those the action was chosen with.
    """
    arms, found = world.features.actions, np.empty((2, *world.mean_full.shape))
    for r, law in enumerate(laws):
        for a in range(2 * arms):
            rng = stream(seed, "fresh draws", r, a)
            w = law(world.s[r : r + 1]).draws(DRAWS, rng=rng)[:, world.lead :, 0]
            found[a // arms, r, :, a % arms] = w.mean(0)
    acted, learned = (phi_of(world, w) for w in found)
    return Agent("pulse_paper", acted, radius, taught=learned)


def phi_of(world: World, w: Float) -> Float4:
    """Phi at S_t and w (run, time, action), a W of each arm's own: (run, time, action, d)."""
    s = world.s[:, world.lead :].reshape(-1, world.s.shape[-1])
    arms = [world.features(s, w[..., a].reshape(-1, 1), a) for a in range(w.shape[-1])]
    return np.stack(arms, axis=1).reshape(*w.shape, -1)


# The agents every table is played with, where they make sense.


LEVEL = 0.95
MOST = 200  # units a band is made from; more would only cost time here
FEWEST = 50  # units from which on a band on 20 inputs is to be had
COMMITTEES = {  # how members are weighed -> name of the agent
    "tempered": "committee",
    "stacking": "committee_stacking",
    "best": "committee_best",
}
NOTES = {
    "pulse_adaptive": "not published: rewards repair the law where its posterior is unsure",
    "pulse_calibrated": "not published: corrected radius, calibrated errors; told S, sigma",
    "pulse_robust": "not published: confidence-weighted; the runs' largest calibrated budget",
    "pulse_paper": "not published here: 30 fresh draws of W an arm, and again to learn",
    "pulse_ts": "not published: Thompson sampling on the expected features",
    "oful": "not published: every observed feature and its action interaction",
    "oful_lags": "not published: OFUL on the raw lags, no archive at all",
    "clbbf": "not published: CLBBF without W; the printed figure is clbbf_paper's, which has W",
    "clbbf_warm": "not published: CLBBF with moments of the archive, lags included",
    "cond_oracle": "not published: knows theta and E[Phi | S]",
    "committee": "not published: S, raw lags, pulse and pulse_adaptive vote, tempered weights",
}


@dataclass(frozen=True)
class Scales:
    """What the corrected radius must be told: S >= ||theta*||, sigma, and the ridge they suit."""

    theta_bound: float
    sigma: float
    ridge: float


def scales(env: ArmaWorld) -> Scales:
    """S = ||theta*||, and sigma from S, the noise of rewards and the noise of W.

    sigma^2 = reward_sd^2 + (S max_a ||dPhi/dw|| w_sd)^2; the direction of theta* is not used.
    """
    size = float(np.linalg.norm(env.theta))
    zero = np.zeros((1, 1))
    slope = float(np.linalg.norm(slopes(env.features, zero, zero, np.ones(1)), axis=-1).max())
    sigma = noise_scale(reward_sd=env.reward_sd, context_sd=size * slope * env.w_sd)
    return Scales(size, sigma, matched_ridge(sigma=sigma, theta_bound=size, dim=len(env.theta)))


def usual(
    env: ArmaWorld,
    *,
    law: str = "pulse",
    calibrated: bool = True,
    votes: Sequence[str] = ("tempered",),
) -> Agents:
    """Return what makes every agent of the tables, around the law called ``law``.

    calibrated : whether the archives are large enough for a band. votes : how committees weigh
    their members, one committee each.
    """
    return partial(_usual, env=env, law=law, calibrated=calibrated, votes=tuple(votes))


def with_draws(env: ArmaWorld, *, radius: Radius = PUBLISHED, calibrated: bool = True) -> Agents:
    """As :func:`usual` with ``radius`` for every constant one, and the agent that draws W anew."""
    return partial(_with_draws, made=usual(env, calibrated=calibrated), radius=radius)


def _with_draws(
    ready: Ready, made: Agents, radius: Radius
) -> Sequence[Agent | Team | PerRun | Fixed]:
    agents = [_with_radius(agent, radius) for agent in made(ready)]
    return [fresh_draws(ready.world, ready.laws["pulse"], radius=radius, seed=ready.seed), *agents]


def _with_radius(
    agent: Agent | Team | PerRun | Fixed, radius: Radius
) -> Agent | Team | PerRun | Fixed:
    if isinstance(agent, Team):
        return at_radius(agent, radius)
    if isinstance(agent, Agent) and agent.radius == PUBLISHED:
        return replace(agent, radius=radius)
    return agent


def _usual(
    ready: Ready, env: ArmaWorld, law: str, calibrated: bool, votes: tuple[str, ...]
) -> Sequence[Agent | Team | Fixed]:
    world, found = ready.world, scales(env)
    plain = [pulse(world, laws, name=name, seed=ready.seed) for name, laws in ready.laws.items()]
    own = next(agent for agent in plain if agent.name == law)
    adaptive, observed, lagged = _adaptive(ready, law), oful(world), oful_lags(world, env.summary)
    agents: list[Agent | Team | Fixed] = [*plain, adaptive]
    if calibrated:
        agents += _calibrated(ready, law, own, found)
    members = [observed, lagged, own, adaptive]
    committees = [
        table_committee(members, guess=found.sigma, votes=rule, name=COMMITTEES[rule])
        for rule in votes
    ]
    return [
        *agents,
        replace(
            own, name="pulse_ts", radius=thompson(found.sigma, seed=ready.seed), ridge=found.ridge
        ),
        observed,
        lagged,
        oful_paper(world),
        oful_full(world),
        clbbf_agent(world),
        clbbf_paper_agent(world),
        clbbf_warm_agent(world, ready.archives, env.summary),
        cond_oracle(world),
        *committees,
    ]


def _adaptive(ready: Ready, law: str) -> Agent:
    return pulse_adaptive(ready.world, ready.laws[law], seed=ready.seed)


def _calibrated(ready: Ready, law: str, agent_of_law: Agent, scale: Scales) -> list[Agent]:
    """Corrected and robust radii, with errors and budget from a band on each run's own archive."""
    sigma, size, dim = scale.sigma, scale.theta_bound, agent_of_law.x.shape[-1]
    calibrated = list(calibrations(ready, law))
    lead, rounds = ready.world.lead, agent_of_law.x.shape[1]
    error = np.concatenate(
        [
            each.reward_error(ready.world.s[r : r + 1], theta_bound=size)[:, lead:]
            for r, each in enumerate(calibrated)
        ]
    )
    # of a calibration that does not hold, a heuristic: what the errors of this very run add up to
    budget = max(
        each.budget(rounds=rounds, theta_bound=size)
        if each.usable
        else float(np.nansum(of_run.max(-1)))
        for each, of_run in zip(calibrated, error, strict=True)
    )
    safe = corrected(sigma=sigma, theta_bound=size)
    careful = robust(sigma=sigma, theta_bound=size, budget=budget, dim=dim)
    return [
        replace(agent_of_law, name="pulse_calibrated", radius=safe, ridge=scale.ridge, error=error),
        replace(agent_of_law, name="pulse_robust", radius=careful, ridge=scale.ridge, error=error),
    ]


def calibrations(ready: Ready, law: str) -> Iterator[Calibration]:
    """Bound each run's law with a band on up to 200 units of its own archive."""
    for fitted, archive in zip(ready.laws[law], ready.archives, strict=True):
        part = archive.take(range(min(len(archive.units), MOST)))
        band = "auto" if len(fitted.summary.names) == 1 else "linear"  # powers of x are no inputs
        yield all_units(fitted, part, ready.world.features, level=LEVEL, seed=ready.seed, band=band)
