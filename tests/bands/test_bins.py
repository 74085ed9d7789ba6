"""Bins of rows, and the freedom and leverage of weights on them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from pulse_pyro._core.errors import DataError
from pulse_pyro.bands.band import Sample
from pulse_pyro.bands.bins import COUNT, Weights, bin_rows
from tests.bands.helpers import SEED, generator, sample_of

FEW = settings(max_examples=30)


# bins


@FEW
@given(SEED, st.sampled_from([15, 500, 3000]))
def test_bins_add_up_and_sit_at_the_mean_of_their_rows(seed, n):
    rng = generator(seed)
    s = sample_of(rng.gamma(3.0, size=n) * 10.0 ** rng.integers(-3, 4), rng.standard_normal(n))
    bins = bin_rows(s, 0.98)
    assert len(bins.index) == len(bins.x) == len(bins.y) == len(bins.unit) == bins.kept.sum()
    assert bins.count.sum() == len(bins.x)
    assert (np.diff(bins.at) > 0).all()
    width = (bins.x.max() - bins.x.min()) / COUNT
    assert (np.abs(bins.x - bins.at[bins.index]) <= width * (1 + 1e-9)).all()
    for b in rng.integers(len(bins.at), size=5):
        mine = bins.index == b
        assert bins.count[b] == mine.sum()
        assert bins.at[b] == pytest.approx(bins.x[mine].mean(), rel=1e-12)
        assert bins.sums(bins.y)[b, 0] == pytest.approx(bins.y[mine, 0].sum(), abs=1e-12)
    line = 3.0 - 2.0 * bins.x
    at_mean = bins.count * (3.0 - 2.0 * bins.at)
    assert_allclose(bins.sums(line[:, None])[:, 0], at_mean, rtol=1e-9, atol=1e-9)


def test_the_domain_is_central_and_rows_far_beyond_it_are_left_out():
    x = np.r_[np.arange(101.0), 130.0, 149.0, 151.0, 400.0][::-1]
    bins = bin_rows(sample_of(x), 0.9)
    low, high = np.quantile(x, [0.05, 0.95])
    assert bins.domain == pytest.approx((low, high))
    reach = 0.25 * (high - low)
    assert_array_equal(bins.kept, (x >= low - reach) & (x <= high + reach))
    assert_array_equal(bins.x, x[bins.kept])
    assert 0 < (~bins.kept).sum() < 10


def test_scores_add_residuals_by_unit_and_bin():
    rng = generator(24)
    s = sample_of(rng.standard_normal(300), units=7)
    s = Sample(s.x, s.y, s.unit * 5 + 2, s.x_names, s.y_names)
    bins = bin_rows(s, 0.9)
    residual = rng.standard_normal(len(bins.x))
    dense = np.zeros((7, len(bins.at)))
    for e, unit, b in zip(residual, bins.unit, bins.index, strict=True):
        dense[(unit - 2) // 5, b] += e
    assert_allclose(bins.scores(residual).toarray(), dense, atol=1e-12)


def test_a_bin_loses_at_most_the_stated_curvature():
    x = np.sort(generator(25).uniform(-1.0, 1.0, 4000))
    bins = bin_rows(sample_of(x), 1.0)
    width = np.ptp(x) / COUNT
    mean = bins.sums(np.sin(4.0 * x)[:, None])[:, 0] / bins.count
    assert np.abs(mean - np.sin(4.0 * bins.at)).max() <= width**2 / 8.0 * 16.0


def test_the_stated_loss_is_attained_by_rows_at_both_ends_of_a_bin():
    edges = np.arange(COUNT) / COUNT
    x = np.r_[edges + 1e-9, edges + 1.0 / COUNT - 1e-9]
    bins = bin_rows(sample_of(x), 1.0)
    assert_array_equal(bins.count, 2.0)
    lost = bins.sums(x[:, None] ** 2)[:, 0] / 2.0 - bins.at**2
    assert_allclose(lost, 2.0 / (8.0 * COUNT**2), rtol=1e-4)


@pytest.mark.parametrize("value", [0.0, 1.5, -1e9])
def test_a_constant_summary_is_refused(value):
    with pytest.raises(DataError, match=r"'past' .* varies"):
        bin_rows(sample_of(np.full(200, value)), 0.98)


def test_a_summary_that_is_constant_in_its_central_range_is_refused():
    x = np.r_[np.zeros(196), 1.0, 2.0, 3.0, 4.0]
    with pytest.raises(DataError, match=r"'past' is 0 in nearly every one of 200 .* varies"):
        bin_rows(sample_of(x), 0.9)


@pytest.mark.parametrize("levels", [2, 9])
def test_few_levels_are_refused_with_their_number(levels):
    x = np.tile(np.arange(float(levels)), 40)
    with pytest.raises(DataError, match=f"only {levels} places .* at least 10.*linear"):
        bin_rows(sample_of(x), 0.98)


def test_ten_levels_make_ten_bins_however_often_each_repeats():
    bins = bin_rows(sample_of(np.tile(np.arange(10.0), 40)), 0.98)
    assert_allclose(bins.at, np.arange(10.0))
    assert_array_equal(bins.count, 40.0)


def test_many_distinct_values_in_few_bins_are_not_called_few_distinct_values():
    x = np.r_[generator(26).standard_normal(900), np.full(30, 1e6), np.full(30, -1e6)]
    with pytest.raises(DataError) as caught:
        bin_rows(sample_of(x), 0.98)
    assert "902 distinct values" not in str(caught.value)


@pytest.mark.parametrize("n", [60, 61])
def test_a_domain_too_narrow_to_hold_a_row_is_refused(n):
    with pytest.raises(DataError):
        bin_rows(sample_of(generator(27).standard_normal(n)), 0.001)


def test_an_empty_sample_is_refused():
    with pytest.raises(DataError):
        bin_rows(sample_of(np.zeros(0)), 0.98)


# weights: degrees of freedom and leverage


def quadratic_weights(bins, grid):
    """Least squares on (1, x, x^2), as weights on bins."""
    design = np.vander(bins.at, 3)
    right = np.linalg.solve((design.T * bins.count) @ design, design.T)
    return Weights(np.vander(grid, 3) @ right, design @ right, "least squares", 3.0)


def test_equal_weights_have_the_freedom_of_a_mean():
    bins = bin_rows(sample_of(generator(28).standard_normal(240), units=12), 1.0)
    mean = Weights(np.full((2, len(bins.at)), 1.0 / 240), np.eye(len(bins.at)), "mean", 1.0)
    assert_allclose(mean.freedom(bins, False), 239.0)
    assert_allclose(mean.freedom(bins, True), 11.0)


def test_the_freedom_is_that_of_a_loop_over_rows_and_units():
    rng = generator(29)
    s = sample_of(rng.standard_normal(500))
    bins = bin_rows(Sample(s.x, s.y, rng.integers(0, 9, 500) * 3, s.x_names, s.y_names), 0.95)
    w = quadratic_weights(bins, np.linspace(*bins.domain, 6))
    by_row = w.grid[:, bins.index]
    square = (by_row**2).sum(1) ** 2 / (by_row**4).sum(1)
    assert_allclose(w.freedom(bins, False), square - 3.0)
    omega = np.stack([(by_row[:, bins.unit == u] ** 2).sum(1) for u in np.unique(bins.unit)])
    assert_allclose(w.freedom(bins, True), omega.sum(0) ** 2 / (omega**2).sum(0) - 1.0)


def test_thousands_of_units_leave_the_normal():
    bins = bin_rows(sample_of(generator(30).standard_normal(2500), units=2500), 1.0)
    assert np.isinf(quadratic_weights(bins, np.zeros(3)).freedom(bins, True)).all()


def test_leverage_is_kept_off_one_so_that_hc3_stays_finite():
    hat = np.diag([-0.1, 0.3, 0.99, 1.0])
    w = Weights(np.zeros((1, 4)), hat, "by hand", 1.0)
    assert_allclose(w.leverage(), [0.0, 0.3, 0.95, 0.95])
