"""A calibrated policy restarts in a new program without the archive, and goes on bit by bit."""

import json
import subprocess
import sys

import pytest

import pulse_pyro as pp
from tests.policies.helpers import archive
from tests.policies.restarted import CUSTOM, FEATURES, play

RADIUS = pp.corrected(sigma=0.4, theta_bound=2.0)


def calibrated(law, inference=None, errors=pp.calibration.CalibratedErrors, band="linear"):
    own, held_out = archive(units=40, time=12).split(seed=0)
    fitted = law.fit(own, inference, seed=0)
    calibration = pp.calibrate(fitted, held_out, FEATURES, seed=0, band=band)
    size = (2.0,) if errors is pp.calibration.CalibratedErrors else ()
    return pp.PulseUCB(fitted, FEATURES, RADIUS.refined(), errors=errors(calibration, *size))


def growing(law, inference):
    history = archive(units=6, time=9)
    fitted = law.fit(history, inference, seed=0)
    kept = pp.GrowingArchive(history, fitted, every=9, law=law, inference=inference)
    return pp.PulseUCB(fitted, FEATURES, RADIUS, archive=kept)


def unsure():
    law = pp.gaussian_process(1).fit(archive(), pp.Laplace(60), seed=0)
    return pp.AdaptivePulseUCB(law, FEATURES, RADIUS, archive().grid.s)


KINDS = {
    "calibrated": lambda: calibrated(pp.linear_lags(2)),
    "sensitive": lambda: calibrated(pp.linear_lags(2), errors=pp.calibration.SensitiveErrors),
    "calibrated state space": lambda: calibrated(pp.state_space(2, ar=1, ma=0)),
    "calibrated custom": lambda: calibrated(CUSTOM, pp.Laplace(60)),
    "growing": lambda: growing(pp.linear_lags(2), pp.Exact(50)),
    "growing custom": lambda: growing(CUSTOM, pp.Laplace(40)),
    "adaptive": unsure,
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_policy_goes_on_in_a_new_program(kind, tmp_path):
    bot, reveal = KINDS[kind](), "growing" in kind
    for unit in ("u0", "u1"):  # bands speak once the lags are filled
        bot.observe([1.0, -95.0], unit=unit)
    play(bot, 0, 30, reveal=reveal)
    path = pp.save(bot, tmp_path / "policy")
    command = [sys.executable, "-m", "tests.policies.restarted", str(path), kind, "30", "60"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    law_id, decisions = json.loads(done.stdout)
    assert law_id == bot.law.id
    assert decisions == play(bot, 30, 60, reveal=reveal)


def test_a_calibration_that_failed_warns_whoever_loads_the_policy(tmp_path):
    with pytest.warns(UserWarning, match="check of this calibration failed"):
        bot = calibrated(pp.linear_lags(1))  # W depends on two lags
    path = pp.save(bot, tmp_path / "policy")
    with pytest.warns(UserWarning, match="check of this calibration failed"):
        pp.load(path, features=FEATURES)
