"""A law with a state whose W are levels, categories, counts: sums by hand, values that clash."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pyro
import pyro.distributions as dist
import pytest
import torch
from numpy.testing import assert_allclose
from pyro.ops.indexing import Vindex
from scipy import special

from pulse_pyro import Features, History, Laplace, StepLaw, diagnose
from pulse_pyro._core.errors import DataError, ModelError
from pulse_pyro.base import Column
from tests.helpers import assert_mean
from tests.laws.step_programs import at_truth

MOODS, PLACES = (1.0, 2.0, 3.0, 5.0), ("home", "work", "else")
KINDS = {
    "mood": Column("mood", kind="ordinal", levels=(1, 2, 3, 5)),
    "place": Column("place", kind="categorical", levels=PLACES),
}
CUTS = np.array([-1.0, 0.0, 1.0])
TRUTH = {"k": [-1.0, 1.5], "stay": 0.8}


def prior():
    return {
        "k": pyro.sample("k", dist.Normal(torch.zeros(2), 1.0).to_event(1)),
        "stay": pyro.sample("stay", dist.Beta(8.0, 2.0)),
    }


def first(p):
    pyro.sample("z", dist.Categorical(torch.tensor([0.5, 0.5])))


def state(p, z):
    keep = p["stay"][..., None] * torch.ones(2)
    move = torch.where(torch.arange(2) == z[..., None], keep, 1.0 - keep)
    z = pyro.sample("z", dist.Categorical(move))
    pyro.sample("s", dist.Normal(z.double(), 1.0))
    return Vindex(p["k"])[..., z]


def step(p, z, s_past):
    k = state(p, z)
    pyro.sample("mood", dist.OrderedLogistic(k, torch.tensor(CUTS)))
    pyro.sample("place", dist.Categorical(logits=torch.stack([0.0 * k, k, -k], -1)))


def counted(p, z, s_past):
    k = state(p, z)
    pyro.sample("mood", dist.OrderedLogistic(k, torch.tensor(CUTS)))
    pyro.sample("calls", dist.Poisson(torch.exp(k)))


def table(units=6, time=8, seed=0):
    rng = np.random.default_rng(seed)
    n = units * time
    index = {"id": np.repeat([f"u{i}" for i in range(units)], time), "t": [*range(time)] * units}
    return pd.DataFrame(index).assign(
        s=rng.standard_normal(n),
        mood=rng.choice(MOODS, n).astype(int),
        place=rng.choice(PLACES, n),
        calls=rng.poisson(1.0, n),
    )


def archive(frame, *missing):
    kinds = {name: KINDS[name] for name in missing if name in KINDS}
    return History.from_frame(
        frame, unit="id", time="t", observed=["s"], missing=list(missing), kinds=kinds
    )


def chances_by_hand(s, k):
    """P(mood), P(place), P(z), each (time, ...) given s (time,), by the forward algorithm."""
    move, weight, out = np.array([[0.8, 0.2], [0.2, 0.8]]), np.array([0.5, 0.5]), []
    for value in s:
        weight = (weight @ move) * np.exp(-0.5 * (value - np.arange(2)) ** 2)
        weight = weight / weight.sum()
        out.append(weight)
    below = special.expit(CUTS - np.array(k)[:, None])
    mood = np.diff(np.pad(below, ((0, 0), (1, 1)), constant_values=((0, 0), (0, 1))), axis=1)
    place = special.softmax(np.stack([np.zeros(2), k, -np.array(k)], -1), axis=-1)
    return mood, place, np.array(out)


def phi_of(width):
    def phi(s, w, a):
        low, same = w[:, 0] <= 2.0, (w[:, 0] == 5.0) * w[:, -1]
        return np.column_stack([np.ones(len(s)), a * low, s[:, 0] * same])

    return Features(phi, 2, ("1", "low*a", "s*same"))


def test_levels_and_categories_are_summed_exactly_in_the_declared_numbers():
    history = archive(table(), "mood", "place")
    law = at_truth(StepLaw(prior, first, step, name="two kinds"), history, TRUTH)
    asked = law(history, at=np.arange(8))
    mood, place, state_chance = chances_by_hand(history.s[:8, 0], TRUTH["k"])
    numbers, ones = np.array(MOODS), np.eye(3)[:, 1:]
    by_hand = np.concatenate(
        [state_chance @ mood @ numbers[:, None], state_chance @ place @ ones], 1
    )
    assert asked.exact
    assert asked.closed_cdf
    assert_allclose(asked.mean(), by_hand, rtol=1e-12)
    assert_allclose(law.follow().push(history.s[0]).mean(), by_hand[:1], rtol=1e-12)
    phi = phi_of(3)
    found = asked.expect(phi, size=2, rng=np.random.default_rng(0))
    want = np.zeros_like(found.mean)
    for i in range(4):
        for j in range(3):
            chance = state_chance @ (mood[:, i] * place[:, j])
            w = np.tile(np.concatenate([[numbers[i]], ones[j]]), (8, 1))
            for a in range(2):
                want[:, a] += chance[:, None] * phi(history.s[:8], w, a)
    assert found.exact
    assert not found.mcse.any()
    assert_allclose(found.mean, want, rtol=0, atol=1e-12)
    w = np.tile([2.5, 0.0, 1.0], (8, 1))
    below = [state_chance @ mood[:, :2].sum(1), 1.0 - by_hand[:, 1], np.ones(8)]
    assert_allclose(asked.cdf(w), np.stack(below, 1), rtol=1e-12)
    w = np.tile([5.0, 0.0, 1.0], (8, 1))
    both = state_chance @ (mood[:, 3] * place[:, 2])
    assert_allclose(np.exp(asked.joint_log_density(w)), both, rtol=1e-12)
    each = [state_chance @ mood[:, 3], 1.0 - by_hand[:, 1], by_hand[:, 2]]
    assert_allclose(np.exp(asked.log_density(w)), np.stack(each, 1), rtol=1e-12)
    assert np.isneginf(asked.joint_log_density(np.tile([4.0, 0.0, 1.0], (8, 1)))).all()
    drawn = asked.draws(4000, rng=np.random.default_rng(0))
    assert set(np.unique(drawn[..., 0])) == set(MOODS)
    assert_mean(drawn, by_hand)
    away = drawn - by_hand
    assert_mean(away[..., :, None] * away[..., None, :], asked.covariance())


def test_counts_beside_levels_are_exact_where_phi_is_a_line_in_the_counts():
    history = archive(table(), "mood", "calls")
    law = at_truth(StepLaw(prior, first, counted, name="counts"), history, TRUTH)
    asked = law(history, at=np.arange(8))
    assert asked.support is None
    mood, _, state_chance = chances_by_hand(history.s[:8, 0], TRUTH["k"])
    found = asked.expect(phi_of(2), size=2, rng=np.random.default_rng(0))
    both = state_chance @ (mood[:, 3] * np.exp(TRUTH["k"]))
    assert found.exact
    assert_allclose(found.mean[:, 1, 2], history.s[:8, 0] * both, rtol=1e-10)
    assert_allclose(found.mean[:, 1, 1], state_chance @ mood[:, :2].sum(1), rtol=1e-12)
    drawn = asked.draws(4000, rng=np.random.default_rng(0))
    assert_mean((drawn[..., 0] == 5.0) * drawn[..., 1], both)


def test_levels_are_fitted_simulated_and_judged():
    blank = archive(table(units=24), "mood", "place")
    law = StepLaw(prior, first, step, name="two kinds")
    made = law.simulate(blank, 1, seed=0)
    assert set(np.unique(made.w[0, ..., 0])) <= set(MOODS)
    history = replace(blank, s=made.s[0].reshape(-1, 1), w=made.w[0].reshape(-1, 3))
    fit, held_out = history.split(seed=0)
    fitted = law.fit(fit, Laplace(draws=60), seed=0)
    for name, value in made.truth.items():
        drawn = fitted.draws[name]
        assert (np.abs(drawn.mean(0) - value[0]) < 6.0 * drawn.std(0)).all()
    assert diagnose(fitted, held_out, seed=0).table.loc["pit mood", "verdict"] in ("pass", "warn")


def test_a_value_its_site_cannot_have_is_named():
    frame = table()
    law = StepLaw(prior, first, counted, name="counts")
    frame.loc[11, "calls"] = -2
    with pytest.raises(DataError, match=r"'calls' is -2 in row 11 .*'u1', step 3.*Poisson") as said:
        law.check(archive(frame, "mood", "calls"))
    assert len(str(said.value).splitlines()) == 1
    history = archive(table(), "mood", "calls")
    w = history.w.copy()
    w[5, 0] = 4.0
    outside = replace(history, w=w)
    with pytest.raises(DataError, match=r"'mood' is 4 in row 5 .*'u0', step 5.*OrderedLogistic"):
        law.fit(outside, seed=0)
    follower = at_truth(law, history, TRUTH).follow()
    for w in ([4.0, 1.0], [2.0, -1.0], [2.0, 0.5]):
        with pytest.raises(DataError, match="cannot be that"):
            follower.push([0.0], w)
    with pytest.raises(DataError, match="2 numbers"):
        follower.condition_on([2.0])
    follower.condition_on([2.0, np.nan])


def nan_mean(p, z, s_past):
    k = state(p, z)
    pyro.sample("mood", dist.Cauchy(k, 1.0))


def too_few(p, z, s_past):
    k = state(p, z)
    pyro.sample("mood", dist.OrderedLogistic(k, torch.tensor(CUTS[:2])))


def number(p, z, s_past):
    k = state(p, z)
    pyro.sample("place", dist.Normal(k, 1.0))


@pytest.mark.parametrize(
    ("program", "column", "says"),
    [
        (nan_mean, "mood", "the mean of column 'mood', Cauchy, is NaN"),
        (too_few, "mood", "declared with 4 levels, but its site, OrderedLogistic, takes 3"),
        (number, "place", "category of 3 levels, but its site is Normal"),
    ],
)
def test_what_would_answer_nan_is_refused_before_any_fit(program, column, says):
    with pytest.raises(ModelError, match=says):
        StepLaw(prior, first, program).check(archive(table(), column))


def test_levels_taken_as_numbers_stay_numbers():
    def line(p, z, s_past):
        pyro.sample("mood", dist.Normal(state(p, z), 1.0))

    history = archive(table(), "mood")
    law = at_truth(StepLaw(prior, first, line), history, TRUTH)
    assert law.card.values == ((),)
    assert_allclose(law.program.encoded(history.w), history.w)
