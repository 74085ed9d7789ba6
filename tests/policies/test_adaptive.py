"""Adaptive PULSE-UCB: directions carry the posterior's variance, and rewards mend the law."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import pulse_pyro as pp
from pulse_pyro.base import Schema
from pulse_pyro.policies.unsure_directions import DrawDirections, LinearDirections
from tests.calibration.helpers import Guess, Normal
from tests.helpers import mean_at, mean_draws_at, z_bound

WORLD = pp.envs.w_times_action()
LAGS = pp.Lags(19)


@pytest.fixture(scope="module")
def few():
    return pp.linear_lags(LAGS).fit(WORLD.archive(2, 25, rng=pp.stream(0, "archive")), seed=0)


def psi_at(law, s):
    rows = law.summary(s)
    return (
        pp.policies.directions(law, s)
        .at(rows.reshape(-1, rows.shape[-1]))
        .reshape(*s.shape[:2], 1, -1)
    )


@pytest.fixture(scope="module")
def online():
    return WORLD.world(8, 300, rng=pp.stream(0, "online"))


@pytest.fixture(scope="module")
def curve():
    archive = pp.envs.main_nonlinear().archive(3, 20, rng=pp.stream(1, "archive"))
    return pp.gaussian_process(pp.Window(3, np.mean)).fit(archive, pp.Laplace(300), seed=0), archive


def test_linear_directions_hold_the_whole_posterior_variance(few, online):
    s = online.s[:2, :60]
    psi = psi_at(few, s)
    assert isinstance(pp.policies.directions(few), LinearDirections)
    draws = mean_draws_at(few, s, few.kernel.count, rng=pp.stream(0, "every"))
    rest = slice(19, None)  # before, lags are filled and every draw sees the same
    # a variance of 1,000 draws is off by 4.5 %; the whole by less, its directions being many
    ratio = draws.var(0, ddof=1)[:, rest] / (psi**2).sum(-1)[:, rest]
    assert np.abs(np.log(ratio)).max() < z_bound(ratio.size) * np.sqrt(2 / 1000)
    assert abs(np.log(ratio.mean())) < 0.1


def test_directions_of_draws_hold_their_variance_and_keep_the_draws(curve):
    law, _ = curve
    s = pp.envs.main_nonlinear().world(10, 100, rng=pp.stream(1, "like the archive")).s
    found = pp.policies.directions(law, s, most=64, seed=3)
    assert isinstance(found, DrawDirections)
    rows = law.summary(s)[:, 2:].reshape(-1, 1)
    psi, draws = found.at(rows), law.mean_draws_at(rows, found.index)
    held = (psi**2).sum() / draws.var(0).sum()
    assert 0.99 <= held <= 1 + 1e-9
    assert_array_equal(psi, found.at(rows))


def test_a_law_that_is_a_draw_of_the_posterior_is_linear_in_the_features(few, online):
    """theta' E[Phi | S] under any draw of the law lies in the span: no bias is left."""
    s = online.s[:2]
    phihat = pp.features.expected_features(
        few, WORLD.features, s, size=2, rng=pp.stream(0, "x")
    ).mean
    x = pp.policies.adaptive_features(phihat, WORLD.features, s, mean_at(few, s), psi_at(few, s))
    assert x.shape[-1] == 4 + 2 * 20
    draw = mean_draws_at(few, s, 1, rng=pp.stream(5, "one"))[0]
    phi = np.stack([WORLD.features(s.reshape(-1, 1), draw.reshape(-1, 1), a) for a in range(2)], 1)
    target = (phi @ np.array(WORLD.theta)).reshape(*s.shape[:2], 2)[:, 19:]
    rows, y = x[:, 19:].reshape(-1, x.shape[-1]), target.ravel()
    left = y - rows @ np.linalg.lstsq(rows, y, rcond=None)[0]
    assert np.abs(left).max() < 1e-8 * np.abs(y).max()


def test_w_enters_each_feature_it_moves_once_for_each_direction(few, online):
    s = online.s[:1, :30]
    psi = psi_at(few, s)
    phihat = pp.features.expected_features(
        few, WORLD.features, s, size=2, rng=pp.stream(0, "x")
    ).mean
    x = pp.policies.adaptive_features(phihat, WORLD.features, s, mean_at(few, s), psi)
    assert_array_equal(x[..., :4], phihat)
    for action in range(2):
        assert_allclose(x[:, :, action, 4:24], psi[:, :, 0], rtol=1e-9)
        assert_allclose(x[:, :, action, 24:], action * psi[:, :, 0], rtol=1e-9)


