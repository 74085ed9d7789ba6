from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import optimize, stats
from scipy.interpolate import BSpline

from pulse_pyro.bands import curve as curve_module
from pulse_pyro.bands import local_polynomial as lp
from pulse_pyro.bands.band import Band
from pulse_pyro.bands.bins import COUNT, bin_rows
from pulse_pyro.bands.curve import critical_values
from pulse_pyro.bands.curves import curve
from pulse_pyro.bands.grid import GridShape, grid_shape
from pulse_pyro.bands.roughness import GATE, kink_p
from pulse_pyro.bands.sample import BandMethod, Sample
from pulse_pyro.bands.spline import (
    coefficients,
    difference_penalty,
    knots_for,
    lipschitz,
    reml,
    spline,
)
from pulse_pyro.bands.spread import local_spread, neighbour_differences
from pulse_pyro.errors import DataError, SettingError
from tests.stat import FALSE_ALARM, binomial_floor, z_bound

CURVES = ("local_polynomial", "spline", "lipschitz")
SEED = st.integers(0, 2**32 - 1)
FEW = settings(max_examples=8)
SMALL = {"grid": 40, "draws": 400}


def generator(seed=0):
    return np.random.default_rng(seed)


def sample_of(x, y, units=20):
    x, y = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    y = y[:, None] if y.ndim == 1 else y
    unit = np.arange(len(x)) * units // max(len(x), 1)
    return Sample(x[:, None], y, unit, ("past",), tuple(f"w{j}" for j in range(y.shape[1])))


def own_bins(n=120, seed=0, units=20):
    """Rows so evenly spread that each is alone in its bin, in a random order."""
    rng = generator(seed)
    x = rng.permutation((np.arange(n) + 0.3 + 0.4 * rng.random(n)) / n * 4.0 - 2.0)
    y = np.sin(2.0 * x) + (0.1 + 0.1 * np.abs(x)) * rng.standard_normal(n)
    bins = bin_rows(sample_of(x, y, units), 0.98)
    assert len(bins.at) == n
    return bins


def many_rows(n=4000, seed=0):
    rng = generator(seed)
    x = rng.uniform(-1.0, 1.0, n)
    return bin_rows(sample_of(x, np.sin(4.0 * x) + 0.1 * rng.standard_normal(n)), 0.98)


def local_fit(x, point, width, order):
    """Weights of the local coefficients (order + 1, n) by dense least squares at one point."""
    u = x - point
    root = np.sqrt(np.maximum(1.0 - (u / width) ** 2, 0.0))
    design = np.vander(u, order + 1, increasing=True) * root[:, None]
    return np.linalg.pinv(design) * root


def widened(x, points, h):
    """The bandwidth, or what 25 rows need where that is more (5 distinct x are among them)."""
    distance = np.sort(np.abs(x - points[:, None]), axis=1)[:, 24]
    return np.maximum(h, 1.05 * distance)


def dense_local(x, points, h, order):
    width = widened(x, points, h)
    pairs = zip(points, width, strict=True)
    return np.stack([local_fit(x, p, w, order)[0] for p, w in pairs])


def by_row(weights, bins):
    return weights[:, bins.index]


# local polynomials


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


# penalised splines


def dense_basis(bins, points, size=None):
    knots = knots_for(bins, size or coefficients(bins))
    return BSpline.design_matrix(points, knots, 3).toarray()


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


def dense_reml(basis, y, order):
    penalty = difference_penalty(basis.shape[1], order)
    return reml(basis.T @ basis, penalty, basis.T @ y, y @ y, len(y), order)


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
    coefficients = generator(7).standard_normal(9)
    for order in (1, 2):
        expected = (np.diff(coefficients, order) ** 2).sum()
        penalty = difference_penalty(9, order)
        assert coefficients @ penalty @ coefficients == pytest.approx(expected)


@pytest.mark.parametrize(("n", "size"), [(60, 20), (1000, 34), (10_000, 60)])
def test_there_are_six_fourth_roots_of_n_coefficients(n, size):
    x = generator(8).standard_normal(n)
    bins = bin_rows(sample_of(x, x), 0.98)
    knots = knots_for(bins, coefficients(bins))
    assert len(knots) - 4 == size
    assert_allclose(np.diff(knots), np.diff(knots).mean(), rtol=1e-8)
    assert knots[3] == bins.at[0] <= bins.domain[0] < bins.domain[1] <= bins.at[-1] == knots[-4]


