from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure
from numpy.testing import assert_allclose, assert_array_equal
from scipy import optimize, stats

import pulse_pyro as pp
from pulse_pyro.calibration import study as study_module
from pulse_pyro.plots import band_plot, budget_plot, gamma_split
from tests.stat import binomial_floor
from tests.worlds import linear_history

LINEAR = pp.BandMethod("linear", draws=1000)
CURVE = pp.BandMethod("spline", grid=100, draws=1000)
W_FEATURES = pp.Features(lambda s, w, a: np.column_stack([w[:, 0], w[:, 0] * a]), 2, ("W", "Wa"))
BENT = pp.Features(
    lambda s, w, a: np.column_stack([w[:, 0] ** 2, a * np.exp(w[:, 0])]), 2, ("q", "e")
)
POSITIVE = st.floats(1e-6, 50.0)


def sample(x, y):
    x, y = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    x = x[:, None] if x.ndim == 1 else x
    y = y[:, None] if y.ndim == 1 else y
    names = tuple(f"x{i}" for i in range(x.shape[1])), tuple(f"y{j}" for j in range(y.shape[1]))
    return pp.Sample(x, y, np.arange(len(x)) // 2, *names)


def split_archive(lags=2, units=30, time=15, seed=0):
    history, coef = linear_history(units=units, time=time, lags=lags, seed=seed)
    fit, held_out = history.split(seed=0)
    return pp.linear_lags(lags).fit(fit, seed=0), held_out, coef


@pytest.fixture(scope="module")
def made():
    """Calibrations by name: one input, several inputs, not affine, in all three modes."""
    law, held_out, _ = split_archive(lags=1)
    many, others, _ = split_archive(lags=4)
    history, _ = linear_history(units=30, time=15, lags=2, seed=1)
    both = pp.linear_lags(2).fit(history, seed=0)
    return {
        "curve": pp.calibrate(law, held_out, W_FEATURES, seed=0, band=CURVE),
        "linear": pp.calibrate(many, others, W_FEATURES, seed=0, band=LINEAR),
        "bent": pp.calibrate(law, held_out, BENT, seed=0, band=CURVE),
        "all": pp.calibrate_all(both, history, W_FEATURES, seed=0, band=LINEAR),
        "crossfit": pp.calibrate_crossfit(
            pp.linear_lags(2), history, W_FEATURES, seed=0, band=LINEAR
        ).calibration,
    }


@pytest.fixture(scope="module")
def short():
    """A calibration whose summary drops a needed lag."""
    history, _ = linear_history(units=40, time=20, lags=3, seed=1)
    fit, held_out = history.split(seed=0)
    return pp.calibrate(
        pp.linear_lags(1).fit(fit, seed=0), held_out, W_FEATURES, seed=0, band=CURVE
    )


# --- the divergence route -----------------------------------------------------------------------


def test_small_divergences_use_pinsker_and_large_ones_bretagnolle_and_huber():
    assert pp.kl_error(0.0) == 0.0
    assert pp.kl_error(0.02) == pytest.approx(2 * np.sqrt(0.01))
    assert pp.kl_error(0.02, width=1.0) == pytest.approx(0.1)
    assert pp.kl_error(8.0) == pytest.approx(2 * np.sqrt(1 - np.exp(-8.0)))
    assert pp.kl_error(np.inf) == 2.0
    assert pp.kl_error(1e-18) == pytest.approx(2 * np.sqrt(0.5e-18))


def test_the_two_inequalities_cross_where_half_the_divergence_meets_1_minus_exp():
    at = optimize.brentq(lambda k: k / 2 + np.expm1(-k), 0.5, 3.0)
    assert at == pytest.approx(1.5936, abs=1e-4)
    below, above = at * 0.99, at * 1.01
    assert pp.kl_error(below) == pytest.approx(2 * np.sqrt(below / 2))
    assert pp.kl_error(below) < 2 * np.sqrt(-np.expm1(-below))
    assert pp.kl_error(above) == pytest.approx(2 * np.sqrt(-np.expm1(-above)))
    assert pp.kl_error(above) < 2 * np.sqrt(above / 2)


@given(st.floats(-100, 100), st.floats(0.01, 10))
def test_the_exact_variation_of_normals_is_below_both_inequalities(gap, sd):
    kl, tv = pp.gaussian_kl(gap, sd), pp.gaussian_tv(gap, sd)
    assert 0 <= tv <= 1
    assert tv <= np.sqrt(kl / 2) * (1 + 1e-12) + 1e-15
    assert tv <= pp.kl_error(kl, width=1.0) * (1 + 1e-12) + 1e-15


def test_divergence_and_variation_of_normals_by_hand():
    assert pp.gaussian_kl(3.0, 2.0) == pytest.approx(9 / 8)
    assert pp.gaussian_tv(1.0, 1.0) == pytest.approx(0.3829249225)
    assert_allclose(
        pp.gaussian_tv(np.array([-2.0, 0.0, 2.0]), 1.0), [0.6826894921, 0, 0.6826894921]
    )
    x = np.linspace(-12, 12, 200_001)
    density = np.abs(stats.norm.pdf(x, 0.7, 1.3) - stats.norm.pdf(x, -0.4, 1.3))
    assert pp.gaussian_tv(1.1, 1.3) == pytest.approx(np.trapezoid(density, x) / 2, abs=1e-8)


def test_the_counterexample_to_the_printed_lemma_is_bounded_with_the_factor_2():
    # P = N(.05, 1), Q = N(-.05, 1), g = sign
    difference = 2 * (stats.norm.cdf(0.05) - stats.norm.cdf(-0.05))
    kl = pp.gaussian_kl(0.1, 1.0)
    root = np.sqrt(kl / 2)
    assert difference == pytest.approx(0.0798, abs=5e-5)
    assert difference == pytest.approx(2 * float(pp.gaussian_tv(0.1, 1.0)))
    assert pp.kl_error(kl) == pytest.approx(2 * root) == pytest.approx(0.1)
    assert root < difference <= pp.kl_error(kl)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: pp.kl_error(-0.1), ">= 0"),
        (lambda: pp.kl_error(np.nan), ">= 0"),
        (lambda: pp.kl_error(0.1, width=0.0), "width"),
        (lambda: pp.gaussian_kl(1.0, 0.0), "sd"),
        (lambda: pp.gaussian_tv(1.0, -1.0), "sd"),
        (lambda: pp.parametric_rate(0, 3), "rows"),
        (lambda: pp.parametric_rate(10, 0), "inputs"),
        (lambda: pp.holder_rate(1, 2.0), "rows"),
        (lambda: pp.holder_rate(100, 0.0), "smoothness"),
        (lambda: pp.holder_rate(100, 1.0, 0), "inputs"),
    ],
)
def test_reference_values_refuse_what_makes_no_sense(call, words):
    with pytest.raises(pp.SettingError, match=words):
        call()


