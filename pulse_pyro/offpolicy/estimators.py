"""Off-policy estimators: replay, IPS, SNIPS, direct, doubly robust; outcome models."""

from __future__ import annotations

import numpy as np

from pulse_pyro._core.arrays import Array, Float1, Float2, Int, positive, whole
from pulse_pyro._core.errors import DataError, SettingError
from pulse_pyro._core.seeds import stream
from pulse_pyro.offpolicy.logged import Logged
from pulse_pyro.offpolicy.value import Value, ratio_value

# Policies as tables of probabilities (n, K): one line per recorded decision.


def always(logged: Logged, action: int) -> Float2:
    """Return the policy that always plays one action, (n, K)."""
    if action not in range(logged.actions):
        raise SettingError(f"always: actions run 0 .. {logged.actions - 1}, but got {action!r}.")
    policy = np.zeros((logged.rows, logged.actions))
    policy[:, action] = 1.0
    return policy


def uniform(logged: Logged) -> Float2:
    """Return the policy that draws every action alike, (n, K)."""
    return np.full((logged.rows, logged.actions), 1.0 / logged.actions)


def greedy(values: Float2) -> Float2:
    """Return the policy that plays the largest of values (n, K), the first where there are ties."""
    chosen: Float2 = np.eye(values.shape[1])[values.argmax(1)]
    return chosen


def as_logged(logged: Logged) -> Float2:
    """Return the logging policy itself, (n, K).

    A log tells its probability only at the action taken; the rest is spread evenly over the other
    actions. IPS and SNIPS look at the action taken alone and are exact; ``direct`` and
    ``doubly_robust`` average over all actions, and are NOT.
    """
    rest = (1.0 - logged.propensity) / (logged.actions - 1)
    policy = np.repeat(rest[:, None], logged.actions, axis=1)
    policy[np.arange(logged.rows), logged.action] = logged.propensity
    return policy


def checked_probabilities(logged: Logged, table: Array, what: str, *, shares: bool) -> Float2:
    """Return a table (n, K) as floats: finite and, if ``shares``, probabilities."""
    values = np.asarray(table, np.float64)
    if values.shape != (logged.rows, logged.actions):
        raise SettingError(
            f"{what} must be (n, K) = {(logged.rows, logged.actions)}, one line per decision of "
            f"the log, but it is {values.shape}."
        )
    if not np.isfinite(values).all():
        raise SettingError(f"{what} holds a value that is not finite.")
    if shares and (values.min() < 0 or np.abs(values.sum(1) - 1.0).max() > 1e-8):
        raise SettingError(f"{what}: every line must hold probabilities that sum to 1.")
    return values


# Outcome models fitted on other units: q (n, K) that no row has helped to fit.


def unit_folds(logged: Logged, folds: int, *, seed: int) -> Int:
    """Return the fold 0 .. folds-1 of every row, (n,): whole units, at random, evenly many."""
    units, code = np.unique(logged.unit, return_inverse=True)
    whole(folds, "unit_folds: folds", 2)
    if folds > len(units):
        raise SettingError(f"unit_folds: {folds} folds were asked for, of {len(units)} units.")
    of_unit = stream(seed, "folds").permutation(np.arange(len(units)) % folds)
    fold: Int = of_unit[code]
    return fold


def outcome_model(
    logged: Logged, names: tuple[str, ...] = (), *, folds: int = 5, seed: int, ridge: float = 1.0
) -> Float2:
    """Return cross-fitted expected rewards q (n, K): a line per action, shrunk to a common one.

    Parameters
    ----------
    names : columns of the context the lines may use; all by default.
    folds : the units of each are predicted by a fit on the others.
    ridge : penalty, in rows, of every coefficient but the constant.

    q(x, a) = b_0 + b'z + c_a + d_a'z with z the columns in units of their mean and sd in the
    training rows; minimises sum (r - q)^2 + ridge (|b|^2 + |c|^2 + |d|^2). An action that training
    units never took gets the common line. ``greedy(q)`` is a policy learned on other units.
    NOT covered: curves, interactions of columns; doubly_robust forgives them, direct does not.
    """
    positive(ridge, "outcome_model: ridge")
    x = logged.columns(names) if names else logged.context
    fold = unit_folds(logged, folds, seed=seed)
    q = np.empty((logged.rows, logged.actions))
    for k in range(folds):
        train, test = fold != k, fold == k
        q[test] = _predicted(
            x[train], logged.action[train], logged.reward[train], x[test], logged.actions, ridge
        )
    return q


