"""Vector ARMA processes seen in part: an exact Kalman filter, and maximum likelihood."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numba
import numpy as np
from scipy import optimize

from pulse_pyro._core.arrays import Float, Float1, Float2, Float3, Float4
from pulse_pyro._core.errors import ConvergenceError
from pulse_pyro._core.progress import bar
from pulse_pyro._core.seeds import stream
from pulse_pyro.data.history import History

# Vector ARMA processes seen in part: an exact Kalman filter over a window of lags.
#
#     S_t = sum_i A_i S_{t-i} + e_t + sum_j B_j e_{t-j},   e_t ~ N(0, Q).
#
# The state is (S_t, ..., S_{t-k+1}, e_t, ..., e_{t-q+1}). One step shifts it, and a value that is
# seen is one rank-one update; a value that is not seen is skipped. Cost O(state^2) a step.


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
    s: Float3,
    top: Float2,
    noise: Float2,
    start: Float2,
    lags: int,
    first: int,
    coef: Float2,
    window: Float3,
    var: Float4,
    fits: Float1,
) -> None:
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
    _filter(
        whole,
        top,
        process.noise,
        start,
        lags,
        first * d,
        np.ascontiguousarray(coef),
        window,
        var,
        np.zeros(len(s)),
    )
    return window, var


def log_likelihood(process: Process, s: Float3) -> Float1:
    """Return the exact log-likelihood, (batch,), of series s (batch, time, d), NaN = not seen."""
    top, start = process.start(0)
    lags = top.shape[1] // s.shape[2] - len(process.ma)
    nothing: Float = np.empty((0, 0))
    fits = np.zeros(len(s))
    _filter(
        np.ascontiguousarray(s, dtype=np.float64),
        top,
        process.noise,
        start,
        lags,
        0,
        nothing,
        np.empty((*s.shape[:2], 0)),
        np.empty((*s.shape[:2], 0, 0)),
        fits,
    )
    return fits


# Stationary vector autoregressions without constraints (Ansley and Kohn, 1986).
#
# A VAR(p) is stationary exactly if its partial autocorrelation matrices P_1, ..., P_p have singular
# values below 1; P = L^-1 B with L L' = I + B B' maps every matrix B to such a P. So a search over
# the B never meets a wall.


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


def varma_coefficients(partial: list[Float2], root: Float2) -> Float3:
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


# Maximum likelihood for a VARMA process that is seen in part.


ROWS, LEAST = 20_000, 4000  # (unit, time) steps the likelihood is summed over
WORK = 120_000  # steps times parameters, beyond which fewer steps are used
TRIED = 2  # starting points that are followed, the likeliest first


def fit_process(history: History, ar: int, ma: int, seed: int) -> tuple[Process, float]:
    """Return the VARMA(ar, ma) of highest likelihood for the S of an archive, of mean 0 and sd 1.

    The likelihood is exact: it skips what is NaN. It is summed over whole units drawn at random
    until 20,000 steps are reached (fewer, down to 4,000, where parameters are many), and its search
    ends after 3,000 / parameters steps at the latest. Columns that never vary are white noise of
    their own. Returns the process and its log-likelihood per step.
    """
    vary = np.flatnonzero(np.nanmax(np.abs(history.s), axis=0) > 1e-8)
    whole, d = history.s.shape[1], len(vary)
    if not d:
        return Process(
            np.zeros((ar, whole, whole)), np.zeros((ma, whole, whole)), np.eye(whole)
        ), 0.0
    order = stream(seed, "units").permutation(len(history.units))
    seen = (~np.isnan(history.s[:, vary])).any(-1).astype(np.int64)
    steps = np.cumsum(np.add.reduceat(seen, history.offsets[:-1])[order])
    free = (ar + ma) * d * d + d * (d + 1) // 2
    most = min(max(WORK // free, LEAST), ROWS)
    part = history.take(np.sort(order[: max(int((steps <= most).sum()), 1)]))
    some = [np.ascontiguousarray(block.s[..., vary]) for block in part.blocks()]
    count = max(sum(int((~np.isnan(s)).any(-1).sum()) for s in some), 1)
    best: tuple[float, Float1] = (np.inf, np.zeros(0))
    progress = bar(label="likelihood, evaluations")

    def loss(theta: Float1) -> float:
        nonlocal best
        progress.update()
        with np.errstate(all="ignore"):
            process = _unpack(theta, ar, ma, d)
            value = -sum(float(log_likelihood(process, s).sum()) for s in some)
        if not np.isfinite(value):
            return 1e6 * count
        if value < best[0]:  # a search may end elsewhere than at the best point it met
            best = value, theta.copy()
        return value

    begins = sorted(_begins(some, ar, ma), key=loss)
    for begin in begins[:TRIED]:
        turns = max(3000 // free, 15)
        optimize.minimize(
            loss,
            begin,
            method="L-BFGS-B",
            options={"maxiter": turns, "maxfun": 10**6, "ftol": 1e-10, "gtol": 1e-3},
        )
    progress.close()
    if not np.isfinite(best[0]):
        raise ConvergenceError(
            f"state_space: no stationary VARMA({ar}, {ma}) fits S; difference or detrend S, or "
            "lower ar and ma."
        )
    found = _unpack(best[1], ar, ma, d)
    return found if d == whole else _embedded(found, vary, whole), -best[0] / count


def _begins(s: list[Float3], ar: int, ma: int) -> list[Float1]:
    """Return starting points: by Yule and Walker, and plainly persistent, with and without MA."""
    d = s[0].shape[2]
    gamma = [_autocovariance(s, lag) for lag in range(ar + 1)]  # E[S_t S_{t-lag}']
    found, noise = partials(gamma)
    persistent = [0.5 * np.eye(d) if i == 0 else np.zeros((d, d)) for i in range(ar)]
    root = np.linalg.cholesky(noise)
    tail = [np.log(np.diag(root)), root[np.tril_indices(d, -1)]]
    out = []
    for start in (found, persistent) if ar else (found,):
        for level in (0.0, 0.3) if ma else (0.0,):
            moving = np.zeros((ma, d, d))
            moving[:1] = level * np.eye(d)
            free = [np.arcsinh(from_partials(p)).ravel() for p in start]
            out.append(np.concatenate([*free, moving.ravel(), *tail]))
    return out


def _unpack(theta: Float1, ar: int, ma: int, d: int) -> Process:
    """Map any vector to a stationary process: free matrices, MA, the root of the noise."""
    cut = np.cumsum([ar * d * d, ma * d * d, d])
    one, two, diagonal, lower = np.split(theta, cut)
    root = np.diag(np.exp(np.clip(diagonal, -12.0, 5.0)))
    root[np.tril_indices(d, -1)] = lower
    # sinh: near a unit root the matrices grow without bound, their arcsinh only slowly
    free = [to_partials(np.sinh(np.clip(b, -15.0, 15.0))) for b in one.reshape(ar, d, d)]
    return Process(varma_coefficients(free, root), two.reshape(ma, d, d), root @ root.T)


def _embedded(part: Process, vary: np.ndarray, d: int) -> Process:
    """Put a process of some columns among others that are white noise."""
    at = np.ix_(vary, vary)
    ar, ma = np.zeros((len(part.ar), d, d)), np.zeros((len(part.ma), d, d))
    for whole, own in ((ar, part.ar), (ma, part.ma)):
        for i in range(len(own)):
            whole[i][at] = own[i]
    noise = np.eye(d)
    noise[at] = part.noise
    return Process(ar, ma, noise)


def _autocovariance(parts: list[Float3], lag: int) -> Float2:
    """Return E[S_t S_{t-lag}'] over the pairs that are both seen; 0 where there is none."""
    d = parts[0].shape[2]
    both, total = np.zeros((d, d)), np.zeros((d, d))
    for s in parts:
        now, then = s[:, lag:], s[:, : max(s.shape[1] - lag, 0)]
        both += np.einsum("uti,utj->ij", np.isfinite(now) * 1.0, np.isfinite(then) * 1.0)
        total += np.einsum("uti,utj->ij", np.nan_to_num(now), np.nan_to_num(then))
    out: Float2 = total / np.maximum(both, 1.0)
    return out
