"""Small archives with a known truth, shared by tests."""

import numpy as np
from scipy.signal import lfilter

from pulse_pyro.history import History


def arma(shape, rng):
    """S: ARMA(2,2) paths (units, time, 1)."""
    noise = 0.1 * rng.standard_normal((shape[0], shape[1] + 100))
    return lfilter([1, 0.65, 0.35], [1, -0.75, 0.25], noise, axis=1)[:, 100:, None]


def linear_history(units=40, time=30, lags=3, w_dim=1, seed=0, noise=0.1):
    """W = 0.3 + lags @ coef + correlated noise; returns (history, coef (lags, w_dim))."""
    rng = np.random.default_rng(seed)
    past = arma((units, time + lags - 1), rng)
    coef = rng.standard_normal((lags, w_dim))
    windows = np.stack([past[:, lags - 1 - j : lags - 1 - j + time, 0] for j in range(lags)], -1)
    mix = np.tril(np.ones((w_dim, w_dim)))
    w = 0.3 + windows @ coef + noise * rng.standard_normal((units, time, w_dim)) @ mix.T
    s = past[:, lags - 1 :]
    names = tuple(f"u{i:03d}" for i in range(units))
    w_names = tuple(f"w{j}" for j in range(w_dim))
    seen = np.ones((units, time), dtype=bool)
    return History(s, w, seen, names, ("s",), w_names), coef
