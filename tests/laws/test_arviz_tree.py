"""A fitted law in ArviZ: the numbers are the law's own, and ArviZ can use all of them."""

import builtins

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats
from scipy.special import logsumexp

import pulse_pyro as pp
from pulse_pyro._core.errors import DataError, SettingError
from tests.helpers import assert_mean, linear_history, log_density_at, variance_at, z_bound

HISTORY = linear_history(units=12, time=15, lags=2)[0]
PAIR = linear_history(units=10, time=12, lags=2, w_dim=2)[0]
ROW_GROUPS = ("posterior_predictive", "log_likelihood", "observed_data", "constant_data")


@pytest.fixture(scope="module")
def linear():
    return pp.linear_lags(2).fit(HISTORY, seed=0)


@pytest.fixture(scope="module")
def tree(linear):
    return linear.to_arviz(HISTORY, seed=3)


@pytest.fixture(scope="module")
def process():
    return pp.gaussian_process(2).fit(HISTORY, pp.Laplace(300), seed=0)


@pytest.fixture(scope="module")
def nuts():
    return pp.linear_lags(2).fit(HISTORY, pp.Nuts(draws=50, warmup=60, chains=2), seed=0)


@pytest.fixture
def figure():
    state = np.random.get_state()  # noqa: NPY002  plot_ppc picks its draws with the global stream
    yield
    np.random.set_state(state)  # noqa: NPY002
    plt.close("all")


def test_the_posterior_is_the_table_s(linear, tree):
    mean, table = tree.posterior.mean(("chain", "draw")), linear.table["mean"]
    assert_allclose(mean.intercept, table["w0 ~ 1"], rtol=1e-12)
    for name in ("s.lag0", "s.lag1"):
        assert_allclose(mean.slope.sel(input=name), table[f"w0 ~ {name}"], rtol=1e-12)
    assert_allclose(mean.noise_scale, table["w0 noise scale"], rtol=1e-12)


def test_several_w_are_told_apart_and_their_correlation_is_there():
    law = pp.linear_lags(2).fit(PAIR, seed=0)
    found = law.to_arviz().posterior
    assert list(found.output.values) == ["w0", "w1"]
    for w in law.schema.w_names:
        slope = found.slope.sel(output=w, input="s.lag1").mean()
        assert_allclose(slope, law.table["mean"][f"{w} ~ s.lag1"], rtol=1e-12)
    # the world's noise is (e, e + f): correlation 1 / sqrt(2)
    assert abs(float(found.noise_correlation.sel(pair="w1, w0").mean()) - 0.5**0.5) < 0.15
    labels = az.summary(law.to_arviz(), kind="stats").index
    assert {"slope[w1, s.lag0]", "noise_correlation[w1, w0]"} <= set(labels)


def test_densities_are_normal_ones_with_the_posterior_s_mean_and_scale(tree):
    x = tree.constant_data.x
    some = tree.posterior.sel(draw=tree.log_likelihood.draw)
    mean = some.intercept + (some.slope * x).sum("input")
    expected = stats.norm(mean, some.noise_scale.broadcast_like(mean)).logpdf(
        tree.observed_data.w0.broadcast_like(mean).transpose(*mean.dims)
    )
    expected = mean.copy(data=expected).transpose("chain", "draw", "row")
    assert_allclose(tree.log_likelihood.w0, expected, rtol=1e-9)


def test_predictions_come_from_the_posterior_draw_they_are_labelled_with(tree):
    some = tree.posterior.sel(draw=tree.posterior_predictive.draw)
    mean = some.intercept + (some.slope * tree.constant_data.x).sum("input")
    noise = ((tree.posterior_predictive.w0 - mean) / some.noise_scale).values.ravel()
    assert_mean(noise, 0.0)
    assert_mean(noise**2, 1.0)