# --- rates --------------------------------------------------------------------------------------


def test_the_parametric_rate_is_halved_by_four_times_the_rows():
    assert pp.parametric_rate(100, 4) == pytest.approx(0.2)
    assert pp.parametric_rate(400, 4) == pytest.approx(0.1)
    assert pp.parametric_rate(100, 16) == pytest.approx(0.4)


@pytest.mark.parametrize(("smooth", "inputs", "power"), [(2, 1, 0.4), (1, 1, 1 / 3), (2, 4, 0.25)])
def test_the_hoelder_rate_falls_with_the_right_power_of_log_n_over_n(smooth, inputs, power):
    small, large = 1_000, 64_000
    ratio = pp.holder_rate(large, smooth, inputs) / pp.holder_rate(small, smooth, inputs)
    assert ratio == pytest.approx((np.log(large) / np.log(small) / 64) ** power)
    assert pp.holder_rate(small, smooth, inputs) == pytest.approx((np.log(1000) / 1000) ** power)


def test_the_reference_table_sets_the_bound_beside_its_kl_version_and_rates(made):
    calibration = made["linear"]
    line = pp.references(calibration).loc["w0"]
    error = calibration.error[:, :, 0, 0][calibration.inside]
    sd = calibration.noise_sd[0][0]
    assert line["bound mean"] == pytest.approx(error.mean())
    assert line["noise sd"] == sd
    assert (error / sd < 2).all()
    kl = np.minimum(error / sd, 2 * np.sqrt(-np.expm1(-(error**2) / (2 * sd**2))))
    assert line["KL route"] == pytest.approx(kl.mean())
    assert line["KL route"] > line["bound mean"]
    n = calibration.parts[0].band.rows
    assert line["parametric rate"] == pytest.approx(sd * np.sqrt(5 / n))
    assert line["Hoelder rate (smoothness 2)"] == pytest.approx(sd * (np.log(n) / n) ** 0.25)
    assert line["Hoelder rate (smoothness 1)"] == pytest.approx(sd * (np.log(n) / n) ** (1 / 6))


