import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.infer.autoguide import AutoNormal

from pulse_pyro._core.errors import ModelError, SettingError
from pulse_pyro._pyro import modes, potential
from pulse_pyro._pyro.contract import check_model
from pulse_pyro._pyro.engines import Problem, run_engine
from pulse_pyro._pyro.inference import Exact, Laplace, Nuts, Svi
from pulse_pyro._pyro.sandbox import sandbox
from tests.helpers import z_bound

NOISE, PRIOR = 0.5, 10.0
QUICK = [Nuts(20, 30), Svi(40, 50), Laplace(40)]
ONE = np.ones((3, 1))


def observe(x, w, law):
    with pyro.plate("rows", len(x), dim=-1):
        pyro.sample("w", law.to_event(1), obs=w)


def constant(x, w, loc):
    observe(x, w, dist.Normal((loc + 0 * x[..., 0])[..., None], 1.0))


def vector(dim, scale):
    return pyro.sample("b", dist.Normal(torch.zeros(dim), scale).to_event(1))


def regression(x, w=None):
    observe(x, w, dist.Normal((x * vector(3, PRIOR)).sum(-1)[..., None], NOISE))


def data(scales=(1.0, 1.0, 1.0), n=100):
    """Correlated inputs, and w from a known line."""
    rng = np.random.default_rng(3)
    x = rng.standard_normal((n, 3)) @ (np.eye(3) + 0.7) * scales
    w = x @ (np.array([1.0, -2.0, 3.0]) / scales) + NOISE * rng.standard_normal(n)
    return x, w[:, None]


def fit(model, x, w, how, guide=None):
    card = check_model(model, x, w)
    tensors = torch.as_tensor(x), torch.as_tensor(w)
    return run_engine(Problem(model, tensors, card, model.__name__, guide), how, 0)


def closed_form(x, w):
    precision = x.T @ x / NOISE**2 + np.eye(3) / PRIOR**2
    return np.linalg.solve(precision, x.T @ w[:, 0] / NOISE**2), precision


# error of a spread allowed: 4.5 standard errors of as many draws, and what an engine adds
ENGINES = [(Nuts(250, 100), 0.17), (Laplace(4000), 0.10), (Svi(4000), 0.15)]


@pytest.fixture(scope="module", params=ENGINES, ids=lambda pair: type(pair[0]).__name__)
def gaussian(request):
    how, tolerance = request.param
    x, w = data([1.0, 100.0, 0.01])
    return how, tolerance, fit(regression, x, w, how), closed_form(x, w)


def test_every_engine_finds_the_gaussian_posterior(gaussian):
    how, tolerance, found, (mean, precision) = gaussian
    sd = np.sqrt(np.diag(np.linalg.inv(precision)))
    b = found.draws["b"]
    assert b.shape == (how.draws * getattr(how, "chains", 1), 3)
    assert b.dtype == np.float64
    assert np.max(np.abs(b.mean(0) - mean) / sd) < max(0.1, z_bound(3) / np.sqrt(how.draws))
    np.testing.assert_allclose(b.std(0) / sd, 1, atol=tolerance)
    correlation = np.linalg.inv(precision) / np.outer(sd, sd)
    np.testing.assert_allclose(np.corrcoef(b.T), correlation, atol=tolerance)


def test_quality_is_good_on_a_gaussian_posterior(gaussian):
    how, _, found, _ = gaussian
    if isinstance(how, Nuts):
        assert found.quality["r_hat"] < 1.02
        assert found.quality["ess"] > how.draws / 4
        assert found.quality["divergences"] == 0
    else:
        assert found.quality["pareto_k"] < 0.7
    assert len(found.losses) == (how.steps if isinstance(how, Svi) else 0)


def heavy(x, w=None):
    observe(x, w, dist.StudentT(0.3, vector(40, 10.0) + 0 * x[..., :1], 1.0))


def cliff(x, w=None):
    b = pyro.sample("b", dist.Normal(0.0, 1.0))
    pyro.factor("cliff", torch.where(b < 0, -1e6, 0.0).sum())
    constant(x, w, 0 * b)


BAD = [
    (heavy, np.zeros((1, 40)), Laplace(400), "pareto_k", 0.7),
    (heavy, np.zeros((1, 40)), Nuts(10, 1), "r_hat", 1.1),
    (cliff, np.zeros((1, 1)), Nuts(50, 50), "divergences", 0),
]


@pytest.mark.parametrize(("model", "w", "how", "figure", "limit"), BAD)
def test_quality_is_bad_where_it_should_be(model, w, how, figure, limit):
    assert fit(model, np.zeros((1, 1)), w, how).quality[figure] > limit


@pytest.mark.parametrize("chains", [1, 2, 3])
def test_nuts_returns_as_many_draws_of_each_chain_as_asked(chains):
    found = fit(regression, *data(), Nuts(20, 5, chains))
    assert found.draws["b"].shape == (20 * chains, 3)
    assert {len(values) for values in found.sampler.values()} == {20 * chains}
    told = found.sampler
    # a tree of depth d has at most 2^d - 1 leapfrog steps, at least 2^(d - 1)
    assert (told["n_steps"] < 2 ** told["tree_depth"]).all()
    assert (told["n_steps"] >= 2 ** (told["tree_depth"] - 1)).all()
    assert ((told["acceptance_rate"] >= 0) & (told["acceptance_rate"] <= 1)).all()
    # H = U + K with K >= 0, at the draw before: lp is -U
    assert (told["energy"][1:20] + told["lp"][:19] >= 0).all()
    assert len(np.unique(found.draws["b"], axis=0)) > 10


