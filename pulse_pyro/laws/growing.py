"""An archive that grows while a policy runs: W revealed after the fact teaches the law too."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np

from pulse_pyro._pyro.inference import Exact, Inference
from pulse_pyro.arrays import Float, Float1, Float2, whole
from pulse_pyro.errors import DataError, ModelError
from pulse_pyro.history import History
from pulse_pyro.laws.fitted import FittedLaw
from pulse_pyro.laws.law import Law
from pulse_pyro.laws.linear import LinearFamily
from pulse_pyro.laws.running import RunningLinear
from pulse_pyro.seeds import torch_seed


class Refittable(Protocol):
    """A law that can be fitted."""

    def fit(self, history: History, inference: Inference | None = None, *, seed: int) -> FittedLaw:
        """Fit on an archive."""


class Refit(NamedTuple):
    """When a refit happened: how many W had been revealed, and how many rows of each unit seen.

    good : whether it gave a law.
    """

    revealed: int
    rows: dict[str, int]
    good: bool


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

    Linear laws under Exact are refitted from their running moments, O(p^3) and a pass over S, and
    equal to a fit on all rows up to rounding. Other laws are fitted on the whole archive
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
        mine = (history.units, history.s_names, history.w_names)
        if mine != (fitted.fit_units, fitted.s_names, fitted.w_names):
            raise DataError("GrowingArchive: the law was fitted on other units or columns.")
        self.history, self.fitted, self.first = history, fitted, fitted
        self.every = whole(every, "GrowingArchive: every", 1)
        self.inference, self.seed = inference, seed
        self._s: dict[str, list[Float1]] = {}
        self._w: dict[str, list[Float1]] = {}
        self._log: list[tuple[str, int]] = []  # what was revealed, in order
        self._refits: list[Refit] = []
        self._claimed = False
        self.law: Refittable = fitted.law if law is None else law
        if type(fitted) is not FittedLaw and law is None:
            raise ModelError("GrowingArchive: pass law=state_space(...), it is fitted as a whole.")
        self._running: RunningLinear | None = None
        own = self.law if isinstance(self.law, Law) else None
        if own is not None and own.summary.names != fitted.summary.names:
            raise ModelError(
                f"GrowingArchive: law= looks at {own.summary.names}, the law at the start at "
                f"{fitted.summary.names}."
            )
        if own is not None and isinstance(own.family, LinearFamily):
            how = own.engine(inference)
            if inference is None and isinstance(how, Exact):
                how = Exact(fitted.kernel.count)  # as many draws as at the start
            self._running = RunningLinear(own, how, history) if isinstance(how, Exact) else None

    @cached_property
    def history_id(self) -> str:
        """Fingerprint of the archive at the start: all of S, W and what was seen."""
        digest = hashlib.sha256()
        for array in (self.history.s, self.history.w, self.history.seen):
            digest.update(repr(array.shape).encode())
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()[:16]

    def claim(self) -> None:
        """Become the archive of one policy: two would mix their rows."""
        if self._claimed:
            raise DataError(
                "GrowingArchive: this archive belongs to another policy; make one for each."
            )
        self._claimed = True

    @property
    def rounds(self) -> int:
        """Number of W revealed so far."""
        return len(self._log)

    @property
    def fresh(self) -> bool:
        """Whether nothing has been seen yet."""
        return not self._s

    @property
    def due(self) -> bool:
        """Whether enough has been revealed since the last refit."""
        return len(self._log) - self._learned >= self.every

    @property
    def _learned(self) -> int:
        return self._refits[-1].revealed if self._refits else 0

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
        """Fit the law on all that is known by now; one that fails leaves the law as it was."""
        self._begin_refit()
        self._fit()
        self._refits[-1] = self._refits[-1]._replace(good=True)
        return self.fitted

    def _begin_refit(self) -> None:
        """Note a refit, which counts as failed until it has given a law, and take in new rows."""
        new = self._log[self._learned :]
        rows = {unit: len(seen) for unit, seen in self._s.items()}
        self._refits.append(Refit(len(self._log), rows, False))
        if self._running is not None and new:
            w = np.array([self._w[unit][row] for unit, row in new])
            self._running.add(self._inputs(new), w)

    def _fit(self) -> None:
        seed = torch_seed(self.seed, "refit", len(self._refits))
        if self._running is not None:
            self.fitted = self._running.fit(self.fitted, self._contexts(), self._units, seed)
        elif isinstance(self.law, Law):
            self.fitted = self.law.fit(self.grown, self.inference, seed=seed, warm=self.fitted)
        else:
            self.fitted = self.law.fit(self.grown, self.inference, seed=seed)

    @property
    def grown(self) -> History:
        """The archive with the online units, W NaN where it was not revealed."""
        old = self.history
        if not self._s:
            return old
        length = max(old.s.shape[1], *(len(rows) for rows in self._s.values()))
        n, count = len(old.units), len(old.units) + len(self._s)
        s = np.full((count, length, old.s.shape[2]), np.nan)
        w = np.full((count, length, old.w.shape[2]), np.nan)
        seen = np.zeros((count, length), dtype=np.bool_)
        s[:n, : old.s.shape[1]], w[:n, : old.s.shape[1]] = old.s, old.w
        seen[:n, : old.s.shape[1]] = old.seen
        for i, unit in enumerate(self._s):
            rows = len(self._s[unit])
            s[n + i, :rows], w[n + i, :rows] = self._s[unit], self._w[unit]
            seen[n + i, :rows] = True
        return History(s, w, seen, self._units, old.s_names, old.w_names)

    @property
    def _units(self) -> tuple[str, ...]:
        """Names of all units; an archive that was grown before may hold the same ones."""
        taken, out = set(self.history.units), list(self.history.units)
        for unit in self._s:
            name = f"online {unit}"
            while name in taken:
                name += " again"
            taken.add(name)
            out.append(name)
        return tuple(out)

    def _contexts(self) -> Float2:
        """Mean and sd of all S, (2, s_dim)."""
        known = [self.history.s[self.history.seen], *(np.array(rows) for rows in self._s.values())]
        every = np.concatenate(known)
        return np.stack([np.nanmean(every, axis=0), np.nanstd(every, axis=0)])

    def state(self) -> tuple[dict[str, Float], dict[str, Any]]:
        """Return all that came in, rows as arrays, and the order of events as plain values."""
        arrays = {f"s.{i}": np.array(rows) for i, rows in enumerate(self._s.values())}
        arrays |= {f"w.{i}": np.array(rows) for i, rows in enumerate(self._w.values())}
        place = {unit: i for i, unit in enumerate(self._s)}
        return arrays, {
            "units": list(self._s),
            "log": [[place[unit], row] for unit, row in self._log],
            "refits": [list(refit) for refit in self._refits],
        }

    def restore(self, arrays: Mapping[str, Float], events: Mapping[str, Any]) -> None:
        """Live through the same again: refits at the same points give the same law, bit by bit."""
        units = events["units"]
        log = [(units[i], row) for i, row in events["log"]]
        every = [Refit(*refit) for refit in events["refits"]]
        last = max((k for k, refit in enumerate(every) if refit.good), default=-1)
        custom = isinstance(self.law, Law) and self.law.family is None  # starts at the fit before
        for k, refit in enumerate(every):
            again = refit.good and (k == last or custom or self._running is not None)
            if again or self._running is not None:  # moments take in the rows of every refit
                self._refits = every[:k]
                self._bring_back(units, arrays, log[: refit.revealed], refit.rows)
                self._begin_refit()
            if again:
                self._fit()
        self._refits = every
        self._bring_back(units, arrays, log, dict.fromkeys(units))

    def _bring_back(
        self, units: list[str], arrays: Mapping[str, Float], log: list[tuple[str, int]],
        rows: Mapping[str, int | None],
    ) -> None:  # fmt: skip
        """Set what was known when so many rows of each unit were seen, and the log so long."""
        place = {unit: i for i, unit in enumerate(units)}
        self._log = log
        self._s = {unit: list(arrays[f"s.{place[unit]}"][:count]) for unit, count in rows.items()}
        blank = np.full(len(self.fitted.w_names), np.nan)
        self._w = {unit: [blank.copy() for _ in seen] for unit, seen in self._s.items()}
        for unit, row in log:
            self._w[unit][row] = arrays[f"w.{place[unit]}"][row]

    def _inputs(self, log: list[tuple[str, int]]) -> Float2:
        """Inputs x, (n, p), of rows, from the window of S before each."""
        memory = self.fitted.summary.memory
        windows = np.full((len(log), memory, len(self.fitted.s_names)), np.nan)
        for i, (unit, row) in enumerate(log):
            past = self._s[unit][max(row - memory + 1, 0) : row + 1]
            windows[i, memory - len(past) :] = past
        x: Float2 = self.fitted.summary(windows)[:, -1]
        return x
