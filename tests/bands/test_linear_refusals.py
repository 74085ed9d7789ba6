"""What the linear band, its sample and its method refuse."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from pulse_pyro._core.errors import DataError, SettingError
from pulse_pyro.bands.auto import make_band
from pulse_pyro.bands.band import BandMethod, Sample
from tests.bands.helpers import draw, made, sample


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
    with pytest.raises(DataError, match="at least 30 held-out rows for 4 inputs, but got 29"):
        made(s.take(np.arange(30) < 29))
    assert made(s, noise="rows").band.rows == 30


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


def test_an_input_that_one_unit_alone_has_is_refused_by_unit():
    s = draw(np.random.default_rng(43), units=30, p=2)
    lone = sample(np.column_stack([s.x, s.unit == 7]), s.y, s.unit)
    with pytest.raises(DataError, match="one of 30 units decides a coefficient"):
        made(lone, noise="units")


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
