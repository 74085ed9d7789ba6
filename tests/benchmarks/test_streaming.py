"""One decision and one reward at a time, against a bare NumPy loop written for this one problem."""

from time import perf_counter_ns

import numpy as np

from pulse_pyro.envs.arma import w_times_action
from pulse_pyro.laws.linear import linear_lags
from pulse_pyro.policies.pulse import PulseUCB
from pulse_pyro.radius import constant
from tests.helpers import mean_at

ROUNDS, REPEATS, ALPHA = 3000, 5, 2.0


def shell(world, law):
    """Nanoseconds of every act + learn, and the arms played."""
    bot = PulseUCB(law, world.features, constant(ALPHA))
    bot.forget([bot.act(s) for s in world.s[0, : world.lead]])
    reward, spent, arms = world.reward[0], [], []
    for t, s in enumerate(world.s[0, world.lead :]):
        start = perf_counter_ns()
        decision = bot.act(s)
        bot.learn(decision, reward[t, decision.action])
        spent.append(perf_counter_ns() - start)
        arms.append(decision.action)
    return spent, arms


def bare(world, law):
    """The same, with Phi = (1, S, W, W a), 19 lags and two arms written into the loop."""
    basis = np.concatenate([np.zeros((1, 19)), np.eye(19)])[:, ::-1]
    at = mean_at(law, basis[..., None])[:, -1, 0]
    intercept, slope = at[0], at[1:] - at[0]
    inverse, theta, x = np.eye(4), np.zeros(4), np.ones((2, 4))
    past = world.s[0, world.lead - 1 : world.lead - 20 : -1, 0].copy()
    reward, spent, arms = world.reward[0], [], []
    for t, s in enumerate(world.s[0, world.lead :]):
        start = perf_counter_ns()
        past[1:] = past[:-1]
        past[0] = s[0]
        w = intercept + slope @ past
        x[:, 1] = s[0]
        x[:, 2] = w
        x[0, 3], x[1, 3] = 0.0, w
        rows = x @ inverse
        score = x @ theta + ALPHA * np.sqrt((rows * x).sum(1))
        a = int(score.argmax())
        v = rows[a]
        shrink = 1.0 / (1.0 + v @ x[a])
        theta += v * ((reward[t, a] - x[a] @ theta) * shrink)
        inverse -= np.outer(v, v * shrink)
        spent.append(perf_counter_ns() - start)
        arms.append(a)
    return spent, arms


def test_act_and_learn_take_at_most_three_times_a_bare_loop():
    env = w_times_action()
    law = linear_lags(19).fit(env.archive(100, 40, rng=np.random.default_rng(0)), seed=0)
    world = env.world(1, ROUNDS, rng=np.random.default_rng(1))
    assert shell(world, law)[1] == bare(world, law)[1]
    median = {shell: np.inf, bare: np.inf}
    for _ in range(REPEATS):
        for side in median:
            median[side] = min(median[side], np.median(side(world, law)[0]) / 1e3)
    ratio = median[shell] / median[bare]
    print(
        f"\nPulseUCB.act + learn, 19 lags, d=4, K=2: median {median[shell]:.1f} microseconds (60 "
        f"wanted), bare NumPy loop {median[bare]:.1f}: {ratio:.2f} times a bare loop (bar 3)"
    )
    assert ratio <= 3
