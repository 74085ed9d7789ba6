"""A site per W column, and latents of rows that are summed out, against sums done by hand."""

from dataclasses import replace
from functools import cache, partial

import numpy as np
import pandas as pd
import pyro
import pyro.distributions as dist
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from pyro.ops.indexing import Vindex
from scipy import integrate, special, stats

import pulse_pyro as pp
from pulse_pyro._core.errors import DataError, ModelError
from pulse_pyro._core.saved import load, save
from pulse_pyro._pyro.contract import asked_columns, check_model
from pulse_pyro._pyro.predict import simulate_prior
from pulse_pyro._pyro.sites import SitesKernel
from pulse_pyro.base import Column
from pulse_pyro.diagnostics.convergence import convergence
from tests.helpers import assert_mean

RNG = np.random.default_rng(0)
X = RNG.standard_normal((6, 1))


def normal():
    return dist.Normal(0.0, 1.0)


def rows(x):
    return pyro.plate("rows", x.shape[-2], dim=-1)


def chained(x, w=None):
    """0/1 bad nights, and mood of three levels given the night: the chain rule."""
    w = w or {}
    a, b, gap = (pyro.sample(name, normal()) for name in ("a", "b", "gap"))
    cuts = torch.stack([-1.0 + 0.0 * a, 0.8 + 0.0 * a], -1)
    line = a + b * x[..., 0]
    with rows(x):
        bad = pyro.sample("bad", dist.Bernoulli(logits=line), obs=w.get("bad"))
        pyro.sample("mood", dist.OrderedLogistic(line - gap * bad, cuts), obs=w.get("mood"))


CHAINED = ("mood", "bad")
DRAWS = {name: RNG.standard_normal(4) for name in ("a", "b", "gap")}


def kernel(model, columns, w_dim=None, draws=DRAWS, **changes):
    w = np.zeros((6, w_dim or len(columns)))
    card = replace(check_model(model, X, w, columns=columns), **changes)
    return SitesKernel(model, draws, card)


def by_hand():
    """P(bad), (draws, rows), and P(mood = k | bad), (draws, rows, bad, level)."""
    line = DRAWS["a"][:, None] + DRAWS["b"][:, None] * X[:, 0]
    shifted = line[..., None] - DRAWS["gap"][:, None, None] * np.arange(2)
    at_most = special.expit(np.array([-1.0, 0.8]) - shifted[..., None])
    ends = [np.zeros((*shifted.shape, 1)), at_most, np.ones((*shifted.shape, 1))]
    return special.expit(line), np.diff(np.concatenate(ends, -1), axis=-1)


@pytest.mark.parametrize("vectorised", [True, False])
def test_a_column_given_another_is_summed_over_it_exactly(vectorised):
    own = kernel(chained, CHAINED, vectorised=vectorised)
    bad, mood = by_hand()
    total = (1 - bad)[..., None] * mood[:, :, 0] + bad[..., None] * mood[:, :, 1]
    index = np.arange(4)
    assert own.exact_mean
    assert own.card.summed == ("bad",)
    found = own.mean_draws(X, index)
    assert_allclose(found[..., 0], total @ np.arange(3), rtol=1e-12)
    assert_allclose(found[..., 1], bad, rtol=1e-12)
    for level in range(3):
        w = np.column_stack([np.full(6, level), np.ones(6)])
        each = own.column_log_density(X, w, index)
        assert_allclose(np.exp(each[..., 0]), total[..., level], rtol=1e-12)
        assert_allclose(np.exp(each[..., 1]), bad, rtol=1e-12)
        joint = own.log_density(X, w, index)
        assert_allclose(np.exp(joint), bad * mood[:, :, 1, level], rtol=1e-12)
        below = own.cdf_draws(X, w + 0.5, index)
        assert_allclose(below[..., 0], total[..., : level + 1].sum(-1), rtol=1e-12)
        assert_allclose(below[..., 1], 1.0, rtol=1e-12)


