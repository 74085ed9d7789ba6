"""How a law was fitted, in plain values."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class FitRecord:
    """Engine, seed, rows used and left out, quality figures, losses, chains.

    Draws stand chain after chain, ceil(draws / chains) each, the last one shorter if need be.
    ``diverging`` : draws at which NUTS diverged; None where no chain was run, or where draws no
    longer stand in the order of the chains.
    """

    inference: str
    seed: int
    rows: int
    dropped: int
    quality: Mapping[str, float]
    losses: tuple[float, ...] = ()
    chains: int = 1
    diverging: tuple[int, ...] | None = None
