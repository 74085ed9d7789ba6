from dataclasses import replace

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch

from pulse_pyro._core.errors import DataError, ModelError, PulseError, SettingError
from pulse_pyro._pyro.contract import check_model
from pulse_pyro._pyro.inference import Exact, Laplace, Nuts
from pulse_pyro._pyro.predict import PyroKernel, run_at_draws
from pulse_pyro._pyro.sandbox import sandbox
from pulse_pyro.data.summary import Identity, Lags
from pulse_pyro.laws.law import Law
from tests.helpers import assert_mean, draws_at, linear_history, mean_at, mean_draws_at

X = np.random.default_rng(0).standard_normal((7, 2))
MANY = np.zeros((4000, 1))
HISTORY = linear_history(units=8, time=12, lags=2)[0]


def observe(x, w, loc, sd):
    with pyro.plate("rows", len(x), dim=-1):
        pyro.sample("w", dist.Normal(loc[..., None], sd).to_event(1), obs=w)


def everything(x, w=None):
    b = pyro.sample("b", dist.Normal(torch.zeros(2), 1.0).to_event(1))
    sd = pyro.sample("sd", dist.Gamma(2.0, 2.0))
    with pyro.plate("groups", 2):
        a = pyro.sample("a", dist.Normal(0.0, 1.0))
    loc = (x * b).sum(-1) + a[..., (x[..., 0] > 0).long()]
    observe(x, w, loc, sd[..., None] * x[..., :1].abs())  # cannot be run at x = 0


def outer_plate(x, w=None):
    with pyro.plate("groups", 2, dim=-2):
        a = pyro.sample("a", dist.Normal(0.0, 1.0))
    observe(x, w, a[..., (x[..., 0] > 0).long(), 0], 1.0)


def global_draws(count):
    a, b = np.random.default_rng(count).standard_normal((2, count, 2))
    return {"a": a, "b": b, "sd": 0.5 + a[:, 0] ** 2}


def expected(draws, x, slope=True):
    """E[w | x, draw] in NumPy, (draws, rows)."""
    level = draws["a"].reshape(-1, 2)[:, (x[:, 0] > 0).astype(int)]
    return level + (draws["b"] @ x.T if slope else 0.0)


@pytest.mark.parametrize("count", [1, 2, 7, 10])
def test_all_draws_at_once_equal_one_by_one(count):
    card, draws = check_model(everything, X, X[:, :1]), global_draws(count)
    tensors = {k: torch.as_tensor(v) for k, v in draws.items()}
    x, w = torch.as_tensor(X), torch.as_tensor(X[:, :1])
    with sandbox(0):
        fast = run_at_draws(everything, x, tensors, card)
        slow = run_at_draws(everything, x, tensors, replace(card, vectorised=False))
        assert fast.sample().shape == slow.sample().shape == (count, 7, 1)
    assert card.vectorised
    assert fast.batch_shape == slow.batch_shape == (count, 7)
    for fn in (fast, slow):
        np.testing.assert_allclose(fn.mean[..., 0], expected(draws, X), rtol=1e-12)
    np.testing.assert_allclose(fast.log_prob(w), slow.log_prob(w), rtol=1e-10)


def test_a_plate_left_of_the_rows_is_predicted_right():
    card = check_model(outer_plate, X, X[:, :1])
    draws = {"a": global_draws(5)["a"][..., None]}
    out = PyroKernel(outer_plate, draws, card).mean_draws(X, np.arange(5))
    np.testing.assert_allclose(out[..., 0], expected(draws, X, slope=False), rtol=1e-12)


def test_the_kernel_uses_the_draws_it_is_asked_for_in_any_block(monkeypatch):
    card, draws = check_model(everything, X, X[:, :1]), global_draws(6)
    index = np.array([4, 4, 0])
    kernel = PyroKernel(everything, draws, card)
    whole = kernel.mean_draws(X, index)
    np.testing.assert_allclose(whole[..., 0], expected(draws, X)[index], rtol=1e-12)
    monkeypatch.setattr("pulse_pyro._pyro.predict.CHUNK", 6)
    np.testing.assert_allclose(kernel.mean_draws(X, index), whole, rtol=1e-14)
    assert kernel.exact_mean


def test_samples_depend_on_the_generator_alone():
    kernel = PyroKernel(everything, global_draws(3), check_model(everything, X, X[:, :1]))
    first, again, other = (np.random.default_rng(seed) for seed in (1, 1, 2))
    sample = kernel.sample(X, np.arange(3), first)
    assert np.array_equal(kernel.sample(X, np.arange(3), again), sample)
    assert not np.any(kernel.sample(X, np.arange(3), other) == sample)


def with_latents(x, w=None):
    b = pyro.sample("b", dist.Normal(0.0, 1.0))
    with pyro.plate("rows", len(x), dim=-1):
        u = pyro.sample("u", dist.Normal(0.0, 1.0))
        pyro.sample("w", dist.Normal((b + 2 * u)[..., None], 0.5).to_event(1), obs=w)


@pytest.mark.parametrize("vectorised", [True, False])
def test_latents_of_rows_are_redrawn_for_every_draw_and_row(vectorised):
    card = replace(check_model(with_latents, MANY, MANY), vectorised=vectorised)
    with sandbox(0):
        fn = run_at_draws(with_latents, torch.as_tensor(MANY), {"b": torch.full((3,), 0.7)}, card)
        u = (fn.mean[..., 0].numpy() - 0.7) / 2
    assert_mean(u.T[:, :, None] * u.T[:, None, :], np.eye(3))
    assert_mean(u[:, 1:].ravel() * u[:, :-1].ravel(), 0.0)


