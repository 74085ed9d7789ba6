"""Posterior sampling: what is drawn, from which noise, and on which features."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy import stats

import pulse_pyro as pp
from tests.helpers import linear_history, z_bound

TAUGHT, ASKED, RUNS = 4, 12, 20_000
SEEN = pp.Features(
    lambda s, w, a: np.column_stack([np.ones(len(s)), s, s * a, s**2 * a]), 2, ("1", "S", "Sa", "q")
)
WA = pp.Features(
    lambda s, w, a: np.column_stack([np.ones(len(s)), s, w, w * a]), 2, ("1", "S", "W", "Wa")
)


def questions(seed=0, dim=3):
    """A few rounds that teach arm 0, then rounds between two arms whose reward is lost."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((TAUGHT + ASKED, 2, dim)) * [1.0, 3.0, 0.3][:dim]
    x[TAUGHT:, 1] = x[TAUGHT:, 0] + 0.4 * rng.standard_normal((ASKED, dim))
    reward = np.full((TAUGHT + ASKED, 2), np.nan)
    reward[:TAUGHT] = rng.standard_normal((TAUGHT, 1))
    allowed = np.ones((1, TAUGHT + ASKED, 2), bool)
    allowed[:, :TAUGHT, 1] = False
    return x, reward, allowed


def repeated(array, runs=RUNS):
    return np.broadcast_to(array, (runs, *array.shape))


# --- the draw -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("scale", "ridge"), [(1.0, 1.0), (0.3, 1.0), (2.0, 0.2)])
def test_arms_are_chosen_as_often_as_the_posterior_prefers_them(scale, ridge):
    x, reward, allowed = questions()
    action, gamma, state = pp.policies.play_horizon(
        repeated(x), repeated(reward), pp.thompson(scale, seed=3), ridge=ridge, allowed=allowed
    )
    assert_array_equal(gamma, scale**2)
    taught = x[:TAUGHT, 0]
    sigma = ridge * np.eye(3) + taught.T @ taught
    theta = np.linalg.solve(sigma, taught.T @ reward[:TAUGHT, 0])
    np.testing.assert_allclose(state.theta, repeated(theta), rtol=1e-9)
    gap = x[TAUGHT:, 1] - x[TAUGHT:, 0]
    spread = scale * np.sqrt(np.einsum("ti,ij,tj->t", gap, np.linalg.inv(sigma), gap))
    p = stats.norm.cdf(gap @ theta / spread)
    assert ((p > 0.02) & (p < 0.98)).sum() >= 4
    z = (action[:, TAUGHT:].mean(0) - p) / np.sqrt(p * (1 - p) / RUNS)
    assert np.abs(z[(p > 1e-3) & (p < 1 - 1e-3)]).max() <= z_bound(ASKED)


def test_draws_of_different_rounds_and_runs_are_independent():
    x, reward, allowed = questions(seed=1)
    x[TAUGHT:] = x[TAUGHT]  # the same question again and again
    action = pp.policies.play_horizon(
        repeated(x), repeated(reward), pp.thompson(2.0), allowed=allowed
    )[0]
    chosen = action[:, TAUGHT:].astype(float)
    off = chosen - chosen.mean()
    rounds = (off[:, :-1] * off[:, 1:]).mean() / off.var() * np.sqrt(RUNS * (ASKED - 1))
    runs = (off[:-1] * off[1:]).mean() / off.var() * np.sqrt((RUNS - 1) * ASKED)
    assert 0.05 < chosen.mean() < 0.95
    assert max(abs(rounds), abs(runs)) <= z_bound(2)


def world(runs=2, rounds=300, seed=0, dim=4):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((runs, rounds, 3, dim))
    return x, x @ rng.standard_normal(dim) + 0.1 * rng.standard_normal((runs, rounds, 1))


def test_the_same_seed_plays_the_same_and_another_does_not():
    x, reward = world()
    one, two, other = (
        pp.policies.play_horizon(x, reward, pp.thompson(2.0, seed=seed))[0] for seed in (5, 5, 6)
    )
    assert_array_equal(one, two)
    assert (one != other).any()
    assert (one[0] != pp.policies.play_horizon(x[:1], reward[:1], pp.constant(2.0))[0][0]).any()


def test_large_seeds_are_told_apart():
    x, reward = world()
    one, other = (
        pp.policies.play_horizon(x, reward, pp.thompson(2.0, seed=2**60 + k))[0] for k in (0, 1)
    )
    assert (one != other).any()


def test_with_hardly_any_spread_it_is_greedy():
    x, reward = world()
    allowed = np.ones((1, 300, 3), bool)
    allowed[:, 0, 1:] = False  # before any reward all arms are alike to a greedy policy
    tiny = pp.policies.play_horizon(x, reward, pp.thompson(1e-12), allowed=allowed)[0]
    assert_array_equal(
        tiny, pp.policies.play_horizon(x, reward, pp.constant(0.0), allowed=allowed)[0]
    )


