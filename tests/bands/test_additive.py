"""Bands of sums of curves."""

from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats
from scipy.optimize import brentq

from pulse_pyro._core.errors import DataError, SettingError
from pulse_pyro.bands.additive import additive
from pulse_pyro.bands.band import BandMethod
from tests.bands.helpers import a_sum, left_out, lines, sample, world
from tests.helpers import binomial_floor, z_bound

PROPERTY = settings(max_examples=15)


def lattice(low, high, side):
    axes = np.meshgrid(*(np.linspace(a, b, side) for a, b in zip(low, high, strict=True)))
    return np.stack([a.ravel() for a in axes], axis=1)


def summed(s, seed=0, level=0.95, draws=500, **options):
    method = BandMethod("additive", draws=draws, **options)
    return additive(s, method, level, np.random.default_rng(seed))


def test_the_additive_band_covers_a_sum_over_the_whole_box():
    hits = 0
    for r in range(30):
        s = world(a_sum, [1, r])
        fit = summed(s, noise="rows")
        kept = s.x[fit.kept]
        points = lattice(kept.min(0), kept.max(0), 25)
        found = fit.band.at(points)
        assert found.inside.all()
        hits += (np.abs(found.centre[:, 0] - a_sum(points)) <= found.half[:, 0]).all()
    assert hits >= binomial_floor(30, 0.95)


@pytest.mark.parametrize("p", [2, 3])
def test_straight_lines_without_noise_are_found_exactly(p):
    s = world(lines, 2, p=p, rows=30, sd=0.0)
    fit = summed(s)
    points = lattice(s.x[fit.kept].min(0), s.x[fit.kept].max(0), 7)
    assert_allclose(fit.band.at(points).centre[:, 0], lines(points), atol=1e-6)
    assert fit.band.at(points).half.max() < 1e-6


@pytest.mark.parametrize("p", [2, 3])
def test_straight_lines_pass_through_the_smoother(p):
    s = world(a_sum, 3, p=p, rows=30)
    fit = summed(s)
    x = s.x[fit.kept]
    columns = np.column_stack([np.ones(len(x)), x])
    assert_allclose(fit.smooth(columns, 0), columns, atol=1e-5)
    assert_allclose(fit.smooth(s.y[fit.kept], 0), s.y[fit.kept] - fit.residual, atol=1e-9)


