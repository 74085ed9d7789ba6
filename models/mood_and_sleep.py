"""A mood in four levels and a bad night, 0 or 1, together: the night bears on the mood.

    P(sleep_t = 1) = logistic(a + c'x_t),                    W_t = (mood_t, sleep_t),
    P(mood_t <= k) = logistic(cut_k - b'x_t + toll sleep_t),   mood_t in 0, 1, 2, 3.

Use it when W has columns of different kinds that move together beyond what S explains. The chain
rule says how: first the night, then the mood given the night. E[mood | S] sums over both nights,
exactly. The columns are called "mood" and "sleep"; a row that has only the night still counts.
Declare them: kinds={"sleep": "binary", "mood": Column("mood", kind="ordinal", levels=...)}.
"""

import pyro
import pyro.distributions as dist
import torch

from pulse_pyro import Lags

LEVELS = 4
SUMMARY = Lags(1)
DIMS = {"b": ("input",), "c": ("input",), "step": ("gap",)}


def model(x, w=None):
    w = w or {}
    zeros = torch.zeros(x.shape[-1])
    a = pyro.sample("a", dist.Normal(0.0, 1.0))
    c = pyro.sample("c", dist.Normal(zeros, 1.0).to_event(1))
    b = pyro.sample("b", dist.Normal(zeros, 1.0).to_event(1))
    toll = pyro.sample("toll", dist.Normal(0.0, 1.0))
    first = pyro.sample("first", dist.Normal(-1.5, 1.0))
    step = pyro.sample("step", dist.LogNormal(torch.zeros(LEVELS - 2), 0.5).to_event(1))
    cuts = torch.cat([first[..., None], first[..., None] + step.cumsum(-1)], -1)
    with pyro.plate("rows", x.shape[-2], dim=-1):
        bad = dist.Bernoulli(logits=a + (x * c).sum(-1))
        sleep = pyro.sample("sleep", bad, obs=w.get("sleep"))
        line = (x * b).sum(-1) - toll * sleep
        pyro.sample("mood", dist.OrderedLogistic(line, cuts), obs=w.get("mood"))
