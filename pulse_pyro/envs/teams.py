"""Agents with memory, past rewards, or colleagues: learners on the compiled loop of members.

Everything here is made from agents that were made before: :func:`tuned` gives an agent the ridge
and radius that its noise and the size of theta call for (nothing is tuned by looking),
:func:`remembering` lets rewards track what a law leaves of W, :func:`with_past_rewards` adds a
unit's last rewards as features, :func:`committee` lets several of them vote, and inside a guard if
the first of them has one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from pulse_pyro._core.arrays import Float4, positive
from pulse_pyro._core.errors import SettingError
from pulse_pyro.base import FittedLaw
from pulse_pyro.envs.agents import pulse
from pulse_pyro.envs.simulation import Agent, Team
from pulse_pyro.envs.world import Contexts
from pulse_pyro.features import need_affine, slopes
from pulse_pyro.policies.carried import MemoryCarry, PastRewards
from pulse_pyro.policies.guard import Learner
from pulse_pyro.radius import constant, matched_ridge


@dataclass(frozen=True)
class RewardScale:
    """What is taken on trust of rewards.

    sigma : sub-Gaussian scale of a reward given S. theta_bound : S >= ||theta*||.
    reward_sd : sd of a reward given the full context.
    """

    sigma: float
    theta_bound: float
    reward_sd: float

    def __post_init__(self) -> None:
        positive(self.sigma, "RewardScale: sigma")
        positive(self.theta_bound, "RewardScale: theta_bound")
        positive(self.reward_sd, "RewardScale: reward_sd", zero=True)


def learner(x: Float4, scale: RewardScale) -> Learner:
    """Return a learner of features x (run, time, action, d): alpha = sigma, lambda = d (sigma/S)^2.

    NOT covered: a constant radius guarantees nothing.
    """
    ridge = matched_ridge(sigma=scale.sigma, theta_bound=scale.theta_bound, dim=x.shape[-1])
    return Learner(x, ridge, scale.sigma, scale.sigma)


def tuned(agent: Agent, scale: RewardScale, *, name: str | None = None) -> Team:
    """Return an agent on its own features with the radius sigma and the ridge that suits it."""
    one = learner(agent.x, scale)
    return Team(name or agent.name, (one,), (name or agent.name,), advisor=constant(scale.sigma))


def remembering(
    world: Contexts, law: FittedLaw, scale: RewardScale, *, name: str = "memory", seed: int = 0
) -> Team:
    """PULSE whose law's leftover u = W - E[W | S] is tracked from each unit's own rewards.

    law : with a ``memory``, see ``laws.with_memory``. Features are phihat + M_a u^-, with u^-
    predicted from rewards before the round.

    NOT covered: no ball is valid where residuals have memory; measured, not guaranteed.
    """
    memory = getattr(law, "memory", None)
    if memory is None:
        raise SettingError(
            f"{name}: the law has no memory; fit it as law.with_memory('ar'), or give a fitted one "
            "laws.with_memory(law, archive, 'ar')."
        )
    one = learner(pulse(world, law, seed=seed).x, scale)
    s = world.s[:, world.lead :]
    flat = s.reshape(-1, s.shape[-1])
    w = law(world.s).mean().reshape(*world.s.shape[:2], -1)[:, world.lead :]
    base = w.reshape(len(flat), -1)
    step = np.sqrt(np.diagonal(memory.variance))
    seen = np.isfinite(flat).all(-1) & np.isfinite(base).all(-1)
    need_affine(world.features, flat[seen][:64], base[seen][:64], name)
    at = slopes(world.features, flat, base, np.where(step > 0, step, 1.0))  # (action, n, w, d)
    used = np.argwhere((np.nan_to_num(at) != 0).any(axis=(0, 1)))  # (e, 2): W, feature
    coef = np.moveaxis(at[:, :, used[:, 0], used[:, 1]], 0, 1)  # (n, action, e)
    coef = coef.reshape(*s.shape[:2], *coef.shape[1:])
    parts = len(memory.keep) // base.shape[1]  # a level and what varies around it, or the latter
    carry = MemoryCarry(
        keep=memory.keep,
        shock=memory.shock,
        start=memory.start,
        reward_sd=scale.reward_sd,
        columns=np.tile(used[:, 1], parts),
        rows=np.concatenate([used[:, 0] + k * base.shape[1] for k in range(parts)]),
        coef=_fixed(np.tile(coef, (1, 1, 1, parts))),
    )
    return Team(name, (replace(one, carry=carry),), (name,), advisor=constant(scale.sigma))


def _fixed(coef: Float4) -> Float4:
    """Return coefficients that are the same everywhere once, (1, 1, action, e)."""
    first = coef.reshape(-1, *coef.shape[2:])
    known = first[np.isfinite(first).all((1, 2))]
    if len(known) == len(first) and np.allclose(known, known[:1], rtol=1e-9, atol=0.0):
        return np.ascontiguousarray(known[:1][None])
    return coef


def with_past_rewards(agent: Agent, past: PastRewards, scale: RewardScale, *, name: str) -> Team:
    """Return an agent that sees its unit's last rewards and arms as well, with interactions.

    The honest rival of every law: no archive is needed, a regression learns what the past tells.
    NOT covered: like every constant radius, it guarantees nothing.
    """
    arms, dim = agent.x.shape[2:]
    carry = past.carry(arms, dim)
    room = np.zeros((*agent.x.shape[:3], len(carry.columns)))
    one = learner(np.concatenate([agent.x, room], axis=-1), scale)
    return Team(name, (replace(one, carry=carry),), (name,), advisor=constant(scale.sigma))


def committee(members: Sequence[Team], *, name: str = "committee", votes: str = "tempered") -> Team:
    """Let the learners of several teams vote; the first team's ball, if it has one, is the fence.

    NOT covered: weights by evidence are measured, not guaranteed; inside a guard the guard's
    theorem stands on the first member's ball.
    """
    if not members:
        raise SettingError("committee: at least one member is needed.")
    shapes = {one.x.shape[:3] for team in members for one in team.learners}
    if len(shapes) > 1:
        raise SettingError(
            f"committee: members must play the same rounds and arms, but theirs are {shapes}."
        )
    labels = tuple(label for team in members for label in team.labels)
    if len(set(labels)) < len(labels):
        raise SettingError(f"committee: members must have distinct names, not {labels}.")
    learners = tuple(one for team in members for one in team.learners)
    first = members[0]
    return replace(
        first, name=name, learners=learners, labels=labels, advisor="committee", votes=votes
    )
