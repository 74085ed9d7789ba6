"""Where a law would answer and be wrong it must refuse, or be as unsure as it should be."""

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
from numpy.testing import assert_allclose
from scipy import stats

import pulse_pyro as pp
from tests.helpers import FALSE_ALARM, draws_at, linear_history, log_density_at, mean_at

QUICK = pp.Ensemble(members=2, steps=60, batch=64)


def archive(units=40, time=20, s_dim=1, seed=0):
    rng = np.random.default_rng(seed)
    s = rng.standard_normal((units, time, s_dim))
    w = s.sum(-1, keepdims=True) + 0.1 * rng.standard_normal((units, time, 1))
    names = tuple(f"u{i}" for i in range(units))
    seen = np.ones((units, time), bool)
    return pp.History.from_arrays(
        s, w, seen=seen, units=names, s_names=tuple("stuv"[:s_dim]), w_names=("w",)
    )


def test_a_network_answers_only_gaps_it_has_trained_on():
    """Warm-up rows lack lag 1, never lag 0: a missing S_t is another matter."""
    fitted = pp.neural_density(2, width=8).fit(archive(), QUICK, seed=0)
    s = np.zeros((1, 3, 1))
    s[0, 1] = np.nan
    assert np.isfinite(mean_at(fitted, s)[0, [0, 2]]).all()
    assert np.isnan(mean_at(fitted, s)[0, 1]).all()
    assert np.isnan(draws_at(fitted, s, 4, rng=np.random.default_rng(0))[:, 0, 1]).all()
    assert np.isnan(log_density_at(fitted, s, np.zeros((1, 3, 1)))[0, 1])


def test_a_network_refuses_more_gaps_at_once_than_it_has_trained_on():
    full = archive(s_dim=3)
    s = full.grid.s.copy()
    for column in range(3):  # one input at a time is missing, never two
        s[:, column::4, column] = np.nan
    history = pp.History.from_arrays(
        s,
        full.grid.w,
        seen=full.grid.seen,
        units=full.units,
        s_names=full.s_names,
        w_names=full.w_names,
    )
    fitted = pp.neural_density(pp.data.Identity(), width=8).fit(history, QUICK, seed=0)
    rows = np.zeros((1, 3, 3))
    rows[0, 1, 0] = rows[0, 2, 0] = rows[0, 2, 1] = np.nan
    assert_allclose(np.isnan(mean_at(fitted, rows))[0, :, 0], [False, False, True])


def test_a_gap_too_rare_to_learn_from_is_refused():
    full = archive()
    s = full.grid.s.copy()
    s[0, 5] = np.nan
    history = pp.History.from_arrays(
        s,
        full.grid.w,
        seen=full.grid.seen,
        units=full.units,
        s_names=full.s_names,
        w_names=full.w_names,
    )
    fitted = pp.neural_density(pp.data.Identity(), width=8).fit(history, QUICK, seed=0)
    assert np.isnan(mean_at(fitted, np.full((1, 1, 1), np.nan))).all()
    assert not fitted.conditions


def test_a_model_that_was_edited_is_not_taken_for_the_one_saved(tmp_path):
    def make(power):
        def model(x, w=None):
            b = pyro.sample("b", dist.Normal(0.0, 1.0))
            with pyro.plate("rows", x.shape[-2], dim=-1):
                pyro.sample("w", dist.Normal(b[..., None] * x**power, 0.5).to_event(1), obs=w)

        return pp.Law(model, pp.data.Identity(), "law")

    fitted = make(1).fit(archive(), pp.Laplace(10), seed=0)
    pp.save(fitted, tmp_path / "law")
    assert pp.load(tmp_path / "law", law=make(1)).id == fitted.id
    with pytest.raises(pp.errors.BundleError, match="other answers"):
        pp.load(tmp_path / "law", law=make(3))


def test_laws_that_answer_differently_have_different_ids():
    def model(x, w=None):
        b = pyro.sample("b", dist.Normal(0.0, 1.0))
        with pyro.plate("rows", x.shape[-2], dim=-1):
            pyro.sample("w", dist.Normal(b[..., None] * x, 0.5).to_event(1), obs=w)

    ids = [
        pp.Law(model, pp.data.Identity(), unseen=unseen).fit(archive(), pp.Laplace(10), seed=0).id
        for unseen in ("refused", "conditioned on")
    ]
    assert ids[0] != ids[1]


@pytest.mark.parametrize(("hidden", "archives"), [(0.0, 8), (0.5, 20)])
def test_the_emission_is_as_sure_as_it_is_right(hidden, archives):
    """One unseen value enters several windows: rows of a unit are not independent evidence."""
    z = []
    for seed in range(archives):
        history, coef = linear_history(units=40, time=25, lags=3, seed=seed, noise=0.05)
        rng = np.random.default_rng(seed)
        s = np.where(rng.random(history.grid.s.shape) < hidden, np.nan, history.grid.s)
        masked = pp.History.from_arrays(
            s,
            history.grid.w,
            seen=history.grid.seen,
            units=history.units,
            s_names=("s",),
            w_names=("w",),
        )
        fitted = pp.state_space(3).fit(masked, seed=0, draws=400)
        slopes = fitted.table.iloc[1:4]
        scale = fitted.scaler.w_scale[0] / fitted.scaler.x_scale
        draws = (fitted.kernel.coef[:, 1:, 0] * scale).sum(1)
        z.append((slopes["mean"].sum() - coef.sum()) / draws.std())
    # z would be standard normal; the spread is estimated from 40 units, hence a t
    limit = stats.chi2.isf(FALSE_ALARM, archives) / archives
    assert np.mean(np.square(z)) < limit * 39 / 37
