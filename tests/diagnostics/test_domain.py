"""Are online contexts like the archive's? What must fail, what must stay quiet."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats

import pulse_pyro as pp
from pulse_pyro.diagnostics.domain import whitening
from tests.helpers import FALSE_ALARM, binomial_floor

REPS = 100  # a level of 0.01 that is 0.15 in truth fires in 98 of 100


def series(kind, units, time, rng):
    e, own = rng.standard_normal((units, time, 2)), rng.standard_normal((units, 1, 2))
    if kind == "smooth":
        for t in range(1, time):
            e[:, t] = 0.8 * e[:, t - 1] + 0.6 * e[:, t]
        return e
    if kind == "units differ":
        return 0.8 * e + 0.6 * own
    return np.exp(0.5 * e + 0.3 * own)  # skewed


def history(s):
    units, time = s.shape[:2]
    names = tuple(f"u{i}" for i in range(units))
    return pp.History.from_arrays(
        s, np.zeros((units, time, 1)), units=names, s_names=("a", "b"), w_names=("w",)
    )


def domain(kind, rng, units=30, time=20, lags=2):
    return pp.Domain.of(history(series(kind, units, time, rng)), lags)


def words(kind, move, streams, time, reps, seed=0):
    """Verdicts (each input at worst, jointly) of streams against archives."""
    rng = np.random.default_rng(seed)
    out = []
    for _ in range(reps):
        made = domain(kind, rng)
        found = [c.verdict for c in made.check(move(series(kind, streams, time, rng))).checks]
        out.append((pp.base.worst_verdict(found[:-1]), found[-1]))
    return np.array(out)


@pytest.mark.parametrize("kind", ["smooth", "units differ", "skewed"])
@pytest.mark.parametrize(("streams", "time"), [(1, 8), (1, 100), (10, 20)])
def test_streams_like_the_archive_are_passed(kind, streams, time):
    found = words(kind, lambda s: s, streams, time, REPS)
    for column in found.T:
        fired = np.isin(column, ["warn", "fail"]).sum()
        assert fired <= stats.binom.isf(FALSE_ALARM, REPS, 0.01)
        assert (column == "fail").sum() <= stats.binom.isf(FALSE_ALARM, REPS, 0.001)


def ragged(s, lengths):
    """NaN after each stream's, or unit's, last row."""
    return np.where(np.arange(s.shape[1])[:, None] < np.array(lengths)[:, None, None], s, np.nan)


RAGGED = {  # rows of streams, rows of units
    "one of 2, 40 of 60": ([2] + [60] * 40, [60] * 30),
    "2 to 41, units of 20": (range(2, 42), [20] * 30),
    "40 of 60, units of 15": ([60] * 40, [15] * 30),
    "20, units of 3 to 32": ([20] * 40, range(3, 33)),
}


@pytest.mark.parametrize(
    ("name", "kind"), list(zip(RAGGED, ["smooth", "skewed", "skewed", "smooth"], strict=True))
)
def test_streams_and_units_of_unequal_lengths_are_passed(name, kind):
    """A log of a mean rises with the rows averaged: like has to be set beside like."""
    lengths, rows = RAGGED[name]
    rng, found = np.random.default_rng(2), []
    for _ in range(REPS):
        s = ragged(series(kind, len(rows), max(rows), rng), rows)
        online = ragged(series(kind, len(lengths), max(lengths), rng), lengths)
        found.append(pp.Domain.of(history(s), 2).check(online).verdict)
    fired = np.isin(found, ["warn", "fail"]).sum()
    assert fired <= stats.binom.isf(FALSE_ALARM, REPS, 0.02)  # two questions, 0.01 each
    assert found.count("fail") <= stats.binom.isf(FALSE_ALARM, REPS, 0.002)


def test_one_short_stream_does_not_hide_a_shift_of_the_others_nor_a_late_one():
    rng = np.random.default_rng(3)
    made = domain("smooth", rng)
    online = ragged(series("smooth", 20, 20, rng) + 1.5, [2] + [20] * 19)
    assert made.check(online).verdict == "fail"
    late = series("smooth", 20, 100, rng)
    late[:, 50:] += 3.0  # units have 20 rows
    assert made.check(late).verdict == "fail"


SHIFTS = {
    "moved": (lambda s: s + 1.0, 0),
    "one column moved": (lambda s: s + np.array([1.0, 0.0]), 0),
    "stretched": (lambda s: 2 * s, 1),
    "turned": (lambda s: s * np.where(np.arange(s.shape[1]) % 2, 1, -1)[:, None], 1),
}


@pytest.mark.parametrize("name", SHIFTS)
def test_shifts_of_many_streams_fail(name):
    move, column = SHIFTS[name]
    found = words("smooth", move, 20, 20, 30)[:, column]
    assert (found == "fail").sum() >= binomial_floor(30, 0.9)


@pytest.mark.parametrize("kind", ["smooth", "units differ"])
def test_one_stream_far_away_fails_and_one_within_the_spread_of_units_does_not(kind):
    far = words(kind, lambda s: s + 20.0, 1, 20, 30)
    assert (far[:, 0] == "fail").sum() >= binomial_floor(30, 0.9)
    near = words(kind, lambda s: s + 0.3, 1, 20, 30)
    assert (near != "fail").all()


def test_a_narrower_stream_is_inside():
    assert (words("smooth", lambda s: 0.3 * s, 20, 20, 20) == "pass").all()


def test_each_input_has_its_check_and_its_share():
    rng = np.random.default_rng(0)
    made = domain("smooth", rng)
    online = series("smooth", 5, 20, rng)
    online[..., 1] += 50
    found = made.check(online).table
    names = ["a.lag0", "b.lag0", "a.lag1", "b.lag1", "jointly"]
    assert list(found.index) == [f"domain {name}" for name in names]
    assert found.loc["domain b.lag1", "value"] == 1.0
    assert found.loc["domain a.lag0", "verdict"] == "pass"
    x = made.summary(online)[:, 1:, 0]
    outside = ((x < made.low[0]) | (x > made.high[0])).mean()
    assert found.loc["domain a.lag0", "value"] == pytest.approx(outside)


def test_more_looks_make_every_look_more_cautious():
    """A growing stream looked at ten times stays at its level if it is said beforehand."""
    rng = np.random.default_rng(1)
    alarms = 0
    for _ in range(60):
        made, stream = domain("units differ", rng), series("units differ", 1, 20, rng)
        found = [made.check(stream[:, :t], looks=10).verdict for t in range(2, 21, 2)]
        alarms += "fail" in found or "warn" in found
    assert alarms <= stats.binom.isf(FALSE_ALARM, 60, 0.02)  # two questions, 0.01 each


def test_where_most_rows_lie_outside_it_says_so_whatever_the_test_says():
    rng = np.random.default_rng(0)
    few = domain("smooth", rng, units=4)
    found = few.check(series("smooth", 1, 20, rng) + 9).table
    assert (found["verdict"].iloc[:-1] == "warn").all()
    assert "8 are needed" in found["text"].iloc[0]
    like = few.check(few.x[: few.offsets[1], :2]).table
    assert (like["verdict"] == "info").all()


def test_a_constant_input_may_not_move():
    rng = np.random.default_rng(0)
    s = series("smooth", 20, 10, rng)
    s[..., 1] = 3.0
    made = pp.Domain.of(history(s), 1)
    online = series("smooth", 1, 10, rng)
    online[..., 1] = 3.0
    assert made.check(online).verdict == "pass"
    online[..., 1] = 4.0
    assert made.check(online).table.loc["domain b.lag0", "verdict"] == "fail"


def test_inside_at_is_range_and_distance():
    rng = np.random.default_rng(0)
    made = domain("smooth", rng, units=200)
    inside = made.inside_at(series("smooth", 200, 20, rng))
    assert not inside[:, 0].any()  # a lag is missing
    assert 0.94 < inside[:, 1:].mean() < 0.99
    corner = np.tile([[2.0, -2.0]], (5, 1)) * np.array([1, -1, 1, -1, 1])[:, None]
    assert not made.inside_at(corner).any()  # each value is usual, their order is not


def test_whitening_inverts_the_covariance_up_to_the_ridge():
    rng = np.random.default_rng(0)
    g = rng.standard_normal((500, 3)) @ np.array([[1, 0.5, 0], [0, 1, 0.2], [0, 0, 2.0]])
    root = whitening(g.T @ g, 500)
    assert_allclose(root.T @ (g.T @ g / 500) @ root, np.eye(3), atol=0.01)


def test_units_and_steps_do_not_matter_for_order_and_scale():
    rng = np.random.default_rng(0)
    s, online = series("smooth", 20, 15, rng), series("smooth", 3, 15, rng) + 0.7
    plain = pp.Domain.of(history(s), 2).check(online).table
    other = pp.Domain.of(history(1e4 * s[::-1] + 5), 2).check(1e4 * online + 5).table
    assert_allclose(plain["value"], other["value"])
    assert list(plain["verdict"]) == list(other["verdict"])


def test_one_very_long_unit_among_many_short_ones_costs_its_own_rows():
    """2,600 units of 5 rows and one of 20,000: padded to the longest they would be 52 million."""
    rng = np.random.default_rng(0)
    lengths = np.array([5] * 2600 + [20_000])
    rows = int(lengths.sum())
    uneven = pp.History(
        s=rng.standard_normal((rows, 2)),
        w=np.zeros((rows, 1)),
        offsets=np.concatenate([[0], np.cumsum(lengths)]),
        step=np.concatenate([np.arange(n) for n in lengths]),
        units=tuple(map(str, range(len(lengths)))),
        schema=pp.Schema.of(("a", "b"), ("w",)),
    )
    tracemalloc.start()
    made = pp.Domain.of(uneven, 2)
    like, moved = rng.standard_normal((2, 20, 30, 2))
    verdicts = made.check(like).verdict, made.check(moved + 1.0).verdict
    inside = made.inside_at(like)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert verdicts == ("pass", "fail")
    assert 0.9 < inside[:, 1:].mean() < 1
    assert len(made.x) == rows - len(lengths)  # a lag is missing in each unit's first row
    assert most < 20 * made.x.nbytes  # one rectangle of an input would be 400 times as much


def test_figures_of_units_do_not_hang_on_their_order_or_on_units_without_a_context():
    rng = np.random.default_rng(4)
    s = ragged(series("smooth", 30, 20, rng), rng.integers(1, 21, 30))  # some have no lag
    online = series("smooth", 5, 20, rng) + 0.5
    plain = pp.Domain.of(history(s), 2).check(online).table
    other = pp.Domain.of(history(s[::-1]), 2).check(online).table
    assert_allclose(plain["value"], other["value"])
    assert list(plain["text"]) == list(other["text"])
    without = pp.Domain.of(history(s[np.isfinite(s[:, 1, 0])]), 2).check(online).table
    assert list(plain["text"]) == list(without["text"])


def test_bad_input_is_refused_with_a_sentence():
    rng = np.random.default_rng(0)
    made = domain("smooth", rng)
    with pytest.raises(pp.errors.DataError, match=r"\(stream, time, 2\).*\(3, 4, 5\)"):
        made.check(np.zeros((3, 4, 5)))
    with pytest.raises(pp.errors.DataError, match="no row of s is complete"):
        made.check(np.zeros((1, 1, 2)))
    with pytest.raises(pp.errors.SettingError, match="looks"):
        made.check(np.zeros((5, 2)), looks=0)
    short = replace(history(series("smooth", 3, 5, rng)))
    with pytest.raises(pp.errors.DataError, match="No complete row"):
        pp.Domain.of(short, 9)


@pytest.mark.parametrize(
    ("s", "says"),
    [
        ("text", "not an array of numbers"),
        ([["a", "b"], ["c", "d"]], "not an array of numbers"),
        ([[[0.0, 1.0]], [[0.0, 1.0], [2.0, 3.0]]], "NaN after the end of each"),
        (np.zeros((2, 0, 2)), r"no rows: its shape is \(2, 0, 2\)"),
        (np.zeros((0, 2)), r"no rows: its shape is \(0, 2\)"),
        (None, r"its shape is \(\)"),
    ],
)
def test_what_is_no_stream_of_numbers_is_refused_with_a_sentence(s, says):
    made = domain("smooth", np.random.default_rng(0))
    for ask in (made.check, made.inside_at):
        with pytest.raises(pp.errors.DataError, match=says):
            ask(s)


def test_it_shows_itself():
    made = domain("smooth", np.random.default_rng(0), lags=8)
    assert repr(made).startswith("Domain: 390 contexts of 30 units")
    assert len(repr(made).splitlines()) <= 12
    assert list(made.table.columns) == ["low", "median", "high"]
    ax = made.plot(made.x[:20, :2] + 1)
    assert ax.get_legend().get_texts()[0].get_text().startswith("archive")
