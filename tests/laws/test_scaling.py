from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from pulse_pyro.data.history import History, Rows
from pulse_pyro.data.summary import Lags, Stack, Window
from pulse_pyro.laws.conjugate import Flat, gram
from pulse_pyro.laws.law import FitData
from pulse_pyro.laws.linear import linear_lags
from pulse_pyro.laws.scaling import GaussianInputs, Scaler
from tests.helpers import assert_mean, linear_history, mean_at

CHECK = settings(deadline=None, derandomize=True)
UNITS = st.sampled_from([1e-6, 1e-2, 1.0, 1e3, 1e6])


def table(seed, n, p):
    return np.random.default_rng(seed).standard_normal((n, p))


def standard(x, w, s_dim):
    """Columns as lags of s_dim series: lag 0 of each, lag 1 of each, ..."""
    kinds = [f"s{j % s_dim}.lag" for j in range(x.shape[1])]
    return Scaler.standard(*gram(x, w), len(x), kinds)


@CHECK
@given(st.integers(0, 999), UNITS, st.floats(-1e3, 1e3))
def test_units_go_there_and_back(seed, unit, shift):
    x, w = table(seed, 20, 4), unit * (table(seed + 1, 20, 2) + shift)
    scaler = standard(x, w, s_dim=2)
    np.testing.assert_allclose(scaler.w_out(scaler.w_in(w)), w, rtol=1e-12, atol=1e-12 * unit)


@CHECK
@given(st.integers(0, 999), UNITS, st.floats(-100, 100))
def test_standard_units_have_mean_zero_and_spread_one(seed, unit, shift):
    x, w = unit * (table(seed, 50, 1) + shift), unit * (table(seed + 1, 50, 3) + shift)
    scaler = standard(x, w, s_dim=1)
    for value in (scaler.x_in(x), scaler.w_in(w)):
        np.testing.assert_allclose(value.mean(0), 0, atol=1e-9)
        np.testing.assert_allclose(value.std(0), 1, rtol=1e-8)


def test_a_large_mean_does_not_spoil_the_spread():
    x = 1e6 + 0.01 * table(0, 500, 1)
    scaler = standard(x, table(1, 500, 1), s_dim=1)
    np.testing.assert_allclose(scaler.x_in(x).std(0), 1, rtol=1e-6)


def test_lags_of_one_column_share_the_root_mean_square_of_their_spreads():
    spread = np.array([1.0, 10.0, 3.0, 20.0, 5.0, 40.0])  # lags 0, 1, 2 of two S columns
    x = np.where(np.arange(4)[:, None] % 2 == 0, spread, -spread) + 7.0
    scaler = standard(x, table(0, 4, 1), s_dim=2)
    first, second = np.sqrt((1 + 9 + 25) / 3), np.sqrt((100 + 400 + 1600) / 3)
    np.testing.assert_allclose(scaler.x_scale, [first, second] * 3, rtol=1e-12)
    np.testing.assert_allclose(scaler.x_mean, 7.0)


@CHECK
@given(st.floats(-1e9, 1e9, allow_subnormal=False), st.integers(1, 300))
def test_a_constant_column_keeps_its_unit(value, n):
    x = np.full((n, 1), value)
    scaler = standard(x, x, s_dim=1)
    assert scaler.x_scale[0] == 1.0
    assert scaler.w_scale[0] == 1.0
    np.testing.assert_allclose(scaler.x_in(x), 0, atol=1e-6)


def test_a_small_but_real_spread_is_kept():
    x = 1.0 + 1e-6 * table(0, 100, 1)
    scaler = standard(x, x, s_dim=1)
    np.testing.assert_allclose(scaler.w_scale, x.std(), rtol=1e-9)
    np.testing.assert_allclose(scaler.x_scale, x.std(), rtol=1e-9)


def test_moments_change_units_like_the_rows():
    x, w = table(0, 40, 4) * [1.0, 50.0, 1.0, 50.0] + 9.0, 7.0 * table(1, 40, 2)
    data = FitData.raw(
        Rows(x, w, np.zeros(40, int), np.arange(40), np.arange(40), tuple("abcd"), 0)
    )
    for each in (data, data.standardised(["a", "b", "a", "b"])):
        rows = np.column_stack([np.ones(40), each.x, each.w])
        np.testing.assert_allclose(each.full, rows.T @ rows, rtol=1e-9, atol=1e-9)


def test_another_unit_of_w_changes_the_mean_in_step_and_the_id():
    history, _ = linear_history(units=9, time=20, lags=3, w_dim=2)
    first = linear_lags(3).fit(history, seed=0)
    other = linear_lags(3).fit(replace(history, w=history.w * 1024), seed=0)
    np.testing.assert_allclose(
        mean_at(other, history.grid.s), mean_at(first, history.grid.s) * 1024, rtol=1e-9
    )
    assert other.id != first.id
    assert linear_lags(np.int64(3)).fit(history, seed=0).id == first.id


def test_raw_units_change_nothing():
    x = table(0, 5, 3)
    scaler = Scaler.raw(3, 2)
    assert np.array_equal(scaler.x_in(x), x)
    assert np.array_equal(scaler.w_in(x[:, :2]), x[:, :2])
    assert np.array_equal(scaler.w_out(x[:, :2]), x[:, :2])


