"""A weekly rhythm: today's W depends on the last days and on the same day of earlier weeks.

    W_t = a + b_0 S_t + b_1 S_{t-1} + c_1 S_{t-7} + c_2 S_{t-14} + sd * e_t,   e_t ~ N(0, 1).

Use it for daily data whose weeks look alike (steps, sales, attendance). The seasonal weights have
a narrower prior, so they stay near 0 unless the archive speaks for them; for hourly data replace
7 and 14 by 24 and 168 in SUMMARY. Needs 15 rows of a unit before it can predict. One column of S
and of W; with several columns of S each filter gets one weight a column.
"""

import pyro
import pyro.distributions as dist
import torch

from pulse_pyro import Lags
from pulse_pyro.data import Stack

SUMMARY = Stack(Lags(2), Lags(1, start=7), Lags(1, start=14))
DIMS = {"b": ("recent input",), "c": ("season input",)}


def model(x, w=None):
    half = x.shape[-1] // 2  # the two recent lags come first, then the two seasons
    a = pyro.sample("a", dist.Normal(0.0, 1.0))
    b = pyro.sample("b", dist.Normal(torch.zeros(half), 1.0).to_event(1))
    c = pyro.sample("c", dist.Normal(torch.zeros(half), 0.3).to_event(1))
    sd = pyro.sample("sd", dist.LogNormal(-1.0, 0.7))
    loc = a + (x[..., :half] * b).sum(-1) + (x[..., half:] * c).sum(-1)
    with pyro.plate("rows", x.shape[-2], dim=-1):
        pyro.sample("w", dist.Normal(loc[..., None], sd[..., None]).to_event(1), obs=w)
