"""Every test has one marker, by where it is; see conftest."""

from pathlib import Path

import pytest

from tests.conftest import SLOW, marker_of
from tests.golden.generate import GOLDENS

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("test", "marker"),
    [
        ("tests/bands/test_auto.py::test_it", "core"),
        ("tests/report/test_page.py::test_it", "core"),
        ("tests/report/test_browser.py::test_it[study]", "pages"),
        ("tests/test_notebooks.py::test_it", "notebooks"),
        ("tests/paper/test_taobao.py::test_it", "paper"),
        ("tests/golden/test_golden.py::test_figures_are_as_before[masking]", "paper"),
        ("tests/golden/test_golden.py::test_figures_are_as_before[study]", "long"),
        ("tests/golden/test_golden.py::test_figures_are_as_before[policies]", "core"),
        ("tests/cli/test_study.py::test_it", "core"),
    ],
)
def test_the_marker_follows_from_the_place(test, marker):
    assert marker_of(test) == marker


def test_places_with_a_marker_exist():
    """One that was moved away would quietly join the core suite."""
    for start in (start for starts in SLOW.values() for start in starts):
        path, _, name = start.partition("::")
        assert (ROOT / path).exists()
        test, _, case = name.partition("[")
        assert not name or f"def {test}(" in (ROOT / path).read_text()
        assert "golden" not in path or case.rstrip("]") in GOLDENS


def test_this_test_is_marked(request):
    marks = {mark.name for mark in request.node.iter_markers()}
    assert marks & {"core", *SLOW} == {"core"}
