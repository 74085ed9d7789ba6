"""The page: one file that needs nothing else; the demo fills it."""

import re
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest

import pulse_pyro.study.demo
from pulse_pyro._core.errors import PulseError
from pulse_pyro.report.page import (
    GLOSSARY,
    Section,
    entries_in,
    figure_svg,
    page_html,
    plain_text,
    table_html,
    write_report,
)
from pulse_pyro.report.plots import axis

# what reads like a symbol of the paper
SYMBOL = re.compile(
    r"\bE\[[^\]]+\]|\b(?:Phi|phi\w+|theta|lambda|gamma(?:_t)?|sigma|delta|mu_\w+|psi|Sigma\w*)\b"
    r"|\b[A-Z]_(?:t|1:t|\{[^}]+\})|(?<![\w'-])[SWDE]\b(?!\.)|\b[a-z]\(s\)|\be_\{[^}]+\}"
)


def an_axis(label="line"):
    ax = axis(None)
    ax.plot([0, 1], [0, 1], label=label)
    ax.fill_between([0, 1], [0, 1])
    return ax


# --- the demo's page ----------------------------------------------------------------------------


def test_the_demo_ends_with_a_law_that_passes_and_pulse_ahead_of_oful(demo):
    regret = demo.run.table["regret"]
    assert demo.diagnostics.verdict == "pass"
    assert regret["oful_full"] < regret["pulse"] < regret["oful_lags"] < regret["oful"]


def test_the_demo_shows_every_stage(demo):
    titles = re.findall(r"<h2[^>]*>([^<]+)</h2>", demo.report.read_text())
    wanted = [
        "Data",
        "Law",
        "Diagnostics",
        "What can be said of the law&#x27;s error",
        "Ladder of claims",
        "Calibration of D_t",
        "Band and error budget: w",
        "What halves the bound",
        "Calibration checks",
        "What was played",
        "Radius",
        "Regret",
        "Learning curve",
        "Actions",
        "Provenance",
        "Glossary",
    ]
    assert [title for title in titles if title in wanted] == wanted


def test_pages_load_nothing_from_elsewhere(pages):
    for path in pages.values():
        page = path.read_text()
        assert re.findall(r'(?:src|href)="(?!#)([^"]*)"', page) == []
        assert re.findall(r"url\((?!#)", page) == []
        assert "<script" not in page


def test_ids_are_unique_and_every_reference_lands(pages):
    for path in pages.values():
        page = path.read_text()
        ids = re.findall(r'\bid="([^"]+)"', page)
        assert len(ids) == len(set(ids))
        used = re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)', page)
        assert {a or b for a, b in used} <= set(ids)


def test_tags_are_balanced(pages):
    void = {"meta", "path", "use", "rect", "line", "br"}

    class Reader(HTMLParser):
        def handle_starttag(self, tag, attrs):
            if tag not in void:
                stack.append(tag)

        def handle_endtag(self, tag):
            if tag not in void:
                assert stack.pop() == tag

    for path in pages.values():
        stack = []
        Reader().feed(path.read_text())
        assert stack == []


def test_two_demos_write_the_same_page(tmp_path, monkeypatch):
    for name, value in {"UNITS": 40, "RUNS": 3, "HORIZON": 60}.items():
        monkeypatch.setattr(pulse_pyro.study.demo, name, value)
    folders = [tmp_path / name / "demo" for name in "ab"]
    one, two = (pulse_pyro.study.demo.run_demo(folder).report for folder in folders)
    assert one.read_text() == two.read_text()


# --- glossary -----------------------------------------------------------------------------------


def test_every_symbol_on_a_page_is_in_its_glossary(pages):
    assert "D_t" not in pages["failed"].read_text()
    for path in pages.values():
        body, listed = path.read_text().split('<h2 id="glossary"')
        listed = plain_text(listed)
        known = [entry for entry in GLOSSARY if entry.words in listed]
        symbols = set(SYMBOL.findall(plain_text(body)))
        if "Calibration of D_t</h2>" in body:  # not where no bound holds
            assert {"D_t", "mu_p0", "mu_phat", "r(s)", "phibar", "phihat"} <= symbols
        for symbol in symbols:
            assert any(re.search(entry.pattern, symbol) for entry in known), symbol


