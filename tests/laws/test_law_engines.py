"""Which engines suit a law: one fact, read by the fit and by the check of a study."""

from pathlib import Path

import numpy as np
import pytest

import pulse_pyro as pp
from pulse_pyro._core.errors import ModelError
from tests.helpers import linear_history

MODELS = Path(__file__).parents[2] / "models"
SUITED = {
    "linear_lags": (pp.linear_lags(1), pp.Exact, {pp.Ensemble}),
    "student_t": (pp.linear_lags(1, noise="student_t"), pp.Laplace, {pp.Exact, pp.Ensemble}),
    "gaussian_process": (pp.gaussian_process(1), pp.Laplace, {pp.Exact, pp.Ensemble}),
    "neural_density": (
        pp.neural_density(1),
        pp.Ensemble,
        {pp.Exact, pp.Nuts, pp.Svi, pp.Laplace},
    ),
    "custom": (pp.Law(lambda x, w=None: None, pp.Lags(1)), pp.Laplace, {pp.Exact, pp.Ensemble}),
}


@pytest.mark.parametrize("name", SUITED)
def test_a_law_says_which_engines_it_takes_and_refuses_the_others(name):
    law, own, refused = SUITED[name]
    assert law.engines[0] is own
    assert set(law.engines) == {pp.Exact, pp.Nuts, pp.Svi, pp.Laplace, pp.Ensemble} - refused
    assert law.engine(None) == own()
    assert all(law.engine(engine()) == engine() for engine in law.engines)
    for engine in refused:
        with pytest.raises(ModelError, match=rf"does not suit .*use .*{own.__name__}\(\)"):
            law.engine(engine())


def test_a_law_that_fits_itself_takes_no_engine():
    law = pp.state_space(2)
    assert law.engines == ()
    history, _ = linear_history(units=4, time=10, lags=2)
    with pytest.raises(ModelError, match="does not suit state_space: it fits itself"):
        law.fit(history, pp.Nuts(), seed=0)


@pytest.mark.parametrize("law", [pp.linear_lags(1), pp.gaussian_process(1)])
def test_a_law_fitted_without_rows_takes_no_batches(law):
    history, _ = linear_history(units=4, time=10, lags=1)
    with pytest.raises(ModelError, match="row by row"):
        law.fit(history, pp.Svi(batch=2), seed=0)


def test_a_factor_over_units_is_cut_into_batches():
    law = pp.law_from_file(MODELS / "hierarchical_units.py")
    history, _ = linear_history(units=200, time=10, lags=2)
    whole = law.fit(history, pp.Laplace(2000), seed=0).draws
    part = law.fit(history, pp.Svi(2000, 100, batch=20), seed=0).draws
    for name in ("a", "b", "sd"):
        spread = whole[name].std(0)
        assert np.max(np.abs(part[name].mean(0) - whole[name].mean(0)) / spread) < 0.2
        np.testing.assert_allclose(part[name].std(0) / spread, 1, atol=0.2)
