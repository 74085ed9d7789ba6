"""Look at everything a study needs before anything is fitted."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pulse_pyro._core.as_json import records
from pulse_pyro._core.errors import DataError, ModelError
from pulse_pyro._pyro.inference import Inference, choose_engine
from pulse_pyro.bands.dependence import FEWEST
from pulse_pyro.base import Check, Checks, ModelCard, UnfittedLaw, Verdict
from pulse_pyro.calibration.targets import MissingTargets, find_targets
from pulse_pyro.data.history import Rows
from pulse_pyro.study.workspace import Workspace, lacks, open_workspace, wanted

if TYPE_CHECKING:
    from pandas import DataFrame

ROWS_PER_INPUT = 20  # fewer are fitted, but with a warning


@dataclass(frozen=True)
class StudyCheck:
    """A study that can be run: what was looked at, and the card of its law."""

    path: Path
    checks: Checks
    card: ModelCard
    stages: tuple[str, ...]

    @property
    def verdict(self) -> Verdict:
        """pass, or warn; what cannot be run is an error, not a verdict."""
        return self.checks.verdict

    @property
    def table(self) -> DataFrame:
        """One line per check."""
        return self.checks.table

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        sites = [[s.name, s.kind, list(s.shape), s.distribution] for s in self.card.sites]
        return {
            "study": str(self.path),
            "ok": True,
            "verdict": self.verdict,
            "stages": list(self.stages),
            "checks": records(self.table),
            "sites": sites,
        }

    def __repr__(self) -> str:
        lines = [f"  {c.verdict:4} {c.name}: {c.text}" for c in self.checks]
        return "\n".join(
            [f"Study {self.path}: {self.verdict}; run makes {', '.join(self.stages)}, report"]
            + lines
            + [
                f"  {line}" if i == 0 else line
                for i, line in enumerate(repr(self.card).split("\n"))
            ]
        )


def check_study(path: str | Path) -> StudyCheck:
    """Read the archive, run the law's model and the features on a few rows; fit nothing.

    path : the study file. What cannot be run is one sentence: unreadable data, columns that are not
    there, a model that breaks the contract, features that are not finite, an engine that does not
    suit the law, too few units. NOT checked: that the law describes the data, which is for
    diagnose to say, or that an engine will converge.
    """
    return check_workspace(open_workspace(path))


def check_workspace(work: Workspace) -> StudyCheck:
    """Look at a study whose file has been read."""
    study = work.study
    _suits(work.law, study.inference)
    archive, held_out = work.parts
    checks = [_units(work)]
    card = work.law.check(archive)
    rows = archive.rows(work.law.summary)
    checks.append(_rows(rows, len(getattr(card, "columns", ())) > 1))
    if study.feature_section is not None:
        checks += _features(work, held_out.rows(work.law.summary))
    if study.policy is not None:
        stakes = study.stakes()
        text = (
            f"sigma {stakes.sigma:.3g}, theta_bound {stakes.theta_bound:g}, {stakes.horizon:,} "
            "rounds; taken on trust."
        )
        checks.append(Check("policy", "info", stakes.sigma, float("nan"), text))
    for stage in ("calibrate", "simulate"):
        if lacks(work, stage):
            text = f"left out: there is no section [{lacks(work, stage)}]."
            checks.append(Check(stage, "info", 0.0, float("nan"), text))
    return StudyCheck(study.path, Checks(checks), card, tuple(wanted(work)))


def _suits(law: UnfittedLaw, how: Inference | None) -> None:
    """Refuse an engine before the archive is read: the fit would refuse it, but later."""
    if not hasattr(law, "engines"):  # not part of the contract: the fit is left to say it
        return
    try:
        choose_engine(how, law.engines, law.name, getattr(law, "engine_reason", ""))
    except ModelError as refusal:
        raise ModelError(f"check: [inference] {refusal}") from refusal


def _units(work: Workspace) -> Check:
    archive, held_out = work.parts
    fewest = FEWEST if work.study.feature_section is not None else 1
    if len(held_out.units) < fewest:
        raise DataError(
            f"check: {len(held_out.units)} of {len(work.history.units)} units are held out, the "
            f"calibration needs {fewest} or more; bring more units, or lower [calibration] fit."
        )
    text = f"{len(archive.units)} to fit on, {len(held_out.units)} held out."
    if archive.clusters != archive.units:
        text = (
            f"{len(archive.clusters)} clusters to fit on, {len(held_out.clusters)} held out; "
            f"{len(work.history.units)} units in all."
        )
    return Check("units", "pass", float(len(held_out.units)), float(fewest), text)


def _rows(rows: Rows, by_column: bool) -> Check:
    """Count rows to fit on; by_column : the law takes rows in which only some W is recorded."""
    n, p = rows.x.shape
    few = n < ROWS_PER_INPUT * (p + 1)
    left = "of which those with all inputs and some W count too" if by_column else "left out"
    text = f"{n:,} complete rows to fit on, {p} inputs; {rows.dropped:,} incomplete rows {left}."
    if few:
        text += f" That is few: {ROWS_PER_INPUT * (p + 1):,} or more would be better."
    return Check("rows", "warn" if few else "pass", float(n), float(ROWS_PER_INPUT * (p + 1)), text)


def _features(work: Workspace, rows: Rows) -> list[Check]:
    held_out, features = work.parts[1], work.features
    now = held_out.s[rows.at]
    keep = np.isfinite(now).all(1)
    needed = 2 * (rows.x.shape[1] + 1) + 20
    if keep.sum() < needed:
        raise DataError(
            f"check: {int(keep.sum())} held-out rows are complete, a band over "
            f"{rows.x.shape[1]} inputs needs {needed} or more; hold out more units, or use fewer "
            "lags."
        )
    targets = find_targets(features, now[keep], rows.w[keep], held_out.w_names)
    exact = isinstance(targets, MissingTargets)
    how = "affine in W" if exact else "not affine in W: Monte Carlo, slower and wider"
    text = f"{len(features.names)} for {features.actions} actions, {how}."
    return [Check("features", "pass", float(len(features.names)), float("nan"), text)]
