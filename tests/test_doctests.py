"""The examples in the docstrings run as they stand, and there are enough of them."""

import doctest
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1] / "pulse_pyro"
WITH = sorted(path for path in ROOT.rglob("*.py") if ">>>" in path.read_text())
FEWEST = 18  # docstrings with examples
SHOWN = [
    "History.from_frame",
    "Lags",
    "Window",
    "Features",
    "expected_features",
    "linear_lags",
    "calibrate",
    "PulseUCB",
    "simulate",
    "constant",
    "corrected",
    "plan",
    "to_tree",
]


def found(path):
    name = ".".join(path.relative_to(ROOT.parent).with_suffix("").parts)
    module = import_module(name)
    return [test for test in doctest.DocTestFinder().find(module, name) if test.examples]


@pytest.mark.parametrize("path", WITH, ids=lambda path: str(path.relative_to(ROOT)))
def test_examples_give_what_they_show(path):
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    said = []
    with np.printoptions(precision=3, suppress=True, linewidth=100, legacy=False):
        for test in found(path):
            runner.run(test, out=said.append)
    assert runner.tries > 0
    assert runner.failures == 0, "".join(said)


def test_the_main_things_have_examples():
    names = [test.name for path in WITH for test in found(path)]
    assert len(names) >= FEWEST
    missing = [name for name in SHOWN if not any(n.endswith(f".{name}") for n in names)]
    assert not missing


def test_an_example_that_shows_something_else_fails():
    wrong = doctest.DocTestParser().get_doctest(">>> 1 + 1\n3\n", {}, "wrong", None, 0)
    runner = doctest.DocTestRunner()
    runner.run(wrong, out=lambda _: None)
    assert runner.failures == 1
