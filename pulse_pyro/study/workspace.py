"""A study and its results folder: what stages share, leave behind, and whether it is up to date."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from pulse_pyro._core.errors import BundleError, SettingError
from pulse_pyro._core.files import earlier_folder, whole_folder, write_whole
from pulse_pyro._core.saved import load
from pulse_pyro._core.sealed import VERSIONS, seal
from pulse_pyro.base import UnfittedLaw
from pulse_pyro.calibration.calibration import Calibration
from pulse_pyro.calibration.recipe import StoredLaw
from pulse_pyro.data.history import History
from pulse_pyro.diagnostics.leaks import refuse_duplicate_units
from pulse_pyro.features import Features
from pulse_pyro.study.file import Study, Table, read_study
from pulse_pyro.study.worlds import StudyWorld

# What a stage leaves behind: files and a sealed record of what they were made from.


FORMAT = 1
RECORD = "stage.json"


@dataclass(frozen=True)
class Record:
    """What a stage was made from, and the checksums of what it wrote.

    Attributes
    ----------
    stage : fit, diagnose, calibrate, simulate or report.
    law_id : of the law it speaks about.
    inputs : name of an input -> its value or checksum; see :mod:`pulse_pyro.study.workspace`.
    files : name, relative to the record's folder -> SHA-256.
    """

    stage: str
    law_id: str
    inputs: Mapping[str, str]
    files: Mapping[str, str]

    @property
    def fingerprint(self) -> str:
        """One checksum of all inputs and of the law."""
        return digest(json.dumps([self.stage, self.law_id, dict(self.inputs)], sort_keys=True))


def digest(content: str | bytes) -> str:
    """Return the SHA-256 of a text or of bytes."""
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()


def write_stage(
    folder: Path,
    stage: str,
    law_id: str,
    inputs: Mapping[str, str],
    texts: Mapping[str, str],
    also: Callable[[Path], object] | None = None,
) -> Record:
    """Write a stage's folder, whole, in place of the earlier one; see :func:`whole_folder`.

    Parameters
    ----------
    folder : the stage's own; anything else of that name is left alone, with a sentence.
    texts : file name -> content. also : writes what is no text into the folder it is handed.

    Killed in between, the stage is either the earlier one, the new one, or not there and is made
    again: never half of it.
    """
    for taken in (folder, earlier_folder(folder)):
        if taken.exists() and not (taken / RECORD).is_file():
            raise BundleError(
                f"{stage}: {taken} exists and is not an earlier result of {stage}; move it away or "
                "name another folder with --out."
            )
    with whole_folder(folder) as aside:
        for name, text in texts.items():
            (aside / name).write_text(text, encoding="utf-8")
        if also is not None:
            also(aside)
        files = {
            path.relative_to(aside).as_posix(): digest(path.read_bytes())
            for path in sorted(aside.rglob("*"))
            if path.is_file()
        }
        record = Record(stage, law_id, dict(inputs), files)
        (aside / RECORD).write_text(_sealed(record), encoding="utf-8")
    return record


def write_record(file: Path, record: Record) -> None:
    """Write the record of files that stand beside it."""
    write_whole(file, _sealed(record))


def read_record(file: Path) -> Record:
    """Return a record whose files are all as they were written, or say what is wrong."""
    try:
        body = json.loads(file.read_bytes())
        whole = body["seal"] == seal(body) and body["format"] == FORMAT
        record = Record(**{k: body[k] for k in ("stage", "law_id", "inputs", "files")})
        now = {name: digest((file.parent / name).read_bytes()) for name in record.files}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as cause:
        raise BundleError(
            f"{file.parent} is incomplete, or was not written by pulse-pyro; run the stage again."
        ) from cause
    changed = [name for name, sha in record.files.items() if now[name] != sha]
    if changed or not whole:
        name = changed[0] if changed else file.name
        raise BundleError(
            f"{file.parent / name} is incomplete or was edited after it was written; run the stage "
            "again."
        )
    return record


def read_json(file: Path) -> Any:
    """Return what a JSON file of a stage holds."""
    try:
        return json.loads(file.read_bytes())
    except (OSError, ValueError) as cause:
        raise BundleError(f"{file} cannot be read: {cause}; run the stage again.") from cause


def _sealed(record: Record) -> str:
    body: dict[str, Any] = {"format": FORMAT, **asdict(record)}
    return json.dumps({**body, "seal": seal(body)}, indent=1)


# A study and the folder its results live in; what stages share is made once, when asked for.


@dataclass(frozen=True, eq=False)
class Workspace:
    """A study and its results.

    Attributes
    ----------
    study : what the file says. out : the results folder, one folder a stage.
    opened : "study", "data", "law", "features" -> SHA-256 of the file when the study was opened,
        before anything was read from it; "" where the section names none.
    world : where the policies are played, if it is known; None: one is made up from the archive.

    A study's law is always fitted on the share ``fit`` of the units, so that the others can judge
    it; [calibration] mode "all" lets the band, not the law, use every unit.
    """

    study: Study
    out: Path
    opened: Mapping[str, str]
    world: StudyWorld | None = None

    def folder(self, stage: str) -> Path:
        """Where a stage's artefacts are."""
        return self.out / stage

    def record(self, stage: str) -> Path:
        """Where a stage says what it was made from."""
        return self.out / "report.json" if stage == "report" else self.folder(stage) / RECORD

    @cached_property
    def history(self) -> History:
        """The archive; a unit that stands in it twice is refused: it would judge its own fit."""
        history = self.study.history()
        refuse_duplicate_units(history, self.study.data.where)
        return history

    @cached_property
    def parts(self) -> tuple[History, History]:
        """Units to fit on, and units held out."""
        return self.history.split(self.study.recipe.fit, seed=self.study.seed)

    @cached_property
    def law(self) -> UnfittedLaw:
        """The law, not fitted."""
        return self.study.law()

    @cached_property
    def features(self) -> Features:
        """Phi."""
        return self.study.features()

    @cached_property
    def fitted(self) -> StoredLaw:
        """The law the stage fit has saved."""
        path = self.folder("fit") / SAVED["fit"]
        law = load(path, law=self.law)
        if not isinstance(law, StoredLaw):
            raise BundleError(f"fit: {path} holds no law but {law!r}.")
        return law

    @cached_property
    def calibration(self) -> Calibration:
        """The bound on the law's error that the stage calibrate has saved."""
        path = self.folder("calibrate") / SAVED["calibrate"]
        calibration = load(path, law=self.fitted, features=self.features)
        if not isinstance(calibration, Calibration):
            raise BundleError(f"calibrate: {path} holds no calibration but {calibration!r}.")
        return calibration


