"""What the page's figures share: panels narrow enough for a phone, legends below, plain ticks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pulse_pyro.arrays import Float1

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

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
        drawn, names = ax.get_legend_handles_labels()
        handles, labels = handles + drawn, labels + names
        own = ax.get_legend()
        if own is not None:
            own.remove()
    axes[0].figure.legend(
        handles, labels, loc="outside lower left", ncols=columns, frameon=False, fontsize=9,
        handlelength=1.8, columnspacing=1.2,
    )  # fmt: skip


def plain_ticks(*axes: Any) -> None:
    """Write 100, not 10 to the power of 2."""
    for one in axes:
        one.set_major_formatter("{x:g}")


def blocks(values: Float1) -> Float1:
    """Average neighbours in at most :data:`BLOCKS` groups of equal size."""
    parts = np.array_split(values, min(BLOCKS, len(values)))
    return np.array([part.mean() for part in parts])
