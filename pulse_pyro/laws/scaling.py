"""Units and missing inputs: what stands between raw S summaries and a law's own coordinates."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pulse_pyro.arrays import Bool, Float1, Float2, Float3

BLOCK = 4096


@dataclass(frozen=True, eq=False)
class Scaler:
    """Affine change of units: model x = (x - x_mean) / x_scale, likewise w.

    Columns of x that come from one S column share one scale, so a prior that treats the lags of a
    series alike stays alike in raw units.
    """

    x_mean: Float1
    x_scale: Float1
    w_mean: Float1
    w_scale: Float1

    @classmethod
    def raw(cls, p: int, w_dim: int) -> Scaler:
        """Leave units as they are."""
        return cls(np.zeros(p), np.ones(p), np.zeros(w_dim), np.ones(w_dim))

    @classmethod
    def standard(cls, mean: Float1, moments: Float2, n: int, w_dim: int, s_dim: int) -> Scaler:
        """Centre and divide by the spread, from the moments of n rows [x, w]; constants keep 1."""
        p = len(mean) - w_dim
        spread = np.maximum(np.diag(moments), 0.0) / n
        shared = np.tile(spread[:p].reshape(-1, s_dim).mean(0), p // s_dim)
        scale = np.sqrt(np.concatenate([shared, spread[p:]]))
        # zero up to rounding: a constant column has no spread to divide by
        scale = np.where(scale > 1e-10 * (np.abs(mean) + 1e-300), scale, 1.0)
        return cls(mean[:p], scale[:p], mean[p:], scale[p:])

    def moments_in(self, moments: Float2) -> Float2:
        """Gram matrix of centred raw rows [x, w] to model units."""
        scale = np.concatenate([self.x_scale, self.w_scale])
        return moments / np.outer(scale, scale)

    def x_in(self, x: Float2) -> Float2:
        """Raw to model units."""
        return (x - self.x_mean) / self.x_scale

    def w_in(self, w: Float2) -> Float2:
        """Raw to model units."""
        return (w - self.w_mean) / self.w_scale

    def w_out(self, w: Float3) -> Float3:
        """Model to raw units."""
        return w * self.w_scale + self.w_mean


@dataclass(frozen=True, eq=False)
class GaussianInputs:
    """Mean and covariance of the inputs, to condition on those that are seen (THEORY 8).

    E[x_mis | x_obs] = m_mis + C_mo C_oo^+ (x_obs - m_obs). Exact if x is jointly Gaussian and
    values are missing for reasons unrelated to what they would have been; the code can check
    neither. Memoryless: a value seen under another lag at an earlier time is not recalled.
    """

    mean: Float1
    cov: Float2

    def fill(self, x: Float2) -> Float2:
        """Return x (n, p) with every NaN replaced by its conditional mean."""
        hole = np.isnan(x)
        rows = np.flatnonzero(hole.any(-1))
        if not len(rows):
            return x
        out = x.copy()
        for start in range(0, len(rows), BLOCK):
            at = rows[start : start + BLOCK]
            gain, _ = self._condition(~hole[at])
            centred = np.where(hole[at], 0.0, x[at] - self.mean)
            guess = self.mean + np.einsum("nij,nj->ni", gain, centred)
            out[at] = np.where(hole[at], guess, x[at])
        return out

    def draw(self, x: Float2, size: int, rng: np.random.Generator) -> Float3:
        """Return ``size`` completions of x (n, p), missing entries drawn given the seen ones."""
        hole = np.isnan(x)
        out = np.broadcast_to(self.fill(x), (size, *x.shape)).copy()
        rows = np.flatnonzero(hole.any(-1))
        for start in range(0, len(rows), BLOCK):
            at = rows[start : start + BLOCK]
            _, left = self._condition(~hole[at])
            both = hole[at][:, :, None] & hole[at][:, None, :]
            value, vector = np.linalg.eigh(np.where(both, left, 0.0))
            root = vector * np.sqrt(np.maximum(value, 0.0))[:, None, :]
            noise = rng.standard_normal((size, len(at), x.shape[1]))
            out[:, at] += np.where(hole[at], np.einsum("nij,mnj->mni", root, noise), 0.0)
        return out

    def _condition(self, seen: Bool) -> tuple[Float3, Float3]:
        """Return gain C_{.o} C_oo^+ (n, p, p), zero columns where unseen, and the variance left.

        Rows with different patterns are solved in one batched call by padding the unseen block
        with the identity. Solved as correlations, so units do not matter; a ridge of 1e-10 keeps
        repeated or constant inputs solvable.
        """
        sd = np.sqrt(np.maximum(np.diag(self.cov), 0.0))
        sd[sd <= 1e-10 * np.abs(self.mean)] = 1.0  # constant up to rounding
        corr = self.cov / np.outer(sd, sd)
        padded = np.where(seen[:, :, None] & seen[:, None, :], corr, 0.0)
        index = np.arange(len(sd))
        padded[:, index, index] += np.where(seen, 1e-10, 1.0)
        cross = np.where(seen[:, None, :], corr, 0.0)
        gain = np.swapaxes(np.linalg.solve(padded, np.swapaxes(cross, 1, 2)), 1, 2)
        left = corr - gain @ np.swapaxes(cross, 1, 2)
        return gain * sd[:, None] / sd, left * np.outer(sd, sd)