def spread_around(bins, residual):
    """Root mean square over a tenth of the rows, at least 50, around each bin; (B,)."""
    order = np.argsort(bins.index, kind="stable")
    square = (bins.sums(residual[:, None] ** 2)[:, 0] / bins.count)[bins.index[order]]
    n, start = len(order), np.arange(len(order))
    reach = max(0.05 * n, 25.0)
    out = []
    for b in range(len(bins.at)):
        middle = np.flatnonzero(bins.index[order] == b).mean() + 0.5
        low = min(max(middle - reach, 0.0), n - 2 * reach)
        overlap = np.clip(np.minimum(start + 1, low + 2 * reach) - np.maximum(start, low), 0, 1)
        out.append(np.sqrt(overlap @ square / overlap.sum()))
    return np.array(out)


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


def row_weights(bins):
    """Inverse variances around each row, from differences of rows that are neighbours in x."""
    order = np.argsort(bins.x)
    step = np.diff(bins.y[order, 0]) / np.sqrt(2.0)
    difference = np.empty(len(order))
    difference[order] = np.append(step, step[-1])
    spread = spread_around(bins, difference)
    return np.clip((np.median(spread) / spread) ** 2, 0.05, 20.0)[bins.index]


def plain_dense(bins, order, divide=1.0, least=0.0, size=None):
    """S = B (B'WB + lam P)^-1 B'W on rows at their bins' places, and what makes S of points."""
    size = size or coefficients(bins)
    basis, weight = dense_basis(bins, bins.at[bins.index], size), row_weights(bins)
    root = np.sqrt(weight)
    penalty = difference_penalty(size, order)
    y = bins.y[:, 0] - bins.y[:, 0].mean()
    lam = dense_reml(basis * root[:, None], y * root, order)

    def right():
        gram = (basis.T * weight) @ basis
        return np.linalg.solve(gram + lam * penalty, basis.T * weight)

    # most coefficients in use: twice as many
    if np.trace(basis @ right()) > {1: 0.85, 2: 0.75}[order] * size and 2 * size <= min(
        300, len(bins.at)
    ):
        return plain_dense(bins, order, divide, least, 2 * size)
    lam /= divide
    while np.trace(basis @ right()) < least:
        lam /= 2.0
    return basis @ right(), right()


def undersmoothed(bins, order):
    return plain_dense(bins, 2, 4.0, 6.0) if order == 2 else plain_dense(bins, 1)


@pytest.mark.parametrize(("make", "order"), [(spline, 2), (lipschitz, 1)])
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
    (w,) = spline(bins, np.zeros(1))
    # halving the penalty until 6 are there overshoots by little
    assert 6.0 <= plain_edf(w, bins) <= 7.5


def test_the_lipschitz_spline_may_flatten_to_a_constant():
    rng = generator(9)
    x = rng.standard_normal(400)
    bins = bin_rows(sample_of(x, rng.standard_normal(400)), 0.98)
    (w,) = lipschitz(bins, np.zeros(1))
    assert 1.0 - 1e-6 <= plain_edf(w, bins) < 3.0


@FEW
@given(SEED)
def test_spline_weights_sum_to_one_and_second_differences_keep_straight_lines(seed):
    rng = generator(seed)
    x = rng.gamma(3.0, size=700)
    bins = bin_rows(sample_of(x, np.sin(x) + 0.1 * rng.standard_normal(700)), 0.98)
    points = np.linspace(*bins.domain, 30)
    (smooth,), (rough,) = spline(bins, points), lipschitz(bins, points)
    a, b = rng.standard_normal(2)
    line = bins.sums((a + b * bins.x)[:, None])[:, 0]
    assert_allclose(smooth.grid @ bins.count, 1.0, rtol=1e-8)
    assert_allclose(rough.grid @ bins.count, 1.0, rtol=1e-8)
    assert_allclose(smooth.grid @ line, a + b * points, atol=1e-7)
    assert_allclose(smooth.hat @ line, a + b * bins.at, atol=1e-7)


