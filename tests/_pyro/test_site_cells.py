"""E[Phi] of a custom law as a sum over the values that its columns take together."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pyro
import pyro.distributions as dist
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy import special, stats

import pulse_pyro as pp
from pulse_pyro.base import Column
from tests._pyro.test_sites import DRAWS, RNG, X, by_hand, chained, normal, rows
from tests.helpers import assert_mean


def at_draws(model, draws, columns, **changes):
    """A law as if it had been fitted, at given draws."""
    names = tuple(name for name, _ in columns)
    w_columns = tuple(Column(name, "W", kind, levels) for name, (kind, levels) in columns)
    width = sum(len(column.names) for column in w_columns)
    frame = {"u": np.arange(12) % 3, "t": np.arange(12) // 3, "s": np.tile(X[:, 0], 2)}
    frame |= {c.name: np.resize(c.levels or (0.0, 1.0), 12) for c in w_columns}
    history = pp.History.from_frame(
        pd.DataFrame(frame), unit="u", time="t", observed=["s"], missing=list(names),
        kinds={c.name: c for c in w_columns},
    )  # fmt: skip
    law = pp.Law(model, pp.Lags(1), "given")
    whole = law.fit(history, pp.Laplace(50), seed=0)
    assert whole.card.w_dim == width
    return replace(whole, draws=draws, card=replace(whole.card, **changes)), history


CHAINED_COLUMNS = (("mood", ("ordinal", (1, 2, 5))), ("bad", ("binary", ())))


@pytest.mark.parametrize("vectorised", [True, False])
def test_expected_features_are_sums_over_all_cells(vectorised):
    law, history = at_draws(chained, DRAWS, CHAINED_COLUMNS, vectorised=vectorised)
    bad, mood = by_hand()
    chance = np.stack([1.0 - bad, bad], -1)[..., None] * mood  # (draws, rows, bad, level)
    phi = pp.Features(lambda s, w, a: a * (w[:, :1] <= 2) * w[:, 1:] * np.exp(s), 2, ("x",))
    for at in (np.arange(12), [4]):
        asked = law(history, at)
        row = np.array([int(np.flatnonzero(X[:, 0] == s)[0]) for s in asked.s[:, 0]])
        found = asked.expect(phi, size=2, rng=RNG)
        assert found.exact
        assert found.size == 0
        expected = chance[:, row, 1, :2].sum(-1).mean(0) * np.exp(asked.s[:, 0])
        assert_allclose(found.mean[:, 1, 0], expected, rtol=1e-12)
        assert asked.closed_cdf
        assert_array_equal(asked.support[:, 0], [1.0, 1.0, 2.0, 2.0, 5.0, 5.0])
        w = np.tile([2.0, 0.0], (len(row), 1))
        both = chance[:, row].mean(0)
        assert_allclose(asked.cdf(w)[:, 0], both[..., :2].sum((1, 2)), rtol=1e-12)
        assert_allclose(asked.cdf(w)[:, 1], both[:, 0].sum(-1), rtol=1e-12)
        assert_allclose(np.exp(asked.joint_log_density(w)), both[:, 0, 1], rtol=1e-12)
        assert_allclose(np.exp(asked.log_density(w))[:, 0], both[..., 1].sum(1), rtol=1e-12)


def test_an_ordinal_row_by_row_with_a_latent_is_summed_to_the_last_digit():
    def model(x, w=None):
        """Levels that a 0/1 latent of the row, a normal one and a 0/1 column all move."""
        w = w or {}
        a, b = (pyro.sample(name, normal()) for name in "ab")
        cuts = torch.tensor([-1.0, 0.0, 1.5])
        with rows(x):
            off = pyro.sample("off", dist.Bernoulli(logits=b + x[..., 0]))
            bad = pyro.sample("bad", dist.Bernoulli(0.3), obs=w.get("bad"))
            line = a * x[..., 0] + off - b * bad
            pyro.sample("mood", dist.OrderedLogistic(line, cuts), obs=w.get("mood"))

    draws = {name: DRAWS[name] for name in "ab"}
    columns = (("mood", ("ordinal", (1, 2, 3, 4))), ("bad", ("binary", ())))
    law, history = at_draws(model, draws, columns)
    asked = law(history)
    s = asked.s[:, 0]
    a, b = draws["a"][:, None], draws["b"][:, None]
    total = np.zeros((len(s), 4, 2))
    for off in range(2):
        for bad in range(2):
            at = special.expit(np.array([-1.0, 0.0, 1.5]) - (a * s + off - b * bad)[..., None])
            ends = [np.zeros((*at.shape[:2], 1)), at, np.ones((*at.shape[:2], 1))]
            weight = special.expit((2 * off - 1) * (b + s)) * (0.3 if bad else 0.7)
            total[..., bad] += (weight[..., None] * np.diff(np.concatenate(ends, -1))).mean(0)
    assert_allclose(asked.probabilities().reshape(-1, 4, 2), total, rtol=1e-12, atol=1e-15)
    phi = pp.Features(lambda s, w, a: (w[:, :1] >= 3) * (1 - w[:, 1:]) * s, 2, ("x",))
    expected = total[:, 2:, 0].sum(-1) * s
    found = asked.expect(phi, size=2, rng=RNG).mean[:, 0, 0]
    assert_allclose(found, expected, rtol=1e-12, atol=1e-14)
    one = law(history, [3]).expect(phi, size=2, rng=RNG).mean[0, 0, 0]  # without Pyro
    assert_allclose(one, expected[3], rtol=1e-12)


def test_a_number_beside_levels_is_a_mean_in_each_cell():
    def model(x, w=None):
        w = w or {}
        a, b = (pyro.sample(name, normal()) for name in "ab")
        with rows(x):
            bad = pyro.sample("bad", dist.Bernoulli(logits=a + x[..., 0]), obs=w.get("bad"))
            pyro.sample("pulse", dist.Normal(a - b * bad, 0.5), obs=w.get("pulse"))

    draws = {name: DRAWS[name] for name in "ab"}
    law, history = at_draws(model, draws, (("pulse", ("real", ())), ("bad", ("binary", ()))))
    asked = law(history)
    phi = pp.Features(lambda s, w, a: w[:, :1] * w[:, 1:], 2, ("pulse*bad",))
    found = asked.expect(phi, size=2, rng=RNG)
    chance = special.expit(draws["a"][:, None] + asked.s[:, 0])
    expected = (chance * (draws["a"] - draws["b"])[:, None]).mean(0)
    assert found.exact
    assert_allclose(found.mean[:, 0, 0], expected, rtol=1e-12, atol=1e-14)
    assert asked.support is None
    assert asked.closed_cdf
    z = (0.2 - draws["a"][:, None] + draws["b"][:, None] * np.arange(2)[:, None, None]) / 0.5
    cdf = (chance * stats.norm.cdf(z[1]) + (1 - chance) * stats.norm.cdf(z[0])).mean(0)
    assert_allclose(asked.cdf(np.full((12, 2), 0.2))[:, 0], cdf, rtol=1e-9)
    drawn = asked.draws(40_000, rng=np.random.default_rng(0))
    assert_mean(drawn[..., 0] * drawn[..., 1], found.mean[:, 0, 0])


def test_too_many_cells_are_left_to_draws():
    def model(x, w=None):
        w = w or {}
        a = pyro.sample("a", normal())
        with rows(x):
            for name in names:
                pyro.sample(name, dist.Bernoulli(logits=a + x[..., 0]), obs=w.get(name))

    phi = pp.Features(lambda s, w, a: w.prod(-1, keepdims=True), 2, ("all",))
    for count, exact in ((12, True), (13, False)):
        names = tuple(f"bad{j}" for j in range(count))
        columns = tuple((name, ("binary", ())) for name in names)
        law, history = at_draws(model, {"a": DRAWS["a"]}, columns)
        found = law(history, [0]).expect(phi, size=500, rng=RNG)
        assert found.exact == exact
        assert found.mcse.any() != exact
        if exact:
            each = special.expit(DRAWS["a"] + history.s[0, 0])
            assert_allclose(found.mean[0, 0, 0], (each**12).mean(), rtol=1e-12)


def test_a_card_prints_the_role_and_the_cost_of_every_site():
    law, _ = at_draws(chained, DRAWS, CHAINED_COLUMNS)
    lines = [line.strip() for line in repr(law.card).splitlines()]
    assert "bad: W, 2 values" in lines
    assert "mood: W given bad, 3 values" in lines
