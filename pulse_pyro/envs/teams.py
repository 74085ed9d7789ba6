"""Agents with a guard, memory, past rewards, or colleagues: the compiled loop of members.

:func:`guarded` fences an advisor in by a calibration's band, :func:`adaptive_guarded` and
:func:`ellipsoid_guarded` by the ellipsoid of a linear law's archive. :func:`tuned` gives an agent
the ridge and radius that its noise and the size of theta call for (nothing is tuned by looking),
:func:`remembering` lets rewards track what a law leaves of W, :func:`with_past_rewards` adds a
unit's last rewards as features, :func:`committee` lets several of them vote, inside a guard if the
first of them has one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from pulse_pyro._core.arrays import Float4, positive
from pulse_pyro._core.errors import SettingError
from pulse_pyro.base import FittedLaw
from pulse_pyro.calibration.calibration import Calibration
from pulse_pyro.data.history import Source
from pulse_pyro.envs.agents import pulse
from pulse_pyro.envs.simulation import Agent, Team
from pulse_pyro.envs.world import Contexts
from pulse_pyro.features import need_affine, slopes
from pulse_pyro.laws.ellipsoid import Ellipsoid
from pulse_pyro.policies.adaptive import ellipsoid_prior
from pulse_pyro.policies.balls import (
    RewardNoise,
    band_ball,
    band_rounds,
    calibration_bias,
    ellipsoid_ball,
    ellipsoid_rounds,
    with_advisor_note,
    with_memory_note,
)
from pulse_pyro.policies.carried import MemoryCarry, PastRewards
from pulse_pyro.policies.guard import Ball, Learner, bias_map, reward_spread, spread_at
from pulse_pyro.radius import constant, matched_ridge


@dataclass(frozen=True)
class Trust:
    """What a ball takes on trust.

    noise : of rewards, see ``policies.reward_noise``. theta_bound : S >= ||theta*||. delta : the
    ball may miss theta* with this probability, the law's error apart.
    """

    noise: RewardNoise
    theta_bound: float
    delta: float = 0.05


@dataclass(frozen=True)
class RewardScale:
    """What is taken on trust of rewards.

    sigma : sub-Gaussian scale of a reward given S. theta_bound : S >= ||theta*||.
    reward_sd : sd of a reward given the full context.
    """

    sigma: float
    theta_bound: float
    reward_sd: float

    @classmethod
    def of(cls, ball: Ball) -> RewardScale:
        """Return what a ball takes on trust; where it knows sigma alone, no more is known."""
        return cls(ball.sigma, ball.theta_bound, ball.noise)

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


def guarded(
    world: Contexts,
    law: FittedLaw,
    calibration: Calibration,
    trust: Trust,
    *,
    name: str = "guarded",
    seed: int = 0,
) -> Team:
    """PULSE inside the ball of its calibration, advised by the constant radius sigma, slack 3.

    Another advisor or slack: ``dataclasses.replace(team, advisor=..., slack=...)``.

    A round costs at most 2 c r w with probability >= 1 - delta - (1 - level), against the best
    policy on S, if all that ``Team.ball.rests_on`` is true; a calibration with a failed check makes
    it a heuristic, ``Team.ball.heuristic``. Rounds whose inputs are not all seen are refused.
    """
    bias = calibration_bias(calibration, name)
    spread = None
    if not trust.noise.whole:
        spread = reward_spread(world.features, law, calibration.contexts)
    ball = band_ball(
        calibration,
        bias,
        trust.noise,
        theta_bound=trust.theta_bound,
        delta=trust.delta,
        spread=spread,
    )
    rounds = band_rounds(calibration, bias, world.s, world.lead)
    x = pulse(world, law, seed=seed).x.copy()
    x[~np.isfinite(rounds.coef).all((2, 3))] = np.nan
    own = Learner(x, ball.ridge(x.shape[-1]), ball.sigma, ball.sigma)
    fence = with_memory_note(ball, law)
    return Team(name, (own,), (name,), fence, rounds, constant(ball.sigma))


def ellipsoid_guarded(
    world: Contexts,
    law: FittedLaw,
    ellipsoid: Ellipsoid,
    trust: Trust,
    *,
    name: str = "ellipsoid_guarded",
) -> Team:
    """PULSE at the centre of a linear law's ellipsoid, inside the ball of its bias (R3).

    Probability >= 1 - delta - (1 - level), conditional on the form of E[W | S].
    """
    s = world.s[:, world.lead :]
    flat = s.reshape(-1, s.shape[-1])
    _, mean = ellipsoid.at(law, world.s)
    mean = mean.reshape(*world.s.shape[:2], -1)[:, world.lead :].reshape(len(flat), -1)
    seen = np.isfinite(flat).all(-1) & np.isfinite(mean).all(-1)
    bias = bias_map(world.features, flat[seen], mean[seen])
    cov = np.broadcast_to(ellipsoid.residual, (int(seen.sum()), *ellipsoid.residual.shape))
    ball = ellipsoid_ball(
        ellipsoid,
        bias,
        trust.noise,
        theta_bound=trust.theta_bound,
        delta=trust.delta,
        spread=spread_at(world.features, flat[seen], mean[seen], cov),
    )
    _, rounds = ellipsoid_rounds(ellipsoid, bias, law, world.s, world.lead)
    arms = [world.features.unchecked(flat, mean, a) for a in range(world.features.actions)]
    x = np.stack(arms, axis=1).reshape(*s.shape[:2], len(arms), -1)
    own = Learner(x, ball.ridge(x.shape[-1]), ball.sigma, ball.sigma)
    fence = with_memory_note(ball, law)
    return Team(name, (own,), (name,), fence, rounds, constant(ball.sigma))


def adaptive_guarded(
    world: Contexts,
    law: FittedLaw,
    ellipsoid: Ellipsoid,
    trust: Trust,
    *,
    reference: Source | None = None,
    name: str = "adaptive_guarded",
) -> Team:
    """PULSE that learns what the archive leaves open of a linear law, guarded; see ``augmented``.

    reference : contexts at which Phi's slopes in w are found, the world's own by default.

    Probability >= 1 - delta - (1 - level), conditional on the form of E[W | S]; no bias is left.
    """
    scorer, ball, ridge = ellipsoid_prior(
        law,
        world.features,
        ellipsoid,
        world.s if reference is None else reference,
        noise=trust.noise,
        theta_bound=trust.theta_bound,
        delta=trust.delta,
    )
    own = Learner(scorer.horizon(world.s, world.lead), ridge, ball.sigma, ball.sigma)
    return Team(name, (own,), (name,), ball, None, constant(ball.sigma))


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
    if first.ball is not None:
        first = replace(first, ball=with_advisor_note(first.ball, len(learners) > 1))
    return replace(
        first, name=name, learners=learners, labels=labels, advisor="committee", votes=votes
    )