@pytest.mark.parametrize(("units", "gain"), [(2, True), (200, False)])
def test_rewards_mend_a_law_of_few_units_and_cost_nothing_with_many(units, gain):
    runs = 12
    online = WORLD.world(runs, 600, rng=pp.stream(2, "online"))
    laws = [
        pp.linear_lags(LAGS).fit(WORLD.archive(units, 25, rng=pp.stream(2, "archive", r)), seed=0)
        for r in range(runs)
    ]
    run = pp.simulate(online, [pp.envs.pulse(online, laws), pp.envs.pulse_adaptive(online, laws)])
    apart = run.regret_cond[0, :, -1] - run.regret_cond[1, :, -1]
    if gain:
        assert apart.mean() > z_bound() * apart.std(ddof=1) / np.sqrt(runs)
    else:
        assert abs(apart.mean()) < 0.05 * run.regret_cond[0, :, -1].mean()


def test_a_gaussian_process_is_mended_too():
    world = pp.envs.nonlinear_w_times_action()
    online = world.world(12, 600, rng=pp.stream(3, "online"))
    archive = world.archive(1, 6, rng=pp.stream(3, "archive"))
    law = pp.gaussian_process(pp.Window(3, np.mean)).fit(archive, seed=0)
    agents = [pp.envs.pulse(online, law), pp.envs.pulse_adaptive(online, law, archive.grid.s)]
    run = pp.simulate(online, agents)
    apart = run.regret_cond[0, :, -1] - run.regret_cond[1, :, -1]
    assert apart.mean() > z_bound() * apart.std(ddof=1) / np.sqrt(len(apart))


def curve_of(x):
    return -0.1 - 0.14 * x[:, 0] + np.sin(4.0 * x[:, 0])


def test_a_curve_known_at_one_row_is_mended_from_that_row_alone():
    """At the one archived context the law is sure: what it is unsure of must be found elsewhere."""
    env, runs = replace(pp.envs.nonlinear_w_times_action(), mean_of=curve_of), 6
    online = env.world(runs, 980, rng=pp.stream(0, "online"))
    archives = [env.archive(1, 3, rng=pp.stream(0, "archive", r)) for r in range(runs)]
    law = pp.gaussian_process(pp.Window(3, np.mean))
    laws = [law.fit(own, pp.Laplace(300), seed=0) for own in archives]
    assert all(each.record.rows == 1 for each in laws)
    known = [own.grid.s for own in archives]
    agents = [pp.envs.pulse(online, laws), pp.envs.pulse_adaptive(online, laws, known)]
    run = pp.simulate(online, agents)
    plain, mended = run.regret[:, :, -1]
    bot = pp.AdaptivePulseUCB(laws[0], env.features, pp.constant(2.0), known[0])
    for row in online.s[0, : online.lead]:
        bot.observe(row)
    for t in range(200):
        choice = bot.act(online.s[0, online.lead + t])
        assert choice.action == run.action[1, 0, t]
        bot.learn(choice, online.reward[0, t, choice.action])
    assert mended.mean() < 25.0  # 13 with the contexts to come
    assert mended.mean() < plain.mean() / 5


def test_the_future_is_not_looked_at(online, curve):
    law, archive = curve
    for made in (pp.envs.pulse_adaptive, pp.AdaptivePulseUCB):
        world = pp.envs.main_nonlinear().world(2, 30, rng=pp.stream(0, "online"))
        args = (
            (world, law)
            if made is pp.envs.pulse_adaptive
            else (law, world.features, pp.constant(1.0))
        )
        with pytest.raises(
            pp.errors.SettingError, match=r"reference contexts are needed: pass the archive"
        ):
            made(*args)
    with pytest.raises(pp.errors.SettingError, match="2 references were given for 1 laws"):
        pp.envs.pulse_adaptive(world, law, [archive.grid.s, archive.grid.s])
    # contexts to come do not move the directions
    other = replace(world, s=np.concatenate([world.s[:, :25], world.s[:, 25:] + 1.0], axis=1))
    one, two = (pp.envs.pulse_adaptive(each, law, archive.grid.s).x for each in (world, other))
    rounds = 25 - world.lead
    assert_allclose(one[:, :rounds], two[:, :rounds], rtol=1e-9)


