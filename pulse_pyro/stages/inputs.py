"""Is a stage up to date? What each stage depends on, by name, and what has changed since."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from pulse_pyro.errors import BundleError
from pulse_pyro.sealed import VERSIONS
from pulse_pyro.stages.store import Record, digest, read_record
from pulse_pyro.stages.workspace import Workspace, digests
from pulse_pyro.study.settings import Table

ABSENT = "not made yet"
STAGES = ("fit", "diagnose", "calibrate", "simulate", "report")
ABOVE = {"diagnose": "fit", "calibrate": "fit", "simulate": "calibrate"}
ARTEFACT = {
    "fit": "fit.json", "diagnose": "diagnostics.json", "calibrate": "calibration.json",
    "simulate": "run.json",
}  # fmt: skip
SECTIONS = {"calibrate": ("features",), "simulate": ("features", "policy")}
FILES = {"data": "the archive's file", "law": "the law's file", "features": "the features' file"}
READS = {  # files a stage reads, and what it does meanwhile
    "fit": (("data", "law"), "fitted"), "diagnose": (("data", "law"), "diagnosed"),
    "calibrate": (("data", "law", "features"), "calibrated"),
    "simulate": (("data", "law", "features"), "simulated"),
}  # fmt: skip


class Standing(NamedTuple):
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
        own = {"name of the study": title_of(study.path), "the study's file": work.opened["study"]}
        return made | wrote | own
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
            "[calibration]": repr((recipe.level, recipe.mode, recipe.method)),
        }
    if stage == "simulate":
        inputs["[policy]"] = _values(study.policy)
    return inputs


def standing(work: Workspace, stage: str) -> Standing:
    """Compare what a stage was made from with what there is now."""
    if not work.record(stage).exists():
        return Standing(None, ABSENT)
    try:
        record = read_record(work.record(stage))
        above = {name: read_record(work.record(name)) for name in _above(work, stage)}
    except BundleError:
        return Standing(None, "its files are damaged, or those of a stage before it")
    if record.stage != stage:
        return Standing(None, f"its folder holds a result of {record.stage}")
    now = inputs_of(work, stage, above)
    changed = [
        name for name in {**record.inputs, **now} if record.inputs.get(name) != now.get(name)
    ]
    return Standing(record, f"{', '.join(changed)} changed" if changed else "")


def require(work: Workspace, stage: str, asker: str) -> Record:
    """Return the record of a stage that is up to date, and so are those before it, or refuse."""
    if stage in ABOVE:
        require(work, ABOVE[stage], asker)
    record, why = standing(work, stage)
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
