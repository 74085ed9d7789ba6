"""Units and missing inputs: what stands between raw S summaries and a law's own coordinates."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import stats

from pulse_pyro._core.arrays import Bool, Float1, Float2, Float3, Int

# Units and missing inputs: what stands between raw S summaries and a law's own coordinates.


BYTES = 2**25  # of one block of p x p matrices


@dataclass(frozen=True, eq=False)
class Scaler:
    """Affine change of units: model x = (x - x_mean) / x_scale, likewise w.

    Lags of one S column share one scale, so a prior that treats the lags of a series alike stays
    alike in raw units.
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
    def standard(cls, mean: Float1, moments: Float2, n: int, kinds: Sequence[str]) -> Scaler:
        """Centre and divide by the spread, from the moments of n rows [x, w]; constants keep 1.

        ``kinds`` names the p columns of x; those of one name share the root mean square spread.
        """
        p = len(kinds)
        spread = np.maximum(np.diag(moments), 0.0) / n
        _, group = np.unique(np.array(kinds), return_inverse=True)
        shared = (np.bincount(group, spread[:p]) / np.bincount(group))[group]
        scale = np.sqrt(np.concatenate([shared, spread[p:]]))
        # zero up to rounding: a constant column has no spread to divide by
        scale = np.where(scale > 1e-10 * (np.abs(mean) + 1e-300), scale, 1.0)
        return cls(mean[:p], scale[:p], mean[p:], scale[p:])

    def x_in(self, x: Float2) -> Float2:
        """Raw to model units."""
        return (x - self.x_mean) / self.x_scale

    def moments_in(self, inputs: InputMoments) -> InputMoments:
        """Raw to model units."""
        return InputMoments(
            self.x_in(inputs.mean), inputs.cov / np.outer(self.x_scale, self.x_scale)
        )

    def w_in(self, w: Float2) -> Float2:
        """Raw to model units."""
        return (w - self.w_mean) / self.w_scale

    def w_out(self, w: Float3) -> Float3:
        """Model to raw units."""
        out: Float3 = w * self.w_scale
        out += self.w_mean
        return out


class InputMoments(NamedTuple):
    """Inputs that are not known but for their mean (n, p) and covariance (n, p, p)."""

    mean: Float2
    cov: Float3


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
        if not hole.any():
            return x
        out = x.copy()
        for rows, gain, _ in self._patterns(hole):
            out[rows] = self._guess(x[rows], hole[rows], gain)
        return out

    def moments(self, x: Float2) -> InputMoments:
        """Return mean and covariance of rows x (n, p), NaN entries given the seen ones."""
        hole = np.isnan(x)
        mean, cov = x.copy(), np.zeros((*x.shape, x.shape[1]))
        for rows, gain, left in self._patterns(hole):
            both = hole[rows][:, :, None] & hole[rows][:, None, :]
            mean[rows] = self._guess(x[rows], hole[rows], gain)
            cov[rows] = np.where(both, left, 0.0)
        return InputMoments(mean, cov)

    def draw(self, x: Float2, size: int, rng: np.random.Generator) -> Float3:
        """Return ``size`` completions of x (n, p), missing entries drawn given the seen ones."""
        return self.complete(x, rng.standard_normal((size, *x.shape)))

    def complete(self, x: Float2, noise: Float3) -> Float3:
        """Return completions of x (n, p) made with standard normal noise (size, n or 1, p)."""
        hole = np.isnan(x)
        size = len(noise)
        out = np.broadcast_to(x, (size, *x.shape)).copy()
        for rows, gain, left in self._patterns(hole):
            both = hole[rows][:, :, None] & hole[rows][:, None, :]
            value, vector = np.linalg.eigh(np.where(both, left, 0.0))
            root = vector * np.sqrt(np.maximum(value, 0.0))[:, None, :]
            own = noise if noise.shape[1] == 1 else noise[:, rows]
            moved = np.where(hole[rows], np.einsum("nij,mnj->mni", root, own), 0.0)
            out[:, rows] = self._guess(x[rows], hole[rows], gain) + moved
        return out

    def _guess(self, x: Float2, hole: Bool, gain: Float3) -> Float2:
        centred = np.where(hole, 0.0, x - self.mean)
        return np.where(hole, self.mean + np.einsum("nij,nj->ni", gain, centred), x)

    def _patterns(self, hole: Bool) -> Iterator[tuple[Int, Float3, Float3]]:
        """Yield (rows, gain, left) for blocks of incomplete rows, one solve per pattern.

        gain = C_{.o} C_oo^+ (n, p, p), zero in unseen columns; left = the variance that remains.
        """
        rows = np.flatnonzero(hole.any(-1))
        patterns, which = np.unique(hole[rows], axis=0, return_inverse=True)
        rows = rows[np.argsort(which, kind="stable")]
        which = np.sort(which)
        block = max(BYTES // (8 * hole.shape[1] ** 2), 1)
        for start in range(0, len(rows), block):
            local = which[start : start + block]
            gain, left = self._condition(~patterns[local[0] : local[-1] + 1])
            yield rows[start : start + block], gain[local - local[0]], left[local - local[0]]

    def _condition(self, seen: Bool) -> tuple[Float3, Float3]:
        """Return gain and remaining variance for patterns (n, p).

        All patterns are solved in one batched call by padding the unseen block with the identity.
        Solved as correlations, so units do not matter; a ridge of 1e-10 keeps repeated or
        constant inputs solvable.
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


# Inputs that are not seen: averaged over given the seen ones, for laws that are not affine.


NODES = 64  # completions of a row
CHUNK = 2**22  # values in flight: 32 MiB


def average(
    x: Float2,
    inputs: GaussianInputs,
    predict: Callable[[Float2], Float3],
    size: int,
    columns: int,
) -> Float3:
    """Return E[predict(x) | seen inputs], (size, n, w_dim), for rows x (n, p) with NaN.

    Quadrature over 64 fixed quasi-random completions of each row, so that the same row always
    gives the same answer; its error is not Monte Carlo error and is not reported. Exact for
    affine predictions: the nodes have mean 0. columns : values a prediction needs for each row,
    to bound memory.
    """
    p = x.shape[1]
    points = stats.qmc.Sobol(p, seed=np.random.default_rng(0)).random(NODES)
    noise = stats.norm.ppf(points)
    noise = ((noise - noise.mean(0)) / noise.std(0))[:, None]
    out = []
    block = max(CHUNK // (NODES * max(p, size, columns)), 1)
    for start in range(0, len(x), block):
        full = inputs.complete(x[start : start + block], noise)
        values = predict(full.reshape(-1, p))
        out.append(values.reshape(size, NODES, -1, values.shape[-1]).mean(1))
    return np.concatenate(out, axis=1)
