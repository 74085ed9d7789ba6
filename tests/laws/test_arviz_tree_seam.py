"""Custom laws in ArviZ, what is left out and why, and the seam between ArviZ 0.x and 1.x."""

import sys
from types import ModuleType

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
import xarray as xr
from numpy.testing import assert_array_equal

import pulse_pyro as pp
from pulse_pyro._core.errors import ModelError
from pulse_pyro.laws.gp_weights import DISTINCT
from tests.helpers import linear_history

HISTORY = linear_history(units=8, time=12, lags=2)[0]


def model(x, w=None):
    b = pyro.sample("b", dist.Normal(torch.zeros(x.shape[-1]), 1.0).to_event(1))
    c = pyro.sample("c", dist.Normal(torch.zeros(3, 1), 1.0).to_event(2))
    sd = pyro.sample("sd", dist.LogNormal(-1.0, 1.0))
    with pyro.plate("rows", x.shape[-2], dim=-1):
        mean = (x * b).sum(-1) + c.sum((-1, -2))
        pyro.sample("w", dist.Normal(mean[..., None], sd[..., None]).to_event(1), obs=w)


def latent(x, w=None):
    a = pyro.sample("a", dist.Normal(0.0, 1.0))
    with pyro.plate("rows", x.shape[-2], dim=-1):
        own = pyro.sample("own", dist.Normal(a, 0.3))
        pyro.sample("w", dist.Normal(own[..., None], 0.3).to_event(1), obs=w)


def fitted(dims, fn=model, how=None):
    law = pp.Law(fn, pp.Lags(2), "mine", dims=dims)
    return law.fit(HISTORY, how or pp.Laplace(20), seed=0)


def test_sites_are_named_by_the_law_s_dims():
    law = fitted({"b": ("input",), "c": ("shelf", "output")})
    found = law.to_arviz(HISTORY).posterior
    assert set(found.data_vars) == {"b", "c", "sd"}
    assert_array_equal(found.b.sel(chain=0, input="s.lag1"), law.draws["b"][:, 1])
    assert_array_equal(found.c.sel(chain=0, output="w0", shelf=2), law.draws["c"][:, 2, 0])


def test_axes_without_a_name_get_one():
    found = fitted({"b": "input"}).to_arviz().posterior
    assert found.b.dims == ("chain", "draw", "input")
    assert found.c.dims == ("chain", "draw", "c_dim_0", "c_dim_1")


@pytest.mark.parametrize(
    ("dims", "said"),
    [
        ({"b": ("input", "more")}, r"axes of site 'b' \('input', 'more'\), but .* 1 axis"),
        ({"c": ("same", "same")}, "give each one name of its own"),
        ({"b": ("draw",)}, "calls an axis of site 'b' 'draw', which every result has"),
        ({"b": ("k",), "c": ("k", "l")}, r"'b' \(length 2\) and one of 'c' \(length 3\) both 'k'"),
        ({"b": ("sd",)}, "calls an axis of 'b' 'sd', which is a site too"),
    ],
)
def test_names_that_cannot_be_are_refused(dims, said):
    with pytest.raises(ModelError, match=f"mine: dims .*{said}"):
        fitted(dims).to_arviz()


def test_a_density_that_cannot_be_had_is_left_out_with_the_reason():
    found = fitted({}, latent).to_arviz(HISTORY)
    assert "log_likelihood" not in found.groups()
    assert "latents of their own (own)" in found.attrs["log_likelihood"]
    assert np.isfinite(found.posterior_predictive.w0).all()


def test_held_out_rows_are_counted_as_such():
    half, rest = HISTORY.split(seed=0)
    law = pp.linear_lags(2).fit(half, seed=0)
    assert law.to_arviz(rest).attrs["rows_fitted_on"] == 0
    every = law.to_arviz(HISTORY).attrs
    assert every["rows_fitted_on"] == every["rows"] // 2


def test_an_ensemble_refuses_what_it_cannot_answer():
    some = HISTORY.grid.s.copy()
    some[:, 4] = np.nan
    gappy = pp.History.from_arrays(
        some,
        HISTORY.grid.w,
        seen=HISTORY.grid.seen,
        units=HISTORY.units,
        s_names=("s",),
        w_names=("w0",),
    )
    how = pp.Ensemble(3, steps=30, batch=32)
    refusing = pp.neural_density(2, width=4).fit(HISTORY, how, seed=0).to_arviz(gappy)
    learned = pp.neural_density(2, width=4, masking=0.5).fit(gappy, how, seed=0).to_arviz(gappy)
    assert refusing.attrs["rows_left_out"] == 8 * 3
    assert learned.attrs["rows_left_out"] == 0
    for found in (refusing, learned):
        assert np.isfinite(found.log_likelihood.w0).all()


def test_chains_survive_being_saved(tmp_path):
    law = fitted({"b": ("input",)}, how=pp.Nuts(draws=11, warmup=15, chains=2))
    assert law.record.chains == 2
    pp.save(law, tmp_path / "law")
    again = pp.load(tmp_path / "law", law=law.law)
    assert again.record == law.record
    assert again.to_arviz().posterior.equals(law.to_arviz().posterior)


def test_draws_that_were_mixed_are_no_chains():
    how = pp.Nuts(draws=DISTINCT // 2 + 2, warmup=20, chains=2)
    small = pp.gaussian_process(1, basis=12).fit(HISTORY, how, seed=0)
    assert small.record.chains == 2
    assert small.to_arviz().posterior.sizes["chain"] == 2
    large = pp.gaussian_process(1, basis=140).fit(HISTORY, how, seed=0)
    found = large.to_arviz()
    assert found.posterior.sizes["chain"] == 1
    assert "mixed" in found.attrs["chains"]
    assert "sample_stats" not in found.groups()


@pytest.fixture
def later_arviz(monkeypatch):
    """ArviZ 1.x as far as the seam can see it: no InferenceData among its names."""
    module = ModuleType("arviz")

    def warn(name):
        raise AssertionError(f"the seam asked for arviz.{name}")

    module.__getattr__ = warn
    monkeypatch.setitem(sys.modules, "arviz", module)


def test_from_1_on_it_is_a_tree_of_xarray_with_the_same_groups(later_arviz, monkeypatch, tmp_path):
    law = pp.linear_lags(2).fit(HISTORY, pp.Exact(50), seed=0)
    tree = law.to_arviz(HISTORY)
    assert isinstance(tree, xr.DataTree)
    assert tree.attrs["law_id"] == law.id
    monkeypatch.undo()
    before = law.to_arviz(HISTORY)
    assert set(tree.children) == set(before.groups())
    for name in before.groups():
        assert tree[name].to_dataset().identical(before[name])
    tree.to_netcdf(tmp_path / "law.nc", engine="h5netcdf")
    with xr.open_datatree(tmp_path / "law.nc", engine="h5netcdf") as again:
        assert again.identical(tree)