# the whole band against a dense re-computation


def dense_smoother(kind, bins, grid):
    if kind == "local_polynomial":
        (h,) = lp.gcv_bandwidth(bins)
        return dense_local(bins.x, grid, h, 2), dense_local(bins.x, bins.x, h, 2), 3.0
    order = 2 if kind == "spline" else 1
    once, right = undersmoothed(bins, order)
    twice = 2.0 * np.eye(len(once)) - once
    on_grid = dense_basis(bins, grid, len(right)) @ right
    return on_grid @ twice, once @ twice, order + 1.0


def dense_band(kind, bins, grid, noise, level):
    """Centre, standard error, critical value, half-width and slope bound from full matrices."""
    reach, hat, loss = dense_smoother(kind, bins, grid)
    y, units = bins.y[:, 0], np.unique(bins.unit)
    residual = (y - hat @ y) / (1.0 - hat.diagonal())
    if noise == "rows":
        cov = reach @ np.diag(residual**2) @ reach.T
        nu = (reach**2).sum(1) ** 2 / (reach**4).sum(1) - loss
    else:
        psi = np.stack([reach[:, bins.unit == u] @ residual[bins.unit == u] for u in units])
        cov = len(units) / (len(units) - 1) * psi.T @ psi
        omega = np.stack([(reach[:, bins.unit == u] ** 2).sum(1) for u in units])
        nu = omega.sum(0) ** 2 / (omega**2).sum(0) - 1.0
    se = np.sqrt(cov.diagonal())
    kappa = np.arccos([cov[g, g + 1] / se[g] / se[g + 1] for g in range(len(grid) - 1)]).sum()

    def tail(c):
        return kappa / np.pi * np.exp(-(c**2) / 2.0) + 2.0 * stats.norm.sf(c) - (1.0 - level)

    c = optimize.brentq(tail, 0.5, 20.0)
    mapped = stats.t.isf(stats.norm.sf(c), np.maximum(nu, 2.0))
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


def _quadratic(d, residual, unit, noise):
    if noise == "rows":
        return ((d * residual) ** 2).sum()
    units = np.unique(unit)
    psi = [d[unit == u] @ residual[unit == u] for u in units]
    return len(units) / (len(units) - 1) * np.square(psi).sum()


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
    c = critical_values(None, [], np.zeros((0, 2)), cov, method, 0.9, generator(12))
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


# between grid points and beyond the grid


def shape_of(function, grid, tiny=1e-10):
    """A curve known exactly on the grid: neighbours move together, so no noise bends it."""
    points = len(grid)
    cov = np.full((1, points, 1, points), tiny**2)
    return grid_shape("past", grid, function(grid)[None], cov, np.full((1, points), 3.0))


def test_the_modulus_of_a_parabola_is_what_it_leaves_its_chord_by():
    grid = np.linspace(-1.0, 2.0, 31)
    shape = shape_of(lambda v: 5.0 * v**2 - v, grid)
    assert_allclose(shape.half, 0.1**2 / 8.0 * 10.0 + 3e-10, rtol=1e-9)


@pytest.mark.parametrize("speed", [0.5, 1.0, 4.0])
def test_the_band_holds_between_grid_points_because_of_the_modulus(speed):
    grid = np.linspace(-3.0, 3.0, 100)
    shape = shape_of(lambda v: np.sin(speed * v), grid)
    fine = np.linspace(-3.0, 3.0, 3001)
    found = shape.at(fine[:, None])
    gap = np.abs(found.centre[:, 0] - np.sin(speed * fine))
    # exact for a parabola; a third derivative adds a little over one step
    assert (gap <= 1.01 * found.half[:, 0]).all()
    assert gap.max() >= 0.9 * found.half.max()
    assert found.half.max() < 0.01


