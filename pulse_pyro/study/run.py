"""Run a study: make what is not up to date, say so about the rest."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pulse_pyro.study.check import check_workspace
from pulse_pyro.study.report import StudyReport, make_report, read_report
from pulse_pyro.study.stages import (
    calibrate_study,
    diagnose_study,
    fit_study,
    make_calibrate,
    make_diagnose,
    make_fit,
    make_simulate,
    simulate_study,
)
from pulse_pyro.study.workspace import (
    ABSENT,
    STAGES,
    Workspace,
    lacks,
    open_workspace,
    stage_status,
)

if TYPE_CHECKING:
    from pandas import DataFrame

MAKE: dict[str, Callable[[Workspace], object]] = {
    "fit": make_fit,
    "diagnose": make_diagnose,
    "calibrate": make_calibrate,
    "simulate": make_simulate,
    "report": make_report,
}
STUDY_VERBS: dict[str, Callable[[Path, Path | None], object]] = {
    "fit": fit_study,
    "diagnose": diagnose_study,
    "calibrate": calibrate_study,
    "simulate": simulate_study,
}


@dataclass(frozen=True)
class Step:
    """What became of a stage: made, made again, up to date, left out; why; the seconds it took."""

    stage: str
    done: str
    why: str
    seconds: float

    def __str__(self) -> str:
        took = f" ({self.seconds:.1f} s)" if self.seconds else ""
        return f"{self.stage}: {self.done}{f', {self.why}' if self.why else ''}{took}"


@dataclass(frozen=True)
class StudyRun:
    """What was made of a study, and its report."""

    steps: tuple[Step, ...]
    report: StudyReport

    @property
    def table(self) -> DataFrame:
        """One line per stage."""
        import pandas as pd

        return pd.DataFrame([asdict(step) for step in self.steps]).set_index("stage")

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {**self.report.to_json(), "stage": "run", "steps": [asdict(s) for s in self.steps]}

    def __repr__(self) -> str:
        return "\n".join([repr(self.report), *(f"  {step}" for step in self.steps)])


def run_study(
    path: str | Path,
    out: str | Path | None = None,
    *,
    force: bool = False,
    tell: Callable[[str], object] = lambda line: None,
) -> StudyRun:
    """Fit, diagnose, calibrate, simulate and report what a study file describes.

    Parameters
    ----------
    path : the study file. out : the results folder, by default ``results`` beside the study.
    force : make every stage again. tell : is handed one line about each stage as it ends.

    A stage is up to date if the values of the sections it uses, the files they name, the versions
    of the packages and the stage before it are those it was made from; it is then skipped. A
    verdict of fail stops nothing: the report says it. Stages without their section are left out.
    """
    work = open_workspace(path, out)
    if force or stage_status(work, "fit").why:
        check_workspace(work)  # a slip in a later section shows before the fit, not after it
    steps = run_stages(work, force=force, tell=tell)
    return StudyRun(steps, read_report(work))


def run_stages(
    work: Workspace,
    stages: Sequence[str] = STAGES,
    *,
    force: bool = False,
    tell: Callable[[str], object] = lambda line: None,
) -> tuple[Step, ...]:
    """Make the stages that are not up to date, in order; see :func:`run_study`."""
    steps: list[Step] = []
    for stage in stages:
        started = time.perf_counter()
        missing, why = lacks(work, stage), stage_status(work, stage).why
        if missing:
            step = Step(stage, "left out", f"there is no section [{missing}]", 0.0)
        elif not why and not force:
            step = Step(stage, "up to date", "", 0.0)
        else:
            MAKE[stage](work)
            done, reason = ("made", "") if why == ABSENT else ("made again", why or "forced")
            step = Step(stage, done, reason, time.perf_counter() - started)
        steps.append(step)
        tell(str(step))
    return tuple(steps)
