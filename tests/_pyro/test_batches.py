"""Svi in batches of units: unbiased, whole units, the posterior of all rows."""

from itertools import combinations

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.infer import Trace_ELBO

from pulse_pyro._core.errors import ModelError, SettingError
from pulse_pyro._pyro import engines
from pulse_pyro._pyro.batches import Archive, Batches, BatchPotential
from pulse_pyro._pyro.contract import check_model
from pulse_pyro._pyro.engines import Potential, Problem, run_engine
from pulse_pyro._pyro.inference import Svi
from pulse_pyro._pyro.sandbox import sandbox

NOISE, PRIOR, SPREAD = 0.5, 10.0, 0.7
QUICK = Svi(200, steps=20, batch=4)


def rows(x, w, law):
    with pyro.plate("rows", len(x), dim=-1):
        pyro.sample("w", law.to_event(1), obs=w)


def regression(x, w=None):
    b = pyro.sample("b", dist.Normal(torch.zeros(3), PRIOR).to_event(1))
    rows(x, w, dist.Normal((x * b).sum(-1)[..., None], NOISE))


def levels(x, w=None, unit=None):
    """A level a unit: its mean over units has a closed form."""
    middle = pyro.sample("middle", dist.Normal(0.0, PRIOR))
    of = torch.arange(len(x)) if unit is None else unit
    with pyro.plate("units", int(of.max()) + 1, dim=-1):
        level = pyro.sample("level", dist.Normal(middle, SPREAD))
    rows(x, w, dist.Normal(level[..., of][..., None], NOISE))


def data(units=40, seed=3, longest=9):
    """Units of unlike length; their rows stand in no order."""
    rng = np.random.default_rng(seed)
    unit = rng.permutation(np.repeat(np.arange(units), rng.integers(1, longest, units)))
    x = rng.standard_normal((len(unit), 3)) @ (np.eye(3) + 0.7)
    w = x @ np.array([1.0, -2.0, 3.0]) + NOISE * rng.standard_normal(len(unit))
    return x, w[:, None], unit


def archive(model, x, w, unit):
    return Archive(model, torch.as_tensor(x), torch.as_tensor(w), unit, numbered=model is levels)


def fit(model, how, given=None, guide=None):
    x, w, unit = given or data()
    held = archive(model, x, w, unit)
    bound, args = held.whole
    card = check_model(model, x, w)
    problem = Problem(bound, args, card, model.__name__, guide, archive=held)
    return run_engine(problem, how, 0)


def closed_form(x, w):
    precision = x.T @ x / NOISE**2 + np.eye(3) / PRIOR**2
    return np.linalg.solve(precision, x.T @ w[:, 0] / NOISE**2), precision


def elbo_slopes(energy, loc, spread, noise):
    """Gradient of the mean energy under a normal guide, at fixed draws of its noise."""
    loc, spread = loc.clone().requires_grad_(), spread.clone().requires_grad_()
    total = sum(energy(loc + spread * each) for each in noise) / len(noise)
    slopes = torch.autograd.grad(total, [loc, spread])
    return torch.cat([total.detach()[None], *slopes]).numpy()


def over_batches(anchored, factor):
    """Objective and gradient over all rows, and their mean over every batch of 2 units of 6."""
    x, w, unit = data(6)
    with sandbox(0):
        held = archive(regression, x, w, unit)
        part = BatchPotential(held, lambda model: model, "", 2)
        whole = Potential(*held.whole, "")
        if not anchored:
            part._anchor = None
        part.batches.factor = factor
        guide = whole.mode + 0.3, torch.full((3,), 0.2), torch.randn(2, 3)
        found = []
        for pair in combinations(range(6), 2):
            part.batches.next = lambda pair=pair: torch.tensor(pair)
            found.append(elbo_slopes(part.energy, *guide))
        return elbo_slopes(whole.energy, *guide), np.mean(found, 0)