def test_the_reference_table_has_a_line_per_target_and_part(made):
    assert list(pp.references(made["bent"]).index) == list(made["bent"].parts[0].band.y_names)
    assert len(pp.references(made["bent"])) == 2
    assert len(pp.references(made["crossfit"])) == 2


# --- the band of a ridge law --------------------------------------------------------------------


def test_the_ridge_band_by_hand():
    # (1, x) rows are orthogonal: G = (lambda + 4) I
    four = sample([-1, 1, -1, 1], [0, 2, 0, 2])
    band = pp.ridge_band(four, level=0.95, noise_sd=0.5, ridge=1.0, size=3.0)
    centre, half, inside = band.at(np.array([2.0, 0.0, 100.0]))
    assert_allclose(centre[:, 0], [0.8 + 1.6, 0.8, 80.8])
    c = 3.0 + 0.5 * np.sqrt(np.log(25) + 2 * np.log(20))
    assert_allclose(half[:, 0], c * np.sqrt(np.array([5, 1, 10_001]) / 5))
    assert inside.all()
    assert (band.level, band.rows, band.units) == (0.95, 4, 2)
    heavy = pp.ridge_band(four, level=0.9, noise_sd=0.5, ridge=4.0)
    c = 2.0 + 0.5 * np.sqrt(np.log(4) + 2 * np.log(10))
    assert_allclose(heavy.at(np.array([2.0])).half, c * np.sqrt(5 / 8))
    assert_allclose(heavy.at(np.array([2.0])).centre, 0.5 + 1.0)


@settings(max_examples=25)
@given(st.integers(0, 2**32 - 1))
def test_the_ridge_band_follows_the_self_normalised_formula(seed):
    rng = np.random.default_rng(seed)
    n, p, q = rng.integers(3, 30), rng.integers(1, 5), rng.integers(1, 4)
    ridge, sd, size, level = *rng.uniform(0.1, 3, 3), rng.uniform(0.5, 0.99)
    rows = sample(rng.standard_normal((n, p)), rng.standard_normal((n, q)))
    band = pp.ridge_band(rows, level=level, noise_sd=sd, ridge=ridge, size=size)
    design = np.column_stack([np.ones(n), rows.x])
    padded = np.vstack([design, np.sqrt(ridge) * np.eye(p + 1)])
    coef = np.linalg.lstsq(padded, np.vstack([rows.y, np.zeros((p + 1, q))]), rcond=None)[0]
    gram = padded.T @ padded
    at = rng.standard_normal((7, p)) * 3
    b = np.column_stack([np.ones(7), at])
    centre, half, _ = band.at(at)
    assert_allclose(centre, b @ coef, rtol=1e-7, atol=1e-9)
    logdet = np.log(np.linalg.eigvalsh(gram) / ridge).sum()
    c = np.sqrt(ridge) * size + sd * np.sqrt(logdet + 2 * np.log(q / (1 - level)))
    norm = np.sqrt(np.einsum("ni,ni->n", b, np.linalg.solve(gram, b.T).T))
    assert_allclose(half, np.repeat((c * norm)[:, None], q, 1), rtol=1e-7)


def ridge_hits(noise_sd, runs=200, level=0.9):
    """Runs in which the ridge band holds a line, near the data and far from them."""
    rng = np.random.default_rng(0)
    true, held = np.array([0.6, -0.8]), 0
    at = np.concatenate([np.linspace(-3, 3, 61), [-1e4, 1e4]])
    for _ in range(runs):
        x = rng.uniform(-1, 1, 12)
        y = true[0] + true[1] * x + rng.standard_normal(12)
        band = pp.ridge_band(sample(x, y), level=level, noise_sd=noise_sd, ridge=0.5)
        centre, half, _ = band.at(at)
        held += bool((np.abs(centre[:, 0] - true[0] - true[1] * at) <= half[:, 0]).all())
    return held


