"""A fitted state space law: a linear law on filtered windows, plus what the filter leaves open."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pulse_pyro.arrays import Bool, Float, Float1, Float2, Float3, Float4, Int
from pulse_pyro.laws.filtered import Filtered
from pulse_pyro.laws.fitted import FittedLaw
from pulse_pyro.laws.linear_exact import LOG_2PI, LinearKernel
from pulse_pyro.laws.score import check_shape
from pulse_pyro.laws.varma import advance, observe
from pulse_pyro.progress import bar


@dataclass(frozen=True, eq=False)
class FittedStateSpace(FittedLaw):
    """p^(W_t | all of S seen up to t); see :func:`state_space`.

    Means and mean draws are those of the linear law at the filtered window; draws of W add the
    variance that unseen lags leave open, at the posterior mean of the slopes.
    """

    @property
    def filtered(self) -> Filtered:
        """The summary: filtered lags."""
        if not isinstance(self.law.summary, Filtered):
            raise TypeError("FittedStateSpace needs a Filtered summary.")
        return self.law.summary

    @cached_property
    def law_id(self) -> str:
        """Fingerprint of the emission and of the process of S."""
        digest = hashlib.sha256(super().law_id.encode())
        seen = self.filtered
        parts = (seen.process.ar, seen.process.ma, seen.process.noise, seen.mean, seen.scale)
        for value in parts:
            digest.update(np.ascontiguousarray(value).tobytes())
        return digest.hexdigest()[:16]

    @property
    def conditions(self) -> bool:
        """Rows with unseen inputs are answered."""
        return True

    @property
    def slope(self) -> Float2:
        """(p, w_dim) posterior mean of the emission's slopes, in raw units."""
        line = self._line
        if line is None:
            raise TypeError("FittedStateSpace needs a linear emission.")
        return line[1]

    def variance(self, s: Float3) -> Float3:
        """Return Var[W_t | all seen up to t], (batch, time, w_dim), for s (batch, time, s_dim).

        The sum of noise, unseen lags and the posterior of the emission.
        """
        window, left = self.filtered.run(self._series(s), self.slope)
        kernel, scale = LinearKernel(self.draws), self.scaler.w_scale
        rows = self.scaler.x_in(window)
        ones = np.concatenate([np.ones((*rows.shape[:-1], 1)), rows], axis=-1)
        out: Float3 = (
            np.diagonal(left, axis1=-2, axis2=-1) + (kernel.factor**2).sum(-1).mean(0) * scale**2
        )
        for j in range(len(self.w_names)):
            cov = np.cov(kernel.coef[:, :, j].T)
            out[..., j] += np.einsum("bti,ij,btj->bt", ones, cov, ones) * scale[j] ** 2
        return out

    def sample(self, s: Float3, size: int, *, rng: np.random.Generator) -> Float4:
        """Draw W_t given all of S seen up to t: (size, batch, time, w_dim)."""
        s = self._series(s)
        everywhere = np.ones(s.shape[:2], dtype=np.bool_)
        return self.predict_where(s, everywhere, size, rng=rng)[1].reshape(size, *s.shape[:2], -1)

    def predict_where(
        self, s: Float3, where: Bool, size: int, *, rng: np.random.Generator
    ) -> tuple[Float2, Float3]:
        """Return E[W] (n, w_dim) and draws of W (size, n, w_dim), where (batch, time) is True."""
        window, left = self.filtered.run(self._series(s), self.slope)
        mean, draws = self.predict_rows(window[where], size, rng=rng)
        return mean, draws + _noise(left[where], size, rng)

    def sample_where(
        self, s: Float3, where: Bool, index: Int, *, rng: np.random.Generator
    ) -> Float3:
        """Draw W once for each posterior draw in ``index``, (len(index), n, w_dim), where True."""
        window, left = self.filtered.run(self._series(s), self.slope)
        return self._sample(window[where], index, rng) + _noise(left[where], len(index), rng)

    def log_density_where(self, s: Float3, w: Float3, where: Bool, index: Int) -> Float2:
        """Return log p(W_t = w_t | all seen up to t, draw), (len(index), n), where True."""
        return np.stack(list(self._densities(s, w, where, index)))

    def log_density(self, s: Float3, w: Float3, *, draws: int = 200) -> Float2:
        """Return log p^(W_t = w_t | all seen up to t), (batch, time); NaN where w is NaN."""
        s, w = self._series(s), np.asarray(w, np.float64)
        check_shape(self, s, w)
        index = np.unique(np.linspace(0, self.kernel.count - 1, draws).astype(np.int64))
        everywhere = np.ones(s.shape[:2], dtype=np.bool_)
        total = np.full(everywhere.size, -np.inf)
        for found in self._densities(s, w, everywhere, index):
            total = np.logaddexp(total, found)
        return np.asarray(total - np.log(len(index))).reshape(s.shape[:2])

    def _densities(self, s: Float3, w: Float3, where: Bool, index: Int) -> Iterator[Float1]:
        """Yield log p(w_t | all seen up to t, draw), (n,), draw by draw."""
        window, left = self.filtered.run(self._series(s), self.slope)
        kernel, scale = LinearKernel(self.draws), self.scaler.w_scale
        rows, w, left = self.scaler.x_in(window[where]), w[where], left[where]
        for at in bar(index, label="log densities"):
            root = kernel.factor[at] * scale[:, None]
            mean = self.scaler.w_out(kernel.mean_draws(rows, at[None])[0])
            yield _normal(w - mean, left + root @ root.T)

    def sample_now(self, past: Float2, size: int, *, rng: np.random.Generator) -> Float2:
        """Draw W_t given the past (time, s_dim), taken as all there is: (size, w_dim)."""
        return self.sample(past[None], size, rng=rng)[:, 0, -1]

    def follow(self) -> Filter:
        """Start to follow a series online: O(state^2) a step."""
        return Filter(self)

    def __repr__(self) -> str:
        process = self.filtered.process
        return (
            super().__repr__()
            + f"\n  S: VARMA({len(process.ar)}, {len(process.ma)}) of {len(self.s_names)} columns"
        )


