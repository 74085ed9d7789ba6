"""Phi of the replays: every arm has a line of its own in the whole context."""

import numpy as np

from pulse_pyro.arrays import Float2
from pulse_pyro.features import Features
from pulse_pyro.history import History
from pulse_pyro.policies.oful import interactions


class _Lines:
    """Phi((s, w), a) = (1, s, w, 1[a = k], 1[a = k] (s, w) for k = 1 .. K-1): affine in w."""

    def __init__(self, actions: int) -> None:
        self.actions = actions

    def __call__(self, s: Float2, w: Float2, action: int) -> Float2:
        out: Float2 = interactions(np.concatenate([s, w], axis=-1)[None], self.actions)[
            0, :, action
        ]
        return out


def line_per_arm(history: History, actions: int) -> Features:
    """Return Phi in which the mean reward of each arm is linear in (1, S, W)."""
    base = ("1", *history.s_names, *history.w_names)
    names = base + tuple(f"{name}*[a={k}]" for k in range(1, actions) for name in base)
    return Features(_Lines(actions), actions, names)
