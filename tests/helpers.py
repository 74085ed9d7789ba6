"""What the tests of this folder share."""

from dataclasses import replace

import numpy as np
from scipy import stats
from scipy.signal import lfilter

from pulse_pyro.base import Check
from pulse_pyro.data.history import History

# One false-alarm rate for every statistical test, and the bounds that go with it.


FALSE_ALARM = 1e-5


def z_bound(comparisons=1):
    """|z| that a standard normal exceeds with probability FALSE_ALARM over all comparisons."""
    return stats.norm.isf(FALSE_ALARM / comparisons / 2)


def assert_mean(sample, expected, axis=0):
    """The sample's mean along ``axis`` agrees with ``expected`` at the stated rate."""
    sample = np.asarray(sample)
    count = sample.shape[axis]
    error = sample.std(axis, ddof=1) / np.sqrt(count)
    z = np.abs(sample.mean(axis) - expected) / error
    assert np.max(z) <= z_bound(np.size(z)), f"largest |z| is {np.max(z):.2f}"


def binomial_floor(trials, rate):
    """Least count that is still compatible with success probability >= rate."""
    return int(stats.binom.ppf(FALSE_ALARM, trials, rate))


# Small archives with a known truth, shared by tests.


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
    return History.from_arrays(s, w, seen=seen, units=names, s_names=("s",), w_names=w_names), coef


# What a law says at series s (batch, time, s_dim), as rectangles.


def _rectangle(rows, s):
    return rows.reshape(*rows.shape[:-2], *np.shape(s)[:-1], rows.shape[-1])


def mean_at(law, s):
    """E[W_t | S_1:t], (batch, time, w_dim)."""
    return _rectangle(law(s).mean(), s)


def draws_at(law, s, size, *, rng):
    """Draws of W_t given S_1:t, (size, batch, time, w_dim)."""
    return _rectangle(law(s).draws(size, rng=rng), s)


def mean_draws_at(law, s, size, *, rng):
    """Posterior draws of E[W_t | S_1:t], (size, batch, time, w_dim)."""
    return _rectangle(law(s).mean_draws(size, rng=rng), s)


def log_density_at(law, s, w, draws=200):
    """log p(W_t = w_t | S_1:t), (batch, time)."""
    rows = np.asarray(w, np.float64).reshape(-1, np.shape(w)[-1])
    return law(s).joint_log_density(rows, draws=draws).reshape(np.shape(s)[:-1])


def variance_at(law, s):
    """Var[W_t | S_1:t], (batch, time, w_dim)."""
    return _rectangle(np.diagonal(law(s).covariance(), axis1=1, axis2=2), s)


def predict_rows(law, x, size, *, rng):
    """E[W], (n, w_dim), and draws of W, (size, n, w_dim), at inputs x (n, p)."""
    return law.mean_at(x), law.sample_at(x, law.pick(size, rng), rng)


def with_failure(calibration, name="lack of fit"):
    """The same calibration, but a check of its uniform rung failed: nothing it says holds."""
    uniform, *others = calibration.rungs
    bad = Check(name, "fail", 0.0, 0.05, "It failed.")
    empty = np.zeros(0)
    failed = replace(
        uniform, verdict="fails", claim="No uniform bound holds.", sizes=empty, checks=(bad,)
    )
    return replace(calibration, rungs=(failed, *others))
