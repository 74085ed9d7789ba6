import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

from pulse_pyro.bands.auto import make_band
from pulse_pyro.bands.basis import BasisFit, basis_critical, fit_basis
from pulse_pyro.bands.linear import CLOUD, linear, scheffe
from pulse_pyro.bands.sample import BandMethod, Sample
from pulse_pyro.errors import DataError, SettingError
from tests.stat import binomial_floor, z_bound

SEED = st.integers(0, 2**32 - 1)
PROPERTY = settings(max_examples=40)
SCHEFFE = BandMethod("linear", noise="rows", critical="scheffe")


def sample(x, y, unit):
    x, y = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    y = y[:, None] if y.ndim == 1 else y
    x_names = tuple(f"lag {k}" for k in range(x.shape[1]))
    return Sample(x, y, np.asarray(unit), x_names, tuple(f"w{j}" for j in range(y.shape[1])))


def draw(rng, units=20, rows=10, p=3, q=1, intercept=0.0):
    """A linear world: rows of units, slopes 1 .. p, noise of sd 1 and random intercepts."""
    unit = np.repeat(np.arange(units), rows)
    x = rng.standard_normal((len(unit), p)) + np.arange(p)
    noise = rng.standard_normal((len(unit), q)) + intercept * rng.standard_normal((units, q))[unit]
    return sample(x, truth(x)[:, None] + noise, unit)


def truth(x):
    return 5.0 + x @ np.arange(1.0, x.shape[1] + 1)


def made(s, seed=1, level=0.95, **options):
    return linear(s, BandMethod("linear", **options), level, np.random.default_rng(seed))


def with_ones(x):
    return np.column_stack([np.ones(len(x)), x])


def dense(s, noise):
    """Least squares and its sandwich in the raw regressors (1, x), one coordinate, with loops."""
    b, y = with_ones(s.x), s.y[:, 0]
    coef = np.linalg.lstsq(b, y, rcond=None)[0]
    bread = np.linalg.inv(b.T @ b)
    psi = np.array([
        bread @ row * (target - row @ coef) / (1 - row @ bread @ row)
        for row, target in zip(b, y, strict=True)
    ])  # fmt: skip
    if noise == "units":
        units = np.unique(s.unit)
        psi = np.array([psi[s.unit == c].sum(0) for c in units])
        psi *= np.sqrt(len(units) / (len(units) - 1))
    return coef, sum(np.outer(row, row) for row in psi)


def assert_same_level(share, level, *draws):
    """A share of simulated suprema agrees with the level, both sides simulated."""
    error = np.sqrt(level * (1 - level) * sum(1 / d for d in draws))
    assert abs(share - level) <= z_bound() * error


def suprema(cov, points, draws, rng):
    """Draw max |b'N(0, V)| / sd over the points, by brute force."""
    z = rng.multivariate_normal(np.zeros(len(cov)), cov, draws, method="eigh")
    sd = np.sqrt(np.einsum("ik,kl,il->i", points, cov, points))
    return np.abs(z @ points.T / sd).max(1)


def process(cov, points, q=1):
    """A fit of which only the covariance matters, (q K, q K)."""
    k = len(cov) // q
    empty = np.zeros((0, k))
    return BasisFit(
        empty, (np.eye(k),) * q, np.zeros((k, q)), empty, "rows", cov.reshape(q, k, q, k)
    ), np.asarray(points, dtype=float)


def critical(fit, points, nu=np.inf, level=0.95, seed=0, **options):
    rng = np.random.default_rng(seed)
    return basis_critical(fit, points, BandMethod(**options), level, nu, rng)


# centre and variance


