"""Columns that are not plain numbers: categories, orders, clocks, counts; and what is refused."""

import json

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from pulse_pyro._core.errors import DataError, PulseError, SettingError
from pulse_pyro.base import Column, Schema
from pulse_pyro.calibration.ladder import calibrate
from pulse_pyro.data.history import History
from pulse_pyro.data.tables import read_frame, s_columns
from pulse_pyro.diagnostics.held_out import diagnose
from pulse_pyro.features import Features
from pulse_pyro.laws.filtering import state_space
from pulse_pyro.laws.linear import linear_lags

PHI = Features(lambda s, w, a: w * a, 2, ("w a",))

NAN = np.nan
FRAME = pd.DataFrame(
    {
        "who": list("aaabbb"),
        "day": [0, 1, 2, 0, 1, 2],
        "city": ["Rome", "Paris", None, "Bonn", "Paris", "Rome"],
        "hour": [0.0, 6, 12, 18, 3, NAN],
        "mood": ["low", "high", "mid", "low", None, "mid"],
        "visits": [0, 3, 1, 2, 0, 5],
        "flag": [0, 1, 1, 0, 1, 0],
        "w": [1.0, 2, 3, 4, 5, 6],
    }
)


def build(observed, kinds=None, frame=FRAME, missing="w"):
    return History.from_frame(
        frame, unit="who", time="day", observed=observed, missing=missing, kinds=kinds
    )


def test_a_category_becomes_a_column_for_each_level_but_the_first():
    history = build(["city"], {"city": "categorical"})
    assert history.s_names == ("city[Paris]", "city[Rome]")
    expected = [[0, 1], [1, 0], [NAN, NAN], [0, 0], [1, 0], [0, 1]]
    assert_array_equal(history.s, expected)
    assert history.schema.s_columns[0].levels == ("Bonn", "Paris", "Rome")
    law = linear_lags(1).fit(history, seed=0)
    assert "w ~ city[Paris].lag0" in law.table.index
    assert law.schema == history.schema


def test_levels_that_are_declared_keep_their_order_and_may_be_absent():
    levels = ("Rome", "Oslo", "Paris", "Bonn")
    history = build(["city"], {"city": Column("city", kind="categorical", levels=levels)})
    assert history.s_names == ("city[Oslo]", "city[Paris]", "city[Bonn]")
    assert_array_equal(history.s[[0, 3]], [[0, 0, 0], [0, 0, 1]])
    assert (history.s[history.s[:, 0] == history.s[:, 0], 0] == 0).all()


def test_a_level_that_is_not_declared_is_refused_or_other():
    column = {"kind": "categorical", "levels": ("Paris", "Rome")}
    with pytest.raises(DataError, match=r"'city' has no level 'Bonn'.*unknown='other'"):
        build(["city"], {"city": Column("city", **column)})
    history = build(["city"], {"city": Column("city", **column, unknown="other")})
    assert history.s_names == ("city[Rome]", "city[other]")
    assert_array_equal(history.s[[0, 1, 3]], [[1, 0], [0, 0], [0, 1]])
    found = history.schema.encode({"city": "Atlantis"}, "act: s")
    assert_array_equal(found, [0, 1])


def test_levels_that_were_found_may_leave_room_for_others():
    kind = Column("city", kind="categorical", unknown="other")
    history = build(["city"], {"city": kind})
    assert history.s_names == ("city[Paris]", "city[Rome]", "city[other]")
    assert_array_equal(history.schema.encode({"city": "Oslo"}, "act: s"), [0, 0, 1])


def test_a_pandas_category_counts_as_declared():
    ordered = pd.Categorical(FRAME["mood"], ["low", "mid", "high"], ordered=True)
    city = FRAME["city"].astype("category")
    history = build(["city", "mood"], frame=FRAME.assign(mood=ordered, city=city))
    assert history.s_names == ("city[Paris]", "city[Rome]", "mood")
    assert_array_equal(history.s[:, 2], [0, 2, 1, 0, NAN, 1])


def test_an_order_is_the_number_of_its_level():
    kind = Column("mood", kind="ordinal", levels=("low", "mid", "high"))
    assert_array_equal(build(["mood"], {"mood": kind}).s[:, 0], [0, 2, 1, 0, NAN, 1])
    with pytest.raises(DataError, match="'mood' must be named in order"):  # not by the alphabet
        build(["mood"], {"mood": "ordinal"})
    of_w = build(["hour"], {"mood": kind}, missing=["mood", "w"])
    assert_array_equal(of_w.w[:, 0], [0, 2, 1, 0, NAN, 1])