def test_declared_numbers_stand_for_codes():
    plain = kernel(chained, CHAINED)
    own = kernel(chained, CHAINED, levels=((1.0, 2.0, 5.0), ()))
    bad, mood = by_hand()
    total = (1 - bad)[..., None] * mood[:, :, 0] + bad[..., None] * mood[:, :, 1]
    index = np.arange(4)
    assert_allclose(own.mean_draws(X, index)[..., 0], total @ [1.0, 2.0, 5.0], rtol=1e-12)
    drawn, codes = (k.sample(X, index, np.random.default_rng(1)) for k in (own, plain))
    assert_array_equal(drawn[..., 0], np.array([1.0, 2.0, 5.0])[codes[..., 0].astype(int)])
    w, code = np.array([[5.0, 1.0]] * 6), np.array([[2.0, 1.0]] * 6)
    assert_array_equal(own.log_density(X, w, index), plain.log_density(X, code, index))
    assert np.isneginf(own.log_density(X, code + 1, index)).all()  # 3 is no level, 2 is not 0 or 1
    assert_allclose(own.cdf_draws(X, w - 0.5, index)[..., 0], total[..., :2].sum(-1), rtol=1e-12)


def test_what_is_not_there_has_no_density():
    own = kernel(chained, CHAINED)
    w = np.array([[0.0, 1.0], [np.nan, 1.0], [2.0, np.nan]] * 2)
    each = own.column_log_density(X, w, np.arange(4))
    assert_array_equal(np.isnan(each), np.broadcast_to(np.isnan(w), each.shape))
    assert_array_equal(np.isnan(own.cdf_draws(X, w, [0])[0]), np.isnan(w))
    assert_array_equal(np.isnan(own.log_density(X, w, [0])[0]), np.isnan(w).any(1))


def test_samples_agree_with_means_and_repeat():
    own = kernel(chained, CHAINED)
    index = np.tile(np.arange(4), 4000)
    drawn = own.sample(X, index, np.random.default_rng(0))
    assert_mean(drawn - own.mean_draws(X, index), 0.0)
    assert_array_equal(drawn, own.sample(X, index, np.random.default_rng(0)))


def shared(x, w=None):
    """A normal latent of the row moves a count and a 0/1 column."""
    w = w or {}
    a = pyro.sample("a", normal())
    with rows(x):
        u = pyro.sample("u", dist.Normal(0.0, 0.7))
        pyro.sample("clicks", dist.Poisson((a + 0.3 * x[..., 0] + u).exp()), obs=w.get("clicks"))
        pyro.sample("bad", dist.Bernoulli(logits=a + u), obs=w.get("bad"))


def test_a_normal_latent_of_rows_is_integrated_out():
    own = kernel(shared, ("clicks", "bad"), draws={"a": np.array([0.2, -0.6])})
    assert own.exact_mean
    index = np.arange(2)
    found = own.mean_draws(X, index)
    for i, a in enumerate((0.2, -0.6)):
        by_hand = np.exp(a + 0.3 * X[:, 0] + 0.7**2 / 2)
        assert_allclose(found[i, :, 0], by_hand, rtol=1e-9)
        both = integrate.quad(
            lambda u, a=a: (
                stats.norm.pdf(u, 0, 0.7)
                * stats.poisson.pmf(2, np.exp(a + 0.3 * X[0, 0] + u))
                * special.expit(a + u)
            ),
            -6,
            6,
        )[0]
        w = np.tile([2.0, 1.0], (6, 1))
        assert_allclose(np.exp(own.log_density(X, w, index)[i, 0]), both, rtol=1e-6)
    assert not own.closed_cdf  # Poisson has none in torch


def continuous_parent(x, w=None):
    w = w or {}
    a = pyro.sample("a", normal())
    with rows(x):
        steps = pyro.sample("steps", dist.Normal(a, 1.0), obs=w.get("steps"))
        pyro.sample("pulse", dist.Normal(2.0 * steps, 0.5), obs=w.get("pulse"))


def test_a_continuous_parent_is_averaged_over_draws_and_says_so():
    own = kernel(continuous_parent, ("steps", "pulse"), draws={"a": np.full(400, 0.3)})
    assert not own.exact_mean
    mean = own.mean_draws(X, np.arange(400))
    assert_allclose(mean[..., 0], 0.3, rtol=1e-12)
    assert_mean(mean[..., 1].ravel(), 0.6)
    w = np.array([[0.1, 0.4]] * 6)
    joint = stats.norm.logpdf(0.1, 0.3, 1.0) + stats.norm.logpdf(0.4, 0.2, 0.5)
    assert_allclose(own.log_density(X, w, [0]), joint, rtol=1e-12)
    alone = stats.norm.pdf(0.4, 0.6, np.sqrt(4.25))
    found = np.exp(own.column_log_density(X, w, np.arange(20))[..., 1])
    assert_mean(found.ravel(), alone)


