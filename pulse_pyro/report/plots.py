"""Figures: each takes an axis or makes one, and never touches pyplot's global state."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from pulse_pyro._core.arrays import Bool, Float1, Float2, Float3, Int

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle
    from pandas import DataFrame

    from pulse_pyro.base import FittedLaw
    from pulse_pyro.calibration.calibration import Calibration
    from pulse_pyro.calibration.part import Budget, Part
    from pulse_pyro.calibration.planner import Plan
    from pulse_pyro.data.history import History
    from pulse_pyro.diagnostics.calibration_ranks import Sbc
    from pulse_pyro.diagnostics.domain import Domain
    from pulse_pyro.diagnostics.result import Diagnostics, Evidence, ScoreComparison
    from pulse_pyro.envs.replay import Replayed
    from pulse_pyro.envs.simulation import Run

# Figures: each takes an axis or makes one, and never touches pyplot's global state.


# Okabe and Ito's colours, told apart by colour-blind readers; line styles repeat the message
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
# areas side by side: dark and light take turns
VOTES = (COLOURS[0], COLOURS[5], COLOURS[2], COLOURS[4], COLOURS[1], COLOURS[3], "#999999")
STYLES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), "-")


def line_look(place: int) -> dict[str, Any]:
    """Return colour and style of the curve in this place; the first 42 all differ."""
    turn, at = divmod(place, len(COLOURS))
    return {"color": COLOURS[at], "linestyle": STYLES[(at + turn) % len(set(STYLES))]}


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
        ax.plot(steps, mean, **line_look(i), label=name)
        if runs > 1:
            colour = COLOURS[i % len(COLOURS)]
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
    """Draw one held-out unit: a column of W, its mean and the 90 % interval of draws (size, rows).

    target : which column of W, the first by default; ``draws`` are of that column.
    """
    ax = axis(ax)
    steps = history.step
    known = ~np.isnan(draws).all(0)  # a law that refuses rows says nothing about them
    low, high = np.full((2, len(steps)), np.nan)
    low[known], high[known] = np.nanquantile(draws[:, known], [0.05, 0.95], axis=0)
    ax.fill_between(
        steps, low, high, color=COLOURS[5], alpha=0.35, linewidth=0, label="90 % of draws"
    )
    ax.plot(steps, fitted(history).mean()[:, target], color=COLOURS[0], label="expected given S")
    ax.plot(steps, history.w[:, target], ".", color=COLOURS[6], markersize=4, label="recorded")
    ax.legend(frameon=False, ncols=3, fontsize="small", loc="upper left", bbox_to_anchor=(0, -0.16))
    title = f"Held-out unit {history.units[0]}: {history.w_names[target]}"
    return tidy(ax, "time", history.w_names[target], title)


def band_plot(
    calibration: Calibration, target: int = 0, ax: Axes | None = None, *, part: int = 0
) -> Axes:
    """Draw a target's band beside the law's own mean, at held-out contexts.

    Over the band's input, if it has one that says all of the law's mean; else the reference fit's
    distance from the law, over the band's only input or over what the law expects. part : which law
    and band, after cross-fitting. Where no errors at single contexts hold, the reason is written
    instead.
    """
    ax = axis(ax)
    if not calibration.usable:
        return words_instead(ax, why_no_errors(calibration))
    of = calibration.parts[part]
    budget = of.budget(calibration.contexts)
    seen, name = _seen(budget), of.targets.names[target]
    at = _across(calibration, of, budget, target)[seen]
    centre, half, law = (
        values[seen][:, target] for values in (budget.centre, budget.half, budget.predicted)
    )
    order = np.argsort(at)
    curve = says_the_mean(of, target)
    order = order[thinned(len(order), 400)] if curve else order
    at, centre, half, law = (values[order] for values in (at, centre, half, law))
    if not curve:
        at, centre, half = (_groups(values, 60) for values in (at, centre - law, half))
        law = np.zeros_like(at)
    label = f"mu_p0 ± r(s), {100 * of.band.level:.4g}% at once"
    ax.fill_between(
        at, centre - half, centre + half, color=COLOURS[5], alpha=0.35, linewidth=0, label=label
    )
    ax.plot(at, centre, color=COLOURS[0], label="reference fit, mu_p0")
    ax.plot(at, law, color=COLOURS[1], linestyle="--", label="the law, mu_phat")
    ax.legend(frameon=False, fontsize="small")
    up = f"expected {name}" if curve else f"{name}: reference fit minus law"
    title = f"Band of {name}: {of.band.kind.replace('_', ' ')}, {of.band.units} clusters"
    return tidy(ax, band_axis(of, target), up, title)


def budget_plot(
    calibration: Calibration, target: int = 0, ax: Axes | None = None, *, part: int = 0
) -> Axes:
    """Draw the bound of a target over contexts, split into band, difference and Monte Carlo.

    Where no errors at single contexts hold, the reason is written instead.
    """
    ax = axis(ax)
    if not calibration.usable:
        return words_instead(ax, why_no_errors(calibration))
    of = calibration.parts[part]
    budget = of.budget(calibration.contexts)
    seen = _seen(budget)
    at = _across(calibration, of, budget, target)[seen]
    order = np.argsort(at)
    half = budget.half[seen][order, target]
    gap = np.abs(budget.centre - budget.predicted)[seen][order, target]
    extra = budget.monte_carlo[seen][order, target]
    pieces = [_groups(values, 60) for values in (half, gap, extra)]
    labels = ["half-width r(s)", "difference |mu_p0 - mu_phat|", "Monte Carlo"]
    count = 3 if extra.any() else 2
    ax.stackplot(
        _groups(at[order], 60),
        *pieces[:count],
        labels=labels[:count],
        colors=[COLOURS[5], COLOURS[4], COLOURS[3]],
        alpha=0.8,
    )
    ax.legend(frameon=False, fontsize="small")
    name = of.targets.names[target]
    return tidy(
        ax,
        band_axis(of, target),
        f"bound on the error of E[{name}]",
        f"Error budget, mean bound {(half + gap + extra).mean():.3g}",
    )


def why_no_errors(calibration: Calibration) -> str:
    """Say why there are no errors at single contexts, what stands instead, what would lift it."""
    failed, standing = calibration.rung("uniform"), calibration.standing
    out = [failed.claim]
    if standing.holds:
        out.append(f"What stands instead is the rung {standing.name}: {standing.claim}")
    if failed.remedy and failed.remedy not in failed.claim:
        out.append(f"What would lift it: {failed.remedy}")
    return " ".join(out)


def words_instead(ax: Axes, text: str) -> Axes:
    """Write a sentence where a picture would show what may not be claimed."""
    ax.set_axis_off()
    ax.text(0.0, 1.0, fill(text, 58), transform=ax.transAxes, va="top", fontsize=10)
    return ax


def band_axis(part: Part, target: int) -> str:
    """Return what a band is drawn over: its only input, or what the law expects."""
    names = part.inputs.names
    return names[0] if len(names) == 1 else f"the law's expectation of {part.targets.names[target]}"


def _seen(budget: Budget) -> Bool:
    """Return the contexts that are drawn: in the domain, or, if none is, all that are seen."""
    known: Bool = np.all(np.isfinite(budget.half), axis=-1)
    inner: Bool = budget.inside & known
    return inner if inner.any() else known


def _across(calibration: Calibration, part: Part, budget: Budget, target: int) -> Float1:
    """Return where each context is drawn; see :func:`band_axis`."""
    if len(part.inputs.names) > 1:
        return budget.predicted[:, target]
    contexts = calibration.contexts
    z: Float2 = part.inputs(contexts.inputs(part.law.summary), contexts.s, budget.predicted)
    return z[:, 0]


def says_the_mean(part: Part, target: int) -> bool:
    """Tell whether the law's mean is a curve over the band's only input."""
    inputs, law = part.inputs, part.law
    only = len(inputs.x) == len(law.summary.names) * len(law.schema.s_names) == 1
    return len(inputs.names) == 1 and (only or inputs.forecast.tolist() == [target])


def gamma_split(parts: Float2, ax: Axes | None = None) -> Axes:
    """Draw sqrt(gamma_t) over rounds, (rounds, 3): ridge, noise and imputation parts."""
    ax = axis(ax)
    some = thinned(len(parts), 200)
    ax.stackplot(
        some + 1,
        *parts[some].T,
        labels=["ridge", "noise", "imputation (from D_t)"],
        colors=[COLOURS[2], COLOURS[5], COLOURS[4]],
        alpha=0.8,
    )
    ax.legend(
        frameon=False, fontsize="small", loc="upper left", bbox_to_anchor=(0.0, -0.16), ncols=3
    )
    ax.margins(x=0)
    return tidy(ax, "round", "sqrt(gamma_t)", "Confidence radius and what it is made of")


def committee_weights(
    labels: tuple[str, ...], rounds: Float1, weights: Float2, ax: Axes | None = None
) -> Axes:
    """Draw what each member's vote counts, over rounds.

    labels : k members, drawn from the bottom up. rounds : (n,). weights : (n, k), each row adds up
    to 1.
    """
    ax = axis(ax)
    some = thinned(len(rounds), 200)
    ax.stackplot(
        np.asarray(rounds)[some],
        *np.asarray(weights)[some].T,
        labels=labels,
        colors=[VOTES[k % len(VOTES)] for k in range(len(labels))],
        edgecolor="white",
        linewidth=0.5,
    )
    ax.set(ylim=(0, 1), yticks=[0, 0.5, 1])
    ax.margins(x=0)
    ax.legend(
        frameon=False, fontsize="small", loc="upper left", bbox_to_anchor=(0.0, -0.16), ncols=3
    )
    return tidy(ax, "round", "weight", "Weights of the members, from the bottom up as listed")


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
        ax.errorbar(
            decay.units,
            mean,
            bar,
            color=colour,
            marker=mark,
            markersize=4.5,
            capsize=3,
            linestyle="none",
        )
    horizon = f"{plan.stakes.horizon:,}"
    ax.axhline(
        plan.target,
        color=COLOURS[6],
        linewidth=0.9,
        linestyle=":",
        label=f"e*: imputation = noise at T = {horizon}",
    )
    if needed.n <= far:
        reach = np.clip(
            [[needed.n - max(needed.low, grid[0])], [min(needed.high, grid[-1]) - needed.n]],
            0.0,
            None,
        )
        ax.errorbar(
            [needed.n],
            [plan.target],
            xerr=reach,
            color=COLOURS[6],
            marker="D",
            markersize=6,
            capsize=4,
            linestyle="none",
            zorder=5,
        )
        ax.annotate(
            f"{np.ceil(needed.n):,.0f} units",
            (needed.n, plan.target),
            xytext=(0, 9),
            textcoords="offset points",
            ha="center",
            fontsize="small",
        )
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


# Figures of diagnostics: four small panels for a law, ranges of contexts for a domain.


BINS = 20
POINTS = 2000  # most residuals drawn


def four_panels(diagnostics: Diagnostics, evidence: Evidence, j: int) -> Figure:
    """Draw PIT, coverage, residuals and scores of the W numbered j on a figure of its own."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.6, 6.8), layout="constrained")
    axes = figure.subplots(2, 2).ravel()
    name, pit = evidence.w_names[j], evidence.pit[:, j]
    pit_histogram(pit, evidence.unit, axes[0])
    coverage_curve(pit, evidence.unit, axes[1])
    residual_plot(evidence.w[:, j], evidence.mean[:, j], name, axes[2])
    comparisons = [
        comparison
        for comparison in evidence.comparisons
        if comparison.score in ("log score", f"crps {name}")
    ]
    score_plot(comparisons, axes[3])
    figure.suptitle(f"{name} on held-out units: {diagnostics.verdict}", x=0.01, ha="left")
    return figure


