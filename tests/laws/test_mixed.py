"""Columns of W of different kinds, in turn: brute force, everything after a fit, refusals."""

from itertools import product

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import special, stats

import pulse_pyro as pp
from pulse_pyro.base import Column
from tests.helpers import FALSE_ALARM

LEVELS = (1, 2, 4)
KINDS = {
    "slept": "binary",
    "mood": Column("mood", kind="ordinal", levels=LEVELS),
    "calls": "count",
}


def made(units=60, time=12, seed=0, columns=("pulse", "slept", "calls", "mood")):
    """An archive whose columns depend on each other: slept -> mood -> pulse -> calls."""
    rng = np.random.default_rng(seed)
    s = rng.standard_normal(units * time)
    slept = (rng.random(len(s)) < special.expit(s)).astype(float)
    level = ((rng.logistic(size=len(s)) + s + 1.5 * slept)[:, None] > [0.0, 1.5]).sum(-1)
    mood = np.array(LEVELS)[level]
    pulse = 60.0 + 5.0 * (s - slept + 0.5 * mood + rng.standard_normal(len(s)))
    calls = rng.poisson(np.exp(0.3 * s + 0.1 * (pulse - 60.0)))
    unit, day = (each.ravel() for each in np.indices((units, time)))
    frame = pd.DataFrame({"id": unit, "day": day, "s": s, "slept": slept})
    frame = frame.assign(mood=mood, pulse=pulse, calls=calls)
    return pp.History.from_frame(
        frame,
        unit="id",
        time="day",
        observed=["s"],
        missing=list(columns),
        kinds={name: kind for name, kind in KINDS.items() if name in columns},
    )


@pytest.fixture(scope="module")
def parts():
    fit, held_out = made(units=120).split(0.5, seed=0)
    law = pp.laws.mixed_lags(1).fit(fit, pp.Laplace(200), seed=0)
    return law, fit, held_out


@pytest.fixture(scope="module")
def finite():
    fit, held_out = made(units=120, columns=("mood", "slept")).split(0.5, seed=0)
    return pp.laws.mixed_lags(1).fit(fit, pp.Laplace(200), seed=0), fit, held_out


def by_hand(law, x):
    """Chances of slept and mood, mean and sd of pulse given them, predictor of calls, by loops."""
    draws = law.draws
    z = {part.name: part for part in law.law.family.parts}
    out = []
    for (a, low), (b, high) in product(enumerate((0.0, 1.0)), enumerate(LEVELS)):
        seen = np.array(
            [
                (low - z["slept"].centre[0]) / z["slept"].scale[0],
                (high - z["mood"].centre[0]) / z["mood"].scale[0],
            ]
        )
        for m in range(len(draws["slept_slope"])):
            one = special.expit(draws["slept_intercept"][m, 0] + x * draws["slept_slope"][m, 0, 0])
            share = draws["mood_share"][m].cumsum()[:2]
            eta = x * draws["mood_slope"][m, 0, 0] + seen[0] * draws["mood_link"][m, 0, 0]
            below = np.array([0.0, *special.expit(special.logit(share) - eta), 1.0])
            chance = (one if a else 1.0 - one) * (below[b + 1] - below[b])
            mean = draws["pulse_intercept"][m, 0] + x * draws["pulse_slope"][m, 0, 0]
            mean += seen @ draws["pulse_link"][m, :, 0]
            count = draws["calls_intercept"][m, 0] + x * draws["calls_slope"][m, 0, 0]
            link = draws["calls_link"][m, :, 0]
            count += seen @ link[:2]
            sd = draws["pulse_sd"][m]
            over = draws["calls_overdispersion"][m] + 1e-6
            out.append((low, high, chance, mean, sd, count, link[2], over))
    return np.array(out).T


