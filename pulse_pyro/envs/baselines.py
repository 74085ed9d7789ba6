"""Other systems' agents on a world, each given only what it may see."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pulse_pyro.base import Summary
from pulse_pyro.data.history import History
from pulse_pyro.envs.latent_world import LatentArWorld
from pulse_pyro.envs.simulation import Fixed
from pulse_pyro.envs.world import World
from pulse_pyro.policies.clbbf_ucb import (
    PUBLISHED,
    Exploration,
    arm_vectors,
    clbbf,
    clbbf_paper,
    clbbf_warm,
)
from pulse_pyro.policies.kalman_oracle import kalman
from pulse_pyro.policies.larl_ucb import larl


def clbbf_agent(world: World, *, explore: Exploration = PUBLISHED) -> Fixed:
    """CLBBF, honest: W is hidden, and so is every feature that involves it.

    A coordinate that is never observed cannot be learned online: it is then OFUL on what is seen.
    """
    x, mask = arm_vectors(world.features, world.s[:, world.lead :], world.w.shape[-1])
    return Fixed("clbbf", clbbf(x, mask, world.reward, explore=explore))


def clbbf_paper_agent(world: World, *, explore: Exploration = PUBLISHED) -> Fixed:
    """CLBBF as the published comparison ran it, which hands it the true W; for that table only.

    Of (1, S, W, ..) the column named W is replaced by its expectation, W*a is not.
    """
    names = np.array(world.features.names)
    kept = names != "1"
    x = np.ascontiguousarray(world.phi[..., kept])
    return Fixed("clbbf_paper", clbbf_paper(x, names[kept] == "W", world.reward, explore=explore))


def clbbf_warm_agent(
    world: World,
    history: History | Sequence[History],
    summary: Summary | None = None,
    *,
    explore: Exploration = PUBLISHED,
) -> Fixed:
    """CLBBF whose moments are those of the archive: a linear-Gaussian imputer with its own radius.

    summary : what of the past of S joins the context; S_t alone by default.
    """
    action = clbbf_warm(
        world.features,
        world.s,
        world.reward,
        history,
        summary=summary,
        frozen=True,
        explore=explore,
    )
    return Fixed("clbbf_warm", action)


def larl_agent(
    world: World, *, memory: int | None = None, context: bool = False, seed: int = 0
) -> Fixed:
    """LARL, which learns from its own past rewards; with ``context`` it sees S_t as well."""
    seen = world.s[:, world.lead :] if context else None
    action = larl(world.reward, memory=memory, context=seen, seed=seed)
    return Fixed("larl_s" if context else "larl", action)


def kalman_agent(world: World, environment: LatentArWorld) -> Fixed:
    """The oracle that knows every parameter of a latent autoregression, and filters z."""
    found = kalman(
        world.reward,
        environment.latent,
        mu=environment.mu,
        beta=environment.beta,
        reward_sd=environment.reward_sd,
        offset=environment.slope * world.s[..., 0],
    )
    return Fixed("kalman", found.action)
