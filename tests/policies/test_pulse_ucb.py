import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from pulse_pyro._core.errors import DataError, FeatureError, ModelError, RewardError, SettingError
from pulse_pyro.envs.agents import pulse
from pulse_pyro.envs.arma import w_times_action
from pulse_pyro.features import Features, expected_features
from pulse_pyro.laws.linear import linear_lags
from pulse_pyro.policies.horizon import play_horizon
from pulse_pyro.policies.linear import decide, init, update
from pulse_pyro.policies.pulse import PulseUCB
from pulse_pyro.radius import corrected
from tests.helpers import draws_at, linear_history, mean_at, z_bound

HISTORY, _ = linear_history(seed=1)
LAW = linear_lags(3).fit(HISTORY, seed=0)
S = HISTORY.grid.s.reshape(-1, 1)
REWARD = np.random.default_rng(2).standard_normal(len(S))
RADIUS = corrected(sigma=0.3)


def phi(fn, names, actions=2):
    return Features(lambda s, w, a: np.column_stack(fn(s[:, 0], w[:, 0], a)), actions, names)


WA = phi(lambda s, w, a: [np.ones_like(s), s, w, w * a], ("1", "S", "W", "W*a"))


def policy(features=WA, **more):
    return PulseUCB(LAW, features, RADIUS, **more)


def same(one, two):
    return all(np.array_equal(a, b) for a, b in zip(one[:5], two[:5], strict=True))


def test_streaming_single_steps_and_whole_horizons_choose_the_same_arms():
    env = w_times_action()
    law = linear_lags(19).fit(env.archive(30, 40, rng=np.random.default_rng(0)), seed=0)
    world = env.world(1, 3100, rng=np.random.default_rng(1))
    x, e = pulse(world, law).x, np.abs(world.phibar - pulse(world, law).x) @ world.theta
    action, gamma, whole = play_horizon(x, world.reward, RADIUS, error=e)
    bot, state = PulseUCB(law, env.features, RADIUS), init(4, 1.0)
    bot.forget([bot.act(s) for s in world.s[0, : world.lead]])
    for t, s in enumerate(world.s[0, world.lead :]):
        step, shell = decide(state, x[0, t], RADIUS, error=e[0, t]), bot.act(s, error=e[0, t])
        assert step.action == shell.action == action[0, t]
        assert_allclose(shell.x, step.x, rtol=1e-12, atol=1e-14)
        assert_allclose([shell.gamma, step.gamma], gamma[0, t], rtol=1e-9)
        state = update(state, step, world.reward[0, t, step.action])
        bot.learn(shell, world.reward[0, t, step.action])
    assert same(state, whole.one(0))
    assert_allclose(bot.state.theta, state.theta, rtol=1e-9)
    assert_allclose(bot.state.sums[:4], state.sums[:4], rtol=1e-9)
    assert 20 < action.sum() < 3080


def test_a_policy_that_is_shown_w_plays_the_whole_horizon():
    rng, law = np.random.default_rng(0), linear_lags(1).fit(HISTORY, seed=0)
    s, w = S[:300], HISTORY.grid.w.reshape(-1, 1)[:300]
    x = expected_features(law, WA, s[None], size=2, rng=rng).mean
    true = np.stack([WA(s, w, a) for a in range(2)], axis=1)[None]
    reward = true @ [0.1, 0.2, 0.1, 0.5] + 0.1 * rng.standard_normal((1, 300, 1))
    error, shown = rng.exponential(0.3, (1, 300, 2)), np.arange(300) % 3 > 0
    taught = np.where(shown[:, None, None], true, np.nan)
    action, gamma, whole = play_horizon(x, reward, RADIUS, error=error, taught=taught)
    bot = PulseUCB(law, WA, RADIUS)
    for t in range(300):
        choice = bot.act(s[t], error=error[0, t])
        assert choice.action == action[0, t]
        assert choice.error == error[0, t, choice.action]
        assert_allclose(choice.gamma, gamma[0, t], rtol=1e-9)
        bot.learn(choice, reward[0, t, choice.action], w=w[t] if shown[t] else None)
    assert_allclose(bot.state.theta, whole.theta[0], rtol=1e-8, atol=1e-10)
    assert_allclose(bot.state.sums[:4], whole.sums[0, :4], rtol=1e-9)


def test_late_shuffled_and_lost_rewards_add_up_to_the_same_state():
    bot, rng, waiting, learned = policy(ridge=0.5), np.random.default_rng(3), [], []
    for t, s in enumerate(S[:400]):
        waiting.append((bot.act(s, error=[0.1, 0.2]), REWARD[t]))
        rng.shuffle(waiting)
        while len(waiting) > rng.integers(40):
            learned.append(waiting.pop())
            choice, reward = learned[-1]
            bot.learn(choice.id if t % 2 else choice, reward)
    assert sorted(bot.pending) == sorted(choice.id for choice, _ in waiting)
    bot.forget(choice for choice, _ in waiting)
    x, r = np.array([choice.x for choice, _ in learned]), np.array([r for _, r in learned])
    sigma, state = 0.5 * np.eye(4) + x.T @ x, bot.state
    assert_allclose(state.precision, sigma, rtol=1e-10, atol=1e-12)
    assert_allclose(state.theta, np.linalg.solve(sigma, x.T @ r), rtol=1e-7)
    assert_allclose(state.logdet, np.linalg.slogdet(2 * sigma)[1], rtol=1e-10)
    assert_allclose(state.sums[2], sum(c.error**2 for c, _ in learned), rtol=1e-10)
    assert state.rounds == len(learned) < 400


