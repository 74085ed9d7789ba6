"""What the published scripts did and the paper does not say, to see if its figures come out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pulse_pyro.arrays import Float, Float4
from pulse_pyro.environments.world import Environment, World
from pulse_pyro.features import ConditionalLaw
from pulse_pyro.history import History
from pulse_pyro.radius import Radius
from pulse_pyro.seeds import stream
from pulse_pyro.simulation.run import PUBLISHED, Agent

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
    world: World, laws: Sequence[ConditionalLaw], *, radius: Radius = PUBLISHED, seed: int
) -> Agent:
    """PULSE-UCB that averages 30 draws of W anew for every arm, and anew again to learn.

    The features learned from are then not those the action was chosen with.
    """
    arms, found = world.features.actions, np.empty((2, *world.mean_full.shape))
    for r, law in enumerate(laws):
        for a in range(2 * arms):
            rng = stream(seed, "fresh draws", r, a)
            w = law.sample(world.s[r : r + 1], DRAWS, rng=rng)[:, 0, world.lead :, 0]
            found[a // arms, r, :, a % arms] = w.mean(0)
    acted, learned = (phi_of(world, w) for w in found)
    return Agent("pulse_paper", acted, radius, taught=learned)


def phi_of(world: World, w: Float) -> Float4:
    """Phi at S_t and w (run, time, action), a W of each arm's own: (run, time, action, d)."""
    s = world.s[:, world.lead :].reshape(-1, world.s.shape[-1])
    arms = [world.features(s, w[..., a].reshape(-1, 1), a) for a in range(w.shape[-1])]
    return np.stack(arms, axis=1).reshape(*w.shape, -1)
