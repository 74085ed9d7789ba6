"""The page's figures: panels narrow enough for a phone, legends below, plain ticks."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import shorten
from typing import TYPE_CHECKING, Any

import numpy as np

from pulse_pyro._core.arrays import Float1, Float2, Int
from pulse_pyro.report.plots import (
    COLOURS,
    STYLES,
    axis,
    band_plot,
    budget_plot,
    committee_weights,
    line_look,
    thinned,
    tidy,
)
from pulse_pyro.report.rung_plots import groups_plot, reliability_plot

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

    from pulse_pyro.calibration.calibration import Calibration
    from pulse_pyro.data.history import History
    from pulse_pyro.diagnostics.result import Evidence
    from pulse_pyro.envs.simulation import Run

# What the page's figures share: panels narrow enough for a phone, legends below, plain ticks.


WIDTH = 5.0  # inches; scaled to a phone's width, labels can still be read
BLOCKS = 40  # groups of rounds in curves over time


def panels(count: int, height: float, *, columns: int = 1, share: bool = True) -> list[Axes]:
    """Return ``count`` axes below each other; they share their x axis unless told not to."""
    from matplotlib.figure import Figure

    rows = -(-count // columns)
    figure = Figure(figsize=(WIDTH, height * rows + 0.5), layout="constrained")
    grid = figure.subplots(rows, columns, sharex=share, squeeze=False)
    flat = list(grid.ravel())
    for spare in flat[count:]:
        spare.set_visible(False)
    return flat[:count]


def legend_below(axes: Sequence[Axes], columns: int) -> None:
    """Put one legend for all panels below them: beside them a phone has no room."""
    handles: list[Artist] = []
    labels: list[str] = []
    for ax in axes:
        drawn, names = _without_legend(ax)
        handles, labels = handles + drawn, labels + names
    _below(axes[0], handles, labels, columns)


def _without_legend(ax: Axes) -> tuple[list[Artist], list[str]]:
    """Return what an axis' own legend lists, and take it away."""
    own = ax.get_legend()
    if own is not None:
        own.remove()
    return ax.get_legend_handles_labels()


def _below(ax: Axes, handles: list[Artist], labels: list[str], columns: int) -> None:
    ax.figure.legend(
        handles,
        labels,
        loc="outside lower left",
        ncols=columns,
        frameon=False,
        fontsize=9,
        handlelength=1.8,
        columnspacing=1.2,
    )


def plain_ticks(*axes: Any) -> None:
    """Write 100, not 10 to the power of 2."""
    for one in axes:
        one.set_major_formatter("{x:g}")


def blocks(values: Float1) -> Float1:
    """Average neighbours in at most :data:`BLOCKS` groups of equal size."""
    parts = np.array_split(values, min(BLOCKS, len(values)))
    return np.array([part.mean() for part in parts])


# Figures of the archive, the law's checks and the calibration.


COLUMNS = 6  # columns of an archive that are drawn, at most
DOTS = 400  # residuals drawn, at most: a page is sent around


def columns_over_time(history: History) -> Axes:
    """Draw, for each column of S and W, the middle and the range of units over time."""
    values = np.concatenate([history.s, history.w], axis=-1)[:, :COLUMNS]
    names = [f"{n} (S)" for n in history.s_names] + [f"{n} (W)" for n in history.w_names]
    axes = panels(values.shape[-1], 1.5)
    longest = int(history.lengths.argmax())
    one = slice(history.offsets[longest], history.offsets[longest + 1])
    for j, ax in enumerate(axes):
        steps, low, middle, high = _over_steps(history.step, values[:, j])
        ax.fill_between(
            steps, low, high, color=COLOURS[5], alpha=0.35, linewidth=0, label="80 % of units"
        )
        ax.plot(steps, middle, color=COLOURS[0], label="median")
        ax.plot(
            history.step[one],
            values[one, j],
            color=COLOURS[6],
            linewidth=0.7,
            linestyle=":",
            label=f"one unit ({history.units[longest]})",
        )
        tidy(ax, "time" if j == len(axes) - 1 else "", names[j], "")
    title = f"Archive over time, {len(history.units)} units"
    more = len(names) - len(axes)
    axes[0].set_title(
        title + (f"; {more} more columns" if more else ""), loc="left", fontsize="medium"
    )
    legend_below(axes[-1:], 3)
    return axes[0]


