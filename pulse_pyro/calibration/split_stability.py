"""Does a calibration hang on the random split? The same ladder on many splits of an archive."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pulse_pyro._core.arrays import Bool, Float2, whole
from pulse_pyro._core.errors import ModelError
from pulse_pyro._core.parallel import Engine, Local, in_order
from pulse_pyro._core.progress import bar
from pulse_pyro._core.seeds import stream
from pulse_pyro.base import UnfittedLaw, Verdict, verdict
from pulse_pyro.calibration.checks import FIT_LIMITS, GATES
from pulse_pyro.calibration.recipe import Recipe
from pulse_pyro.data.history import History
from pulse_pyro.features import Features

if TYPE_CHECKING:
    from pandas import DataFrame

CHEAP, SLOW = 20, 5  # splits by default
HALF = 0.5  # share of splits from which a failing rung fails the whole
SECONDS = 3.0  # a split that takes longer is slow
HERE = Local()


@dataclass(frozen=True, eq=False)
class Stability:
    """What calibrations of one law on many random splits of one archive say.

    Attributes
    ----------
    rungs : names. verdicts : (splits) x (rungs). sizes : (splits, rungs) in sds of W, NaN where the
        rung does not hold.
    tests : names of the tests that gate the uniform rung. p : (splits, tests) their p-values, NaN
        where a split had no band, or too few rows for a test.
    refused : (splits,) whether no band was to be had.

    Splits share rows, so they are not independent: their spread says how much the split decides,
    not how unsure the law's error is. The median of p-values gates well (its size is at most twice
    the level), and no better claim is made by picking a split.
    """

    rungs: tuple[str, ...]
    verdicts: tuple[tuple[str, ...], ...]
    sizes: Float2
    tests: tuple[str, ...]
    p: Float2
    refused: Bool

    @property
    def gates(self) -> DataFrame:
        """One line per test of the uniform rung: median p, its range, and the verdict by it.

        Over the splits in which the test was run; every test was in one at least.
        """
        import pandas as pd

        middle = np.nanmedian(self.p, axis=0)
        return pd.DataFrame(
            {
                "test": self.tests,
                "median p": middle,
                "least p": np.nanmin(self.p, axis=0),
                "largest p": np.nanmax(self.p, axis=0),
                "verdict": [verdict(float(p), limits=FIT_LIMITS) for p in middle],
            }
        ).set_index("test")

    @property
    def verdict(self) -> Verdict:
        """Of the uniform rung: by the median p of each test, and by how often the rung fails.

        It fails where half of the splits or more give no uniform claim, whatever failed there: a
        test of misfit, another check, or that no band was to be had.
        """
        if self._failing("uniform") >= HALF:
            return "fail"
        words = list(self.gates["verdict"])
        return "fail" if "fail" in words else "warn" if "warn" in words else "pass"

    def _failing(self, rung: str) -> float:
        """Share of splits in which a rung fails."""
        j = self.rungs.index(rung)
        return float(np.mean([each[j] == "fails" for each in self.verdicts]))

    def fails(self, rung: str) -> bool:
        """Whether a rung fails over all splits: in half of them, or the uniform one by a test."""
        by_tests = rung == "uniform" and self.verdict == "fail"
        return by_tests or self._failing(rung) >= HALF

    @property
    def table(self) -> DataFrame:
        """One line per rung: how often it stands, holds conditionally or fails; sizes.

        A rung that fails over all splits (:meth:`fails`) has no size, not even that of the splits
        in which it held.
        """
        import pandas as pd

        lines = []
        for j, name in enumerate(self.rungs):
            words = [each[j] for each in self.verdicts]
            known = self.sizes[np.isfinite(self.sizes[:, j]) & (not self.fails(name)), j]
            low, middle, high = (
                np.quantile(known, [0.0, 0.5, 1.0]) if len(known) else [float("nan")] * 3
            )
            lines.append(
                {
                    "rung": name,
                    "stands": words.count("stands") / len(words),
                    "conditional": words.count("conditional") / len(words),
                    "fails": words.count("fails") / len(words),
                    "size, median": middle,
                    "smallest": low,
                    "largest": high,
                }
            )
        return pd.DataFrame(lines).set_index("rung")

    def __repr__(self) -> str:
        gates = self.gates
        why = "by median p"
        if self._failing("uniform") >= HALF:
            why = f"as its rung fails in {self._failing('uniform'):.0%} of them"
        lines = [f"Stability over {len(self.verdicts)} splits: uniform {self.verdict} {why}"]
        if self.refused.any():
            lines.append(f"  no uniform band was to be had in {self.refused.mean():.0%} of splits")
        lines += ["  " + line for line in self.table.round(3).to_string().splitlines()]
        for row in gates.itertuples():
            lines.append(f"  {row.Index}: median p {row[1]:.2g} ({row[2]:.2g} to {row[3]:.2g})")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return f"<pre>{self!r}</pre>"


class SplitJob(NamedTuple):
    """One split to be fitted and calibrated."""

    law: UnfittedLaw
    history: History
    features: Features
    recipe: Recipe
    seed: int


def stability(
    law: UnfittedLaw,
    history: History,
    features: Features,
    *,
    recipe: Recipe | None = None,
    splits: int | None = None,
    seed: int,
    engine: Engine = HERE,
) -> Stability:
    """Fit and calibrate on many random splits by cluster, and gate by the median p of each test.

    Parameters
    ----------
    law : not fitted. history : the whole archive. features : Phi.
    recipe : how to fit and calibrate, in mode "split"; ``Recipe()`` by default. Its groups go by
        name: rows differ from split to split.
    splits : how many; None: 20, or 5 if the first takes more than three seconds.
    seed : of splits, fits and checks. engine : where they run.

    NOT covered: whatever all splits share, the archive itself.
    """
    if not isinstance(law, UnfittedLaw) or not isinstance(history, History):
        raise ModelError(
            "stability: a law that is not fitted, such as linear_lags(19), and a History were "
            f"expected, but got {type(law).__name__} and {type(history).__name__}."
        )
    recipe = replace(recipe or Recipe(), mode="split")
    if splits is not None:
        whole(splits, "stability: splits", 2)
    start = time.perf_counter()
    first = _split(_job(law, history, features, recipe, seed, 0))
    if splits is None:
        splits = CHEAP if time.perf_counter() - start <= SECONDS else SLOW
    jobs = [_job(law, history, features, recipe, seed, number) for number in range(1, splits)]
    rest = bar(in_order(_split, jobs, engine), label="stability", total=len(jobs))
    found = [first, *rest]
    tests = tuple(name for name in GATES if any(name in each.p for each in found))
    p = [[each.p.get(name, np.nan) for name in tests] for each in found]
    return Stability(
        rungs=found[0].rungs,
        verdicts=tuple(each.verdicts for each in found),
        sizes=np.array([each.sizes for each in found]),
        tests=tests,
        p=np.array(p, np.float64).reshape(len(found), len(tests)),
        refused=np.array([each.refused for each in found], np.bool_),
    )


def _job(
    law: UnfittedLaw,
    history: History,
    features: Features,
    recipe: Recipe,
    seed: int,
    number: int,
) -> SplitJob:
    own = int(stream(seed, "stability", number).integers(2**31))
    return SplitJob(law, history, features, recipe, own)


class SplitResult(NamedTuple):
    """What one split gave: rungs, their verdicts and sizes, p-values by name of the test.

    refused : whether no band was to be had.
    """

    rungs: tuple[str, ...]
    verdicts: tuple[str, ...]
    sizes: tuple[float, ...]
    p: dict[str, float]
    refused: bool


def _split(job: SplitJob) -> SplitResult:
    made = job.recipe.calibrate(job.law, job.history, job.features, seed=job.seed)
    return SplitResult(
        tuple(rung.name for rung in made.rungs),
        tuple(rung.verdict for rung in made.rungs),
        tuple(rung.size for rung in made.rungs),
        {
            check.name: check.value
            for check in made.rung("uniform").checks
            if np.isfinite(check.value)
        },
        not made.parts,
    )
