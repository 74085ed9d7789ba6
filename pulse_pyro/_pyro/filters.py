"""What is known of a program's state, series by series: forward, Kalman and particle filters.

Row t of a series is met in three steps. The state moves on, p(z_t | z_{t-1}); the columns of S that
the step samples are weighted on where they are seen; the law of W_t is then asked for; and W_t,
where it is known (in the archive, or revealed online), is weighted on last. With y the columns that
are weighted on,

    log p(y_1:T | p) = sum over t of log p(y_t | y_1:t-1, p),

a sum over paths for a discrete state (a_t(k) = sum_j a_{t-1}(j) P_t(j, k) E_t(k)), an integral in
closed form for a linear Gaussian one (Kalman, column after column, since columns are independent
given z), and an average over weighted particles otherwise.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyro
import pyro.distributions as dist
import pyro.poutine as poutine
import torch
from torch.distributions import biject_to

from pulse_pyro._core.errors import ConvergenceError, DataError, ModelError
from pulse_pyro._pyro.answers import Answer
from pulse_pyro._pyro.program import Program, Seen, moments_of, state_values

LOG_2PI = 1.8378770664093453
CHUNK = 2**22  # values in flight


class StateBelief(NamedTuple):
    """What is known of the state of some series at one moment, draw by draw.

    first, second : discrete: log weights (draw, series, state), nothing; gaussian: mean (draw,
    series, d), covariance (draw, series, d, d); particles: z (draw, series, particle, *event), log
    weights (draw, series, particle).
    """

    first: torch.Tensor
    second: torch.Tensor


class StepRows(NamedTuple):
    """Rows of some series. past (series, time, memory, s_dim), y (series, time, columns)."""

    past: torch.Tensor
    y: torch.Tensor


class Filter(Protocol):
    """A filter of one program at some draws of its parameters."""

    def start(self, series: int) -> StateBelief:
        """Return what is known before the first row."""

    def go(
        self, belief: StateBelief, rows: StepRows, columns: Sequence[str]
    ) -> tuple[list[StateBelief], torch.Tensor]:
        """Meet rows one after the other; return what is known after each, and log p(y)."""

    def reveal(self, belief: StateBelief, past: torch.Tensor, w: torch.Tensor) -> StateBelief:
        """Take in W (series, columns), as sites see it, of the row just met.

        past (series, memory, s_dim).
        """

    def answer(self, belief: StateBelief, past: torch.Tensor) -> Answer:
        """Return the law of W at rows (series,), past (series, memory, s_dim)."""

    def refuse_lost(self, before: StateBelief, after: StateBelief, rows: StepRows) -> None:
        """Refuse what is known after one row, where it is nothing any more: say why."""


def _weigh(fn: Any, y: torch.Tensor) -> torch.Tensor:
    """Return log p(y), 0 where y, or what it depends on, is not seen."""
    unseen = torch.isnan(y)  # a density need not say so itself: Uniform's of NaN is 0
    known = torch.where(unseen, 0.0, y) if fn.support.is_discrete else y  # a code to look up
    found = fn.log_prob(known)
    return torch.where(unseen | torch.isnan(found), 0.0, found)


def _per_time(values: torch.Tensor, series: int, time: int, axis: int) -> list[torch.Tensor]:
    """Cut the axis of series * time rows into times; rows that are all alike are not copied."""
    if values.shape[axis] == 1:
        return [values] * time
    shape = (*values.shape[:axis], series, time, *values.shape[axis:][1:])
    return list(values.reshape(shape).unbind(axis + 1))


# A discrete state: the forward algorithm.


@dataclass(frozen=True, eq=False)
class Forward:
    """A state with finitely many values, summed out.

    p : parameters at ``draws`` draws, see Program.parameters. seen : (series, time, columns) which
    values are weighted on, where none of them is NaN; by default those that are not.
    """

    program: Program
    p: Any
    draws: int
    seen: torch.Tensor | None = None

    @cached_property
    def values(self) -> torch.Tensor:
        """The values the state can take, (states, *event)."""
        return state_values(self.program.start(self.p).state)

    def _asked(self, past: torch.Tensor) -> Seen:
        """Run the step at flat rows past (rows, memory, s_dim) and all values, before and after."""
        return self.program.run(self.p, self.values[None], past[:, None], value=self.values[None])

    def start(self, series: int) -> StateBelief:
        """Return log p(z_0), (draw, series, state)."""
        fn, values = self.program.start(self.p).state, self.values
        each = [fn.log_prob(value).expand(self.draws, 1, 1) for value in values]
        log = torch.cat(each, dim=-1).expand(self.draws, series, len(values))
        return StateBelief(log, torch.zeros(0))

    def tables(
        self, past: torch.Tensor, y: torch.Tensor, columns: Sequence[str]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return log P (draw, rows, from, to) and log E (draw, rows, state) of flat rows.

        Where nothing depends on the row its axis has length 1.
        """
        seen = self._asked(past)
        values, count = self.values, len(self.values)
        to = values.reshape(count, *(1,) * 3, *values.shape[1:])
        move = seen.state.log_prob(to).movedim(0, -1)
        move = move.expand(np.broadcast_shapes(move.shape, (self.draws, 1, count, count)))
        emit = torch.zeros(self.draws, 1, len(self.values))
        for j, name in enumerate(columns):
            if self.seen is None:
                emit = emit + _weigh(seen.columns[name], y[:, j, None])
            else:
                counts = self.seen[..., j].reshape(-1, 1)
                weight = seen.columns[name].log_prob(y[:, j, None])
                emit = emit + torch.where(counts, weight, 0.0)
        return move, emit

    def go(
        self, belief: StateBelief, rows: StepRows, columns: Sequence[str]
    ) -> tuple[list[StateBelief], torch.Tensor]:
        """See :class:`Filter`."""
        series, time = rows.y.shape[:2]
        flat = rows.past.reshape(-1, *rows.past.shape[2:])
        move, emit = self.tables(flat, rows.y.reshape(series * time, -1), columns)
        moves, emits = _per_time(move, series, time, 1), _per_time(emit, series, time, 1)
        log, out, total = belief.first, [], torch.zeros(self.draws, series)
        for step, weight in zip(moves, emits, strict=True):
            log = torch.logsumexp(log[..., None] + step, dim=-2) + weight
            norm = torch.logsumexp(log, dim=-1)
            total = total + norm
            log = log - norm[..., None]
            out.append(StateBelief(log, belief.second))
        return out, total

    def reveal(self, belief: StateBelief, past: torch.Tensor, w: torch.Tensor) -> StateBelief:
        """See :class:`Filter`."""
        emit = self.tables(past, w, self.program.w_names)[1]
        log = belief.first + emit
        never = torch.isneginf(log).all(-1)
        if never.any():
            _refuse_zero(self.program, VALUES, never, w, self.program.w_names)
        return StateBelief(log - torch.logsumexp(log, -1, keepdim=True), belief.second)

    def answer(self, belief: StateBelief, past: torch.Tensor) -> Answer:
        """See :class:`Filter`."""
        seen = self._asked(past)
        columns = [seen.columns[name] for name in self.program.w_names]
        return Answer(belief.first, columns, self.program.values)

    def refuse_lost(self, before: StateBelief, after: StateBelief, rows: StepRows) -> None:
        """See :class:`Filter`; where the next state depends on an S that is not seen, it is lost.

        Of a row that no value of the state can have, all weights are NaN.
        """
        if not torch.isnan(after.first).any():
            return
        move, _ = self.tables(rows.past[:, 0], rows.y[:, 0], ())
        never = torch.isnan(after.first).all(-1) & ~torch.isnan(before.first).any(-1)
        never = never & ~torch.isnan(move).any(-1).any(-1)
        if never.any():
            _refuse_zero(self.program, VALUES, never, rows.y[:, 0], self.program.sampled)


