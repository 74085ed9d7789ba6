"""Bands of curves cover the truth as often as they say."""

import numpy as np
import pytest

from pulse_pyro.bands import curve as curve_module
from pulse_pyro.bands.band import BandMethod
from pulse_pyro.bands.curve import grid_shape
from tests.bands.helpers import SMALL, bent, curve, generator, kinked, sample_of
from tests.helpers import binomial_floor


def covers(shape, truth):
    at = np.linspace(shape.grid[0], shape.grid[-1], 160)
    found = shape.at(at[:, None])
    return bool((np.abs(found.centre[:, 0] - truth(at)) <= found.half[:, 0]).all())


def wave(x):
    return np.sin(4.0 * x)


@pytest.mark.parametrize("kind", ["local_polynomial", "spline"])
def test_the_band_covers_the_whole_curve_and_a_pointwise_one_does_not(kind, monkeypatch):
    trials, level, rng = 60, 0.95, generator(20)
    method = BandMethod(kind, noise="rows", critical="simulate", **SMALL)
    shapes = []

    def both(name, grid, centre, cov, critical):
        values = (critical, np.full_like(critical, 1.96))
        shapes.append([grid_shape(name, grid, centre, cov, c) for c in values])
        return shapes[-1][0]

    monkeypatch.setattr(curve_module, "grid_shape", both)
    for _ in range(trials):
        x = rng.uniform(-1.0, 1.0, 240)
        y = wave(x) + (0.2 + 0.1 * x) * rng.standard_normal(240)
        curve(sample_of(x, y), method, level, rng)
    uniform, pointwise = (sum(covers(pair[k], wave) for pair in shapes) for k in (0, 1))
    assert uniform >= binomial_floor(trials, level)
    assert pointwise < binomial_floor(trials, 0.8)


def test_the_lipschitz_band_covers_a_strong_kink():
    trials, rng = 12, generator(21)
    method = BandMethod("lipschitz", noise="rows", critical="simulate", grid=150, draws=400)
    count = 0
    for _ in range(trials):
        band = curve(kinked(rng, 1000, 10.0), method, 0.95, rng).band
        count += covers(band.shape, lambda v: bent(v, 10.0))
    assert count >= binomial_floor(trials, 0.95)


def test_random_intercepts_need_the_clustered_band():
    trials, level = 20, 0.9
    count = {"rows": 0, "units": 0}
    for noise in count:
        rng = generator(22)
        method = BandMethod("spline", noise=noise, critical="simulate", **SMALL)
        for _ in range(trials):
            x = rng.uniform(-1.0, 1.0, 600)
            shift = np.repeat(0.6 * rng.standard_normal(30), 20)
            y = x + shift + 0.1 * rng.standard_normal(600)
            band = curve(sample_of(x, y, 30), method, level, rng).band
            count[noise] += covers(band.shape, lambda v: v)
    assert count["units"] >= binomial_floor(trials, level)
    assert count["rows"] < binomial_floor(trials, level)
