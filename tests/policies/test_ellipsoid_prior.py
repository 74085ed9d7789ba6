"""Adaptive PULSE on the archive's ellipsoid: its features and ball by hand, and when it holds."""

import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import pulse_pyro as pp
from pulse_pyro.policies.adaptive import ellipsoid_prior
from pulse_pyro.policies.augmented import PSI_RIDGE
from pulse_pyro.policies.balls import ellipsoid_ball, ellipsoid_rounds, reward_noise
from pulse_pyro.policies.guard import Learner, play_guarded, spread_at
from tests.policies.helpers import archive, contexts, missing, mixed_features, w_features, world
from tests.policies.test_saved_policy import Plan, assert_same, play

WA, MIXED = w_features(1), mixed_features()
TRUST = {"reward_sd": 0.1, "theta_bound": 1.5}


@cache
def law(w_dim=1, units=20, seed=0):
    return pp.linear_lags(2).fit(archive(units, 6, w_dim, seed), pp.Exact(60), seed=0)


def adaptive(features=WA, w_dim=1, level=0.95, **more):
    own = law(w_dim)
    known = {} if w_dim == 1 else {"reference": archive(20, 6, w_dim)}
    return pp.AdaptivePulseUCB(own, features, prior=own.ellipsoid(level), **(TRUST | known | more))


def stream(bot, online, rounds):
    x, choices = [], []
    for row in online.s[0, : online.lead]:
        bot.observe(row)
    for t in range(rounds):
        choice = bot.act(online.s[0, online.lead + t])
        x.append(bot._x[0, 0].copy())
        choices.append(choice)
        bot.learn(choice, online.reward[0, t, choice.action])
    return choices, np.array(x)[None]


def test_features_are_phi_at_the_centre_and_slopes_times_psi():
    own = law()
    bot, found = adaptive(), own.ellipsoid()
    online = world(WA, contexts(1, 12, 9), 1)
    _, x = stream(bot, online, 10)
    z, mean = found.at(own, online.s)
    psi = found.psi(z)[:, 0]
    g = math.sqrt(3 / PSI_RIDGE)
    for t in range(10):
        w, u = mean[2 + t, 0], psi[2 + t]
        assert_allclose(x[0, t, 0], [1, w, 0, *g * u, *0 * u], rtol=1e-9, atol=1e-12)
        assert_allclose(x[0, t, 1], [1, w, w, *g * u, *g * u], rtol=1e-9, atol=1e-12)
    assert bot.scorer.names[3] == "W0~w0.0"
    # the centre is least squares, not the posterior mean
    assert np.abs(mean[2:] - own(online.s).mean()[2:]).max() > 1e-9


def radius_by_hand(bot, sigma, theta, rounds, scale, lam):
    """The radius from features with their own ridges, nothing rescaled."""
    ball, found = bot.core.ball, bot.scorer.ellipsoid
    d, size, psi_ridge = 3, ball.theta_bound, lam / scale**2
    back = np.diag([1.0] * d + [scale] * (len(theta) - d))  # x = back @ plain
    plain = np.linalg.inv(back) @ sigma @ np.linalg.inv(back)
    ridge = np.diag([lam] * d + [psi_ridge] * (len(theta) - d))
    logdet = np.linalg.slogdet(plain)[1] - np.linalg.slogdet(ridge)[1]
    grown = logdet + 2 * math.log(1 / ball.delta)
    inverse = np.linalg.inv(plain)[:d, :d]
    hat = theta[:d]
    chi2 = float(found.chi[0]) ** 2
    cost = np.diag([lam, lam + psi_ridge * chi2, lam + psi_ridge * chi2])  # w enters two of three
    most = math.sqrt(cost.max()) * size
    if not rounds:
        return most
    residual = math.sqrt(found.residual[0, 0])
    m = residual * np.array([[0, 1, 0], [0, 1, 1]])
    worst = size * max(np.linalg.norm(row) for row in m)
    r = math.sqrt(most**2 + (ball.noise**2 + worst**2) * grown)
    for _ in range(6):
        length = math.sqrt(hat @ cost @ hat) + r * math.sqrt(np.trace(cost @ inverse))
        part = max(
            min(size * np.linalg.norm(row), abs(row @ hat) + r * math.sqrt(row @ inverse @ row))
            for row in m
        )
        sigma2 = ball.noise**2 + part**2
        r = min(r, math.sqrt(min(most, length) ** 2 + sigma2 * grown))
    return r


