from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

import pulse_pyro as pp
from pulse_pyro.calibration.crossfit import AverageLaw
from pulse_pyro.calibration.targets import find_targets
from tests.stat import binomial_floor, z_bound
from tests.worlds import linear_history

LINEAR = pp.BandMethod("linear", draws=1000)
CURVE = pp.BandMethod("spline", grid=100, draws=1000)
MAIN, BY_ACTION = pp.main_nonlinear(), pp.w_times_action()
W_FEATURES = pp.Features(lambda s, w, a: np.column_stack([w[:, 0], w[:, 0] * a]), 2, ("W", "Wa"))


class Guess:
    """An imputer of its own making: W ~ N(intercept + slope x, sd^2), x the first input."""

    law_id = "guess"

    def __init__(
        self, summary, *, intercept=0.0, slope=0.0, sd=0.1, exact=True, units=(), names=None
    ):
        self.summary, self.intercept, self.slope, self.sd = summary, intercept, slope, sd
        self.exact_mean, self.fit_units = exact, units
        self.s_names, self.w_names = names or (("s",), ("w",))

    def mean(self, s):
        return self.intercept + self.slope * self.summary(s)[..., :1]

    def sample(self, s, size, *, rng):
        mean = self.mean(s)
        return mean + self.sd * rng.standard_normal((size, *mean.shape))

    def mean_draws(self, s, draws, *, rng):
        return np.repeat(self.mean(s)[None], draws, axis=0)


class Shifted:
    """A fitted law with a constant added to its mean."""

    def __init__(self, law, by):
        self.law, self.by, self.law_id = law, by, f"{law.law_id} shifted"

    def __getattr__(self, name):
        return getattr(self.law, name)

    def mean(self, s):
        return self.law.mean(s) + self.by


def one_input(units=30, rows=30, seed=0, curve=np.sin, noise=0.1):
    """W = curve(4 S_t) + noise; the noise is uniform on [-noise, noise]."""
    rng = np.random.default_rng(seed)
    s = 0.3 * rng.standard_normal((units, rows, 1))
    w = curve(4 * s) + rng.uniform(-noise, noise, s.shape)
    seen = np.ones((units, rows), dtype=bool)
    return pp.History(s, w, seen, tuple(f"h{i}" for i in range(units)), ("s",), ("w",))


def band_values(calibration, s, part=0):
    """Centre and half-width (batch, time, q) of a part's band at contexts s."""
    part = calibration.parts[part]
    x = part.law.summary(s)
    centre, half, _ = part.band.at(x.reshape(-1, x.shape[-1]))
    return centre.reshape(*s.shape[:2], -1), half.reshape(*s.shape[:2], -1)


def triangle(calibration, law, s, part=0):
    """Half-width plus distance of centre and law, (batch, time, w_dim), from band and law alone."""
    centre, half = band_values(calibration, s, part)
    return half + np.abs(centre - law.mean(s))


def check(calibration, name):
    return next(c for c in calibration.checks if c.name == name)


@pytest.fixture(scope="module")
def curve():
    """A straight line fitted to the nonlinear environment, its calibration, the held-out units."""
    fit, held_out = MAIN.archive(50, 27, rng=np.random.default_rng(0)).split(seed=0)
    law = pp.linear_lags(pp.Window(3, np.mean)).fit(fit, seed=0)
    return law, pp.calibrate(law, held_out, MAIN.features, seed=0, band=CURVE), held_out


@pytest.fixture(scope="module")
def lagged():
    """19 lags and features (1, S, W, W*a)."""
    fit, held_out = BY_ACTION.archive(60, 45, rng=np.random.default_rng(1)).split(seed=0)
    law = pp.linear_lags(19).fit(fit, seed=0)
    return law, pp.calibrate(law, held_out, BY_ACTION.features, seed=0, band=LINEAR), held_out


BENT = pp.Features(
    lambda s, w, a: np.column_stack(
        [np.ones(len(s)), w[:, 0] ** 2, -3 * a * w[:, 0] ** 2, a * np.tanh(w[:, 0]), s[:, 0]]
    ),
    2,
    ("1", "w2", "-3 w2 a", "tanh a", "S"),
)


@pytest.fixture(scope="module")
def bent():
    held_out = one_input(seed=3)
    law = Guess(pp.Lags(1), intercept=0.1, slope=2.0, sd=0.3)
    return law, pp.calibrate(law, held_out, BENT, seed=5, band=CURVE), held_out


@pytest.fixture(scope="module")
def cross():
    history, _ = linear_history(units=40, time=20, lags=2, seed=2)
    return history, pp.calibrate_crossfit(
        pp.linear_lags(2), history, W_FEATURES, seed=4, band=LINEAR
    )


# --- the triangle bound -------------------------------------------------------------------------


def test_the_bound_of_w_is_half_width_plus_distance_of_centre_and_law(curve):
    law, calibration, held_out = curve
    s = held_out.s[:4]
    eps = triangle(calibration, law, s)[..., 0]
    error = calibration.error_at(s)
    for action in (0, 1):
        assert_allclose(error[:, :, action, 2], eps, rtol=1e-12)
        assert_array_equal(error[:, :, action, [0, 1, 3]], 0.0)
    assert np.isfinite(eps[:, 2:]).all()
    assert np.isnan(eps[:, :2]).all()


def test_the_bound_of_w_times_action_is_zero_for_action_zero(lagged):
    law, calibration, held_out = lagged
    eps = triangle(calibration, law, held_out.s)[..., 0]
    error = calibration.error_at(held_out.s)
    assert_array_equal(error[:, :, 0, 3], 0.0)
    assert_allclose(error[:, :, 1, 3], eps, rtol=1e-10)
    assert_allclose(error[:, :, :, 2], np.stack([eps, eps], -1), rtol=1e-10)
    assert_array_equal(error[..., :2], 0.0)


def test_stored_errors_are_those_at_the_stored_contexts(lagged):
    _, calibration, held_out = lagged
    assert_array_equal(calibration.contexts, held_out.s)
    assert_array_equal(calibration.error, calibration.error_at(held_out.s))
    assert_array_equal(calibration.inside, calibration.inside_at(held_out.s))
    worst = np.max(calibration.error**2, axis=(2, 3)).ravel()
    assert_array_equal(calibration.bound, worst[np.isfinite(worst)])
    # 30 units of 45 rows, 18 of which only fill the lags
    assert calibration.bound.shape == (30 * 27,)


