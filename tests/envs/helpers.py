"""Recorded rounds of a world whose truth is known: W decides which arm is better."""

import numpy as np

import pulse_pyro as pp
from pulse_pyro.envs.replay import Replay
from pulse_pyro.paper.datasets import Dataset, Scale, line_per_arm


def history(units, length, seed, names="u"):
    """S an autoregression of two columns, W = (S1 - S2) + the previous S1 + noise."""
    rng = np.random.default_rng(seed)
    s = np.empty((units, length + 1, 2))
    s[:, 0] = rng.standard_normal((units, 2))
    for t in range(1, length + 1):
        s[:, t] = 0.5 * s[:, t - 1] + rng.standard_normal((units, 2))
    w = s[:, 1:, :1] - s[:, 1:, 1:] + s[:, :-1, :1] + 0.3 * rng.standard_normal((units, length, 1))
    seen = np.ones((units, length), bool)
    labels = tuple(f"{names}{i:03d}" for i in range(units))
    return pp.History.from_arrays(
        s[:, 1:], w, seen=seen, units=labels, s_names=("s1", "s2"), w_names=("w",)
    )


def utility(w, seed=0):
    """Arm 1 is worth W, arm 0 nothing; noise shared by both."""
    noise = 0.1 * np.random.default_rng(seed).standard_normal(w.shape[:2])
    return np.stack([noise, w[..., 0] + noise], -1)


def replay(units=6, length=60, seed=1):
    online = history(units, length, seed, "v")
    return Replay(online, utility(online.grid.w), line_per_arm(online, 2))


def dataset(units=40, length=30):
    archive = history(units, length, 0)
    plain = Scale(*(np.full(k, v) for k in (2, 1) for v in (0.0, 1.0)))
    two = {"plain": replay(), "doubled": replay()}
    two["doubled"] = Replay(two["plain"].history, 2 * two["plain"].utility, two["plain"].features)
    return Dataset("made up", "W decides.", "nobody", archive, two, archive, plain)
