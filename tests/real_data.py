"""Where real data sets lie, if they do: beside the repository, or where PULSE_DATA says."""

import os
from pathlib import Path

import pytest

BESIDE = Path(__file__).resolve().parents[2] / "shared" / "data"


def folder(name):
    """The folder of a data set; the test is skipped where there is none."""
    home = Path(os.environ.get("PULSE_DATA", BESIDE))
    if not (home / name).is_dir():
        pytest.skip(f"the data set {name} is not here; set PULSE_DATA to the folder that holds it.")
    return home / name
