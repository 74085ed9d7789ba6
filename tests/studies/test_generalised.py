"""Generalised linear lags: simulation-based calibration of every kind of W, and a plan."""

import os
from dataclasses import replace

import numpy as np
import pytest

import pulse_pyro as pp
from pulse_pyro.laws.generalised import GeneralisedFamily
from pulse_pyro.laws.responses import RESPONSE_KINDS
from tests.laws.test_generalised import made, values_of

ARCHIVES = int(os.environ.get("PULSE_REPS", "60"))


def ranks_of(kind, archives, seed=0):
    """SBC of the Laplace fit of one kind, on 250 rows of two inputs."""
    law, history = pp.generalised_lags(1, kind), made(kind, units=10)
    return pp.sbc(law, history, pp.Laplace(200), replications=archives, seed=seed)


@pytest.mark.parametrize("kind", RESPONSE_KINDS)
def test_ranks_of_a_kind_are_uniform(kind):
    found = ranks_of(kind, ARCHIVES)
    print(f"\n{kind}: p {found.p_value:.3g} over {len(found.names)} parameters")
    print(found.table.to_string())
    assert found.p_value > 1e-3


def test_a_posterior_that_is_too_narrow_is_caught(monkeypatch):
    right = GeneralisedFamily.fit

    def narrow(self, data, how, seed):
        card, fit = right(self, data, how, seed)
        drawn = {name: v.mean(0) + 0.05 * (v - v.mean(0)) for name, v in fit.draws.items()}
        return card, replace(fit, draws=drawn)

    monkeypatch.setattr(GeneralisedFamily, "fit", narrow)
    assert ranks_of("bernoulli", 20).check.verdict == "fail"


def test_a_plan_is_made_of_a_share():
    rng = np.random.default_rng(0)
    s = rng.standard_normal((160, 12, 1))
    w = values_of("beta", s[..., 0], rng)[..., None]
    history = pp.History.from_arrays(s, w, s_names=("s0",), w_names=("w",))
    phi = pp.terms(["1", "s0", "w*a"], 2, observed=("s0",), missing=("w",))
    stakes = pp.calibration.Stakes(horizon=1_000, sigma=0.1, theta_bound=1.0)
    found = pp.plan(
        history, pp.generalised_lags(1, "beta"), phi, stakes=stakes, orderings=2, seed=0
    )
    print(found)
