"""Adaptive PULSE-UCB one decision at a time is the batch agent, decision by decision."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import pulse_pyro as pp
from tests.calibration.helpers import Guess
from tests.helpers import mean_at
from tests.policies.helpers import (
    archive,
    contexts,
    mixed_features,
    w_features,
    with_gaps,
    world,
)

RADIUS = pp.corrected(sigma=0.4, theta_bound=2.0)
BENT = pp.Features(
    lambda s, w, a: np.column_stack([np.ones(len(w)), a * np.exp(w[:, 0] / 3)]), 2, ("1", "e")
)
ROUNDS = 80


def fitted(kind, w_dim=1):
    history = archive(w_dim=w_dim)
    if kind == "linear":
        return pp.linear_lags(2).fit(history, pp.Exact(300), seed=0), history
    if kind == "gp":
        return pp.gaussian_process(2).fit(history, pp.Laplace(200), seed=0), history
    law = pp.state_space(2, ar=1, ma=0)
    return law.fit(history, seed=0, draws=200), history


CASES = {
    "linear": ("linear", 1, w_features(1), 0.0),
    "linear gaps": ("linear", 1, w_features(1), 0.3),
    "linear 2 W": ("linear", 2, mixed_features(), 0.0),
    "linear 3 W gaps": ("linear", 3, w_features(3), 0.3),
    "gp": ("gp", 1, w_features(1), 0.0),
    "gp 2 W gaps": ("gp", 2, w_features(2, actions=3), 0.2),
    "memory gaps": ("memory", 1, w_features(1), 0.4),
    "memory 2 W gaps": ("memory", 2, w_features(2), 0.4),
    "memory 2 W": ("memory", 2, mixed_features(), 0.0),
}


def moving(x):
    """The columns of x (..., d) that are not 0 everywhere."""
    flat = x.reshape(-1, x.shape[-1])
    return x[..., (flat != 0).any(0)]


def play(bot, online, allowed=None):
    """Play one run; return chosen features, actions, errors, gammas, means."""
    s = online.s[0]
    for row in s[: online.lead]:
        bot.observe(row)
    out = []
    for t, row in enumerate(s[online.lead :]):
        choice = bot.act(row, allowed=None if allowed is None else allowed[t])
        out.append(choice)
        bot.learn(choice, online.reward[0, t, choice.action])
    return out


@pytest.mark.parametrize("case", CASES)
def test_streaming_is_the_batch(case):
    kind, w_dim, features, rate = CASES[case]
    law, history = fitted(kind, w_dim)
    online = world(features, with_gaps(contexts(1, ROUNDS + 2, 9), rate, 9), w_dim)
    agent = pp.envs.pulse_adaptive(online, law, history.grid.s, radius=RADIUS, theta_bound=1.5)
    action, gamma, whole = pp.policies.play_horizon(
        agent.x, online.reward, RADIUS, error=agent.error
    )
    bot = pp.AdaptivePulseUCB(law, features, RADIUS, history.grid.s, theta_bound=1.5)
    choices = play(bot, online)
    assert_array_equal([c.action for c in choices], action[0])
    at = np.arange(ROUNDS), action[0]
    x = np.array([c.x for c in choices])
    used = moving(agent.x)
    kept = (x != 0).any(0)
    assert_allclose(x[:, kept], used[0][at], rtol=1e-7, atol=1e-10)
    assert_allclose([c.error for c in choices], agent.error[0][at], rtol=1e-7, atol=1e-12)
    assert_allclose([c.gamma for c in choices], gamma[0], rtol=1e-7)
    assert_allclose(bot.state.logdet, whole.logdet[0], rtol=1e-7)
    assert len(set(action[0])) > 1
    assert (agent.error[0] > 0).any() == (kind == "gp")


def test_a_law_of_few_draws_keeps_its_directions():
    """Fewer draws than coefficients: the posterior is known in closed form all the same."""
    history = archive(time=20)
    law = pp.linear_lags(4).fit(history, pp.Exact(4), seed=0)
    found = pp.policies.directions(law)
    assert_array_equal(found.counts, [9])
    features = w_features(1)
    online = world(features, contexts(1, ROUNDS + 4, 9), 1, lead=4)
    agent = pp.envs.pulse_adaptive(online, law, radius=RADIUS)
    action, _, whole = pp.policies.play_horizon(agent.x, online.reward, RADIUS, error=agent.error)
    bot = pp.AdaptivePulseUCB(law, features, RADIUS, found)
    choices = play(bot, online)
    assert moving(agent.x).shape[-1] == 3 + 2 * 9
    assert_allclose(
        [np.linalg.norm(c.x) for c in choices],
        np.linalg.norm(agent.x[0][np.arange(ROUNDS), [c.action for c in choices]], axis=-1),
        rtol=1e-9,
    )
    assert_array_equal([c.action for c in choices], action[0])
    assert_allclose(bot.state.logdet, whole.logdet[0], rtol=1e-9)


def test_least_squares_of_few_rows_keeps_its_directions():
    """Minimum-norm least squares knows nothing of the directions it has never seen."""
    history = archive(time=20)
    twice = np.repeat(history.s[:, :1], 2, axis=-1) * [1.0, 2.0]  # b says what a says
    history = replace(history, s=twice)
    law = pp.linear_lags(5, prior=pp.laws.Flat()).fit(history, seed=0)
    count = int(pp.policies.directions(law, history.grid.s).counts[0])
    assert count == 6
    bot = pp.AdaptivePulseUCB(law, w_features(1), RADIUS, history.grid.s)
    x = []
    for row in contexts(1, 30, 9)[0]:
        x.append(bot.act(row, allowed=[False, True]).x)
    assert np.linalg.matrix_rank(np.array(x)[10:, 3:], tol=1e-8) == count


@pytest.mark.parametrize("kind", ["linear", "gp", "memory"])
def test_a_first_round_that_is_seen_in_part_is_scored_exactly(kind):
    """Phi is known to be affine from the start: no round needs Monte Carlo."""
    law, history = fitted(kind)
    s = contexts(1, 6, 5)
    s[0, 2:4, 1] = np.nan
    bot = pp.AdaptivePulseUCB(law, w_features(1), pp.constant(1.0), history.grid.s)
    for row in s[0, :2]:
        bot.observe(row)
    for t in range(2, 6):
        choice, w = bot.act(s[0, t]), mean_at(law, s[:, : t + 1])[0, -1, 0]
        assert_allclose(choice.x[:3], [1.0, w, w * choice.action], rtol=1e-9)


def test_names_tell_feature_w_and_direction():
    law, history = fitted("linear", 2)
    bot = pp.AdaptivePulseUCB(law, mixed_features(), RADIUS, history.grid.s)
    names = bot.scorer.names
    assert names[:4] == ("1", "w0+a w1", "t w1", "t")
    assert len(names) == 4 + 3 * 5
    assert names[4] == "w0+a w1~w0.0"
    assert len(set(names)) == len(names)
    assert "w0+a w1~w1.4" in names
    assert "t w1~w1.0" in names
    assert not any(name.startswith(("1~", "t~", "t w1~w0")) for name in names)


def test_masks_are_those_of_the_batch():
    law, history = fitted("linear", 2)
    features = mixed_features()
    online = world(features, contexts(1, ROUNDS + 2, 9), 2)
    mask = np.random.default_rng(0).random((ROUNDS, 3)) < 0.6
    mask[~mask.any(1), 1] = True
    agent = pp.envs.pulse_adaptive(online, law, radius=RADIUS)
    action, _, _ = pp.policies.play_horizon(agent.x, online.reward, RADIUS, allowed=mask[None])
    bot = pp.AdaptivePulseUCB(law, features, RADIUS, history.grid.s)
    choices = play(bot, online, mask)
    assert_array_equal([c.action for c in choices], action[0])
    for choice, row in zip(choices, mask, strict=True):
        assert_array_equal(np.isnan(choice.mean), ~row)


def test_each_arm_may_have_a_context_of_its_own():
    """Arm a's features are those a policy that sees only arm a's series would score."""
    law, history = fitted("gp")
    features, s = w_features(1), np.stack([contexts(1, 30, 5)[0], contexts(1, 30, 6)[0]], axis=1)
    bot = pp.AdaptivePulseUCB(law, features, pp.constant(1.0), history.grid.s)
    alone = [pp.AdaptivePulseUCB(law, features, pp.constant(1.0), history.grid.s) for _ in range(2)]
    for t, row in enumerate(s):
        choice = bot.act(row)
        for a, one in enumerate(alone):
            own = one.act(row[a], allowed=np.arange(2) == a)
            if a == choice.action:
                assert_array_equal(choice.x, own.x)
                assert choice.error == own.error
        bot.learn(choice, np.sin(3.0 * t))


def test_the_caller_may_bring_an_error_of_its_own():
    law, history = fitted("gp")
    bot = pp.AdaptivePulseUCB(law, w_features(1), RADIUS, history.grid.s)
    s = contexts(1, 4, 5)[0]
    bot.observe(s[0])
    assert bot.act(s[1]).error > 0.0
    assert bot.act(s[2], error=[0.25, 0.25]).error == 0.25


@pytest.mark.parametrize("kind", ["linear", "gp"])
def test_a_law_that_is_sure_warns_and_plays_as_pulse(kind):
    law, history = fitted(kind)
    sure = {name: np.repeat(value[:1], 5, axis=0) for name, value in law.draws.items()}
    law, features = replace(law, draws=sure), w_features(1)
    with pytest.warns(UserWarning, match="no posterior spread"):
        bot = pp.AdaptivePulseUCB(law, features, RADIUS, history.grid.s)
    plain = pp.PulseUCB(law, features, RADIUS)
    assert bot.scorer.names == plain.scorer.names
    online = world(features, contexts(1, ROUNDS + 2, 9), 1)
    for one, two in zip(play(bot, online), play(plain, online), strict=True):
        assert one.action == two.action
        for name in ("x", "mean", "width", "gamma", "error"):
            assert_array_equal(getattr(one, name), getattr(two, name))


class Imputer(Guess):
    """A law of one's own that can be followed online, without posterior draws."""

    def __init__(self):
        names = ("a", "b"), ("w0",)
        super().__init__(pp.Lags(1), intercept=-1.0, slope=1.0, sd=0.3, exact=False, names=names)
        self.schema = self.schema.with_moments(np.array([[1.0, -100.0], [0.6, 22.0]]))

    def follow(self, unit=None):
        return Series(self)