def test_the_half_width_is_the_critical_value_times_the_standard_error():
    grid = np.linspace(0.0, 1.0, 11)
    cov = np.zeros((2, 11, 2, 11))
    for j, sd in enumerate((0.1, 0.3)):
        cov[j, :, j] = sd**2
    critical = np.stack([np.linspace(2.0, 3.0, 11), np.full(11, 4.0)])
    shape = grid_shape("past", grid, np.stack([2.0 * grid, 0.0 * grid]), cov, critical)
    assert_allclose(shape.half, critical * [[0.1], [0.3]], rtol=1e-9)
    assert_allclose(shape.steep, [2.0, 0.0], atol=1e-7)


def test_slope_and_modulus_carry_their_own_noise():
    grid = np.linspace(0.0, 1.0, 11)
    cov = np.zeros((1, 11, 1, 11))
    cov[0, :, 0] = 0.04 * np.eye(11)
    shape = grid_shape("past", grid, np.zeros((1, 11)), cov, np.full((1, 11), 3.0))
    assert_allclose(shape.steep, 3.0 * 0.2 * np.sqrt(2.0) / 0.1)
    assert_allclose(shape.half, 3.0 * 0.2 * (1.0 + np.sqrt(1.5) / 4.0))
    assert shape.modulus == pytest.approx(np.sqrt(1.5) / 4.0)


def hand_band():
    grid = np.array([0.0, 1.0, 2.0])
    shape = GridShape(
        "past", grid, np.array([[0.0, 2.0, 0.0], [1.0, 1.0, 1.0]]),
        np.array([[1.0, 2.0, 4.0], [0.5, 0.5, 0.5]]), np.array([10.0, 0.0]), 0.0,
    )  # fmt: skip
    names = ("by hand", "by hand")
    return Band(
        "spline", names, 0.9, np.full(2, 3.0), "rows", ("past",), ("a", "b"), 100, 10, shape
    )


def test_inside_the_band_is_linear_between_grid_points_and_outside_it_grows_by_the_steepest_slope():
    found = hand_band().at(np.array([-3.0, -0.5, 0.0, 0.25, 1.5, 2.0, 2.1]))
    assert_allclose(found.centre[:, 0], [0.0, 0.0, 0.0, 0.5, 1.0, 0.0, 0.0])
    assert_allclose(found.half[:, 0], [31.0, 6.0, 1.0, 1.25, 3.0, 4.0, 5.0])
    assert_allclose(found.half[:, 1], 0.5)
    assert_array_equal(found.inside, [False, False, True, True, True, True, False])


def test_nan_in_is_nan_out_and_outside():
    x = np.array([np.nan, 0.5, np.inf, -np.inf])
    found = hand_band().at(x)
    assert_array_equal(np.isnan(found.centre), np.repeat([[True], [False], [True], [True]], 2, 1))
    assert_array_equal(np.isnan(found.half), np.isnan(found.centre))
    assert_array_equal(found.inside, [False, True, False, False])
    assert_allclose(found.half[1], [1.5, 0.5])
    nothing = hand_band().at(np.full(3, np.nan))
    assert np.isnan(nothing.centre).all()
    assert not nothing.inside.any()


def test_columns_that_do_not_fit_the_band_are_refused():
    with pytest.raises(DataError, match=r"x must be \(n, 1\).*\(4, 2\)"):
        hand_band().at(np.zeros((4, 2)))


# kinks


def bent(x, slope):
    return x + slope * np.abs(x)


def kinked(rng, n, slope):
    x = rng.uniform(-1.0, 1.0, n)
    return sample_of(x, bent(x, slope) + 0.1 * rng.standard_normal(n))


def fires(rng, trials, n, slope):
    p = [kink_p(bin_rows(kinked(rng, n, slope), 0.98), "rows") for _ in range(trials)]
    return (np.array(p) < GATE).sum()


def test_a_strong_kink_is_seen_and_a_straight_line_is_not_taken_for_one():
    assert fires(generator(14), 10, 2400, 30.0) >= binomial_floor(10, 0.95)
    assert fires(generator(15), 50, 300, 0.0) <= stats.binom.isf(FALSE_ALARM, 50, GATE)


