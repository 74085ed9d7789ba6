import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import pulse_pyro as pp
from pulse_pyro._core.errors import FeatureError, RewardError, SettingError
from pulse_pyro.policies import clbbf_ucb as policy
from pulse_pyro.policies import moments
from pulse_pyro.policies.clbbf_ucb import (
    Exploration,
    archive_moments,
    arm_vectors,
    clbbf,
    clbbf_shared,
    clbbf_warm,
    shared_context,
)
from tests.helpers import linear_history


def problem(seed, runs=3, horizon=37, arms=3, dim=2, rate=(0.8, 0.5)):
    rng = np.random.default_rng(seed)
    z = rng.standard_normal((runs, horizon, arms, dim)) @ rng.standard_normal((dim, dim)) + 0.5
    mask = rng.random(z.shape) < np.resize(rate, dim)
    reward = z @ rng.standard_normal(dim) + 0.1 * rng.standard_normal((runs, horizon, arms))
    return z, mask, reward


def one_run(x, mask, reward, first, common=False, scale=1.0):
    """The algorithm as it is written down: one run, one round, one vector at a time."""
    horizon, arms, d = x.shape
    lam = (d + 1) * math.log(arms * horizon)
    n, n_j, n_ij, xi, z = 0, np.zeros(d), np.zeros((d, d)), np.zeros(d), np.zeros((d, d))
    v, b, history, xsum, actions = lam * np.eye(d + 1), np.zeros(d + 1), [], 0.0, []
    for t in range(horizon):
        for k in range(arms):
            m = mask[t, k].astype(float)
            filled = np.array([x[t, k, j] if mask[t, k, j] else 0.0 for j in range(d)])
            n, n_j, n_ij = n + m.sum(), n_j + m, n_ij + np.outer(m, m)
            xi, z = xi + filled, z + np.outer(filled, filled)
        count = arms * (t + 1)
        if common:
            p = max(1, n) / (d * count)
            nu = xi / (count * p)
            sigma = z / (count * p**2) - np.outer(nu, nu)
            sigma[np.arange(d), np.arange(d)] = np.diag(z) / (count * p) - nu**2
        else:
            p = min((c for c in n_j if c > 0), default=1) / count
            nu = xi / np.maximum(1, n_j)
            sigma = np.where(n_ij > 0, z / np.maximum(1, n_ij) - np.outer(nu, nu), 0.0)
            values, vectors = np.linalg.eigh(sigma)
            sigma = vectors @ np.diag(np.clip(values, 0, None)) @ vectors.T

        def extended(vector, seen, nu=nu, sigma=sigma):
            obs, mis = np.flatnonzero(seen), np.flatnonzero(~seen)
            out = np.where(seen, vector, nu)
            if len(obs) and len(mis):
                inverse = np.linalg.pinv(sigma[np.ix_(obs, obs)], rcond=1e-12)
                out[mis] += sigma[np.ix_(mis, obs)] @ inverse @ (vector[obs] - nu[obs])
            return np.r_[1.0, out]

        xh = [extended(x[t, k], mask[t, k]) for k in range(arms)]
        a = first
        if t > 0:
            if t & (t - 1) == 0:
                past = [(extended(vec, seen), r) for vec, seen, r in history]
                v = lam * np.eye(d + 1) + sum(np.outer(u, u) for u, _ in past)
                b = sum((r * u for u, r in past), np.zeros(d + 1))
                xsum = sum(math.sqrt(u @ np.linalg.solve(v, u)) for u, _ in past)
            beta = math.sqrt((d + 1) * math.log((t + 2) * horizon))
            log = math.log(horizon) * math.log(arms * horizon)
            beta += xsum * d * p**-1.5 * math.sqrt(log / ((t + 2) * arms))
            beta += math.sqrt(d * math.log(arms * horizon))
            theta = np.linalg.solve(v, b)
            width = [math.sqrt(u @ np.linalg.solve(v, u)) for u in xh]
            a = int(np.argmax(np.array(xh) @ theta + scale * beta * np.array(width)))
        actions.append(a)
        if not np.isnan(reward[t, a]):
            history.append((x[t, a], mask[t, a], reward[t, a]))
            v, b = v + np.outer(xh[a], xh[a]), b + reward[t, a] * xh[a]
    return actions


