"""What stands for errors: those handed over, or the budget; and a budget from a calibration."""

import math
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

import pulse_pyro as pp
from tests.calibration.helpers import LINEAR, Shifted
from tests.helpers import binomial_floor, linear_history
from tests.policies.helpers import Rule, always_inside, dense
from tests.policies.test_robust import problem

RULE = Rule(sigma=0.3, size=1.2, alpha=0.4, budget=2.0)
RADIUS = pp.policies.robust(sigma=0.3, theta_bound=1.2, budget=2.0, dim=3, alpha=0.4)
CAP = 0.4 * 2.0


def roots(x, reward, rule, bias):
    """sqrt(gamma) before each round with B_t = bias from the second on, played densely."""
    path = dense(x, reward, replace(rule, budget=bias / rule.alpha), error=np.full(x.shape[:2], 9))
    return np.array(path.root), np.array(path.action)


# --- errors handed over, or the budget ----------------------------------------------------------


def test_without_errors_the_budget_stands_for_them():
    x, reward, _, _ = problem(0)
    action, gamma, state = pp.policies.play_horizon(x, reward, RADIUS)
    root, played = roots(x[0], reward[0], RULE, CAP)
    assert_array_equal(action[0], played)
    assert_allclose(np.sqrt(gamma[0]), root, rtol=1e-9)
    noise = 0.3 * math.sqrt(state.logdet[0] + 2 * math.log(20))
    due = math.hypot(1.2, noise) + CAP
    last = pp.policies.decide(state.one(0), x[0, 0], RADIUS).gamma
    assert math.sqrt(last) == pytest.approx(due, rel=1e-12)
    at = {"dim": 3, "ridge": 1.0, "rounds": 60, "logdet": float(state.logdet[0])}
    assert RADIUS.at(**at) == pytest.approx(due, rel=1e-12)
    added = replace(RADIUS, kind=pp.corrected(sigma=0.3, form="sum").kind)
    assert added.at(**at) == pytest.approx(1.2 + noise + CAP, rel=1e-12)


def test_errors_that_are_handed_over_are_used():
    x, reward, error, _ = problem(0)
    error *= 0.01
    _, gamma, _ = pp.policies.play_horizon(x, reward, RADIUS, error=error)
    truth = dense(x[0], reward[0], RULE, error=error[0])
    assert min(truth.terms[:2]) < 0.5 * CAP
    assert_allclose(np.sqrt(gamma[0]), truth.root, rtol=1e-9)


def test_one_round_without_an_error_brings_the_budget_back():
    x, reward, error, _ = problem(1)
    error *= 0.01
    error[:, 30] = np.inf
    _, gamma, state = pp.policies.play_horizon(x, reward, RADIUS, error=error)
    _, told, _ = pp.policies.play_horizon(
        x, reward, RADIUS, error=np.where(np.isinf(error), 0.0, error)
    )
    assert_array_equal(gamma[0, :31], told[0, :31])
    _, cap, _ = pp.policies.play_horizon(x[:, :32], reward[:, :32], RADIUS)
    noise = math.sqrt(gamma[0, 31]) - CAP
    assert noise < math.sqrt(told[0, 31])
    assert (gamma[0, 31:] > told[0, 31:]).all()
    assert np.isinf(state.sums[0, 2:4]).all()
    assert math.sqrt(cap[0, 1]) > CAP
    with pytest.raises(pp.errors.SettingError, match="finite"):
        pp.policies.play_horizon(x, reward, pp.corrected(sigma=1.0), error=error)


def test_a_round_without_features_or_in_a_new_direction_keeps_the_bound_a_number():
    """0 times infinity is no number: an empty round moves nothing, whatever its error."""
    x = np.zeros((1, 6, 2, 3))
    for t, k in enumerate([0, None, 1, 2, 0, 1]):
        if k is not None:
            x[0, t, :, k] = [1.0, 2.0]
    action, gamma, _ = pp.policies.play_horizon(x, np.ones((1, 6, 2)), RADIUS)
    assert (action >= 0).all()
    assert np.isfinite(gamma).all()
    assert (np.sqrt(gamma[0, 1:]) > CAP).all()