def test_the_ridge_band_covers_everywhere_at_once_and_not_with_too_small_a_noise():
    assert ridge_hits(1.0) >= binomial_floor(200, 0.9)
    assert ridge_hits(0.01) < binomial_floor(200, 0.9)


def test_the_ridge_band_grows_away_from_its_rows():
    rng = np.random.default_rng(1)
    band = pp.ridge_band(
        sample(rng.uniform(2, 4, 50), rng.standard_normal(50)), level=0.95, noise_sd=1.0
    )
    for side in (-1, 1):
        half = band.at(3.0 + side * np.array([0.5, 1.5, 5.0, 50.0, 500.0])).half[:, 0]
        assert (np.diff(half) > 0).all()
        assert half[-1] / half[-2] == pytest.approx(10, rel=0.1)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"level": 1.0}, "level"),
        ({"noise_sd": 0.0}, "noise_sd"),
        ({"ridge": 0.0}, "ridge"),
        ({"size": -1.0}, "size"),
        ({"noise_sd": np.nan}, "noise_sd"),
    ],
)
def test_the_ridge_band_refuses_settings_that_make_no_sense(change, words):
    settings = {"level": 0.95, "noise_sd": 1.0} | change
    with pytest.raises(pp.SettingError, match=words):
        pp.ridge_band(sample([0, 1, 2], [0, 1, 1]), **settings)


def test_a_least_squares_law_that_provides_its_own_band_differs_from_it_by_the_ridge_alone():
    history, coef = linear_history(units=30, time=10, lags=2, seed=3)
    law = pp.linear_lags(2, prior=pp.Flat()).fit(history, seed=0)
    rows = history.rows(law.summary)
    own = pp.Sample(rows.x, rows.w, rows.unit, rows.x_names, history.w_names)
    design = np.column_stack([np.ones(len(rows.x)), rows.x])
    least = np.linalg.lstsq(design, rows.w, rcond=None)[0]
    for ridge in (1e-6, 1.0):
        band = pp.ridge_band(own, level=0.95, noise_sd=0.1, ridge=ridge, size=5.0)
        calibration = pp.calibrate_all(law, history, W_FEATURES, seed=0, band=band)
        found = calibration.parts[0].budget(history.s)
        gap = np.abs(found.centre - found.predicted)[:, 1:, 0].ravel()
        gram = design.T @ design + ridge * np.eye(3)
        shrunk = ridge * np.abs(design @ np.linalg.solve(gram, least))[:, 0]
        # the law's stored draws have the least-squares mean up to their own number
        assert_allclose(gap, shrunk, atol=5 * 0.1 / np.sqrt(len(rows.x)))
        assert gap.max() <= found.half[:, 1:].max()
        wrong = np.abs(0.3 + rows.x @ coef - law.mean(history.s)[:, 1:].reshape(-1, 1))[:, 0]
        assert (wrong <= calibration.error_at(history.s)[:, 1:, 0, 0].ravel()).all()
        assert calibration.outside_share == 0.0


# --- the parts of the radius --------------------------------------------------------------------


RADII = {
    "corrected": pp.corrected(sigma=0.3, theta_bound=1.5),
    "paper": pp.paper(noise_sd=0.05, feature_bound=2.0),
    "constant": pp.constant(2.0),
}


