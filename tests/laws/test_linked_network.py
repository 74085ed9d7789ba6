"""Networks behind a link: W 0/1, ordinal, counts, shares."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import special

import pulse_pyro as pp
from pulse_pyro._core.errors import ConvergenceError, DataError, PulseError
from pulse_pyro._core.saved import load, save
from tests.helpers import z_bound

HOW = pp.Ensemble(members=2, steps=250)
PHI = pp.Features(lambda s, w, a: a * np.exp(w), actions=2, names=("exp(w)*a",))


def bend(s):
    return 2.0 * np.sin(2.0 * s)


def made(kind, units=40, time=15, seed=0):
    rng = np.random.default_rng(seed)
    s = rng.uniform(-2, 2, (units, time, 1))
    eta = bend(s)
    if kind == "bernoulli":
        w = (rng.random(s.shape) < special.expit(eta)).astype(float)
    elif kind == "ordinal":
        w = 1.0 + np.digitize(eta + rng.logistic(size=s.shape), [-1.0, 1.0])
    elif kind == "beta":
        mean = special.expit(eta)
        w = np.clip(rng.beta(10 * mean, 10 * (1 - mean)), 1e-9, 1 - 1e-9)
    else:
        w = rng.poisson(np.exp(eta / 2)).astype(float)
    return pp.History.from_arrays(s, w)


@pytest.mark.parametrize("kind", ["bernoulli", "ordinal", "poisson", "negative_binomial", "beta"])
def test_the_pyro_model_and_numpy_agree(kind):
    history = made(kind)
    fit = pp.neural_density(1, width=8, kind=kind).fit(history, HOW, seed=0)
    x = fit.scaler.x_in(history.s[:20])
    w, kernel = history.w[:20], fit.kernel
    dense = kernel.log_density(x, w, np.arange(2))

    import pyro.poutine as poutine
    import torch

    from pulse_pyro._pyro.sandbox import sandbox

    model = fit.law.model_for(1, 1)
    with sandbox(0, "test"):
        codes = torch.tensor(fit.law.family.settled.encode(w))
        for e in range(2):
            own = {name: torch.tensor(value[e]) for name, value in fit.draws.items()}
            site = poutine.trace(poutine.condition(model, own)).get_trace(torch.tensor(x))
            found = site.nodes["w"]["fn"].log_prob(codes).numpy()
            assert_allclose(dense[e], found, rtol=1e-9, atol=1e-9)
    rng = np.random.default_rng(0)
    drawn = kernel.sample(x[:1], np.repeat([0, 1], 2000), rng)[:, 0, 0]
    mean, var = kernel.mean(x[:1])[0, 0], drawn.var()
    assert abs(drawn.mean() - mean) < z_bound() * np.sqrt(var / 4000)


def test_features_of_few_values_are_summed_exactly():
    history = made("ordinal")
    fit = pp.neural_density(1, width=8, kind="ordinal").fit(history, HOW, seed=0)
    found = fit(history.s[None, :9]).expect(PHI, size=2, rng=np.random.default_rng(0))
    assert found.exact
    x, own = fit.scaler.x_in(history.s[:9]), fit.draws
    expected = np.zeros(9)
    for e in range(2):
        hidden = x
        for i in range(3):
            hidden = hidden @ own[f"weight{i}"][e] + own[f"bias{i}"][e]
            hidden = np.maximum(hidden, 0.0) if i < 2 else hidden
        share = own["share"][e]
        cut = np.log(share.cumsum()[:-1]) - np.log(1.0 - share.cumsum()[:-1])
        below = special.expit(cut - hidden)  # P(w <= level)
        chance = np.diff(np.column_stack([np.zeros(9), below, np.ones(9)]))
        expected += chance @ np.exp([1.0, 2.0, 3.0]) / 2
    assert_allclose(found.mean[:, 1, 0], expected, rtol=1e-12)


def test_a_world_of_zeros_and_ones_is_learned_and_calibrated():
    archive, fresh = made("bernoulli", 120, 20), made("bernoulli", 200, 20, seed=1)
    how = pp.Ensemble(members=3, steps=600)
    fit = pp.neural_density(1, width=32, kind="bernoulli").fit(archive, how, seed=0)
    chance = fit(fresh).mean()[:, 0]
    truth = special.expit(bend(fresh.s[:, 0]))
    assert np.sqrt(np.mean((chance - truth) ** 2)) < 0.08
    # of rows told chances between p and p + .2, that share is 1, but for the law's own error
    for low in np.arange(0.0, 1.0, 0.2):
        rows = (chance >= low) & (chance < low + 0.2)
        told, seen = chance[rows].mean(), fresh.w[rows, 0].mean()
        noise = np.sqrt(told * (1 - told) / rows.sum())
        assert abs(told - seen) < z_bound(5) * noise + 0.05


def test_the_kind_follows_the_declaration():
    plain = made("bernoulli")
    frame = plain.to_frame()
    told = pp.History.from_frame(
        frame, unit="unit", time="time", observed=["s0"], missing=["w0"], kinds={"w0": "binary"}
    )
    for law, how in ((pp.neural_density(1, width=8), HOW), (pp.gaussian_process(1), None)):
        chance = law.fit(told, how, seed=0)(told)
        assert_array_equal(chance.support, [[0.0], [1.0]])
        assert law.fit(plain, how, seed=0)(plain).support is None
    for law in (
        pp.neural_density(1, width=8, kind="normal"),
        pp.gaussian_process(1, kind="normal"),
    ):
        assert law.prepare(told)[1].family.numbers
    with pytest.raises(PulseError, match="no kind 'bernouli'"):
        pp.neural_density(1, kind="bernouli")
    with pytest.raises(DataError, match="0 or 1"):
        pp.neural_density(1, kind="bernoulli").fit(made("poisson"), HOW, seed=0)


def test_holes_are_learned_from(tmp_path):
    history = made("poisson")
    s = history.s.copy()
    s[::3] = np.nan
    holes = pp.History.from_arrays(s.reshape(40, 15, 1), history.w.reshape(40, 15, 1))
    fit = pp.neural_density(1, width=8, kind="poisson").fit(holes, HOW, seed=0)
    assert np.isfinite(fit(holes).mean()).all()
    drawn = fit(holes).draws(3, rng=np.random.default_rng(0))
    assert np.isfinite(drawn).all()
    save(fit, tmp_path / "law")
    back = load(tmp_path / "law")
    assert back.id == fit.id
    assert_array_equal(back(holes).mean(), fit(holes).mean())
    few = made("poisson", units=20)
    two = pp.neural_density(2, width=8, kind="poisson").fit(few, HOW, seed=0)
    assert np.isnan(two(np.full((1, 1, 1), 0.5)).mean()).all()  # its lag was never missing
    assert np.isnan(two(np.full((1, 1, 1), 0.5)).draws(3, rng=np.random.default_rng(0))).all()


def test_training_that_goes_nowhere_is_refused():
    how = pp.Ensemble(members=2, steps=30, rate=1e4)
    with pytest.raises(ConvergenceError, match="diverged"):
        pp.neural_density(1, width=8, kind="poisson").fit(made("poisson"), how, seed=0)