def test_the_band_is_not_centred_on_the_law():
    history = one_input(seed=1)
    near, far = (
        pp.calibrate(Guess(pp.Lags(1), intercept=b), history, W_FEATURES, seed=0, band=CURVE)
        for b in (0.0, 7.0)
    )
    s = history.s[:3]
    assert_array_equal(band_values(near, s)[0], band_values(far, s)[0])
    assert_array_equal(band_values(near, s)[1], band_values(far, s)[1])
    gap = band_values(near, s)[0] - 0.0
    moved = far.error_at(s)[:, :, 0, 0] - near.error_at(s)[:, :, 0, 0]
    assert_allclose(moved, (np.abs(gap - 7.0) - np.abs(gap))[..., 0], rtol=1e-12)


def test_slopes_of_phi_may_depend_on_s_and_mix_several_w():
    history, _ = linear_history(units=30, time=15, lags=2, w_dim=2, seed=5)
    fit, held_out = history.split(seed=0)
    law = pp.linear_lags(2).fit(fit, seed=0)
    features = pp.Features(
        lambda s, w, a: np.column_stack([w @ [1, -2 * a], s[:, 0] * w[:, 1] + 5, s[:, 0]]),
        3,
        ("mix", "SW", "S"),
    )
    calibration = pp.calibrate(law, held_out, features, seed=0, band=LINEAR)
    s = held_out.s[:5]
    eps = triangle(calibration, law, s)
    error = calibration.error_at(s)
    for a in range(3):
        assert_allclose(error[:, :, a, 0], eps[..., 0] + 2 * a * eps[..., 1], rtol=1e-9)
        assert_allclose(error[:, :, a, 1], np.abs(s[..., 0]) * eps[..., 1], rtol=1e-7)
        assert_array_equal(error[:, :, a, 2], 0.0)


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1))
def test_the_error_of_any_affine_map_is_the_absolute_slope_times_eps(seed):
    rng = np.random.default_rng(seed)
    w_dim, d, actions, n = rng.integers(1, 4), rng.integers(1, 5), 3, 40
    slope = rng.standard_normal((actions, d, w_dim)) * (rng.random((actions, d, w_dim)) < 0.6)
    slope[0, 0, 0] = 1.0
    shift = rng.standard_normal((actions, d))
    features = pp.Features(
        lambda s, w, a: w @ slope[a].T + shift[a], actions, tuple(f"f{j}" for j in range(d))
    )
    s, w = rng.standard_normal((n, 1)), rng.standard_normal((n, w_dim)) * 3 + 1
    names = tuple(f"w{i}" for i in range(w_dim))
    targets = find_targets(features, s, w, names)
    assert targets.names == names
    assert_array_equal(targets.observed(s, w), w)
    eps = rng.random((n, w_dim))
    for a in range(actions):
        found = targets.errors(s, eps, a)
        assert_allclose(found, eps @ np.abs(slope[a]).T, rtol=1e-8, atol=1e-12)
        assert_array_equal(found[:, (slope[a] == 0).all(1)], 0.0)


# --- shapes of contexts -------------------------------------------------------------------------


def test_a_context_is_bounded_alike_alone_and_among_others(lagged):
    _, calibration, held_out = lagged
    whole = calibration.error_at(held_out.s)
    assert_allclose(calibration.error_at(held_out.s[7:8]), whole[7:8], rtol=1e-10)
    assert_allclose(calibration.error_at(held_out.s[:, :30]), whole[:, :30], rtol=1e-10)
    assert_allclose(calibration.error_at(held_out.s[:, 5:24])[:, -1], whole[:, 23], rtol=1e-10)


@pytest.mark.parametrize("which", ["lagged", "bent"])
def test_the_same_context_for_every_action_agrees_with_a_shared_one(which, request):
    _, calibration, held_out = request.getfixturevalue(which)
    s = held_out.s[:3]
    each = np.repeat(s[:, :, None], 2, axis=2)
    assert_array_equal(calibration.error_at(each), calibration.error_at(s))
    assert_array_equal(calibration.inside_at(each), calibration.inside_at(s))


def test_contexts_of_their_own_bound_each_action_by_its_own(lagged):
    _, calibration, held_out = lagged
    each = np.stack([held_out.s[:4], 40 * held_out.s[4:8]], axis=2)
    error, inside = calibration.error_at(each), calibration.inside_at(each)
    for a in (0, 1):
        alone = calibration.error_at(np.ascontiguousarray(each[:, :, a]))
        assert_allclose(error[:, :, a], alone[:, :, a], rtol=1e-10)
    apart = [calibration.inside_at(np.ascontiguousarray(each[:, :, a])) for a in (0, 1)]
    assert apart[0].any()
    assert_array_equal(inside, apart[0] & apart[1])


@pytest.mark.parametrize("shape", [(5,), (5, 1), (2, 5, 3), (1, 2, 5, 2, 3)])
def test_contexts_of_a_wrong_shape_are_refused(lagged, shape):
    with pytest.raises(pp.DataError, match=r"s must be \(batch, time, 1\)"):
        lagged[1].error_at(np.zeros(shape))


@pytest.mark.parametrize("arms", [1, 3])
def test_contexts_for_another_number_of_actions_are_refused(lagged, arms):
    with pytest.raises(pp.PulseError, match="actions"):
        lagged[1].error_at(np.zeros((2, 25, arms, 1)))


# --- Phi that is not affine in w ----------------------------------------------------------------


def test_proportional_features_are_one_target_and_keep_their_factor(bent):
    _, calibration, held_out = bent
    error = calibration.error_at(held_out.s[:3])
    assert len(calibration.parts[0].band.y_names) == 2
    assert (error[:, :, 0, 1] > 0).all()
    assert_array_equal(error[:, :, 1, 1], error[:, :, 0, 1])
    assert_allclose(error[:, :, 1, 2], 3 * error[:, :, 1, 1], rtol=1e-12)


def test_a_feature_that_involves_w_for_one_action_only_is_exact_for_the_other(bent):
    _, calibration, held_out = bent
    error = calibration.error_at(held_out.s[:3])
    assert_array_equal(error[:, :, 0, 2:], 0.0)
    assert (error[:, :, 1, 3] > 0).all()
    assert_array_equal(error[..., [0, 4]], 0.0)


