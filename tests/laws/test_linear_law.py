import numpy as np
import pyro.poutine as poutine
import pytest
import torch
from scipy import stats

from pulse_pyro._core.errors import DataError, ModelError, SettingError
from pulse_pyro._pyro.contract import check_model
from pulse_pyro._pyro.inference import Exact, Laplace, Nuts, Svi
from pulse_pyro._pyro.predict import run_at_draws
from pulse_pyro._pyro.sandbox import sandbox
from pulse_pyro.data.history import History
from pulse_pyro.data.summary import Lags
from pulse_pyro.laws.conjugate import Conjugate, Flat, LinearKernel, reduced_form
from pulse_pyro.laws.linear import linear_lags, linear_model, reduced_model
from pulse_pyro.laws.scaling import GaussianInputs
from tests.helpers import (
    assert_mean,
    binomial_floor,
    draws_at,
    linear_history,
    mean_at,
    mean_draws_at,
    z_bound,
)
from tests.laws.test_conjugate import PRIOR, Oracle
from tests.laws.test_scaling import conditional

X = np.random.default_rng(0).standard_normal((9, 2))


def parameters(count, q, student=False):
    rng = np.random.default_rng(q)
    out = {"coef": rng.standard_normal((count, 3, q)), "variance": 0.2 + rng.random((count, q))}
    link = {"link": rng.standard_normal((count, q * (q - 1) // 2))} if q > 1 else {}
    return out | link | ({"df_excess": 10.0 + rng.random(count)} if student else {})


@pytest.mark.parametrize("student", [False, True])
@pytest.mark.parametrize("q", [1, 3])
def test_the_pyro_model_and_the_numpy_kernel_are_one_law(q, student):
    model, draws = linear_model(2, q, Conjugate(), student), parameters(6, q, student)
    card = check_model(model, X, np.zeros((9, q)))
    assert card.vectorised
    with sandbox(0):
        tensors = {name: torch.as_tensor(value) for name, value in draws.items()}
        law = run_at_draws(model, torch.as_tensor(X), tensors, card)
        mean, root = law.mean.numpy(), law.scale_tril.numpy()[:, 0]
    kernel, shape = LinearKernel(draws), root @ np.swapaxes(root, 1, 2)
    np.testing.assert_allclose(kernel.mean_draws(X, np.arange(6)), mean, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(kernel.factor @ np.swapaxes(kernel.factor, 1, 2), shape, rtol=1e-9)
    noise = kernel.sample(X[:1], np.full(40_000, 4), np.random.default_rng(0))[:, 0] - mean[4, 0]
    df = 2 + draws["df_excess"][4] if student else np.inf
    assert_mean(noise[:, :, None] * noise[:, None, :], shape[4] / (1 - 2 / df))


def log_density(at, x, w, prior):
    """log p(parameters, w | x), written out with SciPy."""
    sd, coef, q = np.sqrt(at["variance"]), at["coef"], w.shape[1]
    width = np.array([[prior.intercept], [prior.slope_sd(2)], [prior.slope_sd(2)]])
    (row, column), link = np.tril_indices(q, -1), np.zeros((q, q))
    link[row, column] = at.get("link", 0.0)
    return (
        stats.invgamma.logpdf(sd**2, np.arange(2, q + 2) / 2, scale=prior.residual**2 / 2).sum()
        + stats.norm.logpdf(coef, 0, width * sd).sum()
        + stats.norm.logpdf(link[row, column], 0, sd[row] / prior.residual).sum()
        + stats.norm.logpdf(w, coef[0] + x @ coef[1:] + w @ link.T, sd).sum()
    )


@pytest.mark.parametrize("q", [1, 3])
def test_the_density_is_as_stated_and_sufficient_statistics_lose_nothing(q):
    x, w = X + 3.0, np.random.default_rng(1).standard_normal((9, q)) - 2.0
    args = torch.as_tensor(x), torch.as_tensor(w)
    for i in range(4):
        at = {name: value[i] for name, value in parameters(4, q).items()}
        tensors = {name: torch.as_tensor(value) for name, value in at.items()}
        with sandbox(0):
            full = poutine.condition(linear_model(2, q, PRIOR, False), tensors)
            short = poutine.condition(reduced_model(x, w, PRIOR), tensors)
            whole = poutine.trace(full).get_trace(*args).log_prob_sum().item()
            brief = poutine.trace(short).get_trace().log_prob_sum().item()
        np.testing.assert_allclose([whole, brief], log_density(at, x, w, PRIOR), rtol=1e-10)


ENGINES = [Exact(4000), Nuts(150, 80), Svi(4000), Laplace(4000)]


@pytest.mark.parametrize("how", ENGINES, ids=lambda how: type(how).__name__)
def test_every_engine_finds_the_exact_posterior(how):
    w_dim = 1 if isinstance(how, Nuts) else 2  # for speed
    history, _ = linear_history(units=10, time=22, lags=2, w_dim=w_dim)
    fitted, rows = linear_lags(2).fit(history, how, seed=0), history.rows(Lags(2))
    oracle = Oracle(fitted.scaler.x_in(rows.x), fitted.scaler.w_in(rows.w), Conjugate())
    sd = np.sqrt(np.outer(np.diag(np.linalg.inv(oracle.lam)), np.diag(oracle.sigma)))
    coef = reduced_form(fitted.draws)[0]
    chance = z_bound(3) / np.sqrt(how.draws)  # in standard deviations
    assert np.max(np.abs(coef.mean(0) - oracle.mean) / sd) < max(0.1, chance)
    spread = max(0.15 if isinstance(how, Svi) else 0.1, chance / np.sqrt(2))
    np.testing.assert_allclose(coef.std(0) / sd, 1, atol=spread)
    if not isinstance(how, Laplace):  # a Gaussian at the mode misses the skewness of a variance
        error = fitted.draws["variance"][:, 0].mean() / oracle.sigma[0, 0] - 1
        own = 1 / np.sqrt(len(rows.x) / 2)  # sd of inverse gamma, shape n/2 + 1
        assert abs(error) < max(0.1, chance) * own


def noisy(noise):
    """W = the sum of 40 columns of white S, plus noise."""
    rng, names = np.random.default_rng(5), tuple(map(str, range(40)))
    s = rng.standard_normal((40, 30, 40))
    w = s.sum(-1, keepdims=True) + noise(rng, (40, 30, 1))
    return History.from_arrays(s, w, units=names, s_names=names, w_names=("w",))


def test_student_noise_resists_outliers():
    history = noisy(lambda rng, shape: rng.standard_t(3, shape))
    laws = [linear_lags(1, noise=noise).fit(history, seed=0) for noise in ("student_t", "normal")]
    slopes = [mean_at(law, np.eye(40)[None]) - mean_at(law, np.zeros((1, 1, 40))) for law in laws]
    assert np.linalg.norm(slopes[0] - 1) < np.linalg.norm(slopes[1] - 1)
    assert np.quantile(2 + laws[0].draws["df_excess"], 0.95) < 6


def test_normal_noise_is_not_taken_for_outliers():
    history = noisy(lambda rng, shape: rng.standard_normal(shape))
    fitted = linear_lags(1, noise="student_t").fit(history, seed=0)
    assert np.quantile(2 + fitted.draws["df_excess"], 0.05) > 6


HISTORY, _ = linear_history(units=30, time=20, lags=3, w_dim=2, seed=1)
REFUSED = [
    (lambda: linear_lags(2, noise="student_t").fit(HISTORY, Exact(), seed=0), ModelError, "normal"),
    (lambda: linear_lags(2, prior=Flat()).fit(HISTORY, Laplace(), seed=0), ModelError, "Flat"),
    (lambda: linear_lags(2, prior=Flat(), noise="student_t"), SettingError, "Flat"),
    (lambda: linear_lags(2, noise="gauss"), SettingError, "'gauss'"),
    (lambda: linear_lags(2.5), SettingError, "2.5"),
    (lambda: linear_lags(21).fit(HISTORY, seed=0), DataError, "21 consecutive rows"),
]


@pytest.mark.parametrize(("call", "error", "says"), REFUSED)
def test_what_cannot_be_done_is_said(call, error, says):
    with pytest.raises(error, match=says):
        call()


def test_a_constant_column_changes_nothing():
    s = np.concatenate([HISTORY.grid.s, np.full_like(HISTORY.grid.s, 0.1)], -1)
    law = linear_lags(2, prior=Conjugate(slope=5.0))  # by default it depends on p
    wider = law.fit(
        History.from_arrays(s, HISTORY.grid.w, units=HISTORY.units, s_names=("s", "c")), seed=0
    )
    without = mean_at(law.fit(HISTORY, seed=0), HISTORY.grid.s)
    np.testing.assert_allclose(mean_at(wider, s), without, rtol=0, atol=1e-9)


@pytest.mark.parametrize("how", [Exact(50), Laplace(50)], ids=lambda how: type(how).__name__)
@pytest.mark.parametrize("time", [1, 20])
def test_one_unit_is_enough_and_so_is_one_row(how, time):
    history = linear_history(units=1, time=time, lags=1)[0]
    fitted = linear_lags(1).fit(history, how, seed=0)
    assert np.isfinite(draws_at(fitted, history.grid.s, 10, rng=np.random.default_rng(0))).all()
    if time == 1 and isinstance(how, Exact):
        np.testing.assert_allclose(mean_at(fitted, history.grid.s), history.grid.w, rtol=1e-12)


@pytest.fixture(scope="module")
def unseen():
    """A fit, a path with a hole, its draws of E[W | seen lags], and the spread of W around them."""
    fitted, x = linear_lags(3).fit(HISTORY, seed=0), HISTORY.rows(Lags(3)).x
    s, inputs = HISTORY.grid.s[:1, :6].copy(), GaussianInputs(x.mean(0), np.cov(x.T, bias=True))
    s[0, 3] = np.nan
    full, left = Lags(3)(s)[0].copy(), np.zeros((6, 3, 3))
    for row, part in zip(full, left, strict=True):
        mis = np.isnan(row)
        row[mis], part[np.ix_(mis, mis)] = conditional(inputs, row)
    kernel, unit = fitted.kernel, fitted.scaler
    slope = kernel.coef[:, 1:] * unit.w_scale / unit.x_scale[:, None]
    level = kernel.coef[:, :1] * unit.w_scale + unit.w_mean - (unit.x_mean @ slope)[:, None]
    factor = kernel.factor * unit.w_scale[:, None]
    spread = np.einsum("dpi,tpq,dqj->dtij", slope, left, slope)
    spread += (factor @ np.swapaxes(factor, 1, 2))[:, None]
    return fitted, s, level + full @ slope, spread.mean(0)


def test_means_condition_on_the_seen_lags(unseen):
    fitted, s, means, _ = unseen
    np.testing.assert_allclose(mean_at(fitted, s)[0], means.mean(0), rtol=1e-6)
    drawn = mean_draws_at(fitted, s, 1000, rng=np.random.default_rng(0))[:, 0]
    np.testing.assert_allclose(np.sort(drawn, 0), np.sort(means, 0), rtol=1e-6)
    for t in (2, 3, 5):
        np.testing.assert_allclose(
            fitted(s[0, : t + 1][None]).mean()[-1], means.mean(0)[t], rtol=1e-6
        )
    assert (
        np.abs(mean_at(fitted, s) - mean_at(fitted, np.nan_to_num(s)))[0, 3:].max(-1).min() > 1e-3
    )


def test_samples_carry_the_spread_of_the_unseen_lags(unseen):
    fitted, s, means, spread = unseen
    centred = draws_at(fitted, s, 20_000, rng=np.random.default_rng(0))[:, 0] - means.mean(0)
    around = means - means.mean(0)
    expected = spread + (around[..., :, None] * around[..., None, :]).mean(0)
    assert_mean(centred, 0.0)
    assert_mean(centred[..., :, None] * centred[..., None, :], expected)


def test_ninety_percent_intervals_cover_ninety_percent_of_new_units():
    fit, held_out = linear_history(units=160, time=20, lags=3, seed=2)[0].split(seed=0)
    sample = draws_at(
        linear_lags(3).fit(fit, seed=0), held_out.grid.s, 199, rng=np.random.default_rng(0)
    )
    sample, w = np.sort(sample[:, :, 2:], axis=0), held_out.grid.w[:, 2:]
    inside = int(((sample[9] < w) & (w < sample[189])).sum())  # 180 of 200 gaps
    assert binomial_floor(w.size, 0.9) <= inside <= w.size - binomial_floor(w.size, 0.1)


def test_the_table_is_the_regression_in_the_units_of_the_data():
    fitted, rows = linear_lags(3, prior=Flat()).fit(HISTORY, seed=0), HISTORY.rows(Lags(3))
    design = np.column_stack([np.ones(len(rows.x)), rows.x])
    coef = np.linalg.lstsq(design, rows.w, rcond=None)[0]
    names = ["1", "s.lag0", "s.lag1", "s.lag2"]
    for j, w in enumerate(HISTORY.w_names):
        found = fitted.table.loc[[f"{w} ~ {x}" for x in names], "mean"]
        np.testing.assert_allclose(found, coef[:, j], rtol=1e-8)
        residual = rows.w[:, j] - design @ coef[:, j]
        expected = np.sqrt(residual @ residual / (len(rows.x) - 4))
        mean, sd = fitted.table.loc[f"{w} noise scale"]
        slack = expected / len(rows.x)  # E[scale] and the root of E[variance] differ by O(1 / n)
        assert abs(mean - expected) <= z_bound() * sd / np.sqrt(1000) + slack
