"""Inputs that repeat others: a linear band lives on what they span."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import qr

from pulse_pyro.arrays import Bool, Float1, Float2, Int

RANK = (
    1e-6  # of the largest pivot: the Gram matrix then has a condition number of about 1e12 at most
)
FLAT = 1e-12  # sd over mean, of a column that does not move
ROUNDING = 1e-9  # by which it may move all the same
BROKEN = 1e-3  # sds by which a repeated input may miss what the others say of it


@dataclass(frozen=True, eq=False)
class Span:
    """Independent columns of standardised inputs, and how the others follow from them.

    Attributes
    ----------
    mean, sd : (p,) of the rows it was found on; sd is 1 for a column that is constant there.
    kept, rest : positions of the columns that are kept, and of those that repeat them.
    still : positions of constant columns, which repeat the intercept.
    follow : (kept, rest) z_rest = z_kept @ follow, z = (x - mean) / sd.

    The lags of a clock (sine and cosine of the hour) are such columns: each is a mixture of the
    others, exactly. Whoever knows those kept knows them all.
    """

    mean: Float1
    sd: Float1
    kept: Int
    rest: Int
    still: Int
    follow: Float2

    @staticmethod
    def of(x: Float2) -> Span:
        """Find it in rows x (n, p), by QR with column pivoting."""
        mean, sd = x.mean(0), x.std(0)
        moves = sd > FLAT * (np.abs(mean) + 1e-300)
        sd = np.where(moves, sd, 1.0)
        z, (moving,) = (x - mean) / sd, np.nonzero(moves)
        still = np.flatnonzero(~moves)
        rank, order = 0, np.zeros(0, np.int64)
        if len(moving):
            r, order = qr(z[:, moving], mode="r", pivoting=True, check_finite=False)
            pivots = np.abs(np.diagonal(r))
            rank = int((pivots > RANK * pivots[0]).sum())
        kept, rest = (np.sort(moving[part]) for part in (order[:rank], order[rank:]))
        follow: Float2 = np.asarray(np.linalg.lstsq(z[:, kept], z[:, rest], rcond=None)[0], float)
        return Span(mean, sd, kept, rest, still, follow)

    def __call__(self, x: Float2) -> Float2:
        """Return the kept columns, standardised: (n, p) -> (n, kept)."""
        found: Float2 = ((x - self.mean) / self.sd)[:, self.kept]
        return found

    def holds(self, x: Float2) -> Bool:
        """Tell at which rows of x (n, p) the repeated columns are what the others say."""
        z = (x - self.mean) / self.sd
        near: Bool = np.abs(z[:, self.rest] - z[:, self.kept] @ self.follow) <= BROKEN
        stay: Bool = np.abs(z[:, self.still]) <= ROUNDING * np.abs(self.mean[self.still])
        return np.asarray(near.all(1) & stay.all(1))
