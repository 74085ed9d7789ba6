"""One very long unit among short ones: bounds and policies as on rectangles, nothing padded."""

import tracemalloc

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import pulse_pyro as pp
from pulse_pyro.base import Schema
from pulse_pyro.data.history import History
from tests.calibration.helpers import CURVE, LINEAR, NOT_AFFINE, W_FEATURES
from tests.helpers import arma

SHORT, LONG = 6, 1500
LENGTHS = np.array([SHORT] * 300 + [LONG])
EVEN = np.full(550, SHORT)  # as many rows
COLUMN = len(LENGTHS) * LONG * 8  # bytes of one column of a rectangle
MEAN = pp.Window(2, np.mean)
RADIUS = pp.corrected(sigma=0.3)


def rows(lengths, name, seed):
    """An archive from flat rows, W = 0.3 + S_t - 0.5 S_{t-1} + noise; the first S_0 is unknown."""
    rng = np.random.default_rng(seed)
    paths = [arma((1, length + 1), rng)[0] for length in lengths]
    s = np.concatenate([path[1:] for path in paths])
    w = 0.3 + s - 0.5 * np.concatenate([path[:-1] for path in paths])
    step = np.concatenate([np.arange(length) for length in lengths])
    return History(
        s,
        w + 0.1 * rng.standard_normal(w.shape),
        np.concatenate([[0], np.cumsum(lengths)]),
        step,
        tuple(f"{name}{i}" for i in range(len(lengths))),
        Schema.of(("s",), ("w",)),
    )


def padded(history):
    """The same rows from rectangles with holes, filled here row by row."""
    shape = len(history.units), int(history.lengths.max())
    seen = np.zeros(shape, bool)
    seen[history.unit_of, history.step] = True
    s, w = np.full((2, *shape, 1), np.nan)
    s[seen], w[seen] = history.s, history.w
    made = pp.History.from_arrays(
        s, w, seen=seen, units=history.units, s_names=("s",), w_names=("w",)
    )
    return s, made


FIT, HELD_OUT = rows(LENGTHS, "f", 0), rows(LENGTHS, "h", 1)
CASES = {
    "linear": (pp.linear_lags(2), W_FEATURES, LINEAR),
    "not affine": (pp.linear_lags(MEAN), NOT_AFFINE, CURVE),
}


def no_rectangle(history):
    raise AssertionError("all units were padded to the longest")


@pytest.fixture(params=CASES)
def made(request, monkeypatch):
    """Features, law and calibration of flat rows, made where no rectangle can be."""
    law, features, band = CASES[request.param]
    with monkeypatch.context() as patch:
        patch.setattr(History, "grid", property(no_rectangle))
        fitted = law.fit(FIT, seed=0)
        found = pp.calibrate(fitted, HELD_OUT, features, seed=0, band=band)
    return features, band, fitted, found


def test_a_ragged_archive_is_calibrated_as_the_same_rows_in_a_rectangle(made):
    features, band, law, found = made
    again = law.law.fit(padded(FIT)[1], seed=0)
    assert again.id == law.id
    whole = pp.calibrate(again, padded(HELD_OUT)[1], features, seed=0, band=band)
    assert_array_equal(found.error, whole.error)
    assert_array_equal(found.inside, whole.inside)
    if found.usable:
        assert found.table.equals(whole.table)
    assert found.checks == whole.checks
    # the first row of each unit only fills the lag
    assert np.isfinite(found.error).all((1, 2)).sum() == len(HELD_OUT.s) - len(LENGTHS)
    assert found.parts[0].band.units == len(LENGTHS)