def path(rounds=25, dim=3, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((rounds, dim)), rng.uniform(0, 0.2, rounds)


@pytest.mark.parametrize("ridge", [0.5, 1.0, 4.0])
@pytest.mark.parametrize("name", list(RADII))
def test_the_parts_of_the_radius_add_up_to_it_in_every_round(name, ridge):
    x, error = path()
    parts = RADII[name].split(x, error, ridge)
    assert parts.shape == (25, 3)
    assert (parts >= 0).all()
    for t in range(1, 26):
        sigma = ridge * np.eye(3) + x[:t].T @ x[:t]
        before = [ridge * np.eye(3) + x[:k].T @ x[:k] for k in range(t)]
        u2 = np.array([x[k] @ np.linalg.solve(before[k], x[k]) for k in range(t)])
        whole = RADII[name].at(
            dim=3, ridge=ridge, rounds=t, logdet=np.linalg.slogdet(sigma / ridge)[1],
            sum_e2=float((error[:t] ** 2).sum()),
            sum_tri=float((error[:t] * np.sqrt(u2 / (1 + u2))).sum()),
        )  # fmt: skip
        assert parts[t - 1].sum() == pytest.approx(whole, rel=1e-10)


def test_the_corrected_radius_splits_into_ridge_noise_and_errors_by_hand():
    x, error = np.array([[1.0, 0.0], [0.0, 2.0]]), np.array([0.3, 0.4])
    parts = pp.corrected(sigma=0.5, delta=0.1, theta_bound=2.0).split(x, error, 1.0)
    assert_allclose(parts[:, 0], 2.0)
    logs = np.log([2.0, 2.0 * 5.0]) + 2 * np.log(10)
    assert_allclose(parts[:, 1], 0.5 * np.sqrt(logs))
    triangle = 0.3 * np.sqrt(1 / 2) + 0.4 * np.sqrt(4 / 5)
    assert_allclose(parts[:, 2], [0.3 * np.sqrt(0.5), min(0.5, triangle)])


@pytest.mark.parametrize("name", list(RADII))
def test_without_errors_the_imputation_part_is_exactly_zero(name):
    x, error = path()
    clean = RADII[name].split(x, np.zeros(25))
    assert_array_equal(clean[:, 2], 0.0)
    assert_allclose(RADII[name].split(x, error)[:, :2], clean[:, :2], rtol=1e-12)


def test_the_parts_are_those_of_the_radius_that_was_played():
    x, error = path(rounds=30, dim=4, seed=2)
    radius = RADII["corrected"]
    arms, errors = x[None, :, None], error[None, :, None]
    reward = np.random.default_rng(0).standard_normal((1, 30, 1))
    _, gamma, state = pp.play_horizon(arms, reward, radius, ridge=2.0, error=errors)
    total = radius.split(x, error, 2.0).sum(1)
    # a round is played with the radius of the rounds before it
    assert_allclose(total[:-1], np.sqrt(gamma[0, 1:]), rtol=1e-9)
    last = pp.decide(state, arms[:, -1], radius).gamma
    assert total[-1] ** 2 == pytest.approx(float(last[0]), rel=1e-9)


# --- theta* stays in the ball -------------------------------------------------------------------


RUNS, ROUNDS = 10, 60
WORLD = pp.w_times_action()
THETA = np.array(WORLD.theta)


class Shifted:
    """A fitted law with a constant added to its mean."""

    def __init__(self, law, by):
        self.law, self.by, self.law_id = law, by, f"{law.law_id} shifted"

    def __getattr__(self, name):
        return getattr(self.law, name)

    def mean(self, s):
        return self.law.mean(s) + self.by


def stays(world, x, radius, error):
    """Runs whose ball holds theta* after every round."""
    action, _, _ = pp.play_horizon(x, world.reward, radius, error=error)
    state, inside = pp.init(4, 1.0, (RUNS,)), np.ones(RUNS, bool)
    for t in range(ROUNDS):
        choice = pp.decide(state, x[:, t], radius, error=error[:, t])
        assert_array_equal(choice.action, action[:, t])
        state = pp.update(state, choice, world.reward[np.arange(RUNS), t, choice.action])
        gap = THETA - state.theta
        distance = np.einsum("ri,rij,rj->r", gap, state.precision, gap)
        gamma = pp.decide(state, x[:, t], radius).gamma
        inside &= distance <= gamma * (1 + 1e-12)
    return inside


def test_theta_stays_in_the_ball_with_calibrated_errors_and_leaves_it_without():
    size = float(np.linalg.norm(THETA))
    sigma = pp.noise_scale(reward_sd=0.05, context_sd=(THETA[2] + THETA[3]) * 0.1)
    kept, lost = [], []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        fit, held_out = WORLD.archive(60, 50, rng=rng).split(seed=seed)
        law = Shifted(pp.linear_lags(19).fit(fit, seed=0), 1.0 if seed % 2 else 0.0)
        calibration = pp.calibrate(law, held_out, WORLD.features, seed=seed, band=LINEAR)
        world = WORLD.world(RUNS, ROUNDS, rng=rng)
        x = pp.pulse(world, law).x
        error = calibration.reward_error(world.s, theta_bound=size)[:, world.lead :]
        radius = calibration.radius(sigma=sigma, theta_bound=size)
        kept.append(stays(world, x, radius, error))
        if seed % 2:
            lost.append(stays(world, x, radius, np.zeros_like(error)))
    assert np.concatenate(kept).all()
    assert np.concatenate(lost).sum() < binomial_floor(2 * RUNS, 0.9)


def test_simulate_plays_what_play_horizon_plays_with_the_same_errors():
    rng = np.random.default_rng(9)
    fit, held_out = WORLD.archive(40, 45, rng=rng).split(seed=0)
    law = pp.linear_lags(19).fit(fit, seed=0)
    calibration = pp.calibrate(law, held_out, WORLD.features, seed=0, band=LINEAR)
    world = WORLD.world(3, 80, rng=rng)
    error = calibration.reward_error(world.s)[:, world.lead :]
    plain = pp.pulse(world, law, radius=calibration.radius(sigma=0.15))
    run = pp.simulate(world, [plain, replace(plain, name="careful", error=error)])
    due, _, _ = pp.play_horizon(plain.x, world.reward, plain.radius, error=error)
    assert_array_equal(run.action[1], due)
    assert (run.action[0] != run.action[1]).any()


# --- the study ----------------------------------------------------------------------------------


@pytest.mark.parametrize("hits", [0, 1, 7, 19, 20])
def test_the_interval_of_the_coverage_is_clopper_and_pearsons(hits):
    covered = np.arange(20) < hits
    study = pp.Study(0.95, covered, np.ones(20), ("linear",) * 20)
    low = stats.beta.ppf(0.025, hits, 21 - hits) if hits else 0.0
    high = stats.beta.ppf(0.975, hits + 1, 20 - hits) if hits < 20 else 1.0
    assert study.coverage == hits / 20
    assert_allclose(study.interval, (low, high), atol=1e-9)


def test_a_study_that_falls_short_says_so():
    bad = pp.Study(0.95, np.arange(20) < 10, np.ones(20), ("linear",) * 20)
    good = pp.Study(0.95, np.arange(20) < 19, np.ones(20), ("spline",) * 20)
    assert repr(bad).startswith("Study: falls short")
    assert repr(good).startswith("Study: not contradicted")
    line = bad.table.iloc[0]
    assert (line["coverage"], line["reps"], line["bands"]) == (0.5, 20, "linear 20")
    assert "<table" in bad._repr_html_()


@pytest.fixture(scope="module")
def study_input():
    history, _ = linear_history(units=20, time=12, lags=2, seed=5)
    method = pp.BandMethod("linear", draws=500)
    return lambda **more: pp.calibration_study(
        pp.linear_lags(2), history, W_FEATURES, **({"reps": 12, "band": method} | more)
    )


def test_a_study_of_a_sound_recipe_holds_and_is_reproducible(study_input):
    one, two = study_input(seed=3), study_input(seed=3)
    assert one.covered.sum() >= binomial_floor(12, 0.95)
    assert one.kinds == ("linear",) * 12
    assert_array_equal(one.covered, two.covered)
    assert_array_equal(one.tightness, two.tightness)
    assert len(np.unique(one.tightness)) == 12
    assert (one.tightness > 0).all()
    other = study_input(seed=4, reps=2)
    assert (other.tightness != one.tightness[:2]).all()


def spoil(monkeypatch, where):
    """Make every calibration of a study claim no error at one of its contexts; keep the units."""
    seen = []

    def calibrate(law, held_out, *args, **more):
        found = pp.calibrate(law, held_out, *args, **more)
        seen.append(held_out)
        error = found.error.copy()
        complete = np.isfinite(error).all((2, 3))
        error[tuple(np.argwhere(complete & (found.inside == where))[0])] = 0.0
        return replace(found, error=error)

    monkeypatch.setattr(study_module, "calibrate", calibrate)
    return seen


def test_one_context_in_the_domain_that_is_not_covered_is_enough_to_fail(study_input, monkeypatch):
    before = study_input(seed=3, reps=3)
    spoil(monkeypatch, where=False)
    assert_array_equal(study_input(seed=3, reps=3).covered, before.covered)
    spoil(monkeypatch, where=True)
    assert not study_input(seed=3, reps=3).covered.any()


def test_every_run_of_a_study_draws_w_anew_and_keeps_s(study_input, monkeypatch):
    seen = spoil(monkeypatch, where=True)
    study_input(seed=3, reps=2)
    one, two = ({u: (h.s[i], h.w[i]) for i, u in enumerate(h.units)} for h in seen)
    shared = sorted(set(one) & set(two))
    assert shared
    assert one.keys() != two.keys()
    for unit in shared:
        assert_array_equal(one[unit][0], two[unit][0])
        assert (one[unit][1][1:] != two[unit][1][1:]).all()
        assert np.isnan(one[unit][1][0]).all()


def test_a_study_of_a_careless_level_falls_short(study_input):
    careless = study_input(seed=3, reps=25, level=0.02)
    assert careless.covered.sum() < binomial_floor(25, 0.95)
    assert careless.level == 0.02


def test_a_study_works_for_features_that_are_not_affine():
    history, _ = linear_history(units=30, time=10, lags=1, seed=6)
    method = pp.BandMethod("spline", draws=500, grid=50)
    study = pp.calibration_study(
        pp.linear_lags(1), history, BENT, reps=2, seed=0, band=method, level=0.9
    )
    assert study.covered.shape == (2,)
    assert (study.tightness > 1).all()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"reps": 0}, "reps"),
        ({"reps": 2.5}, "reps"),
        ({"level": 1.0}, "level"),
        ({"seed": -1}, "seed"),
    ],
)
def test_a_study_refuses_settings_that_make_no_sense(study_input, change, words):
    with pytest.raises(pp.SettingError, match=words):
        study_input(**({"seed": 0} | change))


