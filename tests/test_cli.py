"""The command line: results on stdout, one sentence on stderr, nothing half-written."""

import json

import pytest

from pulse_pyro.cli import NAMES, main
from pulse_pyro.experiments import EXPERIMENTS


def test_every_experiment_has_its_verb():
    assert tuple(EXPERIMENTS) == NAMES


def test_reproduce_prints_json_with_the_agreed_fields(capsys):
    assert main(["reproduce", "comparison-linear", "--runs", "2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    wanted = {"setting", "agent", "regret", "se", "regret_cond", "info_gap", "runs", "published",
              "verdict", "why"}  # fmt: skip
    assert found["name"] == "comparison-linear"
    assert found["seconds"] >= 0
    assert wanted <= set(found["rows"][0])


def test_reproduce_writes_results_and_a_figure(tmp_path, capsys):
    main(["reproduce", "sweep-t0", "--runs", "2", "--out", str(tmp_path)])
    assert json.loads((tmp_path / "sweep-t0.json").read_text())["rows"]
    assert "<svg" in (tmp_path / "sweep-t0.svg").read_text()
    assert "T0=200" in capsys.readouterr().out


def test_a_misspelt_name_gets_a_suggestion(capsys):
    assert main(["reproduce", "sweepn"]) == 2
    assert "did you mean 'sweep-n'" in capsys.readouterr().err


@pytest.mark.parametrize("argument", [["--runs", "1"], ["--seed", "-1"]])
def test_bad_numbers_are_one_sentence(argument, capsys):
    assert main(["reproduce", "comparison-linear", *argument]) == 2
    error = capsys.readouterr().err
    assert error.startswith("pulse-pyro: ")
    assert "Traceback" not in error
