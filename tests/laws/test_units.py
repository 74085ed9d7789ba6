"""Natural plates of units against the closed form of a Gaussian random intercept."""

from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm

from pulse_pyro import (
    Features,
    GrowingArchive,
    History,
    Laplace,
    Law,
    Nuts,
    PulseUCB,
    Svi,
    calibrate,
    constant,
    diagnose,
    law_from_file,
    linear_lags,
)
from pulse_pyro._core.errors import DataError, ModelError, RewardError, SettingError
from pulse_pyro._core.saved import load, save
from pulse_pyro._pyro.potential import Potential
from pulse_pyro._pyro.sandbox import sandbox
from pulse_pyro._pyro.unit_posterior import UnitPosterior, drawn_anew
from pulse_pyro._pyro.unit_potential import UnitPotential
from pulse_pyro._pyro.units import UnitKernel
from pulse_pyro.data.summary import Identity
from pulse_pyro.diagnostics.case import HeldOut, predictions
from pulse_pyro.laws import with_memory
from tests.helpers import z_bound

BETWEEN, SD, DRAWS = 0.8, 0.5, 1500
FOLDER = Path(__file__).parents[2] / "models"


def levels(x, w=None, unit=None):
    """One unknown number beside the levels: everything about it is Gaussian."""
    a = pyro.sample("a", dist.Normal(0.0, 10.0))
    with pyro.plate("units", int(unit.max()) + 1, dim=-1):
        level = pyro.sample("level", dist.Normal(0.0, BETWEEN))
    with pyro.plate("rows", x.shape[-2], dim=-1):
        loc = a + level[..., unit] + x[..., 0]
        pyro.sample("w", dist.Normal(loc[..., None], SD).to_event(1), obs=w)


def people(units=12, time=6, prefix="u", seed=0):
    rng = np.random.default_rng(seed)
    s = rng.standard_normal((units, time, 1))
    level = BETWEEN * rng.standard_normal((units, 1, 1))
    w = 0.4 + level + s + SD * rng.standard_normal(s.shape)
    names = tuple(f"{prefix}{i}" for i in range(units))
    return History.from_arrays(s, w, units=names, s_names=("s",), w_names=("w",))


def joint(history, more=(), sd=SD):
    """Posterior mean and covariance of (a, levels of the archive, level of a new unit).

    more : w - s of the new unit that were revealed.
    """
    units = len(history.units)
    rest = np.concatenate([(history.w - history.s)[:, 0], more])
    design = np.zeros((len(rest), units + 2))
    design[:, 0] = 1.0
    owner = np.concatenate([history.unit_of, np.full(len(more), units)])
    design[np.arange(len(rest)), 1 + owner] = 1.0
    precision = design.T @ design / sd**2
    precision += np.diag([0.01, *np.full(units + 1, BETWEEN**-2)])
    cov = np.linalg.inv(precision)
    return cov @ design.T @ rest / sd**2, cov


@cache
def fitted(draws=DRAWS):
    return Law(levels, Identity()).fit(people(), Laplace(draws=draws), seed=0)


def same(drawn, mean, var):
    """Means and variances of independent draws."""
    error = np.sqrt(var / len(drawn))
    assert (np.abs(drawn.mean(0) - mean) < z_bound(np.size(mean)) * error).all()
    off = np.abs(drawn.var(0) / var - 1)
    assert (off < z_bound(np.size(mean)) * np.sqrt(2 / len(drawn))).all()


def test_the_fit_of_a_gaussian_model_is_exact():
    fit = fitted()
    mean, cov = joint(people())
    drawn = np.column_stack([fit.draws["a"], fit.draws["level"]])
    same(drawn, mean[:-1], np.diag(cov)[:-1])
    assert fit.members == people().units
    assert fit.record.quality["pareto_k"] < 0.1  # every particle weighs the same


def test_a_unit_of_the_archive_has_its_own_posterior():
    fit, history = fitted(), people()
    mean, cov = joint(history)
    error = np.sqrt(cov[0, 0] / DRAWS)
    expected = mean[0] + mean[1 + history.unit_of] + history.s[:, 0]
    found = fit(history)
    assert found.exact
    own = np.sqrt((cov[0, 0] + np.diag(cov)[1:-1] + 2 * cov[0, 1:-1]) / DRAWS)
    assert (np.abs(found.mean()[:, 0] - expected) < z_bound(72) * own[history.unit_of]).all()
    assert error < 0.1  # or the test above says nothing
    # one row online is that row of the archive
    follower = fit.follow("u3")
    for t in range(3):
        one = follower.push(history.s[18 + t]).mean()
        assert_allclose(one[0], found.mean()[18 + t], rtol=1e-12)


