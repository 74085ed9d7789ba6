"""diagnose: put every question to a law on units it was not fitted on."""

from __future__ import annotations

import numpy as np

from pulse_pyro._core.arrays import Bool, whole
from pulse_pyro._core.errors import DataError
from pulse_pyro._core.registry import named
from pulse_pyro._core.seeds import stream
from pulse_pyro.base import Check, Checks, FittedLaw
from pulse_pyro.data.history import History
from pulse_pyro.diagnostics import CHECKS, LAW_CHECKS
from pulse_pyro.diagnostics.case import HeldOut, predictions
from pulse_pyro.diagnostics.leaks import refuse_leaks
from pulse_pyro.diagnostics.pit import UNSEEN
from pulse_pyro.diagnostics.result import Diagnostics, Evidence
from pulse_pyro.diagnostics.scores import compared
from pulse_pyro.laws.adapter import as_law


def ask_rows(case: HeldOut) -> list[Check]:
    """Say how much was judged."""
    judged, history = case.judged, case.history
    text = (
        f"Held-out rows judged, of {len(np.unique(judged.unit))} of {len(history.units)} units; "
        "the others lack an input or W, or were left out to save memory."
    )
    return [Check("rows", "info", float(len(judged.row)), float(len(history.s)), text)]


TESTS = (
    "trend ",
    "interactions ",
    "time ",
    "unit length ",
    "coverage ",
    "pit ",
    "spread ",
    "unit spread ",
    "replicates ",
    "serial ",
    "dependence ",
)
FEW = Check(
    "few units",
    "warn",
    float("nan"),
    float("nan"),
    "No test could judge this law: hold out more units, 8 of similar length at least.",
)


def diagnose(
    fitted: FittedLaw,
    held_out: History,
    *,
    seed: int,
    size: int = 400,
    archive: History | None = None,
) -> Diagnostics:
    """Check a law on units it was not fitted on.

    Parameters
    ----------
    fitted : the law.
    held_out : other units; units the law has seen raise LeakageError.
    seed, size : predictive draws.
    archive : units to fit the baselines on, best those the law was fitted on; by default each
        held-out unit is scored by baselines fitted on others of them.

    Checks, in this order: rows that were judged; convergence, by the kind of inference; log score;
    then for each W whether only its mean can be judged (W of few values under a density), skill
    (share of variance explained), what is left of it against the law's expectation (trend),
    products of inputs, time, and how long units stay; coverage of predictive intervals, PIT,
    whether the law is too narrow here and too wide there, or for some units; CRPS (of W of few
    values: Brier's score, RPS), replicated archives, and dependence of what is left on neighbouring
    rows (serial) and among all rows of a unit, which would mean that earlier rewards tell more than
    S. Scores are set against climatology and a linear law. Rows that lack an input are judged
    apart, where the law answers them.

    Clusters (``History.cluster``; units by default) are taken as independent, rows of one are not.
    Eleven checks of each W are tests of a right law, of nominal size 1 in 100 (warn) and 1 in 1,000
    (fail) over all W together: trend, interactions, time, unit length, coverage, PIT, spread, unit
    spread, replicates, serial, dependence. So the worst of them warns of a right law up to 11 times
    in 100 and fails it 11 times in 1,000; as most are cautious, it was 0 to 4 and 0 to 1 of 100
    archives in simulations (``tests/studies/test_false_alarms.py``). All are "info" with fewer than
    8 clusters, all but serial and dependence also with sizes so unequal that they are worth fewer;
    these two, whose sums have mean 0 each, are only cautious then. The others have no size:
    skill and scores speak of every law, right or not, where S tells little about W; r_hat,
    effective draws, divergences, loss and Pareto shape are held against limits. A law may pass and
    still be wrong in places the held-out units do not visit (see ``Domain``), or have seen part of
    them under other names, which nothing shows unless ``archive`` is given.

    >>> import pulse_pyro as pp
    >>> made = pp.envs.w_times_action().archive(units=40, length=30, rng=pp.stream(0, "archive"))
    >>> fit, held_out = made.split(seed=0)
    >>> found = pp.diagnose(pp.linear_lags(5).fit(fit, seed=0), held_out, seed=0)
    >>> found.table.loc[["coverage w", "pit w"], "verdict"].tolist()
    ['pass', 'pass']
    """
    whole(size, "diagnose: size", 100)
    fitted = as_law(fitted, "diagnose")
    _refuse(fitted, held_out, archive)
    held_out.rows(fitted.summary)  # refuses, with a sentence, if no row is complete
    x = held_out.inputs(fitted.summary)
    complete: Bool = np.asarray(np.isfinite(x).all(-1))
    judged = predictions(fitted, held_out, complete, stream(seed, "diagnose"), size)
    if not len(judged.row):
        raise DataError(
            f"diagnose: the law answers none of the {int(complete.sum())} complete rows "
            "of the held-out units; look at its mean there."
        )
    case = HeldOut(
        fitted=fitted,
        history=held_out,
        archive=archive,
        seed=seed,
        size=size,
        x=x,
        judged=judged,
        comparisons=compared(fitted, held_out, archive, judged, seed),
    )
    checks = [check for name in LAW_CHECKS for check in named(LAW_CHECKS, name)(case)]
    for j in range(len(case.names)):
        checks += [check for name in CHECKS for check in named(CHECKS, name)(case, j)]
    checks += [] if _judged(checks) else [FEW]
    evidence = Evidence(
        w_names=case.names,
        row=judged.row,
        unit=judged.unit,
        w=judged.w,
        mean=judged.mean,
        pit=judged.pit,
        comparisons=case.comparisons,
    )
    return Diagnostics(Checks(checks), evidence)


def _judged(checks: list[Check]) -> bool:
    """Whether any test of the law at complete rows came to a verdict."""
    tests = [c for c in checks if c.name.startswith(TESTS) and not c.name.endswith(UNSEEN)]
    return any(check.verdict != "info" for check in tests)


def _refuse(fitted: FittedLaw, held_out: History, archive: History | None) -> None:
    if not isinstance(held_out, History):
        raise DataError(
            f"diagnose: a History was expected, but got {type(held_out).__name__}; pass the "
            "held-out part of History.split."
        )
    for part, what in ((held_out, "held-out units have"), (archive, "archive has")):
        if part is not None:
            fitted.schema.expect(part.schema, "diagnose", f"the {what}")
    refuse_leaks(fitted, held_out, archive)
