"""Regressors of scikit-learn, and objects with the least a law can have, are laws like others."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.ensemble import GradientBoostingRegressor
from sklearn.neighbors import KNeighborsRegressor

import pulse_pyro as pp
from pulse_pyro.base import Schema
from tests.helpers import FALSE_ALARM, z_bound

WORLD = pp.envs.main_nonlinear()
HISTORY = WORLD.archive(units=80, length=40, rng=pp.stream(0, "archive"))
FIT, HELD_OUT = HISTORY.split(seed=0)
PHI = pp.terms(["1", "s", "w", "a*w"], 2, observed=["s"], missing=["w"])
MODELS = {
    "boosting": (GradientBoostingRegressor(n_estimators=50), "normal"),
    "neighbours": (KNeighborsRegressor(15), "empirical"),
    "its own row": (KNeighborsRegressor(1), "normal"),
}


@pytest.fixture(scope="module", params=MODELS)
def law(request):
    model, residual = MODELS[request.param]
    return pp.laws.from_sklearn(model, 3, residual=residual).fit(FIT, seed=0)


def test_it_is_diagnosed_calibrated_played_and_simulated(law):
    found = pp.diagnose(law, HELD_OUT, seed=0, size=200)
    assert found.table.loc["skill w", "value"] > 0.3
    assert found.table.loc["coverage w", "verdict"] != "fail"
    calibration = pp.calibrate(law, HELD_OUT, PHI, seed=0, band="linear")
    assert calibration.law_id == law.id
    assert np.isfinite(calibration.error).all((1, 2)).any()
    policy = (
        pp.PulseUCB(law, PHI, pp.constant(1.0), errors=pp.calibration.CalibratedErrors(calibration))
        if calibration.usable
        else pp.PulseUCB(law, PHI, pp.constant(1.0))
    )
    for row in HELD_OUT.s[:6]:
        policy.observe(row)
    decision = policy.act(HELD_OUT.s[6])
    policy.learn(decision, 0.5)
    online = WORLD.world(runs=2, horizon=30, rng=pp.stream(0, "online"))
    run = pp.simulate(online, [pp.envs.pulse(online, law), pp.envs.oful(online)])
    assert np.isfinite(run.table["regret"]).all()


def test_residuals_are_of_units_the_copy_has_not_seen(law):
    own = FIT.rows(law.summary)
    inside = own.w - law(FIT, own.at).mean()
    out = HELD_OUT.rows(law.summary)
    outside = out.w - law(HELD_OUT, out.at).mean()
    assert_allclose(law.residuals.std(), outside.std(), rtol=0.15)
    if isinstance(law.models[0], KNeighborsRegressor) and law.models[0].n_neighbors == 1:
        assert inside.std() < 0.1 * law.residuals.std()  # its own row is its nearest neighbour


def test_what_it_says_agrees_with_its_draws(law):
    at = HELD_OUT.rows(law.summary).at[:4]
    asked = law(HELD_OUT, at)
    size = 20_000
    drawn = asked.draws(size, rng=pp.stream(0, "draws"))
    sd = np.sqrt(asked.covariance()[:, 0, 0])
    z = (drawn.mean(0) - asked.mean())[:, 0] / (sd / np.sqrt(size))
    assert np.abs(z).max() < z_bound(4)
    w = HELD_OUT.w[at]
    share = (drawn <= w).mean(0)
    error = np.sqrt(np.maximum(share * (1 - share), 1 / size) / size)
    assert (np.abs(share - asked.cdf(w)) < z_bound(4) * error + 1e-3).all()
    score = asked.log_density(w)
    if law.law.residual == "empirical":
        assert score is None
    else:
        normal = -0.5 * ((w - asked.mean())[:, 0] / sd) ** 2 - np.log(sd * np.sqrt(2 * np.pi))
        assert_allclose(score[:, 0], normal, rtol=1e-9)
        assert_allclose(asked.joint_log_density(w), normal, rtol=1e-9)


def test_rows_with_an_unseen_input_are_refused(law):
    s = np.full((1, 2, 1), 0.3)
    assert np.isnan(law(s).mean()).all()
    assert np.isnan(law(s).draws(3, rng=pp.stream(0, "x"))).all()


def test_one_seed_gives_one_law():
    model = pp.laws.from_sklearn(GradientBoostingRegressor(n_estimators=5, subsample=0.5), 2)
    one, again, other = (model.fit(FIT, seed=seed) for seed in (0, 0, 1))
    assert one.id == again.id != other.id
    assert_array_equal(one(HELD_OUT).mean(), again(HELD_OUT).mean())


@pytest.mark.parametrize(
    ("call", "error", "word"),
    [
        (lambda: pp.laws.from_sklearn(3), pp.errors.ModelError, "fit and predict"),
        (
            lambda: pp.laws.from_sklearn(KNeighborsRegressor(), residual="t"),
            pp.errors.SettingError,
            "residual",
        ),
        (
            lambda: pp.laws.from_sklearn(KNeighborsRegressor()).fit(FIT.take([0]), seed=0),
            pp.errors.DataError,
            "two units",
        ),
        (
            lambda: pp.laws.from_sklearn(KNeighborsRegressor()).fit(FIT, pp.Nuts(), seed=0),
            pp.errors.SettingError,
            "of no use",
        ),
    ],
)
def test_bad_input_is_a_sentence(call, error, word):
    with pytest.raises(error, match=word):
        call()


class Constant:
    """The least a law can have: W is normal with one mean and sd everywhere."""

    def __init__(self, history):
        self.schema = Schema.of(history.s_names, history.w_names)
        self.level = np.nanmean(history.w, axis=0), np.nanstd(history.w, axis=0)

    def __call__(self, source, at=None):
        s = source.s if isinstance(source, pp.History) else np.asarray(source).reshape(-1, 1)
        rows = np.arange(len(s)) if at is None else np.arange(len(s))[np.asarray(at).ravel()]
        return ConstantConditional(*self.level, s[rows])


class ConstantConditional:
    exact = True

    def __init__(self, mean, sd, s):
        self._mean, self._sd, self.s = mean, sd, s

    def mean(self):
        return np.tile(self._mean, (len(self.s), 1))

    def draws(self, size, *, rng):
        return self.mean() + self._sd * rng.standard_normal((size, len(self.s), len(self._sd)))

    def mean_draws(self, size, *, rng):
        return np.repeat(self.mean()[None], size, axis=0)

    def joint_log_density(self, w):
        return None


def test_an_object_with_a_call_and_a_schema_is_a_law():
    law = Constant(FIT)
    found = pp.diagnose(law, HELD_OUT, seed=0, size=200)
    assert found.table.loc["skill w", "value"] < 0.05
    assert pp.calibrate(law, HELD_OUT, PHI, seed=0).rung("forecast").holds
    policy = pp.PulseUCB(law, PHI, pp.constant(1.0))
    assert policy.act(HELD_OUT.s[0]).action in (0, 1)
    assert FALSE_ALARM < 1


def test_what_is_no_law_is_refused():
    for call in (
        lambda: pp.diagnose(3, HELD_OUT, seed=0),
        lambda: pp.calibrate(np.mean, HELD_OUT, PHI, seed=0),
        lambda: pp.PulseUCB("law", PHI, pp.constant(1.0)),
    ):
        with pytest.raises(pp.errors.ModelError, match="a fitted law was expected"):
            call()


def test_it_is_not_saved_alone_but_handed_back_to_what_holds_it(tmp_path):
    law, other = (
        pp.laws.from_sklearn(KNeighborsRegressor(k), 3).fit(FIT, seed=0) for k in (15, 14)
    )
    with pytest.raises(pp.errors.BundleError, match="keep its model yourself"):
        pp.save(law, tmp_path / "law")
    policy = pp.PulseUCB(law, PHI, pp.constant(1.0))
    for row in HELD_OUT.s[:6]:
        policy.observe(row)
    calibration = pp.calibrate(law, HELD_OUT, PHI, seed=0, band="linear")
    for name, thing in (("policy", policy), ("calibration", calibration)):
        pp.save(thing, tmp_path / name)
        with pytest.raises(pp.errors.BundleError, match="load"):
            pp.load(tmp_path / name, features=PHI)
        with pytest.raises(pp.errors.BundleError, match="law_id"):
            pp.load(tmp_path / name, law=other, features=PHI)
    again = pp.load(tmp_path / "policy", law=law, features=PHI)
    assert again.act(HELD_OUT.s[6]).action == policy.act(HELD_OUT.s[6]).action
    bounds = pp.load(tmp_path / "calibration", law=law, features=PHI)
    assert_array_equal(bounds.error, calibration.error)
    assert_array_equal(bounds.error_at(HELD_OUT), calibration.error_at(HELD_OUT))


def test_two_of_them_crossfitted_are_handed_back_together(tmp_path):
    model = pp.laws.from_sklearn(KNeighborsRegressor(15), 3)
    law, calibration = pp.calibration.crossfit(model, HISTORY, PHI, seed=0, band="linear")
    pp.save(law, tmp_path / "law")
    pp.save(calibration, tmp_path / "calibration")
    assert pp.load(tmp_path / "law", law=law).id == law.id
    again = pp.load(tmp_path / "calibration", law=law, features=PHI)
    assert_array_equal(again.error_at(HELD_OUT), calibration.error_at(HELD_OUT))
    with pytest.raises(pp.errors.BundleError, match="law"):
        pp.load(tmp_path / "calibration", law=law.one, features=PHI)


def test_what_it_is_shows():
    law = pp.laws.from_sklearn(KNeighborsRegressor(15), 3).fit(FIT, seed=0)
    assert repr(law).startswith("FittedSklearn")
    assert "clusters" in repr(law)
    assert repr(pp.linear_lags(2).fit(FIT, seed=0)).startswith("PosteriorLaw")
    assert repr(pp.state_space(2, ar=1, ma=0).fit(FIT, seed=0)).startswith("FilteredLaw")
