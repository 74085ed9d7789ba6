"""Repair by groups: a law like any other, better where it was off, never judged by its own rows."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

import pulse_pyro as pp
from pulse_pyro._core.errors import DataError, LeakageError, SettingError
from pulse_pyro.base import FittedLaw
from pulse_pyro.calibration.repaired import _shrunken, repair
from pulse_pyro.diagnostics.leaks import met_before

BIAS = {"Bonn": 0.0, "Paris": 1.0, "Rome": -0.5}
PHI = pp.Features(lambda s, w, a: np.column_stack([w[:, 0], w[:, 0] ** 2]), 2, ("w", "w2"))


def archive(units, first=0, seed=0, cluster=None, bias=BIAS):
    """W = x + what a city adds + an intercept; a city and 20 steps a person."""
    rng = np.random.default_rng(seed)
    unit = np.repeat(np.arange(units), 20)
    city = rng.choice(list(BIAS), units)[unit]
    x = rng.standard_normal(len(unit))
    w = x + np.array([bias[c] for c in city]) + rng.normal(0, 0.2, units)[unit]
    frame = pd.DataFrame(
        {
            "id": [f"p{first + i:04d}" for i in unit],
            "school": [f"k{(first + i) // 2}" for i in unit],
            "day": np.tile(np.arange(20), units),
            "x": x,
            "city": pd.Categorical(city, categories=list(BIAS)),
            "w": w + rng.normal(0, 0.5, len(unit)),
        }
    )
    return pp.History.from_frame(
        frame, unit="id", time="day", observed=["x", "city"], missing=["w"], cluster=cluster
    )


@pytest.fixture(scope="module")
def law():
    """Fitted where cities do not matter, so it is wrong where they do."""
    none = dict.fromkeys(BIAS, 0.0)
    return pp.linear_lags(1).fit(archive(60, bias=none), pp.Exact(200), seed=0)


@pytest.fixture(scope="module")
def fresh():
    return archive(160, first=1000, seed=1)


@pytest.fixture(scope="module")
def made(law, fresh):
    return repair(law, fresh, ["city"], seed=0)


def test_the_error_of_groups_is_found_and_taken_away(made):
    added = made.table.set_index("group")["added"]
    for city, bias in BIAS.items():
        assert added[f"city = {city}"] == pytest.approx(bias, abs=0.2)
    assert made.better
    before, after = made.before.details, made.after.details
    assert np.abs(before.error).max() > 0.8
    assert np.abs(after.error).max() < 0.2
    assert (after.bound >= np.abs(after.error)).all()
    assert (before.rows == after.rows).all()


def test_groupings_that_overlap_add_up(law, fresh, made):
    both = repair(law, fresh, {"x": [0.0], "city": None}, seed=0)
    assert both.better
    paris = [each.table.set_index("group")["added"]["city = Paris"] for each in (both, made)]
    assert_allclose(*paris, atol=0.2)


def test_means_are_shrunk_by_hand():
    """m tau^2 / (tau^2 + se^2), tau^2 the mean of m^2 - se^2 over groups of clusters enough."""
    mean, se, df = np.array([2.0, 0.1, 5.0]), np.array([1.0, 1.0, 1.0]), np.array([9.0, 9.0, 1.0])
    between = ((4 - 1) + (0.01 - 1)) / 2
    assert_allclose(
        _shrunken(mean, se, df), [2 * between / (between + 1), 0.1 * between / (between + 1), 0]
    )
    assert_allclose(_shrunken(mean / 10, se, df), 0.0)


def test_a_right_law_is_left_nearly_as_it_is(law):
    none = dict.fromkeys(BIAS, 0.0)
    made = repair(law, archive(160, first=1000, seed=2, bias=none), ["city", "forecast"], seed=0)
    assert made.table["added"].abs().max() < 0.15
    assert made.after.size < made.before.size + 0.05


def test_forecast_groups_mend_a_slope(law):
    """Where W rises half as fast as the law says, five groups of forecasts take most of it away."""
    history = archive(160, first=1000, seed=3)
    flat = pp.History.from_frame(
        history.to_frame().assign(w=lambda f: 0.5 * f["x"] + 0.1 * np.sin(9 * f["time"])),
        unit="unit", time="time", observed=list(history.s_names), missing=["w"],
    )  # fmt: skip
    plain = pp.History.from_frame(
        archive(60).to_frame(), unit="unit", time="time",
        observed=list(history.s_names), missing=["w"],
    )  # fmt: skip
    steep = pp.linear_lags(1).fit(plain, pp.Exact(200), seed=0)
    made = repair(steep, flat, {"forecast": 5}, seed=0)
    assert made.after.size < 0.6 * made.before.size


def test_it_is_a_law_like_any_other(made, law, fresh):
    repaired = made.law
    assert isinstance(repaired, FittedLaw)
    assert repaired.id != law.id
    rows = np.arange(40)
    asked, plain = repaired(fresh, rows), law(fresh, rows)
    shift = asked.mean() - plain.mean()
    added = made.table["added"].to_numpy()
    s = fresh.s[rows]
    code = np.where(s[:, 1] == 1, 1, np.where(s[:, 2] == 1, 2, 0))
    assert_allclose(shift[:, 0], added[code])
    assert asked.exact
    w = fresh.w[rows]
    assert_allclose(asked.cdf(w), plain.cdf(w - shift))
    assert_allclose(asked.log_density(w), plain.log_density(w - shift))
    assert_allclose(asked.joint_log_density(w), plain.joint_log_density(w - shift))
    assert_allclose(asked.covariance(), plain.covariance())
    same = [a.draws(7, rng=np.random.default_rng(0)) for a in (asked, plain)]
    assert_allclose(same[0], same[1] + shift)
    same = [a.mean_draws(7, rng=np.random.default_rng(0)) for a in (asked, plain)]
    assert_allclose(same[0], same[1] + shift)
    expected = asked.expect(PHI, size=20_000, rng=np.random.default_rng(0))
    second = asked.mean() ** 2 + plain.covariance()[:, 0]
    assert_allclose(expected.mean[:, 0, :1], asked.mean(), atol=0.03)
    assert_allclose(expected.mean[:, 0, 1:], second, atol=0.12)


def test_actions_are_series_of_their_own(made, law, fresh):
    s = fresh.s[:12].reshape(1, 4, 3, 3)
    assert_allclose(made.law(s).mean(), made.law(fresh, np.arange(12)).mean())
    assert_allclose(made.law(s, [5]).mean(), made.law(fresh, [5]).mean())


def test_following_says_what_asking_says(made, fresh):
    follower = made.law.follow()
    said = [follower.push(s).mean()[0] for s in fresh.s[:5]]
    assert_allclose(said, made.law(fresh, np.arange(5)).mean())
    assert_allclose(follower.conditional.mean(), said[-1:])
    other = made.law.follow()
    other.restore(follower.state())
    assert_allclose(other.conditional.mean(), said[-1:])
    assert_allclose(other.now, fresh.s[4])
    assert other.inputs().shape == follower.inputs().shape


def test_an_unseen_column_is_not_corrected(made, law, fresh):
    s = fresh.s[:1].copy()[None]
    s[..., 1:] = np.nan
    assert_allclose(made.law(s).mean(), law(s).mean())


def test_it_cannot_be_certified_on_rows_it_was_repaired_with(made, law, fresh):
    learn, judge = fresh.split(seed=0)
    phi = pp.terms(["1", "w*a"], 2, observed=fresh.s_names, missing=["w"])
    with pytest.raises(LeakageError):
        pp.calibrate(made.law, learn, phi, seed=0)
    assert met_before(made.law, learn)
    assert not met_before(made.law, judge)
    assert met_before(made.law, archive(60))
    with pytest.raises(LeakageError):
        repair(made.law, fresh, ["city"], seed=0)
    with pytest.raises(LeakageError):
        repair(law, archive(60), ["city"], seed=0)


def test_it_plays_on_in_calibrate(made, fresh):
    _, judge = fresh.split(seed=0)
    phi = pp.terms(["1", "w*a"], 2, observed=fresh.s_names, missing=["w"])
    calibration = pp.calibrate(made.law, judge, phi, seed=0)
    assert calibration.law_id == made.law.id


def test_clusters_are_split_whole_and_remembered(law):
    schools = archive(160, first=1000, seed=1, cluster="school")
    made = repair(law, schools, ["city"], seed=0)
    learn, judge = schools.split(seed=0)
    assert any(text.startswith("cluster") for text in met_before(made.law, learn))
    assert not met_before(made.law, judge)
    assert met_before(made.law, archive(60))  # the law's own units are not forgotten
    assert made.before.details.clusters.max() <= len(judge.clusters)


@pytest.mark.parametrize(
    ("groups", "error", "says"),
    [
        (None, SettingError, "named"),
        (["time"], SettingError, "not known"),
        ({"kind": ["a"] * 3200}, SettingError, "not known"),
        (["town"], DataError, "town"),
    ],
)
def test_groups_that_a_new_row_does_not_tell_are_refused(law, fresh, groups, error, says):
    with pytest.raises(error, match=says):
        repair(law, fresh, groups, seed=0)


def test_what_is_no_archive_or_no_level_is_refused(law, fresh):
    with pytest.raises(DataError, match="History"):
        repair(law, fresh.s, ["city"], seed=0)
    with pytest.raises(SettingError, match="level"):
        repair(law, fresh, ["city"], level=2, seed=0)


def test_few_clusters_are_told_how_many_it_takes(law, fresh):
    found = repair(law, fresh.take(range(4)), ["forecast"], seed=0)
    assert not found.after.holds
    assert "what would help: Hold out about" in repr(found)
    assert "bring twice as many" in repr(found)
