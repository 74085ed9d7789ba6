"""Beijing air quality: ventilation without an expensive monitor."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from pulse_pyro.arrays import Float
from pulse_pyro.cases.case import Case, judged_finding, setting_finding, ways_finding
from pulse_pyro.cases.compare import HERE, Imputer, Way, compare
from pulse_pyro.cases.judge import judge
from pulse_pyro.datasets.beijing import WEATHER, load_beijing
from pulse_pyro.environments.replay import by_time
from pulse_pyro.laws.gp import gaussian_process
from pulse_pyro.laws.linear import linear_lags
from pulse_pyro.laws.neural import neural_density
from pulse_pyro.laws.state_space import state_space
from pulse_pyro.parallel import Engine
from pulse_pyro.radius import constant
from pulse_pyro.summary import Identity, Lags, Stack, Window

MAIN = "alpha 0.25"
WAYS = {
    MAIN: Way(constant(0.25)),
    "alpha 0.1": Way(constant(0.1)),
    "alpha 1": Way(constant(1.0)),
    "in order of time": Way(constant(0.25), by_time),
}


def mean_weather(values: Float, axis: int) -> Float:
    """Return the mean of what was seen of the weather, NaN where nothing was; 0 for the clock.

    Means of a clock over whole days are zero up to rounding, which must not pass for a signal.
    """
    known = np.isfinite(values)
    count = known.sum(axis)
    total = np.where(known, values, 0.0).sum(axis)
    mean = np.where(count > 0, total / np.maximum(count, 1), np.nan)
    mean[..., len(WEATHER) :] = 0.0
    return mean


# half a day in full, then means over one, three and seven days
PAST = Stack(Lags(3), Window(4, mean_weather), Window(12, mean_weather), Window(28, mean_weather))
DAY = Stack(Identity(), Window(4, mean_weather))
IMPUTERS = (
    Imputer("linear", linear_lags(PAST)),
    Imputer("gp", gaussian_process(DAY, basis=10)),
    Imputer("neural", neural_density(PAST, components=3, width=128), anew=True, adaptive=True),
    Imputer("state_space", state_space(4, ar=1)),
)


def beijing_case(
    folder: str | Path, *, runs: int = 10, seed: int = 0, engine: Engine = HERE
) -> Case:
    """Compare agents on the Beijing data; see ``datasets.beijing`` for what they decide.

    The laws' inputs were settled by looking at a handful of choices on these very rounds, so the
    same laws are also played with the two sets of stations swapped, which nobody looked at before.
    """
    start = time.perf_counter()
    dataset = load_beijing(folder)
    first = compare(dataset, IMPUTERS, PAST, ways=WAYS, runs=runs, seed=seed, engine=engine)
    other = compare(
        load_beijing(folder, swapped=True), IMPUTERS, PAST, ways=dict([next(iter(WAYS.items()))]),
        runs=runs, seed=seed, engine=engine,
    )  # fmt: skip
    judged = judge(dataset, [each for each in IMPUTERS if each.name != "state_space"], seed=seed,
                   engine=engine)  # fmt: skip
    main, bands = f"ventilation, {MAIN}", f"bands, {MAIN}"
    findings = (
        setting_finding(first, main, "Three ventilation levels"),
        setting_finding(other, main, "Stations swapped", first.best(main)),
        setting_finding(first, bands, "Five bands"),
        ways_finding(first, [name for name in first.settings if name != bands],
                     "Other radii, and in order of time (stations of one time learn in turn)"),
        judged_finding(judged, "D_t of five pollutants"),
    )  # fmt: skip
    return Case(
        dataset.name,
        first.headline(main),
        dataset.about,
        dataset.source,
        findings,
        time.perf_counter() - start,
    )
