"""Sections about a calibration: D_t, a band and a budget per target, what halves it, checks."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pulse_pyro._core.errors import PulseError
from pulse_pyro.report.page import Section, write_report
from pulse_pyro.report.panels import bound_over_contexts, target_panels
from pulse_pyro.report.provenance import provenance_sections

if TYPE_CHECKING:
    from pulse_pyro.calibration.calibration import Calibration


def calibration_sections(calibration: Calibration) -> list[Section]:
    """Return the sections that show a calibration.

    D_t over contexts; for every target its band with mu_p0, mu_phat and r(s), and its error budget;
    what would halve the bound; the checks it relies on.
    """
    from pulse_pyro.calibration.calibration import Calibration

    if not isinstance(calibration, Calibration):
        raise PulseError(
            "calibration_sections: a Calibration was expected, but got "
            f"{type(calibration).__name__}; "
            "of a CrossFit pass its .calibration."
        )
    return [
        _overview(calibration),
        *_targets(calibration),
        _halving(calibration),
        Section(
            "Calibration checks",
            "What the bound relies on, as far as held-out units can tell. A check that fails "
            "means: do not use this bound.",
            calibration.checks_table,
        ),
    ]


def write_calibration_report(
    path: str | Path, calibration: Calibration, *, title: str = "Calibration of D_t", date: str = ""
) -> Path:
    """Write the report of a calibration alone to ``path`` and return the path.

    date : shown as it comes, and only if given: without it the same calibration gives the same
    page.
    """
    sections = calibration_sections(calibration)
    sections += provenance_sections(
        {"calibration": calibration.law_id}, seed=calibration.seed, date=date
    )
    return write_report(path, title, calibration_verdict(calibration), sections)


def calibration_verdict(calibration: Calibration) -> str:
    """Return, in two sentences, whether the bound can be used and how large it is."""
    table = calibration.table
    each = "; ".join(
        f"{name}: {mean:.3g} on average, {top:.3g} at worst"
        for name, mean, top in zip(
            table.index, table["bound mean"], table["bound sup"], strict=True
        )
    )
    outside, largest = calibration.outside_share, float(np.sqrt(calibration.bound.max()))
    return (
        f"Calibration: {calibration.verdict}. With probability {100 * calibration.level:.4g}% the "
        f"law's expectation is off, {in_domain(outside)}, by at most ({each})"
        f"{beyond_domain(outside, largest)}."
    )


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


def _overview(calibration: Calibration) -> Section:
    band = calibration.parts[0].band
    fresh = (
        "all units, the law's own included"
        if calibration.mode == "all"
        else "units the law has not seen"
    )
    failed = [check.text for check in calibration.checks if check.verdict in ("warn", "fail")]
    warning = "\n\nRead the checks first: " + " ".join(failed) if failed else ""
    d = calibration.bound
    worst = np.max(calibration.error**2, axis=(1, 2))
    inner = worst[calibration.inside & np.isfinite(worst)]
    found = (
        f"D_t is {inner.mean():.3g} on average in the domain, {inner.max():.3g} at most. "
        if (len(inner))
        else ""
    )
    return Section(
        "Calibration of D_t",
        f"How far the law's expected features (phihat) can be from the true ones (phibar), over "
        f"{band.shape.domain}, with probability {100 * calibration.level:.4g}%: at each context "
        f"the half-width r(s) of a band around a reference fit on {fresh}, plus the difference "
        f"between that fit and the law (mode {calibration.mode}). Band: "
        f"{band.kind.replace('_', ' ')}; {calibration.why}.\n\n"
        f"{found}{calibration.outside_share:.1%} of the held-out contexts lie outside that "
        f"domain; their bound is widened. From {band.rows:,} rows of {band.units:,} units; law "
        f"{calibration.law_id}.{warning}",
        calibration.table,
        bound_over_contexts(calibration),
        f"Half of the contexts have D_t below {np.median(d):.3g}, nine in ten below "
        f"{np.quantile(d, 0.9):.3g}; the right end of a curve is its worst, {d.max():.3g} in all.",
    )


def _targets(calibration: Calibration) -> list[Section]:
    """One section per target; per half, too, after cross-fitting."""
    out = []
    for i, part in enumerate(calibration.parts):
        half = f", half {i + 1}" if len(calibration.parts) > 1 else ""
        one = len(part.band.x_names) == 1
        across = (
            f"over {part.band.x_names[0]}"
            if one
            else (
                "averaged over groups of contexts with similar expectation, as distance from "
                "the law (the line at 0)"
            )
        )
        caution = (
            ""
            if one
            else (
                " Errors that cancel within a group do not show in the picture; the bound counts "
                "them context by context."
            )
        )
        for j, name in enumerate(part.band.y_names):
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
