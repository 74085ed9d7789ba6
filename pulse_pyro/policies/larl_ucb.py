"""LARL: learn a latent state from the agent's own past rewards (Trella et al., RLC 2025).

Where rewards follow a latent autoregression, the best predictor of the next reward is linear in
past (reward, action) pairs. With e_a the unit vector of arm a and memory s,
    h_t = (r_{t-i} e_{A_{t-i}}, i = s..1;  e_{A_{t-i}}, i = s..1;  1;  context_t),
one ridge regression (ridge 1) of rewards on h for each arm, and UCB with constant alpha. Here the
arms are blocks of one regression, features e_a (x) h_t on the linear core: ridge is block diagonal,
so this is the same policy. ``context`` is ours: LARL as published sees no context.

Not covered: no radius holds for this policy, as the latent state is not a function of s rewards.
"""

from __future__ import annotations

import numpy as np

from pulse_pyro._core.arrays import Float2, Float3, Int, positive, whole
from pulse_pyro._core.errors import FeatureError, RewardError, SettingError
from pulse_pyro._core.seeds import stream
from pulse_pyro.policies import linear
from pulse_pyro.radius import Radius, constant


def larl(
    reward: Float3,
    *,
    memory: int | None = None,
    context: Float3 | None = None,
    alpha: float = 1.0,
    explore: int = 200,
    most: int = 10,
    seed: int = 0,
) -> Int:
    """Play LARL; return actions (run, time).

    Parameters
    ----------
    reward : (run, time, action) what each arm would pay; only the played arm's is read.
    memory : s. The first s rounds are uniformly random. None: arms in turn for ``explore``
        rounds, then s in 1, ..., ``most`` by BIC, for each run.
    context : (run, time, p) columns seen before the round, appended to h.
    alpha : sqrt(gamma), constant.
    explore, most : used where memory is None.
    seed : of the random rounds.
    """
    reward = np.asarray(reward, np.float64)
    if reward.ndim != 3 or not reward.size:
        raise RewardError(f"larl: reward must be (run, time, action), not {reward.shape}.")
    runs, horizon, arms = reward.shape
    seen = np.empty((runs, horizon, 0)) if context is None else np.asarray(context, np.float64)
    if seen.ndim != 3 or seen.shape[:2] != (runs, horizon) or not np.isfinite(seen).all():
        raise FeatureError(
            f"larl: context must be finite, (run, time, p) for (run, time) = {(runs, horizon)}, "
            f"but got an array of shape {seen.shape}."
        )
    radius = constant(positive(alpha, "larl: alpha", zero=True))
    if memory is not None:
        s = whole(memory, "larl: memory", 1)
        first = stream(seed, "larl").integers(arms, size=(runs, min(s, horizon)))
        return _play(reward, seen, first, s, radius) if horizon > s else first
    whole(most, "larl: most", 1)
    if whole(explore, "larl: explore", 1) < most + 2 * arms:
        raise SettingError(
            f"larl: {explore} rounds of exploration cannot tell memories up to {most} apart; "
            f"at least most + 2 arms = {most + 2 * arms} are needed."
        )
    first = np.tile(np.arange(min(explore, horizon)) % arms, (runs, 1))
    if horizon <= explore:
        return first
    chosen = choose_memory(first, _paid(reward[:, :explore], first), arms, most, seen)
    action = np.empty((runs, horizon), np.int64)
    for s in np.unique(chosen):
        of = chosen == s
        action[of] = _play(reward[of], seen[of], first[of], int(s), radius)
    return action


def history_features(action: Int, paid: Float2, arms: int, context: Float3, memory: int) -> Float3:
    """Return h_t for t = memory, ..., time, (run, time - memory + 1, 2 memory arms + 1 + p).

    action, paid : (run, time) what was played and what it paid.
    context : (run, at least time + 1, p).
    """
    runs, time = action.shape
    one = (action[..., None] == np.arange(arms)).astype(np.float64)
    rows = np.arange(time - memory + 1)[:, None] + np.arange(memory)
    shape = (runs, len(rows), memory * arms)
    past = (paid[..., None] * one)[:, rows].reshape(shape), one[:, rows].reshape(shape)
    return np.concatenate([*past, np.ones((*shape[:2], 1)), context[:, memory : time + 1]], axis=2)


def choose_memory(action: Int, paid: Float2, arms: int, most: int, context: Float3) -> Int:
    """Return the memory (run,) with the least n log(mean squared residual) + (2 s K + 1) log n.

    Ridge regressions of all memories are fitted to the same n rounds, those from ``most`` on.
    action, paid : (run, time) of the exploration. context : (run, at least time + 1, p).
    """
    rows = action.shape[1] - most
    scores = []
    for s in range(1, most + 1):
        h = history_features(action, paid, arms, context, s)[:, most - s : -1]
        blocks = _blocks(h, action[:, most:], arms)
        left = np.eye(blocks.shape[-1]) + blocks.mT @ blocks
        right = blocks.mT @ paid[:, most:, None]
        rest = paid[:, most:] - (blocks @ np.linalg.solve(left, right))[..., 0]
        square = np.maximum((rest**2).mean(1), np.finfo(np.float64).tiny)
        scores.append(rows * np.log(square) + (2 * s * arms + 1) * np.log(rows))
    return np.asarray(np.argmin(scores, axis=0) + 1)


def _play(reward: Float3, context: Float3, first: Int, memory: int, radius: Radius) -> Int:
    """Play ``first``, then UCB; what ``first`` paid is learned from where h is known."""
    runs, horizon, arms = reward.shape
    fixed = first.shape[1]
    action = np.empty((runs, horizon), np.int64)
    paid = np.empty((runs, horizon))
    action[:, :fixed], paid[:, :fixed] = first, _paid(reward[:, :fixed], first)
    state = linear.init(arms * (2 * memory * arms + 1 + context.shape[2]), 1.0, (runs,))
    every, arm = np.arange(runs), np.tile(np.arange(arms), (runs, 1))
    for t in range(memory, horizon):
        now = slice(t - memory, t)
        h = history_features(action[:, now], paid[:, now], arms, context[:, now.start :], memory)
        x = _blocks(np.repeat(h, arms, axis=1), arm, arms)
        one = x if t >= fixed else x[every, action[:, t]][:, None]
        decision = linear.decide(state, one, radius)
        if t >= fixed:
            action[:, t] = decision.action
            paid[:, t] = _paid(reward[:, t : t + 1], action[:, t : t + 1])[:, 0]
        state = linear.update(state, decision, paid[:, t])
    return action


def _paid(reward: Float3, action: Int) -> Float2:
    paid: Float2 = np.take_along_axis(reward, action[..., None], -1)[..., 0]
    if not np.isfinite(paid).all():
        run, t = np.argwhere(~np.isfinite(paid))[0]
        raise RewardError(
            f"larl: run {run} was paid {paid[run, t]}; every reward is an input of later rounds, "
            "so none may be lost."
        )
    return paid


def _blocks(h: Float3, action: Int, arms: int) -> Float3:
    """Return e_A (x) h, (run, time, arms * d)."""
    one = (action[..., None] == np.arange(arms)).astype(np.float64)
    out: Float3 = (one[..., None] * h[:, :, None]).reshape(*h.shape[:2], -1)
    return out
