"""Convergence by kind of inference; leaks; the figure."""

from dataclasses import replace

import numpy as np
import pyro
import pyro.distributions as dist
import pytest

import pulse_pyro as pp
from pulse_pyro.diagnostics.convergence import convergence
from pulse_pyro.laws.fitted import FitRecord
from tests.helpers import linear_history

FIT, HELD_OUT = linear_history(units=40, time=12, lags=2, seed=4, w_dim=2)[0].split(seed=0)
ONE_FIT, ONE_HELD_OUT = linear_history(units=40, time=12, lags=2, seed=4)[0].split(seed=0)
LAW = pp.linear_lags(2).fit(FIT, seed=0)
MCMC = {"r_hat", "ess", "divergences"}


def figures(law, inference):
    fitted = law.fit(ONE_FIT, inference, seed=0)
    return {c.name: c.verdict for c in convergence(fitted.record)}


def test_each_engine_is_asked_only_what_it_can_tell():
    line = pp.linear_lags(2)
    assert set(figures(line, pp.Nuts(draws=10, warmup=20))) == MCMC
    assert figures(line, pp.Laplace()) == {"pareto_k": "pass"}
    assert set(figures(line, pp.Svi(draws=200, steps=200))) == {"pareto_k", "loss_drop"}
    assert figures(line, pp.Exact()) == {}
    networks = figures(pp.neural_density(2), pp.Ensemble(members=2, steps=30))
    assert networks["posterior"] == "info"
    assert not MCMC & set(networks)
    memory = {c.name for c in convergence(pp.state_space(2, ar=1).fit(ONE_FIT, seed=0).record)}
    assert not MCMC & memory
    assert "posterior" in memory


def heavy(x, w=None):
    """Ten parameters the rows say next to nothing about, with Cauchy tails: far from Gaussian."""
    free = pyro.sample("free", dist.StudentT(1.0, x.new_zeros(10), 1.0).to_event(1))
    with pyro.plate("rows", x.shape[-2], dim=-1):
        mean = 0.0 * x.sum(-1) + 1e-6 * free.sum(-1, keepdim=True)
        pyro.sample("w", dist.Normal(mean[..., None], 1.0).to_event(1), obs=w)


def test_engines_that_did_not_arrive_fail():
    law = pp.Law(heavy, pp.Lags(2), name="heavy")
    short = figures(law, pp.Nuts(draws=10, warmup=2))
    assert short["r_hat"] in ("warn", "fail")
    assert short["ess"] in ("warn", "fail")
    assert figures(law, pp.Laplace())["pareto_k"] in ("warn", "fail")
    [said] = convergence(law.fit(ONE_FIT, pp.Laplace(), seed=0).record)
    assert "law.fit(history, pp.Nuts(), seed=0)" in said.text
    [fine] = convergence(pp.linear_lags(2).fit(ONE_FIT, pp.Laplace(), seed=0).record)
    assert "Nuts" not in fine.text


@pytest.mark.parametrize(
    ("name", "value", "verdict"),
    [
        ("ess", 500.0, "pass"),
        ("ess", 60.0, "warn"),
        ("ess", 10.0, "fail"),
        ("ess", np.nan, "fail"),
        ("loss_drop", 0.5, "pass"),
        ("loss_drop", 3.0, "warn"),
        ("loss_drop", 9.0, "fail"),
        ("loss_drop", np.nan, "fail"),
    ],
)
def test_limits(name, value, verdict):
    assert convergence(FitRecord("x", 0, 1, 0, {name: value}))[0].verdict == verdict


def renamed(history):
    names = tuple(f"new {u}" for u in history.units)
    return replace(history, units=names, cluster=None, clusters=())


def test_the_archive_under_other_names_is_recognised():
    table = pp.diagnose(LAW, renamed(FIT), seed=0).table
    assert table.loc["leak", "verdict"] == "fail"
    order = np.random.default_rng(0).permutation(len(FIT.units))
    assert "leak" in pp.diagnose(LAW, renamed(FIT.take(order)), seed=0).table.index
    assert "leak" not in pp.diagnose(LAW, HELD_OUT, seed=0).table.index


def test_the_same_s_with_other_w_is_no_leak():
    noise = np.random.default_rng(0).normal(0, 0.01, FIT.w.shape)
    other = replace(renamed(FIT), w=FIT.w + noise)
    assert "leak" not in pp.diagnose(LAW, other, seed=0).table.index


def test_a_part_of_the_archive_under_other_names_shows_only_beside_the_archive():
    part = renamed(FIT.take(range(10)))
    assert "leak" not in pp.diagnose(LAW, part, seed=0).table.index
    with pytest.raises(pp.errors.LeakageError, match=r"'new u\d+' has the values of unit 'u\d+'"):
        pp.diagnose(LAW, part, seed=0, archive=FIT)


def test_an_archive_with_other_columns_is_refused():
    other = pp.Schema.of(["t"], FIT.w_names)
    with pytest.raises(pp.errors.DataError, match="the archive has"):
        pp.diagnose(LAW, HELD_OUT, seed=0, archive=replace(FIT, schema=other))
    with pytest.raises(pp.errors.DataError, match="a History was expected"):
        pp.diagnose(LAW, HELD_OUT.to_frame(), seed=0)


def test_the_figure_has_four_panels_for_the_w_asked_for():
    found = pp.diagnose(LAW, HELD_OUT, seed=0)
    figure = found.plot("w1")
    assert len(figure.axes) == 4
    assert figure.get_suptitle() == f"w1 on held-out units: {found.verdict}"
    pit, coverage, residual, score = figure.axes
    heights = [bar.get_height() for bar in pit.patches if bar.get_width() < 0.1]
    assert np.mean(heights) == pytest.approx(1.0)
    assert (np.diff(coverage.lines[-1].get_ydata()) >= 0).all()
    assert residual.get_xlabel() == "expected w1"
    assert len(score.get_yticklabels()) == 4
    figure.canvas.draw()


def test_what_cannot_be_drawn_says_so():
    found = pp.diagnose(LAW, HELD_OUT, seed=0)
    with pytest.raises(pp.errors.SettingError, match=r"no W 'w2'; known: 'w0', 'w1'"):
        found.plot("w2")
    with pytest.raises(pp.errors.DataError, match="no predictions to draw"):
        pp.diagnostics.Diagnostics(found.checks).plot()
    pp.diagnose(LAW, HELD_OUT.take([0]), seed=0).plot().canvas.draw()
