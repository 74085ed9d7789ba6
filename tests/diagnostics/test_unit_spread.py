"""Spreads of units of their own: what must fail, what must stay quiet."""

import numpy as np
import pytest
from scipy import stats
from scipy.special import ndtr

from pulse_pyro.diagnostics.unit_spread import unit_spread_check
from tests.helpers import FALSE_ALARM, binomial_floor

UNITS, TIME = 40, 20
UNIT = np.repeat(np.arange(UNITS), TIME)


def asked(z, cluster=UNIT):
    return unit_spread_check("w", ndtr(z), UNIT, cluster)


def noise(rng, kind):
    z = rng.standard_normal((UNITS, TIME))
    if kind == "levels":
        z = 0.7 * z + rng.standard_normal((UNITS, 1))
    if kind == "memory":
        for t in range(1, TIME):
            z[:, t] = 0.5 * z[:, t - 1] + np.sqrt(0.75) * z[:, t]
    if kind == "too wide":
        z = 0.6 * z
    return z.ravel()


@pytest.mark.parametrize("kind", ["plain", "levels", "memory", "too wide"])
def test_units_alike_are_passed(kind):
    rng = np.random.default_rng(0)
    words = [asked(noise(rng, kind)).verdict for _ in range(300)]
    fired = sum(word != "pass" for word in words)
    assert fired <= stats.binom.isf(FALSE_ALARM, 300, 0.01)
    assert words.count("fail") <= stats.binom.isf(FALSE_ALARM, 300, 0.001)


def test_units_of_unequal_lengths_alike_are_passed():
    rng = np.random.default_rng(1)
    words = []
    for _ in range(300):
        unit = np.repeat(np.arange(40), rng.integers(2, 40, 40))
        words.append(unit_spread_check("w", rng.random(len(unit)), unit, unit).verdict)
    assert sum(w != "pass" for w in words) <= stats.binom.isf(FALSE_ALARM, 300, 0.01)


def test_units_with_spreads_of_their_own_fail():
    rng = np.random.default_rng(2)
    words = []
    for _ in range(30):
        z = rng.standard_normal((UNITS, TIME)) * np.exp(0.5 * rng.standard_normal((UNITS, 1)))
        words.append(asked(z.ravel()).verdict)
    assert words.count("fail") >= binomial_floor(30, 0.8)
    assert words.count("pass") <= 2


def test_the_figure_is_the_sd_of_the_logs_of_the_units_variances():
    """Half of many long units have twice the variance of the others: log 2 / 2 from the mean."""
    rng = np.random.default_rng(3)
    unit = np.repeat(np.arange(200), 1000)
    z = 0.5 * rng.standard_normal(len(unit)) * np.where(unit % 2, np.sqrt(2.0), 1.0)
    assert unit_spread_check("w", ndtr(z), unit, unit).value == pytest.approx(
        np.log(2) / 2, abs=0.01
    )


def test_short_and_few_units_are_not_judged():
    rng = np.random.default_rng(4)
    unit = np.repeat(np.arange(50), 5)
    assert unit_spread_check("w", rng.random(250), unit, unit).verdict == "info"
    assert asked(rng.standard_normal(800), UNIT // 10).verdict == "info"  # four clusters
