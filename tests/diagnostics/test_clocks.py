"""Inputs that run by the clock, support, and time: what Domain must say, and what it must not."""

import numpy as np
import pandas as pd
import pytest

import pulse_pyro as pp
from pulse_pyro.diagnostics.clocks import runs_by_clock, seen_values

HOURS = np.arange(24.0)


def by_the_hour(rng, units=20, time=24 * 8, start=0, declared=True):
    """S with the hour of the day, as a clock or as its sine and cosine, and other company."""
    hour = np.tile((start + np.arange(time)) % 24, units).astype(float)
    frame = pd.DataFrame({"hour": hour, "s": rng.standard_normal(units * time)})
    frame["sin"], frame["cos"] = np.sin(np.pi * hour / 12), np.cos(np.pi * hour / 12)
    frame["night"] = (hour < 6).astype(float)
    frame["age"] = np.repeat(rng.standard_normal(units), time)
    frame["flag"] = (rng.random(units * time) < 0.05).astype(float)
    frame["one"], frame["w"] = 1.0, 0.0
    frame["who"] = np.repeat([f"u{i}" for i in range(units)], time)
    frame["at"] = np.tile(np.arange(time), units)
    plain = ["s", "sin", "cos", "night", "age", "flag", "one"]
    roles = {"unit": "who", "time": "at", "missing": ["w"]}
    roles["observed"] = ["s", "hour", "one"] if declared else plain
    kinds = {"hour": "clock 24"} if declared else None
    return pp.History.from_frame(frame, **roles, kinds=kinds)


@pytest.mark.parametrize("declared", [True, False])
@pytest.mark.parametrize("lags", [1, 3])
def test_clocks_and_constants_of_an_archives_own_series_never_alarm(declared, lags):
    rng = np.random.default_rng(0)
    history = by_the_hour(rng, declared=declared)
    domain = pp.Domain.of(history, lags)
    names = {domain.names[j].split(".")[0] for group in domain.clocks for j in group}
    assert names == ({"hour[sin]", "hour[cos]"} if declared else {"sin", "cos", "night"})
    clocks = [f"domain {domain.names[j]}" for group in domain.clocks for j in group]
    for first, last in ((0, 5), (9, 15), (100, 130), (0, 190)):
        for streams in (1, 10):
            found = domain.check(history.grid.s[:streams, first:last]).table
            assert (found.loc[clocks, "verdict"] == "pass").all()
            assert (found["verdict"] != "fail").all()


def test_hours_the_archive_does_not_have_fail_though_each_sine_was_seen():
    rng = np.random.default_rng(1)
    domain = pp.Domain.of(by_the_hour(rng, time=12, start=8), 1)  # from 8 to 19 o'clock
    night = by_the_hour(rng, units=3, time=6, start=0)
    found = domain.check(night.grid.s).table["verdict"]
    assert found["domain hour[sin].lag0"] == found["domain hour[cos].lag0"] == "fail"
    assert found["domain s.lag0"] != "fail"
    assert not domain.inside_at(night.grid.s).any()
    assert domain.inside_at(by_the_hour(rng, time=12, start=8).grid.s).mean() > 0.9


def test_a_constant_may_not_move():
    rng = np.random.default_rng(2)
    history = by_the_hour(rng)
    domain = pp.Domain.of(history, 1)
    moved = np.array(history.grid.s[:2, :40])
    assert domain.check(moved).table.loc["domain one.lag0", "verdict"] == "pass"
    moved[..., 3] = 2.0
    assert domain.check(moved).table.loc["domain one.lag0", "verdict"] == "fail"
    assert not domain.inside_at(moved).any()


def test_what_runs_by_the_clock_is_told_from_what_only_looks_so():
    rng = np.random.default_rng(3)
    unit, step = np.repeat(np.arange(30), 48), np.tile(np.arange(48), 30)
    start = rng.integers(0, 24, 30)[unit]
    assert runs_by_clock(np.sin(2 * np.pi * (step + start) / 24), unit, step)  # any first hour
    assert runs_by_clock(((step + start) % 7 >= 5).astype(float), unit, step)
    assert runs_by_clock(step.astype(float), unit, step)  # a counter
    assert not runs_by_clock(rng.standard_normal(30)[unit], unit, step)  # of the unit
    assert not runs_by_clock(rng.standard_normal(len(unit)), unit, step)
    assert not runs_by_clock((rng.random(len(unit)) < 0.003).astype(float), unit, step)
    assert not runs_by_clock(np.round(rng.random(len(unit))), unit, step)
    moved = np.sin(2 * np.pi * step / 24)
    moved[777] += 0.1
    assert not runs_by_clock(moved, unit, step)


def test_values_between_those_seen_count_as_seen_and_those_far_off_do_not():
    angle = np.pi * HOURS / 12
    seen = np.column_stack([np.sin(angle), np.cos(angle)])
    assert seen_values(seen, seen).all()
    half = np.pi * (HOURS + 0.5) / 12
    assert seen_values(seen, np.column_stack([np.sin(half), np.cos(half)])).all()
    assert not seen_values(seen, np.array([[0.0, 0.0], [np.nan, 1.0]])).any()
    assert list(seen_values(np.ones((5, 1)), np.array([[1.0], [1.1]]))) == [True, False]


# Support.


def pairs(rho, rng, units=50, time=30):
    z = rng.standard_normal((units, time, 2))
    z[..., 1] = rho * z[..., 0] + np.sqrt(1 - rho**2) * z[..., 1]
    return z


def archive(s):
    return pp.Domain.of(pp.History.from_arrays(s, np.zeros((*s.shape[:2], 1))), 1)


def test_a_correlation_that_turns_over_is_noticed():
    rng = np.random.default_rng(4)
    domain = archive(pairs(0.95, rng))
    found = domain.check(pairs(-0.95, rng, 3, 20)).table["verdict"]
    assert found["domain jointly"] == "fail"
    assert found["domain s0.lag0"] == found["domain s1.lag0"] == "pass"
    assert domain.check(pairs(0.95, rng, 3, 20)).verdict == "pass"
    turned = pairs(-0.95, rng)
    inside = domain.inside_at(turned)
    assert inside.mean() < 0.4
    away = np.abs(turned[..., 0] - turned[..., 1]) > 2.0
    assert not inside[away].any()
    assert domain.inside_at(pairs(0.95, rng)).mean() > 0.93


def test_a_hole_in_the_middle_is_outside():
    rng = np.random.default_rng(5)
    angle = rng.uniform(0, 2 * np.pi, (50, 30))
    ring = np.stack([np.cos(angle), np.sin(angle)], -1) + 0.05 * rng.standard_normal((50, 30, 2))
    domain = archive(ring)
    assert not domain.inside_at(0.1 * rng.standard_normal((3, 20, 2))).any()
    assert domain.inside_at(ring).mean() > 0.93


def test_time_beyond_the_longest_unit_is_outside():
    rng = np.random.default_rng(6)
    domain = archive(pairs(0.0, rng, time=20))
    online = pairs(0.0, rng, 5, 50)
    inside = domain.inside_at(online)
    assert inside[:, :20].mean() > 0.9
    assert not inside[:, 20:].any()
    found = domain.check(online).table
    assert found.loc["domain time", "value"] == pytest.approx(0.6)
    assert found.loc["domain time", "verdict"] == "info"
    assert "domain time" not in domain.check(online[:, :20]).table.index
