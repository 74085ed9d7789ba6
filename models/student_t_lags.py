"""Linear lags with heavy-tailed noise: outliers in W do not drag the line.

    W_t = a + b'x_t + scale * e_t,   e_t ~ Student-t(df),   df = 2 + excess.

Use it when a few W are far off (a sensor slipped, a user miscounted) and should be down-weighted,
not deleted. With df above 30 it is the Gaussian law. One column of W; x are lags of S.
"""

import pyro
import pyro.distributions as dist
import torch

from pulse_pyro import Lags

SUMMARY = Lags(2)
DIMS = {"b": ("input",)}


def model(x, w=None):
    a = pyro.sample("a", dist.Normal(0.0, 1.0))
    b = pyro.sample("b", dist.Normal(torch.zeros(x.shape[-1]), 1.0).to_event(1))
    scale = pyro.sample("scale", dist.LogNormal(-1.0, 1.0))
    df = 2.0 + pyro.sample("excess", dist.Gamma(2.0, 0.2))
    loc = a + (x * b).sum(-1)
    with pyro.plate("rows", x.shape[-2], dim=-1):
        law = dist.StudentT(df[..., None], loc[..., None], scale[..., None])
        pyro.sample("w", law.to_event(1), obs=w)
