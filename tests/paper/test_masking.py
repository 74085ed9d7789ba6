"""Masks hide what they say, and each level of information uses no more than its own."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from pulse_pyro._core.errors import SettingError
from pulse_pyro._core.seeds import stream
from pulse_pyro.envs.arma import w_times_action
from pulse_pyro.laws.filtering import state_space
from pulse_pyro.laws.linear import linear_lags
from pulse_pyro.paper.masking import LAGS, MASKING, _agents, _dropout, hide, masked_window
from pulse_pyro.paper.setting import Ready
from tests.helpers import assert_mean, predict_rows

ENV = w_times_action()


@pytest.fixture(scope="module")
def ready():
    world = ENV.world(2, 60, rng=stream(0, "online"))
    archives = tuple(ENV.archive(60, 60, rng=stream(0, "archive", r)) for r in range(2))
    laws = {"linear": linear_lags(LAGS), "memory": state_space(19)}
    fitted = {n: [law.fit(a, seed=0) for a in archives] for n, law in laws.items()}
    return Ready(world, archives, fitted, 0)


def agents(ready, p):
    return {agent.name: agent for agent in _agents(ready, p)}


def test_entries_are_hidden_at_the_stated_rate_and_else_left_alone():
    values = np.arange(40_000.0).reshape(200, 200)
    out = hide(values, 0.3, rng=np.random.default_rng(0))
    hidden = np.isnan(out)
    assert_mean(hidden.ravel(), 0.3)
    assert_array_equal(out[~hidden], values[~hidden])
    assert_array_equal(hide(values, 0.0, rng=np.random.default_rng(0)), values)


def test_a_window_is_hidden_anew_in_every_round(ready):
    window = masked_window(ready.world, LAGS, 0.5, rng=stream(0, "mask"))
    full = LAGS(ready.world.s)[:, ready.world.lead :]
    assert window.shape == full.shape
    now, next_round = np.isnan(window[:, :-1, :-1]), np.isnan(window[:, 1:, 1:])
    assert_mean((now ^ next_round).ravel(), 0.5)  # the same S, one round later


@pytest.mark.parametrize("p", [-0.1, 1.0, np.nan])
def test_an_impossible_probability_is_refused(p):
    with pytest.raises(SettingError, match="probability must lie"):
        hide(np.zeros(3), p, rng=np.random.default_rng(0))


def test_without_masks_all_expectations_agree(ready):
    found = agents(ready, 0.0)
    for name in ("pulse_conditioned_now", "pulse_memory"):
        assert_allclose(found[name].x, found["pulse_conditioned"].x, atol=2e-3)
    assert_allclose(found["pulse_zero"].x, found["pulse_conditioned"].x, atol=2e-2)


def test_conditioning_is_the_gaussian_formula(ready):
    """E[W | seen lags] = a + b'E[x | seen], by hand for one row, from the fitted law's moments."""
    law, p = ready.laws["linear"][0], 0.6
    window = masked_window(ready.world, LAGS, p, rng=stream(0, "mask"))
    x = window[0, 7]
    seen = ~np.isnan(x)
    mean, cov = law.inputs.mean, law.inputs.cov
    full = x.copy()
    gain = cov[np.ix_(~seen, seen)] @ np.linalg.inv(cov[np.ix_(seen, seen)])
    full[~seen] = mean[~seen] + gain @ (x[seen] - mean[seen])
    by_hand = predict_rows(law, full[None], 1, rng=stream(0, "x"))[0][0, 0]
    assert_allclose(agents(ready, p)["pulse_conditioned"].x[0, 7, 1, 2], by_hand, rtol=1e-6)


def test_hidden_values_change_nothing_without_memory(ready):
    """Move one S of the past: where its lag is hidden, only the law with memory notices."""
    s = ready.world.s.copy()
    at = ready.world.lead + 30
    s[0, at] += 5.0
    moved = replace(ready, world=replace(ready.world, s=s))
    before, after = agents(ready, 0.5), agents(moved, 0.5)
    window = masked_window(ready.world, LAGS, 0.5, rng=stream(0, "mask"))
    later = [t for t in range(31, 49) if np.isnan(window[0, t, t - 30])]
    assert later
    for name in ("pulse_zero", "pulse_zero_paper", "pulse_conditioned", "pulse_conditioned_now"):
        assert_array_equal(before[name].x[0, later], after[name].x[0, later])
    assert (before["pulse_memory"].x[0, later] != after["pulse_memory"].x[0, later]).any(-1).all()


def test_one_draw_acts_and_another_one_teaches(ready):
    paper = agents(ready, 0.2)["pulse_zero_paper"]
    assert not np.isin(paper.x[..., 2], paper.taught[..., 2]).any()
    assert (paper.x[:, :, 0, 2] != paper.x[:, :, 1, 2]).all()
    noise = paper.x[..., 2] - paper.taught[..., 2]
    sd = np.array([_dropout(a, 0.3, 0, r)[1] for r, a in enumerate(ready.archives)])[:, None, None]
    assert_mean((noise / sd / np.sqrt(2)).ravel(), 0.0)
    assert_mean(((noise / sd) ** 2 / 2).ravel(), 1.0)


def test_dropout_without_dropping_is_least_squares(ready):
    rows = ready.archives[0].rows(LAGS)
    coef, sd = _dropout(ready.archives[0], 0.0, 0, 0)
    residual = rows.w[:, 0] - coef[0] - rows.x @ coef[1:]
    assert_allclose(rows.x.T @ residual, 0.0, atol=1e-8)
    assert sd == pytest.approx(residual.std())


def test_the_table_has_the_published_lines():
    assert [s.label for s in MASKING.settings] == ["p=0", "p=0.2", "p=0.4", "p=0.6", "p=0.8"]
    printed = [s.published["pulse_zero_paper"].mean for s in MASKING.settings]
    assert printed == [46.52, 73.18, 111.29, 169.47, 267.07]
