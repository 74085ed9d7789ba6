"""Products of inputs, time and unit length: what must fail and say so, what must stay quiet."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from scipy import stats

import pulse_pyro as pp
from pulse_pyro.diagnostics.by_unit import unit_mean
from pulse_pyro.diagnostics.interactions import clearest_pair, interactions_check
from pulse_pyro.diagnostics.over_time import time_check
from pulse_pyro.diagnostics.unit_length import unit_length_check
from tests.helpers import FALSE_ALARM, binomial_floor

UNITS, TIME = 30, 20
NAMES = ("a", "b", "c")


def quiet(words):
    bad = sum(word in ("warn", "fail") for word in words)
    return bad <= stats.binom.isf(FALSE_ALARM, len(words), 0.01) and words.count(
        "fail"
    ) <= stats.binom.isf(FALSE_ALARM, len(words), 0.001)


def rows(rng, rho=0.0, units=UNITS):
    """Inputs with levels of units, heavy tails in one; residuals that share a part within units."""
    unit = np.repeat(np.arange(units), TIME)
    x = rng.standard_normal((len(unit), 3)) + 0.7 * rng.standard_normal((units, 3))[unit]
    x[:, 2] = np.exp(1.5 * x[:, 2])
    e = np.sqrt(1 - rho) * rng.standard_normal(len(unit))
    return x, e + np.sqrt(rho) * rng.standard_normal(units)[unit], unit


def asked(x, e, unit):
    return interactions_check("w", clearest_pair(e, x, x[:, 0], unit, 1.0), NAMES)


def test_the_clearest_pair_is_that_of_a_test_of_each_by_unit():
    rng = np.random.default_rng(0)
    x, e, unit = rows(rng, 0.3)
    e = e[::2]
    x, unit = x[::2], np.sort(rng.integers(0, 12, len(e)))  # units of unequal lengths
    e = e / np.sqrt(np.mean(e**2))
    z = stats.rankdata(x, axis=0)
    z = (z - z.mean(0)) / z.std(0)
    best = {}
    for i in range(3):
        for j in range(i, 3):
            b = z[:, i] * z[:, j]
            b = b - b.mean() - (z[:, i] * (b * z[:, i]).mean() if i == j else 0.0)
            b = b / b.std()
            best[i, j] = unit_mean(e * b, unit, extra=1.7, least=1 / np.sqrt(len(e)))
    pair = min(best, key=lambda key: best[key].p)
    found = clearest_pair(e, x, x[:, 0], unit, 1.7)
    assert (found.first, found.second) == pair
    assert found.pairs == 6
    assert_allclose(found.test, best[pair], rtol=1e-9)
    assert_allclose(found.p, min(1, 6 * best[pair].p))


@pytest.mark.parametrize("rho", [0.0, 0.5])
def test_inputs_that_add_up_are_passed(rho):
    rng = np.random.default_rng(1)
    assert quiet([asked(*rows(rng, rho)).verdict for _ in range(300)])


def test_a_product_and_a_bend_fail_and_are_named():
    rng = np.random.default_rng(2)
    product, bend = [], []
    for _ in range(30):
        x, e, unit = rows(rng, 0.1, units=50)
        product.append(asked(x, e + 0.3 * x[:, 0] * x[:, 1], unit))
        bend.append(asked(x, e + 0.3 * (x[:, 1] ** 2 - 1.5), unit))
    assert [c.verdict for c in product].count("fail") >= binomial_floor(30, 0.9)
    assert [c.verdict for c in bend].count("fail") >= binomial_floor(30, 0.9)
    assert sum("the product of a and b" in c.text for c in product) >= 27
    assert sum("the square of b" in c.text for c in bend) >= 27


def test_many_inputs_constants_and_flags_are_taken():
    rng = np.random.default_rng(3)
    x = rng.standard_normal((1000, 80))
    x[:, 0], x[:, 1] = 3.0, x[:, 1] > 0
    unit = np.repeat(np.arange(50), 20)
    e = rng.standard_normal(1000) + 0.8 * x[:, 2] * x[:, 1]
    found = clearest_pair(e, x, x[:, 1] + x[:, 2], unit, 1.0)
    assert (found.first, found.second) == (1, 2)
    assert clearest_pair(e, x[:, :2], e, unit, 1.0) is None  # squares of flags and constants
    assert interactions_check("w", None, ("a",)).verdict == "info"


def test_a_linear_law_in_a_world_of_products_fails():
    rng = np.random.default_rng(4)
    s = rng.standard_normal((100, 20, 2))
    w = (s.sum(-1) + 0.5 * s[..., 0] * s[..., 1] + rng.standard_normal((100, 20)))[..., None]
    fit, held_out = pp.History.from_arrays(s, w).split(seed=0)
    check = pp.diagnose(pp.linear_lags(1).fit(fit, seed=0), held_out, seed=0).table
    assert check.loc["interactions w0", "verdict"] == "fail"
    assert "the product of s0.lag0 and s1.lag0" in check.loc["interactions w0", "text"]


# Time.


def over_time(e, unit, date=None, per_day=0.0):
    step = np.tile(np.arange(TIME), len(e) // TIME)
    return time_check("w", e, step, unit, 1.0, date=date, per_day=per_day)


def calendar(rng, units=UNITS):
    """Units that start on any of 60 days."""
    return (rng.integers(0, 60, units)[:, None] + np.arange(TIME)).ravel()


@pytest.mark.parametrize("rho", [0.0, 0.5])
@pytest.mark.parametrize("dated", [False, True])
def test_errors_that_do_not_change_with_time_are_passed(rho, dated):
    rng = np.random.default_rng(5)
    words = []
    for _ in range(200):
        _, e, unit = rows(rng, rho)
        date = calendar(rng) if dated else None
        words.append(over_time(e, unit, date, 1.0 if dated else 0.0).verdict)
    assert quiet(words)


def test_a_drift_over_steps_or_the_calendar_or_the_week_fails():
    rng = np.random.default_rng(6)
    words = {"steps": [], "calendar": [], "week": []}
    for _ in range(20):
        _, e, unit = rows(rng, 0.1, units=50)
        day = calendar(rng, 50)
        step = np.tile(np.arange(TIME), 50)
        words["steps"].append(over_time(e + 0.06 * (step - 9.5), unit))
        words["calendar"].append(over_time(e + 0.02 * (day - 40), unit, day, 1.0))
        week = e + 0.5 * np.sin(2 * np.pi * day / 7)
        words["week"].append(over_time(week, unit, day, 1.0))
    for name, found in words.items():
        assert [c.verdict for c in found].count("fail") >= binomial_floor(20, 0.9), name
    assert all("a unit's steps" in c.text for c in words["steps"] if c.verdict == "fail")
    assert all("the week" in c.text for c in words["week"] if c.verdict == "fail")


def dated(step, errors, units=40, time=28):
    """An archive of dates ``step`` apart, W = s + errors(day) + noise; units start on any day."""
    rng = np.random.default_rng(7)
    start = rng.integers(0, 14, units)[:, None] + np.arange(time)
    s, noise = rng.standard_normal((2, units, time))
    frame = pd.DataFrame(
        {
            "who": np.repeat([f"u{i}" for i in range(units)], time),
            "when": pd.Timestamp("2024-01-01") + start.ravel() * pd.Timedelta(step),
            "s": s.ravel(),
        }
    )
    day = start.ravel() * (pd.Timedelta(step) / pd.Timedelta("1D"))
    frame["w"] = frame["s"] + errors(day) + 0.7 * noise.ravel()
    return pp.History.from_frame(frame, unit="who", time="when", observed=["s"], missing=["w"])


@pytest.mark.parametrize(
    ("step", "errors", "says"),
    [
        ("1D", lambda day: 0.5 * np.sin(2 * np.pi * day / 7), "the week"),
        ("6h", lambda day: 0.5 * np.cos(2 * np.pi * day), "the day"),
    ],
)
def test_diagnose_knows_the_week_and_the_day_of_an_archive_with_dates(step, errors, says):
    fit, held_out = dated(step, errors).split(seed=0)
    check = pp.diagnose(pp.linear_lags(1).fit(fit, seed=0), held_out, seed=0).table
    assert check.loc["time w", "verdict"] == "fail"
    assert f"a wave over {says}" in check.loc["time w", "text"]


def test_steps_of_a_week_have_no_wave_over_the_week():
    rng = np.random.default_rng(8)
    _, e, unit = rows(rng, 0.0)
    date = calendar(rng)
    found, known = over_time(e, unit, date), over_time(e, unit, date, 1 / 7)
    assert "6 shapes" in found.text
    assert known.text == found.text


def test_one_row_a_unit_has_no_time():
    e = np.random.default_rng(0).standard_normal(50)
    found = time_check("w", e, np.zeros(50, int), np.arange(50), 1.0)
    assert found.verdict == "info"


# How long units stay.


def dropout(rng, leaves, units=60, time=30):
    """Residuals of units that leave at random, or with W where ``leaves``."""
    e = rng.standard_normal((units, time)) + 0.4 * rng.standard_normal((units, 1))
    go = rng.random((units, time)) < (0.02 + 0.12 * (e > 0.7) if leaves else 0.05)
    last = np.where(go.any(1), go.argmax(1), time - 1)
    here = np.arange(time) <= last[:, None]
    unit, step = np.nonzero(here)
    return e[here], last[unit] + 1, last[unit] - step, unit


def test_units_that_leave_at_random_are_passed_and_those_that_leave_by_w_fail():
    rng = np.random.default_rng(7)
    clean = [unit_length_check("w", *dropout(rng, False), 1.0).verdict for _ in range(300)]
    assert quiet(clean)
    gone = [unit_length_check("w", *dropout(rng, True), 1.0) for _ in range(30)]
    assert [c.verdict for c in gone].count("fail") >= binomial_floor(30, 0.9)


def test_equal_lengths_are_not_asked_about_and_unequal_ones_are():
    rng = np.random.default_rng(8)
    s = rng.standard_normal((60, 20, 1))
    w = s + rng.standard_normal(s.shape)
    seen = np.arange(20) < rng.integers(5, 21, 60)[:, None]
    names = []
    for here in (None, seen):
        fit, held_out = pp.History.from_arrays(s, w, seen=here).split(seed=0)
        found = pp.diagnose(pp.linear_lags(1).fit(fit, seed=0), held_out, seed=0, size=100)
        names.append("unit length w0" in found.table.index)
    assert names == [False, True]
