"""What a law says about held-out rows: expectations, draws, and where W fell among them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pulse_pyro.arrays import Bool, Float2, Float3
from pulse_pyro.history import History
from pulse_pyro.laws.fitted import FittedLaw

NUMBERS = 50_000_000  # predictive draws held at a time: 400 MB


class Predictions(NamedTuple):
    """Rows that were judged, and what the law says about them.

    w, mean, pit : (unit, time, w_dim), NaN where not judged. used : (unit, time).
    draws : (size, n, w_dim) at the n used rows; draw m of all rows shares one posterior draw.
    """

    w: Float3
    mean: Float3
    pit: Float3
    used: Bool
    draws: Float3


def predictions(
    fitted: FittedLaw, held_out: History, where: Bool, rng: np.random.Generator, size: int
) -> Predictions:
    """Predict rows of ``held_out`` where (unit, time) is True and W is known.

    PIT: u = (draws below w + V (draws equal to w + 1)) / (size + 1), V uniform. If w and the draws
    come from one law, u is exactly uniform, whatever the size, and for counts too.
    """
    usable = held_out.seen & where & np.isfinite(held_out.w).all(-1)
    # whole units, as many as memory allows
    rows = np.cumsum(usable.sum(1))
    most = max(int((rows <= NUMBERS // (size * len(held_out.w_names))).sum()), 2)
    used, w = usable[:most].copy(), held_out.w[:most]
    mean, draws = fitted.predict_where(held_out.s[:most], used, size, rng=rng)
    answered = np.isfinite(mean).all(-1)  # rows the law refuses after all are not judged
    if not answered.all():
        mean, draws = mean[answered], draws[:, answered]
        used[used] = answered
    pit = _ranks(draws, w[used], rng)
    return Predictions(
        np.where(used[..., None], w, np.nan), _grid(mean, used), _grid(pit, used), used, draws
    )


def _ranks(draws: Float3, w: Float2, rng: np.random.Generator) -> Float2:
    below, equal = (draws < w).sum(0), (draws == w).sum(0)
    out: Float2 = (below + rng.random(w.shape) * (equal + 1.0)) / (len(draws) + 1.0)
    return out


def _grid(rows: Float2, used: Bool) -> Float3:
    """Put rows (n, w_dim) back to (unit, time, w_dim)."""
    out = np.full((*used.shape, rows.shape[1]), np.nan)
    out[used] = rows
    return out
