"""A study and the folder its results live in; what stages share is made once, when asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pulse_pyro.bundle import load_law
from pulse_pyro.calibration.calibrate import calibrate, calibrate_all
from pulse_pyro.calibration.calibration import Calibration
from pulse_pyro.errors import SettingError
from pulse_pyro.features import Features
from pulse_pyro.history import History
from pulse_pyro.laws.fitted import FittedLaw
from pulse_pyro.laws.law import Law
from pulse_pyro.laws.state_space import StateSpace
from pulse_pyro.stages.store import RECORD, digest
from pulse_pyro.stages.twins import refuse_twins
from pulse_pyro.study.study import Study, read_study


@dataclass(frozen=True, eq=False)
class Workspace:
    """A study and its results.

    Attributes
    ----------
    study : what the file says. out : the results folder, one folder a stage.
    opened : "study", "data", "law", "features" -> SHA-256 of the file when the study was opened,
        before anything was read from it; "" where the section names none.

    A study's law is always fitted on the share ``fit`` of the units, so that the others can judge
    it; [calibration] mode "all" lets the band, not the law, use every unit.
    """

    study: Study
    out: Path
    opened: Mapping[str, str]

    def folder(self, stage: str) -> Path:
        """Where a stage's artefacts are."""
        return self.out / stage

    def record(self, stage: str) -> Path:
        """Where a stage says what it was made from."""
        return self.out / "report.json" if stage == "report" else self.folder(stage) / RECORD

    @cached_property
    def history(self) -> History:
        """The archive; a unit that stands in it twice is refused: it would judge its own fit."""
        found = self.study.history()
        refuse_twins(found, self.study.data.where)
        return found

    @cached_property
    def parts(self) -> tuple[History, History]:
        """Units to fit on, and units held out."""
        return self.history.split(self.study.recipe.fit, seed=self.study.seed)

    @cached_property
    def law(self) -> Law | StateSpace:
        """The law, not fitted."""
        return self.study.law()

    @cached_property
    def features(self) -> Features:
        """Phi."""
        return self.study.features()

    @cached_property
    def fitted(self) -> FittedLaw:
        """The law the stage fit has saved."""
        model = self.law if isinstance(self.law, Law) else None
        return load_law(self.folder("fit") / "law", model=model)

    @cached_property
    def calibration(self) -> Calibration:
        """The bound on the saved law's error, the same every time it is made."""
        recipe = self.study.recipe
        make, units = (
            (calibrate_all, self.history) if recipe.mode == "all" else (calibrate, self.parts[1])
        )
        return make(self.fitted, units, self.features, level=recipe.level, seed=self.study.seed,
                    band=recipe.method)  # fmt: skip


def open_workspace(path: str | Path, out: str | Path | None = None) -> Workspace:
    """Read a study; results go to ``out``, or to the folder results beside the study."""
    study = read_study(path)
    folder = study.path.parent / "results" if out is None else Path(out)
    if folder.exists() and not folder.is_dir():
        raise SettingError(f"study: results cannot go to {folder}, which is a file; use --out.")
    return Workspace(study, folder, digests(study))


def digests(study: Study) -> dict[str, str]:
    """Return the SHA-256 of the study's file and of those it names, as they are now."""
    return {name: digest(path.read_bytes()) if path else "" for name, path in files(study).items()}


def files(study: Study) -> dict[str, Path | None]:
    """Return "study", "data", "law", "features" -> the file, None where none is named."""
    sections = {"data": study.data, "law": study.law_section, "features": study.feature_section}
    named = {
        name: table.file("file", study.path.parent) if table and "file" in table.values else None
        for name, table in sections.items()
    }
    return {"study": study.path, **named}
