"""Completion scripts come from the parser: every verb and option, in bash for real."""

import os
import shutil
import subprocess
import sys

import pytest

from pulse_pyro.cli import ENDINGS, OFFERS, SHELLS, VERBS, completion, main, parser, verbs
from pulse_pyro.paper import DATASETS, EXPERIMENTS

bash = pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")


def ask(folder, *words):
    """What bash offers after these words."""
    script = completion("bash") + (
        'COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _pulse_pyro; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        ["bash", "-c", script, "bash", "pulse-pyro", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return [line for line in done.stdout.splitlines() if line]


def test_every_verb_can_be_run_and_completed():
    assert [verb.name for verb in verbs()] != []
    assert {verb.name for verb in verbs()} == set(VERBS)
    assert all("--json" in verb.options and verb.text for verb in verbs())


def test_offers_name_arguments_that_exist():
    known = {(verb.name, option) for verb in verbs() for option in verb.options}
    subparsers = next(a for a in parser()._actions if a.choices)
    known |= {(name, a.dest) for name, made in subparsers.choices.items() for a in made._actions}
    assert set(OFFERS) <= known


@bash
@pytest.mark.parametrize("shell", ["bash", "zsh"])  # zsh's script has bash's grammar
def test_scripts_parse(shell):
    done = subprocess.run(
        ["bash", "-n"], input=completion(shell), text=True, capture_output=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("shell", SHELLS)
def test_scripts_hold_every_verb_and_option(shell):
    script = completion(shell)
    for verb in verbs():
        assert verb.name in script
        for option in verb.options:
            assert (f"-l {option[2:]} " if shell == "fish" else option) in script
    assert all(name in script for name in (*EXPERIMENTS, *DATASETS))
    if shell == "fish":
        assert all(line.startswith("complete -c pulse-pyro") for line in script.splitlines())
        assert all(line.replace("'\\''", "").count("'") % 2 == 0 for line in script.splitlines())


@bash
def test_bash_completes(tmp_path):
    (tmp_path / "my study").mkdir()
    for name in ("my study/study.toml", "law.py", "data.csv", "other.txt"):
        (tmp_path / name).write_text("")
    assert set(ask(tmp_path, "")) == {*VERBS, "--help", "--version"}
    assert ask(tmp_path, "di") == ["diagnose"]
    assert ask(tmp_path, "run", "my study/") == ["my study/study.toml"]
    assert set(ask(tmp_path, "check", "")) == {"law.py", "my study"}
    assert ask(tmp_path, "check", "law.py", "--data", "") == ["data.csv", "my study"]
    assert set(ask(tmp_path, "run", "--")) == {
        "--help",
        "--out",
        "--force",
        "--json",
        "--debug",
    }
    assert ask(tmp_path, "run", "x.toml", "--out", "") == ["my study"]
    assert ask(tmp_path, "reproduce", "--engine", "d") == ["dask"]
    assert ask(tmp_path, "reproduce", "masking", "sweep-t") == ["sweep-t0"]
    assert ask(tmp_path, "completion", "") == list(SHELLS)
    assert ask(tmp_path, "reproduce", "--runs", "") == []
    assert ask(tmp_path, "nonsense", "") == []


def test_the_verb(capsys):
    assert main(["completion", "bash"]) == 0
    assert capsys.readouterr().out == completion("bash")
    assert main(["completion", "bsh"]) == 2
    assert "did you mean 'bash'" in capsys.readouterr().err
    assert set(ENDINGS) >= {"toml", "py", "csv"}


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
