"""Outcome models see other units only."""

import numpy as np
import pytest

from pulse_pyro._core.errors import SettingError
from pulse_pyro.offpolicy.estimators import direct, doubly_robust, greedy, outcome_model, unit_folds
from pulse_pyro.offpolicy.logged import Logged
from tests.helpers import assert_mean, z_bound
from tests.offpolicy.helpers import person_log


def test_folds_hold_whole_units_evenly():
    log, _, _ = person_log(np.random.default_rng(0))
    fold = unit_folds(log, 4, seed=0)
    of_unit = [set(fold[log.unit == u]) for u in np.unique(log.unit)]
    assert all(len(each) == 1 for each in of_unit)
    assert sorted(np.bincount([each.pop() for each in of_unit])) == [7, 7, 8, 8]
    assert np.array_equal(fold, unit_folds(log, 4, seed=0))
    with pytest.raises(SettingError, match="31 folds were asked for, of 30 units"):
        unit_folds(log, 31, seed=0)


def test_no_row_helps_to_predict_its_own_fold():
    log, _, _ = person_log(np.random.default_rng(1))
    own = unit_folds(log, 5, seed=3) == 2
    reward = np.where(own, 1e6, log.reward)
    other = Logged(log.context, log.action, reward, log.propensity, log.unit, 2)
    before, after = (outcome_model(each, folds=5, seed=3) for each in (log, other))
    assert np.array_equal(before[own], after[own])
    assert np.abs(after[~own]).max() > 1e4


def test_lines_are_found_and_unknown_actions_get_the_common_one():
    rng = np.random.default_rng(2)
    x = rng.normal(size=(3000, 2))
    action = rng.integers(0, 2, 3000)
    truth = np.column_stack([1 + x[:, 0], 2 - x[:, 0] + 3 * x[:, 1], 0 * x[:, 0]])
    reward = truth[np.arange(3000), action]
    log = Logged(x, action, reward, np.full(3000, 0.5), np.arange(3000) // 10, 3, names=("a", "b"))
    q = outcome_model(log, seed=0, ridge=1e-3)
    assert np.abs(q - truth)[:, :2].max() < 1e-3
    assert np.isfinite(q).all()
    part = outcome_model(log, ("a",), seed=0, ridge=1e-3)
    assert np.ptp(part[:, 0] - truth[:, 0]) < 0.5


def test_a_column_that_is_constant_is_left_out():
    log, _, _ = person_log(np.random.default_rng(3))
    wider = np.column_stack([log.context, np.ones(log.rows)])
    other = Logged(wider, log.action, log.reward, log.propensity, log.unit, 2)
    assert outcome_model(other, seed=0) == pytest.approx(outcome_model(log, seed=0))


def test_learned_policies_are_not_flattered_but_reused_rows_are():
    """Rewards that are noise: every policy is worth 0, whatever the fit says of its own rows."""
    rng, honest, reused = np.random.default_rng(4), [], []
    for _ in range(200):
        x, action = rng.normal(size=(200, 10)), rng.integers(0, 2, 200)
        log = Logged(x, action, rng.normal(size=200), np.full(200, 0.5), np.arange(200), 2)
        q = outcome_model(log, seed=0)
        honest.append(doubly_robust(log, greedy(q), q).estimate)
        z = np.column_stack([np.ones(200), x])
        own = np.column_stack(
            [z @ np.linalg.lstsq(z[action == a], log.reward[action == a])[0] for a in (0, 1)]
        )
        reused.append(direct(log, greedy(own), own).estimate)
    assert_mean(honest, 0.0)
    assert np.mean(reused) > z_bound() * np.std(reused) / np.sqrt(200)