def test_the_radius_is_the_formula_with_two_ridges():
    bot, online = adaptive(), world(WA, contexts(1, 82, 9), 1)
    lam, scale = bot.core.ridge, bot.scorer.scale
    ball = bot.core.ball
    assert lam == pytest.approx(3 * (ball.sigma / 1.5) ** 2)
    assert lam / scale**2 == pytest.approx(PSI_RIDGE * (ball.sigma / 1.5) ** 2)
    for row in online.s[0, :2]:
        bot.observe(row)
    for t in range(80):
        before = bot.state
        choice = bot.act(online.s[0, 2 + t])
        root = radius_by_hand(bot, before.precision, before.theta, t, scale, lam)
        assert_allclose(math.sqrt(choice.gamma), root, rtol=1e-7)
        assert choice.error == 0.0
        bot.learn(choice, online.reward[0, t, choice.action])


@pytest.mark.parametrize("w_dim", [1, 2])
def test_streaming_is_the_batch(w_dim):
    """To the last bit on the features it scored; the batch's own features agree up to rounding."""
    features = WA if w_dim == 1 else MIXED
    bot = adaptive(features, w_dim, advisor="greedy", slack=1.5)
    online = world(features, contexts(1, 102, 9), w_dim)
    choices, x = stream(bot, online, 100)
    scored, ball, lam = ellipsoid_prior(
        law(w_dim),
        features,
        law(w_dim).ellipsoid(),
        None if w_dim == 1 else archive(20, 6, w_dim),
        noise=reward_noise(reward_sd=0.1),
        theta_bound=1.5,
    )
    assert_allclose(scored.horizon(online.s, online.lead)[:, :100], x, rtol=1e-9, atol=1e-12)
    batch = play_guarded(
        [Learner(x, lam, ball.sigma, ball.sigma)],
        online.reward[:, :100],
        ball=ball,
        advisor="greedy",
        slack=1.5,
    )
    assert_array_equal([c.action for c in choices], batch.action[0])
    assert_array_equal([c.gamma for c in choices], batch.root[0] ** 2)
    assert_array_equal([c.cost for c in choices], batch.cost[0])
    assert_array_equal(bot.state.theta, batch.state.theta[0, 0])


def truth(w_dim, found, own):
    """True coefficients on z, (w, P), from noise-free rows."""
    s = contexts(40, 12, 77)
    z, _ = found.at(own, s)
    w = missing(s, w_dim, 0) - 0.3 * np.random.default_rng([0, 1]).standard_normal((40, 12, w_dim))
    seen = np.isfinite(z).all(1)
    return np.linalg.lstsq(z[seen], w.reshape(-1, w_dim)[seen], rcond=None)[0].T


