"""Errors that fade: what a line in S leaves of W carries over to the next rows.

    W_t = a + b S_t + z_t + w_sd * e_t,   z_t = keep z_{t-1} + shock * e'_t,   0 < keep < 1,

z_0 from where z stays in the long run, N(0, shock^2 / (1 - keep^2)).

Use it when residuals of one person are alike from row to row (a bad week) and W is revealed now and
then: every W that is known tells of the next ones. The memory is integrated out exactly (Kalman
filter). S is taken as given, so a row without S has no answer, but loses nothing for later rows.
Columns "s" and "w". Not covered: errors that swing (keep < 0), memory of other shapes.
"""

import pyro
import pyro.distributions as dist
import torch


def prior():
    return {
        "a": pyro.sample("a", dist.Normal(0.0, 1.0)),
        "b": pyro.sample("b", dist.Normal(0.0, 1.0)),
        "keep": pyro.sample("keep", dist.Beta(4.0, 2.0)),
        "shock": pyro.sample("shock", dist.LogNormal(-0.7, 0.5)),
        "w_sd": pyro.sample("w_sd", dist.LogNormal(-0.7, 0.5)),
    }


def first(p):
    pyro.sample("z", dist.Normal(0.0, p["shock"] / torch.sqrt(1.0 - p["keep"] ** 2)))


def step(p, z, s_past):
    z = pyro.sample("z", dist.Normal(p["keep"] * z, p["shock"]))
    pyro.sample("w", dist.Normal(p["a"] + p["b"] * s_past[..., -1, 0] + z, p["w_sd"]))
