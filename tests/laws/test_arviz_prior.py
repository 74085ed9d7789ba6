"""Log densities of the prior in ArviZ: closed forms, what is left out, and power scaling."""

import time
from functools import cache
from pathlib import Path

import arviz as az
import numpy as np
import pandas as pd
import pyro
import pyro.distributions as dist
import pytest
import torch
from numpy.testing import assert_allclose
from scipy import stats

import pulse_pyro as pp
from pulse_pyro.base import Column
from pulse_pyro.laws.conjugate import Conjugate
from tests.helpers import linear_history

HISTORY = linear_history(units=8, time=12, lags=2)[0]
PAIR = linear_history(units=8, time=12, lags=1, w_dim=2)[0]
MODELS = Path(__file__).parents[2] / "models"
WIDE = np.array([1.0, 2.0])


def plain(x, w=None):
    """A scale, slopes that depend on it, and a site with axes of its own."""
    tau = pyro.sample("tau", dist.LogNormal(-0.5, 0.7))
    b = pyro.sample(
        "b", dist.Normal(torch.zeros(2), tau[..., None] * torch.tensor(WIDE)).to_event(1)
    )
    sd = pyro.sample("sd", dist.HalfNormal(2.0))
    with pyro.plate("rows", x.shape[-2], dim=-1):
        mean = (x * b).sum(-1)
        pyro.sample("w", dist.Normal(mean[..., None], sd[..., None]).to_event(1), obs=w)


def mixing(x, w=None):
    """The same, but a prior that gets several scales at once takes them for those of slopes."""
    tau = pyro.sample("tau", dist.LogNormal(-0.5, 0.7))
    b = pyro.sample("b", dist.Normal(torch.zeros(2), tau * torch.tensor(WIDE)).to_event(1))
    sd = pyro.sample("sd", dist.HalfNormal(2.0))
    with pyro.plate("rows", x.shape[-2], dim=-1):
        mean = (x * b).sum(-1)
        pyro.sample("w", dist.Normal(mean[..., None], sd[..., None]).to_event(1), obs=w)


def prior_of(fitted):
    """log_prior of a law, and its draws: one chain."""
    found = fitted.to_arviz().log_prior
    assert all(value.dims == ("chain", "draw") for value in found.data_vars.values())
    return {name: value.values[0] for name, value in found.data_vars.items()}, fitted.draws


@pytest.mark.parametrize("model", [plain, mixing])
def test_a_model_s_own_prior_is_that_of_its_distributions(model):
    law = pp.Law(model, pp.Lags(2), "own").fit(HISTORY, pp.Laplace(40), seed=0)
    found, draws = prior_of(law)
    assert set(found) == {"tau", "b", "sd"}
    assert_allclose(found["tau"], stats.lognorm(0.7, scale=np.exp(-0.5)).logpdf(draws["tau"]))
    assert_allclose(found["sd"], stats.halfnorm(scale=2.0).logpdf(draws["sd"]))
    each = stats.norm(0.0, draws["tau"][:, None] * WIDE).logpdf(draws["b"])
    assert_allclose(found["b"], each.sum(-1))


@pytest.mark.parametrize("how", [pp.Exact(30), pp.Laplace(30)], ids=["exact", "laplace"])
def test_the_linear_law_s_prior_is_the_one_it_states(how):
    law, prior = pp.linear_lags(1).fit(PAIR, how, seed=0), Conjugate()
    found, draws = prior_of(law)
    variance, psi = draws["variance"], prior.residual**2
    shape = (np.arange(2) + 2.0) / 2.0
    assert_allclose(
        found["variance"], stats.invgamma(shape, scale=psi / 2).logpdf(variance).sum(-1)
    )
    scale = np.array([prior.intercept, prior.slope_sd(1)])[:, None]
    coef = stats.norm(0.0, scale * np.sqrt(variance)[:, None]).logpdf(draws["coef"])
    assert_allclose(found["coef"], coef.sum((-1, -2)))
    link = stats.norm(0.0, np.sqrt(variance[:, 1:]) / prior.residual).logpdf(draws["link"])
    assert_allclose(found["link"], link.sum(-1))


def test_levels_of_units_are_part_of_the_model_not_of_its_prior():
    def levels(x, w=None, unit=None):
        between = pyro.sample("between", dist.HalfNormal(1.0))
        with pyro.plate("units", int(unit.max()) + 1, dim=-1):
            level = pyro.sample("level", dist.Normal(0.0, between))
        with pyro.plate("rows", x.shape[-2], dim=-1):
            pyro.sample("w", dist.Normal(level[..., unit][..., None], 0.5).to_event(1), obs=w)

    law = pp.Law(levels, pp.Lags(1), "levels").fit(HISTORY, pp.Laplace(30), seed=0)
    found, draws = prior_of(law)
    assert set(found) == {"between"}
    assert_allclose(found["between"], stats.halfnorm().logpdf(draws["between"]))
    assert "(level)" in law.to_arviz().attrs["log_prior"]


def test_a_program_with_a_state_has_the_prior_of_its_parameters():
    def prior():
        keep = pyro.sample("keep", dist.Beta(8.0, 2.0))
        tau = pyro.sample("tau", dist.LogNormal(-1.0, 0.5))
        pull = pyro.sample("pull", dist.Normal(torch.zeros(2), tau).to_event(1))
        return keep, pull.sum(-1)

    def first(p):
        pyro.sample("z", dist.Normal(0.0, 1.0))

    def step(p, z, s_past):
        z = pyro.sample("z", dist.Normal(p[0] * z, 0.3))
        pyro.sample("w0", dist.Normal(z + p[1] * s_past[..., -1, 0], 0.3))

    history = linear_history(units=4, time=8, lags=1)[0]
    law = pp.StepLaw(prior, first, step, name="drift").fit(history, pp.Laplace(20), seed=0)
    found, draws = prior_of(law)
    assert_allclose(found["keep"], stats.beta(8, 2).logpdf(draws["keep"]))
    pull = stats.norm(0.0, draws["tau"][:, None]).logpdf(draws["pull"]).sum(-1)
    assert_allclose(found["pull"], pull)


