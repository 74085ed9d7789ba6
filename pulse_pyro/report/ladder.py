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
    from pulse_pyro.calibration.planted import SmallestMisfit
    from pulse_pyro.calibration.rung import Rung
    from pulse_pyro.calibration.split_stability import Stability

MOST_BINS = 40  # lines of a table of bins; of more, the widest are shown
IN_REWARD = "in units of the reward"
PER_BOUND = "in units of the reward, times theta_bound"  # where that is not known
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


def ladder_sections(
    calibration: Calibration,
    theta_bound: float | None = None,
    stability: Stability | None = None,
    misfit: SmallestMisfit | None = None,
) -> list[Section]:
    """Return what stands, with its picture, the ladder, groups, and what else rungs are made of.

    theta_bound : S >= ||theta*||, if known, for sizes in units of the reward. stability : the same
    ladder on other splits. misfit : the smallest the tests of the rung uniform would have seen.
    """
    return [
        _standing(calibration, stability, misfit),
        _ladder(calibration, theta_bound, stability),
        *_groups(calibration),
        *_bins(calibration),
        *_averages(calibration),
    ]


def _standing(
    calibration: Calibration, stability: Stability | None, misfit: SmallestMisfit | None
) -> Section:
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
    text += "".join(f"\n\n{said}" for said in how_firm(calibration, stability, misfit))
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


def how_firm(
    calibration: Calibration, stability: Stability | None, misfit: SmallestMisfit | None
) -> list[str]:
    """Say how firm the rung uniform is: misfits its tests would have seen, verdicts over splits.

    Where that was not asked for, how to ask. Of a rung that fails no size is told, here either.
    """
    uniform = calibration.rung("uniform")
    out = [misfits_seen(misfit)] if uniform.holds and misfit is not None else []
    if stability is not None:
        out.append(over_splits(calibration, stability))
    asks = []
    if uniform.holds and misfit is None:
        asks.append("how small a misfit its tests would have seen: misfit = true")
    if uniform.holds and stability is None:
        asks.append("whether its verdict hangs on the random split: splits = 5")
    if asks:
        out.append(
            f"Not asked of it: {'; '.join(asks)}, under [calibration] of a study's file (they cost "
            "time; in Python calibration.smallest_misfit and calibration.stability)."
        )
    return out


def misfits_seen(misfit: SmallestMisfit) -> str:
    """Say which misfits the tests behind a conditional claim would have seen."""
    seen: list[str] = []
    unseen: list[str] = []
    late: list[str] = []
    for kind, size, done in zip(misfit.kinds, misfit.size, misfit.in_time, strict=True):
        if np.isfinite(size):
            seen.append(f"{kind} {size:g}" + ("" if done else " or less"))
        else:
            (unseen if done else late).append(kind)
    said = [", ".join(seen)] if seen else []
    said += [f"{', '.join(unseen)} not at any size tried"] if unseen else []
    said += [f"{', '.join(late)} not known, as time ran out"] if late else []
    return (
        f"The smallest misfit its tests would have seen {misfit.power:.0%} of the time, found by "
        "planting known ones in the held-out rows, root mean square in sds: "
        f"{'; '.join(said)}. With none planted something was seen {misfit.false_alarms:.0%} of the "
        f"time (of {misfit.tested}). Smaller misfits, and of other shapes, may be there."
    )


def over_splits(calibration: Calibration, stability: Stability) -> str:
    """Say what became of the rung uniform over random splits, with sizes if it holds."""
    line = split_table(calibration, stability).loc["uniform"]
    words = ("stands", "conditional", "fails")
    shares = ", ".join(f"{word} in {line[word]:.0%}" for word in words if line[word] > 0)
    size = ""
    if np.isfinite(line["smallest"]):
        size = f", its size from {line['smallest']:.2g} to {line['largest']:.2g} sd"
    return (
        f"Over {len(stability.verdicts)} random splits of the archive the rung uniform: {shares} "
        f"of them{size}. Verdict over all: {stability.verdict}."
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


def _ladder(
    calibration: Calibration, theta_bound: float | None, stability: Stability | None
) -> Section:
    longest = (
        "of length 1, as theta_bound is not known here: multiply by it"
        if theta_bound is None
        else f"no longer than theta_bound {theta_bound:.4g}"
    )
    feeds = calibration.feeds
    fed = ""
    if feeds is not None and feeds.holds and feeds.benchmark:
        fed = f"\n\nPolicies play with the errors of the rung {feeds.name}; regret is then against "
        fed += f"{feeds.benchmark}" + (f", if {feeds.rests_on}." if feeds.rests_on else ".")
    return Section(
        "Ladder of claims",
        f"Five claims, the strongest first, each with probability {100 * calibration.level:.4g}% "
        "by itself. A claim that is conditional holds if what it rests on does; one that fails has "
        "no size. Size: the mean bound over held-out rows, in standard deviations (sds) that of "
        "the target where it is largest. In units of the reward: what an error of that size in "
        f"every target can move the expected reward by, for weights {longest}; mean over "
        "contexts, of the action that is moved most.\n\n"
        "Uniform: every context at once. Forecast: all rows with a like forecast. Groups: each "
        "group that was declared. Average: the root mean square of what some functions can see. "
        f"Free: the forecast error as a whole.{fed}",
        ladder_table(calibration, theta_bound),
        more=_other_splits(calibration, stability),
    )


def _other_splits(
    calibration: Calibration, stability: Stability | None
) -> tuple[tuple[str, DataFrame], ...]:
    if stability is None:
        return ()
    words = (
        f"The same ladder on {len(stability.verdicts)} random splits: the share of them with each "
        "verdict, and sizes in sds of the rungs that hold."
    )
    return ((words, split_table(calibration, stability)),)


def split_table(calibration: Calibration, stability: Stability) -> DataFrame:
    """Return one line a rung over random splits, if it was asked for.

    What fails here has no size there either.
    """
    table = stability.table
    table = table[table[["stands", "conditional", "fails"]].any(axis=1)].copy()
    failing = [rung.name for rung in calibration.rungs if not rung.holds]
    table.loc[table.index.isin(failing), ["size, median", "smallest", "largest"]] = np.nan
    return table


def ladder_table(calibration: Calibration, theta_bound: float | None = None) -> DataFrame:
    """One line a rung: verdict, size in sds and in units of each target, claim.

    theta_bound : S >= ||theta*||, for sizes in units of the reward; where it is not known they are
    told for each unit of it. A rung that fails has no size anywhere.
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
        column, bound = (PER_BOUND, 1.0) if theta_bound is None else (IN_REWARD, theta_bound)
        line[column] = reward_size(calibration, sizes, bound) if len(sizes) else np.nan
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
