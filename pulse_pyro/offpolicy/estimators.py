r"""Off-policy estimators: replay, IPS, SNIPS, direct, doubly robust.

A log has rows i of context x_i, action a_i drawn with probability p_i = e(a_i | x_i), reward r_i.
A policy is a table pi(a | x_i), (n, K); its weight on row i is w_i = pi(a_i | x_i) / p_i.

    replay   mean of r_i over the rows where the policy's own draw is a_i
    ips      1/n sum_i w_i r_i
    snips    sum_i w_i r_i / sum_i w_i
    direct   1/n sum_i sum_a pi(a | x_i) q(x_i, a)
    doubly_robust   direct + 1/n sum_i w_i (r_i - q(x_i, a_i))

Assumptions: propensities are known; every action the policy plays had a positive probability
(overlap); the action of one row changes the reward of no other (no interference), and later
contexts are taken as they came, so what is valued is a change of one decision at a time, NOT of
the whole course of a person. With right propensities ips and doubly_robust are unbiased whatever q
is, provided q was fitted on other units; doubly_robust is also consistent if q is right and
propensities are not. The uncertainty of q and of learned policies is NOT in the intervals:
they speak of the policy as given.

``clip`` caps the weights at a number: less variance, and a bias towards 0 (ips, where r >= 0) or
towards ``direct`` (doubly_robust), estimated in ``Value.bias``.
"""

from __future__ import annotations

import numpy as np

from pulse_pyro.arrays import Float1, Float2, positive
from pulse_pyro.errors import DataError
from pulse_pyro.offpolicy.logged import Logged
from pulse_pyro.offpolicy.policies import checked
from pulse_pyro.offpolicy.value import Value, ratio_value
from pulse_pyro.seeds import stream

LEVEL = 0.95


def replay_value(logged: Logged, policy: Float2, *, seed: int, level: float = LEVEL) -> Value:
    """Return the mean reward of the rows where the policy would have done the same.

    policy : (n, K); its action on each row is drawn with ``seed``. Only for logs whose actions were
    drawn uniformly, p_i = 1/K: there the rows that agree are a fair sample of the policy's rounds.
    About n/K rows remain. SNIPS is its mean over the draws, without their noise.
    """
    policy = checked(logged, policy, "replay_value: policy", shares=True)
    if np.abs(logged.propensity * logged.actions - 1.0).max() > 1e-6:
        raise DataError(
            "replay_value: rows that agree are a fair sample only where every action was drawn "
            f"with probability 1/{logged.actions}; here propensities run from "
            f"{logged.propensity.min():.4g} to {logged.propensity.max():.4g}; use snips."
        )
    # what an action's own draw falls into; the last edge is 1 whatever rounding says
    edges = policy.cumsum(1)[:, :-1]
    drawn = (stream(seed, "replay").random(logged.rows)[:, None] >= edges).sum(1)
    agrees = (drawn == logged.action).astype(np.float64)
    _some(agrees, "replay_value")
    return ratio_value(
        logged, agrees * logged.reward, agrees, weight=agrees * logged.actions, level=level
    )


def ips(
    logged: Logged, policy: Float2, *, clip: float | None = None, level: float = LEVEL
) -> Value:
    """Return 1/n sum_i w_i r_i (Horvitz-Thompson); policy (n, K).

    Unbiased; a constant added to all rewards changes it by the mean weight, not by the constant.
    """
    weight, raw = _weights(logged, policy, clip, "ips")
    bias = float(((weight - raw) * logged.reward).mean())
    one = np.ones(logged.rows)
    return ratio_value(logged, weight * logged.reward, one, weight=weight, level=level, bias=bias)


def snips(
    logged: Logged, policy: Float2, *, clip: float | None = None, level: float = LEVEL
) -> Value:
    """Return sum_i w_i r_i / sum_i w_i (Hajek); policy (n, K).

    A weighted mean of rewards: never beyond them, moves with them, and has a bias of order 1/n.
    """
    weight, raw = _weights(logged, policy, clip, "snips")
    bias = float((weight @ logged.reward) / weight.sum() - (raw @ logged.reward) / raw.sum())
    return ratio_value(
        logged, weight * logged.reward, weight, weight=weight, level=level, bias=bias
    )


def direct(logged: Logged, policy: Float2, q: Float2, *, level: float = LEVEL) -> Value:
    """Return 1/n sum_i sum_a pi(a | x_i) q(x_i, a); policy and q (n, K).

    Right only if q is, and its interval is that of the contexts alone: q is taken as the truth.
    """
    policy = checked(logged, policy, "direct: policy", shares=True)
    q = checked(logged, q, "direct: q", shares=False)
    one = np.ones(logged.rows)
    return ratio_value(logged, (policy * q).sum(1), one, weight=one, level=level)


def doubly_robust(
    logged: Logged, policy: Float2, q: Float2, *, clip: float | None = None, level: float = LEVEL
) -> Value:
    """Return 1/n sum_i [sum_a pi(a | x_i) q(x_i, a) + w_i (r_i - q(x_i, a_i))].

    policy : (n, K). q : (n, K) expected rewards, of each row fitted on other units, e.g. by
    ``outcome_model``; fitted on the same rows, the interval is too short.
    """
    weight, raw = _weights(logged, policy, clip, "doubly_robust")
    q = checked(logged, q, "doubly_robust: q", shares=False)
    left = logged.reward - q[np.arange(logged.rows), logged.action]
    terms = (np.asarray(policy) * q).sum(1) + weight * left
    bias = float(((weight - raw) * left).mean())
    one = np.ones(logged.rows)
    return ratio_value(logged, terms, one, weight=weight, level=level, bias=bias)


def _weights(
    logged: Logged, policy: Float2, clip: float | None, what: str
) -> tuple[Float1, Float1]:
    """Return the weights (n,), clipped and not."""
    policy = checked(logged, policy, f"{what}: policy", shares=True)
    raw: Float1 = policy[np.arange(logged.rows), logged.action] / logged.propensity
    _some(raw, what)
    if clip is None:
        return raw, raw
    return np.minimum(raw, positive(clip, f"{what}: clip")), raw


def _some(weight: Float1, what: str) -> None:
    if not weight.any():
        raise DataError(
            f"{what}: the policy never plays an action the log shows in the same row (no overlap); "
            "its value cannot be estimated from this log."
        )
