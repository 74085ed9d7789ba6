"""Two regimes: W comes from one of two lines, and x tells how likely each is.

    P(high regime | x) = logistic(c + d'x),
    W_t = a + b'x + gap * [high regime] + sd * e_t,   gap > 0,   e_t ~ N(0, 1).

Use it when W given S has two bumps (at home / at work, active / at rest) that no unimodal noise
can describe. The regime of a row is summed out, so every engine can fit it; gap > 0 keeps the two
regimes from trading names. One column of W.
"""

import pyro
import pyro.distributions as dist
import torch

from pulse_pyro import Lags

SUMMARY = Lags(1)
DIMS = {"b": ("input",), "d": ("input",)}


def model(x, w=None):
    zeros = torch.zeros(x.shape[-1])
    a = pyro.sample("a", dist.Normal(0.0, 1.0))
    b = pyro.sample("b", dist.Normal(zeros, 1.0).to_event(1))
    c = pyro.sample("c", dist.Normal(0.0, 1.0))
    d = pyro.sample("d", dist.Normal(zeros, 1.0).to_event(1))
    gap = pyro.sample("gap", dist.LogNormal(1.0, 0.3))
    sd = pyro.sample("sd", dist.LogNormal(-1.0, 0.3))
    low = a + (x * b).sum(-1)
    logit = c + (x * d).sum(-1)
    means = torch.stack([low, low + gap], dim=-1)[..., None]  # (..., rows, regime, 1)
    regimes = dist.Categorical(logits=torch.stack([torch.zeros_like(logit), logit], dim=-1))
    lines = dist.Normal(means, sd[..., None, None]).to_event(1)
    with pyro.plate("rows", x.shape[-2], dim=-1):
        pyro.sample("w", dist.MixtureSameFamily(regimes, lines), obs=w)
