"""Inputs that repeat others: a linear band lives on what they span."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import qr

from pulse_pyro.arrays import Bool, Float1, Float2, Int

RANK = 1e-6  # of the largest pivot: the Gram matrix then has a condition number below 1e12
BROKEN = 1e-3  # sds by which a repeated input may miss what the others say of it


@dataclass(frozen=True, eq=False)
class Span:
    """Independent columns of standardised inputs, and how the others follow from them.

    Attributes
    ----------
    mean, sd : (p,) of the rows it was found on.
    kept, rest : positions of the columns that are kept, and of those that repeat them.
    follow : (kept, rest) z_rest = z_kept @ follow, z = (x - mean) / sd.

    The lags of a clock (sine and cosine of the hour) are such columns: each is a mixture of the
    others, exactly. Whoever knows those kept knows them all.
    """

    mean: Float1
    sd: Float1
    kept: Int
    rest: Int
    follow: Float2

    @staticmethod
    def of(x: Float2, mean: Float1, sd: Float1) -> Span:
        """Find it in rows x (n, p), by QR with column pivoting."""
        z = (x - mean) / sd
        r, order = qr(z, mode="r", pivoting=True, check_finite=False)
        pivots = np.abs(np.diagonal(r))
        rank = int((pivots > RANK * pivots[0]).sum())
        kept, rest = (np.sort(part).astype(np.int64) for part in (order[:rank], order[rank:]))
        follow: Float2 = np.asarray(np.linalg.lstsq(z[:, kept], z[:, rest], rcond=None)[0], float)
        return Span(mean, sd, kept, rest, follow)

    def __call__(self, x: Float2) -> Float2:
        """Return the kept columns, standardised: (n, p) -> (n, kept)."""
        found: Float2 = ((x - self.mean) / self.sd)[:, self.kept]
        return found

    def holds(self, x: Float2) -> Bool:
        """Tell at which rows of x (n, p) the repeated columns are what the others say."""
        z = (x - self.mean) / self.sd
        near: Bool = np.abs(z[:, self.rest] - z[:, self.kept] @ self.follow) <= BROKEN
        return np.asarray(near.all(1))
