"""Ways to fit a law, as values. Nothing here imports torch."""

from dataclasses import dataclass
from typing import TypeAlias

from pulse_pyro.arrays import positive, share, whole
from pulse_pyro.errors import SettingError


@dataclass(frozen=True)
class Exact:
    """Conjugate posterior from sufficient statistics; only for laws that have one."""

    draws: int = 1000

    def __post_init__(self) -> None:
        whole(self.draws, "Exact: draws", 2)


@dataclass(frozen=True)
class Nuts:
    """No-U-turn sampler on the whitened posterior; chains run one after another.

    Chains start around one mode, so r_hat cannot tell that there are others.
    """

    draws: int = 1000  # in all, over the chains
    warmup: int = 300
    chains: int = 2
    target_accept: float = 0.8

    def __post_init__(self) -> None:
        whole(self.chains, "Nuts: chains", 1)
        whole(self.draws, "Nuts: draws", 4 * self.chains)
        whole(self.warmup, "Nuts: warmup", 1)
        if not 0 < self.target_accept < 1:
            raise SettingError(
                f"Nuts: target_accept must lie between 0 and 1, but {self.target_accept!r} came."
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
