"""Folders of one manifest and plain arrays, written whole or not at all, sealed by checksums."""

from __future__ import annotations

import glob
import hashlib
import io
import json
import os
import shutil
import tempfile
import time
import zipfile
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from pulse_pyro._core.arrays import Array
from pulse_pyro._core.errors import BundleError

VERSIONS = ("pulse-pyro", "numpy", "torch", "pyro-ppl")
HEAD = {"kind", "format", "arrays", "axes", "seal"}  # what every manifest has
ASIDE = "saving"  # in the names of temporary folders
ABANDONED = 3600.0  # seconds after which a temporary folder was left behind by a save that died


def write_sealed(
    path: str | Path, manifest: Mapping[str, Any], arrays: Mapping[str, Array]
) -> Path:
    """Write ``manifest.json`` and ``arrays.npz`` aside and rename them into place.

    manifest : "kind", "format" and whatever else is plain. A crash leaves no half-written folder.
    An earlier one of the same kind is replaced; any other is left alone. While it is replaced the
    earlier one is kept as ``.name.old``, where it is found by :func:`read_sealed` should the
    program be killed just then. Temporary folders of saves that died are removed.
    """
    target, kind = Path(path), manifest["kind"]
    old = _old(target)
    for taken in (target, old):
        if taken.exists() and _saved_kind(taken) != kind:
            what = _saved_kind(taken)
            raise BundleError(
                f"save: {taken} exists and is not a saved {kind}"
                f"{f' but a saved {what}' if what else ''}; choose another path."
            )
    packed = io.BytesIO()
    axes = {name: _axes(value) for name, value in arrays.items()}
    np.savez(packed, allow_pickle=False, **{k: np.transpose(v, axes[k]) for k, v in arrays.items()})
    body = {
        **manifest,
        "axes": {name: order for name, order in axes.items() if order != sorted(order)},
        "arrays": hashlib.sha256(packed.getvalue()).hexdigest(),
        "versions": {name: version(name) for name in VERSIONS},
    }
    body["seal"] = seal(body)
    target.parent.mkdir(parents=True, exist_ok=True)
    _sweep(target)
    aside = Path(tempfile.mkdtemp(prefix=f".{target.name}.{ASIDE}.", dir=target.parent))
    gone = aside.with_name(aside.name + ".gone")
    try:
        (aside / "arrays.npz").write_bytes(packed.getvalue())
        (aside / "manifest.json").write_text(json.dumps(body, indent=1))
        aside.chmod(0o755)
        for written in (aside / "arrays.npz", aside / "manifest.json", aside):
            _sync(written)
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
        _sync(target.parent)
        if old.exists():
            old.rename(aside)  # deleted under another name: half of it must not pass for it
    finally:
        shutil.rmtree(aside, ignore_errors=True)
        shutil.rmtree(gone, ignore_errors=True)
    return target


def read_sealed(path: str | Path) -> tuple[dict[str, Any], dict[str, Array]]:
    """Return manifest and arrays of a folder, or say what is wrong with it.

    Where a save was killed between taking the earlier folder away and putting the new one in its
    place, the earlier one is read.
    """
    path = _kept(Path(path))
    try:
        text = (path / "manifest.json").read_bytes()
        packed = (path / "arrays.npz").read_bytes()
    except OSError as cause:
        raise BundleError(
            f"load: {path} is nothing that was saved: {cause.strerror or cause}; it should be a "
            "folder with manifest.json and arrays.npz."
        ) from cause
    try:
        manifest = json.loads(text)
        sealed = manifest["seal"] == seal(manifest)
    except (ValueError, KeyError, TypeError, AttributeError) as cause:
        raise BundleError(f"load: {path}/manifest.json is cut short or not ours.") from cause
    if not sealed or not set(manifest) >= HEAD:
        raise BundleError(f"load: {path}/manifest.json was edited after saving; save it again.")
    if hashlib.sha256(packed).hexdigest() != manifest["arrays"]:
        raise BundleError(f"load: {path}/arrays.npz is cut short or was edited after saving.")
    try:
        with np.load(io.BytesIO(packed), allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        for name, order in manifest["axes"].items():
            arrays[name] = np.transpose(arrays[name], np.argsort(order))
        return manifest, arrays
    except (ValueError, KeyError, OSError, zipfile.BadZipFile) as cause:
        raise BundleError(f"load: {path}/arrays.npz cannot be read: {cause}.") from cause


def seal(manifest: Mapping[str, Any]) -> str:
    """Return the checksum of all of a manifest but its seal."""
    body = {key: value for key, value in manifest.items() if key != "seal"}
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def _axes(array: Array) -> list[int]:
    """Return the axes in the order of memory: sums are rounded by it, to the last bit."""
    steps = [-abs(step) for step in np.asarray(array).strides]
    return [int(axis) for axis in np.argsort(steps, kind="stable")]


def _old(path: Path) -> Path:
    return path.with_name(f".{path.name}.old")


def _kept(path: Path) -> Path:
    """The folder, or the earlier one that a killed save has left aside."""
    return path if path.exists() or not _old(path).exists() else _old(path)


def _saved_kind(path: Path) -> str:
    """The kind of a saved folder, even of a damaged one; nothing for any other."""
    try:
        manifest = json.loads((path / "manifest.json").read_bytes())
    except (OSError, ValueError):
        return ""
    ours = isinstance(manifest, dict) and set(manifest) >= HEAD
    return str(manifest["kind"]) if ours else ""


def _sync(path: Path) -> None:
    """Have the system write a file, or the names in a folder, to the disk now."""
    if path.is_dir() and not hasattr(os, "O_DIRECTORY"):  # where folders cannot be opened
        return
    handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _sweep(target: Path) -> None:
    """Remove temporary folders that killed saves to the same place have left, not fresh ones."""
    for left in target.parent.glob(f".{glob.escape(target.name)}.{ASIDE}.*"):
        try:
            abandoned = time.time() - left.stat().st_mtime > ABANDONED
        except OSError:  # its own save has just ended
            continue
        if abandoned:
            shutil.rmtree(left, ignore_errors=True)