class Series:
    def __init__(self, law):
        self.law = law

    def push(self, s, w=None):
        self.now = np.array(s, np.float64)
        self.conditional = self.law(self.now[None, None])
        return self.conditional

    def inputs(self):
        return self.now

    def state(self):
        return {"rows": self.now[None]}

    def restore(self, state):
        self.push(state["rows"][0])


@pytest.mark.parametrize("features", [w_features(1), BENT], ids=["affine", "bent"])
def test_a_law_of_another_kind_warns_and_plays_as_pulse(features, tmp_path):
    """Monte Carlo draws included: bit by bit."""
    law = Imputer()
    with pytest.warns(UserWarning, match="Imputer is no fitted law"):
        bot = pp.AdaptivePulseUCB(law, features, RADIUS, archive().grid.s, seed=3)
    plain = pp.PulseUCB(law, features, RADIUS, seed=3)
    online = world(features, contexts(1, ROUNDS + 2, 9), 1)
    for one, two in zip(play(bot, online), play(plain, online), strict=True):
        for name in ("action", "x", "mean", "width", "gamma", "error"):
            assert_array_equal(getattr(one, name), getattr(two, name))
    path, row = pp.save(bot, tmp_path / "p"), online.s[0, 3]
    with pytest.raises(pp.errors.BundleError, match=r"Imputer.*not stored"):
        pp.load(path, features=features)
    back = pp.load(path, law, features)
    assert_array_equal(back.act(row).x, plain.act(row).x)


