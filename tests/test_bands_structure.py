from contextlib import suppress
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats
from scipy.optimize import brentq

from pulse_pyro.bands.additive import additive
from pulse_pyro.bands.auto import make_band
from pulse_pyro.bands.lack_of_fit import candidates, lack_of_fit
from pulse_pyro.bands.linear import linear
from pulse_pyro.bands.sample import BandMethod, Sample
from pulse_pyro.bands.single_index import single_index
from pulse_pyro.errors import DataError, SettingError
from tests.stat import FALSE_ALARM, binomial_floor, z_bound

PROPERTY = settings(max_examples=15)


def sample(x, y, unit):
    x, y = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    y = y[:, None] if y.ndim == 1 else y
    x_names = tuple(f"lag {k}" for k in range(x.shape[1]))
    return Sample(x, y, np.asarray(unit), x_names, tuple(f"w{j}" for j in range(y.shape[1])))


def world(curve, seed, units=20, rows=20, p=2, sd=0.3, draw="uniform"):
    """Rows with mean ``curve(x)``, x uniform on [-1, 1] or normal, independent noise."""
    rng = np.random.default_rng(seed)
    unit = np.repeat(np.arange(units), rows)
    shape = (len(unit), p)
    x = rng.uniform(-1, 1, shape) if draw == "uniform" else rng.standard_normal(shape)
    return sample(x, curve(x) + sd * rng.standard_normal(len(unit)), unit)


def a_sum(x):
    return np.sin(3 * x[:, 0]) + x[:, 1] ** 2


def lines(x):
    return 1.0 + x @ np.arange(2.0, 2 + x.shape[1])


def lattice(low, high, side):
    axes = np.meshgrid(*(np.linspace(a, b, side) for a, b in zip(low, high, strict=True)))
    return np.stack([a.ravel() for a in axes], axis=1)


def summed(s, seed=0, level=0.95, draws=500, **options):
    method = BandMethod("additive", draws=draws, **options)
    return additive(s, method, level, np.random.default_rng(seed))


# sums of splines


def test_the_additive_band_covers_a_sum_over_the_whole_box():
    hits = 0
    for r in range(30):
        s = world(a_sum, [1, r])
        fit = summed(s, noise="rows")
        kept = s.x[fit.kept]
        points = lattice(kept.min(0), kept.max(0), 25)
        found = fit.band.at(points)
        assert found.inside.all()
        hits += (np.abs(found.centre[:, 0] - a_sum(points)) <= found.half[:, 0]).all()
    assert hits >= binomial_floor(30, 0.95)


@pytest.mark.parametrize("p", [2, 3])
def test_straight_lines_without_noise_are_found_exactly(p):
    s = world(lines, 2, p=p, rows=30, sd=0.0)
    fit = summed(s)
    points = lattice(s.x[fit.kept].min(0), s.x[fit.kept].max(0), 7)
    assert_allclose(fit.band.at(points).centre[:, 0], lines(points), atol=1e-6)
    assert fit.band.at(points).half.max() < 1e-6


@pytest.mark.parametrize("p", [2, 3])
def test_straight_lines_pass_through_the_smoother(p):
    s = world(a_sum, 3, p=p, rows=30)
    fit = summed(s)
    x = s.x[fit.kept]
    columns = np.column_stack([np.ones(len(x)), x])
    assert_allclose(fit.smooth(columns, 0), columns, atol=1e-5)
    assert_allclose(fit.smooth(s.y[fit.kept], 0), s.y[fit.kept] - fit.residual, atol=1e-9)


