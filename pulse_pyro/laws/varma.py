"""Vector ARMA processes seen in part: an exact Kalman filter over a window of lags.

    S_t = sum_i A_i S_{t-i} + e_t + sum_j B_j e_{t-j},   e_t ~ N(0, Q).

The state is (S_t, ..., S_{t-k+1}, e_t, ..., e_{t-q+1}). One step shifts it, and a value that is
seen is one rank-one update; a value that is not seen is skipped. Cost O(state^2) a step.
"""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np

from pulse_pyro.arrays import Float, Float1, Float2, Float3, Float4

KNOWN = 1e-12  # variance below which a value, of spread about 1, counts as known


@dataclass(frozen=True, eq=False)
class Process:
    """Coefficients of a stationary VARMA(p, q) with s_dim = d, mean 0.

    ar : (p, d, d) A_1, ..., A_p. ma : (q, d, d) B_1, ..., B_q. noise : (d, d) Q.
    """

    ar: Float3
    ma: Float3
    noise: Float2

    @property
    def radius(self) -> float:
        """Largest modulus of the companion matrix's eigenvalues; stationary below 1."""
        p, d, _ = self.ar.shape
        if p == 0:
            return 0.0
        companion = np.eye(p * d, k=-d)
        companion[:d] = np.concatenate(list(self.ar), axis=1)
        return float(np.abs(np.linalg.eigvals(companion)).max())

    def start(self, lags: int) -> tuple[Float2, Float2]:
        """Return the map to the next S, (d, m), and the stationary covariance of the state, (m, m).

        m = d (max(lags, p, 1) + q).
        """
        p, d, _ = self.ar.shape
        q = len(self.ma)
        k = max(lags, p, 1)
        m = d * (k + q)
        top = np.zeros((d, m))
        if p:
            top[:, : p * d] = np.concatenate(list(self.ar), axis=1)
        if q:
            top[:, k * d :] = np.concatenate(list(self.ma), axis=1)
        move = np.eye(m, k=-d)
        move[:d] = top
        shock = np.zeros((m, d))
        shock[:d] = np.eye(d)
        if q:
            move[k * d : (k + 1) * d] = 0.0
            shock[k * d : (k + 1) * d] = np.eye(d)
        cov = shock @ self.noise @ shock.T
        for _ in range(40):  # doubling: cov = sum_i F^i Q F'^i, 2^40 terms
            step = move @ cov @ move.T
            cov = cov + step
            move = move @ move
            if not np.abs(step).max() > 1e-14 * np.abs(cov).max():
                break
        return top, (cov + cov.T) / 2.0


@numba.njit(cache=True)
def advance(x: Float1, cov: Float2, top: Float2, noise: Float2, lags: int) -> None:
    """Move the state (m,) and its covariance (m, m) to the next time, in place."""
    d, m = top.shape
    tail = lags * d  # where the innovations begin
    near = m - tail
    dense = 0  # columns of S that the map uses
    for j in range(tail):
        for a in range(d):
            if top[a, j] != 0.0:
                dense = j + 1
    ahead = np.zeros(d)
    cross = np.zeros((d, m))
    for a in range(d):
        for j in range(m):
            if j >= dense and j < tail:
                continue
            value = top[a, j]
            if value != 0.0:
                ahead[a] += value * x[j]
                for i in range(m):
                    cross[a, i] += value * cov[j, i]
    square = np.zeros((d, d))
    for a in range(d):
        for b in range(d):
            total = noise[a, b]
            for j in range(m):
                if j >= dense and j < tail:
                    continue
                total += cross[a, j] * top[b, j]
            square[a, b] = total
    # shift, from the far end: rows and columns move by d inside each of the two parts
    for i in range(m - 1, -1, -1):
        if i < d or (near > 0 and tail <= i < tail + d):
            continue
        x[i] = x[i - d]
        for j in range(m - 1, -1, -1):
            if j < d or (near > 0 and tail <= j < tail + d):
                continue
            cov[i, j] = cov[i - d, j - d]
    for a in range(d):
        x[a] = ahead[a]
        for i in range(d, m):
            fresh = near > 0 and tail <= i < tail + d
            value = noise[a, i - tail] if fresh else cross[a, i - d]
            cov[a, i] = value
            cov[i, a] = value
        for b in range(d):
            cov[a, b] = square[a, b]
        if near > 0:
            x[tail + a] = 0.0
            for i in range(d, m):
                value = noise[a, i - tail] if tail <= i < tail + d else 0.0
                cov[tail + a, i] = value
                cov[i, tail + a] = value


