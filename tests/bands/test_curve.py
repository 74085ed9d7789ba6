"""The whole band of a curve against its dense re-computation."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import optimize, stats

from pulse_pyro.bands.band import BandMethod, Sample
from pulse_pyro.bands.curve import critical_values, curve_rows
from pulse_pyro.bands.local_polynomial import local_polynomial_weights
from pulse_pyro.bands.spline import lipschitz_weights, spline_weights
from tests.bands.helpers import (
    CURVES,
    SEED,
    SMALL,
    curve,
    dense_smoother,
    generator,
    left_out,
    own_bins,
    sample_of,
)
from tests.helpers import z_bound

FEW = settings(max_examples=8)
WEIGHTS = {
    "local_polynomial": local_polynomial_weights,
    "spline": spline_weights,
    "lipschitz": lipschitz_weights,
}


def dense_band(kind, bins, grid, noise, level):
    """Centre, standard error, critical value, half-width and slope bound from full matrices."""
    reach, hat, loss = dense_smoother(kind, bins, grid)
    y, units = bins.y[:, 0], np.unique(bins.unit)
    residual = (y - hat @ y) / (1.0 - hat.diagonal())
    wider = few_events(reach, y - hat @ y, bins.unit, noise)
    if noise == "rows":
        cov = reach @ np.diag(residual**2) @ reach.T
        nu = (reach**2).sum(1) ** 2 / (reach**4).sum(1) - loss
    else:
        residual = left_out(hat, y - hat @ y, bins.unit)
        psi = np.stack([reach[:, bins.unit == u] @ residual[bins.unit == u] for u in units])
        cov = (len(units) - 1) / len(units) * psi.T @ psi
        omega = np.stack([(reach[:, bins.unit == u] ** 2).sum(1) for u in units])
        nu = omega.sum(0) ** 2 / (omega**2).sum(0) - 1.0
    se = np.sqrt(cov.diagonal())
    kappa = np.arccos([cov[g, g + 1] / se[g] / se[g + 1] for g in range(len(grid) - 1)]).sum()

    def tail(c):
        return kappa / np.pi * np.exp(-(c**2) / 2.0) + 2.0 * stats.norm.sf(c) - (1.0 - level)

    c = optimize.brentq(tail, 0.5, 20.0)
    mapped = stats.t.isf(stats.norm.sf(c), np.maximum(nu, 2.0)) * wider(cov.diagonal())
    centre = reach @ y
    bend = np.zeros(len(grid))
    for g in range(1, len(grid) - 1):
        d = reach[g] - (reach[g - 1] + reach[g + 1]) / 2.0
        spread = np.sqrt(_quadratic(d, residual, bins.unit, noise))
        bend[g] = (abs(d @ y) + mapped[g] * spread) / 4.0
    bend[0], bend[-1] = bend[1], bend[-2]
    modulus = [bend[max(g - 1, 0) : g + 2].max() for g in range(len(grid))]
    slopes, span = [], len(grid) // 10
    for g in range(len(grid) - span):
        d = reach[g + span] - reach[g]
        spread = np.sqrt(_quadratic(d, residual, bins.unit, noise))
        rise = abs(d @ y) + max(mapped[g], mapped[g + span]) * spread
        slopes.append(rise / (grid[g + span] - grid[g]))
    return centre, mapped * se, c, np.array(modulus), max(slopes)


def few_events(reach, e, unit, noise):
    """By how much the standard errors grow, given the variances: four rows of average noise."""
    together = unit[:, None] == unit
    pairs = together & ~np.eye(len(unit), dtype=bool)
    rho = np.clip((np.outer(e, e)[pairs]).sum() / pairs.sum() / (e**2).mean(), 0.0, 1.0)
    shape = np.where(together, rho if noise == "units" else 0.0, 0.0)
    np.fill_diagonal(shape, 1.0)
    share = np.einsum("gi,ij,gj->g", reach, shape, reach)  # V_all / sigma^2, and 1 / n

    def wider(own):
        least = (own / share + 4.0 * (e**2).mean() * share) / (1.0 / share + 4.0)
        return np.sqrt(np.maximum(least / own, 1.0))

    return wider


def _quadratic(d, residual, unit, noise):
    if noise == "rows":
        return ((d * residual) ** 2).sum()
    units = np.unique(unit)
    psi = [d[unit == u] @ residual[unit == u] for u in units]
    return (len(units) - 1) / len(units) * np.square(psi).sum()


@pytest.mark.parametrize("noise", ["rows", "units"])
@pytest.mark.parametrize("kind", CURVES)
def test_the_band_is_its_dense_recomputation(kind, noise):
    bins = own_bins(seed=10, units=15)
    s = Sample(bins.x[:, None], bins.y, bins.unit, ("past",), ("w",))
    method = BandMethod(kind, noise=noise, critical="tube", grid=60)
    band = curve(s, method, 0.9, generator()).band
    grid = np.linspace(*np.quantile(bins.x, [0.01, 0.99]), 60)
    centre, half, c, modulus, steep = dense_band(kind, bins, grid, noise, 0.9)
    found = band.at(grid)
    assert found.inside.all()
    assert band.noise == noise
    assert (band.rows, band.units) == (120, 15)
    assert_allclose(band.critical, c, rtol=1e-6)
    assert_allclose(found.centre[:, 0], centre, atol=1e-8)
    assert_allclose(found.half[:, 0], half + modulus, rtol=1e-6)
    assert band.shape.modulus == pytest.approx((modulus / half).mean(), rel=1e-6)
    assert_allclose(band.shape.steep, steep, rtol=1e-6)


def test_rows_that_are_all_alike_do_not_prove_that_there_is_no_noise():
    """At the edge W is 1 in all of the few rows, where it is 0 one time in ten."""
    x = np.linspace(-2.0, 2.0, 200)
    y = (generator(40).random(200) < 0.5).astype(float)
    y[x > 1.0] = 1.0
    band = curve(sample_of(x, y), BandMethod("spline", noise="rows"), 0.95, generator()).band
    edge = np.array([1.9])
    found = band.at(edge)
    assert found.centre[0, 0] + found.half[0, 0] > 0.9
    assert found.centre[0, 0] - found.half[0, 0] < 0.9


def test_tube_critical_values_of_several_coordinates_are_bonferroni():
    bins = own_bins(seed=11)
    two = Sample(bins.x[:, None], np.tile(bins.y, 2), bins.unit, ("past",), ("a", "b"))
    one = Sample(bins.x[:, None], bins.y, bins.unit, ("past",), ("a",))
    method = BandMethod("spline", noise="rows", critical="tube", grid=40)
    both = curve(two, method, 0.9, generator()).band
    alone = curve(one, method, 0.95, generator()).band
    assert_allclose(both.critical, np.repeat(alone.critical, 2))


@pytest.mark.parametrize(("coordinates", "each"), [("joint", 6), ("bonferroni", 3)])
def test_simulated_critical_values_of_independent_coordinates_are_sidak(coordinates, each):
    draws = 20_000
    cov = np.zeros((2, 3, 2, 3))
    cov.reshape(6, 6)[...] = np.diag(np.arange(1.0, 7.0))
    method = BandMethod(critical="simulate", coordinates=coordinates, draws=draws)
    c = critical_values(
        None, [], np.zeros((0, 2)), cov, "rows", method=method, level=0.9, rng=generator(12)
    )
    level = 0.9 if coordinates == "joint" else 0.95
    bound = z_bound(2) * np.sqrt(level * (1.0 - level) / draws) + 2.0 / draws
    assert_allclose((2.0 * stats.norm.cdf(c) - 1.0) ** each, level, atol=bound)


@FEW
@given(SEED, st.sampled_from(CURVES), st.floats(-3.0, 3.0), st.floats(0.05, 50.0))
def test_units_of_measurement_do_not_matter(seed, kind, shift, scale):
    rng = generator(seed)
    x = rng.standard_normal(150)
    y = np.sin(x) + 0.2 * rng.standard_normal(150)
    method = BandMethod(kind, noise="rows", critical="tube", grid=30)
    plain = curve(sample_of(x, y), method, 0.9, generator()).band
    other = curve(sample_of(x, shift - scale * y), method, 0.9, generator()).band
    moved = curve(sample_of(shift + scale * x, y), method, 0.9, generator()).band
    at = np.linspace(-3.0, 3.0, 50)
    centre, half, inside = plain.at(at)
    assert_allclose(other.at(at).centre, shift - scale * centre, atol=1e-6 * scale)
    assert_allclose(other.at(at).half, scale * half, rtol=1e-5)
    assert_allclose(moved.at(shift + scale * at).centre, centre, atol=1e-5)
    assert_allclose(moved.at(shift + scale * at).half, half, rtol=1e-4)
    assert_array_equal(moved.at(shift + scale * at).inside, inside)


@pytest.mark.parametrize("kind", CURVES)
def test_a_higher_level_is_wider_everywhere(kind):
    bins = own_bins(seed=13)
    s = Sample(bins.x[:, None], bins.y, bins.unit, ("past",), ("w",))
    method = BandMethod(kind, critical="simulate", **SMALL)
    at = np.linspace(-2.0, 2.0, 9)
    half = [curve(s, method, v, generator(1)).band.at(at).half for v in (0.8, 0.99)]
    assert (half[0] < half[1]).all()


def test_what_the_fit_leaves_is_what_smoothing_the_outcome_leaves():
    bins = own_bins(seed=29)
    s = Sample(bins.x[:, None], bins.y, bins.unit, ("past",), ("w",))
    fit = curve(s, BandMethod("spline", **SMALL), 0.9, generator())
    assert fit.kept.all()
    assert_allclose(bins.y - fit.smooth(bins.y, 0), fit.residual, atol=1e-12)
    line = 2.0 - bins.x[:, None]
    assert_allclose(fit.smooth(line, 0), line, atol=1e-7)


# skewed noise


def test_skewed_independent_noise_gets_the_studentised_critical_value():
    rng = generator(18)
    x = rng.uniform(-1.0, 1.0, 300)
    skewed = sample_of(x, rng.exponential(size=300))
    fit = curve(skewed, BandMethod("spline", noise="rows", **SMALL), 0.9, generator())
    assert "bootstrap t" in fit.band.made[0]
    assert fit.skewness > 0.05
    x = rng.uniform(-1.0, 1.0, 2400)
    even = sample_of(x, np.tile([1.0, -1.0], 1200) * rng.uniform(0.5, 1.0, 2400))
    fit = curve(even, BandMethod("spline", noise="rows", **SMALL), 0.9, generator())
    assert "simulate" in fit.band.made[0]
    assert fit.skewness < 0.05


def test_skewed_dependent_noise_is_studentised_by_unit():
    rng = generator(20)
    x, level = rng.uniform(-1.0, 1.0, 600), rng.exponential(size=20)
    s = sample_of(x, np.repeat(level, 30) + rng.exponential(size=600))
    fit = curve(s, BandMethod("spline", **SMALL), 0.9, generator())
    assert "bootstrap t" in fit.band.made[0]
    assert fit.band.noise == "units"


def test_an_input_constant_within_units_does_not_follow_their_levels():
    rng = generator(21)
    x, level = np.repeat(rng.standard_normal(50), 20), np.repeat(rng.standard_normal(50), 20)
    s = sample_of(x, level + rng.standard_normal(1000), units=50)
    for kind in CURVES:
        bins, grid = curve_rows(s, BandMethod(kind))
        (w,) = WEIGHTS[kind](bins, grid)
        assert (w.hat.diagonal() * bins.count).sum() <= 1.5 * 50 / 3
        found = curve(s, BandMethod(kind, **SMALL), 0.95, generator()).band.at(x)
        assert (np.abs(found.centre) <= found.half)[found.inside].all()


def test_the_studentised_critical_value_is_not_mapped_to_students_t_again():
    bins = own_bins(seed=19)
    s = Sample(bins.x[:, None], bins.y, bins.unit, ("past",), ("w",))
    method = BandMethod("spline", noise="rows", critical="bootstrap_t", grid=400, draws=200)
    band = curve(s, method, 0.9, generator()).band
    reach, hat, _ = dense_smoother("spline", bins, band.shape.grid)
    left = bins.y[:, 0] - hat @ bins.y[:, 0]
    var = reach**2 @ (left / (1.0 - hat.diagonal())) ** 2
    wider = few_events(reach, left, bins.unit, "rows")(var)
    half = band.critical[0] * np.sqrt(var) * wider
    # what is left is the modulus
    assert (band.shape.half[0] >= half).all()
    assert (band.shape.half[0] / half).max() < 1.01
