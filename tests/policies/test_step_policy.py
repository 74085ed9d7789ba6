"""Policies on a law with a state: W that is revealed counts."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

from pulse_pyro import History, PulseUCB, constant, law_from_file, load, save, terms
from pulse_pyro._core.errors import DataError
from tests.laws.step_programs import at_truth

MODELS = Path(__file__).parents[2] / "models"
TRUTH = {
    "drift": [0.2, 0.3],
    "spread": [1.0, 1.2],
    "a": [0.0, 0.1],
    "c": [0.0, 0.0],
    "d": [1.0, 0.8],
    "s_sd": [0.5, 0.5],
    "w_sd": [0.5, 0.6],
}
PHI = terms(["1", "w", "w*a"], 2, observed=["s"], missing=["w"])


@pytest.fixture(scope="module")
def law():
    program = law_from_file(MODELS / "drifting_level.py")
    s = np.random.default_rng(0).standard_normal((3, 8, 1))
    history = History.from_arrays(s, s, s_names=["s"], w_names=["w"])
    one = at_truth(program, history, {name: value[0] for name, value in TRUTH.items()})
    return replace(one, draws={name: np.array(value) for name, value in TRUTH.items()})


@pytest.mark.parametrize("unit", ["", "ann"])
def test_a_w_that_is_observed_tells_of_the_level(law, unit):
    told, untold = PulseUCB(law, PHI, constant(1.0)), PulseUCB(law, PHI, constant(1.0))
    told.observe([0.1], w=[3.0], unit=unit)
    untold.observe([0.1], unit=unit)
    follower = law.follow()
    follower.push(np.array([0.1]), np.array([3.0]))
    by_hand = follower.push(np.array([0.3])).mean()[0, 0]
    x = told.act([0.3], unit=unit).x
    assert_allclose(x[1], by_hand, rtol=1e-12)
    assert x[1] > untold.act([0.3], unit=unit).x[1] + 0.5
    other = told.act([0.3], unit="somebody else").x[1]
    assert_allclose(other, law.follow().push(np.array([0.3])).mean()[0, 0], rtol=1e-12)


def test_what_was_told_survives_being_saved(law, tmp_path):
    policy = PulseUCB(law, PHI, constant(1.0))
    policy.observe([0.1], w=[3.0])
    again = load(save(policy, tmp_path / "policy"), law=law, features=PHI)
    assert_allclose(again.act([0.3]).x, policy.act([0.3]).x, rtol=1e-12)


def test_an_impossible_w_is_refused_and_tells_nothing(law):
    follower = law.follow()
    with pytest.raises(DataError, match="push S first"):
        follower.condition_on([1.0])
    before = follower.push(np.array([0.1])).mean()
    with pytest.raises(DataError, match="1 numbers"):
        follower.condition_on([np.inf])
    assert_allclose(follower.conditional.mean(), before)
    assert_allclose(
        follower.push(np.array([0.3])).mean(),
        law(np.array([[[0.1], [0.3]]])).mean()[1:],
        rtol=1e-12,
    )