def test_the_ball_holds_the_true_parameter_in_nearly_every_archive():
    """theta* and theta_j v together, at every round; with the ball of sums (R3) theta* alone."""
    held, summed, archives = 0, 0, 40
    theta = np.array([0.1, 0.5, 1.2])
    for seed in range(archives):
        own = law(1, 20, seed)
        found = own.ellipsoid(0.975)
        trust = {"noise": reward_noise(reward_sd=0.1), "theta_bound": 1.5, "delta": 0.025}
        scored, ball, lam = ellipsoid_prior(own, WA, found, **trust)
        online = replace(world(WA, contexts(2, 152, [5, seed]), 1), theta=theta)
        x = scored.horizon(online.s, 2)
        v = np.linalg.solve(found.root[0], truth(1, found, own)[0] - found.centre[0])
        true = np.concatenate([theta, theta[1] * v / scored.scale, theta[2] * v / scored.scale])
        assert_allclose(x @ true, true_means(x, online, found, own, theta, v), atol=1e-9)
        one = play_guarded(
            [Learner(x, lam, ball.sigma, ball.sigma)],
            online.reward,
            ball=ball,
            advisor=pp.constant(ball.sigma),
            truth=true[None],
        )
        held += one.held.all()
        mean, rounds = ellipsoid_rounds(found, scored.bias, own, online.s, 2)
        flat = online.s[:, 2:].reshape(-1, 2), mean.reshape(-1, 1)
        spread = spread_at(WA, *flat, np.broadcast_to(found.residual, (len(flat[0]), 1, 1)))
        fence = ellipsoid_ball(
            found, scored.bias, trust["noise"], theta_bound=1.5, delta=0.025, spread=spread
        )
        two = play_guarded(
            [Learner(np.ascontiguousarray(x[..., :3]), fence.ridge(3), fence.sigma, fence.sigma)],
            online.reward,
            ball=fence,
            rounds=rounds,
            advisor=pp.constant(fence.sigma),
            truth=theta[None],
        )
        summed += two.held.all()
    assert held >= 37
    assert summed >= 37


def true_means(x, online, found, own, theta, v):
    """theta' E[Phi | S] with the true line."""
    z, mean = found.at(own, online.s)
    w = (mean[:, 0] + found.psi(z)[:, 0] @ v).reshape(online.s.shape[:2])[:, 2:]
    return np.stack([theta[0] + (theta[1] + a * theta[2]) * w for a in range(2)], axis=-1)


def test_a_ball_whose_form_is_wrong_or_whose_ellipsoid_is_a_point_fails():
    """Must fail: W bends in S while the law is a line; and chi called 0 for a poor archive."""
    theta, inside = np.array([0.1, 0.5, 1.2]), []
    for case in ("bent", "point"):
        own = law(1, 20)
        found = own.ellipsoid()
        if case == "point":
            found = replace(found, root=1e-9 * found.root, centre=found.centre + 0.3)
        online = replace(world(WA, contexts(1, 602, 9), 1), theta=theta)
        bot = pp.AdaptivePulseUCB(own, WA, prior=found, **TRUST)
        rng = np.random.default_rng(0)
        for row in online.s[0, :2]:
            bot.observe(row)
        for t in range(600):
            choice = bot.act(online.s[0, 2 + t])
            w = online.w[0, t, 0]
            if case == "bent":
                w = w + 3 * (((online.s[0, 2 + t, 0] - 1) / 0.5) ** 2 - 1)
            mean = theta @ [1, w, choice.action * w]
            bot.learn(choice, mean + 0.1 * rng.standard_normal())
        part = np.linalg.inv(bot.state.inverse[:3, :3])  # of theta alone, whatever v is
        apart = theta - bot.state.theta[:3]
        inside.append(apart @ part @ apart <= bot.act(online.s[0, -1]).gamma)
    assert inside == [False, False]


def test_a_revealed_w_teaches_theta_without_touching_the_rest():
    bot, s = adaptive(), contexts(1, 5, 5)[0]
    bot.observe(s[0])
    choice = bot.act(s[1])
    bot.learn(choice, 0.4, w=[0.7])
    true = [1, 0.7, 0.7 * choice.action]
    assert_allclose(bot.state.b[:3], 0.4 * np.array(true), rtol=1e-12)
    assert not bot.state.b[3:].any()
    with pytest.raises(pp.errors.SettingError, match="cannot be swapped"):
        bot.swap_law(law(1, 21))


def bent_law():
    return pp.gaussian_process(2).fit(archive(8, 8), pp.Laplace(60), seed=0)


def other(history):
    names = tuple(f"h{name}" for name in history.units)
    return replace(history, units=names, clusters=names)


