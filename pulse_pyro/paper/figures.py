"""Figures of experiments: over rounds, over settings, or as powers of a size."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from pulse_pyro.report.plots import COLOURS, STYLES, axis, regret_curves, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

    from pulse_pyro.paper.lower_bound import Sweep
    from pulse_pyro.paper.result import Result

MARKS = ("o", "s", "^")


def experiment_figure(result: Result) -> Axes:
    """Draw an experiment on a figure of its own and return its first axis.

    Settings printed at several rounds: regret over rounds, a panel each. Others: final regret over
    settings. Published figures are crosses in the agent's colour. The lower bound: its powers.
    """
    experiment = result.experiment
    if experiment.name == "lower-bound":
        from pulse_pyro.paper.lower_bound import SWEEPS

        return powers(result, SWEEPS)
    if any(setting.earlier for setting in experiment.settings):
        return _over_rounds(result)
    return _over_settings(result)


def _over_rounds(result: Result) -> Axes:
    from matplotlib.figure import Figure

    settings, table = result.experiment.settings, result.table
    figure = Figure(figsize=(4.4 * len(settings) + 2.2, 4.0), layout="constrained")
    panels = figure.subplots(1, len(settings), squeeze=False, sharey=True)[0]
    lines: dict[str, Line2D] = {}
    for ax, setting in zip(panels, settings, strict=True):
        run = result.curves[setting.label]
        regret_curves(run, ax, result.experiment.shown)
        lines |= {str(line.get_label()): line for line in ax.get_lines()}
        rounds = {f"{setting.label}, t={t}": t for t in setting.earlier}
        rounds[setting.label] = run.regret.shape[-1]
        for i, name in enumerate(result.experiment.shown):
            rows = table[(table["agent"] == name) & table["setting"].isin(rounds)]
            ax.plot(
                rows["setting"].map(rounds),
                rows["published"].astype(float),
                "x",
                color=COLOURS[i],
                markersize=7,
            )
        ax.legend().remove()
        if ax is not panels[0]:
            ax.set_ylabel("")
        ax.set_title(
            f"{setting.label}: mean of {run.regret.shape[1]} runs, band 1 se",
            loc="left",
            fontsize="medium",
        )
    names = [name for name in result.experiment.shown if name in lines]
    panels[-1].legend(
        [lines[n] for n in names],
        names,
        frameon=False,
        loc="upper left",
        bbox_to_anchor=(1.01, 1.0),
    )
    first: Axes = panels[0]
    return first


def _over_settings(result: Result) -> Axes:
    from matplotlib.ticker import FuncFormatter, LogLocator

    table, labels = result.table, list(result.curves)
    groups = [setting.group for setting in result.experiment.settings]
    # a gap where the group changes, so that lines do not join what is not one sweep
    jumps = np.cumsum([0, *(one != two for one, two in pairwise(groups))])
    at = dict(zip(labels, np.arange(len(labels)) + 0.5 * jumps, strict=True))
    ax = axis(None, 7.6, 4.2)
    for i, name in enumerate(result.experiment.shown):
        if not (table["agent"] == name).any():
            continue
        rows = table[(table["agent"] == name) & table["setting"].isin(at)].set_index("setting")
        for part in np.unique(jumps):
            here = [n for n, j in zip(labels, jumps, strict=True) if j == part and n in rows.index]
            ax.errorbar(
                [at[n] for n in here],
                rows.loc[here, "regret"],
                rows.loc[here, "se"],
                color=COLOURS[i],
                marker="o",
                markersize=3.5,
                capsize=2,
                linestyle=STYLES[i],
                label=name if part == jumps[0] else None,
            )
            ax.plot(
                [at[n] for n in here],
                rows.loc[here, "published"].astype(float),
                "x",
                color=COLOURS[i],
                markersize=7,
            )
    ax.set_yscale("symlog", linthresh=1.0)
    ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
    crowded = sum(map(len, labels)) > 60
    ax.set_xticks(
        list(at.values()),
        labels,
        rotation=35 if crowded else 0,
        ha="right" if crowded else "center",
    )
    ax.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.01, 1.0))
    return tidy(
        ax, "", "final regret", "Dots: measured, bar = 1 standard error; crosses: published"
    )


def powers(result: Result, sweeps: tuple[Sweep, ...]) -> Axes:
    """Draw the lower bound's regret over N and over T, with fitted and theoretical slopes."""
    from matplotlib.figure import Figure

    from pulse_pyro.paper.lower_bound import slopes_of, split

    figure = Figure(figsize=(9.6, 4.0), layout="constrained")
    panels = dict(zip(("N", "T"), figure.subplots(1, 2), strict=True))
    counts = dict.fromkeys(panels, 0)
    slopes = slopes_of(result, sweeps)
    for sweep in sweeps:
        ax, i = panels[sweep.along], counts[sweep.along]
        x = np.array([p.rows if sweep.along == "N" else p.horizon for p in sweep.points], float)
        parts = [split(p, result.curves[p.label], result.seed) for p in sweep.points]
        names = result.curves[sweep.points[0].label].names
        what = "linear" if sweep.along == "T" else "nonparametric"
        agent = "pulse" if sweep.along == "T" else "pulse_theta"
        y = np.stack([getattr(part, what)[names.index(agent)] for part in parts])
        mean, se = y.mean(1), y.std(1, ddof=1) / np.sqrt(y.shape[1])
        row = slopes[(slopes["sweep"] == sweep.points[0].sweep) & (slopes["agent"] == agent)].iloc[
            0
        ]
        label = (
            f"{row['sweep']}: {row['slope']:.2f} [{row['low']:.2f}, {row['high']:.2f}], "
            f"theory {row['theory']:.2f}"
        )
        colour = COLOURS[6] if sweep.control else COLOURS[i]
        ax.errorbar(
            x,
            mean,
            se,
            color=colour,
            marker=MARKS[i % 3],
            markersize=4,
            capsize=2,
            linestyle="none",
            label=label,
        )
        theory = mean.prod() ** (1 / len(x)) * (x / x.prod() ** (1 / len(x))) ** row["theory"]
        ax.plot(x, theory, color=colour, linestyle=STYLES[i % 4], linewidth=1)
        counts[sweep.along] += 1
    for name, ax in panels.items():
        ax.set(xscale="log", yscale="log")
        ax.legend(frameon=False, fontsize="small", loc="upper center", bbox_to_anchor=(0.5, -0.16))
        lost = "regret where Q = 0, theta known" if name == "N" else "regret where Q = e_i, pulse"
        tidy(ax, name, lost, "Lines: the theory's slope; bars: 1 standard error")
    first: Axes = panels["N"]
    return first
