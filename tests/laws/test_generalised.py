"""Generalised linear lags: codes and numbers, the posterior, closed forms, what is refused."""

import re

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import special, stats

import pulse_pyro as pp
from pulse_pyro._core.errors import DataError, PulseError, SettingError
from pulse_pyro.base import Column
from pulse_pyro.laws.responses import (
    RESPONSE_KINDS,
    Bernoulli,
    Beta,
    Categories,
    NegativeBinomial,
    Ordinal,
    Poisson,
)
from tests.helpers import FALSE_ALARM, assert_mean

UNITS, TIME = 40, 25
KINDS = {
    "bernoulli": "binary",
    "ordinal": Column("w", kind="ordinal", levels=(1, 2, 4, 8)),
    "categorical": "categorical",
    "poisson": "count",
    "negative_binomial": "count",
    "beta": "real",
}
FINITE = ("bernoulli", "ordinal", "categorical")


def archive_of(values, s, kind):
    """An archive of one W column, declared as it is."""
    unit, time = np.indices(s.shape[:2])
    frame = pd.DataFrame({"u": unit.ravel(), "t": time.ravel(), "w": np.asarray(values).ravel()})
    for j in range(s.shape[2]):
        frame[f"s{j}"] = s[..., j].ravel()
    seen = [f"s{j}" for j in range(s.shape[2])]
    return pp.History.from_frame(
        frame, unit="u", time="t", observed=seen, missing=["w"], kinds={"w": kind}
    )


def values_of(kind, eta, rng):
    """W of a kind with a known predictor."""
    if kind == "bernoulli":
        return (rng.random(eta.shape) < special.expit(eta)).astype(float)
    if kind == "ordinal":
        level = ((rng.logistic(size=eta.shape) + eta)[..., None] > [-1.0, 0.0, 1.5]).sum(-1)
        return np.array([1, 2, 4, 8])[level]
    if kind == "categorical":
        pull = np.stack([0 * eta, eta, -eta], -1) + rng.gumbel(size=(*eta.shape, 3))
        return np.array(["call", "mail", "text"])[pull.argmax(-1)]
    if kind == "poisson":
        return rng.poisson(np.exp(0.5 + 0.5 * eta)).astype(float)
    if kind == "negative_binomial":
        return rng.poisson(np.exp(0.5 + 0.5 * eta) * rng.gamma(2, 0.5, size=eta.shape)).astype(
            float
        )
    mean = special.expit(eta)
    return np.clip(rng.beta(6 * mean, 6 * (1 - mean)), 1e-4, 1 - 1e-4)


def made(kind, seed=0, units=UNITS, time=TIME):
    rng = np.random.default_rng(seed)
    s = rng.standard_normal((units, time, 2))
    return archive_of(values_of(kind, s @ np.array([1.0, -0.5]), rng), s, KINDS[kind])


@pytest.fixture(scope="module")
def fits():
    histories = {kind: made(kind) for kind in RESPONSE_KINDS}
    return {
        kind: (pp.generalised_lags(1, kind).fit(history, pp.Laplace(300), seed=0), history)
        for kind, history in histories.items()
    }


# Levels as numbers, categories as 0/1 columns.


def test_phi_sees_declared_numbers_and_the_model_codes(fits):
    law, history = fits["ordinal"]
    assert_array_equal(np.unique(history.w), [1, 2, 4, 8])
    data, _ = law.law.prepare(history)
    assert_array_equal(np.unique(data.w), [0, 1, 2, 3])
    assert_array_equal(law(history, [0]).support, [[1], [2], [4], [8]])
    named = Column("w", kind="ordinal", levels=("low", "mid", "high"))
    text = archive_of(np.array(["mid", "low", "high", "mid"]), np.zeros((1, 4, 1)), named)
    assert_array_equal(text.w[:, 0], [1, 0, 2, 1])
    assert Column("w", kind="ordinal", levels=("01", "02")).numbers == (0.0, 1.0)
    assert Column("w", kind="ordinal", levels=(3, 1)).numbers == (0.0, 1.0)