def oful(x, reward, first, radius, ridge):
    """The plain core on (1, x), its first arm imposed: round 0 is drawn, not chosen."""
    x, reward = np.concatenate([np.ones((*x.shape[:3], 1)), x], -1), reward.copy()
    at = np.arange(len(x)), 0, first
    x[:, 0], reward[:, 0] = x[at][:, None], reward[at][:, None]
    return pp.policies.play_horizon(x, reward, radius, ridge=ridge)[0]


def test_golden_radius():
    found = moments.MomentEstimate(np.zeros(3), np.zeros((3, 3)), np.array(0.75), np.array(2 * 6.0))
    bias = 2 * policy.imputation_error(found, 2, 3, 100)
    assert_allclose(bias, 12.1951504922, rtol=1e-11)
    assert_allclose(policy.clbbf_radius(np.array(5), 100, 2, 3, 0.0), 5.1190156613 + 3.9868473886)
    assert_allclose(policy.clbbf_radius(np.array(5), 100, 2, 3, bias), 21.3010135420, rtol=1e-11)


SIZES = [(1, 37), (2, 37), (4, 37), *((2, horizon) for horizon in (1, 2, 3, 4, 5, 8, 9))]


@pytest.mark.parametrize("rates", ["each", "common"])
@pytest.mark.parametrize(("dim", "horizon"), SIZES)
@pytest.mark.parametrize("lost", [[], [0, 5, 6]])
def test_all_runs_at_once_play_as_one_round_at_a_time(dim, horizon, rates, lost):
    for seed, scale in enumerate((1.0, 0.05, 0.0)):
        x, mask, reward = problem(seed, dim=dim, horizon=horizon)
        reward[:, [t for t in lost if t < horizon]] = np.nan  # a lost reward teaches nothing
        found = clbbf(x, mask, reward, rates=rates, explore=Exploration(scale))
        for r in range(len(x)):
            args = x[r], mask[r], reward[r], found[r, 0]
            assert found[r].tolist() == one_run(*args, rates == "common", scale)


def test_the_first_arm_is_drawn_from_the_seed():
    found = clbbf(*problem(0, runs=400, horizon=2), explore=Exploration(seed=1))
    assert_array_equal(found[:, 0], pp.stream(1, "clbbf").integers(3, size=400))


def test_blocks_of_runs_do_not_matter(monkeypatch):
    whole = clbbf(*problem(3, runs=7))
    monkeypatch.setattr(policy, "BLOCK", 2 * 37 * 4)
    assert_array_equal(clbbf(*problem(3, runs=7)), whole)


@pytest.mark.parametrize("rates", ["each", "common"])
def test_hidden_values_unplayed_rewards_and_the_future_change_nothing(rates):
    x, mask, reward = problem(4, runs=4)
    found = clbbf(x, mask, reward, rates=rates)
    for value in (np.nan, np.inf, 0.0, 1e9, -7.0):
        assert_array_equal(clbbf(np.where(mask, x, value), mask, reward, rates=rates), found)
    unplayed = np.arange(3) != found[..., None]
    for value in (np.nan, 1e6):
        other = np.where(unplayed, value, reward)
        assert_array_equal(clbbf(x, mask, other, rates=rates), found)
    later = np.where(np.arange(37)[:, None, None] < 20, x, 3.0)
    assert_array_equal(clbbf(later, mask, reward, rates=rates)[:, :20], found[:, :20])