def pit_histogram(pit: Float1, unit: Int, ax: Axes | None = None) -> Axes:
    """Draw the PIT (n,) of rows of units (n,) with the 99 % range of a uniform one, over units."""
    from scipy import stats

    ax = axis(ax, 4.8, 3.4)
    here = np.isfinite(pit)
    pit, unit = pit[here], unit[here]
    edges = np.linspace(0, 1, BINS + 1)
    place = np.clip(np.digitize(pit, edges) - 1, 0, BINS - 1)
    rows = np.bincount(unit)
    share = np.stack([np.bincount(unit[place == k], minlength=len(rows)) for k in range(BINS)])
    count, units = int(rows.sum()), int((rows > 0).sum())
    density = share.sum(1) * BINS / count
    # errors by unit, no less than those of independent rows; simultaneous over bins by Bonferroni
    own = np.sqrt(((share - density[:, None] * rows / BINS) ** 2).sum(1)) * BINS / count
    error = np.maximum(own, np.sqrt((BINS - 1) / count))
    half = stats.t.isf(0.005 / BINS, max(units - 1, 1)) * np.median(error)
    ax.axhspan(
        max(1 - half, 0.0),
        1 + half,
        color=COLOURS[5],
        alpha=0.3,
        linewidth=0,
        label="99 % range if uniform, by unit",
    )
    ax.bar(edges[:-1] + 0.5 / BINS, density, width=0.92 / BINS, color=COLOURS[0])
    ax.axhline(1.0, color=COLOURS[6], linewidth=0.8)
    for edge in (max(1 - half, 0.0), 1 + half):  # bars hide the lower edge
        ax.axhline(edge, color=COLOURS[6], linewidth=0.8, linestyle=":")
    ax.set_ylim(0, 1.25 * max(density.max(), 1 + half))
    ax.set_xlim(0, 1)
    ax.legend(frameon=False, fontsize="small", loc="upper center")
    return tidy(
        ax,
        "share of the law's draws below W (PIT)",
        "density",
        "PIT: cup = over-confident, dome = cautious, slope = bias",
    )


