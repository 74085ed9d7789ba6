"""W goes missing because of what it is: a selection model.

    W_t = a + b'x_t + sd * e_t,   e_t ~ N(0, 1),
    P(W_t is recorded | W_t) = Phi(k + c W_t).

Use it when W is left blank more often when it is high (or low): a mood not reported on bad days, a
score not handed in. Rows without W are used: with c = 0 they say nothing, otherwise dropping them
bends the line towards what people care to report. Prediction is for every round, recorded or not.

The data cannot show that missingness has THIS form: c is told from the normality of e_t alone, so
report how much b moves, and treat the law as a sensitivity analysis. One column of W.
"""

import pyro
import pyro.distributions as dist
import torch
from pyro import poutine

from pulse_pyro import Lags

SUMMARY = Lags(2)
DIMS = {"b": ("input",)}
PHI = torch.special.ndtr


def model(x, w=None, seen=None):
    a = pyro.sample("a", dist.Normal(0.0, 1.0))
    b = pyro.sample("b", dist.Normal(torch.zeros(x.shape[-1]), 1.0).to_event(1))
    sd = pyro.sample("sd", dist.LogNormal(-0.5, 0.5))
    k = pyro.sample("k", dist.Normal(0.5, 0.5))
    c = pyro.sample("c", dist.Normal(0.0, 1.0))
    loc = a + (x * b).sum(-1)
    law = dist.Normal(loc[..., None], sd[..., None]).to_event(1)
    with pyro.plate("rows", x.shape[-2], dim=-1):
        if seen is None:  # prediction and simulation: W exists, recorded or not
            drawn = pyro.sample("w", law, obs=w)
            pyro.sample("seen", dist.Bernoulli(PHI(k + c * drawn[..., 0])))
            return
        there = seen[..., 0]
        with poutine.mask(mask=there):
            pyro.sample("w", law, obs=w)
        # where W is not there, average Phi(k + c W) over its law
        average = PHI((k + c * loc) / torch.sqrt(1.0 + (c * sd) ** 2))
        chance = torch.where(there, PHI(k + c * w[..., 0]), average).clamp(1e-12, 1 - 1e-12)
        pyro.sample("seen", dist.Bernoulli(chance), obs=there.to(x.dtype))
