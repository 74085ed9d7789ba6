"""Calibrate a law: reference band on held-out units, triangle bound, checks."""

from __future__ import annotations

import numpy as np

from pulse_pyro._core.arrays import Bool, Float2
from pulse_pyro._core.errors import DataError, FeatureError, LeakageError, SettingError
from pulse_pyro._core.progress import bar
from pulse_pyro._core.seeds import stream
from pulse_pyro.bands.auto import Choice, make_band
from pulse_pyro.bands.band import Band, BandFit, BandMethod, Sample, check_level
from pulse_pyro.base import Checks, FittedLaw
from pulse_pyro.calibration.calibration import MC_SHARE, Calibration, Part
from pulse_pyro.calibration.checks import HANDED, band_checks
from pulse_pyro.calibration.targets import MissingTargets, find_targets
from pulse_pyro.data.history import History, Rows
from pulse_pyro.diagnostics.leaks import met_before
from pulse_pyro.features import Features
from pulse_pyro.laws.adapter import as_law

SIZE = 512  # Monte Carlo draws where Phi is not affine or the law's mean not closed form
CONTEXTS = 20_000  # held-out rows the summaries are taken over

BandChoice = str | BandMethod | Band


def calibrate(
    law: FittedLaw,
    held_out: History,
    features: Features,
    *,
    level: float = 0.95,
    seed: int,
    band: BandChoice = "auto",
) -> Calibration:
    """Bound the law's error with units it has not seen (mode ``split``).

    Parameters
    ----------
    law : fitted on other units; a unit it has seen raises LeakageError.
    held_out : units with (S, W), from History.split.
    features : Phi.
    level : probability that the bound holds at all contexts, actions and features at once.
    seed : of simulated critical values, of the checks, and of Monte Carlo where it is needed.
    band : "auto", a kind, a :class:`BandMethod`, or a :class:`Band` made elsewhere, e.g. one that
        the law itself provides (p0 = p^).

    A reference fit p0 on the held-out rows gives a uniform band m(x) +- r(x) for the mean of each
    target: W itself where Phi is affine in it, else each distinct feature that involves W. The
    bound is r(x) + |m(x) - mu_p^(S_1:t)|, see :class:`Calibration` for what it does not cover.

    Examples
    --------
    >>> import pulse_pyro as pp
    >>> history = pp.envs.w_times_action().archive(units=60, length=60, rng=pp.stream(0, "archive"))
    >>> fit, held_out = history.split(seed=0)
    >>> law = pp.linear_lags(19).fit(fit, seed=0)
    >>> phi = pp.terms(["1", "w*a"], 2, observed=["s"], missing=["w"])
    >>> calibration = calibrate(law, held_out, phi, seed=0)
    >>> calibration.verdict, bool(calibration.bound.max() < 0.05)
    ('pass', True)
    >>> float(calibration.error_at(held_out)[..., 0].max())  # "1" does not involve W
    0.0
    """
    law = as_law(law, "calibrate")
    _check(law, held_out, features)
    leaked = met_before(law, held_out)
    if leaked:
        raise LeakageError(
            f"calibrate: {leaked[0]} (and {len(leaked) - 1} more) was fitted on; pass the "
            "held-out part of History.split, or ask for calibrate_all, and read what it relies on."
        )
    return _calibrate(law, held_out, features, level=level, seed=seed, band=band, mode="split")


def calibrate_all(
    law: FittedLaw,
    history: History,
    features: Features,
    *,
    level: float = 0.95,
    seed: int,
    band: BandChoice = "auto",
) -> Calibration:
    """Bound the law's error with a band on all units, its own included (mode ``all``).

    The triangle bound holds for any law, also one fitted on the same rows: on the event that the
    band covers the truth, r(x) + |m(x) - mu_p^(x)| is deterministic. About twice the rows make it
    smaller than ``split``. It relies on the band alone: the summary and the band's kind must not
    have been chosen by looking at the law's errors on these units, and diagnostics (coverage, PIT)
    still need fresh units.
    """
    law = as_law(law, "calibrate_all")
    _check(law, history, features)
    return _calibrate(law, history, features, level=level, seed=seed, band=band, mode="all")