def test_targets_are_the_features_at_the_recorded_w(bent):
    _, calibration, _ = bent
    s, w = np.zeros((4, 1)), np.array([[-2.0], [0.0], [0.5], [3.0]])
    columns = calibration.parts[0].targets.observed(s, w)
    assert_allclose(columns, np.column_stack([w**2, np.tanh(w)]), rtol=1e-12)


def test_monte_carlo_error_takes_its_share_of_the_allowed_failures(bent, curve):
    assert curve[1].parts[0].band.level == 0.95
    assert curve[1].parts[0].failures == 0.0
    part = bent[1].parts[0]
    assert part.failures > 0
    assert part.band.level == pytest.approx(0.95 + part.failures)
    assert part.band.level < 1
    assert bent[1].level == 0.95


def test_the_bound_counts_the_distance_to_the_laws_own_expectation(bent):
    law, calibration, held_out = bent
    part, s = calibration.parts[0], held_out.s[:4]
    x = s.reshape(-1, 1)
    centre, half, _ = part.band.at(x)
    found = pp.expected_features(
        law, BENT, s, size=part.size, rng=pp.stream(part.seed, "calibration")
    )
    total = half + np.abs(centre - found.mean[:, :, 1, [1, 3]].reshape(-1, 2))
    budget = part.budget(s)
    assert (budget.monte_carlo > 0).all()
    assert_allclose(
        calibration.error_at(s)[:, :, 1, [1, 3]].reshape(-1, 2),
        total + budget.monte_carlo.reshape(-1, 2),
        rtol=1e-12,
    )


def test_monte_carlo_error_is_large_enough_at_all_contexts_at_once(bent):
    law, calibration, held_out = bent
    exact = law.mean(held_out.s) ** 2 + law.sd**2  # E[w^2] under the law
    centre, half = band_values(calibration, held_out.s)
    due = (half + np.abs(centre - exact))[..., 0]
    error = calibration.error_at(held_out.s)[:, :, 0, 1]
    assert (error >= due).all()
    spared = error - calibration.parts[0].budget(held_out.s).monte_carlo[..., 0]
    assert (spared < due).any()


def test_a_law_without_a_closed_mean_pays_for_its_draws():
    history = one_input(seed=4)
    exact, drawn = (
        pp.calibrate(
            Guess(pp.Lags(1), slope=1.0, sd=2.0, exact=e), history, W_FEATURES, seed=0, band=CURVE
        )
        for e in (True, False)
    )
    assert drawn.parts[0].band.level > exact.parts[0].band.level == 0.95
    budget = drawn.parts[0].budget(history.s)
    size = drawn.parts[0].size
    # standard errors are 2 / sqrt(size), up to their own estimation: enough for all at once, twice
    multiple = budget.monte_carlo / (2.0 / np.sqrt(size))
    one = stats.norm.isf(drawn.parts[0].failures / (2 * multiple.size))
    slack = z_bound() / np.sqrt(2 * size * multiple.size) + 1 / size
    assert multiple.mean() / one >= 2 * (1 - slack)
    law = Guess(pp.Lags(1), slope=1.0)
    assert (drawn.error_at(history.s)[:, :, 0, 0] >= triangle(drawn, law, history.s)[..., 0]).all()


@settings(max_examples=20)
@given(st.integers(0, 2**32 - 1))
def test_distinct_targets_and_their_multiples_are_told_apart(seed):
    rng = np.random.default_rng(seed)
    scale = rng.standard_normal((3, 4))
    scale[rng.random((3, 4)) < 0.3] = 0.0
    scale[0, 0] = 1.5
    kind = rng.integers(0, 2, 4)
    kind[0] = 0
    base = (lambda w: w**2, np.exp)
    features = pp.Features(
        lambda s, w, a: np.column_stack([scale[a, j] * base[kind[j]](w[:, 0]) for j in range(4)]),
        3, tuple("abcd"),
    )  # fmt: skip
    s, w = np.zeros((60, 1)), rng.standard_normal((60, 1))
    targets = find_targets(features, s, w, ("w",))
    live = scale != 0
    kinds = {int(k) for a in range(3) for j, k in enumerate(kind) if live[a, j]}
    assert len(targets.names) == len(kinds)
    eps = rng.random((60, len(kinds)))
    for a in range(3):
        found = targets.errors(s, eps, a)
        for j in range(4):
            if not live[a, j]:
                assert_array_equal(found[:, j], 0.0)
                continue
            k = targets.source[a, j]
            first = scale[targets.action[k], targets.column[k]]
            assert kind[targets.column[k]] == kind[j]
            assert_allclose(found[:, j], abs(scale[a, j] / first) * eps[:, k], rtol=1e-9)


def switched(first):
    """(w^2, 1{w > 2}) in either order: no held-out w is ever above 2."""

    def fn(s, w, a):
        square, step = w[:, 0] ** 2, (w[:, 0] > 2).astype(float)
        return np.column_stack([step, square] if first else [square, step])

    return pp.Features(fn, 2, ("one", "two"))


@pytest.mark.parametrize("first", [False, True])
def test_a_feature_that_is_zero_in_every_held_out_row_is_not_declared_exact(first):
    history = one_input(seed=6)  # |w| <= 1.1, so E[1{w > 2} | S] = 0
    law = Guess(pp.Lags(1), intercept=1.0, sd=1.0)  # which says 0.16
    try:
        calibration = pp.calibrate(law, history, switched(first), seed=0, band=CURVE)
    except pp.PulseError:
        return
    error = calibration.error_at(history.s)[:, :, 0, 0 if first else 1]
    assert (error >= stats.norm.sf(1.0)).all()


# --- a biased law -------------------------------------------------------------------------------


def biased_run(seed, bias):
    """Error of the law, its bound, half-width, miss of the centre: (n,) each, in the domain."""
    history, coef = linear_history(units=24, time=15, lags=2, seed=seed)
    fit, held_out = history.split(seed=seed)
    law = Shifted(pp.linear_lags(2).fit(fit, seed=seed), bias)
    calibration = pp.calibrate(law, held_out, W_FEATURES, seed=seed, band=LINEAR)
    s = held_out.s
    truth = 0.3 + law.summary(s) @ coef
    centre, half = band_values(calibration, s)
    columns = np.abs(truth - law.mean(s)), half, np.abs(truth - centre)
    use = calibration.inside_at(s)
    wrong, half, miss = (c[use][:, 0] for c in columns)
    return wrong, calibration.error_at(s)[use][:, 0, 0], half, miss


