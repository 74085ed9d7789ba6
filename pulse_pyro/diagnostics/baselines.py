"""What a law has to beat: climatology, and a straight line on its own inputs.

Climatology is one normal law for every row, with the mean and sd of W in the fitted archive, as a
built-in law records them; for a custom law they come from the units the line is fitted on. The
linear baseline is ``linear_lags`` on the law's own summary, fitted on ``archive`` if that is handed
over (then both have seen the same units, and like is compared with like); otherwise held-out units
are scored by a line fitted on the other held-out units, in five folds by unit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from scipy import special

from pulse_pyro.arrays import Bool, Float, Float1, Float2, Float3, Int
from pulse_pyro.errors import DataError
from pulse_pyro.history import History
from pulse_pyro.laws.fitted import FittedLaw
from pulse_pyro.laws.linear import linear_lags
from pulse_pyro.seeds import stream

FOLDS = 5
LOG_2PI = float(np.log(2 * np.pi))


class RowScores(NamedTuple):
    """Scores of one law at rows: log (n,), the larger the better; crps (n, w_dim), the smaller."""

    log: Float1
    crps: Float2


def draws_crps(draws: Float3, w: Float2) -> Float2:
    """Return the unbiased CRPS, E|X - w| - E|X - X'| / 2, (n, w_dim), of draws (size, n, w_dim)."""
    size = len(draws)
    rank = 2.0 * np.arange(1, size + 1) - size - 1
    spread = np.einsum("m,mnj->nj", rank, np.sort(draws, axis=0)) / (size * (size - 1))
    out: Float2 = np.abs(draws - w).mean(0) - spread
    return out


def normal_scores(w: Float2, mean: Float1, sd: Float1) -> RowScores:
    """Return the scores of independent normal laws at w (n, w_dim)."""
    z = (w - mean) / sd
    density = np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)
    crps: Float2 = sd * (z * (2 * special.ndtr(z) - 1) + 2 * density - 1 / np.sqrt(np.pi))
    log = -0.5 * (z**2 + LOG_2PI) - np.log(sd)
    return RowScores(log.sum(-1), crps)


def baselines(
    fitted: FittedLaw, held_out: History, used: Bool, archive: History | None, seed: int, size: int
) -> dict[str, RowScores]:
    """Return the scores of both baselines at the used rows; empty if none can be fitted.

    used : (unit, time), the first units of held_out. archive : see above. seed, size : draws.
    """
    count, w_dim = int(used.sum()), len(held_out.w_names)
    row: Int = np.where(used, np.cumsum(used.ravel()).reshape(used.shape) - 1, -1)
    flat, line = (RowScores(np.full(count, np.nan), np.full((count, w_dim), np.nan))
                  for _ in range(2))  # fmt: skip
    if archive is None and used.any(1).sum() < 2:
        return {}
    for train, judged in _folds(held_out, used, archive, seed):
        part, here = held_out.take(judged), used[judged]
        at, w = row[judged][here], part.w[here]
        try:
            fit = linear_lags(fitted.summary).fit(train, seed=seed)
        except DataError:  # a fold without a complete row
            return {}
        marginal = normal_scores(w, *_marginal(fitted, train))
        _, draws = fit.predict_where(part.s, here, size, rng=stream(seed, "baseline", at[0]))
        flat.log[at], flat.crps[at] = marginal
        line.log[at], line.crps[at] = fit.log_density(part.s, part.w)[here], draws_crps(draws, w)
    return {"climatology": flat, "linear": line}


def _folds(
    held_out: History, used: Bool, archive: History | None, seed: int
) -> Iterator[tuple[History, Int]]:
    """Yield an archive to fit baselines on, and the units to judge."""
    units = np.flatnonzero(used.any(1))
    if archive is not None:
        yield archive, units
        return
    order = stream(seed, "folds").permutation(units)
    for judged in np.array_split(order, min(FOLDS, len(units))):
        yield held_out.take(np.setdiff1d(units, judged)), np.sort(judged)


def _marginal(fitted: FittedLaw, train: History) -> tuple[Float, Float]:
    """Return mean and sd of W, (w_dim,), in the fitted archive, or else in ``train``."""
    if fitted.law.family is not None:
        return fitted.scaler.w_mean, fitted.scaler.w_scale
    w = train.w[train.seen]
    mean, sd = np.nanmean(w, axis=0), np.nanstd(w, axis=0)
    return mean, np.where(sd > 1e-10 * (np.abs(mean) + 1e-300), sd, 1.0)
