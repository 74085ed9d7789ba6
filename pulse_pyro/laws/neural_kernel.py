"""Prediction with mixture density networks, in NumPy and one compiled loop."""

from __future__ import annotations

from collections.abc import Mapping

import numba
import numpy as np
from scipy.special import logsumexp

from pulse_pyro.arrays import Bool, Float, Float1, Float2, Float3, Int
from pulse_pyro.laws.linear_exact import LOG_2PI

FLOOR, CEILING = -6.0, 7.0  # of log 1/sd, as in training
NOTHING = np.zeros(0, dtype=np.bool_)
BLOCK = 2**22  # values in flight


def with_mask(x: Float) -> Float:
    """Return (..., 2 p): x (..., p) with 0 where it is NaN, then 1 where it is NaN."""
    hole = np.isnan(x)
    return np.concatenate([np.where(hole, 0.0, x), hole.astype(np.float64)], axis=-1)


class NeuralKernel:
    """An ensemble: member e is draw e, each a mixture of Gaussians at every x.

    draws : "weight0" (member, in, out), "bias0" (member, out), ...
    """

    exact_mean = True

    def __init__(
        self, draws: Mapping[str, Float], components: int, w_dim: int,
        missable: tuple[bool, ...] = (), most: int = 0,
    ) -> None:  # fmt: skip
        self.layers = [(draws[f"weight{i}"], draws[f"bias{i}"]) for i in range(len(draws) // 2)]
        self.columns = max(weight.shape[0] * weight.shape[-1] for weight, _ in self.layers)
        self._most = most
        self._needed = np.flatnonzero(~np.array(missable, dtype=np.bool_))
        self.count, self.k, self.w_dim, self.masked = (
            len(self.layers[0][0]), components, w_dim, any(missable),
        )  # fmt: skip

    def _run(self, x: Float2, member: int | slice) -> Float:
        """Return the outputs of one member (n, out), or of all (member, n, out)."""
        hidden = with_mask(x) if self.masked else x
        lost = self._lost(x) if self.masked else NOTHING
        for i, (weight, bias) in enumerate(self.layers):
            hidden = hidden @ weight[member] + bias[member][..., None, :]
            if i < len(self.layers) - 1:
                np.maximum(hidden, 0.0, out=hidden)
        if lost.any():  # it was never trained without these
            hidden[..., lost, :] = np.nan
        return hidden

    def _lost(self, x: Float2) -> Bool:
        """Tell rows that lack an input, or more inputs at once, than training has seen."""
        hole = np.isnan(x)
        out: Bool = hole[:, self._needed].any(axis=1) | (hole.sum(axis=1) > self._most)
        return out

    def _means(self, out: Float) -> Float:
        """E[w] of outputs (..., out): sum_k pi_k mu_k, (..., w_dim)."""
        logit = out[..., : self.k]
        weight = np.exp(logit - logit.max(-1, keepdims=True))
        weight /= weight.sum(-1, keepdims=True)
        mean = out[..., self.k : self.k * (1 + self.w_dim)]
        centre: Float = (weight[..., None, :] @ mean.reshape(*out.shape[:-1], self.k, -1))[
            ..., 0, :
        ]
        return centre

    def mean(self, x: Float2) -> Float2:
        """Return E[w | x], (n, w_dim), the average over members."""
        rows = self._rows(self.count)
        parts = [
            self._means(self._run(x[start : start + rows], slice(None))).mean(0)
            for start in range(0, len(x), rows)
        ]
        return np.concatenate(parts) if len(parts) != 1 else parts[0]

    def _rows(self, members: int) -> int:
        """Rows to run at once."""
        return max(BLOCK * self.count // (self.columns * members), 1)

    def mean_draws(self, x: Float2, index: Int) -> Float3:
        """Return E[w | x, member], (len(index), n, w_dim)."""
        used, which = np.unique(index, return_inverse=True)
        rows = self._rows(1)
        found = np.empty((len(used), len(x), self.w_dim))
        for i, member in enumerate(used):
            for start in range(0, len(x), rows):
                at = slice(start, start + rows)
                found[i, at] = self._means(self._run(x[at], int(member)))
        return found[which]

    def log_density(self, x: Float2, w: Float2, index: Int) -> Float2:
        """Return log p(w | x, member), (len(index), n)."""
        used, which = np.unique(index, return_inverse=True)
        return np.stack([self._score(self._run(x, int(member)), w) for member in used])[which]

    def _score(self, out: Float2, w: Float2) -> Float1:
        k, d = self.k, self.w_dim
        logit, mean, log_root, lower = (
            part.reshape(len(out), k, -1)
            for part in np.split(out, [k, k + k * d, k + 2 * k * d], 1)
        )
        log_root = np.clip(log_root, FLOOR, CEILING)
        row, column = np.tril_indices(d, -1)
        off = w[:, None] - mean
        z = np.exp(log_root) * off + (lower * off[..., column]) @ np.eye(d)[row]
        normal = log_root.sum(-1) - 0.5 * ((z**2).sum(-1) + d * LOG_2PI)
        weight = logit[..., 0] - logsumexp(logit[..., 0], axis=1, keepdims=True)
        found: Float1 = logsumexp(weight + normal, axis=1)
        return found

    def sample(self, x: Float2, index: Int, rng: np.random.Generator) -> Float3:
        """Draw w at x (n, p) once per entry of ``index``: (len(index), n, w_dim)."""
        out = np.empty((len(index), len(x), self.w_dim))
        noise = rng.standard_normal(out.shape)
        choice = rng.random(out.shape[:2])
        rows = self._rows(1)
        for member in np.unique(index):
            own = np.flatnonzero(index == member)
            for start in range(0, len(x), rows):
                at = slice(start, start + rows)
                found = self._run(x[at], int(member))
                _draw(found, own, choice[:, at], noise[:, at], self.k, self.w_dim, out[:, at])
        return out


@numba.njit(cache=True)
def _draw(
    params: Float2, own: Int, choice: Float2, noise: Float3, k: int, d: int, out: Float3
) -> None:
    """Pick a component by its weight, then solve root (w - mu) = noise by substitution."""
    rows = params.shape[0]
    share, spread = np.empty((rows, k)), np.empty((rows, k * d))
    for row in range(rows):
        top = params[row, :k].max()
        total = 0.0
        for j in range(k):
            total += np.exp(params[row, j] - top)
            share[row, j] = total
        for j in range(k * d):
            spread[row, j] = np.exp(-min(max(params[row, k + k * d + j], FLOOR), CEILING))
    step = d * (d - 1) // 2
    for i in own:
        for row in range(rows):
            aim = choice[i, row] * share[row, k - 1]
            part = 0
            while part < k - 1 and share[row, part] < aim:
                part += 1
            mean = k + part * d
            at = k + 2 * k * d + part * step
            for a in range(d):
                value = noise[i, row, a]
                for b in range(a):
                    value -= params[row, at] * out[i, row, b]
                    at += 1
                out[i, row, a] = value * spread[row, part * d + a]
            for a in range(d):
                out[i, row, a] += params[row, mean + a]
