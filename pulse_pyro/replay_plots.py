"""Figures of recorded rounds: what each agent earned, and from when on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pulse_pyro.plots import COLOURS, STYLES, axis, thinned, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from pulse_pyro.cases.estimates import Estimates
    from pulse_pyro.simulation.replayed import Replayed


DIFFERENCE = " minus "  # in the name of a line that is the difference of two policies


def utility_dots(played: Replayed, ax: Axes | None = None) -> Axes:
    """Draw each agent's mean utility a round, with two standard errors over runs, best first."""
    table = played.table.sort_values("utility")
    ax = axis(ax, height=0.6 + 0.38 * len(table))
    where = np.arange(len(table))
    colours = [_colour(str(name)) for name in table.index]
    ax.hlines(where, table["utility"] - 2 * table["se"], table["utility"] + 2 * table["se"],
              color=colours, linewidth=2)  # fmt: skip
    ax.scatter(table["utility"], where, color=colours, zorder=3)
    ax.set_yticks(where, [str(name) for name in table.index])
    ax.margins(y=0.08)
    ax.grid(axis="x", color="#dddddd", linewidth=0.6)
    ax.set_axisbelow(True)
    return tidy(ax, "mean utility a round", "", f"{played.runs} runs, bar = 2 standard errors")


def gain_curves(played: Replayed, floor: str = "oful", ax: Axes | None = None) -> Axes:
    """Draw how much more each agent has earned than ``floor`` so far, mean over runs."""
    ax = axis(ax)
    at = thinned(played.earned.shape[-1])
    others = [name for name in played.names if name != floor]
    for i, name in enumerate(others):
        apart = (played.of(name) - played.of(floor)).cumsum(-1)[:, at]
        mean, colour = apart.mean(0), COLOURS[i % len(COLOURS)]
        ax.plot(at + 1, mean, color=colour, linestyle=STYLES[i % len(STYLES)], label=name)
        if played.runs > 1:
            se = apart.std(0, ddof=1) / np.sqrt(played.runs)
            ax.fill_between(at + 1, mean - se, mean + se, color=colour, alpha=0.2, linewidth=0)
    ax.axhline(0.0, color="#888888", linewidth=0.8)
    ax.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.01, 1.0))
    return tidy(ax, "round", f"utility gained over {floor}", "Cumulative, band = 1 standard error")


def _colour(agent: str) -> str:
    """PULSE agents stand out from those that leave W out, and from the one that sees it."""
    return COLOURS[0] if agent.startswith("pulse") else "#000000" if "full" in agent else COLOURS[1]


def value_dots(found: Estimates, ax: Axes | None = None) -> Axes:
    """Draw every estimated value with its interval; a tick where the value is known.

    Where there are differences of two policies these alone are drawn, beside 0: they are what is
    asked, and on the scale of the values they could not be read.
    """
    apart = [each for each in found.lines if DIFFERENCE in each.policy]
    lines = (apart or list(found.lines))[::-1]
    ax = axis(ax, height=0.8 + 0.3 * len(lines))
    where = np.arange(len(lines))
    low, high, at = (
        np.array([getattr(each.value, name) for each in lines])
        for name in ("low", "high", "estimate")
    )
    ax.hlines(where, low, high, color=COLOURS[0], linewidth=2)
    ax.scatter(at, where, color=COLOURS[0], zorder=3)
    known = np.array([each.known for each in lines])
    told = np.isfinite(known)
    if told.any():
        ax.scatter(known[told], where[told], marker="|", s=120, color="#000000", zorder=4,
                   label="known")  # fmt: skip
        ax.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.01, 1.0))
    if apart:
        ax.axvline(0.0, color="#888888", linewidth=0.8)
    labels = [f"{each.policy}, {each.estimator} ({each.log} log)" for each in lines]
    ax.set_yticks(where, labels)
    ax.margins(y=0.04)
    ax.grid(axis="x", color="#dddddd", linewidth=0.6)
    ax.set_axisbelow(True)
    level = found.lines[0].value.level
    what = "difference of values a decision" if apart else "value a decision"
    return tidy(ax, what, "", f"bar = {level:.0%} interval over units")
