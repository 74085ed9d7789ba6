"""Stationary vector autoregressions without constraints (Ansley and Kohn, 1986).

A VAR(p) is stationary exactly if its partial autocorrelation matrices P_1, ..., P_p have singular
values below 1; P = L^-1 B with L L' = I + B B' maps every matrix B to such a P. So a search over
the B never meets a wall.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pulse_pyro.arrays import Float2, Float3

WALL = 0.995  # largest singular value of a partial autocorrelation to start from


def to_partials(free: Float2) -> Float2:
    """Map any matrix B to P = L^-1 B, L the Cholesky root of I + B B'."""
    return np.linalg.solve(np.linalg.cholesky(np.eye(len(free)) + free @ free.T), free)


def from_partials(partial: Float2) -> Float2:
    """Map P, of singular values below 1, back to B."""
    inner = np.linalg.inv(np.eye(len(partial)) - partial @ partial.T)
    # B = L P with L lower triangular, L L' = I + B B'; then L' L = (I - P P')^-1, so L is the
    # Cholesky root of that matrix read backwards
    root = np.linalg.cholesky((inner + inner.T)[::-1, ::-1] / 2.0)
    out: Float2 = root.T[::-1, ::-1] @ partial
    return out


def coefficients(partial: list[Float2], root: Float2) -> Float3:
    """Return A_1, ..., A_p, (p, d, d), of the process with these partials and noise root root'."""
    d = len(root)
    known = Whittle([], [], np.eye(d), np.eye(d))
    for p in partial:
        known = known.next(p)
    turn = root @ np.linalg.inv(np.linalg.cholesky(known.left))
    undo = np.linalg.inv(turn)
    return np.stack([turn @ a @ undo for a in known.ahead]) if partial else np.zeros((0, d, d))


def partials(gamma: list[Float2]) -> tuple[list[Float2], Float2]:
    """Return P_1, ..., P_p and the noise variance from autocovariances E[S_t S_{t-lag}'].

    Whittle's recursion. Autocovariances over gaps need not belong to any process: singular values
    are cut at 0.995.
    """
    start = _definite(gamma[0])
    known = Whittle([], [], start, start)
    out: list[Float2] = []
    for s in range(len(gamma) - 1):
        told = sum((known.ahead[i] @ gamma[s - i] for i in range(s)), np.zeros_like(start))
        a, b = np.linalg.cholesky(known.left), np.linalg.cholesky(known.right)
        rest = np.linalg.solve(a, np.linalg.solve(b, (gamma[s + 1] - told).T).T)
        u, value, v = np.linalg.svd(rest)
        out.append((u * np.minimum(value, WALL)) @ v)
        known = known.next(out[-1])
    return out, _definite(known.left)


class Whittle(NamedTuple):
    """Best predictors of order s, forwards and backwards, and the variances they leave."""

    ahead: list[Float2]
    behind: list[Float2]
    left: Float2
    right: Float2

    def next(self, partial: Float2) -> Whittle:
        """Raise the order by one, given its partial autocorrelation."""
        s = len(self.ahead)
        a, b = np.linalg.cholesky(self.left), np.linalg.cholesky(self.right)
        one, two = a @ partial @ np.linalg.inv(b), b @ partial.T @ np.linalg.inv(a)
        return Whittle(
            [*(self.ahead[i] - one @ self.behind[s - 1 - i] for i in range(s)), one],
            [*(self.behind[i] - two @ self.ahead[s - 1 - i] for i in range(s)), two],
            _less(self.left, one, self.right),
            _less(self.right, two, self.left),
        )


def _less(one: Float2, by: Float2, other: Float2) -> Float2:
    """Return one - by other by', kept symmetric and positive."""
    return _definite(one - by @ other @ by.T, 1e-12)


def _definite(matrix: Float2, least: float = 1e-4) -> Float2:
    """Nearest covariance with eigenvalues of at least ``least`` of the largest."""
    value, vector = np.linalg.eigh((matrix + matrix.T) / 2.0)
    value = np.maximum(value, least * max(float(value.max()), 1e-8))
    out: Float2 = (vector * value) @ vector.T
    return out
