"""A share of a gap is told only where there is a gap."""

import numpy as np
import pytest

from pulse_pyro.envs.replay import Replayed
from pulse_pyro.paper.replay_comparison import Comparison

NAMES = ("pulse_one", "oful", "oful_lags", "oful_full")


@pytest.mark.parametrize(
    ("seen", "told", "untold"),
    [
        (1.0, "it closes 50% (se", "no gap to close"),
        (0.0, "no gap to close; it is", "closes"),
        (-1.0, "no gap to close; it is", "closes"),
    ],
)
def test_a_gap_that_may_be_nothing_is_not_shared_out(seen, told, untold):
    noise = np.random.default_rng(0).normal(scale=0.1, size=(4, 8, 30))
    noise -= noise.mean(axis=(1, 2), keepdims=True)
    earned = noise + np.array([seen / 2, 0.0, 0.0, seen])[:, None, None]
    block = np.tile(np.arange(30) // 5, (8, 1))
    played = Replayed(NAMES, earned, np.zeros(earned.shape, int), block, 0.0, 1.0)
    verdict = Comparison("made", "", "", {"one": played}, {}, 0, 0.0).verdict("one")
    assert told in verdict
    assert untold not in verdict
