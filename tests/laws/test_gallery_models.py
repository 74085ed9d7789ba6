"""Single gallery models against mathematics done by hand, by quadrature or by SciPy."""

from functools import cache
from pathlib import Path

import numpy as np
import pyro.poutine as poutine
import pytest
import torch
from numpy.testing import assert_allclose
from scipy import integrate, stats
from scipy.special import expit

from pulse_pyro import Features, History, Laplace, calibrate, law_from_file, linear_lags
from pulse_pyro._core.errors import DataError
from pulse_pyro._pyro.sandbox import sandbox
from pulse_pyro.laws.files import new_law
from tests.helpers import FALSE_ALARM, draws_at, mean_at, z_bound

FOLDER = Path(__file__).parents[2] / "models"
PROMISED = {
    "student_t_lags",
    "hierarchical_units",
    "regime_mixture",
    "zero_inflated_counts",
    "heteroscedastic_lags",
    "mnar_selection",
    "seasonal_lags",
    "ordinal_mood",
    "mood_and_sleep",
    "censored_minutes",
    "person_levels",
    "clicks_by_ad",
}
RNG = np.random.default_rng(0)
X, W = RNG.standard_normal((9, 2)), RNG.standard_normal((9, 1))
B = np.array([0.7, -0.4])


@cache
def law(name):
    return law_from_file(FOLDER / f"{name}.py")


def archive(s, w):
    names = tuple(f"u{i}" for i in range(len(s)))
    return History.from_arrays(s, w, units=names, s_names=("s",), w_names=("w",))


def log_density(name, x, w, values, **extras):
    """log p(what is observed | parameters), without the prior."""
    fixed = {site: torch.as_tensor(value, dtype=torch.float64) for site, value in values.items()}
    tensors = {key: torch.as_tensor(value) for key, value in extras.items()}
    model = poutine.condition(law(name).model, fixed)
    trace = poutine.trace(model).get_trace(torch.as_tensor(x), torch.as_tensor(w), **tensors)
    trace.compute_log_prob()
    return sum(
        float(node["log_prob_sum"])
        for site, node in trace.nodes.items()
        if node["type"] == "sample" and site not in values and "log_prob_sum" in node
    )


def lags(s, count=2):
    return np.stack([np.roll(s[..., 0], j, axis=1) for j in range(count)], -1)


def test_the_promised_models_are_there():
    assert {file.stem for file in FOLDER.glob("*.py")} >= PROMISED


def test_levels_of_units_are_integrated_out_exactly():
    unit = np.array([0, 1, 1, 2, 2, 2, 0, 2, 1])
    values = {"a": 0.3, "b": B, "sd": 0.6, "between": 1.4}
    rest = W[:, 0] - 0.3 - X @ B
    dense = 0.0
    for u in range(3):
        n = (unit == u).sum()
        cov = 0.6**2 * np.eye(n) + 1.4**2 * np.ones((n, n))
        dense += stats.multivariate_normal.logpdf(rest[unit == u], np.zeros(n), cov)
    assert_allclose(log_density("hierarchical_units", X, W, values, unit=unit), dense, rtol=1e-12)


def people(units=30, time=25, between=1.0, sd=0.5):
    rng = np.random.default_rng(2)
    s = rng.standard_normal((units, time, 1))
    level = between * rng.standard_normal((units, 1))
    w = 0.4 + level + lags(s) @ B + sd * rng.standard_normal((units, time))
    return archive(s, w[..., None])


@cache
def pooled():
    return law("hierarchical_units").fit(people(), Laplace(draws=2000), seed=0)


def test_pooling_is_less_sure_of_the_level_than_ignoring_units(tmp_path):
    plain = law_from_file(new_law(tmp_path / "plain.py")).fit(people(), seed=0)
    own, naive = (fit.draws["a"] for fit in (pooled(), plain))
    between, sd = pooled().draws["between"], pooled().draws["sd"]
    # 30 units cannot tell the level to better than between / sqrt(30), however many rows they have
    assert own.std() >= 0.9 * np.median(between) / np.sqrt(30)
    assert naive.std() < own.std() / 3
    assert abs(own.mean() - 0.4) < z_bound() * own.std()
    for draws, truth in ((between, 1.0), (sd, 0.5)):
        assert abs(np.log(draws).mean() - np.log(truth)) < z_bound() * np.log(draws).std()


def test_a_new_unit_has_a_level_nobody_knows():
    s = np.zeros((1, 2, 1))
    drawn = draws_at(pooled(), s, 40_000, rng=np.random.default_rng(0))[:, 0, 1, 0]
    a, sd, between = (pooled().draws[name] for name in ("a", "sd", "between"))
    variance = (sd**2 + between**2).mean() + a.var()
    # the variance of a sample variance is about 2 v^2 / n
    assert abs(drawn.var() / variance - 1) < z_bound() * np.sqrt(2 / 40_000)


