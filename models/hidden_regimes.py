"""Hidden regimes: S and W come from one of two regimes that last for a while.

    P(z_t = k | z_{t-1} = j) = move[j, k],   first row: each regime as likely,
    S_t = s_level[z_t] + s_sd * e_t,   W_t = a[z_t] + b S_{t-1} + w_sd * e'_t,   z_t in {0, 1}.

Use it when people are in phases (well / in relapse, term / holidays) that nobody records: W follows
the phase, and all of the S so far tells which it is. The phases are summed out exactly (forward
algorithm), both in the fit and online; an S that is not seen is simply not weighted on. W is low in
regime 0 and higher by gap > 0 in regime 1, which keeps the two from trading names. Columns "s" and
"w". Not covered: how long a phase has lasted (its end is as likely at any time), phases of several
people that move together.
"""

import pyro
import pyro.distributions as dist
import torch
from pyro.ops.indexing import Vindex

MEMORY = 2  # s_past holds S_{t-1} and S_t


def prior():
    stay = pyro.sample("stay", dist.Beta(torch.tensor([8.0, 8.0]), 2.0).to_event(1))
    low = pyro.sample("low", dist.Normal(0.0, 1.0))
    gap = pyro.sample("gap", dist.LogNormal(0.5, 0.5))
    return {
        "move": torch.stack(
            [
                torch.stack([stay[..., 0], 1.0 - stay[..., 0]], -1),
                torch.stack([1.0 - stay[..., 1], stay[..., 1]], -1),
            ],
            -2,
        ),
        "a": torch.stack([low, low + gap], -1),
        "b": pyro.sample("b", dist.Normal(0.0, 0.5)),
        "s_level": pyro.sample("s_level", dist.Normal(torch.zeros(2), 1.0).to_event(1)),
        "s_sd": pyro.sample("s_sd", dist.LogNormal(-0.5, 0.5)),
        "w_sd": pyro.sample("w_sd", dist.LogNormal(-0.5, 0.5)),
    }


def first(p):
    pyro.sample("z", dist.Categorical(torch.tensor([0.5, 0.5])))


def step(p, z, s_past):
    z = pyro.sample("z", dist.Categorical(Vindex(p["move"])[..., z, :]))
    pyro.sample("s", dist.Normal(Vindex(p["s_level"])[..., z], p["s_sd"]))
    before = torch.nan_to_num(s_past[..., -2, 0])  # 0 where it was not seen
    pyro.sample("w", dist.Normal(Vindex(p["a"])[..., z] + p["b"] * before, p["w_sd"]))
