"""Where the real data sets are, if they are."""

import os
from pathlib import Path

import pytest

BESIDE = Path(__file__).parents[2] / "shared" / "data"  # next to the project


def real_folder(name):
    """The folder of a data set; the test is skipped where it is not at hand."""
    home = Path(os.environ.get("PULSE_DATA", BESIDE)) / name
    if not home.is_dir():
        pytest.skip(f"data set {name} is not at hand; PULSE_DATA=DIR names the folder it is in")
    return home
