"""Every file of models/ keeps the same promises: a new file is tested by being there."""

import ast
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from pulse_pyro import Features, History, Laplace, PulseUCB, constant, law_from_file
from pulse_pyro._core.errors import FeatureError, ModelError
from pulse_pyro._core.saved import load, save
from pulse_pyro._pyro.predict import simulate_prior
from pulse_pyro.laws.files import check_law, list_laws
from tests.helpers import assert_mean, draws_at, mean_at, mean_draws_at

FOLDER = Path(__file__).parents[2] / "models"
FILES = [f for f in sorted(FOLDER.glob("*.py")) if "\ndef model(" in f.read_text()]  # no state
UNITS, TIME = 6, 32
S = np.random.default_rng(0).standard_normal((UNITS, TIME, 1))
PHI = Features(
    lambda s, w, a: np.hstack([w[:, :1] * (a == 0), w[:, :1] * (a == 1)]), 2, ("w0", "w1")
)
pytestmark = pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)


def archive(w, columns=()):
    names = tuple(f"u{i}" for i in range(UNITS))
    columns = columns or tuple(f"w{j}" for j in range(w.shape[-1]))
    return History.from_arrays(S, w, units=names, s_names=("s",), w_names=columns)


@cache
def checked(file):
    return check_law(file)


@cache
def fitted(file):
    """A law, an archive drawn from its own prior, and its fit."""
    law = law_from_file(file)
    x = law.summary(S)
    whole = np.isfinite(x).all(-1)
    card = checked(file).card
    drawn = simulate_prior(law.model, x[whole], np.nonzero(whole)[0], card, 3)
    w = np.full((UNITS, TIME, drawn.w.shape[1]), np.nan)
    w[whole] = drawn.w
    history = archive(w, card.columns)
    return law, history, law.fit(history, Laplace(draws=100), seed=0), drawn.truth


def test_it_is_short_and_tells_its_story(file):
    text = file.read_text()
    assert len(text.splitlines()) <= 80
    told = ast.get_docstring(ast.parse(text))
    assert told.split("\n")[0].endswith(".")
    assert "Use it" in told
    assert "W_t" in told or "W_ut" in told
    assert list_laws(FOLDER).loc[file.stem, "story"] == told.split("\n")[0]


def test_it_meets_the_contract_and_runs_at_once(file):
    found = checked(file)
    assert found.name == file.stem
    assert found.card.vectorised
    assert found.card.closed_mean
    assert np.isfinite(found.prior).all()
    assert (np.diff(found.prior, axis=0) >= 0).all()
    assert_array_equal(np.quantile(found.drawn, (0.05, 0.5, 0.95), axis=0), found.prior)
    assert set(law_from_file(file).dims) <= {site.name for site in found.card.globals}


def test_a_fit_returns_every_parameter_and_finite_means(file):
    law, history, fit, truth = fitted(file)
    of_units = {site.name for site in checked(file).card.unit_sites}
    assert set(fit.draws) == set(truth) | of_units
    assert {n: value.shape[1:] for n, value in fit.draws.items() if n not in of_units} == {
        name: value.shape for name, value in truth.items()
    }
    assert all(fit.draws[name].shape[1] == UNITS for name in of_units)
    assert all(value.std(0).min() > 0 for value in fit.draws.values())
    mean = mean_at(fit, S)
    cold = law.summary.memory - 1
    assert np.isnan(mean[:, :cold]).all()
    assert np.isfinite(mean[:, cold:]).all()
    again = law.fit(history, Laplace(draws=100), seed=0)
    assert again.id == fit.id


def test_its_mean_is_the_average_of_its_samples(file):
    law, _, fit, _ = fitted(file)
    window = S[:1, : law.summary.memory + 3]
    drawn = draws_at(fit, window, 20_000, rng=np.random.default_rng(1))
    at_draws = mean_draws_at(fit, window, 20_000, rng=np.random.default_rng(1))
    cold = law.summary.memory - 1
    # the same posterior draws on both sides: only the noise of w is left
    gap = (drawn - at_draws)[:, 0, cold:]
    assert_mean(gap, 0.0)
    shown = mean_at(fit, window)[0, cold:]
    np.testing.assert_allclose(at_draws[:, 0, cold:].mean(0), shown, rtol=1e-9)


def test_it_survives_being_saved(file, tmp_path):
    fit = fitted(file)[2]
    save(fit, tmp_path / "law")
    back = load(tmp_path / "law", law=law_from_file(file))
    assert back.id == fit.id
    assert_array_equal(mean_at(back, S), mean_at(fit, S))
    draws = [draws_at(one, S, 5, rng=np.random.default_rng(2)) for one in (fit, back)]
    assert_array_equal(*draws)


def test_it_goes_to_arviz(file):
    _, history, fit, truth = fitted(file)
    told = fit.to_arviz(history, size=10)
    assert set(truth) <= set(told["posterior"].data_vars)
    assert list(told["posterior_predictive"].data_vars) == list(history.w_names)
    assert {"prior", "prior_predictive", "observed_data"} <= set(dict(told.items()))
    assert set(told["log_prior"].data_vars) == set(truth)
    assert np.isfinite(told["log_prior"].to_dataarray()).all()


def test_rounds_that_lack_an_input_are_refused_in_a_sentence(file):
    law, _, fit, _ = fitted(file)
    assert "unseen inputs: rounds that lack one are refused" in repr(checked(file))
    assert not fit.conditions
    policy = PulseUCB(fit, PHI, constant(1.0))
    for t in range(law.summary.memory - 1):
        with pytest.raises(FeatureError, match="was all of S that the law needs seen"):
            policy.act(S[0, t])
    first = policy.act(S[0, law.summary.memory - 1])
    expected = mean_at(fit, S)[0, law.summary.memory - 1, 0]
    np.testing.assert_allclose(first.x[first.action], expected, rtol=1e-9)
    policy.learn(first, 1.0)
    with pytest.raises(FeatureError, match="refused"):
        policy.act([np.nan])


def test_two_columns_of_w_are_refused_where_one_is_meant(file):
    own = checked(file).card.columns
    w = np.abs(np.random.default_rng(1).standard_normal((UNITS, TIME, len(own) + 1 + (not own))))
    says = "W column 'v' has no site" if own else r"site 'w'.*\(1,\).*\(2,\)"
    with pytest.raises(ModelError, match=rf"^{file.stem}: {says}"):
        law_from_file(file).check(archive(w.round(), (*own, "v") if own else ()))


def test_one_row_is_answered_without_pyro_and_alike(file):
    fit = fitted(file)[2]
    kernel, x = fit.kernel, np.random.default_rng(1).standard_normal((4, fit.card.x_dim))
    if fit.card.by_unit:
        pytest.skip("which unit a row is of decides what is run")
    assert kernel.flat is not None
    every = np.arange(kernel.count)
    ran = kernel.mean_draws(x, every)  # several rows are run
    alone = np.concatenate([kernel.mean_draws(row[None], every) for row in x], axis=1)
    assert_allclose(alone, ran, rtol=1e-10, atol=1e-10)