def _calibrate(
    law: FittedLaw,
    held_out: History,
    features: Features,
    *,
    level: float,
    seed: int,
    band: BandChoice,
    mode: str,
) -> Calibration:
    check_level(level, "calibrate")
    steps = bar(total=3, label="calibrate")
    rows, now, keep = _rows(law, held_out)
    targets = find_targets(features, now, rows.w[keep], law.schema.w_names)
    exact = isinstance(targets, MissingTargets) and law(held_out, rows.at[:1]).exact
    failures = 0.0 if exact else MC_SHARE * (1.0 - level)
    sample = Sample(
        rows.x[keep],
        targets.observed(now, rows.w[keep]),
        rows.unit[keep],
        rows.x_names,
        targets.names,
    )
    choice = _band(band, sample, level + failures, seed)
    steps.update()
    part = Part(law, choice.fit.band, targets, failures, SIZE, seed)
    contexts = _some(held_out, rows, seed)
    error, inside = part.errors(contexts)
    steps.update()
    made_here = choice.fit.residual.size > 0
    checks = band_checks(choice.fit, sample, held_out, rows, keep, seed) if made_here else [HANDED]
    steps.update()
    steps.close()
    residual = sample.y - choice.fit.band.at(sample.x).centre
    return Calibration(
        parts=(part,),
        level=level,
        mode=mode,
        seed=seed,
        law_id=law.id,
        contexts=contexts,
        error=error,
        inside=inside,
        noise_sd=(residual.std(0),),
        checks=Checks(checks),
        why=choice.why,
    )


def _check(law: FittedLaw, held_out: History, features: Features) -> None:
    if not isinstance(held_out, History):
        raise DataError(
            f"calibrate: a History was expected, but got {type(held_out).__name__}; use "
            "History.from_frame(frame, unit=..., time=..., observed=[...], missing=[...])."
        )
    if not isinstance(features, Features):
        raise FeatureError(
            f"calibrate: Features(fn, actions, names) expected, but got {type(features).__name__}."
        )
    law.schema.expect(held_out.schema, "calibrate", "the held-out units have")


def _rows(law: FittedLaw, held_out: History) -> tuple[Rows, Float2, Bool]:
    """Return complete rows, S_t of those kept, and which have S_t seen."""
    rows = held_out.rows(law.summary)
    now = held_out.s[rows.at]
    keep = np.asarray(np.isfinite(now).all(axis=1))
    if not keep.any():
        raise DataError("calibrate: S_t is not seen in any complete held-out row; Phi needs it.")
    return rows, now[keep], keep


def _band(band: BandChoice, sample: Sample, level: float, seed: int) -> Choice:
    if isinstance(band, Band):
        if band.x_names != sample.x_names or band.y_names != sample.y_names:
            raise DataError(
                f"calibrate: the band is for {band.y_names} given {band.x_names}, but the law and "
                f"features need {sample.y_names} given {sample.x_names}."
            )
        if band.level < level:
            raise SettingError(
                f"calibrate: the band was made at level {band.level}, {level:g} is needed here "
                "(what is asked for, and a share for Monte Carlo error where there is any)."
            )
        nothing = np.empty((0, len(band.y_names)))
        fit = BandFit(band, np.zeros(0, np.bool_), nothing, lambda columns, _: columns)
        return Choice(fit, "handed over")
    method = BandMethod(band) if isinstance(band, str) else band
    if not isinstance(method, BandMethod):
        raise SettingError(f"calibrate: band must be a name or a BandMethod, but got {band!r}.")
    return make_band(sample, method, level, stream(seed, "band"))


def _some(held_out: History, rows: Rows, seed: int) -> History:
    """Return the contexts of as many whole units as make about 20,000 rows."""
    count = np.bincount(rows.unit, minlength=len(held_out.units))
    units = np.flatnonzero(count)
    if count.sum() > CONTEXTS:
        units = stream(seed, "contexts").permutation(units)
    most = max(int((np.cumsum(count[units]) <= CONTEXTS).sum()), 1)
    return held_out.take(np.sort(units[:most]))
