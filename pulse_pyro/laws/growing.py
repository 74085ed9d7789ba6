"""An archive that grows while a policy runs: W revealed after the fact teaches the law too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

import numpy as np

from pulse_pyro._pyro.inference import Exact, Inference
from pulse_pyro.arrays import Float, Float1, Float2, whole
from pulse_pyro.errors import DataError, ModelError
from pulse_pyro.history import History
from pulse_pyro.laws.data import FitData
from pulse_pyro.laws.fitted import FitRecord, FittedLaw
from pulse_pyro.laws.law import Law
from pulse_pyro.laws.linear import LinearFamily
from pulse_pyro.seeds import torch_seed


class Refittable(Protocol):
    """A law that can be fitted."""

    def fit(self, history: History, inference: Inference | None = None, *, seed: int) -> FittedLaw:
        """Fit on an archive."""


class GrowingArchive:
    """The archive a law was fitted on, and what has been seen and revealed since.

    Parameters
    ----------
    history : the archive the law was fitted on.
    fitted : the law at the start.
    every : W revealed between refits.
    law : what is fitted anew, ``fitted.law`` by default; a state space law must be passed.
    inference : engine of the refits; the law's own by default.
    seed : of the refits.

    Linear laws under Exact are refitted from their running moments: O(p^3) whatever the archive's
    size, and equal to a fit on all rows up to rounding. Other laws are fitted on the whole archive
    again; a custom law starts where the last fit ended. Whether W is revealed must not depend on
    W itself, or the law learns a biased picture. Units met online count as seen by the law:
    calibrate on others.
    """

    def __init__(
        self, history: History, fitted: FittedLaw, *, every: int, law: Refittable | None = None,
        inference: Inference | None = None, seed: int = 0,
    ) -> None:  # fmt: skip
        if not isinstance(fitted, FittedLaw) or not isinstance(history, History):
            raise ModelError(
                "GrowingArchive: pass the History and the law fitted on it, "
                f"GrowingArchive(history, fitted, every=100), not {type(history).__name__} and "
                f"{type(fitted).__name__}."
            )
        if (history.units, history.s_names) != (fitted.fit_units, fitted.s_names):
            raise DataError("GrowingArchive: the law was fitted on other units or columns of S.")
        self.history, self.fitted, self.first = history, fitted, fitted
        self.every = whole(every, "GrowingArchive: every", 1)
        self.inference, self.seed = inference, seed
        self._s: dict[str, list[Float1]] = {}
        self._w: dict[str, list[Float1]] = {}
        self._log: list[tuple[str, int]] = []  # what was revealed, in order
        self._done: list[int] = []  # how much of the log each refit had learned
        self.law: Refittable = law if law is not None else fitted.law
        filters = type(fitted) is not FittedLaw  # its own parameters have no running moments
        if filters and law is None:
            raise ModelError("GrowingArchive: pass law=state_space(...), it is fitted as a whole.")
        self._moments: _Moments | None = None
        own = self.law if isinstance(self.law, Law) else None
        linear = own is not None and isinstance(own.family, LinearFamily)
        if own is not None and linear and isinstance(own.engine(inference), Exact):
            self._moments = _Moments(own.prepare(history)[0])

    @property
    def rounds(self) -> int:
        """Number of W revealed so far."""
        return len(self._log)

    @property
    def due(self) -> bool:
        """Whether enough has been revealed since the last refit."""
        return len(self._log) - (self._done[-1] if self._done else 0) >= self.every

    def see(self, unit: str, s: Float1) -> int:
        """Take in S_t of a unit, (s_dim,); return the number of the row."""
        self._s.setdefault(unit, []).append(np.array(s, np.float64))
        self._w.setdefault(unit, []).append(np.full(len(self.fitted.w_names), np.nan))
        return len(self._s[unit]) - 1

    def reveal(self, unit: str, row: int, w: Float1) -> None:
        """Take in W of a row seen before, (w_dim,)."""
        self._w[unit][row] = np.array(w, np.float64)
        self._log.append((unit, row))

    def rows(self, unit: str) -> list[Float1]:
        """All S seen of a unit, in order."""
        return self._s[unit]

    def refit(self) -> FittedLaw:
        """Fit the law on all that is known by now."""
        new = self._log[self._done[-1] if self._done else 0 :]
        self._done.append(len(self._log))
        seed = torch_seed(self.seed, "refit", len(self._done))
        units = self.history.units + tuple(f"online {unit}" for unit in self._s)
        if self._moments is not None:
            if new:
                w = np.array([self._w[unit][row] for unit, row in new])
                self._moments.add(self._inputs(new), w)
            self.fitted = self._moments.fitted(self.fitted, units, seed)
        else:
            grown = self.grown
            if isinstance(self.law, Law):
                self.fitted = self.law.fit(grown, self.inference, seed=seed, warm=self.fitted)
            else:
                self.fitted = self.law.fit(grown, self.inference, seed=seed)
        return self.fitted

    @property
    def grown(self) -> History:
        """The archive with the online units, W NaN where it was not revealed."""
        old = self.history
        if not self._s:
            return old
        length = max(old.s.shape[1], *(len(rows) for rows in self._s.values()))
        count = len(old.units) + len(self._s)
        s = np.full((count, length, old.s.shape[2]), np.nan)
        w = np.full((count, length, old.w.shape[2]), np.nan)
        seen = np.zeros((count, length), dtype=np.bool_)
        n = len(old.units)
        s[:n, : old.s.shape[1]], w[:n, : old.s.shape[1]] = old.s, old.w
        seen[:n, : old.s.shape[1]] = old.seen
        for i, unit in enumerate(self._s):
            rows = len(self._s[unit])
            s[n + i, :rows], w[n + i, :rows] = self._s[unit], self._w[unit]
            seen[n + i, :rows] = True
        names = old.units + tuple(f"online {unit}" for unit in self._s)
        return History(s, w, seen, names, old.s_names, old.w_names)

    def state(self) -> tuple[dict[str, Float], list[list[object]], list[int]]:
        """Return rows of S and W as arrays, what was revealed when, and when refits happened."""
        arrays = {f"s.{i}": np.array(rows) for i, rows in enumerate(self._s.values())}
        arrays |= {f"w.{i}": np.array(rows) for i, rows in enumerate(self._w.values())}
        place = {unit: i for i, unit in enumerate(self._s)}
        log: list[list[object]] = [[place[unit], row] for unit, row in self._log]
        return arrays, log, list(self._done)

    def restore(
        self, units: list[str], arrays: Mapping[str, Float], log: list[list[int]], done: list[int]
    ) -> None:
        """Live through the same again: refits at the same points give the same law, bit by bit."""
        for i, unit in enumerate(units):
            self._s[unit] = list(arrays[f"s.{i}"])
            self._w[unit] = list(arrays[f"w.{i}"])
        whole_log = [(units[i], row) for i, row in log]
        for stop in done:
            self._log = whole_log[:stop]
            self.refit()
        self._log = whole_log

    def _inputs(self, log: list[tuple[str, int]]) -> Float2:
        """Inputs x, (n, p), of rows, from the window of S before each."""
        memory = self.fitted.summary.memory
        windows = np.full((len(log), memory, len(self.fitted.s_names)), np.nan)
        for i, (unit, row) in enumerate(log):
            past = self._s[unit][max(row - memory + 1, 0) : row + 1]
            windows[i, memory - len(past) :] = past
        x: Float2 = self.fitted.summary(windows)[:, -1]
        return x


class _Moments:
    """Running moments of complete rows [x, w], and the law they make."""

    def __init__(self, data: FitData) -> None:
        empty = replace(
            data.rows, x=data.rows.x[:0], w=data.rows.w[:0], unit=data.rows.unit[:0],
            time=data.rows.time[:0],
        )  # fmt: skip
        self.n, self.mean, self.moments = data.n, data.mean, data.moments
        self._empty, self._rows, self._dropped = data, empty, data.rows.dropped

    def add(self, x: Float2, w: Float2) -> None:
        """Add the complete ones of rows x (n, p), w (n, w_dim)."""
        both: Float2 = np.concatenate([x, w], axis=1)
        known = np.isfinite(both).all(1)
        self._dropped += int((~known).sum())
        both = both[known]
        if not len(both):
            return
        centre, count = both.mean(0), len(both)
        away, total = centre - self.mean, self.n + count
        spread = both - centre
        self.moments = (
            self.moments + spread.T @ spread + np.outer(away, away) * (self.n * count / total)
        )
        self.mean, self.n = self.mean + away * (count / total), total

    def fitted(self, before: FittedLaw, units: tuple[str, ...], seed: int) -> FittedLaw:
        """Return the law of these moments."""
        rows = replace(self._rows, dropped=self._dropped)
        raw = FitData(rows, self.mean, self.moments, self._empty.scaler, self.n)
        law = before.law
        data = raw.standardised(law.kinds(before.s_names))
        _, fit = law.fit_data(data, Exact(len(before.draws["coef"])), seed)
        record = FitRecord(before.record.inference, seed, data.n, self._dropped, fit.quality)
        return replace(
            before, draws=fit.draws, scaler=data.scaler, inputs=data.inputs, record=record,
            fit_units=units,
        )  # fmt: skip