UNLEARNABLE = {
    (0, 1.0): "decision 0 is not open: its reward was learned or forgotten before",
    (7, 1.0): "decision 7 is not open: it was never issued",
    (-1, 1.0): "decision -1 is not open: it was never issued",
    (1, np.nan): "decision 1 must be finite, but got nan.*stays open",
    (1, np.inf): "decision 1 must be finite, but got inf.*stays open",
    (1, None): "decision 1 must be finite, but got None.*stays open",
}


@pytest.mark.parametrize("case", UNLEARNABLE, ids=str)
def test_a_reward_that_cannot_be_learned_changes_nothing(case):
    bot = policy()
    bot.learn(bot.act(S[0]), 1.0)
    bot.act(S[1])
    before = bot.state
    with pytest.raises(RewardError, match=UNLEARNABLE[case]):
        bot.learn(*case)
    assert same(before, bot.state)
    assert bot.pending == (1,)


def test_arms_that_are_not_allowed_are_never_played():
    bot = policy()
    for t, s in enumerate(S[:300]):
        allowed = np.arange(2) == (REWARD[-t] > 0)
        choice = bot.act(s, allowed=allowed)
        assert allowed[choice.action]
        assert_array_equal(np.isnan(choice.mean), ~allowed)
        bot.learn(choice, REWARD[t])
    with pytest.raises(FeatureError, match="no arm is allowed"):
        bot.act(S[0], allowed=[False, False])


@pytest.mark.parametrize("at", [0, 30])
def test_one_feature_that_is_nan_costs_one_round_and_nothing_else(at):
    def broken(s, w, a):
        return [np.ones_like(s), np.where(s == S[at, 0], np.nan, s), w, w * a]

    bot, other = policy(phi(broken, WA.names)), policy()
    for t, s in enumerate(S[:80]):
        twin = other.act(s)
        if t == at:
            with pytest.raises(FeatureError, match=r"'S'.* nan"):
                bot.act(s)
        else:
            choice = bot.act(s)
            assert_array_equal(choice.x, twin.x)
            bot.learn(choice, REWARD[t])
            other.learn(twin, REWARD[t])
    assert same(bot.state, other.state)


def test_an_unseen_s_is_refused_alike_in_streaming_and_in_batch():
    s = S[:80].copy()
    s[[0, 30]] = np.nan
    x = expected_features(LAW, WA, s[None], size=2, rng=np.random.default_rng(0)).mean
    action, _, whole = play_horizon(x, np.repeat(REWARD[None, :80, None], 2, axis=2), RADIUS)
    assert_array_equal(np.flatnonzero(action[0] == -1), [0, 30])
    bot = policy()
    for t, now in enumerate(s):
        if action[0, t] == -1:
            with pytest.raises(FeatureError, match=r"unit 'ann' is refused: feature 'S'.*observe"):
                bot.act(now, unit="ann")
        else:
            choice = bot.act(now, unit="ann")
            assert choice.action == action[0, t]
            bot.learn(choice, REWARD[t])
    assert_allclose(bot.state.theta, whole.theta[0], rtol=1e-9)


def test_the_refusal_names_what_is_at_fault():
    with pytest.raises(FeatureError, match="of arm 1 is nan"):
        policy().act([[np.nan], [np.nan]], allowed=[False, True])
    with pytest.raises(FeatureError, match="overflow"):
        policy(phi(lambda s, w, a: [1e200 + 0 * w], ("big",))).act(S[0])


def test_units_have_pasts_of_their_own():
    both, apart = policy(), {"a": policy(), "b": policy()}
    for t, s in enumerate(S[:40]):
        unit = "ab"[t % 3 == 0]
        assert_array_equal(both.act(s, unit=unit).x, apart[unit].act(s).x)


def test_each_arm_may_have_a_context_of_its_own():
    s = np.stack([S[:50], S[50:100]], axis=1)
    bot, w = policy(), mean_at(LAW, np.swapaxes(s, 0, 1))[..., 0]
    for t, now in enumerate(s):
        choice = bot.act(now)
        a = choice.action
        assert_allclose(choice.x, [1, s[t, a, 0], w[a, t], w[a, t] * a], rtol=1e-12)
        bot.learn(choice, REWARD[t])
    with pytest.raises(DataError, match="unit '' mixes shared contexts and contexts per arm"):
        bot.act(s[0, 0])


