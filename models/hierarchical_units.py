"""Partial pooling over units: every unit has a level of its own, drawn from a population.

    W_ut = a + level_u + b'x_ut + sd * e_ut,   level_u ~ N(0, between^2),   e_ut ~ N(0, 1).

Use it when people (schools, adverts) differ in ways S does not show: without the levels the rows
of one unit look like independent evidence and the law is too sure of a and b. Online W is never
seen, so nothing is learned about a new unit's level: prediction draws it from the population,
W ~ N(a + b'x, between^2 + sd^2).

The levels are integrated out. For the residuals r of a unit's n rows, with v = sd^2 and
t = between^2, log N(r; 0, v I + t 11') = sum_i log N(r_i; 0, v) + correction,
correction = 1/2 log(v / (v + n t)) + 1/2 t (sum r)^2 / (v (v + n t)).
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
    loc, spread = a + (x * b).sum(-1), sd
    if unit is None:  # prediction: a unit nobody has met, its level is one more source of noise
        spread = torch.sqrt(sd**2 + between**2)
    elif w is None:  # simulation of an archive
        with pyro.plate("units", int(unit.max()) + 1, dim=-1):
            level = pyro.sample("level", dist.Normal(0.0, between))
        loc = loc + level[unit]
    else:
        sums = torch.zeros(2, int(unit.max()) + 1, dtype=x.dtype)
        sums = sums.index_add(1, unit, torch.stack([torch.ones_like(loc), w[..., 0] - loc]))
        v, t = sd**2, between**2
        wide = v + sums[0] * t
        pyro.factor("levels", 0.5 * ((v / wide).log() + t * sums[1] ** 2 / (v * wide)).sum())
    with pyro.plate("rows", x.shape[-2], dim=-1):
        pyro.sample("w", dist.Normal(loc[..., None], spread[..., None]).to_event(1), obs=w)
