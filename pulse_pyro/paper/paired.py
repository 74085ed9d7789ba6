"""Differences of agents on the same runs, with paired standard errors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pulse_pyro.envs.simulation import Run

if TYPE_CHECKING:
    from pandas import DataFrame

    from pulse_pyro.paper.result import Result


class PairedDifference(NamedTuple):
    """Mean over runs of the final full-context regret of one agent minus another's, and its se."""

    difference: float
    se: float


def paired(run: Run, name: str, other: str) -> PairedDifference:
    """Return how much more regret one agent has than another; runs share contexts and noise."""
    apart = run.of(name)[:, -1] - run.of(other)[:, -1]
    return PairedDifference(float(apart.mean()), float(apart.std(ddof=1) / np.sqrt(len(apart))))


def beside_best(committees: Sequence[str], singles: Sequence[str]) -> Callable[[Result], DataFrame]:
    """Return what makes a table of committees beside the single agent that came out best.

    singles : those that play the same radius and do not see W; which of them is best is known only
    afterwards, so ``best`` is a benchmark and no policy. difference, se : paired over runs.
    """

    def table(result: Result) -> DataFrame:
        import pandas as pd

        rows = []
        for setting, run in result.curves.items():
            final = {name: float(run.of(name)[:, -1].mean()) for name in run.names}
            best = min((name for name in singles if name in final), key=final.__getitem__)
            for name in committees:
                if name not in final:
                    continue
                gain = paired(run, name, best)
                rows.append(
                    {
                        "setting": setting,
                        "agent": name,
                        "regret": final[name],
                        "best": best,
                        "best_regret": final[best],
                        "times_best": final[name] / final[best],
                        "difference": gain.difference,
                        "se": gain.se,
                    }
                )
        return pd.DataFrame(rows)

    return table
