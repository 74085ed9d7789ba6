"""A band between the points of its grid and beyond them."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from pulse_pyro._core.errors import DataError
from pulse_pyro.bands.band import Band
from pulse_pyro.bands.curve import GridShape, grid_shape


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
        "past",
        grid,
        np.array([[0.0, 2.0, 0.0], [1.0, 1.0, 1.0]]),
        np.array([[1.0, 2.0, 4.0], [0.5, 0.5, 0.5]]),
        np.array([10.0, 0.0]),
        0.0,
    )
    return Band(
        kind="spline",
        made=("by hand", "by hand"),
        level=0.9,
        critical=np.full(2, 3.0),
        noise="rows",
        x_names=("past",),
        y_names=("a", "b"),
        rows=100,
        units=10,
        shape=shape,
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
