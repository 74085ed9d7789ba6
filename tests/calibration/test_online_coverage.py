"""Calibrated errors online bound what they speak of, and theta* stays in the ball."""

from dataclasses import replace

import numpy as np
import pytest

import pulse_pyro as pp
from tests.calibration.helpers import LINEAR, NOT_AFFINE
from tests.helpers import binomial_floor, linear_history
from tests.policies.helpers import always_inside

pytestmark = pytest.mark.filterwarnings("ignore:a check of this calibration failed")

ENV, GAMES, PER, ROUNDS, LAM = pp.envs.w_times_action(), 20, 20, 60, 0.1
THETA = np.array(ENV.theta)
SIZE = float(np.linalg.norm(THETA))
SIGMA = pp.radius.noise_scale(reward_sd=0.05, context_sd=(THETA[2] + THETA[3]) * 0.1)


def game(seed, by=0.7):
    """A law whose E[W] is too high everywhere, its calibration on held-out units, new runs."""
    rng = np.random.default_rng(seed)
    fit, held_out = ENV.archive(60, 45, rng=rng).split(seed=seed)
    law = pp.linear_lags(19).fit(fit, seed=0)
    step = np.zeros((20, 1))
    step[0] = by / law.scaler.w_scale[0]
    law = replace(law, draws={**law.draws, "coef": law.draws["coef"] + step})
    calibration = pp.calibrate(law, held_out, ENV.features, seed=seed, band=LINEAR)
    return law, calibration, ENV.world(PER, ROUNDS, rng=rng)


def test_theta_is_covered_with_a_biased_law_whose_error_is_calibrated():
    radius = pp.corrected(sigma=SIGMA, theta_bound=SIZE)
    held = {"calibrated": 0, "none": 0}
    for seed in range(GAMES):
        law, calibration, world = game(seed)
        x, lead = pp.envs.pulse(world, law).x, world.lead
        error = calibration.reward_error(world.s, theta_bound=SIZE)[:, lead:]
        for name, errors in (("calibrated", error), ("none", np.zeros_like(error))):
            action, gamma, _ = pp.policies.play_horizon(
                x, world.reward, radius, ridge=LAM, error=errors
            )
            held[name] += always_inside(x, world.reward, action, gamma, THETA, LAM).sum()
            if name == "calibrated":
                due = action[0]
        source = pp.calibration.CalibratedErrors(calibration, SIZE)
        bot = pp.PulseUCB(law, ENV.features, radius, ridge=LAM, errors=source)
        for row in world.s[0, :lead]:
            bot.observe(row)
        for t in range(ROUNDS):  # one of the runs, one decision at a time
            choice = bot.act(world.s[0, lead + t])
            assert choice.action == due[t]
            assert choice.error == pytest.approx(error[0, t, due[t]], rel=1e-9)
            bot.learn(choice, world.reward[0, t, due[t]])
    assert held["calibrated"] >= binomial_floor(GAMES * PER, 0.95)
    assert held["calibrated"] >= 0.95 * GAMES * PER
    assert held["none"] < binomial_floor(GAMES * PER, 0.95)


@pytest.fixture(scope="module")
def curved():
    """W = 0.3 + c S + N(0, 0.1^2) and Phi = (W^2, a exp W): E[Phi | S] in closed form."""
    history, coef = linear_history(units=60, time=30, lags=1, seed=3)
    fit, held_out = history.split(seed=0)
    law = pp.linear_lags(1).fit(fit, seed=0)
    band = pp.bands.BandMethod("spline", grid=50, draws=500)
    calibration = pp.calibrate(law, held_out, NOT_AFFINE, seed=0, band=band)
    s = held_out.grid.s.reshape(-1, 1)[:200]
    mean = 0.3 + coef[0, 0] * s[:, 0]
    return law, calibration, s, np.stack([mean**2 + 0.01, np.exp(mean + 0.005)], axis=1)


@pytest.mark.parametrize("size", [256, 2])
def test_errors_of_a_curved_map_bound_those_of_the_features_played(curved, size):
    law, calibration, s, truth = curved
    source = pp.calibration.CalibratedErrors(calibration)
    try:
        bot = pp.PulseUCB(law, NOT_AFFINE, pp.constant(1.0), size=size, errors=source)
    except pp.errors.SettingError:
        assert size < 256  # too few draws for the errors that were calibrated may be refused
        return
    for row, expected in zip(s, truth, strict=True):
        choice = bot.act(row)
        gap = np.linalg.norm(choice.x - expected * [1, choice.action])
        assert gap <= choice.error
