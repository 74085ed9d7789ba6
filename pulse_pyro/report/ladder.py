"""Sections about the ladder: the claim that stands and its picture, all rungs, what they show."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pulse_pyro._core.arrays import Float1
from pulse_pyro.report.page import Section
from pulse_pyro.report.panels import PICTURED, groups_panel, reliability_panels
from pulse_pyro.report.rung_plots import halves

if TYPE_CHECKING:
    from pandas import DataFrame

    from pulse_pyro.calibration.calibration import Calibration
    from pulse_pyro.calibration.forecast import Reliability
    from pulse_pyro.calibration.groups import GroupErrors
    from pulse_pyro.calibration.rung import Rung

MOST_BINS = 40  # lines of a table of bins; of more, the widest are shown
SPACE = "\N{NO-BREAK SPACE}"  # limits stay on one line
NOT_COVERED = {
    "uniform": "It does not cover contexts outside the domain, nor contexts online that follow "
    "another law than the archive's.",
    "forecast": "It speaks of all rows with a like forecast together: at single contexts the law "
    "may be further off, and there errors may cancel. Contexts online that are another mix than "
    "the archive's are not covered.",
    "groups": "It speaks of each group as a whole: within a group errors may cancel, and groups "
    "that nobody declared are not covered.",
    "average": "It speaks of the average over all rows, and error outside the functions it looks "
    "at is not seen.",
    "free": "It speaks of the average over all rows, and counts what nobody can forecast of W as "
    "if it were the law's error.",
}


def headline(rungs: Sequence[tuple[str, str]]) -> str:
    """Return the claims a page opens with; rungs : verdict and claim of each, strongest first.

    The highest that stands, and before it is reached the uniform one where that is conditional;
    where none stands, the highest that is conditional; where none is, why the first one fails.
    """
    stands = [claim for verdict, claim in rungs if verdict == "stands"]
    conditional = [claim for verdict, claim in rungs if verdict == "conditional"]
    fails = [claim for verdict, claim in rungs if verdict == "fails"]
    out = stands[:1] or conditional[:1] or fails[:1] or [rungs[-1][1]]
    verdict, uniform = rungs[0]
    if verdict == "conditional" and uniform not in out:
        out.append(uniform)
    return " ".join(out)


def ladder_sections(calibration: Calibration, theta_bound: float | None = None) -> list[Section]:
    """Return what stands, with its picture, the ladder, groups, and what else rungs are made of.

    theta_bound : S >= ||theta*||, if known: sizes are then told in units of the reward, too.
    """
    return [
        _standing(calibration),
        _ladder(calibration, theta_bound),
        *_groups(calibration),
        *_bins(calibration),
        *_averages(calibration),
    ]


def _standing(calibration: Calibration) -> Section:
    standing, forecast = calibration.standing, calibration.rung("forecast")
    conditional = [rung for rung in calibration.rungs if rung.verdict == "conditional"]
    if standing.verdict == "stands":
        place = calibration.rungs.index(standing) + 1
        text = (
            f"The strongest claim that stands is {standing.name}, rung {place} of "
            f"{len(calibration.rungs)}. {standing.claim} {NOT_COVERED.get(standing.name, '')}"
        )
    else:
        held = "stands without a condition" if conditional else "about the law's error holds here"
        text = f"No claim {held}."
    if conditional:
        first = conditional[0]
        text += f"\n\nConditional, rung {first.name}: {first.claim}"
    drawn = bool(halves(forecast))
    if not drawn:
        text += f"\n\nReliability cannot be drawn. {with_remedy(forecast)}"
    more = len(calibration.targets.names) - PICTURED
    if drawn and more > 0:
        text += f"\n\nThe first {PICTURED} targets are drawn; of {more} more see bin by bin."
    return Section(
        "What can be said of the law's error",
        text,
        None,
        reliability_panels(calibration) if drawn else None,
        reliability_reading(calibration) if drawn else "",
    )


def reliability_reading(calibration: Calibration) -> str:
    """Say in one sentence what the picture of reliability shows."""
    from pulse_pyro.calibration.rung import rounded_up

    found: list[Reliability] = halves(calibration.rung("forecast"))
    low = sum(int((one.lower > 0).sum()) for one in found)
    high = sum(int((one.upper < 0).sum()) for one in found)
    bins = sum(len(one.target) for one in found)
    worst = rounded_up(max(float(one.worst.max()) for one in found))
    if not low + high:
        return (
            f"All {bins} bars meet the line of a law without error: none shows, and the mean "
            f"outcome is nowhere further than {worst} sd from the forecast."
        )
    sides = [f"{n} too {way}" for n, way in ((low, "low"), (high, "high")) if n]
    return (
        f"At {low + high} of {bins} bars the line of a law without error is missed: there the "
        f"forecasts are off on average ({', '.join(sides)}), but nowhere by more than {worst} sd."
    )


def _ladder(calibration: Calibration, theta_bound: float | None) -> Section:
    priced = (
        ""
        if theta_bound is None
        else (
            " In units of the reward it is what an error of that size in every target can move the "
            f"expected reward by, for weights no longer than {theta_bound:.4g}: mean over "
            "contexts, of the action that is moved most."
        )
    )
    return Section(
        "Ladder of claims",
        f"Five claims, the strongest first, each with probability {100 * calibration.level:.4g}% "
        "by itself. A claim that is conditional holds if what it rests on does; one that fails has "
        "no size. Size: the mean bound over held-out rows, in standard deviations (sds) that of "
        f"the target where it is largest.{priced}\n\n"
        "Uniform: every context at once. Forecast: all rows with a like forecast. Groups: each "
        "group that was declared. Average: the root mean square of what some functions can see. "
        "Free: the forecast error as a whole.",
        ladder_table(calibration, theta_bound),
    )


def ladder_table(calibration: Calibration, theta_bound: float | None = None) -> DataFrame:
    """One line a rung: verdict, size in sds and in units of each target, claim.

    theta_bound : adds the size in units of the reward. A rung that fails has no size anywhere.
    """
    import pandas as pd

    names = calibration.targets.names
    rows = []
    for rung in calibration.rungs:
        sizes = own_sizes(calibration, rung)
        line: dict[str, Any] = {
            "rung": rung.name,
            "verdict": rung.verdict,
            "size in sds": rung.size,
        }
        if len(names) == 1:
            line[f"in units of {names[0]}"] = float(sizes[0]) if len(sizes) else np.nan
        else:
            pairs = zip(names, sizes, strict=True) if len(sizes) else ()
            line["in units of each"] = ", ".join(f"{name} {size:.3g}" for name, size in pairs)
        if theta_bound is not None:
            moved = reward_size(calibration, sizes, theta_bound) if len(sizes) else np.nan
            line["in units of the reward"] = moved
        rows.append({**line, "claim": with_remedy(rung)})
    return pd.DataFrame(rows).set_index("rung")


def with_remedy(rung: Rung) -> str:
    """Return a rung's claim, and what would lift it where it says."""
    new = rung.remedy and rung.remedy not in rung.claim
    return f"{rung.claim} What would help: {rung.remedy}" if new else rung.claim


