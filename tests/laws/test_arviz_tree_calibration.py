"""A calibration in ArviZ: its D_t, its level, and no other law's."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import pulse_pyro as pp
from pulse_pyro.calibration.rung import no_rung
from tests.helpers import linear_history

OWN, HELD_OUT = linear_history(units=40, time=15, lags=2)[0].split(seed=0)
PHI = pp.Features(lambda s, w, a: np.column_stack([w, w * a]), 2, ("w", "wa"))


@pytest.fixture(scope="module")
def law():
    return pp.linear_lags(2).fit(OWN, seed=0)


@pytest.fixture(scope="module")
def found(law):
    return pp.calibrate(law, HELD_OUT, PHI, level=0.9, seed=0)


def test_the_group_holds_the_bound(law, found):
    group = law.to_arviz(calibration=found)["calibration"]
    d = group["D"].values
    assert_array_equal(d[np.isfinite(d)], found.bound)
    assert d.shape == (len(found.error),)
    assert_array_equal(group["inside"].values, found.inside)
    assert group["D"].dims == ("context",)
    assert (group.attrs["level"], group.attrs["mode"]) == (0.9, "split")
    assert group.attrs["law_id"] == found.law_id


def test_a_claim_that_failed_leaves_no_number(law, found):
    fails = no_rung("uniform", "fails", "No uniform bound holds.")
    group = law.to_arviz(calibration=replace(found, rungs=(fails, *found.rungs[1:])))["calibration"]
    assert list(group.data_vars) == ["inside"]
    assert group.attrs["claim"] == found.rung("forecast").claim


def test_there_is_no_group_unless_asked_for(law):
    with pytest.raises((KeyError, AttributeError)):
        law.to_arviz()["calibration"]


def test_another_laws_calibration_is_refused(found):
    other = pp.linear_lags(2).fit(OWN, seed=1)
    with pytest.raises(pp.errors.BundleError, match="calibrate this one"):
        other.to_arviz(calibration=found)
