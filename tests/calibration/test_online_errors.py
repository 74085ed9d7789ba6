"""Calibrated errors one decision at a time: the batch's, from what the policy has seen so far."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose

import pulse_pyro as pp
from tests.calibration.helpers import LINEAR, NOT_AFFINE
from tests.helpers import linear_history

pytestmark = pytest.mark.filterwarnings("ignore:a check of this calibration failed")

WA = pp.Features(
    lambda s, w, a: np.column_stack([np.ones(len(s)), s, w, w * a]), 2, ("1", "S", "W", "Wa")
)
MIXED = pp.Features(  # the slopes depend on S
    lambda s, w, a: np.column_stack([s, w * (1 + s**2), w * a * s]), 2, ("S", "W(1+S^2)", "WaS")
)
SPLINE = pp.bands.BandMethod("spline", grid=50, draws=500)
RADIUS = pp.corrected(sigma=0.3)
LAWS = {
    "linear": lambda fit: pp.linear_lags(3).fit(fit, seed=0),
    "gp": lambda fit: pp.gaussian_process(pp.Window(3, np.mean)).fit(fit, pp.Laplace(100), seed=0),
    "state space": lambda fit: pp.state_space(2, ar=1, ma=0).fit(fit, seed=0, draws=100),
}
FIT, HELD_OUT = linear_history(units=40, time=25, lags=3, seed=3)[0].split(seed=0)
S = linear_history(units=1, time=80, lags=3, seed=9)[0].s


@pytest.fixture(scope="module")
def made():
    """Law and calibration by name, each made once."""
    kept = {}

    def make(name, features=WA, band=LINEAR):
        if (name, features) not in kept:
            law = kept.get(name) or LAWS[name](FIT)
            found = pp.calibrate(law, HELD_OUT, features, seed=0, band=band)
            kept[name], kept[name, features] = law, (law, found)
        return kept[name, features]

    return make


def warm(bot, rows):
    for row in rows:
        bot.observe(row)
    return bot


# --- the batch's errors -------------------------------------------------------------------------


@pytest.mark.parametrize("bounds", [None, [1.0, 1.0, 0.2, 0.3]])
@pytest.mark.parametrize("name", LAWS)
def test_errors_online_are_those_of_the_batch(made, name, bounds):
    law, calibration = made(name)
    batch = calibration.reward_error(S[None], theta_bound=1.5, theta_bounds=bounds)[0]
    source = pp.calibration.CalibratedErrors(calibration, 1.5, bounds)
    bot, rng = warm(pp.PulseUCB(law, WA, RADIUS, errors=source), S[:2]), np.random.default_rng(0)
    for t in range(2, 80):
        choice = bot.act(S[t])
        assert choice.error == pytest.approx(batch[t, choice.action], rel=1e-9)
        bot.learn(choice, rng.standard_normal())
    assert np.ptp(batch[2:, 0]) > 0


def test_errors_online_make_the_same_choices_as_in_the_batch(made):
    law, calibration = made("linear", MIXED)
    rng = np.random.default_rng(1)
    x = pp.features.expected_features(law, MIXED, S[None], size=2, rng=rng).mean[:, 2:]
    error = calibration.reward_error(S[None])[:, 2:]
    reward = rng.standard_normal((1, 78, 2))
    action, gamma, _ = pp.policies.play_horizon(x, reward, RADIUS, error=error)
    bot = pp.PulseUCB(law, MIXED, RADIUS, errors=pp.calibration.CalibratedErrors(calibration))
    warm(bot, S[:2])
    for t in range(78):
        choice = bot.act(S[t + 2])
        assert choice.action == action[0, t]
        assert choice.gamma == pytest.approx(gamma[0, t], rel=1e-9)
        bot.learn(choice, reward[0, t, choice.action])


def test_a_curved_map_has_the_batch_error_up_to_monte_carlo(made):
    law, calibration = made("gp", NOT_AFFINE, SPLINE)
    source = pp.calibration.CalibratedErrors(calibration)
    bot = warm(pp.PulseUCB(law, NOT_AFFINE, RADIUS, errors=source), S[:2])
    budget = calibration.parts[0].budget(S[None])
    batch = calibration.reward_error(S[None])[0]
    for t in range(2, 30):
        choice = bot.act(S[t])
        window = calibration.reward_error(S[None, t - 2 : t + 1])[0, -1]
        assert choice.error == pytest.approx(window[choice.action], rel=1e-9)
        # what either adds for Monte Carlo is far more than the two can differ by
        slack = 2 * budget.monte_carlo[t].sum()
        assert abs(choice.error - batch[t, choice.action]) <= slack
        bot.learn(choice, 0.1)


def test_each_arm_has_the_error_of_its_own_context(made):
    law, calibration = made("linear")
    both = np.stack([S[:40], S[40:]], axis=1)
    batch = calibration.reward_error(both[None])[0]
    bot = pp.PulseUCB(law, WA, RADIUS, errors=pp.calibration.CalibratedErrors(calibration))
    warm(bot, both[:2])
    seen = set()
    for t in range(2, 40):
        choice = bot.act(both[t], allowed=np.arange(2) == t % 2)
        assert choice.error == pytest.approx(batch[t, choice.action], rel=1e-9)
        seen.add(choice.action)
    assert seen == {0, 1}


# --- what is not seen ---------------------------------------------------------------------------


def test_rounds_whose_error_is_not_known_are_refused_and_the_policy_goes_on(made):
    law, calibration = made("linear")
    s = S.copy()
    s[30] = np.nan
    source = pp.calibration.CalibratedErrors(calibration)
    bot = pp.PulseUCB(law, WA, RADIUS, errors=source)
    for t, row in enumerate(s[:79]):
        if t in (0, 1, 30, 31, 32):
            with pytest.raises(pp.errors.FeatureError, match=r"refused.*do not pass it again"):
                bot.act(row)
        else:
            bot.learn(bot.act(row), 0.2)
    assert bot.pending == ()
    assert bot.state.rounds == 74
    twin = warm(pp.PulseUCB(law, WA, RADIUS, errors=source), s[77:79])
    assert_allclose(bot.act(s[79]).x[:3], twin.act(s[79]).x[:3], rtol=1e-12)


def test_an_error_that_is_told_takes_the_place_of_the_calibrated_one(made):
    law, calibration = made("linear")
    bot = pp.PulseUCB(law, WA, RADIUS, errors=pp.calibration.CalibratedErrors(calibration))
    warm(bot, S[:2])
    assert bot.act(S[2], error=0.25).error == 0.25


def test_an_arm_that_is_not_on_offer_need_not_be_seen(made):
    law, calibration = made("linear")
    bot = pp.PulseUCB(law, WA, RADIUS, errors=pp.calibration.CalibratedErrors(calibration))
    for row in S[:5]:
        bot.observe([row, [np.nan]])
    choice = bot.act([S[5], [np.nan]], allowed=[True, False])
    assert choice.error == pytest.approx(calibration.reward_error(S[None, :6])[0, 5, 0], rel=1e-9)


# --- refusals -----------------------------------------------------------------------------------


def test_what_does_not_fit_is_refused(made):
    law, calibration = made("linear")
    other = pp.linear_lags(3).fit(HELD_OUT, seed=0)
    with pytest.raises(pp.errors.SettingError, match="calibrate the law that plays"):
        pp.PulseUCB(other, WA, RADIUS, errors=pp.calibration.CalibratedErrors(calibration))
    with pytest.raises(pp.errors.SettingError, match="CalibratedErrors"):
        pp.PulseUCB(law, WA, RADIUS, errors=calibration)
    cross = pp.calibration.crossfit(pp.linear_lags(3), FIT, WA, seed=0, band=LINEAR).calibration
    halves = replace(cross, law_id=law.id)
    bot = pp.PulseUCB(law, WA, RADIUS, errors=pp.calibration.CalibratedErrors(halves))
    with pytest.raises(pp.errors.SettingError, match="cross-fitted"):
        warm(bot, S[:2]).act(S[2])


OTHER = {
    "an arm more": pp.Features(WA.fn, 3, WA.names),
    "W ten times as large": pp.Features(
        lambda s, w, a: WA.fn(s, 10 * w, a), 2, ("1", "S", "10 W", "10 Wa")
    ),
}


@pytest.mark.parametrize("name", OTHER)
def test_errors_calibrated_for_other_features_are_refused(made, name):
    # when the policy is made: the compiled loop would read and write beyond what it was given
    law, calibration = made("linear")
    with pytest.raises(pp.PulseError, match="eatures"):
        pp.PulseUCB(law, OTHER[name], RADIUS, errors=pp.calibration.CalibratedErrors(calibration))
