"""Real contexts with made-up W and rewards: what a study can simulate without any rewards."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from pulse_pyro.arrays import Array, Bool, Float
from pulse_pyro.environments.world import World
from pulse_pyro.errors import DataError
from pulse_pyro.features import Features, expected_features
from pulse_pyro.history import History
from pulse_pyro.laws.fitted import FittedLaw
from pulse_pyro.simulation.run import Agent
from pulse_pyro.study.stakes import Stakes

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

    def noise(self, context: Float, rng: np.random.Generator) -> Float:
        """Draw noise (unit, time); context : theta*'(Phi - E[Phi | S]), (unit, time, action)."""
        sd = self.noise_sd
        if sd is None:
            sd = math.sqrt(max(self.stakes.sigma**2 - float(np.nanmean(context**2)), 0.0))
        return sd * rng.standard_normal(context.shape[:2])


@dataclass(frozen=True, eq=False)
class Played:
    """One run: whole units one after the other, each in its own order of time.

    grid : the world by unit, (unit, time), so that lags and filters see each unit from its start;
    rounds : (unit, time) which rows are rounds.
    """

    grid: World
    rounds: Bool

    def line(self, values: Array) -> Array:
        """Put values (unit, time, ...) in the order they are played: (1, rounds, ...)."""
        return values[self.rounds][None]

    @property
    def world(self) -> World:
        """The rounds in a row, as one run."""
        g = self.grid
        s, w, phi, phibar, noise = (self.line(v) for v in (g.s, g.w, g.phi, g.phibar, g.noise))
        return replace(g, s=s, w=w, phi=phi, phibar=phibar, noise=noise)

    def agent(self, agent: Agent, ridge: float) -> Agent:
        """Return an agent of the grid as one that plays the rounds in a row."""
        error = self.line(agent.error) if isinstance(agent.error, np.ndarray) else agent.error
        return replace(agent, x=self.line(agent.x), error=error, ridge=ridge)


def usable_rows(law: FittedLaw, history: History) -> Bool:
    """Tell which rows (unit, time) can be rounds: they exist, S_t and all inputs are seen."""
    x = law.summary(history.s)
    seen: Bool = np.isfinite(x).all(-1) & np.isfinite(history.s).all(-1) & history.seen
    if not seen.any():
        raise DataError("simulate: no held-out row has all its inputs; use fewer lags.")
    return seen


def make_played(
    truth: FittedLaw, held_out: History, usable: Bool, features: Features, reward: Reward,
    rounds: int, rng: np.random.Generator,
) -> Played:  # fmt: skip
    """Draw one run of so many rounds on the contexts of held-out units, in random order.

    Parameters
    ----------
    truth : the law W is drawn from; each round is a draw of its own from the posterior predictive,
        so that W_t given S_1:t is free of earlier W, as the theorem wants.
    usable : (unit, time) of :func:`usable_rows`; at least ``rounds`` of them.
    reward : how theta* and the noise are made up.
    """
    order = rng.permutation(len(held_out.units))
    count = np.cumsum(usable[order].sum(1))
    order = order[: int(np.searchsorted(count, rounds)) + 1]
    part, chosen = held_out.take(order), usable[order]
    late = np.cumsum(chosen, dtype=np.int64).reshape(chosen.shape)
    chosen = chosen & (late <= rounds)
    end = int(np.flatnonzero(chosen.any(0))[-1]) + 1  # of a long unit only the rows that are played
    s, chosen = part.s[:, :end], chosen[:, :end]
    draws = truth.sample(s, POOL, rng=rng)
    pick = rng.integers(POOL, size=chosen.shape)
    w = np.take_along_axis(draws, pick[None, ..., None], axis=0)[0]
    flat_s, flat_w = (v.reshape(-1, v.shape[-1]) for v in (s, w))
    phi = np.stack([features(flat_s, flat_w, a) for a in range(features.actions)], axis=1)
    phi = phi.reshape(*chosen.shape, features.actions, -1)
    phibar = expected_features(truth, features, s, size=SIZE, rng=rng).mean
    theta = reward.theta(phi.shape[-1], rng)
    noise = reward.noise(np.where(chosen[..., None], (phi - phibar) @ theta, np.nan), rng)
    return Played(World(s, w, phi, phibar, theta, noise, features, 0), chosen)
