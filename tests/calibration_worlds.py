"""Laws, archives and features to calibrate, shared by the tests of calibration."""

import numpy as np

import pulse_pyro as pp
from tests.worlds import linear_history

LINEAR = pp.BandMethod("linear", draws=1000)
CURVE = pp.BandMethod("spline", grid=100, draws=1000)
MAIN, BY_ACTION = pp.main_nonlinear(), pp.w_times_action()
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


class Guess:
    """An imputer of its own making: W ~ N(intercept + slope x, sd^2), x the first input."""

    law_id = "guess"

    def __init__(
        self, summary, *, intercept=0.0, slope=0.0, sd=0.1, exact=True, units=(), names=None
    ):
        self.summary, self.intercept, self.slope, self.sd = summary, intercept, slope, sd
        self.exact_mean, self.fit_units = exact, units
        self.s_names, self.w_names = names or (("s",), ("w",))

    def mean(self, s):
        return self.intercept + self.slope * self.summary(s)[..., :1]

    def sample(self, s, size, *, rng):
        mean = self.mean(s)
        return mean + self.sd * rng.standard_normal((size, *mean.shape))

    def mean_draws(self, s, draws, *, rng):
        return np.repeat(self.mean(s)[None], draws, axis=0)


class Shifted:
    """A fitted law with a constant added to its mean."""

    def __init__(self, law, by):
        self.law, self.by, self.law_id = law, by, f"{law.law_id} shifted"

    def __getattr__(self, name):
        return getattr(self.law, name)

    def mean(self, s):
        return self.law.mean(s) + self.by


def one_input(units=30, rows=30, seed=0, curve=np.sin, noise=0.1):
    """W = curve(4 S_t) + noise; the noise is uniform on [-noise, noise]."""
    rng = np.random.default_rng(seed)
    s = 0.3 * rng.standard_normal((units, rows, 1))
    w = curve(4 * s) + rng.uniform(-noise, noise, s.shape)
    seen = np.ones((units, rows), dtype=bool)
    return pp.History(s, w, seen, tuple(f"h{i}" for i in range(units)), ("s",), ("w",))


def split_archive(lags=2, units=30, time=15, seed=0):
    """A law fitted on half of an archive, the other half, the true coefficients."""
    history, coef = linear_history(units=units, time=time, lags=lags, seed=seed)
    fit, held_out = history.split(seed=0)
    return pp.linear_lags(lags).fit(fit, seed=0), held_out, coef


def band_values(calibration, s, part=0):
    """Centre and half-width (batch, time, q) of a part's band at contexts s."""
    part = calibration.parts[part]
    x = part.law.summary(s)
    centre, half, _ = part.band.at(x.reshape(-1, x.shape[-1]))
    return centre.reshape(*s.shape[:2], -1), half.reshape(*s.shape[:2], -1)


def triangle(calibration, law, s, part=0):
    """Half-width plus distance of centre and law, (batch, time, w_dim), from band and law alone."""
    centre, half = band_values(calibration, s, part)
    return half + np.abs(centre - law.mean(s))


def check(calibration, name):
    return next(c for c in calibration.checks if c.name == name)