def test_a_new_unit_comes_from_the_population():
    fit = fitted()
    mean, cov = joint(people())
    s = np.array([[[0.3], [-1.0]], [[0.3], [2.0]]])
    found = fit(s)
    assert_allclose(found.mean()[:, 0], fit.draws["a"].mean() + s.ravel(), rtol=1e-10)
    w = np.array([[0.1], [0.2], [1.5], [np.nan]])
    sd = np.sqrt(BETWEEN**2 + SD**2)
    each = dist.Normal(torch.tensor(fit.draws["a"][:, None] + s.ravel()), sd)
    expected = each.log_prob(torch.tensor(w[:, 0]).nan_to_num()).exp().mean(0).log().numpy()
    dense = found.log_density(w, draws=DRAWS)[:, 0]
    assert_allclose(dense[:3], expected[:3], atol=1e-6)
    assert np.isnan(dense[3])
    drawn = found.draws(DRAWS, rng=np.random.default_rng(0))[..., 0]
    same(drawn, mean[0] + s.ravel(), cov[0, 0] + BETWEEN**2 + SD**2)
    # rows of one unit share its level, those of two units do not
    corr = np.corrcoef(drawn.T)
    share = (cov[0, 0] + BETWEEN**2) / (cov[0, 0] + BETWEEN**2 + SD**2)
    assert abs(corr[0, 1] - share) < z_bound() / np.sqrt(DRAWS)
    apart = cov[0, 0] / (cov[0, 0] + BETWEEN**2 + SD**2)
    assert abs(corr[0, 2] - apart) < z_bound() / np.sqrt(DRAWS)
    assert_array_equal(found.mean(), fit(s).mean())


@pytest.mark.parametrize("revealed", [1, 4, 40])
def test_w_that_are_revealed_narrow_a_new_unit_down(revealed):
    fit = fitted()
    rng = np.random.default_rng(1)
    s = rng.standard_normal((revealed, 1))
    w = 0.4 + 1.1 + s + SD * rng.standard_normal(s.shape)
    follower = fit.follow("somebody")
    for row, own in zip(s, w, strict=True):
        follower.push(row, own)
    mean, cov = joint(people(), (w - s)[:, 0])
    centre = mean[0] + mean[-1]
    var = cov[0, 0] + cov[-1, -1] + 2 * cov[0, -1]
    found = follower.push(np.array([0.0]))
    assert follower.ess > 100
    bound = z_bound() * np.sqrt(var / min(follower.ess, DRAWS))
    assert abs(found.mean()[0, 0] - centre) < bound
    spread = found.mean_draws(DRAWS, rng=rng)[:, 0, 0].std()
    assert abs(spread / np.sqrt(var) - 1) < z_bound() * np.sqrt(1 / min(follower.ess, DRAWS))
    # followed anew from what was kept
    other = fit.follow("somebody")
    other.restore(follower.state())
    assert_array_equal(other.conditional.mean(), found.mean())
    assert other.ess == follower.ess


SHARP = 0.1


def sharp(x, w=None, unit=None):
    """The same with rows so exact that the population's draws are far apart."""
    a = pyro.sample("a", dist.Normal(0.0, 10.0))
    with pyro.plate("units", int(unit.max()) + 1, dim=-1):
        level = pyro.sample("level", dist.Normal(0.0, BETWEEN))
    with pyro.plate("rows", x.shape[-2], dim=-1):
        loc = a + level[..., unit] + x[..., 0]
        pyro.sample("w", dist.Normal(loc[..., None], SHARP).to_event(1), obs=w)


@cache
def sharply_fitted():
    return Law(sharp, Identity()).fit(people(), Laplace(draws=800), seed=0)


@pytest.mark.parametrize("level", [0.5, 2.5, 4.0])
def test_a_unit_unlike_the_others_is_known_as_well(level):
    fit = sharply_fitted()
    rng = np.random.default_rng(2)
    s = rng.standard_normal((60, 1))
    w = 0.4 + level + s + SHARP * rng.standard_normal(s.shape)
    follower = fit.follow("somebody")
    for k in range(60):
        follower.push(s[k], w[k])
        if k + 1 not in (1, 5, 60):
            continue
        mean, cov = joint(people(), (w - s)[: k + 1, 0], SHARP)
        centre, var = mean[0] + mean[-1], cov[0, 0] + cov[-1, -1] + 2 * cov[0, -1]
        assert follower.ess > 100
        effective = min(follower.ess, 800)
        drawn = follower.conditional.mean_draws(800, rng=rng)[:, 0, 0] - s[k, 0]
        assert abs(drawn.mean() - centre) < z_bound(9) * np.sqrt(var / effective)
        assert abs(drawn.var() / var - 1) < z_bound(9) * np.sqrt(2 / effective)
    again = fit.follow("somebody")
    again.restore(follower.state())
    assert_array_equal(again.conditional.mean(), follower.conditional.mean())


def scales(x, w=None, unit=None):
    """A level and a spread of one's own, and a kind: what is drawn anew has bounds and cells."""
    a = pyro.sample("a", dist.Normal(0.0, 1.0))
    with pyro.plate("units", int(unit.max()) + 1, dim=-1):
        kind = pyro.sample("kind", dist.Bernoulli(torch.tensor(0.02)))
        spread = pyro.sample("spread", dist.LogNormal(-2.0, 0.5))
    with pyro.plate("rows", x.shape[-2], dim=-1):
        loc = a + 3 * kind[..., unit] + x[..., 0]
        pyro.sample("w", dist.Normal(loc[..., None], spread[..., unit, None]).to_event(1), obs=w)


