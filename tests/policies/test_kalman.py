import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.linalg import solve_discrete_are

from pulse_pyro._core.errors import RewardError, SettingError
from pulse_pyro.policies.kalman_oracle import autoregression, kalman

ORDERS = {1: (0.9,), 2: (0.5, -0.3), 3: (0.2, 0.1, 0.5)}


def autocovariances(latent, most):
    psi = [1.0]
    for t in range(1, 600):
        psi.append(sum(g * psi[t - j] for j, g in enumerate(latent.ar, 1) if j <= t))
    psi = np.array(psi)
    return np.array([latent.sd**2 * psi[: len(psi) - lag] @ psi[lag:] for lag in range(most)])


def conditioned(latent, slope, paid, noise):
    """E and var of z_t given earlier rewards, by dense Gaussian conditioning; paid is centred."""
    horizon = len(paid)
    lag = np.abs(np.subtract.outer(np.arange(horizon), np.arange(horizon)))
    cov = autocovariances(latent, horizon)[lag]
    mean, variance = np.empty(horizon), np.empty(horizon)
    for t in range(horizon):
        seen = np.flatnonzero(np.isfinite(paid[:t]))
        b = slope[seen]
        joint = b[:, None] * cov[np.ix_(seen, seen)] * b + noise**2 * np.eye(len(seen))
        gain = np.linalg.solve(joint, b * cov[t, seen][None, :].T[:, 0]) if len(seen) else b
        mean[t] = latent.mean + gain @ (paid[seen] - b * latent.mean)
        variance[t] = cov[t, t] - gain @ (b * cov[t, seen])
    return mean, variance


@given(seed=st.integers(0, 10_000), order=st.sampled_from([1, 2, 3]))
def test_the_filter_is_dense_gaussian_conditioning(seed, order):
    rng = np.random.default_rng(seed)
    latent = autoregression(ORDERS[order], intercept=rng.normal(), sd=0.3)
    mu, beta = rng.normal(size=3), np.array([0.0, *rng.normal(size=2)])
    runs, horizon = 2, 12
    offset = rng.normal(size=(runs, horizon))
    reward = rng.normal(size=(runs, horizon, 3))
    reward[rng.random((runs, horizon)) < 0.1] = np.nan
    found = kalman(reward, latent, mu=mu, beta=beta, reward_sd=0.2, offset=offset)
    for r in range(runs):
        a = found.action[r]
        paid = reward[r, np.arange(horizon), a] - mu[a] - beta[a] * offset[r]
        mean, variance = conditioned(latent, beta[a], paid, 0.2)
        assert_allclose(found.z[r], mean, atol=1e-10)
        assert_allclose(found.variance[r], variance, atol=1e-10)
    best = (mu + beta * (offset + found.z)[..., None]).argmax(-1)
    assert_array_equal(found.action, best)


@pytest.mark.parametrize("order", [1, 2, 3])
def test_where_all_arms_tell_equally_much_it_ends_in_the_riccati_steady_state(order):
    latent = autoregression(ORDERS[order], sd=0.3)
    reward = np.random.default_rng(0).normal(size=(2, 400, 2))
    found = kalman(reward, latent, mu=(0.0, 0.1), beta=(-0.7, 0.7), reward_sd=0.5)
    shock, see = np.zeros((order, order)), np.eye(order)[:1]
    shock[0, 0] = 0.09
    steady = solve_discrete_are(latent.companion.T, see.T, shock, np.array([[0.25 / 0.49]]))
    assert_allclose(found.variance[:, -1], steady[0, 0], rtol=1e-10)
    assert_allclose(found.variance[:, 0], latent.covariance[0, 0], rtol=1e-12)


