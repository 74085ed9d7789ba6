"""Whether what a summary leaves out matters."""

from contextlib import suppress

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats

from pulse_pyro._core.errors import DataError
from pulse_pyro.bands.auto import make_band
from pulse_pyro.bands.band import BandMethod
from pulse_pyro.bands.lack_of_fit import candidates, lack_of_fit
from pulse_pyro.bands.linear import linear
from tests.bands.helpers import sample, world
from tests.helpers import FALSE_ALARM, binomial_floor, z_bound


def left_out(seed, extra=None, units=20, rows=10, coordinates=1):
    """A linear band on one input and two omitted columns that are correlated with it."""
    rng = np.random.default_rng(seed)
    unit = np.repeat(np.arange(units), rows)
    x = rng.standard_normal((len(unit), 1))
    z = rng.standard_normal((len(unit), 2)) + 0.5 * x
    y = 1 + 2 * x + rng.standard_normal((len(unit), coordinates))
    if extra is not None:
        y += extra(z)[:, None]
    return z, sample(x, y, unit), rng


def judged(z, s, rng, names=("z0", "z1"), draws=200):
    fit = linear(s, BandMethod("linear", draws=100), 0.95, rng)
    return lack_of_fit(fit, z, names, s.unit, rng, draws)


def assert_same_verdict(one, other, draws):
    """Two tests agree: the statistic exactly, the p-value up to its draws."""
    assert other.statistic == pytest.approx(one.statistic)
    assert other.worst == one.worst
    assert abs(other.p - one.p) <= z_bound() * np.sqrt(2 * 0.25 / draws)


@pytest.mark.parametrize("units", [10, 20, 50])
def test_a_summary_that_is_enough_is_rejected_as_often_as_stated(units):
    p = np.array([judged(*left_out([25, units, r], units=units)).p for r in range(150)])
    assert (p <= 0.05).sum() <= stats.binom.isf(FALSE_ALARM, 150, 0.05)
    assert (p <= 0.5).sum() >= binomial_floor(150, 0.5)


@pytest.mark.parametrize(
    "extra",
    [lambda z: 0.8 * z[:, 0], lambda z: 0.6 * z[:, 1] ** 2, lambda z: z[:, 0] * z[:, 1]],
    ids=["lag", "square", "interaction"],
)
def test_what_the_summary_leaves_out_is_found(extra):
    found = [judged(*left_out([26, r], extra)).p for r in range(20)]
    assert (np.array(found) <= 0.05).sum() >= binomial_floor(20, 0.99)


@pytest.mark.parametrize(
    ("extra", "worst"), [(lambda u: 2 * u, "lag 9"), (lambda u: u**2, "lag 9 squared")]
)
def test_the_strongest_candidate_is_named(extra, worst, monkeypatch):
    monkeypatch.setattr("pulse_pyro.bands.lack_of_fit.WAVES", 0)
    _, s, rng = left_out(26, coordinates=2)
    z = rng.standard_normal((len(s.x), 12))
    y = s.y + np.column_stack([np.zeros(len(z)), extra(z[:, 9])])
    names = tuple(f"lag {k}" for k in range(12))
    assert judged(z, sample(s.x, y, s.unit), rng, names).worst == worst


def test_a_plain_lack_of_fit_is_beyond_every_draw_even_with_ten_units():
    z, s, rng = left_out(27, lambda z: 5 * z[:, 0], units=10, rows=20)
    assert judged(z, s, rng, draws=999).p == pytest.approx(0.001)


def test_what_the_summary_follows_does_not_hide_the_rest(monkeypatch):
    monkeypatch.setattr("pulse_pyro.bands.lack_of_fit.WAVES", 0)
    _, s, rng = left_out(47)
    fresh = rng.standard_normal((len(s.x), 1))
    found = judged(30 * s.x + fresh, sample(s.x, s.y + fresh, s.unit), rng, ("z0",))
    assert found.p <= 0.01
    assert found.worst == "z0"


def test_a_lag_before_the_start_of_a_unit_may_be_missing():
    z, s, rng = left_out(28, lambda z: z[:, 0])
    z[np.arange(len(z)) % 10 < 3, 0] = np.nan
    z[4, 1] = np.inf
    found = judged(z, s, rng)
    assert found.p <= 0.05
    assert np.isfinite(found.statistic)


