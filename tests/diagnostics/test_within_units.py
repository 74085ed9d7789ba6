"""Dependence among all rows of a unit: the oracle, what must fail, what must stay quiet."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats

import pulse_pyro as pp
from pulse_pyro.bands.dependence import dependence_p
from pulse_pyro.diagnostics.serial import controls
from pulse_pyro.diagnostics.within_units import _gamma_tail, within_units, within_units_check
from tests.helpers import FALSE_ALARM, binomial_floor

UNITS, TIME = 40, 20
NOISES = {
    "normal": lambda rng, n: rng.standard_normal(n),
    "skewed": lambda rng, n: rng.exponential(size=n) - 1.0,
    "heavy": lambda rng, n: rng.standard_t(3, n),
    "sd of unit": lambda rng, n: (
        np.exp(np.repeat(rng.standard_normal(UNITS), n // UNITS)) * rng.standard_normal(n)
    ),
}


def rows(rng, level=0.0, noise="normal", units=UNITS, time=TIME):
    unit = np.repeat(np.arange(units), time)
    x = rng.standard_normal((units * time, 2)) + rng.standard_normal((units, 2))[unit]
    e = NOISES[noise](rng, len(unit))
    return e + level * rng.standard_normal(units)[unit], x, unit


def test_the_score_is_the_sum_over_pairs_with_the_other_row_left_out():
    rng = np.random.default_rng(0)
    y, x, unit = rows(rng, units=9, time=4)
    q = controls(x)
    h, e = q @ q.T, y - q @ (q.T @ y)
    score = 0.0
    for k in range(len(y)):
        for other in range(len(y)):
            if k != other and unit[k] == unit[other]:
                without = np.delete(np.arange(len(y)), other)
                z = np.linalg.lstsq(q[without], y[without], rcond=None)[0]
                assert_allclose(
                    y[k] - q[k] @ z, e[k] + h[k, other] * e[other] / (1 - h[other, other])
                )
                score += (y[k] - q[k] @ z) * e[other]
    assert_allclose(within_units(y, x, unit, unit).correlation, score / (9 * 4 * 3 * e.var()))


def test_the_moments_are_those_of_random_signs():
    """All 2^7 signs of one unit's residuals: mean 0, and the variance and cube that are used."""
    e = np.random.default_rng(1).standard_normal(7)
    signs = np.array(np.meshgrid(*[[-1.0, 1.0]] * 7)).reshape(7, -1).T
    q = (signs @ e) ** 2 - (e**2).sum()
    first, second, third = ((e ** (2 * r)).sum() for r in (1, 2, 3))
    assert_allclose([q.mean(), q.var()], [0.0, 2 * (first**2 - second)], atol=1e-10)
    assert_allclose((q**3).mean(), 8 * (first**3 - 3 * first * second + 2 * third))


def test_the_tail_is_that_of_a_chi_square_where_the_score_is_one():
    """Sum of nu squares of standard normals less nu: variance 2 nu, third cumulant 8 nu."""
    for nu in (5, 50):
        found = [_gamma_tail(v - nu, 2.0 * nu, 8.0 * nu, 1.0) for v in (nu, 2 * nu, 3 * nu)]
        assert_allclose(found, stats.chi2.sf([nu, 2 * nu, 3 * nu], nu), rtol=1e-9)
    assert_allclose(_gamma_tail(2.0, 1.0, 0.0, 1.0), stats.norm.sf(2.0))
    assert_allclose(_gamma_tail(2.0, 1.0, 0.0, 4.0), stats.norm.sf(1.0))


@pytest.mark.parametrize("noise", NOISES)
def test_independent_rows_are_passed(noise):
    rng = np.random.default_rng(2)
    p = []
    for _ in range(600):
        y, x, unit = rows(rng, noise=noise)
        p.append(within_units(y, x, unit, unit).p)
    for level in (0.01, 0.001):
        assert (np.array(p) < level).sum() <= stats.binom.isf(FALSE_ALARM, 600, level)
    assert 0.4 < np.mean(np.array(p) < 0.5) < 0.7  # and it is not asleep


def test_levels_of_units_fail_and_the_band_sees_no_more():
    rng = np.random.default_rng(3)
    words, missed = [], 0
    for _ in range(60):
        y, x, unit = rows(rng, level=0.4)
        found = within_units(y, x, unit, unit)
        words.append(within_units_check("w", found).verdict)
        missed += dependence_p(y, unit) < 0.01 <= found.p
    assert words.count("fail") >= binomial_floor(60, 0.9)
    assert missed <= 3


def test_noise_with_a_long_memory_fails():
    rng = np.random.default_rng(4)
    y, x, unit = rows(rng)
    e = y.reshape(UNITS, TIME).copy()
    for t in range(1, TIME):
        e[:, t] = 0.95 * e[:, t - 1] + np.sqrt(1 - 0.95**2) * e[:, t]
    found = within_units(e.ravel(), x, unit, unit)
    assert within_units_check("w", found).verdict == "fail"
    assert found.correlation > 0.3


def test_units_of_a_cluster_may_share_shocks():
    """Shocks of a day that two units share leave rows of a unit independent; levels do not."""
    rng = np.random.default_rng(5)
    p, words = [], []
    for _ in range(300):
        y, x, unit = rows(rng, units=60)
        day = rng.standard_normal((20, TIME))[unit // 3, np.tile(np.arange(TIME), 60)]
        p.append(within_units(y + 2 * day, x, unit, unit // 3).p)
    assert (np.array(p) < 0.01).sum() <= stats.binom.isf(FALSE_ALARM, 300, 0.01)
    for _ in range(20):
        y, x, unit = rows(rng, units=60)
        level = rng.standard_normal(20)[unit // 3]
        words.append(within_units_check("w", within_units(y + level, x, unit, unit // 3)).verdict)
    assert "fail" in words
    assert words.count("pass") <= 2


def test_few_units_are_not_judged():
    y, x, unit = rows(np.random.default_rng(0), units=7)
    check = within_units_check("w", within_units(y, x, unit, unit))
    assert check.verdict == "info"
    assert "7 units" in check.text
    alone = np.arange(40)
    assert np.isnan(within_units(y[:40], x[:40], alone, alone).p)


def test_diagnose_sees_levels_of_units_that_neighbours_hardly_show():
    seen = {"serial w0": 0, "dependence w0": 0}
    for rep in range(8):
        rng = np.random.default_rng(rep)
        s = rng.standard_normal((100, 30, 1))
        w = s + 0.25 * rng.standard_normal((100, 1, 1)) + rng.standard_normal(s.shape)
        fit, held_out = pp.History.from_arrays(s, w).split(seed=0)
        found = pp.diagnose(pp.linear_lags(1).fit(fit, seed=0), held_out, seed=0, size=100).table
        for name in seen:
            seen[name] += found.loc[name, "verdict"] in ("warn", "fail")
    assert seen["dependence w0"] >= 7
    assert seen["serial w0"] < seen["dependence w0"]
