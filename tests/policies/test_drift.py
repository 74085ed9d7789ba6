"""A million rounds: the inverse kept by rank-one updates does not drift away."""

import os

import numpy as np
import pytest
from numpy.testing import assert_allclose

import pulse_pyro as pp
from pulse_pyro.policies.horizon import play_on

CHUNK = 20_000


def features(rng, count, dim, scale):
    """Correlated features of unlike size, two arms: (1, count, 2, dim)."""
    common = rng.standard_normal((1, count, 2, 1))
    x = scale * (0.9 * common + 0.5 * rng.standard_normal((1, count, 2, dim)))
    x[..., 0] = 1.0
    return x


def run(dim, rounds, scale, ridge=1.0, seed=0):
    """Play on in chunks; return the state, and Sigma, b added up apart from it."""
    rng, state = np.random.default_rng(seed), pp.policies.init(dim, ridge, (1,))
    theta = rng.standard_normal(dim) / scale
    sigma, b, worst = ridge * np.eye(dim), np.zeros(dim), 0.0
    for start in range(0, rounds, CHUNK):
        count = min(CHUNK, rounds - start)
        x = features(rng, count, dim, scale)
        reward = x @ theta + 0.5 * rng.standard_normal((1, count, 2))
        action = play_on(state, x, reward, np.full((1, count), 0.5))[0]
        at = np.arange(count), action
        chosen = x[0][at]
        sigma += chosen.T @ chosen
        b += chosen.T @ reward[0][at]
        exact = np.linalg.inv(sigma)
        worst = max(worst, np.abs(state.inverse[0] - exact).max() / np.abs(exact).max())
    return state.one(0), sigma, b, worst


def check(dim, rounds, scale, ridge=1.0):
    state, sigma, b, worst = run(dim, rounds, scale, ridge)
    assert state.rounds == rounds
    assert state.drift < 1e-8
    assert worst < 1e-8  # apart from what the state says of itself, between its refreshes too
    dense = np.linalg.solve(sigma, b)
    assert_allclose(state.theta, dense, rtol=1e-8, atol=1e-8 * np.abs(dense).max())
    assert_allclose(state.precision, sigma, rtol=1e-9)
    assert_allclose(state.logdet, np.linalg.slogdet(sigma / ridge)[1], rtol=1e-9)


@pytest.mark.parametrize("ridge", [1.0, 1e-3])
def test_a_million_rounds_of_four_features(ridge):
    check(4, 1_000_007, np.array([1.0, 3.0, 0.3, 10.0]), ridge)


def test_the_chunks_do_not_matter():
    one, *_ = run(4, 60_000, np.ones(4))
    rng, state = np.random.default_rng(0), pp.policies.init(4, 1.0, (1,))
    theta = rng.standard_normal(4)
    for _ in range(3):
        x = features(rng, CHUNK, 4, np.ones(4))
        reward = x @ theta + 0.5 * rng.standard_normal((1, CHUNK, 2))
        for start in range(0, CHUNK, 137):
            part = slice(start, start + 137)
            roots = np.full((1, x[:, part].shape[1]), 0.5)
            play_on(state, x[:, part], reward[:, part], roots)
    assert_allclose(state.theta[0], one.theta, rtol=1e-9)
    assert_allclose(state.inverse[0], one.inverse, rtol=1e-9)


@pytest.mark.skipif(not os.environ.get("PULSE_FULL"), reason="44 features: set PULSE_FULL=1")
def test_many_rounds_of_forty_four_features():
    check(44, 300_011, np.geomspace(0.1, 10.0, 44))