@pytest.mark.parametrize("anchored", [True, False])
def test_batches_have_the_gradient_of_all_rows_in_expectation(anchored):
    whole, mean = over_batches(anchored, 6 / 2)
    np.testing.assert_allclose(mean, whole, rtol=1e-9)


@pytest.mark.parametrize("anchored", [True, False])
@pytest.mark.parametrize("factor", [1.0, 2.0, 6.0])
def test_a_wrong_scale_is_seen_in_the_gradient(anchored, factor):
    whole, mean = over_batches(anchored, factor)
    assert np.abs(mean / whole - 1).min() > 0.01


def test_a_batch_has_all_rows_of_its_units_numbered_anew():
    x, w, unit = data()
    model, (some_x, some_w) = archive(levels, x, w, unit).take(torch.tensor([7, 2]))
    at = np.concatenate([np.flatnonzero(unit == 7), np.flatnonzero(unit == 2)])
    np.testing.assert_array_equal(some_x, x[at])
    np.testing.assert_array_equal(some_w, w[at])
    np.testing.assert_array_equal(model.keywords["unit"], (unit[at] == 2).astype(int))


def test_every_unit_comes_once_before_any_comes_again():
    with sandbox(0):
        batches = Batches(torch.arange(12), 4)
        assert sorted(torch.cat([batches.next() for _ in range(3)]).tolist()) == list(range(12))


@pytest.mark.parametrize("guide", [None, "full"])
def test_batches_find_the_posterior_of_all_rows(guide):
    x, w, _ = given = data(400)
    b = fit(regression, Svi(4000, 200, batch=40, guide=guide), given).draws["b"]
    mean, precision = closed_form(x, w)
    sd = np.sqrt(np.diag(np.linalg.inv(precision)))
    assert np.max(np.abs(b.mean(0) - mean) / sd) < 0.1
    np.testing.assert_allclose(b.std(0) / sd, 1, atol=0.15)


def test_a_low_rank_guide_is_wider_than_one_of_independent_sites():
    x, w, _ = given = data(100)
    b = fit(regression, Svi(4000, 300, 0.1, guide="low rank"), given).draws["b"]
    mean, precision = closed_form(x, w)
    sd = np.sqrt(np.diag(np.linalg.inv(precision)))
    assert np.max(np.abs(b.mean(0) - mean) / sd) < 0.1
    assert np.all(b.std(0) < 1.1 * sd)
    assert np.all(b.std(0) > 1.1 / np.sqrt(np.diag(precision)))


def test_a_diagonal_guide_has_the_spreads_of_independent_sites():
    x, w, _ = given = data(400)
    for batch in (None, 40):
        b = fit(regression, Svi(4000, 300, 0.05, batch=batch, guide="diagonal"), given).draws["b"]
        mean, precision = closed_form(x, w)
        np.testing.assert_allclose(b.mean(0), mean, atol=0.1 * NOISE / np.sqrt(len(x)))
        np.testing.assert_allclose(b.std(0) * np.sqrt(np.diag(precision)), 1, atol=0.15)
        assert np.abs(np.corrcoef(b.T) - np.eye(3)).max() < 0.1


def test_a_wrong_scale_is_seen_in_the_posterior(monkeypatch):
    x, w, _ = given = data(400)
    sd = np.sqrt(np.diag(np.linalg.inv(closed_form(x, w)[1])))
    start = Batches.__init__

    def unscaled(self, units, size):
        start(self, units, size)
        self.factor = 1.0

    monkeypatch.setattr(Batches, "__init__", unscaled)
    b = fit(regression, Svi(4000, 300, batch=40), given).draws["b"]
    assert np.all(b.std(0) / sd > 1.3)


def level_data(units=300):
    rng = np.random.default_rng(5)
    unit = np.repeat(np.arange(units), rng.integers(1, 9, units))
    level = 2.0 + SPREAD * rng.standard_normal(units)
    w = level[unit] + NOISE * rng.standard_normal(len(unit))
    return np.zeros((len(unit), 1)), w[:, None], unit


