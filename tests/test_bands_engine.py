from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.polynomial.legendre import legvander
from numpy.testing import assert_allclose, assert_array_equal
from scipy import optimize, stats

from pulse_pyro.bands import bootstrap
from pulse_pyro.bands.bins import COUNT, bin_rows
from pulse_pyro.bands.bootstrap_t import MOST_ROWS, skew_ratio, studentised_sup
from pulse_pyro.bands.dependence import choose_noise, dependence_p
from pulse_pyro.bands.sample import Sample
from pulse_pyro.bands.spread import local_spread
from pulse_pyro.bands.weights import Weights
from pulse_pyro.errors import DataError, SettingError
from tests.stat import FALSE_ALARM, binomial_floor, z_bound

DRAWS = 6000
SEED = st.integers(0, 2**32 - 1)
FEW = settings(max_examples=30)


def generator(seed=0):
    return np.random.default_rng(seed)


def sample_of(x, y=None, units=20):
    x = np.asarray(x, dtype=float)
    y = np.zeros(len(x)) if y is None else np.asarray(y, dtype=float)
    unit = np.arange(len(x)) * units // max(len(x), 1)
    return Sample(x[:, None], y[:, None], unit, ("past",), ("w",))


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
    by_row = bootstrap.multiplier_sup(psi, DRAWS, generator(2))
    by_factor = bootstrap.factor_draws(psi.T, DRAWS, generator(3))
    by_correlation = bootstrap.sup_draws(psi.T @ psi, DRAWS, generator(4))
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
    by_unit = bootstrap.multiplier_sup(summed, DRAWS, generator(7))
    by_correlation = bootstrap.sup_draws(summed.T @ summed, DRAWS, generator(8))
    assert_same_law(explicit, by_unit, by_correlation)


def test_weights_by_row_do_not_draw_the_law_of_weights_by_unit():
    psi, unit = shared_rows()
    summed = np.add.reduceat(psi, np.flatnonzero(np.diff(unit, prepend=-1)))
    by_row = bootstrap.multiplier_sup(psi, DRAWS, generator(9))
    by_unit = bootstrap.multiplier_sup(summed, DRAWS, generator(10))
    assert stats.ks_2samp(by_row, by_unit).pvalue < FALSE_ALARM
    assert bootstrap.quantile(by_row, 0.95) > bootstrap.quantile(by_unit, 0.95) + 0.5


def test_explicit_weights_come_in_the_number_asked_for():
    assert bootstrap.multiplier_sup(np.eye(3), 257, generator()).shape == (257,)
    assert bootstrap.multiplier_sup(np.eye(3), 256, generator()).shape == (256,)


def test_the_scale_of_each_point_does_not_matter_to_the_supremum():
    psi = generator(1).standard_normal((20, 8))
    scale = np.geomspace(1e-9, 1e9, 8)
    cov = psi.T @ psi
    plain = bootstrap.sup_draws(cov, DRAWS, generator(2))
    scaled = bootstrap.sup_draws(cov * scale * scale[:, None], DRAWS, generator(3))
    tiny = bootstrap.sup_draws(cov * 1e-20, DRAWS, generator(4))
    assert_same_law(plain, scaled, tiny)
    factor = bootstrap.factor_draws(psi.T, 50, generator(5))
    rescaled = bootstrap.factor_draws(psi.T * scale[:, None], 50, generator(5))
    assert_allclose(rescaled, factor, rtol=1e-12)


def test_rounding_does_not_change_the_draws():
    psi = generator(1).standard_normal((20, 8))
    cov = psi.T @ psi
    first = bootstrap.sup_draws(cov, 50, generator(2))
    for seed in range(5):
        scale = generator(seed).uniform(1.0, 2.0, 8)
        other_rounding = bootstrap.sup_draws(cov * scale * scale[:, None], 50, generator(2))
        assert_allclose(other_rounding, first, rtol=1e-9)


def test_a_point_without_variance_takes_no_part():
    cov = np.zeros((3, 3))
    cov[:2, :2] = [[4.0, 1.0], [1.0, 9.0]]
    r = bootstrap.correlation(cov)
    assert_allclose(r, [[1.0, 1 / 6, 0.0], [1 / 6, 1.0, 0.0], [0.0, 0.0, 0.0]])
    with_it = bootstrap.sup_draws(cov, DRAWS, generator(11))
    without = bootstrap.sup_draws(cov[:2, :2], DRAWS, generator(12))
    factor = np.vstack([np.linalg.cholesky(cov[:2, :2]), np.zeros(2)])
    assert_same_law(with_it, without, bootstrap.factor_draws(factor, DRAWS, generator(13)))