def pointwise(band):
    """The same band with the critical value of a single context."""
    nu = band.rows - len(band.x_names) - 1
    single = np.full_like(band.critical, stats.t.ppf(0.5 + band.level / 2, nu))
    return replace(band, shape=replace(band.shape, critical=single, beyond=single))


def test_a_pointwise_band_covers_less_than_a_uniform_one():
    runs, hits = 40, np.zeros(2, dtype=int)
    for seed in range(runs):
        history, coef = linear_history(units=24, time=15, lags=8, seed=500 + seed)
        fit, held_out = history.split(seed=seed)
        law = Shifted(pp.linear_lags(8).fit(fit, seed=0), 0.5)
        uniform = pp.calibrate(law, held_out, W_FEATURES, seed=seed, band=LINEAR)
        narrow = pp.calibrate(
            law, held_out, W_FEATURES, seed=seed, band=pointwise(uniform.parts[0].band)
        )
        wrong = np.abs(0.3 + law.summary(held_out.s) @ coef - law.mean(held_out.s))[..., 0]
        use = uniform.inside
        hits += [bool((wrong <= c.error[:, :, 0, 0])[use].all()) for c in (uniform, narrow)]
    assert hits[0] >= binomial_floor(runs, 0.95)
    assert hits[1] < binomial_floor(runs, 0.95)


