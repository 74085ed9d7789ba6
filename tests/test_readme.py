"""The README's code runs as it stands, and the names in its table exist."""

import re
from pathlib import Path

import pytest

import pulse_pyro

README = (Path(__file__).parents[1] / "README.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    import os

    here = Path.cwd()
    os.chdir(tmp_path_factory.mktemp("readme"))
    try:
        space = {}
        for block in BLOCKS:
            exec(compile(block, "README.md", "exec"), space)
    finally:
        os.chdir(here)
    return space


def test_the_quickstart_learns(executed):
    assert executed["policy"].state.rounds == 500
    assert not executed["policy"].pending


def test_the_quickstart_is_about_twenty_lines():
    lines = [x for x in BLOCKS[0].splitlines() if x.strip() and not x.startswith("#")]
    assert len(lines) <= 20


def test_the_saved_law_is_the_fitted_one(executed):
    assert executed["again"].law_id == executed["fitted"].law_id


def test_every_public_name_in_the_text_exists():
    table = README.split("## Symbols")[1].split("##")[0]
    for name in re.findall(r"`([A-Z]\w+)", table):
        assert name in pulse_pyro.__all__


@pytest.mark.parametrize("command", ["make demo", "make test"])
def test_the_two_commands_are_named(command):
    assert command in README
