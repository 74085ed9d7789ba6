from dataclasses import FrozenInstanceError, replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulse_pyro._core.errors import DataError
from pulse_pyro.data.history import History
from pulse_pyro.data.summary import Identity, Lags, Window
from tests.helpers import assert_mean

NAN = np.nan
FRAME = pd.DataFrame(
    {
        "who": ["a", "a", "a", "a", "b", "b", "c"],
        "day": [0, 1, 3, 4, 10, 11, 5],
        "hr": [60.0, 61, 63, 64, 70, NAN, 80],
        "steps": [0, 10, 30, 40, 100, 110, 50],
        "mood": [1.0, 2, 4, 5, NAN, 7, 8],
        "sleep": [8.0, 7, 6, 5, 4, 3, 2],
    }
)
ROLES = {"unit": "who", "time": "day", "observed": ["hr", "steps"], "missing": ["mood", "sleep"]}


def archive(frame=FRAME, **roles):
    return History.from_frame(frame, **(ROLES | roles))


def assert_same(one, two):
    assert (one.units, one.s_names, one.w_names) == (two.units, two.s_names, two.w_names)
    for name in ("s", "w", "offsets", "step"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name))


def many(units):
    grid = np.arange(units * 3.0).reshape(units, 3, 1)
    names = tuple(f"u{i}" for i in range(units))
    return History.from_arrays(grid, -grid, units=names, s_names=("s",), w_names=("w",))


def test_units_of_unequal_length_with_a_gap_fall_on_one_grid():
    history = archive()
    assert history.units == ("a", "b", "c")
    assert (history.s_names, history.w_names) == (("hr", "steps"), ("mood", "sleep"))
    expected = [[1, 1, 0, 1, 1], [1, 1, 0, 0, 0], [1, 0, 0, 0, 0]]
    np.testing.assert_array_equal(history.grid.seen, np.array(expected, dtype=bool))
    np.testing.assert_array_equal(history.grid.s[0, :, 0], [60, 61, NAN, 63, 64])
    np.testing.assert_array_equal(history.grid.s[1, :, 1], [100, 110, NAN, NAN, NAN])
    np.testing.assert_array_equal(history.grid.w[1, :, 0], [NAN, 7, NAN, NAN, NAN])
    np.testing.assert_array_equal(history.grid.w[2, :, 1], [2, NAN, NAN, NAN, NAN])
    assert len(history.s) == 7
    assert history.offsets.tolist() == [0, 4, 6, 7]
    assert history.step.tolist() == [0, 1, 3, 4, 0, 1, 0]


def test_lags_that_reach_into_a_gap_are_nan():
    steps = archive(observed=["steps"]).grid.s
    expected = [[0, NAN], [10, 0], [NAN, 10], [30, NAN], [40, 30]]
    np.testing.assert_array_equal(Lags(2)(steps)[0], expected)


ONES = np.ones((1, 3, 1))
HOLE = History.from_arrays(
    ONES, ONES, seen=[[True, False, True]], units=("a",), s_names=("s",), w_names=("w",)
)


def test_rows_never_hold_a_row_that_does_not_exist():
    assert HOLE.rows(Identity()).time.tolist() == [0, 2]


def test_lags_never_read_a_row_that_does_not_exist():
    assert np.isnan(Lags(2)(HOLE.grid.s)[0, 2, 1])


def test_rows_are_the_complete_cases_and_the_rest_is_counted():
    rows = archive().rows(Lags(2))
    assert rows.unit.tolist() == [0, 0]
    assert rows.time.tolist() == [1, 4]
    assert rows.x.tolist() == [[61, 10, 60, 0], [64, 40, 63, 30]]
    assert rows.w.tolist() == [[2, 7], [5, 5]]
    assert rows.dropped == 5


def test_a_row_without_w_is_left_out():
    rows = archive(observed=["steps"]).rows(Identity())
    assert rows.x.ravel().tolist() == [0, 10, 30, 40, 110, 50]
    assert rows.dropped == 1


def test_rows_of_a_complete_archive_are_all_kept():
    rows = many(4).rows(Identity())
    assert rows.x.ravel().tolist() == list(range(12))
    assert rows.unit.tolist() == np.repeat(range(4), 3).tolist()
    assert (rows.time.tolist(), rows.dropped) == ([0, 1, 2] * 4, 0)


@settings(deadline=None, derandomize=True)
@given(st.permutations(range(len(FRAME))))
def test_shuffled_rows_give_the_same_history(order):
    shuffled = archive(FRAME.iloc[order])
    assert_same(shuffled, archive())
    assert shuffled.split(seed=1)[0].units == archive().split(seed=1)[0].units


@pytest.mark.parametrize("unit", ["s", "us", "ns"])
@pytest.mark.parametrize("step", ["1D", "12h", "90s"])
def test_dates_are_counted_in_their_common_step(step, unit):
    dates = pd.Timestamp("2024-02-27") + FRAME["day"] * pd.Timedelta(step)
    assert_same(archive(FRAME.assign(day=dates.astype(f"datetime64[{unit}]"))), archive())


def test_dates_with_a_time_zone_are_read():
    instants = pd.Timestamp("2024-02-27", tz="Europe/Paris") + FRAME["day"] * pd.Timedelta("1D")
    assert_same(archive(FRAME.assign(day=instants)), archive())


