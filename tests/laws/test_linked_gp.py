"""Gaussian processes behind a link: W 0/1, ordinal, counts."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import special

import pulse_pyro as pp
from pulse_pyro._core.errors import PulseError
from tests.helpers import z_bound

GRID = np.linspace(-1.8, 1.8, 19)
CUTS = np.array([-1.0, 1.0])
PHI = pp.Features(lambda s, w, a: a * np.exp(w), actions=2, names=("exp(w)*a",))


def bend(s):
    return 2.0 * np.sin(2.0 * s)


def made(kind, units=40, time=15, seed=0):
    rng = np.random.default_rng(seed)
    s = rng.uniform(-2, 2, (units, time, 1))
    if kind == "bernoulli":
        w = (rng.random(s.shape) < special.expit(bend(s))).astype(float)
    elif kind == "ordinal":
        w = 1.0 + np.digitize(bend(s) + rng.logistic(size=s.shape), CUTS)
    else:
        w = rng.poisson(np.exp(bend(s) / 2)).astype(float)
    return pp.History.from_arrays(s, w)


def truth(kind):
    eta = bend(GRID)
    if kind == "bernoulli":
        return special.expit(eta)
    if kind == "ordinal":
        return 1.0 + special.expit(eta[:, None] - CUTS).sum(1)
    return np.exp(eta / 2)


@pytest.fixture(scope="module")
def fits():
    """Laws by kind; ordinal levels are 1, 2, 3."""
    kinds = ("bernoulli", "ordinal", "poisson", "negative_binomial")
    return {
        kind: pp.gaussian_process(1, basis=16, kind=kind).fit(made(kind), pp.Laplace(200), seed=0)
        for kind in kinds
    }


def at(law, rows=GRID):
    return law(np.asarray(rows)[:, None, None])


def test_known_curves_are_found(fits):
    for kind, law in fits.items():
        curves = at(law).mean_draws(200, rng=np.random.default_rng(0))[..., 0]
        z = (at(law).mean()[:, 0] - truth(kind)) / curves.std(0)
        assert np.abs(z).max() < z_bound(len(GRID)), kind
        assert curves.std(0).max() < 0.2 * np.ptp(truth(kind)), kind
        assert law.record.quality["pareto_k"] < 0.7, kind
        # a straight line behind the link cannot follow it
        line = pp.generalised_lags(1, kind).fit(made(kind), pp.Laplace(200), seed=0)
        far = np.abs(at(line).mean()[:, 0] - truth(kind)).max()
        assert far > 2 * np.abs(at(law).mean()[:, 0] - truth(kind)).max(), kind


def test_the_evidence_of_one_weight_is_that_of_brute_force():
    """Of few parameters, amplitude and length given: a grid integral knows the posterior."""
    import torch

    from pulse_pyro._pyro.sandbox import sandbox
    from pulse_pyro.laws.hilbert import Hilbert
    from pulse_pyro.laws.linked_gp import Inner
    from pulse_pyro.laws.responses import Bernoulli

    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (300, 1))
    w = (rng.random(x.shape) < 0.7).astype(float)
    log = np.log([1.3, 0.8])
    with sandbox(0, "t"):
        inner = Inner(Hilbert((-1.0,), (1.0,), 1, (2.0,)), Bernoulli(), x, w)
        mode = inner.mode(log, torch.zeros(inner.dim))
        z = inner.scaled(log).numpy()
        root = np.linalg.inv(mode.factor.numpy()).T
    nodes, weight = special.roots_hermitenorm(20)
    nodes = np.stack(np.meshgrid(nodes, nodes, nodes, indexing="ij"), -1).reshape(-1, 3)
    weight = np.einsum("i,j,k->ijk", weight, weight, weight).ravel()
    points = mode.at.numpy() + nodes @ root.T
    joint = special.log_expit((2 * w - 1) * (z @ points.T)).sum(0)
    joint += -0.5 * (points**2).sum(1) - 1.5 * np.log(2 * np.pi)
    whole = weight * np.exp(joint + 0.5 * (nodes**2).sum(1) + mode.energy)
    evidence = np.log(whole.sum() * np.linalg.det(root)) - mode.energy
    assert abs(mode.evidence - evidence) < 0.05
    mean = whole @ points / whole.sum()
    assert_allclose(mode.at.numpy(), mean, atol=0.25 * np.sqrt((root**2).sum(1)).max())


def test_sums_over_values_are_exact(fits):
    for kind, values in (("bernoulli", [0.0, 1.0]), ("ordinal", [1.0, 2.0, 3.0])):
        found = at(fits[kind]).expect(PHI, size=2, rng=None)
        chance = np.diff(
            np.stack([at(fits[kind]).cdf(np.full((len(GRID), 1), v)) for v in [-1.0, *values]]),
            axis=0,
        )[..., 0]
        assert_allclose(chance.sum(0), 1.0)
        assert found.exact
        assert_allclose(found.mean[:, 1, 0], np.exp(values) @ chance, rtol=1e-10)
        assert_allclose(at(fits[kind]).mean()[:, 0], np.array(values) @ chance, rtol=1e-10)
        density = at(fits[kind]).log_density(np.full((len(GRID), 1), values[-1]))
        assert_allclose(np.exp(np.ravel(density)), chance[-1], rtol=1e-8)
        drawn = at(fits[kind]).draws(4000, rng=np.random.default_rng(0))
        assert_allclose(drawn.mean(0), at(fits[kind]).mean(), atol=0.08)


def test_predictions_are_those_of_the_pyro_model(fits):
    """The stored draws mean to NumPy what they mean to Pyro."""
    import pyro.poutine as poutine
    import torch

    from pulse_pyro._pyro.sandbox import sandbox

    law = fits["bernoulli"]
    x = GRID[:, None]  # in the law's units
    with sandbox(0, "t"):
        sites = {k: torch.as_tensor(v[7].copy()) for k, v in law.draws.items()}
        bound = poutine.condition(law.law.model_for(1, 1), sites)
        w = poutine.trace(bound).get_trace(torch.as_tensor(x)).nodes["w"]["fn"].mean
    assert_allclose(law.kernel.mean_draws(x, np.array([7]))[0], w.numpy(), atol=1e-10)


def test_from_check_to_policy(tmp_path):
    fit, held_out = made("bernoulli", units=100, time=10, seed=1).split(0.5, seed=0)
    recipe = pp.gaussian_process(1, basis=12, kind="bernoulli")
    card = recipe.check(fit)
    assert {"weight", "amplitude", "length"} <= {site.name for site in card.sites}
    law = recipe.fit(fit, pp.Laplace(100), seed=0)
    assert pp.diagnose(law, held_out, seed=0, archive=fit).verdict in ("pass", "warn")
    straight = pp.generalised_lags(1, "bernoulli").fit(fit, pp.Laplace(100), seed=0)
    assert pp.diagnose(straight, held_out, seed=0, archive=fit).verdict == "fail"
    found = pp.calibrate(law, held_out, PHI, seed=0)
    verdicts = {rung.name: rung.verdict for rung in found.rungs}
    assert verdicts["forecast"] in ("stands", "conditional")
    pp.save(law, tmp_path / "law")
    again = pp.load(tmp_path / "law")
    assert again.id == law.id
    assert_array_equal(again(held_out).mean(), law(held_out).mean())
    bot = pp.PulseUCB(again, PHI, pp.constant(1.0))
    for t, s in enumerate(held_out.grid.s[0][:4]):
        decision = bot.act(s)
        assert_allclose(
            decision.x, again(s[None, None]).expect(PHI, size=2, rng=None).mean[0, decision.action]
        )
        bot.learn(decision, float(t))
    tree = law.to_arviz(fit.take(range(2)), size=10)
    assert "length" in tree["posterior"]


def test_an_input_that_is_not_seen_is_averaged_over(fits):
    s = np.array([[[np.nan]]])
    mean = fits["bernoulli"](s).mean()[0, 0]
    assert 0.4 < mean < 0.6  # the curve is odd


def test_two_fits_with_one_seed_agree(fits):
    again = pp.gaussian_process(1, basis=16, kind="poisson").fit(
        made("poisson"), pp.Laplace(200), seed=0
    )
    for name, value in fits["poisson"].draws.items():
        assert_array_equal(value, again.draws[name])


def test_mistakes_are_told():
    with pytest.raises(PulseError, match="bernoulli"):
        pp.gaussian_process(1, kind="bernouli")
    with pytest.raises(PulseError, match="0 or 1"):
        pp.gaussian_process(1, kind="bernoulli").fit(made("ordinal"), seed=0)
    with pytest.raises(PulseError, match="Exact"):
        pp.gaussian_process(1, kind="bernoulli").fit(made("bernoulli"), pp.Exact(), seed=0)
