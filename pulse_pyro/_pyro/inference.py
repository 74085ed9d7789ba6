"""Ways to fit a law, as values, and what comes out of any of them. Nothing here imports torch."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from pulse_pyro._core.arrays import Float, Float1, positive, share, whole
from pulse_pyro._core.errors import ModelError, SettingError

# Ways to fit a law, as values. Nothing here imports torch.


@dataclass(frozen=True)
class Exact:
    """Conjugate posterior from sufficient statistics; only for laws that have one."""

    draws: int = 1000

    def __post_init__(self) -> None:
        whole(self.draws, "Exact: draws", 2)


@dataclass(frozen=True)
class Nuts:
    """No-U-turn sampler on the whitened posterior; chains run one after another.

    draws : of EACH chain, after warm-up; chains * draws are kept in all. Chains start around one
    mode, so r_hat cannot tell that there are others.
    """

    draws: int = 500
    warmup: int = 300
    chains: int = 2
    target_accept: float = 0.8

    def __post_init__(self) -> None:
        whole(self.chains, "Nuts: chains", 1)
        whole(self.draws, "Nuts: draws (of each chain)", 4)
        whole(self.warmup, "Nuts: warmup", 1)
        if not 0 < self.target_accept < 1:
            raise SettingError(
                f"Nuts: target_accept must lie between 0 and 1, but got {self.target_accept!r}."
            )


@dataclass(frozen=True)
class Svi:
    """Stochastic variational inference: full-rank Gaussian started at the Laplace fit.

    A law's own ``guide``, if it has one, is used instead.
    """

    draws: int = 1000
    steps: int = 800
    rate: float = 0.02

    def __post_init__(self) -> None:
        whole(self.draws, "Svi: draws", 2)
        whole(self.steps, "Svi: steps", 1)
        positive(self.rate, "Svi: rate")


@dataclass(frozen=True)
class Laplace:
    """Gaussian approximation at the posterior mode of the unconstrained parameters."""

    draws: int = 1000

    def __post_init__(self) -> None:
        whole(self.draws, "Laplace: draws", 2)


@dataclass(frozen=True)
class Ensemble:
    """Networks trained from different starts on different batches; only for neural laws.

    Each member keeps the weights that did best on units held out inside the fit (``holdout``,
    a share of the units), and all stop when none has improved for a third of the ``steps``.
    """

    members: int = 5
    steps: int = 2000
    batch: int = 512
    rate: float = 3e-3
    holdout: float = 0.15

    def __post_init__(self) -> None:
        whole(self.members, "Ensemble: members", 1)
        whole(self.steps, "Ensemble: steps", 1)
        whole(self.batch, "Ensemble: batch", 1)
        positive(self.rate, "Ensemble: rate")
        share(self.holdout, "Ensemble: holdout")


Inference: TypeAlias = Exact | Nuts | Svi | Laplace | Ensemble
ENGINES: dict[str, type[Inference]] = {  # as study files name them
    "exact": Exact,
    "nuts": Nuts,
    "svi": Svi,
    "laplace": Laplace,
    "ensemble": Ensemble,
}


def choose_engine(
    inference: Inference | None, engines: tuple[type[Inference], ...], label: str, reason: str = ""
) -> Inference | None:
    """Return the engine asked for, or a law's own; one that does not suit the law is refused.

    engines : what the law can be fitted by, its own first; none if it fits itself, and then None
    is returned. label, reason : the law's name, and why not every engine suits it.
    """
    if inference is None:
        return engines[0]() if engines else None
    if not isinstance(inference, tuple(ENGINES.values())):
        choices = _either(list(ENGINES.values()))
        raise SettingError(f"{label}: inference must be {choices}, but got {inference!r}.")
    if isinstance(inference, engines):
        return inference
    why = f": {reason}" if reason else ""
    use = f"use {_either(engines)}, or leave it out for its own" if engines else "leave it out"
    raise ModelError(f"{inference!r} does not suit {label}{why}; {use}.")


def _either(engines: Sequence[type[Inference]]) -> str:
    """Return "Exact(), Nuts() or Svi()"."""
    *most, last = (f"{engine.__name__}()" for engine in engines)
    return f"{', '.join(most)} or {last}" if most else last


# What comes out of any way of fitting. Nothing here imports torch.


@dataclass(frozen=True, eq=False)
class Fit:
    """Posterior draws (draw, *site shape) of the global sites and what is known of their quality.

    ``quality`` holds r_hat (worst), ess (least), divergences for Nuts; pareto_k for Svi and
    Laplace (above 0.62 the Gaussian approximation cannot be trusted); loss_drop for Svi (above 4
    the loss is still falling); ``losses`` what the optimiser saw, step by step. ``chains`` : draws
    stand chain after chain, equally many each; ``diverging`` : draws at which NUTS diverged, None
    where no chain was run; ``sampler`` : what NUTS tells of each draw, (draw,) by name.
    """

    draws: dict[str, Float]
    quality: dict[str, float]
    losses: Float1 = field(default_factory=lambda: np.zeros(0))
    chains: int = 1
    diverging: tuple[int, ...] | None = None
    sampler: dict[str, Float1] = field(default_factory=dict)
