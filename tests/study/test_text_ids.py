"""Ids in a study's table are text: "1", "01" and "001" are three units."""

import pulse_pyro as pp

STUDY = """
[data]
file = "archive.csv"
unit = "id"
time = "day"
observed = ["s"]
missing = ["w"]

[law]
name = "linear_lags"
lags = 1
"""


def test_leading_zeros_tell_units_apart(tmp_path):
    rows = [f"{unit},{day},{day}.5,1.0" for unit in ("1", "01", "001") for day in range(3)]
    (tmp_path / "archive.csv").write_text("\n".join(["id,day,s,w", *rows]) + "\n")
    (tmp_path / "study.toml").write_text(STUDY)
    history = pp.study.read_study(tmp_path / "study.toml").history()
    assert history.units == ("001", "01", "1")
