"""Truths and noises the bands are judged on; S is the paper's ARMA(2,2), x its mean of 3."""

import numpy as np

from pulse_pyro.bands.band import Sample
from pulse_pyro.envs.series import Arma

ROWS = 50  # a unit
SD = 0.1


def normal(x, rng):
    return SD * rng.standard_normal(x.shape)


def uneven(x, rng):
    return SD * (0.3 + 4 * np.abs(x)) * rng.standard_normal(x.shape)


def heavy(x, rng):
    return SD * rng.standard_t(3, x.shape) / np.sqrt(3)


def skewed(x, rng):
    return SD * (rng.exponential(size=x.shape) - 1)


def wave(x):
    return np.sin(4 * x)


TRUTHS = {
    "linear": (lambda x: 0.5 - 0.14 * x, normal),
    "sin(4x)": (wave, normal),
    "heteroscedastic": (wave, uneven),
    "t(3) noise": (wave, heavy),
    "skewed noise": (wave, skewed),
    "wiggly": (lambda x: 0.5 * np.sin(16 * x), normal),
    "kink |x|": (np.abs, normal),
}


def series(units, length, rng):
    """The paper's S, (units, length)."""
    return Arma().draw(units, length, rng=rng)[..., 0]


def one_input(truth, units, rng):
    curve, noise = TRUTHS[truth]
    s = series(units, ROWS + 2, rng)
    x = ((s[:, 2:] + s[:, 1:-1] + s[:, :-2]) / 3).reshape(-1, 1)
    y = curve(x) + noise(x, rng)
    return Sample(x, y, np.repeat(np.arange(units), ROWS), ("x",), ("w",))


class Moved:
    """A fitted law with a constant added to its mean."""

    def __init__(self, law, by):
        self.law, self.by, self.id = law, by, f"{law.id} moved"

    def __getattr__(self, name):
        return getattr(self.law, name)

    def __call__(self, source, at=None):
        return MovedConditional(self.law(source, at), self.by)


class MovedConditional:
    def __init__(self, asked, by):
        self.asked, self.by = asked, by

    def __getattr__(self, name):
        return getattr(self.asked, name)

    def mean(self):
        return self.asked.mean() + self.by