class Bare:
    """All that a law must bring: what it says at rows, and its columns."""

    def __init__(self):
        self.law = Imputer()
        self.schema = self.law.schema

    def __call__(self, source, at=None):
        return self.law(source, at)


def test_a_law_of_two_parts_warns_and_plays_as_pulse():
    features = w_features(1)
    with pytest.warns(UserWarning, match="is no fitted law"):
        bot = pp.AdaptivePulseUCB(Bare(), features, RADIUS, seed=3)
    plain = pp.PulseUCB(Bare(), features, RADIUS, seed=3)
    online = world(features, contexts(1, 12, 9), 1)
    for one, two in zip(play(bot, online), play(plain, online), strict=True):
        assert_array_equal(one.x, two.x)
        assert one.action == two.action


def test_a_curved_map_is_refused():
    law, history = fitted("linear")
    bent = pp.Features(lambda s, w, a: np.column_stack([w**2, a * w]), 2, ("w2", "wa"))
    with pytest.raises(pp.errors.FeatureError, match="affine"):
        pp.AdaptivePulseUCB(law, bent, RADIUS, history.grid.s)


def test_what_is_no_law_or_no_map_is_refused():
    law, history = fitted("linear")
    with pytest.raises(pp.errors.ModelError, match="fitted law"):
        pp.AdaptivePulseUCB(pp.linear_lags(2), w_features(1), RADIUS, history.grid.s)
    with pytest.raises(pp.errors.ModelError, match="Features"):
        pp.AdaptivePulseUCB(law, "phi", RADIUS, history.grid.s)
    with pytest.raises(pp.errors.SettingError, match="Radius"):
        pp.AdaptivePulseUCB(law, w_features(1), 2.0, history.grid.s)


def test_a_revealed_w_and_another_law_are_refused_and_change_nothing():
    law, history = fitted("linear")
    bot, twin = (pp.AdaptivePulseUCB(law, w_features(1), RADIUS, history.grid.s) for _ in range(2))
    s = contexts(1, 12, 5)[0]
    for t, row in enumerate(s):
        one, two = bot.act(row), twin.act(row)
        assert_array_equal(one.x, two.x)
        assert_array_equal(one.mean, two.mean)
        before = bot.state
        with pytest.raises(pp.errors.SettingError, match="revealed W teaches nothing"):
            bot.learn(one, 1.0, w=[0.3])
        with pytest.raises(pp.errors.SettingError, match="cannot be swapped"):
            bot.swap_law(pp.linear_lags(2).fit(archive(seed=1), seed=0))
        assert bot.pending == (t,)
        assert bot.law is law
        for name, value in zip(before._fields, before, strict=True):
            assert_array_equal(getattr(bot.state, name), value)
        bot.learn(one, np.cos(t))
        twin.learn(two, np.cos(t))
