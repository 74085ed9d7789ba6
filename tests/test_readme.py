"""README and guide: their code runs, commands and names in them exist, links lead somewhere."""

import re
import shlex
import tomllib
from functools import reduce
from importlib import import_module
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import pulse_pyro as pp
from pulse_pyro.cli import parser, verbs

ROOT = Path(__file__).parents[1]
GUIDE = sorted((ROOT / "notebooks" / "guide").glob("*.md"))
README = ROOT / "README.md"
LONGEST = 140
CHAPTERS = {
    "calibration",
    "data",
    "diagnostics",
    "guarantees",
    "laws",
    "policies",
    "study",
    "symbols",
}

every_page = pytest.mark.parametrize("path", [README, *GUIDE], ids=lambda path: path.stem)


def blocks(text, language):
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def commands(text):
    lines = (line for block in blocks(text, "") for line in block.splitlines())
    return [line for line in lines if line.startswith("pulse-pyro ")]


def names_in(text):
    """Dotted names that begin with pp., wherever they stand in the text."""
    return sorted(set(re.findall(r"\bpp(?:\.[A-Za-z]\w*)+", text)))


def run_blocks(text, name):
    space = {}
    for block in blocks(text, "python"):
        exec(compile(block, name, "exec"), space)
    return space


@every_page
def test_python_runs_from_top_to_bottom(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = path.read_text()
    space = run_blocks(text, path.name)
    if path == README:
        assert space["policy"].state.rounds == 500
        assert not space["policy"].pending


def test_an_example_that_fails_is_noticed():
    with pytest.raises(ZeroDivisionError):
        run_blocks("text\n\n```python\n1 / 0\n```\n", "wrong.md")


@every_page
def test_commands_are_those_of_the_parser(path):
    known = {verb.name: set(verb.options) for verb in verbs()}
    for line in commands(path.read_text()):
        _, verb, *words = shlex.split(line, comments=True)
        assert verb in known, line
        assert {word for word in words if word.startswith("--")} <= known[verb], line
        parser().parse_args([verb, *words])


def table_for(data):
    """A small table with the columns a study's [data] names."""
    kinds = data.get("kinds", {})
    frame = pd.DataFrame(
        {data["unit"]: np.repeat(["a", "b", "c"], 4), data["time"]: np.tile(np.arange(4), 3)}
    )
    if isinstance(data.get("cluster"), str):
        frame[data["cluster"]] = frame[data["unit"]]
    for name in (*data["observed"], *data["missing"]):
        kind = kinds.get(name)
        levels = kind["levels"] if isinstance(kind, dict) else range(12)
        frame[name] = np.resize(list(levels), 12)
    return frame


@every_page
def test_study_files_can_be_read(path, tmp_path):
    for text in blocks(path.read_text(), "toml"):
        data = tomllib.loads(text)["data"]
        table_for(data).to_csv(tmp_path / data["file"], index=False)
        (tmp_path / "study.toml").write_text(text)
        study = pp.study.read_study(tmp_path / "study.toml")
        assert study.history().w_names == tuple(data["missing"])
        assert study.law().name


@every_page
def test_names_in_the_text_exist(path):
    for name in names_in(path.read_text()):
        first, *rest = name.split(".")[1:]
        space = getattr(pp, first)
        public = getattr(space, "__all__", None) if rest else None
        assert first in dir(pp), name
        if public is not None:
            assert rest[0] in public, name
        reduce(getattr, rest, space)


@every_page
def test_links_lead_somewhere(path):
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", path.read_text()):
        if not target.startswith("http"):
            assert (path.parent / target).exists(), target


def test_the_readme_is_short():
    lines = README.read_text().splitlines()
    assert len(lines) <= LONGEST
    quickstart = blocks(README.read_text(), "python")[0].splitlines()
    assert len([line for line in quickstart if line.strip() and line[0] != "#"]) <= 20


@pytest.mark.parametrize("command", ["make demo", "make test"])
def test_the_two_commands_are_named(command):
    assert command in blocks(README.read_text(), "")[1]


def test_the_readme_links_every_chapter():
    assert {path.stem for path in GUIDE} == CHAPTERS
    for path in GUIDE:
        assert f"](notebooks/guide/{path.name})" in README.read_text()


def rows_of(table):
    lines = [line for line in table.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_symbols_stand_in_the_module_the_table_says():
    [head, *rows] = rows_of((ROOT / "notebooks" / "guide" / "symbols.md").read_text())
    assert head == ["paper", "in code", "shape", "module"]
    assert len(rows) > 20
    for _, code, _, where in rows:
        module = import_module(f"pulse_pyro.{where.strip('`')}")
        for name in re.findall(r"`([\w.]+)[^`]*`", code):
            thing = module
            for part in name.split("."):
                fields = getattr(thing, "__dataclass_fields__", {}) or getattr(thing, "_fields", ())
                assert hasattr(thing, part) or part in fields, (name, where)
                thing = getattr(thing, part, None)
