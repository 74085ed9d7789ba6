"""Agents for simulations: each the linear core on features of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pulse_pyro.arrays import Float3, Float4
from pulse_pyro.calibration.calibration import reward_bound
from pulse_pyro.calibration.sensitivity import Sensitivity
from pulse_pyro.environments.world import Contexts
from pulse_pyro.errors import ModelError, SettingError
from pulse_pyro.features import ConditionalLaw, expected_features
from pulse_pyro.policies.adaptive import (
    adaptive_error,
    adaptive_features,
    find_directions,
    theta_size,
)
from pulse_pyro.policies.directions import Directions
from pulse_pyro.policies.oful import interactions, oful_features, oful_paper_features
from pulse_pyro.radius import Radius
from pulse_pyro.seeds import stream
from pulse_pyro.simulation.run import PUBLISHED, Agent
from pulse_pyro.summary import Summary


def pulse(
    world: Contexts, law: ConditionalLaw | Sequence[ConditionalLaw], *, name: str = "pulse",
    radius: Radius = PUBLISHED, error: Float3 | Sensitivity | None = None, size: int = 256,
    seed: int = 0,
) -> Agent:  # fmt: skip
    """PULSE-UCB with one law for all runs, or one per run (each with its own archive).

    error : e_{t,a} of the scored rounds, (run, time, action), from ``Calibration.reward_error``,
    or their ``sensitivity``.
    """
    if not isinstance(law, Sequence):
        found = expected_features(
            law, world.features, world.s, size=size, rng=stream(seed, "pulse")
        )
        return Agent(name, found.mean[:, world.lead :], radius, error=error)
    if len(law) != len(world.s):
        raise SettingError(f"pulse: {len(law)} laws came for {len(world.s)} runs; one per run.")
    x = np.empty(world.phi.shape)
    for r, each in enumerate(law):
        found = expected_features(
            each, world.features, world.s[r : r + 1], size=size, rng=stream(seed, "pulse", r)
        )
        x[r] = found.mean[0, world.lead :]
    return Agent(name, x, radius, error=error)


def pulse_adaptive(
    world: Contexts, law: ConditionalLaw | Sequence[ConditionalLaw],
    reference: Float3 | Sequence[Float3] | None = None, *, name: str = "pulse_adaptive",
    radius: Radius = PUBLISHED, theta_bound: float | None = None, seed: int = 0,
) -> Agent:  # fmt: skip
    """PULSE-UCB whose law is repaired by rewards where its posterior is unsure.

    law : one for all runs, or one per run. One without posterior spread, or that is no fitted law,
    warns and is played as by :func:`pulse`.
    reference : (batch, time, s_dim) contexts the directions of a law that is not linear are found
    at, or a list of them, one per law: the archive's S, or contexts like those to come. Linear laws
    need none.
    theta_bound : S, carries what the directions leave out to e_t; by default that of the corrected
    radius, else 1.
    """
    laws = list(law) if isinstance(law, Sequence) else [law]
    if len(laws) not in (1, len(world.s)):
        raise SettingError(f"pulse_adaptive: {len(laws)} laws came for {len(world.s)} runs.")
    for each in laws:
        if not hasattr(each, "sample"):
            raise ModelError(
                f"pulse_adaptive: a fitted law was expected, {type(each).__name__} came; fit it "
                "first: law.fit(history, seed=0)."
            )
    known = list(reference) if isinstance(reference, Sequence) else [reference] * len(laws)
    if len(known) != len(laws):
        raise SettingError(
            f"pulse_adaptive: {len(known)} references came for {len(laws)} laws; one per law."
        )
    bound = theta_size(radius, theta_bound, "pulse_adaptive")
    plain = pulse(world, laws[0] if len(laws) == 1 else laws, name=name, radius=radius, seed=seed)
    size, parts, errors = len(world.s) // len(laws), [], []
    for r, (each, contexts) in enumerate(zip(laws, known, strict=True)):
        rows = slice(r * size, (r + 1) * size)
        found = find_directions(each, contexts, seed, "pulse_adaptive")
        if found is None:
            parts.append(plain.x[rows])
            errors.append(np.full(plain.x[rows].shape[:3], radius.untold))
            continue
        part, left = _adapted(world, rows, found, plain.x[rows])
        parts.append(part)
        errors.append(reward_bound(left, bound))
    x = np.zeros((*world.phi.shape[:3], max(part.shape[-1] for part in parts)))
    for r, part in enumerate(parts):  # laws may have fewer directions than others
        x[r * size : (r + 1) * size, ..., : part.shape[-1]] = part
    return replace(plain, x=x, error=np.concatenate(errors))


def _adapted(
    world: Contexts, rows: slice, found: Directions, phihat: Float4
) -> tuple[Float4, Float4]:
    """Return (phihat, M psi), and bounds on what the directions leave out of each feature."""
    every, rounds = world.s[rows], slice(world.lead, None)
    s, mean = every[:, rounds], found.law.mean(every)[:, rounds]
    inputs = found.law.summary(every)[:, rounds]
    flat = inputs.reshape(-1, inputs.shape[-1])
    psi, rest = (
        v.reshape(*s.shape[:2], *v.shape[1:]) for v in (found.at(flat), found.remainder(flat))
    )
    x = adaptive_features(phihat, world.features, s, mean, psi)
    return x, adaptive_error(world.features, s, mean, rest)


def post_serving(world: Contexts, agent: Agent) -> Agent:
    """Let an agent learn from the true features: W is revealed after each action.

    Rewards are then free of imputation error, e_t = 0; choices are made as before. Only agents that
    score Phi itself: true features teach nothing about directions in which a law is unsure; there
    revealed W should refit the law, see :func:`pulse_refit`.
    """
    if agent.x.shape != world.phi.shape:
        raise SettingError(
            f"post_serving: agent {agent.name!r} scores {agent.x.shape[-1]} features, Phi has "
            f"{world.phi.shape[-1]}; only agents that score Phi can learn from its true value."
        )
    return replace(agent, name=f"{agent.name}_post", taught=world.phi)


def oful(world: Contexts, *, radius: Radius = PUBLISHED) -> Agent:
    """OFUL on every observed feature, properly specified."""
    s = world.s[:, world.lead :]
    return Agent("oful", oful_features(world.features, s, world.w.shape[-1]), radius)


def oful_lags(world: Contexts, summary: Summary, *, radius: Radius = PUBLISHED) -> Agent:
    """OFUL on a summary of S and its action interactions: learns the imputation online."""
    x = summary(world.s)[:, world.lead :]
    return Agent("oful_lags", interactions(x, world.features.actions), radius)


def oful_paper(world: Contexts, *, radius: Radius = PUBLISHED) -> Agent:
    """The published OFUL baseline, features (1, S a)."""
    s = world.s[:, world.lead :]
    return Agent("oful_paper", oful_paper_features(s, world.features.actions), radius)


def oful_full(world: Contexts, *, radius: Radius = PUBLISHED) -> Agent:
    """OFUL that sees W: the best any imputation can hope for."""
    return Agent("oful_full", world.phi, radius)
