"""Tables and values survive as JSON: what was stored is what is shown."""

import json

import numpy as np
import pandas as pd
import pytest

from pulse_pyro._core.as_json import records, table_from_plain, table_to_plain, to_json
from pulse_pyro.report.page import table_html

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
