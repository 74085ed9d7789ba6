"""A law with memory, one decision at a time: rewards late and lost, W revealed."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import pulse_pyro as pp
from pulse_pyro.envs.teams import RewardScale, remembering
from pulse_pyro.policies.guard import play_guarded
from pulse_pyro.policies.streaming import KEPT
from pulse_pyro.policies.unit_memory import LONGEST, UnitMemory
from tests.policies.helpers import archive, contexts
from tests.policies.team_helpers import TWO, WA, calibration, guarded, law, online, stream

SD = 0.1


def remembers(w_dim=1, kind="ar", radius=None, **more):
    """A policy without a guard whose law has a memory."""
    phi = WA if w_dim == 1 else TWO
    own = law(w_dim, memory=kind)
    return pp.PulseUCB(own, phi, radius or pp.constant(0.4), reward_sd=SD, **more)


def unit_of(bot, unit=""):
    return bot._pasts.units[unit][0].memory


class Shadow:
    """The memory of one unit by hand: a filter that is told of the same steps."""

    def __init__(self, bot):
        self.bot, self.unit = bot, UnitMemory(bot.law.memory)
        self.steps = {}

    def act(self, s):
        left = None
        self.unit.step()
        self.unit.open(self.unit.now)
        left, _ = self.unit.left()
        choice = self.bot.act(s)
        mean = self.bot._pasts.units[""][0].conditional.mean()
        phi, arm = self.bot.features, choice.action
        base, unit_w = phi(s[None], mean, arm)[0], np.eye(mean.shape[1])
        slope = np.array([phi(s[None], mean + e, arm)[0] - base for e in unit_w])
        assert_allclose(choice.x, base + left @ slope, atol=1e-9)
        self.steps[choice.id] = self.unit.now, slope, left, mean[0]
        return choice

    def learn(self, choice, reward):
        at, slope, left, _ = self.steps[choice.id]
        theta, inverse, scale = self.bot.core.belief(0)
        by = slope @ theta
        doubt = choice.x @ inverse @ choice.x
        doubt += np.trace(slope @ inverse @ slope.T @ self.unit.left()[1])
        value = reward - theta @ choice.x + by @ left
        self.unit.measure(at, by, value, SD**2 + scale * doubt)
        self.unit.close(at)
        self.bot.learn(choice, reward)

    def same(self):
        for one, two in zip(self.unit.predicted(), unit_of(self.bot).predicted(), strict=True):
            assert_allclose(one, two, atol=1e-8)
        assert self.unit.pending == unit_of(self.bot).pending


@pytest.mark.parametrize("kind", ["ar", "level", "level+ar"])
@pytest.mark.parametrize("w_dim", [1, 2])
def test_a_late_reward_tells_of_its_own_time(w_dim, kind):
    shadow, rng = Shadow(remembers(w_dim, kind)), np.random.default_rng(0)
    s, waiting = contexts(1, 60, 5)[0], []
    shadow.bot.observe(s[0])
    shadow.unit.step()
    for row in s[1:]:
        waiting.append(shadow.act(row))
        while waiting and rng.random() < 0.5:
            late = waiting.pop(int(rng.integers(len(waiting))))
            if rng.random() < 0.2:
                shadow.bot.forget([late])
                shadow.unit.close(shadow.steps[late.id][0])
            else:
                shadow.learn(late, float(rng.standard_normal()))
        shadow.same()
    assert len(unit_of(shadow.bot).pending) == len(shadow.bot.pending)


@pytest.mark.parametrize("share", [0.5, 0.0])
def test_without_a_guard_it_is_the_batch_in_a_world_of_another_kind(share):
    env = pp.envs.latent_ar(share=share)
    history = env.archive(20, 40, rng=pp.stream(0, "a"))
    own = pp.linear_lags(3).with_memory("ar").fit(history, seed=0)
    here = env.world(1, 200, rng=pp.stream(1, "w"))
    scale = RewardScale(0.3, 1.0, 0.05)
    (tracked,) = remembering(here, own, scale).learners
    bot = pp.PulseUCB(
        own, here.features, pp.constant(0.3), reward_sd=0.05, ridge=float(tracked.ridge)
    )
    choices, x, _ = stream(bot, here)
    play = play_guarded([tracked], here.reward, ball=None, advisor=pp.constant(0.3))
    assert_array_equal([one.action for one in choices], play.action[0])
    assert_allclose(bot.state.theta, play.state.theta[0, 0], atol=1e-8)
    plain = pp.envs.pulse(here, own).x[0]
    assert np.abs(x - plain).max() > 0.01  # rewards do move the features


@pytest.mark.parametrize("kind", ["ar", "level+ar"])
def test_a_revealed_w_is_known_to_the_last_digit(kind):
    for w_dim in (1, 2):
        bot, s = remembers(w_dim, kind), contexts(1, 8, 5)[0]
        w = np.array([0.7, -0.4])[:w_dim]
        bot.observe(s[0])
        first = bot.act(s[1])
        mean = bot._pasts.units[""][0].conditional.mean()[0]
        bot.reveal(first, w)
        left, cov = unit_of(bot).left()
        assert_allclose(left, w - mean, atol=1e-8)
        assert_allclose(cov, 0.0, atol=1e-9)
        bot.act(s[2])
        if kind == "ar":
            assert_allclose(unit_of(bot).left()[0], bot.law.memory.keep * (w - mean), atol=1e-8)


def test_w_revealed_late_or_with_its_reward_or_at_once_is_the_same_reading():
    s = contexts(1, 8, 5)[0]
    bots = [remembers() for _ in range(3)]
    late, handed, seen = bots
    for bot in bots[:2]:
        bot.observe(s[0])
        choice = bot.act(s[1])
        if bot is handed:
            played = choice.action
            bot.learn(choice, 0.3, w=[0.9])
        bot.act(s[2])
        if bot is late:
            bot.reveal(choice.id, [0.9])
    seen.observe(s[0])
    seen.observe(s[1], w=[0.9])
    seen.observe(s[2])
    for bot in bots[1:]:
        assert_allclose(unit_of(bot).left()[0], unit_of(late).left()[0], atol=1e-8)
        assert_allclose(unit_of(bot).left()[1], unit_of(late).left()[1], atol=1e-8)
    assert handed.state.rounds == 1
    true = WA(s[1][None], np.array([[0.9]]), played)
    assert_allclose(handed.state.precision - np.eye(3), np.outer(true, true), atol=1e-9)


def test_w_of_a_learned_decision_may_still_come_while_another_waits():
    bot, s = remembers(), contexts(1, 6, 5)[0]
    first, second = bot.act(s[0]), bot.act(s[1])
    bot.learn(second, 0.1)
    before = unit_of(bot).left()[1]
    bot.reveal(second, [0.4])  # of a step behind one that is open
    assert unit_of(bot).left()[1] < before
    bot.learn(first, 0.2)


def test_what_is_forgotten_or_unknown_is_not_revealed():
    bot, s = remembers(), contexts(1, 6, 5)[0]
    first = bot.act(s[0])
    bot.forget([first])
    assert unit_of(bot).pending == ()
    for key in (first, 7, -1):
        with pytest.raises(pp.errors.RewardError, match="neither open nor among"):
            bot.reveal(key, [0.1])
    with pytest.raises(pp.errors.RewardError, match="must be a Decision or its id"):
        bot.reveal("first", [0.1])
    second = bot.act(s[1])
    before = unit_of(bot).predicted()
    for bad in ([np.nan], [1.0, 2.0], "x"):
        with pytest.raises(pp.errors.DataError, match="othing was changed"):
            bot.reveal(second, bad)
    assert_array_equal(unit_of(bot).predicted()[0], before[0])


def test_only_the_newest_learned_decisions_are_remembered():
    bot, s = remembers(), contexts(1, KEPT + 20, 5)[0]
    for row in s:
        bot.learn(bot.act(row), 0.1)
    assert len(bot._learned) == KEPT
    with pytest.raises(pp.errors.RewardError, match="512 learned last"):
        bot.reveal(0, [0.1])
    bot.reveal(len(s) - 1, [0.1])


def test_one_reward_that_never_comes_is_given_up_with_one_warning():
    bot, s = remembers(), contexts(1, LONGEST + 90, 5)[0]
    lost, held = bot.act(s[0]), []
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for row in s[1:]:
            bot.learn(bot.act(row), 0.1)
            held.append(sum(value.size for value in unit_of(bot).state().values()))
    assert [str(each.message).split(" has")[0] for each in said] == ["UnitMemory: step 0"]
    assert max(held) < 4 * LONGEST + 50
    assert held[-1] < 20
    before = unit_of(bot).predicted()
    bot.learn(lost, 5.0)  # it still teaches theta, though nothing of the unit
    assert bot.state.rounds == len(s)
    assert_array_equal(unit_of(bot).predicted()[0], before[0])


def test_units_have_memories_of_their_own():
    bot, s = remembers(), contexts(1, 12, 5)[0]
    for t, row in enumerate(s):
        choice = bot.act(row, unit="ab"[t % 2])
        if t % 2:
            bot.learn(choice, 2.0)
    assert unit_of(bot, "a").left()[0] == 0
    assert unit_of(bot, "b").left()[0] != 0


def test_a_guard_around_a_memory_is_a_heuristic_that_tracks():
    bot = pp.PulseUCB(
        law(memory="ar"), WA, calibration=calibration(), reward_sd=SD, theta_bound=2.0
    )
    stream(bot, online())
    assert unit_of(bot).left()[0] != 0
    assert "heuristic" in repr(bot)
    team = guarded(memory="ar")
    stream(team, online())
    assert unit_of_first(team).left()[0] != 0


def unit_of_first(bot):
    return bot._pasts.units[""][0].each[0].memory


def test_what_a_memory_cannot_be_played_with_is_said():
    own = law(memory="ar")
    with pytest.raises(pp.errors.SettingError, match="give reward_sd="):
        pp.PulseUCB(own, WA, pp.constant(1.0))
    with pytest.raises(pp.errors.SettingError, match=r"constant\(\.\.\.\) or thompson"):
        pp.PulseUCB(own, WA, pp.corrected(sigma=1.0), reward_sd=0.1)
    bent = pp.Features(lambda s, w, a: np.column_stack([w[:, 0], a * w[:, 0] ** 2]), 2, ("w", "a"))
    with pytest.raises(pp.errors.PulseError, match="affine"):
        pp.PulseUCB(own, bent, pp.constant(1.0), reward_sd=0.1)
    with pytest.raises(pp.errors.SettingError, match="the law's memory is about this one"):
        pp.PulseUCB(
            own,
            WA,
            pp.constant(1.0),
            reward_sd=0.1,
            archive=pp.GrowingArchive(archive(12, 20), own, every=5),
        )
    bot, s = remembers(), contexts(1, 4, 5)[0]
    with pytest.raises(pp.errors.SettingError, match="one context a round"):
        bot.act(s[:2])
    bot.act(s[0])
    with pytest.raises(pp.errors.SettingError, match="cannot be swapped"):
        bot.swap_law(law(seed=1))


def test_w_tells_a_policy_without_memory_nothing_later():
    bot, s = pp.PulseUCB(law(), WA, pp.constant(1.0)), contexts(1, 4, 5)[0]
    choice = bot.act(s[0])
    bot.reveal(choice, [0.3])
    bot.learn(choice, 0.1)
    with pytest.raises(pp.errors.RewardError, match="W tells nothing later"):
        bot.reveal(choice, [0.3])