def coverage_curve(pit: Float1, unit: Int, ax: Axes | None = None) -> Axes:
    """Draw the share inside central intervals over their level, with 95 % intervals by unit."""
    from pulse_pyro.diagnostics.by_unit import unit_mean

    ax = axis(ax, 4.8, 3.4)
    levels = np.linspace(0.05, 0.99, 48)
    off = [np.where(np.isfinite(pit), np.abs(pit - 0.5) <= level / 2, np.nan) for level in levels]
    shares = [unit_mean(inside, unit) for inside in off]
    low, high = np.array([share.interval for share in shares]).T
    ax.plot([0, 1], [0, 1], color=COLOURS[6], linewidth=0.8, linestyle=":", label="as stated")
    if np.isfinite(low).all():
        ax.fill_between(
            levels, low, high, color=COLOURS[5], alpha=0.4, linewidth=0, label="95 %, by unit"
        )
    ax.plot(levels, [share.mean for share in shares], color=COLOURS[0], label="the law")
    ax.set(xlim=(0, 1), ylim=(0, 1))
    ax.legend(frameon=False, fontsize="small", loc="upper left")
    return tidy(ax, "stated level", "share of W inside", "Coverage: below dots = over-confident")


def residual_plot(w: Float1, mean: Float1, name: str, ax: Axes | None = None) -> Axes:
    """Draw W minus its expectation over the expectation, with the mean in ten groups."""
    ax = axis(ax, 4.8, 3.4)
    here = np.isfinite(w)
    at, left = mean[here], (w - mean)[here]
    some = np.linspace(0, len(at) - 1, min(POINTS, len(at))).astype(int)
    ax.plot(
        at[some], left[some], ".", color=COLOURS[5], markersize=3, alpha=0.5, label="held-out rows"
    )
    ax.axhline(0.0, color=COLOURS[6], linewidth=0.8)
    order = np.argsort(at)
    groups = np.array_split(order, min(10, len(order)))
    centre = [at[part].mean() for part in groups]
    middle = [left[part].mean() for part in groups]
    ax.plot(centre, middle, "o-", color=COLOURS[1], markersize=4, label="mean in ten groups")
    low, high = np.quantile(left, [0.002, 0.998])
    pad = 0.3 * (high - low) + 1e-12
    ax.set_ylim(low - pad / 3, high + pad)
    ax.legend(frameon=False, fontsize="small", loc="upper center", ncols=2)
    return tidy(ax, f"expected {name}", f"{name} - expected", "Residuals: a trend = a wrong mean")