def test_the_bound_covers_a_biased_law_and_is_at_most_two_half_widths_too_large():
    runs, held = 40, 0
    for seed in range(runs):
        wrong, bound, half, miss = biased_run(seed, 0.3)
        assert wrong.mean() > 0.2
        held += bool((wrong <= bound).all())
        hit = miss <= half
        assert hit.any()
        assert (wrong <= bound)[hit].all()
        assert (bound <= wrong + 2 * half)[hit].all()
    assert held >= binomial_floor(runs, 0.95)


def test_the_half_width_alone_does_not_cover_a_biased_law():
    wrong, _, half, _ = biased_run(0, 0.3)
    assert (wrong > half).all()


# --- modes --------------------------------------------------------------------------------------


def test_split_refuses_units_the_law_has_seen_and_names_one(lagged):
    law, _, held_out = lagged
    seen = law.fit_units[3]
    mixed = replace(held_out, units=(seen, *held_out.units[1:]))
    with pytest.raises(pp.LeakageError, match=rf"'{seen}' \(and 0 more\) was fitted on"):
        pp.calibrate(law, mixed, BY_ACTION.features, seed=0)


def test_all_takes_the_laws_own_units_and_bounds_it_tighter_than_split():
    history, _ = linear_history(units=60, time=15, lags=3, seed=8)
    fit, held_out = history.split(seed=0)
    law = pp.linear_lags(3)
    half, whole = law.fit(fit, seed=0), law.fit(history, seed=0)
    split = pp.calibrate(half, held_out, W_FEATURES, seed=0, band=LINEAR)
    everything = pp.calibrate_all(whole, history, W_FEATURES, seed=0, band=LINEAR)
    assert (split.mode, everything.mode) == ("split", "all")
    assert everything.parts[0].band.units == 60
    s = history.s
    inside = split.inside_at(s) & everything.inside_at(s)
    mean = [c.error_at(s)[inside][:, 0, 0].mean() for c in (split, everything)]
    assert mean[1] < mean[0]
    assert everything.bound.mean() < split.bound.mean()


def test_all_covers_laws_fitted_on_the_same_rows():
    runs, held = 40, 0
    for seed in range(runs):
        history, coef = linear_history(units=20, time=12, lags=2, seed=100 + seed)
        law = pp.linear_lags(2).fit(history, seed=0)
        calibration = pp.calibrate_all(law, history, W_FEATURES, seed=seed, band=LINEAR)
        wrong = np.abs(0.3 + law.summary(history.s) @ coef - law.mean(history.s))[..., 0]
        use = calibration.inside
        held += bool((wrong <= calibration.error[:, :, 0, 0])[use].all())
    assert held >= binomial_floor(runs, 0.95)


def test_crossfit_bounds_each_law_with_the_other_half_and_averages(cross):
    history, (_, calibration) = cross
    one, two = history.split(seed=4)
    first, second = calibration.parts
    assert first.law.fit_units == one.units
    assert second.law.fit_units == two.units
    apart = [
        pp.calibrate(part.law, other, W_FEATURES, level=0.975, seed=4, band=LINEAR)
        for part, other in ((first, two), (second, one))
    ]
    s = history.s[:9]
    halves = [c.error_at(s) for c in apart]
    assert_allclose(calibration.error_at(s), (halves[0] + halves[1]) / 2, rtol=1e-12)
    assert_array_equal(calibration.inside_at(s), apart[0].inside_at(s) & apart[1].inside_at(s))
    assert first.band.level == second.band.level == pytest.approx(0.975)
    assert (calibration.level, calibration.mode) == (0.95, "crossfit")
    assert len(calibration.checks) == len(apart[0].checks) + len(apart[1].checks)


def test_the_crossfitted_law_is_the_half_and_half_mixture(cross):
    history, (law, calibration) = cross
    first, second = (part.law for part in calibration.parts)
    s = history.s[:3, :5]
    assert_allclose(law.mean(s), (first.mean(s) + second.mean(s)) / 2, rtol=1e-12)
    assert law.exact_mean
    assert set(law.fit_units) == set(history.units)
    assert law.law_id == calibration.law_id
    assert law.law_id not in (first.law_id, second.law_id)
    for size in (1, 2, 7):
        assert law.sample(s, size, rng=np.random.default_rng(0)).shape == (size, 3, 5, 1)
    size = 4000
    draws = law.sample(s, size, rng=np.random.default_rng(1))
    z = (draws.mean(0) - law.mean(s)) / (draws.std(0) / np.sqrt(size))
    assert np.nanmax(np.abs(z)) <= z_bound(z.size)
    middle = law.mean_draws(s, size, rng=np.random.default_rng(2)).mean(0)
    assert_allclose(middle, law.mean(s), atol=0.01)


