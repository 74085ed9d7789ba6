"""Local polynomials against dense weighted least squares."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from pulse_pyro.bands import local_polynomial as lp
from pulse_pyro.bands.bins import COUNT, bin_rows
from tests.bands.helpers import (
    SEED,
    by_row,
    dense_local,
    generator,
    local_fit,
    many_rows,
    own_bins,
    sample_of,
    widened,
)

FEW = settings(max_examples=8)


@pytest.mark.parametrize("h", [0.05, 0.4, 3.0])
@pytest.mark.parametrize("order", [1, 2])
def test_the_local_fit_is_dense_weighted_least_squares(h, order):
    bins = own_bins()
    points = np.linspace(-2.1, 2.1, 23)
    found = by_row(lp.local_weights(bins, points, h, order), bins)
    assert_allclose(found, dense_local(bins.x, points, h, order), atol=1e-9)


@FEW
@given(SEED, st.floats(0.02, 3.0), st.sampled_from([1, 2]))
def test_local_weights_sum_to_one_and_keep_straight_lines_of_binned_rows(seed, h, order):
    rng = generator(seed)
    x = rng.standard_normal(1500)
    bins = bin_rows(sample_of(x, x), 0.98)
    points = np.linspace(*bins.domain, 30)
    w = lp.local_weights(bins, points, h, order)
    assert_allclose(w @ bins.count, 1.0, rtol=1e-8)
    a, b = rng.standard_normal(2)
    assert_allclose(w @ bins.sums((a + b * bins.x)[:, None])[:, 0], a + b * points, atol=1e-7)


@pytest.mark.parametrize("h", [0.1, 0.5, 4.0])
def test_the_local_quadratic_keeps_quadratics_and_the_local_line_does_not(h):
    bins = own_bins()
    points = np.linspace(-1.9, 1.9, 30)
    truth, y = (1.0 - 2.0 * v + 3.0 * v**2 for v in (points, bins.x))
    estimate = [by_row(lp.local_weights(bins, points, h, k), bins) @ y for k in (1, 2)]
    assert_allclose(estimate[1], truth, atol=1e-8)
    assert np.abs(estimate[0] - truth).max() > 1e-3


@pytest.mark.parametrize("h", [0.5, 1.1, 5.0])
def test_the_local_line_less_its_estimated_bias_is_the_local_quadratic(h):
    bins = own_bins()
    x, y = bins.x, bins.y[:, 0]
    points = np.linspace(-1.9, 1.9, 15)
    corrected = []
    for p in points:
        width = widened(x, np.array([p]), h)[0]
        line, quadratic = (local_fit(x, p, width, k) for k in (1, 2))
        second_derivative = 2.0 * quadratic[2] @ y
        bias = second_derivative / 2.0 * (line[0] @ (x - p) ** 2)
        corrected.append(line[0] @ y - bias)
    estimate = by_row(lp.local_weights(bins, points, h, 2), bins) @ y
    assert_allclose(estimate, corrected, atol=1e-9)


def test_a_narrow_window_is_widened_to_25_rows_and_5_places():
    x = np.r_[np.repeat(np.arange(12.0), 20), np.linspace(20.0, 21.0, 100)]
    bins = bin_rows(sample_of(x, x), 1.0)
    points = np.array([5.0, 5.5, 15.0, 20.5])
    used = np.abs(lp.local_weights(bins, points, 1e-3, 2)) > 0
    assert (used @ bins.count >= 25).all()
    assert (used.sum(1) >= 5).all()
    assert_array_equal(bins.at[used[0]], [3.0, 4.0, 5.0, 6.0, 7.0])


def test_the_bandwidth_minimises_dense_generalised_cross_validation():
    bins = own_bins(seed=3)
    other = np.abs(bins.x)[:, None] * 2.0
    bins = replace(bins, y=np.concatenate([bins.y, bins.y * 0.0 + bins.x[:, None], other], axis=1))
    bins = replace(bins, y=bins.y + 0.2 * generator(4).standard_normal(bins.y.shape))
    length, n = bins.domain[1] - bins.domain[0], len(bins.x)
    candidates = np.geomspace(lp.NARROWEST, lp.WIDEST, lp.CANDIDATES) * length
    scores = []
    for h in candidates:
        hat = dense_local(bins.x, bins.x, h, 1)
        scores.append(((bins.y - hat @ bins.y) ** 2).sum(0) / (n - np.trace(hat)) ** 2)
    best = candidates[np.argmin(scores, axis=0)]
    assert_allclose(lp.gcv_bandwidth(bins), best)
    assert len(set(best)) > 1


@pytest.mark.parametrize("share", [0.08, 0.3])
def test_binning_thousands_of_rows_moves_the_local_fit_by_less_than_its_bound(share):
    bins = many_rows()
    h = share * np.ptp(bins.domain)
    points = np.linspace(*bins.domain, 40)
    binned = by_row(lp.local_weights(bins, points, h, 2), bins)
    dense = dense_local(bins.x, points, h, 2)
    width = np.ptp(bins.x) / COUNT
    lost = width**2 / 8.0 * 16.0 * np.abs(dense).sum(1).max()
    assert np.abs((binned - dense) @ np.sin(4.0 * bins.x)).max() <= lost
    error, shift = (np.sqrt((v**2).sum(1)) for v in (dense, binned - dense))
    assert (shift <= 0.05 * error).all()
