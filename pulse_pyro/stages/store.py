"""What a stage leaves behind: files and a sealed record of what they were made from."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pulse_pyro.errors import BundleError
from pulse_pyro.files import write_whole
from pulse_pyro.sealed import seal

FORMAT = 1
RECORD = "stage.json"


@dataclass(frozen=True)
class Record:
    """What a stage was made from, and the checksums of what it wrote.

    Attributes
    ----------
    stage : fit, diagnose, calibrate, simulate or report.
    law_id : of the law it speaks about.
    inputs : name of an input -> its value or checksum; see :mod:`pulse_pyro.stages.inputs`.
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
    folder: Path, stage: str, law_id: str, inputs: Mapping[str, str], texts: Mapping[str, str],
    also: Callable[[Path], object] | None = None,
) -> Record:  # fmt: skip
    """Write a stage's files aside, then rename the folder into place; the earlier one goes.

    Parameters
    ----------
    folder : the stage's own; anything else of that name is left alone, with a sentence.
    texts : file name -> content. also : writes what is no text into the folder it is handed.

    Killed in between, the stage is either the earlier one, the new one, or not there and is made
    again: never half of it.
    """
    if folder.exists() and not (folder / RECORD).is_file():
        raise BundleError(
            f"{stage}: {folder} exists and is not an earlier result of {stage}; move it away or "
            "name another folder with --out."
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
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
        aside.chmod(0o755)
        gone = aside.with_name(aside.name + ".gone")
        if folder.exists():
            folder.rename(gone)
        try:
            aside.rename(folder)
        except BaseException:  # an interrupt, too
            if gone.exists():
                gone.rename(folder)
            raise
        shutil.rmtree(gone, ignore_errors=True)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
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
            f"{file.parent} is cut short or not ours; run the stage again."
        ) from cause
    changed = [name for name, found in record.files.items() if now[name] != found]
    if changed or not whole:
        name = changed[0] if changed else file.name
        raise BundleError(
            f"{file.parent / name} is cut short or was edited after it was written; run the stage "
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
