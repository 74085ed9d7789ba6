"""Discrete latents of units: summed out of the fit by unit, known afterwards by unit."""

from functools import cache

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import expit, logsumexp
from scipy.stats import norm

from pulse_pyro import History, Laplace, Law, Nuts
from pulse_pyro._core.errors import ModelError
from pulse_pyro._core.saved import load, save
from pulse_pyro._pyro.potential import Potential
from pulse_pyro._pyro.sandbox import sandbox
from pulse_pyro._pyro.unit_sums import UnitSums
from pulse_pyro.data.summary import Identity
from tests.helpers import z_bound

SHARE, APART, SD, DRAWS = 0.3, 1.0, 0.8, 600


def kinds(x, w=None, unit=None):
    """Two kinds of people, APART apart: Categorical, so that a table is read by it."""
    a = pyro.sample("a", dist.Normal(0.0, 10.0))
    with pyro.plate("units", int(unit.max()) + 1, dim=-1):
        kind = pyro.sample("kind", dist.Categorical(torch.tensor([1 - SHARE, SHARE])))
    level = torch.tensor([0.0, APART])[kind]
    with pyro.plate("rows", x.shape[-2], dim=-1):
        loc = a + level[..., unit] + x[..., 0]
        pyro.sample("w", dist.Normal(loc[..., None], SD).to_event(1), obs=w)


def people(units=10, time=4):
    rng = np.random.default_rng(0)
    s = rng.standard_normal((units, time, 1))
    kind = rng.random((units, 1, 1)) < SHARE
    w = 0.4 + APART * kind + s + SD * rng.standard_normal(s.shape)
    names = tuple(f"u{i}" for i in range(units))
    return History.from_arrays(s, w, units=names, s_names=("s",), w_names=("w",))


def log_terms(a, rest):
    """Log p(kind, rest of one unit | a), (2, len(a))."""
    return np.array(
        [
            np.log(share) + norm.logpdf(rest[:, None], a + level, SD).sum(0)
            for share, level in ((1 - SHARE, 0.0), (SHARE, APART))
        ]
    )


def rest_of(history):
    return [(history.w - history.s)[history.unit_of == i, 0] for i in range(len(history.units))]


@cache
def fitted():
    return Law(kinds, Identity()).fit(people(), Laplace(draws=DRAWS), seed=0)


def test_the_density_is_the_sum_over_kinds_of_every_unit():
    history = people()
    a = np.array([-0.5, 0.2, 1.3])
    each = [logsumexp(log_terms(a, rest), axis=0) for rest in rest_of(history)]
    expected = norm.logpdf(a, 0.0, 10.0) + np.sum(each, axis=0)
    with sandbox(0, "test"):
        unit = torch.as_tensor(history.unit_of)
        args = (torch.tensor(history.s), torch.tensor(history.w))

        def bound(x, w):
            kinds(x, w, unit)

        own = Potential(UnitSums(bound, (), ("kind",), 1, unit).summed, args, "kinds")
        assert list(own.shapes) == ["a"]
        found = [-float(own.energy(torch.tensor([one]))) for one in a]
    assert_allclose(found, expected, rtol=1e-10)


def test_units_of_the_archive_have_the_kind_their_rows_tell():
    fit, history = fitted(), people()
    assert fit.draws["kind"].shape == (DRAWS, 10)
    grid = np.linspace(-2, 3, 2001)
    terms = [log_terms(grid, rest) for rest in rest_of(history)]
    weight = norm.logpdf(grid, 0, 10) + sum(logsumexp(one, axis=0) for one in terms)
    weight = np.exp(weight - weight.max())
    weight /= weight.sum()
    share = np.array([(expit(one[1] - one[0]) * weight).sum() for one in terms])
    assert share.min() < 0.1 < 0.7 < share.max()  # or the test says nothing
    # Laplace is not exact here: its mean and sd of a are, to a tenth of an sd
    mean = (grid * weight).sum()
    sd = np.sqrt(((grid - mean) ** 2 * weight).sum())
    assert abs(fit.draws["a"].mean() - mean) < (0.1 + z_bound() / np.sqrt(DRAWS)) * sd
    error = z_bound(10) * np.sqrt(share * (1 - share) / DRAWS)
    assert (np.abs(fit.draws["kind"].mean(0) - share) < error + 0.02).all()
    found = fit(history).mean()[:, 0]
    own = (fit.draws["a"][:, None] + APART * fit.draws["kind"]).mean(0)
    assert_allclose(found, own[history.unit_of] + history.s[:, 0], rtol=1e-10)