def score_plot(comparisons: list[ScoreComparison], ax: Axes | None = None) -> Axes:
    """Draw gains over the baselines with their 95 % intervals."""
    ax = axis(ax, 4.8, 3.4)
    marks = {"climatology": (COLOURS[0], "o"), "linear": (COLOURS[1], "s")}
    for k, comparison in enumerate(reversed(comparisons)):
        colour, mark = marks[comparison.against]
        middle, low, high = (
            np.clip(v, -1e3, 1e3) for v in (comparison.gain, comparison.low, comparison.high)
        )
        ax.errorbar(
            [middle],
            [k],
            xerr=[[middle - low], [high - middle]],
            color=colour,
            marker=mark,
            capsize=3,
            linestyle="none",
        )
    labels = [
        f"{each.score}{'' if each.score == 'log score' else ' saved'}\nvs {each.against}"
        for each in reversed(comparisons)
    ]
    ax.set_yticks(range(len(comparisons)), labels)
    ax.axvline(0.0, color=COLOURS[6], linewidth=0.8)
    ax.set_ylim(-0.6, max(len(comparisons), 1) - 0.4)
    if not comparisons:
        ax.text(0.5, 0.5, "no baseline could be fitted", ha="center", transform=ax.transAxes)
    return tidy(ax, "gain: nats a row, or share of CRPS", "", "Scores: right of 0 = law is better")