@pytest.mark.parametrize("size", [2, 7, 100])
def test_half_of_the_draws_of_a_mixture_come_from_each_law(size):
    far = AverageLaw(Guess(pp.Lags(1)), Guess(pp.Lags(1), intercept=100.0))
    draws = far.sample(np.zeros((2, 3, 1)), size, rng=np.random.default_rng(0))
    assert_array_equal((draws > 50).sum(0), size // 2)
    middle = far.mean_draws(np.zeros((2, 3, 1)), size, rng=np.random.default_rng(0))
    assert_array_equal(middle, 50.0)


def test_the_crossfitted_bound_covers_the_averaged_law():
    runs, held = 20, 0
    for seed in range(runs):
        history, coef = linear_history(units=24, time=12, lags=2, seed=200 + seed)
        law, calibration = pp.calibrate_crossfit(
            pp.linear_lags(2), history, W_FEATURES, seed=seed, band=LINEAR
        )
        s = history.s
        wrong = np.abs(0.3 + law.summary(s) @ coef - law.mean(s))[..., 0]
        use = calibration.inside_at(s)
        held += bool((wrong <= calibration.error_at(s)[:, :, 0, 0])[use].all())
    assert held >= binomial_floor(runs, 0.95)


# --- checks -------------------------------------------------------------------------------------


def test_a_summary_that_drops_a_needed_lag_fails_and_says_what_to_do():
    history, coef = linear_history(units=40, time=20, lags=3, seed=1)
    assert abs(coef[2, 0]) > 0.5
    fit, held_out = history.split(seed=0)
    law = pp.linear_lags(2).fit(fit, seed=0)
    calibration = pp.calibrate(law, held_out, W_FEATURES, seed=0, band=LINEAR)
    found = check(calibration, "lack of fit")
    assert found.verdict == calibration.verdict == "fail"
    assert found.value <= 0.001
    assert "add it to the summary" in found.text


def test_the_current_s_alone_is_not_enough_for_a_mean_of_three(curve):
    _, calibration, held_out = curve
    assert check(calibration, "lack of fit").verdict != "fail"
    law = Guess(pp.Lags(1))
    short = pp.calibrate(law, held_out, MAIN.features, seed=0, band=CURVE)
    assert check(short, "lack of fit").verdict == "fail"


def test_enough_lags_pass_as_often_as_the_level_says():
    runs, passed = 30, 0
    for seed in range(runs):
        history, _ = linear_history(units=24, time=15, lags=2, seed=300 + seed)
        fit, held_out = history.split(seed=0)
        law = pp.linear_lags(3).fit(fit, seed=0)
        calibration = pp.calibrate(law, held_out, W_FEATURES, seed=seed, band=LINEAR)
        found = check(calibration, "lack of fit")
        assert found.verdict == (
            "fail" if found.value <= 0.001 else "warn" if found.value < 0.05 else "pass"
        )
        passed += found.verdict == "pass"
    assert passed >= binomial_floor(runs, 0.95)


def test_dependence_within_few_units_fails_and_many_units_are_clustered():
    history = one_input(units=8, rows=40, seed=2, curve=lambda x: x)
    rng = np.random.default_rng(0)
    moved = replace(history, w=history.w + rng.standard_normal((8, 1, 1)))
    calibration = pp.calibrate(
        Guess(pp.Lags(1)), moved, W_FEATURES, seed=0, band=pp.BandMethod("linear", noise="rows")
    )
    found = check(calibration, "dependence within units")
    assert found.verdict == "fail"
    assert "8 units" in found.text
    assert calibration.verdict == "fail"
    many = one_input(units=60, rows=10, seed=2, curve=lambda x: x)
    moved = replace(many, w=many.w + rng.standard_normal((60, 1, 1)))
    clustered = pp.calibrate(Guess(pp.Lags(1)), moved, W_FEATURES, seed=0, band=LINEAR)
    assert clustered.parts[0].band.noise == "units"
    assert check(clustered, "dependence within units").verdict == "pass"


RANKED = {"info": 0, "pass": 1, "warn": 2, "fail": 3}


def test_the_verdict_is_the_worst_of_the_checks(curve):
    _, calibration, _ = curve
    assert RANKED[calibration.verdict] == max(RANKED[c.verdict] for c in calibration.checks)
    bad = replace(calibration.checks[0], verdict="fail")
    assert replace(calibration, checks=(*calibration.checks, bad)).verdict == "fail"


# --- domain and unseen inputs -------------------------------------------------------------------


def test_beyond_the_domain_a_curve_is_widened_by_its_largest_slope():
    history = one_input(seed=7)
    law = Guess(pp.Lags(1))
    calibration = pp.calibrate(law, history, W_FEATURES, seed=0, band=CURVE)
    low, high = np.quantile(history.s, [0.01, 0.99])
    width = high - low
    for edge, side in ((low, -1), (high, 1)):
        steps = np.array([0.01, 0.1, 0.5, 2.0, 10.0]) * width
        s = (edge + side * steps)[None, :, None]
        assert not calibration.inside_at(s).any()
        half = band_values(calibration, s)[1][0, :, 0]
        at_edge = band_values(calibration, np.array([[[edge]]]))[1][0, 0, 0]
        growth = np.diff(np.concatenate([[at_edge], half])) / np.diff(np.concatenate([[0], steps]))
        assert_allclose(growth, growth[0], rtol=1e-8)
        assert growth[0] > 0
        error = calibration.error_at(s)[0, :, 0, 0]
        assert (np.diff(error) > 0).all()
    assert calibration.inside_at(np.linspace(low, high, 52)[None, 1:-1, None]).all()


def test_two_percent_of_held_out_contexts_lie_outside_and_are_counted():
    history = one_input(units=20, rows=50, seed=8)
    calibration = pp.calibrate(Guess(pp.Lags(1)), history, W_FEATURES, seed=0, band=CURVE)
    assert (~calibration.inside).sum() == 20
    assert calibration.outside_share == pytest.approx(0.02)
    half = pp.BandMethod("spline", domain=0.5, grid=50, draws=500)
    narrow = pp.calibrate(Guess(pp.Lags(1)), history, W_FEATURES, seed=0, band=half)
    assert narrow.outside_share == pytest.approx(0.5)


def test_far_contexts_of_a_linear_band_are_outside_and_bounded_for_every_x(lagged):
    _, calibration, held_out = lagged
    direction = held_out.s[:1, :25]
    sizes, factors = [], (1.0, 20.0, 200.0)
    for factor in factors:
        sizes.append(band_values(calibration, factor * direction)[1][0, -1, 0])
        assert calibration.inside_at(factor * direction)[0, -1] == (factor == 1.0)
    assert sizes[0] < sizes[1] < sizes[2]
    shape = calibration.parts[0].band.shape
    assert shape.beyond[0] > shape.critical[0]
    assert sizes[2] / sizes[1] == pytest.approx(10, rel=0.1)


def test_unseen_inputs_give_nan_where_w_matters_and_zero_elsewhere(curve):
    _, calibration, held_out = curve
    s = held_out.s[:1, :12].copy()
    s[0, 6] = np.nan
    error, inside = calibration.error_at(s)[0], calibration.inside_at(s)[0]
    blank = np.isin(np.arange(12), [0, 1, 6, 7, 8])
    assert_array_equal(np.isnan(error[..., 2]), np.repeat(blank[:, None], 2, 1))
    assert_array_equal(error[:, :, 0], 0.0)
    assert not inside[blank].any()
    assert np.isnan(calibration.reward_error(s)[0][blank]).all()


def test_where_phi_itself_needs_an_unseen_s_no_error_of_zero_is_claimed():
    features = pp.Features(lambda s, w, a: (s[:, :1] * w)[:, :1], 2, ("SW",))
    history = one_input(seed=9)
    calibration = pp.calibrate(Guess(pp.Lags(1)), history, features, seed=0, band=CURVE)
    s = history.s[:1, :5].copy()
    s[0, 2] = np.nan
    error = calibration.error_at(s)[0, :, 0, 0]
    assert (error[[0, 1, 3, 4]] > 0).all()
    assert np.isnan(error[2])


def test_rows_whose_current_s_is_not_seen_are_left_out_of_the_band():
    history = one_input(units=20, rows=20, seed=10)
    s = history.s.copy()
    s[:, 10] = np.nan
    calibration = pp.calibrate(
        Guess(pp.Lags(1, start=1)), replace(history, s=s), W_FEATURES, seed=0, band=LINEAR
    )
    # rows 1 .. 19 have a lag, row 10 has no S_t and row 11 no lag
    assert calibration.parts[0].band.rows == 20 * 17


def test_an_archive_that_never_sees_s_beside_its_lag_is_refused():
    history = one_input(units=20, rows=20, seed=10)
    s = history.s.copy()
    s[:, 1::2] = np.nan
    with pytest.raises(pp.DataError, match="S_t is not seen"):
        pp.calibrate(Guess(pp.Lags(1, start=1)), replace(history, s=s), W_FEATURES, seed=0)


# --- a band handed over -------------------------------------------------------------------------


def test_a_band_handed_over_is_used_as_it_is(curve):
    law, calibration, held_out = curve
    band = calibration.parts[0].band
    again = pp.calibrate(law, held_out, MAIN.features, seed=9, band=band)
    assert again.parts[0].band is band
    assert_array_equal(again.error, calibration.error)
    assert again.verdict == "info"
    assert "nothing was checked" in again.checks[0].text
    assert len(repr(again).splitlines()) <= 12
    lower = pp.calibrate(law, held_out, MAIN.features, seed=9, level=0.9, band=band)
    assert lower.parts[0].band.level == 0.95


@pytest.mark.parametrize(
    ("change", "family", "words"),
    [
        ({"x_names": ("s.lag0",)}, pp.DataError, r"given \('s.lag0',\), but .* \('s.mean3',\)"),
        ({"y_names": ("v",)}, pp.DataError, r"the band is for \('v',\)"),
        ({"level": 0.9}, pp.SettingError, "made at level 0.9, 0.95 is needed here"),
    ],
)
def test_a_band_for_something_else_is_refused(curve, change, family, words):
    law, calibration, held_out = curve
    band = replace(calibration.parts[0].band, **change)
    with pytest.raises(family, match=words):
        pp.calibrate(law, held_out, MAIN.features, seed=0, band=band)


def test_a_band_handed_over_must_leave_room_for_monte_carlo_error(bent):
    law, calibration, held_out = bent
    band = calibration.parts[0].band
    again = pp.calibrate(law, held_out, BENT, seed=5, band=band)
    assert_array_equal(again.error, calibration.error)
    with pytest.raises(pp.SettingError, match=r"made at level 0\.95,"):
        pp.calibrate(law, held_out, BENT, seed=5, band=replace(band, level=0.95))


# --- from features to rewards -------------------------------------------------------------------


def test_reward_error_is_the_bound_on_theta_times_the_norm_of_the_errors(lagged):
    _, calibration, held_out = lagged
    s = held_out.s[:3, :25]
    error = calibration.error_at(s)
    norm = np.sqrt(error[..., 2] ** 2 + error[..., 3] ** 2)
    assert_allclose(calibration.reward_error(s), norm, rtol=1e-12)
    assert_allclose(calibration.reward_error(s, theta_bound=2.5), 2.5 * norm, rtol=1e-12)


def test_coordinate_bounds_can_only_help(lagged):
    _, calibration, held_out = lagged
    s = held_out.s[:3, :40]
    error = calibration.error_at(s)[:, 18:]
    plain = calibration.reward_error(s)[:, 18:]
    tight = calibration.reward_error(s, theta_bounds=[9, 9, 0.1, 0.2])[:, 18:]
    assert_allclose(tight, 0.1 * error[..., 2] + 0.2 * error[..., 3], rtol=1e-12)
    loose = calibration.reward_error(s, theta_bounds=[9, 9, 9, 9])[:, 18:]
    assert_allclose(loose, plain, rtol=1e-12)
    mixed = calibration.reward_error(s, theta_bounds=[0, 0, 1.2, 0])[:, 18:]
    assert_allclose(mixed[:, :, 0], plain[:, :, 0], rtol=1e-12)  # E1 = E, below 1.2 E
    assert_allclose(mixed[:, :, 1], 1.2 * error[:, :, 1, 2], rtol=1e-12)  # below sqrt(2) E


def test_a_coordinate_without_a_bound_is_refused_or_does_not_spoil_the_others(lagged):
    _, calibration, held_out = lagged
    s = held_out.s[:2, :25]
    try:
        found = calibration.reward_error(s, theta_bounds=[np.inf, np.inf, 0.1, 0.1])[:, 18:]
    except pp.SettingError:
        return
    assert_allclose(found, 0.1 * calibration.error_at(s)[:, 18:, :, 2:].sum(-1), rtol=1e-12)


@pytest.mark.parametrize("bounds", [[1.0, 1.0], 1.0, [1, 1, 1, -1], [1, 1, 1, np.nan]])
def test_coordinate_bounds_of_a_wrong_shape_or_sign_are_refused(lagged, bounds):
    with pytest.raises(pp.SettingError, match="4 numbers >= 0, one per feature"):
        lagged[1].reward_error(lagged[2].s[:1], theta_bounds=bounds)


@pytest.mark.parametrize("size", [0.0, -1.0, np.nan, np.inf, "big"])
def test_a_theta_bound_that_is_not_a_positive_number_is_refused(lagged, size):
    with pytest.raises(pp.SettingError, match="theta_bound"):
        lagged[1].reward_error(lagged[2].s[:1], theta_bound=size)


def test_the_radius_is_the_corrected_one(lagged):
    calibration = lagged[1]
    assert calibration.radius(sigma=0.2, delta=0.1, theta_bound=2.0) == pp.corrected(
        sigma=0.2, delta=0.1, theta_bound=2.0
    )
    assert calibration.radius(sigma=0.2) == pp.corrected(sigma=0.2)
    with pytest.raises(pp.SettingError, match="delta"):
        calibration.radius(sigma=0.2, delta=0.0)


# --- determinism --------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_arrays(bent, cross):
    law, calibration, held_out = bent
    again = pp.calibrate(law, held_out, BENT, seed=5, band=CURVE)
    assert_array_equal(again.error, calibration.error)
    assert again.checks == calibration.checks
    other = pp.calibrate(law, held_out, BENT, seed=6, band=CURVE)
    assert (other.error != calibration.error).any()
    history, (_, crossed) = cross
    twice = pp.calibrate_crossfit(pp.linear_lags(2), history, W_FEATURES, seed=4, band=LINEAR)
    assert_array_equal(twice.calibration.error, crossed.error)
    assert twice.law.law_id == crossed.law_id


def test_asking_twice_gives_the_same_bound(bent):
    _, calibration, held_out = bent
    s = held_out.s[:2]
    assert_array_equal(calibration.error_at(s), calibration.error_at(s))


@pytest.mark.parametrize(("kind", "grid"), [("linear", 400), ("spline", 100)])
def test_the_order_of_units_does_not_matter_beyond_simulation(kind, grid):
    history = one_input(units=20, rows=20, seed=11, curve=lambda x: x)
    law, draws = Guess(pp.Lags(1)), 4000
    method = pp.BandMethod(kind, draws=draws, grid=grid, critical="simulate")
    one = pp.calibrate(law, history, W_FEATURES, seed=0, band=method)
    mixed = history.take(np.random.default_rng(0).permutation(20))
    two = pp.calibrate(law, mixed, W_FEATURES, seed=1, band=method)
    s = history.s
    (m1, r1), (m2, r2) = band_values(one, s), band_values(two, s)
    assert_allclose(m1, m2, rtol=1e-8, atol=1e-10)
    c = one.parts[0].band.critical[0]
    # sd of a simulated 95 % point, the hazard of a Gaussian supremum there being about c
    sd = np.sqrt(0.95 / 0.05 / draws) / c
    assert_allclose(r1, r2, rtol=1.2 * z_bound() * np.sqrt(2) * sd / c)


def test_a_calibration_leaves_its_inputs_alone(lagged):
    law, _, held_out = lagged
    before = held_out.s.copy(), law.law_id
    pp.calibrate(law, held_out, BY_ACTION.features, seed=1, band=LINEAR)
    with pytest.raises(pp.PulseError):
        pp.calibrate(law, held_out, BY_ACTION.features, seed=1, band="spline")
    assert_array_equal(held_out.s, before[0])
    assert law.law_id == before[1]
    again = pp.calibrate(law, held_out, BY_ACTION.features, seed=0, band=LINEAR)
    assert_array_equal(again.error, lagged[1].error)


# --- bad input ----------------------------------------------------------------------------------


@pytest.mark.parametrize("level", [0.0, 1.0, 95, -0.5, np.nan, "high", True])
@pytest.mark.parametrize("make", [pp.calibrate, pp.calibrate_all, pp.calibrate_crossfit])
def test_a_level_outside_0_and_1_is_refused(lagged, level, make):
    law, _, held_out = lagged
    law = law.law if make is pp.calibrate_crossfit else law
    with pytest.raises(pp.SettingError, match="level must lie between 0 and 1"):
        make(law, held_out, BY_ACTION.features, seed=0, level=level)


@pytest.mark.parametrize("make", [pp.calibrate, pp.calibrate_all])
def test_what_is_not_a_fitted_law_a_history_or_features_is_refused(lagged, make):
    law, _, held_out = lagged
    with pytest.raises(pp.ModelError, match=r"Law came; fit it first"):
        make(pp.linear_lags(19), held_out, BY_ACTION.features, seed=0)
    with pytest.raises(pp.DataError, match="a History was expected, DataFrame came"):
        make(law, held_out.to_frame(), BY_ACTION.features, seed=0)
    with pytest.raises(pp.FeatureError, match="function came"):
        make(law, held_out, BY_ACTION.features.fn, seed=0)


@pytest.mark.parametrize("change", [{"s_names": ("t",)}, {"w_names": ("v",)}])
def test_other_columns_than_the_law_was_fitted_on_are_refused(lagged, change):
    law, _, held_out = lagged
    name = next(iter(change.values()))[0]
    with pytest.raises(pp.DataError, match=rf"fitted on columns .* have \('{name}',\)"):
        pp.calibrate(law, replace(held_out, **change), BY_ACTION.features, seed=0)


def test_the_order_of_columns_must_agree():
    history, _ = linear_history(units=30, time=10, lags=1, w_dim=2, seed=0)
    swapped = replace(history, w_names=("w1", "w0"))
    law = pp.linear_lags(1).fit(history.take(range(15)), seed=0)
    with pytest.raises(pp.DataError, match="name and order must agree"):
        pp.calibrate(law, swapped.take(range(15, 30)), W_FEATURES, seed=0)


@pytest.mark.parametrize(
    ("band", "family", "words"),
    [
        ("splin", pp.SettingError, "did you mean 'spline'"),
        ("bonkers", pp.SettingError, "'bonkers' is not known; there is 'auto'"),
        (3, pp.SettingError, "a name or a BandMethod, but 3 came"),
        (None, pp.SettingError, "a name or a BandMethod, but None came"),
        ("spline", pp.DataError, "'spline' is for one input, the summary has 19"),
        ("local_polynomial", pp.DataError, "is for one input"),
        (pp.BandMethod("spline", critical="scheffe"), pp.PulseError, "one input"),
    ],
)
def test_a_band_that_cannot_be_made_is_refused(lagged, band, family, words):
    law, _, held_out = lagged
    with pytest.raises(family, match=words):
        pp.calibrate(law, held_out, BY_ACTION.features, seed=0, band=band)


def test_too_few_units_are_refused_with_their_number(curve, lagged):
    law, _, held_out = curve
    with pytest.raises(pp.DataError, match=r"at least 5 held-out units .* 3 came"):
        pp.calibrate(law, held_out.take([0, 1, 2]), MAIN.features, seed=0)
    with pytest.raises(pp.DataError, match=r"50 held-out rows .* at least 60"):
        pp.calibrate(law, held_out.take([0, 1]), MAIN.features, seed=0)
    law, _, held_out = lagged
    with pytest.raises(pp.DataError, match="at least 60 held-out rows for 19 inputs, 50 came"):
        pp.calibrate(law, held_out.take([0, 1]), BY_ACTION.features, seed=0)


@pytest.mark.parametrize("band", [CURVE, LINEAR])
def test_a_summary_that_does_not_vary_is_refused_by_name(band):
    history = one_input(units=20, rows=10)
    flat = replace(history, s=np.full_like(history.s, 3.0))
    with pytest.raises(pp.DataError, match=r"'s\.lag0' is"):
        pp.calibrate(Guess(pp.Lags(1)), flat, W_FEATURES, seed=0, band=band)


@pytest.mark.parametrize("value", [0.0, 1.0])
@pytest.mark.parametrize("band", [CURVE, LINEAR])
def test_a_w_that_never_changes_is_refused(band, value):
    history = one_input(units=20, rows=10)
    flat = replace(history, w=np.full_like(history.w, value))
    with pytest.raises(pp.DataError, match="constant"):
        pp.calibrate(Guess(pp.Lags(1)), flat, W_FEATURES, seed=0, band=band)


def test_features_that_are_not_finite_at_held_out_rows_are_refused(curve):
    law, _, held_out = curve
    broken = pp.Features(
        lambda s, w, a: np.column_stack([w[:, 0], np.where(s[:, 0] > 0.3, np.nan, a)]), 2,
        ("W", "odd"),
    )  # fmt: skip
    with pytest.raises(pp.FeatureError, match="'odd' is nan for action 0"):
        pp.calibrate(law, held_out, broken, seed=0)


def test_features_that_are_not_finite_where_the_law_draws_w_are_refused():
    history = one_input(seed=12)
    history = replace(history, w=history.w + 5)
    log = pp.Features(
        lambda s, w, a: np.log(w, where=w > 0, out=np.full_like(w, np.nan)), 2, ("l",)
    )
    with pytest.raises(pp.FeatureError, match="'l' is nan"):
        pp.calibrate(Guess(pp.Lags(1), intercept=0.0), history, log, seed=0, band=CURVE)


def test_features_without_w_leave_nothing_to_calibrate(curve):
    law, _, held_out = curve
    only_s = pp.Features(lambda s, w, a: np.column_stack([s[:, 0] * a, s[:, 0]]), 2, ("Sa", "S"))
    with pytest.raises(pp.FeatureError, match="nothing to calibrate"):
        pp.calibrate(law, held_out, only_s, seed=0)


def test_features_that_look_at_other_rows_are_refused(curve):
    law, _, held_out = curve
    ranked = pp.Features(lambda s, w, a: w - w.mean(0), 2, ("centred",))
    with pytest.raises(pp.FeatureError, match="rows one by one"):
        pp.calibrate(law, held_out, ranked, seed=0)


@pytest.mark.parametrize("seed", [-1, 1.5, None, True])
def test_a_seed_that_is_not_a_whole_number_is_refused(lagged, seed):
    law, _, held_out = lagged
    with pytest.raises(pp.SettingError, match="seed"):
        pp.calibrate(law, held_out, BY_ACTION.features, seed=seed, band=LINEAR)


def test_crossfit_needs_two_units(lagged):
    law, _, held_out = lagged
    with pytest.raises(pp.DataError, match="at least 2 units"):
        pp.calibrate_crossfit(law.law, held_out.take([0]), BY_ACTION.features, seed=0)


def test_one_row_per_unit_is_enough_if_there_are_many_units():
    history, _ = linear_history(units=200, time=1, lags=1, seed=3)
    fit, held_out = history.split(seed=0)
    law = pp.linear_lags(1).fit(fit, seed=0)
    calibration = pp.calibrate(law, held_out, W_FEATURES, seed=0, band=LINEAR)
    assert (calibration.parts[0].band.rows, calibration.parts[0].band.units) == (100, 100)
    assert (calibration.error[:, :, 0, 0] > 0).all()
    assert check(calibration, "dependence within units").verdict == "pass"
    with pytest.raises(pp.DataError, match="at least 24 held-out rows for 1 inputs, 20 came"):
        pp.calibrate(law, held_out.take(range(20)), W_FEATURES, seed=0, band=LINEAR)
    with pytest.raises(pp.DataError, match="No complete row is left"):
        pp.calibrate(Guess(pp.Lags(2), names=(("s",), ("w0",))), held_out, W_FEATURES, seed=0)


# --- what is shown ------------------------------------------------------------------------------


@pytest.mark.parametrize("which", ["curve", "lagged", "bent"])
def test_the_text_is_short_and_begins_with_the_verdict(which, request):
    calibration = request.getfixturevalue(which)[1]
    lines = repr(calibration).splitlines()
    assert len(lines) <= 12
    assert lines[0].startswith(f"Calibration: {calibration.verdict}")
    assert "95%" in lines[0].replace(" %", "%")
    page = calibration._repr_html_()
    assert "<table" in page
    assert page.startswith("<pre>")


def test_the_worst_check_is_always_among_those_shown(curve):
    calibration = curve[1]
    bad = replace(calibration.checks[0], name="odd one", verdict="fail", text="Look here.")
    many = (*calibration.checks, *calibration.checks, bad)
    text = repr(replace(calibration, checks=many))
    assert "Look here." in text
    assert len(text.splitlines()) <= 12


@pytest.mark.parametrize("level", [0.975, 0.995, 0.999])
def test_a_level_is_not_rounded_to_a_larger_promise(curve, level):
    head = repr(replace(curve[1], level=level)).splitlines()[0]
    shown = float(head.split(";")[1].split("%")[0])
    assert shown <= 100 * level + 1e-9


def test_the_table_sums_up_the_bound_inside_the_domain(bent, cross):
    _, calibration, held_out = bent
    table = calibration.table
    part = calibration.parts[0]
    assert list(table.index) == list(part.band.y_names)
    inside = calibration.inside
    half = band_values(calibration, held_out.s)[1]
    assert_allclose(table["half-width mean"], half[inside].mean(0), rtol=1e-12)
    error = calibration.error[:, :, 1, [1, 3]][inside]
    assert_allclose(table["bound mean"], error.mean(0), rtol=1e-12)
    assert_allclose(table["bound sup"], error.max(0), rtol=1e-12)
    assert_allclose(table["bound^2 mean"], (error**2).mean(0), rtol=1e-12)
    assert len(cross[1].calibration.table) == 2
    assert list(calibration.checks_table.index) == [c.name for c in calibration.checks]


def test_noise_sd_is_that_of_w_around_the_reference_fit(lagged, cross):
    calibration = lagged[1]
    assert calibration.noise_sd[0] == pytest.approx([0.1], rel=0.15)
    assert len(cross[1].calibration.noise_sd) == 2