# A linear Gaussian state: the Kalman filter.


class Affine(NamedTuple):
    """z' ~ N(A z + b, Q), column j ~ N(c_j'z' + e_j, r_j), at flat rows.

    A (draw, rows, d, d), b (draw, rows, d), Q as A; c (draw, rows, columns, d), e and r (draw,
    rows, columns); the axis of rows has length 1 where nothing depends on them.
    """

    move: torch.Tensor
    shift: torch.Tensor
    noise: torch.Tensor
    slope: torch.Tensor
    level: torch.Tensor
    variance: torch.Tensor


@dataclass(frozen=True, eq=False)
class Kalman:
    """A linear Gaussian state; the step's matrices are read off its means at 0 and unit vectors."""

    program: Program
    p: Any
    draws: int

    @property
    def size(self) -> int:
        """Coordinates of the state."""
        return self.program.z_shape[0] if self.program.z_shape else 1

    def start(self, series: int) -> StateBelief:
        """Mean and covariance of z_0."""
        found = moments_of(self.program.start(self.p).state, (self.draws, series, 1))
        assert found is not None  # the contract check saw that it is normal
        return StateBelief(found.loc[..., 0, :], found.cov[..., 0, :, :])

    def affine(self, past: torch.Tensor, columns: Sequence[str]) -> Affine:
        """Read the step's matrices off at flat rows past (rows, memory, s_dim)."""
        basis = torch.cat([torch.zeros(1, self.size), torch.eye(self.size)])[None]
        points = basis if self.program.z_shape else basis[..., 0]
        seen = self.program.run(self.p, points, past[:, None], value=points)
        d = self.size
        state = moments_of(seen.state, (self.draws, 1, d + 1))
        assert state is not None
        shift = state.loc[..., 0, :]
        move = (state.loc[..., 1:, :] - shift[..., None, :]).transpose(-1, -2)
        each = [moments_of(seen.columns[name], (self.draws, 1, d + 1)) for name in columns]
        if not each:
            none = torch.zeros(self.draws, 1, 0)
            return Affine(
                move, shift, state.cov[..., 0, :, :], torch.zeros(self.draws, 1, 0, d), none, none
            )
        locs = torch.broadcast_tensors(*(one.loc[..., 0] for one in each if one is not None))
        covs = torch.broadcast_tensors(*(one.cov[..., 0, 0, 0] for one in each if one is not None))
        loc, variance = torch.stack(locs, dim=-2), torch.stack(covs, dim=-1)
        slope = loc[..., 1:] - loc[..., :1]
        return Affine(move, shift, state.cov[..., 0, :, :], slope, loc[..., 0], variance)

    def go(
        self, belief: StateBelief, rows: StepRows, columns: Sequence[str]
    ) -> tuple[list[StateBelief], torch.Tensor]:
        """See :class:`Filter`."""
        series, time = rows.y.shape[:2]
        flat = rows.past.reshape(-1, *rows.past.shape[2:])
        at = self.affine(flat, columns)
        left, seen = _left(rows.y.reshape(series * time, -1), at)
        parts = [at.move, at.shift, at.noise, at.slope, at.variance, left, seen]
        mean, cov = belief
        out, offs, spreads = [], [], []
        for row in zip(*(_per_time(part, series, time, 1) for part in parts), strict=True):
            move, shift, noise, *told = row
            mean = (move @ mean[..., None])[..., 0] + shift
            cov = move @ cov @ move.mT + noise
            mean, cov, off, spread = _observe(mean, cov, *told)
            offs += off
            spreads += spread
            out.append(StateBelief(mean, cov))
        if not offs:
            return out, torch.zeros(self.draws, series)
        wide = seen.expand(self.draws, series * time, -1)
        return out, _log_normal(
            torch.stack(offs, -1),
            torch.stack(spreads, -1),
            wide.reshape(self.draws, series, -1),  # rows of a series, columns of each
        )

    def reveal(self, belief: StateBelief, past: torch.Tensor, w: torch.Tensor) -> StateBelief:
        """See :class:`Filter`."""
        at = self.affine(past, self.program.w_names)
        left, seen = _left(w, at)
        mean, cov, _, _ = _observe(*belief, at.slope, at.variance, left, seen)
        return StateBelief(mean, cov)

    def answer(self, belief: StateBelief, past: torch.Tensor) -> Answer:
        """See :class:`Filter`; the marginal laws of W are normal."""
        at = self.affine(past, self.program.w_names)
        mean = (at.slope @ belief.first[..., None])[..., 0] + at.level
        cov = at.slope @ belief.second @ at.slope.transpose(-1, -2)
        return Answer(None, [], (), mean, cov + torch.diag_embed(at.variance))

    def refuse_lost(self, before: StateBelief, after: StateBelief, rows: StepRows) -> None:
        """See :class:`Filter`."""
        for one, other in zip(before, after, strict=True):
            _refuse_explosion(self.program, one, other, rows.past[:, 0])


