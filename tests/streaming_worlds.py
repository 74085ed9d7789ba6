"""Archives, worlds and feature maps with two columns of S and several W, for streaming tests."""

import numpy as np

from pulse_pyro.environments.world import World
from pulse_pyro.features import Features
from pulse_pyro.history import History

S_NAMES = ("a", "b")


def contexts(units, time, seed):
    """S (units, time, 2): a stable VAR(1) of two unlike columns."""
    rng = np.random.default_rng(seed)
    s, out = np.zeros((units, 2)), np.empty((units, time + 30, 2))
    for t in range(time + 30):
        s = s @ [[0.6, 0.2], [0.0, 0.4]] + rng.standard_normal((units, 2))
        out[:, t] = s
    return out[:, 30:] * [0.5, 20.0] + [1.0, -100.0]


def missing(s, w_dim, seed):
    """W (units, time, w_dim): linear in S_t and S_{t-1}, the first row as if S_0 = S_1."""
    rng = np.random.default_rng([seed, 1])
    past = np.concatenate([s[:, :1], s[:, :-1]], axis=1)
    z = (np.concatenate([s, past], axis=-1) - [1.0, -100.0] * 2) / [0.5, 20.0, 0.5, 20.0]
    coef = np.array([[0.5, -0.3, 0.2], [-0.4, 0.6, 0.1], [0.3, 0.2, -0.5], [0.1, -0.2, 0.4]])
    return z @ coef[:, :w_dim] + 0.1 + 0.3 * rng.standard_normal((*s.shape[:2], w_dim))


def archive(units=4, time=8, w_dim=1, seed=0):
    s = contexts(units, time, seed)
    seen = np.ones((units, time), dtype=bool)
    names = tuple(f"u{i}" for i in range(units))
    w_names = tuple(f"w{j}" for j in range(w_dim))
    return History(s, missing(s, w_dim, seed), seen, names, S_NAMES, w_names)


def with_gaps(s, rate, seed):
    """S with values that are not seen; the first three rows stay whole."""
    out = s.copy()
    hole = np.random.default_rng([seed, 2]).random(s.shape) < rate
    hole[..., :3, :] = False
    out[hole] = np.nan
    return out


def w_features(w_dim, actions=2):
    """Phi = (1, W, W a): every W enters two coordinates; S is not needed."""
    names = ("1", *(f"W{j}" for j in range(w_dim)), *(f"W{j}*a" for j in range(w_dim)))
    return Features(lambda s, w, a: np.column_stack([np.ones(len(w)), w, w * a]), actions, names)


def mixed_features():
    """Three arms, several W in one coordinate, slopes that depend on S."""

    def fn(s, w, a):
        tilt = (s[:, 0] - 1.0) * a
        return np.column_stack([np.ones(len(w)), w[:, 0] + a * w[:, 1], tilt * w[:, 1], tilt])

    return Features(fn, 3, ("1", "w0+a w1", "t w1", "t"))


def world(features, s, w_dim, seed=0, lead=2):
    """A World on contexts s (run, lead + time, 2); phibar is not asked for here."""
    rng = np.random.default_rng([seed, 3])
    full = np.where(np.isnan(s), [1.0, -100.0], s)
    w = missing(full, w_dim, seed)[:, lead:]
    rows = full[:, lead:].reshape(-1, 2), w.reshape(-1, w_dim)
    phi = np.stack([features(*rows, a) for a in range(features.actions)], axis=1)
    phi = phi.reshape(*w.shape[:2], features.actions, -1)
    theta = rng.standard_normal(phi.shape[-1]) / 2
    noise = 0.1 * rng.standard_normal(w.shape[:2])
    return World(s, w, phi, phi, theta, noise, features, lead)