def test_without_a_posterior_it_is_pulse(online):
    """Draws that are all alike: nothing to hand over, and it says so."""
    law = pp.linear_lags(LAGS).fit(WORLD.archive(50, 60, rng=pp.stream(0, "a")), seed=0)
    sure = {name: np.repeat(value[:1], 5, axis=0) for name, value in law.draws.items()}
    law = replace(law, draws=sure)
    with pytest.warns(UserWarning, match="pulse_adaptive: the law has no posterior spread"):
        adaptive = pp.envs.pulse_adaptive(online, law)
    plain = pp.envs.pulse(online, law)
    assert_array_equal(adaptive.x, plain.x)
    run = pp.simulate(online, [plain, adaptive])
    assert_array_equal(run.action[0], run.action[1])


class Sampler:
    """All a law must be able to do to be simulated, and no more."""

    schema = Schema.of(("s",), ("w",))

    def __init__(self, slope):
        self.slope = slope

    def __call__(self, source):
        s = source.reshape(-1, 1)
        return Normal(self.slope * s, s, exact=False)


@pytest.mark.parametrize("each", [False, True], ids=["one law", "one per run"])
@pytest.mark.parametrize("kind", ["sampler", "imputer"])
def test_a_law_of_another_kind_is_played_as_by_pulse(online, kind, each):
    make = Sampler if kind == "sampler" else lambda by: Guess(pp.Lags(1), slope=by)
    law = [make(0.1 * r) for r in range(8)] if each else make(0.5)
    with pytest.warns(UserWarning, match=f"{type(make(1.0)).__name__} is no fitted law"):
        adaptive = pp.envs.pulse_adaptive(online, law, seed=4)
    plain = pp.envs.pulse(online, law, seed=4)
    assert adaptive.name == "pulse_adaptive"
    assert_array_equal(adaptive.x, plain.x)
    run = pp.simulate(online, [plain, adaptive])
    assert_array_equal(run.action[0], run.action[1])
    budget = pp.policies.robust(sigma=0.2, budget=3.0, dim=4)
    with pytest.warns(UserWarning, match="is no fitted law"):
        capped = pp.envs.pulse_adaptive(online, law, radius=budget)
    gamma = [
        pp.policies.play_horizon(plain.x, online.reward, budget, error=e)[1]
        for e in (None, capped.error)
    ]
    assert_array_equal(*gamma)


def test_the_size_of_theta_is_that_of_the_radius(curve):
    law, archive = curve
    world = pp.envs.nonlinear_w_times_action().world(2, 30, rng=pp.stream(0, "online"))
    radii = {1.0: pp.constant(1.0), 2.5: pp.corrected(sigma=0.3, theta_bound=2.5)}
    unit = pp.envs.pulse_adaptive(world, law, archive.grid.s, theta_bound=1.0).error
    assert (unit > 0).any()
    for size, radius in radii.items():
        error = pp.envs.pulse_adaptive(world, law, archive.grid.s, radius=radius).error
        assert_allclose(error, size * unit, rtol=1e-12)
        bot = pp.AdaptivePulseUCB(law, world.features, radius, archive.grid.s)
        for row in world.s[0, : world.lead]:
            bot.observe(row)
        choice = bot.act(world.s[0, world.lead])
        assert choice.error == pytest.approx(error[0, 0, choice.action], rel=1e-9)
    own = pp.envs.pulse_adaptive(
        world, law, archive.grid.s, radius=radii[2.5], theta_bound=0.5
    ).error
    assert_allclose(own, 0.5 * unit, rtol=1e-12)
    with pytest.raises(pp.errors.SettingError, match="theta_bound"):
        pp.envs.pulse_adaptive(world, law, archive.grid.s, theta_bound=0.0)


def test_refusals_say_why(few, online):
    with pytest.raises(pp.errors.ModelError, match="fitted law"):
        pp.policies.directions(pp.linear_lags(2), online.s)
    with pytest.raises(pp.errors.ModelError, match="fitted law was expected, but got Law"):
        pp.envs.pulse_adaptive(online, pp.linear_lags(2))
    with pytest.raises(pp.errors.SettingError, match="3 laws were given for 8 runs"):
        pp.envs.pulse_adaptive(online, [few] * 3)
    bent = pp.Features(lambda s, w, a: np.column_stack([w**2, a * w]), 2, ("w2", "wa"))
    s = online.s[:1, :30]
    with pytest.raises(pp.errors.FeatureError, match="affine"):
        pp.policies.adaptive_features(
            np.zeros((1, 30, 2, 2)), bent, s, mean_at(few, s), np.ones((1, 30, 1, 2))
        )
