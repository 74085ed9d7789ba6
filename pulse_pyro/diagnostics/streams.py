"""Units and online streams as single observations: what the monitor of contexts compares."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import stats

from pulse_pyro.arrays import Bool, Float, Float1, Float2, Float3

RIDGE = 1e-3  # share of each variance added to it: lags of a smooth series nearly repeat


class Shift(NamedTuple):
    """How far streams are from units, and p of no shift."""

    size: float
    p: float


def shift(units: Float1, streams: Float1, row_sd: float) -> Shift:
    """Return the t test of streams against units: two-sided with a row_sd, upwards without."""
    units, n, b = units[np.isfinite(units)], np.isfinite(units).sum(), len(streams)
    apart = float(streams.mean() - units.mean()) if n else np.nan
    error = float(units.std(ddof=1) * np.sqrt(1 / n + 1 / b)) if n > 1 else np.nan
    if row_sd > 0:
        size, t, sides = abs(apart) / row_sd, abs(apart), 2.0
    else:
        size, t, sides = apart / 2.0, apart, 1.0
    if np.isnan(error):
        return Shift(size, 1.0)
    if not error > 1e-12:  # a constant input
        return Shift(np.inf, 0.0) if abs(apart) > 1e-9 else Shift(0.0, 1.0)
    return Shift(size, float(sides * stats.t.sf(t / error, n - 1)))


def whitening(gram: Float2, count: int) -> Float2:
    """Return A with A A' the inverse of the covariance, a ridge added; constants are left out."""
    cov = gram / max(count, 1)
    sd = np.sqrt(np.diag(cov))
    keep = sd > 1e-9
    inverse = np.where(keep, 1.0 / np.where(keep, sd, 1.0), 0.0)
    value, vector = np.linalg.eigh(cov * np.outer(inverse, inverse) + RIDGE * np.eye(len(cov)))
    out: Float2 = inverse[:, None] * vector / np.sqrt(value)
    return out


def first_rows(values: Float, length: int) -> Float:
    """Return (unit, time, ...) with all but the first ``length`` complete rows of a unit NaN."""
    here = np.isfinite(values if values.ndim == 2 else values[..., 0])
    keep = here & (np.cumsum(here, axis=1) <= length)
    return np.where(keep if values.ndim == 2 else keep[..., None], values, np.nan)


def level(values: Float2) -> Float1:
    """Mean over seen rows, NaN for a unit without."""
    here = np.isfinite(values)
    count = here.sum(1)
    total = np.where(here, values, 0.0).sum(1)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def log_mean(values: Float2) -> Float1:
    """Log of the mean over seen rows."""
    return np.asarray(np.log(level(values) + 1e-12))


def share_of(outside: Bool, x: Float3) -> float:
    """Share of complete rows of x (stream, time, p) that are outside (stream, time)."""
    here = np.isfinite(x[..., 0])
    return float(outside[here].mean())
