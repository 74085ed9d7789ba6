"""Recorded rounds: what they hold, in which order they come, what they refuse."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

import pulse_pyro as pp
from pulse_pyro._core.errors import DataError, SettingError
from pulse_pyro.envs.replay import Replay, by_time, in_line, shuffled
from pulse_pyro.paper.datasets import line_per_arm
from tests.envs import helpers as replay_worlds

ROWS = np.array([[True, False, True], [True, True, False]])  # flat: 0, 2, 3, 4


def tiny(**parts):
    s = np.array([[[1.0], [2.0]], [[3.0], [np.nan]]])
    w = np.array([[[10.0], [20.0]], [[30.0], [40.0]]])
    seen = np.ones((2, 2), bool)
    history = pp.History.from_arrays(
        s, w, seen=seen, units=("a", "b"), s_names=("s",), w_names=("w",)
    )
    given = {"utility": np.arange(8.0).reshape(2, 2, 2)} | parts
    return Replay(history, features=line_per_arm(history, 2), **given)


def test_features_of_the_full_context_by_hand():
    found = tiny().phi
    # (1, s, w, and the same again for arm 1)
    assert_array_equal(found[0, 1], [[1, 2, 20, 0, 0, 0], [1, 2, 20, 1, 2, 20]])
    assert np.isnan(found[1, 1]).any()


def test_a_row_is_complete_if_all_of_it_is_known():
    utility = np.arange(8.0).reshape(2, 2, 2)
    utility[0, 0, 1] = np.nan
    assert_array_equal(tiny(utility=utility).complete, [[False, True], [True, False]])


def test_blocks_are_units_unless_told_otherwise():
    assert_array_equal(tiny().block, [[0, 0], [1, 1]])
    assert_array_equal(tiny(block=np.array([[0, 1], [0, 1]])).block, [[0, 1], [0, 1]])


def test_features_of_an_arm_are_affine_in_w():
    made = replay_worlds.replay()
    s, w = (v.reshape(-1, v.shape[-1]) for v in (made.s, made.w))
    assert made.features.affine_in_w(s, w)
    assert made.features.names[:4] == ("1", "s1", "s2", "w")


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"utility": np.zeros((2, 2, 3))}, r"utility must be \(unit, time, action\) = \(2, 2, 2\)"),
        ({"utility": np.full((2, 2, 2), np.inf)}, "a utility is infinite"),
        ({"block": np.zeros((2, 3), int)}, "block must be"),
        ({"block": np.array([[0, -1], [0, 0]])}, "whole numbers >= 0"),
        ({"block": np.zeros((2, 2))}, "whole numbers >= 0"),
    ],
)
def test_what_does_not_fit_is_refused(parts, words):
    with pytest.raises(DataError, match=words):
        tiny(**parts)


def test_units_too_unequal_for_a_rectangle_are_refused_with_what_to_do():
    lengths = np.array([5] * 2600 + [20_000])
    rows = int(lengths.sum())
    uneven = pp.History(
        s=np.zeros((rows, 1)),
        w=np.zeros((rows, 1)),
        offsets=np.concatenate([[0], np.cumsum(lengths)]),
        step=np.concatenate([np.arange(n) for n in lengths]),
        units=tuple(map(str, range(len(lengths)))),
        schema=pp.Schema.of(("s",), ("w",)),
    )
    with pytest.raises(DataError, match=r"Replay.*cut"):
        Replay(uneven, np.zeros((1, 1, 2)), line_per_arm(uneven, 2))


def test_what_was_recorded_cannot_be_changed():
    with pytest.raises(ValueError, match="read-only"):
        tiny().utility[0, 0, 0] = 5.0


def test_time_goes_first_in_order_of_time():
    for seed in range(4):
        found = by_time(ROWS, seed=seed)
        assert (found % 3).tolist() == [0, 0, 1, 2]
        assert sorted(found.tolist()) == [0, 2, 3, 4]
    firsts = {int(by_time(ROWS, seed=seed)[0]) for seed in range(20)}
    assert firsts == {0, 3}  # units of one time take turns


@given(seed=st.integers(0, 10**6), rounds=st.integers(1, 4))
def test_shuffled_rounds_are_some_of_the_rows_each_once(seed, rounds):
    found = shuffled(ROWS, seed=seed, rounds=rounds)
    assert len(set(found.tolist())) == rounds
    assert set(found.tolist()) <= {0, 2, 3, 4}
    assert_array_equal(found, shuffled(ROWS, seed=seed)[:rounds])


def test_too_many_rounds_and_none_at_all_are_refused():
    with pytest.raises(SettingError, match="5 rounds were asked for, 4 can be played"):
        shuffled(ROWS, seed=0, rounds=5)
    with pytest.raises(DataError, match="no row can be played"):
        shuffled(np.zeros((2, 3), bool), seed=0)


def test_values_are_put_in_line():
    values = np.arange(12).reshape(2, 3, 2)
    assert_array_equal(in_line(values, np.array([4, 0])), [[8, 9], [0, 1]])


def test_a_replay_is_a_source_of_agents_like_a_world():
    made = replay_worlds.replay()
    law = pp.linear_lags(2).fit(replay_worlds.history(40, 30, 0), seed=0)
    hidden = replace(made.history, w=np.zeros_like(made.history.w))
    blind = replace(made, history=hidden)
    for make in (
        lambda r: pp.envs.pulse(r, law),
        lambda r: pp.envs.pulse_adaptive(r, law),
        pp.envs.oful,
        lambda r: pp.envs.oful_lags(r, pp.Lags(2)),
    ):
        one, two = make(made), make(blind)
        assert_array_equal(one.x, two.x)  # W is not looked at
    assert not np.array_equal(pp.envs.oful_full(made).x, pp.envs.oful_full(blind).x)
