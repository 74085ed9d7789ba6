"""Penalised splines against dense mixed models, and the spread that weights them."""

import numpy as np
import pytest
from hypothesis import given, settings
from numpy.testing import assert_allclose
from scipy.interpolate import BSpline

from pulse_pyro.bands.bins import bin_rows, local_spread, neighbour_differences
from pulse_pyro.bands.spline import (
    difference_penalty,
    knots_for,
    lipschitz_weights,
    spline_coefficients,
    spline_weights,
)
from tests.bands.helpers import (
    SEED,
    by_row,
    dense_basis,
    dense_reml,
    generator,
    many_rows,
    own_bins,
    sample_of,
    spread_around,
    undersmoothed,
)

FEW = settings(max_examples=8)


def restricted(basis, y, order, lam):
    """-2 log restricted likelihood of the mixed model behind the penalty, s2 profiled out."""
    n, size = basis.shape
    values, vectors = np.linalg.eigh(difference_penalty(size, order))
    fixed = basis @ vectors[:, :order]
    random = basis @ (vectors[:, order:] / np.sqrt(values[order:]))
    v = np.eye(n) + random @ random.T / lam
    inner = fixed.T @ np.linalg.solve(v, fixed)
    left = y - fixed @ np.linalg.solve(inner, fixed.T @ np.linalg.solve(v, y))
    rss = left @ np.linalg.solve(v, left)
    return (n - order) * np.log(rss) + np.linalg.slogdet(v)[1] + np.linalg.slogdet(inner)[1]


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize(("n", "size"), [(12, 8), (30, 20), (90, 20)])
def test_the_penalty_maximises_the_dense_restricted_likelihood(order, n, size):
    for seed in range(6):
        rng = generator(seed)
        x = np.sort(rng.random(n))
        y = np.sin(8.0 * x) + 0.3 * rng.standard_normal(n)
        knots = np.arange(-3.0, size + 1.0) / (size - 3.0)
        basis = BSpline.design_matrix(x, knots, 3).toarray()
        found = dense_reml(basis, y - y.mean(), order)
        scale = (basis**2).sum() / np.trace(difference_penalty(size, order))
        tried = scale * np.geomspace(1e-7, 1e6, 66)
        near = tried[(tried > found / 40.0) & (tried < found * 40.0)]
        best = near[np.argmin([restricted(basis, y, order, lam) for lam in near])]
        assert found == pytest.approx(best)


def test_the_difference_penalty_is_the_sum_of_squared_differences():
    spline_coefficients = generator(7).standard_normal(9)
    for order in (1, 2):
        expected = (np.diff(spline_coefficients, order) ** 2).sum()
        penalty = difference_penalty(9, order)
        assert spline_coefficients @ penalty @ spline_coefficients == pytest.approx(expected)


@pytest.mark.parametrize(("n", "size"), [(60, 20), (1000, 34), (10_000, 60)])
def test_there_are_six_fourth_roots_of_n_coefficients(n, size):
    x = generator(8).standard_normal(n)
    bins = bin_rows(sample_of(x, x), 0.98)
    knots = knots_for(bins, spline_coefficients(bins))
    assert len(knots) - 4 == size
    assert_allclose(np.diff(knots), np.diff(knots).mean(), rtol=1e-8)
    assert knots[3] == bins.at[0] <= bins.domain[0] < bins.domain[1] <= bins.at[-1] == knots[-4]


@pytest.mark.parametrize("rows", [own_bins, lambda: many_rows(1500)])
def test_the_local_spread_is_a_moving_root_mean_square(rows):
    bins = rows()
    residual = generator(26).standard_normal(len(bins.x)) * np.exp(bins.x)
    assert_allclose(local_spread(bins, residual), spread_around(bins, residual))


def test_neighbours_differ_by_the_noise():
    x = np.array([3.0, 1.0, 2.0, 0.0, *range(4, 14)])
    y = np.array([5.0, 1.0, 2.0, 1.0, *[5.0] * 10])
    bins = bin_rows(sample_of(x, y), 1.0)
    expected = np.array([0.0, 1.0, 3.0, 0.0, *[0.0] * 10]) / np.sqrt(2.0)
    assert_allclose(neighbour_differences(bins, y), expected)


@pytest.mark.parametrize(("make", "order"), [(spline_weights, 2), (lipschitz_weights, 1)])
@pytest.mark.parametrize("rows", [own_bins, lambda: many_rows(600)])
def test_the_spline_is_twiced(make, order, rows):
    bins = rows()
    once, right = undersmoothed(bins, order)
    twice = once @ (2.0 * np.eye(len(once)) - once)
    points = np.linspace(*bins.domain, 17)
    (w,) = make(bins, points)
    assert_allclose(by_row(w.hat, bins)[bins.index], twice, atol=1e-8)
    on_points = dense_basis(bins, points, len(right)) @ right
    assert_allclose(by_row(w.grid, bins), on_points @ (2.0 * np.eye(len(once)) - once), atol=1e-8)
    assert f"{np.trace(twice):.1f} degrees of freedom" in w.made


def plain_edf(w, bins):
    """Degrees of freedom before twicing: t = s (2 - s) undone in the eigenvalues."""
    t = np.linalg.eigvals(w.hat * bins.count).real.clip(0.0, 1.0)
    return (1.0 - np.sqrt(1.0 - t)).sum()


@pytest.mark.parametrize("seed", range(3))
def test_the_smooth_spline_keeps_six_degrees_of_freedom_on_a_straight_line(seed):
    rng = generator(seed)
    x = rng.standard_normal(400)
    bins = bin_rows(sample_of(x, x + 0.1 * rng.standard_normal(400)), 0.98)
    (w,) = spline_weights(bins, np.zeros(1))
    # halving the penalty until 6 are there overshoots by little
    assert 6.0 <= plain_edf(w, bins) <= 7.5


def test_the_lipschitz_spline_may_flatten_to_a_constant():
    rng = generator(9)
    x = rng.standard_normal(400)
    bins = bin_rows(sample_of(x, rng.standard_normal(400)), 0.98)
    (w,) = lipschitz_weights(bins, np.zeros(1))
    assert 1.0 - 1e-6 <= plain_edf(w, bins) < 3.0


@FEW
@given(SEED)
def test_spline_weights_sum_to_one_and_second_differences_keep_straight_lines(seed):
    rng = generator(seed)
    x = rng.gamma(3.0, size=700)
    bins = bin_rows(sample_of(x, np.sin(x) + 0.1 * rng.standard_normal(700)), 0.98)
    points = np.linspace(*bins.domain, 30)
    (smooth,), (rough,) = spline_weights(bins, points), lipschitz_weights(bins, points)
    a, b = rng.standard_normal(2)
    line = bins.sums((a + b * bins.x)[:, None])[:, 0]
    assert_allclose(smooth.grid @ bins.count, 1.0, rtol=1e-8)
    assert_allclose(rough.grid @ bins.count, 1.0, rtol=1e-8)
    assert_allclose(smooth.grid @ line, a + b * points, atol=1e-7)
    assert_allclose(smooth.hat @ line, a + b * bins.at, atol=1e-7)
