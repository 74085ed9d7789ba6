"""Figures: each takes an axis or makes one, and never touches pyplot's global state."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pulse_pyro.arrays import Float1, Float2

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from pulse_pyro.calibration.calibration import Calibration
    from pulse_pyro.experiments.runner import Result
    from pulse_pyro.history import History
    from pulse_pyro.laws.fitted import FittedLaw
    from pulse_pyro.ranks import Sbc
    from pulse_pyro.simulation.run import Run

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


def band_plot(calibration: Calibration, target: int = 0, ax: Axes | None = None) -> Axes:
    """Draw a target's band beside the law's own mean, at held-out contexts.

    With one input: over it. With several: the reference fit's distance from the law, over the
    law's prediction.
    """
    ax = axis(ax)
    part = calibration.parts[0]
    budget = part.budget(calibration.contexts)
    name = part.band.y_names[target]
    x = part.law.summary(calibration.contexts)[budget.inside]
    centre, half, law = (
        values[budget.inside][:, target]
        for values in (budget.centre, budget.half, budget.predicted)
    )
    one = x.shape[1] == 1
    at = x[:, 0] if one else law
    order = np.argsort(at)
    at, centre, half, law = (values[order] for values in (at, centre, half, law))
    if not one:
        at, centre, half = (_groups(values, 60) for values in (at, centre - law, half))
        law = np.zeros_like(at)
    label = f"{100 * part.band.level:.4g}% band, all contexts at once"
    ax.fill_between(at, centre - half, centre + half, color=COLOURS[5], alpha=0.35, linewidth=0,
                    label=label)  # fmt: skip
    ax.plot(at, centre, color=COLOURS[0], label="reference fit")
    ax.plot(at, law, color=COLOURS[1], linestyle="--", label="the law")
    ax.legend(frameon=False, fontsize="small")
    across = part.band.x_names[0] if one else f"the law's expectation of {name}"
    up = f"expected {name}" if one else f"{name}: reference fit minus law"
    title = f"Band of {name}: {part.band.kind.replace('_', ' ')}, {part.band.units} units"
    return _tidy(ax, across, up, title)


def budget_plot(calibration: Calibration, target: int = 0, ax: Axes | None = None) -> Axes:
    """Draw the bound of a target over contexts, split into band, difference and Monte Carlo."""
    ax = axis(ax)
    part = calibration.parts[0]
    budget = part.budget(calibration.contexts)
    seen = budget.inside
    x = part.law.summary(calibration.contexts)[seen]
    one = x.shape[1] == 1
    at = x[:, 0] if one else budget.predicted[seen][:, target]
    order = np.argsort(at)
    half = budget.half[seen][order, target]
    gap = np.abs(budget.centre - budget.predicted)[seen][order, target]
    extra = budget.monte_carlo[seen][order, target]
    pieces = [_groups(values, 60) for values in (half, gap, extra)]
    labels = ["band half-width r", "|reference fit - law|", "Monte Carlo"]
    count = 3 if extra.any() else 2
    ax.stackplot(_groups(at[order], 60), *pieces[:count], labels=labels[:count],
                 colors=[COLOURS[5], COLOURS[4], COLOURS[3]], alpha=0.8)  # fmt: skip
    ax.legend(frameon=False, fontsize="small")
    name = part.band.y_names[target]
    across = part.band.x_names[0] if one else f"the law's expectation of {name}"
    return _tidy(ax, across, f"bound on the error of E[{name}]",
                 f"Error budget, mean bound {np.sum(pieces, axis=0).mean():.3g}")  # fmt: skip


def gamma_split(parts: Float2, ax: Axes | None = None) -> Axes:
    """Draw sqrt(gamma_t) over rounds, (rounds, 3): ridge, noise and imputation parts."""
    ax = axis(ax)
    steps = np.arange(1, len(parts) + 1)
    ax.stackplot(steps, *parts.T, labels=["ridge", "noise", "imputation (from D_t)"],
                 colors=[COLOURS[2], COLOURS[5], COLOURS[4]], alpha=0.8)  # fmt: skip
    ax.legend(frameon=False, fontsize="small", loc="lower right")
    return _tidy(ax, "round", "sqrt(gamma_t)", "Confidence radius and what it is made of")


def _groups(values: Float1, count: int) -> Float1:
    """Average sorted values in groups of equal size: at most ``count`` of them."""
    return np.array([part.mean() for part in np.array_split(values, min(count, len(values)))])


def rank_histogram(sbc: Sbc, parameter: str, ax: Axes | None = None) -> Axes:
    """Draw the ranks of one parameter in 10 bins, with the 99 % range of a uniform histogram."""
    from scipy import stats

    ax = axis(ax, 4.8, 3.2)
    counts = sbc.counts[:, sbc.names.index(parameter)]
    bins, runs = len(counts), len(sbc.ranks)
    # simultaneous over the bins, by Bonferroni
    low, high = stats.binom.interval(1 - 0.01 / bins, runs, 1 / bins)
    ax.axhspan(low, high, color=COLOURS[5], alpha=0.25, linewidth=0, label="99 % range if uniform")
    ax.bar(np.arange(bins) + 0.5, counts, width=0.92, color=COLOURS[0])
    ax.axhline(runs / bins, color=COLOURS[6], linewidth=0.8)
    ax.set_xticks([0, bins / 2, bins], ["0", "50", "100"])
    ax.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.25))
    p = sbc.p_values[sbc.names.index(parameter)]
    return _tidy(ax, "rank of the truth among 99 draws", "archives", f"{parameter}: p = {p:.2g}")