def _left(y: torch.Tensor, at: Affine) -> tuple[torch.Tensor, torch.Tensor]:
    """Return y (rows, columns) minus its level, 0 where that is not known, and 1 where it is."""
    left = y - at.level
    lost = torch.isnan(left)
    return torch.where(lost, 0.0, left), (~lost).to(left.dtype)


def _observe(
    mean: torch.Tensor,
    cov: torch.Tensor,
    slope: torch.Tensor,
    variance: torch.Tensor,
    left: torch.Tensor,
    seen: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, list[torch.Tensor], list[torch.Tensor]]:
    """Take in columns one by one; return the state, what was off, and the variance of that.

    left, seen : (draw, series, columns) of one row, see :func:`_left`. Columns are independent
    given z, so no matrix is inverted.
    """
    offs, spreads = [], []
    for j in range(left.shape[-1]):
        along = (cov @ slope[..., j, :, None])[..., 0]
        spread = (slope[..., j, :] * along).sum(-1) + variance[..., j]
        off = left[..., j] - (slope[..., j, :] * mean).sum(-1)
        gain = along * (seen[..., j] / spread)[..., None]
        mean = mean + gain * off[..., None]
        cov = cov - gain[..., :, None] * along[..., None, :]
        offs.append(off)
        spreads.append(spread)
    return mean, cov, offs, spreads