def test_a_clock_becomes_two_columns_without_a_jump_at_midnight():
    history = build(["hour"], {"hour": "clock 24"})
    assert history.s_names == ("hour[sin]", "hour[cos]")
    half = np.sqrt(0.5)
    expected = [[0, 1], [1, 0], [0, -1], [-1, 0], [half, half], [NAN, NAN]]
    assert_allclose(history.s, expected, atol=1e-12)
    read = history.schema.encode
    assert_allclose(read({"hour": 24}, "s"), read({"hour": 0}, "s"), atol=1e-12)


def test_counts_and_flags_are_numbers_as_they_are():
    kinds = {"visits": "count", "flag": "binary"}
    history = build(["visits", "flag"], kinds)
    assert_array_equal(history.s, FRAME[["visits", "flag"]])
    assert history.schema.plain
    assert [column.kind for column in history.schema.s_columns] == ["count", "binary"]
    assert not build(["city"], {"city": "categorical"}).schema.plain


REFUSED = {
    "'visits' is declared count, but it holds -1": ("visits", "count", [0, 1, 2, -1, 0, 1]),
    "'visits' is declared count, but it holds 0.5": ("visits", "count", [0, 1, 2, 0.5, 0, 1]),
    "'flag' is declared binary, but it holds 2 in row 2, who 'a', day 2; correct": (
        "flag",
        "binary",
        [0, 1, 2, 0, 1, 0],
    ),
    "'mood' has no level 'bad', which stands in row 4, who 'b', day 1": (
        "mood",
        Column("mood", kind="ordinal", levels=("low", "mid", "high")),
        ["low", "high", "mid", "low", "bad", "bad"],
    ),
    "'hour' must be numeric.*'noon'": ("hour", "clock 24", [0, 1, "noon", 3, 4, 5]),
    "'city' holds no level, all values": ("city", "categorical", [None] * 6),
    "there is no kind 'categrical'; did you mean 'categorical'": ("city", "categrical", None),
    "clock 'hour': period must be": ("hour", "clock", None),
    "clock 'hour': period": ("hour", "clock day", None),
    "'city' must be numeric.*kinds={'city': 'categorical'}": ("city", "real", None),
}


@pytest.mark.parametrize("says", REFUSED)
def test_what_is_not_of_its_kind_is_refused(says):
    name, kind, values = REFUSED[says]
    frame = FRAME if values is None else FRAME.assign(**{name: values})
    with pytest.raises(PulseError, match=says):
        build([name], {name: kind}, frame)


def test_a_kind_of_a_column_that_is_not_used_is_refused():
    with pytest.raises(DataError, match=r"kinds names 'town', which is not among.*'city'"):
        build(["city"], {"town": "categorical"})


def test_w_must_be_numbers_and_the_cure_is_named():
    with pytest.raises(DataError, match=r"'hour' must be numeric.*W.*sine"):
        build(["city"], {"city": "categorical", "hour": "clock 24"}, missing=["hour"])


def test_a_categorical_w_becomes_columns_of_0_and_1():
    history = build(["hour"], {"city": "categorical"}, missing=["city"])
    assert history.w_names == ("city[Paris]", "city[Rome]")
    assert history.schema.w_declared == (history.schema.w_columns[0],) * 2
    assert set(np.unique(history.w[np.isfinite(history.w)])) == {0.0, 1.0}


def test_text_in_w_is_not_sent_to_a_kind_that_w_cannot_be():
    with pytest.raises(DataError, match="'mood' must be numeric") as caught:
        build(["visits"], missing=["mood"])
    assert "categorical" not in str(caught.value)


SETTINGS = [
    ({"kind": "categorical", "levels": ("a", "b", "a")}, "distinct"),
    ({"role": "X"}, "role must be 'S' or 'W'"),
    ({"unknown": "ignore"}, "unknown 'refuse' or 'other'"),
    ({"kind": "clock", "period": -1.0}, "period"),
]


@pytest.mark.parametrize(("given", "says"), SETTINGS)
def test_a_column_that_cannot_be_is_refused(given, says):
    with pytest.raises(SettingError, match=says):
        Column("x", **given)


