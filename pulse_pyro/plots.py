"""Figures: each takes an axis or makes one, and never touches pyplot's global state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from pulse_pyro.arrays import Float1, Float2, Int

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from pulse_pyro.calibration.calibration import Calibration
    from pulse_pyro.history import History
    from pulse_pyro.laws.fitted import FittedLaw
    from pulse_pyro.planning.plans import Plan
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


def tidy(ax: Axes, x: str, y: str, title: str) -> Axes:
    """Name the axes and the figure; take away what says nothing."""
    ax.set(xlabel=x, ylabel=y)
    ax.set_title(title, loc="left", fontsize="medium")
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def regret_curves(run: Run, ax: Axes | None = None, names: Sequence[str] | None = None) -> Axes:
    """Draw mean cumulative regret of each agent, with a band of one standard error over runs.

    names : which agents, all of them by default; an agent's colour is that of its place here, so
    that figures drawn with the same names match.
    """
    ax = axis(ax)
    listed = list(run.names if names is None else names)
    shown = [name for name in listed if name in run.names]
    steps, (_, runs, _) = np.arange(1, run.regret.shape[-1] + 1), run.regret.shape
    for name in shown:
        mean, i = run.of(name).mean(0), listed.index(name)
        colour = COLOURS[i % len(COLOURS)]
        ax.plot(steps, mean, color=colour, linestyle=STYLES[i % len(STYLES)], label=name)
        if runs > 1:
            se = run.of(name).std(0, ddof=1) / np.sqrt(runs)
            ax.fill_between(steps, mean - se, mean + se, color=colour, alpha=0.2, linewidth=0)
    top = np.sort([run.of(name)[:, -1].mean() for name in shown])
    if len(top) > 1 and top[-1] > 8 * max(top[len(top) // 2], 1e-12):
        ax.set_yscale("symlog", linthresh=max(float(top[len(top) // 2]), 1.0))
    ax.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.01, 1.0))
    return tidy(ax, "round", "cumulative regret", f"Mean of {runs} runs, band = 1 standard error")


def law_track(
    fitted: FittedLaw, history: History, draws: Float2, ax: Axes | None = None, *, target: int = 0
) -> Axes:
    """Draw one held-out unit: a column of W, its mean and the 90 % interval of draws (size, time).

    target : which column of W, the first by default; ``draws`` are of that column.
    """
    ax = axis(ax)
    steps = np.arange(history.w.shape[1])
    known = ~np.isnan(draws).all(0)  # a law that refuses rows says nothing about them
    low, high = np.full((2, len(steps)), np.nan)
    low[known], high[known] = np.nanquantile(draws[:, known], [0.05, 0.95], axis=0)
    ax.fill_between(
        steps, low, high, color=COLOURS[5], alpha=0.35, linewidth=0, label="90 % of draws"
    )
    ax.plot(
        steps, fitted.mean(history.s[:1])[0, :, target], color=COLOURS[0], label="expected given S"
    )
    ax.plot(steps, history.w[0, :, target], ".", color=COLOURS[6], markersize=4, label="recorded")
    ax.legend(frameon=False, ncols=3, fontsize="small", loc="upper left", bbox_to_anchor=(0, -0.16))
    title = f"Held-out unit {history.units[0]}: {history.w_names[target]}"
    return tidy(ax, "time", history.w_names[target], title)


def band_plot(
    calibration: Calibration, target: int = 0, ax: Axes | None = None, *, part: int = 0
) -> Axes:
    """Draw a target's band beside the law's own mean, at held-out contexts.

    With one input: over it. With several: the reference fit's distance from the law, over the
    law's prediction. part : which law and band, after cross-fitting.
    """
    ax = axis(ax)
    of = calibration.parts[part]
    budget = of.budget(calibration.contexts)
    name = of.band.y_names[target]
    x = of.law.summary(calibration.contexts)[budget.inside]
    centre, half, law = (
        values[budget.inside][:, target]
        for values in (budget.centre, budget.half, budget.predicted)
    )
    one = x.shape[1] == 1
    at = x[:, 0] if one else law
    order = np.argsort(at)
    order = order[thinned(len(order), 400)] if one else order
    at, centre, half, law = (values[order] for values in (at, centre, half, law))
    if not one:
        at, centre, half = (_groups(values, 60) for values in (at, centre - law, half))
        law = np.zeros_like(at)
    label = f"mu_p0 ± r(s), {100 * of.band.level:.4g}% at once"
    ax.fill_between(at, centre - half, centre + half, color=COLOURS[5], alpha=0.35, linewidth=0,
                    label=label)  # fmt: skip
    ax.plot(at, centre, color=COLOURS[0], label="reference fit, mu_p0")
    ax.plot(at, law, color=COLOURS[1], linestyle="--", label="the law, mu_phat")
    ax.legend(frameon=False, fontsize="small")
    across = of.band.x_names[0] if one else f"the law's expectation of {name}"
    up = f"expected {name}" if one else f"{name}: reference fit minus law"
    title = f"Band of {name}: {of.band.kind.replace('_', ' ')}, {of.band.units} units"
    return tidy(ax, across, up, title)


def budget_plot(
    calibration: Calibration, target: int = 0, ax: Axes | None = None, *, part: int = 0
) -> Axes:
    """Draw the bound of a target over contexts, split into band, difference and Monte Carlo."""
    ax = axis(ax)
    of = calibration.parts[part]
    budget = of.budget(calibration.contexts)
    seen = budget.inside
    x = of.law.summary(calibration.contexts)[seen]
    one = x.shape[1] == 1
    at = x[:, 0] if one else budget.predicted[seen][:, target]
    order = np.argsort(at)
    half = budget.half[seen][order, target]
    gap = np.abs(budget.centre - budget.predicted)[seen][order, target]
    extra = budget.monte_carlo[seen][order, target]
    pieces = [_groups(values, 60) for values in (half, gap, extra)]
    labels = ["half-width r(s)", "difference |mu_p0 - mu_phat|", "Monte Carlo"]
    count = 3 if extra.any() else 2
    ax.stackplot(_groups(at[order], 60), *pieces[:count], labels=labels[:count],
                 colors=[COLOURS[5], COLOURS[4], COLOURS[3]], alpha=0.8)  # fmt: skip
    ax.legend(frameon=False, fontsize="small")
    name = of.band.y_names[target]
    across = of.band.x_names[0] if one else f"the law's expectation of {name}"
    return tidy(ax, across, f"bound on the error of E[{name}]",
                 f"Error budget, mean bound {(half + gap + extra).mean():.3g}")  # fmt: skip


def gamma_split(parts: Float2, ax: Axes | None = None) -> Axes:
    """Draw sqrt(gamma_t) over rounds, (rounds, 3): ridge, noise and imputation parts."""
    ax = axis(ax)
    some = thinned(len(parts), 200)
    ax.stackplot(some + 1, *parts[some].T, labels=["ridge", "noise", "imputation (from D_t)"],
                 colors=[COLOURS[2], COLOURS[5], COLOURS[4]], alpha=0.8)  # fmt: skip
    ax.legend(frameon=False, fontsize="small", loc="upper left", bbox_to_anchor=(0.0, -0.16),
              ncols=3)  # fmt: skip
    ax.margins(x=0)
    return tidy(ax, "round", "sqrt(gamma_t)", "Confidence radius and what it is made of")


def thinned(count: int, most: int = 120) -> Int:
    """Positions of at most ``most`` of ``count`` points, both ends among them."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(np.int64))


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
    return tidy(ax, "rank of the truth among 99 draws", "archives", f"{parameter}: p = {p:.2g}")