def domain_plot(domain: Domain, online: Float3 | None, ax: Axes | None = None) -> Axes:
    """Draw the range of every input in its own units of spread, and online rows x beside it."""
    ax = axis(ax, 6.4, max(2.4, 0.3 * len(domain.names) + 1.4))
    rows = domain.x[np.isfinite(domain.x[..., 0])]
    middle, spread = np.median(rows, axis=0), rows.std(0)
    spread = np.where(spread > 0, spread, 1.0)
    place = np.arange(len(domain.names))[::-1]
    parts = [(domain.low, domain.high, COLOURS[5], 0.45, "archive, central 99 %")]
    if online is not None:
        seen = online[np.isfinite(online[..., 0])]
        low, high = np.quantile(seen, [0.005, 0.995], axis=0)
        parts.append((low, high, COLOURS[1], 0.14, "online, central 99 %"))
    for low, high, colour, height, label in parts:
        ax.barh(
            place,
            (high - low) / spread,
            left=(low - middle) / spread,
            height=height,
            color=colour,
            label=label,
        )
    ax.set_yticks(place, domain.names)
    ends = np.concatenate([(v - middle) / spread for part in parts for v in part[:2]])
    ax.set_xlim(1.05 * ends.min() - 0.05 * ends.max(), 1.05 * ends.max() - 0.05 * ends.min())
    ax.set_ylim(-0.6, len(place) + 0.5)
    ax.legend(frameon=False, fontsize="small", loc="upper center", ncols=2)
    return tidy(ax, "standard deviations from the archive's median", "", "Where contexts lie")


# Figures of recorded rounds: what each agent earned, and from when on.