def test_means_and_densities_are_those_of_loops_over_cells_and_draws(parts):
    law, _, held_out = parts
    x = (held_out.s[:1] - law.scaler.x_mean) / law.scaler.x_scale
    low, high, chance, mean, sd, count, link, over = by_hand(law, x[0, 0])
    chance = chance / len(law.draws["slept_slope"])
    assert_allclose(chance.sum(), 1.0)
    given = law(held_out, [0])
    centre, scale = law.scaler.w_mean[0], law.scaler.w_scale[0]
    # the mean of exp(normal), in closed form
    calls = np.exp(count + link * mean + 0.5 * (link * sd) ** 2)
    wanted = [(chance * each).sum() for each in (centre + scale * mean, low, calls, high)]
    assert held_out.w_names == ("pulse", "slept", "calls", "mood")
    assert_allclose(given.mean()[0], wanted, rtol=1e-9)
    w = held_out.w[:1]
    pulse = (w[0, 0] - centre) / scale
    cdf = given.cdf(w)[0]
    assert_allclose(cdf[0], (chance * stats.norm.cdf(pulse, mean, sd)).sum(), rtol=1e-9)
    assert_allclose(cdf[3], chance[high <= w[0, 3]].sum(), rtol=1e-9)
    grid = np.linspace(-8.0, 8.0, 4001)
    rate = np.exp((count + link * mean)[:, None] + (link * sd)[:, None] * grid)
    shape = (1.0 / over)[:, None]
    each = stats.nbinom.cdf(w[0, 2], shape, shape / (shape + rate))
    weight = stats.norm.pdf(grid) * (grid[1] - grid[0])
    assert_allclose(cdf[2], (chance * (each @ weight)).sum(), rtol=1e-6)
    density = given.log_density(w)[0]
    assert_allclose(
        density[0], np.log((chance * stats.norm.pdf(pulse, mean, sd)).sum() / scale), rtol=1e-9
    )
    assert_allclose(density[1], np.log(chance[low == w[0, 1]].sum()), rtol=1e-9)


def test_numpy_and_pyro_say_the_same(parts):
    import torch

    from pulse_pyro._pyro.predict import run_at_draws
    from pulse_pyro._pyro.sandbox import sandbox

    law, fit, _ = parts
    data, settled = law.law.prepare(fit)
    assert law.card.vectorised
    x, w, index = data.x[:30], data.w[:30], np.array([3, 100, 150])
    with sandbox(0, "test"), torch.no_grad():
        draws = {name: torch.tensor(value[index]) for name, value in law.draws.items()}
        fn = run_at_draws(settled.model_for(1, 4), torch.as_tensor(x), draws, law.card)
        theirs = fn.log_prob(torch.as_tensor(w)).numpy()
    ours = law.kernel.log_density(x, law.scaler.w_in(fit.w[data.rows.at[:30]]), index)
    assert_allclose(ours, theirs, atol=1e-9)


def test_draws_agree_with_closed_forms(parts):
    law, _, held_out = parts
    given = law(held_out, [0, 1, 2])
    drawn = given.draws(20_000, rng=np.random.default_rng(0))
    error = drawn.std(0) / np.sqrt(len(drawn))
    assert (np.abs(drawn.mean(0) - given.mean()) < 5.0 * error).all()
    w = np.array([[62.0, 0.0, 1.0, 2.0]] * 3)
    share = (drawn <= w).mean(0)
    assert (np.abs(share - given.cdf(w)) < 5.0 * np.sqrt(0.25 / len(drawn))).all()
    both = np.corrcoef(drawn[:, 0].T)
    assert both[1, 3] > 0.1  # slept and mood: a chain keeps them together
    assert both[0, 3] > 0.1


def test_features_are_exact_where_they_are_affine_in_numbers_and_counts(parts):
    law, _, held_out = parts
    given = law(held_out, [0, 1])

    def fn(s, w, a):
        return a * np.stack([w[:, 0] * (w[:, 3] <= 2.0) * w[:, 1], w[:, 2] * w[:, 3] ** 2], -1)

    phi = pp.Features(fn, 2, ("one", "two"))
    found = given.expect(phi, size=2, rng=None)
    assert found.exact
    drawn = given.draws(20_000, rng=np.random.default_rng(1))
    for i in range(2):
        each = fn(None, drawn[:, i], 1)
        error = each.std(0) / np.sqrt(len(each))
        assert (np.abs(each.mean(0) - found.mean[i, 1]) < 5.0 * error).all()
    square = pp.Features(lambda s, w, a: a * w[:, :1] ** 2, 2, ("square",))
    assert not given.expect(square, size=50, rng=np.random.default_rng(0)).exact


def test_everything_finite_is_a_sum_over_cells(finite):
    law, _, held_out = finite
    given = law(held_out)
    assert given.support.shape == (6, 2)
    assert_allclose(given.probabilities().sum(-1), 1.0)
    phi = pp.Features(lambda s, w, a: a * np.exp(w[:, :1] * w[:, 1:]), 2, ("exp",))
    found = given.expect(phi, size=2, rng=None)
    brute = given.probabilities() @ np.exp(given.support.prod(-1))
    assert_allclose(found.mean[:, 1, 0], brute, rtol=1e-12)


