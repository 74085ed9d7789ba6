"""diagnose: put every question to a law on units it was not fitted on."""

from __future__ import annotations

import numpy as np

from pulse_pyro.arrays import Bool, Float3, whole
from pulse_pyro.diagnostics.baselines import RowScores, baselines, draws_crps
from pulse_pyro.diagnostics.by_unit import estimated
from pulse_pyro.diagnostics.calibrated import coverage_check, pit_check
from pulse_pyro.diagnostics.convergence import convergence
from pulse_pyro.diagnostics.leaks import leak_check, refuse_leaks
from pulse_pyro.diagnostics.predictions import Predictions, predictions
from pulse_pyro.diagnostics.replicates import replicate_check
from pulse_pyro.diagnostics.result import Comparison, Diagnostics, Evidence
from pulse_pyro.diagnostics.scores import comparisons, has_density, score_checks
from pulse_pyro.diagnostics.skill import skill_check
from pulse_pyro.diagnostics.trend import spread_check, trend_check
from pulse_pyro.errors import DataError, ModelError
from pulse_pyro.history import History
from pulse_pyro.laws.filtered import Filtered
from pulse_pyro.laws.fitted import FittedLaw
from pulse_pyro.seeds import stream
from pulse_pyro.serial import serial_check, serial_dependence
from pulse_pyro.verdicts import Check

TESTS = ("trend ", "coverage ", "pit ", "spread ", "replicates ", "serial ")
FEW = Check(
    "few units", "warn", float("nan"), float("nan"),
    "No test could judge this law: hold out more units, 8 of similar length at least.",
)  # fmt: skip
GAPS = 100  # rows that lack an input, at least, to judge them


def diagnose(
    fitted: FittedLaw, held_out: History, *, seed: int, size: int = 400,
    archive: History | None = None,
) -> Diagnostics:  # fmt: skip
    """Check a law on units it was not fitted on.

    Parameters
    ----------
    fitted : the law.
    held_out : other units; units the law has seen raise LeakageError.
    seed, size : predictive draws.
    archive : units to fit the baselines on, best those the law was fitted on; by default each
        held-out unit is scored by baselines fitted on others of them.

    Checks, in this order: rows that were judged; convergence, by the kind of inference; log score;
    then for each W its skill (share of variance explained), a trend in its residuals, coverage of
    predictive intervals, PIT, whether the law is too narrow here and too wide there, CRPS,
    replicated archives, and serial dependence of what is left, which would mean that earlier
    rewards tell more than S. Scores are set against climatology and
    a linear law. Rows that lack an input are judged apart, where the law answers them.

    Units are taken as independent, rows of one unit are not. Six checks of each W are tests of a
    right law, of nominal size 1 in 100 (warn) and 1 in 1,000 (fail): trend, coverage, PIT, spread,
    replicates, serial. So with one W the worst of them warns of a right law up to 6 times in 100
    and fails it 6 times in 1,000, and with k W up to k times as often. All are "info" with
    fewer than 8 units, the first five also with lengths so unequal that they are worth fewer;
    serial, whose units' sums have mean 0 each, is only cautious then. The others have no size:
    skill and scores speak of every law, right or not, where S tells little about W; r_hat,
    effective draws, divergences, loss and Pareto shape are held against limits. A law may pass and
    still be wrong in places the held-out units do not visit (see ``Domain``), or have seen part of
    them under other names, which nothing shows unless ``archive`` is given.

    >>> import pulse_pyro as pp
    >>> made = pp.w_times_action().archive(units=40, length=30, rng=pp.stream(0, "archive"))
    >>> fit, held_out = made.split(seed=0)
    >>> found = pp.diagnose(pp.linear_lags(5).fit(fit, seed=0), held_out, seed=0)
    >>> found.table.loc[["coverage w", "pit w"], "verdict"].tolist()
    ['pass', 'pass']
    """
    whole(size, "diagnose: size", 100)
    _refuse(fitted, held_out, archive)
    held_out.rows(fitted.summary)  # refuses, with a sentence, if no row is complete
    x = fitted.summary(held_out.s)
    complete: Bool = np.asarray(np.isfinite(x).all(-1))
    found = predictions(fitted, held_out, complete, stream(seed, "diagnose"), size)
    if not found.used.any():
        raise DataError(
            f"diagnose: {fitted.law.label} answers none of the {int(complete.sum())} complete rows "
            "of the held-out units; look at its mean there."
        )
    extra = estimated(fitted, found.used)
    gains = _gains(fitted, held_out, found, archive, seed)
    leak = leak_check(fitted, held_out)
    scores = {check.name: check for check in score_checks(gains)}
    checks = [
        _rows(held_out, found.used), *([leak] if leak else []), *convergence(fitted.record),
        *(check for name, check in scores.items() if name == "log score"),
    ]  # fmt: skip
    for j, name in enumerate(held_out.w_names):
        w, mean, pit = found.w[..., j], found.mean[..., j], found.pit[..., j]
        left = np.where(_lags_seen(fitted, held_out.s[: len(w)]), w - mean, np.nan)
        checks += [
            skill_check(name, w, mean, extra),
            trend_check(name, w, mean, extra),
            coverage_check(name, pit, extra),
            pit_check(name, pit, extra),
            spread_check(name, pit, mean, extra),
            *(check for key, check in scores.items() if key == f"crps {name}"),
            replicate_check(name, w, found.draws[..., j], extra),
            serial_check(name, serial_dependence(left, x[: len(left)])),
        ]
    checks += [] if _judged(checks) else [FEW]
    if fitted.conditions:
        checks += _gaps(fitted, held_out, ~complete, seed, size)
    evidence = Evidence(held_out.w_names, found.w, found.mean, found.pit, tuple(gains))
    return Diagnostics(tuple(checks), evidence)


