"""An archive that grows while a policy runs: W revealed after the fact teaches the law too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from pulse_pyro._core.arrays import Float, Float1, Float2, whole
from pulse_pyro._core.errors import DataError, ModelError
from pulse_pyro._core.seeds import torch_seed
from pulse_pyro._pyro.inference import Exact, Inference
from pulse_pyro.base import Schema, UnfittedLaw
from pulse_pyro.data.history import History
from pulse_pyro.laws.fitted import FitRecord, PosteriorLaw
from pulse_pyro.laws.law import FitData, Law
from pulse_pyro.laws.linear import LinearFamily

# Running moments of complete rows, and the linear law they make.


class RunningLinear:
    """A linear law under Exact whose rows come one batch at a time, none of them kept.

    Equal to a fit on all rows up to rounding; a refit costs O(p^3) whatever their number.
    """

    def __init__(self, law: Law, how: Exact, history: History) -> None:
        data, self._law = law.prepare(history)
        self._how, self._scaler = how, data.scaler
        rows = data.rows
        self._rows = replace(
            rows, x=rows.x[:0], w=rows.w[:0], unit=rows.unit[:0], time=rows.time[:0], at=rows.at[:0]
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
        self, before: PosteriorLaw, schema: Schema, units: tuple[str, ...], seed: int
    ) -> PosteriorLaw:
        """Return the law of the rows so far; its card is that of the law before.

        schema, units : of all that the law has seen by now.
        """
        rows = replace(self._rows, dropped=self._dropped)
        raw = FitData(rows, self._mean, self._moments, self._scaler, self._n)
        data = raw.standardised(self._law.kinds(before.schema.s_names))
        _, fit = self._law.fit_data(data, self._how, seed)
        record = FitRecord(repr(self._how), seed, data.n, self._dropped, fit.quality)
        return replace(
            before,
            law=self._law,
            draws=fit.draws,
            scaler=data.scaler,
            inputs=data.inputs,
            record=record,
            units=units,
            schema=schema,
            squares=None,  # sums over clusters are not kept up
        )

    def state(self) -> tuple[dict[str, Float], dict[str, int]]:
        """Return the sums over the rows so far."""
        return {"mean": self._mean, "moments": self._moments}, {
            "rows": self._n,
            "dropped": self._dropped,
        }

    def restore(self, arrays: Mapping[str, Float], counts: Mapping[str, int]) -> None:
        """Go on from where :meth:`state` was taken."""
        self._mean, self._moments = arrays["mean"], arrays["moments"]
        self._n, self._dropped = counts["rows"], counts["dropped"]


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
    calibrate on others. In an archive with clusters each of them is a cluster of its own.
    """

    def __init__(
        self,
        history: History,
        fitted: PosteriorLaw,
        *,
        every: int,
        law: UnfittedLaw | None = None,
        inference: Inference | None = None,
        seed: int = 0,
    ) -> None:
        if not isinstance(fitted, PosteriorLaw) or not isinstance(history, History):
            raise ModelError(
                "GrowingArchive: pass the History and the law fitted on it, "
                f"GrowingArchive(history, fitted, every=100), not {type(history).__name__} and "
                f"{type(fitted).__name__}."
            )
        mine, other = history.schema, fitted.schema
        if (history.clusters, mine.units) != (fitted.units, other.units):
            raise DataError("GrowingArchive: the law was fitted on other units or clusters.")
        other.expect(mine, "GrowingArchive", "the archive has")
        self.history, self.fitted, self.first = history, fitted, fitted
        self.every = whole(every, "GrowingArchive: every", 1)
        self.inference, self.seed = inference, seed
        self._s: dict[str, list[Float1]] = {}
        self._w: dict[str, list[Float1]] = {}
        self._log: list[tuple[str, int]] = []  # what was revealed, in order
        self._refits: list[Refit] = []
        self._claimed = False
        self.law: UnfittedLaw = fitted.law if law is None else law
        if type(fitted) is not PosteriorLaw and law is None:
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
        self._w.setdefault(unit, []).append(np.full(len(self.fitted.schema.w_names), np.nan))
        return len(self._s[unit]) - 1

    def reveal(self, unit: str, row: int, w: Float1) -> None:
        """Take in W of a row seen before, (w_dim,)."""
        self._w[unit][row] = np.array(w, np.float64)
        self._log.append((unit, row))

    def rows(self, unit: str) -> list[Float1]:
        """All S seen of a unit, in order."""
        return self._s[unit]

    def called(self, unit: str) -> str:
        """Return the name of a unit met online in the archive as it has grown."""
        online = self._with_online(self.history.units)[len(self.history.units) :]
        return dict(zip(self._s, online, strict=True)).get(unit, unit)

    def refit(self) -> PosteriorLaw:
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
            pieces = self._with_online(self.history.clusters)
            fitted = self._running.fit(self.fitted, self._schema(), pieces, seed)
        elif isinstance(self.law, Law):
            fitted = self.law.fit(self.grown, self.inference, seed=seed, warm=self.fitted)
        else:
            fitted = self.law.fit(self.grown, self.inference, seed=seed)
        # a law that learns no memory of its own goes on with that it had
        self.fitted = replace(fitted, memory=fitted.memory or self.fitted.memory)

    @property
    def grown(self) -> History:
        """The archive with the online units, W NaN where it was not revealed."""
        old = self.history
        if not self._s:
            return old
        count = [len(rows) for rows in self._s.values()]
        number = len(old.clusters) + np.arange(len(count))  # each is a cluster of its own
        return History(
            s=np.concatenate([old.s, *(np.array(rows) for rows in self._s.values())]),
            w=np.concatenate([old.w, *(np.array(rows) for rows in self._w.values())]),
            offsets=np.concatenate([old.offsets, old.offsets[-1] + np.cumsum(count)]),
            step=np.concatenate([old.step, *(np.arange(rows) for rows in count)]),
            units=self._with_online(old.units),
            schema=replace(old.schema, moments=None),
            cluster=np.concatenate([old.cluster, np.repeat(number, count)]),
            clusters=self._with_online(old.clusters),
        )

    def _with_online(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Add the online units to names; an archive that was grown before may hold the same."""
        taken, out = set(names), list(names)
        for unit in self._s:
            name = f"online {unit}"
            while name in taken:
                name += " again"
            taken.add(name)
            out.append(name)
        return tuple(out)

    def _schema(self) -> Schema:
        """The columns, with mean and sd of all S and the units seen by now."""
        known = [self.history.s, *(np.array(rows) for rows in self._s.values())]
        every = np.concatenate(known)
        moments = np.stack([np.nanmean(every, axis=0), np.nanstd(every, axis=0)])
        units = self.history.schema.units  # none if the pieces are the units
        units = self._with_online(units) if units else ()
        return replace(self.fitted.schema, moments=moments, units=units)

    def state(self) -> tuple[dict[str, Float], dict[str, Any]]:
        """Return all that was taken in: rows and sums as arrays, events as plain values."""
        arrays = {f"s.{i}": np.array(rows) for i, rows in enumerate(self._s.values())}
        arrays |= {f"w.{i}": np.array(rows) for i, rows in enumerate(self._w.values())}
        place = {unit: i for i, unit in enumerate(self._s)}
        events: dict[str, Any] = {
            "units": list(self._s),
            "log": [[place[unit], row] for unit, row in self._log],
            "refits": [list(refit) for refit in self._refits],
            "sums": None,
        }
        if self._running is not None:
            sums, events["sums"] = self._running.state()
            arrays |= sums
        return arrays, events

    def restore(
        self, arrays: Mapping[str, Float], events: Mapping[str, Any], fitted: PosteriorLaw
    ) -> None:
        """Go on from where :meth:`state` was taken, with the law that was in use by then."""
        units = events["units"]
        self._s = {unit: list(arrays[f"s.{i}"]) for i, unit in enumerate(units)}
        self._w = {unit: list(arrays[f"w.{i}"]) for i, unit in enumerate(units)}
        self._log = [(units[i], row) for i, row in events["log"]]
        self._refits = [Refit(*refit) for refit in events["refits"]]
        if self._running is not None:
            self._running.restore(arrays, events["sums"])
        self.fitted = fitted

    def _inputs(self, log: list[tuple[str, int]]) -> Float2:
        """Inputs x, (n, p), of rows, from the window of S before each."""
        memory = self.fitted.summary.memory
        windows = np.full((len(log), memory, len(self.fitted.schema.s_names)), np.nan)
        for i, (unit, row) in enumerate(log):
            past = self._s[unit][max(row - memory + 1, 0) : row + 1]
            windows[i, memory - len(past) :] = past
        x: Float2 = self.fitted.summary(windows)[:, -1]
        return x
