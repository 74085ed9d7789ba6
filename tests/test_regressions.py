"""Silent wrong answers that were found once, each in its smallest form."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pyro
import pyro.distributions as dist
import pytest
import torch

from pulse_pyro._core.errors import DataError, FeatureError, ModelError, RewardError, SettingError
from pulse_pyro._pyro import engines
from pulse_pyro._pyro.inference import Laplace
from pulse_pyro._pyro.sandbox import sandbox
from pulse_pyro.data.history import History
from pulse_pyro.data.summary import Lags, Stack, Window
from pulse_pyro.diagnostics.held_out import diagnose
from pulse_pyro.envs.simulation import Agent, simulate
from pulse_pyro.features import Features, expected_features
from pulse_pyro.laws.conjugate import Conjugate, Flat
from pulse_pyro.laws.law import Law
from pulse_pyro.laws.linear import linear_lags
from pulse_pyro.policies.horizon import play_horizon
from pulse_pyro.policies.pulse import PulseUCB
from pulse_pyro.radius import constant
from tests.helpers import linear_history

HISTORY, _ = linear_history(units=30, time=40, lags=2)
LAW = linear_lags(2).fit(HISTORY, seed=0)
PHI = Features(lambda s, w, a: np.column_stack([s, w * a]), 2, ("s", "w*a"))


def policy(features=PHI, **more):
    return PulseUCB(LAW, features, constant(1.0), **more)


@pytest.mark.parametrize("unit", [1.0, 3000.0])
def test_summaries_of_different_size_do_not_shrink_each_other(unit):
    summary = Stack(Lags(1), Window(7, np.var))
    history = History.from_arrays(
        HISTORY.grid.s * unit,
        HISTORY.grid.w,
        seen=HISTORY.grid.seen,
        units=HISTORY.units,
        s_names=HISTORY.s_names,
        w_names=HISTORY.w_names,
    )
    weak, flat = (linear_lags(summary, prior=p).fit(history, seed=0) for p in (None, Flat()))
    np.testing.assert_allclose(weak(history).mean(), flat(history).mean(), atol=0.01)


def test_a_model_with_parameters_outside_the_posterior_is_refused():
    def model(x, w=None):
        slope = pyro.param("slope", lambda: 0.0 * x[0, 0])
        sd = pyro.sample("sd", dist.HalfNormal(1.0))
        with pyro.plate("rows", x.shape[-2], dim=-1):
            pyro.sample("w", dist.Normal(slope * x[..., :1], sd[..., None]).to_event(1), obs=w)

    with pytest.raises(ModelError, match=r"'slope' is a pyro.param"):
        Law(model, Lags(2)).fit(HISTORY, Laplace(), seed=0)


def test_features_too_large_for_double_precision_are_refused():
    x = np.full((1, 50, 2, 2), 1e8) * np.random.default_rng(0).uniform(0.9, 1.1, (1, 50, 2, 2))
    with pytest.raises(FeatureError, match="rescale the features"):
        play_horizon(x, np.ones((1, 50, 2)), constant(1.0))
    with pytest.raises(FeatureError, match="rescale the features"):
        policy(Features(lambda s, w, a: 1e8 + 0 * s, 2, ("big",))).act([0.1])


def test_a_decision_of_another_policy_is_refused():
    one, two = policy(), policy()
    one.act([0.1])
    with pytest.raises(RewardError, match="another policy"):
        one.learn(two.act([0.9]), 1.0)


def test_allowed_arms_are_flags_not_numbers():
    with pytest.raises(SettingError, match="True or False"):
        policy().act([0.1], allowed=[1, 0])


def test_an_infinite_summary_is_refused():
    def log_of_mean(windows, axis):
        with np.errstate(all="ignore"):
            return np.log(np.abs(np.mean(windows, axis=axis)))

    s = HISTORY.grid.s.copy()
    s[:, 5] = 0.0
    history = History.from_arrays(
        s,
        HISTORY.grid.w,
        seen=HISTORY.grid.seen,
        units=HISTORY.units,
        s_names=("s",),
        w_names=("w0",),
    )
    with pytest.raises(DataError, match="infinite value"):
        linear_lags(Window(1, log_of_mean)).fit(history, seed=0)


@pytest.mark.parametrize(("step", "rows"), [("1h", 72), ("1D", 60)])
def test_a_change_of_the_clocks_neither_repeats_nor_skips(step, rows):
    time = pd.date_range("2024-10-26", periods=rows, freq=step, tz="Europe/Berlin")
    frame = pd.DataFrame({"u": "a", "t": time, "s": 1.0, "w": 2.0})
    history = History.from_frame(frame, unit="u", time="t", observed=["s"], missing=["w"])
    assert history.grid.seen.shape == (1, rows)
    assert history.grid.seen.all()


def test_arms_with_the_same_context_of_their_own_get_the_same_features():
    square = Features(lambda s, w, a: w**2, 2, ("w^2",))
    s = np.repeat(HISTORY.grid.s[:1, :10, None], 2, axis=2)
    found = expected_features(LAW, square, s, size=16, rng=np.random.default_rng(0)).mean
    np.testing.assert_array_equal(found[:, :, 0], found[:, :, 1])
    choice = policy(square, size=16).act([[0.2], [0.2]])
    assert choice.mean[0] == choice.mean[1]
    assert choice.width[0] == choice.width[1]


def test_a_feature_that_looks_at_other_rows_is_refused():
    centred = Features(lambda s, w, a: s - s.mean(0) + w * a, 2, ("x",))
    with pytest.raises(FeatureError, match="rows one by one"):
        expected_features(LAW, centred, HISTORY.grid.s[:1], size=2, rng=np.random.default_rng(0))


def test_an_agent_that_refuses_to_play_is_not_the_best():
    from pulse_pyro.envs.arma import main_linear

    world = main_linear().world(2, 20, rng=np.random.default_rng(0))
    run = simulate(world, [Agent("broken", world.phi * np.nan), Agent("full", world.phi)])
    assert "lowest conditional regret: full; agents that refused" in repr(run)


def test_labels_of_a_series_are_obeyed():
    history = History.from_arrays(
        np.concatenate([HISTORY.grid.s, 100 + HISTORY.grid.s], axis=-1),
        HISTORY.grid.w,
        seen=HISTORY.grid.seen,
        units=HISTORY.units,
        s_names=("a", "b"),
        w_names=("w0",),
    )
    law = linear_lags(1).fit(history, seed=0)
    phi = Features(lambda s, w, a: s + 0 * w * a, 2, ("a", "b"))
    bot = PulseUCB(law, phi, constant(1.0))
    assert list(bot.act(pd.Series({"b": 100.0, "a": 1.0})).x) == [1.0, 100.0]
    with pytest.raises(DataError, match="labelled"):
        bot.act(pd.Series({"b": 100.0, "c": 1.0}))


def test_units_are_known_by_their_text():
    bot = policy()
    bot.observe([0.3], unit=1)
    bot.observe([0.3], unit="1")
    assert "1 units" in repr(bot)


def test_a_long_list_of_checks_hides_no_failure():
    wide, _ = linear_history(units=20, time=20, lags=1, w_dim=8)
    fit, held_out = wide.split(seed=0)
    law = linear_lags(1).fit(fit, seed=0)
    narrow = {**law.draws, "variance": 1e-4 * law.draws["variance"]}
    broken = replace(law, draws=narrow)
    found = diagnose(broken, held_out, seed=0)
    assert len(repr(found).splitlines()) <= 12
    assert repr(found).splitlines()[1].split()[0] == "fail"
    assert "more, none worse" in repr(found)


@pytest.mark.parametrize(("restarts", "found"), [(1, False), (engines.RESTARTS, True)])
def test_a_curved_valley_takes_more_than_one_search(restarts, found, monkeypatch):
    def valley():
        u = pyro.sample("u", dist.Normal(torch.zeros(100), 1.0).to_event(1).mask(False))
        pyro.factor("valley", -(100 * (u[1:] - u[:-1] ** 2) ** 2 + (1 - u[:-1]) ** 2).sum())

    monkeypatch.setattr(engines, "RESTARTS", restarts)
    with sandbox(0):
        posterior = engines.Potential(valley, (), "valley")
    assert posterior.whitened == found
    assert torch.allclose(posterior.mode, torch.ones(100, dtype=torch.float64), atol=1e-4) == found


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: linear_lags(2).fit(pd.DataFrame(), seed=0), DataError, "History.from_frame"),
        (lambda: linear_lags(2).fit(HISTORY.split(seed=0), seed=0), DataError, "got tuple"),
        (lambda: diagnose(linear_lags(2), HISTORY, seed=0), ModelError, "fit it first"),
        (lambda: PulseUCB(linear_lags(2), PHI, constant(1.0)), ModelError, "fit it first"),
        (lambda: PulseUCB(LAW, PHI, 2.0), SettingError, "constant"),
        (lambda: PulseUCB(LAW, np.sin, constant(1.0)), SettingError, "Features"),
        (lambda: Law(Lags(2), len), SettingError, "first argument"),
        (lambda: policy().act({"s": "x"}), DataError, "must hold numbers for"),
        (lambda: policy().learn(1.0, 2), RewardError, "Decision or its id"),
        (lambda: Conjugate(slope="x"), SettingError, "slope must be a number"),
        (
            lambda: policy(Features(lambda s, w, a: s[:, 9], 2, ("x",))).act([0.1]),
            FeatureError,
            "fn failed for action 0",
        ),
    ],
)
def test_a_newcomer_gets_a_sentence(call, error, says):
    with pytest.raises(error, match=says):
        call()