@pytest.mark.parametrize(
    ("law", "how", "said"),
    [
        (pp.linear_lags(2, prior=pp.laws.Flat()), pp.Exact(20), "improper"),
        (pp.neural_density(1, width=4), pp.Ensemble(2, steps=5, batch=16), "ensemble"),
        (pp.state_space(1, ma=0), None, "maximum likelihood"),
    ],
    ids=["flat", "networks", "state space"],
)
def test_a_law_that_has_none_says_why(law, how, said):
    tree = law.fit(HISTORY, how, seed=0).to_arviz()
    assert "log_prior" not in tree.groups()
    assert said in tree.attrs["log_prior"]


@cache
def level_under(spread):
    """A level and its prior's sd; rows say 0.5 give or take 1 / sqrt(96)."""

    def model(x, w=None):
        level = pyro.sample("level", dist.Normal(0.0, spread))
        with pyro.plate("rows", x.shape[-2], dim=-1):
            pyro.sample("w", dist.Normal(level[..., None], 1.0).to_event(1), obs=w)

    rng = np.random.default_rng(0)
    w = 0.5 + rng.standard_normal((8, 12, 1))
    history = pp.History.from_arrays(np.zeros_like(w), w)
    law = pp.Law(model, pp.Lags(1), "level")
    return law.fit(history, pp.Laplace(1000), seed=0).to_arviz(history, size=1000)


def test_power_scaling_tells_a_prior_that_decides_from_one_that_does_not():
    assert float(az.psens(level_under(10.0)).level) < 0.05
    assert float(az.psens(level_under(0.05)).level) > 0.05  # ArviZ's own limit
    assert float(az.psens(level_under(10.0), component="likelihood").level) > 0.05


def test_scaling_the_prior_is_what_refitting_with_it_gives():
    tree, power = level_under(0.3), 1.25
    weight = np.exp((power - 1.0) * tree.log_prior.level.values[0])
    level = tree.posterior.level.values[0]
    found = (weight * level).sum() / weight.sum()
    w = tree.observed_data.w0.values
    # normal prior to the power a: precision a / 0.3^2, conjugate to rows of variance 1
    exact = w.sum() / (len(w) + power / 0.3**2)
    assert abs(found - exact) < 4 * level.std() / np.sqrt(len(level))
    moved = w.sum() / (len(w) + 1.0 / 0.3**2) - exact
    assert abs(found - level.mean() + moved) < abs(moved) / 2  # and it is the scaling that does it


def test_warm_up_and_sampling_are_timed(tmp_path):
    began = time.perf_counter()
    law = pp.linear_lags(1).fit(HISTORY, pp.Nuts(draws=4, warmup=100, chains=2), seed=0)
    took = time.perf_counter() - began
    told = law.to_arviz().sample_stats.attrs
    assert 0 < told["sampling_time"] < told["warmup_time"]
    assert told["sampling_time"] + told["warmup_time"] < took
    pp.save(law, tmp_path / "law")
    assert pp.load(tmp_path / "law").to_arviz().sample_stats.attrs == told
    assert not pp.linear_lags(1).fit(HISTORY, seed=0).record.seconds


def diary():
    rng = np.random.default_rng(2)
    n = 12 * 8
    frame = {"id": np.repeat([f"p{i}" for i in range(12)], 8), "day": np.tile(np.arange(8), 12)}
    frame |= {"steps": rng.standard_normal(n), "minutes": rng.standard_normal(n)}
    frame |= {"mood": rng.choice(["low", "fair", "high"], n), "ad": rng.choice(["tv", "web"], n)}
    return pd.DataFrame(frame)


def history(*missing):
    kinds = {"mood": Column("mood", kind="ordinal", levels=("low", "fair", "high"))}
    kinds |= {"ad": "categorical"}
    return pp.History.from_frame(
        diary(),
        unit="id",
        time="day",
        observed="steps",
        missing=list(missing),
        kinds={name: kinds[name] for name in missing if name in kinds},
    )


@pytest.mark.parametrize(
    ("law", "missing", "names"),
    [
        (pp.linear_lags(2), ["minutes"], {"slope[steps.lag1]"}),
        (pp.generalised_lags(2), ["mood"], {"slope[steps.lag1]", "share[fair]"}),
        (pp.generalised_lags(2), ["ad"], {"slope[steps.lag1]", "intercept"}),
        (
            pp.laws.mixed_lags(2),
            ["mood", "ad", "minutes"],
            {"mood_slope[steps.lag1]", "mood_share[low]", "minutes_link[ad[web]]", "minutes_sd"},
        ),
    ],
    ids=["linear", "ordinal", "categorical", "mixed"],
)
def test_a_summary_speaks_of_inputs_columns_and_levels_by_name(law, missing, names):
    tree = law.fit(history(*missing), pp.Laplace(20), seed=0).to_arviz()
    assert names <= set(az.summary(tree, kind="stats").index)


def test_a_summary_speaks_of_units_by_name():
    law = pp.law_from_file(MODELS / "person_levels.py")
    tree = law.fit(history("minutes"), pp.Laplace(20), seed=0).to_arviz()
    assert {"b[steps.lag1]", "level[p7]"} <= set(az.summary(tree, kind="stats").index)
