"""The log score of a fitted law at values of W."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import logsumexp

from pulse_pyro.arrays import Float2, Float3, Int
from pulse_pyro.errors import DataError
from pulse_pyro.laws.unseen import CHUNK
from pulse_pyro.progress import bar

if TYPE_CHECKING:
    from pulse_pyro.laws.fitted import FittedLaw


def check_series(fitted: FittedLaw, s: Float3) -> Float3:
    """Return s as (batch, time, s_dim) numbers, or say what came instead."""
    try:
        s = np.asarray(s, dtype=np.float64)
    except (TypeError, ValueError) as cause:
        raise DataError(
            f"{fitted.law.label}: s must be an array (batch, time, {len(fitted.s_names)}), but "
            f"{type(s).__name__} came; pass history.s."
        ) from cause
    if s.ndim != 3 or s.shape[-1] != len(fitted.s_names):
        raise DataError(
            f"{fitted.law.label}: s must be (batch, time, {len(fitted.s_names)}) with columns "
            f"{fitted.s_names}, but its shape is {s.shape}."
        )
    return s


def check_shape(fitted: FittedLaw, s: Float3, w: Float3) -> None:
    """Refuse w that does not stand beside s row by row."""
    wanted = (*s.shape[:2], len(fitted.w_names))
    if np.shape(w) != wanted:
        raise DataError(
            f"{fitted.law.label}: w must be {wanted}, one row for each of s, but its shape is "
            f"{np.shape(w)}."
        )


def log_score(fitted: FittedLaw, s: Float3, w: Float3, draws: int) -> Float2:
    """Return log of the average density over draws, (batch, time); see FittedLaw.log_density."""
    summary = fitted.summary(s)
    x, flat = summary.reshape(-1, summary.shape[-1]), w.reshape(-1, w.shape[-1])
    hole = np.isnan(flat.sum(-1))
    if fitted.law.unseen != "learned":
        hole |= np.isnan(x.sum(-1))
    index = np.unique(np.linspace(0, fitted.kernel.count - 1, draws).astype(np.int64))
    out = np.full(len(x), np.nan)
    rows = np.flatnonzero(~hole)
    for at, each in _by_rows(fitted, x[rows], flat[rows], index):
        out[rows[at]] = logsumexp(each, axis=0) - np.log(len(index))
    return out.reshape(s.shape[:2])


def density_draws(fitted: FittedLaw, x: Float2, w: Float2, index: Int) -> Float2:
    """Return log p(w | x, draw), (len(index), n), at rows x (n, p), w (n, w_dim) in raw units."""
    out = np.empty((len(index), len(x)))
    for at, each in _by_rows(fitted, x, w, index):
        out[:, at] = each
    return out


def _by_rows(fitted: FittedLaw, x: Float2, w: Float2, index: Int) -> Iterator[tuple[slice, Float2]]:
    kernel, scaler = fitted.kernel, fitted.scaler
    units = float(np.log(scaler.w_scale).sum())
    block = max(CHUNK // (len(index) * (x.shape[1] + w.shape[1])), 1)
    for start in bar(range(0, len(x), block), label="log densities"):
        at = slice(start, start + block)
        yield at, kernel.log_density(scaler.x_in(x[at]), scaler.w_in(w[at]), index) - units
