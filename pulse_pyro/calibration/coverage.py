"""A self-check: does the whole recipe keep its promise on data like these."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from scipy import stats

from pulse_pyro._core.arrays import Bool, Float1, Float2, whole
from pulse_pyro._core.errors import DataError, ModelError
from pulse_pyro._core.progress import bar
from pulse_pyro._core.seeds import stream
from pulse_pyro.bands.band import check_level
from pulse_pyro.base import FittedLaw, UnfittedLaw
from pulse_pyro.calibration.ladder import calibrate
from pulse_pyro.calibration.uniform import BandChoice
from pulse_pyro.data.history import History
from pulse_pyro.features import Features, expected_features

if TYPE_CHECKING:
    from pandas import DataFrame

SIZE = 2000  # Monte Carlo draws of the truth, used only if Phi is not affine
VALUES = 4_000_000  # values in flight
DRAWS = 1000  # of the fitted law that a new W is picked from


@dataclass(frozen=True, eq=False)
class CoverageStudy:
    """Realised coverage of a calibration over simulated archives.

    covered : (reps,) whether the bound held at every context in the domain.
    tightness : (reps,) mean bound over the largest true error.
    kinds : the bands that were made.
    """

    level: float
    covered: Bool
    tightness: Float1
    kinds: tuple[str, ...]

    @property
    def coverage(self) -> float:
        """Share of archives in which the bound held everywhere."""
        return float(self.covered.mean())

    @property
    def interval(self) -> tuple[float, float]:
        """Exact (Clopper-Pearson) 95 % interval of the coverage."""
        test = stats.binomtest(int(self.covered.sum()), len(self.covered))
        low, high = test.proportion_ci(0.95)
        return float(low), float(high)

    @property
    def table(self) -> DataFrame:
        """One line: nominal level, coverage, its interval, tightness, bands."""
        import pandas as pd

        low, high = self.interval
        names, counts = np.unique(self.kinds, return_counts=True)
        line = {
            "level": self.level,
            "coverage": self.coverage,
            "low": low,
            "high": high,
            "reps": len(self.covered),
            "bound / error": float(np.median(self.tightness)),
            "bands": ", ".join(f"{n} {c}" for n, c in zip(names, counts, strict=True)),
        }
        return pd.DataFrame([line])

    def __repr__(self) -> str:
        low, high = self.interval
        verdict = "not contradicted" if high >= self.level else "falls short"
        return (
            f"Study: {verdict}; realised coverage {self.coverage:.1%} [{low:.1%}, {high:.1%}] at "
            f"nominal {100 * self.level:.4g}%, {len(self.covered)} simulated archives"
            f"{'' if len(self.covered) >= 100 else ' (too few to tell: 200 or more would)'}"
        )

    def _repr_html_(self) -> str:
        return f"<pre>{self!r}</pre>{self.table.to_html(float_format='{:.3g}'.format)}"


def calibration_study(
    law: UnfittedLaw,
    history: History,
    features: Features,
    *,
    reps: int = 200,
    level: float = 0.95,
    seed: int,
    band: BandChoice = "auto",
) -> CoverageStudy:
    """Simulate archives from the fitted law, refit, recalibrate, count.

    law : not yet fitted, of any kind; one that does not say how unsure it is of its mean, as a
    regressor, is taken at its word. It is fitted to ``history``; its posterior mixture is then the
    truth: W is redrawn given the recorded S, units are split, the law refitted on one half and
    calibrated with the other, and the bound compared with the now known error at every held-out
    context in the domain.

    It tells whether the recipe works for a truth like the fitted law, at this size, with these S;
    it says nothing about truths the law cannot express.
    """
    whole(reps, "calibration_study: reps", 1)
    if not isinstance(law, UnfittedLaw):
        raise ModelError(
            f"calibration_study: a law that can be fitted again was expected, but got "
            f"{type(law).__name__}; pass the law itself, e.g. linear_lags(19)."
        )
    check_level(level, "calibration_study")
    truth = law.fit(history, seed=seed)
    covered, tightness, kinds = [], [], []
    steps = bar(total=reps, label="calibration study")
    for rep in range(reps):
        rng = stream(seed, "study", rep)
        made = replace(history, w=_redraw(truth, history, rng))
        fit, held_out = made.split(seed=seed + rep)
        fitted = law.fit(fit, seed=seed)
        calibration = calibrate(fitted, held_out, features, level=level, seed=seed + rep, band=band)
        if not calibration.parts:
            raise DataError(f"calibration_study: there is no band to study. {calibration.why}")
        s = calibration.contexts
        wrong = np.abs(
            expected_features(truth, features, s, size=SIZE, rng=rng).mean
            - expected_features(fitted, features, s, size=SIZE, rng=rng).mean
        )
        judge = calibration.inside & np.isfinite(calibration.error).all((1, 2))
        if not judge.any():
            raise DataError("calibration_study: no held-out context lies in the band's domain.")
        error, wrong = calibration.error[judge], wrong[judge]
        covered.append(bool((wrong <= error).all()))
        tightness.append(float(error.max((1, 2)).mean() / max(wrong.max(), 1e-300)))
        kinds.append(calibration.parts[0].band.kind)
        steps.update()
    steps.close()
    return CoverageStudy(level, np.array(covered), np.array(tightness), tuple(kinds))


def _redraw(truth: FittedLaw, history: History, rng: np.random.Generator) -> Float2:
    """Draw W anew from the fitted law at the complete rows; the others are left out."""
    complete = history.rows(truth.summary).at
    out = np.full_like(history.w, np.nan)
    block = max(VALUES // (DRAWS * out.shape[1]), 1)
    for start in range(0, len(complete), block):
        at = complete[start : start + block]
        # posterior draws equally often, then one of them per row: rows do not share parameters
        drawn = truth(history, at).draws(DRAWS, rng=rng)
        pick = rng.integers(DRAWS, size=(1, len(at), 1))
        out[at] = np.take_along_axis(drawn, pick, axis=0)[0]
    return out
