"""Logs whose policies have known values."""

import numpy as np

from pulse_pyro.offpolicy.logged import Logged


def by_hand(unit=(0, 1, 2, 3)):
    """Four rows one can count with."""
    return Logged(
        np.zeros((4, 1)), [0, 1, 1, 0], [1.0, 0.0, 2.0, 4.0], [0.5, 0.5, 0.25, 0.75], unit, 2
    )


def person_log(rng, *, people=30, rows=20, level_sd=1.0):
    """A log of people with levels of their own, and its truth.

    Context x ~ N(0, 1); action 1 with probability 1 / (1 + e^-x); reward level + x + a (0.5 + x) +
    N(0, 1). Returns the log, q (n, 2) without the levels, and the policy (n, 2) that plays 1 with
    probability 0.8 where x > 0 and 0.3 elsewhere; TRUTH is its value.
    """
    unit = np.repeat(np.arange(people), rows)
    x = rng.normal(size=len(unit))
    send = 1.0 / (1.0 + np.exp(-x))
    action = (rng.random(len(x)) < send).astype(int)
    q = np.column_stack([x, 0.5 + 2.0 * x])
    reward = level_sd * rng.normal(size=people)[unit] + q[np.arange(len(x)), action]
    reward += rng.normal(size=len(x))
    one = np.where(x > 0, 0.8, 0.3)
    log = Logged(x[:, None], action, reward, np.where(action == 1, send, 1 - send), unit, 2)
    return log, q, np.column_stack([1 - one, one])


# E[x] + E[pi(x) (0.5 + x)], E[x 1(x > 0)] = 1 / sqrt(2 pi)
TRUTH = 0.5 * 0.55 + (0.8 - 0.3) / np.sqrt(2 * np.pi)