def test_a_new_unit_is_summed_over_and_w_that_are_revealed_tell_its_kind():
    fit = fitted()
    assert fit.card.closed_mean
    a = fit.draws["a"]
    new = fit(np.zeros((1, 1, 1)))
    assert_allclose(new.mean()[0, 0], a.mean() + SHARE * APART, rtol=1e-10)
    dense = (1 - SHARE) * norm.pdf(0.7, a, SD) + SHARE * norm.pdf(0.7, a + APART, SD)
    found = new.log_density(np.array([[0.7]]), draws=DRAWS)[0, 0]
    assert_allclose(found, np.log(dense.mean()), rtol=1e-8)
    follower = fit.follow("somebody")
    rest = np.array([1.3, 1.1, 1.9])
    for w in rest:
        follower.push(np.zeros(1), np.array([w]))
    terms = log_terms(a, rest)
    weight = np.exp(logsumexp(terms, axis=0) - logsumexp(terms))
    expected = (weight * (a + APART * expit(terms[1] - terms[0]))).sum()
    assert abs(follower.push(np.zeros(1)).mean()[0, 0] - expected) < 0.03


def test_nuts_and_files_keep_the_kinds(tmp_path):
    law = Law(kinds, Identity())
    fit = law.fit(people(), Nuts(draws=150, warmup=100, chains=1), seed=0)
    assert set(np.unique(fit.draws["kind"])) == {0.0, 1.0}
    assert np.abs(fit.draws["kind"].mean(0) - fitted().draws["kind"].mean(0)).max() < 0.2
    save(fit, tmp_path / "law")
    back = load(tmp_path / "law", law=law)
    assert_array_equal(back(people()).mean(), fit(people()).mean())


def mixture(x, w=None, unit=None):
    """Kinds, and a level around that of the kind; a row may be an outlier."""
    a = pyro.sample("a", dist.Normal(0.0, 3.0))
    with pyro.plate("units", int(unit.max()) + 1, dim=-1):
        kind = pyro.sample("kind", dist.Bernoulli(SHARE))
        noise = pyro.sample("noise", dist.Normal(0.0, 1.0))
    level = APART * kind + 0.3 * noise
    with pyro.plate("rows", x.shape[-2], dim=-1):
        odd = pyro.sample("odd", dist.Bernoulli(0.1))
        sd = SD * (1 + 3 * odd)
        loc = a + level[..., unit] + x[..., 0]
        pyro.sample("w", dist.Normal(loc[..., None], sd[..., None]).to_event(1), obs=w)


def test_kinds_stand_beside_levels_of_units_and_latents_of_rows():
    fit = Law(mixture, Identity()).fit(people(), Laplace(draws=100), seed=0)
    assert fit.draws["kind"].shape == fit.draws["noise"].shape == (100, 10)
    assert fit.draws["noise"].std(0).min() > 0.5
    own = (fit.draws["a"][:, None] + APART * fit.draws["kind"] + 0.3 * fit.draws["noise"]).mean(0)
    history = people()
    expected = own[history.unit_of] + history.s[:, 0]
    assert_allclose(fit(history).mean()[:, 0], expected, rtol=1e-8)
    # each unit's likelihood by hand, at one place
    a, noise = 0.3, np.linspace(-1, 1, 10)
    total = norm.logpdf(a, 0, 3) + norm.logpdf(noise).sum()
    for z, rest in zip(noise, rest_of(history), strict=True):
        each = [
            np.log(p) + np.log(
                0.9 * norm.pdf(rest, a + level + 0.3 * z, SD)
                + 0.1 * norm.pdf(rest, a + level + 0.3 * z, 4 * SD)
            ).sum()
            for p, level in ((1 - SHARE, 0.0), (SHARE, APART))
        ]  # fmt: skip
        total += logsumexp(each)
    with sandbox(0, "test"):
        unit = torch.as_tensor(history.unit_of)
        args = (torch.tensor(history.s), torch.tensor(history.w))
        sums = UnitSums(lambda x, w: mixture(x, w, unit), ("odd",), ("kind",), 1, unit)
        plain = Potential(sums.summed, args, "mixture")
        assert list(plain.shapes) == ["a", "noise"]
        found = -float(plain.energy(torch.tensor([a, *noise])))
    assert_allclose(found, total, rtol=1e-10)


def test_a_level_whose_prior_depends_on_the_kind_is_refused():
    def nested(x, w=None, unit=None):
        a = pyro.sample("a", dist.Normal(0.0, 3.0))
        with pyro.plate("units", int(unit.max()) + 1, dim=-1):
            kind = pyro.sample("kind", dist.Bernoulli(SHARE))
            level = pyro.sample("level", dist.Normal(APART * kind, 0.3))
        with pyro.plate("rows", x.shape[-2], dim=-1):
            loc = a + level[..., unit] + x[..., 0]
            pyro.sample("w", dist.Normal(loc[..., None], SD).to_event(1), obs=w)

    with pytest.raises(ModelError, match="noise"):
        Law(nested, Identity()).fit(people(), Laplace(draws=50), seed=0)
