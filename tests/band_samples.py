"""Rows to make bands of, shared by the tests of bands."""

import numpy as np
from hypothesis import strategies as st

from pulse_pyro.bands.bins import bin_rows
from pulse_pyro.bands.sample import Sample

CURVES = ("local_polynomial", "spline", "lipschitz")
SEED = st.integers(0, 2**32 - 1)
SMALL = {"grid": 40, "draws": 400}


def generator(seed=0):
    return np.random.default_rng(seed)


def sample_of(x, y=None, units=20):
    """One input and any number of outcomes, zero if none are given; the units are equally large."""
    x = np.asarray(x, dtype=float)
    y = np.zeros(len(x)) if y is None else np.asarray(y, dtype=float)
    y = y[:, None] if y.ndim == 1 else y
    unit = np.arange(len(x)) * units // max(len(x), 1)
    return Sample(x[:, None], y, unit, ("past",), tuple(f"w{j}" for j in range(y.shape[1])))


def own_bins(n=120, seed=0, units=20):
    """Rows so evenly spread that each is alone in its bin, in a random order."""
    rng = generator(seed)
    x = rng.permutation((np.arange(n) + 0.3 + 0.4 * rng.random(n)) / n * 4.0 - 2.0)
    y = np.sin(2.0 * x) + (0.1 + 0.1 * np.abs(x)) * rng.standard_normal(n)
    bins = bin_rows(sample_of(x, y, units), 0.98)
    assert len(bins.at) == n
    return bins


def many_rows(n=4000, seed=0):
    rng = generator(seed)
    x = rng.uniform(-1.0, 1.0, n)
    return bin_rows(sample_of(x, np.sin(4.0 * x) + 0.1 * rng.standard_normal(n)), 0.98)


def bent(x, slope):
    return x + slope * np.abs(x)


def kinked(rng, n, slope):
    x = rng.uniform(-1.0, 1.0, n)
    return sample_of(x, bent(x, slope) + 0.1 * rng.standard_normal(n))


def sample(x, y, unit):
    """Several inputs and outcomes, rows of the units given."""
    x, y = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    y = y[:, None] if y.ndim == 1 else y
    x_names = tuple(f"lag {k}" for k in range(x.shape[1]))
    return Sample(x, y, np.asarray(unit), x_names, tuple(f"w{j}" for j in range(y.shape[1])))


def world(curve, seed, units=20, rows=20, p=2, sd=0.3, draw="uniform"):
    """Rows with mean ``curve(x)``, x uniform on [-1, 1] or normal, independent noise."""
    rng = np.random.default_rng(seed)
    unit = np.repeat(np.arange(units), rows)
    shape = (len(unit), p)
    x = rng.uniform(-1, 1, shape) if draw == "uniform" else rng.standard_normal(shape)
    return sample(x, curve(x) + sd * rng.standard_normal(len(unit)), unit)


def a_sum(x):
    return np.sin(3 * x[:, 0]) + x[:, 1] ** 2


def lines(x):
    return 1.0 + x @ np.arange(2.0, 2 + x.shape[1])
