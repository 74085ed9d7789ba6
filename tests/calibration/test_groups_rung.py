"""Rung G: how groups are declared, what is refused, and what the table says."""

import re
import time

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats

from pulse_pyro._core.errors import DataError, SettingError
from pulse_pyro.base import Column, Schema
from pulse_pyro.calibration.groups import groups_rung, sort_into_groups
from pulse_pyro.calibration.rung import Ask
from tests.calibration.rung_helpers import SCHEMA, error_rows, world

COLUMNS = (
    Column("city", kind="categorical", levels=("Bonn", "Paris", "Rome")),
    Column("hour", kind="clock", period=24),
    Column("mood", kind="ordinal", levels=("low", "mid", "high")),
    Column("sex", kind="binary"),
    Column("age"),
)
WIDE = Schema((*COLUMNS, Column("w", "W")))
HOURS = np.tile(np.arange(24.0), 50)
CITY = np.tile(["Bonn", "Paris", "Rome", "Rome"], 300)


def wide(seed=0, bias=0.0):
    """1,200 rows of 100 clusters; the law is off by ``bias`` in Paris."""
    rng = np.random.default_rng(seed)
    n = len(HOURS)
    values = {
        "city": CITY,
        "hour": HOURS,
        "mood": rng.choice(["low", "mid", "high"], n),
        "sex": rng.integers(0, 2, n).astype(float),
        "age": rng.normal(50, 10, n),
    }
    s = np.concatenate([c.encode(values[c.name], "test") for c in COLUMNS], axis=1)
    w = rng.standard_normal(n) + bias * (CITY == "Paris")
    names = WIDE.s_names
    cluster = rng.permutation(np.repeat(np.arange(100), 12))
    return error_rows(w, rng.random(n) - 0.5, cluster, s=s, s_names=names), values


def groups_of(rows, groups, schema=WIDE):
    rung = groups_rung(rows, Ask(0.95, 0, groups, schema))
    return rung, rung.details.table


def test_nothing_asked_nothing_said():
    rung = groups_rung(world(30, 10), Ask(0.95, 0, None, SCHEMA))
    assert rung.verdict == "not asked"
    assert np.isnan(rung.size)


def test_columns_are_taken_by_their_kind():
    rows, values = wide()
    _, table = groups_of(rows, ["city", "hour", "mood", "sex", "age", "forecast"])
    count = dict(zip(table["group"], table["rows"], strict=True))
    for city in ("Bonn", "Paris", "Rome"):
        assert count[f"city = {city}"] == (city == CITY).sum()
    for start in (0, 6, 12, 18):
        assert count[f"hour {start} to {start + 6}"] == 300
    for mood in ("low", "mid", "high"):
        assert count[f"mood = {mood}"] == (values["mood"] == mood).sum()
    assert count["sex = 1"] == (values["sex"] == 1).sum()
    age = [rows for name, rows in count.items() if name.startswith("age")]
    assert age == [240] * 5
    assert sum(name.startswith("forecast") for name in count) == 5


def test_the_mean_error_of_a_group_is_that_of_its_rows():
    rows, _ = wide()
    _, table = groups_of(rows, ["city"])
    by_name = table.set_index("group")["mean error"]
    assert_allclose(by_name["city = Rome"], rows.error[CITY == "Rome"].mean())
    assert ((table["low"] < table["mean error"]) & (table["mean error"] < table["high"])).all()
    assert table["verdict"].str.startswith("within +-").all()


def test_time_is_thirds_of_each_units_steps():
    cluster = np.repeat(np.arange(40), 9)
    w = np.random.default_rng(0).standard_normal(360)
    rows = error_rows(w, np.zeros(360), cluster, time=np.tile(np.arange(9), 40))
    part = sort_into_groups(rows, ["time"], SCHEMA)[0]
    assert part.cells.code.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2] * 40
    assert part.labels == ("time: early", "time: middle", "time: late")
    four = sort_into_groups(rows, {"time": 4}, SCHEMA)[0]
    assert four.cells.many == 4


def test_forecast_groups_are_those_of_each_target():
    rows = world(60, 20)
    two = error_rows(
        np.c_[rows.target, rows.target], np.c_[rows.forecast, -rows.forecast], rows.cluster,
        names=("a", "b"),
    )  # fmt: skip
    _, table = groups_of(two, ["forecast"], SCHEMA)
    assert len(table) == 10
    assert (table["group"].str.contains("forecast of a") == (table["target"] == "a")).all()


