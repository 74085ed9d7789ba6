"""Folders of one manifest and plain arrays, written whole or not at all, sealed by checksums."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from pulse_pyro._core.arrays import Array
from pulse_pyro._core.errors import BundleError
from pulse_pyro._core.files import earlier_folder, whole_folder

VERSIONS = ("pulse-pyro", "numpy", "torch", "pyro-ppl")
HEAD = {"kind", "format", "arrays", "axes", "seal"}  # what every manifest has


def write_sealed(
    path: str | Path, manifest: Mapping[str, Any], arrays: Mapping[str, Array]
) -> Path:
    """Write ``manifest.json`` and ``arrays.npz`` to a folder, whole; see :func:`whole_folder`.

    manifest : "kind", "format" and whatever else is plain. An earlier folder of the same kind is
    replaced, any other is left alone.
    """
    target, kind = Path(path), manifest["kind"]
    for folder in (target, earlier_folder(target)):
        if folder.exists() and _saved_kind(folder) != kind:
            other = _saved_kind(folder)
            raise BundleError(
                f"save: {folder} exists and is not {saved_as(kind)}"
                f"{f' but {saved_as(other)}' if other else ''}; choose another path."
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
    with whole_folder(target) as folder:
        (folder / "arrays.npz").write_bytes(packed.getvalue())
        (folder / "manifest.json").write_text(json.dumps(body, indent=1))
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
            f"load: {path} does not hold a saved object: {cause.strerror or cause}; it should be a "
            "folder with manifest.json and arrays.npz."
        ) from cause
    try:
        manifest = json.loads(text)
        sealed = manifest["seal"] == seal(manifest)
    except (ValueError, KeyError, TypeError, AttributeError) as cause:
        raise BundleError(
            f"load: {path}/manifest.json is incomplete, or was not written by save."
        ) from cause
    if not sealed or not set(manifest) >= HEAD:
        raise BundleError(f"load: {path}/manifest.json was edited after saving; save it again.")
    if hashlib.sha256(packed).hexdigest() != manifest["arrays"]:
        raise BundleError(f"load: {path}/arrays.npz is incomplete or was edited after saving.")
    try:
        with np.load(io.BytesIO(packed), allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        for name, order in manifest["axes"].items():
            arrays[name] = np.transpose(arrays[name], np.argsort(order))
        return manifest, arrays
    except (ValueError, KeyError, OSError, zipfile.BadZipFile) as cause:
        raise BundleError(f"load: {path}/arrays.npz cannot be read: {cause}.") from cause


def saved_as(kind: str) -> str:
    """Return a kind with its article, for messages: "a saved law", "saved diagnostics"."""
    return f"saved {kind}" if kind.endswith("s") else f"a saved {kind}"


def seal(manifest: Mapping[str, Any]) -> str:
    """Return the checksum of all of a manifest but its seal."""
    body = {key: value for key, value in manifest.items() if key != "seal"}
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def _axes(array: Array) -> list[int]:
    """Return the axes in the order of memory: sums are rounded by it, to the last bit."""
    steps = [-abs(step) for step in np.asarray(array).strides]
    return [int(axis) for axis in np.argsort(steps, kind="stable")]


def _kept(path: Path) -> Path:
    """The folder, or the earlier one that a killed save has left aside."""
    old = earlier_folder(path)
    return path if path.exists() or not old.exists() else old


def _saved_kind(path: Path) -> str:
    """The kind of a saved folder, even of a damaged one; nothing for any other."""
    try:
        manifest = json.loads((path / "manifest.json").read_bytes())
    except (OSError, ValueError):
        return ""
    ours = isinstance(manifest, dict) and set(manifest) >= HEAD
    return str(manifest["kind"]) if ours else ""