# --- figures ------------------------------------------------------------------------------------


def test_the_band_plot_shows_centre_half_width_and_law_over_one_input(made):
    calibration = made["curve"]
    ax = calibration.plot()
    budget = calibration.parts[0].budget(calibration.contexts)
    x = calibration.contexts[budget.inside][:, 0]
    order = np.argsort(x)
    centre, law = (v[budget.inside][order, 0] for v in (budget.centre, budget.predicted))
    half = budget.half[budget.inside][order, 0]
    assert_array_equal(ax.lines[0].get_xdata(), x[order])
    assert_array_equal(ax.lines[0].get_ydata(), centre)
    assert_array_equal(ax.lines[1].get_ydata(), law)
    edge = ax.collections[0].get_paths()[0].vertices
    for side in (-1, 1):
        due = np.column_stack([x[order], centre + side * half])
        assert all((np.abs(edge - point).sum(1) < 1e-12).any() for point in due[::50])
    assert "95%" in ax.get_legend().get_texts()[0].get_text().replace(" %", "%")


def test_with_several_inputs_the_band_plot_shows_the_distance_from_the_law(made):
    ax = made["linear"].plot()
    assert_array_equal(ax.lines[1].get_ydata(), 0.0)
    assert len(ax.lines[0].get_xdata()) <= 60
    assert "minus law" in ax.get_ylabel()
    calibration = made["linear"]
    budget = calibration.parts[0].budget(calibration.contexts)
    law = budget.predicted[budget.inside][:, 0]
    gap = (budget.centre[budget.inside][:, 0] - law)[np.argsort(law)]
    due = [group.mean() for group in np.array_split(gap, 60)]
    assert_allclose(ax.lines[0].get_ydata(), due, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("name", "layers"), [("curve", 2), ("linear", 2), ("bent", 3)])