def test_the_smoother_is_a_penalised_fit_and_one_more_of_its_residuals():
    s = world(a_sum, 4, rows=8)
    fit = summed(s)
    b = fit.band.shape.basis.design(s.x[fit.kept])
    d = np.diff(np.eye((b.shape[1] - 1) // 2 + 1), 2, axis=0)[:, 1:]
    rough = np.zeros((2 * len(d), b.shape[1]))
    rough[: len(d), 1 : 1 + d.shape[1]], rough[len(d) :, 1 + d.shape[1] :] = d, d

    def twiced(log_penalty):
        once = b @ np.linalg.pinv(b.T @ b + np.exp(log_penalty) * rough.T @ rough) @ b.T
        return 2 * once - once @ once

    found = fit.smooth(np.eye(len(b)), 0)
    log_penalty = brentq(lambda v: np.trace(twiced(v)) - np.trace(found), -12.0, 16.0)
    assert_allclose(found, twiced(log_penalty), atol=1e-5)


@pytest.mark.parametrize("noise", ["rows", "units"])
def test_half_widths_are_the_sandwich_of_the_smoothers_weights(noise):
    s = world(lambda x: x[:, 0], 4, units=30, rows=6)
    fit = summed(s, noise=noise)
    n = int(fit.kept.sum())
    hat = fit.smooth(np.eye(n), 0)
    psi = hat * fit.residual[:, 0] / (1 - np.diag(hat))
    freedom = n - np.trace(hat)
    if noise == "units":
        unit = s.unit[fit.kept]
        psi = hat * left_out(hat, fit.residual[:, 0], unit)
        psi = np.stack([psi[:, unit == c].sum(1) for c in range(30)], axis=1) * np.sqrt(29 / 30)
    c = fit.band.shape.critical[0]
    if noise == "rows":
        assert c == pytest.approx(stats.t.isf(stats.norm.sf(fit.band.critical[0]), freedom))
    else:  # local degrees of freedom, fewer than units
        most, least = (stats.t.isf(stats.norm.sf(fit.band.critical[0]), nu) for nu in (4, 29))
        assert least < c < most
    found = fit.band.at(s.x[fit.kept]).half[:, 0]
    assert_allclose(found, c * np.sqrt((psi**2).sum(1)), rtol=1e-6)


@pytest.mark.parametrize(("p", "side"), [(2, 80), (3, 25)])
def test_the_critical_value_is_that_of_the_whole_box(p, side):
    s = world(a_sum, 7, p=p, rows=30)
    fit = summed(s, noise="rows", draws=4000)
    shape = fit.band.shape
    points = shape.basis.design(lattice(s.x[fit.kept].min(0), s.x[fit.kept].max(0), side))
    z = np.random.default_rng(0).multivariate_normal(
        np.zeros(points.shape[1]), shape.cov[0], 1000, method="eigh"
    )
    standard = points / np.sqrt(((points @ shape.cov[0]) * points).sum(1))[:, None]
    sups = np.concatenate([np.abs(standard @ part.T).max(0) for part in np.split(z, 10)])
    error = np.sqrt(0.95 * 0.05 * (1 / 1000 + 1 / 4000))
    assert (sups <= fit.band.critical[0]).mean() >= 0.95 - z_bound() * error


def test_outside_the_box_the_band_grows_and_still_holds_a_line():
    s = world(lines, 6, sd=0.05)
    fit = summed(s)
    low, high = np.quantile(s.x, [0.01, 0.99], axis=0)
    edge, far, further = (np.array([[high[0], low[1]]]) + np.array([[d, -d]]) for d in (0, 1, 2))
    at_edge, at_far, at_further = (fit.band.at(x) for x in (edge, far, further))
    assert at_edge.inside.all()
    assert not at_far.inside.any()
    assert_allclose(at_far.centre, at_edge.centre, rtol=1e-9)
    grown = at_far.half - at_edge.half
    assert_allclose(at_further.half - at_edge.half, 2 * grown, rtol=1e-9)
    assert (grown > 0).all()
    for x in (far, further, edge + np.array([[0.5, 0.0]]), edge + np.array([[0.0, 5.0]])):
        found = fit.band.at(x)
        assert abs(found.centre[0, 0] - lines(x)[0]) <= found.half[0, 0]


def test_outside_the_box_an_input_grows_the_band_by_its_own_slope():
    s = world(lines, 6, sd=0.05)
    small = sample(s.x * [1e-3, 1.0], s.y, s.unit)
    edge = np.quantile(s.x, [0.99], axis=0)
    far = edge + np.array([[0.0, 1.0]])
    one, other = summed(s).band, summed(small).band
    grown = one.at(far).half - one.at(edge).half
    scaled = other.at(far * [1e-3, 1.0]).half - other.at(edge * [1e-3, 1.0]).half
    assert scaled[0, 0] == pytest.approx(grown[0, 0], rel=0.5)


def test_rows_outside_the_box_take_no_part():
    s = world(a_sum, 7)
    x = s.x.copy()
    x[3, 0], x[8, 1] = 40.0, -40.0
    fit = summed(sample(x, s.y, s.unit))
    low, high = np.quantile(x, [0.01, 0.99], axis=0)
    assert_array_equal(fit.kept, ((x >= low) & (x <= high)).all(1))
    assert not fit.kept[[3, 8]].any()
    assert fit.band.rows == fit.kept.sum() == len(fit.residual)


@PROPERTY
@given(st.floats(-50, 50), st.floats(0.01, 100), st.floats(0.01, 100))
def test_units_of_measurement_do_not_matter_to_a_sum(shift, scale, y_scale):
    s = world(a_sum, 8, rows=10)
    moved = sample(s.x * [scale, 1.0] + [shift, -shift], y_scale * s.y + shift, s.unit)
    fit, again = (summed(t, noise="rows", draws=100) for t in (s, moved))
    kept = fit.kept & again.kept
    assert kept.sum() >= fit.kept.sum() - 4
    one, other = fit.band.at(s.x[kept]), again.band.at(moved.x[kept])
    simulated = again.band.shape.critical / fit.band.shape.critical
    size = abs(shift) + y_scale
    assert_allclose(other.centre, y_scale * one.centre + shift, atol=1e-4 * size)
    assert_allclose(other.half, y_scale * simulated * one.half, rtol=1e-3)


@pytest.mark.parametrize("p", [1, 4])
def test_a_sum_of_one_or_four_inputs_is_refused(p):
    s = world(lines, 9, p=p)
    with pytest.raises(DataError, match=f"for 2 or 3 inputs, but got {p}"):
        summed(s)


def test_a_sum_from_too_few_rows_is_refused():
    with pytest.raises(
        DataError, match="additive band of 2 inputs needs at least 60 held-out rows"
    ):
        summed(world(lines, 10, units=10, rows=5))


def test_an_input_that_hardly_varies_is_named():
    s = world(lines, 11)
    x = s.x.copy()
    x[:, 1] = np.where(np.arange(len(x)) == 5, 3.0, 2.0)
    with pytest.raises(DataError, match="'lag 1' hardly varies"):
        summed(sample(x, s.y, s.unit))


def test_a_copied_input_is_refused_or_the_band_admits_what_it_cannot_know():
    s = world(lines, 12, p=1, sd=0.1)
    twin = sample(np.column_stack([s.x, s.x]), s.y, s.unit)
    with suppress(DataError):
        found = summed(twin).band.at(np.array([[0.8, -0.8]]))
        for possible in (lines(np.array([[0.8]])), lines(np.array([[-0.8]]))):
            assert abs(found.centre[0, 0] - possible[0]) <= found.half[0, 0]


def test_a_sum_without_noise_or_signal_is_refused():
    s = world(lines, 13)
    with pytest.raises(DataError, match="noise"):
        summed(sample(s.x, np.zeros(len(s.x)), s.unit))


@pytest.mark.parametrize("how", ["tube", "scheffe", "bootstrap_t"])
def test_critical_values_a_sum_does_not_have_are_refused(how):
    with pytest.raises(SettingError, match=how):
        summed(world(a_sum, 14), critical=how)
