"""Linear bands cover the truth as often as they say."""

import numpy as np
import pytest

from pulse_pyro._core.errors import DataError
from pulse_pyro.bands.band import BandMethod
from pulse_pyro.bands.linear import linear
from tests.bands.helpers import draw, made, sample, truth
from tests.helpers import binomial_floor


def coverage(reps, seed, noise_of, factor=None, units=20, rows=6, p=2, **options):
    """How often the band holds at all held-out contexts; ``factor`` replaces its own c."""
    hits = 0
    for r in range(reps):
        rng = np.random.default_rng([seed, r])
        unit = np.repeat(np.arange(units), rows)
        x = rng.standard_normal((len(unit), p))
        s = sample(x, truth(x) + noise_of(x, unit, rng), unit)
        shape = linear(s, BandMethod("linear", draws=500, **options), 0.95, rng).band.shape
        found = shape.at(x)
        half = found.half[:, 0]
        if factor is not None:
            half = half / np.where(found.inside, shape.critical, shape.beyond) * factor
        hits += (np.abs(found.centre[:, 0] - truth(x)) <= half).all()
    return hits


def plain_noise(x, unit, rng):
    return rng.standard_normal(len(x))


def growing_noise(x, unit, rng):
    return (0.2 + np.abs(x[:, 0])) * rng.standard_normal(len(x))


def unit_noise(x, unit, rng):
    return rng.standard_normal(len(x)) + rng.standard_normal(unit.max() + 1)[unit]


@pytest.mark.parametrize("noise_of", [plain_noise, growing_noise])
def test_the_band_covers_at_all_contexts_at_once(noise_of):
    assert coverage(150, 1, noise_of, noise="rows") >= binomial_floor(150, 0.95)


def test_clustered_bands_cover_under_random_intercepts_and_row_bands_do_not():
    floor = binomial_floor(100, 0.95)
    assert coverage(100, 2, unit_noise, noise="units", units=30) >= floor
    assert coverage(100, 2, unit_noise, noise="rows", units=30) < floor


def test_inputs_that_are_constant_within_units_are_covered():
    hits = 0
    for r in range(100):
        rng = np.random.default_rng([6, r])
        unit = np.repeat(np.arange(30), 8)
        x = rng.standard_normal((30, 9))[unit]
        s = sample(x, truth(x)[:, None] + unit_noise(x, unit, rng)[:, None], unit)
        found = linear(s, BandMethod("linear", draws=500), 0.95, rng).band.at(x)
        hits += (np.abs(found.centre[:, 0] - truth(x)) <= found.half[:, 0]).all()
    assert hits >= binomial_floor(100, 0.95)


def test_a_pointwise_critical_value_almost_never_covers_with_21_regressors():
    hits = coverage(60, 3, plain_noise, factor=1.97, units=25, rows=12, p=20, noise="rows")
    assert hits < binomial_floor(60, 0.5)


@pytest.mark.parametrize(("noise", "p"), [("rows", 5), ("units", 20)])
def test_scheffe_holds_for_every_x_at_once(noise, p):
    hits = 0
    for r in range(80):
        rng = np.random.default_rng([4, r])
        x, unit = rng.standard_normal((500, p)), np.repeat(np.arange(50), 10)
        s = sample(
            x, unit_noise(x, unit, rng) if noise == "units" else plain_noise(x, unit, rng), unit
        )
        shape = made(s, noise=noise, critical="scheffe").band.shape
        wald = shape.coef[:, 0] @ np.linalg.solve(shape.cov[0], shape.coef[:, 0])
        hits += wald <= shape.beyond[0] ** 2
    assert hits >= binomial_floor(80, 0.95)


def test_a_context_that_one_row_alone_decides_is_refused_or_covered():
    hits = 0
    for r in range(40):
        rng = np.random.default_rng([5, r])
        s = draw(rng, p=1)
        lone = sample(np.column_stack([s.x, np.arange(len(s.x)) == 37]), s.y, s.unit)
        try:
            found = made(lone, noise="rows", draws=100).band.at(lone.x[37:38])
        except DataError:
            hits += 1
        else:
            hits += abs(found.centre[0, 0] - truth(s.x[37:38])[0]) <= found.half[0, 0]
    assert hits >= binomial_floor(40, 0.95)
