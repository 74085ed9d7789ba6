"""What the tests of this folder share."""

import numpy as np
import pytest

import pulse_pyro as pp
from pulse_pyro.base import Schema
from pulse_pyro.data.history import context_rows
from pulse_pyro.features import expectation
from pulse_pyro.laws.fitted import chosen
from tests.helpers import linear_history, mean_at

# Laws, archives and features to calibrate, shared by the tests of calibration.


LINEAR = pp.bands.BandMethod("linear", draws=1000)
CURVE = pp.bands.BandMethod("spline", grid=100, draws=1000)
MAIN, BY_ACTION = pp.envs.main_nonlinear(), pp.envs.w_times_action()
W_FEATURES = pp.Features(lambda s, w, a: np.column_stack([w[:, 0], w[:, 0] * a]), 2, ("W", "Wa"))
BENT = pp.Features(
    lambda s, w, a: np.column_stack(
        [np.ones(len(s)), w[:, 0] ** 2, -3 * a * w[:, 0] ** 2, a * np.tanh(w[:, 0]), s[:, 0]]
    ),
    2,
    ("1", "w2", "-3 w2 a", "tanh a", "S"),
)
NOT_AFFINE = pp.Features(
    lambda s, w, a: np.column_stack([w[:, 0] ** 2, a * np.exp(w[:, 0])]), 2, ("q", "e")
)


class Normal:
    """W ~ N(mean, sd^2) at n rows: a conditional law written out by hand."""

    def __init__(self, mean, s, sd=0.1, exact=True):
        self._mean, self.s, self.sd, self.exact = mean, s, sd, exact

    def mean(self):
        return self._mean

    def draws(self, size, *, rng):
        return self._mean + self.sd * rng.standard_normal((size, *self._mean.shape))

    def mean_draws(self, size, *, rng):
        return np.repeat(self._mean[None], size, axis=0)

    def expect(self, features, *, size, rng):
        return expectation(self, features, self.s, size=size, rng=rng)


class Guess:
    """An imputer of its own making: W ~ N(curve(x), sd^2), x the first input.

    curve : intercept + slope x unless given.
    """

    id = "guess"

    def __init__(
        self,
        summary,
        *,
        intercept=0.0,
        slope=0.0,
        sd=0.1,
        exact=True,
        units=(),
        names=(("s",), ("w",)),
        curve=None,
    ):
        self.summary, self.sd, self.exact, self.units = summary, sd, exact, units
        self.schema = Schema.of(*names)
        self.curve = curve or (lambda x: intercept + slope * x)

    def __call__(self, source, at=None):
        x, s = context_rows(source, self.summary, self.schema, "Guess")
        rows = chosen(at, len(x))
        return Normal(self.curve(x[rows, :1]), s[rows], self.sd, self.exact)

    def follow(self, unit=None):
        raise NotImplementedError


class Shifted:
    """A fitted law with a constant added to its mean."""

    def __init__(self, law, by):
        self.law, self.by, self.id = law, by, f"{law.id} shifted"

    def __getattr__(self, name):
        return getattr(self.law, name)

    def __call__(self, source, at=None):
        asked = self.law(source, at)
        return Normal(asked.mean() + self.by, asked.s)


def one_input(units=30, rows=30, seed=0, curve=np.sin, noise=0.1):
    """W = curve(4 S_t) + noise; the noise is uniform on [-noise, noise]."""
    rng = np.random.default_rng(seed)
    s = 0.3 * rng.standard_normal((units, rows, 1))
    w = curve(4 * s) + rng.uniform(-noise, noise, s.shape)
    seen = np.ones((units, rows), dtype=bool)
    return pp.History.from_arrays(
        s, w, seen=seen, units=tuple(f"h{i}" for i in range(units)), s_names=("s",), w_names=("w",)
    )


def split_archive(lags=2, units=30, time=15, seed=0):
    """A law fitted on half of an archive, the other half, the true coefficients."""
    history, coef = linear_history(units=units, time=time, lags=lags, seed=seed)
    fit, held_out = history.split(seed=0)
    return pp.linear_lags(lags).fit(fit, seed=0), held_out, coef


def band_values(calibration, s, part=0):
    """Centre, on the scale of W, and half-width (batch, time, q) of a part's band at contexts s."""
    part = calibration.parts[part]
    x = part.law.summary(s)
    centre, half, _ = part.band.at(x.reshape(-1, x.shape[-1]))
    if part.own_error:
        centre = centre + mean_at(part.law, s).reshape(centre.shape)
    return centre.reshape(*s.shape[:2], -1), half.reshape(*s.shape[:2], -1)


def triangle(calibration, law, s, part=0):
    """Half-width plus distance of centre and law, (batch, time, w_dim), from band and law alone."""
    centre, half = band_values(calibration, s, part)
    return half + np.abs(centre - mean_at(law, s))


def check(calibration, name):
    return next(c for c in calibration.checks if c.name == name)


# Finished calibrations, each made once for all tests that look at it.


@pytest.fixture(scope="session")
def curve():
    """A straight line fitted to the nonlinear environment, its calibration, the held-out units."""
    fit, held_out = MAIN.archive(50, 27, rng=np.random.default_rng(0)).split(seed=0)
    law = pp.linear_lags(pp.Window(3, np.mean)).fit(fit, seed=0)
    return law, pp.calibrate(law, held_out, MAIN.features, seed=0, band=CURVE), held_out


@pytest.fixture(scope="session")
def lagged():
    """19 lags and features (1, S, W, W*a)."""
    fit, held_out = BY_ACTION.archive(60, 45, rng=np.random.default_rng(1)).split(seed=0)
    law = pp.linear_lags(19).fit(fit, seed=0)
    return law, pp.calibrate(law, held_out, BY_ACTION.features, seed=0, band=LINEAR), held_out


@pytest.fixture(scope="session")
def bent():
    held_out = one_input(seed=3)
    law = Guess(pp.Lags(1), intercept=0.1, slope=2.0, sd=0.3)
    return law, pp.calibrate(law, held_out, BENT, seed=5, band=CURVE), held_out


@pytest.fixture(scope="session")
def cross():
    history, _ = linear_history(units=40, time=20, lags=2, seed=2)
    return history, pp.calibration.crossfit(
        pp.linear_lags(2), history, W_FEATURES, seed=4, band=LINEAR
    )


@pytest.fixture(scope="session")
def made():
    """Calibrations by name: one input, several inputs, not affine, in all three modes."""
    law, held_out, _ = split_archive(lags=1)
    many, others, _ = split_archive(lags=4)
    history, _ = linear_history(units=30, time=15, lags=2, seed=1)
    both = pp.linear_lags(2).fit(history, seed=0)
    return {
        "curve": pp.calibrate(law, held_out, W_FEATURES, seed=0, band=CURVE),
        "linear": pp.calibrate(many, others, W_FEATURES, seed=0, band=LINEAR),
        "bent": pp.calibrate(law, held_out, NOT_AFFINE, seed=0, band=CURVE),
        "all": pp.calibration.all_units(both, history, W_FEATURES, seed=0, band=LINEAR),
        "crossfit": pp.calibration.crossfit(
            pp.linear_lags(2), history, W_FEATURES, seed=0, band=LINEAR
        ).calibration,
    }
