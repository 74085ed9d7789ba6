"""The linear band: centre, variance, invariance, evaluation."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse, stats

from pulse_pyro._core.errors import DataError
from pulse_pyro.bands.band import BandMethod, Sample
from pulse_pyro.bands.basis import fit_basis, without_units
from pulse_pyro.bands.linear import linear
from tests.bands.helpers import SCHEFFE, SEED, dense, draw, made, sample, with_ones

PROPERTY = settings(max_examples=40)


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
    # mean 1, unit sums of residuals 18 and nine times -2, a unit's leverage 1/10
    assert fit.cov[0, 0, 0, 0] == pytest.approx(9 / 10 * (18**2 + 9 * 4) / 20**2 / 0.9**2)


def test_covariance_between_coordinates_is_the_sandwich_of_both():
    s = draw(np.random.default_rng(4), q=2)
    b, inner = with_ones(s.x), np.linalg.inv(with_ones(s.x).T @ with_ones(s.x))
    both = fit_basis(b, s.y, s.unit, (inner, inner), BandMethod(noise="units"), 4).cov
    total = fit_basis(b, s.y.sum(1)[:, None], s.unit, (inner,), BandMethod(noise="units"), 4).cov
    assert_allclose(total[0, :, 0], both.sum((0, 2)), rtol=1e-9)
    assert_allclose(both[0, :, 1], both[1, :, 0].T)


@pytest.mark.parametrize(("units", "rows", "own"), [(12, 3, 3), (30, 40, 7), (200, 6, 4)])
def test_residuals_without_a_unit_are_those_of_refits(units, rows, own):
    rng = np.random.default_rng(units)
    code = rng.permutation(np.repeat(np.arange(units), rows))
    b = rng.standard_normal((len(code), 8))
    b[:, :own] = rng.standard_normal((units, own))[code]
    y, inner = rng.standard_normal(len(code)), np.linalg.inv(b.T @ b)
    e, leverage = y - b @ inner @ b.T @ y, np.einsum("ij,jk,ik->i", b, inner, b)
    refitted = np.empty(len(y))
    for c in range(units):
        there = code != c
        coef = np.linalg.lstsq(b[there], y[there], rcond=None)[0]
        refitted[~there] = y[~there] - b[~there] @ coef
    for each in (b, sparse.csr_array(b)):
        found = without_units(each, inner, e, leverage, code)
        assert_allclose(found.residual, refitted, atol=1e-8)


def test_one_row_per_unit_makes_clusters_rows():
    s = draw(np.random.default_rng(5), units=60, rows=1)
    rows, units = (made(s, noise=noise).band.shape.cov for noise in ("rows", "units"))
    assert_allclose(units, rows * 59 / 60, rtol=1e-10)


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