def test_single_steps_without_errors_are_the_whole_horizon():
    x, reward, _, _ = problem(2)
    action, gamma, whole = pp.policies.play_horizon(x, reward, RADIUS)
    state = pp.policies.init(3, 1.0)
    for t in range(60):
        choice = pp.policies.decide(state, x[0, t], RADIUS)
        assert (choice.action, choice.gamma) == (action[0, t], gamma[0, t])
        assert choice.error == math.inf
        state = pp.policies.update(state, choice, reward[0, t, choice.action])
    for ours, theirs in zip(state[:5], whole.one(0)[:5], strict=True):
        assert_array_equal(ours, theirs)
    with pytest.raises(pp.errors.SettingError, match="error bound"):
        pp.policies.update(state, choice, 1.0, error=np.inf)
    plain = pp.policies.decide(pp.policies.init(3, 1.0), x[0, 0], pp.corrected(sigma=1.0))
    assert plain.error == 0.0
    with pytest.raises(pp.errors.SettingError, match="error bound"):
        pp.policies.update(state, plain._replace(error=np.inf), 1.0)


@pytest.mark.parametrize("tell", ["never", "always", "at times"])
def test_a_policy_decides_by_what_it_is_told(tell):
    history, _ = linear_history(seed=1)
    law = pp.linear_lags(1).fit(history, seed=0)
    fn = lambda s, w, a: np.column_stack([np.ones(len(s)), w, w * a])  # noqa: E731
    features = pp.Features(fn, 2, ("1", "W", "Wa"))
    s = history.grid.s.reshape(-1, 1)[:80]
    x = pp.features.expected_features(
        law, features, s[None], size=2, rng=np.random.default_rng(0)
    ).mean
    reward, error = (0.1 * np.random.default_rng(k).random((1, 80, 2)) for k in (1, 2))
    said = {"never": [], "always": range(80), "at times": range(0, 80, 3)}[tell]
    known = np.full((1, 80, 2), np.inf)
    known[:, list(said)] = error[:, list(said)]
    action, gamma, whole = pp.policies.play_horizon(
        x, reward, RADIUS, error=None if tell == "never" else known
    )
    bot = pp.PulseUCB(law, features, RADIUS)
    for t in range(80):
        choice = bot.act(s[t], error=error[0, t] if t in said else None)
        assert choice.action == action[0, t]
        assert choice.error == known[0, t, choice.action]
        assert choice.gamma == pytest.approx(gamma[0, t], rel=1e-9)
        bot.learn(choice, reward[0, t, choice.action])
    assert_allclose(bot.state.sums[:4], whole.sums[0, :4], rtol=1e-9)
    assert np.isinf(bot.state.sums[2]) == (tell != "always")


def test_a_revealed_w_costs_nothing_of_the_budget():
    x, reward, _, _ = problem(3)
    true = x + 0.1
    _, gamma, state = pp.policies.play_horizon(x, reward, RADIUS, taught=true)
    assert_array_equal(state.sums[0, 2:4], 0.0)
    part = true.copy()
    part[0, 20] = np.nan  # not revealed: its error is not known
    _, other, _ = pp.policies.play_horizon(x, reward, RADIUS, taught=part)
    assert_array_equal(other[0, :21], gamma[0, :21])
    assert (other[0, 21:] > gamma[0, 21:]).all()


# --- the parts of the radius --------------------------------------------------------------------


@pytest.mark.parametrize("form", ["sharp", "sum"])
@pytest.mark.parametrize("told", [True, False])
def test_the_parts_of_a_robust_radius_are_ridge_noise_and_errors(told, form):
    x, reward, error, _ = problem(4, arms=1)
    rule = replace(RADIUS, kind=pp.corrected(sigma=0.3, form=form).kind)
    error *= 0.02
    path = dense(x[0], reward[0], RULE, error=error[0])
    parts = rule.split(x[0, :, 0], error[0, :, 0] if told else None)
    logdet = [
        np.linalg.slogdet(np.eye(3) + (x[0, :t, 0].T * np.array(path.weight[:t])) @ x[0, :t, 0])[1]
        for t in range(1, 61)
    ]
    assert_allclose(parts[:, 0], 1.2)
    noise = 0.3 * np.sqrt(np.array(logdet) + 2 * np.log(20))
    due = noise if form == "sum" else np.hypot(1.2, noise) - 1.2
    assert_allclose(parts[:, 1], due, rtol=1e-9)
    _, gamma, _ = pp.policies.play_horizon(x, reward, rule, error=error if told else None)
    assert_allclose(parts.sum(1)[:-1], np.sqrt(gamma[0, 1:]), rtol=1e-9)
    if told:
        assert parts[-1, 2] == pytest.approx(min(path.terms), rel=1e-9)
        assert parts[-1, 2] < 0.9 * CAP
    else:
        assert_allclose(parts[:, 2], CAP, rtol=1e-12)


