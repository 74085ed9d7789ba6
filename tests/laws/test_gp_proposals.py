"""Proposals of a Gaussian process' parameters that double precision cannot solve."""

import numpy as np
import pytest

import pulse_pyro as pp
from pulse_pyro._core.errors import ConvergenceError
from pulse_pyro.laws.gp_weights import _propose, draw_corrected, draw_weights, solve
from pulse_pyro.laws.hilbert import Hilbert
from tests.helpers import mean_at


def two_by_two():
    """Rows whose inputs are 0 or 1: nothing tells a large amplitude from a small one."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 2, (300, 4)).astype(float)
    w = x[:, :1] + 0.3 * rng.standard_normal((300, 1))
    x, w = (x - x.mean(0)) / x.std(0), (w - w.mean()) / w.std()
    box = Hilbert.around(x, 6)
    return box, box.gram(x, w)


def test_proposals_without_a_factor_are_left_out():
    box, gram = two_by_two()
    wide = np.random.default_rng(1).normal(scale=15.0, size=(500, box.processes + box.p + 1))
    found = _propose(box, gram, 1, 0, wide, 200, np.random.default_rng(2))
    assert 0 < len(found.log) < 200  # some cannot be solved ...
    assert len(found.solved) == len(found.log) == len(found.ratio)
    assert np.isfinite(found.ratio).all()


def test_those_left_out_could_not_be_solved():
    box, gram = two_by_two()
    with pytest.raises(np.linalg.LinAlgError):
        solve(box, gram, 1, 0, np.full(box.processes, 1e12), np.ones(box.p), 1e-20)


def test_inputs_of_two_values_can_be_fitted():
    rng = np.random.default_rng(3)
    s = np.concatenate(
        [rng.integers(0, 2, (20, 40, 6)).astype(float), rng.standard_normal((20, 40, 1))], -1
    )
    w = s[..., :1] - s[..., 1:2] * s[..., 6:] + 0.5 * rng.standard_normal((20, 40, 1))
    units = tuple(f"u{i:02d}" for i in range(20))
    names = tuple(f"s{i}" for i in range(7))
    history = pp.History.from_arrays(s, w, units=units, s_names=names, w_names=("w",))
    law = pp.gaussian_process(pp.data.Identity(), basis=8).fit(history, seed=0)
    mean = mean_at(law, s)
    assert 1 - ((mean - w) ** 2).mean() / w.var() > 0.4


def test_draws_that_cannot_be_solved_get_a_sentence():
    box, gram = two_by_two()
    draws = {
        "amplitude": np.full((4, 1, box.processes), 1e12),
        "length": np.ones((4, 1, box.p)),
        "variance": np.full((4, 1), 1e-20),
    }
    with pytest.raises(ConvergenceError, match="weights cannot be solved for"):
        draw_weights(box, gram, draws, np.random.default_rng(0))
    with pytest.raises(ConvergenceError, match="use fewer inputs"):
        draw_corrected(box, gram, draws, np.random.default_rng(0), own=1.0)


def test_what_is_left_out_weighs_nothing():
    """Where the matrix has no factor the prior alone puts a proposal far below the others."""
    box, gram = two_by_two()
    for log_amplitude in (6.0, 8.0):  # still solved: already far below
        far = solve(
            box, gram, 1, 0, np.full(box.processes, np.exp(log_amplitude)), np.ones(box.p), 0.1
        )
        near = solve(box, gram, 1, 0, np.full(box.processes, 0.6), np.ones(box.p), 0.1)
        prior = -0.5 * box.processes * (log_amplitude + 0.5) ** 2
        assert far.fit + prior < near.fit - 100
