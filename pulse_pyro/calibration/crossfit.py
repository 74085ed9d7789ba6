"""Cross-fitting: two laws, each bounded with the units the other was fitted on."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from pulse_pyro.arrays import Float3, Float4
from pulse_pyro.bands.sample import check_level
from pulse_pyro.calibration.calibrate import BandChoice, calibrate
from pulse_pyro.calibration.calibration import Calibration
from pulse_pyro.errors import ModelError
from pulse_pyro.features import Features
from pulse_pyro.history import History
from pulse_pyro.laws.fitted import FittedLaw
from pulse_pyro.laws.law import Law
from pulse_pyro.summary import Summary
from pulse_pyro.verdicts import Check


class AverageLaw:
    """The half-and-half mixture of two fitted laws of the same kind."""

    def __init__(self, one: FittedLaw, two: FittedLaw) -> None:
        self.one, self.two = one, two
        self.s_names, self.w_names = one.s_names, one.w_names
        self.fit_units = one.fit_units + two.fit_units
        self.exact_mean = one.exact_mean and two.exact_mean
        both = f"{one.law_id} {two.law_id}".encode()
        self.law_id = hashlib.sha256(both).hexdigest()[:16]

    def __repr__(self) -> str:
        return f"AverageLaw of {self.one.law_id} and {self.two.law_id}"

    @property
    def summary(self) -> Summary:
        """What both look at."""
        return self.one.summary

    def mean(self, s: Float3) -> Float3:
        """Return E[W_t | S_1:t], the average of both: (batch, time, w_dim)."""
        out: Float3 = (self.one.mean(s) + self.two.mean(s)) / 2.0
        return out

    def sample(self, s: Float3, size: int, *, rng: np.random.Generator) -> Float4:
        """Draw W_t given S_1:t, half of the draws from each: (size, batch, time, w_dim)."""
        first = self.one.sample(s, size - size // 2, rng=rng)
        return np.concatenate([first, self.two.sample(s, max(size // 2, 1), rng=rng)])[:size]

    def mean_draws(self, s: Float3, draws: int, *, rng: np.random.Generator) -> Float4:
        """Return draws of the averaged mean: (draws, batch, time, w_dim)."""
        one = self.one.mean_draws(s, draws, rng=rng)
        out: Float4 = (one + self.two.mean_draws(s, draws, rng=rng)) / 2.0
        return out


class CrossFit(NamedTuple):
    """The averaged law and its calibration; the law plays in ``pulse`` and ``simulate``."""

    law: AverageLaw
    calibration: Calibration


def calibrate_crossfit(
    law: Law, history: History, features: Features, *, level: float = 0.95, seed: int,
    band: BandChoice = "auto",
) -> CrossFit:  # fmt: skip
    """Fit on each half of the units, bound each law with the other half (mode ``crossfit``).

    Each bound is made at 1 - (1 - level) / 2; the averaged law's error is at most the average of
    the two bounds, which is what ``error_at`` of the calibration returns.
    """
    check_level(level, "calibrate_crossfit")
    if not isinstance(law, Law) or not isinstance(history, History):
        raise ModelError(
            f"calibrate_crossfit: a Law, such as linear_lags(19), and a History were expected, but "
            f"{type(law).__name__} and {type(history).__name__} came; it fits the law itself."
        )
    one, two = history.split(seed=seed)
    each = 1.0 - (1.0 - level) / 2.0
    first, second = law.fit(one, seed=seed), law.fit(two, seed=seed)
    a = calibrate(first, two, features, level=each, seed=seed, band=band)
    b = calibrate(second, one, features, level=each, seed=seed, band=band)
    average = AverageLaw(first, second)
    parts = a.parts + b.parts
    found = [part.errors(a.contexts) for part in parts]
    calibration = Calibration(
        parts, level, "crossfit", seed, average.law_id, a.contexts,
        np.mean([error for error, _ in found], axis=0),
        np.all([inside for _, inside in found], axis=0),
        a.noise_sd + b.noise_sd, _named(a.checks, 1) + _named(b.checks, 2), a.why,
    )  # fmt: skip
    return CrossFit(average, calibration)


def _named(checks: tuple[Check, ...], half: int) -> tuple[Check, ...]:
    return tuple(replace(check, name=f"{check.name}, half {half}") for check in checks)
