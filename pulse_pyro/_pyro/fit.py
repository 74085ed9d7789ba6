"""What comes out of any way of fitting. Nothing here imports torch."""

from dataclasses import dataclass, field

import numpy as np

from pulse_pyro.arrays import Float, Float1


@dataclass(frozen=True, eq=False)
class Fit:
    """Posterior draws (draw, *site shape) of the global sites and what is known of their quality.

    ``quality`` holds r_hat (worst), ess (least), divergences for Nuts; pareto_k for Svi and
    Laplace (above 0.62 the Gaussian approximation cannot be trusted); loss_drop for Svi (above 4
    the loss is still falling); ``losses`` what the optimiser saw, step by step. ``chains`` : draws
    stand chain after chain, ceil(draws / chains) each, the last one shorter if need be;
    ``diverging`` : draws at which NUTS diverged, None where no chain was run.
    """

    draws: dict[str, Float]
    quality: dict[str, float]
    losses: Float1 = field(default_factory=lambda: np.zeros(0))
    chains: int = 1
    diverging: tuple[int, ...] | None = None
