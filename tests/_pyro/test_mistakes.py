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


def halves(x, w=None):
    a, b = parameters()
    with rows(x):
        for name in ("u", "v"):
            observe(w, name, a.float() + (x * b).sum(-1).float())


def branches_on_any(x, w=None):
    a, b = parameters()
    loc = a if (x[:, 0] > 0).any() else a + (x * b).sum(-1)
    with rows(x):
        for name in ("u", "v"):
            observe(w, name, loc + torch.zeros(len(x)))


def needs_w(x, w=None):
    a, b = parameters()
    with rows(x):
        for name in ("u", "v"):
            pyro.sample(name, dist.Normal(a + (x * b).sum(-1), 1.0), obs=w[name])


def writes_into_x(x, w=None):
    a, b = parameters()
    x *= 2.0
    with rows(x):
        for name in ("u", "v"):
            observe(w, name, a + (x * b).sum(-1))


def writes_into_a_site(x, w=None):
    a, b = parameters()
    b += 1.0
    with rows(x):
        for name in ("u", "v"):
            observe(w, name, a + (x * b).sum(-1))


def writes_into_w(x, w=None):
    a, b = parameters()
    if w is not None:
        w["u"][:] = 0.0
    with rows(x):
        for name in ("u", "v"):
            observe(w, name, a + (x * b).sum(-1))


def not_by_name(x, w=None):
    a, b = parameters()
    with rows(x):
        observe(w, "outcome", a + (x * b).sum(-1))


def both_forms(x, w=None):
    a, b = parameters()
    loc = (a + (x * b).sum(-1))[..., None] + torch.zeros(2)
    with rows(x):
        pyro.sample("u", dist.Normal(a, 1.0))
        pyro.sample("w", dist.Normal(loc, 1.0).to_event(1), obs=w)


def through_numpy(x, w=None):
    a, b = parameters()
    with rows(x):
        for name in ("u", "v"):
            observe(w, name, float(a) + (x * b).sum(-1))


def own_randomness(x, w=None):
    a, b = parameters()
    with rows(x):
        for name in ("u", "v"):
            observe(w, name, a + (x * b).sum(-1) + torch.randn(len(x)))


def another_law_when_given(x, w=None):
    a, b = parameters()
    with rows(x):
        observe(w, "u", a + (x * b).sum(-1))
        observe(w, "v", w["u"] if w else a)


def some_rows(x, w=None):
    a, b = parameters()
    chosen = x[x[:, 0] > 0]
    with pyro.plate("some", len(chosen)):
        pyro.sample("e", dist.Normal(0.0, 1.0))
    with rows(x):
        for name in ("u", "v"):
            observe(w, name, a + (x * b).sum(-1))


def negative_sd(x, w=None):
    a, b = parameters()
    with rows(x):
        for name in ("u", "v"):
            value = (w or {}).get(name)
            pyro.sample(name, dist.Normal(a, (x * b).sum(-1)), obs=value)


def nan_mean(x, w=None):
    a, b = parameters()
    with rows(x):
        for name in ("u", "v"):
            observe(w, name, a + torch.log(-(x * b).sum(-1).abs()))


