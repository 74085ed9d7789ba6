import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from pulse_pyro._core.errors import SettingError
from pulse_pyro._core.seeds import stream
from pulse_pyro.envs.latent_world import LatentArWorld, latent_ar
from pulse_pyro.policies.kalman_oracle import Autoregression, autoregression
from tests.helpers import assert_mean

SETTINGS = {
    "AR(1)": {"ar": (0.8,), "sigma_z": 0.2},
    "AR(2)": {"ar": (0.5, -0.3), "sigma_z": 0.1, "intercept": 0.4},
    "AR(3)": {"ar": (0.2, 0.1, 0.5), "sigma_z": 0.3, "intercept": -0.2, "share": 0.0},
}
every_setting = pytest.mark.parametrize("name", SETTINGS)


def rng(seed=0):
    return stream(seed, "latent")


def autocovariances(ar, sd, most):
    """From the moving average form, by its own recursion."""
    psi = [1.0]
    for t in range(1, 500):
        psi.append(sum(g * psi[t - j] for j, g in enumerate(ar, 1) if j <= t))
    psi = np.array(psi)
    return np.array([sd**2 * psi[: len(psi) - lag] @ psi[lag:] for lag in range(most)])


def latent_path(env, history):
    return history.grid.w[..., 0] - env.slope * history.grid.s[..., 0]


def test_the_stationary_law_is_the_textbook_one():
    one = autoregression((0.8,), intercept=1.0, sd=0.2)
    assert one.mean == pytest.approx(5.0, rel=1e-12)
    assert_allclose(one.covariance, [[0.04 / 0.36]], rtol=1e-12)
    two = autoregression((0.5, -0.3), sd=0.1)
    g0 = 1.3 * 0.01 / (0.7 * (1.3**2 - 0.25))
    g1 = g0 * 0.5 / 1.3
    assert_allclose(two.covariance, [[g0, g1], [g1, g0]], rtol=1e-12)


@every_setting
def test_z_is_in_its_stationary_law_from_the_first_row_on(name):
    env = latent_ar(**SETTINGS[name])
    z = latent_path(env, env.archive(20_000, 12, rng=rng())) - env.latent.mean
    truth = autocovariances(env.latent.ar, env.latent.sd, 5)
    for start in (0, 1, 7):
        assert_mean(z[:, start], 0.0)
        for lag in range(5):
            assert_mean(z[:, start] * z[:, start + lag], truth[lag])


@every_setting
def test_z_follows_its_recursion_with_fresh_shocks(name):
    env = latent_ar(**SETTINGS[name])
    g = env.latent.ar
    history = env.archive(3000, 10, rng=rng(1))
    z = latent_path(env, history)
    for t in (len(g), 9):
        shock = z[:, t] - env.latent.intercept - sum(c * z[:, t - j] for j, c in enumerate(g, 1))
        assert_mean(shock, 0.0)
        assert_mean(shock**2, env.latent.sd**2)
        assert_mean(shock * (z[:, 0] - env.latent.mean), 0.0)
        assert_mean(shock * history.grid.s[:, t, 0], 0.0)


@every_setting
def test_w_is_what_s_tells_plus_z_and_s_tells_the_stated_share(name):
    env = latent_ar(**SETTINGS[name])
    world = env.world(20_000, 2, rng=rng(2))
    known = world.phibar[:, :, 1, 2]
    assert_allclose(known, env.slope * world.s[..., 0] + env.latent.mean, rtol=1e-12)
    z = world.w[..., 0] - known
    assert_mean(z * world.s[..., 0], 0.0)
    share = SETTINGS[name].get("share", 0.5)
    if share == 0:
        assert env.slope == 0
        return
    assert_mean((1 - share) * (known - env.latent.mean) ** 2 - share * z**2, 0.0)


def test_features_and_rewards_are_those_stated():
    env = latent_ar(mu=(0.3, 0.1), beta=(-0.2, 0.7), intercept=0.05)
    world = env.world(3, 8, rng=rng())
    w = world.w[..., 0]
    for a in range(2):
        columns = [np.ones_like(w), np.full_like(w, a), w, w * a]
        assert_allclose(world.phi[:, :, a], np.stack(columns, -1), rtol=1e-12)
        by_hand = env.mu[a] + env.beta[a] * w + world.noise
        assert_allclose(world.reward[:, :, a], by_hand, rtol=1e-9, atol=1e-12)
    assert world.features.names == ("1", "a", "W", "W*a")
    assert world.s.shape == (3, 8, 1)


def test_no_slope_means_that_s_is_of_no_use():
    env = latent_ar(share=0.0)
    assert env.slope == 0.0
    world = env.world(2, 5, rng=rng())
    assert_array_equal(world.phibar[:, :, 1, 2], 0.0)
    assert np.abs(world.s).min() > 0


def test_the_noise_of_rewards_has_the_stated_spread():
    env = latent_ar(reward_sd=0.2)
    assert_mean(env.world(100, 100, rng=rng()).noise.ravel() ** 2, 0.04)


def test_an_archive_has_every_row_and_distinct_units():
    history = latent_ar().archive(12, 6, rng=rng())
    assert history.grid.seen.all()
    assert np.isfinite(history.grid.w).all()
    assert len(set(history.units)) == 12
    assert (history.s_names, history.w_names) == (("s",), ("w",))


def test_one_seed_gives_one_world_and_another_seed_another():
    one, two, other = (latent_ar().world(2, 9, rng=rng(seed)) for seed in (5, 5, 6))
    for field in ("s", "w", "phi", "phibar", "noise"):
        assert_array_equal(getattr(one, field), getattr(two, field))
    assert not np.isin(one.w, other.w).any()
    first, second = (latent_ar().archive(2, 9, rng=rng(5)) for _ in range(2))
    assert_array_equal(first.w, second.w)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: latent_ar(ar=(1.0,)), "not stationary.*largest root 1"),
        (lambda: latent_ar(ar=(0.6, 0.5)), "not stationary"),
        (lambda: latent_ar(ar=(0.1, -1.2)), "not stationary"),
        (lambda: latent_ar(ar=()), "ar must be finite"),
        (lambda: latent_ar(ar=(np.nan,)), "ar must be finite"),
        (lambda: latent_ar(sigma_z=0.0), "sd must be a finite number > 0"),
        (lambda: latent_ar(intercept=np.inf), "intercept must be finite"),
        (lambda: latent_ar(share=1.0), "latent_ar: share must be a share"),
        (lambda: latent_ar(beta=(1.0, 2.0, 3.0)), "beta must be two finite"),
        (lambda: latent_ar(mu=(0.0, np.nan)), "mu must be two finite"),
        (lambda: latent_ar(reward_sd=-1.0), "reward_sd"),
        (lambda: LatentArWorld(Autoregression((1.5,), 0.0, 1.0), 1.0), "not stationary"),
        (lambda: LatentArWorld(Autoregression((0.5,), 0.0, 1.0), np.nan), "slope must be finite"),
        (lambda: latent_ar().archive(0, 5, rng=rng()), "archive: units"),
        (lambda: latent_ar().archive(2, 0, rng=rng()), "archive: length"),
        (lambda: latent_ar().world(0, 5, rng=rng()), "world: runs"),
        (lambda: latent_ar().world(2, 1.5, rng=rng()), "world: horizon"),
    ],
)
def test_what_cannot_be_is_refused_with_a_sentence(call, says):
    with pytest.raises(SettingError, match=says):
        call()