@pytest.mark.parametrize("noise", ["rows", "units"])
@pytest.mark.parametrize("slope", [0.0, 0.5, 2.0])
def test_the_kinks_p_value_is_its_dense_recomputation(noise, slope):
    bins = own_bins(seed=27)
    x, n = bins.x, len(bins.x)
    y = bent(x, slope) + (0.1 + 0.1 * np.abs(x)) * generator(28).standard_normal(n)
    bins = replace(bins, y=y[:, None])
    left_over = np.eye(n) - plain_dense(bins, 2)[0]
    knots = np.linspace(*bins.domain, 34)[1:-1]
    hinges = left_over @ np.abs(x[:, None] - knots)
    residual = left_over @ y
    score = hinges.T @ residual
    psi = (left_over.T @ hinges) * residual[:, None]
    if noise == "units":
        psi = np.stack([psi[bins.unit == u].sum(0) for u in np.unique(bins.unit)])
    sd = np.sqrt((psi**2).sum(0))
    r = psi.T @ psi / sd / sd[:, None]
    kappa = np.arccos(np.clip(np.diagonal(r, 1), -1.0, 1.0)).sum()
    c = np.abs(score / sd).max()
    p = min(kappa / np.pi * np.exp(-(c**2) / 2.0) + 2.0 * stats.norm.sf(c), 1.0)
    assert kink_p(bins, noise) == pytest.approx(p, rel=1e-5)


def test_the_kinkiest_coordinate_decides():
    rng = generator(15)
    x = np.linspace(-1.0, 1.0, 400)
    y = np.stack([x, 3.0 * np.abs(x)], axis=1) + 0.1 * rng.standard_normal((400, 2))
    both = bin_rows(sample_of(x, y), 0.98)
    each = [kink_p(bin_rows(sample_of(x, column), 0.98), "rows") for column in y.T]
    assert each[0] != pytest.approx(each[1])
    assert kink_p(both, "rows") == pytest.approx(2 * min(each))  # Bonferroni


