"""CLBBF as published, with and without its leak of W, and started from an archive.

The published comparison hands CLBBF the true W: the mask only decides which entries are replaced,
after the moments were taken over everything, and W*a counts as observed. The same code with
moments of everything gives the published figures; the honest policy gives others.
"""

import os

import numpy as np
import pytest

import pulse_pyro as pp
from pulse_pyro.policies.clbbf_ucb import (
    Exploration,
    arm_vectors,
    clbbf,
    clbbf_shared,
    clbbf_warm,
    shared_context,
)
from tests.helpers import z_bound

# the prototype's figure, from 8 to 10 runs, is not what 900 runs of this code give: 8.6 +- 0.15
KNOWN_TO_DIFFER = {("leaky, radius x .25", 4.8)}
RUNS = int(os.environ.get("PULSE_RUNS", "30"))
LIKE_FOR_LIKE = Exploration(pp.constant(2.0), ridge=1.0)  # what the other published agents use


def leaky(world, explore):
    return pp.envs.clbbf_paper_agent(world, explore=explore).action


def table(env, horizon, summary, targets):
    world = env.world(RUNS, horizon, rng=pp.stream(0, "study", "world"))
    archive = env.archive(1000, 100, rng=pp.stream(0, "study", "archive"))
    x, mask = arm_vectors(world.features, world.s[:, world.lead :], 1)
    phi, s, r = world.features, world.s, world.reward
    quarter = Exploration(0.25)
    played = {
        "leaky, as published": leaky(world, Exploration()),
        "leaky, radius x .25": leaky(world, quarter),
        "honest, common rate": clbbf(x, mask, r, rates="common"),
        "honest, rate of each": clbbf(x, mask, r),
        "honest, radius x .25": clbbf(x, mask, r, explore=quarter),
        "honest, constant 2": clbbf(x, mask, r, explore=LIKE_FOR_LIKE),
        "honest, shared context": clbbf_shared(phi, shared_context(s, 1, horizon), r),
        "warm": clbbf_warm(phi, s, r, archive),
        "warm, constant 2": clbbf_warm(phi, s, r, archive, explore=LIKE_FOR_LIKE),
        "warm with the past": clbbf_warm(phi, s, r, archive, summary=summary),
        "warm with the past, constant 2": clbbf_warm(
            phi, s, r, archive, summary=summary, explore=LIKE_FOR_LIKE
        ),
    }
    agents = [pp.envs.Fixed(name, action) for name, action in played.items()]
    found = pp.simulate(world, [*agents, pp.envs.oful(world), pp.envs.oful_full(world)]).table
    off = {}
    for name, regret, se in zip(found.index, found["regret"], found["se"], strict=True):
        target = targets.get(name)
        differs = target is not None and abs(regret - target) > max(0.15 * target, 2 * se)
        if differs and (name, target) not in KNOWN_TO_DIFFER:
            off[name] = regret
        verdict = f"expected {target}{'  DIFFERS' if differs else ''}" if target else ""
        print(f"{name:32}{regret:8.1f} +- {se:5.1f}   {verdict}", flush=True)
    return off


def test_main_linear():
    targets = {
        "leaky, as published": 20.8,
        "leaky, radius x .25": 27.3,
        "honest, common rate": 25.4,
        "warm, constant 2": 11.5,
        "oful": 11.8,
        "oful_full": 10.9,
    }
    assert not table(pp.envs.main_linear(), 1000, pp.Lags(3), targets)


def test_w_times_action():
    targets = {
        "leaky, as published": 139.0,
        "leaky, radius x .25": 4.8,
        "honest, common rate": 769.0,
        "warm, constant 2": 232.0,
        "oful_full": 2.4,
    }
    assert not table(pp.envs.w_times_action(), 980, pp.Lags(19), targets)


@pytest.mark.parametrize("units", [3, 5, 10, 50, 1000])
def test_small_archives(units):
    env = pp.envs.w_times_action()
    world = env.world(RUNS, 980, rng=pp.stream(0, "study", "world"))
    archives = [env.archive(units, 25, rng=pp.stream(0, "study", units, r)) for r in range(RUNS)]
    args, past = (world.features, world.s, world.reward, archives), pp.Lags(19)
    warm = clbbf_warm(*args, summary=past, explore=LIKE_FOR_LIKE)
    frozen = clbbf_warm(*args, summary=past, frozen=True, explore=LIKE_FOR_LIKE)
    laws = [pp.linear_lags(19).fit(one, pp.Exact(), seed=0) for one in archives]
    agents = [
        pp.envs.Fixed("warm", warm),
        pp.envs.Fixed("warm, frozen", frozen),
        pp.envs.pulse(world, laws),
    ]
    found = pp.simulate(world, agents)
    print(f"{units} archived units of 25 rows\n{found.table[['regret', 'se']]}", flush=True)
    assert np.isfinite(found.table["regret"]).all()
    # moments of S that go on to grow belong to other rows than those with W: that cannot help
    apart = found.of("warm, frozen")[:, -1] - found.of("warm")[:, -1]
    assert apart.mean() <= z_bound() * apart.std(ddof=1) / np.sqrt(RUNS)
