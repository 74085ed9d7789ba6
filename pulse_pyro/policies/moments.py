"""Mean and covariance of vectors with missing entries, round by round, and Gaussian imputation.

With m the mask (True = observed) and missing entries set to 0 first, over all vectors so far:
    n_j = sum m_j,  n_ij = sum m_i m_j,  xi = sum x,  Z = sum x x',  N = number of vectors.
One common observation rate, as published:
    p = max(1, sum_j n_j) / (d N),  nu_j = xi_j / (N p),
    Sigma_ij = Z_ij / (N p^2) - nu_i nu_j,  Sigma_jj = Z_jj / (N p) - nu_j^2.
One rate per coordinate:
    nu_j = xi_j / max(1, n_j),  Sigma_ij = Z_ij / n_ij - nu_i nu_j,  0 where n_ij = 0,
then the nearest positive semidefinite matrix (eigenvalues clipped at 0).
Both rest on entries missing completely at random; the first also on equal rates. A coordinate
that is never observed has mean and covariance 0: nothing is known of it, and nothing is invented.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from pulse_pyro._core.arrays import Bool, Float, Float3, Float4, Int
from pulse_pyro._core.errors import FeatureError, SettingError, nearest

Rates: TypeAlias = Literal["common", "each"]

CUT = 1e-12  # eigenvalues below this share of the largest are rounding, not information
LARGEST = 1e100  # squares of larger values overflow
CHUNK = 2**22  # matrix entries gathered at once during imputation: 32 MiB


class Moments(NamedTuple):
    """Sums over vectors with missing entries; leading axes as the caller's, e.g. (run, time).

    total : (...) N. seen : (..., d) n_j. pairs : (..., d, d) n_ij. first : (..., d) xi.
    second : (..., d, d) Z.
    """

    total: Float
    seen: Float
    pairs: Float
    first: Float
    second: Float


class MomentEstimate(NamedTuple):
    """mean (..., d), cov (..., d, d), and the observation rate (...) the radius divides by.

    rate : p for one common rate, else the least n_j / N among coordinates ever observed.
    total : (...) N.
    """

    mean: Float
    cov: Float
    rate: Float
    total: Float


def tally(x: Float, mask: Bool) -> Moments:
    """Return the sums over the second last axis: x, mask (..., vectors, d) -> leading axes (...).

    What x holds where the mask is False is never read, so it may be anything, NaN included.
    """
    x, mask = checked_vectors(x, mask, "tally")
    zero, one = np.where(mask, x, 0.0), mask.astype(np.float64)
    total = np.full(x.shape[:-2], float(x.shape[-2]))
    pairs, second = np.swapaxes(one, -1, -2) @ one, np.swapaxes(zero, -1, -2) @ zero
    return Moments(total, one.sum(-2), pairs, zero.sum(-2), second)


def running(
    x: Float4, mask: Bool, start: Moments | None = None, *, frozen: bool = False
) -> Moments:
    """Return the sums up to and including every round: leading axes (run, time).

    x, mask : (run, time, vectors, d), as in :func:`tally`.
    start : sums of vectors seen before round 0, leading axis (run,), or (1,) for all runs alike.
    frozen : leave it at these; the vectors of x are then not counted.
    """
    sums = [part.cumsum(1) * (not frozen) for part in tally(x, mask)]
    if frozen and start is None:
        raise SettingError("running: there is nothing to freeze; pass start, e.g. of an archive.")
    if start is None:
        return Moments._make(sums)
    for name, got, own in zip(Moments._fields, start, sums, strict=True):
        if got.shape not in {(lead, *own.shape[2:]) for lead in (1, len(own))}:
            raise SettingError(
                f"running: start.{name} must be ({len(own)} runs or 1, *{own.shape[2:]}), but its "
                f"shape is {got.shape}."
            )
    return Moments._make(own + got[:, None] for own, got in zip(sums, start, strict=True))


def estimate(moments: Moments, rates: Rates = "each") -> MomentEstimate:
    """Return the estimates of the module's head, for all leading axes at once.

    rates : "each" coordinate has its own (projected, and the default), or "common" as published
        (not projected: it may be indefinite, and is wrong where rates differ).
    """
    if rates == "each":
        return _each(moments)
    if rates == "common":
        return _common(moments)
    raise SettingError(
        f"estimate: there is no rates={rates!r}{nearest(str(rates), ('each', 'common'))}"
    )


def _common(moments: Moments) -> MomentEstimate:
    total, seen, _, first, second = moments
    rate = np.maximum(seen.sum(-1), 1.0) / (seen.shape[-1] * total)
    observed = (total * rate)[..., None]
    mean = first / observed
    divisor = np.where(
        np.eye(seen.shape[-1], dtype=np.bool_),
        observed[..., None],
        (total * rate**2)[..., None, None],
    )
    return MomentEstimate(mean, second / divisor - _outer(mean), rate, total)


def _each(moments: Moments) -> MomentEstimate:
    total, seen, pairs, first, second = moments
    mean = first / np.maximum(seen, 1.0)
    # a pair never seen together has no cross moment to subtract the means from
    raw = np.where(pairs > 0, second / np.maximum(pairs, 1.0) - _outer(mean), 0.0)
    least = np.where(seen > 0, seen, np.inf).min(-1)
    rate = np.where(np.isinf(least), 1.0, least) / total
    return MomentEstimate(mean, nearest_psd(raw), rate, total)


def nearest_psd(cov: Float) -> Float:
    """Return symmetric (..., d, d) with negative eigenvalues set to 0; others are left alone."""
    values, vectors = np.linalg.eigh(cov)
    clipped = (vectors * np.maximum(values, 0.0)[..., None, :]) @ np.swapaxes(vectors, -1, -2)
    dead = ~cov.any(-1)  # rounding must not leak into coordinates never observed
    clipped[dead] = 0.0
    np.swapaxes(clipped, -1, -2)[dead] = 0.0
    return np.where((values[..., 0] < 0)[..., None, None], clipped, cov)


def impute(x: Float, mask: Bool, mean: Float, cov: Float) -> Float:
    """Replace missing entries by their conditional mean given the observed ones of the vector.

        xbar_Mis = nu_Mis + Sigma_{Mis,Obs} Sigma_{Obs,Obs}^+ (x_Obs - nu_Obs)

    Parameters
    ----------
    x, mask : (..., vectors, d), True = observed; masked values are never read.
    mean, cov : (..., d) and (..., d, d), one estimate for all vectors of a leading index.

    Returns x with its gaps filled, same shape. It is the conditional mean only if the vectors are
    Gaussian with these moments, else the best linear guess they give.
    """
    x, mask = checked_vectors(x, mask, "impute")
    if mean.shape != (*x.shape[:-2], x.shape[-1]) or cov.shape != (*mean.shape, x.shape[-1]):
        raise SettingError(
            f"impute: vectors {x.shape} need a mean (..., d) and a cov (..., d, d) for each "
            f"leading index, but got {mean.shape} and {cov.shape}."
        )
    gain, which = _gains(mask, cov)
    centred = np.where(mask, x - mean[..., None, :], 0.0).reshape(-1, x.shape[-1])
    guess = np.empty_like(centred)
    block = max(CHUNK // x.shape[-1] ** 2, 1)
    for start in range(0, len(guess), block):
        rows = slice(start, start + block)
        guess[rows] = (gain[which[rows]] @ centred[rows, :, None])[..., 0]
    return np.where(mask, x, guess.reshape(x.shape) + mean[..., None, :])


def leftover_root(mask: Bool, cov: Float) -> Float:
    """Return the symmetric root of the covariance of what :func:`impute` fills in.

    R R = Sigma_{Mis,Mis} - Sigma_{Mis,Obs} Sigma_{Obs,Obs}^+ Sigma_{Obs,Mis}, and 0 for observed
    entries. mask : (..., vectors, d). cov : (..., d, d). Returns (..., vectors, d, d).
    """
    gain, which = _gains(mask, cov)
    left = cov[..., None, :, :] - gain[which].reshape(*mask.shape, -1) @ cov[..., None, :, :]
    hidden = ~mask[..., None] & ~mask[..., None, :]
    values, vectors = np.linalg.eigh(np.where(hidden, left, 0.0))
    root = (vectors * np.sqrt(np.maximum(values, 0.0))[..., None, :]) @ np.swapaxes(vectors, -1, -2)
    return np.where(hidden, root, 0.0)


def _gains(mask: Bool, cov: Float) -> tuple[Float3, Int]:
    """Sigma_{.,Obs} Sigma_{Obs,Obs}^+ of each distinct (estimate, mask), and which a vector has."""
    dim = mask.shape[-1]
    patterns, pattern = np.unique(mask.reshape(-1, dim), axis=0, return_inverse=True)
    owner = np.repeat(np.arange(cov[..., 0, 0].size), mask.shape[-2])
    keys, which = np.unique(owner * len(patterns) + pattern.ravel(), return_inverse=True)
    full, seen = cov.reshape(-1, dim, dim)[keys // len(patterns)], patterns[keys % len(patterns)]
    # rows and columns of 0 stay 0 under a pseudo-inverse: one shape serves every pattern
    block = np.where(seen[:, :, None] & seen[:, None, :], full, 0.0)
    gain = full @ np.linalg.pinv(block, rcond=CUT, hermitian=True)
    return gain, which.ravel()


def checked_vectors(x: Float, mask: Bool, where: str) -> tuple[Float, Bool]:
    """Return x and mask as arrays of one shape (..., vectors, d), the observed part finite."""
    x, mask = np.asarray(x, dtype=np.float64), np.asarray(mask)
    if mask.shape != x.shape or mask.dtype != np.bool_ or x.ndim < 2 or 0 in x.shape:
        raise FeatureError(
            f"{where}: x must be (..., vectors, d), not empty, and mask the same with True = "
            f"observed, but got {x.shape} and {mask.dtype} {mask.shape}."
        )
    bad = mask & ~(np.abs(x) <= LARGEST)
    if bad.any():
        at = tuple(int(i) for i in np.argwhere(bad)[0])
        raise FeatureError(
            f"{where}: x{list(at)} is {x[at]} but is marked observed; observed values must be "
            f"finite and below {LARGEST:g} in size: mark it missing, or rescale."
        )
    return x, mask


def _outer(mean: Float) -> Float:
    return mean[..., :, None] * mean[..., None, :]
