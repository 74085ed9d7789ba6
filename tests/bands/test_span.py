"""Inputs that repeat others: the linear band is that of what they span."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import pulse_pyro as pp
from pulse_pyro._core.errors import DataError
from pulse_pyro.bands.linear import Span
from tests.bands.helpers import draw, made, sample

COPIES = {
    "one": lambda x: x[:, 0],
    "turned": lambda x: 2 - 3 * x[:, 1],
    "sum": lambda x: x.sum(1),
    "large": lambda x: 1e6 * (x[:, 0] - x[:, 1]),
}
copies = pytest.mark.parametrize("copy", COPIES.values(), ids=COPIES)


def with_copy(x, copy):
    return np.column_stack([x, copy(x)])


@copies
@pytest.mark.parametrize("critical", ["simulate", "scheffe"])
def test_a_repeated_input_changes_nothing_where_it_repeats(copy, critical):
    s = draw(np.random.default_rng(39), p=2)
    # by rows: draws by unit are made in the basis that is kept, which may be another one
    plain = made(s, critical=critical, noise="rows").band
    copied = sample(with_copy(s.x, copy), s.y, s.unit)
    more = made(copied, critical=critical, noise="rows").band
    x = np.random.default_rng(1).standard_normal((50, 2))
    one, two = plain.at(x), more.at(with_copy(x, copy))
    assert_allclose(two.centre, one.centre, rtol=1e-8)
    assert_allclose(two.half, one.half, rtol=1e-8)
    assert (two.inside == one.inside).all()
    assert "1 more repeat them" in more.made[0]


@copies
def test_a_context_that_breaks_the_repetition_is_outside(copy):
    s = draw(np.random.default_rng(39), p=2)
    band = made(sample(with_copy(s.x, copy), s.y, s.unit)).band
    x = np.tile(s.x.mean(0), (2, 1))
    both = with_copy(x, copy)
    both[1, 2] += 0.1 * copy(s.x).std()
    found = band.at(both)
    assert found.inside.tolist() == [True, False]
    assert np.isnan(found.half[:, 0]).tolist() == [False, True]


@pytest.mark.parametrize("critical", ["simulate", "scheffe"])
def test_nothing_is_claimed_of_a_direction_that_was_never_seen(critical):
    """y follows the copy, not the original: only where they agree is that known."""
    rng = np.random.default_rng(6)
    x = rng.standard_normal((300, 2))
    both = np.column_stack([x, x[:, 0]])
    rows = sample(both, both[:, 2:] + 0.1 * rng.standard_normal((300, 1)), np.arange(300) // 10)
    band = made(rows, critical=critical).band
    assert "where repeated inputs repeat" in band.shape.domain
    at = band.at(np.array([[1.0, 0.0, 1.0], [0.0, 0.0, 3.0]]))
    assert abs(at.centre[0, 0] - 1.0) <= at.half[0, 0] < 0.2
    assert np.isnan(at.half[1, 0])


@pytest.mark.parametrize("value", [0.0, 3.0, -1e9])
def test_a_constant_input_repeats_the_intercept(value):
    s = draw(np.random.default_rng(37), p=2)
    still = np.full(len(s.x), value)
    plain, more = made(s).band, made(sample(np.column_stack([s.x, still]), s.y, s.unit)).band
    x = np.tile(s.x.mean(0), (3, 1))
    at = np.column_stack([x, [value, value + 0.01 * (abs(value) + 1), value]])
    one, two = plain.at(x), more.at(at)
    assert_allclose(two.centre, one.centre, rtol=1e-8)
    assert_allclose(two.half[[0, 2]], one.half[[0, 2]], rtol=1e-8)
    assert np.isnan(two.half[1]).all()
    assert two.inside.tolist() == [True, False, True]


def test_constants_alone_are_refused():
    s = draw(np.random.default_rng(36), p=2)
    with pytest.raises(DataError, match="'lag 0' is constant"):
        made(sample(np.full((len(s.x), 2), 2.0), s.y, s.unit))


def test_a_column_of_small_scale_is_not_a_constant():
    x = np.random.default_rng(5).standard_normal((50, 2)) * np.array([1e-6, 1e6])
    assert Span.of(x).kept.tolist() == [0, 1]
    still = np.column_stack([1e-6 * x[:, 0], 1e9 + 1e-10 * x[:, 1]])
    assert Span.of(still).still.tolist() == [1]


def test_inputs_that_only_resemble_each_other_are_all_kept():
    rng = np.random.default_rng(2)
    x = rng.standard_normal((200, 2))
    x = np.column_stack([x, x[:, 0] + 1e-3 * rng.standard_normal(200)])
    assert Span.of(x).kept.tolist() == [0, 1, 2]


def test_lags_of_a_clock_can_be_calibrated():
    rng = np.random.default_rng(3)
    hour = np.arange(40) * np.pi / 2
    clock = np.stack([np.sin(hour), np.cos(hour)], -1)
    other = rng.standard_normal((60, 40, 1))
    s = np.concatenate([np.broadcast_to(clock, (60, 40, 2)), other], -1)
    w = s @ np.array([[1.0], [0.5], [2.0]]) + 0.1 * rng.standard_normal((60, 40, 1))
    units = tuple(f"u{i:02d}" for i in range(60))
    seen = np.ones((60, 40), bool)
    history = pp.History.from_arrays(
        s, w, seen=seen, units=units, s_names=("sin", "cos", "heat"), w_names=("w",)
    )
    fit, held = history.split(seed=0)
    law = pp.linear_lags(3).fit(fit, seed=0)
    phi = pp.terms(["w*a"], 2, observed=["sin", "cos", "heat"], missing=["w"])
    found = pp.calibrate(law, held, phi, seed=0)
    # sine and cosine at one time give those at all times
    assert "least squares on 5 inputs (4 more repeat them)" in found.parts[0].band.made[0]
    assert found.verdict == "pass"
    assert found.bound.max() < 0.1
