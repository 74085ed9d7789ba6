"""Where a page comes from: seed, versions, the law's fingerprint, the files' hashes."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from importlib.metadata import version

from pulse_pyro._core.errors import BundleError
from pulse_pyro.report.page import Section

PACKAGES = ("pulse-pyro", "torch", "pyro-ppl", "numpy", "scipy", "numba", "pandas", "matplotlib")


def versions() -> list[tuple[str, str]]:
    """Return the versions of Python and of every package figures may depend on."""
    return [("Python", platform.python_version()), *((name, version(name)) for name in PACKAGES)]


def provenance_sections(
    law_ids: Mapping[str, str],
    *,
    seed: int,
    hashes: Mapping[str, str] | None = None,
    date: str = "",
) -> list[Section]:
    """Return seed, versions, law and files; refuse parts that speak of different laws.

    Parameters
    ----------
    law_ids : what -> law_id, e.g. {"law": fitted.id, "calibration": calibration.law_id}.
    seed : of the study. hashes : file name -> SHA-256, the names as they are to be shown.
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
