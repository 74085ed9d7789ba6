"""W of several kinds in ArviZ: one variable a column, and ArviZ can use each of them."""

from functools import cache

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pyro
import pyro.distributions as dist
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy import special, stats

import pulse_pyro as pp
from pulse_pyro._core.errors import DataError
from pulse_pyro.base import Column
from tests.helpers import assert_mean, linear_history

LEVELS = (1.0, 2.0, 3.0)


def nights(x, w=None):
    """0/1 bad nights, and mood of three levels given the night."""
    w = w or {}
    a, b, gap = (pyro.sample(name, dist.Normal(0.0, 1.0)) for name in ("a", "b", "gap"))
    cuts = torch.stack([-1.0 + 0.0 * a, 0.8 + 0.0 * a], -1)
    line = a + b * x[..., 0]
    with pyro.plate("rows", x.shape[-2], dim=-1):
        bad = pyro.sample("bad", dist.Bernoulli(logits=line), obs=w.get("bad"))
        pyro.sample("mood", dist.OrderedLogistic(line - gap * bad, cuts), obs=w.get("mood"))


def archive(missing, count=300):
    rng = np.random.default_rng(1)
    s = rng.standard_normal(count)
    bad = rng.random(count) < special.expit(0.4 + 0.8 * s)
    at_most = special.expit(np.array([-1.0, 0.8]) - (0.4 + 0.8 * s - 1.2 * bad)[:, None])
    mood = 1.0 + (rng.random(count)[:, None] > at_most).sum(1)
    frame = {"unit": np.arange(count) // 20, "time": np.arange(count) % 20, "steps": s}
    kinds = {"bad": "binary", "mood": Column("mood", kind="ordinal", levels=(1, 2, 3))}
    return pp.History.from_frame(
        pd.DataFrame({**frame, "mood": mood, "bad": bad.astype(float)}),
        unit="unit",
        time="time",
        observed="steps",
        missing=missing,
        kinds={name: kinds[name] for name in missing},
    )


BOTH, MOOD = archive(["mood", "bad"]), archive(["mood"])


@cache
def custom():
    return pp.Law(nights, pp.Lags(1), "nights").fit(BOTH, pp.Laplace(1000), seed=0)


@cache
def ordinal(lags=2):
    return pp.generalised_lags(lags, "ordinal").fit(MOOD, pp.Laplace(1000), seed=0)


@pytest.fixture
def figure():
    state = np.random.get_state()  # noqa: NPY002  plot_ppc picks its draws with the global stream
    yield
    np.random.set_state(state)  # noqa: NPY002
    plt.close("all")


def test_each_column_is_scored_alone_and_all_of_them_together():
    tree = custom().to_arviz(BOTH, size=50)
    score, some = tree.log_likelihood, tree.posterior.sel(draw=tree.log_likelihood.draw)
    assert list(score.data_vars) == ["mood", "bad", "joint"]
    x = custom().scaler.x_in(tree.constant_data.x.values)[:, 0]
    line = some.a.values[..., None] + some.b.values[..., None] * x
    bad, mood = tree.observed_data.bad.values, tree.observed_data.mood.values
    given_night = []
    for night in (0.0, 1.0):
        at = line - some.gap.values[..., None] * night
        upto = special.expit(np.array([-1.0, 0.8]) - at[..., None])
        chance = np.diff(upto, axis=-1, prepend=0.0, append=1.0)
        code = np.broadcast_to((mood - 1).astype(int)[:, None], (*at.shape, 1))
        given_night.append(np.take_along_axis(chance, code, -1)[..., 0])
    p_bad = special.expit(line)
    by_hand = (1 - p_bad) * given_night[0] + p_bad * given_night[1]
    joint = np.where(bad == 1, p_bad * given_night[1], (1 - p_bad) * given_night[0])
    assert_allclose(score.bad, stats.bernoulli(p_bad).logpmf(bad), rtol=1e-9)
    assert_allclose(score.mood, np.log(by_hand), rtol=1e-9)
    assert_allclose(score.joint, np.log(joint), rtol=1e-9)


def test_columns_are_variables_of_data_and_predictions():
    tree = custom().to_arviz(BOTH, size=50)
    row = tree.observed_data.row.values
    for j, name in enumerate(BOTH.w_names):
        assert_array_equal(tree.observed_data[name], BOTH.w[row, j])
        assert tree.posterior_predictive[name].dims == ("chain", "draw", "row")
    assert set(np.unique(tree.posterior_predictive.mood)) == set(LEVELS)
    assert set(np.unique(tree.posterior_predictive.bad)) == {0.0, 1.0}


def test_one_site_of_several_w_is_scored_jointly_alone():
    def pair(x, w=None):
        b = pyro.sample("b", dist.Normal(torch.zeros(2), 1.0).to_event(1))
        with pyro.plate("rows", x.shape[-2], dim=-1):
            mean = x[..., :1] * b[..., None, :]
            pyro.sample("w", dist.Normal(mean, 1.0).to_event(1), obs=w)

    history = linear_history(units=6, time=8, lags=1, w_dim=2)[0]
    law = pp.Law(pair, pp.Lags(1), "pair").fit(history, pp.Laplace(20), seed=0)
    tree = law.to_arviz(history)
    assert list(tree.log_likelihood.data_vars) == ["joint"]
    assert list(tree.observed_data.data_vars) == ["w0", "w1"]


def test_a_linear_law_s_columns_have_their_own_densities():
    history = linear_history(units=6, time=8, lags=1, w_dim=2)[0]
    tree = pp.linear_lags(1).fit(history, seed=0).to_arviz(history, size=30)
    some = tree.posterior.sel(draw=tree.log_likelihood.draw)
    for name in ("w0", "w1"):
        at = some.sel(output=name)
        mean = at.intercept + (at.slope * tree.constant_data.x).sum("input")
        sd = at.noise_scale.values[..., None]
        expected = stats.norm(mean.values, sd).logpdf(tree.observed_data[name].values)
        assert_allclose(tree.log_likelihood[name], expected, rtol=1e-9)
    both = tree.log_likelihood
    assert not np.allclose(both.joint, both.w0 + both.w1)  # their noise is correlated


@pytest.mark.parametrize("name", ["joint", "time"])
def test_a_column_whose_name_is_taken_is_refused(name):
    from pulse_pyro.laws.arviz_tree import variables

    with pytest.raises(DataError, match="rename"):
        variables((name,))
    assert variables(("km/h", "mood")) == ("km_h", "mood")
    with pytest.raises(DataError, match="rename"):
        variables(("km/h", "km_h"))


def test_leaving_rows_out_works_column_by_column():
    tree = custom().to_arviz(BOTH, size=1000)
    for name in ("mood", "bad", "joint"):
        found = az.loo(tree, var_name=name, pointwise=True)
        assert np.isfinite(found.elpd_loo)
        assert (found.pareto_k < 0.7).all()


def test_laws_of_an_ordinal_w_are_compared_on_the_same_rows():
    right = ordinal(2).to_arviz(MOOD, size=1000)
    rows = right.log_likelihood.row
    late = pp.generalised_lags(pp.Lags(1, start=1), "ordinal")  # without S_t
    wrong = late.fit(MOOD, pp.Laplace(1000), seed=0).to_arviz(MOOD, size=1000)
    assert_array_equal(wrong.log_likelihood.row, rows)
    table = az.compare({"right": right, "late": wrong})
    assert list(table.index) == ["right", "late"]
    assert (az.loo(right, pointwise=True).pareto_k < 0.7).all()


def test_predictions_of_an_ordinal_w_are_drawn_against_the_data(figure):
    assert az.plot_ppc(ordinal().to_arviz(MOOD, size=30), num_pp_samples=10) is not None
    axes = az.plot_ppc(custom().to_arviz(BOTH, size=30), num_pp_samples=10)
    assert len(axes) == 2


def test_a_slope_of_one_w_is_named_by_its_input():
    assert "slope[steps.lag1]" in az.summary(ordinal().to_arviz(), kind="stats").index


def test_the_prior_is_the_model_s_and_predicts():
    tree = custom().to_arviz(BOTH, size=400)
    for name in ("a", "b", "gap"):  # standard normal each
        assert_mean(tree.prior[name].values.ravel(), 0.0)
        assert_mean(tree.prior[name].values.ravel() ** 2, 1.0)
    x = custom().scaler.x_in(tree.constant_data.x.values)[:, 0]
    line = tree.prior.a.values[0, :, None] + tree.prior.b.values[0, :, None] * x
    left = tree.prior_predictive.bad.values[0] - special.expit(line)
    assert_mean(left.mean(1), 0.0)
    slope = ordinal().to_arviz(MOOD, size=20).prior.slope
    assert slope.dims == ("chain", "draw", "input")


def test_a_law_without_a_prior_says_why():
    history = linear_history(units=8, time=12, lags=2)[0]
    tree = pp.state_space(2, ma=0).fit(history, seed=0, draws=50).to_arviz(history)
    assert "prior" not in tree.groups()
    assert "maximum likelihood" in tree.attrs["prior"]
