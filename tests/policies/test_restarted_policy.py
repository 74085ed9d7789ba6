"""A calibrated policy restarts in a new program without the archive, and goes on bit by bit."""

import json
import subprocess
import sys

import pytest

import pulse_pyro as pp
from tests.policies.helpers import CUSTOM, RESTARTED, archive, play_on

RADIUS = pp.corrected(sigma=0.4, theta_bound=2.0)


def calibrated(law, inference=None, errors=pp.calibration.CalibratedErrors, band="linear"):
    own, held_out = archive(units=40, time=12).split(seed=0)
    fitted = law.fit(own, inference, seed=0)
    calibration = pp.calibrate(fitted, held_out, RESTARTED, seed=0, band=band)
    size = (2.0,) if errors is pp.calibration.CalibratedErrors else ()
    return pp.PulseUCB(fitted, RESTARTED, RADIUS, errors=errors(calibration, *size))


def growing(law, inference):
    history = archive(units=6, time=9)
    fitted = law.fit(history, inference, seed=0)
    kept = pp.GrowingArchive(history, fitted, every=9, law=law, inference=inference)
    return pp.PulseUCB(fitted, RESTARTED, RADIUS, archive=kept)


def unsure():
    law = pp.gaussian_process(1).fit(archive(), pp.Laplace(60), seed=0)
    return pp.AdaptivePulseUCB(law, RESTARTED, RADIUS, archive().grid.s)


KINDS = {
    "calibrated": lambda: calibrated(pp.linear_lags(2)),
    "calibrated state space": lambda: calibrated(pp.state_space(2, ar=1, ma=0)),
    "calibrated custom": lambda: calibrated(CUSTOM, pp.Laplace(60)),
    "growing": lambda: growing(pp.linear_lags(2), pp.Exact(50)),
    "growing custom": lambda: growing(CUSTOM, pp.Laplace(40)),
    "adaptive": unsure,
}


@pytest.fixture(scope="module")
def restarted(tmp_path_factory):
    """Policies saved after 30 rounds, and what one new program did with them."""
    home, bots = tmp_path_factory.mktemp("policies"), {kind: make() for kind, make in KINDS.items()}
    for kind, bot in bots.items():
        for unit in ("u0", "u1"):  # bands speak once the lags are filled
            bot.observe([1.0, -95.0], unit=unit)
        play_on(bot, 0, 30, reveal="growing" in kind)
    saved = [f"{pp.save(bot, home / kind)}={kind}" for kind, bot in bots.items()]
    command = [sys.executable, "-m", "tests.policies.helpers", "30", "60", *saved]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return bots, json.loads(done.stdout)


@pytest.mark.parametrize("kind", KINDS)
def test_a_policy_goes_on_in_a_new_program(kind, restarted):
    bots, (law_id, decisions) = restarted[0], restarted[1][kind]
    assert law_id == bots[kind].law.id
    assert decisions == play_on(bots[kind], 30, 60, reveal="growing" in kind)


def test_a_calibration_that_failed_warns_whoever_loads_the_policy(tmp_path):
    with pytest.warns(UserWarning, match="check of this calibration failed"):
        bot = calibrated(pp.linear_lags(1))  # W depends on two lags
    path = pp.save(bot, tmp_path / "policy")
    with pytest.warns(UserWarning, match="check of this calibration failed"):
        pp.load(path, features=RESTARTED)