def _noise(cov: Float3, size: int, rng: np.random.Generator) -> Float3:
    """Draw N(0, cov) for covariances (n, d, d) that may be singular: (size, n, d)."""
    value, vector = np.linalg.eigh(cov)
    root = vector * np.sqrt(np.maximum(value, 0.0))[:, None, :]
    out: Float3 = np.einsum("nij,mnj->mni", root, rng.standard_normal((size, *cov.shape[:2])))
    return out


def _normal(off: Float2, cov: Float3) -> Float1:
    """Return log N(off; 0, cov), (n,), for off (n, d)."""
    square = (off * np.linalg.solve(cov, off[..., None])[..., 0]).sum(-1)
    out: Float1 = -0.5 * (square + np.linalg.slogdet(cov)[1] + off.shape[-1] * LOG_2PI)
    return out


class Filter:
    """One series as it unfolds: the state of its Kalman filter."""

    def __init__(self, law: FittedStateSpace) -> None:
        self._law, seen = law, law.filtered
        self._top, start = seen.process.start(seen.memory)
        self._noise = seen.process.noise
        d = len(seen.mean)
        self._lags = self._top.shape[1] // d - len(seen.process.ma)
        self._at = slice(seen.window.start * d, (seen.window.start + seen.window.count) * d)
        self._state, self._cov = np.zeros(len(start)), start.copy()
        self._fresh = True
        self._now = np.full(d, np.nan)
        self._mean, self._scale = seen.mean, seen.scale
        # E[W] = level + state @ slope, in one product
        tile = np.tile(seen.scale, seen.window.count)
        level = law._line[0] if law._line is not None else 0.0
        self._level = level + np.tile(seen.mean, seen.window.count) @ law.slope
        self._slope = law.slope * tile[:, None]

    @property
    def now(self) -> Float1:
        """The newest S_t."""
        return self._now

    def push(self, s: Float1) -> None:
        """Move on by one step and take in what is seen of S_t."""
        if not self._fresh:
            advance(self._state, self._cov, self._top, self._noise, self._lags)
        self._fresh = False
        self._now = np.array(s, np.float64)
        observe(self._state, self._cov, (self._now - self._mean) / self._scale)

    def inputs(self) -> Float1:
        """Return the filtered window."""
        count = self._law.filtered.window.count
        out: Float1 = self._state[self._at] * np.tile(self._scale, count)
        return out + np.tile(self._mean, count)

    def state(self) -> dict[str, Float]:
        """Return the filter's state, its covariance, the newest row, whether any came."""
        fresh = np.array([float(self._fresh)])
        return {"state": self._state.copy(), "cov": self._cov.copy(), "now": self._now.copy(),
                "fresh": fresh}  # fmt: skip

    def restore(self, state: Mapping[str, Float]) -> None:
        """Take over a filter's state."""
        self._state[:], self._cov[:] = state["state"], state["cov"]
        self._now, self._fresh = np.array(state["now"]), bool(state["fresh"][0])

    def mean(self) -> Float1:
        """Return E[W_t | all seen so far], (w_dim,)."""
        out: Float1 = self._level + self._state[self._at] @ self._slope
        return out

    def sample(self, size: int, rng: np.random.Generator) -> Float2:
        """Draw W_t given all seen so far, (size, w_dim)."""
        left = self._slope.T @ self._cov[self._at, self._at] @ self._slope
        _, drawn = self._law.predict_rows(self.inputs()[None], size, rng=rng)
        return drawn[:, 0] + _noise(left[None], size, rng)[:, 0]
