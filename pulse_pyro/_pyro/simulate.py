"""Draw parameters from a model's prior, and an archive from the model given them."""

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pyro.poutine as poutine
import torch

from pulse_pyro._pyro.card import ModelCard
from pulse_pyro._pyro.sandbox import sandbox
from pulse_pyro.arrays import Float, Float2, Int


class Simulated(NamedTuple):
    """truth : global site -> its value. w : (n, w_dim), NaN where the model did not record it."""

    truth: dict[str, Float]
    w: Float2


def simulate_prior(
    model: Callable[..., Any], x: Float2, unit: Int, card: ModelCard, seed: int, *names: str | int
) -> Simulated:
    """Run model(x) once, with its parameters from the prior.

    A model that names ``unit`` is given it; one with a site ``seen`` decides which w are recorded.
    """
    extras: dict[str, Any] = {}
    if "unit" in inspect.signature(model).parameters:
        extras["unit"] = torch.as_tensor(unit)
    with sandbox(seed, "prior", *names), torch.no_grad():
        nodes = poutine.trace(model).get_trace(torch.tensor(x), **extras).nodes
        truth = {site.name: nodes[site.name]["value"].numpy().copy() for site in card.globals}
        w = nodes["w"]["value"].numpy().astype(np.float64)
        if "seen" in nodes:
            w[nodes["seen"]["value"].numpy() == 0] = np.nan
    return Simulated(truth, w)


def prior_w(model: Callable[..., Any], x: Float2, seed: int) -> Float2:
    """Draw w, (n, w_dim), at x (n, p), with parameters from the prior."""
    with sandbox(seed, "prior w"), torch.no_grad():
        value = poutine.trace(model).get_trace(torch.tensor(x)).nodes["w"]["value"]
        out: Float2 = value.numpy().astype(np.float64)
    return out