def test_means_average_latents_out_and_samples_keep_them():
    card = check_model(with_latents, MANY, MANY)
    kernel = PyroKernel(with_latents, {"b": np.array([0.7, 3.0])}, card)
    mean = kernel.mean_draws(MANY, np.arange(2))[..., 0]
    assert_mean(mean, [0.7, 3.0], axis=1)
    assert (mean.std(1) < 1.0).all()
    sample = kernel.sample(MANY, np.arange(2), np.random.default_rng(0))[..., 0]
    assert_mean(sample, [0.7, 3.0], axis=1)
    assert_mean((sample.T - [0.7, 3.0]) ** 2, 4.25)


def without_mean(x, w=None):
    b = pyro.sample("b", dist.Normal(0.0, 1.0))
    base = dist.Normal((b + 0 * x[..., 0])[..., None], 0.5)
    law = dist.TransformedDistribution(base, [dist.transforms.ExpTransform()]).to_event(1)
    with pyro.plate("rows", len(x), dim=-1):
        pyro.sample("w", law, obs=w)


def test_a_mean_without_a_formula_is_averaged():
    card = check_model(without_mean, MANY, np.exp(MANY))
    kernel = PyroKernel(without_mean, {"b": np.array([0.3])}, card)
    assert_mean(kernel.mean_draws(MANY, [0])[0, :, 0], np.exp(0.3 + 0.5**2 / 2))
    assert not kernel.exact_mean


def line(x, w=None):
    b = pyro.sample("b", dist.Normal(torch.zeros(x.shape[-1]), 10.0).to_event(1))
    observe(x, w, (x * b).sum(-1), 0.1)


@pytest.fixture(scope="module")
def fitted():
    return Law(line, Lags(2)).fit(HISTORY, Laplace(500), seed=0)


def test_a_custom_law_predicts_from_the_closed_form_posterior(fitted):
    rows = HISTORY.rows(Lags(2))
    precision = rows.x.T @ rows.x / 0.01 + np.eye(2) / 100
    assert_mean(fitted.draws["b"], np.linalg.solve(precision, rows.x.T @ rows.w / 0.01)[:, 0])
    out = mean_at(fitted, HISTORY.grid.s)
    assert out.shape == (8, 12, 1)
    by_hand = Lags(2)(HISTORY.grid.s) @ fitted.draws["b"].mean(0)
    np.testing.assert_allclose(out[..., 0], by_hand, rtol=1e-10)  # NaN before the second row
    np.testing.assert_allclose(
        fitted(HISTORY.grid.s[3, :7][None]).mean()[-1], out[3, 6], rtol=1e-10
    )


def test_a_custom_law_has_draws_of_means_and_of_w(fitted):
    rng = np.random.default_rng(0)
    means = mean_draws_at(fitted, HISTORY.grid.s, 500, rng=rng)[:, :, 1:]
    assert means.shape == (500, 8, 11, 1)
    np.testing.assert_allclose(means.mean(0), mean_at(fitted, HISTORY.grid.s)[:, 1:], rtol=1e-10)
    sample = draws_at(fitted, HISTORY.grid.s[:1], 1500, rng=rng)
    assert sample.shape == (1500, 1, 12, 1)
    spread = means[:, 0].var(0) + 0.01
    assert_mean((sample[:, 0, 1:] - mean_at(fitted, HISTORY.grid.s)[0, 1:]) ** 2, spread)
    assert fitted(HISTORY.grid.s[0, :5][None]).draws(9, rng=rng)[:, -1].shape == (9, 1)


def test_a_custom_law_guesses_nothing_from_an_unseen_input():
    fitted = Law(line, Identity()).fit(HISTORY, Laplace(20), seed=0)
    s, rng = HISTORY.grid.s.copy(), np.random.default_rng(0)
    s[2, 5] = np.nan
    hidden = np.isnan(s)
    draws = mean_draws_at(fitted, s, 3, rng=rng), draws_at(fitted, s, 3, rng=rng)
    for out in (mean_at(fitted, s)[None], *draws):
        assert np.array_equal(np.isnan(out), np.broadcast_to(hidden, out.shape))
    np.testing.assert_allclose(
        mean_at(fitted, s)[~hidden], mean_at(fitted, HISTORY.grid.s)[~hidden]
    )


@pytest.mark.parametrize("how", ["nuts", Nuts, 3])
def test_what_is_not_an_engine_is_refused(how):
    with pytest.raises(PulseError, match="inference"):
        Law(line, Lags(2)).fit(HISTORY, how, seed=0)


def test_what_a_custom_law_lacks_is_named(fitted):
    rng = np.random.default_rng(0)
    with pytest.raises(ModelError, match=r"Exact.* does not suit line"):
        Law(line, Lags(2)).fit(HISTORY, Exact(), seed=0)
    with pytest.raises(ModelError, match="model is missing"):
        Law(None, Lags(2)).fit(HISTORY, seed=0)
    with pytest.raises(DataError, match=r"line: s must be a History, or \(batch, time, 1\)"):
        mean_at(fitted, np.zeros((2, 3, 2)))
    with pytest.raises(SettingError, match="line: the number of draws"):
        draws_at(fitted, HISTORY.grid.s, 0, rng=rng)