def test_a_category_enters_phi_as_columns_of_0_and_1(fits):
    law, history = fits["categorical"]
    assert history.w_names == ("w[mail]", "w[text]")
    assert_array_equal(law(history, [0]).support, [[0, 0], [1, 0], [0, 1]])
    assert_allclose(law(history).probabilities().sum(-1), 1.0, atol=1e-12)
    row = history.schema.revealed.encode({"w": "text"}, "here")
    assert_array_equal(row, [0, 1])


def test_a_revealed_level_is_read_as_in_the_table(fits):
    schema = fits["ordinal"][1].schema
    assert_array_equal(schema.revealed.encode({"w": 4}, "here"), [4])
    with pytest.raises(DataError, match="no level '3'"):
        schema.revealed.encode({"w": 3}, "here")


def test_a_kind_is_taken_from_the_declaration():
    for kind in ("bernoulli", "ordinal", "categorical", "negative_binomial"):
        history = made(kind)
        _, law = pp.generalised_lags(1).prepare(history)
        assert law.family.spec()["response"]["kind"] == kind


# The posterior.


def newton(z, slope, curvature, precision):
    """Mode of sum_i log p(w_i | z_i'b) - b'Pb / 2, by hand."""
    b = np.zeros(z.shape[1])
    for _ in range(100):
        eta = z @ b
        hessian = (z * curvature(eta)[:, None]).T @ z + np.diag(precision)
        b = b + np.linalg.solve(hessian, z.T @ slope(eta) - precision * b)
    return b, hessian


@pytest.mark.parametrize("kind", ["bernoulli", "poisson"])
def test_the_laplace_fit_is_that_of_a_newton_search_by_hand(kind, fits):
    import torch

    from pulse_pyro._pyro.potential import Potential
    from pulse_pyro._pyro.sandbox import sandbox

    law, history = fits[kind]
    data, settled = law.law.prepare(history)
    x, w = data.x, data.w[:, 0]
    z = np.column_stack([x, np.ones(len(x))])  # slope comes before intercept
    if kind == "bernoulli":
        mean, curve = special.expit, lambda eta: special.expit(eta) * special.expit(-eta)
        sds = np.array([2.5 / np.sqrt(2)] * 2 + [2.5])
    else:
        mean, curve = np.exp, np.exp
        sds = np.array([1 / np.sqrt(2)] * 2 + [5.0])
    mode, hessian = newton(z, lambda eta: w - mean(eta), curve, sds**-2.0)
    with sandbox(0, "test"):
        model = settled.model_for(2, 1)
        found = Potential(model, (torch.as_tensor(x), torch.as_tensor(data.w)), "test")
    assert_allclose(found.mode.numpy(), mode, atol=1e-6)
    assert_allclose(found.scale.numpy() @ found.scale.numpy().T, np.linalg.inv(hessian), rtol=1e-5)


@pytest.mark.parametrize("kind", RESPONSE_KINDS)
def test_numpy_and_pyro_say_the_same(kind, fits):
    import torch

    from pulse_pyro._pyro.predict import run_at_draws
    from pulse_pyro._pyro.sandbox import sandbox

    law, history = fits[kind]
    data, settled = law.law.prepare(history)
    assert law.card.vectorised
    x, w, index = data.x[:30], data.w[:30], np.array([3, 100, 250])
    with sandbox(0, "test"), torch.no_grad():
        draws = {name: torch.tensor(value[index]) for name, value in law.draws.items()}
        model = settled.model_for(2, data.w_dim)
        fn = run_at_draws(model, torch.as_tensor(x), draws, law.card)
        theirs = fn.log_prob(torch.as_tensor(w)).numpy()
    rows = data.rows.at[:30]
    assert_allclose(law.kernel.log_density(x, history.w[rows], index), theirs, atol=1e-9)


@pytest.mark.parametrize("engine", [pp.Nuts(draws=100, warmup=50, chains=1), pp.Svi(100, steps=50)])
def test_other_engines_fit_the_same_model(engine, fits):
    law, history = fits["ordinal"]
    other = pp.generalised_lags(1, "ordinal").fit(history, engine, seed=0)
    for name, value in law.draws.items():
        assert (np.abs(other.draws[name].mean(0) - value.mean(0)) < value.std(0)).all()


