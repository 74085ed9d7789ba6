"""Ways to fit a law, as values, and what comes out of any of them. Nothing here imports torch."""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
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


GUIDES = ("diagonal", "low rank", "full", "structured")


@dataclass(frozen=True)
class Svi:
    """Stochastic variational inference: full-rank Gaussian started at the Laplace fit.

    A law's own ``guide``, if it has one, is used instead.

    Attributes
    ----------
    draws, steps, rate : posterior draws to return, steps of the optimiser, its first rate.
    batch : units (with all their rows) that a step looks at; None for all rows at every step. Every
        term that is a sum over units counts units / batch times, which is unbiased; a term that
        is neither such a sum nor free of the rows is refused.
    guide : the Gaussian over the unconstrained sites. "full" (the default up to 400 numbers);
        "diagonal": independent, too narrow where sites are correlated (the default beyond 400);
        "low rank": independent plus a few common directions, which take more steps or a higher
        rate to find; "structured": full over the global sites, and the sites of plate "units"
        normal around their mode given those.
    holdout, patience : share of the units held out inside the fit, with ``batch`` only: what did
        best on them is kept, and the steps end when ``patience`` looks at them, one every 20 steps,
        brought no gain. The posterior then rests on the other units. 0 for none.

    With ``batch`` the sites of units always follow the global ones as in "structured". NOT covered
    there: what a normal shape of a unit's own posterior, given the global sites, gets wrong (few
    0/1 rows a unit); continuous latents of rows, which are refused; a Pareto shape.
    """

    draws: int = 1000
    steps: int = 800
    rate: float = 0.02
    batch: int | None = None
    guide: str | None = None
    holdout: float = 0.0
    patience: int = 5

    def __post_init__(self) -> None:
        whole(self.draws, "Svi: draws", 2)
        whole(self.steps, "Svi: steps", 1)
        positive(self.rate, "Svi: rate")
        if self.batch is not None:
            whole(self.batch, "Svi: batch", 1)
        if self.guide is not None and self.guide not in GUIDES:
            names = ", ".join(map(repr, GUIDES))
            raise SettingError(
                f"Svi: guide must be one of {names}, but got {self.guide!r}; a guide function "
                "of your own belongs to the law: Law(..., guide=...)."
            )
        share(self.holdout, "Svi: holdout", zero=True)
        whole(self.patience, "Svi: patience", 1)
        if self.holdout and self.batch is None:
            raise SettingError(
                f"Svi: holdout={self.holdout!r} holds units out of batches, but batch is None; "
                "say how many units a step looks at, Svi(batch=...), or leave holdout out."
            )

    def __repr__(self) -> str:
        """Tell the settings, of those beyond the first three only what was changed."""
        more = "".join(
            f", {each.name}={getattr(self, each.name)!r}"
            for each in fields(self)[3:]
            if getattr(self, each.name) != each.default
        )
        return f"Svi(draws={self.draws!r}, steps={self.steps!r}, rate={self.rate!r}{more})"


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

    ``quality`` holds r_hat (worst), ess (least), divergences for Nuts; pareto_k for Svi (not in
    batches) and Laplace (above 0.62 the Gaussian approximation cannot be trusted); loss_drop for
    Svi (above 4 the loss is still falling); ``losses`` what the optimiser saw, step by step.
    ``chains`` : draws stand chain after chain, equally many each; ``diverging`` : draws at which
    NUTS diverged, None where no chain was run; ``sampler`` : what NUTS tells of each draw, (draw,)
    by name; ``seconds`` : that NUTS took for warm-up and for sampling, all chains together.
    """

    draws: dict[str, Float]
    quality: dict[str, float]
    losses: Float1 = field(default_factory=lambda: np.zeros(0))
    chains: int = 1
    diverging: tuple[int, ...] | None = None
    sampler: dict[str, Float1] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