def table(count=400, seed=1):
    rng = np.random.default_rng(seed)
    s = rng.standard_normal(count)
    bad = rng.random(count) < special.expit(0.4 + 0.8 * s)
    at_most = special.expit(np.array([-1.0, 0.8]) - (0.4 + 0.8 * s - 1.2 * bad)[:, None])
    mood = (rng.random(count)[:, None] > at_most).sum(1)
    frame = {"unit": np.arange(count) // 20, "time": np.arange(count) % 20, "s": s}
    return pd.DataFrame({**frame, "mood": mood.astype(float), "bad": bad.astype(float)})


KINDS = {"bad": "binary", "mood": Column("mood", kind="ordinal", levels=(0, 1, 2))}


def history(frame, kinds=KINDS):
    return pp.History.from_frame(
        frame, unit="unit", time="time", observed="s", missing=["mood", "bad"], kinds=kinds
    )


LAW = pp.Law(chained, pp.Lags(1), "nights")


@cache
def fitted():
    return LAW.fit(history(table()), pp.Laplace(200), seed=0)


def test_a_fit_finds_the_truth_and_answers_everything(tmp_path):
    law = fitted()
    for name, truth in (("a", 0.4), ("b", 0.8), ("gap", 1.2)):
        draws = law.draws[name]
        assert abs(draws.mean() - truth) < 4.5 * draws.std()
    asked, w = law(history(table())), history(table()).w
    assert asked.exact
    assert np.isfinite(asked.log_density(w)).all()
    assert (asked.log_density(w).sum(1) != asked.joint_log_density(w)).all()
    save(law, tmp_path / "law")
    back = load(tmp_path / "law", law=LAW)
    assert back.id == law.id
    assert_array_equal(back(history(table())).mean(), asked.mean())
    tree = law.to_arviz(history(table(80)), size=20)
    assert tree["log_likelihood"]["mood"].shape == (1, 20, 80)


def test_another_model_is_not_taken_for_the_saved_one(tmp_path):
    def other(x, w=None):
        chained(2.0 * x, w)

    save(fitted(), tmp_path / "law")
    with pytest.raises(Exception, match="gives other answers"):
        load(tmp_path / "law", law=replace(LAW, model=other))


def test_a_row_counts_for_the_columns_it_has():
    """Holes in one column leave the other column's evidence as it is."""
    frame = table()
    frame.loc[:99, "mood"] = np.nan
    frame.loc[390:, ["mood", "bad"]] = np.nan
    law = LAW.fit(history(frame), pp.Laplace(200), seed=0)
    assert (law.record.rows, law.record.dropped) == (390, 10)
    s, bad, mood = (frame[name].to_numpy() for name in ("s", "bad", "mood"))

    def energy(z):
        a, b, gap = z
        line = a + b * s
        night = np.where(np.isnan(bad), 0.0, stats.bernoulli.logpmf(bad, special.expit(line)))
        at_most = special.expit(np.array([-1.0, 0.8]) - (line - gap * bad)[:, None])
        ends = [np.zeros((len(s), 1)), at_most, np.ones((len(s), 1))]
        chance = np.diff(np.concatenate(ends, -1), axis=1)
        both = ~np.isnan(mood)
        told = np.log(chance[both, mood[both].astype(int)]).sum()
        return 0.5 * (z**2).sum() - night[:390].sum() - told

    from scipy.optimize import minimize

    mode = minimize(energy, np.zeros(3), options={"gtol": 1e-8}).x
    mean = np.array([law.draws[name].mean() for name in ("a", "b", "gap")])
    sd = np.array([law.draws[name].std() for name in ("a", "b", "gap")])
    assert (np.abs(mean - mode) < 5.0 * sd / np.sqrt(200)).all()
    assert LAW.fit(history(frame.dropna()), pp.Laplace(50), seed=0).record.rows == 290


def test_a_column_conditioned_on_another_counts_where_both_are_seen():
    frame = table()
    frame.loc[:49, "bad"] = np.nan
    filled = frame.copy()
    filled.loc[:49, "mood"] = np.nan  # without the night the mood tells nothing here
    one = LAW.fit(history(frame), pp.Laplace(50), seed=0)
    two = LAW.fit(history(filled), pp.Laplace(50), seed=0)
    for name in DRAWS:
        assert_allclose(one.draws[name], two.draws[name], atol=1e-6)


def test_archives_are_drawn_from_the_prior_in_declared_numbers():
    card = replace(check_model(chained, X, np.zeros((6, 2)), columns=CHAINED))
    drawn = simulate_prior(chained, np.zeros((500, 1)), np.zeros(500, int), card, 0)
    assert set(np.unique(drawn.w[:, 0])) <= {0.0, 1.0, 2.0}
    told = replace(card, levels=((1.0, 3.0, 9.0), ()))
    other = simulate_prior(chained, np.zeros((500, 1)), np.zeros(500, int), told, 0)
    assert_array_equal(other.w[:, 0], np.array([1.0, 3.0, 9.0])[drawn.w[:, 0].astype(int)])


def test_the_columns_of_a_model_are_what_it_asks_for():
    assert asked_columns(chained, X) == ("bad", "mood")
    assert asked_columns(lambda x, w=None: None, X) == ()


def no_mood(x, w=None):
    w = w or {}
    a = pyro.sample("a", normal())
    with rows(x):
        pyro.sample("bad", dist.Bernoulli(logits=a), obs=w.get("bad"))


def twice(x, w=None):
    w = w or {}
    a = pyro.sample("a", normal())
    with rows(x):
        pyro.sample("bad", dist.Bernoulli(logits=a), obs=w.get("bad"))
        for _ in range(2):
            pyro.sample("mood", dist.Normal(a, 1.0), obs=w.get("mood"))


def with_event(x, w=None):
    w = w or {}
    a = pyro.sample("a", normal())
    with rows(x):
        pyro.sample("bad", dist.Bernoulli(logits=a), obs=w.get("bad"))
        law = dist.Normal(a[..., None] + x, 1.0).to_event(1)
        pyro.sample("mood", law, obs=None if not w else w["mood"][:, None])


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (
            no_mood,
            r'W column \'mood\' has no site.*pyro.sample\("mood", ..., obs=w.get\("mood"\)\)',
        ),
        (twice, "two sites are called 'mood'"),
        (with_event, r"no \[..., None\] and no .to_event\(1\)"),
    ],
)
def test_a_column_has_one_site_of_one_number(model, says):
    with pytest.raises(ModelError, match=says):
        check_model(model, X, np.zeros((6, 2)), columns=CHAINED)


