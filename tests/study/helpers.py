"""A small study on disk with a known truth, shared by the tests of stages and commands."""

import numpy as np

import pulse_pyro as pp
from tests.helpers import linear_history

TOML = """\
seed = 3

[data]
file = "archive.csv"
unit = "unit"
time = "time"
observed = ["s"]
missing = ["w0"]

[law]
name = "linear_lags"
lags = 3

[features]
terms = ["1", "s", "w0", "w0*a"]
actions = 2

[calibration]
level = 0.95

[policy]
reward_sd = 0.05
context_sd = 0.15
theta_bound = 1.1
horizon = 40
"""


def write_study(folder, *changes, curved=0.0, units=24):
    """Write archive.csv and study.toml, with replacements; curved: W is no line in the lags."""
    folder.mkdir(parents=True, exist_ok=True)
    history, _ = linear_history(units=units, time=20, lags=3)
    frame = history.to_frame()
    frame["w0"] += curved * np.square(frame["s"])
    frame.to_csv(folder / "archive.csv", index=False)
    return edit(folder / "study.toml", *changes, text=TOML)


_ONCE = []


def run_once(factory):
    """A study that was run once in this session, for real: (path, StudyRun, lines told)."""
    if not _ONCE:
        path = write_study(factory.mktemp("made") / "mine")
        lines = []
        _ONCE.append((path, pp.run_study(path, tell=lines.append), lines))
    return _ONCE[0]


def edit(path, *changes, text=None):
    """Replace parts of a study file, each of which must be there."""
    text = path.read_text() if text is None else text
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    path.write_text(text)
    return path
