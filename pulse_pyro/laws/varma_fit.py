"""Maximum likelihood for a VARMA process that is seen in part."""

from __future__ import annotations

import numpy as np
from scipy import optimize

from pulse_pyro.arrays import Float1, Float2, Float3
from pulse_pyro.errors import ConvergenceError
from pulse_pyro.laws.stationary import coefficients, from_partials, partials, to_partials
from pulse_pyro.laws.varma import Process, log_likelihood
from pulse_pyro.progress import bar
from pulse_pyro.seeds import stream

ROWS, LEAST = 20_000, 4000  # (unit, time) steps the likelihood is summed over
WORK = 120_000  # steps times parameters, beyond which fewer steps are used
TRIED = 2  # starting points that are followed, the likeliest first


def fit_process(s: Float3, ar: int, ma: int, seed: int) -> tuple[Process, float]:
    """Return the VARMA(ar, ma) of highest likelihood for series s (unit, time, d) of mean 0, sd 1.

    The likelihood is exact: it skips what is NaN. It is summed over whole units drawn at random
    until 20,000 steps are reached (fewer, down to 4,000, where parameters are many), and its search
    ends after 3,000 / parameters steps at the latest. Columns that never vary are white noise of
    their own. Returns the process and its log-likelihood per step.
    """
    spread = np.nanmax(np.abs(s), axis=(0, 1))
    vary = np.flatnonzero(spread > 1e-8)
    d = s.shape[2]
    if len(vary) < d:
        if not len(vary):
            return Process(np.zeros((ar, d, d)), np.zeros((ma, d, d)), np.eye(d)), 0.0
        part, fit = fit_process(s[..., vary], ar, ma, seed)
        return _embedded(part, vary, d), fit
    order = stream(seed, "units").permutation(len(s))
    steps = np.cumsum((~np.isnan(s)).any(-1).sum(1)[order])
    free = (ar + ma) * d * d + d * (d + 1) // 2
    most = min(max(WORK // free, LEAST), ROWS)
    some = s[np.sort(order[: max(int((steps <= most).sum()), 1)])]
    count = max(int((~np.isnan(some)).any(-1).sum()), 1)
    best: tuple[float, Float1] = (np.inf, np.zeros(0))
    progress = bar(label="likelihood, evaluations")

    def loss(theta: Float1) -> float:
        nonlocal best
        progress.update()
        with np.errstate(all="ignore"):
            value = -float(log_likelihood(_unpack(theta, ar, ma, d), some).sum())
        if not np.isfinite(value):
            return 1e6 * count
        if value < best[0]:  # a search may end elsewhere than at the best point it met
            best = value, theta.copy()
        return value

    begins = sorted(_begins(some, ar, ma), key=loss)
    for begin in begins[:TRIED]:
        turns = max(3000 // free, 15)
        optimize.minimize(
            loss, begin, method="L-BFGS-B",
            options={"maxiter": turns, "maxfun": 10**6, "ftol": 1e-10, "gtol": 1e-3},
        )  # fmt: skip
    progress.close()
    if not np.isfinite(best[0]):
        raise ConvergenceError(
            f"state_space: no stationary VARMA({ar}, {ma}) fits S; difference or detrend S, or "
            "lower ar and ma."
        )
    return _unpack(best[1], ar, ma, d), -best[0] / count


def _begins(s: Float3, ar: int, ma: int) -> list[Float1]:
    """Return starting points: by Yule and Walker, and plainly persistent, with and without MA."""
    d = s.shape[2]
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
    return Process(coefficients(free, root), two.reshape(ma, d, d), root @ root.T)


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


def _autocovariance(s: Float3, lag: int) -> Float2:
    """Return E[S_t S_{t-lag}'] over the pairs that are both seen; 0 where there is none."""
    now, then = s[:, lag:], s[:, : max(s.shape[1] - lag, 0)]
    both = np.einsum("uti,utj->ij", np.isfinite(now) * 1.0, np.isfinite(then) * 1.0)
    total = np.einsum("uti,utj->ij", np.nan_to_num(now), np.nan_to_num(then))
    out: Float2 = total / np.maximum(both, 1.0)
    return out