CASES = [
    (plate_missing, 'with pyro.plate("rows", x.shape[-2], dim=-1): pyro.sample("u"'),
    (wrong_dim, 'with pyro.plate("rows", x.shape[-2], dim=-1): pyro.sample("u"'),
    (branches, "torch.where(x[..., 0] > 0, high, low)"),
    (misnamed, 'pyro.sample("v", ..., obs=w.get("v"))'),
    (always_observed, 'begin with w = w or {} and write pyro.sample("v"'),
    (plate_twice, 'rows = pyro.plate("rows", x.shape[-2], dim=-1)'),
    (halves, "without .float()"),
    (branches_on_any, "torch.where(x[..., 0] > 0, high, low)"),
    (needs_w, "begin with w = w or {} and write obs=w.get("),
    (writes_into_x, "write x = x * 2 for x *= 2"),
    (writes_into_a_site, "write b = b * 2 for b *= 2"),
    (writes_into_w, "torch.where(x[..., 0] > 0, new, u)"),
    (not_by_name, 'pyro.sample("u", ..., obs=w.get("u"))'),
    (both_forms, "two sites stand for W column 'u'"),
    (through_numpy, "write torch.exp(a) for np.exp(a), a for float(a)"),
    (own_randomness, 'e = pyro.sample("e", dist.Normal(0.0, 1.0))'),
    (another_law_when_given, 'v = pyro.sample("v", ..., obs=w.get("v"))'),
    (some_rows, "torch.where(x[..., 0] > 0, e, 0.0)"),
    (negative_sd, "torch.nn.functional.softplus(scale)"),
    (nan_mean, "torch.log(a.clamp(min=1e-6))"),
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


def scalar_sd(x, w=None):
    _, b = parameters()
    sd = pyro.sample("sd", dist.LogNormal(0.0, 1.0))
    loc = (x * b).sum(-1)[..., None] + torch.zeros(2)
    with rows(x):
        pyro.sample("w", dist.Normal(loc, sd).to_event(1), obs=w)


def fills_rows(x, w=None):
    a, b = parameters()
    loc = torch.zeros(len(x))
    loc[x[:, 0] > 0] = a
    with rows(x):
        for name in ("u", "v"):
            observe(w, name, loc + (x * b).sum(-1))


def adds_in_place(x, w=None):
    a, b = parameters()
    loc = torch.zeros(len(x))
    loc += (x * b).sum(-1)
    with rows(x):
        for name in ("u", "v"):
            observe(w, name, loc + a)


def branches_on_a_site(x, w=None):
    a, b = parameters()
    high = a if a > 0 else 2.0 * a
    with rows(x):
        for name in ("u", "v"):
            observe(w, name, high + (x * b).sum(-1))


def no_event(x, w=None):
    a = pyro.sample("a", dist.Normal(torch.zeros(2), 1.0))
    with rows(x):
        for name in ("u", "v"):
            observe(w, name, (x * a).sum(-1))


@pytest.mark.parametrize(
    ("model", "line"),
    [
        (matmul, "write (x * b).sum(-1) for x @ b"),
        (scalar_sd, "write sd[..., None] for sd"),
        (fills_rows, "loc = torch.where(x[..., 0] > 0, new, loc)"),
        (adds_in_place, "write loc = loc + new for loc += new"),
        (branches_on_a_site, "torch.where(x[..., 0] > 0, high, low)"),
        (no_event, "end site 'a' with .to_event(1)"),
    ],
    ids=lambda v: getattr(v, "__name__", ""),
)
def test_what_only_costs_time_is_said_on_the_card(model, line):
    card = check_model(model, X, W, columns=("u", "v"))
    assert not card.vectorised
    assert line in repr(card)


def without_support(x, w=None):
    a, b = parameters()
    with rows(x):
        k = pyro.sample("k", dist.Poisson(3.0))
        for name in ("u", "v"):
            observe(w, name, a + k + (x * b).sum(-1))


def test_a_discrete_site_without_support_is_named_on_the_card():
    said = repr(check_model(without_support, X, W, columns=("u", "v")))
    assert 'pyro.sample("k", dist.Categorical(logits=...))' in said


def in_double(x, w=None):
    a, b = parameters()
    scale = torch.ones(2, dtype=torch.float32)  # a constant costs nothing
    loc = torch.zeros(len(x))
    loc = loc + (x * b * scale).sum(-1)
    with rows(x):
        for name in ("u", "v"):
            observe(w, name, torch.where(x[..., 0] > 0, loc, loc + a))


def test_what_is_written_as_advised_is_not_complained_of():
    assert check_model(in_double, X, W, columns=("u", "v")).vectorised


def boom(x, w=None):
    parameters()
    raise KeyError("stress")


def test_the_line_of_the_model_is_quoted():
    with pytest.raises(ModelError, match="raise KeyError"):
        check_model(boom, X, W, columns=("u", "v"))


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
