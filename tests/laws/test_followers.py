"""A series as it unfolds gives what the batch gives, and one unit never touches another."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from pulse_pyro._core.errors import DataError, FeatureError
from pulse_pyro.base import FittedLaw
from pulse_pyro.data.history import History
from pulse_pyro.data.summary import Lags
from pulse_pyro.features import Features, expected_features
from pulse_pyro.laws.filtering import Filtered, state_space
from pulse_pyro.laws.linear import linear_lags
from pulse_pyro.policies.pulse import PulseUCB
from pulse_pyro.policies.streaming import Pasts
from pulse_pyro.radius import constant
from tests.helpers import assert_mean, draws_at, mean_at
from tests.laws.test_varma import ORDERS, process

WINDOWS = {"now": Lags(2), "past": Lags(2, start=1)}
WA = Features(
    lambda s, w, a: np.column_stack([np.ones(len(w)), w[:, 0], w[:, 0] * a]), 2, ("1", "W", "W*a")
)


def history(seed=0, units=20, time=15):
    rng = np.random.default_rng(seed)
    s = rng.standard_normal((units, time, 2)).cumsum(1) * [0.3, 30.0] + [5.0, -200.0]
    w = s @ [[1.0, 0.2], [0.01, -0.01]] + 0.1 * rng.standard_normal((units, time, 2))
    names = tuple(f"u{i}" for i in range(units))
    return History.from_arrays(s, w, units=names, s_names=("a", "b"), w_names=("v", "w"))


def series(time=40, rate=0.4, seed=1):
    rng = np.random.default_rng(seed)
    s = rng.standard_normal((time, 2)) * [1.0, 100.0] + [5.0, -200.0]
    s[rng.random(s.shape) < rate] = np.nan
    s[20:26] = np.nan
    return s


@pytest.fixture(scope="module", params=["linear now", "linear past", "memory now", "memory past"])
def law(request):
    kind, window = request.param.split()
    if kind == "linear":
        return linear_lags(WINDOWS[window]).fit(history(), seed=0)
    return state_space(WINDOWS[window], ar=1, ma=0).fit(history(), seed=0, draws=200)


def test_online_is_the_batch_at_every_step(law):
    assert isinstance(law, FittedLaw)
    s, one, other = series(), law.follow(), law.follow()
    batch = mean_at(law, s[None])[0]
    for t, row in enumerate(s):
        given = row.copy()
        pushed = one.push(given)
        given[:] = 1e9  # the caller may use the array again
        other.push(row + 1)
        assert_array_equal(one.now, row)
        assert_allclose(pushed.mean()[0], batch[t], rtol=1e-9)
        assert_allclose(one.conditional.mean()[0], batch[t], rtol=1e-9)
        assert_allclose(law(s[: t + 1][None]).mean()[-1], batch[t], rtol=1e-9)


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("orders", ORDERS, ids=str)
def test_the_filter_online_is_the_filter_in_batch(orders, window):
    fitted = state_space(Lags(2), ar=0, ma=0).fit(history(), seed=0, draws=50)
    seen = Filtered(WINDOWS[window], process(2, *orders), *fitted.schema.contexts)
    law = replace(fitted, law=replace(fitted.law, summary=seen))
    s, one = series(), law.follow()
    batch = mean_at(law, s[None])[0]
    for t, row in enumerate(s):
        one.push(row)
        assert_allclose(one.conditional.mean()[0], batch[t], rtol=1e-9)


def test_draws_online_have_the_moments_of_the_batch(law):
    s, one = series(12), law.follow()
    for row in s:
        one.push(row)
    drawn = one.conditional.draws(20_000, rng=np.random.default_rng(0))[:, 0]
    assert drawn.shape == (20_000, 2)
    assert_mean(drawn, mean_at(law, s[None])[0, -1])
    batch = draws_at(law, s[None], 20_000, rng=np.random.default_rng(1))[:, 0, -1]
    square = [(each - mean_at(law, s[None])[0, -1]) ** 2 for each in (drawn, batch)]
    assert_mean(square[0] - square[1], 0.0)
    again = (
        one.conditional.draws(5, rng=np.random.default_rng(0))[:, 0],
        one.conditional.draws(5, rng=np.random.default_rng(0))[:, 0],
    )
    assert_array_equal(*again)  # asking changes nothing


def test_before_anything_is_seen_the_archive_is_expected():
    fitted = state_space(1, ar=1, ma=0).fit(history(), seed=0)
    start = fitted.follow()
    assert np.isnan(start.now).all()
    mean = history().grid.s.reshape(-1, 2).mean(0)
    assert_allclose(start.conditional.mean()[0], mean_at(fitted, mean[None, None])[0, 0], rtol=1e-9)
    start.push(np.full(2, np.nan))
    assert_allclose(start.conditional.mean()[0], mean_at(fitted, mean[None, None])[0, 0], rtol=1e-9)


def test_pasts_read_labels_and_keep_units_apart(law):
    pasts, s = Pasts(law, 3), series(8)
    for row in s:
        (one,) = pasts.push(row, "x")
        (two,) = pasts.push(pd.Series(row[::-1], index=["b", "a"]), "y")
        pasts.push(np.stack([row, row + 1, row]), "z")
    alone = law.follow()
    for row in s:
        alone.push(row)
    for each in (one, two, pasts.units["z"][0], pasts.units["z"][2]):
        assert_array_equal(each.conditional.mean(), alone.conditional.mean())
    assert set(pasts.units) == {"x", "y", "z"}
    assert len(pasts.units["z"]) == 3


BAD = {
    "labelled": pd.Series([1.0, 2.0], index=["a", "c"]),
    "must hold numbers": ["one", 2.0],
    r"its shape is \(3,\)": [1.0, 2.0, 3.0],
    r"its shape is \(2, 2\)": np.zeros((2, 2)),
    r"its shape is \(0,\)": [],
    r"its shape is \(\)": 1.0,
    "infinite value": [np.nan, -np.inf],
    "mixes shared contexts": np.zeros((3, 2)),
}


@pytest.mark.parametrize("says", BAD)
def test_what_does_not_fit_is_refused_and_not_taken_in(law, says):
    pasts, s = Pasts(law, 3), series(6, rate=0.0)
    for row in s[:3]:
        (one,) = pasts.push(row, "x")
    with pytest.raises(DataError, match=says):
        pasts.push(BAD[says], "x")
    if not says.startswith("mixes"):
        with pytest.raises(DataError, match=says):
            pasts.push(BAD[says], "new")
        assert "new" not in pasts.units
    assert_array_equal(one.now, s[2])
    assert_allclose(one.conditional.mean()[0], mean_at(law, s[None, :3])[0, -1], rtol=1e-9)
    (same,) = pasts.push(s[3], "x")
    assert_allclose(same.conditional.mean()[0], mean_at(law, s[None, :4])[0, -1], rtol=1e-9)


def test_a_policy_plays_while_s_is_seen_in_part(law):
    s = series(30)
    s[:2] = [[5.0, -200.0], [5.5, -210.0]]  # Phi is judged on the first round that is seen
    x = expected_features(law, WA, s[None], size=2, rng=np.random.default_rng(0))
    assert x.exact
    bot = PulseUCB(law, WA, constant(1.0))
    for t, row in enumerate(s):
        choice = bot.act(row, unit="ann")
        assert_allclose(choice.x, x.mean[0, t, choice.action], rtol=1e-9)
        bot.learn(choice, float(t % 3))


def test_an_unseen_s_that_phi_needs_costs_one_round(law):
    needs = Features(lambda s, w, a: np.column_stack([s[:, 0] * a, w[:, 0]]), 2, ("S*a", "W"))
    bot, s = PulseUCB(law, needs, constant(1.0)), series(4, rate=0.0)
    s[2, 0] = np.nan
    for t in (0, 1):
        bot.act(s[t])
    with pytest.raises(FeatureError, match=r"'S\*a'"):
        bot.act(s[2])
    with pytest.raises(DataError, match="infinite"):
        bot.act([np.inf, 0.1])
    assert_allclose(bot.act(s[3]).x[1], mean_at(law, s[None])[0, -1, 0], rtol=1e-9)