def test_the_glossary_lists_what_is_used_and_no_more():
    page = page_html("Title", "Verdict", [Section("One", "The radius sqrt(gamma_t) of W.")])
    listed = plain_text(page.split('<h2 id="glossary"')[1])
    assert "squared radius" in listed
    assert "regret" not in listed
    assert "glossary" not in page_html("Title", "Fine", [Section("One", "Nothing.")])


def test_a_symbol_that_is_not_explained_would_be_noticed():
    assert SYMBOL.findall("of psi and Q_t") == ["psi", "Q_t"]
    assert entries_in("of psi and Q_t") == []
    assert SYMBOL.findall("S.D. of the law's data, Phi") == ["Phi"]


def test_glossary_entries_are_distinct_and_plain():
    assert len({entry.symbol for entry in GLOSSARY}) == len(GLOSSARY)
    for entry in GLOSSARY:
        assert 10 < len(entry.words) < 110


# --- the page itself ----------------------------------------------------------------------------


def test_text_is_escaped_everywhere():
    bad = '<i>"&'
    table = pd.DataFrame({bad: [1.0, float("nan")], "text": [bad, "&"]})
    section = Section(bad, bad, table, an_axis(), bad, bad, ((bad, table),))
    page = page_html(bad, bad, [section])
    assert "<i>" not in page
    assert '"&"' not in page.replace('="&', "")
    assert "nan" not in page.lower().replace("&quot;", "")


def test_the_same_title_twice_gets_two_ids():
    page = page_html("T", "V", [Section("A b"), Section("A b"), Section("A-b!"), Section("Ü")])
    assert re.findall(r'<h2 id="([^"]+)"', page)[:4] == ["a-b", "a-b--2", "a-b--3", "section"]


def test_a_figure_needs_a_reading(tmp_path):
    with pytest.raises(PulseError, match="'One' has no reading"):
        write_report(tmp_path / "r.html", "T", "V", [Section("One", figure=an_axis())])
    assert list(tmp_path.iterdir()) == []


def test_a_stored_figure_is_as_good_as_an_axis():
    stored = figure_svg(an_axis(), "stage", "an old name")
    page = page_html(
        "T", "V", [Section(name, figure=stored, reading=f"Of {name}.") for name in "ab"]
    )
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    assert re.findall(r'aria-label="(Of \w|an old name)[."]', page) == ["Of a", "Of b"]
    fresh = page_html("T", "V", [Section("a", figure=an_axis(), reading="Of a.")])
    assert page.count("<path") == 2 * fresh.count("<path")


@pytest.mark.parametrize(
    "text",
    [
        "no picture",
        "<svg><script>1</script></svg>",
        '<svg><path onload="x()"/></svg>',
        '<svg><use xlink:href="http://elsewhere"/></svg>',
    ],
)
def test_a_figure_that_runs_or_loads_something_is_refused(text):
    with pytest.raises(PulseError, match="text of an SVG"):
        page_html("T", "V", [Section("One", figure=text, reading="Of one.")])


def test_tables_have_headers_and_align_numbers():
    table = pd.DataFrame(
        {
            "share": ["5%", "1,200"],
            "verdict": ["pass", "fail"],
            "n": np.array([3, 40_000]),
            "x": [0.123456, 1e7],
        },
        index=pd.Index(["one", "two"], name="what"),
    )
    made = table_html(table)
    assert made.count('scope="col"') == 5
    assert made.count('scope="row"') == 2
    assert '<td role="cell" class="num" data-name="share">5%</td>' in made
    assert '<td role="cell" class="text fail" data-name="verdict">fail</td>' in made
    assert ">0.1235<" in made
    assert ">10,000,000<" in made
    assert "told" not in made
    assert 'class="told"' in table_html(table.assign(text="a sentence that is long enough"))


def test_a_folder_is_refused_and_left_alone(tmp_path):
    with pytest.raises(PulseError, match="is a folder"):
        write_report(tmp_path, "t", "v", [])
    assert list(tmp_path.iterdir()) == []
