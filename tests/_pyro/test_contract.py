from contextlib import nullcontext

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch

from pulse_pyro._core.errors import ModelError
from pulse_pyro._pyro.contract import check_model

RNG = np.random.default_rng(0)
X, W1, W3 = RNG.standard_normal((12, 2)), RNG.standard_normal((12, 1)), RNG.standard_normal((12, 3))
STANDARD = dist.Normal(0.0, 1.0)


def weights():
    return pyro.sample("b", dist.Normal(torch.zeros(2), 1.0).to_event(1))


def line(x):
    return (x * weights()).sum(-1)[..., None]


def rows(x, name="rows", dim=-1):
    return pyro.plate(name, len(x), dim=dim)


def observe(x, w, loc, site="w", plate=None):
    with plate or rows(x):
        return pyro.sample(site, dist.Normal(loc, 1.0).to_event(1), obs=w)


def latent(plate, name="u", law=STANDARD):
    with plate:
        return pyro.sample(name, law)


def misnamed(x, w=None):
    observe(x, w, line(x), site="w1")


def otherwise_named(x, w=None):
    observe(x, w, line(x), site="outcome")


def not_observed(x, w=None):
    observe(x, None, line(x))


def always_observed(x, w=None):
    observe(x, torch.zeros(len(x), 1), line(x))


def no_w_to_predict(x, w=None):
    loc = line(x)
    if w is not None:
        observe(x, w, loc)


def no_plate(x, w=None):
    observe(x, w, line(x), plate=nullcontext())


def wrong_plate_name(x, w=None):
    observe(x, w, line(x), plate=rows(x, "data"))


def wrong_plate_dim(x, w=None):
    observe(x, w, line(x)[:, None], plate=rows(x, dim=-2))


def no_to_event(x, w=None):
    loc = line(x)
    with rows(x):
        pyro.sample("w", dist.Normal(loc, 1.0), obs=w)


def wrong_width(x, w=None):
    observe(x, w, line(x).expand(-1, 2))


def grows(x, w=None):
    u = pyro.sample("u", dist.Normal(torch.zeros(len(x)), 1.0).to_event(1))
    observe(x, w, line(x) + u[..., None])


def sometimes_there(x, w=None):
    extra = 0.0 if w is None else pyro.sample("extra", STANDARD)
    observe(x, w, line(x) + extra)


def raises(x, w=None):
    raise ZeroDivisionError("the moon")


def nothing_to_learn(x, w=None):
    plate = rows(x)
    observe(x, w, latent(plate)[..., None], plate=plate)


BROKEN = [
    (misnamed, W1, "no site 'w'; did you mean 'w1'"),
    (otherwise_named, W1, "no site 'w'; known: 'b', 'outcome'"),
    (not_observed, W1, r"does not observe site 'w'; pass obs=w"),
    (always_observed, W1, "with w=None it must be sampled"),
    (no_w_to_predict, W1, "w=None"),
    (no_plate, W1, "plate 'rows' on dim -1"),
    (wrong_plate_name, W1, "plate 'rows' on dim -1"),
    (wrong_plate_dim, W1, "plate 'rows' on dim -1"),
    (no_to_event, W1, "to_event"),
    (no_to_event, W3, "to_event"),
    (wrong_width, W3, r"event shape \(2,\).*\(3,\)"),
    (grows, W1, r"site 'u' has shape \(8,\) for 8 rows but \(7,\) for 7"),
    (sometimes_there, W1, "'extra'"),
    (raises, W1, "ZeroDivisionError: the moon"),
    (nothing_to_learn, W1, "no latent site outside plate 'rows'"),
]


@pytest.mark.parametrize(("model", "w", "says"), BROKEN, ids=lambda v: getattr(v, "__name__", ""))
def test_a_broken_rule_is_named(model, w, says):
    with pytest.raises(ModelError, match=says) as caught:
        check_model(model, X, w)
    assert str(caught.value).startswith(model.__name__)


def test_the_given_name_is_used_in_messages():
    with pytest.raises(ModelError, match=r"^sleep law: "):
        check_model(raises, X, W1, "sleep law")


def everything(x, w=None):
    b, sd = weights(), pyro.sample("sd", dist.Gamma(2.0, 2.0))
    with pyro.plate("groups", 3):
        a = pyro.sample("a", STANDARD)
    group = (x[..., 0] > 0).long() + (x[..., 1] > 0).long()
    loc = (x * b).sum(-1) + a[..., group]
    pyro.deterministic("shown", loc)
    pyro.factor("penalty", -b.pow(2).sum(-1).sum())
    observe(x, w, (loc * sd)[..., None])


def with_latents(x, w=None):
    loc, plate = line(x)[..., 0], rows(x)
    u, flip = latent(plate), latent(plate, "flip", dist.Bernoulli(0.5))
    observe(x, w, (loc + u * flip)[..., None], plate=plate)


def test_sites_are_sorted_into_global_local_and_observed():
    card = check_model(with_latents, X, W1)
    kinds = {site.name: (site.kind, site.shape, site.discrete) for site in card.sites}
    assert kinds == {
        "b": ("global", (2,), False),
        "u": ("local", (8,), False),
        "flip": ("local", (8,), True),
        "w": ("observed", (8, 1), False),
    }
    assert [s.name for s in card.locals] == ["u", "flip"]
    assert (card.x_dim, card.w_dim) == (2, 1)
    assert card.vectorised


def test_vector_scalar_and_plate_sites_together_run_at_once():
    card = check_model(everything, X, W1)
    assert card.vectorised
    assert {s.name: s.shape for s in card.globals} == {"b": (2,), "sd": (), "a": (3,)}
    assert "all draws at once" in repr(card)