def test_asking_a_ragged_archive_is_asking_rectangles_of_its_rows(made, monkeypatch):
    """The short units as one rectangle, the long one as another, from row to row."""
    features, _, _, found = made
    short, long = HELD_OUT.s[:-LONG].reshape(-1, SHORT, 1), HELD_OUT.s[-LONG:][None]
    part = found.parts[0]
    with monkeypatch.context() as patch:
        patch.setattr(History, "grid", property(no_rectangle))
        error, inside = found.error_at(HELD_OUT), found.inside_at(HELD_OUT)
        reward, band = found.reward_error(HELD_OUT), part.budget(HELD_OUT)
        assert not found.usable or found.budget(rounds=10) > 0
    assert_array_equal(error, found.error)
    assert_array_equal(inside, found.inside)
    assert error.shape == (len(HELD_OUT.s), 2, len(features.names))
    for s, at in ((short, slice(None, -LONG)), (long, slice(-LONG, None))):
        alone = part.budget(s)
        assert_allclose(band.centre[at], alone.centre, rtol=1e-12)
        assert_allclose(band.half[at], alone.half, rtol=1e-12)
        assert_array_equal(inside[at], found.inside_at(s).ravel())
        if features is W_FEATURES:  # the others carry Monte Carlo error of each call's own
            assert_allclose(error[at], found.error_at(s).reshape(-1, *error.shape[1:]), rtol=1e-12)
            assert_allclose(reward[at], found.reward_error(s).reshape(-1, 2), rtol=1e-12)


def peak(work):
    """Return the most bytes in use at once while something is done."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_the_longest_unit_does_not_set_the_memory_of_the_others():
    """A rectangle of one column has 30 times the bytes of all the rows."""
    law = pp.linear_lags(2).fit(FIT, seed=0)
    found = pp.calibrate(law, HELD_OUT, W_FEATURES, seed=0, band=LINEAR)
    assert peak(lambda: padded(HELD_OUT)) > 2 * COLUMN
    summaries = (lambda: found.table, lambda: found.bound) if found.usable else ()
    for ask in (lambda: found.error_at(HELD_OUT), *summaries):
        assert peak(ask) < COLUMN / 2
    even = rows(EVEN, "e", 2)
    assert len(even.s) == len(HELD_OUT.s)

    def calibrate(history):
        return lambda: pp.calibrate(law, history, W_FEATURES, seed=0, band=LINEAR)

    calibrate(even)()  # what is loaded at the first call does not count
    assert peak(calibrate(HELD_OUT)) < peak(calibrate(even)) + COLUMN / 2


def test_a_policy_plays_with_the_errors_of_a_ragged_calibration(monkeypatch):
    law = pp.linear_lags(2).fit(FIT, seed=0)
    found = pp.calibrate(law, HELD_OUT, W_FEATURES, seed=0, band=LINEAR)
    twin = pp.linear_lags(2).fit(padded(FIT)[1], seed=0)
    same = pp.calibrate(twin, padded(HELD_OUT)[1], W_FEATURES, seed=0, band=LINEAR)
    s = padded(HELD_OUT)[0]
    series, rounds = s[-1:, :300], 299
    error = same.reward_error(series)[:, 1:]
    x = pp.features.expected_features(twin, W_FEATURES, series, size=2, rng=pp.stream(0, "x"))
    reward = 0.3 * np.random.default_rng(4).standard_normal((1, rounds, 2)) + x.mean[:, 1:, :, 1]
    action, gamma, _ = pp.policies.play_horizon(x.mean[:, 1:], reward, RADIUS, error=error)
    assert len(set(action[0])) == 2
    monkeypatch.setattr(History, "grid", property(no_rectangle))
    bot = pp.PulseUCB(law, W_FEATURES, RADIUS, errors=pp.calibration.CalibratedErrors(found))
    bot.observe(series[0, 0], unit="long")
    for t in range(rounds):
        choice = bot.act(series[0, t + 1], unit="long")
        assert choice.action == action[0, t]
        assert choice.error == pytest.approx(error[0, t, choice.action], rel=1e-9)
        assert choice.gamma == pytest.approx(gamma[0, t], rel=1e-9)
        bot.learn(choice, reward[0, t, choice.action])
    short = found.reward_error(HELD_OUT)[HELD_OUT.unit_of == 0]
    bot.observe(s[0, 0], unit="short")
    for t in range(1, SHORT):
        choice = bot.act(s[0, t], unit="short")
        assert choice.error == pytest.approx(short[t, choice.action], rel=1e-9)
