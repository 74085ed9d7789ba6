import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from pulse_pyro._core.errors import SettingError
from pulse_pyro._core.seeds import stream
from pulse_pyro.envs.arma import main_linear, main_nonlinear, w_times_action
from tests.helpers import assert_mean

WORLDS = {
    "linear": main_linear(),
    "nonlinear": main_nonlinear(),
    "w*a": w_times_action(),
    "w*a, lags from 1": w_times_action(scale=1.5, current=False),
}
BETA = np.random.RandomState(42).randn(20)
every_world = pytest.mark.parametrize("env", WORLDS.values(), ids=WORLDS)


def rng(seed=0):
    return np.random.default_rng(seed)


def autocovariance(lag, sd=0.1, ar=(0.75, -0.25), ma=(0.65, 0.35)):
    """gamma_k = sd^2 sum_j psi_j psi_{j+k}, psi the MA(infinity) weights of the ARMA(2,2)."""
    psi = np.zeros(400)
    for j in range(400):
        psi[j] = (j == 0) + sum(m for i, m in enumerate(ma, 1) if i == j)
        psi[j] += sum(a * psi[j - i] for i, a in enumerate(ar, 1) if j >= i)
    return sd**2 * (psi[: 400 - lag] @ psi[lag:])


def mean_w(name, s):
    """E[W_t | S_1:t] at the last row of s (runs, time), written out."""
    if "w*a" in name:
        newest = s[:, -19:] if name == "w*a" else s[:, -20:-1]
        return BETA[0] + newest @ BETA[1:]
    x = (s[:, -1] + s[:, -2] + s[:, -3]) / 3
    bend = np.sin(4 * x) if name == "nonlinear" else 0.0
    return 0.4967141530 - 0.1382643012 * x + bend


def test_autocovariances_are_those_of_the_arma_process():
    s = main_linear().world(40_000, 5, rng=rng()).s[..., 0]
    for lag in range(5):
        assert_mean(s[:, 0] * s[:, lag], autocovariance(lag))
    assert_mean(s, 0.0)
    assert_mean(s**2, autocovariance(0))


def test_published_parameters():
    for name in ("linear", "nonlinear"):
        assert_allclose(WORLDS[name].theta, (0.6477, 1.5230, -0.2342, -0.2341), atol=5e-5)
    assert WORLDS["w*a"].theta == (0.1, 0.1, 0.1, 1.0)
    assert WORLDS["w*a, lags from 1"].theta == (0.1, 0.1, 0.1, 1.5)
    for env in WORLDS.values():
        assert (env.series.sd, env.w_sd, env.reward_sd) == (0.1, 0.1, 0.05)


@pytest.mark.parametrize("name", WORLDS)
def test_the_conditional_mean_is_the_stated_function_of_the_past(name):
    env = WORLDS[name]
    world = env.world(50, 3, rng=rng())
    for t in range(3):
        s = world.s[:, : world.lead + t + 1, 0]
        mu, now = mean_w(name, s), s[:, -1]
        for a in range(2):
            last = (mu if "w*a" in name else now) * a
            by_hand = np.stack([np.ones(50), now, mu, last], axis=-1)
            assert_allclose(world.phibar[:, t, a], by_hand, rtol=1e-9, atol=1e-10)


@every_world
def test_w_scatters_around_its_conditional_mean_with_the_stated_spread(env):
    world = env.world(200, 100, rng=rng(1))
    gap = (world.phi - world.phibar)[:, :, 1]
    noise = gap[..., 2]
    assert_array_equal(gap[..., :2], 0.0)
    assert_mean(noise.ravel(), 0.0)
    assert_mean(noise.ravel() ** 2, 0.01)
    assert_mean((noise * world.s[:, world.lead :, 0]).ravel(), 0.0)
    assert_mean((noise[:, 1:] * noise[:, :-1]).ravel(), 0.0)
    assert_mean(world.noise.ravel() ** 2, 0.0025)
    assert_mean((noise * world.noise).ravel(), 0.0)


@every_world
def test_an_archive_follows_the_same_law_and_has_no_w_while_lags_fill(env):
    history = env.archive(300, env.lead + 5, rng=rng(2))
    assert np.isnan(history.grid.w[:, : env.lead]).all()
    name = next(key for key, value in WORLDS.items() if value is env)
    noise = [
        history.grid.w[:, t, 0] - mean_w(name, history.grid.s[:, : t + 1, 0])
        for t in range(env.lead, env.lead + 5)
    ]
    assert_mean(np.ravel(noise), 0.0)
    assert_mean(np.ravel(noise) ** 2, 0.01)
    assert history.grid.seen.all()
    assert len(set(history.units)) == 300


def test_rewards_are_the_full_means_plus_one_noise_for_all_arms():
    world = w_times_action().world(3, 7, rng=rng())
    by_hand = np.einsum("rtad,d->rta", world.phi, [0.1, 0.1, 0.1, 1.0]) + world.noise[:, :, None]
    assert_allclose(world.reward, by_hand, rtol=1e-12)
    assert_allclose(world.mean_cond, world.phibar @ world.theta, rtol=1e-12)


def test_only_in_the_main_world_can_the_best_arm_be_told_from_s():
    for name, gap in (("linear", False), ("w*a", True)):
        world = WORLDS[name].world(20, 100, rng=rng())
        best = world.mean_cond.argmax(-1)
        assert (world.regret(best, full=True).sum() > 0) == gap


@every_world
def test_one_seed_gives_one_world_and_another_seed_another(env):
    one, two, other = (env.world(2, 9, rng=stream(seed, "online")) for seed in (5, 5, 6))
    for field in ("s", "phi", "phibar", "noise"):
        assert_array_equal(getattr(one, field), getattr(two, field))
    assert not np.isin(one.s, other.s).any()
    first, second = (env.archive(2, 30, rng=stream(5, "archive")) for _ in range(2))
    assert_array_equal(first.w, second.w)


def test_units_and_runs_are_drawn_apart():
    world = main_linear().world(2000, 3, rng=rng())
    pairs = world.s[::2, :, 0] * world.s[1::2, :, 0]
    assert_mean(pairs[:, 0], 0.0)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda env: env.archive(0, 30, rng=rng()), "archive: units"),
        (lambda env: env.archive(3, 20, rng=rng()), "archive: length must be a whole number >= 21"),
        (lambda env: env.world(0, 5, rng=rng()), "world: runs"),
        (lambda env: env.world(2, 0, rng=rng()), "world: horizon"),
        (lambda env: env.world(2, 1.5, rng=rng()), "world: horizon.*1.5"),
    ],
)
def test_sizes_out_of_range_are_named(call, says):
    with pytest.raises(SettingError, match=says):
        call(w_times_action())