def test_the_budget_plot_stacks_the_pieces_of_the_bound(made, name, layers):
    calibration = made[name]
    ax = calibration.plot_budget()
    assert len(ax.collections) == layers
    part = calibration.parts[0]
    total = part.budget(calibration.contexts).total[calibration.inside][:, 0]
    top = max(c.get_paths()[0].vertices[:, 1].max() for c in ax.collections)
    assert total.mean() < top <= total.max() * (1 + 1e-12)
    assert part.band.y_names[0] in ax.get_ylabel()


def test_plots_use_the_axis_they_are_given_and_any_target(made):
    for draw in (band_plot, budget_plot):
        ax = Figure().add_subplot()
        assert draw(made["bent"], target=1, ax=ax) is ax
        assert made["bent"].parts[0].band.y_names[1] in ax.get_ylabel()
    ax = Figure().add_subplot()
    assert made["curve"].plot(ax) is ax
    assert made["curve"].plot_budget(ax) is ax


def test_the_radius_plot_stacks_its_three_parts():
    x, error = path()
    parts = RADII["corrected"].split(x, error)
    ax = gamma_split(parts)
    tops = [c.get_paths()[0].vertices[:, 1].max() for c in ax.collections]
    assert_allclose(tops, np.cumsum(parts, axis=1).max(0), rtol=1e-12)
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert [label.split()[0] for label in labels] == ["ridge", "noise", "imputation"]
    own = Figure().add_subplot()
    assert gamma_split(parts, own) is own


# --- the report ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["curve", "all", "crossfit"])
def test_the_report_states_level_mode_and_band(made, name, tmp_path):
    calibration = made[name]
    sections = pp.calibration_sections(calibration)
    text = sections[0].text
    assert "95%" in text.replace(" %", "%")
    assert f"mode {calibration.mode}" in text
    assert calibration.parts[0].band.kind in text
    assert len(sections[-1].table) == len(calibration.checks)
    page = pp.write_report(tmp_path / "r.html", "Title", "Verdict", sections).read_text()
    for section in sections:
        assert section.title in page
    assert page.count("<svg") == 2


def test_the_report_warns_when_a_check_fails_and_not_otherwise(short, made):
    failed = next(c for c in short.checks if c.name == "lack of fit")
    assert failed.verdict == "fail"
    text = pp.calibration_sections(short)[0].text
    assert "Read the checks first" in text
    assert failed.text in text
    sound = replace(
        made["curve"], checks=tuple(replace(c, verdict="pass") for c in made["curve"].checks)
    )
    assert "Read the checks first" not in pp.calibration_sections(sound)[0].text


def test_the_report_does_not_call_units_fresh_that_the_law_was_fitted_on(made):
    assert "has not seen" in pp.calibration_sections(made["curve"])[0].text
    assert "has not seen" not in pp.calibration_sections(made["all"])[0].text


def test_a_report_of_a_band_handed_over_can_be_written(made, tmp_path):
    law, held_out, _ = split_archive(lags=1)
    band = made["curve"].parts[0].band
    calibration = pp.calibrate(law, held_out, W_FEATURES, seed=0, band=band)
    sections = pp.calibration_sections(calibration)
    page = pp.write_report(tmp_path / "r.html", "Title", "Verdict", sections).read_text()
    assert "nothing was checked here" in page