def test_a_value_outside_its_kind_is_named_by_row_and_unit():
    frame = table()
    frame.loc[47, "bad"] = 2.0
    with pytest.raises(
        DataError, match=r"nights: W column 'bad' holds 2 in row \d+, unit '2', step 7"
    ):
        LAW.fit(history(frame, {"mood": KINDS["mood"]}), seed=0)
    with pytest.raises(DataError, match="'mood' was never recorded"):
        LAW.fit(history(frame.assign(mood=np.nan)[:40]), seed=0)


def test_a_value_outside_its_kind_is_named_for_the_single_site_too():
    def model(x, w=None):
        b = pyro.sample("b", dist.Normal(torch.zeros(2), 1.0).to_event(1))
        with rows(x):
            logits = b[..., None, :] if b.ndim > 1 else b
            pyro.sample("w", dist.Bernoulli(logits=logits + 0 * x).to_event(1), obs=w)

    frame = table()
    frame["mood"] = (frame["mood"] > 1) * 1.0
    frame.loc[47, "mood"] = 2.0
    says = (
        r"^single: W column 'mood' holds 2 in row \d+, unit '2', step 7, which its site, Bernoulli"
    )
    with pytest.raises(DataError, match=says) as caught:
        pp.Law(model, pp.Lags(1), "single").fit(history(frame, {}), seed=0)
    assert len(str(caught.value)) < 250


def test_a_level_that_never_occurs_is_told_of():
    frame = table()
    frame.loc[frame["mood"] == 2, "mood"] = 1
    law = LAW.fit(history(frame), pp.Laplace(50), seed=0)
    assert law.record.quality["unseen_levels"] == 1.0
    assert "unseen_levels" not in fitted().record.quality