def _judged(checks: list[Check]) -> bool:
    """Whether any test of the law came to a verdict."""
    return any(c.name.startswith(TESTS) and c.verdict != "info" for c in checks)


def _refuse(fitted: FittedLaw, held_out: History, archive: History | None) -> None:
    if not isinstance(fitted, FittedLaw):
        raise ModelError(
            f"diagnose: a fitted law was expected, {type(fitted).__name__} came; fit it first: "
            "law.fit(history, seed=0)."
        )
    if not isinstance(held_out, History):
        raise DataError(
            f"diagnose: a History was expected, {type(held_out).__name__} came; pass the held-out "
            "part of History.split."
        )
    for part, what in ((held_out, "held-out units have"), (archive, "archive has")):
        for kind in ("s_names", "w_names") if part is not None else ():
            fitted_on, came = getattr(fitted, kind), getattr(part, kind)
            if fitted_on != came:
                odd = sorted(set(fitted_on) ^ set(came)) or [came[0]]
                raise DataError(
                    f"diagnose: the law was fitted on columns {fitted_on}, but the {what} "
                    f"{came}; {odd[0]!r} does not match."
                )
    refuse_leaks(fitted, held_out, archive)


def _rows(held_out: History, used: Bool) -> Check:
    return Check(
        "rows", "info", float(used.sum()), float(held_out.rows_seen),
        f"Held-out rows judged, of {int(used.any(1).sum())} of {len(held_out.units)} units; the "
        "others lack an input or W, or were left out to save memory.",
    )  # fmt: skip


def _lags_seen(fitted: FittedLaw, s: Float3) -> Bool:
    """Tell rows whose lags were seen: elsewhere earlier W do tell more, whatever the law."""
    raw = fitted.summary.window if isinstance(fitted.summary, Filtered) else fitted.summary
    return np.asarray(np.isfinite(raw(s)).all(-1))


def _gains(
    fitted: FittedLaw, held_out: History, found: Predictions, archive: History | None, seed: int
) -> list[Comparison]:
    used, units = found.used, len(found.used)
    own = RowScores(np.full(int(used.sum()), np.nan), draws_crps(found.draws, found.w[used]))
    if has_density(found.draws):
        own.log[:] = fitted.log_density(held_out.s[:units], held_out.w[:units])[used]
    others = baselines(fitted, held_out, used, archive, seed, len(found.draws))
    return comparisons(own, others, used, held_out.w_names, estimated(fitted, used))


def _gaps(fitted: FittedLaw, held_out: History, short: Bool, seed: int, size: int) -> list[Check]:
    """Judge rows that lack an input on their own: answers there rest on more assumptions."""
    if (held_out.seen & short & np.isfinite(held_out.w).all(-1)).sum() < GAPS:
        return []
    found = predictions(fitted, held_out, short, stream(seed, "gaps"), size)
    if found.used.sum() < GAPS:  # the law refused most of them
        return []
    extra = estimated(fitted, found.used)
    return [
        coverage_check(f"{name}, inputs unseen", found.pit[..., j], extra)
        for j, name in enumerate(held_out.w_names)
    ]