def own_sizes(calibration: Calibration, rung: Rung) -> Float1:
    """Return a rung's sizes in the units of each target, (q,); empty where it may state none."""
    out: Float1 = rung.sizes * calibration.spread if rung.holds else np.zeros(0)
    return out


def reward_size(calibration: Calibration, sizes: Float1, theta_bound: float) -> float:
    """Return how far errors of these sizes (q,) move the expected reward: mean over contexts.

    Of the action that is moved most, S sqrt(sum_j E_j^2) with E_j the error of feature j.
    """
    s = calibration.contexts.s
    s = s[np.isfinite(s).all(1)]
    eps = np.broadcast_to(sizes, (len(s), len(sizes)))
    actions = range(calibration.features.actions)
    errors = np.stack([calibration.targets.errors(s, eps, a) for a in actions])
    return theta_bound * float(np.sqrt((errors**2).sum(-1)).max(0).mean())


def lines(rung: Rung) -> DataFrame | None:
    """Return the lines a rung was made of, both halves one after the other; None if it has none."""
    import pandas as pd

    found: list[DataFrame] = [made.table for made in halves(rung)]
    if len(found) < 2:
        return found[0] if found else None
    for half, table in enumerate(found, start=1):
        table.insert(0, "half", half)
    both: DataFrame = pd.concat(found)
    return both