def test_bounded_and_discrete_latents_are_drawn_anew_as_well():
    fit = Law(scales, Identity()).fit(people(4, 3), Laplace(draws=200), seed=0)
    kernel = fit.kernel
    x, w = np.zeros((6, 1)), 0.4 + 3.0 + np.array([0.9, -0.8, 1.0, -1.1, 0.7, -0.9])[:, None]
    start = UnitPosterior.of(kernel, kernel.units)
    known = drawn_anew(replace(start, x=x, w=w))
    # by a sum over the two kinds and a fine grid of log spreads, for every draw
    grid = np.linspace(-4.0, 3.0, 1401)
    away = w[:, 0] - fit.draws["a"][:, None, None, None] - 3.0 * np.arange(2)[:, None, None]
    log = norm.logpdf(away, 0.0, np.exp(grid)[:, None]).sum(-1) + norm.logpdf(grid, -2.0, 0.5)
    mass = np.exp(log + np.log([0.98, 0.02])[:, None] - log.max())
    mass /= mass.sum()
    kind, spread = known.values["kind"].numpy(), known.values["spread"].numpy()
    assert known.ess > 1000 / fit.kernel.count * 10
    for of, expected in (
        (kind, mass.sum((0, 2))[1]),
        (np.log(spread), (mass.sum((0, 1)) * grid).sum()),
        (np.log(spread) ** 2, (mass.sum((0, 1)) * grid**2).sum()),
    ):
        found = (known.weight * of).sum()
        error = np.sqrt((known.weight**2 * (of - found) ** 2).sum())  # of weighted particles
        assert abs(found - expected) <= z_bound(3) * error + 1e-9


def test_what_rests_on_few_draws_says_so():
    fit = Law(sharp, Identity()).fit(people(), Laplace(draws=120), seed=0)
    known, new = fit.follow("u3"), fit.follow("somebody")
    far = np.array([float(fit.draws["a"].mean() + fit.draws["level"][:, 3].mean()) + 0.5])
    with pytest.warns(UserWarning, match=r"unit 'u3'.*more draws"):
        known.push(np.zeros(1), far)
    assert known.ess < 100
    known.push(np.zeros(1), far)  # said once
    new.push(np.zeros(1), far)
    assert new.ess > 100


def test_the_printout_is_short():
    assert len(repr(fitted())) < 800
    assert "level[12]" in repr(fitted())


def test_w_that_no_particle_can_have_are_refused():
    follower = fitted().follow("somebody")
    with pytest.raises(DataError, match="every particle"):
        follower.push(np.array([0.0]), np.array([1e200]))


def two_levels(x, w=None, unit=None):
    a = pyro.sample("a", dist.Normal(0.0, 10.0))
    with pyro.plate("units", int(unit.max()) + 1, dim=-1):
        level = pyro.sample("level", dist.Normal(0.0, BETWEEN))
    with pyro.plate("rows", x.shape[-2], dim=-1):
        loc = a + level[..., unit] + x[..., 0]
        pyro.sample("w", dist.Normal(torch.stack([loc, 2 * loc], -1), SD).to_event(1), obs=w)


def test_a_part_of_w_is_refused_where_one_site_has_all_of_it():
    history = people(4)
    both = History.from_arrays(
        history.grid.s, np.repeat(history.grid.w, 2, axis=-1), w_names=["v", "w"]
    )
    follower = Law(two_levels, Identity()).fit(both, Laplace(draws=20), seed=0).follow("Ann")
    with pytest.raises(DataError, match=r"'w' is NaN.*one site"):
        follower.push(np.zeros(1), np.array([1.0, np.nan]))
    before = follower.conditional.mean()
    follower.push(np.zeros(1), np.array([np.nan, np.nan]))  # nothing of it is seen
    assert_array_equal(follower.conditional.mean(), before)


def test_a_policy_learns_of_a_person_by_what_it_observes(tmp_path):
    fit = fitted()
    phi = Features(lambda s, w, a: np.hstack([w * (a == 0), w * (a == 1)]), 2, ("w0", "w1"))
    policy = PulseUCB(fit, phi, constant(1.0))
    for _ in range(5):
        policy.observe([0.0], w=[2.4], unit="Ann")
    high = policy.act([0.0], unit="Ann")
    assert high.x[high.action] > 1.8
    other = policy.act([0.0], unit="Bob")
    assert abs(other.x[other.action] - fit.draws["a"].mean()) < 1e-8
    known = policy.act([0.0], unit="u3")
    expected = (fit.draws["a"] + fit.draws["level"][:, 3]).mean()
    assert_allclose(known.x[known.action], expected, rtol=1e-10)
    save(policy, tmp_path / "policy")
    back = load(tmp_path / "policy", law=fit, features=phi)
    for unit in ("Ann", "Bob", "u3"):
        one, two = (each.act([0.5], unit=unit) for each in (policy, back))
        assert_array_equal(one.x, two.x)


W_BY_ARM = Features(
    lambda s, w, a: np.hstack([w * (a == 0), w * (a == 1)]), 2, ("w by arm 0", "w by arm 1")
)


