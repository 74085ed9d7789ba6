"""Linear Thompson sampling: play the best arm of a parameter drawn from its posterior."""

from __future__ import annotations

from pulse_pyro._core.arrays import positive, whole
from pulse_pyro.radius import SAMPLED, Radius


def thompson(scale: float = 1.0, *, seed: int = 0) -> Radius:
    """Return the rule theta~ ~ N(theta_hat, scale^2 Sigma^{-1}), A_t = argmax_a x_a' theta~.

    Parameters
    ----------
    scale : v; the sd of what is left of the reward for a posterior under Gaussian noise, more to
        explore more.
    seed : of the draws; a streaming policy and a single run of a whole horizon draw the same.

    On expected features it is PULSE with posterior sampling; on observed features (the agent
    ``oful``) it is the baseline that does not impute. No guarantee is implemented.
    """
    number = whole(seed, "thompson: seed", 0)
    return Radius("thompson", SAMPLED, (positive(scale, "thompson: scale"),), seed=number)
