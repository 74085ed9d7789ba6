"""Means judged by unit, PIT and coverage: the oracle, what must fail, what must stay quiet."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats
from scipy.special import ndtr

from pulse_pyro.diagnostics.by_unit import estimated, verdict
from pulse_pyro.laws.linear import linear_lags
from tests.diagnostics.helpers import (
    coverage_check,
    pit_check,
    spread_check,
    trend_check,
    unit_mean,
)
from tests.helpers import FALSE_ALARM, binomial_floor, linear_history, mean_at

RHO = (0.0, 0.5, 0.95)
REPS = 150  # a level of 0.01 that is 0.12 in truth fires in 98 of 100


def uniform(rho, rng, units=20, time=15):
    """Uniform PITs, rows of a unit correlated by rho on the normal scale."""
    own, shared = rng.standard_normal((units, time)), rng.standard_normal((units, 1))
    return ndtr(np.sqrt(1 - rho) * own + np.sqrt(rho) * shared)


def most(level, reps=REPS):
    return stats.binom.isf(FALSE_ALARM, reps, level)


def quiet(words):
    fired, failed = np.isin(words, ["warn", "fail"]).sum(), (np.array(words) == "fail").sum()
    return fired <= most(0.01, len(words)) and failed <= most(0.001, len(words))


def test_with_equal_rows_it_is_the_t_test_of_unit_means():
    d = np.random.default_rng(0).standard_normal((9, 5)) + 0.3
    found, known = unit_mean(d), stats.ttest_1samp(d.mean(1), 0.0)
    assert_allclose(found.p, known.pvalue, rtol=1e-10)
    assert_allclose(found.mean / found.error, known.statistic, rtol=1e-10)
    assert_allclose(found.interval, known.confidence_interval(), rtol=1e-10)
    assert_allclose(found.p_below, 1 - known.pvalue / 2, rtol=1e-10)
    wider = unit_mean(d, extra=4.0)
    assert_allclose(wider.p, 2 * stats.t.sf(abs(known.statistic) / 2, 8), rtol=1e-10)


def test_rows_that_are_not_judged_and_units_without_rows_do_not_count():
    d = np.random.default_rng(0).standard_normal((6, 4))
    wide = np.full((8, 9), np.nan)
    wide[:6, 2:6] = d
    assert_allclose(unit_mean(wide), unit_mean(d), rtol=1e-12)


def test_one_unit_is_no_evidence_and_agreement_of_a_few_is_no_certainty():
    assert unit_mean(np.ones((1, 50))).p == 1.0
    same = np.full((3, 2), 0.1)
    assert unit_mean(same).p == 0.0
    assert unit_mean(same, least=0.1).p > 0.1


def test_units_of_a_correct_law_vary_as_much_as_it_was_estimated():
    """The share of held-out over fitted units is what estimation adds to the error's square."""
    z = []
    for seed in range(300):
        fit, held_out = linear_history(units=24, time=22, seed=seed)[0].split(0.25, seed=seed)
        law = linear_lags(3).fit(fit, seed=0)
        left = (held_out.grid.w - mean_at(law, held_out.grid.s))[:, 2:, 0]
        test = unit_mean(left)
        z.append(test.mean / test.error)
    used = np.isfinite(left)
    assert estimated(law, np.nonzero(used)[0]) == pytest.approx(1 + 18 / 6)
    spread = np.var(z) / stats.t.var(17)
    assert 0.6 * 4 < spread < 1.4 * 4  # 4 = 1 + 18 / 6, within chance


def test_a_verdict_needs_both_certainty_and_size():
    assert verdict(1e-9, 0.02, (0.05, 0.1)) == "pass"
    assert verdict(1e-9, 0.07, (0.05, 0.1)) == "warn"
    assert verdict(1e-9, 0.2, (0.05, 0.1)) == "fail"
    assert verdict(0.005, 0.2, (0.05, 0.1)) == "warn"
    assert verdict(0.05, 9.0, (0.05, 0.1)) == "pass"


@pytest.mark.parametrize("rho", RHO)
@pytest.mark.parametrize("check", [pit_check, coverage_check])
def test_uniform_pits_are_passed_however_rows_of_a_unit_depend(check, rho):
    rng = np.random.default_rng(0)
    assert quiet([check("w", uniform(rho, rng), 1.0).verdict for _ in range(REPS)])


LENGTHS = {
    "equal": [15] * 20,
    "one of 300, 29 of 10": [300] + [10] * 29,
    "300, 200, 18 of 5": [300, 200] + [5] * 18,
    "one of 100, 29 of 10": [100] + [10] * 29,
    "10 of 40, 10 of 4": [40] * 10 + [4] * 10,
}


