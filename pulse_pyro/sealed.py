"""Folders of one manifest and plain arrays, written whole or not at all, sealed by checksums."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import tempfile
import zipfile
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from pulse_pyro.arrays import Array, Float
from pulse_pyro.errors import BundleError

VERSIONS = ("pulse-pyro", "numpy", "torch", "pyro-ppl")


def write_sealed(
    path: str | Path, kind: str, manifest: Mapping[str, Any], arrays: Mapping[str, Array]
) -> Path:
    """Write ``manifest.json`` and ``arrays.npz`` aside and rename them into place.

    A crash leaves no half-written folder. An earlier one of the same kind is replaced; any other
    is left alone. While it is replaced the earlier one is kept as ``.name.old``, where it is found
    by :func:`read_sealed` should the program be killed just then.
    """
    target = Path(path)
    old = _old(target)
    for taken in (target, old):
        if taken.exists() and not _is_ours(taken, kind):
            raise BundleError(
                f"save_{kind}: {taken} exists and is not a saved {kind}; choose another path."
            )
    packed = io.BytesIO()
    np.savez(
        packed, allow_pickle=False, **{k: np.asarray(v, np.float64) for k, v in arrays.items()}
    )
    body = {
        **manifest,
        "kind": kind,
        "arrays": hashlib.sha256(packed.getvalue()).hexdigest(),
        "versions": {name: version(name) for name in VERSIONS},
    }
    body["seal"] = seal(body)
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    gone = aside.with_name(aside.name + ".gone")
    try:
        (aside / "arrays.npz").write_bytes(packed.getvalue())
        (aside / "manifest.json").write_text(json.dumps(body, indent=1))
        aside.chmod(0o755)
        try:
            if target.exists():
                if old.exists():  # of a save that was killed at its very end
                    old.rename(gone)
                target.rename(old)
            aside.rename(target)
        except BaseException:  # an interrupt, too
            if not target.exists() and old.exists():
                old.rename(target)
            raise
        if old.exists():
            old.rename(aside)  # deleted under another name: half of it must not pass for it
    finally:
        shutil.rmtree(aside, ignore_errors=True)
        shutil.rmtree(gone, ignore_errors=True)
    return target


def read_sealed(path: str | Path, kind: str, form: int) -> tuple[dict[str, Any], dict[str, Float]]:
    """Return manifest and arrays of a folder of this kind, or say what is wrong with it.

    Where a save was killed between taking the earlier folder away and putting the new one in its
    place, the earlier one is read.
    """
    path, where = _kept(Path(path)), f"load_{kind}"
    try:
        text = (path / "manifest.json").read_bytes()
        packed = (path / "arrays.npz").read_bytes()
    except OSError as cause:
        raise BundleError(
            f"{where}: {path} is not a saved {kind}: {cause.strerror or cause}; it should be a "
            "folder with manifest.json and arrays.npz."
        ) from cause
    try:
        manifest = json.loads(text)
        sealed = manifest["seal"] == seal(manifest)
    except (ValueError, KeyError, TypeError, AttributeError) as cause:
        raise BundleError(f"{where}: {path}/manifest.json is cut short or not ours.") from cause
    if not sealed:
        raise BundleError(f"{where}: {path}/manifest.json was edited after saving; save it again.")
    if _kind(manifest) != kind:
        raise BundleError(f"{where}: {path} holds a saved {_kind(manifest)}, not a {kind}.")
    if manifest["format"] != form:
        raise BundleError(
            f"{where}: {path} has format {manifest['format']}, this version reads {form}."
        )
    if hashlib.sha256(packed).hexdigest() != manifest["arrays"]:
        raise BundleError(f"{where}: {path}/arrays.npz is cut short or was edited after saving.")
    try:
        with np.load(io.BytesIO(packed), allow_pickle=False) as file:
            return manifest, {name: file[name] for name in file.files}
    except (ValueError, OSError, zipfile.BadZipFile) as cause:
        raise BundleError(f"{where}: {path}/arrays.npz cannot be read: {cause}.") from cause


def seal(manifest: Mapping[str, Any]) -> str:
    """Return the checksum of all of a manifest but its seal."""
    body = {key: value for key, value in manifest.items() if key != "seal"}
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def _old(path: Path) -> Path:
    return path.with_name(f".{path.name}.old")


def _kept(path: Path) -> Path:
    """The folder, or the earlier one that a killed save has left aside."""
    return path if path.exists() or not _old(path).exists() else _old(path)


def _is_ours(path: Path, kind: str) -> bool:
    """Tell a saved folder of this kind, even a damaged one, from any other."""
    try:
        manifest = json.loads((path / "manifest.json").read_bytes())
    except (OSError, ValueError):
        return False
    known = isinstance(manifest, dict) and {"seal", "law_id", "arrays"} <= set(manifest)
    return known and _kind(manifest) == kind


def _kind(manifest: Mapping[str, Any]) -> str:
    return str(manifest.get("kind", "law"))  # laws saved by 0.1.0 carry none