def open_workspace(
    path: str | Path, out: str | Path | None = None, *, world: StudyWorld | None = None
) -> Workspace:
    """Read a study; results go to ``out``, or to the folder results beside the study.

    world : where its policies are played, if that is known.
    """
    study = read_study(path)
    folder = study.path.parent / "results" if out is None else Path(out)
    if folder.exists() and not folder.is_dir():
        raise SettingError(f"study: results cannot go to {folder}, which is a file; use --out.")
    return Workspace(study, folder, digests(study), world)


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


# Is a stage up to date? What each stage depends on, by name, and what has changed since.


ABSENT = "not made yet"
STAGES = ("fit", "diagnose", "calibrate", "simulate", "report")
ABOVE = {"diagnose": "fit", "calibrate": "fit", "simulate": "calibrate"}
ARTEFACT = {
    "fit": "fit.json",
    "diagnose": "diagnostics.json",
    "calibrate": "calibration.json",
    "simulate": "run.json",
}
SAVED = {"fit": "law", "diagnose": "diagnostics", "calibrate": "calibration", "simulate": "run"}
SECTIONS = {"calibrate": ("features",), "simulate": ("features", "policy")}
FILES = {"data": "the archive's file", "law": "the law's file", "features": "the features' file"}
READS = {  # files a stage reads, and what it does meanwhile
    "fit": (("data", "law"), "fitted"),
    "diagnose": (("data", "law"), "diagnosed"),
    "calibrate": (("data", "law", "features"), "calibrated"),
    "simulate": (("data", "law", "features"), "simulated"),
}


class StageStatus(NamedTuple):
    """A stage's record, if it has a sound one, and why it must be made again ("": it need not)."""

    record: Record | None
    why: str


def lacks(work: Workspace, stage: str) -> str:
    """Return the section a stage needs and the study does not have, or nothing."""
    study = work.study
    have = {"features": study.feature_section, "policy": study.policy}
    return next((name for name in SECTIONS.get(stage, ()) if have[name] is None), "")


