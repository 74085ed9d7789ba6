"""Intervals over units cover, those over rows do not; one right model is enough, none is not."""

import numpy as np
import pytest

from pulse_pyro.offpolicy.estimators import direct, doubly_robust, ips, snips
from pulse_pyro.offpolicy.logged import Logged
from pulse_pyro.offpolicy.value import difference
from tests.helpers import assert_mean, binomial_floor, z_bound
from tests.offpolicy.helpers import TRUTH, person_log

REPEATS = 1000
FLAT = 0.4  # what a wrong outcome model says of every row and action


def relogged(log, *, unit=None, propensity=None):
    return Logged(
        log.context,
        log.action,
        log.reward,
        log.propensity if propensity is None else propensity,
        log.unit if unit is None else unit,
        log.actions,
    )


@pytest.fixture(scope="module")
def made():
    rng = np.random.default_rng(20)
    return [person_log(rng) for _ in range(REPEATS)]


def covered(values):
    return sum(value.holds(TRUTH) for value in values)


def test_intervals_over_people_cover(made):
    ways = {
        "ips": [ips(log, policy) for log, _, policy in made],
        "snips": [snips(log, policy) for log, _, policy in made],
        "robust": [doubly_robust(log, policy, q) for log, q, policy in made],
    }
    for name, values in ways.items():
        assert covered(values) >= binomial_floor(REPEATS, 0.935), name


def test_intervals_over_rows_do_not(made):
    """Must fail: people's levels make rows alike, and rows are no people."""
    naive = [
        doubly_robust(relogged(log, unit=np.arange(log.rows)), policy, q) for log, q, policy in made
    ]
    assert covered(naive) < binomial_floor(REPEATS, 0.80)


def test_intervals_of_differences_cover_and_are_shorter(made):
    values = []
    for log, q, policy in made:
        one = doubly_robust(log, policy, q)
        two = doubly_robust(log, np.tile([1.0, 0.0], (log.rows, 1)), q)
        values.append(difference(one, two))
        assert values[-1].se < np.hypot(one.se, two.se)
    assert covered(values) >= binomial_floor(REPEATS, 0.935)  # action 0 is worth 0


def test_unbiased_with_right_propensities_or_a_right_model(made):
    wrong_q = [doubly_robust(log, pi, np.full(q.shape, FLAT)).estimate for log, q, pi in made]
    assert_mean(wrong_q, TRUTH)
    wrong_p = [
        doubly_robust(relogged(log, propensity=np.full(log.rows, 0.5)), pi, q).estimate
        for log, q, pi in made
    ]
    assert_mean(wrong_p, TRUTH)


def test_biased_with_neither(made):
    """Must fail: both wrong, and each of the two that lean on one alone."""
    even = [(relogged(log, propensity=np.full(log.rows, 0.5)), q, pi) for log, q, pi in made]
    ways = {
        "both": [doubly_robust(log, pi, np.full(q.shape, FLAT)).estimate for log, q, pi in even],
        "ips": [ips(log, pi).estimate for log, _, pi in even],
        "direct": [direct(log, pi, np.full(q.shape, FLAT)).estimate for log, q, pi in made],
    }
    for name, found in ways.items():
        error = np.std(found) / np.sqrt(REPEATS)
        assert abs(np.mean(found) - TRUTH) > z_bound() * error, name


def test_wrong_propensities_show_in_the_mean_weight(made):
    right = [ips(log, policy).mean_weight for log, _, policy in made]
    assert_mean(right, 1.0)
    wrong = [
        ips(relogged(log, propensity=log.propensity / 2), policy).mean_weight
        for log, _, policy in made
    ]
    assert np.min(wrong) > 1.5
