"""Rows that lack an input are judged apart: answers there rest on why the input is missing."""

import numpy as np
import pytest

import pulse_pyro as pp
from pulse_pyro.diagnostics import GAPS


def halves(hide, seed=0, units=120):
    """Two archives of S with two columns, W = s + t + noise; hide(s, t) says where t is missing."""
    rng = np.random.default_rng(seed)
    s = rng.standard_normal((units, 30, 2)) @ np.array([[1.0, 0.6], [0.0, 0.8]])
    w = s.sum(-1, keepdims=True) + 0.1 * rng.standard_normal((units, 30, 1))
    s[..., 1][hide(s[..., 0], s[..., 1], rng)] = np.nan
    names = tuple(f"u{i:03d}" for i in range(units))
    seen = np.ones((units, 30), bool)
    return pp.History.from_arrays(
        s, w, seen=seen, units=names, s_names=("s", "t"), w_names=("w",)
    ).split(seed=0)


def at_random(s, t, rng):
    return rng.random(t.shape) < 0.3


def where_it_is_large(s, t, rng):
    return t > 0.7


def checks(law, held_out):
    table = pp.diagnose(law, held_out, seed=0).table
    return table["verdict"], table


LAWS = {
    "linear": pp.linear_lags(1),
    "gaussian process": pp.gaussian_process(1),
    "state space": pp.state_space(1, ar=1),
}


@pytest.mark.parametrize("name", ["linear", "gaussian process"])
def test_values_missing_at_random_are_answered_with_the_right_spread(name):
    fit, held_out = halves(at_random)
    verdict, _ = checks(LAWS[name].fit(fit, seed=0), held_out)
    assert verdict["coverage w, inputs unseen"] != "fail"


@pytest.mark.parametrize("name", ["linear", "gaussian process"])
def test_values_missing_because_they_are_large_fail(name):
    """The complete rows look fine; only the rows with the gap show it."""
    fit, held_out = halves(where_it_is_large)
    verdict, _ = checks(LAWS[name].fit(fit, seed=0), held_out)
    assert verdict["coverage w, inputs unseen"] == "fail"


def test_a_law_with_memory_judges_every_row_at_once():
    fit, held_out = halves(at_random)
    verdict, table = checks(LAWS["state space"].fit(fit, seed=0), held_out)
    assert table.loc["rows", "value"] == len(held_out.s)
    assert "coverage w, inputs unseen" not in verdict


def test_few_gaps_are_not_judged():
    fit, held_out = halves(lambda s, t, rng: rng.random(t.shape) < 0.01)
    assert np.isnan(held_out.grid.s).sum() < GAPS
    assert "coverage w, inputs unseen" not in checks(LAWS["linear"].fit(fit, seed=0), held_out)[0]
