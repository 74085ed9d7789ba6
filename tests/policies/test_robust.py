"""Confidence-weighted rounds: weights, the three bounds on errors, and theta* in the ball."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

import pulse_pyro as pp
from tests.helpers import binomial_floor, linear_history
from tests.policies.helpers import Rule, always_inside, dense

SEED = st.integers(0, 2**32 - 1)
PROPERTY = settings(max_examples=15)


def problem(seed, runs=1, rounds=60, arms=3, dim=3, spread=1.0):
    rng = np.random.default_rng(seed)
    x = spread * rng.standard_normal((runs, rounds, arms, dim))
    reward = x @ rng.standard_normal(dim) + 0.1 * rng.standard_normal((runs, rounds, 1))
    return x, reward, rng.exponential(0.1, (runs, rounds, arms)), rng


def robust(rule, dim=3):
    own = pp.policies.robust(
        sigma=rule.sigma,
        budget=rule.budget,
        dim=dim,
        delta=rule.delta,
        theta_bound=rule.size,
        alpha=rule.alpha,
    )
    size, noise, delta = own.params
    plain = pp.corrected(sigma=noise, delta=delta, theta_bound=size, form=rule.form)
    return replace(own, kind=plain.kind)


def same(one, two):
    for ours, theirs in zip(one[:5], two[:5], strict=True):
        assert_array_equal(ours, theirs)


# --- weights ------------------------------------------------------------------------------------


def test_a_round_counts_by_its_width_before_it_is_learned():
    radius = pp.policies.robust(sigma=1.0, budget=1.0, dim=1, alpha=0.5)
    x, reward = np.full((1, 2, 1, 1), 2.0), np.array([[[1.0], [3.0]]])
    _, _, state = pp.policies.play_horizon(x, reward, radius)
    first, second = 0.5 / 2.0, 0.5 / math.sqrt(4.0 / 2.0)  # u = 2, then 2 / sqrt(1 + 4/4)
    assert state.precision[0, 0, 0] == pytest.approx(1 + 4 * (first + second), rel=1e-14)
    assert state.b[0, 0] == pytest.approx(2 * first + 6 * second, rel=1e-14)
    assert state.theta[0, 0] == pytest.approx(state.b[0, 0] / state.precision[0, 0, 0], rel=1e-14)
    assert state.logdet[0] == pytest.approx(math.log(state.precision[0, 0, 0]), rel=1e-14)


def test_narrow_rounds_and_empty_features_count_fully():
    radius = pp.policies.robust(sigma=1.0, budget=1.0, dim=1, alpha=0.5)
    x = np.array([0.5, 0.0, 0.3]).reshape(1, 3, 1, 1)
    _, _, state = pp.policies.play_horizon(x, np.ones((1, 3, 1)), radius)
    assert state.precision[0, 0, 0] == pytest.approx(1 + 0.25 + 0.09, rel=1e-14)
    assert state.rounds[0] == 3


def test_alpha_by_default_is_the_noise_over_the_budget():
    radius = pp.policies.robust(sigma=0.4, budget=5.0, dim=9)
    assert radius.weight == pytest.approx(0.4 * 3 / 5)
    assert radius.cap == pytest.approx(0.4 * 3)
    assert pp.policies.robust(sigma=0.4, budget=5.0, dim=9, alpha=2.0).cap == 10.0


# --- against the formulas -----------------------------------------------------------------------

# which of the three bounds on the errors is the smallest
REGIMES = {"squares": (0.4, 1.0, 1.0), "triangle": (0.4, 1.0, 1.0), "budget": (0.4, 0.2, 1.0)}


@pytest.mark.parametrize("regime", REGIMES)
@PROPERTY
@given(SEED, st.sampled_from([0.3, 1.0, 5.0]), st.booleans(), st.sampled_from(["sharp", "sum"]))
def test_the_compiled_loop_is_cw_oful(regime, seed, ridge, lost, form):
    alpha, share, _ = REGIMES[regime]
    x, reward, error, _ = problem(seed)
    if regime == "triangle":  # one bad round, among narrow ones
        error[:, :40] = error[:, 41:] = 0.0
    else:
        error[:] = 0.1
    if lost:
        reward[:, 3::7] = np.nan
    budget = share * float(error[0].max(-1).sum())
    rule = Rule(sigma=0.5, size=1.5, alpha=alpha, budget=budget, form=form)
    action, gamma, state = pp.policies.play_horizon(
        x, reward, robust(rule), ridge=ridge, error=error
    )
    truth = dense(x[0], reward[0], rule, ridge, error=error[0])
    if not (lost and truth.terms[1] == 0.0):
        assert int(np.argmin(truth.terms)) == list(REGIMES).index(regime)
    assert min(w for w in truth.weight if np.isfinite(w)) < 1.0
    assert_array_equal(action[0], truth.action)
    assert_allclose(np.sqrt(gamma[0]), truth.root, rtol=1e-9)
    assert_allclose(state.precision[0], truth.sigma, rtol=1e-9, atol=1e-12)
    assert_allclose(state.b[0], truth.b, rtol=1e-9, atol=1e-12)
    assert_allclose(state.theta[0], truth.theta, rtol=1e-8, atol=1e-10)
    assert_allclose([math.sqrt(state.sums[0, 2]), state.sums[0, 3]], truth.terms[:2], rtol=1e-9)


@PROPERTY
@given(SEED, st.floats(0.01, 3.0), st.floats(0.05, 20.0), st.integers(1, 5))
def test_the_three_bounds_hold_for_any_errors_they_speak_of(seed, alpha, ridge, dim):
    x, reward, error, rng = problem(seed, rounds=40, arms=1, dim=dim, spread=3.0)
    c = error[0, :, 0] * rng.choice([-1.0, 1.0, rng.uniform()], 40)
    budget = float(np.abs(c).sum())
    rule = Rule(alpha=alpha, budget=budget)
    _, _, state = pp.policies.play_horizon(x, reward, robust(rule, dim), ridge=ridge, error=error)
    path = dense(x[0], reward[0], rule, ridge, error=error[0])
    pull = (np.array(path.weight) * c) @ x[0, :, 0]
    norm = math.sqrt(pull @ np.linalg.solve(state.precision[0], pull)) * (1 - 1e-9)
    assert norm <= math.sqrt(state.sums[0, 2])
    assert norm <= state.sums[0, 3]
    assert norm <= alpha * budget
    assert state.sums[0, 3] <= alpha * error.sum() * (1 + 1e-9)


def test_weights_stay_right_after_the_inverse_is_made_anew():
    x, reward, error, _ = problem(5, rounds=3000, arms=2, dim=4)
    x[0, 1000:1060] *= 30.0  # wide rounds on both sides of a refresh
    rule = Rule(alpha=0.02, budget=10.0)
    action, gamma, state = pp.policies.play_horizon(
        x, reward, robust(rule, 4), ridge=0.5, error=error
    )
    truth = dense(x[0], reward[0], rule, 0.5, error=error[0])
    assert np.mean(np.array(truth.weight[1024:]) < 1) > 0.2
    assert_array_equal(action[0], truth.action)
    assert_allclose(state.precision[0], truth.sigma, rtol=1e-9, atol=1e-9)
    assert_allclose(state.inverse[0] @ truth.sigma, np.eye(4), atol=1e-8)
    assert_allclose(np.sqrt(gamma[0]), truth.root, rtol=1e-8)
    assert 0 < state.drift[0] < 1e-9


def test_if_no_round_is_wide_it_is_the_corrected_radius_to_the_last_bit():
    x, reward, error, _ = problem(1, runs=3, rounds=1100)
    plain = pp.corrected(sigma=0.3, theta_bound=1.2)
    wide = pp.policies.robust(sigma=0.3, theta_bound=1.2, budget=1e9, dim=3, alpha=1e12)
    one, two = (pp.policies.play_horizon(x, reward, r, error=error) for r in (plain, wide))
    assert_array_equal(one[0], two[0])
    assert_array_equal(one[1], two[1])
    same(one[2], two[2])


def test_the_printed_form_is_played_literally():
    x, reward, error, _ = problem(2)
    radius = pp.policies.robust_paper(noise_sd=0.2, feature_bound=4.0, budget=6.0, dim=3, delta=0.1)
    action, gamma, state = pp.policies.play_horizon(x, reward, radius, ridge=2.0, error=error)
    t = np.arange(60)
    grown = np.log(4 * np.maximum(t, 1) ** 2 / 0.1) + 3 * np.log(1 + t * 16.0 / (3 * 2.0))
    assert_allclose(
        gamma[0], 3 * 2.0 + 6 * 2.2**2 * grown + 3 * 3.0, rtol=1e-12
    )  # alpha C = sqrt d
    sigma = 2.0 * np.eye(3)
    for now, a in zip(x[0], action[0], strict=True):
        u = math.sqrt(now[a] @ np.linalg.solve(sigma, now[a]))
        sigma += min(1.0, math.sqrt(3) / 6.0 / u) * np.outer(now[a], now[a])
    assert_allclose(state.precision[0], sigma, rtol=1e-9, atol=1e-12)


# --- one decision at a time ---------------------------------------------------------------------


def test_single_steps_are_the_whole_horizon_to_the_last_bit():
    x, reward, error, _ = problem(3, rounds=1100)
    radius = robust(Rule(alpha=0.05, budget=20.0))
    action, gamma, whole = pp.policies.play_horizon(x, reward, radius, error=error)
    state = pp.policies.init(3, 1.0)
    for t in range(1100):
        choice = pp.policies.decide(state, x[0, t], radius, error=error[0, t])
        assert (choice.action, choice.gamma) == (action[0, t], gamma[0, t])
        state = pp.policies.update(state, choice, reward[0, t, choice.action])
    same(state, whole.one(0))


def test_a_robust_policy_online_plays_the_whole_horizon():
    history, _ = linear_history(seed=1)
    law = pp.linear_lags(3).fit(history, seed=0)
    features = pp.Features(
        lambda s, w, a: np.column_stack([np.ones(len(s)), s, s * a]), 2, ("1", "S", "S*a")
    )
    s = history.grid.s.reshape(-1, 1)[:1100]
    x = np.stack([features(s, s, a) for a in range(2)], axis=1)[None]
    _, reward, error, _ = problem(4, rounds=1100, arms=2)
    radius = robust(Rule(alpha=0.05, budget=20.0))
    bot = pp.PulseUCB(law, features, radius)
    bot.observe(s[0])
    bot.observe(s[1])
    action, gamma, whole = pp.policies.play_horizon(
        x[:, 2:], reward[:, 2:], radius, error=error[:, 2:]
    )
    for t in range(2, 1100):
        choice = bot.act(s[t], error=error[0, t])
        assert choice.action == action[0, t - 2]
        assert choice.gamma == pytest.approx(gamma[0, t - 2], rel=1e-15)
        bot.learn(choice, reward[0, t, choice.action])
    same(bot.state, whole.one(0))


def test_the_parts_of_a_robust_radius_add_up_to_what_is_played():
    x, reward, error, _ = problem(6, arms=1)
    radius = robust(Rule(alpha=0.1, budget=30.0))
    _, gamma, _ = pp.policies.play_horizon(x, reward, radius, error=error)
    total = radius.split(x[0, :, 0], error[0, :, 0]).sum(1)
    assert_allclose(total[:-1], np.sqrt(gamma[0, 1:]), rtol=1e-9)


# --- theta* in the ball -------------------------------------------------------------------------


def test_theta_is_covered_although_some_rewards_are_corrupted():
    runs, rounds, sd = 400, 200, 0.1
    rng = np.random.default_rng(0)
    theta = np.array([0.6, -0.5, 0.4])
    x = rng.standard_normal((runs, rounds, 3, 3)) / math.sqrt(3)
    error = np.zeros((runs, rounds, 3))
    error[rng.random((runs, rounds)) < 0.3] = 1.0
    # against theta*: what looks good pays less, what looks bad pays more
    corrupted = x @ theta - error * np.sign(x @ theta) + sd * rng.standard_normal(error.shape)
    budget = float(error[..., 0].sum(1).max())
    # alpha above its default, or weights alone would keep theta* in the ball
    size = float(np.linalg.norm(theta))
    radius = pp.policies.robust(sigma=sd, budget=budget, dim=3, theta_bound=size, alpha=0.3)
    weigh = lambda u: np.minimum(1.0, radius.weight / u)  # noqa: E731
    held = []
    for told in (error, np.zeros_like(error)):
        blind = radius if told.any() else replace(radius, cap=0.0)
        action, gamma, _ = pp.policies.play_horizon(x, corrupted, blind, ridge=0.05, error=told)
        held.append(always_inside(x, corrupted, action, gamma, theta, 0.05, weigh).sum())
    assert held[0] >= binomial_floor(runs, 0.95)
    assert held[0] >= 0.95 * runs
    assert held[1] < binomial_floor(runs, 0.95)


BAD = {
    "robust: budget": {"budget": 0.0},
    "robust: budget must": {"budget": np.nan},
    "robust: dim": {"dim": 0},
    "robust: dim must": {"dim": 2.5},
    "robust: alpha": {"alpha": -1.0},
    "robust: alpha must": {"alpha": np.inf},
    "sigma": {"sigma": -0.1},
    "delta": {"delta": 1.0},
    "theta_bound": {"theta_bound": 0.0},
}


@pytest.mark.parametrize("says", BAD)
def test_a_setting_out_of_range_is_named(says):
    with pytest.raises(pp.errors.SettingError, match=says):
        pp.policies.robust(**({"sigma": 1.0, "budget": 1.0, "dim": 2} | BAD[says]))
    with pytest.raises(pp.errors.SettingError, match="robust_paper: budget"):
        pp.policies.robust_paper(noise_sd=0.1, feature_bound=1.0, budget=-1.0, dim=2)