RADII = [
    pp.constant(0.7),
    pp.corrected(sigma=0.5),
    pp.radius.gamma_paper(noise_sd=0.1, feature_bound=0.1),
]


@pytest.mark.parametrize("radius", RADII, ids=lambda radius: radius.name)
def test_coordinates_never_observed_leave_oful_on_the_others(radius):
    x, mask, reward = problem(6, dim=3, horizon=150)
    mask[:] = [True, False, True]
    found = clbbf(x, mask, reward, explore=Exploration(radius, ridge=2.0))
    seen = x * [1.0, 0.0, 1.0]  # a column of 0 changes nothing but the dimension
    assert_array_equal(found[:, 1:], oful(seen, reward, found[:, 0], radius, 2.0)[:, 1:])


def world(env, runs=4, horizon=150):
    return env.world(runs, horizon, rng=pp.stream(0, "clbbf-test"))


def test_without_an_archive_only_what_is_seen_counts():
    w, explore = world(pp.envs.main_linear()), Exploration(pp.constant(2.0), ridge=1.0)
    shared = clbbf_shared(w.features, shared_context(w.s, 1, 150), w.reward, explore=explore)
    x, mask = arm_vectors(w.features, w.s[:, w.lead :], 1)
    assert_array_equal(shared, clbbf(x, mask, w.reward, explore=explore))
    w = world(pp.envs.w_times_action())  # here the arms look alike: the first one it is
    x, mask = arm_vectors(w.features, w.s[:, w.lead :], 1)
    assert not clbbf(x, mask, w.reward)[:, 1:].any()


@pytest.mark.parametrize("env", [pp.envs.main_linear(), pp.envs.w_times_action()])
def test_frozen_at_the_archive_it_is_least_squares_imputation_and_oful(env):
    w, radius = world(env), pp.constant(2.0)
    history = env.archive(40, 60, rng=pp.stream(1, "clbbf-test"))
    found = clbbf_warm(
        w.features,
        w.s,
        w.reward,
        history,
        summary=env.summary,
        frozen=True,
        explore=Exploration(radius, ridge=1.0),
    )

    rows = history.rows(pp.data.Stack(pp.data.Identity(), env.summary))
    now = pp.data.Stack(pp.data.Identity(), env.summary)(w.s)[:, w.lead :].reshape(600, -1)
    fit, new = (np.c_[np.ones(len(part)), part] for part in (rows.x, now))
    guess = new @ np.linalg.lstsq(fit, rows.w)[0]
    maps = [w.features(now[:, :1], guess, a)[:, 1:] for a in range(2)]
    x = np.stack(maps, 1).reshape(4, 150, 2, 3)
    assert_array_equal(found[:, 1:], oful(x, w.reward, found[:, 0], radius, 1.0)[:, 1:])


def test_one_archive_per_run_is_each_run_on_its_own():
    w = world(pp.envs.main_linear(), runs=3)
    archives = [pp.envs.main_linear().archive(4, 20, rng=pp.stream(i)) for i in range(3)]
    explore, context = Exploration(0.1), shared_context(w.s, 1, 150, pp.Lags(3))
    found = clbbf_warm(w.features, w.s, w.reward, archives, summary=pp.Lags(3), explore=explore)
    for r, one in enumerate(archives):
        start = archive_moments(one, pp.Lags(3))
        alone = clbbf_shared(w.features, context, w.reward, start=start, explore=explore)
        assert_array_equal(found[r], alone[r])