def test_the_centre_is_least_squares():
    s = draw(np.random.default_rng(0), q=2)
    new = np.random.default_rng(1).standard_normal((30, 3)) * 4
    coef = np.linalg.lstsq(with_ones(s.x), s.y, rcond=None)[0]
    assert_allclose(made(s).band.at(new).centre, with_ones(new) @ coef, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("noise", ["rows", "units"])
def test_the_half_width_is_scheffe_times_the_dense_sandwich(noise):
    s = draw(np.random.default_rng(2), units=30, p=2, intercept=0.5)
    new = np.random.default_rng(3).standard_normal((25, 2)) * 3
    _, cov = dense(s, noise)
    found = made(s, noise=noise, critical="scheffe").band
    se = np.sqrt(np.einsum("ik,kl,il->i", with_ones(new), cov, with_ones(new)))
    ratio = found.at(new).half[:, 0] / se
    assert_allclose(ratio, found.critical[0], rtol=1e-8)
    assert found.noise == noise
    if noise == "rows":
        closed = np.sqrt(3 * stats.f.isf(0.05, 3, len(s.x) - 3))
        assert_allclose(ratio, closed, rtol=1e-8)


def test_hc3_of_a_mean_has_its_worked_value():
    y = np.array([[0.0], [0.0], [0.0], [4.0], [1.0]])
    fit = fit_basis(
        np.ones((5, 1)), y, np.arange(5), (np.array([[0.2]]),), BandMethod(noise="rows"), 1
    )
    # mean 1, residuals -1 -1 -1 3 0, leverage 1/5: (3 + 9) / 25 / 0.64
    assert fit.coef[0, 0] == pytest.approx(1.0)
    assert fit.cov[0, 0, 0, 0] == pytest.approx(12 / 25 / 0.64)


def test_the_cluster_variance_of_a_mean_has_its_worked_value():
    unit = np.repeat(np.arange(10), 2)
    y = np.where(unit == 0, 10.0, 0.0)[:, None]
    inner = (np.array([[1 / 20]]),)
    fit = fit_basis(np.ones((20, 1)), y, unit, inner, BandMethod(noise="units"), 1)
    # mean 1, unit sums of residuals 18 and nine times -2, leverage 1/20
    assert fit.cov[0, 0, 0, 0] == pytest.approx(10 / 9 * (18**2 + 9 * 4) / 20**2 / 0.95**2)


def test_covariance_between_coordinates_is_the_sandwich_of_both():
    s = draw(np.random.default_rng(4), q=2)
    b, inner = with_ones(s.x), np.linalg.inv(with_ones(s.x).T @ with_ones(s.x))
    both = fit_basis(b, s.y, s.unit, (inner, inner), BandMethod(noise="units"), 4).cov
    total = fit_basis(b, s.y.sum(1)[:, None], s.unit, (inner,), BandMethod(noise="units"), 4).cov
    assert_allclose(total[0, :, 0], both.sum((0, 2)), rtol=1e-9)
    assert_allclose(both[0, :, 1], both[1, :, 0].T)


def test_one_row_per_unit_makes_clusters_rows():
    s = draw(np.random.default_rng(5), units=60, rows=1)
    rows, units = (made(s, noise=noise).band.shape.cov for noise in ("rows", "units"))
    assert_allclose(units, rows * 60 / 59, rtol=1e-10)


def test_units_need_not_stand_together():
    s = draw(np.random.default_rng(6), intercept=1.0)
    order = np.random.default_rng(7).permutation(len(s.x))
    shuffled = Sample(s.x[order], s.y[order], s.unit[order], s.x_names, s.y_names)
    options = {"noise": "units", "critical": "scheffe"}
    one, other = made(s, **options).band, made(shuffled, **options).band
    assert_allclose(other.at(s.x).half, one.at(s.x).half, rtol=1e-9)


def test_residuals_and_smooth_are_those_of_the_projection():
    s = draw(np.random.default_rng(8), q=2)
    fit = made(s)
    b = with_ones(s.x)
    hat = b @ np.linalg.pinv(b)
    columns = np.random.default_rng(9).standard_normal((len(b), 3))
    assert fit.kept.all()
    assert_allclose(fit.residual, s.y - hat @ s.y, atol=1e-10)
    assert_allclose(fit.smooth(columns, 1), hat @ columns, atol=1e-10)


def test_fifty_units_are_clustered_and_few_independent_ones_are_not():
    assert made(draw(np.random.default_rng(10), units=50, rows=4)).band.noise == "units"
    assert made(draw(np.random.default_rng(11), units=12)).band.noise == "rows"
    assert made(draw(np.random.default_rng(12), units=12, intercept=2.0)).band.noise == "units"


# critical values


@pytest.mark.parametrize("nu", [3.0, 12.0, 150.0])
def test_one_context_gets_the_t_quantile(nu):
    cov = np.array([[2.0, 0.3], [0.3, 1.0]])
    c, mapped = critical(*process(cov, [[1.0, 2.0]]), nu=nu)
    assert_same_level(1 - 2 * stats.norm.sf(c[0]), 0.95, 4000)
    assert_same_level(1 - 2 * stats.t.sf(mapped[0], nu), 0.95, 4000)


def test_one_regressor_makes_every_context_the_same_one():
    points = np.linspace(-5, 7, 40)[:, None]
    c, _ = critical(*process(np.array([[3.0]]), points))
    assert_same_level(1 - 2 * stats.norm.sf(c[0]), 0.95, 4000)


def test_orthogonal_contexts_get_the_sidak_value():
    c, _ = critical(*process(np.diag([4.0, 1.0, 9.0]), np.eye(3)))
    assert_same_level((1 - 2 * stats.norm.sf(c[0])) ** 3, 0.95, 4000)


def test_contexts_in_every_direction_get_the_scheffe_value():
    angle = np.linspace(0, np.pi, 400)
    points = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    cov = np.array([[2.0, 0.9], [0.9, 0.5]])
    c, _ = critical(*process(cov, points))
    assert_same_level(stats.chi2.cdf(c[0] ** 2, 2), 0.95, 4000)


def test_the_cloud_value_is_that_of_the_held_out_contexts():
    s = draw(np.random.default_rng(13), p=4)
    band = made(s, noise="rows", draws=4000).band
    _, cov = dense(s, "rows")
    sups = suprema(cov, with_ones(s.x), 4000, np.random.default_rng(14))
    assert_same_level((sups <= band.critical[0]).mean(), 0.95, 4000, 4000)
    nu = len(s.x) - 5
    ratio = band.at(s.x).half[:, 0] / np.sqrt(
        np.einsum("ik,kl,il->i", with_ones(s.x), cov, with_ones(s.x))
    )
    mapped = stats.t.isf(stats.norm.sf(band.critical[0]), nu)
    assert_allclose(ratio[band.at(s.x).inside], mapped, rtol=1e-8)


def test_the_t_map_counts_units_when_noise_is_clustered():
    s = draw(np.random.default_rng(15), units=12, rows=30, p=6)
    band = made(s, noise="units").band
    assert_allclose(band.shape.critical, stats.t.isf(stats.norm.sf(band.critical), 11), rtol=1e-9)


@pytest.mark.parametrize("nu", [2.5, 10.0, 400.0])
@pytest.mark.parametrize("alpha", [0.01, 0.1])
def test_scheffe_has_its_closed_forms(nu, alpha):
    assert scheffe(1 - alpha, 1, 1, nu) == pytest.approx(stats.t.isf(alpha / 2, nu))
    two = np.sqrt(nu * (alpha ** (-2 / nu) - 1))
    assert scheffe(1 - alpha, 2, 1, nu) == pytest.approx(two)
    assert scheffe(1 - alpha, 2, 5, nu) == pytest.approx(
        np.sqrt(nu * ((alpha / 5) ** (-2 / nu) - 1))
    )
    assert scheffe(1 - alpha, 7, 1, 1e9) == pytest.approx(
        np.sqrt(stats.chi2.isf(alpha, 7)), rel=1e-6
    )


def test_the_cloud_is_a_third_narrower_than_scheffe_with_21_regressors():
    s = draw(np.random.default_rng(16), units=30, rows=20, p=20)
    shape = made(s, noise="rows").band.shape
    assert shape.critical[0] < 0.75 * shape.beyond[0]
    assert shape.beyond[0] == pytest.approx(np.sqrt(21 * stats.f.isf(0.05, 21, 600 - 21)))


def test_the_cloud_value_never_exceeds_scheffe():
    s = draw(np.random.default_rng(17), units=12, rows=40, p=1)
    shape = made(s, noise="rows", level=0.5).band.shape
    assert (shape.critical <= shape.beyond).all()


def test_a_cloud_of_many_rows_is_thinned():
    s = draw(np.random.default_rng(18), units=30, rows=50, p=1)
    assert len(s.x) > CLOUD
    assert f"{CLOUD} contexts" in made(s, draws=200).band.made[0]


def test_far_contexts_get_scheffe_and_are_not_inside():
    s = draw(np.random.default_rng(19), p=4)
    cloud, wide = (
        made(s, noise="rows").band,
        linear(s, SCHEFFE, 0.95, np.random.default_rng(0)).band,
    )
    far, near = np.full((1, 4), 50.0), s.x.mean(0)[None]
    assert not cloud.at(far).inside.any()
    assert cloud.at(near).inside.all()
    assert_allclose(cloud.at(far).half, wide.at(far).half, rtol=1e-9)
    assert cloud.at(near).half[0, 0] < 0.99 * wide.at(near).half[0, 0]


def test_the_domain_is_the_stated_share_of_contexts():
    s = draw(np.random.default_rng(20))
    leverage = np.diag(with_ones(s.x) @ np.linalg.pinv(with_ones(s.x)))
    for share in (0.5, 0.9, 1.0):
        inside = made(s, domain=share).band.at(s.x).inside
        assert inside.sum() == int(share * (len(s.x) - 1)) + 1
        assert leverage[inside].max() < leverage[~inside].min(initial=np.inf)


# several coordinates


def test_two_identical_coordinates_cost_nothing():
    s = draw(np.random.default_rng(21))
    twin = sample(s.x, np.column_stack([s.y, 3 * s.y + 1]), s.unit)
    band = made(twin, noise="rows").band
    _, cov = dense(s, "rows")
    sups = suprema(cov, with_ones(s.x), 4000, np.random.default_rng(22))
    assert band.critical[0] == band.critical[1]
    assert_same_level((sups <= band.critical[0]).mean(), 0.95, 4000, 4000)
    found = band.at(s.x)
    assert_allclose(found.half[:, 1], 3 * found.half[:, 0], rtol=1e-8)


def test_joint_needs_less_than_bonferroni_for_correlated_coordinates():
    s = draw(np.random.default_rng(23))
    rng = np.random.default_rng(24)
    y = s.y + 0.2 * rng.standard_normal((len(s.x), 4))
    joint, each = (
        made(sample(s.x, y, s.unit), noise="rows", coordinates=how).band.critical
        for how in ("joint", "bonferroni")
    )
    assert (joint < each).all()


def test_bonferroni_gives_each_coordinate_its_share():
    s = draw(np.random.default_rng(25), q=2)
    band = made(s, noise="rows", coordinates="bonferroni", level=0.9).band
    for j in range(2):
        _, cov = dense(sample(s.x, s.y[:, j], s.unit), "rows")
        sups = suprema(cov, with_ones(s.x), 4000, np.random.default_rng(26 + j))
        assert_same_level((sups <= band.critical[j]).mean(), 0.95, 4000, 4000)


def test_independent_coordinates_need_the_joint_supremum():
    cov = np.eye(4)
    c, _ = critical(*process(cov, np.eye(2), q=2))
    assert_same_level((1 - 2 * stats.norm.sf(c[0])) ** 4, 0.95, 4000)


# invariance


@PROPERTY
@given(SEED, st.floats(-1e3, 1e3), st.floats(1e-3, 1e3), st.floats(1e-3, 1e3))
def test_units_of_measurement_do_not_matter(seed, shift, scale, y_scale):
    s = draw(np.random.default_rng(seed), units=10, rows=5, p=2)
    moved = sample(shift + scale * s.x, y_scale * s.y - shift, s.unit)
    one = linear(s, SCHEFFE, 0.9, np.random.default_rng(0)).band.at(s.x)
    other = linear(moved, SCHEFFE, 0.9, np.random.default_rng(0)).band.at(moved.x)
    size = y_scale * np.abs(s.y).max() + abs(shift)
    assert_allclose(other.centre, y_scale * one.centre - shift, atol=1e-7 * size)
    assert_allclose(other.half, y_scale * one.half, rtol=1e-6)


@PROPERTY
@given(SEED)
def test_any_invertible_mix_of_the_inputs_gives_the_same_band(seed):
    rng = np.random.default_rng(seed)
    s = draw(rng, units=10, rows=5)
    mix = np.linalg.qr(rng.standard_normal((3, 3)))[0] @ np.diag([0.1, 1.0, 10.0])
    mixed = sample(s.x @ mix, s.y, s.unit)
    one = linear(s, SCHEFFE, 0.9, rng).band.at(s.x)
    other = linear(mixed, SCHEFFE, 0.9, rng).band.at(mixed.x)
    assert_allclose(other.centre, one.centre, rtol=1e-8, atol=1e-8)
    assert_allclose(other.half, one.half, rtol=1e-7)
    assert (other.inside != one.inside).sum() <= 1


@PROPERTY
@given(SEED, st.sampled_from(["rows", "units"]))
def test_the_order_of_the_units_does_not_matter(seed, noise):
    rng = np.random.default_rng(seed)
    s = draw(rng, units=12, rows=5, p=1)
    order = np.concatenate([np.flatnonzero(s.unit == c) for c in rng.permutation(12)])
    shuffled = Sample(s.x[order], s.y[order], s.unit[order], s.x_names, s.y_names)
    options = {"noise": noise, "critical": "scheffe"}
    one, other = made(s, **options).band.at(s.x), made(shuffled, **options).band.at(s.x)
    assert_allclose(other.centre, one.centre, rtol=1e-9)
    assert_allclose(other.half, one.half, rtol=1e-9)


def test_the_same_generator_gives_the_same_band():
    s = draw(np.random.default_rng(27))
    assert_array_equal(made(s, seed=5).band.at(s.x).half, made(s, seed=5).band.at(s.x).half)


# coverage


def coverage(reps, seed, noise_of, factor=None, units=20, rows=6, p=2, **options):
    """How often the band holds at all held-out contexts; ``factor`` replaces its own c."""
    hits = 0
    for r in range(reps):
        rng = np.random.default_rng([seed, r])
        unit = np.repeat(np.arange(units), rows)
        x = rng.standard_normal((len(unit), p))
        s = sample(x, truth(x) + noise_of(x, unit, rng), unit)
        shape = linear(s, BandMethod("linear", draws=500, **options), 0.95, rng).band.shape
        found = shape.at(x)
        half = found.half[:, 0]
        if factor is not None:
            half = half / np.where(found.inside, shape.critical, shape.beyond) * factor
        hits += (np.abs(found.centre[:, 0] - truth(x)) <= half).all()
    return hits


def plain_noise(x, unit, rng):
    return rng.standard_normal(len(x))


def growing_noise(x, unit, rng):
    return (0.2 + np.abs(x[:, 0])) * rng.standard_normal(len(x))


def unit_noise(x, unit, rng):
    return rng.standard_normal(len(x)) + rng.standard_normal(unit.max() + 1)[unit]


@pytest.mark.parametrize("noise_of", [plain_noise, growing_noise])
def test_the_band_covers_at_all_contexts_at_once(noise_of):
    assert coverage(150, 1, noise_of, noise="rows") >= binomial_floor(150, 0.95)


def test_clustered_bands_cover_under_random_intercepts_and_row_bands_do_not():
    floor = binomial_floor(100, 0.95)
    assert coverage(100, 2, unit_noise, noise="units", units=30) >= floor
    assert coverage(100, 2, unit_noise, noise="rows", units=30) < floor


def test_a_pointwise_critical_value_almost_never_covers_with_21_regressors():
    hits = coverage(60, 3, plain_noise, factor=1.97, units=25, rows=12, p=20, noise="rows")
    assert hits < binomial_floor(60, 0.5)


@pytest.mark.parametrize(("noise", "p"), [("rows", 5), ("units", 20)])
def test_scheffe_holds_for_every_x_at_once(noise, p):
    hits = 0
    for r in range(80):
        rng = np.random.default_rng([4, r])
        x, unit = rng.standard_normal((500, p)), np.repeat(np.arange(50), 10)
        s = sample(
            x, unit_noise(x, unit, rng) if noise == "units" else plain_noise(x, unit, rng), unit
        )
        shape = made(s, noise=noise, critical="scheffe").band.shape
        wald = shape.coef[:, 0] @ np.linalg.solve(shape.cov[0], shape.coef[:, 0])
        hits += wald <= shape.beyond[0] ** 2
    assert hits >= binomial_floor(80, 0.95)


def test_a_context_that_one_row_alone_decides_is_refused_or_covered():
    hits = 0
    for r in range(40):
        rng = np.random.default_rng([5, r])
        s = draw(rng, p=1)
        lone = sample(np.column_stack([s.x, np.arange(len(s.x)) == 37]), s.y, s.unit)
        try:
            found = made(lone, noise="rows", draws=100).band.at(lone.x[37:38])
        except DataError:
            hits += 1
        else:
            hits += abs(found.centre[0, 0] - truth(s.x[37:38])[0]) <= found.half[0, 0]
    assert hits >= binomial_floor(40, 0.95)


# evaluation


def test_a_band_is_evaluated_row_by_row():
    s = draw(np.random.default_rng(28), q=2)
    band = made(s).band
    whole = band.at(s.x)
    for field, rows in zip(whole, band.at(s.x[5:8]), strict=True):
        assert_allclose(field[5:8], rows, rtol=1e-12)
    assert whole.centre.shape == whole.half.shape == (len(s.x), 2)
    assert whole.inside.shape == (len(s.x),)


def test_no_context_gives_no_values():
    found = made(draw(np.random.default_rng(29), q=2)).band.at(np.zeros((0, 3)))
    assert found.centre.shape == (0, 2)
    assert found.inside.shape == (0,)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_context_that_is_not_there_gives_nan_and_leaves_the_others_alone(bad):
    s = draw(np.random.default_rng(30))
    band = made(s).band
    x = s.x[:4].copy()
    x[1, 2] = bad
    found, clean = band.at(x), band.at(s.x[:4])
    assert np.isnan(found.centre[1]).all()
    assert np.isnan(found.half[1]).all()
    assert not found.inside[1]
    rest = [0, 2, 3]
    for mine, theirs in zip(found, clean, strict=True):
        assert_allclose(mine[rest], theirs[rest], rtol=1e-12)
    assert np.isnan(band.at(np.full((2, 3), bad)).half).all()


@pytest.mark.parametrize(
    "x", [1.0, np.zeros(3), np.zeros((4, 2)), np.zeros((4, 4)), np.zeros((1, 4, 3))]
)
def test_contexts_of_another_shape_are_refused(x):
    band = made(draw(np.random.default_rng(31))).band
    with pytest.raises(DataError, match=r"x must be \(n, 3\) with columns .*lag 2.* shape is"):
        band.at(x)


def test_one_input_may_come_flat():
    s = draw(np.random.default_rng(32), p=1)
    band = made(s).band
    for flat, column in zip(band.at(s.x[:, 0]), band.at(s.x), strict=True):
        assert_array_equal(flat, column)
    assert band.at([0, 1]).centre.shape == (2, 1)


def test_a_band_says_what_it_is():
    s = draw(np.random.default_rng(33), units=60, rows=2)
    text = repr(made(s, level=0.9).band).replace(" %", "%")
    for words in ("linear", "90%", "120 rows of 60 units", "clustered by unit", "w0"):
        assert words in text
    assert "rows independent given x" in repr(made(s, noise="rows").band)


@pytest.mark.parametrize(("level", "words"), [(0.975, "97.5%"), (0.999, "99.9%")])
def test_the_printed_level_is_the_level(level, words):
    s = draw(np.random.default_rng(34), p=1)
    text = repr(made(s, level=level, critical="scheffe").band)
    assert words in text.replace(" %", "%")


# refusals


@pytest.mark.parametrize("level", [0, 1, -0.1, 1.5, np.nan, True, "0.9", None])
def test_a_level_outside_the_unit_interval_is_refused(level):
    s = draw(np.random.default_rng(35))
    with pytest.raises(SettingError, match="level must lie between 0 and 1"):
        make_band(s, BandMethod("linear"), level, np.random.default_rng(0))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize(("which", "name"), [("x", "lag 1"), ("y", "w1")])
def test_values_that_are_not_finite_are_named(which, name, bad):
    parts = {"x": np.zeros((6, 3)), "y": np.zeros((6, 2))}
    parts[which][4, 1] = bad
    with pytest.raises(DataError, match=f"{which} must be finite, but '{name}' is {bad} in row 4"):
        sample(parts["x"], parts["y"], np.arange(6))


@pytest.mark.parametrize(
    ("x", "y"),
    [((6, 2), (6, 1)), ((6, 1), (5, 1)), ((6, 1), (6, 2)), ((6,), (6, 1)), ((6, 1), (6,))],
)
def test_a_sample_of_mismatched_shapes_is_refused(x, y):
    with pytest.raises(DataError, match="Sample: x must be"):
        Sample(np.zeros(x), np.zeros(y), np.arange(6), ("lag",), ("w",))


def test_a_sample_with_a_unit_missing_is_refused():
    with pytest.raises(DataError, match="unit"):
        Sample(np.zeros((6, 1)), np.zeros((6, 1)), np.arange(5), ("lag",), ("w",))


def test_a_sample_knows_its_units_and_takes_rows_of_everything():
    s = sample(np.arange(12.0).reshape(6, 2), np.arange(6.0), [3, 3, 9, 9, 9, 4])
    part = s.take(np.array([True, False, True, False, False, True]))
    assert (s.units, part.units) == (3, 3)
    assert_array_equal(part.x[:, 0], [0, 4, 10])
    assert_array_equal(part.y[:, 0], [0, 2, 5])
    assert_array_equal(part.unit, [3, 9, 4])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"kind": "splines"}, "kind 'splines' is not known; did you mean 'spline'"),
        ({"noise": "row"}, "noise 'row' .* did you mean 'rows'"),
        ({"coordinates": "both"}, "coordinates 'both' is not known"),
        ({"critical": None}, "critical None is not known"),
        ({"domain": 0.0}, "domain must lie in"),
        ({"domain": 1.01}, "domain must lie in"),
        ({"domain": np.nan}, "domain must lie in"),
        ({"domain": "wide"}, "domain must lie in"),
        ({"grid": 9}, "grid must be a whole number >= 10"),
        ({"draws": 99}, "draws must be a whole number >= 100"),
        ({"draws": 1000.0}, "draws must be a whole number"),
    ],
)
def test_a_method_that_makes_no_sense_is_refused(options, words):
    with pytest.raises(SettingError, match=words):
        BandMethod(**options)


