"""The log score of every law against the density its draws describe."""

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from numpy.testing import assert_allclose
from scipy import stats
from scipy.special import logsumexp

import pulse_pyro as pp
from pulse_pyro.laws.conjugate import reduced_form
from tests.helpers import linear_history, log_density_at, mean_at, variance_at

LAGS = 2


def custom(x, w=None):
    slope = pyro.sample("slope", dist.Normal(torch.zeros(x.shape[-1]), 1.0).to_event(1))
    sd = pyro.sample("sd", dist.LogNormal(0.0, 1.0))
    with pyro.plate("rows", x.shape[-2], dim=-1):
        mean = (x * slope).sum(-1)[..., None]
        pyro.sample("w", dist.StudentT(4.0, mean, sd[..., None]).to_event(1), obs=w)


@pytest.fixture(scope="module")
def one():
    return linear_history(units=8, time=15, lags=LAGS, w_dim=1)[0]


@pytest.fixture(scope="module")
def two():
    return linear_history(units=8, time=15, lags=LAGS, w_dim=2)[0]


def by_hand(fitted, history, density):
    """log of the average over all stored draws of density(row of x, w, draw), raw units."""
    x = fitted.summary(history.grid.s)[:, LAGS:]
    w = history.grid.w[:, LAGS:]
    out = np.empty(w.shape[:2])
    for at in np.ndindex(out.shape):
        out[at] = logsumexp(density(x[at], w[at])) - np.log(fitted.kernel.count)
    return out


@pytest.mark.parametrize("width", [1, 2])
def test_a_linear_law_is_a_mixture_of_normals(width, one, two):
    history = one if width == 1 else two
    fitted = pp.linear_lags(LAGS).fit(history, pp.Exact(40), seed=0)
    coef, mix = reduced_form(fitted.draws)
    inverse = np.linalg.inv(mix)
    scale = fitted.scaler
    cov = inverse * fitted.draws["variance"][:, None, :] @ np.swapaxes(inverse, 1, 2)
    cov = cov * np.outer(scale.w_scale, scale.w_scale)

    def density(x, w):
        mean = scale.w_out(np.concatenate([[1.0], scale.x_in(x)]) @ coef)
        return [stats.multivariate_normal(m, c).logpdf(w) for m, c in zip(mean, cov, strict=True)]

    found = log_density_at(fitted, history.grid.s, history.grid.w)[:, LAGS:]
    assert_allclose(found, by_hand(fitted, history, density), rtol=1e-9)


def test_student_t_noise_has_its_own_tails(two):
    fitted = pp.linear_lags(LAGS, noise="student_t").fit(two, pp.Laplace(20), seed=0)
    coef, scale = reduced_form(fitted.draws)[0], fitted.scaler
    shape = fitted.kernel.factor @ np.swapaxes(fitted.kernel.factor, 1, 2)
    shape = shape * np.outer(scale.w_scale, scale.w_scale)

    def density(x, w):
        mean = scale.w_out(np.concatenate([[1.0], scale.x_in(x)]) @ coef)
        every = zip(mean, shape, 2.0 + fitted.draws["df_excess"], strict=True)
        return [stats.multivariate_t(m, c, df).logpdf(w) for m, c, df in every]

    found = log_density_at(fitted, two.grid.s, two.grid.w)[:, LAGS:]
    assert_allclose(found, by_hand(fitted, two, density), rtol=1e-9)


def test_a_custom_law_is_asked_for_its_own_density(one):
    fitted = pp.Law(custom, pp.Lags(LAGS)).fit(one, pp.Laplace(30), seed=0)
    slope, sd = fitted.draws["slope"], fitted.draws["sd"]
    found = log_density_at(fitted, one.grid.s, one.grid.w)[:, LAGS:]
    expected = by_hand(fitted, one, lambda x, w: stats.t(4, slope @ x, sd).logpdf(w[0]))
    assert_allclose(found, expected, rtol=1e-9)


LAWS = {
    "gaussian process": lambda h: pp.gaussian_process(LAGS).fit(h, pp.Laplace(50), seed=0),
    "neural": lambda h: pp.neural_density(LAGS, width=8).fit(
        h, pp.Ensemble(2, steps=80, batch=64), seed=0
    ),
    "state space": lambda h: pp.state_space(LAGS, ma=0).fit(h, seed=0, draws=50),
}


@pytest.mark.parametrize("name", LAWS)
def test_the_density_integrates_to_one_and_has_the_law_s_mean(name, one):
    fitted = LAWS[name](one)
    s = one.grid.s[:1, :6]
    grid = np.linspace(one.grid.w.min() - 30, one.grid.w.max() + 30, 20001)
    series = np.repeat(s, len(grid), axis=0)
    w = np.broadcast_to(grid[:, None, None], (len(grid), 6, 1))
    density = np.exp(log_density_at(fitted, series, w, draws=50))[:, -1]
    step = grid[1] - grid[0]
    assert density.sum() * step == pytest.approx(1.0, abs=1e-4)
    mean = (density * grid).sum() * step
    assert mean == pytest.approx(mean_at(fitted, s)[0, -1, 0], abs=1e-3 * one.grid.w.std())


def test_the_state_space_score_widens_where_lags_are_unseen(one):
    fitted = pp.state_space(LAGS, ma=0).fit(one, seed=0)
    hidden = one.grid.s.copy()
    hidden[:, 8:] = np.nan
    variance = variance_at(fitted, hidden)[:, -1, 0]
    far = mean_at(fitted, hidden)[:, -1] + 4 * np.sqrt(variance)[:, None]
    w = one.grid.w.copy()
    w[:, -1] = far
    found = log_density_at(fitted, hidden, w)[:, -1]
    # nearly normal: the draws of the emission differ little beside what is unseen
    assert_allclose(
        found, stats.norm(0, np.sqrt(variance)).logpdf(4 * np.sqrt(variance)), atol=0.05
    )


def test_other_units_of_w_move_the_score_by_their_logarithm(one):
    law = pp.linear_lags(LAGS)
    large = pp.History.from_arrays(
        one.grid.s,
        1000 * one.grid.w,
        seen=one.grid.seen,
        units=one.units,
        s_names=one.s_names,
        w_names=one.w_names,
    )
    first = log_density_at(law.fit(one, seed=0), one.grid.s, one.grid.w)
    second = log_density_at(law.fit(large, seed=0), large.grid.s, large.grid.w)
    assert_allclose((first - second)[:, LAGS:], np.log(1000), rtol=1e-9)


def test_rows_that_cannot_be_scored_are_nan(one):
    fitted = pp.linear_lags(LAGS).fit(one, seed=0)
    w = one.grid.w.copy()
    w[0, 5] = np.nan
    found = log_density_at(fitted, one.grid.s, w)
    assert np.isnan(found[:, : LAGS - 1]).all()
    assert np.isnan(found[0, 5])
    assert np.isfinite(np.delete(found[0, LAGS:], 5 - LAGS)).all()
