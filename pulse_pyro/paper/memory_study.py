"""What tracking the law's leftover by rewards is worth: a latent autoregression beside S.

W_t = slope S_t + z_t, z an autoregression of one lag: ``ar`` is its coefficient, ``share`` what S
explains of the variance of W (``envs.latent_ar``). Every run fits a law linear in S_t and the
memory of what it leaves, by maximum likelihood, on an archive of its own; all agents but larl_s and
kalman_oracle play alpha = sigma with the ridge that suits it, so nothing is tuned:

    sigma = hypot(reward_sd, S sqrt(2) sd of what the law leaves),   S = ||theta*||,

sqrt(2) because W reaches two of the features, W and W a.

No ball is valid once what the law leaves has memory. The further table says how often one held
nevertheless, with and without the filter, and what ``serial`` says of what is left.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from pulse_pyro._core.seeds import stream
from pulse_pyro.data.history import History
from pulse_pyro.data.summary import Lags
from pulse_pyro.diagnostics.by_unit import Place
from pulse_pyro.diagnostics.serial import serial_check, serial_rows
from pulse_pyro.envs.agents import oful, oful_lags, pulse
from pulse_pyro.envs.baselines import kalman_agent, larl_agent
from pulse_pyro.envs.latent_world import LatentArWorld, latent_ar
from pulse_pyro.envs.simulation import Fixed, PerRun, Run, Team, cond_oracle
from pulse_pyro.envs.teams import RewardScale, committee, remembering, tuned, with_past_rewards
from pulse_pyro.envs.world import World
from pulse_pyro.laws.linear import linear_lags
from pulse_pyro.paper.paired import paired
from pulse_pyro.paper.setting import Experiment, Ready, Setting
from pulse_pyro.policies.carried import past_rewards
from pulse_pyro.policies.guard import Ball

if TYPE_CHECKING:
    from pandas import DataFrame

    from pulse_pyro.paper.result import Result

AR = (0.0, 0.5, 0.9, 0.98)
SHARES = (0.5, 0.0)
UNITS, LENGTH, HORIZON = 100, 60, 1000
DELTA = 0.05
LAW = "pulse"
NOTES = {
    "pulse": "not published: E[W | S_t], nothing of earlier rewards",
    "memory": "not published: the law's leftover tracked by rewards",
    "larl_s": "not published: LARL with S_t, told that one past reward is enough",
    "oful_lags_rewards": "not published: S_t, S_{t-1} and the last reward and arm; no archive",
    "committee": "not published: pulse, memory, oful_lags_rewards and S alone vote",
    "kalman_oracle": "not published: knows every parameter, and filters",
    "cond_oracle": "not published: knows theta and E[Phi | S]; the filter may earn more",
}


def reward_scale(env: LatentArWorld, law: Any) -> RewardScale:
    """Return sigma, S and the sd of reward noise that agents are told; law : with a memory."""
    size = float(np.linalg.norm(env.theta))
    left = math.sqrt(float(law.memory.variance[0, 0]))
    return RewardScale(math.hypot(env.reward_sd, size * math.sqrt(2.0) * left), size, env.reward_sd)


def teams(world: World, env: LatentArWorld, law: Any, seed: int) -> list[Team]:
    """Return what plays one run; world : that run alone.

    pulse and memory have a ball that is never in their way (any slack): R1 of a sigma-sub-Gaussian
    reward, law errors left out, only to see whether it holds theta*.
    """
    scale = reward_scale(env, law)
    lagged = oful_lags(world, Lags(2))
    lagged = replace(lagged, x=np.nan_to_num(lagged.x))  # before the first round S is at its mean
    plain = tuned(pulse(world, law, seed=seed), scale)
    tracked = remembering(world, law, scale, seed=seed)
    past = with_past_rewards(lagged, past_rewards(1), scale, name="oful_lags_rewards")
    ball = Ball(
        theta_bound=scale.theta_bound,
        delta=DELTA,
        noise=scale.sigma,
        spread=None,
        directions=np.zeros((0, len(env.theta))),
        of=np.zeros(0, np.int64),
    )
    return [
        *(replace(team, ball=ball, slack=math.inf) for team in (plain, tracked)),
        past,
        committee([plain, tracked, past, tuned(oful(world), scale)]),
    ]


def _agents(ready: Ready, env: LatentArWorld) -> Sequence[PerRun | Fixed]:
    world, seed = ready.world, ready.seed
    runs = [teams(world.one(r), env, law, seed) for r, law in enumerate(ready.laws[LAW])]
    return [
        *(PerRun(each[0].name, each) for each in zip(*runs, strict=True)),
        larl_agent(world, memory=1, context=True, seed=seed),
        replace(kalman_agent(world, env), name="kalman_oracle"),
        cond_oracle(world),
    ]


def serial_fails(law: Any, archive: History, *, tracked: bool) -> bool:
    """Ask ``serial`` of what the law leaves, or of what its memory leaves of that."""
    left, kind, extra = archive.w - law(archive).mean(), "", 1.0
    if tracked:
        memory = law.memory
        left = memory.innovations(left, archive.unit_of, archive.step)
        kind = memory.kind
        extra = 1.0 + max(len(archive.units) / memory.units, len(left) / memory.rows)
    place = Place(archive.unit_of, archive.step)
    test = serial_rows(left[:, 0], archive.inputs(law.summary), place, extra=extra)
    return serial_check(archive.w_names[0], test, kind).verdict == "fail"


def _failing(setting: Setting, runs: int, seed: int) -> tuple[float, float]:
    """Return the share of runs that ``serial`` fails on a second archive, without and with memory.

    The laws are fitted anew, which gives the same ones: a run keeps none.
    """
    ready, failed = setting.prepared(runs, seed), []
    for r, law in enumerate(ready.laws[LAW]):
        rng = stream(seed, "held out", r)
        other = setting.environment.archive(setting.units, setting.length, rng=rng)
        failed.append([serial_fails(law, other, tracked=tracked) for tracked in (False, True)])
    plain, tracked = np.mean(failed, axis=0)
    return float(plain), float(tracked)


def beside_pulse(result: Result) -> DataFrame:
    """Return paired differences, shares of runs whose ball held, and of runs ``serial`` fails.

    over_pulse : memory minus pulse; committee_over : committee minus the better of the two in the
    mean; both with paired standard errors, negative = less regret.
    """
    import pandas as pd

    rows = []
    for setting in result.experiment.settings:
        run = result.curves[setting.label]
        gain = paired(run, "memory", "pulse")
        better = "memory" if gain.difference < 0 else "pulse"
        vote = paired(run, "committee", better)
        plain, tracked = _failing(setting, len(run.info_gap), result.seed)
        rows.append(
            {
                "setting": setting.label,
                "over_pulse": gain.difference,
                "over_pulse_se": gain.se,
                "better": better,
                "committee_over": vote.difference,
                "committee_over_se": vote.se,
                "committee_times": 1.0 + vote.difference / float(run.of(better)[:, -1].mean()),
                "held_pulse": _held(run, "pulse"),
                "held_memory": _held(run, "memory"),
                "serial_fails_pulse": plain,
                "serial_fails_memory": tracked,
            }
        )
    return pd.DataFrame(rows)


def _held(run: Run, name: str) -> float:
    """Share of the runs whose ball held theta* at all rounds."""
    assert run.held is not None
    return float(run.held[run.names.index(name)].mean())


def _number(value: float) -> str:
    """0, .5, .98: as the settings are named."""
    return f"{value:g}".replace("0.", ".")


def _setting(ar: float, share: float) -> Setting:
    env = latent_ar(share=share, ar=(ar,))
    return Setting(
        label=f"ar {_number(ar)} share {_number(share)}",
        environment=env,
        units=UNITS,
        length=LENGTH,
        horizon=HORIZON,
        laws={LAW: linear_lags(1).with_memory("ar")},
        agents=partial(_agents, env=env),
        group=f"share {_number(share)}",
    )


MEMORY_STUDY = Experiment(
    name="memory",
    title="Regret where what S leaves of W has a memory",
    about="W = slope S + z, z autoregressive; 1000 rounds, archives of 100 units x 60 rows, a law "
    "linear in S_t with its memory fitted on each. Full regret: policies that use past rewards may "
    "earn more than the best policy on S (cond_oracle). The further table has paired differences, "
    "the share of runs whose ball held at all rounds (no ball is valid here unless ar is 0: with "
    "or without the filter it is a heuristic), and the share in which serial fails what is left.",
    settings=tuple(_setting(ar, share) for share in SHARES for ar in AR),
    runs=40,
    notes=NOTES,
    shown=(
        "pulse",
        "memory",
        "larl_s",
        "oful_lags_rewards",
        "committee",
        "kalman_oracle",
        "cond_oracle",
    ),
    extra=beside_pulse,
)
