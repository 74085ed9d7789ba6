"""What a law says about held-out rows, and what every check of ``diagnose`` is handed."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from pulse_pyro._core.arrays import Bool, Float1, Float2, Float3, Int
from pulse_pyro._core.errors import DataError, ModelError
from pulse_pyro._core.seeds import stream
from pulse_pyro.base import Conditional, FittedLaw
from pulse_pyro.data.history import History
from pulse_pyro.diagnostics.by_unit import Place, estimated
from pulse_pyro.diagnostics.levels import levels_of
from pulse_pyro.diagnostics.result import ScoreComparison
from pulse_pyro.laws.memory import Memory
from pulse_pyro.laws.remembering import inputs_seen, memory_of
from pulse_pyro.laws.step import FittedStepLaw
from pulse_pyro.laws.units import UnitLaw

# What a law says about held-out rows: expectations, draws, and where W fell among them.


NUMBERS = 50_000_000  # predictive draws held at a time: 400 MB


class Predictions(NamedTuple):
    """Rows that were judged, and what the law says about them.

    row : (n,) their numbers in the archive, rising. w, mean, pit : (n, w_dim). draws : (size, n,
    w_dim); draw m of all rows shares one posterior draw. place : unit and step of the rows. cluster
    : (n,) independent pieces they belong to, the units unless others were declared.
    """

    row: Int
    w: Float2
    mean: Float2
    pit: Float2
    draws: Float3
    place: Place
    cluster: Int

    @property
    def unit(self) -> Int:
        """(n,) units of the rows."""
        return self.place.unit


def predictions(
    fitted: FittedLaw, held_out: History, where: Bool, rng: np.random.Generator, size: int
) -> Predictions:
    """Predict the rows of ``held_out`` where (rows,) is True and W is known.

    PIT: u = (draws below w + V (draws equal to w + 1)) / (size + 1), V uniform. If w and the draws
    come from one law, u is exactly uniform, whatever the size; for W of few values too, where it is
    the randomised PIT, between F(w-) and F(w), with F the law's draws. A law of values that come
    again whose F is closed form is asked for F itself.
    """
    usable = where & np.isfinite(held_out.w).all(-1)
    # whole units, as many as memory allows
    rows = np.cumsum(np.bincount(held_out.unit_of[usable], minlength=len(held_out.units)))
    most = max(int((rows <= NUMBERS // (size * len(held_out.w_names))).sum()), 2)
    row = np.flatnonzero(usable & (held_out.unit_of < most))
    law = fitted(held_out, row)
    mean, draws = law.mean(), law.draws(size, rng=rng)
    pit = _pit(law, draws, held_out.w[row], rng)
    answered = np.isfinite(mean).all(-1)  # rows the law refuses after all are not judged
    if not answered.all():
        row, mean, pit, draws = row[answered], mean[answered], pit[answered], draws[:, answered]
    w = held_out.w[row]
    place = Place(held_out.unit_of[row], held_out.step[row])
    return Predictions(
        row=row,
        w=w,
        mean=mean,
        pit=pit,
        draws=draws,
        place=place,
        cluster=held_out.cluster[row],
    )


def _pit(law: Conditional, draws: Float3, w: Float2, rng: np.random.Generator) -> Float2:
    """Return the PIT of w (n, w_dim): among draws, or from F itself if it is closed and jumps."""
    jumps = (draws[:1] == draws[1:2]).any((0, 1))  # (w_dim,)
    if not (jumps.any() and getattr(law, "closed_cdf", False)):
        return _ranks(draws, w, rng)
    low, high = law.cdf(np.nextafter(w, -np.inf)), law.cdf(w)
    out: Float2 = low + rng.random(w.shape) * (high - low)
    return np.where(jumps, out, _ranks(draws, w, rng))


def _ranks(draws: Float3, w: Float2, rng: np.random.Generator) -> Float2:
    below, equal = (draws < w).sum(0), (draws == w).sum(0)
    out: Float2 = (below + rng.random(w.shape) * (equal + 1.0)) / (len(draws) + 1.0)
    return out


# What every check is handed.


GAPS = 100  # rows that lack an input, at least, to judge them
TOLD_ROWS = 3_000  # of which a law that learns from W is told, row by row


@dataclass(frozen=True, eq=False)
class HeldOut:
    """A law and what held-out units say about it: what every check of ``diagnose`` is handed.

    Attributes
    ----------
    fitted, history : the law, and units it was not fitted on.
    archive : units to fit baselines on, or None.
    seed, size : of predictive draws.
    x : (rows, p) inputs of the law at every row.
    judged : recorded W, expectation, PIT and draws at the complete rows.
    comparisons : what the law gains over climatology and a line, in every score.
    """

    fitted: FittedLaw
    history: History
    archive: History | None
    seed: int
    size: int
    x: Float2
    judged: Predictions
    comparisons: tuple[ScoreComparison, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns of W."""
        return self.history.w_names

    @property
    def learns(self) -> bool:
        """Whether the law learns from earlier W of a unit: of its latents, or of its state."""
        return isinstance(self.fitted, UnitLaw | FittedStepLaw) and self.memory is None

    @property
    def x_names(self) -> tuple[str, ...]:
        """Names of the law's p inputs."""
        return tuple(
            f"{s}.{part}" for part in self.fitted.summary.names for s in self.history.s_names
        )

    @cached_property
    def levels(self) -> tuple[Float1 | None, ...]:
        """For each W the values it takes, rising, where it is discrete; else None."""
        columns = self.history.schema.w_declared
        return tuple(
            levels_of(w, column) for w, column in zip(self.judged.w.T, columns, strict=True)
        )

    @cached_property
    def memory_extra(self) -> float:
        """What t^2 of what a filter leaves is divided by, its memory being estimated; else 1."""
        if self.memory is None:
            return 1.0
        units = len(np.unique(self.judged.unit))
        return 1.0 + max(units / self.memory.units, len(self.judged.row) / self.memory.rows)

    @cached_property
    def extra(self) -> float:
        """What the variance of a mean over units grows by, the law being estimated."""
        return estimated(self.fitted, self.judged.unit)

    @cached_property
    def lags_seen(self) -> Bool:
        """Judged rows (n,) whose lags were seen: elsewhere earlier W do tell more, always."""
        return np.asarray(inputs_seen(self.fitted, self.history)[self.judged.row])

    @property
    def memory(self) -> Memory | None:
        """How what the law leaves of W persists, where it was given a memory."""
        return memory_of(self.fitted)

    @cached_property
    def left(self) -> Float2:
        """(n, w_dim) what is left of W at judged rows, NaN where lags were not seen.

        W less the law's mean; of a law with memory, W less what the filter predicts from the mean
        and the unit's earlier W; of one with latents of units or a state, W less what it expects
        once it is told the unit's earlier W, of about 3,000 rows of whole units, else NaN.
        """
        judged = self.judged
        residual: Float2 = np.where(self.lags_seen[:, None], judged.w - judged.mean, np.nan)
        if self.learns:
            out = np.full_like(residual, np.nan)
            rows, units = np.bincount(judged.unit), np.unique(judged.unit)
            order = stream(self.seed, "told").permutation(units)
            for unit in order[: int((np.cumsum(rows[order]) <= TOLD_ROWS).sum()) or 1]:
                mine = np.flatnonzero(judged.unit == unit)
                out[mine] = judged.w[mine] - self._expected_when_told(unit, judged.row[mine])
            return np.where(np.isfinite(residual), out, np.nan)
        if self.memory is None:
            return residual
        return self.memory.innovations(residual, judged.unit, judged.place.step)

    def _expected_when_told(self, unit: int, rows: Int) -> Float2:
        """Return E[W | S_1:t, W_1:t-1] of one unit at some rows of the archive, (len(rows), w_dim).

        NaN from a W on that the law cannot have.
        """
        history = self.history
        at = np.arange(history.offsets[unit], history.offsets[unit + 1])
        absent = np.diff(history.step[at], prepend=history.step[at[0]] - 1) - 1
        gaps = np.repeat(np.arange(len(at)), np.minimum(absent, self.fitted.summary.memory))
        s, w = (np.insert(each[at], gaps, np.nan, axis=0) for each in (history.s, history.w))
        place = np.full(len(s), -1)  # of a row among those asked for
        place[np.isin(np.insert(at, gaps, -1), rows)] = np.arange(len(rows))
        seen: Bool = np.asarray(np.isfinite(w).all(-1))
        follower = self.fitted.follow(history.units[unit])
        out = np.full((len(rows), len(history.w_names)), np.nan)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that few particles are left is no news to a check
            for now, told, known, k in zip(s, w, seen, place, strict=True):
                try:
                    before = follower.push(now, told if known else None)  # the law without this W
                except (DataError, ModelError):
                    break
                if k >= 0:
                    out[k] = before.mean()[0]
        return out

    @cached_property
    def gaps(self) -> tuple[Predictions, float] | None:
        """Predictions and ``extra`` of rows that lack an input; None where they are few."""
        history = self.history
        short: Bool = np.asarray(~np.isfinite(self.x).all(-1))
        recorded = short & np.isfinite(history.w).all(-1)
        if recorded.sum() < GAPS:
            return None
        gaps = predictions(self.fitted, history, short, stream(self.seed, "gaps"), self.size)
        if len(gaps.row) < GAPS:  # the law refused most of them
            return None
        return gaps, estimated(self.fitted, gaps.unit)