def test_beyond_the_most_points_every_k_th_is_drawn(monkeypatch):
    cov = smooth_path(25, 0.1)
    every_third = bootstrap.sup_draws(cov[::3, ::3], 100, generator(14))
    monkeypatch.setattr(bootstrap, "MOST", 10)
    assert_array_equal(bootstrap.sup_draws(cov, 100, generator(14)), every_third)


# critical values against closed forms


@pytest.mark.parametrize("level", [0.5, 0.9, 0.95, 0.999])
def test_the_supremum_over_one_point_is_the_normal_quantile(level):
    exact = stats.norm.isf((1.0 - level) / 2.0)
    assert bootstrap.tube(np.ones((1, 1)), level) == pytest.approx(exact, abs=1e-10)
    assert bootstrap.tube(np.ones((50, 50)), level) == pytest.approx(exact, abs=1e-10)
    sups = bootstrap.sup_draws(np.array([[7.0]]), DRAWS, generator(15))
    assert_share((sups <= exact).mean(), level, DRAWS)


@pytest.mark.parametrize("points", [2, 10, 40])
def test_the_supremum_over_independent_points_is_sidak(points):
    exact = stats.norm.ppf((1.0 + 0.95 ** (1.0 / points)) / 2.0)
    for draw in (
        bootstrap.sup_draws(np.eye(points) * 3.0, DRAWS, generator(16)),
        bootstrap.factor_draws(np.eye(points), DRAWS, generator(17)),
        bootstrap.multiplier_sup(np.eye(points), DRAWS, generator(18)),
    ):
        assert_share((draw <= exact).mean(), 0.95, DRAWS)


@pytest.mark.parametrize("length", [0.3, 1.0, 2.0])
def test_an_arc_of_two_normals_has_its_exact_critical_value(length):
    exact = optimize.brentq(lambda c: arc_tail(c, length) - 0.05, 1.0, 5.0)
    r = arc(120, length)
    assert bootstrap.path_length(r) == pytest.approx(length, abs=1e-5)
    assert bootstrap.tube(r, 0.95) == pytest.approx(exact, abs=0.03)
    sups = bootstrap.sup_draws(r, 20_000, generator(19))
    assert_share((sups <= exact).mean(), 0.95, 20_000)


@pytest.mark.parametrize("level", [0.9, 0.95, 0.99])
def test_the_tube_agrees_with_the_simulated_quantile_on_a_fine_path(level):
    r, draws = smooth_path(150, 0.1), 12_000
    c = bootstrap.tube(r, level)
    sups = bootstrap.sup_draws(r, draws, generator(20))
    noise = z_bound() * np.sqrt(level * (1.0 - level) / draws)
    assert (sups <= c + 0.03).mean() >= level - noise
    assert (sups <= c - 0.03).mean() <= level + noise


def test_the_tube_solves_its_own_equation_in_full():
    r = smooth_path(300, 0.05)
    kappa = np.arccos(np.clip([r[k, k + 1] for k in range(299)], -1.0, 1.0)).sum()
    c = bootstrap.tube(r, 0.9)
    tail = kappa / np.pi * np.exp(-(c**2) / 2.0) + 2.0 * (1.0 - stats.norm.cdf(c))
    assert tail == pytest.approx(0.1, abs=1e-9)
    assert bootstrap.tube_tail(0.0, 3.0) == 1.0


@FEW
@given(st.floats(0.01, 0.98), st.floats(0.0, 30.0), st.floats(0.0, 30.0))
def test_the_tube_grows_with_the_level_and_the_length(level, short, more):
    a, b = (np.eye(2) + np.cos(v) * (1 - np.eye(2)) for v in sorted([short % 3, more % 3]))
    assert bootstrap.tube(a, level) <= bootstrap.tube(b, level) + 1e-9
    assert bootstrap.tube(a, level) < bootstrap.tube(a, level + 0.01)


@FEW
@given(SEED, st.integers(2, 300), st.floats(0.01, 0.99))
def test_at_least_the_level_of_the_draws_lies_under_their_quantile(seed, draws, level):
    sups = generator(seed).exponential(size=draws)
    c = bootstrap.quantile(sups, level)
    assert c in sups
    assert (sups <= c).mean() >= level - 1e-12