def test_a_declared_kind_that_a_law_takes_for_a_number_is_told_of():
    kinds = {"mood": KINDS["mood"], "bad": "binary"}
    declared = history(table(), kinds)
    law = pp.linear_lags(1).fit(declared, seed=0)
    assert law.record.quality["as_plain_numbers"] == 2.0
    (line,) = [c for c in convergence(law.record) if c.name == "as_plain_numbers"]
    assert line.verdict == "info"
    assert "generalised_lags" in line.text
    plain = pp.linear_lags(1).fit(history(table(), {}), seed=0)
    assert "as_plain_numbers" not in plain.record.quality


# Discrete latents of rows.


def regimes(x, w=None, form="vector"):
    zeros = torch.zeros(x.shape[-1])
    a = pyro.sample("a", normal())
    b = pyro.sample("b", dist.Normal(zeros, 1.0).to_event(1))
    c = pyro.sample("c", normal())
    d = pyro.sample("d", dist.Normal(zeros, 1.0).to_event(1))
    gap = pyro.sample("gap", dist.LogNormal(1.0, 0.3))
    sd = pyro.sample("sd", dist.LogNormal(-1.0, 0.3))
    with rows(x):
        high = pyro.sample("high", dist.Bernoulli(logits=c + (x * d).sum(-1)))
        loc = a + (x * b).sum(-1) + gap * high
        if form == "vector":
            pyro.sample("w", dist.Normal(loc[..., None], sd[..., None]).to_event(1), obs=w)
        else:
            pyro.sample("y", dist.Normal(loc, sd), obs=(w or {}).get("y"))


def summed_by_hand():
    from pathlib import Path

    return pp.law_from_file(Path(__file__).parents[2] / "models" / "regime_mixture.py")


def bumps(units=10, time=12, seed=3):
    rng = np.random.default_rng(seed)
    s = rng.standard_normal((units, time, 1))
    high = rng.random((units, time, 1)) < special.expit(0.3 + s)
    w = 0.2 + 0.5 * s + 2.5 * high + 0.4 * rng.standard_normal(s.shape)
    names = tuple(f"u{i}" for i in range(units))
    return pp.History.from_arrays(s, w, units=names, s_names=("s",), w_names=("y",))


FORMS = {form: partial(regimes, form=form) for form in ("vector", "column")}
PLACES = ("a", "b", "c", "d", "gap", "sd")


def at_places(count=3):
    rng = np.random.default_rng(5)
    draws = {name: rng.standard_normal(count) for name in PLACES}
    draws |= {name: np.exp(draws[name]) for name in ("gap", "sd")}
    return draws | {name: draws[name][:, None] for name in ("b", "d")}


@pytest.mark.parametrize("form", FORMS)
def test_a_regime_of_rows_is_summed_out_as_by_hand(form):
    from pulse_pyro._pyro.potential import Potential
    from pulse_pyro._pyro.predict import PyroKernel
    from pulse_pyro._pyro.sandbox import sandbox
    from pulse_pyro._pyro.sites import summed_model

    data = bumps()
    own_law, hand = pp.Law(FORMS[form], pp.Lags(1), "own"), summed_by_hand()
    card = own_law.check(data)
    assert [site.name for site in card.enumerated] == ["high"]
    assert (card.vectorised, card.closed_mean, card.cells) == (True, True, 2)
    draws, index = at_places(), np.arange(3)
    own = SitesKernel(FORMS[form], draws, card)
    other = PyroKernel(hand.model, draws, hand.check(data))
    x, w = data.s.copy(), data.w.copy()
    assert_allclose(own.mean_draws(x, index), other.mean_draws(x, index), rtol=1e-12)
    assert_allclose(own.log_density(x, w, index), other.log_density(x, w, index), rtol=1e-10)
    assert_allclose(
        own.column_log_density(x, w, index), other.column_log_density(x, w, index), rtol=1e-10
    )
    tx, tw = torch.as_tensor(x), torch.as_tensor(w)
    given = tw if form == "vector" else {"y": tw[:, 0]}
    with sandbox(0):
        names = tuple(site.name for site in card.enumerated)
        mine = Potential(summed_model(FORMS[form], names, card.nesting), (tx, given), "own")
        theirs = Potential(hand.model, (tx, tw), "hand")
        for scale in (0.0, 0.5, 1.0):
            u = theirs.mode + scale * torch.randn(theirs.dim)
            assert abs(float(mine.energy(u) - theirs.energy(u))) < 1e-8