def utility_dots(played: Replayed, ax: Axes | None = None) -> Axes:
    """Draw each agent's mean utility a round, with two standard errors over runs, best first."""
    table = played.table.sort_values("utility")
    ax = axis(ax, height=0.6 + 0.38 * len(table))
    where = np.arange(len(table))
    colours = [_colour(str(name)) for name in table.index]
    ax.hlines(
        where,
        table["utility"] - 2 * table["se"],
        table["utility"] + 2 * table["se"],
        color=colours,
        linewidth=2,
    )
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
        ax.plot(at + 1, mean, **line_look(i), label=name)
        if played.runs > 1:
            se = apart.std(0, ddof=1) / np.sqrt(played.runs)
            ax.fill_between(at + 1, mean - se, mean + se, color=colour, alpha=0.2, linewidth=0)
    ax.axhline(0.0, color="#888888", linewidth=0.8)
    ax.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.01, 1.0))
    return tidy(ax, "round", f"utility gained over {floor}", "Cumulative, band = 1 standard error")


def _colour(agent: str) -> str:
    """PULSE agents stand out from those that leave W out, and from the one that sees it."""
    return COLOURS[0] if agent.startswith("pulse") else "#000000" if "full" in agent else COLOURS[1]


# Figures of a design: who loses how much where.


MOST_RATIO = 10.0  # from here on all shades are the same


def ratio_table(ratios: DataFrame, best: str | None = None, ax: Axes | None = None) -> Axes:
    """Draw regret beside the best of each environment, (candidate, environment), as shaded figures.

    The first line is the worst of each column. best : the candidate to be marked. A dash: it did
    not play there.
    """
    from matplotlib.colors import LinearSegmentedColormap

    values = ratios.to_numpy(np.float64).T
    known = np.isfinite(values)
    worst = np.where(known, values, -np.inf).max(0)
    shown = np.vstack([np.where(np.isfinite(worst), worst, np.nan), values])
    rows, columns = shown.shape
    ax = axis(ax, 2.9 + 0.52 * columns, 1.7 + 0.3 * rows)
    shades = LinearSegmentedColormap.from_list("regret", ["#ffffff", COLOURS[4], COLOURS[1]])
    depth = np.log(np.clip(shown, 1.0, MOST_RATIO)) / np.log(MOST_RATIO)
    ax.pcolormesh(np.ma.masked_invalid(depth), cmap=shades, vmin=0, vmax=1, edgecolors="w")
    for i, j in np.ndindex(rows, columns):
        text = "–" if np.isnan(shown[i, j]) else f"{shown[i, j]:.1f}"
        weight = "bold" if i == 0 else "normal"
        ax.text(j + 0.5, i + 0.5, text, ha="center", va="center", fontsize=8, weight=weight)
    ax.set_yticks(np.arange(rows) + 0.5, ["worst of all", *map(str, ratios.columns)], fontsize=9)
    names = [str(name) for name in ratios.index]
    ax.xaxis.tick_top()
    ax.set_xticks(np.arange(columns) + 0.5, names, rotation=40, ha="left", fontsize=9)
    for label, name in zip(ax.get_xticklabels(), names, strict=True):
        label.set(fontweight="bold" if name == best else "normal", rotation_mode="anchor")
    for label in ax.get_yticklabels()[:1]:
        label.set_fontweight("bold")
    ax.invert_yaxis()
    ax.tick_params(length=0)
    ax.axhline(1.0, color=COLOURS[6], linewidth=1.2)
    if best in names:
        edge = ax.add_patch(_frame(names.index(best), rows))
        edge.set_clip_on(False)
    tidy(ax, "regret divided by that of the best candidate in the same environment", "", "")
    ax.spines[:].set_visible(False)
    return ax


def _frame(column: int, rows: int) -> Rectangle:
    """Return the frame around a column."""
    from matplotlib.patches import Rectangle

    return Rectangle((column, 0), 1, rows, fill=False, edgecolor=COLOURS[0], linewidth=2.5)