def matmul(x, w=None):
    observe(x, w, (x @ weights())[..., None])


def asserts(x, w=None):
    b = weights()
    assert b.shape == (2,)
    observe(x, w, (x * b).sum(-1)[..., None])


def mixes_draws(x, w=None):
    b = pyro.sample("b", STANDARD)
    observe(x, w, (x[:, 0] * b.sum() + 0 * b)[..., None])


def mixes_draws_beside_latents(x, w=None):
    b, plate = pyro.sample("b", STANDARD), rows(x)
    observe(x, w, (x[:, 0] * b.sum() + latent(plate))[..., None], plate=plate)


@pytest.mark.parametrize("model", [matmul, asserts, mixes_draws, mixes_draws_beside_latents])
def test_a_model_that_cannot_run_at_once_is_found_out(model):
    assert not check_model(model, X, W1).vectorised


@pytest.mark.parametrize("count", [1, 2, 3])
def test_few_rows_suffice(count):
    assert check_model(everything, X[:count], W1[:count]).vectorised
    assert not check_model(matmul, X[:count], W1[:count]).vectorised


def test_a_row_must_not_depend_on_the_others():
    """Fitted on many rows it would pass every check, and answer nonsense for one."""

    def centred(x, w=None):
        observe(x, w, line(x - x.mean(-2, keepdim=True)))

    with pytest.raises(ModelError, match="only one row"):
        check_model(centred, X, W1)


def test_a_prior_that_breaks_its_own_likelihood_is_a_sentence():
    def negative_scale(x, w=None):
        sd = pyro.sample("sd", dist.Normal(-5.0, 0.1))
        with rows(x):
            pyro.sample("w", dist.Normal(line(x), sd[..., None]).to_event(1), obs=w)

    with pytest.raises(ModelError, match="failed"):
        check_model(negative_scale, X, W1)


# A column that two sites observe.


def doubled(obs):
    """A 0/1 column with a second site that observes ``obs`` of it."""

    def model(x, w=None):
        w = w or {}
        logits = (x * weights()).sum(-1)
        with rows(x):
            bad = pyro.sample("bad", dist.Bernoulli(logits=logits), obs=w.get("bad"))
            pyro.sample("bad2", dist.Bernoulli(logits=logits), obs=obs(bad) if w else None)

    return model


def doubled_vector(x, w=None):
    loc = line(x)
    observe(x, w, loc)
    if w is not None:
        pyro.sample("again", dist.Normal(loc[..., 0], 1.0).to_event(1), obs=w[:, 0])


@pytest.mark.parametrize("obs", [lambda bad: bad, lambda bad: bad.clone(), lambda bad: bad * 1.0])
def test_a_second_site_of_a_column_is_refused(obs):
    says = r"observe W column 'bad', 'bad' and 'bad2'.*pyro.sample\(\"bad\", ..., obs=w.get\(\"bad"
    for w in (np.ones((12, 1)), (W1 > 0) * 1.0):
        with pytest.raises(ModelError, match=says):
            check_model(doubled(obs), X, w, columns=("bad",))
    with pytest.raises(ModelError, match=r"observe w\[..., 0\], 'w' and 'again'.*delete 'again'"):
        check_model(doubled_vector, X, W1)


def test_what_else_a_model_observes_is_its_own_affair():
    def selection(x, w=None, seen=None):
        """A 0/1 column, and whether it was recorded: both are 1 in every row."""
        w = w or {}
        logits = (x * weights()).sum(-1)
        with rows(x):
            pyro.sample("bad", dist.Bernoulli(logits=logits + 3.0), obs=w.get("bad"))
            there = None if seen is None else seen["bad"].to(x.dtype)
            pyro.sample("there", dist.Bernoulli(0.9), obs=there)

    for seed in range(5):
        w = np.ones((12, 1)) if seed else np.zeros((12, 1))
        assert check_model(selection, X[seed:], w[seed:], columns=("bad",)).columns == ("bad",)


@pytest.mark.parametrize(
    ("fn", "name"),
    [
        (lambda sd: dist.ZeroInflatedPoisson(sd, gate=torch.tensor(0.2)), "ZeroInflatedPoisson"),
        (lambda sd: dist.LogNormal(sd, 1.0).mask(True), "LogNormal"),
        (lambda sd: dist.Normal(sd, 1.0), "Normal"),
    ],
)
def test_a_site_goes_by_the_name_it_was_written_with(fn, name):
    def model(x, w=None):
        sd = pyro.sample("sd", dist.LogNormal(0.0, 0.5))
        with pyro.plate("rows", x.shape[-2], dim=-1):
            pyro.sample("w", fn((sd + 0.0 * x[..., 0])[..., None]).to_event(1), obs=w)

    card = check_model(model, np.zeros((8, 1)), np.ones((8, 1)))
    assert {site.name: site.distribution for site in card.sites} == {"sd": "LogNormal", "w": name}


@pytest.mark.parametrize("few", [True, False])
def test_a_w_of_few_values_is_told_how_its_expectations_become_sums(few):
    def model(x, w=None):
        a = pyro.sample("a", dist.Normal(0.0, 1.0))
        eta = (a[..., None] + x[:, 0])[..., None]
        fn = dist.Bernoulli(logits=eta) if few else dist.Normal(eta, 1.0)
        with pyro.plate("rows", len(x), dim=-1):
            pyro.sample("w", fn.to_event(1), obs=w)

    told = repr(check_model(model, np.zeros((6, 1)), np.zeros((6, 1))))
    assert ("exact sums" in told) == few
    assert ('dist.Bernoulli(...), obs=w.get("mood")' in told) == few
