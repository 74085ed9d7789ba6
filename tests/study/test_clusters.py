"""A study whose independent pieces are weeks, which cut units, goes through its stages."""

import numpy as np
import pandas as pd

import pulse_pyro as pp
from tests.study.helpers import write_study


def test_a_study_by_week_can_be_diagnosed_and_calibrated(tmp_path):
    path = write_study(tmp_path, ('time = "time"', 'time = "time"\ncluster = ["week"]'))
    frame = pd.read_csv(tmp_path / "archive.csv")
    rng = np.random.default_rng(0)
    days = pd.date_range("2024-01-01", periods=56).strftime("%Y-%m-%d")
    s = rng.standard_normal(24 * 56)
    columns = {"unit": np.repeat(frame["unit"].unique(), 56), "time": np.tile(days, 24), "s": s}
    noisy = pd.DataFrame(columns | {"w0": s + 0.1 * rng.standard_normal(len(s))})
    noisy.to_csv(tmp_path / "archive.csv", index=False)
    pp.study.fit_study(path)
    assert pp.study.diagnose_study(path).verdict != "fail"
    assert pp.study.calibrate_study(path) is not None
