"""The seven tests of what a band leaves: each sees its own kind of misfit, and says what it was."""

import numpy as np
import pytest
from scipy import stats

from pulse_pyro.bands.auto import make_band
from pulse_pyro.bands.band import BandMethod
from pulse_pyro.bands.misfits import TESTS, RowTimes, misfit_tests
from tests.bands.helpers import sample
from tests.helpers import FALSE_ALARM

UNITS, TIME = 60, 20


@pytest.fixture(autouse=True)
def _few_trees(monkeypatch):
    monkeypatch.setattr("pulse_pyro.bands.hunting.TREES", 10)


def archive(seed, misfit=None, inputs=4, units=UNITS, coordinates=1):
    """Rows of a straight line, units of two lengths, on a calendar of days; misfit(x, times)."""
    rng = np.random.default_rng(seed)
    length = np.where(np.arange(units) % 2, TIME, TIME // 2)
    unit = np.repeat(np.arange(units), length)
    time = np.concatenate([np.arange(k) for k in length])
    times = RowTimes(unit, time, rng.integers(0, 50, units)[unit] + time, 1.0)
    x = rng.standard_normal((len(unit), inputs))
    y = x.sum(1, keepdims=True) + 0.5 * rng.standard_normal((len(unit), coordinates))
    if misfit is not None:
        y[:, -1] += misfit(x, times)
    return sample(x, y, unit), times, rng


def judged(s, times, rng, kind="linear", draws=200, **more):
    fit = make_band(s, BandMethod(kind, draws=100), 0.95, rng).fit
    omitted, names = more.get("omitted", np.empty((len(s.x), 0))), more.get("names", ())
    found = misfit_tests(fit, s, omitted.__getitem__, names, rng, times=times, draws=draws)
    assert tuple(each.name for each in found) == TESTS
    return {each.name: each for each in found}


WEEKEND = (5, 6)
SEEN = {
    "products": (lambda x, _: 0.3 * x[:, 0] * x[:, 2], "lag 0 x lag 2"),
    "jump": (lambda x, _: 1.5 * (x[:, 1] > 0.7) - 0.5 * x[:, 1], "a jump in lag 1"),
    "waves": (
        lambda x, _: 0.6 * np.cos(3 * x[:, 0]) * np.cos(3 * x[:, 3]),
        "waves of lag 0 and lag 3",
    ),
    "time": (lambda _, t: 0.5 * np.isin(t.date % 7, WEEKEND), "day of the week"),
    # who leaves does so after a high value
    "unit length": (
        lambda _, t: 1.0 * ((t.time == TIME // 2 - 1) & (t.unit % 2 == 0)),
        "a unit's last rows",
    ),
}


@pytest.mark.parametrize(
    ("test", "misfit", "worst"),
    [
        ("products", lambda x, _: 0.4 * np.sign(x[:, :3].prod(1)), "lag 0 x lag 1 x lag 2"),
        ("jump", lambda x, _: 1.0 * (x[:, :2] > 0.8).all(1), "a corner of lag 0 and lag 1"),
    ],
)
def test_what_hangs_on_several_inputs_at_once_is_seen(test, misfit, worst):
    found = judged(*archive(77, misfit), draws=999)[test]
    assert found.p <= 0.01
    assert found.worst == worst


def test_the_edge_of_a_corner_is_seen_though_a_tensor_band_follows_the_rest():
    rng = np.random.default_rng(3)
    x = rng.standard_normal((3000, 2))
    y = 1.0 * (x > 1.0).all(1, keepdims=True) + 0.5 * rng.standard_normal((3000, 1))
    s = sample(x, y, np.arange(3000) // 30)
    fit = make_band(s, BandMethod("tensor"), 0.95, rng).fit
    nothing = np.empty((len(x), 0))
    found = misfit_tests(fit, s, nothing.__getitem__, (), rng, draws=999)
    jump = next(each for each in found if each.name == "jump")
    assert jump.p <= 0.01
    assert jump.worst == "a corner of lag 0 and lag 1"


@pytest.mark.parametrize("test", SEEN)
def test_each_test_sees_its_own_misfit_and_names_it(test):
    misfit, worst = SEEN[test]
    found = judged(*archive(70, misfit), draws=999)[test]
    assert found.p == pytest.approx(0.001)
    assert found.worst == worst


@pytest.mark.parametrize("most", [1_000, 100_000])
def test_the_score_sees_what_was_left_out_also_on_some_of_the_rows(monkeypatch, most):
    monkeypatch.setattr("pulse_pyro.bands.misfits.MOST_ROWS", most)
    s, times, rng = archive(76)
    z = rng.standard_normal((len(s.x), 1))
    clean = judged(s, times, rng, omitted=z, names=("left out",), draws=999)
    assert clean["score"].p > 0.01
    worse = sample(s.x, s.y + 0.2 * z, s.unit)
    found = judged(worse, times, rng, omitted=z, names=("left out",), draws=999)["score"]
    assert found.p == pytest.approx(0.001)
    assert found.worst == "left out"


def test_a_misfit_of_the_second_coordinate_is_seen():
    s, times, rng = archive(71, SEEN["products"][0], coordinates=2)
    assert judged(s, times, rng)["products"].p <= 0.01


def test_hunting_looks_at_what_was_left_out_and_names_it():
    s, times, rng = archive(72, units=100)
    z = rng.standard_normal((len(s.x), 2))
    y = s.y + np.sign(z[:, :1] * s.x[:, :1])
    worse = sample(s.x, y, s.unit)
    found = judged(
        worse, times, rng, omitted=np.column_stack([z, s.x[:, 0]]), names=("a", "b", "c")
    )
    assert found["hunting"].p < 1e-4
    assert set(found["hunting"].worst.split(" and ")) == {"a", "lag 0"}  # c is a copy of it


@pytest.mark.parametrize("kind", ["linear", "additive", "spline", "single_index"])
def test_a_band_that_is_right_is_blamed_by_no_test_too_often(kind):
    inputs = {"linear": 4, "additive": 2, "single_index": 2}.get(kind, 1)
    runs = 15
    p = {name: [] for name in TESTS}
    for r in range(runs):
        for name, found in judged(*archive([73, r], inputs=inputs), kind, draws=99).items():
            p[name].append(found.p)
    for values in p.values():
        assert (np.array(values) < 0.05).sum() <= stats.binom.isf(FALSE_ALARM / 7, runs, 0.06)


def test_what_cannot_be_tested_says_so():
    s, _, rng = archive(74, inputs=1, units=9)
    found = judged(s, None, rng, "spline")
    for name, why in {
        "products": "no such candidate",
        "time": "no times",
        "unit length": "no times",
        "hunting": "10 clusters",
    }.items():
        assert np.isnan(found[name].p)
        assert found[name].worst.startswith("not run")
        assert why in found[name].worst


def test_units_of_one_length_tell_nothing_of_who_leaves():
    s, times, rng = archive(75)
    same = times.unit % 2 == 1
    times = RowTimes(*(each[same] for each in times[:3]), 1.0)
    assert np.isnan(judged(s.take(same), times, rng)["unit length"].p)


def test_many_inputs_are_tested_on_some_of_their_pairs():
    s, times, rng = archive(76, inputs=25, units=120)
    found = judged(s, times, rng)
    assert all(0 < found[name].p <= 1 for name in ("products", "waves", "jump"))
