"""Linear worlds and their bands, by the package and by dense least squares."""

import numpy as np

from pulse_pyro.bands.linear import linear
from pulse_pyro.bands.sample import BandMethod
from tests.band_samples import sample

SCHEFFE = BandMethod("linear", noise="rows", critical="scheffe")


def draw(rng, units=20, rows=10, p=3, q=1, intercept=0.0):
    """A linear world: rows of units, slopes 1 .. p, noise of sd 1 and random intercepts."""
    unit = np.repeat(np.arange(units), rows)
    x = rng.standard_normal((len(unit), p)) + np.arange(p)
    noise = rng.standard_normal((len(unit), q)) + intercept * rng.standard_normal((units, q))[unit]
    return sample(x, truth(x)[:, None] + noise, unit)


def truth(x):
    return 5.0 + x @ np.arange(1.0, x.shape[1] + 1)


def made(s, seed=1, level=0.95, **options):
    return linear(s, BandMethod("linear", **options), level, np.random.default_rng(seed))


def with_ones(x):
    return np.column_stack([np.ones(len(x)), x])


def dense(s, noise):
    """Least squares and its sandwich in the raw regressors (1, x), one coordinate, with loops."""
    b, y = with_ones(s.x), s.y[:, 0]
    coef = np.linalg.lstsq(b, y, rcond=None)[0]
    bread = np.linalg.inv(b.T @ b)
    psi = np.array([
        bread @ row * (target - row @ coef) / (1 - row @ bread @ row)
        for row, target in zip(b, y, strict=True)
    ])  # fmt: skip
    if noise == "units":
        units = np.unique(s.unit)
        psi = np.array([psi[s.unit == c].sum(0) for c in units])
        psi *= np.sqrt(len(units) / (len(units) - 1))
    return coef, sum(np.outer(row, row) for row in psi)
