"""Figures of the archive, the law's checks and the calibration."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pulse_pyro.plots import COLOURS, STYLES, axis, band_plot, budget_plot, thinned, tidy
from pulse_pyro.report.panels import WIDTH, legend_below, panels, plain_ticks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from pulse_pyro.calibration.calibration import Calibration
    from pulse_pyro.diagnostics.result import Evidence
    from pulse_pyro.history import History

COLUMNS = 6  # columns of an archive that are drawn, at most
DOTS = 400  # residuals drawn, at most: a page is sent around


def columns_over_time(history: History) -> Axes:
    """Draw, for each column of S and W, the middle and the range of units over time."""
    values = np.concatenate([history.s, history.w], axis=-1)[..., :COLUMNS]
    names = [f"{n} (S)" for n in history.s_names] + [f"{n} (W)" for n in history.w_names]
    axes = panels(values.shape[-1], 1.5)
    longest = int(history.seen.sum(1).argmax())
    for j, ax in enumerate(axes):
        known = np.isfinite(values[..., j]).any(0)
        steps = np.flatnonzero(known)
        low, middle, high = np.nanquantile(values[:, known, j], [0.1, 0.5, 0.9], axis=0)
        ax.fill_between(steps, low, high, color=COLOURS[5], alpha=0.35, linewidth=0,
                        label="80 % of units")  # fmt: skip
        ax.plot(steps, middle, color=COLOURS[0], label="median")
        ax.plot(values[longest, :, j], color=COLOURS[6], linewidth=0.7, linestyle=":",
                label=f"one unit ({history.units[longest]})")  # fmt: skip
        tidy(ax, "time" if j == len(axes) - 1 else "", names[j], "")
    title = f"Archive over time, {len(history.units)} units"
    more = len(names) - len(axes)
    axes[0].set_title(title + (f"; {more} more columns" if more else ""), loc="left",
                      fontsize="medium")  # fmt: skip
    legend_below(axes[-1:], 3)
    return axes[0]


def evidence_panels(evidence: Evidence, j: int) -> Axes:
    """Draw PIT, coverage, residuals and scores of the W numbered j, below each other."""
    from pulse_pyro.diagnostic_plots import coverage_curve, pit_histogram, residual_plot, score_plot

    name, pit = evidence.w_names[j], evidence.pit[..., j]
    first, second, third, last = panels(4, 2.7, share=False)
    pit_histogram(pit, first).set_title("PIT: flat if the law is right", loc="left",
                                        fontsize="medium")  # fmt: skip
    coverage_curve(pit, second)
    residual_plot(evidence.w[..., j], evidence.mean[..., j], name, third)
    dots = third.lines[0]
    points = np.asarray(dots.get_xydata())
    dots.set_data(points[thinned(len(points), DOTS)].T)
    score_plot([c for c in evidence.comparisons if c.score in ("log score", f"crps {name}")], last)
    return first


def bound_over_contexts(calibration: Calibration) -> Axes:
    """Draw D_t over the share of held-out contexts that have less, inside and out of the domain."""
    ax = axis(None, WIDTH, 3.4)
    worst = np.max(calibration.error**2, axis=(2, 3))
    known = np.isfinite(worst)
    for i, (where, label) in enumerate(
        ((calibration.inside, "in the domain"), (~calibration.inside, "outside"))
    ):
        d = np.sort(worst[known & where])
        if len(d):
            share = np.linspace(0.0, 100.0, len(d)) if len(d) > 1 else np.array([100.0])
            some = thinned(len(d))
            ax.plot(share[some], d[some], color=COLOURS[i], linestyle=STYLES[i],
                    marker="" if len(d) > 1 else "o",
                    label=f"{label}: {len(d):,} contexts")  # fmt: skip
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
