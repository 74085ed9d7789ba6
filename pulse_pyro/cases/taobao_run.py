"""What the Taobao case found: click rates of each agent over rounds and runs."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pulse_pyro.arrays import Float1, Float2, Int
from pulse_pyro.errors import SettingError, nearest

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

POINTS = 200  # of a curve that is drawn or written
BASELINE, PAPER = "oful", "_paper"
PACKAGES = ("numpy", "numba", "pandas", "torch", "pulse-pyro")


@dataclass(frozen=True, eq=False)
class TaobaoRun:
    """Clicks of each agent on the same candidates.

    Attributes
    ----------
    names : agents, in order.
    clicks : (agent, run, round) uint8, 1 where the picked display was clicked.
    counts : rows of the log by what became of them.
    width : one-hot features the file gave (83 in the paper).
    law, seed, epochs : as asked for.
    unexplained : share of the one-hot variance that the autoencoder does not give back.
    imputed : (run,) share of the variance of the 16 unseen dimensions, on online rows, that the
        law explains.
    seconds : step -> seconds.

    Standard errors are over runs, which share the file and the embedding: they say how far the
    split, the law and the candidates move a figure, not how it would move on another file.
    """

    names: tuple[str, ...]
    clicks: NDArray[np.uint8]
    counts: Mapping[str, int]
    width: int
    law: str
    seed: int
    epochs: int
    unexplained: float
    imputed: Float1
    seconds: Mapping[str, float]

    def of(self, name: str) -> NDArray[np.uint8]:
        """Clicks (run, round) of one agent."""
        if name not in self.names:
            raise SettingError(f"TaobaoRun.of: no agent {name!r}{nearest(name, self.names)}")
        found: NDArray[np.uint8] = self.clicks[self.names.index(name)]
        return found

    @property
    def table(self) -> DataFrame:
        """One line an agent: click rate over all rounds, and its paired gain over ``oful``."""
        import pandas as pd

        rate = self.clicks.mean(-1)
        gain = rate - self.of(BASELINE).mean(-1)
        return pd.DataFrame(
            {
                "ctr": rate.mean(1),
                "se": _se(rate),
                "gain_over_oful": gain.mean(1),
                "gain_se": _se(gain),
                "runs": rate.shape[1],
                "rounds": self.clicks.shape[-1],
            },
            index=pd.Index(self.names, name="agent"),
        )

    def curve(self, name: str) -> tuple[Int, Float2]:
        """Return some rounds (point,), and the click rate up to each, (run, point)."""
        rounds = self.clicks.shape[-1]
        first = max(rounds // 100, 1)  # a rate over a few rounds says nothing and hides the rest
        at = np.unique(np.linspace(first, rounds, POINTS).round().astype(np.int64))
        return at, np.cumsum(self.of(name), axis=1, dtype=np.int64)[:, at - 1] / at

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the cumulative click rate over rounds, with a band of one standard error.

        An agent named ``_paper`` has the colour of its namesake, and dots.
        """
        from pulse_pyro.plots import COLOURS, axis, tidy

        ax = axis(ax)
        runs = self.clicks.shape[1]
        plain = [name for name in self.names if not name.endswith(PAPER)]
        for name in self.names:
            at, rate = self.curve(name)
            i = plain.index(name.removesuffix(PAPER))
            mean, colour = rate.mean(0), COLOURS[i % len(COLOURS)]
            style = ":" if name.endswith(PAPER) else "-"
            ax.plot(at, mean, color=colour, linestyle=style, label=name)
            if runs > 1:
                se = _se(rate.T)
                ax.fill_between(at, mean - se, mean + se, color=colour, alpha=0.2, linewidth=0)
        ax.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.01, 1.0))
        title = f"Law {self.law}: mean of {runs} run{'s' * (runs > 1)}, band = 1 standard error"
        return tidy(ax, "round", "cumulative click rate", title)

    def to_json(self) -> dict[str, Any]:
        """Plain values: table, curves, counts, settings, versions."""
        curves = {name: self.curve(name) for name in self.names}
        several = self.clicks.shape[1] > 1
        return {
            "name": "taobao",
            "law": self.law,
            "seed": self.seed,
            "epochs": self.epochs,
            "counts": dict(self.counts),
            "features": self.width,
            "unexplained": self.unexplained,
            "imputed": self.imputed.tolist(),
            "rows": [
                {key: None if value != value else value for key, value in row.items()}
                for row in self.table.reset_index().to_dict("records")
            ],
            "curves": {
                name: {
                    "round": at.tolist(),
                    "ctr": rate.mean(0).round(6).tolist(),
                    "se": _se(rate.T).round(6).tolist() if several else None,
                }
                for name, (at, rate) in curves.items()
            },
            "seconds": dict(self.seconds),
            "versions": {
                "python": platform.python_version(),
                **{package: version(package) for package in PACKAGES},
            },
        }

    def __repr__(self) -> str:
        table = self.table[["ctr", "se", "gain_over_oful", "gain_se"]].rename_axis(None)
        runs, rounds = self.clicks.shape[1:]
        return (
            f"TaobaoRun: highest click rate: {table['ctr'].idxmax()}\n"
            f"  {self.counts['kept']:,} displays of {sum(self.counts.values()):,}, "
            f"{self.width} one-hot features, {runs} run{'s' * (runs > 1)} of {rounds:,} rounds\n"
            f"  autoencoder leaves {self.unexplained:.0%} of the variance unexplained; law "
            f"{self.law} explains {self.imputed.mean():.0%} of the unseen part\n"
            + table.to_string(float_format="{:.5f}".format)
        )

    def _repr_html_(self) -> str:
        return self.table.to_html(float_format="{:.5f}".format)


def _se(values: Float2) -> Float1:
    """Return the standard error of each row's mean over its columns, the runs."""
    runs = values.shape[1]
    return values.std(1, ddof=1) / np.sqrt(runs) if runs > 1 else np.full(len(values), np.nan)