def wanted(work: Workspace) -> list[str]:
    """Return the stages this study has the sections for, the report left out."""
    return [stage for stage in STAGES[:-1] if not lacks(work, stage)]


def inputs_of(work: Workspace, stage: str, above: Mapping[str, Record]) -> dict[str, str]:
    """Return name -> value or checksum of everything a stage depends on.

    above : records of the stages before it. Values count, not how the study is laid out: a comment
    changes the report alone, which shows the file's checksum. Files count as they were when the
    study was opened, see :func:`unchanged`. NOT followed: modules that a law's or a features file
    imports.
    """
    study, recipe = work.study, work.study.recipe
    if stage == "report":
        made = {name: record.fingerprint for name, record in above.items()}
        wrote = {f"files of {n}": digest(json.dumps(dict(r.files))) for n, r in above.items()}
        itself = {
            "name of the study": title_of(study.path),
            "the study's file": work.opened["study"],
        }
        return made | wrote | itself
    if stage == "fit":
        return {
            "[data]": _values(study.data, without="file"),
            FILES["data"]: work.opened["data"],
            "[law]": _values(study.law_section, without="file"),
            FILES["law"]: work.opened["law"],
            "[inference]": repr(recipe.inference),
            "[calibration] fit": repr(recipe.fit),
            "seed": str(study.seed),
            "versions": json.dumps({name: version(name) for name in VERSIONS}),
        }
    before = above[ABOVE[stage]]
    inputs = {ABOVE[stage]: before.fingerprint}
    if stage == "calibrate":
        inputs |= {
            "[features]": _values(study.feature_section, without="file"),
            FILES["features"]: work.opened["features"],
            "[calibration]": repr(replace(recipe, inference=None, fit=0.5)),
            "[calibration] splits, misfit": repr((study.splits, study.misfit)),
            "[policy] theta_bound": repr(study.theta_bound),
        }
    if stage == "simulate":
        inputs["[policy]"] = _values(study.policy)
        if work.world is not None:
            inputs["the world"] = work.world.name
    return inputs


def stage_status(work: Workspace, stage: str) -> StageStatus:
    """Compare what a stage was made from with what there is now."""
    if not work.record(stage).exists():
        return StageStatus(None, ABSENT)
    try:
        record = read_record(work.record(stage))
        above = {name: read_record(work.record(name)) for name in _above(work, stage)}
    except BundleError:
        return StageStatus(None, "its files are damaged, or those of a stage before it")
    if record.stage != stage:
        return StageStatus(None, f"its folder holds a result of {record.stage}")
    now = inputs_of(work, stage, above)
    changed = [
        name for name in {**record.inputs, **now} if record.inputs.get(name) != now.get(name)
    ]
    return StageStatus(record, f"{', '.join(changed)} changed" if changed else "")


def require(work: Workspace, stage: str, asker: str) -> Record:
    """Return the record of a stage that is up to date, and so are those before it, or refuse."""
    if stage in ABOVE:
        require(work, ABOVE[stage], asker)
    record, why = stage_status(work, stage)
    if record is None or why:
        raise BundleError(
            f"{asker}: it needs the result of {stage} in {work.folder(stage)} ({why}); first "
            f"pulse-pyro {stage} {work.study.path}, or pulse-pyro run {work.study.path} for all."
        )
    return record


def unchanged(work: Workspace, stage: str) -> None:
    """Refuse to record a stage whose files were edited since the study was opened.

    What was computed may then come from either content. NOT noticed: an edit that was undone.
    """
    now, (names, doing) = digests(work.study), READS[stage]
    changed = [FILES[name] for name in names if now[name] != work.opened[name]]
    if changed:
        raise BundleError(
            f"{stage}: {' and '.join(changed)} changed while it was {doing}; run again. Nothing "
            "was written."
        )


def title_of(path: Path) -> str:
    """Return the name of a study: its folder's, unless the file has one of its own."""
    return path.resolve().parent.name if path.stem == "study" else path.stem


def _above(work: Workspace, stage: str) -> list[str]:
    if stage == "report":
        return wanted(work)
    return [ABOVE[stage]] if stage in ABOVE else []


def _values(table: Table | None, without: str = "") -> str:
    values = {} if table is None else {k: v for k, v in table.values.items() if k != without}
    return json.dumps(values, sort_keys=True, default=str)