@numba.njit(cache=True)
def observe(x: Float1, cov: Float2, s: Float1) -> float:
    """Condition on the entries of s (d,) that are not NaN, in place; return their log-density."""
    m = len(x)
    gain = np.empty(m)
    total = 0.0
    for a in range(len(s)):
        if s[a] != s[a]:
            continue
        spread = cov[a, a]
        miss = s[a] - x[a]
        if spread < KNOWN:  # nothing left to learn from it, but a surprise is still a surprise
            total -= 0.5 * (np.log(2.0 * np.pi * KNOWN) + miss * miss / KNOWN)
            continue
        for i in range(m):
            gain[i] = cov[i, a] / spread
        for i in range(m):
            if gain[i] == 0.0:
                continue
            x[i] += gain[i] * miss
            scaled = gain[i] * spread
            for j in range(m):
                cov[i, j] -= scaled * gain[j]
        x[a] = s[a]
        for i in range(m):
            cov[a, i] = 0.0
            cov[i, a] = 0.0
        total -= 0.5 * (np.log(2.0 * np.pi * spread) + miss * miss / spread)
    return total


@numba.njit(cache=True)
def _filter(
    s: Float3, top: Float2, noise: Float2, start: Float2, lags: int, first: int, coef: Float2,
    window: Float3, var: Float4, fits: Float1,
) -> None:  # fmt: skip
    """Run the filter over series s (batch, time, d); fill window, var and log-likelihoods."""
    m = len(start)
    width, w_dim = coef.shape
    x = np.empty(m)
    cov = np.empty((m, m))
    for b in range(s.shape[0]):
        x[:] = 0.0
        cov[:] = start
        for t in range(s.shape[1]):
            if t > 0:
                advance(x, cov, top, noise, lags)
            fits[b] += observe(x, cov, s[b, t])
            for i in range(window.shape[2]):
                window[b, t, i] = x[first + i]
            for p in range(w_dim):
                for q in range(p + 1):
                    total = 0.0
                    for i in range(width):
                        if cov[first + i, first + i] == 0.0:
                            continue
                        for j in range(width):
                            total += coef[i, p] * cov[first + i, first + j] * coef[j, q]
                    var[b, t, p, q] = total
                    var[b, t, q, p] = total


def filtered(
    process: Process, s: Float3, first: int, count: int, coef: Float2
) -> tuple[Float3, Float4]:
    """Return E[S_{t-first}, ..., S_{t-first-count+1} | seen up to t] and what it leaves open.

    s : (batch, time, d) with NaN where not seen. coef : (count * d, w_dim) or (0, 0).
    Returns (batch, time, count * d), newest lag first, and coef' Cov coef (batch, time, w_dim,
    w_dim).
    """
    d = s.shape[2]
    top, start = process.start(first + count)
    window = np.empty((*s.shape[:2], count * d))
    var = np.empty((*s.shape[:2], coef.shape[1], coef.shape[1]))
    lags = top.shape[1] // d - len(process.ma)
    whole = np.ascontiguousarray(s, dtype=np.float64)
    _filter(whole, top, process.noise, start, lags, first * d, np.ascontiguousarray(coef),
            window, var, np.zeros(len(s)))  # fmt: skip
    return window, var


def log_likelihood(process: Process, s: Float3) -> Float1:
    """Return the exact log-likelihood, (batch,), of series s (batch, time, d), NaN = not seen."""
    top, start = process.start(0)
    lags = top.shape[1] // s.shape[2] - len(process.ma)
    nothing: Float = np.empty((0, 0))
    fits = np.zeros(len(s))
    _filter(np.ascontiguousarray(s, dtype=np.float64), top, process.noise, start, lags, 0, nothing,
            np.empty((*s.shape[:2], 0)), np.empty((*s.shape[:2], 0, 0)), fits)  # fmt: skip
    return fits
