"""Outcome models fitted on other units: q (n, K) that no row has helped to fit."""

from __future__ import annotations

import numpy as np

from pulse_pyro.arrays import Float1, Float2, Int, positive, whole
from pulse_pyro.errors import SettingError
from pulse_pyro.offpolicy.logged import Logged
from pulse_pyro.seeds import stream


def unit_folds(logged: Logged, folds: int, *, seed: int) -> Int:
    """Return the fold 0 .. folds-1 of every row, (n,): whole units, at random, evenly many."""
    units, code = np.unique(logged.unit, return_inverse=True)
    whole(folds, "unit_folds: folds", 2)
    if folds > len(units):
        raise SettingError(f"unit_folds: {folds} folds were asked for, of {len(units)} units.")
    of_unit = stream(seed, "folds").permutation(np.arange(len(units)) % folds)
    found: Int = of_unit[code]
    return found


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
    own = np.zeros((len(z), actions, size))
    own[np.arange(len(z)), action] = z
    design = np.column_stack([z, own.reshape(len(z), -1)])
    penalty = np.full(design.shape[1], ridge)
    penalty[0] = 0.0
    gram = design.T @ design + np.diag(penalty)
    weights = np.linalg.solve(gram, design.T @ reward)
    common, lines = weights[:size], weights[size:].reshape(actions, size)
    found: Float2 = ahead @ (common + lines).T
    return found
