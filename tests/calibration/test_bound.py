"""The bound: half-width plus the distance of centre and law."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

import pulse_pyro as pp
from pulse_pyro.calibration.targets import find_targets
from tests.calibration.helpers import (
    CURVE,
    LINEAR,
    W_FEATURES,
    Guess,
    band_values,
    one_input,
    triangle,
)
from tests.helpers import linear_history

# --- the triangle bound -------------------------------------------------------------------------


def test_the_bound_of_w_is_half_width_plus_distance_of_centre_and_law(curve):
    law, calibration, held_out = curve
    s = held_out.grid.s[:4]
    eps = triangle(calibration, law, s)[..., 0]
    error = calibration.error_at(s)
    for action in (0, 1):
        assert_allclose(error[:, :, action, 2], eps, rtol=1e-12)
        assert_array_equal(error[:, :, action, [0, 1, 3]], 0.0)
    assert np.isfinite(eps[:, 2:]).all()
    assert np.isnan(eps[:, :2]).all()


def test_the_bound_of_w_times_action_is_zero_for_action_zero(lagged):
    law, calibration, held_out = lagged
    eps = triangle(calibration, law, held_out.grid.s)[..., 0]
    error = calibration.error_at(held_out.grid.s)
    assert_array_equal(error[:, :, 0, 3], 0.0)
    assert_allclose(error[:, :, 1, 3], eps, rtol=1e-10)
    assert_allclose(error[:, :, :, 2], np.stack([eps, eps], -1), rtol=1e-10)
    assert_array_equal(error[..., :2], 0.0)


def test_stored_errors_are_those_at_the_stored_contexts(lagged):
    _, calibration, held_out = lagged
    assert_array_equal(calibration.contexts.s, held_out.s)
    assert calibration.contexts.units == held_out.units
    assert_array_equal(calibration.error, calibration.error_at(held_out))
    assert_array_equal(calibration.inside, calibration.inside_at(held_out))
    series = held_out.grid.s
    assert_array_equal(held_out.on_grid(calibration.error), calibration.error_at(series))
    assert_array_equal(held_out.on_grid(calibration.inside, False), calibration.inside_at(series))
    worst = np.max(calibration.error**2, axis=(1, 2))
    assert_array_equal(calibration.bound, worst[np.isfinite(worst)])
    # 30 units of 45 rows, 18 of which only fill the lags
    assert calibration.bound.shape == (30 * 27,)


def test_the_band_is_not_centred_on_the_law():
    history = one_input(seed=1)
    near, far = (
        pp.calibrate(Guess(pp.Lags(1), intercept=b), history, W_FEATURES, seed=0, band=CURVE)
        for b in (0.0, 7.0)
    )
    s = history.grid.s[:3]
    assert_array_equal(band_values(near, s)[0], band_values(far, s)[0])
    assert_array_equal(band_values(near, s)[1], band_values(far, s)[1])
    gap = band_values(near, s)[0] - 0.0
    moved = far.error_at(s)[:, :, 0, 0] - near.error_at(s)[:, :, 0, 0]
    assert_allclose(moved, (np.abs(gap - 7.0) - np.abs(gap))[..., 0], rtol=1e-12)


def test_slopes_of_phi_may_depend_on_s_and_mix_several_w():
    history, _ = linear_history(units=30, time=15, lags=2, w_dim=2, seed=5)
    fit, held_out = history.split(seed=0)
    law = pp.linear_lags(2).fit(fit, seed=0)
    features = pp.Features(
        lambda s, w, a: np.column_stack([w @ [1, -2 * a], s[:, 0] * w[:, 1] + 5, s[:, 0]]),
        3,
        ("mix", "SW", "S"),
    )
    calibration = pp.calibrate(law, held_out, features, seed=0, band=LINEAR)
    s = held_out.grid.s[:5]
    eps = triangle(calibration, law, s)
    error = calibration.error_at(s)
    for a in range(3):
        assert_allclose(error[:, :, a, 0], eps[..., 0] + 2 * a * eps[..., 1], rtol=1e-9)
        assert_allclose(error[:, :, a, 1], np.abs(s[..., 0]) * eps[..., 1], rtol=1e-7)
        assert_array_equal(error[:, :, a, 2], 0.0)


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1))
def test_the_error_of_any_affine_map_is_the_absolute_slope_times_eps(seed):
    rng = np.random.default_rng(seed)
    w_dim, d, actions, n = rng.integers(1, 4), rng.integers(1, 5), 3, 40
    slope = rng.standard_normal((actions, d, w_dim)) * (rng.random((actions, d, w_dim)) < 0.6)
    slope[0, 0, 0] = 1.0
    shift = rng.standard_normal((actions, d))
    features = pp.Features(
        lambda s, w, a: w @ slope[a].T + shift[a], actions, tuple(f"f{j}" for j in range(d))
    )
    s, w = rng.standard_normal((n, 1)), rng.standard_normal((n, w_dim)) * 3 + 1
    names = tuple(f"w{i}" for i in range(w_dim))
    targets = find_targets(features, s, w, names)
    assert targets.names == names
    assert_array_equal(targets.observed(s, w), w)
    eps = rng.random((n, w_dim))
    for a in range(actions):
        found = targets.errors(s, eps, a)
        assert_allclose(found, eps @ np.abs(slope[a]).T, rtol=1e-8, atol=1e-12)
        assert_array_equal(found[:, (slope[a] == 0).all(1)], 0.0)


# --- shapes of contexts -------------------------------------------------------------------------


def test_a_context_is_bounded_alike_alone_and_among_others(lagged):
    _, calibration, held_out = lagged
    whole = calibration.error_at(held_out.grid.s)
    assert_allclose(calibration.error_at(held_out.grid.s[7:8]), whole[7:8], rtol=1e-10)
    assert_allclose(calibration.error_at(held_out.grid.s[:, :30]), whole[:, :30], rtol=1e-10)
    assert_allclose(calibration.error_at(held_out.grid.s[:, 5:24])[:, -1], whole[:, 23], rtol=1e-10)


@pytest.mark.parametrize("which", ["lagged", "bent"])
def test_the_same_context_for_every_action_agrees_with_a_shared_one(which, request):
    _, calibration, held_out = request.getfixturevalue(which)
    s = held_out.grid.s[:3]
    each = np.repeat(s[:, :, None], 2, axis=2)
    assert_array_equal(calibration.error_at(each), calibration.error_at(s))
    assert_array_equal(calibration.inside_at(each), calibration.inside_at(s))


def test_contexts_of_their_own_bound_each_action_by_its_own(lagged):
    _, calibration, held_out = lagged
    each = np.stack([held_out.grid.s[:4], 40 * held_out.grid.s[4:8]], axis=2)
    error, inside = calibration.error_at(each), calibration.inside_at(each)
    for a in (0, 1):
        alone = calibration.error_at(np.ascontiguousarray(each[:, :, a]))
        assert_allclose(error[:, :, a], alone[:, :, a], rtol=1e-10)
    apart = [calibration.inside_at(np.ascontiguousarray(each[:, :, a])) for a in (0, 1)]
    assert apart[0].any()
    assert_array_equal(inside, apart[0] & apart[1])


@pytest.mark.parametrize("shape", [(5,), (5, 1), (2, 5, 3), (1, 2, 5, 2, 3)])
def test_contexts_of_a_wrong_shape_are_refused(lagged, shape):
    with pytest.raises(pp.errors.DataError, match=r"\(batch, time, 1\)"):
        lagged[1].error_at(np.zeros(shape))


@pytest.mark.parametrize("arms", [1, 3])
def test_contexts_for_another_number_of_actions_are_refused(lagged, arms):
    with pytest.raises(pp.PulseError, match="actions"):
        lagged[1].error_at(np.zeros((2, 25, arms, 1)))
