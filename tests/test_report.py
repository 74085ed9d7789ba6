"""The report is one file that needs nothing else, and the demo fills it."""

import re
from html.parser import HTMLParser

import pandas as pd
import pytest

from pulse_pyro.demo import run_demo
from pulse_pyro.errors import PulseError
from pulse_pyro.report import Section, write_report


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    return run_demo(tmp_path_factory.mktemp("demo"))


def test_the_demo_ends_with_a_law_that_passes_and_pulse_ahead_of_oful(demo):
    regret = demo.run.table["regret"]
    assert demo.diagnostics.verdict == "pass"
    assert regret["oful_full"] < regret["pulse"] < regret["oful_lags"] < regret["oful"]


def test_the_page_loads_nothing_from_elsewhere(demo):
    page = demo.report.read_text()
    outside = re.findall(r'(?:src|href)="(?!#)([^"]*)"', page)
    assert outside == []
    assert "<script" not in page


def test_ids_are_unique_and_every_reference_lands(demo):
    page = demo.report.read_text()
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    used = re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)', page)
    assert {a or b for a, b in used} <= set(ids)


def test_tags_are_balanced(demo):
    void = {"meta", "path", "use", "rect", "line", "br"}
    stack = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag, attrs):
            if tag not in void:
                stack.append(tag)

        def handle_endtag(self, tag):
            if tag not in void:
                assert stack.pop() == tag

    Reader().feed(demo.report.read_text())
    assert stack == []


def test_two_demos_write_the_same_page(demo, tmp_path):
    assert run_demo(tmp_path).report.read_text() == demo.report.read_text()


def test_text_is_escaped(tmp_path):
    table = pd.DataFrame({"a<b": [1.0, float("nan")], "text": ["<i>", "&"]})
    page = write_report(tmp_path / "r.html", "<t>", "v&", [Section("S", "<x>", table)]).read_text()
    assert "<i>" not in page
    assert "<x>" not in page
    assert "<t>" not in page
    assert "nan" not in page


def test_a_folder_is_refused_and_left_alone(tmp_path):
    with pytest.raises(PulseError, match="is a folder"):
        write_report(tmp_path, "t", "v", [])
    assert list(tmp_path.iterdir()) == []