@pytest.mark.parametrize(("n", "smooth"), [(1996, "spline"), (2400, "local_polynomial")])
def test_auto_takes_the_kinks_band_for_a_kink_and_a_smooth_one_for_a_line(n, smooth):
    method = BandMethod(critical="tube", grid=40)
    s = kinked(generator(16), n, 30.0)
    kink = curve(s, method, 0.9, generator())
    assert kink.band.kind == "lipschitz"
    assert kink.roughness == kink_p(bin_rows(s, 0.98), kink.band.noise) < GATE
    same = curve(s, replace(method, kind="lipschitz"), 0.9, generator()).band
    at = np.linspace(-1.0, 1.0, 20)
    assert_array_equal(kink.band.at(at).half, same.at(at).half)
    x = np.linspace(-1.0, 1.0, n)
    line = sample_of(x, x + np.tile([0.1, -0.1, -0.1, 0.1], n // 4))
    fit = curve(line, method, 0.9, generator())
    assert fit.band.kind == smooth
    assert fit.roughness >= GATE


@pytest.mark.parametrize("kind", CURVES)
def test_a_named_band_is_made_whatever_the_kink(kind):
    fit = curve(kinked(generator(17), 300, 30.0), BandMethod(kind, **SMALL), 0.9, generator())
    assert fit.band.kind == kind
    assert np.isnan(fit.roughness)


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


def test_the_studentised_critical_value_is_not_mapped_to_students_t_again():
    bins = own_bins(seed=19)
    s = Sample(bins.x[:, None], bins.y, bins.unit, ("past",), ("w",))
    method = BandMethod("spline", noise="rows", critical="bootstrap_t", grid=400, draws=200)
    band = curve(s, method, 0.9, generator()).band
    reach, hat, _ = dense_smoother("spline", bins, band.shape.grid)
    residual = (bins.y[:, 0] - hat @ bins.y[:, 0]) / (1.0 - hat.diagonal())
    half = band.critical[0] * np.sqrt(reach**2 @ residual**2)
    # what is left is the modulus
    assert (band.shape.half[0] >= half).all()
    assert (band.shape.half[0] / half).max() < 1.01


# coverage


def covers(shape, truth):
    at = np.linspace(shape.grid[0], shape.grid[-1], 160)
    found = shape.at(at[:, None])
    return bool((np.abs(found.centre[:, 0] - truth(at)) <= found.half[:, 0]).all())


def wave(x):
    return np.sin(4.0 * x)


@pytest.mark.parametrize("kind", ["local_polynomial", "spline"])
def test_the_band_covers_the_whole_curve_and_a_pointwise_one_does_not(kind, monkeypatch):
    trials, level, rng = 60, 0.95, generator(20)
    method = BandMethod(kind, noise="rows", critical="simulate", **SMALL)
    shapes = []

    def both(name, grid, centre, cov, critical):
        values = (critical, np.full_like(critical, 1.96))
        shapes.append([grid_shape(name, grid, centre, cov, c) for c in values])
        return shapes[-1][0]

    monkeypatch.setattr(curve_module, "grid_shape", both)
    for _ in range(trials):
        x = rng.uniform(-1.0, 1.0, 240)
        y = wave(x) + (0.2 + 0.1 * x) * rng.standard_normal(240)
        curve(sample_of(x, y), method, level, rng)
    uniform, pointwise = (sum(covers(pair[k], wave) for pair in shapes) for k in (0, 1))
    assert uniform >= binomial_floor(trials, level)
    assert pointwise < binomial_floor(trials, 0.8)


def test_the_lipschitz_band_covers_a_strong_kink():
    trials, rng = 12, generator(21)
    method = BandMethod("lipschitz", noise="rows", critical="simulate", grid=150, draws=400)
    count = 0
    for _ in range(trials):
        band = curve(kinked(rng, 1000, 10.0), method, 0.95, rng).band
        count += covers(band.shape, lambda v: bent(v, 10.0))
    assert count >= binomial_floor(trials, 0.95)


def test_random_intercepts_need_the_clustered_band():
    trials, level = 20, 0.9
    count = {"rows": 0, "units": 0}
    for noise in count:
        rng = generator(22)
        method = BandMethod("spline", noise=noise, critical="simulate", **SMALL)
        for _ in range(trials):
            x = rng.uniform(-1.0, 1.0, 600)
            shift = np.repeat(0.6 * rng.standard_normal(30), 20)
            y = x + shift + 0.1 * rng.standard_normal(600)
            band = curve(sample_of(x, y, 30), method, level, rng).band
            count[noise] += covers(band.shape, lambda v: v)
    assert count["units"] >= binomial_floor(trials, level)
    assert count["rows"] < binomial_floor(trials, level)


# what is refused


def noisy(n=200, seed=22):
    rng = generator(seed)
    x = rng.standard_normal(n)
    return x, np.sin(x) + 0.2 * rng.standard_normal(n)


def made(s, **options):
    return curve(s, BandMethod(**{"kind": "spline", **SMALL, **options}), 0.9, generator())


@pytest.mark.parametrize("kind", ["auto", *CURVES])
def test_a_constant_summary_is_refused(kind):
    with pytest.raises(DataError, match=r"'past' .* varies"):
        made(sample_of(np.full(200, 3.0), noisy()[1]), kind=kind)


@pytest.mark.parametrize("kind", CURVES)
def test_ten_levels_are_enough_and_nine_are_not(kind):
    rng = generator(23)
    y = 0.1 * rng.standard_normal(360)
    with pytest.raises(DataError, match="only 9 places"):
        made(sample_of(np.arange(360) % 9, y), kind=kind)
    band = made(sample_of(np.arange(360) % 10, y), kind=kind).band
    assert np.isfinite(band.at(np.linspace(0.0, 9.0, 50)).half).all()


@pytest.mark.parametrize("kind", CURVES)
def test_duplicated_contexts_do_no_harm(kind):
    rng = generator(24)
    x = np.repeat(rng.standard_normal(40), 10)
    truth = np.sin(x)
    band = made(sample_of(x, truth + 0.1 * rng.standard_normal(400)), kind=kind).band
    found = band.at(x[(x > band.shape.grid[0]) & (x < band.shape.grid[-1])])
    assert np.isfinite(found.centre).all()
    assert (found.half > 0).all()


@pytest.mark.parametrize("kind", CURVES)
def test_a_gap_in_the_summary_gives_a_wide_band_not_an_error(kind):
    rng = generator(25)
    x = np.r_[rng.normal(-10.0, 0.3, 200), rng.normal(10.0, 0.3, 200)]
    band = made(sample_of(x, np.cos(x) + 0.1 * rng.standard_normal(400)), kind=kind).band
    ends, middle = band.at(np.array([-10.0, 10.0])).half, band.at(np.array([-5.0, 5.0])).half
    assert middle.min() > 3.0 * ends.max()


@pytest.mark.parametrize("kind", ["auto", *CURVES])
def test_fewer_than_sixty_rows_are_refused(kind):
    x, y = noisy(59)
    with pytest.raises(DataError, match=r"59 held-out rows .* at least 60"):
        made(sample_of(x, y, 10), kind=kind, domain=1.0)
    x, y = noisy(60)
    assert made(sample_of(x, y, 10), kind=kind, domain=1.0).band.rows == 60


def test_too_few_rows_in_a_narrow_domain_are_refused():
    x, y = noisy(200)
    with pytest.raises(DataError, match=r"held-out rows lie in the central range.* at least 60"):
        made(sample_of(x, y), domain=0.15)


@pytest.mark.parametrize("kind", ["auto", *CURVES])
def test_a_one_point_domain_is_refused(kind):
    x, y = noisy(200)
    with pytest.raises(DataError):
        made(sample_of(x, y), kind=kind, domain=1e-9)


@pytest.mark.parametrize("kind", ["auto", *CURVES])
@pytest.mark.parametrize(
    "function", [np.zeros_like, lambda v: 0.0 * v + 3.3, lambda v: v, lambda v: 7.0 - 1e5 * v],
    ids=["zero", "constant", "copy", "line"],
)  # fmt: skip
def test_an_outcome_without_noise_is_refused(kind, function):
    x, _ = noisy(300)
    with pytest.raises(DataError, match="no noise around its curve"):
        made(sample_of(x, function(x)), kind=kind)


def test_four_units_are_refused():
    with pytest.raises(DataError, match="at least 5 held-out units"):
        made(sample_of(*noisy(), units=4))


def test_clustering_nine_units_is_refused():
    with pytest.raises(DataError, match=r'noise="units" needs at least 10 .* 9 came'):
        made(sample_of(*noisy(), units=9), noise="units")


def test_the_studentised_bootstrap_of_units_is_refused():
    with pytest.raises(SettingError, match=r'"bootstrap_t" is for noise="rows"'):
        made(sample_of(*noisy()), noise="units", critical="bootstrap_t")


@pytest.mark.parametrize("kind", ["auto", *CURVES])
def test_scheffe_is_refused_for_curves(kind):
    with pytest.raises(SettingError, match=r'"scheffe" is for kind="linear"'):
        made(sample_of(*noisy()), kind=kind, critical="scheffe")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"kind": "splines"}, "kind 'splines' is not known; did you mean 'spline'"),
        ({"kind": "local_polynominal"}, "did you mean 'local_polynomial'"),
        ({"kind": "Lipschitz"}, "did you mean 'lipschitz'"),
        ({"kind": "quantum"}, "kind 'quantum' is not known; there is 'auto'"),
        ({"noise": "unit"}, "noise 'unit' is not known; did you mean 'units'"),
        ({"critical": "tubes"}, "did you mean 'tube'"),
        ({"coordinates": "joints"}, "did you mean 'joint'"),
        ({"domain": 0.0}, r"domain must lie in \(0, 1\], but 0.0 came"),
        ({"domain": -0.5}, r"domain must lie in \(0, 1\]"),
        ({"domain": 1.01}, r"domain must lie in \(0, 1\]"),
        ({"domain": float("nan")}, r"domain must lie in \(0, 1\]"),
        ({"domain": "wide"}, r"domain must lie in \(0, 1\]"),
        ({"grid": 9}, "grid must be a whole number >= 10, but 9 came"),
        ({"grid": 40.0}, "grid must be a whole number"),
        ({"draws": 99}, "draws must be a whole number >= 100, but 99 came"),
        ({"draws": True}, "draws must be a whole number"),
    ],
)
def test_a_setting_out_of_range_is_refused_with_a_sentence(options, words):
    with pytest.raises(SettingError, match=f"BandMethod: .*{words}"):
        BandMethod(**options)