def test_w_revealed_after_the_decision_tells_of_the_unit(tmp_path):
    fit, rng = fitted(200), np.random.default_rng(4)
    s, w = rng.standard_normal((8, 1)), rng.standard_normal((8, 1)) + 2.0
    policy = PulseUCB(fit, W_BY_ARM, constant(1.0))
    made = [policy.act(row, unit="Ann") for row in s]
    policy.learn(made[2], 0.1, w=w[2])
    policy.learn(made[5], 0.1)
    policy.reveal(made[0], w[0])
    again = load(save(policy, tmp_path / "policy"), law=fit, features=W_BY_ARM)
    for bot in (policy, again):  # of a decision that was learned, and of one that is open
        bot.reveal(made[5].id, w[5])
        bot.reveal(made[7].id, w[7])
        with pytest.raises(RewardError, match="known already"):
            bot.reveal(made[2].id, w[2])
    by_hand = fit.follow("Ann")
    for k in (2, 0, 5, 7):  # rows are independent given the level, so the order is free
        by_hand.push(s[k], w[k])
    for bot in (policy, again):
        choice = bot.act([0.5], unit="Ann")
        by_hand.push(np.array([0.5]))
        assert_array_equal(choice.x[choice.action], by_hand.conditional.mean()[0, 0])
        assert bot.ess == {"Ann": by_hand.ess}
        other = bot.act([0.5], unit="Bob")
        assert_allclose(other.x[other.action], fit.draws["a"].mean() + 0.5, rtol=1e-8)
    assert choice.x[choice.action] > 1.5


def test_the_w_of_one_arm_tells_of_the_unit_at_all_arms():
    fit = fitted(200)
    policy = PulseUCB(fit, W_BY_ARM, constant(1.0))
    decision = policy.act([[0.2], [0.7]], unit="Ann")
    policy.learn(decision, 0.1, w=[3.0])
    by_hand = fit.follow("Ann")
    by_hand.push(np.array([[0.2], [0.7]][decision.action]), np.array([3.0]))
    by_hand.push(np.array([0.5]))
    for arm in policy._pasts.units["Ann"]:
        arm.push(np.array([0.5]))
        assert_array_equal(arm.conditional.mean(), by_hand.conditional.mean())


def test_a_w_that_a_unit_cannot_have_leaves_its_decision_open():
    policy = PulseUCB(fitted(200), W_BY_ARM, constant(1.0))
    decision = policy.act([0.0], unit="Ann")
    with pytest.raises(DataError, match="every particle"):
        policy.reveal(decision, [1e200])
    assert policy.pending == (decision.id,)
    assert policy.state.rounds == 0
    policy.learn(decision, 0.1, w=[1.0])


def test_a_unit_is_no_stranger_after_its_law_has_been_fitted_again(tmp_path):
    history, law = people(), Law(levels, Identity())
    fit = law.fit(history, Laplace(draws=600), seed=0)
    grown = GrowingArchive(history, fit, every=6, law=law, inference=Laplace(draws=600))
    policy = PulseUCB(fit, W_BY_ARM, constant(1.0), archive=grown)
    for _ in range(5):
        policy.learn(policy.act([0.0], unit="Ann"), 0.1, w=[2.9])
    last = policy.act([0.0], unit="Ann")
    before = last.x[last.action]
    policy.observe([0.0], w=fit.follow("u3").push(np.zeros(1)).mean()[0], unit="u3")
    policy.learn(last, 0.1)
    assert policy.law is not fit
    again = load(save(policy, tmp_path / "policy"), law=law, features=W_BY_ARM)
    for bot in (policy, again):
        ann = bot.act([0.0], unit="Ann")
        assert abs(ann.x[ann.action] - before) < 0.2
        assert bot._pasts.units["Ann"][0].acquaintance.member
        u3 = bot._pasts.units["u3"][0]
        assert u3.acquaintance == u3.acquaintance._replace(member=True, revealed=1)
        bob = bot.act([0.0], unit="Bob")
        assert abs(bob.x[bob.action] - before) > 1.0


def test_a_policy_takes_in_what_is_revealed_of_a_row():
    """Of two W that share a level one is revealed: as if the law's follower were told of it."""

    def both(x, w=None, unit=None):
        w = w or {}
        a = pyro.sample("a", dist.Normal(0.0, 1.0))
        with pyro.plate("units", int(unit.max()) + 1, dim=-1):
            level = pyro.sample("level", dist.Normal(0.0, BETWEEN))
        with pyro.plate("rows", x.shape[-2], dim=-1):
            for name in ("one", "two"):
                pyro.sample(name, dist.Normal(a + level[..., unit], SD), obs=w.get(name))

    w = np.random.default_rng(0).standard_normal((8, 5, 2))
    history = History.from_arrays(np.zeros((8, 5, 1)), w, s_names=("s",), w_names=("one", "two"))
    fit = Law(both, Identity()).fit(history, Laplace(draws=100), seed=0)
    phi = Features(lambda s, w, a: w * a, 2, ("one*a", "two*a"))
    policy, follower = PulseUCB(fit, phi, constant(1.0)), fit.follow("Ann")
    for known in ([np.nan, 2.0], {"one": 1.5, "two": None}, [np.nan, np.nan]):
        policy.observe([0.0], w=known, unit="Ann")
    for known in ([np.nan, 2.0], [1.5, np.nan]):
        follower.push(np.zeros(1), np.array(known))
    choice = policy.act([0.0], unit="Ann", allowed=[False, True])
    assert_allclose(choice.x, follower.push(np.zeros(1)).mean()[0], rtol=1e-10)
    assert choice.x.min() > 0.5
    with pytest.raises(DataError, match=r"2 numbers, NaN where not revealed, for .* but got"):
        policy.observe([0.0], w=[np.inf, np.nan], unit="Ann")
    with pytest.raises(DataError, match="2 finite numbers"):
        policy.learn(choice, 0.1, w=[1.0, np.nan])


