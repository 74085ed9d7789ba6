"""Maximum likelihood for a VARMA process that is seen in part."""

from __future__ import annotations

import numpy as np
from scipy import optimize

from pulse_pyro.arrays import Float1, Float2, Float3
from pulse_pyro.errors import ConvergenceError
from pulse_pyro.laws.varma import Process, log_likelihood
from pulse_pyro.progress import bar
from pulse_pyro.seeds import stream

ROWS = 20_000  # (unit, time) steps the likelihood is summed over
STATIONARY = 0.9995  # largest eigenvalue allowed
STARTS = (0.0, 0.3)  # moving-average coefficients tried first


def fit_process(s: Float3, ar: int, ma: int, seed: int) -> tuple[Process, float]:
    """Return the VARMA(ar, ma) of highest likelihood for series s (unit, time, d) of mean 0, sd 1.

    The likelihood is exact: it skips what is NaN. It is summed over whole units drawn at random
    until 20,000 steps are reached. Returns the process and its log-likelihood per step.
    """
    order = stream(seed, "units").permutation(len(s))
    steps = np.cumsum((~np.isnan(s)).any(-1).sum(1)[order])
    some = s[np.sort(order[: max(int((steps <= ROWS).sum()), 1)])]
    d = s.shape[2]
    count = max(int((~np.isnan(some)).any(-1).sum()), 1)
    progress = bar(label="likelihood, evaluations")

    def loss(theta: Float1) -> float:
        progress.update()
        process = _unpack(theta, ar, ma, d)
        if not process.radius < STATIONARY:
            return 1e6 * (1.0 + process.radius)
        value = -float(log_likelihood(process, some).sum()) / count
        return value if np.isfinite(value) else 1e6

    first, noise = _yule_walker(some, ar)
    found = []
    for level in STARTS[: 2 if ma else 1]:
        moving = np.zeros((ma, d, d))
        if ma:
            moving[0] = level * np.eye(d)
        begin = _pack(Process(first, moving, noise))
        found.append(optimize.minimize(loss, begin, method="L-BFGS-B", options={"maxiter": 200}))
    progress.close()
    best = min(found, key=lambda result: float(result.fun))
    if not best.fun < 1e5:
        raise ConvergenceError(
            f"state_space: no stationary VARMA({ar}, {ma}) fits S (best loss {best.fun:.3g}); "
            "difference or detrend S, or lower ar and ma."
        )
    return _unpack(best.x, ar, ma, d), -float(best.fun)


def _pack(process: Process) -> Float1:
    root = np.linalg.cholesky(process.noise)
    d = len(root)
    lower = root[np.tril_indices(d, -1)]
    return np.concatenate([process.ar.ravel(), process.ma.ravel(), np.log(np.diag(root)), lower])


def _unpack(theta: Float1, ar: int, ma: int, d: int) -> Process:
    cut = np.cumsum([ar * d * d, ma * d * d, d])
    one, two, diagonal, lower = np.split(theta, cut)
    root = np.diag(np.exp(np.clip(diagonal, -15.0, 5.0)))
    root[np.tril_indices(d, -1)] = lower
    return Process(one.reshape(ar, d, d), two.reshape(ma, d, d), root @ root.T)


def _yule_walker(s: Float3, ar: int) -> tuple[Float3, Float2]:
    """Solve for A_1, ..., A_p and Q from autocovariances over the pairs that are both seen."""
    d = s.shape[2]
    gamma = [_autocovariance(s, lag) for lag in range(ar + 1)]  # E[S_t S_{t-lag}']
    if ar == 0:
        return np.zeros((0, d, d)), _definite(gamma[0])
    block = np.block([[gamma[j - i] if j >= i else gamma[i - j].T for j in range(ar)]
                      for i in range(ar)])  # fmt: skip
    right = np.concatenate(gamma[1:], axis=1)
    # shrunk towards white noise until stationary: with many gaps the pairs need not agree
    for ridge in (1e-6, 0.05, 0.3, 1.0, 5.0):
        flat = right @ np.linalg.inv(_definite(block) + ridge * np.eye(ar * d))
        process = Process(
            np.stack(np.split(flat, ar, axis=1)), np.zeros((0, d, d)),
            _definite(gamma[0] - flat @ right.T),
        )  # fmt: skip
        if process.radius < 0.98:
            break
    return process.ar, process.noise


def _autocovariance(s: Float3, lag: int) -> Float2:
    now, then = s[:, lag:], s[:, : s.shape[1] - lag]
    both = np.einsum("uti,utj->ij", np.isfinite(now) * 1.0, np.isfinite(then) * 1.0)
    total = np.einsum("uti,utj->ij", np.nan_to_num(now), np.nan_to_num(then))
    out: Float2 = total / np.maximum(both, 1.0)
    return out


def _definite(matrix: Float2) -> Float2:
    """Nearest covariance with eigenvalues of at least 1e-4 of the largest."""
    value, vector = np.linalg.eigh((matrix + matrix.T) / 2.0)
    value = np.maximum(value, 1e-4 * max(float(value.max()), 1e-8))
    out: Float2 = (vector * value) @ vector.T
    return out