def test_the_smoother_is_a_penalised_fit_and_one_more_of_its_residuals():
    s = world(a_sum, 4, rows=8)
    fit = summed(s)
    b = fit.band.shape.design(s.x[fit.kept])
    d = np.diff(np.eye((b.shape[1] - 1) // 2 + 1), 2, axis=0)[:, 1:]
    rough = np.zeros((2 * len(d), b.shape[1]))
    rough[: len(d), 1 : 1 + d.shape[1]], rough[len(d) :, 1 + d.shape[1] :] = d, d

    def twiced(log_penalty):
        once = b @ np.linalg.pinv(b.T @ b + np.exp(log_penalty) * rough.T @ rough) @ b.T
        return 2 * once - once @ once

    found = fit.smooth(np.eye(len(b)), 0)
    log_penalty = brentq(lambda v: np.trace(twiced(v)) - np.trace(found), -12.0, 16.0)
    assert_allclose(found, twiced(log_penalty), atol=1e-5)


@pytest.mark.parametrize("noise", ["rows", "units"])
def test_half_widths_are_the_sandwich_of_the_smoothers_weights(noise):
    s = world(lambda x: x[:, 0], 4, units=30, rows=6)
    fit = summed(s, noise=noise)
    n = int(fit.kept.sum())
    hat = fit.smooth(np.eye(n), 0)
    psi = hat * fit.residual[:, 0] / (1 - np.diag(hat))
    freedom = n - np.trace(hat)
    if noise == "units":
        unit = s.unit[fit.kept]
        psi = np.stack([psi[:, unit == c].sum(1) for c in range(30)], axis=1) * np.sqrt(30 / 29)
        freedom = 29
    c = stats.t.isf(stats.norm.sf(fit.band.critical[0]), freedom)
    found = fit.band.at(s.x[fit.kept]).half[:, 0]
    assert_allclose(found, c * np.sqrt((psi**2).sum(1)), rtol=1e-6)


@pytest.mark.parametrize(("p", "side"), [(2, 80), (3, 25)])
def test_the_critical_value_is_that_of_the_whole_box(p, side):
    s = world(a_sum, 7, p=p, rows=30)
    fit = summed(s, noise="rows", draws=4000)
    shape = fit.band.shape
    points = shape.design(lattice(s.x[fit.kept].min(0), s.x[fit.kept].max(0), side))
    z = np.random.default_rng(0).multivariate_normal(
        np.zeros(points.shape[1]), shape.cov[0], 1000, method="eigh"
    )
    standard = points / np.sqrt(((points @ shape.cov[0]) * points).sum(1))[:, None]
    sups = np.concatenate([np.abs(standard @ part.T).max(0) for part in np.split(z, 10)])
    error = np.sqrt(0.95 * 0.05 * (1 / 1000 + 1 / 4000))
    assert (sups <= fit.band.critical[0]).mean() >= 0.95 - z_bound() * error


def test_outside_the_box_the_band_grows_and_still_holds_a_line():
    s = world(lines, 6, sd=0.05)
    fit = summed(s)
    low, high = np.quantile(s.x, [0.01, 0.99], axis=0)
    edge, far, further = (np.array([[high[0], low[1]]]) + np.array([[d, -d]]) for d in (0, 1, 2))
    at_edge, at_far, at_further = (fit.band.at(x) for x in (edge, far, further))
    assert at_edge.inside.all()
    assert not at_far.inside.any()
    assert_allclose(at_far.centre, at_edge.centre, rtol=1e-9)
    grown = at_far.half - at_edge.half
    assert_allclose(at_further.half - at_edge.half, 2 * grown, rtol=1e-9)
    assert (grown > 0).all()
    for x in (far, further, edge + np.array([[0.5, 0.0]]), edge + np.array([[0.0, 5.0]])):
        found = fit.band.at(x)
        assert abs(found.centre[0, 0] - lines(x)[0]) <= found.half[0, 0]


def test_outside_the_box_an_input_grows_the_band_by_its_own_slope():
    s = world(lines, 6, sd=0.05)
    small = sample(s.x * [1e-3, 1.0], s.y, s.unit)
    edge = np.quantile(s.x, [0.99], axis=0)
    far = edge + np.array([[0.0, 1.0]])
    one, other = summed(s).band, summed(small).band
    grown = one.at(far).half - one.at(edge).half
    scaled = other.at(far * [1e-3, 1.0]).half - other.at(edge * [1e-3, 1.0]).half
    assert scaled[0, 0] == pytest.approx(grown[0, 0], rel=0.5)


def test_rows_outside_the_box_take_no_part():
    s = world(a_sum, 7)
    x = s.x.copy()
    x[3, 0], x[8, 1] = 40.0, -40.0
    fit = summed(sample(x, s.y, s.unit))
    low, high = np.quantile(x, [0.01, 0.99], axis=0)
    assert_array_equal(fit.kept, ((x >= low) & (x <= high)).all(1))
    assert not fit.kept[[3, 8]].any()
    assert fit.band.rows == fit.kept.sum() == len(fit.residual)


@PROPERTY
@given(st.floats(-50, 50), st.floats(0.01, 100), st.floats(0.01, 100))
def test_units_of_measurement_do_not_matter_to_a_sum(shift, scale, y_scale):
    s = world(a_sum, 8, rows=10)
    moved = sample(s.x * [scale, 1.0] + [shift, -shift], y_scale * s.y + shift, s.unit)
    fit, again = (summed(t, noise="rows", draws=100) for t in (s, moved))
    kept = fit.kept & again.kept
    assert kept.sum() >= fit.kept.sum() - 4
    one, other = fit.band.at(s.x[kept]), again.band.at(moved.x[kept])
    simulated = again.band.shape.critical / fit.band.shape.critical
    size = abs(shift) + y_scale
    assert_allclose(other.centre, y_scale * one.centre + shift, atol=1e-4 * size)
    assert_allclose(other.half, y_scale * simulated * one.half, rtol=1e-3)


@pytest.mark.parametrize("p", [1, 4])
def test_a_sum_of_one_or_four_inputs_is_refused(p):
    s = world(lines, 9, p=p)
    with pytest.raises(DataError, match=f"for 2 or 3 inputs, {p} came"):
        summed(s)


def test_a_sum_from_too_few_rows_is_refused():
    with pytest.raises(
        DataError, match="additive band of 2 inputs needs at least 60 held-out rows"
    ):
        summed(world(lines, 10, units=10, rows=5))


def test_an_input_that_hardly_varies_is_named():
    s = world(lines, 11)
    x = s.x.copy()
    x[:, 1] = np.where(np.arange(len(x)) == 5, 3.0, 2.0)
    with pytest.raises(DataError, match="'lag 1' hardly varies"):
        summed(sample(x, s.y, s.unit))


def test_a_copied_input_is_refused_or_the_band_admits_what_it_cannot_know():
    s = world(lines, 12, p=1, sd=0.1)
    twin = sample(np.column_stack([s.x, s.x]), s.y, s.unit)
    with suppress(DataError):
        found = summed(twin).band.at(np.array([[0.8, -0.8]]))
        for possible in (lines(np.array([[0.8]])), lines(np.array([[-0.8]]))):
            assert abs(found.centre[0, 0] - possible[0]) <= found.half[0, 0]


def test_a_sum_without_noise_or_signal_is_refused():
    s = world(lines, 13)
    with pytest.raises(DataError, match="noise"):
        summed(sample(s.x, np.zeros(len(s.x)), s.unit))


@pytest.mark.parametrize("how", ["tube", "scheffe", "bootstrap_t"])
def test_critical_values_a_sum_does_not_have_are_refused(how):
    with pytest.raises(SettingError, match=how):
        summed(world(a_sum, 14), critical=how)


# single index


def indexed(s, seed=0, level=0.95, **options):
    options = {"draws": 500, "grid": 100, "noise": "rows"} | options
    method = BandMethod("single_index", **options)
    return single_index(s, method, level, np.random.default_rng(seed))


D = np.array([0.6, 0.8])


def wave(x):
    return np.sin(x @ D)


def for_direction(s, fit):
    return ~np.isin(s.unit, s.unit[fit.kept])


@cache
def index_hits(reps):
    """How often the band holds for the mean given the fitted index, and for the mean given x."""
    hits = np.zeros(2)
    for r in range(reps):
        s = world(wave, [15, r], draw="normal")
        fit = indexed(s, seed=r)
        direction = fit.band.shape.direction[0]
        rho = direction @ D
        # x'd given the fitted index u is normal: mean rho u, variance 1 - rho^2
        mean = np.sin(rho * s.x @ direction) * np.exp(-(1 - rho**2) / 2)
        found = fit.band.at(s.x)
        for k, truth in enumerate((mean, wave(s.x))):
            hits[k] += (np.abs(found.centre[:, 0] - truth) <= found.half[:, 0])[found.inside].all()
    return hits


def test_the_single_index_band_covers_the_mean_given_the_fitted_index():
    assert index_hits(30)[0] >= binomial_floor(30, 0.95)


def test_the_single_index_band_covers_the_mean_given_x():
    assert index_hits(30)[1] >= binomial_floor(30, 0.95)


def test_the_direction_is_least_squares_on_its_own_third_of_the_units():
    s = world(wave, 17, draw="normal")
    fit = indexed(s)
    own = for_direction(s, fit)
    assert len(np.unique(s.unit[own])) == 6
    b = np.column_stack([np.ones(own.sum()), s.x[own]])
    slope = np.linalg.lstsq(b, s.y[own, 0], rcond=None)[0][1:]
    assert_allclose(fit.band.shape.direction[0], slope / np.linalg.norm(slope), rtol=1e-9)
    assert fit.band.units == 14
    assert fit.band.rows == fit.kept.sum() == len(fit.residual)


def test_the_units_of_the_direction_say_nothing_else_about_the_band():
    s = world(wave, 18, draw="normal")
    fit = indexed(s, critical="tube")
    own = for_direction(s, fit)
    steeper = sample(s.x, np.where(own[:, None], 40 + 7 * s.y, s.y), s.unit)
    other = indexed(steeper, critical="tube")
    assert_array_equal(other.kept, fit.kept)
    assert_allclose(other.residual, fit.residual, atol=1e-8)
    assert_allclose(other.band.at(s.x).centre, fit.band.at(s.x).centre, atol=1e-8)
    assert_allclose(other.band.at(s.x).half, fit.band.at(s.x).half, rtol=1e-5)


def test_the_units_of_the_band_say_nothing_about_the_direction():
    s = world(wave, 19, draw="normal")
    fit = indexed(s)
    own = for_direction(s, fit)
    noise = np.random.default_rng(20).standard_normal(s.y.shape)
    other = indexed(sample(s.x, np.where(own[:, None], s.y, noise), s.unit))
    assert_array_equal(other.band.shape.direction, fit.band.shape.direction)


def test_every_coordinate_has_its_own_index_and_its_share_of_the_level():
    s = world(wave, 21, draw="normal")
    rng = np.random.default_rng(22)
    across = s.x @ [0.8, -0.6] + 0.3 * rng.standard_normal(len(s.x))
    both = sample(s.x, np.column_stack([s.y[:, 0], across]), s.unit)
    fit = indexed(both, level=0.9)
    shape = fit.band.shape
    assert_allclose(shape.direction @ D, [1.0, 0.0], atol=0.2)
    # of the 10 %, half is for the directions and half for the curves, a quarter each
    assert [one.level for one in shape.curves] == [pytest.approx(0.975)] * 2
    found = fit.band.at(s.x)
    for j, one in enumerate(shape.curves):
        part = one.at(s.x @ shape.direction[j])
        assert_array_equal(found.centre[:, j], part.centre[:, 0])
        assert (found.half[:, j] >= part.half[:, 0]).all()
        assert (part.inside >= found.inside).all()
    assert fit.residual.shape == (fit.kept.sum(), 2)
    assert np.isfinite(fit.residual).all()
    assert fit.smooth(both.y[fit.kept], 1).shape == fit.residual.shape


def test_too_few_units_for_an_index_are_refused_with_the_number_that_is_enough():
    s = world(wave, 23, draw="normal", rows=30)
    enough = min(k for k in range(2, 21) if _has_index(s.take(s.unit < k)))
    with pytest.raises(DataError, match=f"at least {enough} held-out units, {enough - 1} came"):
        indexed(s.take(s.unit < enough - 1))


def _has_index(s):
    try:
        indexed(s, draws=100)
    except DataError:
        return False
    return True


def test_no_direction_is_refused():
    s = world(wave, 24, draw="normal")
    with pytest.raises(DataError, match=r"no noise|no noise"):
        indexed(sample(s.x, np.zeros(len(s.x)), s.unit))


# lack of fit


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


# the choice


def chosen(s, kind="auto", level=0.95, seed=0, **options):
    method = BandMethod(kind, **({"draws": 300} | options))
    return make_band(s, method, level, np.random.default_rng(seed))


@pytest.mark.parametrize(
    ("rows", "bend", "smooth", "side"),
    [(20, 12.0, "spline", "fewer than"), (110, 2.0, "local_polynomial", "at least")],
)
def test_one_input_gets_a_curve_by_its_rows_unless_a_kink_shows(rows, bend, smooth, side):
    kinds = set()
    for r in range(6):
        s = world(lambda x: bend * np.abs(x[:, 0]) + x[:, 0], [38, r], p=1, rows=rows)
        choice = chosen(s, draws=100)
        kind, kink = choice.fit.band.kind, choice.fit.roughness < 0.2
        kinds.add(kind)
        assert kind == ("lipschitz" if kink else smooth)
        assert choice.why.startswith(f"one input, {side} 2000 rows")
        assert ("a kink shows (p = " in choice.why) == kink
    assert kinds == {smooth, "lipschitz"}


def test_two_inputs_that_act_as_a_sum_are_accepted():
    whys = []
    for r in range(25):
        with suppress(DataError):
            whys.append(chosen(world(a_sum, [41, r], units=40, rows=10), draws=100).why)
    assert len(whys) >= binomial_floor(25, 0.99)
    assert all(why.startswith("2 inputs that act as a sum (additivity p = ") for why in whys)


@pytest.mark.parametrize(
    ("curve", "p"),
    [
        (lambda x: x[:, 0] * x[:, 1], 2),
        (lambda x: x[:, 0] + x[:, 1] * x[:, 2], 3),
    ],
)
def test_a_product_of_inputs_is_refused_with_advice(curve, p):
    with pytest.raises(DataError) as caught:
        chosen(world(curve, 42, p=p))
    text = str(caught.value)
    assert f"{p} inputs do not act as a sum" in text
    for advice in ("product as an input", "single_index", "linear"):
        assert advice in text


def test_the_product_that_breaks_a_sum_is_named(monkeypatch):
    monkeypatch.setattr("pulse_pyro.bands.lack_of_fit.WAVES", 0)
    with pytest.raises(DataError, match=r"strongest: lag 1 x lag 2\)"):
        chosen(world(lambda x: x[:, 0] + x[:, 1] * x[:, 2], 48, p=3, rows=30))


def test_four_inputs_get_the_linear_band_and_hear_why():
    choice = chosen(world(lines, 43, p=4))
    assert choice.fit.band.kind == "linear"
    assert "4 inputs" in choice.why
    assert "linear is assumed" in choice.why


@pytest.mark.parametrize(
    ("kind", "p"),
    [("linear", 1), ("linear", 3), ("additive", 2), ("single_index", 3), ("single_index", 1)],
)
def test_what_is_asked_for_is_made(kind, p):
    choice = chosen(world(lines, 44, p=p), kind)
    assert choice.fit.band.kind == kind
    assert choice.why == "asked for"
    assert choice.fit.band.level == 0.95


@pytest.mark.parametrize("kind", ["local_polynomial", "spline", "lipschitz"])
def test_curves_are_for_one_input(kind):
    s = world(lines, 45, p=2)
    with pytest.raises(
        DataError, match=f"'{kind}' is for one input, the summary has 2 .lag 0, lag 1"
    ):
        chosen(s, kind)
    one = Sample(s.x[:, :1], s.y, s.unit, s.x_names[:1], s.y_names)
    assert chosen(one, kind).fit.band.kind == kind


def test_auto_refuses_a_constant_input():
    s = world(lines, 46, p=1)
    with pytest.raises(DataError, match="'lag 1' hardly varies"):
        chosen(sample(np.column_stack([s.x, np.full(len(s.x), 2.0)]), s.y, s.unit))
