"""Pictures of the ladder: how reliable forecasts are, and mean errors in groups."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np

from pulse_pyro.report.plots import COLOURS, axis, tidy, words_instead

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from pulse_pyro.calibration.calibration import Calibration
    from pulse_pyro.calibration.forecast import Reliability
    from pulse_pyro.calibration.groups import GroupErrors
    from pulse_pyro.calibration.rung import Rung

# of the first half and the second, after cross-fitting: mark, colour, colour where the law is off
HALVES = (("o", COLOURS[0], COLOURS[1]), ("s", COLOURS[2], COLOURS[3]))
MOST_LINES = 60  # of a picture of groups: beyond them labels are out of proportion
SIGNS = ("o", "s", "D", "^", "v", "P", "X")  # of targets
NO_ERROR = "a law without error"


def halves(rung: Rung) -> list[Any]:
    """Return what a rung was made of, once, or for each half after cross-fitting.

    Nothing where its claim may not be stated: a rung that fails has no numbers to be shown.
    """
    from pulse_pyro.calibration.cross_fitting import BothHalves

    if not rung.holds or rung.details is None:
        return []
    details = rung.details
    return [details.one, details.two] if isinstance(details, BothHalves) else [details]


def reliability_plot(
    calibration: Calibration, target: int = 0, ax: Axes | None = None, *, apart: bool = False
) -> Axes:
    """Draw a target's mean outcome against its forecast, bin by bin, with the simultaneous band.

    The line is a law without error. A bar that misses it, in another colour and filled with white,
    shows that the law is off there. apart : the distance from that line instead, in standard
    deviations of the target. Where the rung forecast does not hold, its claim is written instead.
    """
    ax = axis(ax, 4.8, 4.2)
    rung = calibration.rung("forecast")
    found: list[Reliability] = halves(rung)
    if not found:
        return words_instead(ax, f"There is no picture of reliability. {rung.claim}")
    name, level = found[0].names[target], f"{100 * calibration.level:.4g}%"
    reach = np.concatenate([one.forecast[one.target == target] for one in found])
    ends = np.array([reach.min(), reach.max()])
    line = np.zeros(2) if apart else ends
    ax.plot(ends, line, color=COLOURS[6], linestyle="--", linewidth=1.0, label=NO_ERROR)
    for half, one in enumerate(found):
        own = one.target == target
        at, scale = one.forecast[own], one.spread[target]
        mean, low, high = (v[own] for v in (one.error, one.lower, one.upper))
        misses = (low > 0) | (high < 0)
        mark, *colours = HALVES[half]
        which = f"half {half + 1}: " if len(found) > 1 else ""
        if apart:
            mean, low, high = mean / scale, low / scale, high / scale
        else:
            mean, low, high = at + mean, at + low, at + high
        for off in (False, True):
            some = misses == off
            if not some.any():
                continue
            ax.errorbar(
                at[some],
                mean[some],
                np.clip([(mean - low)[some], (high - mean)[some]], 0.0, None),
                color=colours[off],
                marker=mark,
                markersize=4.5,
                markerfacecolor="white" if off else colours[0],
                capsize=3,
                linestyle="none",
                label=which
                + (
                    "the bar misses the line: off"
                    if off
                    else f"mean, bar: {level} for all bins at once"
                ),
            )
    ax.legend(frameon=False, fontsize="small")
    up = f"error in sds of {name}" if apart else f"mean of {name}"
    return tidy(ax, f"forecast of {name}", up, f"Reliability of {name}")


def groups_plot(calibration: Calibration, ax: Axes | None = None) -> Axes:
    """Draw the mean error in each declared group, in sds of the target, with its band.

    One line a group, one mark a target. Groups that are not judged have no mark, and say so. Where
    the rung groups does not hold, its claim is written instead.
    """
    rung = calibration.rung("groups")
    found: list[GroupErrors] = halves(rung)
    if not found:
        return words_instead(axis(ax), f"There is no picture of groups. {rung.claim}")
    every = list(dict.fromkeys(name for one in found for name in one.group))
    shown = every[:MOST_LINES]
    ax = axis(ax, 5.0, 1.3 + 0.27 * len(shown))
    names, level = found[0].names, f"{100 * calibration.level:.4g}%"
    kinds = [(half, j) for half in range(len(found)) for j in range(len(names))]
    for place, (half, j) in enumerate(kinds):
        one = found[half]
        some = np.array(
            [
                one.target[i] == j and bool(one.judged[i]) and one.group[i] in shown
                for i in range(len(one.group))
            ]
        )
        if not some.any():
            continue
        lines = np.array([shown.index(one.group[i]) for i in np.flatnonzero(some)])
        beside = (place - (len(kinds) - 1) / 2.0) * 0.6 / len(kinds)
        mean, low, high = (v[some] / one.spread[j] for v in (one.error, one.low, one.high))
        ax.errorbar(
            mean,
            lines + beside,
            xerr=np.clip([mean - low, high - mean], 0.0, None),
            color=COLOURS[place % len(COLOURS)],
            marker=SIGNS[place % len(SIGNS)],
            markersize=4.5,
            capsize=2.5,
            linestyle="none",
            label=names[j] + (f", half {half + 1}" if len(found) > 1 else ""),
        )
    judged = {one.group[i] for one in found for i in np.flatnonzero(one.judged)}
    for line, name in enumerate(shown):
        if name not in judged:
            ax.text(0.0, line, " not judged", va="center", fontsize="small", color="#333333")
    ax.axvline(0.0, color=COLOURS[6], linestyle="--", linewidth=1.0)
    ax.set_yticks(np.arange(len(shown)), [textwrap.shorten(n, 34) for n in shown], fontsize=9)
    ax.set_ylim(len(shown) - 0.4, -0.6)
    ax.grid(axis="x", color="#dddddd", linewidth=0.6)
    ax.set_axisbelow(True)
    if len(kinds) > 1:
        ax.legend(frameon=False, fontsize="small", loc="upper left", bbox_to_anchor=(1.01, 1.0))
    more = f"; {len(every) - len(shown)} more in the table" if len(every) > len(shown) else ""
    of = f" of {names[0]}" if len(names) == 1 else ""
    tidy(ax, f"mean error{of} in sds", "", f"Groups, bar: {level} for all at once{more}")
    ax.tick_params(axis="y", length=0)
    return ax
