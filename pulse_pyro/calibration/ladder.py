"""Calibrate a law: climb the ladder of claims on units it has not seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pulse_pyro._core.arrays import Bool, Float2, Int
from pulse_pyro._core.errors import DataError, FeatureError, LeakageError, SettingError
from pulse_pyro._core.progress import bar
from pulse_pyro._core.registry import named
from pulse_pyro._core.seeds import stream
from pulse_pyro.bands.band import check_level
from pulse_pyro.base import Check, Checks, FittedLaw
from pulse_pyro.calibration import RUNGS
from pulse_pyro.calibration.calibration import Calibration
from pulse_pyro.calibration.checks import shared_dates
from pulse_pyro.calibration.part import FORECAST, MC_SHARE, BandInputs
from pulse_pyro.calibration.rung import ON_FORECAST, Ask, ErrorRows, Groups, Rung, no_rung
from pulse_pyro.calibration.targets import MissingTargets, Targets, find_targets, phi_sees
from pulse_pyro.calibration.uniform import (
    CURVES,
    MOST_GIVEN,
    ONCE,
    SIZE,
    BandChoice,
    Subject,
    UniformResult,
    is_auto,
    uniform_rung,
)
from pulse_pyro.data.history import History, Rows
from pulse_pyro.diagnostics.leaks import met_before
from pulse_pyro.features import Features
from pulse_pyro.laws.adapter import as_law
from pulse_pyro.laws.fitted import PosteriorLaw, known_cells
from pulse_pyro.laws.step import FittedStepLaw

# checks with one of which failed no band given z feeds a policy, although no form is assumed: the
# noise is not what it is taken to be, or rounds are not exchangeable
NOISE = {"rare values", "dependence within units", "shared dates", "earlier forecasts"}
NOISE |= {"time", "unit length"}
CONTEXTS = 20_000  # held-out rows the summaries are taken over
GROUPS = "groups"
NO_DATES = (
    "equal times of different clusters are not the same date (they do move together, and a time "
    "that all share makes them dependent)"
)
APART = "clusters that share dates do not move together"
FEWEST_DATED = 16  # clusters from which signs tell that those of one date move together
COARSER = 'Declare larger clusters, a place or a period of time: cluster="city", cluster=("week",).'
FITTED_ON = (
    "Not asked: the law was fitted on these very rows; calibrate with held-out units, or cross-fit."
)


def calibrate(
    law: FittedLaw,
    held_out: History,
    features: Features,
    *,
    level: float = 0.95,
    seed: int,
    groups: Groups = None,
    inputs: Sequence[str] | str | None = None,
    band: BandChoice = "auto",
) -> Calibration:
    """Say the strongest true thing about a law's error, by units it has not seen (mode ``split``).

    Parameters
    ----------
    law : fitted on other units; a unit it has seen raises LeakageError.
    held_out : units with (S, W), from History.split.
    features : Phi.
    level : probability of each claim.
    seed : of simulated critical values, of the checks, and of Monte Carlo where it is needed.
    groups : declared beforehand, names of columns or a mapping, see ``calibration.groups``; None:
        the rung groups is not asked.
    inputs : what the band of the rung uniform looks at: names of the law's inputs, of columns of S,
        or "forecast"; None: all the law's inputs, or, where no band in all of them is to be had,
        what Phi sees: its columns of S and the forecasts. inputs="forecast" asks for the latter.
    band : "auto", a kind, a :class:`BandMethod`, or a :class:`Band` made elsewhere, e.g. one that
        the law itself provides (p0 = p^).

    Five rungs, each with a claim of its own, see :class:`Calibration`: uniform (every context at
    once), forecast (given what is forecast), groups, average, and the free line. Independent
    clusters are taken for granted by all of them; what else a rung rests on, it says.

    Examples
    --------
    >>> import pulse_pyro as pp
    >>> history = pp.envs.w_times_action().archive(units=60, length=60, rng=pp.stream(0, "archive"))
    >>> fit, held_out = history.split(seed=0)
    >>> law = pp.linear_lags(19).fit(fit, seed=0)
    >>> phi = pp.terms(["1", "w*a"], 2, observed=["s"], missing=["w"])
    >>> calibration = calibrate(law, held_out, phi, seed=0)
    >>> calibration.verdict, calibration.standing.name
    ('pass', 'forecast')
    >>> calibration.rung("uniform").verdict, bool(calibration.bound.max() < 0.05)
    ('conditional', True)
    >>> float(calibration.error_at(held_out)[..., 0].max())  # "1" does not involve W
    0.0
    """
    law = as_law(law, "calibrate")
    _check(law, held_out, features)
    leaked = met_before(law, held_out)
    if leaked:
        raise LeakageError(
            f"calibrate: {leaked[0]} (and {len(leaked) - 1} more) was fitted on; pass the "
            "held-out part of History.split, or ask for calibration.all_units, and read what it "
            "relies on."
        )
    return _climb(
        law,
        held_out,
        features,
        level=level,
        seed=seed,
        groups=groups,
        inputs=inputs,
        band=band,
        mode="split",
    )


def all_units(
    law: FittedLaw,
    history: History,
    features: Features,
    *,
    level: float = 0.95,
    seed: int,
    inputs: Sequence[str] | str | None = None,
    band: BandChoice = "auto",
) -> Calibration:
    """Bound the law's error with a band on all units, its own included (mode ``all``).

    The triangle bound holds for any law, also one fitted on the same rows: on the event that the
    band covers the truth, r(x) + |m(x) - mu_p^(x)| is deterministic. About twice the rows make it
    smaller than ``split``. It relies on the band alone: the summary and the band's kind must not
    have been chosen by looking at the law's errors on these units, and diagnostics (coverage, PIT)
    still need fresh units. The band is of W itself, never of the law's error, and the other rungs,
    which look at that error, are not asked.
    """
    law = as_law(law, "all_units")
    _check(law, history, features)
    return _climb(
        law,
        history,
        features,
        level=level,
        seed=seed,
        groups=None,
        inputs=inputs,
        band=band,
        mode="all",
    )


def _climb(
    law: FittedLaw,
    history: History,
    features: Features,
    *,
    level: float,
    seed: int,
    groups: Groups,
    inputs: Sequence[str] | str | None,
    band: BandChoice,
    mode: str,
) -> Calibration:
    check_level(level, "calibrate")
    steps = bar(total=2 + len(RUNGS), label="calibrate")
    subject = held_out_subject(law, history, features, level=level, seed=seed, new=mode == "split")
    rows = subject.rows
    made = _uniform(subject, features, inputs, band, level, seed)
    steps.update()
    ask = Ask(level, seed, groups, history.schema, len(history.s))
    rungs = [made.rung]
    together = _shared(rows, seed) if mode == "split" else None
    barred = _barred(rows, together) if mode == "split" else None
    for name in RUNGS:
        if mode != "split":
            rung = no_rung(name, "not asked", FITTED_ON)
        elif barred and not (name == GROUPS and groups is None):
            rung = no_rung(name, "fails", *barred)
        else:
            rung = named(RUNGS, name)(rows, ask)
        rungs.append(rung)
        steps.update()
    if not barred and together is not None:
        rungs = _if_apart(rungs, rows, together)
    rungs = [_given_z(rung, made) for rung in rungs]
    contexts = _some(history, rows, seed)
    if made.part is None:
        shape = (len(contexts.s), features.actions, len(features.names))
        error, inside = np.full(shape, np.nan), np.zeros(len(contexts.s), np.bool_)
    else:
        error, inside = made.part.errors(contexts)
        inside &= made.part.near(contexts)
    steps.update()
    steps.close()
    return Calibration(
        targets=subject.targets,
        parts=() if made.part is None else (made.part,),
        rungs=tuple(rungs),
        level=level,
        mode=mode,
        seed=seed,
        law_id=law.id,
        contexts=contexts,
        error=error,
        inside=inside,
        noise_sd=() if made.part is None else (made.noise_sd,),
        spread=rows.spread,
        why=made.why,
    )


def _uniform(
    subject: Subject,
    features: Features,
    inputs: Sequence[str] | str | None,
    band: BandChoice,
    level: float,
    seed: int,
) -> UniformResult:
    """Try all of the law's inputs, or those asked for; where that fails, what Phi sees."""
    first = uniform_rung(
        subject, band_inputs(subject, features, inputs), band, level=level, seed=seed
    )
    if inputs is not None:
        return first
    z = band_inputs(subject, features, FORECAST)
    affine = isinstance(subject.targets, MissingTargets)
    if first.rung.holds or not is_auto(band) or not affine or not subject.own_error:
        return first
    if first.part is not None and len(z.names) > MOST_GIVEN:
        return first  # a line in what Phi sees rests on more than one in all inputs
    second = uniform_rung(subject, z, band, level=level, seed=seed)
    if second.part is None:
        return first
    # the band in all inputs was refused, not refuted: the smaller one may still be claimed
    rung = second.rung if first.part is None else first.rung
    return second._replace(rung=rung, why=f"{second.why}; given what Phi sees: {first.why}")


