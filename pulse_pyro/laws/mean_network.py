"""The published imputer: a network's guess of E[W | S_t], without a distribution."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pulse_pyro.arrays import Float1, Float2, Float3, whole
from pulse_pyro.errors import DataError

PIECE = 8192  # rows in flight


@dataclass(frozen=True, eq=False)
class MeanNetwork:
    """E[W | S_t] as a network of the current S alone.

    layers : (weight (in, out), bias (out,)) of each. losses : (epochs,) squared error in training.

    It satisfies ``HasMean``, which is all that features affine in w ask for. It cannot ``sample``:
    squared error says nothing about the spread of W, so it cannot be diagnosed or calibrated; use
    ``neural_density`` for that.
    """

    exact_mean: ClassVar[bool] = True
    layers: tuple[tuple[Float2, Float1], ...]
    losses: Float1

    def mean(self, s: Float3) -> Float3:
        """Return the network at each row: (batch, time, s_dim) -> (batch, time, w_dim)."""
        rows = np.asarray(s, dtype=np.float64).reshape(-1, s.shape[-1])
        parts = [self._run(rows[i : i + PIECE]) for i in range(0, len(rows), PIECE)]
        return np.concatenate(parts).reshape(*s.shape[:-1], -1)

    def _run(self, hidden: Float2) -> Float2:
        for i, (weight, bias) in enumerate(self.layers):
            hidden = hidden @ weight + bias
            if i < len(self.layers) - 1:
                np.maximum(hidden, 0.0, out=hidden)
        return hidden


def fit_mean_network(s: Float2, w: Float2, *, epochs: int = 100, seed: int) -> MeanNetwork:
    """Train the published network, two hidden layers of 128, on rows s (n, s_dim), w (n, w_dim).

    Nothing is held out and nothing stops it early, as published: with few rows it overfits.
    """
    from pulse_pyro._pyro.regression import train_mean

    whole(epochs, "fit_mean_network: epochs", 1)
    s, w = np.asarray(s, dtype=np.float64), np.asarray(w, dtype=np.float64)
    if s.ndim != 2 or w.ndim != 2 or len(s) != len(w) or len(s) == 0:
        raise DataError(
            f"fit_mean_network: s and w must be tables of as many rows, but {s.shape} and "
            f"{w.shape} came."
        )
    if not (np.isfinite(s).all() and np.isfinite(w).all()):
        raise DataError("fit_mean_network: s and w must be finite; drop rows that are not.")
    layers, losses = train_mean(s, w, epochs=epochs, seed=seed)
    return MeanNetwork(tuple(layers), losses)