def test_choices_number_edges_labels_masks():
    rows, _ = wide()
    age = rows.s[:, rows.s_names.index("age")]
    old = age > 60
    _, table = groups_of(
        rows,
        {
            "age": [40.0, 60.0],
            "forecast": 2,
            "kind": np.where(old, "old", "young"),
            "risk": {"high": old & (CITY == "Rome"), "low": ~old},
        },
    )
    count = dict(zip(table["group"], table["rows"], strict=True))
    assert count["age above 60"] == old.sum()
    assert count["age 40 to 60"] == ((age > 40) & (age <= 60)).sum()
    assert count["kind = old"] == old.sum()
    assert count["risk: high"] == (old & (CITY == "Rome")).sum()
    assert sum(name.startswith("forecast") for name in count) == 2


def test_labels_are_found_by_the_row_of_the_archive():
    rows, _ = wide()
    part = rows.take(np.arange(len(CITY)) % 2 == 1)
    _, table = groups_of(part, {"where": CITY})
    count = dict(zip(table["group"], table["rows"], strict=True))
    assert count == {"where = Paris": 300, "where = Rome": 300}


@pytest.mark.parametrize("length", [1199, 1201, 2400])
def test_labels_and_masks_of_another_archive_are_refused(length):
    rows, _ = wide()
    labels = np.resize(CITY, length)
    for choice in (labels, {"Rome": labels == "Rome"}):
        with pytest.raises(DataError, match=rf"archive, 1200, but .*\({length},\)"):
            groups_rung(rows, Ask(0.95, 0, {"where": choice}, WIDE, rows=1200))


def test_numbers_are_labels_where_there_is_one_for_each_row_and_edges_elsewhere():
    cluster = np.repeat(np.arange(30), 3)
    rng = np.random.default_rng(3)
    rows = error_rows(rng.standard_normal(90), np.zeros(90), cluster, s=rng.standard_normal(90))
    kind = np.tile([1, 2], 45)
    for name in ("s", "kind"):
        rung = groups_rung(rows, Ask(0.95, 0, {name: kind}, SCHEMA, rows=90))
        assert rung.details.group == (f"{name} = 1", f"{name} = 2")
    with pytest.raises(SettingError, match=r"numbers are edges, .*write labels as text"):
        groups_rung(rows, Ask(0.95, 0, {"s": kind[:-1]}, SCHEMA, rows=90))
    with pytest.raises(DataError, match=r"no S column 'kind'.*a label, as text, for each row"):
        groups_rung(rows, Ask(0.95, 0, {"kind": kind[:-1]}, SCHEMA, rows=90))
    edges = groups_rung(rows, Ask(0.95, 0, {"s": np.array([0.0])}, SCHEMA, rows=90))
    assert edges.details.group == ("s up to 0", "s above 0")


def test_rows_without_a_label_are_in_no_group():
    rows, _ = wide()
    labels = np.where(CITY == "Bonn", None, CITY)
    _, table = groups_of(rows, {"where": labels})
    assert table["rows"].sum() == (CITY != "Bonn").sum()


def test_a_biased_group_is_seen_and_its_bound_exceeds_the_bias():
    rows, _ = wide(bias=1.0)
    rung, table = groups_of(rows, ["city", "hour"])
    by_name = table.set_index("group")
    assert by_name.loc["city = Paris", "low"] > 0
    assert by_name.loc["city = Paris", "high"] >= 1.0
    assert "city = Paris" in rung.claim
    clean, _ = groups_of(wide()[0], ["city", "hour"])
    assert clean.size < rung.size


def test_more_groups_give_wider_limits():
    rows, _ = wide()
    _, few = groups_of(rows, ["city"])
    _, many = groups_of(rows, {"city": None, "age": 20, "hour": None})
    width = [(t["high"] - t["low"])[:3].sum() for t in (few, many)]
    assert width[1] > 1.05 * width[0]


def test_a_group_of_too_few_clusters_is_said_not_to_be_judged():
    rows, _ = wide()
    rare = np.isin(rows.cluster, [0, 1, 2])
    rung, table = groups_of(rows, {"kind": np.where(rare, "rare", "common")})
    line = table.set_index("group").loc["kind = rare"]
    assert line["verdict"].startswith("not judged")
    assert np.isnan(line["low"])
    assert rung.verdict == "stands"
    assert "not judged" in rung.claim
    assert re.search(r"\d+ clusters", rung.remedy)
    assert rung.checks.verdict == "warn"