def test_nuts_has_a_thousand_draws_unless_told_otherwise():
    assert Nuts().draws * Nuts().chains == 1000


def positive(x, w=None):
    rate = pyro.sample("rate", dist.Gamma(3.0, 2.0))
    constant(x, w, rate * pyro.sample("share", dist.Dirichlet(torch.ones(3)))[..., 0])


@pytest.mark.parametrize("how", QUICK, ids=lambda how: type(how).__name__)
def test_draws_keep_the_support_of_their_sites(how):
    draws = fit(positive, ONE, ONE, how).draws
    assert draws["rate"].shape == (40,)
    assert all((value > 0).all() for value in draws.values())
    np.testing.assert_allclose(draws["share"].sum(-1), np.ones(40))


def own_guide(x, w=None):
    pyro.sample("b", dist.Normal(pyro.param("loc", torch.zeros(3)), 0.05).to_event(1))


def test_a_guide_made_of_parameters_is_used():
    x, w = data()
    found = fit(regression, x, w, Svi(1000, steps=500, rate=0.1), own_guide)
    assert np.max(np.abs(found.draws["b"].mean(0) - closed_form(x, w)[0])) < 0.01
    np.testing.assert_allclose(found.draws["b"].std(0), 0.05, rtol=0.1)
    assert len(found.losses) == 500


def test_a_guide_that_is_a_module_is_used():
    x, w = data(n=8)
    found = fit(regression, x, w, Svi(1000, steps=500, rate=0.1), AutoNormal(regression))
    mean, precision = closed_form(x, w)
    sd = np.diag(precision) ** -0.5  # of the best independent Gaussian; the marginals are wider
    assert np.max(np.abs(found.draws["b"].mean(0) - mean) / sd) < 0.25
    np.testing.assert_allclose(found.draws["b"].std(0) / sd, 1, atol=0.15)


def test_a_guide_that_misses_a_site_is_refused():
    with pytest.raises(ModelError, match="regression: the guide does not sample site 'b'"):
        fit(regression, *data(), Svi(8, steps=2), lambda x, w=None: None)


@pytest.mark.parametrize("how", QUICK, ids=lambda how: type(how).__name__)
@pytest.mark.parametrize("site", [dist.Bernoulli(0.5), dist.Poisson(3.0)])
def test_a_discrete_site_is_refused(site, how):
    def model(x, w=None):
        constant(x, w, pyro.sample("count", site))

    with pytest.raises(ModelError, match="model: site 'count' is discrete"):
        fit(model, ONE, ONE, how)


def impossible(x, w=None):
    rate = pyro.sample("b", dist.Uniform(0.0, 1.0))
    observe(x, w, dist.Exponential((rate + 0 * x[..., 0])[..., None]))


def endless(x, w=None):
    constant(x, w, vector(401, 1.0).mean(-1))


def modeless(x, w=None):
    constant(x, w, 0 * pyro.sample("b", dist.Normal(0.0, 1.0).mask(False)))


REFUSED = [(endless, 1, "401 parameters"), (modeless, 1, "no proper mode"), (impossible, -1, "")]


@pytest.mark.parametrize(("model", "sign", "says"), REFUSED)
def test_laplace_refuses_what_it_cannot_fit(model, sign, says):
    with pytest.raises(ModelError, match=f"^{model.__name__}: .*{says}"):
        fit(model, ONE, sign * ONE, Laplace(8))


SETTINGS = [
    (Nuts, {"draws": 3}, "Nuts: draws"),
    (Nuts, {"chains": 0}, "Nuts: chains"),
    (Nuts, {"warmup": 0}, "Nuts: warmup"),
    (Nuts, {"target_accept": 1.0}, "target_accept"),
    (Svi, {"steps": 0}, "Svi: steps"),
    (Svi, {"rate": 0.0}, "Svi: rate"),
    (Svi, {"rate": "fast"}, "Svi: rate"),
    (Svi, {"draws": 1.5}, "Svi: draws"),
    (Laplace, {"draws": True}, "Laplace: draws"),
    (Exact, {"draws": 1}, "Exact: draws"),
]


@pytest.mark.parametrize(("engine", "setting", "says"), SETTINGS)
def test_a_setting_out_of_range_is_named(engine, setting, says):
    with pytest.raises(SettingError, match=says):
        engine(**setting)


@pytest.mark.parametrize(("restarts", "found"), [(1, False), (modes.RESTARTS, True)])
def test_a_curved_valley_takes_more_than_one_search(restarts, found, monkeypatch):
    def valley():
        u = pyro.sample("u", dist.Normal(torch.zeros(100), 1.0).to_event(1).mask(False))
        pyro.factor("valley", -(100 * (u[1:] - u[:-1] ** 2) ** 2 + (1 - u[:-1]) ** 2).sum())

    monkeypatch.setattr(modes, "RESTARTS", restarts)
    with sandbox(0):
        posterior = potential.Potential(valley, (), "valley")
    assert posterior.whitened == found
    assert torch.allclose(posterior.mode, torch.ones(100, dtype=torch.float64), atol=1e-4) == found
