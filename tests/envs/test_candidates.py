"""Candidates without replacement, and chunked play that is play in one go."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pulse_pyro.envs.candidates as module
from pulse_pyro._core.errors import FeatureError, PulseError, RewardError, SettingError
from pulse_pyro._core.seeds import stream
from pulse_pyro.envs.candidates import draw_candidates, play_candidates
from pulse_pyro.policies.horizon import play_horizon
from pulse_pyro.radius import constant
from tests.helpers import z_bound

ROUNDS = 2500  # more than two blocks, and past a re-factorisation


def rows(n=600, d=5, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d))
    return x, (rng.random(n) < 1 / (1 + np.exp(2 - x[:, -1]))).astype(float)


@given(st.integers(1, 30), st.integers(0, 900), st.integers(0, 50))
def test_no_candidate_twice_in_a_round(arms, more, seed):
    found = draw_candidates(arms + more, arms, 40, rng=np.random.default_rng(seed))
    assert found.shape == (40, arms)
    assert found.min() >= 0
    assert found.max() < arms + more
    assert all(len(set(row)) == arms for row in found.tolist())


@pytest.mark.parametrize("n", [30, 500])  # by shuffling, by drawing again
def test_every_row_is_as_likely_in_every_place(n):
    rounds = 40_000
    found = draw_candidates(n, 20, rounds, rng=np.random.default_rng(3))
    for place in (0, 19):
        count = np.bincount(found[:, place], minlength=n)
        z = (count - rounds / n) / np.sqrt(rounds / n * (1 - 1 / n))
        assert np.abs(z).max() < z_bound(2 * n) + 0.5  # a margin for the normal approximation


def test_all_rows_may_be_candidates_but_no_more():
    assert sorted(draw_candidates(7, 7, 1, rng=np.random.default_rng(0))[0]) == list(range(7))
    with pytest.raises(SettingError, match="8 different candidates were asked of 7 rows"):
        draw_candidates(7, 8, 1, rng=np.random.default_rng(0))


@pytest.mark.parametrize("d", [5, 32])
def test_chunked_play_is_play_in_one_go(d):
    x, pays = rows(d=d)
    picks = play_candidates({"a": x}, pays, rounds=ROUNDS, seed=4, arms=20)
    blocks = [
        draw_candidates(len(x), 20, module.BLOCK, rng=stream(4, "candidates", i)) for i in range(3)
    ]
    at = np.concatenate(blocks)[:ROUNDS]
    action, _, _ = play_horizon(x[at][None], pays[at][None], constant(1.0))
    np.testing.assert_array_equal(picks["a"], at[np.arange(ROUNDS), action[0]])
    np.testing.assert_array_equal(picks["random"], at[:, 0])


def test_more_rounds_and_other_agents_leave_a_round_as_it_was():
    x, pays = rows()
    short = play_candidates({"a": x}, pays, rounds=700, seed=1)
    long = play_candidates({"b": x[:, :2], "a": x}, pays, rounds=ROUNDS, seed=1)
    for name in ("a", "random"):
        np.testing.assert_array_equal(short[name], long[name][:700])


def test_an_agent_earns_more_if_it_sees_what_pays():
    x, pays = rows(3000, 6)
    picks = play_candidates({"blind": x[:, :-1], "sees": x}, pays, rounds=ROUNDS, seed=0)
    earned = {name: pays[at].mean() for name, at in picks.items()}
    se = np.sqrt(0.25 / ROUNDS)  # of a rate, at most
    assert earned["sees"] > earned["blind"] + z_bound() * np.sqrt(2) * se
    assert abs(earned["random"] - pays.mean()) < z_bound() * se


def test_what_an_agent_is_not_shown_does_not_matter():
    x, pays = rows()
    other = x.copy()
    other[:, 3:] = 7.0 - 2.0 * x[:, 3:]
    before, after = (
        play_candidates({"part": t[:, :3], "all": t}, pays, rounds=800, seed=2) for t in (x, other)
    )
    np.testing.assert_array_equal(before["part"], after["part"])
    assert (before["all"] != after["all"]).any()


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"features": {}}, SettingError, "name at least one agent"),
        ({"features": {"random": np.ones((600, 2))}}, SettingError, "always plays"),
        ({"features": {"a": np.ones((599, 2))}}, FeatureError, r"\(600, d\)"),
        ({"features": {"a": np.full((600, 2), np.nan)}}, FeatureError, "1200 of their values"),
        ({"features": {"a": np.full((600, 2), 1e9)}}, FeatureError, "rescale"),
        ({"reward": np.full(600, np.nan)}, RewardError, "finite"),
        ({"rounds": 0}, SettingError, "rounds"),
        ({"arms": 601}, SettingError, "601 different candidates"),
        ({"alpha": -1.0}, SettingError, "alpha"),
        ({"ridge": 0.0}, SettingError, "ridge"),
    ],
)
def test_bad_input_gets_a_sentence(change, error, words):
    x, pays = rows()
    given_ = {"features": {"a": x}, "reward": pays, "rounds": 10, "seed": 0} | change
    with pytest.raises(error, match=words) as caught:
        play_candidates(given_.pop("features"), given_.pop("reward"), **given_)
    assert isinstance(caught.value, PulseError)