def test_rows_are_those_of_the_frame_with_their_unit_and_time(tree):
    frame = HISTORY.to_frame()
    for group in ROW_GROUPS:
        here = tree[group]
        there = frame.iloc[here.row.values]
        assert_array_equal(here.unit, there.unit)
        assert_array_equal(here.time, there.time)
    row = tree.log_likelihood.row.values
    assert_array_equal(tree.observed_data.w0, frame.w0.iloc[row])
    assert_array_equal(tree.constant_data.x.sel(input="s.lag0"), frame.s.iloc[row])
    assert tree.posterior_predictive.w0.shape == (1, 500, 12 * 14)
    assert tree.attrs["rows_left_out"] == 12  # the first row of a unit lacks a lag
    assert tree.attrs["rows_fitted_on"] == tree.attrs["rows"] == 12 * 14


def test_attributes_say_what_it_is(linear, tree):
    assert tree.attrs["law_id"] == linear.id
    assert tree.attrs["inference"] == "Exact(draws=1000)"
    assert (tree.attrs["seed"], tree.attrs["seed_of_predictions"]) == (0, 3)
    assert "torch" in tree.attrs["versions"]
    again = linear.to_arviz(HISTORY, seed=3)
    assert all(again[name].identical(tree[name]) for name in tree.groups())
    other = linear.to_arviz(HISTORY, seed=4)
    assert not other.posterior_predictive.equals(tree.posterior_predictive)
    assert other.log_likelihood.equals(tree.log_likelihood)


def test_chains_of_nuts_are_chains(nuts):
    found = nuts.to_arviz(HISTORY, size=80)
    assert dict(found.posterior.sizes)["chain"] == 2
    coef = nuts.draws["coef"][:, 1, 0] * nuts.scaler.w_scale[0] / nuts.scaler.x_scale[0]
    slope = found.posterior.slope.sel(input="s.lag0")
    assert_allclose(slope, np.stack([coef[:50], coef[50:]]), rtol=1e-12)
    worst = max(float(v.max()) for v in az.rhat(found.posterior).values())
    assert 0.98 < worst < 1.3
    assert found.sample_stats.diverging.sum() == nuts.record.quality["divergences"]
    assert float(found.fit.r_hat) == nuts.record.quality["r_hat"]
    assert found.log_likelihood.sizes["draw"] == 40
    assert "2 chains x 50" in found.attrs["chains"]
    assert "2 chains x 50" in repr(nuts)
    told = found.sample_stats
    assert told.energy.dims == ("chain", "draw")
    assert_array_equal(told.lp.values.ravel(), nuts.record.sampler["lp"])
    assert (told.tree_depth >= 1).all()
    assert az.bfmi(found).shape == (2,)
    assert not told.reached_max_treedepth.any()


def test_a_law_without_chains_is_never_asked_for_r_hat(linear, tree):
    assert tree.posterior.sizes["chain"] == 1
    assert "sample_stats" not in tree.groups()
    assert "r_hat" not in linear.record.quality
    assert az.summary(tree)["r_hat"].isna().all()
    assert "no Markov chain" in tree.attrs["chains"]


def test_losses_are_kept():
    law = pp.linear_lags(2).fit(HISTORY, pp.Svi(draws=50, steps=40), seed=0)
    found = law.to_arviz()
    assert_array_equal(found.fit.loss, law.record.losses)
    assert found.groups() == ["posterior", "log_prior", "fit"]


def test_a_gaussian_process_has_named_axes(process):
    found = process.to_arviz(HISTORY, size=100).posterior
    assert found.length.dims == ("chain", "draw", "input")
    assert list(found.input.values) == ["s.lag0", "s.lag1"]
    axes = ["chain", "draw", "column", "output", "process", "input"]
    for value in found.data_vars.values():  # ArviZ 1.3 mixes up labels where orders differ
        assert sorted(value.dims, key=axes.index) == list(value.dims)
    assert_allclose(
        found.length.mean(("chain", "draw")).sel(input="s.lag1"),
        process.table["mean"]["length[0,1]"],
    )


@pytest.mark.parametrize("law", ["linear", "process", "state space"])
def test_the_average_density_is_the_log_score(law, linear, process):
    fitted = {"linear": linear, "process": process}.get(law)
    if fitted is None:
        fitted = pp.state_space(2, ma=0).fit(HISTORY, seed=0, draws=200)
    count = fitted.kernel.count
    scores = fitted.to_arviz(HISTORY, size=count).log_likelihood
    expected = log_density_at(fitted, HISTORY.grid.s, HISTORY.grid.w, draws=count)[
        HISTORY.grid.seen
    ]
    found = logsumexp(scores.w0.isel(chain=0), axis=0) - np.log(count)
    assert_allclose(found, expected[scores.row.values], rtol=1e-9)


