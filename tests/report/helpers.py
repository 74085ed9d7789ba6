"""Pages to look at, each made once: the demo's study, and calibrations alone."""

import numpy as np
import pytest

import pulse_pyro as pp
from pulse_pyro.study.demo import run_demo
from tests.calibration.helpers import CURVE, LINEAR, NOT_AFFINE, W_FEATURES, split_archive
from tests.helpers import linear_history


@pytest.fixture(scope="session")
def demo(tmp_path_factory):
    return run_demo(tmp_path_factory.mktemp("demo"))


@pytest.fixture(scope="session")
def calibrations():
    """Two targets over one input; several inputs, cross-fitted; a summary that lacks a lag."""
    law, held_out, _ = split_archive(lags=1)
    history, _ = linear_history(units=30, time=15, lags=2, seed=1)
    longer, _ = linear_history(units=40, time=20, lags=3, seed=1)
    fit, other = longer.split(seed=0)
    return {
        "targets": pp.calibrate(law, held_out, NOT_AFFINE, seed=0, band=CURVE),
        "crossfit": pp.calibration.crossfit(
            pp.linear_lags(2), history, W_FEATURES, seed=0, band=LINEAR
        ).calibration,
        "failed": pp.calibrate(
            pp.linear_lags(1).fit(fit, seed=0), other, W_FEATURES, seed=0, band=CURVE
        ),
    }


@pytest.fixture(scope="session")
def pages(demo, calibrations, tmp_path_factory):
    """Paths of the pages by name."""
    folder = tmp_path_factory.mktemp("pages")
    made = {
        name: pp.report.write_calibration_report(folder / f"{name}.html", calibration)
        for name, calibration in calibrations.items()
    }
    return {"study": demo.report, **made}


def a_run(agents=3, runs=2, rounds=60, actions=3, seed=0):
    """A run made up of random actions and costs, (agent, run, time)."""
    rng = np.random.default_rng(seed)
    action = rng.integers(0, actions, (agents, runs, rounds))
    cost = rng.random((agents, runs, rounds)).cumsum(-1)
    names = tuple(f"agent{i}" for i in range(agents))
    return pp.envs.Run(names, action, 1.5 * cost, cost, rng.random(runs))
