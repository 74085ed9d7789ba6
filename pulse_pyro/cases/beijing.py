"""Beijing air quality: ventilation without an expensive monitor."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pulse_pyro.arrays import Float
from pulse_pyro.cases.compare import HERE, Imputer, Way, compare
from pulse_pyro.cases.result import Comparison
from pulse_pyro.datasets.beijing import load_beijing
from pulse_pyro.environments.replay import by_time
from pulse_pyro.laws.gp import gaussian_process
from pulse_pyro.laws.linear import linear_lags
from pulse_pyro.laws.neural import neural_density
from pulse_pyro.laws.state_space import state_space
from pulse_pyro.parallel import Engine
from pulse_pyro.radius import constant
from pulse_pyro.summary import Identity, Lags, Stack, Window

WAYS = {
    "alpha 0.25": Way(constant(0.25)),
    "alpha 0.1": Way(constant(0.1)),
    "alpha 1": Way(constant(1.0)),
    "in order of time": Way(constant(0.25), by_time),
}


def mean_seen(values: Float, axis: int) -> Float:
    """Return the mean of what was seen; NaN where nothing was."""
    known = np.isfinite(values)
    count = known.sum(axis)
    total = np.where(known, values, 0.0).sum(axis)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


# half a day in full, then means over one, three and seven days
PAST = Stack(Lags(3), Window(4, mean_seen), Window(12, mean_seen), Window(28, mean_seen))
DAY = Stack(Identity(), Window(4, mean_seen))
IMPUTERS = (
    Imputer("linear", linear_lags(PAST)),
    Imputer("gp", gaussian_process(DAY, basis=10)),
    Imputer("neural", neural_density(PAST, components=3, width=128), anew=True, adaptive=True),
    Imputer("state_space", state_space(4, ar=1)),
)


def beijing_case(
    folder: str | Path, *, runs: int = 10, seed: int = 0, swapped: bool = False,
    engine: Engine = HERE,
) -> Comparison:  # fmt: skip
    """Compare agents on the Beijing data; see ``datasets.beijing`` for what they decide."""
    dataset = load_beijing(folder, swapped=swapped)
    return compare(dataset, IMPUTERS, PAST, ways=WAYS, runs=runs, seed=seed, engine=engine)