def alike(x, w=None, unit=None):
    """Levels that hardly differ, and noise that is taken for the rest."""
    a = pyro.sample("a", dist.Normal(0.0, 10.0))
    with pyro.plate("units", int(unit.max()) + 1, dim=-1):
        level = pyro.sample("level", dist.Normal(0.0, 0.05))
    with pyro.plate("rows", x.shape[-2], dim=-1):
        loc = a + level[..., unit] + x[..., 0]
        pyro.sample("w", dist.Normal(loc[..., None], 1.0).to_event(1), obs=w)


def words_of(law, held_out):
    found = diagnose(law, held_out, seed=0)
    return {c.name: c for c in found.checks if c.name in ("dependence w", "serial w")}


def test_what_rows_of_new_units_share_is_no_fault_of_a_law_that_knows_it():
    """Right levels leave nothing once earlier W are told; no levels, or too alike, leave a lot."""
    held_out = people(40, 12, "v", seed=6)
    right = words_of(fitted(200), held_out)
    assert {check.verdict for check in right.values()} == {"pass"}
    assert "Policies are not told" in right["serial w"].text
    no_levels = linear_lags(1).fit(people(), seed=0)
    too_alike = Law(alike, Identity()).fit(people(), Laplace(draws=200), seed=0)
    for wrong in (no_levels, too_alike):
        assert "fail" in {check.verdict for check in words_of(wrong, held_out).values()}


def test_a_law_is_told_earlier_w_of_a_unit_alone_and_its_gaps():
    whole = people(3, 6, "v", seed=6)
    held_out = whole.where(np.arange(18) % 6 != 2)  # step 2 of everybody is absent
    law = fitted(200)
    judged = predictions(law, held_out, np.ones(15, bool), np.random.default_rng(0), 10)
    rows = np.array([5, 6, 8])  # of the second unit: steps 0, 1, 4
    case = HeldOut(law, held_out, None, 0, 10, held_out.s, judged, ())
    found = case._expected_when_told(1, rows)[:, 0]
    follower = law.follow("v1")
    by_hand = [follower.push(held_out.s[k], held_out.w[k]).mean()[0, 0] for k in range(5, 10)]
    assert_allclose(found, np.array(by_hand)[[0, 1, 3]], rtol=1e-12)


def test_a_level_of_rewards_is_learned_from_units_without_one():
    law, others = fitted(200), people(30, 12, "v", seed=6)
    with pytest.raises(SettingError, match="knows the latents of 12 of these units"):
        with_memory(law, people(), "level")
    assert with_memory(law, people(), "ar").memory.kind == "ar"
    told = diagnose(with_memory(law, others, "level"), people(30, 12, "x", seed=7), seed=0)
    words = {c.name: c.verdict for c in told.checks}
    assert words["dependence w"] == words["serial w"] == "pass"


def test_a_guarded_policy_is_told_the_unit_or_meets_a_new_one(tmp_path):
    fit = fitted(200)
    phi = Features(lambda s, w, a: np.hstack([w * (a == 0), w * (a == 1)]), 2, ("w0", "w1"))
    known = calibrate(fit, people(40, 6, "v", seed=5), phi, seed=0)
    policy = PulseUCB(fit, phi, calibration=known, reward_sd=0.1, theta_bound=2.0)
    expected = {"": fit.draws["a"].mean(), "u3": (fit.draws["a"] + fit.draws["level"][:, 3]).mean()}
    for unit, mean in expected.items():
        choice = policy.act([0.0], **({"unit": unit} if unit else {}))
        assert_allclose(choice.x[choice.action], mean, rtol=1e-8)
        policy.learn(choice, 0.3)
    policy.observe([0.0], w=[2.4], unit="Ann")
    save(policy, tmp_path / "policy")
    back = load(tmp_path / "policy", law=fit, features=phi)
    for unit in ("", "u3", "Ann"):
        one, two = (each.act([0.5], unit=unit) for each in (policy, back))
        assert_array_equal(one.x, two.x)
        assert one.action == two.action


@pytest.mark.parametrize("vector", [True, False], ids=["a vector", "two sites"])
def test_a_level_and_a_slope_that_go_together_are_two_sites(vector):
    def model(x, w=None, unit=None):
        scale = pyro.sample("scale", dist.LogNormal(torch.zeros(2) - 0.5, 0.5).to_event(1))
        rho = pyro.sample("rho", dist.Uniform(-1.0, 1.0))
        rest = torch.sqrt(1.0 - rho**2)
        with pyro.plate("units", int(unit.max()) + 1, dim=-1):
            if vector:
                first = torch.stack([torch.ones_like(rho), torch.zeros_like(rho)], -1)
                tril = torch.stack([first, torch.stack([rho, rest], -1)], -2)
                both = dist.MultivariateNormal(torch.zeros(2), scale_tril=tril)
                u, v = pyro.sample("both", both).unbind(-1)
            else:
                u = pyro.sample("u", dist.Normal(0.0, 1.0))
                v = pyro.sample("v", dist.Normal(0.0, 1.0))
                v = rho * u + rest * v
        level, slope = scale[..., 0] * u[..., unit], scale[..., 1] * v[..., unit]
        with pyro.plate("rows", x.shape[-2], dim=-1):
            mean = level + (1.0 + slope) * x[..., 0]
            pyro.sample("w", dist.Normal(mean[..., None], SD).to_event(1), obs=w)

    law = Law(model, Identity())
    said = repr(law.check(people()))
    assert ("drawn, which no guard takes" in said) == vector
    fit = law.fit(people(), Laplace(draws=50), seed=0)
    phi = Features(lambda s, w, a: w * a, 2, ("w*a",))
    known = calibrate(fit, people(20, 6, "v", seed=5), phi, seed=0)
    if not vector:
        assert PulseUCB(fit, phi, calibration=known, reward_sd=0.1, theta_bound=2.0).pending == ()
        return
    with pytest.raises(SettingError, match="a vector of two as two normal sites"):
        PulseUCB(fit, phi, calibration=known, reward_sd=0.1, theta_bound=2.0)


