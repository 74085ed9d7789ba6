import numpy as np
import pytest
from numpy.testing import assert_array_equal

from pulse_pyro._core.errors import FeatureError, RewardError, SettingError
from pulse_pyro._core.seeds import stream
from pulse_pyro.envs.latent_world import latent_ar
from pulse_pyro.policies.larl_ucb import choose_memory, history_features, larl
from tests.helpers import z_bound


def rewards(runs=3, horizon=80, arms=2, seed=0):
    rng = np.random.default_rng(seed)
    z = np.cumsum(rng.normal(size=(runs, horizon)), axis=1)
    z = np.sin(z / 3)[..., None] * np.linspace(-1, 1, arms)
    return z + 0.3 * rng.normal(size=(runs, horizon, arms))


def h_by_hand(action, paid, t, memory, arms, context):
    h = []
    for i in range(memory, 0, -1):
        h += [paid[t - i] * (action[t - i] == a) for a in range(arms)]
    for i in range(memory, 0, -1):
        h += [float(action[t - i] == a) for a in range(arms)]
    return np.array([*h, 1.0, *context[t]])


def larl_by_hand(reward, first, memory, context, alpha):
    """One run: a ridge regression of its own for each arm, solved afresh every round."""
    horizon, arms = reward.shape
    action, paid = list(first), [reward[t, a] for t, a in enumerate(first)]
    d = 2 * memory * arms + 1 + context.shape[1]
    gram, b = np.tile(np.eye(d), (arms, 1, 1)), np.zeros((arms, d))
    for t in range(memory, horizon):
        h = h_by_hand(action, paid, t, memory, arms, context)
        if t >= len(first):
            index = [
                h @ np.linalg.solve(gram[a], b[a])
                + alpha * np.sqrt(h @ np.linalg.solve(gram[a], h))
                for a in range(arms)
            ]
            # arms not told apart yet tie up to rounding; the lowest is played
            action.append(int(np.flatnonzero(np.array(index) >= max(index) - 1e-10)[0]))
            paid.append(reward[t, action[t]])
        gram[action[t]] += np.outer(h, h)
        b[action[t]] += paid[t] * h
    return np.array(action)


def test_the_state_is_the_stated_one():
    action, paid = np.array([[1, 0, 1]]), np.array([[5.0, 6.0, 7.0]])
    context = np.array([[[0.1], [0.2], [0.3], [0.4]]])
    found = history_features(action, paid, 2, context, 2)
    assert_array_equal(
        found[0],
        [
            [0, 5, 6, 0, 0, 1, 1, 0, 1, 0.3],
            [6, 0, 0, 7, 1, 0, 0, 1, 1, 0.4],
        ],
    )


@pytest.mark.parametrize(("memory", "arms", "p"), [(1, 2, 0), (3, 2, 0), (2, 3, 2)])
@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_it_is_one_ridge_regression_per_arm(memory, arms, p, alpha):
    reward = rewards(3, 60, arms)
    context = np.random.default_rng(1).normal(size=(3, 60, p))
    found = larl(reward, memory=memory, context=context, alpha=alpha)
    for r in range(3):
        by_hand = larl_by_hand(reward[r], found[r, :memory], memory, context[r], alpha)
        assert_array_equal(found[r], by_hand)


def test_after_exploration_it_is_the_same_policy_with_the_chosen_memory():
    reward, none = rewards(4, 70), np.empty((4, 70, 0))
    found = larl(reward, explore=40, most=3)
    first = np.arange(40) % 2
    assert_array_equal(found[:, :40], np.tile(first, (4, 1)))
    paid = reward[:, np.arange(40), first]
    chosen = choose_memory(found[:, :40], paid, 2, 3, none)
    for r in range(4):
        by_hand = larl_by_hand(reward[r], first, int(chosen[r]), none[r], 1.0)
        assert_array_equal(found[r], by_hand)


@pytest.mark.parametrize("memory", [1, 5, None])
@pytest.mark.parametrize("use", [False, True])
def test_only_rewards_of_played_arms_are_read(memory, use):
    reward = rewards(3, 90, 3)
    context = np.random.default_rng(2).normal(size=(3, 90, 1)) if use else None
    settings = {"memory": memory, "context": context, "explore": 45, "most": 4}
    found = larl(reward, **settings)
    assert all(len(np.unique(one)) == 3 for one in found)
    other = np.full_like(reward, np.nan)
    kept = np.arange(3)[:, None], np.arange(90), found
    other[kept] = reward[kept]
    assert_array_equal(larl(other, **settings), found)


