"""Critical values of the linear band, for one and several coordinates."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats

from pulse_pyro.bands.band import BandMethod
from pulse_pyro.bands.basis import BasisFit, basis_critical
from pulse_pyro.bands.linear import CLOUD, linear, scheffe
from tests.bands.helpers import SCHEFFE, dense, draw, made, sample, with_ones
from tests.helpers import z_bound


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


def test_the_t_map_counts_units_less_coefficients_when_noise_is_clustered():
    s = draw(np.random.default_rng(15), units=12, rows=30, p=6)
    band = made(s, noise="units").band
    assert_allclose(band.shape.critical, stats.t.isf(stats.norm.sf(band.critical), 5), rtol=1e-9)


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
