"""The command line: results on stdout, one sentence on stderr, nothing half-written."""

import json

import pandas as pd
import pytest

from pulse_pyro._core.errors import SettingError
from pulse_pyro._core.registry import named
from pulse_pyro.cli import VERBS, main
from pulse_pyro.paper import EXPERIMENTS


def test_experiments_go_by_the_names_they_are_listed_under():
    assert [named(EXPERIMENTS, name).name for name in EXPERIMENTS] == list(EXPERIMENTS)


def test_reproduce_prints_json_with_the_agreed_fields(tmp_path, capsys):
    run = ["reproduce", "comparison-linear", "--runs", "2", "--json", "--out", str(tmp_path)]
    assert main([*run, "--workers", "1"]) == 0
    found = json.loads(capsys.readouterr().out)
    wanted = {
        "setting",
        "agent",
        "regret",
        "se",
        "regret_cond",
        "info_gap",
        "runs",
        "published",
        "verdict",
        "why",
    }
    assert found["name"] == "comparison-linear"
    assert found["seconds"] >= 0
    assert wanted <= set(found["rows"][0])


def test_reproduce_writes_results_figures_and_a_page(tmp_path, capsys):
    names = ["sweep-points", "comparison-linear"]
    assert main(["reproduce", *names, "--runs", "2", "--workers", "1", "--out", str(tmp_path)]) == 0
    found = json.loads((tmp_path / "results.json").read_text())
    assert [each["name"] for each in found["experiments"]] == names
    assert found["counts"]["reproduced"] + found["counts"]["differs"] <= 24
    assert {"seed", "versions", "verdict"} <= set(found)
    assert all("<svg" in (tmp_path / f"{name}.svg").read_text() for name in names)
    page = (tmp_path / "reproduction.html").read_text()
    assert all(f'id="{name}' in page for name in names)
    assert "n=30" in capsys.readouterr().out


@pytest.mark.parametrize("names", [["sweepn"], ["all", "sweepn"]])
def test_a_misspelt_name_gets_a_suggestion(names, capsys):
    assert main(["reproduce", *names]) == 2
    assert "did you mean 'sweep-n'" in capsys.readouterr().err


@pytest.mark.parametrize(
    "argument",
    [
        ["--runs", "1"],
        ["--seed", "-1"],
        ["--workers", "-1"],
        ["--workers", "0"],
        ["--address", "tcp://localhost:1"],
        ["--engine", "dask", "--workers", "2"],
        ["--engine", "dask", "--address", "nonsense"],
    ],
)
def test_bad_numbers_are_one_sentence(argument, tmp_path, capsys):
    assert main(["reproduce", "comparison-linear", "--out", str(tmp_path), *argument]) == 2
    error = capsys.readouterr().err
    assert error.startswith("pulse-pyro: ")
    assert "Traceback" not in error


def raising(monkeypatch, error):
    def fail(arguments):
        raise error

    monkeypatch.setitem(VERBS, "models", fail)


def test_a_fault_of_ours_is_one_sentence_and_70(monkeypatch, capsys):
    raising(monkeypatch, RuntimeError("the moon\nis down"))
    assert main(["models"]) == 70
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1
    assert "RuntimeError: the moon is down" in err
    assert "issue tracker" in err


@pytest.mark.parametrize(
    ("error", "code"),
    [(RuntimeError("down"), 70), (SettingError("down"), 2), (KeyboardInterrupt("down"), 130)],
)
def test_debug_shows_the_traceback_of_any_error_and_nothing_else_does(
    error, code, monkeypatch, capsys
):
    raising(monkeypatch, error)
    assert main(["models"]) == code
    assert "Traceback" not in capsys.readouterr().err
    assert main(["models", "--debug"]) == code
    err = capsys.readouterr().err
    assert f"{type(error).__name__}: down" in err
    assert err.splitlines()[-1].startswith("pulse-pyro: ")


def test_what_is_not_a_number_is_null_and_a_result_is_one_line(monkeypatch, capsys):
    table = pd.DataFrame({"kind": [float("nan")]}, index=pd.Index(["a"], name="law"))
    monkeypatch.setattr("pulse_pyro.laws.files.list_laws", lambda folder: table)
    assert main(["models", "--json"]) == 0
    assert capsys.readouterr().out == '[{"law": "a", "kind": null}]\n'
