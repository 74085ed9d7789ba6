"""Policies as tables of probabilities (n, K): one line per recorded decision."""

from __future__ import annotations

import numpy as np

from pulse_pyro.arrays import Array, Float2
from pulse_pyro.errors import SettingError
from pulse_pyro.offpolicy.logged import Logged


def always(logged: Logged, action: int) -> Float2:
    """Return the policy that always plays one action, (n, K)."""
    if action not in range(logged.actions):
        raise SettingError(f"always: actions run 0 .. {logged.actions - 1}, but {action!r} came.")
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


def checked(logged: Logged, table: Array, what: str, *, shares: bool) -> Float2:
    """Return a table (n, K) as floats: finite and, if ``shares``, probabilities."""
    found = np.asarray(table, np.float64)
    if found.shape != (logged.rows, logged.actions):
        raise SettingError(
            f"{what} must be (n, K) = {(logged.rows, logged.actions)}, one line per decision of "
            f"the log, but it is {found.shape}."
        )
    if not np.isfinite(found).all():
        raise SettingError(f"{what} holds a value that is not finite.")
    if shares and (found.min() < 0 or np.abs(found.sum(1) - 1.0).max() > 1e-8):
        raise SettingError(f"{what}: every line must hold probabilities that sum to 1.")
    return found