def test_an_arm_that_is_not_on_offer_leaves_the_others_exact():
    choice = policy().act([[np.nan], S[0]], allowed=[False, True])
    assert choice.action == 1
    assert_allclose(choice.x[2], mean_at(LAW, S[None, :1])[0, 0, 0], rtol=1e-12)


def test_a_curved_map_is_learned_with_the_draws_it_was_scored_with():
    bot, x = policy(phi(lambda s, w, a: [s, a * w**2], ("S", "W^2 a")), size=50), []
    for s, reward in zip(S[:40], REWARD[:40], strict=True):
        choice = bot.act(s)
        x.append(choice.x)
        with pytest.raises(RewardError, match="another policy"):
            bot.learn(choice._replace(x=np.full(2, 9.0)), reward)
        bot.learn(choice, reward)
    x = np.array(x)
    assert_allclose(bot.state.precision, np.eye(2) + x.T @ x, rtol=1e-12)
    assert_allclose(bot.state.b, x.T @ REWARD[:40], rtol=1e-12)


@pytest.mark.parametrize("before", [1.0, -1.0], ids=["at once", "after a straight round"])
def test_a_curved_map_is_averaged_over_the_law(before):
    bent, s, size = phi(lambda s, w, a: [np.where(s > 0, w**2, w)], ("x",)), S[S > 0][0], 20_000
    bot, past = policy(bent, size=size), np.array([[[before * s], [s]]])
    bot.act(past[0, 0])
    square = draws_at(LAW, past, size, rng=np.random.default_rng(9))[:, 0, 1, 0] ** 2
    error = square.std() * np.sqrt(2 / size)
    assert abs(bot.act([s]).x[0] - square.mean()) <= z_bound(2) * error


BAD = {
    "s must be": {"s": [1.0, 2.0]},
    "infinite": {"s": [np.inf]},
    "allowed must have 2 entries": {"allowed": [True]},
    "error must be finite and >= 0": {"error": -0.1},
    "error must be a number or one per arm": {"error": [0.1, 0.1, 0.1]},
}


@pytest.mark.parametrize("says", BAD)
def test_a_call_that_is_refused_can_be_made_again(says):
    bot, twin = policy(), policy()
    with pytest.raises(DataError if "s" in BAD[says] else SettingError, match=says):
        bot.act(**{"s": S[0], **BAD[says]})
    assert_array_equal(bot.act(S[0]).x, twin.act(S[0]).x)
    assert bot.pending == (0,)


def test_features_too_large_for_double_precision_are_refused():
    x = np.full((1, 50, 2, 2), 1e8) * np.random.default_rng(0).uniform(0.9, 1.1, (1, 50, 2, 2))
    with pytest.raises(FeatureError, match="rescale the features"):
        play_horizon(x, np.ones((1, 50, 2)), RADIUS)
    with pytest.raises(FeatureError, match="rescale the features"):
        policy(phi(lambda s, w, a: [1e8 + 0 * s], ("big",))).act([0.1])


def test_a_decision_of_another_policy_is_refused():
    one, two = policy(), policy()
    one.act([0.1])
    with pytest.raises(RewardError, match="another policy"):
        one.learn(two.act([0.9]), 1.0)


def test_allowed_arms_are_flags_not_numbers():
    with pytest.raises(SettingError, match="True or False"):
        policy().act(S[0], allowed=[1, 0])


def test_arms_with_the_same_context_of_their_own_get_the_same_features():
    square = phi(lambda s, w, a: [w**2], ("w^2",))
    s = np.repeat(HISTORY.grid.s[:1, :10, None], 2, axis=2)
    found = expected_features(LAW, square, s, size=16, rng=np.random.default_rng(0)).mean
    np.testing.assert_array_equal(found[:, :, 0], found[:, :, 1])
    choice = policy(square, size=16).act([[0.2], [0.2]])
    assert choice.mean[0] == choice.mean[1]
    assert choice.width[0] == choice.width[1]


def test_units_are_known_by_their_text():
    bot = policy()
    bot.observe([0.3], unit=1)
    bot.observe([0.3], unit="1")
    assert "1 units" in repr(bot)


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: PulseUCB(linear_lags(2), WA, RADIUS), ModelError, "fit it first"),
        (lambda: PulseUCB(LAW, WA, 2.0), SettingError, "constant"),
        (lambda: PulseUCB(LAW, np.sin, RADIUS), SettingError, "Features"),
        (lambda: policy().act({"s": "x"}), DataError, "must hold numbers for"),
        (lambda: policy().learn(1.0, 2), RewardError, "Decision or its id"),
        (
            lambda: policy(Features(lambda s, w, a: s[:, 9], 2, ("x",))).act([0.1]),
            FeatureError,
            "fn failed for action 0",
        ),
    ],
)
def test_a_newcomer_gets_a_sentence(call, error, says):
    with pytest.raises(error, match=says):
        call()