def test_the_quantile_is_read_two_standard_errors_of_the_drawing_upwards():
    # .9 + 2 sqrt(.9 * .1 / 10,000) = .906
    assert bootstrap.quantile(np.arange(1.0, 10_001.0), 0.9) == pytest.approx(9060.0, abs=1.0)
    assert bootstrap.quantile(np.arange(1.0, 101.0), 0.999) == 100.0


# Student's t


@pytest.mark.parametrize("nu", [2.0, 3.0, 7.5, 40.0, 1e4])
def test_the_student_map_keeps_the_tail(nu):
    c = np.linspace(0.0, 7.0, 29)
    assert_allclose(bootstrap.student(c, nu), stats.t.isf(stats.norm.sf(c), nu), rtol=1e-9)
    assert_allclose(stats.t.sf(bootstrap.student(c, nu), nu), stats.norm.sf(c), rtol=1e-7)


def test_the_student_map_has_its_tabled_value():
    two_sided = stats.norm.isf(0.025)
    assert bootstrap.student(two_sided, 10.0) == pytest.approx(2.228139, abs=1e-6)
    assert bootstrap.student(two_sided, np.inf) == pytest.approx(two_sided, abs=1e-5)


@FEW
@given(st.floats(0.0, 8.0), st.floats(0.01, 2.0), st.floats(2.0, 500.0), st.floats(0.5, 500.0))
def test_the_student_map_is_monotone_and_never_below_the_normal(c, step, nu, more):
    value = bootstrap.student(c, nu)
    assert value >= c
    assert bootstrap.student(c + step, nu) > value
    assert bootstrap.student(c, nu + more) <= value + 1e-12


def test_fewer_than_two_degrees_of_freedom_count_as_two():
    assert bootstrap.student(2.5, -3.0) == bootstrap.student(2.5, 0.1) == bootstrap.student(2.5, 2)


def test_the_student_map_does_not_fall_far_out():
    c = np.array([30.0, 36.0, 37.0, 38.0, 39.0, 45.0])
    assert (np.diff(bootstrap.student(c, 5.0)) > 0).all()


# dependence within units


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
    unit = np.repeat(np.arange(30), 15)
    # products of neighbours and of all pairs cancel in each unit, as far as 15 rows allow
    quiet = np.tile(np.r_[0.0, 1.0, 0.0, -1.0, np.zeros(11)], 30)
    other = quiet if noise is None else noise(generator(23), unit)
    assert choose_noise(np.stack([quiet, other], axis=1), unit, "auto") == kind
    assert choose_noise(np.stack([quiet, other], axis=1), unit, "rows") == "rows"
    assert choose_noise(np.stack([quiet, other], axis=1), unit, "units") == "units"


@pytest.mark.parametrize(("units", "kind"), [(49, "rows"), (50, "units")])
def test_fifty_units_are_clustered_without_asking(units, kind):
    quiet = np.zeros((units * 3, 1))
    assert choose_noise(quiet, np.repeat(np.arange(units), 3), "auto") == kind


@pytest.mark.parametrize("wanted", ["auto", "rows", "units"])
def test_four_units_are_too_few_to_judge_the_noise(wanted):
    with pytest.raises(DataError, match=r"at least 5 held-out units .* 4 came"):
        choose_noise(np.ones((40, 1)), np.repeat(np.arange(4), 10), wanted)


def test_clustering_nine_units_is_refused():
    with pytest.raises(DataError, match=r'noise="units" needs at least 10 .* 9 came'):
        choose_noise(np.ones((90, 1)), np.repeat(np.arange(9), 10), "units")


def test_clustering_needs_more_units_than_regressors():
    unit = np.repeat(np.arange(21), 10)
    with pytest.raises(DataError, match=r"at least 22 .* 21 came"):
        choose_noise(np.ones((210, 1)), unit, "units", 21)
    assert choose_noise(np.ones((210, 1)), unit, "units", 20) == "units"
    assert choose_noise(np.ones((210, 1)), unit, "auto", 21) == "rows"


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


# studentised suprema


