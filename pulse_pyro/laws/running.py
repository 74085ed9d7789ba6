"""Running moments of complete rows, and the linear law they make."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pulse_pyro._pyro.inference import Exact
from pulse_pyro.arrays import Float2
from pulse_pyro.history import History
from pulse_pyro.laws.data import FitData
from pulse_pyro.laws.fitted import FittedLaw
from pulse_pyro.laws.law import Law
from pulse_pyro.laws.record import FitRecord


class RunningLinear:
    """A linear law under Exact whose rows come one batch at a time, none of them kept.

    Equal to a fit on all rows up to rounding; a refit costs O(p^3) whatever their number.
    """

    def __init__(self, law: Law, how: Exact, history: History) -> None:
        data, self._law = law.prepare(history)
        self._how, self._scaler = how, data.scaler
        rows = data.rows
        self._rows = replace(
            rows, x=rows.x[:0], w=rows.w[:0], unit=rows.unit[:0], time=rows.time[:0]
        )
        self._n, self._mean, self._moments = data.n, data.mean, data.moments
        self._dropped = rows.dropped

    def add(self, x: Float2, w: Float2) -> None:
        """Add the complete ones of rows x (n, p), w (n, w_dim)."""
        both: Float2 = np.concatenate([x, w], axis=1)
        known = np.isfinite(both).all(1)
        self._dropped += int((~known).sum())
        both = both[known]
        if not len(both):
            return
        centre, count = both.mean(0), len(both)
        away, total = centre - self._mean, self._n + count
        spread = both - centre
        between = np.outer(away, away) * (self._n * count / total)
        self._moments = self._moments + spread.T @ spread + between
        self._mean, self._n = self._mean + away * (count / total), total

    def fit(
        self, before: FittedLaw, contexts: Float2, units: tuple[str, ...], seed: int
    ) -> FittedLaw:
        """Return the law of the rows so far; columns and card are those of the law before."""
        rows = replace(self._rows, dropped=self._dropped)
        raw = FitData(rows, self._mean, self._moments, self._scaler, self._n)
        data = raw.standardised(self._law.kinds(before.s_names))
        _, fit = self._law.fit_data(data, self._how, seed)
        record = FitRecord(repr(self._how), seed, data.n, self._dropped, fit.quality)
        return replace(
            before, law=self._law, draws=fit.draws, scaler=data.scaler, inputs=data.inputs,
            contexts=contexts, record=record, fit_units=units,
        )  # fmt: skip
