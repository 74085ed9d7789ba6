"""Finished calibrations, each made once for all tests that look at it."""

import numpy as np
import pytest

import pulse_pyro as pp
from tests.calibration_worlds import (
    BENT,
    BY_ACTION,
    CURVE,
    LINEAR,
    MAIN,
    NOT_AFFINE,
    W_FEATURES,
    Guess,
    one_input,
    split_archive,
)
from tests.worlds import linear_history


@pytest.fixture(scope="session")
def curve():
    """A straight line fitted to the nonlinear environment, its calibration, the held-out units."""
    fit, held_out = MAIN.archive(50, 27, rng=np.random.default_rng(0)).split(seed=0)
    law = pp.linear_lags(pp.Window(3, np.mean)).fit(fit, seed=0)
    return law, pp.calibrate(law, held_out, MAIN.features, seed=0, band=CURVE), held_out


@pytest.fixture(scope="session")
def lagged():
    """19 lags and features (1, S, W, W*a)."""
    fit, held_out = BY_ACTION.archive(60, 45, rng=np.random.default_rng(1)).split(seed=0)
    law = pp.linear_lags(19).fit(fit, seed=0)
    return law, pp.calibrate(law, held_out, BY_ACTION.features, seed=0, band=LINEAR), held_out


@pytest.fixture(scope="session")
def bent():
    held_out = one_input(seed=3)
    law = Guess(pp.Lags(1), intercept=0.1, slope=2.0, sd=0.3)
    return law, pp.calibrate(law, held_out, BENT, seed=5, band=CURVE), held_out


@pytest.fixture(scope="session")
def cross():
    history, _ = linear_history(units=40, time=20, lags=2, seed=2)
    return history, pp.calibrate_crossfit(
        pp.linear_lags(2), history, W_FEATURES, seed=4, band=LINEAR
    )


@pytest.fixture(scope="session")
def made():
    """Calibrations by name: one input, several inputs, not affine, in all three modes."""
    law, held_out, _ = split_archive(lags=1)
    many, others, _ = split_archive(lags=4)
    history, _ = linear_history(units=30, time=15, lags=2, seed=1)
    both = pp.linear_lags(2).fit(history, seed=0)
    return {
        "curve": pp.calibrate(law, held_out, W_FEATURES, seed=0, band=CURVE),
        "linear": pp.calibrate(many, others, W_FEATURES, seed=0, band=LINEAR),
        "bent": pp.calibrate(law, held_out, NOT_AFFINE, seed=0, band=CURVE),
        "all": pp.calibrate_all(both, history, W_FEATURES, seed=0, band=LINEAR),
        "crossfit": pp.calibrate_crossfit(
            pp.linear_lags(2), history, W_FEATURES, seed=0, band=LINEAR
        ).calibration,
    }
