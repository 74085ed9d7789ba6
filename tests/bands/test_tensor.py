"""Bands of two and three inputs that interact."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats
from scipy.interpolate import BSpline

from pulse_pyro._core.errors import DataError, SettingError
from pulse_pyro.bands.band import BandMethod
from pulse_pyro.bands.basis import fit_basis
from pulse_pyro.bands.spline import uniform_knots
from pulse_pyro.bands.tensor import (
    SEGMENTS,
    Sieve,
    fewest_rows,
    find_hinges,
    ridge_test,
    spline_product,
    tensor,
)
from tests.bands.helpers import left_out, lines, sample, world
from tests.helpers import binomial_floor


def made(s, seed=0, level=0.95, draws=400, **options):
    method = BandMethod("tensor", draws=draws, **options)
    return tensor(s, method, level, np.random.default_rng(seed))


def wave(x):
    return 0.6 * np.cos(3 * x[:, 0]) * np.cos(3 * x[:, 1])


def ridge(x):
    return np.abs(x[:, 0] - x[:, 1])


def product(x):
    return x[:, 0] * x[:, 1]


def square(side, half=1.0):
    axis = np.linspace(-half, half, side)
    return np.stack([a.ravel() for a in np.meshgrid(axis, axis)], axis=1)


def test_products_of_splines_are_the_products():
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (50, 3))
    x[0], x[1] = -1.0, 1.0
    knots = np.stack([uniform_knots(-1.0, 1.0, 5)] * 3)
    one, two, three = (BSpline.design_matrix(c, knots[0], 3).toarray() for c in x.T)
    expected = np.einsum("na,nb,nc->nabc", one, two, three).reshape(50, -1)
    assert_allclose(spline_product(x, knots).toarray(), expected, atol=1e-14)


@pytest.mark.parametrize("truth", [wave, ridge, product])
@pytest.mark.parametrize("intercept", [0.0, 0.2])
def test_the_band_covers_waves_ridges_and_products(truth, intercept):
    points, hits = square(41), 0
    for r in range(6):
        s = world(truth, [1, r], units=60, rows=25)
        shared = intercept * np.random.default_rng([2, r]).standard_normal((60, 1))
        s = sample(s.x, s.y + shared[s.unit], s.unit)
        found = made(s, draws=200).band.at(points)
        covers = np.abs(found.centre[:, 0] - truth(points)) <= found.half[:, 0]
        assert found.inside.mean() > 0.8
        hits += covers[found.inside].all()
    assert hits >= binomial_floor(6, 0.95)


@pytest.mark.parametrize("noise", ["rows", "units"])
def test_half_widths_are_the_sandwich_times_the_inflated_value(noise):
    s = world(product, 3, units=30, rows=20)
    fit = made(s, noise=noise, critical="simulate")
    shape = fit.band.shape
    n = int(fit.kept.sum())
    hat = fit.smooth(np.eye(n), 0)
    assert_allclose(hat @ hat, hat, atol=1e-6)
    psi = hat * fit.residual[:, 0] / (1 - np.diag(hat))
    if noise == "units":
        unit = s.unit[fit.kept]
        psi = hat * left_out(hat, fit.residual[:, 0], unit)
        psi = np.stack([psi[:, unit == c].sum(1) for c in range(30)], axis=1) * np.sqrt(29 / 30)
    x = s.x[fit.kept]
    _, half, inside = fit.band.at(x)
    se = np.sqrt((psi**2).sum(1))[inside]
    c, share, bias = (float(v[0]) for v in (shape.smooth.critical, shape.share, shape.bias))
    assert_allclose(half[inside, 0], np.maximum(c * se, share * c * se + bias), rtol=1e-6)


def test_the_critical_value_is_z_and_the_loglog_of_theta():
    s = world(product, 4, units=40, rows=25)
    fit = made(s, noise="rows", draws=2000)
    text = fit.band.made[0]
    z, rest = text.split("critical value ")[1].split(" + ")
    loglog, theta = (float(v) for v in rest.split(",")[0].split(" x "))
    size = len(fit.band.shape.smooth.coef)
    assert loglog == pytest.approx(np.log(np.log(size)), abs=0.006)
    assert fit.band.critical[0] == pytest.approx(float(z) + loglog * theta, abs=0.05)
    # one point needs 1.96, Scheffe's value bounds any number of them over the dimensions up to 49
    assert stats.norm.isf(0.025) < float(z) < np.sqrt(stats.chi2.isf(0.01, 16 + 25 + 49))
    assert 1.0 < theta < np.sqrt(stats.chi2.isf(0.01, 16 + 25 + 49))


def test_the_dimension_grows_with_what_there_is_to_follow():
    sizes = {}
    for truth in (lines, wave, ridge):
        s = world(truth, 5, units=60, rows=50, sd=0.1)
        sizes[truth] = len(made(s, draws=200).band.shape.smooth.coef)
    assert sizes[lines] <= 25 < 49 <= sizes[ridge]
    assert sizes[lines] < sizes[wave] <= sizes[ridge]


def test_a_ridge_is_seen_widens_the_band_and_a_cubic_is_not():
    seen, unseen = 0, []
    for r in range(8):
        s = world(ridge, [6, r], units=60, rows=50)
        fit = made(s, draws=200)
        seen += fit.roughness < 0.2
        assert (fit.roughness < 0.2) == ("a ridge shows" in fit.band.made[0])
        assert (fit.roughness < 0.2) == (fit.band.shape.bias[0] > 0)
        flat = made(world(product, [7, r], units=60, rows=20), draws=200)
        unseen.append(flat.roughness)
    assert seen >= 5
    assert np.mean(unseen) > 0.2


def test_hinges_of_three_inputs_have_thirteen_different_directions():
    x = np.random.default_rng(8).uniform(-1, 1, (100, 3))
    hinges = find_hinges(x, np.array([[-1.0] * 3, [1.0] * 3]))
    lines_of = np.unique(hinges.direction.T.round(9), axis=0)
    assert len(lines_of) == 13
    assert_allclose((lines_of**2).sum(1), 1.0)
    assert (np.abs(lines_of @ lines_of.T) - np.eye(13)).max() < 1 - 1e-9


def test_empty_corners_are_outside_and_get_the_value_of_the_nearest_context_widened():
    rng = np.random.default_rng(9)
    a = rng.uniform(-1, 1, 3000)
    x = np.stack([a, a + 0.15 * rng.standard_normal(3000)], axis=1)
    s = sample(x, product(x) + 0.1 * rng.standard_normal(3000), np.arange(3000) // 30)
    band = made(s).band
    corner = band.at(np.array([[0.9, -0.9], [-0.9, 0.9]]))
    assert not corner.inside.any()
    along = np.linspace(-0.8, 0.8, 30)
    middle = band.at(np.stack([along, along], axis=1))
    assert middle.inside.all()
    assert np.abs(middle.centre[:, 0] - along**2).max() < 0.2
    assert (corner.half > 2 * np.median(middle.half)).all()
    assert np.abs(corner.centre).max() < 2.0
    assert (np.abs(corner.centre[:, 0] + 0.81) <= corner.half[:, 0]).all()


def test_outside_the_box_the_band_grows_with_the_distance():
    s = world(lines, 10, units=40, rows=25, sd=0.1)
    band = made(s).band
    near, far, further = (band.at(np.array([[d, 0.0]])) for d in (0.9, 2.0, 3.0))
    assert near.inside.all()
    assert not far.inside.any()
    assert near.half[0, 0] < far.half[0, 0] < further.half[0, 0]
    for x, found in ((2.0, far), (3.0, further)):
        assert abs(found.centre[0, 0] - lines(np.array([[x, 0.0]]))[0]) <= found.half[0, 0]


def test_three_inputs_and_two_coordinates_get_a_band():
    s = world(lambda x: x[:, 0] * x[:, 1] * x[:, 2], 11, units=80, rows=30, p=3)
    two = sample(s.x, np.column_stack([s.y, -2.0 * s.y + s.x[:, :1]]), s.unit)
    fit = made(two, draws=200)
    x = two.x[fit.kept]
    truth = x.prod(1)
    centre, half, inside = fit.band.at(x)
    assert inside.mean() > 0.8
    for j, expected in enumerate((truth, -2.0 * truth + x[:, 0])):
        assert (np.abs(centre[:, j] - expected) <= half[:, j])[inside].all()


def test_scales_of_inputs_and_outcome_do_not_matter():
    s = world(wave, 12, units=40, rows=20)
    moved = sample(s.x * [1e3, 1e-3] + [5.0, -5.0], 7.0 * s.y + 3.0, s.unit)
    one, other = made(s, draws=200).band.at(s.x), made(moved, draws=200).band.at(moved.x)
    assert (one.inside == other.inside).mean() > 0.98
    both = one.inside & other.inside
    assert_allclose(other.centre[both], 7.0 * one.centre[both] + 3.0, rtol=1e-4, atol=1e-3)
    assert_allclose(other.half[both], 7.0 * one.half[both], rtol=0.05)


def test_ridges_are_not_seen_in_noise_more_often_than_the_test_says():
    rejected = 0
    for r in range(40):
        s = world(lambda x: 0 * x[:, 0], [13, r], units=40, rows=13)
        knots = np.stack([uniform_knots(-1.0, 1.0, 4)] * 2)
        b = spline_product(s.x, knots)
        inner = np.linalg.inv((b.T @ b).toarray())
        fit = fit_basis(b, s.y, s.unit, (inner,), BandMethod("tensor"), 0)
        step = Sieve(knots, fit, b, np.ones(len(s.x), bool))
        box = np.array([[-1.0, -1.0], [1.0, 1.0]])
        rejected += ridge_test(step, s, box, np.random.default_rng(r)).p < 0.2
    assert rejected <= stats.binom.isf(1e-5, 40, 0.2)


@pytest.mark.parametrize("p", [2, 3])
def test_too_few_rows_are_refused_with_the_number_that_is_needed(p):
    needed = fewest_rows(p)
    assert needed == 30 * (SEGMENTS[p][0] + 3) ** p
    with pytest.raises(DataError, match=f"at least {needed} held-out rows"):
        made(world(lines, 14, p=p, units=10, rows=needed // 10 - 1))


def test_bad_inputs_are_refused():
    with pytest.raises(DataError, match="2 or 3 inputs, but got 4"):
        made(world(lines, 15, p=4))
    s = world(lines, 16, units=40, rows=20)
    with pytest.raises(SettingError, match="scheffe"):
        made(s, critical="scheffe")
    with pytest.raises(DataError, match="'lag 1' hardly varies"):
        made(sample(np.column_stack([s.x[:, 0], np.full(800, 2.0)]), s.y, s.unit))
    with pytest.raises(DataError, match="follows from the other inputs"):
        made(sample(np.column_stack([s.x[:, 0], 2 * s.x[:, 0]]), s.y, s.unit))
    with pytest.raises(DataError, match="at least 10 held-out units here, but got 8"):
        made(sample(s.x, s.y, s.unit // 5), noise="units")
    with pytest.raises(DataError, match="no noise"):
        made(sample(s.x, np.zeros(800), s.unit))
