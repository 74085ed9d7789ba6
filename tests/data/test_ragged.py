"""Archives of units of any length: nothing is padded, and parts keep rows, steps and clusters."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from pulse_pyro._core.errors import DataError
from pulse_pyro.data.history import History
from pulse_pyro.data.summary import Identity, Lags
from pulse_pyro.laws.linear import linear_lags

ROLES = {"unit": "who", "time": "day", "observed": "s", "missing": "w"}


def ragged(lengths, gaps=0.0, seed=0):
    """Units of these many steps, some of which have no row; s numbers the rows, w is -s."""
    rng = np.random.default_rng(seed)
    steps = []
    for length in lengths:
        keep = rng.random(length) >= gaps
        keep[[0, -1]] = True
        steps.append(np.flatnonzero(keep))
    count = [len(each) for each in steps]
    rows = np.arange(sum(count), dtype=float)
    frame = pd.DataFrame(
        {
            "who": np.repeat([f"u{i:04d}" for i in range(len(lengths))], count),
            "day": np.concatenate(steps),
            "s": rows,
            "w": -rows,
        }
    )
    return History.from_frame(frame, **ROLES)


SPREADS = [[1], [5, 5, 5], [3, 4, 5], [1, 2, 4, 8, 300], [290, *[5] * 40], [7, 1, 90, 2, 2, 45]]


@pytest.mark.parametrize("gaps", [0.0, 0.4])
@pytest.mark.parametrize("lengths", SPREADS, ids=lambda lengths: f"{len(lengths)} units")
def test_blocks_hold_every_row_once_and_pad_less_than_twice(lengths, gaps):
    history, rows, units = ragged(lengths, gaps), [], []
    for block in history.blocks():
        assert block.s.shape == (*block.row.shape, 1)
        assert block.w.shape == (*block.row.shape, 1)
        span = history.step[history.offsets[block.unit + 1] - 1] + 1
        assert block.row.shape == (len(block.unit), span.max())
        assert (block.row.shape[1] < 2 * span).all()
        assert_array_equal(block.s[block.seen], history.s[block.row[block.seen]])
        assert_array_equal(block.w[block.seen], history.w[block.row[block.seen]])
        assert np.isnan(block.s[~block.seen]).all()
        assert np.isnan(block.w[~block.seen]).all()
        place, step = np.nonzero(block.seen)
        assert_array_equal(history.unit_of[block.row[block.seen]], block.unit[place])
        assert_array_equal(history.step[block.row[block.seen]], step)
        rows.append(block.row[block.seen])
        units.append(block.unit)
    assert_array_equal(np.sort(np.concatenate(rows)), np.arange(len(history.s)))
    assert_array_equal(np.sort(np.concatenate(units)), np.arange(len(lengths)))


@settings(deadline=None, derandomize=True)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=12), st.floats(0, 0.8), st.integers(0, 99))
def test_inputs_by_blocks_are_those_of_the_rectangle(lengths, gaps, seed):
    history = ragged(lengths, gaps, seed)
    for summary in (Identity(), Lags(3), Lags(2, start=1)):
        whole = history.flat(summary(history.grid.s))
        assert_array_equal(history.inputs(summary), whole)
        alone = [history.unit(i).inputs(summary) for i in range(len(lengths))]
        assert_array_equal(np.concatenate(alone), whole)


def test_one_long_unit_among_many_short_ones_costs_its_own_rows():
    long, short, each = 20_000, 2_000, 5
    rng = np.random.default_rng(0)
    unit = np.r_[np.zeros(long, int), np.repeat(np.arange(1, short + 1), each)]
    time = np.r_[np.arange(long), np.tile(np.arange(each), short)]
    s = rng.standard_normal(len(unit))
    w = 1.0 + 2.0 * s + 0.1 * rng.standard_normal(len(unit))
    frame = pd.DataFrame({"who": unit, "day": time, "s": s, "w": w})
    history = History.from_frame(frame.sample(frac=1, random_state=0), **ROLES)
    assert len(history.s) == long + short * each
    assert history.lengths.max() == long
    assert sum(block.row.size for block in history.blocks()) == len(history.s)
    law = linear_lags(2).fit(history, seed=0)
    assert law.record.rows == len(history.s) - (short + 1)
    mean = law(history).mean()
    assert mean.shape == (len(history.s), 1)
    assert_allclose(mean, 1.0 + 2.0 * history.s, atol=0.05)
    assert_array_equal(mean[history.rows_of(np.array([0]))], law(history.unit(0)).mean())


def test_the_rectangle_of_one_long_unit_among_many_is_refused():
    history = ragged([20_000] + [5] * 2_600)
    with pytest.raises(DataError, match=r"2601 units padded to 20000 steps.*history\.blocks"):
        _ = history.grid


def test_a_gap_is_a_step_without_a_row():
    frame = pd.DataFrame({"who": "a", "day": [3, 4, 7, 8], "s": [1.0, 2, 3, 4], "w": 0.0})
    history = History.from_frame(frame, **ROLES)
    assert history.step.tolist() == [0, 1, 4, 5]
    assert history.grid.seen.tolist() == [[True, True, False, False, True, True]]
    assert_array_equal(history.inputs(Lags(2))[:, 1], [np.nan, 1, np.nan, 3])
    assert history.rows(Lags(2)).at.tolist() == [1, 3]


def test_values_go_onto_the_rectangle_and_back():
    history = ragged([4, 9, 2], 0.3)
    on = history.on_grid(history.s)
    assert_array_equal(on, history.grid.s)
    assert_array_equal(history.flat(on), history.s)
    flags = history.on_grid(np.ones(len(history.s), bool), empty=False)
    assert_array_equal(flags, history.grid.seen)


def test_sums_over_units_are_those_of_their_rows():
    history = ragged([4, 90, 2, 7], 0.3)
    values = np.random.default_rng(0).standard_normal(len(history.s))
    wanted = [values[history.unit_of == i].sum() for i in range(4)]
    assert_allclose(history.unit_sums(values), wanted, rtol=1e-12)


def dates(count):
    return pd.Timestamp("2024-01-01") + pd.to_timedelta(np.arange(count), unit="D")


def cities(cluster="city", **change):
    """Six units of 5 to 10 days in three cities."""
    count = np.arange(5, 11)
    frame = pd.DataFrame(
        {
            "who": np.repeat(list("abcdef"), count),
            "day": np.concatenate([dates(n) for n in count]),
            "city": np.repeat(["Rome", "Bonn", "Rome", "Oslo", "Bonn", "Oslo"], count),
            "s": np.arange(count.sum(), dtype=float),
            "w": -np.arange(count.sum(), dtype=float),
        }
    )
    return History.from_frame(frame.assign(**change), **ROLES, cluster=cluster)


def in_order(history):
    """Of each row: its unit, its step, its cluster, what it holds."""
    cluster = np.array(history.clusters)[history.cluster]
    unit = np.array(history.units)[history.unit_of]
    return list(zip(unit, history.step, cluster, history.s[:, 0], history.w[:, 0], strict=True))


def names(history):
    return set(in_order(history))


def test_units_taken_keep_rows_steps_and_clusters():
    history = cities()
    part = history.take([4, 1])
    assert part.units == ("e", "b")
    assert part.clusters == ("Bonn",)
    assert part.lengths.tolist() == [9, 6]
    assert names(part) == {row for row in names(history) if row[0] in "eb"}
    assert_array_equal(part.s[:9], history.unit(4).s)
    assert history.take(np.arange(6) == 2).units == ("c",)
    assert history.take([-1]).units == ("f",)
    with pytest.raises(DataError, match="positions run from 0 to 5, but got 6"):
        history.take([0, 6])
    with pytest.raises(DataError, match="but got -7"):
        history.take([-7])


def test_rows_chosen_keep_steps_and_clusters():
    history = cities()
    keep = (history.step % 2 == 1) & (history.unit_of != 3)
    part = history.where(keep)
    assert part.units == tuple("abcef")
    assert set(part.step[part.unit_of == 0]) == {1, 3}
    assert set(part.clusters) == {"Rome", "Bonn", "Oslo"}
    assert names(part) == {row for row, kept in zip(in_order(history), keep, strict=True) if kept}
    assert np.isnan(part.inputs(Lags(2))[:, 1]).all()  # what was left out is a gap
    with pytest.raises(DataError, match=r"for each of 45 rows is needed, but got \(3,\)"):
        history.where([True, False, True])


@pytest.mark.parametrize("seed", range(8))
def test_a_split_by_a_column_keeps_clusters_whole(seed):
    history = cities()
    assert history.clusters == ("Bonn", "Oslo", "Rome")
    assert "3 clusters" in repr(history)
    fit, held_out = history.split(0.6, seed=seed)
    assert set(fit.clusters) | set(held_out.clusters) == {"Bonn", "Oslo", "Rome"}
    assert (len(fit.clusters), len(held_out.clusters)) == (2, 1)
    assert not set(fit.units) & set(held_out.units)
    assert names(fit) | names(held_out) == names(history)
    assert linear_lags(1).fit(fit, seed=0).units == fit.clusters


@pytest.mark.parametrize(
    ("period", "first", "count"),
    [("week", "2024-01-01/2024-01-07", 6), ("month", "2024-01", 2), ("day", "2024-01-01", 40)],
)
def test_a_split_by_time_cuts_units_and_lags_do_not_reach_across(period, first, count):
    frame = pd.DataFrame(
        {
            "who": np.repeat(["a", "b"], 40),
            "day": [*dates(40), *dates(40)],
            "s": np.arange(80.0),
            "w": 0.0,
        }
    )
    history = History.from_frame(frame, **ROLES, cluster=(period,))
    assert (history.clusters[0], len(history.clusters)) == (first, count)
    fit, held_out = history.split(seed=0)
    assert fit.units == held_out.units == ("a", "b")
    assert not set(fit.clusters) & set(held_out.clusters)
    assert names(fit) | names(held_out) == names(history)
    for part in (fit, held_out):
        x = part.inputs(Lags(2))
        before = np.r_[-9, part.step[:-1]] == part.step - 1
        before[part.offsets[:-1]] = False
        assert_array_equal(np.isfinite(x[:, 1]), before)
        assert_array_equal(x[before, 1], x[before, 0] - 1)


def test_dates_with_a_time_zone_have_periods_of_their_own_clock():
    zone = dates(14).tz_localize("Asia/Tokyo")
    frame = pd.DataFrame({"who": "a", "day": zone, "s": 0.0, "w": 0.0})
    history = History.from_frame(frame, **ROLES, cluster=("week",))
    assert history.clusters == ("2024-01-01/2024-01-07", "2024-01-08/2024-01-14")


BAD = {
    "unit 'a' has rows in several clusters of 'city'": {"city": ["Rome", *["Bonn"] * 44]},
    "the cluster column 'city' has a missing value": {"city": [None, *["Bonn"] * 44]},
}


@pytest.mark.parametrize("says", BAD)
def test_a_cluster_that_is_none_is_refused(says):
    with pytest.raises(DataError, match=says):
        cities(**BAD[says])


def test_a_cluster_that_is_not_there_is_refused():
    with pytest.raises(DataError, match="no column 'town'"):
        cities("town")
    with pytest.raises(DataError, match=r"one of day, week, .*but got \('fortnight',\)"):
        cities(("fortnight",))
    with pytest.raises(DataError, match=r"cluster=\('week',\) needs dates, but 'day' is int64"):
        cities(("week",), day=np.arange(45))


def test_one_cluster_cannot_be_split():
    with pytest.raises(DataError, match="at least 2 clusters, but this archive has 1"):
        cities(city="Rome").split(seed=0)