def shared_switch(x, w=None):
    on = pyro.sample("on", dist.Bernoulli(0.5))
    a = pyro.sample("a", normal())
    with rows(x):
        pyro.sample("y", dist.Normal(a * on, 1.0), obs=(w or {}).get("y"))


def endless(x, w=None):
    a = pyro.sample("a", normal())
    with rows(x):
        n = pyro.sample("n", dist.Poisson(3.0))
        pyro.sample("y", dist.Normal(a * n, 1.0), obs=(w or {}).get("y"))


@pytest.mark.parametrize(
    ("model", "says"),
    [(shared_switch, r'pyro.sample\("on", '), (endless, r'pyro.sample\("n", dist.Categorical')],
)
def test_what_cannot_be_summed_over_is_refused_with_a_line_to_write(model, says):
    with pytest.raises(ModelError, match=says):
        pp.Law(model, pp.Lags(1), "odd").fit(bumps(), seed=0)


# A categorical column: one site of codes, and 0/1 columns for everybody else.


PLACE = ("home", "work", "else")
PLACE_DRAWS = {"c": RNG.standard_normal((4, 3)), "k": RNG.standard_normal((4, 3))}


def placed(x, w=None):
    """Where somebody is, one of three, and a mood that depends on it."""
    w = w or {}
    c, k = (pyro.sample(n, dist.Normal(torch.zeros(3), 1.0).to_event(1)) for n in ("c", "k"))
    with rows(x):
        place = pyro.sample("place", dist.Categorical(logits=c * x[..., :1]), obs=w.get("place"))
        line = Vindex(k)[..., place.long()] + x[..., 0]
        cuts = torch.tensor([-1.0, 0.0, 1.0])
        pyro.sample("mood", dist.OrderedLogistic(line, cuts), obs=w.get("mood"))


