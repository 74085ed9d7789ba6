"""The command line: results on stdout, one sentence on stderr, nothing half-written."""

import json

import pytest

from pulse_pyro._core.registry import named
from pulse_pyro.cli import main
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