def _over_steps(step: Int, values: Float1) -> tuple[Float1, Float1, Float1, Float1]:
    """Return the steps at which a value is known, and its 10, 50 and 90 % quantiles there."""
    import pandas as pd

    known = np.isfinite(values)
    found = (
        pd.Series(values[known]).groupby(step[known]).quantile(np.array([0.1, 0.5, 0.9])).unstack()
    )
    return found.index.to_numpy(), *found.to_numpy().T


def evidence_panels(evidence: Evidence, j: int) -> Axes:
    """Draw PIT, coverage, residuals and scores of the W numbered j, below each other."""
    from pulse_pyro.report.plots import coverage_curve, pit_histogram, residual_plot, score_plot

    name, pit = evidence.w_names[j], evidence.pit[:, j]
    first, second, third, last = panels(4, 2.7, share=False)
    pit_histogram(pit, evidence.unit, first).set_title(
        "PIT: flat if the law is right", loc="left", fontsize="medium"
    )
    coverage_curve(pit, evidence.unit, second)
    residual_plot(evidence.w[:, j], evidence.mean[:, j], name, third)
    dots = third.lines[0]
    points = np.asarray(dots.get_xydata())
    dots.set_data(points[thinned(len(points), DOTS)].T)
    score_plot([c for c in evidence.comparisons if c.score in ("log score", f"crps {name}")], last)
    return first


PICTURED = 6  # targets whose reliability is drawn, at most: the page opens with it


def reliability_panels(calibration: Calibration) -> Axes:
    """Draw, for each target, outcome against forecast, and beside it the error, enlarged."""
    names = calibration.targets.names[:PICTURED]
    axes = panels(2 * len(names), 2.3, columns=2, share=False)
    for j, name in enumerate(names):
        for apart, ax in enumerate(axes[2 * j : 2 * j + 2]):
            reliability_plot(calibration, j, ax, apart=bool(apart))
            ax.locator_params(axis="x", nbins=4)  # a panel is half as wide as a phone
            title = "mean error, enlarged" if apart else shorten(name, 28, placeholder="...")
            tidy(ax, "forecast", "sds" if apart else "mean outcome", title)
    # of all panels each kind of mark once
    found = [_without_legend(ax) for ax in axes]
    marks = {label: handle for pair in found for handle, label in zip(*pair, strict=True)}
    _below(axes[0], list(marks.values()), list(marks), 1)
    return axes[0]


def groups_panel(calibration: Calibration) -> Axes:
    """Draw the mean error in each declared group."""
    ax = groups_plot(calibration)
    if ax.get_legend() is not None:
        legend_below([ax], 2)
    return ax


def bound_over_contexts(calibration: Calibration) -> Axes:
    """Draw D_t over the share of held-out contexts that have less, inside and out of the domain."""
    ax = axis(None, WIDTH, 3.4)
    worst = np.max(calibration.error**2, axis=(1, 2))
    known = np.isfinite(worst)
    for i, (where, label) in enumerate(
        ((calibration.inside, "in the domain"), (~calibration.inside, "outside"))
    ):
        d = np.sort(worst[known & where])
        if len(d):
            share = np.linspace(0.0, 100.0, len(d)) if len(d) > 1 else np.array([100.0])
            some = thinned(len(d))
            ax.plot(
                share[some],
                d[some],
                color=COLOURS[i],
                linestyle=STYLES[i],
                marker="" if len(d) > 1 else "o",
                label=f"{label}: {len(d):,} contexts",
            )
    d = worst[known]
    if d.max() > 30 * max(np.median(d), 1e-300) > 0:
        ax.set_yscale("log")
        plain_ticks(ax.yaxis)
    else:
        ax.set_ylim(bottom=0.0)
    tidy(ax, "% of contexts with a smaller D_t", "D_t", "D_t over held-out contexts, sorted")
    ax.legend(frameon=False, fontsize=9, loc="upper left")
    return ax


