"""Plan what a study file describes: how much history is enough."""

from __future__ import annotations

from pathlib import Path

from pulse_pyro.calibration.planner import Plan, plan
from pulse_pyro.study.file import read_study


def plan_study(path: str | Path) -> Plan:
    """Plan what a study file describes; see :func:`read_study` and :func:`plan`."""
    study = read_study(path)
    stakes = study.stakes()  # refused before the data are read, not after
    return plan(
        study.history(),
        study.law(),
        study.features(),
        stakes=stakes,
        recipe=study.recipe,
        seed=study.seed,
    )
