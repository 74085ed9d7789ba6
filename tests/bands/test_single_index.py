"""Bands of a curve over a fitted direction."""

from functools import cache

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from pulse_pyro._core.errors import DataError
from pulse_pyro.bands.band import BandMethod
from pulse_pyro.bands.single_index import single_index
from tests.bands.helpers import sample, world
from tests.helpers import binomial_floor


def indexed(s, seed=0, level=0.95, **options):
    options = {"draws": 500, "grid": 100, "noise": "rows"} | options
    method = BandMethod("single_index", **options)
    return single_index(s, method, level, np.random.default_rng(seed))


D = np.array([0.6, 0.8])


def wave(x):
    return np.sin(x @ D)


def for_direction(s, fit):
    return ~np.isin(s.unit, s.unit[fit.kept])


@cache
def index_hits(reps):
    """How often the band holds for the mean given the fitted index, and for the mean given x."""
    hits = np.zeros(2)
    for r in range(reps):
        s = world(wave, [15, r], draw="normal")
        fit = indexed(s, seed=r)
        direction = fit.band.shape.direction[0]
        rho = direction @ D
        # x'd given the fitted index u is normal: mean rho u, variance 1 - rho^2
        mean = np.sin(rho * s.x @ direction) * np.exp(-(1 - rho**2) / 2)
        found = fit.band.at(s.x)
        for k, truth in enumerate((mean, wave(s.x))):
            hits[k] += (np.abs(found.centre[:, 0] - truth) <= found.half[:, 0])[found.inside].all()
    return hits


def test_the_single_index_band_covers_the_mean_given_the_fitted_index():
    assert index_hits(30)[0] >= binomial_floor(30, 0.95)


def test_the_single_index_band_covers_the_mean_given_x():
    assert index_hits(30)[1] >= binomial_floor(30, 0.95)


def test_the_direction_is_least_squares_on_its_own_third_of_the_units():
    s = world(wave, 17, draw="normal")
    fit = indexed(s)
    own = for_direction(s, fit)
    assert len(np.unique(s.unit[own])) == 6
    b = np.column_stack([np.ones(own.sum()), s.x[own]])
    slope = np.linalg.lstsq(b, s.y[own, 0], rcond=None)[0][1:]
    assert_allclose(fit.band.shape.direction[0], slope / np.linalg.norm(slope), rtol=1e-9)
    assert fit.band.units == 14
    assert fit.band.rows == fit.kept.sum() == len(fit.residual)


def test_the_units_of_the_direction_say_nothing_else_about_the_band():
    s = world(wave, 18, draw="normal")
    fit = indexed(s, critical="tube")
    own = for_direction(s, fit)
    steeper = sample(s.x, np.where(own[:, None], 40 + 7 * s.y, s.y), s.unit)
    other = indexed(steeper, critical="tube")
    assert_array_equal(other.kept, fit.kept)
    assert_allclose(other.residual, fit.residual, atol=1e-8)
    assert_allclose(other.band.at(s.x).centre, fit.band.at(s.x).centre, atol=1e-8)
    assert_allclose(other.band.at(s.x).half, fit.band.at(s.x).half, rtol=1e-5)


def test_the_units_of_the_band_say_nothing_about_the_direction():
    s = world(wave, 19, draw="normal")
    fit = indexed(s)
    own = for_direction(s, fit)
    noise = np.random.default_rng(20).standard_normal(s.y.shape)
    other = indexed(sample(s.x, np.where(own[:, None], s.y, noise), s.unit))
    assert_array_equal(other.band.shape.direction, fit.band.shape.direction)


def test_every_coordinate_has_its_own_index_and_its_share_of_the_level():
    s = world(wave, 21, draw="normal")
    rng = np.random.default_rng(22)
    across = s.x @ [0.8, -0.6] + 0.3 * rng.standard_normal(len(s.x))
    both = sample(s.x, np.column_stack([s.y[:, 0], across]), s.unit)
    fit = indexed(both, level=0.9)
    shape = fit.band.shape
    assert_allclose(shape.direction @ D, [1.0, 0.0], atol=0.2)
    # of the 10 %, half is for the directions and half for the curves, a quarter each
    assert [one.level for one in shape.curves] == [pytest.approx(0.975)] * 2
    found = fit.band.at(s.x)
    for j, one in enumerate(shape.curves):
        part = one.at(s.x @ shape.direction[j])
        assert_array_equal(found.centre[:, j], part.centre[:, 0])
        assert (found.half[:, j] >= part.half[:, 0]).all()
        assert (part.inside >= found.inside).all()
    assert fit.residual.shape == (fit.kept.sum(), 2)
    assert np.isfinite(fit.residual).all()
    assert fit.smooth(both.y[fit.kept], 1).shape == fit.residual.shape


def test_too_few_units_for_an_index_are_refused_with_the_number_that_is_enough():
    s = world(wave, 23, draw="normal", rows=30)
    enough = min(k for k in range(2, 21) if _has_index(s.take(s.unit < k)))
    with pytest.raises(DataError, match=f"at least {enough} held-out units, but got {enough - 1}"):
        indexed(s.take(s.unit < enough - 1))


def _has_index(s):
    try:
        indexed(s, draws=100)
    except DataError:
        return False
    return True


def test_no_direction_is_refused():
    s = world(wave, 24, draw="normal")
    with pytest.raises(DataError, match=r"no noise|no noise"):
        indexed(sample(s.x, np.zeros(len(s.x)), s.unit))
