"""The memory study: names, one law a run, what the further table says."""

from dataclasses import replace

import numpy as np
import pytest

from pulse_pyro._core.registry import named
from pulse_pyro.paper import EXPERIMENTS
from pulse_pyro.paper.memory_study import LAW, reward_scale, teams
from pulse_pyro.paper.runner import run_experiment, run_setting


def setting_named(label, **changes):
    every = {s.label: s for s in named(EXPERIMENTS, "memory").settings}
    return replace(every[label], **changes)


def test_settings_and_agents_have_their_names():
    experiment = named(EXPERIMENTS, "memory")
    wanted = [f"ar {ar} share {part}" for part in (".5", "0") for ar in ("0", ".5", ".9", ".98")]
    assert [setting.label for setting in experiment.settings] == wanted
    agents = {"pulse", "memory", "larl_s", "oful_lags_rewards", "committee", "kalman_oracle"}
    assert agents <= set(experiment.notes)


def test_rewards_track_what_persists():
    settings = tuple(
        setting_named(label, units=30, length=40, horizon=400)
        for label in ("ar 0 share .5", "ar .98 share .5")
    )
    experiment = replace(named(EXPERIMENTS, "memory"), settings=settings)
    result = run_experiment(experiment, runs=4, seed=0)
    table = result.table.set_index(["setting", "agent"])["regret"]
    late = "ar .98 share .5"
    assert table[late, "memory"] < 0.5 * table[late, "pulse"]
    assert table[late, "committee"] < 0.6 * table[late, "pulse"]
    assert abs(result.extra["over_pulse"][0]) < 1.0
    extra = result.extra.set_index("setting")
    assert extra.loc[late, "serial_fails_pulse"] == 1.0
    assert extra.loc[late, "serial_fails_memory"] < 1.0
    assert extra.loc["ar 0 share .5", "held_pulse"] == 1.0
    balls = result.table.set_index(["setting", "agent"])["ball"]
    assert balls[late, "memory"] == extra.loc[late, "held_memory"]
    assert extra.loc[late, "over_pulse"] == pytest.approx(
        table[late, "memory"] - table[late, "pulse"]
    )


def test_sigma_counts_the_noise_of_rewards_and_what_the_law_leaves():
    setting = setting_named("ar .5 share .5", units=20, length=30, horizon=30)
    ready = setting.prepared(2, 0)
    law, env = ready.laws[LAW][0], setting.environment
    scale = reward_scale(env, law)
    left = 2.0 * np.sum(env.theta**2) * law.memory.variance[0, 0]
    assert scale.sigma**2 == pytest.approx(env.reward_sd**2 + left)
    *_, voting = teams(ready.world.one(0), env, law, 0)
    assert voting.labels == ("pulse", "memory", "oful_lags_rewards", "oful")
    assert voting.ball is None


def test_no_round_is_refused():
    setting = setting_named("ar .9 share 0", units=20, length=30, horizon=50)
    assert (run_setting(setting, 2, 0).action >= 0).all()