def test_levels_and_units_are_text_so_01_is_not_1(tmp_path):
    text = "who,day,code,w\n01,0,01,1\n01,1,1,2\n1,0,1,3\n1,1,01,4\n"
    (tmp_path / "table.csv").write_text(text)
    frame = read_frame(tmp_path / "table.csv", text=["who", "code"])
    history = History.from_frame(
        frame, unit="who", time="day", observed="code", missing="w", kinds={"code": "categorical"}
    )
    assert history.units == ("01", "1")
    assert history.s_names == ("code[1]",)
    assert_array_equal(history.s[:, 0], [0, 1, 1, 0])
    assert_array_equal(history.schema.encode({"code": "01"}, "s"), [0])
    assert_array_equal(history.schema.encode({"code": "1"}, "s"), [1])
    with pytest.raises(DataError, match="no level '001'"):
        history.schema.encode({"code": "001"}, "s")


MIXED = Schema(
    (
        Column("hr", unit="1/min"),
        Column("city", kind="categorical", levels=("Bonn", "Paris"), unknown="other"),
        Column("hour", kind="clock", period=24),
        Column("mood", kind="ordinal", levels=("low", "high")),
        Column("w", "W", "count"),
    )
)
ROW = {"hr": 60, "city": "Paris", "hour": 6, "mood": "high"}


def test_a_row_is_read_by_the_names_of_the_table():
    assert MIXED.s_names == ("hr", "city[Paris]", "city[other]", "hour[sin]", "hour[cos]", "mood")
    assert MIXED.w_names == ("w",)
    expected = [60, 1, 0, 1, 0, 1]
    assert_allclose(MIXED.encode(ROW, "act: s"), expected, atol=1e-12)
    backwards = dict(reversed(ROW.items()))
    assert_allclose(MIXED.encode(backwards, "act: s"), expected, atol=1e-12)
    unseen = MIXED.encode(ROW | {"city": None, "hour": NAN}, "act: s")
    assert_array_equal(np.isnan(unseen), [0, 1, 1, 1, 1, 0])


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"town": 1}, r"act: s is labelled .*'town'.* are needed"),
        ({"hr": "fast"}, "act: s must hold numbers for"),
        ({"hr": [1, 2]}, "act: s: 'hr' must be one number"),
        ({"city": None, "hour": [[1]]}, "act: s: 'hour' must be one number"),
        ({"mood": "lwo"}, "act: s: 'mood' has no level 'lwo'; did you mean 'low'"),
        ({"hour": "noon"}, "act: s must hold numbers for"),
    ],
)
def test_a_row_that_cannot_be_read_is_refused(change, says):
    with pytest.raises(DataError, match=says):
        MIXED.encode(ROW | change, "act: s")


def test_a_row_that_lacks_a_column_is_refused():
    with pytest.raises(DataError, match="act: s is labelled"):
        MIXED.encode({"hr": 60}, "act: s")


@pytest.mark.parametrize("moments", [None, np.arange(12.0).reshape(2, 6)], ids=["bare", "moments"])
def test_plain_values_give_the_schema_back(moments):
    schema = MIXED if moments is None else MIXED.with_moments(moments)
    back = Schema.from_plain(json.loads(json.dumps(schema.to_plain())))
    assert back == schema
    assert back.columns == schema.columns
    assert_array_equal(back.contexts, schema.contexts)
    assert_array_equal(back.encode(ROW, "s"), schema.encode(ROW, "s"))


def test_the_schema_knows_what_sizes_are_usual():
    history = build(["hour", "visits"])
    assert_allclose(history.schema.contexts[0], [39 / 5, 11 / 6])
    assert_allclose(history.schema.contexts[1, 1], FRAME["visits"].std(ddof=0))
    part = history.take([0])
    assert_allclose(part.schema.contexts[0], [6, 4 / 3])
    assert_array_equal(Schema.of(["a", "b"], ["w"]).contexts, [[0, 0], [1, 1]])


def test_only_an_empty_cell_of_text_is_missing_and_na_is_a_name(tmp_path):
    text = "who,day,code,x,w\nNA,0,NA,1.5,1\nNA,1,null,NA,2\nb,0,,2.5,null\nb,1,NA,nan,4\n"
    (tmp_path / "table.csv").write_text(text)
    frame = read_frame(tmp_path / "table.csv", text=["who", "code"])
    history = History.from_frame(
        frame,
        unit="who",
        time="day",
        observed=["code", "x"],
        missing="w",
        kinds={"code": "categorical"},
    )
    assert history.units == ("NA", "b")
    assert history.s_names == ("code[null]", "x")
    assert_array_equal(history.s, [[0, 1.5], [1, NAN], [NAN, 2.5], [0, NAN]])
    assert_array_equal(history.w[:, 0], [1, 2, NAN, 4])
    assert s_columns(tmp_path / "table.csv", ["code"], {"code": "categorical"})[0].levels == (
        "NA",
        "null",
    )


