"""Figures of a run: regret of both kinds, what a round costs, which actions were played."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pulse_pyro.arrays import Float1
from pulse_pyro.plots import COLOURS, STYLES, axis, thinned, tidy
from pulse_pyro.report.panels import WIDTH, blocks, legend_below, panels, plain_ticks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from pulse_pyro.simulation.run import Run

ACTIONS = (COLOURS[5], COLOURS[1], COLOURS[2], COLOURS[3], COLOURS[4], COLOURS[0], "#999999")


def regret_panels(run: Run) -> Axes:
    """Draw mean cumulative regret of both kinds, with bands of one standard error over runs."""
    above, below = panels(2, 2.7)
    runs = run.regret.shape[1]
    for ax, values in ((above, run.regret), (below, run.regret_cond)):
        for i, name in enumerate(run.names):
            mean = values[i].mean(0)
            some = thinned(len(mean))
            colour = COLOURS[i % len(COLOURS)]
            ax.plot(some + 1, mean[some], color=colour, linestyle=STYLES[i % len(STYLES)],
                    label=name)  # fmt: skip
            if runs > 1:
                se = values[i].std(0, ddof=1)[some] / np.sqrt(runs)
                ax.fill_between(some + 1, mean[some] - se, mean[some] + se, color=colour,
                                alpha=0.2, linewidth=0)  # fmt: skip
        _squeeze(ax, values[..., -1].mean(1))
    tidy(above, "", "regret", "Against the best action given S and W")
    tidy(below, "round", "regret_cond", "Against the best action given S alone")
    legend_below([below], 3)
    return above


def learning_curves(run: Run) -> Axes:
    """Draw the mean conditional regret of a round, in groups of rounds that grow with time."""
    ax = axis(None, WIDTH, 3.8)
    each = np.diff(run.regret_cond, axis=-1, prepend=0.0).mean(1)
    edges = np.unique(np.geomspace(1, each.shape[1] + 1, 26).round().astype(np.int64)) - 1
    at = np.sqrt((edges[:-1] + 1.0) * edges[1:])
    means = np.add.reduceat(each, edges[:-1], axis=1) / np.diff(edges)
    for i, name in enumerate(run.names):
        if name != "cond_oracle":  # zero by definition
            ax.plot(at, means[i], label=name, color=COLOURS[i % len(COLOURS)],
                    linestyle=STYLES[i % len(STYLES)])  # fmt: skip
    top = float(means.max())
    ax.set_xscale("log")
    if top > 0:
        least = float(means[means > 0].min())
        ax.set_yscale("symlog", linthresh=max(least, top / 1000))  # zero has a place, too
        ax.set_ylim(bottom=0.0)
    plain_ticks(ax.xaxis, ax.yaxis)
    legend_below([ax], 3)
    return tidy(ax, "round, log scale", "regret_cond of a round",
                f"Mean of {run.regret.shape[1]} runs and groups of rounds")  # fmt: skip


def actions_over_time(run: Run) -> Axes:
    """Draw, per agent, the share of runs that play each action, in groups of rounds."""
    axes = panels(len(run.names), 1.35, columns=2)
    count = int(run.action.max()) + 1
    rounds = blocks(np.arange(1.0, run.action.shape[-1] + 1))
    for ax, name, action in zip(axes, run.names, run.action, strict=True):
        shares = [blocks((action == a).mean(0)) for a in range(count)]
        ax.stackplot(rounds, *shares, labels=[f"action {a}" for a in range(count)],
                     colors=[ACTIONS[a % len(ACTIONS)] for a in range(count)],
                     edgecolor="white", linewidth=0.5)  # fmt: skip
        ax.set(ylim=(0, 1), yticks=[0, 0.5, 1])
        ax.margins(x=0)
        tidy(ax, "", "", name)
    for ax in axes[-2:]:
        ax.set_xlabel("round")
        ax.tick_params(labelbottom=True)  # above an empty place, too
    axes[0].set_ylabel("share")
    if count <= 8:
        legend_below(axes[-1:], 4)
    return axes[0]


def _squeeze(ax: Axes, ends: Float1) -> None:
    """Where one curve dwarfs the others, use a scale that is logarithmic beyond their range."""
    top = np.sort(np.abs(ends))
    middle = float(top[len(top) // 2])
    if len(top) > 1 and top[-1] > 8 * max(middle, 1e-12) and middle > 0:
        ax.set_yscale("symlog", linthresh=middle)
        plain_ticks(ax.yaxis)