def test_a_level_without_rows_is_said_not_to_be_judged():
    rows, _ = wide()
    _, table = groups_of(rows.take(CITY != "Bonn"), ["city"])
    line = table.set_index("group").loc["city = Bonn"]
    assert line["rows"] == 0
    assert "no rows" in line["verdict"]


@pytest.mark.filterwarnings("error")
def test_a_target_of_which_no_group_is_judged_is_left_out_of_the_claim():
    # forecasts of b set clusters apart, three to a fifth: too few; those of a do not
    rng = np.random.default_rng(1)
    cluster = np.repeat(np.arange(15), 40)
    forecast = np.column_stack([rng.random(600), cluster])
    rows = error_rows(forecast + rng.standard_normal((600, 2)), forecast, cluster, names=("a", "b"))
    rung, table = groups_of(rows, ["forecast"], SCHEMA)
    judged = table["verdict"].str.startswith("within")
    assert_allclose(judged, table["target"] == "a")
    assert rung.verdict == "stands"
    assert "nan" not in rung.claim
    assert rung.claim.endswith("for a; not judged: 5 more; nothing is said of b.")
    assert np.isfinite(rung.sizes).tolist() == [True, False]
    # a bound of 0 would be a claim
    assert np.isfinite(rung.details.largest_bound).tolist() == [True, False]
    assert rung.details.largest_bound[0] == np.nanmax(rung.details.bound)


def test_no_group_with_clusters_enough_fails():
    rung = groups_rung(world(3, 100), Ask(0.95, 0, ["s"], SCHEMA))
    assert rung.verdict == "fails"
    assert re.search(r"\d+ clusters", rung.remedy)
    assert np.isnan(rung.size)


@pytest.mark.parametrize(
    ("groups", "error", "says"),
    [
        (["town"], DataError, "town"),
        ("city", SettingError, "list of names"),
        ([], SettingError, "no group"),
        (["city", "city"], SettingError, "twice"),
        ({"age": 1}, SettingError, "2 to 100"),
        ({"age": [60.0, 40.0]}, SettingError, "rising edges"),
        ({"age": [40.0, 1000.0]}, DataError, "no held-out row"),
        ({"age": "many"}, SettingError, "choice"),
        ({"city": 3}, SettingError, "categorical"),
        ({"kind": ["a", "b"]}, DataError, "at least 1200"),
        ({"kind": {"a": CITY == "Bonn", "b": CITY != "Rome"}}, DataError, "overlap"),
        ({"kind": {"a": CITY == "Bonn", "b": CITY == "Oslo"}}, DataError, "empty"),
        ({"kind": {"a": np.arange(1200)}}, DataError, "True or False"),
        ({"kind": np.full(1200, None)}, DataError, "missing"),
        ({"age": [[1], [2, 3]]}, SettingError, "rising edges"),
        ({"kind": [[1], [2, 3]]}, DataError, "no S column 'kind'"),
        ({"kind": {"a": [[1], [2, 3]]}}, DataError, "True or False"),
        ({"kind": np.array([{}, *["a"] * 1199])}, DataError, "text or numbers"),
    ],
)
def test_bad_groups_are_refused(groups, error, says):
    with pytest.raises(error, match=says):
        groups_of(wide()[0], groups)


def test_levels_are_refused():
    with pytest.raises(SettingError, match="level"):
        groups_rung(world(30, 10), Ask(1.0, 0, ["s"], SCHEMA))


def test_ten_thousand_rows_are_quick_and_a_million_bearable():
    labels = stats.norm.rvs(size=10**6, random_state=0) > 0
    for clusters, most in ((200, 0.6), (20_000, 8.0)):
        rows = world(clusters, 50)
        start = time.process_time()
        groups = {"s": None, "forecast": None, "time": None, "kind": labels[: len(rows.cluster)]}
        groups_rung(rows, Ask(0.95, 0, groups, SCHEMA))
        assert time.process_time() - start < most


def test_a_missing_label_in_a_list_of_text_makes_no_group():
    rows = world(20, 10)
    labels = [float("nan"), "a"] * 100
    found = groups_rung(rows, Ask(0.95, 0, {"kind": labels}, SCHEMA, 200)).details
    assert found.group == ("kind = a",)
    assert found.rows.tolist() == [100]


def test_an_empty_mask_is_told_what_to_do():
    masks = {"x": np.ones(200, bool), "y": np.zeros(200, bool)}
    with pytest.raises(DataError, match=r"'y' of 'kind' is empty.* Leave it out"):
        groups_rung(world(20, 10), Ask(0.95, 0, {"kind": masks}, SCHEMA, 200))
