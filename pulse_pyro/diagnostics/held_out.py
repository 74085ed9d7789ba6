"""diagnose: put every question to a law on units it was not fitted on."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from pulse_pyro._core.arrays import Bool, Float2, Float3, Int, whole
from pulse_pyro._core.errors import DataError
from pulse_pyro._core.registry import named
from pulse_pyro._core.seeds import stream
from pulse_pyro.base import Check, Checks, FittedLaw
from pulse_pyro.data.history import History
from pulse_pyro.diagnostics import CHECKS, LAW_CHECKS
from pulse_pyro.diagnostics.by_unit import Place, estimated
from pulse_pyro.diagnostics.leaks import refuse_leaks
from pulse_pyro.diagnostics.pit import UNSEEN
from pulse_pyro.diagnostics.result import Diagnostics, Evidence, ScoreComparison
from pulse_pyro.diagnostics.scores import (
    RowScores,
    baselines,
    comparisons,
    draws_crps,
    has_density,
)
from pulse_pyro.laws.adapter import as_law
from pulse_pyro.laws.filtering import Filtered

# What a law says about held-out rows: expectations, draws, and where W fell among them.


NUMBERS = 50_000_000  # predictive draws held at a time: 400 MB


class Predictions(NamedTuple):
    """Rows that were judged, and what the law says about them.

    row : (n,) their numbers in the archive, rising. w, mean, pit : (n, w_dim). draws : (size, n,
    w_dim); draw m of all rows shares one posterior draw. place : unit and step of the rows.
    """

    row: Int
    w: Float2
    mean: Float2
    pit: Float2
    draws: Float3
    place: Place

    @property
    def unit(self) -> Int:
        """(n,) units of the rows."""
        return self.place.unit


def predictions(
    fitted: FittedLaw, held_out: History, where: Bool, rng: np.random.Generator, size: int
) -> Predictions:
    """Predict the rows of ``held_out`` where (rows,) is True and W is known.

    PIT: u = (draws below w + V (draws equal to w + 1)) / (size + 1), V uniform. If w and the draws
    come from one law, u is exactly uniform, whatever the size, and for counts too.
    """
    usable = where & np.isfinite(held_out.w).all(-1)
    # whole units, as many as memory allows
    rows = np.cumsum(np.bincount(held_out.unit_of[usable], minlength=len(held_out.units)))
    most = max(int((rows <= NUMBERS // (size * len(held_out.w_names))).sum()), 2)
    row = np.flatnonzero(usable & (held_out.unit_of < most))
    asked = fitted(held_out, row)
    mean, draws = asked.mean(), asked.draws(size, rng=rng)
    answered = np.isfinite(mean).all(-1)  # rows the law refuses after all are not judged
    if not answered.all():
        row, mean, draws = row[answered], mean[answered], draws[:, answered]
    w = held_out.w[row]
    place = Place(held_out.unit_of[row], held_out.step[row])
    return Predictions(row, w, mean, _ranks(draws, w, rng), draws, place)


def _ranks(draws: Float3, w: Float2, rng: np.random.Generator) -> Float2:
    below, equal = (draws < w).sum(0), (draws == w).sum(0)
    out: Float2 = (below + rng.random(w.shape) * (equal + 1.0)) / (len(draws) + 1.0)
    return out


# What every check is handed.


GAPS = 100  # rows that lack an input, at least, to judge them


@dataclass(frozen=True, eq=False)
class HeldOut:
    """A law and what held-out units say about it: what every check of ``diagnose`` is handed.

    Attributes
    ----------
    fitted, history : the law, and units it was not fitted on.
    archive : units to fit baselines on, or None.
    seed, size : of predictive draws.
    x : (rows, p) inputs of the law at every row.
    found : recorded W, expectation, PIT and draws at the complete rows.
    """

    fitted: FittedLaw
    history: History
    archive: History | None
    seed: int
    size: int
    x: Float2
    found: Predictions

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns of W."""
        return self.history.w_names

    @cached_property
    def extra(self) -> float:
        """What the variance of a mean over units grows by, the law being estimated."""
        return estimated(self.fitted, self.found.unit)

    @cached_property
    def lags_seen(self) -> Bool:
        """Judged rows (n,) whose lags were seen: elsewhere earlier W do tell more, always."""
        summary = self.fitted.summary
        raw = self.history.inputs(summary.window) if isinstance(summary, Filtered) else self.x
        return np.asarray(np.isfinite(raw[self.found.row]).all(-1))

    @cached_property
    def comparisons(self) -> list[ScoreComparison]:
        """What the law gains over climatology and a line, in every score."""
        fitted, found = self.fitted, self.found
        own = RowScores(np.full(len(found.row), np.nan), draws_crps(found.draws, found.w))
        if has_density(found.draws):
            log = fitted(self.history, found.row).joint_log_density(found.w)
            if log is not None:
                own.log[:] = log
        size = len(found.draws)
        others = baselines(fitted, self.history, found.row, self.archive, self.seed, size)
        return comparisons(own, others, found.unit, self.names, self.extra)

    @cached_property
    def gaps(self) -> tuple[Predictions, float] | None:
        """Predictions and ``extra`` of rows that lack an input; None where they are few."""
        history = self.history
        short: Bool = np.asarray(~np.isfinite(self.x).all(-1))
        recorded = short & np.isfinite(history.w).all(-1)
        if recorded.sum() < GAPS:
            return None
        found = predictions(self.fitted, history, short, stream(self.seed, "gaps"), self.size)
        if len(found.row) < GAPS:  # the law refused most of them
            return None
        return found, estimated(self.fitted, found.unit)


def ask_rows(case: HeldOut) -> list[Check]:
    """Say how much was judged."""
    found, history = case.found, case.history
    text = (
        f"Held-out rows judged, of {len(np.unique(found.unit))} of {len(history.units)} units; the "
        "others lack an input or W, or were left out to save memory."
    )
    return [Check("rows", "info", float(len(found.row)), float(len(history.s)), text)]


TESTS = ("trend ", "coverage ", "pit ", "spread ", "replicates ", "serial ")
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
    found = predictions(fitted, held_out, complete, stream(seed, "diagnose"), size)
    if not len(found.row):
        raise DataError(
            f"diagnose: the law answers none of the {int(complete.sum())} complete rows "
            "of the held-out units; look at its mean there."
        )
    case = HeldOut(fitted, held_out, archive, seed, size, x, found)
    checks = [check for name in LAW_CHECKS for check in named(LAW_CHECKS, name)(case)]
    for j in range(len(case.names)):
        checks += [check for name in CHECKS for check in named(CHECKS, name)(case, j)]
    checks += [] if _judged(checks) else [FEW]
    evidence = Evidence(
        case.names, found.row, found.unit, found.w, found.mean, found.pit, tuple(case.comparisons)
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
            "held-out "
            "part of History.split."
        )
    for part, what in ((held_out, "held-out units have"), (archive, "archive has")):
        for kind in ("s_names", "w_names") if part is not None else ():
            fitted_on, got = getattr(fitted.schema, kind), getattr(part, kind)
            if fitted_on != got:
                odd = sorted(set(fitted_on) ^ set(got)) or [got[0]]
                raise DataError(
                    f"diagnose: the law was fitted on columns {fitted_on}, but the {what} "
                    f"{got}; {odd[0]!r} does not match."
                )
    refuse_leaks(fitted, held_out, archive)
