"""A mood in ordered levels: the answer to "how are you?" on a scale of five.

    P(W_t <= k) = logistic(cut_k - b'x_t),   cut_0 < cut_1 < ... ,   W_t in 0, 1, ..., 4.

Use it when W is a rating: its levels have an order but no distances, so a line through their
numbers predicts half levels, and moods above the top. The column of W is called "mood" and is
declared ordinal, kinds={"mood": Column("mood", kind="ordinal", levels=(1, 2, 3, 4, 5))}; the model
sees codes 0, ..., 4, features see the declared numbers. For another number of levels change LEVELS;
a level that never occurs keeps its prior.
"""

import pyro
import pyro.distributions as dist
import torch

from pulse_pyro import Lags

LEVELS = 5
SUMMARY = Lags(2)
DIMS = {"b": ("input",), "step": ("gap",)}


def model(x, w=None):
    w = w or {}
    b = pyro.sample("b", dist.Normal(torch.zeros(x.shape[-1]), 1.0).to_event(1))
    first = pyro.sample("first", dist.Normal(-1.5, 1.0))
    step = pyro.sample("step", dist.LogNormal(torch.zeros(LEVELS - 2), 0.5).to_event(1))
    cuts = torch.cat([first[..., None], first[..., None] + step.cumsum(-1)], -1)
    line = (x * b).sum(-1)
    with pyro.plate("rows", x.shape[-2], dim=-1):
        pyro.sample("mood", dist.OrderedLogistic(line, cuts), obs=w.get("mood"))