def test_selection_averages_over_what_was_not_recorded():
    values = {"a": 0.2, "b": B, "sd": 0.8, "k": 0.3, "c": -0.9}
    seen = np.array([1, 0, 1, 1, 0, 1, 0, 1, 1], bool)[:, None]
    total = 0.0
    for loc, w, there in zip(0.2 + X @ B, W[:, 0], seen[:, 0], strict=True):
        own = stats.norm(loc, 0.8)
        if there:
            total += own.logpdf(w) + stats.norm.logcdf(0.3 - 0.9 * w)
        else:
            gone = integrate.quad(
                lambda v, own=own: own.pdf(v) * stats.norm.sf(0.3 - 0.9 * v), loc - 10, loc + 10
            )
            total += np.log(gone[0])
    found = log_density("mnar_selection", X, np.where(seen, W, 0.0), values, seen=seen)
    assert_allclose(found, total, rtol=1e-8)


def test_selection_recovers_a_slope_that_complete_rows_bend():
    rng = np.random.default_rng(3)
    s = rng.standard_normal((40, 60, 1))
    w = 0.2 + lags(s) @ B + 0.8 * rng.standard_normal((40, 60))
    w[rng.random((40, 60)) > stats.norm.cdf(0.3 - 1.5 * w)] = np.nan
    kept = np.isfinite(w[:, 1:])
    x = lags(s)[:, 1:][kept]
    design = np.column_stack([np.ones(len(x)), x])
    fit = np.linalg.lstsq(design, w[:, 1:][kept], rcond=None)
    error = np.sqrt(fit[1][0] / len(x) * np.linalg.inv(design.T @ design).diagonal())
    assert abs(fit[0][1] - B[0]) > z_bound() * error[1]
    found = law("mnar_selection").fit(archive(s, w[..., None]), seed=0)
    assert found.record.rows == 40 * 59
    for j in range(2):
        draws = found.draws["b"][:, j]
        assert abs(draws.mean() - B[j]) < z_bound(2) * draws.std()
    assert found.draws["c"].max() < 0


def fit_of(name, draws):
    """A law with these parameters, without the cost of a fit: draws (m, ...) by site."""
    from dataclasses import replace

    donor = law(name).fit(archive(S, np.ones(S.shape)), Laplace(draws=2), seed=0)
    return replace(donor, draws=draws)


S = np.random.default_rng(4).standard_normal((2, 24, 1))


def test_zero_inflation_thins_the_mean():
    a, b, r, gate = np.array([1.0, 2.0]), np.array([[0.5], [-0.3]]), np.array([3.0, 9.0]), [0.4, 0]
    draws = {"a": a, "b": b, "r": r, "gate": np.maximum(gate, 1e-9)}
    each = (1 - draws["gate"])[:, None, None] * np.exp(a[:, None, None] + b[:, None] * S[..., 0])
    fit = fit_of("zero_inflated_counts", draws)
    assert_allclose(mean_at(fit, S)[..., 0], each.mean(0), rtol=1e-12)
    one = {site: value[:1] for site, value in draws.items()}
    drawn = draws_at(
        fit_of("zero_inflated_counts", one), S[:1, :1], 40_000, rng=np.random.default_rng(5)
    )[:, 0, 0, 0]
    m = np.exp(1.0 + 0.5 * S[0, 0, 0])
    zero = 0.4 + 0.6 * (3.0 / (3.0 + m)) ** 3.0
    assert abs((drawn == 0).mean() - zero) < z_bound() * np.sqrt(zero * (1 - zero) / 40_000)
    assert (drawn == drawn.round()).all()


@pytest.mark.parametrize("w", [0.5, -1.0])
def test_what_is_no_count_is_refused(w):
    values = np.zeros(S.shape)
    values[1, 5] = w
    says = rf"^zero_inflated_counts: W column 'w' holds {w:g} in row \d+, unit 'u1', step 5, which"
    with pytest.raises(DataError, match=says) as caught:
        law("zero_inflated_counts").fit(archive(S, values), seed=0)
    assert len(str(caught.value)) < 300


