"""Adaptive PULSE-UCB: directions carry the posterior's variance, and rewards mend the law."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import pulse_pyro as pp
from pulse_pyro.policies.directions import DrawDirections, LinearDirections
from tests.stat import z_bound

WORLD = pp.w_times_action()
LAGS = pp.Lags(19)


@pytest.fixture(scope="module")
def few():
    return pp.linear_lags(LAGS).fit(WORLD.archive(2, 25, rng=pp.stream(0, "archive")), seed=0)


def psi_at(law, s):
    rows = law.summary(s)
    return pp.directions(law, s).at(rows.reshape(-1, rows.shape[-1])).reshape(*s.shape[:2], 1, -1)


@pytest.fixture(scope="module")
def online():
    return WORLD.world(8, 300, rng=pp.stream(0, "online"))


@pytest.fixture(scope="module")
def curve():
    archive = pp.main_nonlinear().archive(3, 20, rng=pp.stream(1, "archive"))
    return pp.gaussian_process(pp.Window(3, np.mean)).fit(archive, pp.Laplace(300), seed=0), archive


def test_linear_directions_hold_the_whole_posterior_variance(few, online):
    s = online.s[:2, :60]
    psi = psi_at(few, s)
    assert isinstance(pp.directions(few, s), LinearDirections)
    draws = few.mean_draws(s, few.kernel.count, rng=pp.stream(0, "every"))
    rest = slice(19, None)  # before, lags are filled and every draw sees the same
    assert_allclose((psi**2).sum(-1)[:, rest], draws.var(0, ddof=1)[:, rest], rtol=1e-8)


def test_directions_of_draws_hold_their_variance_and_keep_the_draws(curve):
    law, archive = curve
    found = pp.directions(law, archive.s, most=64, seed=3)
    assert isinstance(found, DrawDirections)
    rows = law.summary(archive.s)[:, 2:].reshape(-1, 1)
    psi, draws = found.at(rows), law.mean_draws_at(rows, found.index)
    held = (psi**2).sum() / draws.var(0).sum()
    assert 0.99 <= held <= 1 + 1e-9
    assert_array_equal(psi, found.at(rows))


def test_a_law_that_is_a_draw_of_the_posterior_is_linear_in_the_features(few, online):
    """theta' E[Phi | S] under any draw of the law lies in the span: no bias is left."""
    s = online.s[:2]
    phihat = pp.expected_features(few, WORLD.features, s, size=2, rng=pp.stream(0, "x")).mean
    x = pp.adaptive_features(phihat, WORLD.features, s, few.mean(s), psi_at(few, s))
    assert x.shape[-1] == 4 + 2 * 20
    draw = few.mean_draws(s, 1, rng=pp.stream(5, "one"))[0]
    phi = np.stack([WORLD.features(s.reshape(-1, 1), draw.reshape(-1, 1), a) for a in range(2)], 1)
    target = (phi @ np.array(WORLD.theta)).reshape(*s.shape[:2], 2)[:, 19:]
    rows, y = x[:, 19:].reshape(-1, x.shape[-1]), target.ravel()
    left = y - rows @ np.linalg.lstsq(rows, y, rcond=None)[0]
    assert np.abs(left).max() < 1e-8 * np.abs(y).max()


def test_w_enters_each_feature_it_moves_once_for_each_direction(few, online):
    s = online.s[:1, :30]
    psi = psi_at(few, s)
    phihat = pp.expected_features(few, WORLD.features, s, size=2, rng=pp.stream(0, "x")).mean
    x = pp.adaptive_features(phihat, WORLD.features, s, few.mean(s), psi)
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
    run = pp.simulate(online, [pp.pulse(online, laws), pp.pulse_adaptive(online, laws)])
    apart = run.regret_cond[0, :, -1] - run.regret_cond[1, :, -1]
    if gain:
        assert apart.mean() > z_bound() * apart.std(ddof=1) / np.sqrt(runs)
    else:
        assert abs(apart.mean()) < 0.05 * run.regret_cond[0, :, -1].mean()


def test_a_gaussian_process_is_mended_too():
    world = pp.nonlinear_w_times_action()
    online = world.world(12, 600, rng=pp.stream(3, "online"))
    archive = world.archive(1, 6, rng=pp.stream(3, "archive"))
    law = pp.gaussian_process(pp.Window(3, np.mean)).fit(archive, seed=0)
    run = pp.simulate(online, [pp.pulse(online, law), pp.pulse_adaptive(online, law)])
    apart = run.regret_cond[0, :, -1] - run.regret_cond[1, :, -1]
    assert apart.mean() > z_bound() * apart.std(ddof=1) / np.sqrt(len(apart))


def test_without_a_posterior_it_is_pulse(online):
    """Minimum-norm least squares with draws that are all alike: nothing to hand over."""
    law = pp.linear_lags(LAGS).fit(WORLD.archive(50, 60, rng=pp.stream(0, "a")), seed=0)
    sure = {name: np.repeat(value[:1], 5, axis=0) for name, value in law.draws.items()}
    law = replace(law, draws=sure)
    plain, adaptive = pp.pulse(online, law), pp.pulse_adaptive(online, law)
    assert_allclose(adaptive.x[..., 4:], 0.0, atol=1e-12)
    run = pp.simulate(online, [plain, adaptive])
    assert_array_equal(run.action[0], run.action[1])


def test_refusals_say_why(few, online):
    with pytest.raises(pp.ModelError, match="fitted law"):
        pp.directions(pp.linear_lags(2), online.s)
    with pytest.raises(pp.SettingError, match="3 laws came for 8 runs"):
        pp.pulse_adaptive(online, [few] * 3)
    bent = pp.Features(lambda s, w, a: np.column_stack([w**2, a * w]), 2, ("w2", "wa"))
    s = online.s[:1, :30]
    with pytest.raises(pp.FeatureError, match="affine"):
        pp.adaptive_features(np.zeros((1, 30, 2, 2)), bent, s, few.mean(s), np.ones((1, 30, 1, 2)))
