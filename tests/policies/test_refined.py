"""Refinements of the corrected radius: tighter bonuses of each arm, and errors learned about."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

import pulse_pyro as pp
from pulse_pyro.policies.kernels import NOTHING
from pulse_pyro.policies.linear import NO_ERROR, NO_MASK, run_kernel
from tests.helpers import binomial_floor, linear_history
from tests.policies.helpers import Rule, always_inside, dense

SEED, RIDGE = st.integers(0, 2**32 - 1), st.sampled_from([0.2, 1.0, 7.0])
FLAGS = list(itertools.product([False, True], repeat=3))
WA = pp.Features(
    lambda s, w, a: np.column_stack([np.ones(len(s)), s, w, w * a]), 2, ("1", "S", "W", "Wa")
)


def problem(seed):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((1, 40, 3, 3))
    reward = x @ rng.uniform(-0.5, 0.5, 3) + 0.3 * rng.standard_normal((1, 40, 1))
    reward[:, 5::9] = np.nan
    return x, reward, rng.exponential(0.2, (1, 40, 3)), rng


def rule(flags, **more):
    return Rule(bias=flags[0], ridge=flags[1], optimistic=flags[2], size=0.8, sigma=0.4, **more)


def radius(r):
    plain = pp.corrected(sigma=r.sigma, delta=r.delta, theta_bound=r.size)
    if np.isfinite(r.alpha):
        plain = replace(plain, weight=r.alpha, cap=r.alpha * r.budget)
    return plain.refined(bias_per_arm=r.bias, ridge_per_arm=r.ridge, optimistic=r.optimistic)


def agree(found, truth):
    action, gamma, state = found
    assert_array_equal(action[0], truth.action)
    assert_allclose(np.sqrt(gamma[0]), truth.root, rtol=1e-9)
    assert_allclose([math.sqrt(state.sums[0, 2]), state.sums[0, 3]], truth.terms[:2], rtol=1e-9)
    assert_allclose(state.theta[0], truth.theta, rtol=1e-7, atol=1e-9)


# --- against the formulas -----------------------------------------------------------------------


@pytest.mark.parametrize("flags", FLAGS, ids=str)
@settings(max_examples=8)
@given(SEED, RIDGE, st.sampled_from([math.inf, 0.3]))
def test_the_refined_index_with_errors_given(flags, seed, ridge, alpha):
    x, reward, error, _ = problem(seed)
    own = rule(flags, alpha=alpha, budget=math.inf if alpha == math.inf else float(error.sum()))
    found = pp.policies.play_horizon(x, reward, radius(own), ridge=ridge, error=error)
    agree(found, dense(x[0], reward[0], own, ridge, error=error[0]))


@pytest.mark.parametrize("flags", FLAGS, ids=str)
@settings(max_examples=8)
@given(SEED, RIDGE, st.sampled_from(["shared", "by round"]))
def test_the_refined_index_with_errors_learned_about(flags, seed, ridge, kind):
    x, reward, _, rng = problem(seed)
    eps, shape = rng.exponential(0.01, (1, 40, 2)), (1, 1) if kind == "shared" else (1, 40)
    slopes = rng.standard_normal((*shape, 3, 2, 3))
    reward[:, :20] *= 0.1  # what is learned later would widen what was learned before
    own = Rule(bias=flags[0], ridge=flags[1], optimistic=flags[2], size=3.0, sigma=0.1)
    told = pp.calibration.Sensitivity(eps, slopes)
    found = pp.policies.play_horizon(x, reward, radius(own), ridge=ridge, error=told)
    flat = slopes[0, 0] if kind == "shared" else slopes[0]
    agree(found, dense(x[0], reward[0], own, ridge, eps=eps[0], slopes=flat))


@pytest.mark.parametrize("bias", [False, True])
def test_what_is_taught_are_the_true_features_and_they_carry_no_error(bias):
    x, reward, error, rng = problem(0)
    true = x + 0.3 * rng.standard_normal(x.shape)
    own = rule((bias, bias, False))
    found = pp.policies.play_horizon(x, reward, radius(own), error=error, taught=true)
    agree(found, dense(x[0], reward[0], own, taught=true[0]))
    assert found[2].sums[0, 2:4].tolist() == [0.0, 0.0]
    hidden = true.copy()
    hidden[0, ::2, :, 0] = np.nan  # there the scored features are learned from, with their error
    mixed = pp.policies.play_horizon(x, reward, radius(own), error=error, taught=hidden)
    played = np.flatnonzero(np.isfinite(reward[0, :, 0]) & (np.arange(40) % 2 == 0))
    due = (error[0, played, mixed[0][0, played]] ** 2).sum()
    assert mixed[2].sums[0, 2] == pytest.approx(due, rel=1e-12)


@settings(max_examples=40)
@given(SEED, st.floats(0.01, 50.0), st.integers(1, 30), st.integers(1, 5))
def test_the_bonus_of_an_arm_is_never_wider(seed, ridge, rounds, dim):
    rng = np.random.default_rng(seed)
    x, e = rng.standard_normal((rounds, dim)), rng.exponential(size=rounds)
    played, pay, error = x[None, :, None], np.zeros((1, rounds, 1)), e[None, :, None]
    state = pp.policies.play_horizon(
        played, pay, pp.corrected(sigma=1.0), ridge=ridge, error=error
    )[2]
    bias = min(math.sqrt(state.sums[0, 2]), state.sums[0, 3])
    arm = rng.standard_normal(dim)
    v = state.inverse[0] @ arm
    width = math.sqrt(arm @ v)
    assert e @ np.abs(x @ v) <= bias * width * (1 + 1e-9)
    assert ridge * math.sqrt(v @ v) <= math.sqrt(ridge) * width * (1 + 1e-9)


@pytest.mark.parametrize(("extra", "arm"), [(0.0999, 0), (0.1001, 1)])
def test_optimism_adds_the_error_of_an_arm_and_nothing_else(extra, arm):
    x = np.array([[1.0, 0.0], [0.9, 0.0]])[None, None]  # indices S = 1 and 0.9 at the start
    error = np.array([[[0.3, 0.3 + extra]]])
    plain = pp.corrected(sigma=1.0)
    keen = plain.refined(bias_per_arm=False, ridge_per_arm=False, optimistic=True)
    assert pp.policies.play_horizon(x, np.zeros((1, 1, 2)), keen, error=error)[0][0, 0] == arm
    assert pp.policies.play_horizon(x, np.zeros((1, 1, 2)), plain, error=error)[0][0, 0] == 0


# --- errors learned about -----------------------------------------------------------------------


def spent(x, reward, eps, slopes):
    """E_t of the arm played, with S = 1, straight from the compiled loop."""
    runs, rounds, arms, dim = x.shape
    e = np.zeros((runs, rounds))
    extra = NOTHING._replace(
        eps=eps, slopes=slopes, spent=e, kappa=np.full((runs, arms, eps.shape[2]), np.inf)
    )
    plain = pp.corrected(sigma=0.2)
    run_kernel(pp.policies.init(dim, 1.0, (runs,)), x, reward, NO_ERROR, NO_MASK, plain, extra)
    return e


def one_arm(seed, rounds=60):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((4, rounds, 1, 3))
    reward = x @ [0.9, 0.0, 0.1] + 0.2 * rng.standard_normal((4, rounds, 1))
    return x, reward, np.full((4, rounds, 1), 0.02), rng.standard_normal((1, 1, 1, 1, 3))


@settings(max_examples=20)
@given(SEED)
def test_what_was_learned_about_constant_slopes_is_never_lost(seed):
    x, reward, eps, slopes = one_arm(seed)
    kept, anew = (spent(x, reward, eps, m) for m in (slopes, np.repeat(slopes, 60, axis=1)))
    size = 0.02 * np.linalg.norm(slopes)
    assert (np.diff(kept, axis=1) <= 0).all()
    assert_allclose(kept[:, 0], size, rtol=1e-12)
    assert (kept <= anew * (1 + 1e-12)).all()
    assert (anew <= size * (1 + 1e-12)).all()


def test_what_was_learned_stands_although_later_rewards_say_more():
    x, reward = np.ones((1, 60, 1, 1)), np.zeros((1, 60, 1))
    reward[:, 30:] = 1.0
    eps, slopes = np.full((1, 60, 1), 0.01), np.ones((1, 1, 1, 1, 1))
    kept, anew = (spent(x, reward, eps, m)[0] for m in (slopes, np.repeat(slopes, 60, axis=1)))
    assert_array_equal(kept[31:], kept[31])
    assert kept[-1] < 0.01 * 0.5 < anew[-1]


def test_slopes_that_vary_start_from_the_ball_again():
    x, reward, eps, _ = one_arm(0)
    slopes = np.zeros((1, 60, 1, 1, 3))
    slopes[:, ::2, ..., 1], slopes[:, 1::2, ..., 0] = 1.0, 1.0  # worth 0, worth 0.9
    anew = spent(x, reward, eps, slopes)
    assert (anew[:, 51::2] > 0.02 * 0.8).all()
    assert (anew[:, 50::2] < 0.02 * 0.8).all()


def test_theta_is_covered_with_errors_learned_about_under_a_biased_law():
    runs, rounds, by = 300, 150, 0.1
    rng = np.random.default_rng(0)
    theta = np.array([0.1, 0.1, 0.2, 0.8])
    size = float(np.linalg.norm(theta))
    s, w = rng.standard_normal((2, runs, rounds))
    mean, x = (
        np.stack([np.stack([1 + 0 * s, s, v, v * a], -1) for a in (0, 1)], 2) for v in (w, w + by)
    )
    reward = mean @ theta + 0.1 * rng.standard_normal((runs, rounds, 1))
    slopes = np.array([[0, 0, 1.0, 0], [0, 0, 1.0, 1.0]])[None, None, :, None]
    rule, held = pp.corrected(sigma=0.1, theta_bound=size), []
    for refine in (False, True):
        used = rule.refined(optimistic=True) if refine else rule
        for eps in (by, 0.0):
            told = pp.calibration.Sensitivity(np.full((runs, rounds, 1), eps), slopes)
            action, gamma, state = pp.policies.play_horizon(x, reward, used, ridge=0.1, error=told)
            held.append(always_inside(x, reward, action, gamma, theta, 0.1).sum())
            most = (eps * size * np.sqrt(1 + action)) ** 2
            if eps:  # something was learned about what W is worth
                assert (state.sums[:, 2] < 0.98 * most.sum(1)).all()
    assert min(held[0], held[2]) >= binomial_floor(runs, 0.95)
    assert max(held[1], held[3]) < binomial_floor(runs, 0.95)


# --- one decision at a time ---------------------------------------------------------------------


@pytest.mark.parametrize("flags", FLAGS[1:], ids=str)
@pytest.mark.parametrize("reveal", [False, True])
def test_a_refined_policy_online_plays_the_whole_horizon(flags, reveal):
    history, _ = linear_history(seed=1)
    law = pp.linear_lags(1).fit(history, seed=0)
    s, w = (
        history.grid.s.reshape(-1, 1)[:300],
        history.grid.w.reshape(-1, 1)[:300],
    )  # memory 64, 128, 256
    rng = np.random.default_rng(0)
    x = pp.features.expected_features(law, WA, s[None], size=2, rng=rng).mean
    true = np.stack([WA(s, w, a) for a in range(2)], axis=1)[None]
    reward = true @ [0.1, 0.2, 0.1, 0.5] + 0.1 * rng.standard_normal((1, 300, 1))
    error = rng.exponential(0.3, (1, 300, 2))
    own = rule(flags)
    if reveal and own.optimistic:
        with pytest.raises(pp.errors.SettingError, match="taught goes with plain errors"):
            pp.policies.play_horizon(x, reward, radius(own), error=error, taught=true)
        return
    told = {"error": error, "taught": true if reveal else None}
    action, gamma, whole = pp.policies.play_horizon(x, reward, radius(own), **told)
    bot = pp.PulseUCB(law, WA, radius(own))
    for t in range(300):
        choice = bot.act(s[t], error=error[0, t])
        assert choice.action == action[0, t]
        assert choice.error == error[0, t, choice.action]
        assert_allclose(choice.gamma, gamma[0, t], rtol=1e-9)
        bot.learn(choice, reward[0, t, choice.action], w=w[t] if reveal else None)
    assert_allclose(bot.state.theta, whole.theta[0], rtol=1e-8, atol=1e-10)
    assert_allclose(bot.state.sums[:4], whole.sums[0, :4], rtol=1e-9)


def test_what_a_refined_rule_cannot_do_is_said():
    x, reward, _, _ = problem(0)
    told = pp.calibration.Sensitivity(np.ones((1, 40, 2)), np.ones((1, 1, 3, 2, 3)))
    plain = pp.corrected(sigma=1.0)
    for other in (pp.constant(1.0), pp.radius.gamma_paper(noise_sd=1.0, feature_bound=1.0)):
        with pytest.raises(pp.errors.SettingError, match="needs the corrected radius"):
            pp.policies.play_horizon(x, reward, other, error=told)
    with pytest.raises(pp.errors.SettingError, match="use play_horizon"):
        pp.policies.decide(pp.policies.init(3, 1.0), x[0, 0], plain.refined())
    with pytest.raises(pp.errors.SettingError, match="taught goes with plain errors"):
        pp.policies.play_horizon(x, reward, plain, error=told, taught=x)
    with pytest.raises(pp.errors.FeatureError, match="taught must have the shape of x"):
        pp.policies.play_horizon(x, reward, plain, taught=x[:, :4])
    for bad in (
        {"eps": told.eps[:, :5]},
        {"eps": -told.eps},
        {"slopes": told.slopes[..., :2]},
        {"slopes": np.ones((1, 7, 3, 2, 3))},
        {"slopes": told.slopes * np.nan},
    ):
        with pytest.raises(
            pp.errors.SettingError, match=r"play_horizon: (a Sensitivity|slopes|eps)"
        ):
            pp.policies.play_horizon(x, reward, plain, error=told._replace(**bad))
