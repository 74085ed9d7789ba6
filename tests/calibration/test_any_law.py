"""Cross-fitting, the coverage study and the planner take any law that can be fitted."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.neighbors import KNeighborsRegressor

import pulse_pyro as pp
from tests.calibration.helpers import W_FEATURES
from tests.helpers import linear_history

LINEAR = pp.bands.BandMethod("linear", draws=200)
LAWS = {
    "state space": pp.state_space(2, ar=1, ma=0),
    "regressor": pp.laws.from_sklearn(KNeighborsRegressor(15), 2),
}


@pytest.fixture(scope="module")
def archive():
    return linear_history(units=48, time=12, lags=2)[0]


@pytest.fixture(params=LAWS)
def law(request):
    return LAWS[request.param]


def test_crossfit_averages_two_laws_of_any_kind(law, archive):
    average, found = pp.calibration.crossfit(law, archive, W_FEATURES, seed=0, band=LINEAR)
    one, two = archive.split(seed=0)
    halves = [law.fit(part, seed=0) for part in (one, two)]
    assert_allclose(
        average(archive).mean(), (halves[0](archive).mean() + halves[1](archive).mean()) / 2
    )
    w = np.nan_to_num(archive.w)
    densities = [np.exp(half(archive).joint_log_density(w)) for half in halves]
    assert_allclose(np.exp(average(archive).joint_log_density(w)), np.mean(densities, axis=0))
    assert_allclose(np.exp(average(archive).log_density(w))[:, 0], np.mean(densities, axis=0))
    assert found.mode == "crossfit"
    assert (found.bound > 0).all()


def test_a_coverage_study_of_any_law(law, archive):
    study = pp.calibration.calibration_study(law, archive, W_FEATURES, reps=2, seed=0, band=LINEAR)
    assert study.covered.shape == (2,)
    assert np.isfinite(study.tightness).all()


def test_a_plan_for_any_law(law, archive):
    found = pp.plan(
        archive,
        law,
        W_FEATURES,
        stakes=pp.calibration.Stakes(1000, 0.5),
        recipe=pp.calibration.Recipe(band=LINEAR),
        orderings=2,
        seed=0,
    )
    assert found.decay.units[-1] == 48
    assert found.e > 0


@pytest.mark.parametrize(
    "call",
    [
        lambda fitted, h: pp.calibration.crossfit(fitted, h, W_FEATURES, seed=0),
        lambda fitted, h: pp.calibration.calibration_study(fitted, h, W_FEATURES, seed=0),
    ],
)
def test_a_law_that_is_fitted_already_is_refused(call, archive):
    fitted = pp.linear_lags(2).fit(archive, seed=0)
    with pytest.raises(pp.errors.ModelError, match="linear_lags"):
        call(fitted, archive)
