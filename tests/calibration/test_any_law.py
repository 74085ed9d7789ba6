"""Cross-fitting, the coverage study and the planner take any law that can be fitted."""

import numpy as np
import pyro
import pyro.distributions as dist
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


def drift_prior():
    return {"sd": pyro.sample("sd", dist.LogNormal(-1.0, 0.5))}


def drift_first(p):
    pyro.sample("z", dist.Normal(0.0, 1.0))


def drift_step(p, z, s_past):
    z = pyro.sample("z", dist.Normal(0.9 * z, 0.4))
    pyro.sample("s", dist.Normal(z, 1.0))
    pyro.sample("w", dist.Normal(z, p["sd"]))


def test_the_band_of_a_law_with_a_state_is_of_its_own_error():
    # W hangs on all of S so far: a band of W given the last row could not hold, whatever the law
    law = pp.StepLaw(drift_prior, drift_first, drift_step, draws=5, name="drift")
    rng = np.random.default_rng(0)
    s = rng.standard_normal((60, 25, 1))
    blank = pp.History.from_arrays(s, s, s_names=("s",), w_names=("w",))
    made = law.simulate(blank, 1, seed=0)
    archive = pp.History.from_arrays(made.s[0], made.w[0], s_names=("s",), w_names=("w",))
    fit, held_out = archive.split(seed=0)
    right = law.fit(fit, pp.Laplace(20), seed=0)
    found = pp.calibrate(right, held_out, W_FEATURES, seed=0)
    assert found.parts[0].own_error
    assert found.rung("uniform").verdict == "conditional"
    band = pp.bands.BandMethod("spline", of="target")
    other = pp.calibrate(right, held_out, W_FEATURES, seed=0, band=band)
    assert found.rung("uniform").size < 1.0
    assert other.rung("uniform").verdict == "fails"  # the past of S tells more of W
