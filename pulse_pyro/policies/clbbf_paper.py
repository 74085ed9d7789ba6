"""CLBBF as the published comparison ran it: with W handed over.

Its moments are taken over the true W of every round, the current one included; the mask only says
which entries are then replaced, and calls W*a observed. No online learner has such data: it is here
to show where the printed figures come from, see :func:`policies.clbbf.clbbf` for the honest one.
"""

from __future__ import annotations

import numpy as np

from pulse_pyro.arrays import Bool, Float2, Float3, Float4, Int
from pulse_pyro.policies.clbbf import (
    PUBLISHED,
    Again,
    Exploration,
    imputation_error,
    play_imputed,
    take_arm,
)
from pulse_pyro.policies.moments import estimate, impute, running


def clbbf_paper(
    x: Float4, replaced: Bool, reward: Float3, *, explore: Exploration = PUBLISHED
) -> Int:
    """Play CLBBF on true vectors; return the actions, (run, time).

    Parameters
    ----------
    x : (run, time, action, d) features of the FULL context, without a constant.
    replaced : (d,) entries that are replaced by their expectation given the others; they count as
        missing in the observation rate, although the moments are those of the true values.
    reward : (run, time, action).
    """
    mask = np.broadcast_to(~replaced, x.shape)
    _, horizon, arms, dim = x.shape

    def imputed(part: slice) -> tuple[Float4, Again, Float2]:
        own, seen = x[part], mask[part]
        told, counted = (running(own, each) for each in (np.ones(own.shape, np.bool_), seen))
        found = estimate(counted._replace(first=told.first, second=told.second), "common")

        def again(t: int, action: Int) -> Float3:
            chosen, known = take_arm(own[:, :t], action), take_arm(seen[:, :t], action)
            return impute(chosen, known, found.mean[:, t], found.cov[:, t])

        today = impute(own, seen, found.mean, found.cov)
        return today, again, imputation_error(found, arms, dim, horizon)

    return play_imputed(imputed, reward, (len(x), horizon, arms, dim), dim, explore)
