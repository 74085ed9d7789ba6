"""PULSE-UCB whose law is refitted while it plays, W being revealed after each action."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pulse_pyro._pyro.inference import Inference
from pulse_pyro.arrays import Float3
from pulse_pyro.environments.world import World
from pulse_pyro.errors import SettingError
from pulse_pyro.features import expected_features
from pulse_pyro.history import History
from pulse_pyro.laws.growing import GrowingArchive, Refittable
from pulse_pyro.radius import Radius
from pulse_pyro.seeds import stream
from pulse_pyro.simulation.run import PUBLISHED, Agent


def pulse_refit(
    world: World, law: Refittable, history: Sequence[History], *, every: int,
    inference: Inference | None = None, radius: Radius = PUBLISHED, seed: int = 0,
) -> Agent:  # fmt: skip
    """Learn from the true features of past rounds, and refit the law on them every n rounds.

    history : one archive per run. Contexts do not depend on actions, so the laws of a whole run
    are fitted first: rounds [k n, (k + 1) n) are scored by the law that has seen the archive and
    the first k n rounds of its own run, as :class:`PulseUCB` with a growing archive does.
    """
    if len(history) != len(world.s):
        raise SettingError(
            f"pulse_refit: {len(history)} archives came for {len(world.s)} runs; one per run."
        )
    x = np.empty(world.phi.shape)
    for r, own in enumerate(history):
        x[r] = _one_run(world, r, law, own, every, inference, seed)
    return Agent("pulse_refit", x, radius, taught=world.phi)


def _one_run(
    world: World, r: int, law: Refittable, history: History, every: int,
    inference: Inference | None, seed: int,
) -> Float3:  # fmt: skip
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
