"""Cross-fitting: two laws, each bounded with the units the other was fitted on."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from pulse_pyro._core.arrays import Float, Float1, Float2, Float3, Int
from pulse_pyro._core.errors import ModelError
from pulse_pyro.bands.band import check_level
from pulse_pyro.base import (
    Check,
    Checks,
    Conditional,
    Expectation,
    FeatureMap,
    FittedLaw,
    Follower,
    Summary,
    UnfittedLaw,
)
from pulse_pyro.calibration.calibration import FORECAST_RUNG, Calibration
from pulse_pyro.calibration.groups import take_groups
from pulse_pyro.calibration.ladder import calibrate
from pulse_pyro.calibration.rung import Groups, Rung, RungVerdict
from pulse_pyro.calibration.uniform import BandChoice
from pulse_pyro.data.history import History, Source, context_rows
from pulse_pyro.features import Features, expectation
from pulse_pyro.laws.fitted import by_action, chosen

if TYPE_CHECKING:
    from pandas import DataFrame


class AverageConditional:
    """The half-and-half mixture of two conditional laws at the same n rows; s : (n, s_dim)."""

    def __init__(self, one: Conditional, two: Conditional, s: Float2) -> None:
        self.one, self.two, self.s = one, two, s

    @property
    def exact(self) -> bool:
        """Whether both means are closed form."""
        return self.one.exact and self.two.exact

    def mean(self) -> Float2:
        """Return E[W | S_1:t], the average of both, (n, w_dim)."""
        out: Float2 = (self.one.mean() + self.two.mean()) / 2.0
        return out

    def draws(self, size: int, *, rng: np.random.Generator) -> Float3:
        """Draw W, half of the draws from each, (size, n, w_dim)."""
        first = self.one.draws(size - size // 2, rng=rng)
        return np.concatenate([first, self.two.draws(max(size // 2, 1), rng=rng)])[:size]

    def mean_draws(self, size: int, *, rng: np.random.Generator) -> Float3:
        """Return draws of the averaged mean, (size, n, w_dim)."""
        one = self.one.mean_draws(size, rng=rng)
        out: Float3 = (one + self.two.mean_draws(size, rng=rng)) / 2.0
        return out

    def expect(self, features: FeatureMap, *, size: int, rng: np.random.Generator) -> Expectation:
        """Return E[Phi], mean and mcse (n, action, d)."""
        return expectation(self, features, self.s, size=size, rng=rng)

    def covariance(self) -> Float3:
        """Return Cov(W | S_1:t), (n, w_dim, w_dim): the average, and how far the means are."""
        apart = (self.one.mean() - self.two.mean()) / 2.0
        within: Float3 = (self.one.covariance() + self.two.covariance()) / 2.0
        return within + apart[:, :, None] * apart[:, None, :]

    def cdf(self, w: Float2) -> Float2:
        """Return P(W_j <= w_j | S_1:t), (n, w_dim)."""
        out: Float2 = (self.one.cdf(w) + self.two.cdf(w)) / 2.0
        return out

    def log_density(self, w: Float2) -> Float2 | None:
        """Return log p(W_j = w_j | S_1:t), (n, w_dim); None if one of the laws has no density."""
        return _mixed(self.one.log_density(w), self.two.log_density(w))

    def joint_log_density(self, w: Float2) -> Float1 | None:
        """Return log p(W = w | S_1:t), (n,); None if one of the laws has no density."""
        return _mixed(self.one.joint_log_density(w), self.two.joint_log_density(w))


def _mixed(one: Float | None, two: Float | None) -> Float | None:
    """Return the log of the average of two densities."""
    if one is None or two is None:
        return None
    with np.errstate(invalid="ignore"):  # NaN where a law does not answer
        out: Float = np.logaddexp(one, two) - np.log(2.0)
    return out


class AverageLaw:
    """The half-and-half mixture of two fitted laws of the same kind."""

    def __init__(self, one: FittedLaw, two: FittedLaw) -> None:
        self.one, self.two = one, two
        self.schema, self.units = one.schema, one.units + two.units
        self.id = hashlib.sha256(f"{one.id} {two.id}".encode()).hexdigest()[:16]

    def __repr__(self) -> str:
        return f"AverageLaw of {self.one.id} and {self.two.id}"

    @property
    def summary(self) -> Summary:
        """What both look at."""
        return self.one.summary

    def __call__(self, source: Source, at: ArrayLike | None = None) -> AverageConditional:
        """Return the law of W at the rows of a History, or of s (batch, time[, action], s_dim)."""
        source, at = by_action(source, at)
        _, s = context_rows(source, self.summary, self.schema, "AverageLaw")
        return AverageConditional(self.one(source, at), self.two(source, at), s[chosen(at, len(s))])

    def follow(self, unit: str | None = None) -> Follower:
        """Two laws cannot be followed as one: play one of them, or simulate."""
        raise ModelError(
            "AverageLaw: the average of two laws cannot be followed online; play one of them."
        )


class CrossFit(NamedTuple):
    """The averaged law and its calibration; the law plays in ``pulse`` and ``simulate``."""

    law: AverageLaw
    calibration: Calibration


def crossfit(
    law: UnfittedLaw,
    history: History,
    features: Features,
    *,
    level: float = 0.95,
    seed: int,
    groups: Groups = None,
    inputs: Sequence[str] | str | None = None,
    band: BandChoice = "auto",
) -> CrossFit:
    """Fit on each half of the clusters, judge each law with the other half (mode ``crossfit``).

    Each claim is made at 1 - (1 - level) / 2, so both hold with probability ``level``. The averaged
    law's error is at most the average of the two bounds, which is what ``error_at`` and the sizes
    of the rungs uniform, groups, average and free say. The rung forecast speaks of each law's own
    forecasts, not of their average: the larger of both is told, and it feeds no policy. Groups that
    are declared row by row have a label, or True or False, for each row of ``history``.
    """
    check_level(level, "crossfit")
    if not isinstance(law, UnfittedLaw) or not isinstance(history, History):
        raise ModelError(
            "crossfit: a law that is not fitted, such as linear_lags(19), and a History "
            f"were expected, but got {type(law).__name__} and {type(history).__name__}; it fits "
            "the law itself."
        )
    one, two = history.split(seed=seed)
    take_groups(groups, _rows_of(history, one), len(history.s))  # refused before anything is fitted
    each = 1.0 - (1.0 - level) / 2.0
    first, second = law.fit(one, seed=seed), law.fit(two, seed=seed)
    a, b = (
        calibrate(
            fitted,
            other,
            features,
            level=each,
            seed=seed,
            groups=take_groups(groups, _rows_of(history, other), len(history.s)),
            inputs=inputs,
            band=band,
        )
        for fitted, other in ((first, two), (second, one))
    )
    average = AverageLaw(first, second)
    parts = a.parts + b.parts if a.parts and b.parts else ()
    bounds = [part.errors(a.contexts) for part in parts]
    inside = [b[1] & part.near(a.contexts) for part, b in zip(parts, bounds, strict=True)]
    calibration = Calibration(
        targets=a.targets,
        parts=parts,
        rungs=tuple(_of_both(x, y, level) for x, y in zip(a.rungs, b.rungs, strict=True)),
        level=level,
        mode="crossfit",
        seed=seed,
        law_id=average.id,
        contexts=a.contexts,
        error=np.mean([error for error, _ in bounds], axis=0) if bounds else a.error * np.nan,
        inside=np.all(inside, axis=0) if bounds else a.inside & False,
        noise_sd=a.noise_sd + b.noise_sd if parts else (),
        spread=np.maximum(a.spread, b.spread),  # the mean of both bounds is then at most told
        why=a.why,
    )
    return CrossFit(average, calibration)


def _rows_of(history: History, half: History) -> Int:
    """Return which rows of an archive one half of its split holds."""
    here = np.isin(np.array(history.clusters), np.array(half.clusters))
    return np.flatnonzero(here[history.cluster])


@dataclass(frozen=True, eq=False)
class BothHalves:
    """What a rung was made of on either half."""

    one: Any
    two: Any

    @property
    def table(self) -> DataFrame:
        """The lines of both."""
        import pandas as pd

        both: dict[str, DataFrame] = {"half 1": self.one.table, "half 2": self.two.table}
        return pd.concat(both, names=["half"])


def _of_both(one: Rung, two: Rung, level: float) -> Rung:
    """Put a rung of both halves together: it holds where both do, with probability ``level``."""
    checks = Checks(_named(one.checks, 1) + _named(two.checks, 2))
    bad = [rung for rung in (one, two) if not rung.holds]
    if one.verdict == two.verdict == "not asked":
        return one
    if bad:
        half = 1 + (bad[0] is two)
        claim = f"Half {half}: {bad[0].claim}"
        return replace(bad[0], claim=claim, checks=checks, details=None)
    sizes = (one.sizes + two.sizes) / 2.0
    if one.name == FORECAST_RUNG:
        sizes = np.maximum(one.sizes, two.sizes)
    verdict: RungVerdict = "stands" if one.verdict == two.verdict == "stands" else "conditional"
    details = BothHalves(one.details, two.details) if one.details and two.details else None
    return replace(
        one,
        verdict=verdict,
        claim=f"Of two laws, each judged on the half it was not fitted on, both claims at once "
        f"({100 * level:.4g}% together). First: {one.claim} Second: {two.claim}",
        sizes=sizes,
        rests_on=_joined(one.rests_on, two.rests_on, ", and "),
        remedy=_joined(one.remedy, two.remedy, " "),
        benchmark="" if one.name == FORECAST_RUNG else one.benchmark,
        checks=checks,
        details=details,
    )


def _joined(one: str, two: str, by: str) -> str:
    """Return what is said of either half, once where it is the same."""
    return by.join(dict.fromkeys(text for text in (one, two) if text))


def _named(checks: tuple[Check, ...], half: int) -> tuple[Check, ...]:
    return tuple(replace(check, name=f"{check.name}, half {half}") for check in checks)