def moments(seed, p, scale=1.0):
    root = table(seed, p, p) * scale
    return GaussianInputs(table(seed + 1, 1, p)[0], root @ root.T + 0.1 * np.eye(p) * scale**2)


def conditional(inputs, row):
    """Block formulas for one row: mean and covariance of its missing entries."""
    mis, obs = np.isnan(row), ~np.isnan(row)
    c = inputs.cov
    gain = c[np.ix_(mis, obs)] @ np.linalg.inv(c[np.ix_(obs, obs)])
    mean = inputs.mean[mis] + gain @ (row[obs] - inputs.mean[obs])
    return mean, c[np.ix_(mis, mis)] - gain @ c[np.ix_(obs, mis)]


@CHECK
@given(st.data(), st.integers(1, 5), st.integers(1, 6), st.integers(0, 999))
def test_fill_is_the_conditional_mean_for_any_pattern(data, p, n, seed):
    inputs = moments(seed, p)
    x = table(seed + 2, n, p)
    hole = data.draw(arrays(bool, (n, p)))
    x[hole] = np.nan
    filled = inputs.fill(x)
    assert np.array_equal(filled[~hole], x[~hole])
    for row, out in zip(x, filled, strict=True):
        np.testing.assert_allclose(out[np.isnan(row)], conditional(inputs, row)[0], atol=1e-6)


@CHECK
@given(st.lists(UNITS, min_size=3, max_size=3), st.integers(0, 999))
def test_fill_does_not_depend_on_units(units, seed):
    unit = np.array(units)
    inputs = moments(seed, 3)
    other = GaussianInputs(inputs.mean * unit, inputs.cov * np.outer(unit, unit))
    x = table(seed + 2, 3, 3)
    np.fill_diagonal(x, np.nan)
    np.testing.assert_allclose(other.fill(x * unit) / unit, inputs.fill(x), rtol=1e-5, atol=1e-5)


def test_fill_works_across_blocks():
    inputs = moments(0, 2)
    x = table(1, 10_000, 2)
    x[::2, 0] = x[1::2, 1] = np.nan
    filled = inputs.fill(x)
    for i in (0, 1, 4095, 4096, 4097, 9998, 9999):
        np.testing.assert_allclose(
            filled[i, np.isnan(x[i])], conditional(inputs, x[i])[0], atol=1e-6
        )


def test_nothing_seen_gives_the_mean():
    inputs = moments(0, 3)
    np.testing.assert_allclose(inputs.fill(np.full((2, 3), np.nan)), [inputs.mean] * 2, atol=1e-12)


def test_nothing_missing_returns_x():
    x = table(0, 4, 3)
    assert np.array_equal(moments(0, 3).fill(x), x)


def test_fill_leaves_its_argument_alone():
    x = np.array([[np.nan, 1.0, 2.0]])
    before = x.copy()
    moments(0, 3).fill(x)
    moments(0, 3).draw(x, 5, np.random.default_rng(0))
    assert np.array_equal(x, before, equal_nan=True)


def test_a_repeated_input_is_recovered_from_its_twin():
    x = table(0, 200, 1)[:, [0, 0]] + 5.0
    inputs = GaussianInputs(x.mean(0), np.cov(x.T, bias=True))
    np.testing.assert_allclose(inputs.fill(np.array([[np.nan, 6.5]])), [[6.5, 6.5]], rtol=1e-6)


def test_a_constant_input_is_filled_with_its_value():
    x = np.column_stack([np.full(50, 3.0), table(0, 50, 1)])
    inputs = GaussianInputs(x.mean(0), np.cov(x.T, bias=True))
    filled = inputs.fill(np.array([[np.nan, 0.4], [3.0, np.nan]]))
    np.testing.assert_allclose(filled, [[3.0, 0.4], [3.0, x[:, 1].mean()]], rtol=1e-9)


@pytest.mark.parametrize("scale", [1.0, 100.0])
def test_completions_follow_the_conditional_law(scale):
    inputs = moments(4, 4, scale)
    x = np.array([[0.5, np.nan, -1.0, np.nan], [1.0, 2.0, 3.0, 4.0], [np.nan] * 4])
    out = inputs.draw(x, 20_000, np.random.default_rng(1))
    assert out.shape == (20_000, 3, 4)
    assert np.all(out[:, 1] == x[1])
    assert np.all(out[:, 0, [0, 2]] == x[0, [0, 2]])
    for i in (0, 2):
        mean, cov = conditional(inputs, x[i])
        centred = out[:, i, np.isnan(x[i])] - mean
        assert_mean(centred, 0.0)
        assert_mean(centred[:, :, None] * centred[:, None, :], cov)


@pytest.mark.parametrize("unit", [1.0, 3000.0])
def test_summaries_of_different_size_do_not_shrink_each_other(unit):
    archive = linear_history(units=30, time=40, lags=2)[0]
    summary = Stack(Lags(1), Window(7, np.var))
    history = History.from_arrays(
        archive.grid.s * unit,
        archive.grid.w,
        seen=archive.grid.seen,
        units=archive.units,
        s_names=archive.s_names,
        w_names=archive.w_names,
    )
    weak, flat = (linear_lags(summary, prior=p).fit(history, seed=0) for p in (None, Flat()))
    np.testing.assert_allclose(weak(history).mean(), flat(history).mean(), atol=0.01)