@pytest.mark.parametrize("copies", [0.0, 1e-7])
def test_features_that_hardly_differ_can_be_sampled_over_many_rounds(copies):
    x, reward = world(runs=1, rounds=5000)
    x[..., 1] = x[..., 0] + copies * x[..., 1]
    action, _, state = pp.policies.play_horizon(1e3 * x, reward, pp.thompson(0.1), ridge=1e-4)
    assert (action >= 0).all()
    assert np.isfinite(state.theta).all()


def test_rounds_that_cannot_be_played_are_skipped():
    x, reward = world(runs=1, rounds=30)
    x[0, 4, 1, 2] = np.nan
    allowed = np.ones((1, 30, 3), bool)
    allowed[0, 7] = False
    action, _, state = pp.policies.play_horizon(x, reward, pp.thompson(1.0), allowed=allowed)
    assert (action[0, 4], action[0, 7]) == (-1, -2)
    assert state.rounds[0] == 28


# --- online and in simulations ------------------------------------------------------------------


@pytest.fixture(scope="module")
def law():
    return pp.linear_lags(3).fit(linear_history(seed=1)[0], seed=0)


def test_online_is_a_single_run_of_a_whole_horizon_to_the_last_bit(law):
    s = linear_history(seed=2, units=50)[0].s.reshape(-1, 1)[:1200].copy()
    x = np.stack([SEEN(s, s, a) for a in range(2)], axis=1)[None]
    reward = x @ [0.1, 0.2, 0.5, -1.0] + np.random.default_rng(0).normal(0, 0.2, (1, 1200, 1))
    x[0, 100], s[100] = np.nan, np.nan  # a refused round uses up its draw like any other
    radius = pp.thompson(0.2, seed=11)
    bot = pp.PulseUCB(law, SEEN, radius)
    action, _, whole = pp.policies.play_horizon(x, reward, radius)
    for t in range(1200):
        if t == 100:
            with pytest.raises(pp.errors.FeatureError, match="refused"):
                bot.act(s[t])
            continue
        choice = bot.act(s[t])
        assert choice.action == action[0, t]
        bot.learn(choice, reward[0, t, choice.action])
    for ours, theirs in zip(bot.state[:5], whole.one(0)[:5], strict=True):
        assert_array_equal(ours, theirs)
    assert 50 < action.sum() < 1150


def test_on_imputed_features_online_follows_the_batch(law):
    s = linear_history(seed=3, units=10)[0].s.reshape(-1, 1)[:200]
    x = pp.features.expected_features(law, WA, s[None], size=2, rng=np.random.default_rng(0)).mean[
        :, 2:
    ]
    reward = x @ [0.1, 0.2, 0.1, 1.0] + np.random.default_rng(1).normal(0, 0.1, (1, 198, 1))
    bot = pp.PulseUCB(law, WA, pp.thompson(0.1, seed=2))
    for row in s[:2]:
        bot.observe(row)
    action = pp.policies.play_horizon(x, reward, pp.thompson(0.1, seed=2))[0]
    for t, row in enumerate(s[2:]):
        choice = bot.act(row)
        assert choice.action == action[0, t]
        bot.learn(choice, reward[0, t, choice.action])


def test_it_plays_on_imputed_and_on_observed_features():
    env = pp.envs.w_times_action()
    fitted = pp.linear_lags(19).fit(env.archive(40, 40, rng=np.random.default_rng(0)), seed=0)
    games = env.world(60, 300, rng=np.random.default_rng(1))
    sampled = pp.thompson(0.15, seed=4)
    imputed = pp.envs.pulse(games, fitted, name="imputed", radius=sampled)
    observed = replace(pp.envs.oful(games), name="observed", radius=sampled)
    run = pp.simulate(games, [imputed, observed])
    for k, agent in enumerate((imputed, observed)):
        assert_array_equal(
            run.action[k], pp.policies.play_horizon(agent.x, games.reward, sampled)[0]
        )
    lost = run.regret_cond[:, :, -1]
    saved = lost[1] - lost[0]
    assert saved.mean() > z_bound() * saved.std(ddof=1) / np.sqrt(len(saved))


# --- bad input ----------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [0.0, -1.0, np.nan, np.inf, "wide", None])
def test_a_scale_that_is_not_positive_is_refused(scale):
    with pytest.raises(pp.errors.SettingError, match="thompson: scale"):
        pp.thompson(scale)


@pytest.mark.parametrize("seed", [-1, 1.5, True, None, "one"])
def test_a_seed_that_is_not_whole_is_refused(seed):
    with pytest.raises(pp.errors.SettingError, match="thompson: seed"):
        pp.thompson(seed=seed)


def test_what_posterior_sampling_cannot_do_is_said():
    x, _ = world(rounds=5)
    with pytest.raises(pp.errors.SettingError, match="needs more than a State; use play_horizon"):
        pp.policies.decide(pp.policies.init(4, 1.0), x[0, 0], pp.thompson(1.0))
