import numpy as np
import pandas as pd
import pytest

from pulse_pyro._core import errors
from pulse_pyro._core.errors import DataError, PulseError, SettingError, nearest
from pulse_pyro.base import Schema
from pulse_pyro.data.history import History
from pulse_pyro.data.summary import Identity, Lags
from pulse_pyro.data.tables import column_names

COLUMNS = {
    "who": ["a", "a", "a", "b", "b"],
    "day": [0, 1, 2, 0, 1],
    "heart_rate": [60.0, 61.0, 62.0, 70.0, 71.0],
    "mood": [1.0, 2.0, 3.0, 4.0, 5.0],
}
ROLES = {"unit": "who", "time": "day", "observed": ["heart_rate"], "missing": ["mood"]}


def build(change=None, **roles):
    return History.from_frame(pd.DataFrame(COLUMNS | (change or {})), **(ROLES | roles))


@pytest.mark.parametrize(
    ("roles", "message"),
    [
        ({"observed": ["heart_rte"]}, "no column 'heart_rte'; did you mean 'heart_rate'"),
        ({"missing": ["Mood"]}, "no column 'Mood'; did you mean 'mood'"),
        ({"unit": "zzz"}, "no column 'zzz'; known: 'who', 'day', 'heart_rate', 'mood'"),
        ({"time": "dya"}, "no column 'dya'; did you mean 'day'"),
        ({"observed": []}, "observed is empty"),
        ({"missing": []}, "missing is empty.*nothing to impute"),
        ({"missing": ["heart_rate"]}, "column 'heart_rate' is asked for in two roles"),
        ({"observed": ["day"]}, "column 'day' is asked for in two roles"),
        ({"observed": ["heart_rate", "heart_rate"]}, "column 'heart_rate' .* two roles"),
        ({"unit": "day"}, "column 'day' is asked for in two roles"),
    ],
)
def test_a_wrong_choice_of_columns_is_named(roles, message):
    with pytest.raises(DataError, match=message):
        build(**roles)


INF, NAN = float("inf"), float("nan")
LEVELS = ["low", "high", "low", "low", "high"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"day": [0, 1, 2, 7, 7]}, "who='b' has two rows at day=.*7"),
        ({"heart_rate": [60, "high", 62, 70, 71]}, "column 'heart_rate' must be numeric.*'high'"),
        ({"mood": pd.date_range("2024", periods=5)}, "column 'mood' must be numeric"),
        ({"mood": [1j] * 5}, "column 'mood' must be numeric"),
        ({"heart_rate": [60, 61, -INF, 70, 71]}, "column 'heart_rate' is infinite at row 2"),
        ({"mood": [INF, 1, 2, 3, 4]}, "column 'mood' is infinite at row 0"),
        ({"mood": [NAN] * 5}, "column 'mood' holds only NaN"),
        ({"heart_rate": pd.array([None] * 5, dtype="Int64")}, "'heart_rate' holds only NaN"),
        ({"day": [0, 0.5, 1, 0, 1]}, "time column 'day' holds fractions"),
        ({"day": [0, 1, INF, 0, 1]}, "time column 'day'"),
        ({"day": [0, 1, 1e300, 0, 1]}, "time column 'day' holds times beyond"),
        ({"day": [0, 1, NAN, 0, 1]}, "time column 'day' has a missing value"),
        ({"day": pd.to_datetime(["2024-01-01"] * 4 + [None])}, "time column 'day' has a missing"),
        ({"day": list("01201")}, "time column 'day' must hold integers or dates"),
        ({"day": [True, False, True, False, True]}, "time column 'day' must hold integers"),
        ({"day": [0, 1, 10_000_001, 0, 1]}, "day runs over 10000004 steps for 5 rows"),
        ({"who": ["a", "a", "a", "b", None]}, "unit column 'who' has a missing value"),
        ({"who": [1.0, 1, 1, 2, NAN]}, "unit column 'who' has a missing value"),
        ({"who": [1, 1, 1, "1", "1"]}, "two units of 'who' read alike"),
    ],
)
def test_a_bad_value_is_refused_with_its_place(change, message):
    with pytest.raises(DataError, match=message):
        build(change)


def test_irregular_dates_are_refused_before_they_fill_the_memory():
    seconds = np.random.default_rng(0).integers(1, 10**8, 5).cumsum()
    with pytest.raises(DataError, match=r"day runs over.*number each unit's decision points"):
        build({"day": pd.Timestamp("2024-01-01") + pd.to_timedelta(seconds, unit="s")})


@pytest.mark.parametrize("numbers", [pd.Categorical([1, 2, 3, 4, 5]), np.array([1] * 5, object)])
def test_numbers_of_no_numeric_dtype_are_read_as_numbers(numbers):
    plain = build({"mood": np.array(numbers, dtype=float)})
    np.testing.assert_array_equal(build({"mood": numbers}).w, plain.w)


def test_an_empty_frame_is_refused():
    with pytest.raises(DataError, match="no rows"):
        History.from_frame(pd.DataFrame(COLUMNS).iloc[:0], **ROLES)
    with pytest.raises(DataError, match="no column 'who'; none is known"):
        History.from_frame(pd.DataFrame(), **ROLES)


def test_a_column_that_stands_twice_is_refused():
    frame = pd.DataFrame(COLUMNS)
    with pytest.raises(DataError, match="'mood' is in the frame twice"):
        History.from_frame(pd.concat([frame, frame[["mood"]]], axis=1), **ROLES)


def test_something_that_is_no_frame_is_refused():
    with pytest.raises(DataError, match="DataFrame was expected, but got dict"):
        History.from_frame(COLUMNS, **ROLES)


