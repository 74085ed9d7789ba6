"""Units and missing inputs: what stands between raw S summaries and a law's own coordinates."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pulse_pyro.arrays import Bool, Float1, Float2, Float3

BLOCK = 4096


@dataclass(frozen=True)
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
    def standard(cls, x: Float2, w: Float2, s_dim: int) -> Scaler:
        """Centre x (n, p) and w (n, w_dim) and divide by their spread; a constant keeps 1."""
        x_mean = x.mean(0)
        spread = np.einsum("ij,ij->j", x, x) / len(x) - x_mean**2
        shared = np.sqrt(np.maximum(spread.reshape(-1, s_dim).mean(0), 0.0))
        x_scale = np.tile(shared, x.shape[1] // s_dim)
        w_mean, w_scale = w.mean(0), w.std(0)
        return cls(x_mean, _usable(x_scale, x_mean), w_mean, _usable(w_scale, w_mean))

    def x_in(self, x: Float2) -> Float2:
        """Raw to model units."""
        return (x - self.x_mean) / self.x_scale

    def w_in(self, w: Float2) -> Float2:
        """Raw to model units."""
        return (w - self.w_mean) / self.w_scale

    def w_out(self, w: Float3) -> Float3:
        """Model to raw units."""
        return w * self.w_scale + self.w_mean


def _usable(scale: Float1, mean: Float1) -> Float1:
    """Replace scales that are zero up to rounding by 1: a constant column has no spread."""
    return np.where(scale > 1e-10 * (np.abs(mean) + 1e-300), scale, 1.0)


@dataclass(frozen=True)
class GaussianInputs:
    """Mean and covariance of the inputs, to condition on those that are seen (THEORY 8).

    E[x_mis | x_obs] = m_mis + C_mo C_oo^+ (x_obs - m_obs). Exact if x is jointly Gaussian and
    values are missing for reasons unrelated to what they would have been; the code can check
    neither. Memoryless: a value seen under another lag at an earlier time is not recalled.
    """

    mean: Float1
    cov: Float2

    @classmethod
    def of(cls, mean: Float1, gram: Float2, n: int) -> GaussianInputs:
        """From the mean (p,) and the Gram matrix of centred rows."""
        return cls(mean, gram / n)

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
            out[:, at] += np.einsum("nij,mnj->mni", root, noise)
        return out

    def _condition(self, seen: Bool) -> tuple[Float3, Float3]:
        """Return gain C_{.o} C_oo^+ (n, p, p), zero columns where unseen, and the variance left.

        Rows with different patterns are solved in one batched call by padding the unseen block
        with the identity; a ridge of 1e-10 keeps repeated or constant inputs solvable.
        """
        p = len(self.mean)
        both = seen[:, :, None] & seen[:, None, :]
        ridge = 1e-10 * max(float(np.trace(self.cov)) / p, 1e-300)
        padded = np.where(both, self.cov, 0.0)
        index = np.arange(p)
        padded[:, index, index] += np.where(seen, ridge, 1.0)
        cross = np.where(seen[:, None, :], self.cov, 0.0)
        gain = np.swapaxes(np.linalg.solve(padded, np.swapaxes(cross, 1, 2)), 1, 2)
        return gain, self.cov - gain @ np.swapaxes(cross, 1, 2)
