"""Observation patterns that change from round to round: a window of S with holes."""

from __future__ import annotations

import numpy as np

from pulse_pyro.arrays import Float, Float3
from pulse_pyro.environments.world import World
from pulse_pyro.errors import SettingError
from pulse_pyro.summary import Summary


def hide(values: Float, probability: float, *, rng: np.random.Generator) -> Float:
    """Return a copy in which every entry is NaN with this probability, independently."""
    if not 0.0 <= probability < 1.0:
        raise SettingError(f"hide: probability must lie in [0, 1), but {probability!r} came.")
    return np.where(rng.random(values.shape) < probability, np.nan, values)


def masked_window(
    world: World, summary: Summary, probability: float, *, rng: np.random.Generator
) -> Float3:
    """Return the window each round sees, (run, time, p), NaN = hidden in that round.

    Holes are drawn anew in every round: a lag hidden now may have been seen earlier, by an agent
    that remembers. S_t itself, a coordinate of Phi, is always visible.
    """
    return hide(summary(world.s)[:, world.lead :], probability, rng=rng)
