"""Programs with a state that the tests of StepLaw share."""

from dataclasses import replace

import numpy as np
import pyro
import pyro.distributions as dist
import torch
from pyro.ops.indexing import Vindex

from pulse_pyro import History
from pulse_pyro.laws.fitted import FitRecord
from pulse_pyro.laws.step import FittedStepLaw

# A level that drifts; S tells of it with noise, W is a line in it and in an S that is given.


def level_prior():
    return {
        "keep": pyro.sample("keep", dist.Beta(8.0, 2.0)),
        "slope": pyro.sample("slope", dist.Normal(1.0, 0.5)),
        "sd": pyro.sample("sd", dist.LogNormal(-1.0, 0.5)),
    }


def level_first(p):
    pyro.sample("z", dist.Normal(0.5, 1.5))


def level_step(p, z, s_past):
    z = pyro.sample("z", dist.Normal(p["keep"] * z + 0.1, 0.5))
    pyro.sample("pulse", dist.Normal(2.0 * z - 1.0, 0.8))
    pyro.sample("w", dist.Normal(z + p["slope"] * s_past[..., -1, 1], p["sd"]))


LEVEL = (level_prior, level_first, level_step)
LEVEL_TRUTH = {"keep": 0.8, "slope": 1.2, "sd": 0.4}

# Three regimes; W is 0 or 1, the count S depends on the regime too.


def regime_prior():
    ones = torch.ones(3, 3)
    return {
        "move": pyro.sample("move", dist.Dirichlet(ones + 2.0 * torch.eye(3)).to_event(1)),
        "rate": pyro.sample("rate", dist.Gamma(4.0 * torch.ones(3), 2.0).to_event(1)),
        "logit": pyro.sample("logit", dist.Normal(torch.zeros(3), 1.5).to_event(1)),
    }


def regime_first(p):
    pyro.sample("z", dist.Categorical(torch.tensor([0.5, 0.3, 0.2])))


def regime_step(p, z, s_past):
    z = pyro.sample("z", dist.Categorical(Vindex(p["move"])[..., z, :]))
    pyro.sample("calls", dist.Poisson(Vindex(p["rate"])[..., z]))
    pyro.sample("w", dist.Bernoulli(logits=Vindex(p["logit"])[..., z] + s_past[..., -1, 1]))


REGIME = (regime_prior, regime_first, regime_step)
REGIME_TRUTH = {
    "move": [[0.8, 0.1, 0.1], [0.2, 0.7, 0.1], [0.1, 0.2, 0.7]],
    "rate": [0.5, 2.0, 5.0],
    "logit": [-1.5, 0.0, 1.5],
}


def level_archive(units=12, time=20, seed=0, truth=LEVEL_TRUTH):
    """Return (history, z (units, time)) from the drifting level."""
    rng = np.random.default_rng(seed)
    z = 0.5 + 1.5 * rng.standard_normal(units)
    given = rng.standard_normal((units, time))
    states, pulse = np.empty((units, time)), np.empty((units, time))
    for t in range(time):
        z = truth["keep"] * z + 0.1 + 0.5 * rng.standard_normal(units)
        states[:, t] = z
        pulse[:, t] = 2.0 * z - 1.0 + 0.8 * rng.standard_normal(units)
    w = states + truth["slope"] * given + truth["sd"] * rng.standard_normal((units, time))
    s = np.stack([pulse, given], -1)
    names = {"s_names": ["pulse", "given"], "w_names": ["w"]}
    return History.from_arrays(s, w[..., None], **names), states


def regime_archive(units=12, time=20, seed=0, truth=REGIME_TRUTH):
    """Return (history, z (units, time)) from the three regimes."""
    rng = np.random.default_rng(seed)
    move = np.cumsum(truth["move"], -1)
    z = np.searchsorted([0.5, 0.8], rng.random(units))
    given = rng.standard_normal((units, time))
    states = np.empty((units, time), np.int64)
    for t in range(time):
        z = (rng.random(units)[:, None] > move[z]).sum(-1).clip(max=2)
        states[:, t] = z
    calls = rng.poisson(np.array(truth["rate"])[states])
    chance = 1.0 / (1.0 + np.exp(-np.array(truth["logit"])[states] - given))
    w = (rng.random((units, time)) < chance).astype(float)
    s = np.stack([calls.astype(float), given], -1)
    names = {"s_names": ["calls", "given"], "w_names": ["w"]}
    return History.from_arrays(s, w[..., None], **names), states


def at_truth(law, history, truth, count=1):
    """Return a fitted law whose posterior is ``count`` copies of the truth."""
    draws = {name: np.repeat(np.array(value)[None], count, 0) for name, value in truth.items()}
    record = FitRecord("truth", 0, len(history.s), 0, {})
    return FittedStepLaw(law, draws, law.check(history), record, ("other",), history.schema)


def masked(history, share, seed=1, column=0):
    """Return an archive some of whose S of one column are not seen."""
    s = history.s.copy()
    s[np.random.default_rng(seed).random(len(s)) < share, column] = np.nan
    return replace(history, s=s)