def test_too_few_rows_are_refused_with_the_number_that_is_enough():
    s = draw(np.random.default_rng(36), units=10, rows=3, p=4)
    with pytest.raises(DataError, match="at least 30 held-out rows for 4 inputs, 29 came"):
        made(s.take(np.arange(30) < 29))
    assert made(s).band.rows == 30


def test_a_constant_input_is_named():
    s = draw(np.random.default_rng(37))
    x = s.x.copy()
    for value in (0.0, 0.1, 1e8):
        x[:, 1] = value
        with pytest.raises(DataError, match="'lag 1' is constant"):
            made(sample(x, s.y, s.unit))


def test_the_constant_input_is_named_not_the_one_of_small_scale():
    s = draw(np.random.default_rng(38), p=2)
    x = np.column_stack([1e-6 * s.x[:, 0], 1e9 + 1e-5 * s.x[:, 1]])
    with pytest.raises(DataError, match="'lag 1' is constant"):
        made(sample(x, s.y, s.unit))


@pytest.mark.parametrize("copy", [lambda x: x[:, 0], lambda x: 2 - 3 * x[:, 1], lambda x: x.sum(1)])
def test_an_input_that_repeats_others_is_refused(copy):
    s = draw(np.random.default_rng(39), p=2)
    with pytest.raises(DataError, match="linearly dependent"):
        made(sample(np.column_stack([s.x, copy(s.x)]), s.y, s.unit))