def band_inputs(
    subject: Subject, features: Features, inputs: Sequence[str] | str | None
) -> BandInputs:
    """Return what the band looks at; "forecast": all that Phi sees; None: all the law's inputs."""
    rows = subject.rows
    if inputs is None:
        return BandInputs.whole(rows.x_names)
    names = [inputs] if isinstance(inputs, str) else list(inputs) if _listable(inputs) else []
    seen = phi_sees(features, rows.s, subject.history.w[rows.history_row])
    whole = BandInputs.seen_by_phi(seen, rows.s_names, rows.names)
    if names == [FORECAST]:
        return whole
    chosen = BandInputs.named(names, rows.x_names, rows.s_names, rows.names)
    return whole if set(chosen.names) == set(whole.names) else chosen


def _listable(inputs: object) -> bool:
    if isinstance(inputs, Sequence) and all(isinstance(name, str) for name in inputs):
        return True
    raise SettingError(
        f"calibrate: inputs must be names of columns, or 'forecast', but got {inputs!r}."
    )


def _given_z(rung: Rung, made: UniformResult) -> Rung:
    """Let the forecast's rung feed policies where the band is given all that Phi sees."""
    part = made.part
    if rung.name != "forecast" or not rung.holds or part is None or made.bounds is None:
        return rung
    free = part.band.kind in (*CURVES, "tensor")  # no form is assumed, so nothing can be misfit
    if not (part.own_error and part.inputs.given_z and free) or set(made.failed) & NOISE:
        return rung
    rests = [
        *([rung.rests_on] if rung.rests_on else []),
        "every arm is chosen from what Phi sees, past rewards and coins alone",
        "rounds are exchangeable given that" + ("" if made.tested else " (which was not tested)"),
        *([ONCE] if made.dependent else []),
    ]
    fed = f"Policies play with a band given all that Phi sees: {made.bounds.told}."
    return replace(
        rung,
        claim=f"{rung.claim} {fed}",
        benchmark=ON_FORECAST,
        rests_on=", and ".join(rests),
    )


