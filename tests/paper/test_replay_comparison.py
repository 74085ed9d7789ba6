"""Comparisons on recorded rounds: agents, runs, engines, laws judged on held-out pieces."""

import json
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import pulse_pyro as pp
from pulse_pyro._core.errors import DataError, SettingError
from pulse_pyro._core.parallel import Local
from pulse_pyro.envs.replay import by_time
from pulse_pyro.paper.case import Case, judged_finding, play_rules_finding, setting_finding
from pulse_pyro.paper.datasets import utility_noise
from pulse_pyro.paper.judge import _failed, judge
from pulse_pyro.paper.replay_comparison import Carrying, Imputer, PlayRule, compare
from tests.envs import helpers as replay_worlds

PLAY_RULES = {"small": PlayRule(pp.constant(0.25)), "late": PlayRule(pp.constant(0.25), by_time)}
LAWS = (
    Imputer("line", pp.linear_lags(2), adaptive=True),
    Imputer("now", pp.linear_lags(1), anew=True),
)
play = partial(compare, lags=pp.Lags(2), play_rules=PLAY_RULES, runs=3)


@pytest.fixture(scope="module")
def made():
    return replay_worlds.dataset()


@pytest.fixture(scope="module")
def found(made):
    return play(made, LAWS)


PLAIN = {"pulse_line", "pulse_adaptive", "pulse_now", "oful", "oful_lags", "oful_full"}
CARRIED = {"oful_lags_rewards", "pulse_line_memory", "pulse_now_memory"}


def test_every_agent_plays_every_setting(found):
    agents = PLAIN | CARRIED | {"committee"}
    assert list(found.settings) == ["plain, small", "plain, late", "doubled, small"]
    for played in found.settings.values():
        assert set(played.names) == agents
        assert played.runs == 3
        assert played.earned.shape[2] == 6 * 59  # no round without the second lag


def test_out_of_the_order_of_time_nothing_is_carried(found):
    shuffled, late = found.settings["plain, small"], found.settings["plain, late"]
    for name, base in (("oful_lags_rewards", "oful_lags"), ("pulse_now_memory", "pulse_now")):
        assert_array_equal(shuffled.of(name), shuffled.of(base))
    assert not np.array_equal(late.of("oful_lags_rewards"), late.of("oful_lags"))


def test_the_committee_is_held_against_the_best_that_does_not_see_w(found):
    for setting, played in found.settings.items():
        best, gain = found.voted(setting)
        others = played.table["utility"].drop(["committee", "oful_full"])
        assert others[best] == others.max()
        assert gain.difference == pytest.approx(
            played.table["utility"]["committee"] - others.max(), abs=1e-12
        )
        assert f"beside {best}" in found.vote_verdict(setting)


def test_rules_and_settings_may_do_without_those_that_carry(made):
    rules = {
        "small": PlayRule(pp.constant(0.25)),
        "tiny": PlayRule(pp.constant(0.1), everyone=False),
        "late": PlayRule(pp.constant(0.25), by_time, everywhere=True),
    }
    carrying = Carrying(memory="level", past=(1, 2), plain=("doubled",))
    found = compare(made, LAWS[:1], pp.Lags(2), play_rules=rules, carrying=carrying, runs=2)
    few = {"pulse_line", "pulse_adaptive", "oful", "oful_lags", "oful_full"}
    more = {"oful_lags_rewards", "oful_lags_rewards2", "pulse_line_memory", "committee"}
    names = {setting: set(played.names) for setting, played in found.settings.items()}
    assert names == {
        "plain, small": few | more,
        "plain, tiny": few,
        "plain, late": few | more,
        "doubled, small": few,
        "doubled, late": few,
    }
    assert found.voted("doubled, late") is None
    assert found.vote_verdict("doubled, late") == ""
    assert "" in set(
        play_rules_finding(found, ["plain, small", "plain, tiny"], "x").table.iloc[:, 2]
    )


def test_the_noise_of_utilities_is_that_of_the_archive(made):
    archive, features = made.archive, made.replays["plain"].features
    utility = replay_worlds.utility(
        archive.grid.w, seed=3
    )  # noise of sd .1, the same for both arms
    assert utility_noise(archive, utility, features) == pytest.approx(0.1, rel=0.1)
    assert made.noise_of("plain") == pytest.approx(0.5 * made.replays["plain"].utility.std())
    told = replace(made, reward_sd={"plain": 0.3})
    assert told.noise_of("plain") == 0.3
    with pytest.raises(DataError, match="no row of the archive"):
        utility_noise(archive, np.full(utility.shape, np.nan), features)