def test_a_round_sees_no_later_context_and_no_later_reward():
    reward, context = rewards(3, 80), np.random.default_rng(3).normal(size=(3, 80, 2))
    found = larl(reward, memory=2, context=context)
    reward[:, 50:], context[:, 51:] = -reward[:, 50:], 9.0
    assert_array_equal(larl(reward, memory=2, context=context)[:, :51], found[:, :51])


def test_the_first_rounds_are_uniformly_random_and_seeded():
    reward = np.zeros((4000, 3, 4))
    found = larl(reward, memory=3, seed=1)
    for a in range(4):
        share = (found[:, :3] == a).mean()
        assert abs(share - 0.25) <= z_bound(4) * np.sqrt(0.25 * 0.75 / 12_000)
    assert_array_equal(larl(reward, memory=3, seed=1), found)
    assert (larl(reward, memory=3, seed=2) != found).any()


def test_bic_is_the_stated_formula():
    env = latent_ar(share=0.0, ar=(0.0, 0.8), sigma_z=4.0)
    reward = env.world(30, 50, rng=stream(0, "bic")).reward
    action = np.tile(np.arange(50) % 2, (30, 1))
    paid = np.take_along_axis(reward, action[..., None], -1)[..., 0]
    none = np.empty((30, 60, 0))
    every = choose_memory(action, paid, 2, 4, none)
    assert len(np.unique(every)) > 1
    for r, chosen in enumerate(every):
        scores = []
        for s in range(1, 5):
            square = 0.0
            for a in range(2):
                rows = [t for t in range(4, 50) if action[r, t] == a]
                h = np.array([h_by_hand(action[r], paid[r], t, s, 2, none[r]) for t in rows])
                fit = np.linalg.solve(h.T @ h + np.eye(h.shape[1]), h.T @ paid[r, rows])
                square += ((paid[r, rows] - h @ fit) ** 2).sum()
            scores.append(46 * np.log(square / 46) + (4 * s + 1) * np.log(46))
        assert chosen == np.argmin(scores) + 1


def test_a_state_that_returns_after_two_rounds_needs_a_memory_of_two():
    env = latent_ar(share=0.0, ar=(0.0, 0.95), sigma_z=1.0, beta=(-1.0, 1.0))
    reward = env.world(20, 300, rng=stream(0, "two")).reward
    action = np.tile(np.arange(300) % 2, (20, 1))
    paid = np.take_along_axis(reward, action[..., None], -1)[..., 0]
    assert (choose_memory(action, paid, 2, 5, np.empty((20, 301, 0))) >= 2).all()


def test_context_is_used():
    rng = np.random.default_rng(5)
    context = rng.choice([-1.0, 1.0], size=(5, 300, 1))
    reward = context * np.array([-1.0, 1.0])
    found = larl(reward, memory=1, context=context, alpha=0.5)
    assert_array_equal(found[:, 200:], context[:, 200:, 0] > 0)


def test_horizons_that_end_early_are_played():
    assert larl(rewards(2, 3), memory=5).shape == (2, 3)
    assert_array_equal(larl(rewards(1, 4), explore=40, most=2), [[0, 1, 0, 1]])
    assert larl(rewards(2, 6), memory=5).shape == (2, 6)


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"reward": np.zeros((4, 2))}, RewardError, "larl: reward must be"),
        ({"reward": np.full((1, 30, 2), np.nan), "memory": 2}, RewardError, "none may be lost"),
        ({"memory": 0}, SettingError, "larl: memory"),
        ({"memory": 1.5}, SettingError, "larl: memory"),
        ({"alpha": -1.0, "memory": 1}, SettingError, "larl: alpha"),
        ({"explore": 5}, SettingError, "at least most . 2 arms = 14"),
        ({"most": 0}, SettingError, "larl: most"),
        ({"context": np.zeros((2, 9, 1))}, FeatureError, r"context must be.*got.*\(2, 9, 1\)"),
        ({"context": np.full((3, 80, 1), np.nan)}, FeatureError, "context must be finite"),
    ],
)
def test_bad_input_gets_a_sentence(change, error, says):
    settings = {"reward": rewards()} | change
    with pytest.raises(error, match=says):
        larl(settings.pop("reward"), **settings)
