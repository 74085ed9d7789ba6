"""Policies on a law with a state: W that is revealed counts."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from pulse_pyro import Committee, History, PulseUCB, constant, law_from_file, load, save, terms
from pulse_pyro._core.errors import DataError, RewardError
from tests.laws.step_programs import at_truth

MODELS = Path(__file__).parents[2] / "models"
TRUTH = {
    "drift": [0.2, 0.3],
    "spread": [1.0, 1.2],
    "a": [0.0, 0.1],
    "c": [0.0, 0.0],
    "d": [1.0, 0.8],
    "s_sd": [0.5, 0.5],
    "w_sd": [0.5, 0.6],
}
S = np.random.default_rng(0).standard_normal((3, 8, 1))
ARCHIVE = History.from_arrays(S, S, s_names=["s"], w_names=["w"])
PHI = terms(["1", "w", "w*a"], 2, observed=["s"], missing=["w"])


@pytest.fixture(scope="module")
def law():
    program = law_from_file(MODELS / "drifting_level.py")
    one = at_truth(program, ARCHIVE, {name: value[0] for name, value in TRUTH.items()})
    return replace(one, draws={name: np.array(value) for name, value in TRUTH.items()})


@pytest.mark.parametrize("unit", ["", "ann"])
def test_a_w_that_is_observed_tells_of_the_level(law, unit):
    told, untold = PulseUCB(law, PHI, constant(1.0)), PulseUCB(law, PHI, constant(1.0))
    told.observe([0.1], w=[3.0], unit=unit)
    untold.observe([0.1], unit=unit)
    follower = law.follow()
    follower.push(np.array([0.1]), np.array([3.0]))
    by_hand = follower.push(np.array([0.3])).mean()[0, 0]
    x = told.act([0.3], unit=unit).x
    assert_allclose(x[1], by_hand, rtol=1e-12)
    assert x[1] > untold.act([0.3], unit=unit).x[1] + 0.5
    other = told.act([0.3], unit="somebody else").x[1]
    assert_allclose(other, law.follow().push(np.array([0.3])).mean()[0, 0], rtol=1e-12)


def test_what_was_told_survives_being_saved(law, tmp_path):
    policy = PulseUCB(law, PHI, constant(1.0))
    policy.observe([0.1], w=[3.0])
    again = load(save(policy, tmp_path / "policy"), law=law, features=PHI)
    assert_allclose(again.act([0.3]).x, policy.act([0.3]).x, rtol=1e-12)


def test_an_impossible_w_is_refused_and_tells_nothing(law):
    follower = law.follow()
    with pytest.raises(DataError, match="push S first"):
        follower.condition_on([1.0])
    before = follower.push(np.array([0.1])).mean()
    with pytest.raises(DataError, match="1 numbers"):
        follower.condition_on([np.inf])
    assert_allclose(follower.conditional.mean(), before)
    assert_allclose(
        follower.push(np.array([0.3])).mean(),
        law(np.array([[[0.1], [0.3]]])).mean()[1:],
        rtol=1e-12,
    )


# W that comes to be known after the decision.


def by_hand(law, s, w):
    """Follow S (n, 1), telling of W (n,) at once, NaN where it is not known."""
    follower = law.follow()
    for row, own in zip(s, w, strict=True):
        follower.push(row, np.array([own]))
    return follower


@pytest.mark.parametrize("state", ["auto", "particles"])
@pytest.mark.parametrize("how", ["learn", "reveal", "reveal after learn"])
def test_a_w_that_is_revealed_counts_from_the_next_row_on(law, how, state):
    one = replace(law, law=replace(law.law, state=state, particles=64))
    one = replace(one, card=one.law.check(ARCHIVE))
    policy = PulseUCB(one, PHI, constant(1.0))
    decision = policy.act([0.1], unit="ann")
    if how != "reveal":
        policy.learn(decision, 0.5, w=[3.0] if how == "learn" else None)
    if how != "learn":
        policy.reveal(decision, [3.0])
    told = by_hand(one, [[0.1], [0.3]], [3.0, np.nan]).conditional.mean()[0, 0]
    untold = by_hand(one, [[0.1], [0.3]], [np.nan, np.nan]).conditional.mean()[0, 0]
    x = policy.act([0.3], unit="ann").x[1]  # with particles by draws of W
    found = policy._pasts.units["ann"][0].conditional.mean()[0, 0]
    assert_allclose(found, told, rtol=1e-12)
    assert_allclose(x, found, rtol=1e-12 if state == "auto" else 0.2)
    assert min(x, found) > untold + 0.3


@pytest.mark.parametrize("state", ["auto", "particles"])
def test_w_that_come_late_and_out_of_order_count_at_their_own_time(law, state, tmp_path):
    one = replace(law, law=replace(law.law, state=state, particles=64))
    one = replace(one, card=one.law.check(ARCHIVE))
    rng = np.random.default_rng(1)
    s, w = rng.standard_normal((90, 1)), rng.standard_normal(90) + 2.0
    known = np.full(90, np.nan)
    policy, waiting = PulseUCB(one, PHI, constant(1.0)), []
    for t, row in enumerate(s):
        waiting.append((t, policy.act(row)))
        while waiting and rng.random() < 0.4:
            at, decision = waiting.pop(int(rng.integers(len(waiting))))
            if t - at < 60:
                policy.learn(decision, 0.1) if rng.random() < 0.5 else None
                policy.reveal(decision, w[[at]])
                known[at] = w[at]
        if t == 70:  # it goes on as if it had never paused
            policy = load(save(policy, tmp_path / "policy"), law=one, features=PHI)
    again = load(save(policy, tmp_path / "again"), law=one, features=PHI)
    assert np.isfinite(known).sum() > 40
    wanted = by_hand(one, s, known)
    for each in (policy, again):
        follower = each._pasts.units[""][0]
        assert_array_equal(follower.conditional.mean(), wanted.conditional.mean())
        assert_array_equal(follower.push(s[0]).mean(), wanted.push(s[0]).mean())
        assert_array_equal(follower.state()["known0"], wanted.state()["known0"])
        wanted = by_hand(one, s, known)
    at, decision = waiting[-1]
    policy.reveal(decision, w[[at]])
    again.reveal(decision.id, w[[at]])
    assert_array_equal(policy.act([0.2]).x, again.act([0.2]).x)


def test_a_w_that_comes_too_late_is_said_and_tells_nothing(law):
    policy, s = PulseUCB(law, PHI, constant(1.0)), np.zeros(1)
    first = policy.act(s)
    for _ in range(130):
        policy.observe(s)
    before = policy._pasts.units[""][0].conditional.mean()
    with pytest.warns(UserWarning, match=r"decision 0 .*too late"):
        policy.reveal(first, [3.0])
    assert_array_equal(policy._pasts.units[""][0].conditional.mean(), before)
    with pytest.raises(RewardError, match="known already"):
        policy.reveal(first, [3.0])


def test_a_w_counts_once_and_an_impossible_one_leaves_the_decision_open(law):
    policy = PulseUCB(law, PHI, constant(1.0))
    decision = policy.act([0.1])
    policy.reveal(decision, [3.0])
    with pytest.raises(RewardError, match="known already"):
        policy.reveal(decision, [3.0])
    policy.learn(decision, 0.5, w=[3.0])  # teaches the true features as well
    want = by_hand(law, [[0.1], [0.3]], [3.0, np.nan]).conditional.mean()[0, 0]
    assert_allclose(policy.act([0.3]).x[1], want, rtol=1e-12)
    assert policy.state.precision[1, 1] == pytest.approx(1.0 + 9.0)


def test_arms_with_contexts_of_their_own_are_series_of_their_own(law):
    policy = PulseUCB(law, PHI, constant(1.0))
    decision = policy.act([[0.1], [0.2]])
    policy.learn(decision, 0.5, w=[3.0])
    for arm, s in enumerate((0.1, 0.2)):
        w = 3.0 if arm == decision.action else np.nan
        follower = policy._pasts.units[""][arm]
        want = by_hand(law, [[s], [0.3]], [w, np.nan]).conditional.mean()
        assert_allclose(follower.push(np.array([0.3])).mean(), want, rtol=1e-12)


def test_members_of_a_committee_are_told_as_well(law, tmp_path):
    members = {"a": law, "b": replace(law, draws={n: v[:1] for n, v in law.draws.items()})}
    team = Committee(members, PHI, sigma=0.5, theta_bound=1.0, reward_sd=0.1)
    first = team.act([0.1])
    team.act([0.4])
    team = load(save(team, tmp_path / "team"), law=members, features=PHI)
    team.add("c", law)
    with pytest.warns(UserWarning, match="too late"):  # for the member that was not there
        team.reveal(first.id, [3.0])
    team.retire("b")
    second = team.act([0.2])
    team.learn(second, 0.3, w=[1.0])
    a, c = team._pasts.units[""][0].each
    want = by_hand(law, [[0.1], [0.4], [0.2], [0.3]], [3.0, np.nan, 1.0, np.nan])
    assert_allclose(a.push(np.array([0.3])).mean(), want.conditional.mean(), rtol=1e-12)
    assert c.push(np.array([0.3])).mean() != a.conditional.mean()
