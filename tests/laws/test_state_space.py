"""The law with memory: exact given its parameters, calibrated under masks, the same online."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.signal import lfilter

from pulse_pyro import diagnose
from pulse_pyro._core.errors import BundleError, DataError, PulseError, SettingError
from pulse_pyro._core.saved import load, save
from pulse_pyro.calibration.ladder import calibrate
from pulse_pyro.data.history import History
from pulse_pyro.data.summary import Identity, Lags, Stack, Window
from pulse_pyro.features import Features
from pulse_pyro.laws.filtering import FilteredLaw, state_space
from pulse_pyro.laws.linear import linear_lags
from tests.helpers import (
    arma,
    assert_mean,
    draws_at,
    linear_history,
    mean_at,
    mean_draws_at,
    variance_at,
    z_bound,
)
from tests.laws.test_varma import conditioned

WA = Features(
    lambda s, w, a: np.column_stack([np.ones(len(w)), w[:, 0], w[:, 0] * a]), 2, ("1", "W", "W*a")
)


def archive(s, w):
    names = [tuple(f"{k}{j}" for j in range(x.shape[2])) for k, x in (("s", s), ("w", w))]
    units = tuple(f"u{i:04d}" for i in range(len(s)))
    return History.from_arrays(s, w, units=units, s_names=names[0], w_names=names[1])


def hide(of, rate, seed=0):
    gone = np.random.default_rng([seed, 3]).random(of.grid.s.shape) < rate
    return archive(np.where(gone, np.nan, of.grid.s), of.grid.w)


def two_columns(units, time, seed):
    """S: two AR(2) that share a part. W_0 needs S and its past, W_1 is noise alone."""
    rng = np.random.default_rng(seed)
    shocks = 0.1 * rng.standard_normal((2, units, time + 101))
    one, two = lfilter([1], [1, -1.2, 0.4], shocks, axis=-1)[:, :, 100:, None]
    s = np.concatenate([one, one + two], -1)
    w = s[:, 1:, 1:] - s[:, :-1, :1]
    noise = [0.05, 0.5] * rng.standard_normal((units, time, 2))
    return archive(s[:, 1:], np.concatenate([w, 0 * w], -1) + noise)


def archive_of(seed, columns=1):
    history = two_columns(60, 30, seed)
    return archive(history.grid.s[..., :columns], history.grid.w[..., :1])


def assert_calibrated(law, history):
    """Rows of a unit depend on each other: units are the sample, those fitted on count too."""
    miss = history.grid.w - mean_at(law, history.grid.s)
    found = (miss**2 / variance_at(law, history.grid.s)).mean(1)
    error = found.std(0, ddof=1) * np.sqrt(1 / len(found) + 1 / len(law.units))
    z = (found.mean(0) - 1) / error
    assert np.abs(z).max() <= z_bound(len(z)), f"mean squared error / variance {found.mean(0)}"


@pytest.fixture(scope="module")
def plain():
    history, coef = linear_history(200, 30, seed=0)
    return state_space(3).fit(history, seed=0), coef


@pytest.fixture(scope="module")
def double():
    law = state_space(Lags(2), ar=2, ma=0)
    return law.fit(two_columns(60, 40, 0), seed=0, draws=200)


@pytest.mark.parametrize("rate", [0.0, 0.5, 1.0])
def test_mean_and_open_variance_are_gaussian_conditioning(double, rate):
    s = hide(two_columns(1, 8, 1), rate).grid.s
    seen = double.filtered
    scale, mean = np.tile(seen.scale, 2), np.tile(seen.mean, 2)
    window, left = conditioned(
        seen.process, (s[0] - seen.mean) / seen.scale, 0, 2, double.slope * scale[:, None]
    )
    rows = window * scale + mean
    noise = (double.kernel.factor**2).sum(-1).mean(0) * double.scaler.w_scale**2
    centre = mean_draws_at(double, s, 200, rng=np.random.default_rng(0))[:, 0]
    assert_allclose(mean_at(double, s)[0], double.line[0] + rows @ double.slope, atol=1e-9)
    expected = np.diagonal(left, axis1=1, axis2=2) + noise + centre.var(0, ddof=1)
    assert_allclose(variance_at(double, s)[0], expected, rtol=1e-7)


@pytest.mark.parametrize("rate", [0.2, 0.5, 0.8])
def test_variance_is_mean_squared_error_under_masks(plain, rate):
    law, coef = plain
    rng = np.random.default_rng(9)
    s = arma((300, 32), rng)
    x = np.concatenate([s[:, 2:], s[:, 1:-1], s[:, :-2]], -1)
    w = 0.3 + x @ coef + 0.1 * rng.standard_normal((300, 30, 1))
    assert_calibrated(law, hide(archive(s[:, 2:], w), rate))


@pytest.mark.parametrize("rate", [0.0, 0.5])
def test_several_w_are_calibrated_one_by_one(double, rate):
    assert_calibrated(double, hide(two_columns(200, 40, 2), rate))


def test_an_archive_that_is_masked_itself_gives_the_same_law():
    # W_1 does not need S, so rows with gaps tell as much about it as any other
    law = state_space(Lags(2), ar=2, ma=0).fit(hide(two_columns(100, 40, 3), 0.5), seed=0)
    for rate in (0.0, 0.5):
        assert_calibrated(law, hide(two_columns(200, 40, 4), rate, seed=1))


def test_one_w_in_a_masked_archive():
    law = state_space(2, ar=2, ma=0).fit(hide(archive_of(3, 2), 0.5), seed=0)
    for rate in (0.0, 0.5):
        assert_calibrated(law, hide(archive_of(4, 2), rate, seed=1))


def test_memory_beats_conditioning_on_the_window_alone():
    first, fresh = two_columns(100, 40, 5), hide(two_columns(100, 40, 6), 0.5)
    laws = state_space(2, ar=2, ma=0).fit(first, seed=0), linear_lags(2).fit(first, seed=0)
    miss = [((mean_at(law, fresh.grid.s) - fresh.grid.w)[..., 0] ** 2).mean(1) for law in laws]
    gain = miss[1] - miss[0]
    assert gain.mean() > z_bound() * gain.std(ddof=1) / np.sqrt(len(gain))


def test_draws_have_the_mean_and_the_variance(double):
    s, size = hide(two_columns(2, 10, 8), 0.5).grid.s, 20_000
    mean, variance = mean_at(double, s), variance_at(double, s)
    follower = double.follow()
    for row in s[0]:
        follower.push(row)
    rng = np.random.default_rng
    whole, now = (
        draws_at(double, s, size, rng=rng(1)),
        double(s[0][None]).draws(size, rng=rng(2))[:, -1],
    )
    assert whole.shape == (size, *mean.shape)
    for drawn, m, v in (
        (whole, mean, variance),
        (now, mean[0, -1], variance[0, -1]),
        (follower.conditional.draws(size, rng=rng(3))[:, 0], mean[0, -1], variance[0, -1]),
    ):
        assert_mean(drawn, m)
        assert_mean((drawn - m) ** 2, v)
    where = np.isnan(s).any(-1)
    part = double(s, at=where)
    centre, some = part.mean(), part.draws(size, rng=rng(4))
    assert_allclose(centre, mean[where], rtol=1e-12)
    assert_mean((some - centre) ** 2, variance[where])


@pytest.mark.parametrize("orders", [(0, 0), (0, 1), (2, 0)], ids=str)
def test_saved_and_read_back_it_is_the_same_law(tmp_path, orders):
    history = two_columns(5, 15, 9)
    law = state_space(Lags(2, start=1), ar=orders[0], ma=orders[1]).fit(history, seed=0)
    back = load(save(law, tmp_path / "law"))
    s = hide(history, 0.5).grid.s
    assert type(back) is FilteredLaw
    assert back.id == law.id
    for ask in ("mean", "covariance"):
        assert_array_equal(getattr(back(s), ask)(), getattr(law(s), ask)())
    assert_array_equal(*(each(s).draws(5, rng=np.random.default_rng(0)) for each in (law, back)))
    text = (manifest := tmp_path / "law" / "manifest.json").read_text()
    manifest.write_text(text.replace('"start": 1', '"start": 0'))
    with pytest.raises(BundleError, match="edited"):
        load(tmp_path / "law")


def test_one_seed_one_law():
    law, history = state_space(2), linear_history(seed=2)[0]
    one, again, other = (law.fit(history, seed=seed) for seed in (0, 0, 1))
    assert one.id == again.id != other.id
    assert_array_equal(one.draws["coef"], again.draws["coef"])
    seen = one.filtered
    process = replace(seen.process, noise=2 * seen.process.noise)
    twin = replace(one, law=replace(one.law, summary=replace(seen, process=process)))
    assert twin.id != one.id  # it predicts other variances: it is another law


def test_calibration_and_diagnostics_take_it():
    law = state_space(2, ar=2, ma=0).fit(archive_of(0), seed=0)
    held = archive_of(1)
    held = History.from_arrays(
        held.grid.s,
        held.grid.w,
        seen=held.grid.seen,
        units=tuple("v" + u for u in held.units),
        s_names=("s0",),
        w_names=("w0",),
    )
    for part in (held, replace(held, s=hide(held, 0.3).s)):
        checks = diagnose(law, part, seed=0).checks
        # W needs a column this law is not shown, and that column has a memory
        failed = {check.name for check in checks if check.verdict == "fail"}
        assert failed == {"serial w0", "dependence w0"}
        found = calibrate(law, part, WA, seed=0)
        assert found.law_id == law.id
        assert np.isfinite(found.error).any()
    with pytest.raises(PulseError, match="fitted on"):
        calibrate(law, archive_of(0), WA, seed=0)


@pytest.mark.parametrize(
    "window", [True, 0, -1, 2.5, "2", None, Window(3, np.mean), Identity(), Stack(Lags(2))]
)
def test_a_window_that_is_no_number_of_lags_is_refused(window):
    with pytest.raises(SettingError, match=r"window must be|number of lags must be"):
        state_space(window)


@pytest.mark.parametrize("setting", [{"ar": -1}, {"ma": -1}, {"ar": 1.5}, {"ma": 0.5}], ids=str)
def test_an_order_that_is_no_whole_number_is_refused(setting):
    with pytest.raises(SettingError, match=f"{next(iter(setting))} must be a whole number >= 0"):
        state_space(2, **setting)


def test_an_archive_that_cannot_be_used_is_refused():
    history, law = archive_of(0), state_space(2, ar=1, ma=0)
    empty = np.full_like(history.grid.s, np.nan)
    with pytest.raises(DataError, match="'s1' is never seen"):
        law.fit(archive(np.concatenate([history.grid.s, empty], -1), history.grid.w), seed=0)
    with pytest.raises(DataError, match="NaN in the S and W columns"):
        law.fit(archive(history.grid.s, empty), seed=0)
    with pytest.raises(DataError, match="infinite"):
        archive(np.where(history.grid.s > 0.3, np.inf, history.grid.s), history.grid.w)
    with pytest.raises(DataError, match=r"got DataFrame.*History.from_frame"):
        law.fit(history.to_frame(), seed=0)
    with pytest.raises(SettingError, match="draws must be a whole number >= 2"):
        law.fit(history, seed=0, draws=1)
    with pytest.raises(DataError, match=r"or \(batch, time, 1\)"):
        mean_at(law.fit(history, seed=0), np.zeros((2, 3, 2)))


@pytest.mark.parametrize("shape", [(1, 30), (1, 1), (30, 1), (3, 3)], ids=str)
def test_small_archives_give_finite_answers(shape):
    history, (units, time) = archive_of(0), shape
    part = archive(history.grid.s[:units, :time], history.grid.w[:units, :time])
    law = state_space(4, ar=4, ma=0).fit(part, seed=0)
    s = hide(history, 0.5).grid.s[:3]
    assert np.isfinite(mean_at(law, s)).all()
    assert (variance_at(law, s) > 0).all()


def test_a_law_that_can_be_fitted_passes_its_check():
    # no window of 12 is ever complete here, and the law says it does not need one
    masked, law = hide(archive_of(0), 0.5), state_space(12, ar=1, ma=0)
    assert np.isfinite(law.fit(masked, seed=0)(masked).mean()).all()
    assert law.check(masked).unseen == "conditioned on, with memory"


@pytest.mark.parametrize("value", [0.0, 0.1, 1e6 + 0.1])
def test_a_constant_column_neither_helps_nor_harms(value):
    def wider(history):
        return archive(
            np.concatenate([history.grid.s, np.full_like(history.grid.s, value)], -1),
            history.grid.w,
        )

    law = state_space(2, ar=2, ma=0).fit(wider(hide(archive_of(0), 0.3)), seed=0)
    assert_calibrated(law, wider(hide(archive_of(1), 0.5, seed=1)))
    s = wider(archive_of(1)).grid.s
    # the archive does not tell what this column does: its prior says nothing much
    moved = mean_at(law, s + np.array([0.0, 1.0])) - mean_at(law, s)
    assert np.abs(moved).max() < archive_of(0).grid.w.std()


def test_w_that_never_varies_is_predicted_as_it_is():
    masked = hide(archive_of(0), 0.5)
    law = state_space(2, ar=1, ma=0).fit(
        archive(masked.grid.s, np.full_like(masked.grid.w, 0.1)), seed=0
    )
    assert_allclose(mean_at(law, masked.grid.s), 0.1, rtol=1e-9)