def test_a_refused_frame_is_left_as_it_was():
    frame = pd.DataFrame(COLUMNS | {"day": [0, 1, 1, 0, 1]})
    before = frame.copy()
    with pytest.raises(DataError):
        History.from_frame(frame, **ROLES)
    pd.testing.assert_frame_equal(frame, before)


def test_fewer_rows_than_lags_are_refused_with_both_numbers():
    message = r"needs 4 consecutive rows, and no unit has more than 3 without a gap"
    with pytest.raises(DataError, match=message):
        build().rows(Lags(4))
    assert len(build().rows(Lags(3)).x) == 1


def test_an_archive_without_a_complete_row_is_refused():
    holes = {"heart_rate": [60, NAN, 62, NAN, 71], "mood": [NAN, 2, NAN, 4, NAN]}
    with pytest.raises(DataError, match="No complete row is left"):
        build(holes).rows(Identity())


def test_a_single_unit_cannot_be_split():
    with pytest.raises(DataError, match="at least 2 units, but this archive has 1"):
        build({"who": ["a"] * 5, "day": range(5)}).split(seed=0)


@pytest.mark.parametrize("share", [0, 1, 1.5, -0.1, NAN])
def test_a_share_outside_zero_and_one_is_a_bad_setting(share):
    with pytest.raises(SettingError, match="fit must lie between 0 and 1"):
        build().split(share, seed=0)


def test_a_split_needs_a_proper_seed():
    with pytest.raises(SettingError, match="seed must be an integer"):
        build().split(seed=0.5)


FLAT = {
    "s": np.zeros((6, 1)),
    "w": np.zeros((6, 2)),
    "offsets": np.array([0, 3, 6]),
    "step": np.array([0, 1, 2, 0, 1, 2]),
    "units": ("a", "b"),
    "schema": Schema.of(["s"], ["v", "w"]),
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"s": np.zeros(6)}, "History.s must have shape"),
        ({"s": np.zeros((8, 1))}, "History.s must have shape"),
        ({"w": np.zeros((6, 1))}, "History.w must have shape"),
        ({"step": np.arange(3)}, "History.step must have shape"),
        ({"units": ("a", "b", "c")}, "History.offsets must have shape"),
        ({"s": np.zeros((6, 0)), "schema": Schema.of([], ["v", "w"])}, "one S column"),
        ({"w": np.zeros((6, 0)), "schema": Schema.of(["s"], [])}, "one W column"),
        ({"s": np.full((6, 1), INF)}, "infinite value"),
        ({"units": ("a", "a")}, "'a'"),
        ({"offsets": np.array([0, 6, 6])}, "every unit has a row"),
        ({"step": np.array([0, 1, 1, 0, 1, 2])}, "must rise within each unit"),
        ({"step": np.array([0, 1, 2, -1, 1, 2])}, "must rise within each unit"),
        ({"cluster": np.full(6, 2), "clusters": ("x", "y")}, "a number from 0 to 1"),
        ({"cluster": np.zeros(5), "clusters": ("x",)}, "for each of 6 rows"),
        ({"cluster": np.zeros(6), "clusters": ("x", "x")}, "'x' is there twice"),
    ],
)
def test_arrays_that_do_not_fit_together_are_refused(change, message):
    History(**FLAT)
    with pytest.raises(DataError, match=message):
        History(**(FLAT | change))


GRID = {
    "s": np.zeros((2, 3, 1)),
    "w": np.zeros((2, 3, 2)),
    "seen": np.ones((2, 3), dtype=bool),
    "units": ("a", "b"),
    "s_names": ("s",),
    "w_names": ("v", "w"),
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"s": np.zeros((2, 3))}, r"s must be \(unit, time, s_dim\)"),
        ({"s": np.zeros((2, 4, 1))}, r"but got \(2, 4, 1\) and \(2, 3, 2\)"),
        ({"w": np.zeros((2, 3, 1))}, "History.w must have shape"),
        ({"seen": np.ones(3)}, r"seen must be \(2, 3\), but got \(3,\)"),
        ({"seen": np.array([[1, 1, 1], [0, 0, 0]])}, "unit 'b' has no row"),
        ({"units": ("a", "b", "c")}, "History.offsets must have shape"),
        ({"s": np.zeros((2, 3, 0)), "s_names": ()}, "one S column"),
        ({"s": np.full((2, 3, 1), INF)}, "infinite value"),
        ({"units": ("a", "a")}, "'a'"),
    ],
)
def test_rectangles_that_do_not_fit_together_are_refused(change, message):
    History.from_arrays(**GRID)
    with pytest.raises(DataError, match=message):
        History.from_arrays(**(GRID | change))


def test_every_error_is_of_one_family():
    own = [v for v in vars(errors).values() if getattr(v, "__module__", "") == errors.__name__]
    kinds = [v for v in own if isinstance(v, type)]
    assert {DataError, SettingError} < set(kinds)
    assert all(issubclass(kind, PulseError) for kind in kinds)


def test_a_long_list_of_names_is_cut():
    assert nearest("zzz", map(str, range(30))).endswith("'11' and 18 more.")


def test_column_names_of_both_kinds_of_file(tmp_path):
    frame = pd.DataFrame({"u": [1], "s": [0.5]})
    frame.to_csv(tmp_path / "a.csv", index=False)
    frame.to_parquet(tmp_path / "a.parquet")
    assert column_names(tmp_path / "a.csv") == column_names(tmp_path / "a.parquet") == ["u", "s"]
    (tmp_path / "b.parquet").write_text("no")
    with pytest.raises(DataError, match="Parquet"):
        column_names(tmp_path / "b.parquet")


def test_numbers_as_text_are_said_to_be_that():
    with pytest.raises(DataError, match="at row 0, a number as text"):
        build({"mood": ["1.5", "2.5", "3.5", "4.5", "5.5"]})