@pytest.mark.parametrize("how", [Svi(4000, 200, batch=30), Svi(4000, 100, guide="structured")])
def test_sites_of_units_are_integrated_out(how):
    _, w, unit = given = level_data()
    count = np.bincount(unit)
    weight = 1.0 / (SPREAD**2 + NOISE**2 / count)
    sd = (weight.sum() + PRIOR**-2) ** -0.5
    mean = sd**2 * (weight * np.bincount(unit, w[:, 0]) / count).sum()
    middle = fit(levels, how, given).draws["middle"]
    assert abs(middle.mean() - mean) < 0.1 * sd
    assert abs(middle.std() / sd - 1) < 0.15


def own_guide(x, w=None):
    pyro.sample("b", dist.Delta(pyro.param("loc", torch.ones(3))).to_event(1))


class Loss:
    """In place of an optimiser's step: its loss alone."""

    def __init__(self, model, guide):
        self.model, self.guide = model, guide

    def step(self, *args):
        return Trace_ELBO().loss(self.model, self.guide, *args)


@pytest.mark.parametrize("batch", [10, 40])
def test_a_guide_of_the_laws_own_sees_the_loss_of_all_rows_in_expectation(batch):
    x, w, unit = data(40)
    held = archive(regression, x, w, unit)
    bound, args = held.whole
    problem = Problem(bound, args, check_model(regression, x, w), "", own_guide, archive=held)
    with sandbox(0), pyro.settings.context(module_local_params=False):
        step = engines._batch_step(problem, own_guide, Svi(batch=batch), Loss)
        mean = np.mean([step() for _ in range(40 // batch)])  # each unit once
        np.testing.assert_allclose(mean, Loss(bound, own_guide).step(*args), rtol=1e-10)


def test_a_guide_of_the_laws_own_takes_batches():
    found = fit(regression, Svi(50, 30, batch=10), guide=own_guide)
    assert found.draws["b"].shape == (50, 3)
    assert len(found.losses) == 30


def two_columns(x, w=None):
    w = w or {}
    b = pyro.sample("b", dist.Normal(0.0, PRIOR))
    with pyro.plate("rows", len(x), dim=-1):
        pyro.sample("often", dist.Normal(b, NOISE), obs=w.get("often"))
        pyro.sample("rarely", dist.Normal(b, NOISE), obs=w.get("rarely"))


def test_a_column_unseen_in_the_units_looked_at_first_is_a_sum_all_the_same():
    n = 300
    seen = torch.arange(n) == n // 2
    noise = torch.as_tensor(np.random.default_rng(0).standard_normal((2, n)))
    w = dict(zip(["often", "rarely"], noise, strict=True))
    counts = {"often": torch.ones(n, dtype=torch.bool), "rarely": seen}
    held = Archive(two_columns, torch.zeros(n, 1), w, np.arange(n), counts=counts)
    with sandbox(0):
        potential = BatchPotential(held, lambda model: model, "", 10)
    assert potential.names == ({"often", "rarely"}, {"b"})


def test_steps_end_when_units_held_out_gain_no_more():
    x, w, _ = given = data(200)
    found = fit(regression, Svi(4000, 2000, batch=20, holdout=0.2, patience=3), given)
    assert 3 * engines.LOOK <= len(found.losses) < 2000
    mean, precision = closed_form(x, w)
    sd = np.sqrt(np.diag(np.linalg.inv(precision)))
    assert np.max(np.abs(found.draws["b"].mean(0) - mean) / sd) < 3.0  # a fifth was held out


def test_the_bar_tells_the_loss_of_every_step(monkeypatch):
    told = []
    monkeypatch.setattr(engines, "tell", lambda bar, text: told.append(text))
    found = fit(regression, QUICK)
    assert told == [f"loss {loss:.6g}" for loss in found.losses]


def penalised(x, w=None):
    b = pyro.sample("b", dist.Normal(0.0, PRIOR))
    pyro.factor("penalty", -(len(x) ** 0.5) * b**2)
    rows(x, w, dist.Normal((b * x[..., 0])[..., None], NOISE))


def with_row_latent(x, w=None):
    b = pyro.sample("b", dist.Normal(0.0, PRIOR))
    with pyro.plate("rows", len(x), dim=-1):
        z = pyro.sample("z", dist.Normal(b, 1.0))
        pyro.sample("w", dist.Normal(z[..., None], NOISE).to_event(1), obs=w)


@pytest.mark.parametrize(
    ("model", "how", "says"),
    [
        (regression, Svi(batch=41), "more units"),
        (regression, Svi(batch=37, holdout=0.1), "held out"),
        (penalised, QUICK, "sum over units"),
        (with_row_latent, QUICK, "latent"),
    ],
)
def test_what_cannot_be_cut_into_batches_is_refused(model, how, says):
    with pytest.raises(ModelError, match=says):
        fit(model, how)


def test_one_unit_cannot_be_cut():
    x, w, unit = data()
    with pytest.raises(ModelError, match="two units"):
        fit(regression, Svi(batch=1), (x, w, 0 * unit))


def test_a_guide_of_the_laws_own_and_one_by_name_exclude_each_other():
    with pytest.raises(ModelError, match="leave one"):
        fit(regression, Svi(guide="full"), guide=own_guide)


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ({"batch": 0}, "batch"),
        ({"batch": 2.5}, "batch"),
        ({"guide": "normal"}, "diagonal"),
        ({"holdout": 0.1}, "batch"),
        ({"batch": 5, "holdout": 1.0}, "holdout"),
        ({"batch": 5, "patience": 0}, "patience"),
    ],
)
def test_settings_of_batches_out_of_range_are_named(setting, says):
    with pytest.raises(SettingError, match=says):
        Svi(**setting)


def asking(x, w=None, unit=None):
    """Levels that are asked for at prediction too: their draws are kept."""
    middle = pyro.sample("middle", dist.Normal(0.0, PRIOR))
    with pyro.plate("units", int(unit.max()) + 1, dim=-1):
        level = pyro.sample("level", dist.Normal(middle, SPREAD))
    rows(x, w, dist.Normal(level[..., unit][..., None], NOISE))


def test_levels_of_units_come_out_of_batches_in_closed_form():
    x, _, unit = data(units=30)
    rng = np.random.default_rng(0)
    w = (rng.standard_normal(30)[unit] + NOISE * rng.standard_normal(len(unit)))[:, None]
    held = Archive(asking, torch.as_tensor(x), torch.as_tensor(w), unit, numbered=True)
    card = check_model(asking, x, w)
    bound, args = held.whole
    problem = Problem(bound, args, card, "levels", archive=held, unit=torch.as_tensor(unit))
    found = run_engine(problem, Svi(4000, steps=100, batch=6, holdout=0.2), 0)
    given = np.bincount(unit, minlength=30) / NOISE**2
    total = np.bincount(unit, w[:, 0], minlength=30) / NOISE**2
    middle = found.draws["middle"]
    precision = given + SPREAD**-2
    mean = (total + middle.mean() * SPREAD**-2) / precision
    # of the mean given middle, and of middle itself
    sd = np.sqrt(1 / precision + (SPREAD**-2 / precision) ** 2 * middle.var())
    assert found.draws["level"].shape == (4000, 30)
    assert np.abs(found.draws["level"].mean(0) - mean).max() < 5 * sd.max() / np.sqrt(4000)
    np.testing.assert_allclose(found.draws["level"].std(0), sd, rtol=0.06)
    together = np.corrcoef(found.draws["level"][:, 0], middle)[0, 1]
    expected = SPREAD**-2 / precision[0] * middle.std() / sd[0]
    assert abs(together - expected) < 0.08