def _log_normal(off: torch.Tensor, spread: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
    """Return the sum over the last axis of log N(off; 0, spread) where it is seen."""
    each = off**2 / spread + torch.log(spread) + LOG_2PI
    return -0.5 * (seen * each).sum(-1)


# Any other state: a particle filter.


@dataclass(frozen=True, eq=False)
class Particles:
    """A bootstrap filter: particles move by the step, are weighted by S, and resampled if need be.

    count : particles of each draw. Systematic resampling wherever the effective number falls under
    half of them. Its error is of the order of 1 / sqrt(count).
    """

    program: Program
    p: Any
    draws: int
    count: int

    def start(self, series: int) -> StateBelief:
        """Particles of z_0, weighted alike."""
        shape = (self.draws, series, self.count)
        return StateBelief(self.program.start(self.p, shape).value, torch.zeros(shape))

    def go(
        self, belief: StateBelief, rows: StepRows, columns: Sequence[str]
    ) -> tuple[list[StateBelief], torch.Tensor]:
        """See :class:`Filter`; log p(y) is an estimate, unbiased on the natural scale."""
        z, log = belief
        shape = tuple(log.shape)
        out, total = [], torch.zeros(shape[:2])
        for t in range(rows.y.shape[1]):
            z, log = resampled(z, log)
            before = torch.logsumexp(log, -1)
            seen = self.program.run(self.p, z, rows.past[:, t, None], shape=shape)
            _refuse_explosion(self.program, z, seen.value, rows.past[:, t])
            z = seen.value
            for j, name in enumerate(columns):
                log = log + _weigh(seen.columns[name], rows.y[:, t, j, None])
            self._refuse_zero(log, rows.y[:, t], columns)
            total = total + torch.logsumexp(log, -1) - before
            out.append(StateBelief(z, log))
        return out, total

    def reveal(self, belief: StateBelief, past: torch.Tensor, w: torch.Tensor) -> StateBelief:
        """See :class:`Filter`."""
        z, log = belief
        seen = self.program.run(self.p, z, past[:, None], value=z)
        for j, name in enumerate(self.program.w_names):
            log = log + _weigh(seen.columns[name], w[:, j, None])
        self._refuse_zero(log, w, self.program.w_names)
        return StateBelief(z, log)

    def answer(self, belief: StateBelief, past: torch.Tensor) -> Answer:
        """See :class:`Filter`."""
        z, log = belief
        seen = self.program.run(self.p, z, past[:, None], value=z)
        weight = torch.log_softmax(log, -1)
        columns = [seen.columns[name] for name in self.program.w_names]
        return Answer(weight, columns, self.program.values)

    def refuse_lost(self, before: StateBelief, after: StateBelief, rows: StepRows) -> None:
        """See :class:`Filter`; ``go`` has looked already."""

    def _refuse_zero(self, log: torch.Tensor, y: torch.Tensor, columns: Sequence[str]) -> None:
        never = torch.isneginf(log.amax(-1))
        if never.any():
            what = f"all {self.count} particles have weight zero"
            _refuse_zero(self.program, what, never, y, columns)


# What is left of a state where a row, or the program, leaves nothing of it.

VALUES = "all values of the state have weight zero"


def _refuse_zero(
    program: Program, what: str, never: torch.Tensor, y: torch.Tensor, columns: Sequence[str]
) -> None:
    """Say which values no state can have; never (draw, series), y (series, columns)."""
    series = int(torch.nonzero(never)[0, 1])
    seen = {n: float(v) for n, v in zip(columns, y[series], strict=True) if v == v}
    raise ConvergenceError(
        f"{program.label}: {what}: the program holds {seen} to be impossible whatever the state; "
        "widen the noise of these columns (a Student-t, a larger scale, a support that holds the "
        "value), or that of the state."
    )


def _refuse_explosion(
    program: Program, before: torch.Tensor, after: torch.Tensor, past: torch.Tensor
) -> None:
    """Refuse a state that is infinite, or is lost although all that it depends on is there.

    before, after : (draw, series, ...), what is known of it. past : (series, memory, s_dim).
    """
    if torch.isfinite(after).all():
        return
    seen = past.clone()
    seen[..., -1, program.sampled_at] = 0.0  # hidden from the step in any case
    whole = ~torch.isnan(seen).flatten(1).any(-1)
    kept = torch.isfinite(before).flatten(2).all(-1) & whole
    lost = torch.isnan(after).flatten(2).any(-1) & kept
    if torch.isinf(after).any() or lost.any():
        raise ModelError(
            f"{program.label}: the state 'z' explodes: it is no longer finite, at a draw of the "
            "fitted parameters, because more of z is carried on from step to step than its scale "
            "can hold; keep what stays of it within -1 and 1 (Beta or Uniform priors) or bound it "
            "(torch.tanh), fit again, and let the step widen the noise of z where it must follow "
            "jumps."
        )


def effective(log: torch.Tensor) -> torch.Tensor:
    """Return the effective number of particles, 1 / sum of squared weights, of log (..., n)."""
    weight = torch.softmax(log, -1)
    return 1.0 / (weight**2).sum(-1)


def resampled(z: torch.Tensor, log: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Resample systematically where fewer than half of the particles count; see Particles."""
    count = log.shape[-1]
    poor = effective(log) < 0.5 * count
    if not poor.any():
        return z, log
    index = systematic(log, count)
    index = torch.where(poor[..., None], index, torch.arange(count))
    wide = index.reshape(*index.shape, *(1,) * (z.dim() - log.dim())).expand_as(z)
    return torch.gather(z, log.dim() - 1, wide), torch.where(poor[..., None], 0.0, log)


def systematic(log: torch.Tensor, count: int) -> torch.Tensor:
    """Return the numbers of ``count`` particles, (..., count), drawn with weights log (..., n).

    One uniform number a set: the points (u + i) / count on the cumulated weights.
    """
    edges = torch.cumsum(torch.softmax(log, -1), -1).contiguous()
    points = (torch.rand(*log.shape[:-1], 1) + torch.arange(count)) / count
    return torch.searchsorted(edges, points.contiguous()).clamp(max=log.shape[-1] - 1)


def make_filter(program: Program, p: Any, draws: int, state: str, particles: int) -> Filter:
    """Return the filter that suits the state: "discrete", "gaussian" or "particles"."""
    if state == "discrete":
        return Forward(program, p, draws)
    return (
        Kalman(program, p, draws)
        if state == "gaussian"
        else Particles(program, p, draws, particles)
    )


# The archive as one term of a model that every engine can fit.


class Blocked(NamedTuple):
    """Rows of a block of units ready for gradients: nothing is NaN, ``seen`` says what counts."""

    rows: StepRows
    seen: torch.Tensor


def ready(program: Program, p: Any, rows: StepRows, units: Sequence[str]) -> Blocked:
    """Fill what is not seen with harmless values, and say which values are weighted on.

    A gradient through a NaN is NaN, even where the value is masked. A column whose law is NaN at a
    row, because an S it depends on is not seen, is not weighted on there; a state that would be
    NaN is refused. p : one draw of the parameters.
    """
    past, y = rows
    series, time = y.shape[:2]
    columns = (*program.sampled, *program.w_names)
    flat = past.reshape(-1, 1, *past.shape[2:])
    z = program.start(p, (1, series * time, 1)).value
    seen_now = program.run(p, z, flat, shape=(1, series * time, 1))
    lost = torch.isnan(seen_now.value.double()).reshape(series, time, -1).any(-1)
    if lost.any():
        unit, row = (int(v) for v in torch.nonzero(lost)[0])
        raise DataError(
            f"{program.label}: the state is lost at step {row} of unit {units[unit]!r}: the next z "
            "depends on an S that is not seen there (a gap, or the rows before the first). Let the "
            "step sample that column, or put in what it should be, torch.nan_to_num(s_past)."
        )
    some = {}
    for j in range(len(columns)):
        known = y[..., j][~torch.isnan(y[..., j])]
        some[j] = known[0] if len(known) else torch.zeros(())
    answered = torch.ones_like(y, dtype=torch.bool)
    filled = torch.stack(
        [torch.where(torch.isnan(y[..., j]), v, y[..., j]) for j, v in some.items()], -1
    )
    for j, name in enumerate(columns):
        law = seen_now.columns[name].log_prob(filled[..., j].reshape(-1, 1))
        answered[..., j] = ~torch.isnan(law).expand(1, series * time, 1).reshape(series, time)
    short = (~answered).any(-1)[..., None, None] & torch.isnan(past)
    hidden = torch.zeros_like(past, dtype=torch.bool)
    hidden[..., -1, program.sampled_at] = True
    safe = torch.where(short | hidden, torch.zeros(()), past)
    return Blocked(StepRows(safe, filled), answered & ~torch.isnan(y))


def marginal(program: Program, p: Any, state: str, blocks: Sequence[Blocked]) -> torch.Tensor:
    """Return log p(archive | p), the states summed or integrated out exactly."""
    columns = (*program.sampled, *program.w_names)
    total = torch.zeros(())
    for block in blocks:
        series = len(block.seen)
        if state == "discrete":
            forward = Forward(program, p, 1, block.seen)
            total = total + forward.go(forward.start(series), block.rows, columns)[1].sum()
        else:
            kalman = Kalman(program, p, 1)
            y = torch.where(block.seen, block.rows.y, torch.full((), float("nan")))
            rows = StepRows(block.rows.past, y)
            total = total + kalman.go(kalman.start(series), rows, columns)[1].sum()
    return total


def joint(
    program: Program, p: Any, block: Blocked, path: Callable[[tuple[int, ...], Any], Any]
) -> torch.Tensor:
    """Return log p(archive, states | p) of a block at states that ``path`` gives.

    path(shape, support) : unconstrained numbers (1, series, time + 1, ...) of the states, the one
    before the first row included; they are mapped to the support, the Jacobian counted.
    """
    series, time = block.seen.shape[:2]
    start = program.start(p).state
    u = path((1, series, time + 1, *program.z_shape), start.support)
    to = biject_to(start.support)
    z = to(u)
    jacobian = to.log_abs_det_jacobian(u, z).sum()
    flat = (1, series * time, 1, *program.z_shape)
    before, after = z[:, :, :-1].reshape(flat), z[:, :, 1:].reshape(flat)
    past = block.rows.past.reshape(-1, 1, *block.rows.past.shape[2:])
    seen = program.run(p, before, past, value=after)
    log = start.log_prob(z[:, :, :1]).expand(1, series, 1).sum() + jacobian
    log = log + seen.state.log_prob(after).expand(1, series * time, 1).sum()
    y, counts = (v.reshape(series * time, -1) for v in (block.rows.y, block.seen))
    for j, name in enumerate((*program.sampled, *program.w_names)):
        weight = seen.columns[name].log_prob(y[:, j, None])
        log = log + torch.where(counts[:, j, None], weight, 0.0).sum()
    return log


def archive_model(
    program: Program, names: Sequence[str], state: str, blocks: Sequence[Blocked]
) -> Callable[[], None]:
    """Return a Pyro model of the global sites alone, for every engine.

    names : the global sites. The states are summed or integrated out; where neither is possible
    they are sites "path0", "path1", ... of their own, one for each block of units.
    """

    def model() -> None:
        nodes = poutine.trace(program.prior).get_trace().nodes
        p = program.parameters({name: nodes[name]["value"][None] for name in names})
        if state != "particles":
            pyro.factor("archive", marginal(program, p, state, blocks))
            return
        for b, block in enumerate(blocks):
            pyro.factor(f"archive{b}", joint(program, p, block, partial(_path, b)))

    return model


def _path(b: int, shape: tuple[int, ...], support: Any) -> Any:
    if support.is_discrete:
        raise ModelError(
            "a discrete state without a finite list of values can be filtered but not fitted; "
            "bound it (a Categorical), or make it continuous."
        )
    flat = dist.Normal(torch.zeros(shape), 1.0).to_event(len(shape)).mask(False)
    return pyro.sample(f"path{b}", flat)
