"""The commonest mistakes in a law's model: each message holds the line to write instead."""

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch

from pulse_pyro._core.errors import ModelError
from pulse_pyro._pyro.contract import check_model

X, W = np.random.default_rng(0).standard_normal((2, 8, 2))


def parameters():
    a = pyro.sample("a", dist.Normal(0.0, 1.0))
    b = pyro.sample("b", dist.Normal(torch.zeros(2), 1.0).to_event(1))
    return a, b


def rows(x, dim=-1):
    return pyro.plate("rows", x.shape[-2], dim=dim)


def observe(w, name, loc):
    pyro.sample(name, dist.Normal(loc, 1.0), obs=(w or {}).get(name))


def plate_missing(x, w=None):
    a, b = parameters()
    for name in ("u", "v"):
        observe(w, name, a + (x * b).sum(-1))


def wrong_dim(x, w=None):
    a, _ = parameters()
    with rows(x, dim=-2):
        for name in ("u", "v"):
            observe(w, name, a + x[:, :1])


def branches(x, w=None):
    a, b = parameters()
    loc = a if x[..., 0] > 0 else a + (x * b).sum(-1)
    with rows(x):
        for name in ("u", "v"):
            observe(w, name, loc)


def misnamed(x, w=None):
    a, b = parameters()
    with rows(x):
        for name in ("u", "V"):
            observe(w, name, a + (x * b).sum(-1))


def always_observed(x, w=None):
    a, b = parameters()
    with rows(x):
        observe(w, "u", a)
        pyro.sample("v", dist.Normal((x * b).sum(-1), 1.0), obs=torch.zeros(len(x)))


def plate_twice(x, w=None):
    a, b = parameters()
    for name in ("u", "v"):
        with rows(x):
            observe(w, name, a + (x * b).sum(-1))


def single_precision(x, w=None):
    a, _ = parameters()
    b = pyro.sample("b32", dist.Normal(torch.zeros(2, dtype=torch.float32), 1.0).to_event(1))
    with rows(x):
        for name in ("u", "v"):
            observe(w, name, a + x @ b)


CASES = [
    (plate_missing, 'with pyro.plate("rows", x.shape[-2], dim=-1): pyro.sample("u"'),
    (wrong_dim, 'with pyro.plate("rows", x.shape[-2], dim=-1): pyro.sample("u"'),
    (branches, "torch.where(x[..., 0] > 0, high, low)"),
    (misnamed, 'pyro.sample("v", ..., obs=w.get("v"))'),
    (always_observed, 'begin with w = w or {} and write pyro.sample("v"'),
    (plate_twice, 'rows = pyro.plate("rows", x.shape[-2], dim=-1)'),
    (single_precision, "without dtype=torch.float32"),
]


@pytest.mark.parametrize(("model", "line"), CASES, ids=lambda v: getattr(v, "__name__", ""))
def test_a_mistake_is_answered_with_the_line_to_write(model, line):
    with pytest.raises(ModelError) as caught:
        check_model(model, X, W, columns=("u", "v"))
    assert line in str(caught.value)


def matmul(x, w=None):
    a, b = parameters()
    with rows(x):
        for name in ("u", "v"):
            observe(w, name, a + x @ b)


def test_what_only_costs_time_is_said_on_the_card():
    card = check_model(matmul, X, W, columns=("u", "v"))
    assert not card.vectorised
    assert "write (x * b).sum(-1) for x @ b" in repr(card)


def latent(x, w=None):
    a, b = parameters()
    with rows(x):
        z = pyro.sample("z", dist.Categorical(logits=torch.zeros(3)))
        observe(w, "u", a + z)
        observe(w, "v", (x * b).sum(-1) + z)


def test_the_card_names_roles_and_costs():
    card = check_model(latent, X, W, columns=("u", "v"))
    assert "summed over: z (3), 3 terms a row" in repr(card)
    assert "a site per W column: u (Normal), v (Normal)" in repr(card)
    role = card.table.set_index("site")["role"]
    assert role["z"] == "per row, enumerated: summed out of fit and prediction"
    assert role["a"].startswith("global")