def decay_plot(plan: Plan, ax: Axes | None = None) -> Axes:
    """Draw e and the root mean D over units, with fitted lines and bands, and where e meets e*.

    Bars are one standard error over orderings; bands are the 95 % intervals of the lines.
    """
    from matplotlib.ticker import LogLocator

    ax = axis(ax, 6.8, 4.2)
    needed, now, far = plan.needed, float(plan.units), 30.0 * plan.units
    ends = [n for n in needed if 0 < n <= far]
    first = min([plan.decay.units[0], *ends]) / 1.3
    grid = np.geomspace(first, max([2.0 * now, *(1.3 * n for n in ends)]), 200)
    for decay, colour, style, mark, name in (
        (plan.error_decay, COLOURS[0], "-", "o", "e, bound on the error of a reward"),
        (plan.decay, COLOURS[1], "--", "s", "root mean D, bound on that of a feature"),
    ):
        low, middle, high = decay.at(grid)
        label = f"{name}: n^{-decay.rate:.2f}"
        ax.fill_between(grid, low, high, color=colour, alpha=0.18, linewidth=0)
        ax.plot(grid, middle, color=colour, linestyle=style, linewidth=1.2, label=label)
        mean = decay.values.mean(0)
        bar = decay.values.std(0, ddof=1) / np.sqrt(len(decay.values))
        ax.errorbar(decay.units, mean, bar, color=colour, marker=mark, markersize=4.5, capsize=3,
                    linestyle="none")  # fmt: skip
    horizon = f"{plan.stakes.horizon:,}"
    ax.axhline(plan.target, color=COLOURS[6], linewidth=0.9, linestyle=":",
               label=f"e*: imputation = noise at T = {horizon}")  # fmt: skip
    if needed.n <= far:
        reach = np.clip([[needed.n - max(needed.low, grid[0])], [min(needed.high, grid[-1]) -
                        needed.n]], 0.0, None)  # fmt: skip
        ax.errorbar([needed.n], [plan.target], xerr=reach, color=COLOURS[6], marker="D",
                    markersize=6, capsize=4, linestyle="none", zorder=5)  # fmt: skip
        ax.annotate(f"{np.ceil(needed.n):,.0f} units", (needed.n, plan.target), xytext=(0, 9),
                    textcoords="offset points", ha="center", fontsize="small")  # fmt: skip
    ax.axvline(now, color="#999999", linewidth=0.8)
    ax.set(xscale="log", yscale="log")
    ticks = [*plan.decay.units, *(now * 2.0 ** np.arange(1, 7))]
    ax.set_xticks(ticks, [f"{n:,.0f}" for n in ticks])
    ax.set_xlim(grid[0], grid[-1])  # ticks widen the axis
    ax.minorticks_off()
    ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    ax.yaxis.set_major_formatter("{x:g}")
    ax.legend(frameon=False, fontsize="small", loc="upper center", bbox_to_anchor=(0.5, -0.16))
    title = f"{plan.answer.capitalize()} at T = {horizon}; bars: 1 se over orderings, bands: 95 %"
    return tidy(ax, "units in the archive (grey: all there are)", "bound, log scale", title)