def test_a_feature_map_that_is_not_affine_is_averaged_over_what_is_missing(monkeypatch):
    made = []
    home = "pulse_pyro.policies.clbbf_ucb.play_imputed"
    monkeypatch.setattr(home, lambda make, *_: made.append(make(slice(None))))
    rng = np.random.default_rng(0)
    old = rng.multivariate_normal([0.5, 1.0], [[1.0, 0.5], [0.5, 2.0]], size=40)[None]
    start = moments.tally(old, np.ones(old.shape, bool))
    y = np.stack([rng.standard_normal((2, 6)), np.full((2, 6), np.nan)], -1)
    mask = ~np.isnan(y)
    bent = pp.Features(lambda s, w, a: np.c_[s**0, s, w**2 * a, w * a], 2, ("1", "S", "W2a", "Wa"))
    clbbf_shared(bent, policy.Context(y, mask, 1, 1), np.zeros((2, 6, 2)), start=start)
    today, again, error = made[0]
    sums = moments.running(y[:, :, None], mask[:, :, None], start)
    nu, cov, _, _ = moments.estimate(sums)
    total = 41.0 + np.arange(6)
    expected = 3 * (40 / total) ** -1.5 * math.log(6) / np.sqrt(total + 1)
    assert_allclose(error, [expected, expected])
    slope = cov[..., 0, 1] / cov[..., 0, 0]
    mean = nu[..., 1] + slope * (y[..., 0] - nu[..., 0])
    var = cov[..., 1, 1] - slope * cov[..., 0, 1]
    draws = pp.stream(0, "clbbf", "draws").standard_normal((64, 2, 1))[:, 1, 0]
    square = mean**2 + var * (draws**2).mean()
    assert_allclose(today[:, :, 1], np.stack([y[..., 0], square, mean], -1))
    assert_array_equal(today[:, :, 0, 1:], 0.0)
    then = nu[:, 3, None, 1] + slope[:, 3, None] * (y[:, :3, 0] - nu[:, 3, None, 0])
    assert_allclose(again(3, np.ones((2, 3), int))[..., 2], then)  # today's moments, past rows


def test_hidden_values_in_the_shared_form_change_nothing():
    w = world(pp.envs.main_linear(), runs=2, horizon=40)
    start, context = archive_moments(linear_history(lags=1)[0]), shared_context(w.s, 1, 40)
    mask = context.mask & (np.arange(40) % 3 > 0)[:, None]  # S is not always seen either
    bent = pp.Features(lambda s, w, a: np.c_[s**0, s * a, w, s**2 * a], 2, tuple("abcd"))
    told = [np.where(mask, context.y, value) for value in (np.nan, np.inf, 3.0, w.s[:, 2:] * 9)]
    clbbf = [context._replace(y=y, mask=mask) for y in told]
    found, *others = [clbbf_shared(bent, c, w.reward, start=start) for c in clbbf]
    for other in others:
        assert_array_equal(other, found)


def test_bad_input_gets_a_sentence():
    x, mask, reward = problem(0)
    for error, text, bad in (
        (RewardError, "reward must be", (x, mask, reward[:, 1:])),
        (RewardError, "reward must be", (x, mask, reward + np.inf)),
        (FeatureError, "at least 2 actions", (x[:, :, :1], mask[:, :, :1], reward[:, :, :1])),
        (FeatureError, "marked observed", (x * np.nan, mask, reward)),
        (FeatureError, "rescale", (x * 1e9, mask, reward)),
    ):
        with pytest.raises(error, match=text):
            clbbf(*bad)
    weighted = pp.policies.robust(sigma=1.0, budget=1.0, dim=2)
    for bad in (("wide",), (-1.0,), (1.0, 0.0), (weighted,), (pp.thompson(),)):
        with pytest.raises(SettingError, match="Exploration"):
            Exploration(*bad)
    w, (history, _) = world(pp.envs.main_linear(), runs=3, horizon=9), linear_history()
    with pytest.raises(SettingError, match="2 archives were given for 3 runs"):
        clbbf_warm(w.features, w.s, w.reward, [history, history])
    with pytest.raises(SettingError, match="S columns"):
        clbbf_warm(w.features, w.s.repeat(2, -1), w.reward, history)
    with pytest.raises(FeatureError, match="at least one each"):
        clbbf_shared(w.features, shared_context(w.s, 1, 9)._replace(s_dim=2), w.reward)
