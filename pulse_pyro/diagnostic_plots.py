"""Figures of diagnostics: four small panels for a law, ranges of contexts for a domain."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pulse_pyro.arrays import Float2, Float3
from pulse_pyro.plots import COLOURS, axis, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from pulse_pyro.diagnostics.domain import Domain
    from pulse_pyro.diagnostics.result import Comparison, Diagnostics, Evidence

BINS = 20
POINTS = 2000  # most residuals drawn


def four_panels(found: Diagnostics, evidence: Evidence, j: int) -> Figure:
    """Draw PIT, coverage, residuals and scores of the W numbered j on a figure of its own."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.6, 6.8), layout="constrained")
    axes = figure.subplots(2, 2).ravel()
    name, pit = evidence.w_names[j], evidence.pit[..., j]
    pit_histogram(pit, axes[0])
    coverage_curve(pit, axes[1])
    residual_plot(evidence.w[..., j], evidence.mean[..., j], name, axes[2])
    mine = [one for one in evidence.comparisons if one.score in ("log score", f"crps {name}")]
    score_plot(mine, axes[3])
    figure.suptitle(f"{name} on held-out units: {found.verdict}", x=0.01, ha="left")
    return figure


def pit_histogram(pit: Float2, ax: Axes | None = None) -> Axes:
    """Draw the PIT (unit, time) with the 99 % range a uniform one would have, over units."""
    from scipy import stats

    ax = axis(ax, 4.8, 3.4)
    here = np.isfinite(pit)
    edges = np.linspace(0, 1, BINS + 1)
    place = np.clip(np.digitize(np.where(here, pit, 0.0), edges) - 1, 0, BINS - 1)
    rows = here.sum(1)
    share = np.stack([((place == k) & here).sum(1) for k in range(BINS)])  # (bin, unit)
    count, units = int(rows.sum()), int((rows > 0).sum())
    density = share.sum(1) * BINS / count
    # errors by unit, no less than those of independent rows; simultaneous over bins by Bonferroni
    own = np.sqrt(((share - density[:, None] * rows / BINS) ** 2).sum(1)) * BINS / count
    error = np.maximum(own, np.sqrt((BINS - 1) / count))
    half = stats.t.isf(0.005 / BINS, max(units - 1, 1)) * np.median(error)
    ax.axhspan(max(1 - half, 0.0), 1 + half, color=COLOURS[5], alpha=0.3, linewidth=0,
               label="99 % range if uniform, by unit")  # fmt: skip
    ax.bar(edges[:-1] + 0.5 / BINS, density, width=0.92 / BINS, color=COLOURS[0])
    ax.axhline(1.0, color=COLOURS[6], linewidth=0.8)
    for edge in (max(1 - half, 0.0), 1 + half):  # bars hide the lower edge
        ax.axhline(edge, color=COLOURS[6], linewidth=0.8, linestyle=":")
    ax.set_ylim(0, 1.25 * max(density.max(), 1 + half))
    ax.set_xlim(0, 1)
    ax.legend(frameon=False, fontsize="small", loc="upper center")
    return tidy(ax, "share of the law's draws below W (PIT)", "density",
                "PIT: cup = over-confident, dome = cautious, slope = bias")  # fmt: skip


def coverage_curve(pit: Float2, ax: Axes | None = None) -> Axes:
    """Draw the share inside central intervals over their level, with 95 % intervals by unit."""
    from pulse_pyro.diagnostics.by_unit import unit_mean

    ax = axis(ax, 4.8, 3.4)
    levels = np.linspace(0.05, 0.99, 48)
    off = [np.where(np.isfinite(pit), np.abs(pit - 0.5) <= level / 2, np.nan) for level in levels]
    found = [unit_mean(inside) for inside in off]
    low, high = np.array([one.interval for one in found]).T
    ax.plot([0, 1], [0, 1], color=COLOURS[6], linewidth=0.8, linestyle=":", label="as stated")
    if np.isfinite(low).all():
        ax.fill_between(levels, low, high, color=COLOURS[5], alpha=0.4, linewidth=0,
                        label="95 %, by unit")  # fmt: skip
    ax.plot(levels, [one.mean for one in found], color=COLOURS[0], label="the law")
    ax.set(xlim=(0, 1), ylim=(0, 1))
    ax.legend(frameon=False, fontsize="small", loc="upper left")
    return tidy(ax, "stated level", "share of W inside", "Coverage: below dots = over-confident")


def residual_plot(w: Float2, mean: Float2, name: str, ax: Axes | None = None) -> Axes:
    """Draw W minus its expectation over the expectation, with the mean in ten groups."""
    ax = axis(ax, 4.8, 3.4)
    here = np.isfinite(w)
    at, left = mean[here], (w - mean)[here]
    some = np.linspace(0, len(at) - 1, min(POINTS, len(at))).astype(int)
    ax.plot(at[some], left[some], ".", color=COLOURS[5], markersize=3, alpha=0.5,
            label="held-out rows")  # fmt: skip
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


def score_plot(found: list[Comparison], ax: Axes | None = None) -> Axes:
    """Draw gains over the baselines with their 95 % intervals."""
    ax = axis(ax, 4.8, 3.4)
    marks = {"climatology": (COLOURS[0], "o"), "linear": (COLOURS[1], "s")}
    for k, one in enumerate(reversed(found)):
        colour, mark = marks[one.against]
        middle, low, high = (np.clip(v, -1e3, 1e3) for v in (one.gain, one.low, one.high))
        ax.errorbar([middle], [k], xerr=[[middle - low], [high - middle]], color=colour,
                    marker=mark, capsize=3, linestyle="none")  # fmt: skip
    labels = [
        f"{one.score}{'' if one.score == 'log score' else ' saved'}\nvs {one.against}"
        for one in reversed(found)
    ]
    ax.set_yticks(range(len(found)), labels)
    ax.axvline(0.0, color=COLOURS[6], linewidth=0.8)
    ax.set_ylim(-0.6, max(len(found), 1) - 0.4)
    if not found:
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
        ax.barh(place, (high - low) / spread, left=(low - middle) / spread, height=height,
                color=colour, label=label)  # fmt: skip
    ax.set_yticks(place, domain.names)
    ends = np.concatenate([(v - middle) / spread for part in parts for v in part[:2]])
    ax.set_xlim(1.05 * ends.min() - 0.05 * ends.max(), 1.05 * ends.max() - 0.05 * ends.min())
    ax.set_ylim(-0.6, len(place) + 0.5)
    ax.legend(frameon=False, fontsize="small", loc="upper center", ncols=2)
    return tidy(ax, "standard deviations from the archive's median", "", "Where contexts lie")