def _if_apart(rungs: list[Rung], rows: ErrorRows, together: Check) -> list[Rung]:
    """Make what goes by cluster conditional where equal times may move together.

    Steps that are plain numbers need be no calendar: then day 3 of one unit is not that of another,
    and a common time course of the law's error is what moves them, which no variance need allow.
    Dates are: there the test must be able to fail, and not be in doubt.
    """
    dates = rows.per_day > 0
    rests = ""
    if not dates and together.verdict == "fail":
        rests = NO_DATES
    elif dates and together.verdict == "warn":
        rests = f"{APART} (in doubt: p = {together.value:.2g})"
    elif dates and rows.clusters < FEWEST_DATED and together.value < 1.0:  # some dates are shared
        rests = f"{APART} ({rows.clusters} clusters are too few to see it)"
    if not rests:
        return rungs
    out = rungs[:1]
    for rung in rungs[1:]:
        if not rung.holds:
            out.append(rung)
            continue
        claim = f"If {rests}: {rung.claim[0].lower()}{rung.claim[1:]}"
        told = Checks([*rung.checks, together]) if rung is rungs[1] else rung.checks
        out.append(
            replace(
                rung,
                verdict="conditional",
                claim=claim,
                rests_on=rests,
                remedy=COARSER,
                checks=told,
            )
        )
    return out


def _barred(rows: ErrorRows, together: Check | None) -> tuple[str, str] | None:
    """Say why no limits by cluster hold here, and what would help; None where they may."""
    still = [name for name, w in zip(rows.names, rows.target.T, strict=True) if not np.ptp(w) > 0]
    if still:
        return (
            f"{still[0]} does not vary in the held-out rows, so nothing tells how far from it the "
            "law may be.",
            f"Hold out more units, or leave {still[0]} out of Phi.",
        )
    if rows.per_day > 0 and together is not None and together.verdict == "fail":
        return (
            "Clusters that share dates move together, so they are not independent, and no limits "
            "by cluster hold.",
            COARSER,
        )
    return None


