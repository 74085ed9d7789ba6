"""The same inputs give the same calibration."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import pulse_pyro as pp
from tests.calibration.helpers import (
    BENT,
    BY_ACTION,
    CURVE,
    LINEAR,
    W_FEATURES,
    Guess,
    band_values,
    one_input,
)
from tests.helpers import z_bound


def test_the_same_seed_gives_the_same_arrays(bent, cross):
    law, calibration, held_out = bent
    again = pp.calibrate(law, held_out, BENT, seed=5, band=CURVE)
    assert_array_equal(again.error, calibration.error)
    assert again.checks == calibration.checks
    other = pp.calibrate(law, held_out, BENT, seed=6, band=CURVE)
    assert (other.error != calibration.error).any()
    history, (_, crossed) = cross
    twice = pp.calibration.crossfit(pp.linear_lags(2), history, W_FEATURES, seed=4, band=LINEAR)
    assert_array_equal(twice.calibration.error, crossed.error)
    assert twice.law.id == crossed.law_id


def test_asking_twice_gives_the_same_bound(bent):
    _, calibration, held_out = bent
    s = held_out.grid.s[:2]
    assert_array_equal(calibration.error_at(s), calibration.error_at(s))


@pytest.mark.parametrize(("kind", "grid"), [("linear", 400), ("spline", 100)])
def test_the_order_of_units_does_not_matter_beyond_simulation(kind, grid):
    history = one_input(units=20, rows=20, seed=11, curve=lambda x: x)
    law, draws = Guess(pp.Lags(1)), 4000
    method = pp.bands.BandMethod(kind, draws=draws, grid=grid, critical="simulate")
    one = pp.calibrate(law, history, W_FEATURES, seed=0, band=method)
    mixed = history.take(np.random.default_rng(0).permutation(20))
    two = pp.calibrate(law, mixed, W_FEATURES, seed=1, band=method)
    s = history.grid.s
    (m1, r1), (m2, r2) = band_values(one, s), band_values(two, s)
    assert_allclose(m1, m2, rtol=1e-8, atol=1e-10)
    c = one.parts[0].band.critical[0]
    # sd of a simulated 95 % point, the hazard of a Gaussian supremum there being about c
    sd = np.sqrt(0.95 / 0.05 / draws) / c
    assert_allclose(r1, r2, rtol=1.2 * z_bound() * np.sqrt(2) * sd / c)


def test_a_calibration_leaves_its_inputs_alone(lagged):
    law, _, held_out = lagged
    before = held_out.grid.s.copy(), law.id
    pp.calibrate(law, held_out, BY_ACTION.features, seed=1, band=LINEAR)
    with pytest.raises(pp.PulseError):
        pp.calibrate(law, held_out, BY_ACTION.features, seed=1, band="spline")
    assert_array_equal(held_out.grid.s, before[0])
    assert law.id == before[1]
    again = pp.calibrate(law, held_out, BY_ACTION.features, seed=0, band=LINEAR)
    assert_array_equal(again.error, lagged[1].error)