def test_a_level_that_never_occurs_is_said():
    kind = Column("w", kind="ordinal", levels=(1, 2, 3, 4, 8))
    history = archive_of(made("ordinal").w, made("ordinal").grid.s, kind)
    law = pp.generalised_lags(1).fit(history, pp.Laplace(200), seed=0)
    assert law.record.quality["unseen_levels"] == 1
    assert law(history).probabilities()[:, 2].max() < 0.02
    other = made("ordinal", seed=1)
    held = archive_of(other.w, other.grid.s, kind)
    units = tuple(f"v{i}" for i in range(UNITS))
    checks = pp.diagnose(
        law, pp.History(held.s, held.w, held.offsets, held.step, units, held.schema), seed=0
    )
    assert checks.table.loc["unseen_levels", "verdict"] == "warn"


# Closed forms given the draws.


def phi(s, w, action):
    """Not affine in w, and defined on what W can be alone."""
    return np.column_stack(
        [s[:, 0], action * np.exp(0.3 * w[:, 0]), action * s[:, 1] * w[:, -1] ** 2]
    )


PHI = pp.Features(phi, 2, ("s0", "exp", "square"))


@pytest.mark.parametrize("kind", FINITE)
def test_expected_features_are_the_sum_over_levels_and_draws(kind, fits):
    law, history = fits[kind]
    found = law(history, range(7)).expect(PHI, size=2, rng=None)
    assert found.exact
    assert found.size == 0
    assert not found.mcse.any()
    response, kernel = law.kernel.response, law.kernel
    brute = np.zeros(found.mean.shape)
    x, s = law(history, range(7)).x, history.s[:7]
    for m in range(kernel.count):
        eta = law.scaler.x_in(x) @ law.draws["slope"][m]
        if "intercept" in law.draws:
            eta = eta + law.draws["intercept"][m]
        if kind == "bernoulli":
            chance = np.concatenate([1 / (1 + np.exp(eta)), 1 / (1 + np.exp(-eta))], 1)
        elif kind == "categorical":
            every = np.exp(np.column_stack([np.zeros(7), eta]))
            chance = every / every.sum(1, keepdims=True)
        else:
            cut = special.logit(np.cumsum(law.draws["share"][m])[:-1])
            below = np.column_stack([special.expit(cut - eta), np.ones(7)])
            chance = np.diff(below, axis=1, prepend=0.0)
        for k, value in enumerate(response.support):
            w = np.tile(value, (7, 1))
            for a in range(2):
                brute[:, a] += chance[:, k, None] * phi(s, w, a) / kernel.count
    assert_allclose(found.mean, brute, atol=1e-12)
    series = pp.laws.expected_features(law, PHI, history.grid.s[:1], size=2, rng=None)
    assert series.exact
    assert_allclose(series.mean[0, :7], brute, atol=1e-12)
    own = np.repeat(history.grid.s[:1][:, :, None], 2, axis=2)
    each = pp.laws.expected_features(law, PHI, own, size=2, rng=None)
    assert_allclose(each.mean, series.mean, atol=1e-12)


def test_phi_is_never_asked_about_a_w_that_cannot_be(fits):
    law, history = fits["ordinal"]
    table = {1.0: 0.0, 2.0: 5.0, 4.0: 1.0, 8.0: -1.0}

    def lookup(s, w, action):
        return action * np.array([table[value] for value in w[:, 0]])[:, None]

    found = law(history, [0]).expect(pp.Features(lookup, 2, ("table",)), size=2, rng=None)
    assert_allclose(found.mean[0, 1], law(history, [0]).probabilities()[0] @ [0, 5, 1, -1])


@pytest.mark.parametrize("kind", RESPONSE_KINDS)
def test_closed_forms_agree_with_draws(kind, fits):
    law, history = fits[kind]
    asked = law(history, range(0, 200, 20))
    draws = asked.draws(20_000, rng=np.random.default_rng(0))
    assert_mean(draws, asked.mean())
    away = draws - asked.mean()
    assert_mean(np.einsum("mni,mnj->mnij", away, away), asked.covariance())
    w = history.w[:200:20]
    chance = asked.cdf(w)
    share = (draws <= w).mean(0)
    error = np.sqrt(np.maximum(chance * (1 - chance), 1e-4) / len(draws)) + 2e-3
    assert (np.abs(share - chance) < 5 * error).all()  # cdf: 200 of the draws where W is no level
    assert_array_equal(asked.cdf(np.full(w.shape, np.nan)), np.full(w.shape, np.nan))


