"""A level per person, as one writes it: a plate of units, and each row picks its own.

    W_ut = a + level_u + b'x_ut + sd * e_ut,   level_u ~ N(0, between^2),   e_ut ~ N(0, 1).

Use it when people (schools, adverts) differ in ways S does not show. `unit` says whose row it is,
0, 1, ..., while the law is fitted and when it predicts: a person of the archive is predicted with
the level learned there, a new one with a level from the population, W ~ N(a + b'x, between^2 +
sd^2). W revealed of a new person, an intake survey or a run-in week, `policy.observe(s, w=w,
unit="Ann")`, narrow the level down. `hierarchical_units` is the same law with the levels integrated
out by hand, which is quicker to fit and forgets who was who.
"""

import pyro
import pyro.distributions as dist
import torch

from pulse_pyro import Lags

SUMMARY = Lags(2)
DIMS = {"b": ("input",)}


def model(x, w=None, unit=None):
    a = pyro.sample("a", dist.Normal(0.0, 1.0))
    b = pyro.sample("b", dist.Normal(torch.zeros(x.shape[-1]), 1.0).to_event(1))
    sd = pyro.sample("sd", dist.LogNormal(-1.0, 0.7))
    between = pyro.sample("between", dist.LogNormal(-1.0, 0.7))
    with pyro.plate("units", int(unit.max()) + 1, dim=-1):
        level = pyro.sample("level", dist.Normal(0.0, between))
    loc = a + level[..., unit] + (x * b).sum(-1)
    with pyro.plate("rows", x.shape[-2], dim=-1):
        pyro.sample("w", dist.Normal(loc[..., None], sd[..., None]).to_event(1), obs=w)