@pytest.mark.parametrize("noise", ["auto", "rows", "units"])
def test_one_unit_is_refused(noise):
    s = draw(np.random.default_rng(40), units=1, rows=100)
    with pytest.raises(DataError, match="held-out units"):
        made(s, noise=noise)


def test_clusters_need_more_units_than_regressors():
    s = draw(np.random.default_rng(41), units=16, p=16, intercept=2.0)
    with pytest.raises(DataError, match='noise="units" needs at least 18 held-out units'):
        made(s, noise="units")
    assert made(s).band.noise == "rows"


@pytest.mark.parametrize(
    ("coordinates", "columns"), [("joint", 1), ("bonferroni", 1), ("bonferroni", 2)]
)
def test_a_coordinate_without_noise_is_refused(coordinates, columns):
    s = draw(np.random.default_rng(42))
    y = np.column_stack([np.zeros(len(s.x)), s.y])[:, :columns]
    with pytest.raises(DataError, match="has no noise"):
        made(sample(s.x, y, s.unit), coordinates=coordinates)


@pytest.mark.parametrize("how", ["tube", "bootstrap_t"])
def test_critical_values_for_curves_are_refused(how):
    with pytest.raises(SettingError, match=how):
        made(draw(np.random.default_rng(43)), critical=how)