def test_a_guard_promises_nothing_once_it_decides_about_known_units(tmp_path):
    fit = fitted(200)
    phi = Features(lambda s, w, a: np.hstack([w * (a == 0), w * (a == 1)]), 2, ("w0", "w1"))
    band = calibrate(fit, people(40, 6, "v", seed=5), phi, seed=0)

    def play(*units, revealed=False):
        policy = PulseUCB(fit, phi, calibration=band, reward_sd=0.1, theta_bound=2.0)
        for unit in units:
            if revealed:
                policy.observe([0.0], w=[0.4], unit=unit)
            choice = policy.act([0.0], unit=unit)
            policy.learn(choice, 0.3)
        return policy, choice

    policy, choice = play("Ann", "Bob", "")
    assert "guarantee" in repr(policy)
    assert "heuristic" not in repr(policy) + choice.why
    assert np.isfinite(choice.cost)
    for units, revealed in ((["u3"], False), (["Ann"], True)):
        policy, choice = play(*units, revealed=revealed)
        assert "guarantee" not in repr(policy)
        assert "heuristic: 1 of 1 decisions" in repr(policy)
        assert "heuristic" in choice.why
        assert np.isnan(choice.cost)
        later = policy.act([0.0], unit="Bob")  # the ball has learned from the round before
        assert np.isnan(later.cost)
        assert policy.ess == ({} if not revealed else {"Ann": pytest.approx(policy.ess["Ann"])})
        assert ("effective draws" in repr(policy)) == revealed
        save(policy, tmp_path / f"policy {revealed}")
        back = load(tmp_path / f"policy {revealed}", law=fit, features=phi)
        assert "guarantee" not in repr(back)
        assert back.ess == policy.ess


def test_all_draws_are_predicted_in_one_run_of_the_model():
    runs = []

    def counted(x, w=None, unit=None):
        runs.append(len(x))
        levels(x, w, unit)

    fit = Law(counted, Identity()).fit(people(), Laplace(draws=300), seed=0)
    fit(people()).mean()
    follower = fit.follow("somebody")
    asked = {
        "known": lambda: fit.follow("u3").push(np.zeros(1)).mean(),
        "new": lambda: fit.follow().push(np.zeros(1)).mean(),
        "told": lambda: follower.push(np.zeros(1), np.ones(1)).mean(),
    }
    follower.push(np.zeros(1), np.ones(1))  # its particles are drawn once
    for name, ask in asked.items():
        ask()  # is written down the first time
        runs.clear()
        ask()
        assert not runs, name
    fit(people()).mean()
    assert len(runs) == 1


@pytest.mark.parametrize("name", ["person_levels", "clicks_by_ad"])
def test_one_row_online_is_that_row_of_the_pyro_program(name, monkeypatch):
    law = law_from_file(FOLDER / f"{name}.py")
    history = people()
    w = history.w if name == "person_levels" else (history.w > 0.4) * 1.0
    archive = History.from_arrays(
        history.s.reshape(12, 6, 1), w.reshape(12, 6, 1), units=history.units
    )
    fit = Law(law.model, Identity()).fit(archive, Laplace(draws=150), seed=0)
    kernel, every = fit.kernel, np.arange(150)

    def asked():
        rows = [np.array([[s, number]]) for s in (-0.7, 0.4) for number in (0.0, 5.0, 12.0)]
        means = [kernel.mean_draws(row, every) for row in rows]
        known = UnitPosterior.of(kernel, 12)
        for one in w[:3]:
            known = known.told(np.array([0.2]), one)
        told = fit.told(known).kernel
        means += [told.mean_draws(np.array([[s, 0.0]]), every) for s in (-0.7, 0.4)]
        return [*means, known.log_weight]

    quick = asked()
    assert all(kernel._written.values())  # everything could be written down
    monkeypatch.setattr(UnitKernel, "_flat", lambda *args: None)
    monkeypatch.setattr(UnitKernel, "_weighed", lambda *args: None)
    for one, two in zip(quick, asked(), strict=True):
        assert_allclose(one, two, rtol=1e-10, atol=1e-10)


def test_a_saved_law_knows_its_units(tmp_path):
    fit = fitted(200)
    save(fit, tmp_path / "law")
    back = load(tmp_path / "law", law=Law(levels, Identity()))
    assert back.members == fit.members
    assert back.id == fit.id
    assert_array_equal(back(people()).mean(), fit(people()).mean())