@pytest.mark.parametrize("kind", [kind for kind in RESPONSE_KINDS if kind not in FINITE])
def test_a_response_agrees_with_scipy(kind):
    eta = np.array([-2.0, 0.3, 1.7])[None, :, None]
    z = eta[0, :, 0]
    w = {"beta": [0.2, 0.5, 0.9], "poisson": [0, 2, 7], "negative_binomial": [0, 2, 7]}
    own = {"overdispersion": np.array([0.7]), "precision": np.array([4.0])}
    values = np.array(w[kind], float)[:, None]
    shape, mean = 1 / (0.7 + 1e-6), np.exp(z)
    law = {
        "poisson": stats.poisson(mean),
        "negative_binomial": stats.nbinom(shape, shape / (shape + mean)),
        "beta": stats.beta(4 * special.expit(z), 4 * special.expit(-z)),
    }[kind]
    response = {"poisson": Poisson(), "negative_binomial": NegativeBinomial(), "beta": Beta()}[kind]
    density = law.logpdf(values[:, 0]) if kind == "beta" else law.logpmf(values[:, 0])
    tolerance = 1e-4 if kind == "beta" else 1e-9  # its mean is kept from 0 and 1 by 1e-6
    assert_allclose(response.log_density(eta, own, values)[0], density, atol=tolerance)
    assert_allclose(response.cdf(eta, own, values)[0, :, 0], law.cdf(values[:, 0]), atol=tolerance)
    assert_allclose(response.mean(eta, own)[0, :, 0], law.mean(), atol=tolerance)
    assert_allclose(
        response.variance(eta, own)[0, :, 0, 0], law.var(), rtol=1e-3 * tolerance + 1e-5
    )
    assert response.log_density(eta, own, values - 20)[0, 0] == -np.inf


def test_an_impossible_value_has_no_density(fits):
    law, history = fits["ordinal"]
    assert law(history, [0]).log_density(np.array([[3.0]]))[0, 0] == -np.inf
    assert law(history, [0]).joint_log_density(np.array([[3.0]]))[0] == -np.inf
    each = law.kernel.response.log_density(
        np.zeros((1, 1, 1)), {"share": np.full((1, 4), 0.25)}, [[8.0]] * np.ones((1, 1))
    )
    assert_allclose(each, np.log(0.25))


def test_extreme_predictors_stay_finite():
    eta = np.array([-800.0, 800.0])[None, :, None]
    for response, own in (
        (Bernoulli(), {}),
        (Categories(2), {}),
        (Ordinal((0.0, 1.0, 2.0)), {"share": np.array([[0.2, 0.3, 0.5]])}),
        (Poisson(), {}),
        (NegativeBinomial(), {"overdispersion": np.array([1.0])}),
        (Beta(), {"precision": np.array([3.0])}),
    ):
        assert np.isfinite(response.mean(eta, own)).all()
        assert np.isfinite(response.variance(eta, own)).all()


def test_an_unseen_input_is_averaged_over(fits):
    law, _ = fits["ordinal"]
    hole = np.array([[[np.nan, 1.0]]])
    asked = law(hole)
    chance = asked.probabilities()
    assert_allclose(chance.sum(), 1.0)
    assert_allclose(asked.mean(), chance @ asked.support)
    draws = asked.draws(20_000, rng=np.random.default_rng(0))
    assert np.abs((draws[..., 0] == asked.support[:, 0]).mean(0) - chance[0]).max() < 0.02
    assert_allclose(asked.cdf(np.array([[2.0]])), chance[0, :2].sum())


# PIT and scores.


