"""The log score of a fitted law at values of W."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.special import logsumexp

from pulse_pyro.arrays import Float2, Float3
from pulse_pyro.errors import DataError
from pulse_pyro.laws.unseen import CHUNK

if TYPE_CHECKING:
    from pulse_pyro.laws.fitted import FittedLaw


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
    kernel, scaler = fitted.kernel, fitted.scaler
    index = np.unique(np.linspace(0, kernel.count - 1, draws).astype(np.int64))
    units = float(np.log(scaler.w_scale).sum()) + np.log(len(index))
    out = np.full(len(x), np.nan)
    rows = np.flatnonzero(~hole)
    block = max(CHUNK // (len(index) * (x.shape[1] + flat.shape[1])), 1)
    for start in range(0, len(rows), block):
        at = rows[start : start + block]
        each = kernel.log_density(scaler.x_in(x[at]), scaler.w_in(flat[at]), index)
        out[at] = logsumexp(each, axis=0) - units
    return out.reshape(s.shape[:2])
