"""Critical values of suprema: three ways to draw them, closed forms, Student's t."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import optimize, stats

from pulse_pyro.bands import critical
from tests.bands.helpers import SEED, generator
from tests.helpers import FALSE_ALARM, z_bound

DRAWS = 6000
FEW = settings(max_examples=30)


def assert_same_law(*samples):
    pairs = [(a, b) for k, a in enumerate(samples) for b in samples[:k]]
    least = min(stats.ks_2samp(a, b).pvalue for a, b in pairs)
    assert least > FALSE_ALARM / len(pairs)


def assert_share(share, expected, trials):
    bound = z_bound() * np.sqrt(expected * (1.0 - expected) / trials) + 1.0 / trials
    assert abs(share - expected) <= bound


def smooth_path(points, length_scale):
    t = np.linspace(0.0, 1.0, points)
    return np.exp(-0.5 * ((t[:, None] - t) / length_scale) ** 2)


def arc(points, length):
    t = np.linspace(0.0, length, points)
    return np.cos(t[:, None] - t)


def arc_tail(c, length):
    """P(sup over t in [0, length] of |Z1 cos t + Z2 sin t| > c), by the angle of (Z1, Z2)."""
    angle = (np.arange(20_000) + 0.5) * np.pi / 20_000
    middle = length / 2.0
    away = np.abs((angle - middle + np.pi / 2.0) % np.pi - np.pi / 2.0)
    nearest = np.maximum(away - middle, 0.0)
    return np.exp(-0.5 * (c / np.cos(nearest)) ** 2).mean()


# one law, three ways of drawing it


def test_gaussian_weights_by_row_a_factor_and_the_correlation_draw_one_law():
    x = np.linspace(-1.0, 1.0, 60)
    at = np.linspace(-0.9, 0.9, 25)
    residual = generator(1).standard_t(4, 60)
    psi = np.exp(-0.5 * ((x[:, None] - at) / 0.2) ** 2) * residual[:, None]
    by_row = critical.multiplier_sup(psi, DRAWS, generator(2))
    by_factor = critical.factor_draws(psi.T, DRAWS, generator(3))
    by_correlation = critical.sup_draws(psi.T @ psi, DRAWS, generator(4))
    assert by_row.shape == by_factor.shape == by_correlation.shape == (DRAWS,)
    assert_same_law(by_row, by_factor, by_correlation)


def shared_rows(units=12, points=30):
    """Rows that touch one point each and, a little, all the others; unit by unit they add up."""
    psi = np.tile(np.eye(points) + 0.1, (units, 1)) * generator(5).choice([-1.0, 1.0], points)
    return psi, np.repeat(np.arange(units), points)


def test_gaussian_weights_by_unit_draw_the_law_of_the_clustered_covariance():
    psi, unit = shared_rows()
    weights = generator(6).standard_normal((DRAWS, unit.max() + 1))[:, unit]
    summed = np.add.reduceat(psi, np.flatnonzero(np.diff(unit, prepend=-1)))
    explicit = np.abs(weights @ psi / np.sqrt((summed**2).sum(0))).max(1)
    by_unit = critical.multiplier_sup(summed, DRAWS, generator(7))
    by_correlation = critical.sup_draws(summed.T @ summed, DRAWS, generator(8))
    assert_same_law(explicit, by_unit, by_correlation)


def test_weights_by_row_do_not_draw_the_law_of_weights_by_unit():
    psi, unit = shared_rows()
    summed = np.add.reduceat(psi, np.flatnonzero(np.diff(unit, prepend=-1)))
    by_row = critical.multiplier_sup(psi, DRAWS, generator(9))
    by_unit = critical.multiplier_sup(summed, DRAWS, generator(10))
    assert stats.ks_2samp(by_row, by_unit).pvalue < FALSE_ALARM
    assert critical.quantile(by_row, 0.95) > critical.quantile(by_unit, 0.95) + 0.5


def test_explicit_weights_come_in_the_number_asked_for():
    assert critical.multiplier_sup(np.eye(3), 257, generator()).shape == (257,)
    assert critical.multiplier_sup(np.eye(3), 256, generator()).shape == (256,)


def test_the_scale_of_each_point_does_not_matter_to_the_supremum():
    psi = generator(1).standard_normal((20, 8))
    scale = np.geomspace(1e-9, 1e9, 8)
    cov = psi.T @ psi
    plain = critical.sup_draws(cov, DRAWS, generator(2))
    scaled = critical.sup_draws(cov * scale * scale[:, None], DRAWS, generator(3))
    tiny = critical.sup_draws(cov * 1e-20, DRAWS, generator(4))
    assert_same_law(plain, scaled, tiny)
    factor = critical.factor_draws(psi.T, 50, generator(5))
    rescaled = critical.factor_draws(psi.T * scale[:, None], 50, generator(5))
    assert_allclose(rescaled, factor, rtol=1e-12)


def test_rounding_does_not_change_the_draws():
    psi = generator(1).standard_normal((20, 8))
    cov = psi.T @ psi
    first = critical.sup_draws(cov, 50, generator(2))
    for seed in range(5):
        scale = generator(seed).uniform(1.0, 2.0, 8)
        other_rounding = critical.sup_draws(cov * scale * scale[:, None], 50, generator(2))
        assert_allclose(other_rounding, first, rtol=1e-9)


def test_a_point_without_variance_takes_no_part():
    cov = np.zeros((3, 3))
    cov[:2, :2] = [[4.0, 1.0], [1.0, 9.0]]
    r = critical.correlation(cov)
    assert_allclose(r, [[1.0, 1 / 6, 0.0], [1 / 6, 1.0, 0.0], [0.0, 0.0, 0.0]])
    with_it = critical.sup_draws(cov, DRAWS, generator(11))
    without = critical.sup_draws(cov[:2, :2], DRAWS, generator(12))
    factor = np.vstack([np.linalg.cholesky(cov[:2, :2]), np.zeros(2)])
    assert_same_law(with_it, without, critical.factor_draws(factor, DRAWS, generator(13)))


def test_beyond_the_most_points_every_k_th_stands_for_near_ones(monkeypatch):
    cov = smooth_path(25, 1.0)
    every_third = critical.sup_draws(cov[::3, ::3], 100, generator(14))
    monkeypatch.setattr(critical, "MOST", 10)
    assert_array_equal(critical.sup_draws(cov, 100, generator(14)), every_third)


def test_more_unrelated_points_than_are_drawn_are_all_counted():
    cov = np.eye(4000)
    found = critical.quantile(critical.sup_draws(cov, 20_000, generator(16)), 0.95)
    exact = stats.norm.isf((1.0 - 0.95 ** (1 / 4000)) / 2.0)
    of_half = stats.norm.isf((1.0 - 0.95 ** (1 / 2000)) / 2.0)
    assert found == pytest.approx(exact, abs=0.06)
    assert found > (exact + of_half) / 2.0


# critical values against closed forms


@pytest.mark.parametrize("level", [0.5, 0.9, 0.95, 0.999])
def test_the_supremum_over_one_point_is_the_normal_quantile(level):
    exact = stats.norm.isf((1.0 - level) / 2.0)
    assert critical.tube(np.ones((1, 1)), level) == pytest.approx(exact, abs=1e-10)
    assert critical.tube(np.ones((50, 50)), level) == pytest.approx(exact, abs=1e-10)
    sups = critical.sup_draws(np.array([[7.0]]), DRAWS, generator(15))
    assert_share((sups <= exact).mean(), level, DRAWS)


@pytest.mark.parametrize("points", [2, 10, 40])
def test_the_supremum_over_independent_points_is_sidak(points):
    exact = stats.norm.ppf((1.0 + 0.95 ** (1.0 / points)) / 2.0)
    for draw in (
        critical.sup_draws(np.eye(points) * 3.0, DRAWS, generator(16)),
        critical.factor_draws(np.eye(points), DRAWS, generator(17)),
        critical.multiplier_sup(np.eye(points), DRAWS, generator(18)),
    ):
        assert_share((draw <= exact).mean(), 0.95, DRAWS)


@pytest.mark.parametrize("length", [0.3, 1.0, 2.0])
def test_an_arc_of_two_normals_has_its_exact_critical_value(length):
    exact = optimize.brentq(lambda c: arc_tail(c, length) - 0.05, 1.0, 5.0)
    r = arc(120, length)
    assert critical.path_length(r) == pytest.approx(length, abs=1e-5)
    assert critical.tube(r, 0.95) == pytest.approx(exact, abs=0.03)
    sups = critical.sup_draws(r, 20_000, generator(19))
    assert_share((sups <= exact).mean(), 0.95, 20_000)


@pytest.mark.parametrize("level", [0.9, 0.95, 0.99])
def test_the_tube_agrees_with_the_simulated_quantile_on_a_fine_path(level):
    r, draws = smooth_path(150, 0.1), 12_000
    c = critical.tube(r, level)
    sups = critical.sup_draws(r, draws, generator(20))
    noise = z_bound() * np.sqrt(level * (1.0 - level) / draws)
    assert (sups <= c + 0.03).mean() >= level - noise
    assert (sups <= c - 0.03).mean() <= level + noise


def test_the_tube_solves_its_own_equation_in_full():
    r = smooth_path(300, 0.05)
    kappa = np.arccos(np.clip([r[k, k + 1] for k in range(299)], -1.0, 1.0)).sum()
    c = critical.tube(r, 0.9)
    tail = kappa / np.pi * np.exp(-(c**2) / 2.0) + 2.0 * (1.0 - stats.norm.cdf(c))
    assert tail == pytest.approx(0.1, abs=1e-9)
    assert critical.tube_tail(0.0, 3.0) == 1.0


@FEW
@given(st.floats(0.01, 0.98), st.floats(0.0, 30.0), st.floats(0.0, 30.0))
def test_the_tube_grows_with_the_level_and_the_length(level, short, more):
    a, b = (np.eye(2) + np.cos(v) * (1 - np.eye(2)) for v in sorted([short % 3, more % 3]))
    assert critical.tube(a, level) <= critical.tube(b, level) + 1e-9
    assert critical.tube(a, level) < critical.tube(a, level + 0.01)


@FEW
@given(SEED, st.integers(2, 300), st.floats(0.01, 0.99))
def test_at_least_the_level_of_the_draws_lies_under_their_quantile(seed, draws, level):
    sups = generator(seed).exponential(size=draws)
    c = critical.quantile(sups, level)
    assert c in sups
    assert (sups <= c).mean() >= level - 1e-12


def test_the_quantile_is_read_two_standard_errors_of_the_drawing_upwards():
    # .9 + 2 sqrt(.9 * .1 / 10,000) = .906
    assert critical.quantile(np.arange(1.0, 10_001.0), 0.9) == pytest.approx(9060.0, abs=1.0)
    assert critical.quantile(np.arange(1.0, 101.0), 0.999) == 100.0


# Student's t


@pytest.mark.parametrize("nu", [2.0, 3.0, 7.5, 40.0, 1e4])
def test_the_student_map_keeps_the_tail(nu):
    c = np.linspace(0.0, 7.0, 29)
    assert_allclose(critical.student(c, nu), stats.t.isf(stats.norm.sf(c), nu), rtol=1e-9)
    assert_allclose(stats.t.sf(critical.student(c, nu), nu), stats.norm.sf(c), rtol=1e-7)


def test_the_student_map_has_its_tabled_value():
    two_sided = stats.norm.isf(0.025)
    assert critical.student(two_sided, 10.0) == pytest.approx(2.228139, abs=1e-6)
    assert critical.student(two_sided, np.inf) == pytest.approx(two_sided, abs=1e-5)


@FEW
@given(st.floats(0.0, 8.0), st.floats(0.01, 2.0), st.floats(2.0, 500.0), st.floats(0.5, 500.0))
def test_the_student_map_is_monotone_and_never_below_the_normal(c, step, nu, more):
    value = critical.student(c, nu)
    assert value >= c
    assert critical.student(c + step, nu) > value
    assert critical.student(c, nu + more) <= value + 1e-12


def test_fewer_than_two_degrees_of_freedom_count_as_two():
    assert critical.student(2.5, -3.0) == critical.student(2.5, 0.1) == critical.student(2.5, 2)


def test_the_student_map_does_not_fall_far_out():
    c = np.array([30.0, 36.0, 37.0, 38.0, 39.0, 45.0])
    assert (np.diff(critical.student(c, 5.0)) > 0).all()
