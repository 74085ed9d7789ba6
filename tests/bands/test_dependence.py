"""Dependence within units: its p-value and the treatment of noise that follows."""

import numpy as np
import pytest
from hypothesis import given, settings
from scipy import stats

from pulse_pyro._core.errors import DataError
from pulse_pyro.bands.dependence import choose_noise, dependence_p, shared_dates_p
from tests.bands.helpers import SEED, generator
from tests.helpers import FALSE_ALARM, binomial_floor

FEW = settings(max_examples=30)


def pairwise_p(residual, unit):
    near = all_ = near_square = all_square = 0.0
    for i in range(len(unit)):
        for k in range(i):
            if unit[i] == unit[k]:
                product = residual[i] * residual[k]
                all_ += product
                all_square += product**2
                if i == k + 1:
                    near += product
                    near_square += product**2
    near_p = 2.0 * stats.norm.sf(abs(near) / np.sqrt(near_square))
    return min(2.0 * min(near_p, stats.norm.sf(all_ / np.sqrt(all_square))), 1.0)


def test_the_dependence_p_has_its_worked_value():
    # neighbours 6 + 2 over sqrt(40), and the same for all pairs: 2 P(N > 1.2649)
    p = dependence_p(np.array([2.0, 3.0, -1.0, -2.0]), np.array([0, 0, 1, 1]))
    assert p == pytest.approx(2.0 * stats.norm.sf(8.0 / np.sqrt(40.0)), abs=1e-12)
    assert p == pytest.approx(0.2059, abs=5e-5)


@FEW
@given(SEED)
def test_the_dependence_p_is_that_of_a_loop_over_pairs(seed):
    rng = generator(seed)
    unit = np.sort(rng.integers(0, 4, 24)) * 7
    residual = rng.standard_normal(24) + rng.choice([0.0, 1.0])
    assert dependence_p(residual, unit) == pytest.approx(pairwise_p(residual, unit), rel=1e-9)


def test_one_row_per_unit_says_nothing_about_dependence():
    assert dependence_p(generator(21).standard_normal(50), np.arange(50)) == 1.0


def unequal(rng, unit):
    x = rng.standard_normal(len(unit))
    return (0.2 + x**2) * rng.standard_normal(len(unit))


def normal(rng, unit):
    return rng.standard_normal(len(unit))


def autoregressive(rng, unit, rho=0.5):
    out = rng.standard_normal(len(unit))
    for i in range(1, len(out)):
        if unit[i] == unit[i - 1]:
            out[i] = rho * out[i - 1] + np.sqrt(1.0 - rho**2) * out[i]
    return out


def alternating(rng, unit):
    return autoregressive(rng, unit, -0.5)


def intercepts(rng, unit):
    return 0.5 * rng.standard_normal(unit.max() + 1)[unit] + rng.standard_normal(len(unit))


def dependence_ps(noise, trials):
    rng, unit = generator(22), np.repeat(np.arange(30), 15)
    return np.array([dependence_p(noise(rng, unit), unit) for _ in range(trials)])


@pytest.mark.parametrize("noise", [normal, unequal])
def test_independent_rows_are_called_dependent_as_rarely_as_promised(noise):
    trials = 1000
    p = dependence_ps(noise, trials)
    for level in (0.02, 0.1, 0.3):
        assert (p < level).sum() <= stats.binom.isf(FALSE_ALARM / 3, trials, level)
    assert (p < 0.1).sum() >= binomial_floor(trials, 0.06)


@pytest.mark.parametrize("noise", [autoregressive, alternating, intercepts])
def test_dependent_rows_are_noticed(noise):
    p = dependence_ps(noise, 100)
    assert (p < 0.1).sum() >= binomial_floor(100, 0.98)


@pytest.mark.parametrize(("noise", "kind"), [(intercepts, "units"), (None, "rows")])
def test_noise_goes_by_unit_where_any_coordinate_depends(noise, kind):
    unit = np.repeat(np.arange(15), 15)
    # products of neighbours and of all pairs cancel in each unit, as far as 15 rows allow
    quiet = np.tile(np.r_[0.0, 1.0, 0.0, -1.0, np.zeros(11)], 15)
    other = quiet if noise is None else noise(generator(23), unit)
    assert choose_noise(np.stack([quiet, other], axis=1), unit, "auto") == kind
    assert choose_noise(np.stack([quiet, other], axis=1), unit, "rows") == "rows"
    assert choose_noise(np.stack([quiet, other], axis=1), unit, "units") == "units"


