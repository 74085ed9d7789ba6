"""Run experiments: every setting is a job of its own, all agents of it on the same rounds."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

from pulse_pyro._core.arrays import whole
from pulse_pyro._core.errors import SettingError, nearest
from pulse_pyro._core.parallel import Engine, Local, in_order
from pulse_pyro._core.progress import bar
from pulse_pyro._core.registry import named
from pulse_pyro.envs.simulation import Run, simulate
from pulse_pyro.paper import EXPERIMENTS
from pulse_pyro.paper.result import Result, rows_of
from pulse_pyro.paper.setting import Experiment, Setting

HERE = Local()


class SettingJob(NamedTuple):
    """A setting to be run."""

    setting: Setting
    runs: int
    seed: int


def run_experiments(
    experiments: Sequence[str | Experiment],
    *,
    runs: int | None = None,
    seed: int = 0,
    engine: Engine = HERE,
) -> list[Result]:
    """Run every setting of every experiment and judge it beside what was published.

    Parameters
    ----------
    experiments : what to run, or names of ``paper.EXPERIMENTS``.
    runs : per setting; as published by default. seed : of everything.
    engine : where; it does not change any figure.

    Every run draws its own archive and fits its own law, so the spread over runs contains the luck
    of the archive. Contexts and noise are shared by all agents and, within a table, by settings.
    """
    chosen = [_known(each) if isinstance(each, str) else each for each in experiments]
    counts = [whole(e.runs if runs is None else runs, "runs", 2) for e in chosen]
    jobs = [
        SettingJob(setting, count, seed)
        for e, count in zip(chosen, counts, strict=True)
        for setting in e.settings
    ]
    found = iter(bar(in_order(_timed, jobs, engine), label="settings", total=len(jobs)))
    results = []
    for experiment in chosen:
        curves, seconds = {}, 0.0
        for setting in experiment.settings:
            curves[setting.label], took = next(found)
            seconds += took
        results.append(Result(experiment, rows_of(experiment, curves), seconds, seed, curves))
    return results


def _known(name: str) -> Experiment:
    if name not in EXPERIMENTS:
        hint = nearest(name, EXPERIMENTS)
        raise SettingError(f"reproduce: there is no experiment {name!r}{hint}")
    found: Experiment = named(EXPERIMENTS, name)
    return found


def run_experiment(
    experiment: str | Experiment, *, runs: int | None = None, seed: int = 0
) -> Result:
    """Run one experiment here; see :func:`run_experiments`."""
    return run_experiments([experiment], runs=runs, seed=seed)[0]


def run_setting(setting: Setting, runs: int, seed: int) -> Run:
    """Fit the laws on one archive per run and play every agent on one world."""
    ready = setting.prepared(runs, seed)
    return simulate(ready.world, setting.agents(ready))


def _timed(job: SettingJob) -> tuple[Run, float]:
    start = time.perf_counter()
    return run_setting(*job), time.perf_counter() - start