def test_regimes_are_weighed_by_their_chance():
    one = {"a": [0.5], "b": [[0.7]], "c": [-0.3], "d": [[1.2]], "gap": [3.0], "sd": [0.2]}
    draws = {site: np.array(value) for site, value in one.items()}
    x = S[..., 0]
    chance = expit(-0.3 + 1.2 * x)
    fit = fit_of("regime_mixture", draws)
    assert_allclose(mean_at(fit, S)[..., 0], 0.5 + 0.7 * x + 3.0 * chance, rtol=1e-12)
    drawn = draws_at(fit, S[:1, :1], 20_000, rng=np.random.default_rng(6))[:, 0, 0, 0]
    p, low = chance[0, 0], 0.5 + 0.7 * x[0, 0]
    high = drawn > low + 1.5  # 7.5 sds from either line
    assert abs(high.mean() - p) < z_bound() * np.sqrt(p * (1 - p) / 20_000)


def test_seasons_are_the_same_day_of_earlier_weeks():
    draws = {"a": [0.1], "b": [[1.0, 10.0]], "c": [[100.0, 1000.0]], "sd": [0.2]}
    fit = fit_of("seasonal_lags", {site: np.array(value) for site, value in draws.items()})
    s = S[:, :, 0]
    by_hand = 0.1 + s[:, 14:] + 10 * s[:, 13:-1] + 100 * s[:, 7:-7] + 1000 * s[:, :-14]
    assert_allclose(mean_at(fit, S)[:, 14:, 0], by_hand, rtol=1e-12)


def test_heavy_tails_are_students():
    values = {"a": 0.3, "b": B, "scale": 0.6, "excess": 1.5}
    dense = stats.t.logpdf(W[:, 0], 3.5, 0.3 + X @ B, 0.6).sum()
    assert_allclose(log_density("student_t_lags", X, W, values), dense, rtol=1e-12)


def noisy(seed, units=40, time=50):
    rng = np.random.default_rng(seed)
    s = rng.standard_normal((units, time, 1))
    x = lags(s)
    w = 0.2 + x @ B + np.exp(-1.0 + 0.6 * x[..., 0]) * rng.standard_normal((units, time))
    return archive(s, w[..., None])


def halves(fit):
    """How often 90 % intervals cover in the quieter and in the noisier half of x, fresh rows."""
    fresh = noisy(8)
    drawn = draws_at(fit, fresh.grid.s, 400, rng=np.random.default_rng(0))[:, :, 1:, 0]
    low, high = np.quantile(drawn, [0.05, 0.95], axis=0)
    w = fresh.grid.w[:, 1:, 0]
    inside = (low <= w) & (w <= high)
    quiet = fresh.grid.s[:, 1:, 0] < 0
    return [(inside[half].sum(), half.sum()) for half in (quiet, ~quiet)]


def test_intervals_follow_the_noise():
    bounds = [stats.binom.interval(1 - FALSE_ALARM, n, 0.9) for _, n in halves(linear())]
    own = law("heteroscedastic_lags").fit(noisy(7), seed=0)
    for (hit, _), (low, high) in zip(halves(own), bounds, strict=True):
        assert low <= hit <= high
    (quiet, _), (loud, _) = halves(linear())
    assert quiet > bounds[0][1]  # what a single spread gets wrong, both ways
    assert loud < bounds[1][0]


@cache
def linear():
    return linear_lags(2).fit(noisy(7), seed=0)


def test_a_gallery_law_is_calibrated_like_any_other():
    fit = law("hierarchical_units").fit(people().take(range(15)), Laplace(draws=200), seed=0)
    phi = Features(lambda s, w, a: w * a, 2, ("w a",))
    held_out = people().take(range(15, 30))
    found = calibrate(fit, held_out, phi, seed=0)
    bound = found.reward_error(held_out.grid.s)
    assert np.isfinite(bound[:, 1:]).all()
    assert (bound[:, 1:, 1] > 0).all()


def test_minutes_at_the_top_are_at_least_so_many():
    own, x = law("censored_minutes").model, np.array([[0.3], [-1.0]])
    values = {"a": 3.5, "b": np.array([0.4]), "sd": 0.8}
    with sandbox(0):
        fixed = {
            site: torch.as_tensor(value, dtype=torch.float64) for site, value in values.items()
        }
        nodes = poutine.trace(poutine.condition(own, fixed)).get_trace(torch.as_tensor(x)).nodes
        found = nodes["minutes"]["fn"]
        for i, loc in enumerate(3.5 + 0.4 * x[:, 0]):
            free = stats.lognorm(0.8, scale=np.exp(loc))
            mean = integrate.quad(lambda t, free=free: t * free.pdf(t), 0, 60)[0] + 60 * free.sf(60)
            assert_allclose(found.mean[i], mean, rtol=1e-7)
            for value, density in ((20.0, free.logpdf(20)), (60.0, free.logsf(60))):
                at = found.log_prob(torch.full((2,), value, dtype=torch.float64))
                assert_allclose(at[i], density, rtol=1e-9)
