"""What a growing archive refuses, and that settings it takes are the ones it uses."""

from functools import cache

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import pulse_pyro as pp
from tests.helpers import mean_at
from tests.laws.test_growing import RADIUS, feed
from tests.policies.helpers import archive, contexts, w_features

HISTORY = archive(units=3, time=9)
LAW = pp.linear_lags(2)
FITTED = LAW.fit(HISTORY, pp.Exact(40), seed=0)
REFUSED = {
    "not a history": ((HISTORY.grid.s, FITTED), {}, pp.errors.ModelError, "ndarray"),
    "not a law": ((HISTORY, LAW), {}, pp.errors.ModelError, "not History and Law"),
    "other units": ((archive(units=4, time=9), FITTED), {}, pp.errors.DataError, "other units"),
    "every": ((HISTORY, FITTED), {"every": 0}, pp.errors.SettingError, "every"),
    "half": ((HISTORY, FITTED), {"every": 1.5}, pp.errors.SettingError, "every"),
    "other window": (
        (HISTORY, FITTED),
        {"law": pp.linear_lags(3)},
        pp.PulseError,
        "GrowingArchive",
    ),
    "other W": ((archive(units=3, time=9, w_dim=2), FITTED), {}, pp.PulseError, "GrowingArchive"),
}


@cache
def memory():
    return pp.state_space(1, ar=1, ma=0).fit(HISTORY, seed=0, draws=40)


def test_a_law_with_memory_needs_what_it_was_fitted_from():
    with pytest.raises(pp.errors.ModelError, match="pass law="):
        pp.GrowingArchive(HISTORY, memory(), every=5)


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_is_refused_at_once(case):
    given, more, error, says = REFUSED[case]
    with pytest.raises(error, match=says):
        pp.GrowingArchive(*given, **{"every": 5, **more})


def test_the_policy_and_its_archive_share_one_law():
    kept = pp.GrowingArchive(HISTORY, FITTED, every=5)
    with pytest.raises(pp.errors.SettingError, match="another law"):
        pp.PulseUCB(LAW.fit(HISTORY, seed=1), w_features(1), RADIUS, archive=kept)


def test_contexts_per_arm_are_refused_and_not_taken_in():
    kept = pp.GrowingArchive(HISTORY, FITTED, every=5)
    bot = pp.PulseUCB(FITTED, w_features(1), RADIUS, archive=kept)
    with pytest.raises(pp.errors.SettingError, match="one context a round"):
        bot.act(np.zeros((2, 2)))
    assert kept.grown is HISTORY
    bot.act([1.0, -100.0])
    assert kept.grown.grid.seen.sum() == 28


def test_a_refused_w_is_not_archived():
    kept = pp.GrowingArchive(HISTORY, FITTED, every=1)
    bot = pp.PulseUCB(FITTED, w_features(1), RADIUS, archive=kept)
    choice = bot.act([1.0, -100.0])
    for w in ([np.nan], [1.0, 2.0], "x"):
        with pytest.raises(pp.errors.DataError, match="stays open"):
            bot.learn(choice, 1.0, w=w)
    with pytest.raises(pp.errors.RewardError):
        bot.learn(choice, np.nan, w=[0.1])
    assert (kept.rounds, bot.law is FITTED, bot.pending) == (0, True, (0,))
    bot.learn(choice, 1.0, w=[0.1])
    assert kept.rounds == 1


def test_a_reward_without_w_does_not_bring_a_refit():
    kept = pp.GrowingArchive(HISTORY, FITTED, every=2)
    bot = pp.PulseUCB(FITTED, w_features(1), RADIUS, archive=kept)
    for t, row in enumerate(contexts(1, 9, 5)[0]):
        bot.learn(bot.act(row), float(t))
    assert bot.law is FITTED


def test_the_law_that_is_passed_is_the_one_that_is_fitted():
    """fitted with one prior, to be fitted anew with another."""
    other = pp.linear_lags(2, prior=pp.laws.Conjugate(slope=0.01))
    kept = pp.GrowingArchive(HISTORY, FITTED, every=100, law=other)
    feed(kept, 1)
    s = contexts(1, 6, 8)
    assert_allclose(mean_at(kept.refit(), s), mean_at(other.fit(kept.grown, seed=0), s), rtol=1e-8)


def test_the_engine_that_is_passed_is_the_one_that_is_used():
    kept = pp.GrowingArchive(HISTORY, FITTED, every=100, inference=pp.Exact(70))
    feed(kept, 1)
    law = kept.refit()
    assert law.kernel.count == 70
    assert law.record.inference == repr(pp.Exact(70))


@pytest.mark.parametrize("law", [LAW, pp.gaussian_process(1)], ids=["linear", "gp"])
def test_a_grown_archive_may_grow_again(law):
    """The next day: fit on what was grown, and go on with the same units."""
    how = pp.Exact(40) if law is LAW else pp.Laplace(40)
    first = pp.GrowingArchive(HISTORY, law.fit(HISTORY, how, seed=0), every=100)
    feed(first, 1, units=("ann", "bob"))
    day = first.grown
    second = pp.GrowingArchive(day, law.fit(day, how, seed=0), every=100, inference=how)
    feed(second, 1, seed=6, units=("ann", "bob"))
    units = second.refit().units
    assert len(units) == len(set(units))


OTHERS = {
    "other lags": lambda: pp.linear_lags(3).fit(HISTORY, seed=0),
    "fewer lags": lambda: pp.linear_lags(1).fit(HISTORY, seed=0),
    "other W": lambda: LAW.fit(archive(units=3, time=9, w_dim=2), seed=0),
    "memory": memory,
}


@pytest.mark.parametrize("case", OTHERS)
def test_a_law_that_does_not_fit_is_not_swapped_in(case):
    bot, twin = (pp.PulseUCB(FITTED, w_features(1), RADIUS) for _ in range(2))
    s = contexts(1, 8, 5)[0]
    for row in s[:4]:
        for each in (bot, twin):
            each.learn(each.act(row), 1.0)
    with pytest.raises(pp.PulseError):
        bot.swap_law(OTHERS[case]())
    assert bot.law is FITTED
    for row in s[4:]:
        assert_array_equal(bot.act(row).x, twin.act(row).x)


def test_a_law_that_looks_further_back_is_not_swapped_in():
    """One row cannot stand in for the three the new law looks at."""
    short = pp.linear_lags(1).fit(HISTORY, seed=0)
    bot = pp.PulseUCB(short, w_features(1), RADIUS)
    bot.learn(bot.act([1.0, -100.0]), 1.0)
    with pytest.raises(pp.PulseError):
        bot.swap_law(pp.linear_lags(3).fit(HISTORY, seed=0))
    assert bot.law is short


def test_a_law_of_another_archive_takes_over_and_nothing_learned_is_lost():
    bot, other = pp.PulseUCB(FITTED, w_features(1), RADIUS), LAW.fit(archive(seed=3), seed=0)
    s = contexts(1, 8, 5)
    for row in s[0, :5]:
        bot.learn(bot.act(row), 1.0)
    before, pending = bot.state, bot.act(s[0, 5])
    bot.swap_law(other)
    assert_array_equal(bot.state.theta, before.theta)
    assert bot.pending == (pending.id,)
    assert_allclose(bot.act(s[0, 6]).x[1], mean_at(other, s[:, :7])[0, -1, 0], rtol=1e-9)
