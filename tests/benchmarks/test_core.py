"""The compiled core against a whole loop written by hand for one shape and a constant radius."""

import math

import numpy as np
import pytest
from numba import njit

from pulse_pyro.policies.horizon import play_horizon
from pulse_pyro.radius import constant
from tests.benchmarks.timing import best_of

ALPHA, RIDGE = 2.0, 1.0


@njit
def small_by_hand(x, reward, alpha, ridge):
    runs, horizon, arms, d = x.shape
    action = np.empty((runs, horizon), np.int64)
    inverse, theta, v = np.empty((d, d)), np.empty(d), np.empty(d)
    for r in range(runs):
        inverse[:] = 0.0
        theta[:] = 0.0
        for i in range(d):
            inverse[i, i] = 1.0 / ridge
        for t in range(horizon):
            best, top = 0, -np.inf
            for a in range(arms):
                mean, square = 0.0, 0.0
                for i in range(d):
                    mean += theta[i] * x[r, t, a, i]
                    row = 0.0
                    for j in range(d):
                        row += inverse[i, j] * x[r, t, a, j]
                    square += row * x[r, t, a, i]
                score = mean + alpha * math.sqrt(square)
                if score > top:
                    best, top = a, score
            action[r, t] = best
            mean, square = 0.0, 0.0
            for i in range(d):
                row = 0.0
                for j in range(d):
                    row += inverse[i, j] * x[r, t, best, j]
                v[i] = row
                square += row * x[r, t, best, i]
                mean += theta[i] * x[r, t, best, i]
            shrink = 1.0 / (1.0 + square)
            surprise = (reward[r, t, best] - mean) * shrink
            for i in range(d):
                theta[i] += v[i] * surprise
                for j in range(d):
                    inverse[i, j] -= v[i] * v[j] * shrink
    return action


@njit
def large_by_hand(x, reward, alpha, ridge):
    runs, horizon, arms, d = x.shape
    action = np.empty((runs, horizon), np.int64)
    for r in range(runs):
        inverse, theta = np.eye(d) / ridge, np.zeros(d)
        for t in range(horizon):
            now = x[r, t]
            rows, mean = np.dot(now, inverse), np.dot(now, theta)
            best, top = 0, -np.inf
            for a in range(arms):
                square = 0.0
                for i in range(d):
                    square += rows[a, i] * now[a, i]
                score = mean[a] + alpha * math.sqrt(square)
                if score > top:
                    best, top = a, score
            action[r, t] = best
            v, square = rows[best], 0.0
            for i in range(d):
                square += v[i] * now[best, i]
            shrink = 1.0 / (1.0 + square)
            surprise = (reward[r, t, best] - mean[best]) * shrink
            for i in range(d):
                theta[i] += v[i] * surprise
                scaled = v[i] * shrink
                for j in range(d):
                    inverse[i, j] -= scaled * v[j]
    return action


@pytest.mark.parametrize(
    ("by_hand", "runs", "arms", "dim"), [(small_by_hand, 100, 2, 4), (large_by_hand, 4, 20, 32)]
)
def test_the_core_is_at_least_half_as_fast_as_a_loop_by_hand(by_hand, runs, arms, dim):
    rng, rounds = np.random.default_rng(0), 5000
    x = rng.standard_normal((runs, rounds, arms, dim))
    reward = 0.1 * x @ rng.standard_normal(dim) + 0.05 * rng.standard_normal((runs, rounds, 1))
    radius = constant(ALPHA)
    np.testing.assert_array_equal(
        play_horizon(x, reward, radius, ridge=RIDGE)[0], by_hand(x, reward, ALPHA, RIDGE)
    )
    least = best_of(
        10,
        ours=lambda: play_horizon(x, reward, radius, ridge=RIDGE),
        hand=lambda: by_hand(x, reward, ALPHA, RIDGE),
    )
    ratio = least["hand"] / least["ours"]
    speed = {name: runs * rounds / seconds / 1e6 for name, seconds in least.items()}
    print(
        f"\ncore, d={dim}, K={arms}: {speed['ours']:.3g} million decisions/s, by hand "
        f"{speed['hand']:.3g} million: {ratio:.2f} times the speed of the loop by hand (bar 0.5)"
    )
    assert ratio >= 0.5