@cache
def sieved():
    own = bent_law()
    return own, own.ellipsoid(sieve=pp.Lags(2), archive=other(archive(20, 6, seed=3)))


CASES = {
    "linear": (adaptive, Plan(units=("a", "b"))),
    "thompson": (lambda: adaptive(advisor=pp.thompson(0.2)), Plan(reveal=True)),
    "two W": (lambda: adaptive(MIXED, 2), Plan(arms=3, per_arm=True)),
    "sieve": (lambda: pp.AdaptivePulseUCB(sieved()[0], WA, prior=sieved()[1], **TRUST), Plan()),
}


@pytest.mark.parametrize("case", CASES)
def test_a_pause_changes_nothing(case, tmp_path):
    make, plan = CASES[case]
    straight, before = make(), make()
    whole = play(straight, plan, 0, 50)
    play(before, plan, 0, 30)
    after = pp.load(pp.save(before, tmp_path / "p"), features=before.features)
    assert repr(after) == repr(before)
    for one, two in zip(play(after, plan, 30, 50), whole[30:], strict=True):
        assert_same(one, two)
    assert_same(after.state, straight.state)
    assert after.pending == straight.pending


def test_a_sieve_of_ones_own_is_not_saved(tmp_path):
    own = bent_law()
    held_out = other(archive(20, 6, seed=3))
    prior = own.ellipsoid(sieve=lambda x: x[:, :2], archive=held_out)
    bot = pp.AdaptivePulseUCB(own, WA, prior=prior, **TRUST)
    with pytest.raises(pp.errors.BundleError, match="sieve"):
        pp.save(bot, tmp_path / "p")


def test_reprs_tell_confidence_from_credible():
    said = repr(adaptive(level=0.97))
    assert "conditional on: E[W | S] is linear in the law's inputs; the 20 clusters" in said
    assert ">= 0.92" in said
    own = law()
    rows = pp.AdaptivePulseUCB(own, WA, prior=own.ellipsoid(0.95, "classical"), **TRUST)
    assert "rows of the archive are independent" in repr(rows)
    posterior = pp.AdaptivePulseUCB(own, WA, pp.constant(1.0))
    assert "credible, not confidence" in repr(posterior)
    assert "credible" not in said


REFUSALS = {
    "radius too": ({"radius": pp.constant(1.0)}, "give one of them"),
    "neither": ({"prior": None, "reward_sd": None}, "give prior="),
    "no prior": ({"prior": None, "radius": pp.constant(1.0)}, "reward_sd= is for a guarded"),
    "not one": ({"prior": 0.95}, "must be the ellipsoid"),
    "another law's": ({"prior": lambda: law(1, 21).ellipsoid()}, "ellipsoid is that of law"),
    "no S": ({"theta_bound": None}, "theta_bound is missing"),
    "no noise": ({"reward_sd": None}, "reward_sd is missing"),
    "slack": ({"slack": 0.0}, "slack"),
    "curved": (
        {"features": pp.Features(lambda s, w, a: np.column_stack([w**2, a * w]), 2, ("q", "l"))},
        "affine",
    ),
    "slopes of S": (
        {
            "features": pp.Features(
                lambda s, w, a: np.column_stack([s[:, 0], a * s[:, 0] * w[:, 0]]), 2, ("s", "asw")
            )
        },
        "reference=",
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_what_it_cannot_be_made_from_is_said(case):
    change, says = REFUSALS[case]
    options = {"features": WA, "prior": law().ellipsoid()} | TRUST | change
    if callable(options["prior"]):
        options["prior"] = options["prior"]()
    with pytest.raises(pp.errors.PulseError, match=says):
        pp.AdaptivePulseUCB(law(), options.pop("features"), **options)


def test_rounds_whose_inputs_are_not_all_seen_are_refused():
    bot, s = adaptive(), contexts(1, 4, 5)[0]
    with pytest.raises(pp.errors.FeatureError, match="refused"):
        bot.act(s[0])
    assert bot.act(s[1]).id == 0
