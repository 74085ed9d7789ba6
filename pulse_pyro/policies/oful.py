"""Baselines that do not impute: the linear core on what is seen.

``oful_features`` is properly specified: every observed coordinate of Phi, or, where these do not
tell the arms apart, every observed column with its action interaction. ``oful_paper_features`` is
the published baseline (1, S a), which drops the main effect of S.
"""

from itertools import combinations

import numpy as np

from pulse_pyro._core.arrays import Float, Float3, Float4
from pulse_pyro.features import Features


def oful_features(features: Features, s: Float3, w_dim: int) -> Float4:
    """Return observed features (run, time, action, d') for s (run, time, s_dim)."""
    rows = s.reshape(-1, s.shape[-1])
    blank = np.zeros((len(rows), w_dim))
    observed = ~features.involves_w(rows, blank)
    with np.errstate(all="ignore"):  # columns that involve w may not exist at 0: they are dropped
        maps = [features.unchecked(rows, blank, a)[:, observed] for a in range(features.actions)]
    phi = np.stack(maps, axis=1)
    seen = phi[np.isfinite(rows).all(-1)]
    pairs = combinations(range(features.actions), 2)
    if all((seen[:, a] != seen[:, b]).any() for a, b in pairs):
        return phi.reshape(*s.shape[:2], features.actions, -1)
    return interactions(s, features.actions)


def interactions(x: Float3, actions: int) -> Float4:
    """Return (1, x, 1[a = k], 1[a = k] x for k = 1 .. K-1): (run, time, p) -> (.., action, d')."""
    base = np.concatenate([np.ones((*x.shape[:-1], 1)), x], axis=-1)
    width = base.shape[-1]
    out = np.zeros((*x.shape[:-1], actions, actions * width))
    out[..., :, :width] = base[..., None, :]
    for k in range(1, actions):
        out[..., k, k * width : (k + 1) * width] = base
    return out


def oful_paper_features(s: Float3, actions: int) -> Float4:
    """Return (1, S a), as published: (run, time, s_dim) -> (run, time, action, 1 + s_dim)."""
    arm: Float = np.arange(actions, dtype=np.float64)[:, None]
    scaled = s[..., None, :] * arm
    return np.concatenate([np.ones((*scaled.shape[:-1], 1)), scaled], axis=-1)