def test_arviz_names_the_units():
    pytest.importorskip("arviz")
    fit, history = fitted(200), people()
    tree = fit.to_arviz(history)
    level = tree["posterior"]["level"]
    assert level.dims == ("chain", "draw", "member")
    assert tuple(level.coords["member"].values) == history.units
    assert tree["constant_data"]["x"].shape == (72, 1)


def test_no_rows_get_no_answers():
    assert fitted(200)(np.zeros((0, 3, 1))).mean().shape == (0, 1)


def test_held_out_units_are_judged_against_the_population():
    fit = fitted(500)
    held_out = people(60, 6, "v", seed=5)
    found = fit(held_out)
    inside = found.cdf(held_out.w)[:, 0]
    # one row of each unit: independent, and uniform if the spread of levels is counted
    first = inside[::6]
    assert abs(first.mean() - 0.5) < z_bound() * np.sqrt(1 / 12 / 60)
    assert 0.15 < first.std() < 0.40
    phi = Features(lambda s, w, a: np.hstack([w * (a == 0), w * (a == 1)]), 2, ("w0", "w1"))
    report = calibrate(fit, held_out, phi, seed=0)
    assert report is not None


def vectors(x, w=None, unit=None):
    """Level and slope of a unit together: no quadrature, stored draws."""
    a = pyro.sample("a", dist.Normal(0.0, 10.0))
    with pyro.plate("units", int(unit.max()) + 1, dim=-1):
        cov = torch.tensor([[0.5, 0.1], [0.1, 0.3]])
        own = pyro.sample("own", dist.MultivariateNormal(torch.zeros(2), cov))
    with pyro.plate("rows", x.shape[-2], dim=-1):
        loc = a + own[..., unit, 0] + own[..., unit, 1] * x[..., 0]
        pyro.sample("w", dist.Normal(loc[..., None], SD).to_event(1), obs=w)


def test_vectors_of_units_are_drawn_once_for_every_draw():
    fit = Law(vectors, Identity()).fit(people(), Laplace(draws=500), seed=0)
    assert fit.draws["own"].shape == (500, 12, 2)
    assert not fit.kernel.exact_mean
    s = np.array([[[0.0], [1.0]]])
    found = fit(s)
    assert_array_equal(found.mean(), fit(s).mean())
    error = np.sqrt(1.0 / (500 * 32))
    assert np.abs(found.mean()[:, 0] - fit.draws["a"].mean()).max() < z_bound() * error
    drawn = found.draws(4000, rng=np.random.default_rng(0))[..., 0]
    expected = np.array([0.5, 0.5 + 0.3 + 0.2]) + SD**2 + fit.draws["a"].var()
    assert (np.abs(drawn.var(0) / expected - 1) < z_bound() * np.sqrt(2 / 4000)).all()


def test_the_coordinates_of_units_keep_the_density():
    """log p(theta, z) of the plain potential, and of (theta, e) with the Jacobian."""
    with sandbox(0, "test"):
        x, unit = torch.randn(8, 1), torch.arange(8) // 2
        args = (x, torch.randn(8, 1))

        def model(x, w=None):
            levels(x, w, unit)

        plain = Potential(model, args, "plain")
        own = UnitPotential(model, args, "own", ("level",))
        assert list(plain.shapes) == ["a", "level"]
        for _ in range(3):
            u = torch.randn(own.dim)
            z, log_scale = own._placed(u[:1], u[1:])
            flat = torch.cat([u[:1], z.reshape(-1)])
            gap = own.energy(u) + log_scale - plain.energy(flat)
            assert_allclose(gap.detach().numpy(), 0.0, atol=1e-9)
        # Gaussian: given theta the noise is exactly N(0, I)
        still = torch.zeros(own.dim)
        moved = torch.cat([still[:1], torch.randn(4)])
        gap = (own.energy(moved) - own.energy(still)).detach().numpy()
        assert_allclose(gap, 0.5 * (moved**2).sum().numpy())


@pytest.mark.parametrize("how", [Nuts(draws=200, warmup=100, chains=1), Svi(steps=150)])
def test_every_engine_keeps_the_units(how):
    fit = Law(levels, Identity()).fit(people(), how, seed=0)
    mean, cov = joint(people())
    drawn = np.column_stack([fit.draws["a"], fit.draws["level"]])
    assert drawn.shape[1] == 13
    assert (np.abs(drawn.mean(0) - mean[:-1]) < 0.5 * np.sqrt(np.diag(cov))[:-1]).all()