def skewed_rows(n=90):
    """A curve of 9 coefficients around noise that is skewed and grows with x."""
    rng = generator(31)
    x = np.sort(rng.uniform(-1.0, 1.0, n))
    bins = bin_rows(sample_of(x), 1.0)
    grid = np.linspace(-0.9, 0.9, 12)
    design = legvander(bins.at, 8)
    right = np.linalg.solve((design.T * bins.count) @ design, design.T)
    w = Weights(legvander(grid, 8) @ right, design @ right, "least squares", 9.0)
    noise = (rng.exponential(size=n) - 1.0) * np.exp(x)
    residual = noise - (w.hat @ bins.sums(noise[:, None])[:, 0])[bins.index]
    return bins, w, residual / (1.0 - w.leverage()[bins.index])


def refitted_sup(bins, scaled, picks):
    """The same by refitting every draw to all rows, one by one."""
    design = legvander(bins.at[bins.index], 8)
    inverse = np.linalg.inv(design.T @ design)
    leverage = ((design @ inverse) * design).sum(1)
    reach = legvander(np.linspace(-0.9, 0.9, 12), 8) @ inverse @ design.T
    spread = local_spread(bins, scaled)[bins.index]
    standard = scaled / spread - (scaled / spread).mean()
    out = []
    for pick in picks.T:
        y = standard[pick] * spread
        left = (y - design @ (inverse @ (design.T @ y))) / (1.0 - leverage)
        out.append(np.max(np.abs(reach @ y) / np.sqrt(reach**2 @ left**2)))
    return np.array(out)


def test_studentised_suprema_are_those_of_refitted_draws():
    bins, w, scaled = skewed_rows()
    picks = generator(32).integers(90, size=(90, 300))
    given = SimpleNamespace(integers=lambda n, size: picks)
    drawn = studentised_sup(bins, [w], scaled[:, None], 300, given)
    assert_allclose(drawn, refitted_sup(bins, scaled, picks), rtol=1e-8)


def test_studentised_suprema_of_skewed_noise_reach_beyond_the_normal_ones():
    bins, w, scaled = skewed_rows()
    drawn = studentised_sup(bins, [w], scaled[:, None], 1000, generator(33))
    gaussian = bootstrap.multiplier_sup((w.grid[:, bins.index] * scaled).T, 4000, generator(34))
    assert stats.ks_2samp(drawn, gaussian).pvalue < FALSE_ALARM
    assert bootstrap.quantile(drawn, 0.95) > bootstrap.quantile(gaussian, 0.95)


def test_a_repeated_coordinate_does_not_raise_the_studentised_supremum():
    bins, w, scaled = skewed_rows()
    one = studentised_sup(bins, [w], scaled[:, None], 200, generator(35))
    two = studentised_sup(bins, [w, w], np.stack([scaled, -scaled], 1), 200, generator(35))
    assert_allclose(two, one)


def test_too_many_rows_for_the_studentised_bootstrap_are_refused():
    many = SimpleNamespace(x=np.zeros(MOST_ROWS + 1))
    with pytest.raises(SettingError, match=f'{MOST_ROWS + 1} came, use critical="simulate"'):
        studentised_sup(many, [], np.zeros((MOST_ROWS + 1, 1)), 100, generator())


def test_skewness_over_the_root_of_the_local_size_has_its_worked_value():
    # (4, -1, -1, -1, -1) has variance 4 and skewness 1.5, in every window of 50 rows
    lopsided, even = np.tile([4.0, -1.0, -1.0, -1.0, -1.0], 40), np.tile([1.0, -1.0], 100)
    bins = bin_rows(sample_of(np.arange(200.0)), 1.0)
    nu = np.full((2, 5), 225.0)
    assert skew_ratio(bins, lopsided[:, None], nu[:1]) == pytest.approx(0.1, rel=1e-9)
    assert skew_ratio(bins, even[:, None], nu[:1]) == pytest.approx(0.0, abs=1e-9)
    assert skew_ratio(bins, np.stack([even, -lopsided], 1), nu) == pytest.approx(0.1, rel=1e-9)


def test_a_scale_that_changes_with_x_is_not_taken_for_skewness():
    rng = generator(37)
    x = np.linspace(-1.0, 1.0, 2000)
    noise = np.exp(2.0 * x) * rng.standard_normal(2000)
    bins = bin_rows(sample_of(x), 1.0)
    spread = np.sqrt(6.0 / 2000) * z_bound()
    assert skew_ratio(bins, noise[:, None], np.ones((1, 1))) <= spread
