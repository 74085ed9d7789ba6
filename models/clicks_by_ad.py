"""Clicks with two crossed effects: who looks, and which advert is shown.

    P(W_ut = 1) = logistic(a + person_u + between_ads sum_k ad_k x_utk),
    person_u ~ N(0, between_people^2),   ad_k ~ N(0, 1).

Use it for a W of 0 and 1 (a click, a dropped session) where people differ and a categorical column
of S says which advert, lesson or message it was: declared as categorical it reaches x as one 0/1
column for each level but the first. Levels seen seldom are pulled to the others, between_ads says
how far; people likewise, and a new person has a level from the population. Any other column of S is
one more x with an effect of that size. The effect of an advert is between_ads * ad: written as
N(0, between_ads^2) both could run to 0 together, and there would be no mode. NOT covered: effects
of adverts that differ by person.
"""

import pyro
import pyro.distributions as dist
import torch

from pulse_pyro import Lags

SUMMARY = Lags(1)
DIMS = {"ad": ("input",)}


def model(x, w=None, unit=None):
    a = pyro.sample("a", dist.Normal(0.0, 1.5))
    between_people = pyro.sample("between_people", dist.LogNormal(-0.5, 0.5))
    between_ads = pyro.sample("between_ads", dist.LogNormal(-0.5, 0.5))
    ad = pyro.sample("ad", dist.Normal(torch.zeros(x.shape[-1]), 1.0).to_event(1))
    with pyro.plate("units", int(unit.max()) + 1, dim=-1):
        person = pyro.sample("person", dist.Normal(0.0, between_people))
    logit = a + person[..., unit] + between_ads * (x * ad).sum(-1)
    with pyro.plate("rows", x.shape[-2], dim=-1):
        pyro.sample("w", dist.Bernoulli(logits=logit[..., None]).to_event(1), obs=w)