def target_panels(calibration: Calibration, target: int, part: int = 0) -> Axes:
    """Draw a target's band above its error budget, over the same contexts."""
    above, below = panels(2, 2.9)
    band_plot(calibration, target, above, part=part)
    budget_plot(calibration, target, below, part=part)
    above.set_xlabel("")
    legend_below([above, below], 2)
    return above


# Figures of a run: regret of both kinds, what a round costs, which actions were played.


ACTIONS = (COLOURS[5], COLOURS[1], COLOURS[2], COLOURS[3], COLOURS[4], COLOURS[0], "#999999")


def regret_panels(run: Run) -> Axes:
    """Draw mean cumulative regret of both kinds, with bands of one standard error over runs."""
    above, below = panels(2, 2.7)
    runs = run.regret.shape[1]
    for ax, values in ((above, run.regret), (below, run.regret_cond)):
        for i, name in enumerate(run.names):
            mean = values[i].mean(0)
            some = thinned(len(mean))
            ax.plot(some + 1, mean[some], **line_look(i), label=name)
            if runs > 1:
                colour = COLOURS[i % len(COLOURS)]
                se = values[i].std(0, ddof=1)[some] / np.sqrt(runs)
                ax.fill_between(
                    some + 1, mean[some] - se, mean[some] + se, color=colour, alpha=0.2, linewidth=0
                )
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
            ax.plot(at, means[i], label=name, **line_look(i))
    top = float(means.max())
    ax.set_xscale("log")
    if top > 0:
        least = float(means[means > 0].min())
        ax.set_yscale("symlog", linthresh=max(least, top / 1000))  # zero has a place, too
        ax.set_ylim(bottom=0.0)
    plain_ticks(ax.xaxis, ax.yaxis)
    legend_below([ax], 3)
    return tidy(
        ax,
        "round, log scale",
        "regret_cond of a round",
        f"Mean of {run.regret.shape[1]} runs and groups of rounds",
    )


def actions_over_time(run: Run) -> Axes:
    """Draw, per agent, the share of runs that play each action, in groups of rounds."""
    axes = panels(len(run.names), 1.35, columns=2)
    count = int(run.action.max()) + 1
    rounds = blocks(np.arange(1.0, run.action.shape[-1] + 1))
    for ax, name, action in zip(axes, run.names, run.action, strict=True):
        shares = [blocks((action == a).mean(0)) for a in range(count)]
        ax.stackplot(
            rounds,
            *shares,
            labels=[f"action {a}" for a in range(count)],
            colors=[ACTIONS[a % len(ACTIONS)] for a in range(count)],
            edgecolor="white",
            linewidth=0.5,
        )
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


def votes_over_time(labels: tuple[str, ...], weights: Float2) -> Axes:
    """Draw the weights (time, k) of a committee's members, from the first round on."""
    ax = axis(None, WIDTH, 3.8)
    committee_weights(labels, np.arange(1.0, len(weights) + 1), weights, ax)
    legend_below([ax], 2)  # names are long
    return ax


def _squeeze(ax: Axes, ends: Float1) -> None:
    """Where one curve dwarfs the others, use a scale that is logarithmic beyond their range."""
    top = np.sort(np.abs(ends))
    middle = float(top[len(top) // 2])
    if len(top) > 1 and top[-1] > 8 * max(middle, 1e-12) and middle > 0:
        ax.set_yscale("symlog", linthresh=middle)
        plain_ticks(ax.yaxis)
