"""What held-out pieces of the archive say of each law: diagnostics and D_t."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from pulse_pyro._core.parallel import Engine, in_order
from pulse_pyro._core.progress import bar
from pulse_pyro.calibration.ladder import calibrate
from pulse_pyro.diagnostics.held_out import diagnose
from pulse_pyro.paper.datasets import Dataset
from pulse_pyro.paper.replay_comparison import HERE, Imputer

if TYPE_CHECKING:
    from pandas import DataFrame


GROUPS = ("forecast", "time")  # declared for every data set


@dataclass(frozen=True)
class Judged:
    """One law, fitted on half of the archive's pieces and judged on the others.

    law, seconds : which, and how long all of it took.
    diagnose : verdict of the diagnostics. standing : the highest rung of the calibration that
    stands. uniform : verdict of that rung. forecast, groups, average, free : sizes of those rungs
    in sds of W, NaN where they do not hold. failed : checks that failed, by kind, and of how many
    W. root_mean, root_sup : mean and largest sqrt(D_t) in the domain, in sds of W, if the uniform
    rung holds. outside : share of online contexts outside the domain.
    """

    law: str
    seconds: float
    diagnose: str
    standing: str
    uniform: str
    forecast: float
    groups: float
    average: float
    free: float
    failed: str
    root_mean: float
    root_sup: float
    outside: float


class JudgeJob(NamedTuple):
    """A law to be judged."""

    dataset: Dataset
    imputer: Imputer
    seed: int


def judge(
    dataset: Dataset, imputers: Sequence[Imputer], *, seed: int = 0, engine: Engine = HERE
) -> list[Judged]:
    """Diagnose and calibrate each law on pieces of the archive it has not seen.

    D_t is that of W itself in units of its sd in the archive, the largest over all W: every
    feature of the replays is a W or an observed number.
    """
    jobs = [JudgeJob(dataset, each, seed) for each in imputers]
    found = bar(in_order(_judge, jobs, engine), label=f"judge {dataset.name}", total=len(jobs))
    return list(found)


def judged_table(judged: Sequence[Judged]) -> DataFrame:
    """One line per law."""
    import pandas as pd

    return pd.DataFrame([vars(each) for each in judged]).set_index("law")


def _judge(job: JudgeJob) -> Judged:
    start = time.perf_counter()
    fit, held_out = job.dataset.scale(job.dataset.pieces).split(seed=job.seed)
    law = job.imputer.law.fit(fit, seed=job.seed)
    diagnostics = diagnose(law, held_out, seed=job.seed)
    checks = list(diagnostics.checks)
    replay = next(iter(job.dataset.replays.values()))
    mean = sup = outside = float("nan")
    bound = calibrate(law, held_out, replay.features, seed=job.seed, groups=GROUPS)
    checks += bound.checks
    if bound.usable:
        worst = bound.error.max((-2, -1))[bound.inside]
        mean, sup = float(worst.mean()), float(worst.max())
        rows = replay.complete & np.isfinite(law.summary(replay.s)).all(-1)
        # each round with its own past alone: units are pieces cut from series, so how long a series
        # has gone on is no context here
        memory = law.summary.memory
        past = np.moveaxis(sliding_window_view(replay.s, memory, axis=1), -1, 2)
        inside = bound.inside_at(past.reshape(-1, *past.shape[2:]))[:, -1]
        outside = float(1.0 - inside.reshape(past.shape[:2])[rows[:, memory - 1 :]].mean())
    failed = _failed([each.name for each in checks if each.verdict == "fail"], held_out.w_names)
    seconds = time.perf_counter() - start
    return Judged(
        law=job.imputer.name,
        seconds=seconds,
        diagnose=diagnostics.verdict,
        standing=bound.standing.name,
        uniform=bound.rung("uniform").verdict,
        forecast=bound.rung("forecast").size,
        groups=bound.rung("groups").size,
        average=bound.rung("average").size,
        free=bound.rung("free").size,
        failed=failed,
        root_mean=mean,
        root_sup=sup,
        outside=outside,
    )


def _failed(names: Sequence[str], w_names: Sequence[str]) -> str:
    """Return the kinds of checks among these names; one that is asked of each W with a count."""
    of_w = {f"{kind} {w}": kind for kind in {n.split(" ")[0] for n in names} for w in w_names}
    kinds = Counter(of_w.get(name, name) for name in names)
    each = set(of_w.values())
    return ", ".join(
        f"{kind} ({n} W)" if kind in each and kind not in names else kind
        for kind, n in kinds.items()
    )
