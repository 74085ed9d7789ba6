"""Bumps on a grid: the functions the lower bound is made of, and what a law may know of them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from pulse_pyro.arrays import Bool, Float, Int, positive, whole
from pulse_pyro.errors import SettingError


@dataclass(frozen=True)
class Bumps:
    """phi_beta(2 M (o - b_j)) for every bin j of a grid over [-1, 1]^d_non, as a summary of S_t.

    phi_beta(u) = (1 - max_l |u_l|)^beta where that is not negative, else 0: 1 at the centre b_j
    of a bin, 0 on its edge. Bins have width 1 / M, so there are (2 M)^d_non of them; supports are
    disjoint. The paper's grid fills [0, 1]^d_non only and leaves the rest of the cube, on which f
    would be 0 and nothing could go wrong, without bins; here they fill the cube.

    Attributes
    ----------
    d_lin, d_non : columns of Q and of O in S = (Q, O).
    m : M, bins for each unit of length along an axis.
    beta : smoothness, in (0, 1].

    As a summary it maps (.., time, d_lin + d_non) to (.., time, p), a column a bin, in the order
    of ``locate``. Summaries hold a multiple of s_dim columns: p is (2 M)^d_non rounded up to one,
    and the columns that are left over are 0. NaN in O gives NaN.

    Not covered: beta > 1, for which these bumps are not smooth enough at centre and edge.
    """

    d_lin: int
    d_non: int
    m: int
    beta: float

    def __post_init__(self) -> None:
        for name in ("d_lin", "d_non", "m"):
            object.__setattr__(self, name, whole(getattr(self, name), f"Bumps: {name}", 1))
        beta = positive(self.beta, "Bumps: beta")
        if beta > 1.0:
            raise SettingError(f"Bumps: beta must be at most 1, but {self.beta!r} came.")
        object.__setattr__(self, "beta", beta)

    @property
    def bins(self) -> int:
        """(2 M)^d_non."""
        return int((2 * self.m) ** self.d_non)

    @property
    def energy(self) -> float:
        """E[phi_beta(u)^2] for u uniform on [-1, 1]^d_non: d_non B(d_non, 2 beta + 1)."""
        d, power = self.d_non, 2.0 * self.beta + 1.0
        return d * math.exp(math.lgamma(d) + math.lgamma(power) - math.lgamma(d + power))

    @property
    def centres(self) -> Float:
        """(bins, d_non) the points b_j."""
        axis = (np.arange(2 * self.m) + 0.5) / self.m - 1.0
        grid = np.meshgrid(*[axis] * self.d_non, indexing="ij")
        return np.stack([part.ravel() for part in reversed(grid)], axis=-1)

    def locate(self, o: Float) -> tuple[Int, Float]:
        """Return the bin (..,) of points o (.., d_non), and phi there; 0 outside the cube.

        Bins are numbered sum_l k_l (2 M)^l with k_l counted from 0 along axis l = 0, 1, ...
        """
        inside: Bool = np.all(np.abs(o) <= 1.0, axis=-1)
        steps = (np.where(inside[..., None], o, 0.0) + 1.0) * self.m
        cell = np.minimum(np.floor(steps), 2 * self.m - 1)  # o = 1 belongs to the last bin
        far = np.abs(2.0 * (steps - cell) - 1.0).max(-1)
        index: Int = (cell.astype(np.int64) * (2 * self.m) ** np.arange(self.d_non)).sum(-1)
        height = np.where(inside, np.maximum(1.0 - far, 0.0) ** self.beta, 0.0)
        return index, np.where(np.isnan(o).any(-1), np.nan, height)

    @property
    def names(self) -> tuple[str, ...]:
        """One name for s_dim columns; see the class."""
        return tuple(f"bump{j}" for j in range(-(-self.bins // (self.d_lin + self.d_non))))

    @property
    def memory(self) -> int:
        """The current row."""
        return 1

    def __call__(self, s: Float) -> Float:
        """Map (.., time, d_lin + d_non) to (.., time, p)."""
        index, height = self.locate(s[..., self.d_lin :])
        out = np.zeros((*index.shape, len(self.names) * s.shape[-1]))
        np.put_along_axis(out, index[..., None], height[..., None], axis=-1)
        return out

    def last(self, past: Float) -> Float:
        """Return the newest row: (memory, s_dim) -> (p,)."""
        out: Float = self(past[-1:])[0]
        return out