def test_a_known_first_order_step_by_hand():
    latent = autoregression((0.5,), intercept=1.0, sd=np.sqrt(0.75))
    found = kalman(
        np.array([[[5.0, 9.0], [0.0, 0.0]]]), latent, mu=(1.0, 0.0), beta=(2.0, 0.0), reward_sd=2.0
    )
    # z_1 ~ N(2, 1); arm 0 expects 1 + 2 * 2 = 5 and is paid 5: no news, variance 1 - 4 / (4 + 4)
    assert_array_equal(found.action, [[0, 0]])
    assert_allclose(found.z, [[2.0, 2.0]])
    assert_allclose(found.variance, [[1.0, 0.25 * 0.5 + 0.75]])


def test_without_reward_noise_the_last_state_is_known():
    latent, rng = autoregression((0.8,), sd=0.1), np.random.default_rng(1)
    z = rng.normal(size=(3, 20))
    reward = np.stack([0.5 - z, z], axis=-1)
    found = kalman(reward, latent, mu=(0.5, 0.0), beta=(-1.0, 1.0), reward_sd=0.0)
    assert_allclose(found.z[:, 1:], 0.8 * z[:, :-1], atol=1e-12)
    assert_allclose(found.variance[:, 1:], 0.01, rtol=1e-9)


def test_arms_that_do_not_depend_on_w_tell_nothing():
    latent = autoregression((0.9,), intercept=0.1, sd=0.1)
    reward = np.random.default_rng(2).normal(size=(2, 30, 2))
    for noise in (0.0, 1.0):
        found = kalman(reward, latent, mu=(0.0, 1.0), beta=(0.0, 0.0), reward_sd=noise)
        assert_array_equal(found.action, 1)
        assert_allclose(found.z, latent.mean, rtol=1e-12)
        assert_allclose(found.variance, latent.covariance[0, 0], rtol=1e-9)


def test_only_rewards_of_played_arms_are_read():
    rng = np.random.default_rng(3)
    latent, reward = autoregression((0.5, 0.3), sd=0.3), rng.normal(size=(4, 60, 3))
    settings = {"mu": (0.0, 0.1, 0.0), "beta": (-1.0, 0.2, 1.0), "reward_sd": 0.3}
    found = kalman(reward, latent, **settings)
    assert len(np.unique(found.action)) > 1
    other = np.full_like(reward, np.nan)
    kept = np.arange(4)[:, None], np.arange(60), found.action
    other[kept] = reward[kept]
    for one, two in zip(found, kalman(other, latent, **settings), strict=True):
        assert_array_equal(one, two)


def test_runs_do_not_touch_each_other():
    rng = np.random.default_rng(4)
    latent, reward = autoregression((0.5,), sd=0.3), rng.normal(size=(3, 20, 2))
    settings = {"mu": (0.0, 0.1), "beta": (-1.0, 0.5), "reward_sd": 0.3}
    together = kalman(reward, latent, **settings)
    for r in range(3):
        alone = kalman(reward[r : r + 1], latent, **settings)
        assert_array_equal(alone.action[0], together.action[r])
        assert_allclose(alone.z[0], together.z[r], atol=1e-12)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"mu": (0.0,)}, "mu must be 2 finite"),
        ({"beta": (0.0, np.inf)}, "beta must be 2 finite"),
        ({"reward_sd": -1.0}, "reward_sd"),
        ({"offset": np.zeros((2, 3))}, r"offset must be finite.*got.*\(2, 3\)"),
        ({"offset": np.full((2, 5), np.nan)}, "offset must be finite"),
    ],
)
def test_bad_settings_are_named(change, says):
    settings = {"mu": (0.0, 0.0), "beta": (1.0, 1.0), "reward_sd": 1.0} | change
    with pytest.raises(SettingError, match=says):
        kalman(np.zeros((2, 5, 2)), autoregression((0.5,)), **settings)


@pytest.mark.parametrize("shape", [(5, 2), (0, 5, 2), (2, 0, 2)])
def test_rewards_of_another_shape_are_refused(shape):
    with pytest.raises(RewardError, match="reward must be"):
        kalman(np.zeros(shape), autoregression((0.5,)), mu=(0, 0), beta=(1, 1), reward_sd=1.0)