@pytest.mark.parametrize(("units", "kind"), [(19, "rows"), (20, "units")])
def test_twenty_units_are_clustered_without_asking(units, kind):
    quiet = np.zeros((units * 3, 1))
    assert choose_noise(quiet, np.repeat(np.arange(units), 3), "auto") == kind


@pytest.mark.parametrize("wanted", ["auto", "rows", "units"])
def test_four_units_are_too_few_to_judge_the_noise(wanted):
    with pytest.raises(DataError, match=r"at least 5 held-out units .* got 4"):
        choose_noise(np.ones((40, 1)), np.repeat(np.arange(4), 10), wanted)


def test_clustering_nine_units_is_refused():
    with pytest.raises(DataError, match=r'noise="units" needs at least 10 .* got 9'):
        choose_noise(np.ones((90, 1)), np.repeat(np.arange(9), 10), "units")


def test_clustering_needs_more_units_than_regressors():
    unit = np.repeat(np.arange(21), 10)
    with pytest.raises(DataError, match=r"at least 22 .* got 21"):
        choose_noise(np.ones((210, 1)), unit, "units", 21)
    assert choose_noise(np.ones((210, 1)), unit, "units", 20) == "units"
    assert choose_noise(np.ones((210, 1)), unit, "auto", 21) == "rows"


def by_date(seed, shock=0.0, level=0.0, clusters=20, dates=30):
    """Residuals of clusters at the same dates, with a shock all share and levels of their own."""
    rng = generator(seed)
    r = rng.standard_normal((clusters, dates)) + level * rng.standard_normal((clusters, 1))
    r += shock * rng.standard_normal(dates)
    cluster, date = np.divmod(np.arange(clusters * dates), dates)
    return r.ravel(), cluster, date, rng


def test_the_p_of_shared_dates_is_that_of_all_signs():
    # three clusters of one row at one date: Q = 2 (2 + 6 + 3) is beaten by no other sign pattern
    r, cluster = np.array([1.0, 2.0, 3.0]), np.arange(3)
    p = shared_dates_p(r, cluster, np.zeros(3, int), generator(0), draws=4000)
    assert p == pytest.approx(2 / 8, abs=5 * np.sqrt(0.25 * 0.75 / 4000))


@pytest.mark.parametrize("level", [0.0, 2.0])
def test_clusters_that_share_dates_but_nothing_else_are_let_pass(level):
    p = np.array([shared_dates_p(*by_date([60, r], level=level), draws=99) for r in range(200)])
    assert (p <= 0.05).sum() <= stats.binom.isf(FALSE_ALARM, 200, 0.05)
    assert (p <= 0.5).sum() >= binomial_floor(200, 0.5)


def test_clusters_that_move_together_are_told():
    p = [shared_dates_p(*by_date([61, r], shock=0.6)) for r in range(20)]
    assert max(p) == pytest.approx(0.0005)


def test_what_lasts_for_many_dates_is_seen_where_single_dates_show_little():
    p = []
    for r in range(20):
        residual, cluster, date, rng = by_date([65, r], clusters=20, dates=64)
        season = np.repeat(generator([66, r]).standard_normal(4), 16)
        p.append(shared_dates_p(residual + 0.15 * season[date], cluster, date, rng, draws=399))
    assert np.median(p) < 0.05


def test_clusters_of_time_share_no_date():
    residual, cluster, _, rng = by_date(62, shock=5.0)
    assert shared_dates_p(residual, cluster, np.arange(len(residual)), rng) == 1.0


def test_rows_of_one_cluster_at_one_date_are_no_evidence():
    # two units of a city on the same day: the pair lies within the cluster
    rng = generator(63)
    r = np.repeat(rng.standard_normal(200), 2)
    cluster, date = np.repeat(np.arange(200), 2), np.repeat(np.arange(200) // 2, 2)
    assert shared_dates_p(r, cluster, date, rng) > FALSE_ALARM


def test_shared_dates_of_many_rows_are_looked_at_in_some_clusters():
    residual, cluster, date, rng = by_date(64, shock=0.6, clusters=9000, dates=40)
    assert shared_dates_p(residual, cluster, date + 10**9, rng, draws=99) == pytest.approx(0.01)