def test_the_state_space_law_answers_every_row():
    hidden = HISTORY.grid.s.copy()
    hidden[:, 5:8] = np.nan
    gappy = pp.History.from_arrays(
        hidden,
        HISTORY.grid.w,
        seen=HISTORY.grid.seen,
        units=HISTORY.units,
        s_names=("s",),
        w_names=("w0",),
    )
    law = pp.state_space(2, ma=0).fit(gappy, seed=0, draws=300)
    found = law.to_arviz(gappy)
    assert found.attrs["rows_left_out"] == 0
    spread = found.posterior_predictive.w0.std(("chain", "draw")).values
    expected = np.sqrt(variance_at(law, gappy.grid.s)[gappy.grid.seen][:, 0])
    # the standard deviation of m nearly normal draws is off by 1 / sqrt(2 m)
    assert_allclose(spread, expected, rtol=z_bound(len(spread)) / np.sqrt(2 * 300))


def test_leaving_rows_out_prefers_the_law_with_the_lag_that_matters():
    many = linear_history(units=60, time=15, lags=2)[0]
    laws = {
        "true": pp.linear_lags(2).fit(many, seed=0),
        "curve": pp.gaussian_process(2).fit(many, seed=0),
        "late": pp.linear_lags(pp.Lags(1, start=1)).fit(many, seed=0),  # without S_t
    }
    table = az.compare({name: law.to_arviz(many) for name, law in laws.items()})
    assert list(table.index)[-1] == "late"
    assert table["elpd_loo"]["true"] - table["elpd_loo"]["late"] > 4 * table["dse"]["late"]
    # a line is the truth: a curve cannot do better beyond noise
    assert abs(table["elpd_loo"]["true"] - table["elpd_loo"]["curve"]) < 4


def test_plots_are_drawn(nuts, figure):
    found = nuts.to_arviz(HISTORY, size=50)
    assert az.plot_trace(found).shape == (3, 2)
    axes = az.plot_ppc(found, num_pp_samples=20)
    assert axes.get_xlabel() == "w0"


def test_netcdf_gives_back_what_it_was_given(nuts, tmp_path):
    found = nuts.to_arviz(HISTORY, size=50)
    found.to_netcdf(tmp_path / "law.nc", engine="h5netcdf")
    again = az.from_netcdf(tmp_path / "law.nc", engine="h5netcdf")
    assert again.groups() == found.groups()
    for name in found.groups():
        assert again[name].identical(found[name])
    assert dict(again.attrs) == dict(found.attrs)
    again.close()


def test_other_columns_are_refused(linear):
    other = pp.History.from_arrays(
        HISTORY.grid.s,
        HISTORY.grid.w,
        seen=HISTORY.grid.seen,
        units=HISTORY.units,
        s_names=("s",),
        w_names=("steps",),
    )
    with pytest.raises(DataError, match=r"fitted on columns \('w0',\), but .*'steps'"):
        linear.to_arviz(other)
    with pytest.raises(DataError, match="a History was expected, but got ndarray"):
        linear.to_arviz(HISTORY.grid.s)


def test_too_much_is_refused_before_it_is_computed(linear, monkeypatch):
    monkeypatch.setattr("pulse_pyro.laws.arviz_tree.MOST", 10_000)
    with pytest.raises(SettingError, match=r"ask for size=19 or fewer"):
        linear.to_arviz(HISTORY)
    linear.to_arviz(HISTORY, size=19)
    with pytest.raises(SettingError, match="to_arviz: size must be a whole number >= 1"):
        linear.to_arviz(HISTORY, size=0)


def test_without_arviz_the_package_is_named(linear, monkeypatch):
    real = builtins.__import__

    def absent(name, *rest):
        if name == "arviz":
            raise ModuleNotFoundError("No module named 'arviz'")
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(SettingError, match="pip install arviz"):
        linear.to_arviz()
