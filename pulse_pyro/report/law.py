"""Sections about the archive, the law and what held-out units say about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pulse_pyro._core.seeds import stream
from pulse_pyro.report.page import Section
from pulse_pyro.report.panels import WIDTH, columns_over_time, evidence_panels
from pulse_pyro.report.plots import axis, law_track

if TYPE_CHECKING:
    from pulse_pyro.base import ModelCard
    from pulse_pyro.data.history import History
    from pulse_pyro.diagnostics.result import Diagnostics, Evidence
    from pulse_pyro.laws.fitted import PosteriorLaw
    from pulse_pyro.laws.step import FittedStepLaw

SHOWN = 60  # parameters listed, at most
DRAWS = 400  # of W along a unit, for the intervals of a picture


def data_sections(history: History, fit_units: int | None = None) -> list[Section]:
    """Return what the archive holds.

    fit_units : how many of its units, or of their clusters, the law was fitted on; the others were
    held out.
    """
    pieces = "units" if history.clusters == history.units else "clusters"
    lengths = history.lengths
    shortest, longest = int(lengths.min()), int(lengths.max())
    each = f"{longest}" if shortest == longest else f"{shortest} to {longest}"
    held = (
        ""
        if fit_units is None
        else (
            f" The law was fitted on {fit_units} {pieces}; the other "
            f"{len(history.clusters) - fit_units} were held out to judge it."
        )
    )
    return [
        Section(
            "Data",
            f"The archive holds {len(history.s):,} rows of {len(history.units):,} units, {each} "
            "a unit. S is also seen online; W is only in the archive, and must be imputed when "
            f"decisions are made.{held}",
            history.table,
            columns_over_time(history),
            "A level or spread that drifts over time would mean that archived rounds are not "
            "alike: the law must then know the time.",
        )
    ]


def law_sections(
    fitted: PosteriorLaw | FittedStepLaw,
    held_out: History,
    *,
    seed: int,
    card: ModelCard | None = None,
) -> list[Section]:
    """Return the fitted law with, for each column of W, one held-out unit and its intervals.

    card : what the contract check found, shown beside it.
    """
    most = int(held_out.lengths.argmax())  # the unit with most to show
    longest = held_out.take([most])
    draws = fitted(longest).draws(DRAWS, rng=stream(seed, "track"))
    table = fitted.table
    some = f" Its first {SHOWN} of {len(table):,} are listed." if len(table) > SHOWN else ""
    out = []
    for j, name in enumerate(held_out.w_names):
        first = j == 0
        out.append(
            Section(
                "Law" if first else f"Law: {name}",
                "The law of W given the past of S: its parameters, and what it says about a unit "
                f"it has never seen.{some}"
                if first
                else f"The same unit, {name}.",
                table.head(SHOWN) if first else None,
                law_track(fitted, longest, draws[:, :, j], axis(None, WIDTH, 3.4), target=j),
                "Recorded values should lie inside the band nine times out of ten; where lags are "
                "incomplete the band is wider or missing.",
                f"{fitted!r}" + (f"\n\n{card!r}" if card is not None else "") if first else "",
            )
        )
    return out


def diagnostics_sections(diagnostics: Diagnostics) -> list[Section]:
    """Return the questions put to the law on held-out units, then the evidence for each W.

    Checks that carry no predictions, such as those of online contexts, are a table alone.
    """
    bad = [check.name for check in diagnostics.checks if check.verdict in ("warn", "fail")]
    found = f"Look at: {', '.join(bad)}." if bad else "Nothing speaks against the law."
    verdict = Section(
        "Diagnostics",
        f"Verdict: {diagnostics.verdict}. Questions put to the law on units it has not seen. "
        f"{found} They can show a law to be wrong, not that it is right everywhere.",
        diagnostics.table,
    )
    evidence = diagnostics.evidence
    if evidence is None:
        return [verdict]
    return [verdict, *(_evidence(evidence, j) for j in range(len(evidence.w_names)))]


def _evidence(evidence: Evidence, j: int) -> Section:
    name = evidence.w_names[j]
    return Section(
        f"Evidence: {name}",
        "From the top: where recorded values fall among the law's draws (PIT); how often its "
        "intervals hold what they state; what is left of W over its expectation; what the law "
        "gains over guessing from the archive alone (climatology) and over a straight line.",
        None,
        evidence_panels(evidence, j),
        "A law that fits has a flat histogram, a curve along the dots, residuals around 0 and "
        "scores right of 0.",
    )
