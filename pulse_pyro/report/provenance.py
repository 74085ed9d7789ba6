"""Where a page comes from: seed, versions, the law's fingerprint, the files' hashes."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

from pulse_pyro.errors import BundleError
from pulse_pyro.report.section import Section

PACKAGES = ("pulse-pyro", "torch", "pyro-ppl", "numpy", "scipy", "numba", "pandas", "matplotlib")


def file_hashes(paths: Sequence[str | Path]) -> dict[str, str]:
    """Return file name -> SHA-256; a folder counts as the files in it, as folder/file."""
    out: dict[str, str] = {}
    for path in map(Path, paths):
        if path.is_dir():
            inner = sorted(p for p in path.iterdir() if p.is_file())
            out |= {f"{path.name}/{p.name}": _sha256(p) for p in inner}
        else:
            out[path.name] = _sha256(path)
    return out


def versions() -> list[tuple[str, str]]:
    """Return the versions of Python and of every package figures may depend on."""
    return [("Python", platform.python_version()), *((name, version(name)) for name in PACKAGES)]


def provenance_sections(
    law_ids: Mapping[str, str], *, seed: int, hashes: Mapping[str, str] | None = None,
    date: str = "",
) -> list[Section]:  # fmt: skip
    """Return seed, versions, law and files; refuse parts that speak of different laws.

    Parameters
    ----------
    law_ids : what -> law_id, e.g. {"law": fitted.law_id, "calibration": calibration.law_id}.
    seed : of the study. hashes : see :func:`file_hashes`.
    date : shown as it comes, and only if given: without it two runs write the same page.
    """
    import pandas as pd

    if len(set(law_ids.values())) > 1:
        what = ", ".join(f"{name}: {law_id}" for name, law_id in law_ids.items())
        raise BundleError(
            f"report: its parts come from different laws ({what}); run the later stages again."
        )
    rows = [("date", date)] if date else []
    rows += [("seed", str(seed)), ("law_id", next(iter(law_ids.values()), ""))]
    rows += versions()
    files = pd.DataFrame(list((hashes or {}).items()), columns=["file", "SHA-256"])
    return [
        Section(
            "Provenance",
            "What is needed to make this page again: the same seed, versions and files give the "
            f"same figures. Parts of one law: {', '.join(law_ids)}.",
            pd.DataFrame(rows, columns=["what", "value"]),
            more=(("The files, and a fingerprint of each.", files),) if len(files) else (),
        )
    ]


def _sha256(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as cause:
        raise BundleError(
            f"report: {path} cannot be read for its fingerprint: {cause.strerror or cause}."
        ) from cause