@pytest.mark.parametrize("kind", ["ordinal", "poisson"])
def test_the_randomised_pit_of_a_right_law_is_uniform(kind, fits):
    from pulse_pyro.diagnostics.case import predictions

    law, _ = fits[kind]
    fresh = made(kind, seed=5, units=200)
    where = np.ones(len(fresh.s), bool)
    found = predictions(law, fresh, where, np.random.default_rng(1), 100)
    # 5,000 rows against a law fitted on 1,000: its own error is allowed for
    assert stats.kstest(found.pit[:, 0], "uniform").statistic < 0.05
    low = law(fresh).cdf(np.nextafter(fresh.w, -np.inf))
    assert ((found.pit >= low) & (found.pit <= law(fresh).cdf(fresh.w))).all()
    wrong = law(-fresh.grid.s)  # must fail: the slopes have the wrong sign
    step = np.random.default_rng(2).random(fresh.w.shape)
    low, high = wrong.cdf(np.nextafter(fresh.w, -np.inf)), wrong.cdf(fresh.w)
    assert stats.kstest((low + step * (high - low))[:, 0], "uniform").pvalue < FALSE_ALARM


def test_scores_use_probabilities():
    from pulse_pyro.diagnostics.scores import level_crps, value_crps

    chance, values = np.array([[0.2, 0.5, 0.3]]), np.array([1.0, 2.0, 4.0])
    # F = .2 on [1, 2), .7 on [2, 4); w = 2: .2^2 * 1 + .3^2 * 2
    assert_allclose(value_crps(values, chance, np.array([2.0])), 0.04 + 0.18)
    two = value_crps(values[:2], np.array([[0.3, 0.7]]), np.array([2.0]))
    assert_allclose(two, level_crps(values[:2], np.array([2.0]), np.array([1.7])))


# What is refused.


def plain(w):
    return pp.History.from_arrays(
        np.zeros((2, 3, 1)), np.reshape(w, (2, 3, 1)), units=["ann", "bob"]
    )


@pytest.mark.parametrize(
    ("kind", "w", "message"),
    [
        ("bernoulli", [0, 1, 0, 1, 2, 0], "must be 0 or 1, but it holds 2 at row 4, unit 'bob'"),
        ("poisson", [0, 1, 0, 1, 2.5, 0], "a count.*2.5 at row 4, unit 'bob', step 1"),
        ("negative_binomial", [0, -1, 0, 1, 2, 0], "-1 at row 1, unit 'ann'"),
        ("beta", [0.1, 0.2, 1.0, 0.5, 0.5, 0.5], "between 0 and 1.*1 at row 2"),
        ("ordinal", [1, 1, 1, 1, 1, 1], "one level only, 1"),
        ("categorical", [0, 1, 2, 0, 1, 2], "declared categorical, but it is real"),
        (None, [0, 1, 0, 1, 0, 1], "is not declared, so its kind must be said"),
    ],
)
def test_values_outside_their_kind_are_named(kind, w, message):
    with pytest.raises(PulseError, match=message):
        pp.generalised_lags(1, kind).fit(plain(w), seed=0)


@pytest.mark.parametrize(
    ("kind", "other"), [("poisson", "bernoulli"), ("bernoulli", "ordinal"), ("beta", "categorical")]
)
def test_a_kind_against_the_declaration_is_refused(kind, other):
    with pytest.raises(DataError, match=f"kind='{kind}' needs W column 'w' to be declared"):
        pp.generalised_lags(1, kind).fit(made(other, units=3), seed=0)


def test_other_bad_settings_are_refused():
    with pytest.raises(SettingError, match=r"no kind 'ordinall'.*ordinal"):
        pp.generalised_lags(1, "ordinall")
    with pytest.raises(PulseError, match="Exact"):
        pp.generalised_lags(1, "beta").fit(made("beta", units=3), pp.Exact(), seed=0)
    two = pp.History.from_arrays(np.zeros((2, 3, 1)), np.zeros((2, 3, 2)))
    with pytest.raises(DataError, match=re.escape("['w0', 'w1']")):
        pp.generalised_lags(1, "bernoulli").fit(two, seed=0)
    rng = np.random.default_rng(0)
    many = pp.History.from_arrays(rng.random((2, 30, 1)), rng.random((2, 30, 1)))
    with pytest.raises(DataError, match="60 distinct values"):
        pp.generalised_lags(1, "ordinal").fit(many, seed=0)
