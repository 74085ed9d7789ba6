"""The domain of a band, and inputs that are not seen."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import pulse_pyro as pp
from tests.calibration.helpers import CURVE, LINEAR, W_FEATURES, Guess, band_values, one_input


def test_beyond_the_domain_a_curve_is_widened_by_its_largest_slope():
    history = one_input(seed=7)
    law = Guess(pp.Lags(1))
    calibration = pp.calibrate(law, history, W_FEATURES, seed=0, band=CURVE)
    low, high = np.quantile(history.grid.s, [0.01, 0.99])
    width = high - low
    for edge, side in ((low, -1), (high, 1)):
        steps = np.array([0.01, 0.1, 0.5, 2.0, 10.0]) * width
        s = (edge + side * steps)[None, :, None]
        assert not calibration.inside_at(s).any()
        half = band_values(calibration, s)[1][0, :, 0]
        at_edge = band_values(calibration, np.array([[[edge]]]))[1][0, 0, 0]
        growth = np.diff(np.concatenate([[at_edge], half])) / np.diff(np.concatenate([[0], steps]))
        assert_allclose(growth, growth[0], rtol=1e-8)
        assert growth[0] > 0
        error = calibration.error_at(s)[0, :, 0, 0]
        assert (np.diff(error) > 0).all()
    assert calibration.inside_at(np.linspace(low, high, 52)[1:-1, None, None]).all()


def test_two_percent_of_held_out_contexts_lie_outside_and_are_counted():
    history = one_input(units=20, rows=50, seed=8)
    calibration = pp.calibrate(Guess(pp.Lags(1)), history, W_FEATURES, seed=0, band=CURVE)
    assert (~calibration.inside).sum() == 20
    assert calibration.outside_share == pytest.approx(0.02)
    half = pp.bands.BandMethod("spline", domain=0.5, grid=50, draws=500)
    narrow = pp.calibrate(Guess(pp.Lags(1)), history, W_FEATURES, seed=0, band=half)
    assert narrow.outside_share == pytest.approx(0.5)


def test_far_contexts_of_a_linear_band_are_outside_and_bounded_for_every_x(lagged):
    _, calibration, held_out = lagged
    direction = held_out.grid.s[:1, :25]
    sizes, factors = [], (1.0, 20.0, 200.0)
    for factor in factors:
        sizes.append(band_values(calibration, factor * direction)[1][0, -1, 0])
        assert calibration.inside_at(factor * direction)[0, -1] == (factor == 1.0)
    assert sizes[0] < sizes[1] < sizes[2]
    shape = calibration.parts[0].band.shape
    assert shape.beyond[0] > shape.critical[0]
    assert sizes[2] / sizes[1] == pytest.approx(10, rel=0.1)


def test_unseen_inputs_give_nan_where_w_matters_and_zero_elsewhere(curve):
    _, calibration, held_out = curve
    s = held_out.grid.s[:1, :12].copy()
    s[0, 6] = np.nan
    error, inside = calibration.error_at(s)[0], calibration.inside_at(s)[0]
    blank = np.isin(np.arange(12), [0, 1, 6, 7, 8])
    assert_array_equal(np.isnan(error[..., 2]), np.repeat(blank[:, None], 2, 1))
    assert_array_equal(error[:, :, 0], 0.0)
    assert not inside[blank].any()
    assert np.isnan(calibration.reward_error(s)[0][blank]).all()


def test_where_phi_itself_needs_an_unseen_s_no_error_of_zero_is_claimed():
    features = pp.Features(lambda s, w, a: (s[:, :1] * w)[:, :1], 2, ("SW",))
    history = one_input(seed=9)
    calibration = pp.calibrate(Guess(pp.Lags(1)), history, features, seed=0, band=CURVE)
    s = history.grid.s[:1, :5].copy()
    s[0, 2] = np.nan
    error = calibration.error_at(s)[0, :, 0, 0]
    assert (error[[0, 1, 3, 4]] > 0).all()
    assert np.isnan(error[2])


def test_rows_whose_current_s_is_not_seen_are_left_out_of_the_band():
    history = one_input(units=20, rows=20, seed=10)
    s = history.s.copy()
    s[history.step == 10] = np.nan
    calibration = pp.calibrate(
        Guess(pp.Lags(1, start=1)), replace(history, s=s), W_FEATURES, seed=0, band=LINEAR
    )
    # rows 1 .. 19 have a lag, row 10 has no S_t and row 11 no lag
    assert calibration.parts[0].band.rows == 20 * 17


def test_an_archive_that_never_sees_s_beside_its_lag_is_refused():
    history = one_input(units=20, rows=20, seed=10)
    s = history.s.copy()
    s[history.step % 2 == 1] = np.nan
    with pytest.raises(pp.errors.DataError, match="S_t is not seen"):
        pp.calibrate(Guess(pp.Lags(1, start=1)), replace(history, s=s), W_FEATURES, seed=0)