def _shared(rows: ErrorRows, seed: int) -> Check | None:
    """Ask whether clusters move together at equal times; None where there are no common times."""
    return shared_dates(rows, rows.error - rows.error.mean(0), seed)


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


def held_out_subject(
    law: FittedLaw,
    history: History,
    features: Features,
    *,
    level: float = 0.95,
    seed: int,
    new: bool = True,
) -> Subject:
    """Return the rows of an archive with the law's error; new : whether the law never saw them."""
    rows = history.rows(law.summary)
    keep = np.isfinite(history.s[rows.at]).all(axis=1) & _within_cluster(history, rows, law)
    if not keep.any():
        raise DataError("calibrate: S_t is not seen in any complete held-out row; Phi needs it.")
    at = rows.at[keep]
    now, w = history.s[at], rows.w[keep]
    targets = find_targets(features, now, w, law.schema.w_names)
    exact = isinstance(targets, MissingTargets) and law(history, at[:1]).exact
    observed = targets.observed(now, w)
    forecast, mcse = _forecast(law, history, targets, at, seed)
    error_rows = ErrorRows(
        names=targets.names,
        target=observed,
        forecast=forecast,
        x=rows.x[keep],
        x_names=rows.x_names,
        s=now,
        s_names=history.s_names,
        cluster=np.unique(history.cluster[at], return_inverse=True)[1],
        unit=rows.unit[keep],
        time=rows.time[keep],
        history_row=at,
        date=None if history.dates is None else history.dates[at],
        per_day=1.0 / history.step_days if history.step_days > 0 else 0.0,
    )
    return Subject(
        law=law,
        targets=targets,
        rows=error_rows,
        history=history,
        # others may have jumps; and a forecast with Monte Carlo error would be smoothed with it
        own_error=new and exact and isinstance(law, PosteriorLaw | FittedStepLaw),
        failures=0.0 if exact or _summed(law, history, at, mcse) else MC_SHARE * (1.0 - level),
        mcse=mcse,
    )


def _summed(law: FittedLaw, history: History, at: Int, mcse: Float2) -> bool:
    """Tell whether E[Phi] is a sum over values of W, or of the columns Phi is not affine in."""
    if getattr(law(history, at[:1]), "support", None) is not None:
        return True
    return known_cells(getattr(law, "kernel", None)) is not None and not mcse.any()


BLOCK = 4_000_000  # values of Monte Carlo draws in flight


def _forecast(
    law: FittedLaw, history: History, targets: Targets, at: Int, seed: int
) -> tuple[Float2, Float2]:
    """Return what the law expects of each target at rows ``at``, and its Monte Carlo error, (n, q).

    In blocks of rows, where there are draws to be held.
    """
    exact = isinstance(targets, MissingTargets) and law(history, at[:1]).exact
    each = len(at) if exact else max(BLOCK // SIZE, 1)
    rng = stream(seed, "calibration")
    blocks = [
        targets.predicted(law(history, at[start : start + each]), SIZE, rng)
        for start in range(0, len(at), each)
    ]
    forecast: Float2 = np.concatenate([mean for mean, _ in blocks])
    mcse: Float2 = np.concatenate([error for _, error in blocks])
    if not np.isfinite(forecast).all():
        row = int(np.argwhere(~np.isfinite(forecast))[0][0])
        raise DataError(
            f"calibrate: the law expects {forecast[row]} at row {at[row]} of the held-out units, "
            "whose inputs are complete; a law must answer there with a number."
        )
    return forecast, mcse


def _within_cluster(history: History, rows: Rows, law: FittedLaw) -> Bool:
    """Tell at which rows the lags stay within the row's own cluster of time."""
    if not isinstance(history.schema.cluster, tuple):
        return np.ones(len(rows.at), np.bool_)
    reach = np.maximum(rows.at - (law.summary.memory - 1), history.offsets[:-1][rows.unit])
    return np.asarray(history.cluster[reach] == history.cluster[rows.at])


def _some(held_out: History, rows: ErrorRows, seed: int) -> History:
    """Return the contexts of as many whole units as make about 20,000 rows."""
    count = np.bincount(rows.unit, minlength=len(held_out.units))
    units = np.flatnonzero(count)
    if count.sum() > CONTEXTS:
        units = stream(seed, "contexts").permutation(units)
    most = max(int((np.cumsum(count[units]) <= CONTEXTS).sum()), 1)
    return held_out.take(np.sort(units[:most]))
