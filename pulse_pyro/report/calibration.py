"""Sections about a calibration: the ladder, D_t, a band and budget per target, checks."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pulse_pyro._core.errors import PulseError
from pulse_pyro.report.ladder import headline, ladder_sections
from pulse_pyro.report.page import Section, write_report
from pulse_pyro.report.panels import bound_over_contexts, target_panels
from pulse_pyro.report.plots import band_axis, says_the_mean, why_no_errors
from pulse_pyro.report.provenance import provenance_sections

if TYPE_CHECKING:
    from pulse_pyro.calibration.calibration import Calibration
    from pulse_pyro.calibration.planted import SmallestMisfit
    from pulse_pyro.calibration.split_stability import Stability


def calibration_sections(
    calibration: Calibration,
    *,
    theta_bound: float | None = None,
    stability: Stability | None = None,
    misfit: SmallestMisfit | None = None,
) -> list[Section]:
    """Return the sections that show a calibration.

    The claim that stands and its picture, the ladder, groups; then, where errors at single contexts
    hold, D_t over contexts, for every target its band with mu_p0, mu_phat and r(s), and its error
    budget, and what would halve the bound; where they do not, one sentence instead, without
    numbers; last the checks.

    theta_bound : S >= ||theta*||, for the ladder's sizes in units of the reward; where it is not
    known they are told for each unit of it. stability, misfit : of the same law, archive and
    recipe, told beside the conditional claim; where they were not asked for, the page says how to.
    """
    from pulse_pyro.calibration.calibration import Calibration

    if not isinstance(calibration, Calibration):
        raise PulseError(
            "calibration_sections: a Calibration was expected, but got "
            f"{type(calibration).__name__}; "
            "of a CrossFit pass its .calibration."
        )
    return [
        *ladder_sections(calibration, theta_bound, stability, misfit),
        *_single_contexts(calibration),
        *_checks(calibration),
    ]


def write_calibration_report(
    path: str | Path,
    calibration: Calibration,
    *,
    title: str = "Calibration",
    date: str = "",
    theta_bound: float | None = None,
    stability: Stability | None = None,
    misfit: SmallestMisfit | None = None,
) -> Path:
    """Write the report of a calibration alone to ``path`` and return the path.

    date : shown as it comes, and only if given: without it the same calibration gives the same
    page. theta_bound, stability, misfit : as in :func:`calibration_sections`.
    """
    sections = calibration_sections(
        calibration, theta_bound=theta_bound, stability=stability, misfit=misfit
    )
    sections += provenance_sections(
        {"calibration": calibration.law_id}, seed=calibration.seed, date=date
    )
    return write_report(path, title, calibration_verdict(calibration), sections)


def calibration_verdict(calibration: Calibration) -> str:
    """Return the claim that stands, and the uniform one where that is conditional."""
    return headline([(rung.verdict, rung.claim) for rung in calibration.rungs])


def in_domain(outside: float) -> str:
    """Say where a bound holds; outside : share of held-out contexts beyond the domain."""
    if outside >= 1.0:  # the table then speaks of what there is
        return "with no held-out context inside the calibrated domain"
    share = "all" if outside <= 0.0 else f"{math.floor(1000.0 * (1.0 - outside)) / 10.0:g}%"
    return f"inside the calibrated domain ({share} of the held-out contexts)"


def beyond_domain(outside: float, largest: float) -> str:
    """Say what a bound is elsewhere, or nothing; largest : sqrt(max D_t) over all contexts."""
    if outside <= 0.0:
        return ""
    return (
        f"; beyond it an expected feature by up to {largest:.3g}, if the truth is no steeper there"
    )


def _single_contexts(calibration: Calibration) -> list[Section]:
    """Show the errors at single contexts where they hold; else say in words why there are none."""
    if not calibration.usable:
        return [Section("Errors at single contexts", why_no_errors(calibration))]
    return [_overview(calibration), *_targets(calibration), _halving(calibration)]


def _checks(calibration: Calibration) -> list[Section]:
    import pandas as pd

    tables = [
        rung.checks.table.reset_index().assign(rung=rung.name)
        for rung in calibration.rungs
        if rung.checks
    ]
    if not tables:
        return []
    table = pd.concat(tables)
    return [
        Section(
            "Calibration checks",
            "What each rung relies on, as far as held-out units can tell. A check that fails takes "
            "its rung down.",
            table[["name", "rung", *table.columns.drop(["name", "rung"])]].set_index("name"),
        )
    ]


def _overview(calibration: Calibration) -> Section:
    part = calibration.parts[0]
    band, feeds = part.band, calibration.feeds
    assert feeds is not None  # there is a band
    fresh = (
        "all units, the law's own included"
        if calibration.mode == "all"
        else "units the law has not seen"
    )
    how = (
        f"a band of the law's own error on {fresh}, plus the size of the error it finds (mu_p0 is "
        "here the law, corrected by it)"
        if part.own_error
        else f"a band around a reference fit on {fresh}, plus the difference between that fit and "
        "the law"
    )
    failed = [check.text for check in feeds.checks if check.verdict in ("warn", "fail")]
    warning = "\n\nRead the checks first: " + " ".join(failed) if failed else ""
    rests = f" It holds if {feeds.rests_on}." if feeds.rests_on else ""
    d = calibration.bound
    outside = calibration.outside_share
    worst = np.max(calibration.error**2, axis=(1, 2))
    inner = worst[calibration.inside & np.isfinite(worst)]
    found = (
        f"D_t is {inner.mean():.3g} on average in the domain, {inner.max():.3g} at most. "
        if (len(inner))
        else ""
    )
    largest = float(np.sqrt(d.max()))
    return Section(
        "Calibration of D_t",
        f"How far the law's expected features (phihat) can be from the true ones (phibar)"
        f"{_given(calibration)}, over {band.shape.domain}, with probability "
        f"{100 * calibration.level:.4g}%: at each context the half-width r(s) of {how} (mode "
        f"{calibration.mode}). Band: {band.kind.replace('_', ' ')}; {calibration.why}. This is the "
        f"rung {feeds.name}; a policy that plays with it is compared with {feeds.benchmark}."
        f"{rests}\n\n"
        f"{found}The bound holds {in_domain(outside)}{beyond_domain(outside, largest)}. From "
        f"{band.rows:,} rows of {band.units:,} clusters; law {calibration.law_id}.{warning}",
        calibration.table,
        bound_over_contexts(calibration),
        f"Half of the contexts have D_t below {np.median(d):.3g}, nine in ten below "
        f"{np.quantile(d, 0.9):.3g}; the right end of a curve is its worst, {d.max():.3g} in all.",
    )


def _given(calibration: Calibration) -> str:
    """Say what the errors are averages over, where the rung forecast feeds policies."""
    feeds, names = calibration.feeds, ", ".join(calibration.parts[0].inputs.names)
    averaged = feeds is not None and feeds.name == "forecast"
    return f", on average given {names}" if averaged else ""


def _targets(calibration: Calibration) -> list[Section]:
    """One section per target; per half, too, after cross-fitting."""
    out = []
    for i, part in enumerate(calibration.parts):
        half = f", half {i + 1}" if len(calibration.parts) > 1 else ""
        for j, name in enumerate(part.targets.names):
            curve = says_the_mean(part, j)
            across = f"over {band_axis(part, j)}"
            caution = ""
            if not curve:
                across += ", averaged over groups of contexts alike in it, as distance from the law"
                across += " (the line at 0)"
                caution = " Errors that cancel within a group do not show in the picture; the "
                caution += "bound counts them context by context."
            out.append(
                Section(
                    f"Band and error budget: {name}{half}",
                    f"Above, {across}: the reference fit mu_p0, its band of half-width r(s), and "
                    f"the law's own expectation mu_phat. Below: the bound on the law's error, r(s) "
                    f"plus the difference |mu_p0 - mu_phat|. {part.band.made[j].capitalize()}."
                    f"{caution}",
                    None,
                    target_panels(calibration, j, i),
                    "Where the dashed line leaves the band the law is off; the height of the "
                    "stacked areas is what the policy must allow for.",
                )
            )
    return out


def _halving(calibration: Calibration) -> Section:
    from pulse_pyro.calibration.halving import halving_table, halvings
    from pulse_pyro.calibration.reference_values import references

    steps = halvings(calibration)
    return Section(
        "What halves the bound",
        "Computed from the error budget; half the bound is a quarter of D_t.\n\n"
        + "\n\n".join(step.sentence for step in steps)
        + "\n\nr falls with the units the band is made from, at a rate known from its kind; the "
        "difference falls with the units of both law and band if it is chance, and not at all if "
        "the law is wrong. Orders of magnitude: pulse-pyro plan measures the decay.",
        halving_table(steps),
        more=(
            (
                "The bound beside the KL route, which pays a factor 1 / noise sd, and beside "
                "theoretical rates, orders without constants.",
                references(calibration),
            ),
        ),
    )