def test_the_parts_of_the_printed_robust_radius_keep_its_budget_apart():
    x, _, _, _ = problem(5, arms=1)
    printed = pp.policies.robust_paper(noise_sd=0.2, feature_bound=4.0, budget=6.0, dim=3)
    plain = pp.radius.gamma_paper(noise_sd=0.2, feature_bound=4.0)
    parts, clean = printed.split(x[0, :, 0]), plain.split(x[0, :, 0])
    assert_allclose(parts[:, :2], clean[:, :2], rtol=1e-12)
    assert_array_equal(clean[:, 2], 0.0)
    assert_allclose(parts.sum(1) ** 2, clean.sum(1) ** 2 + 9.0, rtol=1e-12)  # 3 (alpha C)^2


# --- a budget from a calibration ----------------------------------------------------------------


def test_the_budget_is_a_bound_on_one_more_series(lagged):
    _, calibration, held_out = lagged
    e = calibration.reward_error(held_out.grid.s[:7, :40], theta_bound=1.5).max(-1)
    assert np.isnan(e[:, :18]).all()
    mean = e[:, 18:].mean(1)
    upper = mean.mean() + stats.t.ppf(0.9, 6) * mean.std(ddof=1) * math.sqrt(1 + 1 / 7)
    found = calibration.budget(held_out.grid.s[:7, :40], rounds=250, theta_bound=1.5, level=0.9)
    assert found == pytest.approx(250 * upper, rel=1e-12)
    plain = calibration.budget(rounds=10)
    assert plain == pytest.approx(calibration.budget(calibration.contexts, rounds=10), rel=1e-12)
    assert plain > 10 * np.nanmean(calibration.reward_error(calibration.contexts).max(-1))
    tight = calibration.budget(rounds=10, theta_bounds=[0, 0, 0.1, 0.1])
    assert 0 < tight < plain
    for bad in ({"rounds": 0}, {"rounds": 5, "level": 1.0}, {"rounds": 5, "theta_bound": -1.0}):
        with pytest.raises(pp.errors.SettingError, match=r"rounds|level|theta_bound"):
            calibration.budget(**bad)
    with pytest.raises(pp.errors.DataError, match="two series at least"):
        calibration.budget(held_out.grid.s[:1], rounds=5)
    with pytest.raises(pp.errors.DataError, match="two series at least"):
        calibration.budget(held_out.grid.s[:, :10], rounds=5)  # lags are not filled


def test_theta_is_covered_with_a_budget_from_the_calibration():
    """A law that is off by 0.5, rewards of its world; the rule is told no error, only C."""
    env, runs, rounds = pp.envs.w_times_action(), 40, 150
    theta = np.array(env.theta)
    size = float(np.linalg.norm(theta))
    sigma = pp.radius.noise_scale(reward_sd=0.05, context_sd=(theta[2] + theta[3]) * 0.1)
    held = {"whole": 0, "none": 0, "spent": 0}
    for seed in range(3):
        rng = np.random.default_rng(seed)
        fit, held_out = env.archive(130, 50, rng=rng).split(seed=seed)
        law = Shifted(pp.linear_lags(19).fit(fit, seed=0), 0.5)
        calibration = pp.calibrate(law, held_out, env.features, seed=seed, band=LINEAR)
        world = env.world(runs, rounds, rng=rng)
        x = pp.envs.pulse(world, law).x
        budget = calibration.budget(rounds=rounds, theta_bound=size)
        true = np.abs((world.phibar - x) @ theta).max(-1).sum(1)
        held["spent"] += int((true <= budget).sum())
        # alpha above its default, or weights alone would keep theta* in the ball
        rule = pp.policies.robust(sigma=sigma, budget=budget, dim=4, theta_bound=size, alpha=0.5)
        for name, own in (("whole", rule), ("none", replace(rule, cap=0.0))):
            action, gamma, state = pp.policies.play_horizon(x, world.reward, own)
            weigh = lambda u: np.minimum(1.0, 0.5 / u)  # noqa: E731
            inside = always_inside(x, world.reward, action, gamma, theta, weigh=weigh)
            held[name] += int(inside.sum())
            assert np.isfinite(gamma).all()
            assert np.isfinite(state.precision).all()
    assert held["spent"] >= binomial_floor(3 * runs, 0.9)
    assert held["whole"] >= binomial_floor(3 * runs, 0.9)
    assert held["none"] < binomial_floor(3 * runs, 0.9)
