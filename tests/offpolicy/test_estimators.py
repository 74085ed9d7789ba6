"""Values of policies by a log: numbers counted by hand, properties, refusals."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from pulse_pyro._core.errors import DataError, FeatureError, SettingError
from pulse_pyro.offpolicy.estimators import (
    always,
    as_logged,
    direct,
    doubly_robust,
    greedy,
    ips,
    replay_value,
    snips,
    uniform,
)
from pulse_pyro.offpolicy.logged import Logged
from pulse_pyro.offpolicy.value import averaged, difference
from tests.helpers import z_bound
from tests.offpolicy.helpers import by_hand

Q = np.array([[1.0, 1.0], [0.0, 1.0], [1.0, 1.0], [3.0, 2.0]])


def test_ips_by_hand():
    found = ips(by_hand(), always(by_hand(), 1))  # weights 0, 2, 4, 0; terms 0, 0, 8, 0
    assert found.estimate == 2.0
    assert found.se == pytest.approx(2.0)  # sd 4 over sqrt(4)
    reach = 2.0 * stats.t.ppf(0.975, 3)
    assert (found.low, found.high) == pytest.approx((2.0 - reach, 2.0 + reach))
    assert (found.units, found.rows, found.mean_weight, found.bias) == (4, 4, 1.5, 0.0)
    assert found.effective == pytest.approx(36.0 / 20.0)


def test_ips_clusters_by_unit_by_hand():
    log = by_hand(unit=(7, 7, 3, 3))
    found = ips(log, always(log, 1))  # without unit 3: 0 / 2; without unit 7: 8 / 2
    assert found.left_out.tolist() == [0.0, 4.0]
    assert found.se == pytest.approx(2.0)
    assert found.units == 2


def test_snips_by_hand():
    found = snips(by_hand(), always(by_hand(), 1))
    assert found.estimate == pytest.approx(8.0 / 6.0)
    assert found.left_out == pytest.approx([4 / 3, 2.0, 0.0, 4 / 3])
    assert found.se == pytest.approx(np.sqrt(19.0 / 12.0))


def test_direct_and_doubly_robust_by_hand():
    policy = always(by_hand(), 1)
    assert direct(by_hand(), policy, Q).estimate == pytest.approx((1 + 1 + 1 + 2) / 4)
    # 1, 1 + 2 (0 - 1), 1 + 4 (2 - 1), 2
    assert doubly_robust(by_hand(), policy, Q).estimate == pytest.approx(7.0 / 4.0)


def test_clipping_states_its_bias():
    policy = always(by_hand(), 1)
    found = ips(by_hand(), policy, clip=3.0)  # weights 0, 2, 3, 0
    assert (found.estimate, found.bias) == pytest.approx((1.5, -0.5))
    assert snips(by_hand(), policy, clip=3.0).bias == pytest.approx(6 / 5 - 8 / 6)
    assert doubly_robust(by_hand(), policy, Q, clip=3.0).bias == pytest.approx(-1.0 / 4.0)
    with pytest.raises(SettingError, match="clip"):
        ips(by_hand(), policy, clip=0.0)


def test_replay_keeps_the_rows_that_agree():
    log = Logged(
        np.zeros((6, 1)),
        [0, 1, 1, 0, 1, 0],
        [9.0, 0.0, 2.0, 9.0, 4.0, 9.0],
        np.full(6, 0.5),
        np.arange(6),
        2,
    )
    found = replay_value(log, always(log, 1), seed=0)
    assert found.estimate == 2.0
    assert found.effective == 3.0


def test_replay_of_a_random_policy_is_snips_on_average():
    rng = np.random.default_rng(0)
    log = Logged(
        np.zeros((4000, 1)),
        rng.integers(0, 4, 4000),
        rng.normal(size=4000),
        np.full(4000, 0.25),
        np.arange(4000),
        4,
    )
    policy = rng.dirichlet(np.ones(4), 4000)
    draws = [replay_value(log, policy, seed=k).estimate for k in range(400)]
    error = np.std(draws) / 20.0
    assert abs(np.mean(draws) - snips(log, policy).estimate) < z_bound() * error


def test_replay_refuses_logs_that_were_not_uniform():
    with pytest.raises(DataError, match=r"propensities run from 0.25 to 0.75; use snips"):
        replay_value(by_hand(), always(by_hand(), 1), seed=0)


logs = st.integers(0, 10**6).map(
    lambda seed: (
        lambda rng: (
            Logged(
                rng.normal(size=(40, 2)),
                rng.integers(0, 3, 40),
                rng.normal(size=40),
                rng.uniform(0.1, 1.0, 40),
                rng.integers(0, 8, 40),
                3,
            ),
            rng.dirichlet(np.ones(3), 40),
            rng.normal(size=(40, 3)),
        )
    )(np.random.default_rng(seed))
)


def with_reward(log, reward):
    return replace(log, reward=reward)


@given(logs)
def test_the_logging_policy_earns_the_mean_reward(made):
    log, _, _ = made
    for how in (ips, snips):
        found = how(log, as_logged(log))
        assert found.estimate == pytest.approx(log.reward.mean(), abs=1e-12)
        assert found.effective == pytest.approx(log.rows)


@given(logs, st.floats(-100, 100))
def test_a_constant_moves_snips_and_doubly_robust_by_itself(made, shift):
    log, policy, q = made
    moved = with_reward(log, log.reward + shift)
    pairs = (
        (snips(log, policy), snips(moved, policy)),
        (doubly_robust(log, policy, q), doubly_robust(moved, policy, q + shift)),
    )
    for before, after in pairs:
        assert after.estimate == pytest.approx(before.estimate + shift, abs=1e-9)
        assert after.se == pytest.approx(before.se, abs=1e-9)


@given(logs, st.randoms(use_true_random=False))
def test_the_order_of_rows_and_names_of_units_mean_nothing(made, random):
    log, policy, q = made
    order = np.arange(log.rows)
    random.shuffle(order)
    again = Logged(
        log.context[order],
        log.action[order],
        log.reward[order],
        log.propensity[order],
        1000 - 7 * log.unit[order],
        log.actions,
    )
    for how, tables in ((ips, ()), (snips, ()), (direct, (q,)), (doubly_robust, (q,))):
        one = how(log, policy, *tables)
        two = how(again, policy[order], *(t[order] for t in tables))
        assert (two.estimate, two.se) == pytest.approx((one.estimate, one.se), abs=1e-12)


@given(logs)
def test_a_perfect_outcome_model_leaves_no_noise_of_weights(made):
    log, policy, q = made
    exact = with_reward(log, q[np.arange(log.rows), log.action])
    robust, plain = doubly_robust(exact, policy, q), direct(exact, policy, q)
    assert robust.estimate == pytest.approx(plain.estimate, abs=1e-12)
    assert robust.se == pytest.approx(plain.se, abs=1e-12)


@given(logs)
def test_differences_are_paired(made):
    log, policy, q = made
    one, two = doubly_robust(log, policy, q), doubly_robust(log, uniform(log), q)
    apart = difference(one, two)
    assert apart.estimate == pytest.approx(one.estimate - two.estimate)
    same = difference(one, doubly_robust(log, policy, q))
    assert (same.estimate, same.se) == (0.0, 0.0)
    assert abs(one.se - two.se) - 1e-12 <= apart.se <= one.se + two.se + 1e-12


def test_averages_over_draws_of_folds_count_their_spread():
    log, policy = by_hand(), always(by_hand(), 1)
    one, two = doubly_robust(log, policy, Q), doubly_robust(log, policy, Q + 1.0)
    found = averaged([one, two])
    middle = (one.estimate + two.estimate) / 2
    spread = ((one.estimate - two.estimate) / 2) ** 2
    assert found.estimate == pytest.approx(middle)
    assert found.se == pytest.approx(np.sqrt((one.se**2 + two.se**2) / 2 + spread))
    assert averaged([one]).se == pytest.approx(one.se)
    with pytest.raises(SettingError, match="same Logged"):
        averaged([one, doubly_robust(by_hand(), policy, Q)])
    with pytest.raises(SettingError, match="at least one"):
        averaged([])


def test_values_tell_and_travel():
    found = ips(by_hand(), always(by_hand(), 1))
    assert repr(found).startswith("Value 2, 95% interval")
    assert json.loads(json.dumps(found.to_json()))["estimate"] == 2.0
    assert found.holds(0.0)
    assert not found.holds(100.0)
    assert repr(by_hand()).startswith("Logged: 4 decisions of 4 units among 2 actions")


def test_greedy_takes_the_larger_and_the_first_of_ties():
    assert greedy(np.array([[1.0, 2.0], [3.0, 3.0]])).tolist() == [[0, 1], [1, 0]]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"propensity": [0.0, 0.5, 0.5, 0.5]}, r"propensity must lie in \(0, 1\]"),
        ({"propensity": [1.5, 0.5, 0.5, 0.5]}, r"propensity must lie in \(0, 1\]"),
        ({"reward": [np.nan, 0, 0, 0]}, "reward holds a value that is not finite"),
        ({"reward": [1.0]}, r"reward must be \(n,\) = \(4,\)"),
        ({"action": [0, 1, 2, 0]}, r"action must lie in 0 .. 1"),
        ({"action": [0, 1, 0.5, 0]}, "action must hold whole numbers"),
        ({"unit": ["a", "b", "c", "d"]}, "unit must hold whole numbers"),
        ({"context": np.zeros(4)}, r"context must be \(n, p\)"),
        ({"names": ("a", "b")}, "1 distinct names"),
    ],
)
def test_bad_logs_are_refused(change, told):
    good = {
        "context": np.zeros((4, 1)),
        "action": [0, 1, 1, 0],
        "reward": [1.0, 0, 2, 4],
        "propensity": [0.5] * 4,
        "unit": [0, 1, 2, 3],
        "actions": 2,
    }
    with pytest.raises(DataError, match=told):
        Logged(**(good | change))


def test_a_log_cannot_be_changed():
    log = by_hand()
    with pytest.raises(ValueError, match="read-only"):
        log.reward[0] = 5.0


def test_bad_policies_and_no_overlap_are_refused():
    log = by_hand()
    with pytest.raises(SettingError, match=r"policy must be \(n, K\) = \(4, 2\)"):
        ips(log, np.ones((4, 3)) / 3)
    with pytest.raises(SettingError, match="sum to 1"):
        ips(log, np.ones((4, 2)))
    with pytest.raises(SettingError, match="q holds a value that is not finite"):
        doubly_robust(log, uniform(log), np.full((4, 2), np.nan))
    never = np.eye(2)[1 - log.action]
    for how in (ips, snips):
        with pytest.raises(DataError, match="no overlap"):
            how(log, never)
    with pytest.raises(DataError, match="single unit"):
        ips(by_hand(unit=(0, 0, 0, 0)), uniform(log))
    once = np.eye(2)[np.where(np.arange(4) == 1, log.action, 1 - log.action)]
    with pytest.raises(DataError, match="rests on one unit"):
        snips(log, once)
    with pytest.raises(SettingError, match=r"actions run 0 .. 1"):
        always(log, 2)
    with pytest.raises(SettingError, match="same Logged"):
        difference(ips(log, uniform(log)), ips(by_hand(), uniform(log)))
    with pytest.raises(SettingError, match="levels"):
        difference(ips(log, uniform(log)), ips(log, uniform(log), level=0.9))
    with pytest.raises(SettingError, match="level"):
        ips(log, uniform(log), level=1.0)
    with pytest.raises(FeatureError, match="did you mean 'x0'"):
        log.columns(("X0",))