def test_a_common_step_above_one_is_divided_out():
    assert_same(archive(FRAME.assign(day=FRAME["day"] * 5 - 1000)), archive())
    assert_same(archive(FRAME.assign(day=FRAME["day"] * 2.0)), archive())


@pytest.mark.parametrize(
    "kinds",
    [
        {"who": "string", "day": "Int64", "hr": "Float64", "steps": "Int64", "mood": "Int64"},
        {"who": "category", "day": "uint8", "hr": "float32", "steps": "int16", "mood": "Float32"},
    ],
)
def test_nullable_and_narrow_dtypes_read_the_same(kinds):
    history = archive(FRAME.astype(kinds))
    assert_same(history, archive())
    assert history.grid.s.dtype == history.grid.w.dtype == np.float64


def test_a_flag_with_missing_values_becomes_zero_one_nan():
    flags = pd.array([True, False, None, True, False, None, True], dtype="boolean")
    w = archive(FRAME.assign(mood=flags), missing="mood").grid.w
    np.testing.assert_array_equal(w[0, :, 0], [1, 0, NAN, NAN, 1])


def test_whole_number_units_are_labelled_as_text():
    codes = FRAME["who"].map({"a": 10, "b": 20, "c": 30})
    assert archive(FRAME.assign(who=codes)).units == ("10", "20", "30")


def test_a_million_rows_work():
    unit, time = np.divmod(np.random.default_rng(0).permutation(10**6), 1000)
    value = 1000.0 * unit + time
    frame = pd.DataFrame({"u": unit, "t": time, "s": value, "w": -value})
    history = History.from_frame(frame, unit="u", time="t", observed="s", missing="w")
    order = np.argsort(np.arange(1000).astype(str))
    np.testing.assert_array_equal(history.grid.s[..., 0], np.arange(1e6).reshape(1000, 1000)[order])
    assert history.rows(Lags(2)).dropped == 1000


@settings(deadline=None, derandomize=True)
@given(st.integers(2, 30), st.floats(0.01, 0.99), st.integers(0, 1000))
def test_a_split_is_disjoint_complete_and_seeded(units, share, seed):
    history = many(units)
    fit, held_out = history.split(share, seed=seed)
    assert sorted(fit.units + held_out.units) == sorted(history.units)
    assert 1 <= len(fit.units) < units
    assert abs(len(fit.units) - share * units) <= 1
    for part in (fit, held_out):
        for name, s, w in zip(part.units, part.grid.s, part.grid.w, strict=True):
            np.testing.assert_array_equal(s, history.grid.s[int(name[1:])])
            np.testing.assert_array_equal(w, -s)
    assert_same(history.split(share, seed=seed)[1], held_out)


def test_every_unit_is_equally_likely_to_be_held_out():
    history = many(6)
    held_out = [history.split(seed=seed)[1].units for seed in range(600)]
    assert_mean([[f"u{i}" in units for i in range(6)] for units in held_out], 0.5)


def test_a_history_cannot_be_changed():
    history = archive()
    for array in (history.s, history.w, history.offsets, history.step, history.cluster):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 5
    for array in history.grid:
        with pytest.raises(ValueError, match="read-only"):
            array[0, 0] = 5
    with pytest.raises(FrozenInstanceError):
        archive().units = ("b",)


def test_a_history_does_not_follow_later_changes_of_its_sources():
    frame, s = FRAME.copy(), np.ones((2, 1))
    from_frame, built = archive(frame), replace(HOLE, s=s)
    pd.testing.assert_frame_equal(frame, FRAME)
    frame["steps"], s[0, 0] = -1, 5
    assert_same(from_frame, archive())
    assert built.s[0, 0] == 1


def test_the_table_counts_existing_rows_only():
    table = archive().table
    assert table["role"].tolist() == ["seen online (S)"] * 2 + ["archive only (W)"] * 2
    assert table["present"].tolist() == pytest.approx([6 / 7, 1, 6 / 7, 1])
    assert table.loc["sleep", ["mean", "min", "max"]].tolist() == [5, 2, 8]
    assert "3 units, 7 rows (1 to 4 a unit)" in repr(archive())


def test_an_infinite_summary_is_refused():
    def log_of_mean(windows, axis):
        with np.errstate(all="ignore"):
            return np.log(np.abs(np.mean(windows, axis=axis)))

    s = np.array([[[1.0], [0.0], [2.0]]])
    history = History.from_arrays(s, ONES, units=("a",), s_names=("s",), w_names=("w",))
    with pytest.raises(DataError, match="infinite value"):
        history.rows(Window(1, log_of_mean))


@pytest.mark.parametrize(("step", "rows"), [("1h", 72), ("1D", 60)])
def test_a_change_of_the_clocks_neither_repeats_nor_skips(step, rows):
    time = pd.date_range("2024-10-26", periods=rows, freq=step, tz="Europe/Berlin")
    frame = pd.DataFrame({"u": "a", "t": time, "s": 1.0, "w": 2.0})
    history = History.from_frame(frame, unit="u", time="t", observed=["s"], missing=["w"])
    assert history.grid.seen.shape == (1, rows)
    assert history.grid.seen.all()