def _groups(calibration: Calibration) -> list[Section]:
    rung = calibration.rung("groups")
    table = lines(rung)
    if table is None:
        return [] if rung.verdict == "not asked" else [Section("Groups", with_remedy(rung))]
    return [
        Section(
            "Groups",
            f"{rung.claim} {NOT_COVERED['groups']}" + (f"\n\n{rung.remedy}" if rung.remedy else ""),
            _group_lines(table, one=len(calibration.targets.names) == 1),
            groups_panel(calibration),
            groups_reading(calibration),
        )
    ]


def _group_lines(table: DataFrame, *, one: bool) -> DataFrame:
    """Return group, rows, clusters, mean error, band and verdict; one : there is one target."""
    band = [
        f"{low:.3g}{SPACE}to{SPACE}{high:.3g}" if np.isfinite(low) else ""
        for low, high in zip(table["low"], table["high"], strict=True)
    ]
    lead = "mean error " if one else ""  # beside the target's name there is no room for it
    out = table.assign(
        band=band,
        verdict=[text.replace("within +-", f"{lead}within ±") for text in table["verdict"]],
        **{"mean error": [f"{error:.3g}" for error in table["mean error"]]},
    )
    left_out = ["low", "high", "df", "verdict", *(["target"] if one else [])]
    order = [*out.columns.drop(left_out), "verdict"]
    return out[order].set_index("group")


def groups_reading(calibration: Calibration) -> str:
    """Say in one sentence what the picture of groups shows."""
    found: list[GroupErrors] = halves(calibration.rung("groups"))
    bars = sum(int(one.judged.sum()) for one in found)
    off = [
        one.group[i]
        for one in found
        for i in np.flatnonzero(one.judged & ((one.low > 0) | (one.high < 0)))
    ]
    if not off:
        return f"All {bars} bars meet 0: in no group does a mean error show."
    named = ", ".join(dict.fromkeys(off[:3])) + (" and others" if len(off) > 3 else "")
    return f"{len(off)} of {bars} bars miss 0: there the law is off on average ({named})."


def _bins(calibration: Calibration) -> list[Section]:
    table = lines(calibration.rung("forecast"))
    if table is None:
        return []
    widest = len(table) > MOST_BINS
    if widest:
        some = table["bound in sds"].to_numpy().argsort()[::-1][:MOST_BINS]
        table = table.iloc[np.sort(some)]
    one = len(calibration.targets.names) == 1
    return [
        Section(
            "Reliability, bin by bin",
            "Rows sorted by what the law forecasts: mean forecast, mean outcome, and limits of "
            "their difference that hold for all bins and targets at once."
            + (f" The {MOST_BINS} widest bins." if widest else ""),
            table.drop(columns=["from", "to", "bound", "df", "by counts", *["target"] * one]),
        )
    ]


def _averages(calibration: Calibration) -> list[Section]:
    average, free = (lines(calibration.rung(name)) for name in ("average", "free"))
    told = []
    if average is not None:
        words = "The law's error as far as k functions can see it: root mean square, at most."
        shown = average.rename(columns={"in_sds": "in sds", "cannot_see": "cannot see"})
        told.append((words, shown))
    if free is not None:
        words = (
            "W minus its forecast: root mean square, its upper limit, and the share of the "
            "variance of W that the law explains."
        )
        told.append((words, free.rename(columns={"rms_error": "rms", "in_sds": "in sds"})))
    if not told:
        return []
    (first, table), *more = told
    return [Section("Average error", first, table, more=tuple(more))]
