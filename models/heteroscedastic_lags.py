"""Noise that grows with x: the line is as usual, its scatter depends on the context.

    W_t = a + b'x_t + sd_t * e_t,   log sd_t = c + d'x_t,   e_t ~ N(0, 1).

Use it when predictive intervals of the linear law cover too often in quiet contexts and too seldom
in busy ones (the coverage check averages over both and may pass). The mean is affine in x, so only
intervals, and features that are not affine in W, gain from it. One column of W.
"""

import pyro
import pyro.distributions as dist
import torch

from pulse_pyro import Lags

SUMMARY = Lags(2)
DIMS = {"b": ("input",), "d": ("input",)}


def model(x, w=None):
    zeros = torch.zeros(x.shape[-1])
    a = pyro.sample("a", dist.Normal(0.0, 1.0))
    b = pyro.sample("b", dist.Normal(zeros, 1.0).to_event(1))
    c = pyro.sample("c", dist.Normal(-1.0, 0.7))
    d = pyro.sample("d", dist.Normal(zeros, 0.4).to_event(1))
    loc = a + (x * b).sum(-1)
    sd = (c + (x * d).sum(-1)).clamp(-10.0, 10.0).exp()
    with pyro.plate("rows", x.shape[-2], dim=-1):
        pyro.sample("w", dist.Normal(loc[..., None], sd[..., None]).to_event(1), obs=w)
