"""Real data sets from the command line: the page, plain values, refusals, exported archives."""

import json

import pandas as pd
import pytest

import pulse_pyro as pp
from pulse_pyro._core.errors import DataError, SettingError
from pulse_pyro._core.parallel import Local
from pulse_pyro.cli import main
from pulse_pyro.envs.replay import by_time
from pulse_pyro.paper import beijing, real
from pulse_pyro.paper.replay_comparison import Imputer, PlayRule
from tests.paper.helpers import beijing_folder

SHORT = pp.Lags(2)


@pytest.fixture
def data(tmp_path, monkeypatch):
    """A folder with a made-up Beijing, and laws that are quick to fit."""
    home = tmp_path / "data" / "beijing_multisite"
    home.mkdir(parents=True)
    beijing_folder(home)
    monkeypatch.setattr(beijing, "IMPUTERS", (Imputer("linear", pp.linear_lags(SHORT)),))
    monkeypatch.setattr(beijing, "PAST", SHORT)
    rules = {
        beijing.MAIN: PlayRule(pp.constant(0.25)),
        "late": PlayRule(pp.constant(0.25), by_time),
    }
    monkeypatch.setattr(beijing, "PLAY_RULES", rules)
    return tmp_path / "data"


def test_the_page_holds_every_finding(data, tmp_path, capsys):
    out = tmp_path / "out"
    code = main(
        ["real", "beijing", "--data", str(data), "--runs", "2", "--workers", "1", "--out", str(out)]
    )
    said = capsys.readouterr().out
    assert code == 0
    assert "Stations swapped" in said
    page = (out / "real.html").read_text()
    for title in ("Three ventilation levels", "Five bands", "in order of time", "D_t of five"):
        assert title in page
    assert "It was selected because a gain" in page
    assert "CC BY 4.0" in page
    found = json.loads((out / "real.json").read_text())
    assert found["made_with"]["seed"] == "0"
    assert [case["name"] for case in found["cases"]] == ["beijing"]
    rows = found["cases"][0]["findings"][0]["rows"]
    assert {row["agent"] for row in rows} == {
        "pulse_linear",
        "oful",
        "oful_lags",
        "oful_full",
        "oful_lags_rewards",
        "oful_lags_rewards2",
        "pulse_linear_memory",
        "committee",
    }
    titles = [finding["title"] for finding in found["cases"][0]["findings"]]
    assert titles[-2:] == ["Three ventilation levels, late", "Stations swapped, late"]
    assert sorted(path.name for path in out.glob("*.svg")) == [
        f"beijing-{number}.svg" for number in (1, 2, 3, 6, 7)
    ]


def test_json_is_plain(data, tmp_path, capsys):
    main(
        [
            "real",
            "beijing",
            "--data",
            str(data),
            "--runs",
            "2",
            "--workers",
            "1",
            "--json",
            "--out",
            str(tmp_path / "out"),
        ]
    )
    found = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert found[0]["findings"][0]["runs"] == 2


@pytest.mark.parametrize(
    ("names", "error", "words"),
    [
        (["bejing"], SettingError, "did you mean 'beijing'"),
        (["oulad"], DataError, "oulad is not a folder; data sets are not part of the package"),
        (["beijing", "oulad"], DataError, "oulad is not a folder"),  # before anything is run
    ],
)
def test_what_is_not_there_is_named(data, names, error, words):
    with pytest.raises(error, match=words):
        real.run_cases(names, data, runs=2, seed=0, engine=Local())


def test_one_run_is_refused_before_the_work(data):
    with pytest.raises(SettingError, match="runs must be a whole number >= 2"):
        real.run_cases(["beijing"], data, runs=1, seed=0, engine=Local())


def test_an_exported_archive_is_the_table_of_a_study(data, tmp_path, capsys):
    file = tmp_path / "study" / "archive.csv"
    assert main(["export", "beijing", "--data", str(data), "--out", str(file)]) == 0
    assert "written" in capsys.readouterr().out
    found = beijing.load_beijing(data / "beijing_multisite").pieces
    frame = pd.read_csv(file)
    again = pp.History.from_frame(
        frame, unit="unit", time="time", observed=found.s_names, missing=found.w_names
    )
    assert again.units == found.units
    assert again.rows(SHORT).x.shape == found.rows(SHORT).x.shape


def test_an_archive_without_w_cannot_be_exported(data, tmp_path, capsys):
    out = tmp_path / "x.csv"
    assert main(["export", "open-bandit", "--data", str(data), "--out", str(out)]) == 2
    assert "no archive with S and W" in capsys.readouterr().err
    assert not out.exists()
