"""Sections and tables survive as plain data: what was stored is what is shown."""

import json

import numpy as np
import pandas as pd
import pytest

from pulse_pyro.errors import BundleError
from pulse_pyro.plots import axis
from pulse_pyro.report import Section, page_html, table_html
from pulse_pyro.stages.plain import (
    records,
    sections_from_plain,
    sections_to_plain,
    table_from_plain,
    table_to_plain,
    to_json,
)

TABLES = [
    pd.DataFrame({"a": [1.5, np.nan, np.inf], "b": [1, 2, 3], "c": ["x", None, "<y>"]}),
    pd.DataFrame({"v": [0.1 + 0.2, 1e-300, -np.inf]}, index=pd.Index(["p", "q", "r"], name="k")),
    pd.DataFrame({"yes": [True, False], "none": [np.nan, np.nan], "shape": [(2, 3), ()]}),
    pd.DataFrame({"f32": np.array([0.1], np.float32), "u8": np.array([7], np.uint8)}),
    pd.DataFrame({"empty": np.array([], float)}),
]


@pytest.mark.parametrize("table", TABLES)
def test_a_table_comes_back_as_it_was_shown(table):
    plain = json.loads(to_json(table_to_plain(table)))
    again = table_from_plain(plain)
    assert table_html(again) == table_html(table)
    assert again.index.name == table.index.name
    assert table_to_plain(again) == table_to_plain(table)


def test_numbers_keep_every_bit():
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"v": rng.standard_normal(500) * 10.0 ** rng.integers(-300, 300, 500)})
    again = table_from_plain(json.loads(to_json(table_to_plain(table))))
    assert (again["v"] == table["v"]).all()
    assert again["v"].dtype == np.float64


def test_records_are_rows_by_name():
    assert records(TABLES[1])[2] == {"k": "r", "v": "-inf"}
    assert records(TABLES[0])[1] == {"a": None, "b": 2, "c": None}


def test_json_is_strict():
    found = json.loads(to_json({"a": [np.float64("nan"), np.int64(3), float("inf")], 1: (True,)}))
    assert found == {"a": [None, 3, "inf"], "1": [True]}


def test_sections_come_back_as_the_same_page():
    ax = axis(None)
    ax.plot([0, 1], [1, 0])
    made = [
        Section("One", "text & <more>\n\nsecond", TABLES[0], ax, "It falls.", "plain", ((
            "Another.", TABLES[1]),)),
        Section("Two"),
    ]  # fmt: skip
    again = sections_from_plain(json.loads(to_json(sections_to_plain(made, "fit"))))
    page = page_html("t", "v", again)
    assert again[1] == made[1]
    assert page.count("<svg") == 1
    assert "It falls." in page
    twice = sections_from_plain(json.loads(to_json(sections_to_plain(again, "fit"))))
    assert page_html("t", "v", twice) == page


@pytest.mark.parametrize("values", [[{}], [3], [{"title": "x"}], None])
def test_what_is_no_section_is_refused(values):
    with pytest.raises(BundleError, match="not stored sections"):
        sections_from_plain(values)