def _predicted(
    x: Float2, action: Int, reward: Float1, new: Float2, actions: int, ridge: float
) -> Float2:
    """Fit on rows (n, p) and predict others, (m, K)."""
    mean, sd = x.mean(0), x.std(0)
    sd = np.where(sd > 1e-12 * (1.0 + np.abs(mean)), sd, np.inf)  # constant here: leave it out
    z, ahead = (np.column_stack([np.ones(len(v)), (v - mean) / sd]) for v in (x, new))
    size = z.shape[1]
    by_action = np.zeros((len(z), actions, size))
    by_action[np.arange(len(z)), action] = z
    design = np.column_stack([z, by_action.reshape(len(z), -1)])
    penalty = np.full(design.shape[1], ridge)
    penalty[0] = 0.0
    gram = design.T @ design + np.diag(penalty)
    weights = np.linalg.solve(gram, design.T @ reward)
    common, lines = weights[:size], weights[size:].reshape(actions, size)
    predicted: Float2 = ahead @ (common + lines).T
    return predicted


# Off-policy estimators: replay, IPS, SNIPS, direct, doubly robust.
#
# A log has rows i of context x_i, action a_i drawn with probability p_i = e(a_i | x_i), reward r_i.
# A policy is a table pi(a | x_i), (n, K); its weight on row i is w_i = pi(a_i | x_i) / p_i.
#
#     replay   mean of r_i over the rows where the policy's own draw is a_i
#     ips      1/n sum_i w_i r_i
#     snips    sum_i w_i r_i / sum_i w_i
#     direct   1/n sum_i sum_a pi(a | x_i) q(x_i, a)
#     doubly_robust   direct + 1/n sum_i w_i (r_i - q(x_i, a_i))
#
# Assumptions: propensities are known; every action the policy plays had a positive probability
# (overlap); the action of one row changes the reward of no other (no interference), and later
# contexts are taken as they came, so what is valued is a change of one decision at a time, NOT of
# the whole course of a person. With right propensities ips and doubly_robust are unbiased whatever
# q is, provided q was fitted on other units; doubly_robust is also consistent if q is right and
# propensities are not. The uncertainty of q and of learned policies is NOT in the intervals:
# they speak of the policy as given.
#
# ``clip`` caps the weights at a number: less variance, and a bias towards 0 (ips, where r >= 0) or
# towards ``direct`` (doubly_robust), estimated in ``Value.bias``.


LEVEL = 0.95


def replay_value(logged: Logged, policy: Float2, *, seed: int, level: float = LEVEL) -> Value:
    """Return the mean reward of the rows where the policy would have done the same.

    policy : (n, K); its action on each row is drawn with ``seed``. Only for logs whose actions were
    drawn uniformly, p_i = 1/K: there the rows that agree are a fair sample of the policy's rounds.
    About n/K rows remain. SNIPS is its mean over the draws, without their noise.
    """
    policy = checked_probabilities(logged, policy, "replay_value: policy", shares=True)
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
    ones = np.ones(logged.rows)
    return ratio_value(logged, weight * logged.reward, ones, weight=weight, level=level, bias=bias)


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
    policy = checked_probabilities(logged, policy, "direct: policy", shares=True)
    q = checked_probabilities(logged, q, "direct: q", shares=False)
    ones = np.ones(logged.rows)
    return ratio_value(logged, (policy * q).sum(1), ones, weight=ones, level=level)


def doubly_robust(
    logged: Logged, policy: Float2, q: Float2, *, clip: float | None = None, level: float = LEVEL
) -> Value:
    """Return 1/n sum_i [sum_a pi(a | x_i) q(x_i, a) + w_i (r_i - q(x_i, a_i))].

    policy : (n, K). q : (n, K) expected rewards, of each row fitted on other units, e.g. by
    ``outcome_model``; fitted on the same rows, the interval is too short.
    """
    weight, raw = _weights(logged, policy, clip, "doubly_robust")
    q = checked_probabilities(logged, q, "doubly_robust: q", shares=False)
    residual = logged.reward - q[np.arange(logged.rows), logged.action]
    terms = (np.asarray(policy) * q).sum(1) + weight * residual
    bias = float(((weight - raw) * residual).mean())
    ones = np.ones(logged.rows)
    return ratio_value(logged, terms, ones, weight=weight, level=level, bias=bias)


def _weights(
    logged: Logged, policy: Float2, clip: float | None, what: str
) -> tuple[Float1, Float1]:
    """Return the weights (n,), clipped and not."""
    policy = checked_probabilities(logged, policy, f"{what}: policy", shares=True)
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
