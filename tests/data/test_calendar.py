"""The calendar of an archive: when units started, and which rows share a date."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal

from pulse_pyro._core.errors import DataError
from pulse_pyro._core.packed import pack_value, unpack_value
from pulse_pyro.base import Column, Schema
from pulse_pyro.data.history import History

ROLES = {"unit": "who", "time": "when", "observed": "s", "missing": "w"}


def archive(times, **more):
    """Units named in the order given, with the times of their rows."""
    who = [name for name, each in times.items() for _ in each]
    when = [each for values in times.values() for each in values]
    rows = np.arange(len(who), dtype=float)
    frame = pd.DataFrame({"who": who, "when": when, "s": rows, "w": -rows})
    return History.from_frame(frame.sample(frac=1, random_state=0), **ROLES, **more)


DAYS = {
    "ann": pd.to_datetime(["2024-03-04", "2024-03-06", "2024-03-10"]),
    "bob": pd.to_datetime(["2024-03-02", "2024-03-04"]),
    "cem": pd.to_datetime(["2024-03-08", "2024-03-10", "2024-03-12"]),
}


def test_dates_count_steps_since_the_first_time_of_the_archive():
    history = archive(DAYS)
    assert history.step_days == 2.0
    assert_array_equal(history.start, [1, 0, 3])
    assert_array_equal(history.dates, [1, 2, 4, 0, 1, 3, 4, 5])
    assert_array_equal(history.step, [0, 1, 3, 0, 1, 0, 1, 2])


@pytest.mark.parametrize("resolution", ["s", "ms", "us", "ns"])
def test_the_length_of_a_step_does_not_hang_on_the_resolution_of_dates(resolution):
    times = pd.to_datetime(["2024-03-04 06:00", "2024-03-04 12:00"]).as_unit(resolution)
    assert archive({"ann": times}).step_days == 0.25


def test_a_time_zone_does_not_change_the_calendar():
    zoned = {name: each.tz_localize("Europe/Berlin") for name, each in DAYS.items()}
    one, two = archive(DAYS), archive(zoned)
    assert_array_equal(one.dates, two.dates)
    assert two.step_days == 2.0


def test_numbers_are_steps_without_a_length_in_days():
    history = archive({"ann": [10, 20], "bob": [40, 60, 70]})
    assert_array_equal(history.dates, [0, 1, 3, 5, 6])
    assert history.step_days == 0.0


def test_units_between_two_steps_are_rounded_down():
    history = archive({"ann": [0, 10], "bob": [17, 27]})
    assert_array_equal(history.dates, [0, 1, 1, 2])


def test_units_of_one_row_take_the_step_between_them():
    history = archive({"ann": [4], "bob": [0], "cem": [12]})
    assert_array_equal(history.dates, [1, 0, 3])


def test_parts_keep_the_calendar_they_share():
    history = archive(DAYS)
    assert_array_equal(history.take([2, 0]).dates, [3, 4, 5, 1, 2, 4])
    assert_array_equal(history.where(np.arange(8) % 2 == 1).dates, [2, 0, 3, 5])
    fit, held_out = history.split(0.5, seed=0)
    assert len(set(fit.units) & set(held_out.units)) == 0
    both = dict(zip(history.units, history.start, strict=True))
    for part in (fit, held_out):
        assert {name: int(k) for name, k in zip(part.units, part.start, strict=True)} == {
            name: both[name] for name in part.units
        }
        assert part.step_days == 2.0


def test_a_cluster_of_time_keeps_it_too():
    history = archive(DAYS, cluster=("week",))
    late = history.take_clusters([1])
    assert_array_equal(late.dates, history.dates[history.cluster == 1])


def test_rectangles_have_no_calendar_and_their_parts_neither():
    history = History.from_arrays(np.zeros((3, 2, 1)), np.zeros((3, 2, 1)))
    assert history.dates is None
    assert history.take([0, 2]).dates is None
    with pytest.raises(DataError, match="calendar of this archive is not known"):
        history.to_frame(calendar=True)


def test_the_calendar_is_no_part_of_the_fingerprint():
    shifted = {name: each + pd.Timedelta(days=4 * (name == "cem")) for name, each in DAYS.items()}
    one, two = archive(DAYS), archive(shifted)
    assert one.id == two.id
    assert one.dates.tolist() != two.dates.tolist()


def test_a_table_with_the_calendar_makes_the_same_archive():
    history = archive(DAYS)
    roles = {"unit": "unit", "time": "time", "observed": "s", "missing": "w"}
    again = History.from_frame(history.to_frame(calendar=True), **roles)
    assert_array_equal(again.dates, history.dates)
    assert again.id == history.id
    assert_array_equal(history.to_frame()["time"], history.step)


def test_a_saved_archive_has_its_calendar():
    history = archive(DAYS)
    classes = (History, Schema, Column)
    again = unpack_value(pack_value(history, classes), History, classes)
    assert_array_equal(again.dates, history.dates)
    assert again.step_days == history.step_days
    packed = pack_value(history, classes)
    for name in ("start", "step_days"):  # as of an archive saved before there was one
        del packed.manifest["value"]["fields"][name]
    assert unpack_value(packed, History, classes).dates is None


@pytest.mark.parametrize(
    ("change", "message"),
    [({"start": [0]}, "History.start must have shape"), ({"step_days": -1.0}, "length in days")],
)
def test_a_calendar_that_fits_not_is_refused(change, message):
    rows = {"s": np.zeros((2, 1)), "w": np.zeros((2, 1)), "offsets": [0, 1, 2], "step": [0, 0]}
    schema = {"units": ("a", "b"), "schema": Schema.of(["s"], ["w"])}
    with pytest.raises(DataError, match=message):
        History(**rows, **schema, **change)