def test_natural_and_integrated_by_hand_have_one_posterior():
    rng = np.random.default_rng(3)
    s = rng.standard_normal((25, 10, 1))
    w = 0.2 + 0.6 * rng.standard_normal((25, 1, 1)) + 0.5 * s + 0.4 * rng.standard_normal(s.shape)
    unit = np.repeat(np.arange(25), 10)
    laws = [law_from_file(FOLDER / f"{n}.py") for n in ("person_levels", "hierarchical_units")]
    with sandbox(0, "test"):
        args = (torch.tensor(s.reshape(-1, 1)), torch.tensor(w.reshape(-1, 1)))
        models = [partial(law.model, unit=torch.as_tensor(unit)) for law in laws]
        natural = UnitPotential(models[0], args, "natural", ("level",))
        by_hand = Potential(models[1], args, "by hand")
        names = [n for n in natural.shapes if n != "level"]
        assert names == list(by_hand.shapes)
        assert natural.whitened
        # one mode and one curvature, so one posterior mean and sd for Laplace
        sd = by_hand.scale.norm(dim=1)
        assert ((natural.mode - by_hand.mode).abs() / sd).max() < 0.05
        assert (natural.scale.norm(dim=1) / sd - 1).abs().max() < 0.01
        # and one density away from it: the levels are Gaussian, so nothing is approximate
        gaps = []
        for _ in range(5):
            theta = by_hand.from_white(2 * torch.randn(by_hand.dim))
            gap = natural._marginal(theta.clone().requires_grad_(True)) - by_hand.energy(theta)
            gaps.append(gap.detach().numpy())
    assert_allclose(gaps, gaps[0], atol=1e-6)


def test_the_check_names_the_role_and_what_to_write():
    card = Law(levels, Identity()).check(people())
    roles = dict(zip(card.table["site"], card.table["role"], strict=True))
    assert roles["level"].startswith("per unit")
    assert "level" in repr(card)
    assert card.closed_mean

    def wide(x, w=None, unit=None):
        a = pyro.sample("a", dist.Normal(0.0, 10.0))
        with pyro.plate("units", int(unit.max()) + 1, dim=-2):
            level = pyro.sample("level", dist.Normal(0.0, 1.0))
        with pyro.plate("rows", x.shape[-2], dim=-1):
            loc = a + level[unit, 0] + 0 * x[..., 0]
            pyro.sample("w", dist.Normal(loc[..., None], SD).to_event(1), obs=w)

    with pytest.raises(ModelError, match=r"dim=-1"):
        Law(wide, Identity()).check(people())

    def first_axis(x, w=None, unit=None):
        a = pyro.sample("a", dist.Normal(0.0, 10.0))
        with pyro.plate("units", int(unit.max()) + 1, dim=-1):
            level = pyro.sample("level", dist.Normal(0.0, 1.0))
        with pyro.plate("rows", x.shape[-2], dim=-1):
            loc = a + level[unit] + 0 * x[..., 0]
            pyro.sample("w", dist.Normal(loc[..., None], SD).to_event(1), obs=w)

    with pytest.raises(ModelError, match=r"level\[\.\.\., unit\]"):
        Law(first_axis, Identity()).check(people())

    def no_plate(x, w=None, unit=None):
        size = int(unit.max()) + 1
        level = pyro.sample("level", dist.Normal(torch.zeros(size), 1.0).to_event(1))
        with pyro.plate("rows", x.shape[-2], dim=-1):
            loc = level[..., unit] + 0 * x[..., 0]
            pyro.sample("w", dist.Normal(loc[..., None], SD).to_event(1), obs=w)

    with pytest.raises(ModelError, match=r'plate\("units"'):
        Law(no_plate, Identity()).check(people())


def test_an_archive_of_one_unit_is_refused():
    with pytest.raises(DataError, match="one unit"):
        Law(levels, Identity()).fit(people(1), seed=0)


def test_levels_integrated_by_hand_on_one_unit_are_warned_of():
    law = law_from_file(FOLDER / "hierarchical_units.py")
    with pytest.warns(UserWarning, match=r"one unit.*add units"):
        law.check(people(1, 12))
    with pytest.warns(UserWarning, match=r"one unit.*add units") as said:
        fit = law.fit(people(1, 12), Laplace(draws=20), seed=0)
    assert len(said) == 1
    assert fit.units == ("u0",)
    law.check(people(2, 12))  # warnings are errors here


def bent(x, w=None, unit=None):
    """A level and a slope of one's own, behind a logit."""
    a = pyro.sample("a", dist.Normal(0.0, 1.0))
    with pyro.plate("units", int(unit.max()) + 1, dim=-1):
        level = pyro.sample("level", dist.Normal(0.0, 0.8))
        slope = pyro.sample("slope", dist.Normal(0.5, 0.6))
    with pyro.plate("rows", x.shape[-2], dim=-1):
        logit = a + level[..., unit] + slope[..., unit] * x[..., 0]
        pyro.sample("w", dist.Bernoulli(logits=logit[..., None]).to_event(1), obs=w)


def test_two_latents_of_a_new_unit_are_integrated_out():
    rng = np.random.default_rng(0)
    s = rng.standard_normal((12, 6, 1))
    archive = History.from_arrays(s, (rng.random((12, 6, 1)) < 0.5) * 1.0)
    fitted = Law(bent, Identity()).fit(archive, Laplace(20), seed=0)
    at = np.array([0.0, 1.0, -2.0])
    found = fitted(at[:, None, None])
    assert found.exact
    # level + slope x is normal: one integral, by many nodes
    nodes, weight = np.polynomial.hermite_e.hermegauss(100)
    weight = weight / weight.sum()
    sd = np.sqrt(0.8**2 + 0.6**2 * at**2)
    logit = fitted.draws["a"][:, None, None] + 0.5 * at[:, None] + sd[:, None] * nodes
    expected = (weight / (1 + np.exp(-logit))).sum(-1).mean(0)
    assert_allclose(found.mean()[:, 0], expected, atol=2e-5)