@pytest.mark.parametrize(
    ("name", "rho"), list(zip(LENGTHS, [0.3, 0.9, 0.3, 0.9, 0.3], strict=True))
)
def test_uniform_pits_of_units_of_unequal_lengths_are_passed(name, rho):
    rng, lengths = np.random.default_rng(5), np.array(LENGTHS[name])
    here = np.arange(lengths.max()) < lengths[:, None]
    worth = lengths.sum() ** 2 / (lengths**2).sum()
    p, words = [], {pit_check: [], coverage_check: []}
    for _ in range(REPS):
        pit = np.where(here, uniform(rho, rng, *here.shape), np.nan)
        test = unit_mean(pit - 0.5)
        p.append(test.p)
        for check, found in words.items():
            found.append(check("w", pit, 1.0).verdict)
    assert test.worth == pytest.approx(worth)
    assert (np.array(p) < 0.01).sum() <= most(0.01)
    assert (np.array(p) < 0.001).sum() <= most(0.001)
    for found in words.values():
        assert quiet(found)
        assert ("info" in found) == (worth < 8)


def test_the_error_with_unequal_rows_is_that_of_leaving_out_one_unit_at_a_time():
    d = np.random.default_rng(0).standard_normal((6, 9))
    d[np.arange(9) >= np.array([9, 2, 3, 5, 1, 7])[:, None]] = np.nan
    out = np.array([np.nanmean(np.delete(d, i, 0)) for i in range(6)])
    assert_allclose(unit_mean(d).error ** 2, 5 / 6 * ((out - np.nanmean(d)) ** 2).sum())


WRONG = {
    "narrow": (lambda z: 1.6 * z, "over-confident"),
    "wide": (lambda z: z / 1.6, "cautious"),
    "low": (lambda z: z + 0.5, "too little"),
    "high": (lambda z: z - 0.5, "too much"),
    "skewed above": (lambda z: np.exp(0.5 * z) * 2 - 2, "above"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_pits_that_are_not_uniform_fail_and_say_how(kind):
    distort, says = WRONG[kind]
    rng = np.random.default_rng(1)
    found = []
    for _ in range(50):
        z = distort(stats.norm.ppf(uniform(0.2, rng, units=60, time=20)))
        found.append(pit_check("w", ndtr(z), 1.0))
    words = [check.verdict for check in found]
    assert words.count("fail") >= binomial_floor(50, 0.9)
    if kind != "skewed above":
        assert sum(says in check.text for check in found) >= 45


@pytest.mark.parametrize("scale", [1.6, 1 / 1.6])
def test_a_wrong_width_fails_coverage(scale):
    rng = np.random.default_rng(2)
    words = []
    for _ in range(50):
        z = scale * stats.norm.ppf(uniform(0.2, rng, units=60, time=20))
        words.append(coverage_check("w", ndtr(z), 1.0).verdict)
    assert words.count("fail") >= binomial_floor(50, 0.9)


def test_coverage_is_told_at_four_levels():
    pit = np.linspace(0.0005, 0.9995, 1000).reshape(20, 50)
    text = coverage_check("w", pit, 1.0).text
    for part in ("50 %: 0.500", "80 %: 0.800", "90 %: 0.900", "95 %: 0.950"):
        assert part in text


def test_few_units_are_not_judged_on_shape():
    pit = uniform(0.0, np.random.default_rng(0), units=7)
    assert pit_check("w", pit, 1.0).verdict == "info"
    assert coverage_check("w", pit, 1.0).verdict == "info"
    assert trend_check("w", pit, pit, 1.0).verdict == "info"
    unequal = uniform(0.0, np.random.default_rng(0), units=20, time=300)
    unequal[2:, 5:] = np.nan
    for check in (pit_check, coverage_check):
        found = check("w", unequal, 1.0)
        assert found.verdict == "info"
        assert "20 units have rows, of lengths so unequal that they are worth 2.6" in found.text


def errors(rho, rng, units=20, time=15):
    """Expectations that move slowly, and errors that depend within units."""
    mean = np.cumsum(rng.standard_normal((units, time)), axis=1)
    return mean, stats.norm.ppf(uniform(rho, rng, units, time))


@pytest.mark.parametrize("rho", RHO)
def test_even_errors_are_passed_however_rows_of_a_unit_depend(rho):
    rng = np.random.default_rng(3)
    trend, spread = [], []
    for _ in range(REPS):
        mean, e = errors(rho, rng)
        trend.append(trend_check("w", mean + e, mean, 1.0).verdict)
        spread.append(spread_check("w", ndtr(e), mean, 1.0).verdict)
    assert quiet(trend)
    assert quiet(spread)


def test_a_bent_mean_fails_trend_and_uneven_noise_fails_spread():
    rng = np.random.default_rng(4)
    trend, spread, other = [], [], []
    for _ in range(50):
        mean, e = errors(0.2, rng, 40, 20)
        bent = mean + 0.05 * (mean**2 - (mean**2).mean()) + e
        uneven = ndtr(e * np.sqrt(2 * stats.rankdata(mean).reshape(mean.shape) / mean.size))
        trend.append(trend_check("w", bent, mean, 1.0).verdict)
        spread.append(spread_check("w", uneven, mean, 1.0).verdict)
        other.append(spread_check("w", ndtr(1.5 * e), mean, 1.0).verdict)
    assert trend.count("fail") >= binomial_floor(50, 0.9)
    assert spread.count("fail") >= binomial_floor(50, 0.9)
    assert quiet(other)  # too narrow everywhere is the question of pit and coverage