def test_which_columns_are_text_must_be_said_and_they_must_be_there(tmp_path):
    (tmp_path / "table.csv").write_text("who,w\n1,1\n01,2\n")
    with pytest.raises(TypeError, match="text"):
        read_frame(tmp_path / "table.csv")
    with pytest.raises(DataError, match="did you mean 'who'"):
        read_frame(tmp_path / "table.csv", text=["Who"])


@pytest.mark.parametrize("declared", [True, False])
def test_a_category_of_one_level_is_refused(declared):
    frame = FRAME.assign(city="Rome")
    if declared:
        frame["city"] = frame["city"].astype("category")
    with pytest.raises(DataError, match="one level"):
        build(["city", "hour"], None if declared else {"city": "categorical"}, frame)
    with pytest.raises(SettingError, match="two levels"):
        Column("city", kind="categorical", levels=("Rome",))
    kind = Column("city", kind="categorical", levels=("Rome",), unknown="other")
    assert build(["city"], {"city": kind}, frame).s_names == ("city[other]",)


def test_a_column_called_like_a_level_of_another_is_refused():
    frame = FRAME.assign(**{"city[Rome]": 1.0})
    with pytest.raises(DataError, match=r"'city\[Rome\]'"):
        build(["city", "city[Rome]"], {"city": "categorical"}, frame)


def test_levels_that_are_whole_numbers_are_read_without_their_point():
    frame = FRAME.assign(code=[1.0, 2.0, NAN, 1.0, 2.5, 2.0])
    history = build(["code"], {"code": "categorical"}, frame)
    assert history.s_names == ("code[2]", "code[2.5]")
    for one in (2, 2.0, "2", np.float32(2), np.int64(2)):
        assert_array_equal(history.schema.encode({"code": one}, "s"), [1, 0])
    assert build(["code"], frame=frame.astype({"code": "category"})).schema == history.schema
    text = Column("code", kind="categorical", levels=("1.0", "2.0"))
    assert_array_equal(text.encode([2.0, "1.0", "2.0"], "s")[:, 0], [1, 0, 1])
    coded = Column("code", kind="ordinal", levels=(1, 2))  # a file writes 1.0 beside an empty cell
    assert_array_equal(coded.encode(["1.0", "2", None], "s")[:, 0], [1, 2, np.nan])
    with pytest.raises(DataError, match=r"no level '1\.5'"):
        coded.encode(["1.5"], "s")


UNLIKE = [
    ("hour", "clock 24", "clock 12"),
    (
        "mood",
        Column("mood", kind="ordinal", levels=("low", "mid", "high")),
        Column("mood", kind="ordinal", levels=("high", "mid", "low")),
    ),
    (
        "city",
        Column("city", kind="categorical", levels=("Bonn", "Paris", "Rome")),
        Column("city", kind="categorical", levels=("Oslo", "Paris", "Rome")),
    ),
    ("flag", "count", "binary"),
]


@pytest.mark.parametrize(("name", "one", "other"), UNLIKE)
def test_a_history_whose_columns_mean_something_else_is_refused(name, one, other):
    frame = FRAME.replace({"city": {"Bonn": None}})
    law = linear_lags(1).fit(build([name], {name: one}, frame), seed=0)
    theirs = build([name], {name: other}, frame)
    assert theirs.s_names == law.schema.s_names
    for ask in (
        lambda: law(theirs),
        lambda: diagnose(law, theirs, seed=0),
        lambda: calibrate(law, theirs, PHI, seed=0),
        lambda: state_space(1, ar=0, ma=0).fit(build([name], {name: one}, frame), seed=0)(theirs),
    ):
        with pytest.raises(DataError, match=f"'{name}' as"):
            ask()
    plain = History.from_arrays(
        theirs.grid.s, theirs.grid.w, s_names=theirs.s_names, w_names=theirs.w_names
    )
    assert_array_equal(law(plain).mean(), law(theirs.s.reshape(2, 3, -1)).mean())


def test_a_w_that_means_something_else_is_refused():
    one, other = (
        build(["hour"], {"mood": Column("mood", kind="ordinal", levels=levels)}, missing=["mood"])
        for levels in [("low", "mid", "high"), ("mid", "low", "high")]
    )
    law = linear_lags(1).fit(one, seed=0)
    with pytest.raises(DataError, match="'mood' as"):
        diagnose(law, other, seed=0)
    law(other)  # W is not looked at
