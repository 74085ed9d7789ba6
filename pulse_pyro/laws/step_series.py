"""Series under a law with a state: many rows of an archive at once, or one row after the other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from pulse_pyro._core.arrays import Float, Float1, Float2, Float3, Int
from pulse_pyro._core.errors import DataError, ModelError
from pulse_pyro._core.progress import bar
from pulse_pyro._pyro import answers
from pulse_pyro._pyro.filters import StateBelief, StepRows, systematic
from pulse_pyro._pyro.sandbox import quiet
from pulse_pyro._pyro.step_draws import COPIES, ProgramDraws
from pulse_pyro.data.summary import Lags
from pulse_pyro.laws.step_conditional import CHUNK, StepConditional

KEPT = 64  # particles a draw keeps of each row of an archive
REACH = 64  # rows back, at least, whose W may still be told of


@contextmanager
def _numbered(step: int) -> Iterator[None]:
    """Let what a filter refuses say at which step of its series."""
    try:
        yield
    except ModelError as cause:
        raise type(cause)(f"{cause} This is step {step} of a series.") from cause


class Gathered:
    """What is known of the state at the rows asked for, put together block by block."""

    def __init__(self, law: ProgramDraws, count: int) -> None:
        self.law, self.count = law, count
        self.parts: list[Any] = [None, None]
        self.means: Any = None
        self.past = np.empty((count, law.program.memory, len(law.program.s_names)))

    def take_in(self, s: Float3, place: Int) -> None:
        """Filter series s (series, time, s_dim); place : (series, time) of its rows, -1: unused."""
        import torch

        law, program = self.law, self.law.program
        past, y = program.windows(s), s[..., program.sampled_at]
        exact = law.filtered_exactly
        cells = max(law.card.states, 4) * s.shape[1] if exact else law.each
        width = max(CHUNK // (law.count * cells), 1)
        # up to the last row that is asked for: what comes later tells it nothing
        used = np.flatnonzero((place >= 0).any(0))
        last = int(used[-1]) + 1 if len(used) else 0
        for start in bar(range(0, len(s) if last else 0, width), label="series"):
            at = slice(start, start + width)
            rows = StepRows(torch.as_tensor(past[at, :last]), torch.as_tensor(y[at, :last]))
            with quiet(law.seed, "filter", start):
                for t, known in enumerate(self._beliefs(rows)):
                    self._keep(known, place[at, t], past[at, t])

    def _beliefs(self, rows: StepRows) -> Iterator[StateBelief]:
        """Yield what is known after each row; particles are kept for one row at a time."""
        names, state = self.law.program.sampled, self.law.filter
        belief, every = state.start(len(rows.y)), None
        if self.law.filtered_exactly:
            every = state.go(belief, rows, names)[0]
        for t in range(rows.y.shape[1]):
            one = StepRows(rows.past[:, t : t + 1], rows.y[:, t : t + 1])
            with _numbered(t):
                known = state.go(belief, one, names)[0][0] if every is None else every[t]
                state.refuse_lost(belief, known, one)
            belief = known
            yield belief

    def _keep(self, known: StateBelief, place: Int, past: Float3) -> None:
        import torch

        at = np.flatnonzero(place >= 0)
        if not len(at):
            return
        to = place[at]
        self.past[to] = past[at]
        if not self.law.filtered_exactly:
            known = StateBelief(known.first[:, at], known.second[:, at])
            answer = self.law.filter.answer(known, torch.as_tensor(past[at]))
            means = answers.means(answer)
            if self.means is None:
                self.means = np.empty((means.shape[0], self.count, means.shape[-1]))
            self.means[:, to] = means.numpy()
            if self.count > 1:
                index = systematic(known.second, KEPT // COPIES)
                extra = known.first.dim() - 3
                wide = index.reshape(*index.shape, *(1,) * extra)
                wide = wide.expand(*index.shape, *known.first.shape[3:])
                known = StateBelief(torch.gather(known.first, 2, wide), torch.zeros(index.shape))
        else:
            known = StateBelief(*(v[:, at] if v.dim() > 1 else v for v in known))
        for k, values in enumerate(known):
            if values.dim() < 2:
                self.parts[k] = values
                continue
            if self.parts[k] is None:
                shape = (values.shape[0], self.count, *values.shape[2:])
                self.parts[k] = torch.empty(shape, dtype=values.dtype)
            self.parts[k][:, to] = values

    def conditional(self, s: Float2, place: Int) -> StepConditional:
        """Return the law of W at rows, by their places."""
        import torch

        if self.parts[0] is None:  # no row is asked for
            with quiet(0, "none"):
                self.parts = [v if v.dim() < 2 else v[:, :0] for v in self.law.filter.start(1)]
        index = torch.as_tensor(place)
        belief = StateBelief(*(v if v.dim() < 2 else v[:, index] for v in self.parts))
        means = None if self.means is None else self.means[:, place]
        return StepConditional(self.law, belief, self.past[place], s, means)


class Milestone(NamedTuple):
    """What was known before a row. at : its number. rows : S of the last of them."""

    at: int
    rows: Float2
    belief: StateBelief


class StepFollower:
    """One series as it unfolds: what is known of its state, draw by draw.

    A W that is told of late counts at its own time: the series is gone through again from the last
    of two milestones before it, 64 rows apart. W of rows before both come too late.
    """

    arms_alike = False  # arms with contexts of their own are series of their own

    def __init__(self, law: ProgramDraws) -> None:
        self._law, self._summary = law, Lags(law.program.memory)
        self._rows = np.full((law.program.memory, len(law.program.s_names)), np.nan)
        self._count = 0
        with quiet(law.seed, "follow"):
            self._belief = law.filter.start(1)
        self._shown: StateBelief | None = None
        self._miles: list[Milestone] = []
        self._s: list[Float1] = []  # rows since the older milestone, and what was told of them
        self._w: list[Float1] = []

    @property
    def now(self) -> Float1:
        """The newest S_t."""
        row: Float1 = self._rows[-1]
        return row

    @property
    def conditional(self) -> StepConditional:
        """The law of W_t given all taken in before W_t itself; before any row, of the first."""
        shown = self._shown
        if shown is None:
            shown = self._met(self._belief, self._rows, 0)
        return StepConditional(
            self._law, shown, self._window(self._rows)[None], self._rows[-1:].copy()
        )

    def push(self, s: Float1, w: Float1 | None = None) -> StepConditional:
        """Take in S_t, (s_dim,), and return the law of W_t given S_1:t and the W revealed so far.

        w : (w_dim,) W_t itself, NaN where it is not known, if it is revealed: it counts from the
        next row on.
        """
        rows = np.concatenate([self._rows[1:], np.asarray(s, np.float64)[None]])
        shown = self._met(self._belief, rows, self._count)
        if not self._miles or self._count % REACH == 0:
            self._miles.append(Milestone(self._count, self._rows, self._belief))
            if len(self._miles) > 2:
                done = self._miles[1].at - self._miles[0].at
                del self._miles[0], self._s[:done], self._w[:done]
        self._s.append(rows[-1])
        self._w.append(np.full(self._law.w_dim, np.nan))
        self._rows, self._shown, self._belief = rows, shown, shown
        self._count += 1
        if w is not None:
            self.condition_on(w)
        return self.conditional

    def place(self) -> Float1:
        """Return the number of the newest row, by which its W can be told of later."""
        return np.array([self._count - 1.0])

    def condition_on(self, w: ArrayLike, place: Float1 | None = None) -> bool:
        """Take in the W of a row, (w_dim,), NaN where it is not known.

        place : of the row, the newest by default. It counts from the next row on. Taken in again,
        or in parts, it replaces what was told of this row. False, and nothing is changed, where the
        row lies too far back.
        """
        law, value = self._law, np.asarray(w, np.float64).reshape(-1)
        if self._shown is None:
            raise DataError("push: W is of the newest row, but there is none yet; push S first.")
        if value.shape != (law.w_dim,) or np.isinf(value).any():
            raise DataError(
                f"push: w must hold {law.w_dim} numbers, one a W column, but got {w!r}."
            )
        newest = self._count - 1
        row = newest if place is None else int(place[0])
        if row == newest:
            self._belief = self._told(self._shown, self._rows, value, row)
            if self._w:
                self._w[-1] = value
            return True
        if not self._miles or row < self._miles[0].at:
            return False
        self._go_again(row, value)
        return True

    def _go_again(self, row: int, value: Float1) -> None:
        """Meet the rows since an earlier one again, now that its W is known."""
        miles = [mile for mile in self._miles if mile.at <= row]
        first, (start, rows, belief) = self._miles[0].at, miles[-1]
        shown, w = belief, self._w.copy()
        w[row - first] = value
        for t in range(start, self._count):
            if t > start and t % REACH == 0:
                miles.append(Milestone(t, rows, belief))
            rows = np.concatenate([rows[1:], self._s[t - first][None]])
            shown = belief = self._met(belief, rows, t)
            if not np.isnan(w[t - first]).all():
                belief = self._told(shown, rows, w[t - first], t)
        self._miles, self._w, self._shown, self._belief = miles, w, shown, belief

    def _told(self, shown: StateBelief, rows: Float2, w: Float1, row: int) -> StateBelief:
        """Return what is known once W of a row is, (w_dim,)."""
        import torch

        law = self._law
        given = torch.as_tensor(law.program.encoded(w[None]))
        past = torch.as_tensor(self._window(rows))[None]
        with _numbered(row), quiet():
            answer = law.filter.answer(shown, past)
            odd = answers.impossible(answer, given[0])
            if odd is not None:
                raise DataError(
                    f"push: w is {w.tolist()} at step {row} of this series, but "
                    f"column {law.program.w_names[odd]!r} cannot be that under "
                    f"{law.program.label}; correct it, or declare its levels."
                )
            return law.filter.reveal(shown, past, given)

    def _met(self, belief: StateBelief, rows: Float2, count: int) -> StateBelief:
        """Return what is known of the state once S_t has been met, the last of rows."""
        import torch

        law = self._law
        past = torch.as_tensor(self._window(rows))[None, None]
        y = torch.as_tensor(rows[-1][law.program.sampled_at])[None, None]
        row = StepRows(past, y)
        with _numbered(count):
            if law.flat.step is not None:
                known = StateBelief(*law.flat.step(*belief, *row))
                if torch.isfinite(known.first).all() and torch.isfinite(known.second).all():
                    return known
            with quiet(*law.randomness("follow", count)):
                if law.flat.step is None:
                    known = law.filter.go(belief, row, law.program.sampled)[0][0]
                law.filter.refuse_lost(belief, known, row)
            return known

    def _window(self, rows: Float2) -> Float2:
        out = rows.copy()
        out[-1, self._law.program.sampled_at] = np.nan
        return out

    def inputs(self) -> Float1:
        """Return x_t: S of the last rows, the newest first."""
        return self._summary.last(self._rows)

    def state(self) -> dict[str, Float]:
        """Return all that has been taken in, as arrays."""
        shown = self._belief if self._shown is None else self._shown
        out = {"rows": self._rows.copy(), "count": np.array([float(self._count)])}
        beliefs = {"known": self._belief, "shown": shown}
        beliefs |= {f"mile{i}.known": mile.belief for i, mile in enumerate(self._miles)}
        for name, belief in beliefs.items():
            out |= {f"{name}{k}": v.double().numpy().copy() for k, v in enumerate(belief)}
        for i, mile in enumerate(self._miles):
            out |= {f"mile{i}.rows": mile.rows.copy(), f"mile{i}.at": np.array([mile.at])}
        out["since.s"] = np.array(self._s).reshape(-1, self._rows.shape[1])
        out["since.w"] = np.array(self._w).reshape(-1, self._law.w_dim)
        return out

    def restore(self, state: Mapping[str, Float]) -> None:
        """Go on from where :meth:`state` was taken."""
        import torch

        def belief(name: str) -> StateBelief:
            return type(self._belief)(
                *(
                    torch.tensor(state[f"{name}{k}"]).to(now.dtype)
                    for k, now in enumerate(self._belief)
                )
            )

        known, shown = belief("known"), belief("shown")
        self._rows, self._count = np.array(state["rows"]), int(state["count"][0])
        self._belief, self._shown = known, shown if self._count else None
        # earlier versions kept no milestones: of their rows no W can be told of any more
        self._miles = [
            Milestone(
                int(state[f"mile{i}.at"][0]),
                np.array(state[f"mile{i}.rows"]),
                belief(f"mile{i}.known"),
            )
            for i in range(2)
            if f"mile{i}.at" in state
        ]
        self._s = list(np.array(state.get("since.s", ())))
        self._w = list(np.array(state.get("since.w", ())))
