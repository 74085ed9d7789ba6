"""Sections survive as plain data: what was stored is what is shown."""

import json

import numpy as np
import pandas as pd
import pytest

from pulse_pyro._core.as_json import to_json
from pulse_pyro._core.errors import BundleError
from pulse_pyro.report.page import Section, page_html, sections_from_plain, sections_to_plain
from pulse_pyro.report.plots import axis

TABLES = [
    pd.DataFrame({"a": [1.5, np.nan, np.inf], "b": [1, 2, 3], "c": ["x", None, "<y>"]}),
    pd.DataFrame({"v": [0.1 + 0.2, 1e-300, -np.inf]}, index=pd.Index(["p", "q", "r"], name="k")),
]


def test_sections_come_back_as_the_same_page():
    ax = axis(None)
    ax.plot([0, 1], [1, 0])
    made = [
        Section(
            "One",
            "text & <more>\n\nsecond",
            TABLES[0],
            ax,
            "It falls.",
            "plain",
            (("Another.", TABLES[1]),),
        ),
        Section("Two"),
    ]
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
