"""Figures: each takes an axis or makes one, and never touches pyplot's global state."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pulse_pyro.arrays import Float1

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from pulse_pyro.experiments.runner import Result
    from pulse_pyro.history import History
    from pulse_pyro.laws.fitted import FittedLaw
    from pulse_pyro.simulation import Run

# Okabe and Ito's colours, told apart by colour-blind readers; line styles repeat the message
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
STYLES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), "-")


def axis(ax: Axes | None, width: float = 6.4, height: float = 3.8) -> Axes:
    """Return ``ax`` or a new axis on a figure of its own."""
    if ax is not None:
        return ax
    from matplotlib.figure import Figure

    made: Axes = Figure(figsize=(width, height), layout="constrained").add_subplot()
    return made


def _tidy(ax: Axes, x: str, y: str, title: str) -> Axes:
    ax.set(xlabel=x, ylabel=y)
    ax.set_title(title, loc="left", fontsize="medium")
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def regret_curves(run: Run, ax: Axes | None = None) -> Axes:
    """Draw mean cumulative regret of each agent, with a band of one standard error over runs."""
    ax = axis(ax)
    steps = np.arange(1, run.regret.shape[-1] + 1)
    runs = run.regret.shape[1]
    for i, name in enumerate(run.names):
        mean = run.regret[i].mean(0)
        colour = COLOURS[i % len(COLOURS)]
        ax.plot(steps, mean, color=colour, linestyle=STYLES[i % len(STYLES)], label=name)
        if runs > 1:
            se = run.regret[i].std(0, ddof=1) / np.sqrt(runs)
            ax.fill_between(steps, mean - se, mean + se, color=colour, alpha=0.2, linewidth=0)
    top = np.sort(run.regret[..., -1].mean(1))
    if len(top) > 1 and top[-1] > 8 * max(top[len(top) // 2], 1e-12):
        ax.set_yscale("symlog", linthresh=max(float(top[len(top) // 2]), 1.0))
    ax.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.01, 1.0))
    return _tidy(ax, "round", "cumulative regret", f"Mean of {runs} runs, band = 1 standard error")


def sweep(result: Result, ax: Axes | None = None) -> Axes:
    """Draw final regret against the setting, one line per agent, published figures as crosses."""
    ax = axis(ax)
    table = result.table
    labels = list(dict.fromkeys(table["setting"]))
    at = np.arange(len(labels))
    for i, (agent, rows) in enumerate(table.groupby("agent", sort=False)):
        colour = COLOURS[i % len(COLOURS)]
        line = STYLES[i % len(STYLES)]
        ax.errorbar(at, rows["regret"], rows["se"], color=colour, linestyle=line, marker="o",
                    markersize=3.5, capsize=2, label=str(agent))  # fmt: skip
        printed = rows["published"].to_numpy(dtype=np.float64)
        ax.plot(at, printed, color=colour, marker="x", markersize=8, linestyle="none")
    ax.set_yscale("symlog", linthresh=1.0)
    ax.set_xticks(at, labels)
    ax.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.01, 1.0))
    return _tidy(
        ax, "", "final regret", "Dots: measured, bar = 1 standard error; crosses: published"
    )


def law_track(fitted: FittedLaw, history: History, draws: Float1, ax: Axes | None = None) -> Axes:
    """Draw one held-out unit: W, its expectation and the 90 % interval of draws (size, time)."""
    ax = axis(ax)
    steps = np.arange(history.w.shape[1])
    low, high = np.nanquantile(draws, [0.05, 0.95], axis=0)
    ax.fill_between(
        steps, low, high, color=COLOURS[5], alpha=0.35, linewidth=0, label="90 % of draws"
    )
    ax.plot(steps, fitted.mean(history.s[:1])[0, :, 0], color=COLOURS[0], label="expected given S")
    ax.plot(steps, history.w[0, :, 0], ".", color=COLOURS[6], markersize=4, label="recorded")
    ax.legend(frameon=False, ncols=3, fontsize="small")
    title = f"Held-out unit {history.units[0]}: {history.w_names[0]}"
    return _tidy(ax, "time", history.w_names[0], title)
