"""Slips of the hand: each is named where it was made, with what to do about it."""

import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

import pulse_pyro as pp
from pulse_pyro.cli import main
from pulse_pyro.data.tables import column_names
from pulse_pyro.report import policy_sections
from tests.study.helpers import write_study


def refused(call, *words):
    with pytest.raises(pp.PulseError) as caught:
        call()
    text = str(caught.value)
    assert "\n" not in text
    for word in words:
        assert word in text, text


@pytest.mark.parametrize("key", ["unit", "time", "observed", "missing"])
def test_a_column_that_is_not_there_is_a_slip_of_data(tmp_path, key):
    path = write_study(tmp_path / "mine")
    lines = path.read_text().splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith(f"{key} ="))
    name = lines[at].split('"')[1]
    lines[at] = lines[at].replace(f'"{name}"', f'"{name}x"')
    path.write_text("\n".join(lines))
    words = (f"study.toml [data] {key}: there is no column '{name}x'", f"did you mean '{name}'")
    refused(lambda: pp.study.read_study(path), *(words if len(name) > 1 else words[:1]))


def test_column_names_of_both_kinds_of_file(tmp_path):
    frame = pd.DataFrame({"u": [1], "s": [0.5]})
    frame.to_csv(tmp_path / "a.csv", index=False)
    assert column_names(tmp_path / "a.csv") == ["u", "s"]
    frame.to_parquet(tmp_path / "a.parquet")
    assert column_names(tmp_path / "a.parquet") == ["u", "s"]
    (tmp_path / "b.parquet").write_text("no")
    refused(lambda: column_names(tmp_path / "b.parquet"), "cannot be read as Parquet")


def test_the_bad_cell_is_named_not_the_first_one(tmp_path):
    path = write_study(tmp_path / "mine")
    archive = path.parent / "archive.csv"
    lines = archive.read_text().splitlines()
    cells = lines[8].split(",")
    at = lines[0].split(",").index("w0")
    lines[8] = ",".join("abc" if i == at else cell for i, cell in enumerate(cells))
    archive.write_text("\n".join(lines) + "\n")
    refused(lambda: pp.study.check_study(path), "column 'w0'", "'abc' at row 7")


def test_numbers_as_text_are_said_to_be_that():
    frame = pd.DataFrame({"u": ["a", "a"], "t": [0, 1], "s": [1.0, 2.0], "w": ["1.5", "2.5"]})
    how = {"unit": "u", "time": "t", "observed": ["s"], "missing": ["w"]}
    refused(lambda: pp.History.from_frame(frame, **how), "'1.5' at row 0, a number as text")


@pytest.mark.parametrize("verb", ["run", "check", "fit", "report"])
def test_the_folder_of_a_study_is_not_its_file(tmp_path, capsys, verb):
    path = write_study(tmp_path / "mine")
    assert main([verb, str(path.parent)]) == 2
    assert f"did you mean {path}?" in capsys.readouterr().err


def test_actions_beside_a_features_file(tmp_path):
    path = write_study(tmp_path / "mine", ('terms = ["1", "s", "w0", "w0*a"]', 'file = "phi.py"'))
    (path.parent / "phi.py").write_text("")
    refused(lambda: pp.study.check_study(path), "[features]", "remove actions")


@pytest.mark.parametrize("words", [["completion", "bash"], ["--help"], ["models", "nowhere"]])
def test_a_reader_that_has_gone_is_no_error(words):
    command = [sys.executable, "-m", "pulse_pyro.cli", *words]
    buffered = {k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=buffered
    ) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == ""
        assert process.wait(60) == 141


def played(second, spread, runs=4):
    """A run in which b has regret_cond ``second`` above a, with the given spread over runs."""
    wiggle = spread * np.linspace(-1.0, 1.0, runs)
    cond = np.stack([10.0 + wiggle, 10.0 + second + wiggle])[..., None] * np.ones(3)
    action = np.zeros(cond.shape, int)
    return pp.envs.Run(("a", "b"), action, cond + 8.55, cond, np.full(runs, 8.55))


def test_the_gap_is_said_of_policies_that_see_only_s_on_average():
    text = policy_sections(played(5.0, 0.1))[0].text
    assert (
        "For policies that see only S their difference is, on average, the information gap" in text
    )
    assert "(8.55 here)" in text


@pytest.mark.parametrize(
    ("second", "spread", "doubt"),
    [
        (5.0, 0.1, ""),
        (0.1, 4.0, " (not clearly: within the standard errors)"),
    ],
)
def test_the_lowest_regret_is_called_unclear_where_it_is(second, spread, doubt):
    assert f"Lowest regret_cond: a{doubt}." in policy_sections(played(second, spread))[0].text


def test_one_run_decides_nothing():
    text = policy_sections(played(5.0, 0.0, runs=1))[0].text
    assert "a (not clearly: one run has no standard error)." in text
