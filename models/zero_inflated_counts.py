"""Counts with too many zeros: steps, clicks, messages.

    with probability gate      W_t = 0   (the phone lay on the table),
    otherwise                  W_t ~ NegativeBinomial(mean m_t, dispersion r),
    log m_t = a + b'x_t.

The variance of the second part is m + m^2 / r: large r is Poisson, small r is bursty. Use it for
counts in the history of S that are often exactly 0 for a reason that is not in S. W must hold
whole numbers >= 0, in one column; features that need log(W) should use log(W + 0.5).
"""

import pyro
import pyro.distributions as dist
import torch

from pulse_pyro import Lags

SUMMARY = Lags(1)
DIMS = {"b": ("input",)}


def model(x, w=None):
    a = pyro.sample("a", dist.Normal(2.0, 0.5))
    b = pyro.sample("b", dist.Normal(torch.zeros(x.shape[-1]), 0.5).to_event(1))
    r = pyro.sample("r", dist.LogNormal(1.0, 0.5))
    gate = pyro.sample("gate", dist.Beta(2.0, 4.0))
    log_mean = (a + (x * b).sum(-1)).clamp(max=15.0)  # exp must not overflow far from the data
    with pyro.plate("rows", x.shape[-2], dim=-1):
        # logits = log(m / r) gives the negative binomial with mean m
        law = dist.ZeroInflatedNegativeBinomial(
            total_count=r[..., None],
            logits=(log_mean - r.log())[..., None],
            gate=gate[..., None],
        )
        pyro.sample("w", law.to_event(1), obs=w)
