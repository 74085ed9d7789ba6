"""Units and online streams as single observations: what the monitor of contexts compares."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import stats

from pulse_pyro.arrays import Bool, Float, Float1, Float2, Float3, Int

RIDGE = 1e-3  # share of each variance added to it: lags of a smooth series nearly repeat


class Shift(NamedTuple):
    """How far streams are from units, and p of no shift."""

    size: float
    p: float


def shift(units: Float2, streams: Float1, row_sd: float) -> Shift:
    """Return the t test of streams against units: two-sided with a row_sd, upwards without.

    streams : (B,). units : (n, B), units cut to the length of each stream, NaN where too short.
    With m_b, sd_b over the n_b units of column b, error^2 = (mean_b sd_b / sqrt n_b)^2 + mean_b
    sd_b^2 / B: the means m_b, of the same units, count as one. Student's t, least n_b - 1.
    """
    count = np.isfinite(units).sum(0)
    least = int(count.min())
    mean = np.where(np.isfinite(units), units, 0.0).sum(0) / np.maximum(count, 1)
    apart = float((streams - mean).mean()) if least else np.nan
    if row_sd > 0:
        size, t, sides = abs(apart) / row_sd, abs(apart), 2.0
    else:
        size, t, sides = apart / 2.0, apart, 1.0
    if least < 2:
        return Shift(size, 1.0)
    square = np.where(np.isfinite(units), (units - mean) ** 2, 0.0).sum(0) / (count - 1)
    error = float(np.sqrt(np.sqrt(square / count).mean() ** 2 + square.mean() / len(streams)))
    if not error > 1e-12:  # a constant input
        return Shift(np.inf, 0.0) if abs(apart) > 1e-9 else Shift(0.0, 1.0)
    return Shift(size, float(sides * stats.t.sf(t / error, least - 1)))


def whitening(gram: Float2, count: int) -> Float2:
    """Return A with A A' the inverse of the covariance, a ridge added; constants are left out."""
    cov = gram / max(count, 1)
    sd = np.sqrt(np.diag(cov))
    keep = sd > 1e-9
    inverse = np.where(keep, 1.0 / np.where(keep, sd, 1.0), 0.0)
    value, vector = np.linalg.eigh(cov * np.outer(inverse, inverse) + RIDGE * np.eye(len(cov)))
    out: Float2 = inverse[:, None] * vector / np.sqrt(value)
    return out


class Pieces(NamedTuple):
    """Streams cut to lengths that units have: x (piece, length, p), NaN after a piece's end.

    owner : (piece,), the stream of each. lengths : (stream,), rows of each of its pieces.
    """

    x: Float3
    owner: Int
    lengths: Int

    def mean(self, values: Float1) -> Float1:
        """Average a figure of pieces (piece,) over those of each stream, (stream,)."""
        return np.asarray(np.bincount(self.owner, values) / np.bincount(self.owner))


def pieces(x: Float3, longest: int) -> Pieces:
    """Cut the complete rows of streams x (stream, time, p) into pieces of ``longest`` rows at most.

    Pieces of a stream are equally long; fewer rows than it has pieces are left out at its end.
    """
    parts, owner, lengths = [], [], []
    for b, rows in enumerate(row[np.isfinite(row[:, 0])] for row in x):
        count = -(-len(rows) // longest)
        lengths.append(len(rows) // count)
        parts += list(rows[: count * lengths[-1]].reshape(count, lengths[-1], -1))
        owner += [b] * count
    out = np.full((len(parts), max(lengths), x.shape[-1]), np.nan)
    for k, part in enumerate(parts):
        out[k, : len(part)] = part
    return Pieces(out, np.array(owner), np.array(lengths))


def usual_length(here: Bool, fewest: int) -> int:
    """Return how many rows at least half of the units, and ``fewest`` if there are, have."""
    rows = np.sort(here.sum(1))[::-1]
    rows = rows[rows > 0]
    return int(rows[min(len(rows), max(fewest, (len(rows) + 1) // 2)) - 1])


def level(values: Float2) -> Float1:
    """Mean over seen rows, NaN for a unit without."""
    here = np.isfinite(values)
    count = here.sum(1)
    total = np.where(here, values, 0.0).sum(1)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def levels_at(values: Float2, lengths: Int) -> Float2:
    """Mean over the first ``lengths`` (stream,) seen rows, (unit, stream); NaN where too short."""
    here = np.isfinite(values)
    first = np.take_along_axis(values, np.argsort(~here, axis=1, kind="stable"), 1)
    total = np.cumsum(np.nan_to_num(first), axis=1)[:, lengths - 1]
    return np.where(here.sum(1)[:, None] >= lengths, total / lengths, np.nan)


def log_of(mean: Float) -> Float:
    """Log of a mean of squares, which may be 0. It rises with the rows averaged (Jensen)."""
    return np.asarray(np.log(mean + 1e-12))


def share_of(outside: Bool, x: Float3) -> float:
    """Share of complete rows of x (stream, time, p) that are outside (stream, time)."""
    here = np.isfinite(x[..., 0])
    return float(outside[here].mean())