def test_columns_without_a_chain_are_independent():
    history = made(columns=("mood", "slept"))
    law = pp.laws.mixed_lags(1, chain=False).fit(history, pp.Laplace(100), seed=0)
    alone = pp.generalised_lags(1).fit(made(columns=("slept",)), pp.Laplace(2000), seed=0)
    assert not any(name.endswith("link") for name in law.draws)
    given = law(history, [0]).mean()[0, 1]
    assert_allclose(given, alone(history.s[None, :1], [0]).mean()[0, 0], atol=0.02)


def test_an_unseen_input_is_averaged_over(parts):
    law = parts[0]
    s = np.full((1, 1, 1), np.nan)
    assert np.isfinite(law(s).mean()).all()
    points, chance = law.cells_at(s[0])
    assert_allclose(chance.sum(), 1.0)
    assert_allclose((chance[..., None] * points).sum(1), law(s).mean())


def test_from_an_archive_to_a_policy_and_back(parts, tmp_path):
    law, fit, held_out = parts
    card = pp.laws.mixed_lags(1).check(fit)
    assert {site.name for site in card.globals} == set(law.draws)
    assert pp.diagnose(law, held_out, seed=0, archive=fit).verdict in ("pass", "warn")
    names = held_out.w_names
    phi = pp.terms(["1", "s", "pulse*a", "slept*mood*a"], 2, observed=["s"], missing=names)
    found = pp.calibrate(law, held_out, phi, groups=["s"], seed=0)
    verdicts = {rung.name: rung.verdict for rung in found.rungs}
    assert verdicts["forecast"] in ("stands", "conditional")
    assert verdicts["groups"] in ("stands", "conditional")
    assert found.parts[0].failures == 0.0  # no Monte Carlo
    bot = pp.PulseUCB(law, phi, pp.constant(2.0))
    s = held_out.grid.s[0]
    for t in range(4):
        bot.learn(bot.act(s[t]), float(t))
    pp.save(bot, tmp_path / "bot")
    again = pp.load(tmp_path / "bot", features=phi)
    assert_array_equal(bot.act(s[5]).x, again.act(s[5]).x)
    pp.save(law, tmp_path / "law")
    for same in (
        pp.load(tmp_path / "law"),
        pp.load(tmp_path / "law", law=pp.laws.mixed_lags(1)),
    ):
        assert same.id == law.id
        assert_array_equal(same(held_out).mean(), law(held_out).mean())
    with pytest.raises(pp.PulseError, match="mixed_lags"):
        pp.load(tmp_path / "law", law=pp.laws.mixed_lags(1, chain=False))


def test_arviz_names_columns_and_inputs(parts):
    import arviz as az

    law, fit, _ = parts
    tree = law.to_arviz(fit.take(range(3)), size=20)
    names = az.summary(tree, kind="stats").index
    assert any(name.startswith("mood_slope[s.lag0") for name in names)
    assert list(tree["posterior_predictive"].data_vars) == list(law.schema.w_names)
    assert list(tree["log_likelihood"].data_vars) == [*law.schema.w_names, "joint"]


def test_a_wrong_law_is_caught(parts):
    law, held_out = parts[0], parts[2].take(range(20))
    flipped = pp.History(
        -held_out.s, held_out.w, held_out.offsets, held_out.step, held_out.units, held_out.schema
    )
    assert pp.diagnose(law, flipped, seed=0).verdict == "fail"


def test_sbc_takes_it():
    history = made(units=10, time=6, columns=("pulse", "slept"))
    found = pp.sbc(pp.laws.mixed_lags(1), history, pp.Laplace(100), replications=20, seed=0)
    assert "pulse_link" in found.names
    assert found.p_value > FALSE_ALARM


def test_bad_settings_are_refused():
    with pytest.raises(pp.PulseError, match="bernouli"):
        pp.laws.mixed_lags(1, {"slept": "bernouli"})
    with pytest.raises(pp.PulseError, match="chain"):
        pp.laws.mixed_lags(1, chain="yes")
    history = made(units=4)
    with pytest.raises(pp.PulseError, match="sleep"):
        pp.laws.mixed_lags(1, {"sleep": "bernoulli"}).check(history)
    with pytest.raises(pp.PulseError, match="pulse"):
        pp.laws.mixed_lags(1, {"pulse": "bernoulli"}).check(history)
