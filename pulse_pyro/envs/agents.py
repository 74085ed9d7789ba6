"""Agents for simulations: each the linear core on features of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pulse_pyro._core.arrays import Float3, Float4
from pulse_pyro._core.errors import ModelError, SettingError
from pulse_pyro._core.seeds import stream
from pulse_pyro._pyro.inference import Inference
from pulse_pyro.base import FittedLaw, Summary, UnfittedLaw
from pulse_pyro.calibration.calibration import reward_bound
from pulse_pyro.data.history import History, Source
from pulse_pyro.envs.simulation import PUBLISHED, Agent
from pulse_pyro.envs.world import Contexts, World
from pulse_pyro.features import expected_features
from pulse_pyro.laws.growing import GrowingArchive
from pulse_pyro.policies.adaptive import (
    adaptive_error,
    adaptive_features,
    find_directions,
    theta_size,
)
from pulse_pyro.policies.oful import interactions, oful_features, oful_paper_features
from pulse_pyro.policies.unsure_directions import Directions
from pulse_pyro.radius import Radius

# Agents for simulations: each the linear core on features of its own.


def pulse(
    world: Contexts,
    law: FittedLaw | Sequence[FittedLaw],
    *,
    name: str = "pulse",
    radius: Radius = PUBLISHED,
    error: Float3 | None = None,
    size: int = 256,
    seed: int = 0,
) -> Agent:
    """PULSE-UCB with one law for all runs, or one per run (each with its own archive).

    error : e_{t,a} of the scored rounds, (run, time, action), from ``Calibration.reward_error``.
    """
    if not isinstance(law, Sequence):
        found = expected_features(
            law, world.features, world.s, size=size, rng=stream(seed, "pulse")
        )
        return Agent(name, found.mean[:, world.lead :], radius, error=error)
    if len(law) != len(world.s):
        raise SettingError(
            f"pulse: {len(law)} laws were given for {len(world.s)} runs; one per run."
        )
    x = np.empty(world.phi.shape)
    for r, each in enumerate(law):
        found = expected_features(
            each, world.features, world.s[r : r + 1], size=size, rng=stream(seed, "pulse", r)
        )
        x[r] = found.mean[0, world.lead :]
    return Agent(name, x, radius, error=error)


def pulse_adaptive(
    world: Contexts,
    law: FittedLaw | Sequence[FittedLaw],
    reference: Source | Sequence[Source] | None = None,
    *,
    name: str = "pulse_adaptive",
    radius: Radius = PUBLISHED,
    theta_bound: float | None = None,
    seed: int = 0,
) -> Agent:
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
        raise SettingError(f"pulse_adaptive: {len(laws)} laws were given for {len(world.s)} runs.")
    for each in laws:
        if not callable(each) or not hasattr(each, "schema"):
            raise ModelError(
                f"pulse_adaptive: a fitted law was expected, but got {type(each).__name__}; fit it "
                "first: law.fit(history, seed=0)."
            )
    known: list[Any] = (
        list(reference) if isinstance(reference, list | tuple) else [reference] * len(laws)
    )
    if len(known) != len(laws):
        raise SettingError(
            f"pulse_adaptive: {len(known)} references were given for {len(laws)} laws; one per law."
        )
    bound = theta_size(radius, theta_bound, "pulse_adaptive")
    plain = pulse(world, laws[0] if len(laws) == 1 else laws, name=name, radius=radius, seed=seed)
    size, parts, errors = len(world.s) // len(laws), [], []
    for r, (each, contexts) in enumerate(zip(laws, known, strict=True)):
        rows = slice(r * size, (r + 1) * size)
        found = find_directions(each, contexts, seed, "pulse_adaptive")
        if found is None:
            parts.append(plain.x[rows])
            errors.append(np.full(plain.x[rows].shape[:3], radius.default_error))
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
    mean = found.law(every).mean().reshape(*every.shape[:2], -1)[:, rounds]
    s = every[:, rounds]
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


# PULSE-UCB whose law is refitted while it plays, W being revealed after each action.


def pulse_refit(
    world: World,
    law: UnfittedLaw,
    history: Sequence[History],
    *,
    every: int,
    inference: Inference | None = None,
    radius: Radius = PUBLISHED,
    seed: int = 0,
) -> Agent:
    """Learn from the true features of past rounds, and refit the law on them every n rounds.

    history : one archive per run. Contexts do not depend on actions, so the laws of a whole run
    are fitted first: rounds [k n, (k + 1) n) are scored by the law that has seen the archive and
    the first k n rounds of its own run, as :class:`PulseUCB` with a growing archive does.
    """
    if len(history) != len(world.s):
        raise SettingError(
            f"pulse_refit: {len(history)} archives were given for {len(world.s)} runs; one per run."
        )
    x = np.empty(world.phi.shape)
    for r, own in enumerate(history):
        x[r] = _one_run(
            world=world, r=r, law=law, history=own, every=every, inference=inference, seed=seed
        )
    return Agent("pulse_refit", x, radius, taught=world.phi)


def _one_run(
    world: World,
    r: int,
    law: UnfittedLaw,
    history: History,
    every: int,
    inference: Inference | None,
    seed: int,
) -> Float3:
    fitted = law.fit(history, inference, seed=seed)
    grown = GrowingArchive(history, fitted, every=every, law=law, inference=inference, seed=seed)
    s, lead, rounds = world.s[r], world.lead, world.phi.shape[1]
    x = np.empty(world.phi.shape[1:])
    for row in s[:lead]:
        grown.see("", row)
    for start in range(0, rounds, every):
        stop = min(start + every, rounds)
        found = expected_features(
            fitted, world.features, s[None, : lead + stop], size=256, rng=stream(seed, "pulse", r)
        )
        x[start:stop] = found.mean[0, lead + start :]
        for t in range(start, stop):
            grown.reveal("", grown.see("", s[lead + t]), world.w[r, t])
        if stop < rounds:
            fitted = grown.refit()
    return x