def placed_table(n=400, units=10, seed=1):
    rng = np.random.default_rng(seed)
    s = rng.standard_normal(n)
    logits = s[:, None] * np.array([0.0, 1.0, -0.5])
    place = (logits + rng.gumbel(size=(n, 3))).argmax(1)
    mood = 1 + np.digitize(s + (place == 1) + rng.logistic(size=n), [-1.0, 0.0, 1.0])
    frame = {"u": np.arange(n) % units, "t": np.arange(n) // units, "s": s, "mood": mood}
    return pd.DataFrame(frame | {"place": np.array(PLACE)[place]})


def placed_history(frame, missing=("place", "mood")):
    kinds = {
        "place": Column("place", kind="categorical", levels=PLACE),
        "mood": Column("mood", kind="ordinal", levels=(1, 2, 3, 4)),
    }
    kinds = {name: kinds[name] for name in missing}
    roles = {"observed": ["s"], "missing": list(missing), "kinds": kinds}
    return pp.History.from_frame(frame, unit="u", time="t", **roles)


def test_a_categorical_column_is_codes_inside_and_0_or_1_outside():
    levels = {"levels": ((), (1.0, 2.0, 3.0, 4.0)), "widths": (2, 1)}
    own = kernel(placed, ("place", "mood"), 3, PLACE_DRAWS, **levels)
    line = PLACE_DRAWS["c"][:, None] * X
    place = special.softmax(line, -1)  # (draws, rows, 3)
    at = PLACE_DRAWS["k"][:, None] + X
    below = special.expit(np.array([-1.0, 0.0, 1.0]) - at[..., None])
    ends = [np.zeros((*at.shape, 1)), below, np.ones((*at.shape, 1))]
    mood = np.diff(np.concatenate(ends, -1), axis=-1)  # (draws, rows, 3, 4)
    index = np.arange(4)
    found = own.mean_draws(X, index)
    assert own.exact_mean
    assert_allclose(found[..., :2], place[..., 1:], rtol=1e-12)
    total = np.einsum("mnp,mnpk->mnk", place, mood)
    assert_allclose(found[..., 2], total @ [1.0, 2.0, 3.0, 4.0], rtol=1e-12)
    w = np.tile([0.0, 1.0, 3.0], (6, 1))
    joint = np.exp(own.log_density(X, w, index))
    assert_allclose(joint, place[..., 2] * mood[:, :, 2, 2], rtol=1e-12)
    each = np.exp(own.column_log_density(X, w, index))
    assert_allclose(each[..., 0], 1.0 - place[..., 1], rtol=1e-12)
    assert_allclose(each[..., 1], place[..., 2], rtol=1e-12)
    assert_allclose(each[..., 2], total[..., 2], rtol=1e-12)
    cdf = own.cdf_draws(X, w + np.array([0.5, 0.0, 0.0]), index)
    assert_allclose(cdf[..., 0], 1.0 - place[..., 1], rtol=1e-12)
    assert_allclose(cdf[..., 1], 1.0, rtol=1e-12)
    in_two_places = w + np.array([1.0, 0.0, 0.0])
    assert np.isneginf(own.log_density(X, in_two_places, index)).all()
    drawn = own.sample(X, np.tile(index, 4000), np.random.default_rng(0))
    assert set(drawn[..., :2].sum(-1).ravel()) == {0.0, 1.0}
    assert_mean(drawn - own.mean_draws(X, np.tile(index, 4000)), 0.0)


def test_a_law_of_a_categorical_column_agrees_with_the_one_that_is_built_in(tmp_path):
    def model(x, w=None):
        w = w or {}
        a, b = (pyro.sample(n, dist.Normal(torch.zeros(2), 2.5).to_event(1)) for n in "ab")
        line = a + b * x[..., :1]
        logits = torch.cat([torch.zeros_like(line[..., :1]), line], -1)
        with rows(x):
            pyro.sample("place", dist.Categorical(logits=logits), obs=w.get("place"))

    fit, held_out = placed_history(placed_table(400, 16), ("place",)).split(seed=0)
    law = pp.Law(model, pp.Lags(1), "place").fit(fit, pp.Laplace(1000), seed=0)
    built_in = pp.generalised_lags(1).fit(fit, pp.Laplace(1000), seed=0)
    assert law.card.vectorised
    ours, theirs = law(held_out), built_in(held_out)
    assert_allclose(ours.mean(), theirs.mean(), atol=0.02)  # their priors differ a little
    assert_allclose(ours.log_density(held_out.w), theirs.log_density(held_out.w), atol=0.1)
    save(law, tmp_path / "law")
    assert_array_equal(load(tmp_path / "law", law=law.law)(held_out).mean(), ours.mean())
    told = law.to_arviz(held_out, size=20)
    assert list(told["log_likelihood"].data_vars)[:2] == ["place[work]", "place[else]"]
    assert pp.diagnose(law, held_out, seed=0).verdict != "fail"


def test_a_categorical_column_with_gaps_is_fitted_beside_another():
    frame = placed_table()
    frame.loc[::7, "place"] = None
    history = placed_history(frame)
    law = pp.Law(placed, pp.Lags(1), "placed").fit(history, pp.Laplace(200), seed=0)
    assert law.record.rows == 400  # the mood of every row is there
    phi = pp.Features(lambda s, w, a: a * w[:, :1] * w[:, 2:], 2, ("work*mood*a",))
    assert np.isfinite(law(history, [0]).expect(phi, size=50, rng=RNG).mean).all()
    others = placed_history(placed_table(seed=2).assign(u=lambda frame: frame["u"] + 90))
    mood = pp.terms(["1", "mood*a"], 2, observed=["s"], missing=history.w_names)
    assert pp.calibrate(law, others, mood, seed=0).law_id == law.id


def test_a_site_must_have_the_levels_its_column_is_declared_with():
    def normal_place(x, w=None):
        w = w or {}
        a = pyro.sample("a", normal())
        with rows(x):
            pyro.sample("place", dist.Normal(a, 1.0), obs=w.get("place"))

    def four(x, w=None):
        w = w or {}
        c = pyro.sample("c", dist.Normal(torch.zeros(4), 1.0).to_event(1))
        with rows(x):
            pyro.sample("place", dist.Categorical(logits=c * x[..., :1]), obs=w.get("place"))

    history = placed_history(placed_table(40), ("place",))
    for model, found in ((normal_place, "Normal, takes no few values"), (four, "takes 4 values")):
        with pytest.raises(ModelError, match=rf"'place' .* 3 levels, home, .*{found}.*3 codes"):
            pp.Law(model, pp.Lags(1)).check(history)