def test_columns_that_say_nothing_change_nothing():
    z, s, _ = left_out(29)
    blank = np.column_stack([np.full(len(z), 7.0), z, np.full(len(z), np.nan), np.zeros(len(z))])
    one = judged(z, s, np.random.default_rng(1))
    other = judged(blank, s, np.random.default_rng(1), ("seven", "z0", "z1", "none", "zero"))
    assert_same_verdict(one, other, 200)


@pytest.mark.parametrize(
    "columns", [np.ones((200, 1)), np.full((200, 2), np.nan), np.ones((200, 0))]
)
def test_nothing_left_out_is_nothing_found(columns):
    _, s, rng = left_out(30)
    with suppress(DataError):
        assert judged(columns, s, rng, ("z0", "z1")[: columns.shape[1]]).p == 1.0


def test_the_summary_itself_is_no_evidence_against_it():
    _, s, rng = left_out(31)
    found = judged(np.column_stack([s.x, 3 - 2 * s.x]), s, rng)
    assert found.worst not in ("z0", "z1")


def test_scale_and_origin_of_what_is_left_out_do_not_matter():
    z, s, _ = left_out(32)
    one = judged(z, s, np.random.default_rng(2))
    other = judged(z * [1e-6, 1e4] + [3.0, -50.0], s, np.random.default_rng(2))
    assert_same_verdict(one, other, 200)


def test_rows_may_come_in_any_order():
    z, s, _ = left_out(33)
    fit = linear(s, BandMethod("linear", noise="rows"), 0.95, np.random.default_rng(3))
    order = np.random.default_rng(4).permutation(len(z))
    shuffled = sample(s.x[order], s.y[order], s.unit[order])
    again = linear(shuffled, BandMethod("linear", noise="rows"), 0.95, np.random.default_rng(3))
    names = ("z0", "z1")
    one = lack_of_fit(fit, z, names, s.unit, np.random.default_rng(5))
    other = lack_of_fit(again, z[order], names, s.unit[order], np.random.default_rng(5))
    assert_same_verdict(one, other, 1000)


@pytest.mark.parametrize("scale", [1.0, 1e-5, 1e-12])
def test_a_coordinate_of_small_scale_is_tested_too(scale):
    z, s, rng = left_out(34, coordinates=2)
    y = s.y.copy()
    y[:, 1] = scale * (y[:, 1] + 2 * z[:, 0])
    assert judged(z, sample(s.x, y, s.unit), rng).p <= 0.01


def test_candidates_are_columns_squares_and_waves_all_centred():
    rng = np.random.default_rng(35)
    z = 4 + 3 * rng.standard_normal((500, 10))
    names = tuple("abcdefghij")
    blocks, labels = zip(*candidates(z, names, rng), strict=True)
    values, flat = np.concatenate(blocks, axis=1), [name for part in labels for name in part]
    assert values.shape[1] == len(flat) == 10 + 10 + 30
    assert_allclose(values.mean(0), 0.0, atol=1e-9)
    scaled = (z - z.mean(0)) / z.std(0)
    for k, name in enumerate(names):
        assert_allclose(values[:, flat.index(name)], scaled[:, k])
        square = values[:, flat.index(f"{name} squared")]
        assert_allclose(square, scaled[:, k] ** 2 - 1, atol=1e-9)
    assert np.linalg.matrix_rank(values) == 50


@pytest.mark.parametrize("kind", ["spline", "additive", "single_index"])
def test_every_kind_of_band_can_be_tested(kind):
    s = world(lambda x: np.sin(2 * x[:, 0]), 36, p=1 if kind == "spline" else 2)
    rng = np.random.default_rng(37)
    z = rng.standard_normal((len(s.x), 1))
    worse = sample(s.x, s.y + 0.5 * z, s.unit)
    for data, low, high in ((s, 0.01, 1.0), (worse, 0.0, 0.01)):
        fit = make_band(data, BandMethod(kind, draws=100), 0.95, rng).fit
        found = lack_of_fit(fit, z[fit.kept], ("z",), data.unit[fit.kept], rng)
        assert low <= found.p <= high