def test_a_law_that_knows_more_of_the_past_imputes_better(found):
    share = found.explained["w"]
    assert share["line"] > share["now"] + 0.1
    # W = s1 - s2 + previous s1 + noise of sd .3
    assert_allclose(share["line"], 1 - 0.09 / replay_worlds.replay().w.var(), atol=0.02)


def test_utilities_scale_with_the_setting(found):
    one = found.settings["plain, small"].table["utility"]
    two = found.settings["doubled, small"].table["utility"]
    assert (two > 1.5 * one).all()


def test_the_table_is_that_of_the_runs(found):
    table, played = found.table("plain, small"), found.settings["plain, small"]
    assert table["closed"]["oful"] == 0.0
    assert table["closed"]["oful_full"] == 1.0
    gain = played.contrast("pulse_line", "oful_lags")
    assert table["over_lags"]["pulse_line"] == gain.difference
    assert table["over_lags_block_se"]["pulse_line"] == gain.block_se
    assert np.isnan(table["fit_seconds"]["oful"])
    assert table["fit_seconds"]["pulse_now"] > 0


def test_the_verdict_names_the_best_law_and_the_better_baseline(found):
    assert found.best("plain, small").removesuffix("_memory") in ("pulse_line", "pulse_adaptive")
    assert "raw lags" in found.verdict("plain, small")
    assert f"{found.settings['plain, small'].table['utility']['oful']:.4g}" in repr(found)


def test_workers_change_no_figure(made, found):
    again = play(made, LAWS, engine=Local(2))
    for name, played in found.settings.items():
        assert again.settings[name].names == played.names
        assert_array_equal(again.settings[name].earned, played.earned)


def test_the_seed_changes_the_order(made, found):
    again = play(made, LAWS[:1], seed=1)
    name = "plain, small"
    ours, theirs = again.settings[name].of("oful"), found.settings[name].of("oful")
    # no run of one seed is a run of its neighbour
    assert not (ours[:, None] == theirs).all(-1).any()


def test_one_run_has_no_standard_error(made):
    with pytest.raises(SettingError, match="runs must be a whole number >= 2"):
        compare(made, LAWS, pp.Lags(2), play_rules=PLAY_RULES, runs=1)


def test_lags_longer_than_the_rounds_are_refused(made):
    with pytest.raises(DataError, match="no round has all inputs of all agents"):
        compare(made, LAWS, pp.Lags(61), play_rules=PLAY_RULES, runs=2)


def test_a_right_law_passes_and_a_short_one_fails(made):
    right, short = judge(made, LAWS)
    assert (right.law, right.diagnose, right.uniform) == ("line", "pass", "conditional")
    assert right.standing == "forecast"
    assert 0 < right.forecast < right.free < 1
    assert right.failed == ""
    assert 0 < right.root_mean < right.root_sup < 0.3
    assert 0 <= right.outside < 0.2
    assert short.uniform == "fails"
    assert "lack of fit" in short.failed  # its summary leaves out what S_{t-1} tells
    assert np.isnan(short.root_mean)


def test_checks_that_fail_are_counted_by_kind():
    names = ["serial w 1", "serial w2", "lack of fit", "trend w2"]
    assert _failed(names, ["w 1", "w2"]) == "serial (2 W), lack of fit, trend (1 W)"
    assert _failed([], ["w 1"]) == ""


def test_a_law_nothing_can_bound_says_why(made):
    few = made.pieces.where(made.pieces.step < 8)
    small = type(made)("few", "", "", made.archive, made.replays, few.take(range(4)), made.scale)
    (only,) = judge(small, LAWS[:1])
    assert only.uniform == "fails"
    assert np.isnan(only.root_mean)


def test_findings_are_plain_and_pictured(made, found):
    one = setting_finding(found, "plain, small", "Plain")
    two = play_rules_finding(found, ["plain, small", "plain, late"], "Ways")
    three = judged_finding(judge(made, LAWS), "Judged")
    case = Case("made up", "it shows", "about", "nobody", (one, two, three), 1.0)
    text = json.dumps(case.to_json(), allow_nan=False)
    assert "over_lags_block_se" in text
    assert one.table["agent"][0] == found.settings["plain, small"].table["utility"].idxmax()
    assert "1 of 2 laws fail" in three.verdict
    assert len(one.figure().get_yticklabels()) == len(one.table)
    assert repr(case).count("\n") <= 11
