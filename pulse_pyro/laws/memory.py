"""What a law leaves of W may persist: levels of units, and noise that fades from step to step.

With u_t = W_t - mu_hat(S_1:t) of one unit, (w_dim,),

    u_t = level + v_t,    v_t = keep v_{t-1} + N(0, shock),    level ~ N(0, level covariance),

keep one number for each W, v_1 stationary, units independent. The archive shows W, so it teaches
all of this by maximum likelihood. Rows are conditioned on the one before: n steps after u_k (a gap
of n - 1 steps) and given the level, with D_n = keep^n and F_n = I - D_n,

    u_l = F_n level + D_n u_k + N(0, Q_n),    (Q_n)_ij = shock_ij (1 - (k_i k_j)^n) / (1 - k_i k_j),

and D = 0, F = I, Q = Q_inf at a unit's first row. The level is integrated out: with
A = sum F'Q^-1 F and b = sum F'Q^-1 (u_l - D u_k) over a unit's rows, V = (level cov^-1 + A)^-1,

    log p(unit) = sum log N(u_l; D u_k, Q) - 1/2 log det(I + level cov A) + 1/2 b'V b.

Sums of squares by gap, and sums by unit and gap, are all it needs of the rows: they are taken once,
and an evaluation with its gradient costs as much as there are units, not rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from scipy import optimize

from pulse_pyro._core.arrays import Float, Float1, Float2, Float3, Int
from pulse_pyro._core.errors import ConvergenceError, DataError, SettingError, nearest

MemoryKind = Literal["ar", "level", "level+ar"]
KINDS: tuple[MemoryKind, ...] = ("ar", "level", "level+ar")
FARTHEST = 6.0  # of arctanh(keep): up to .99999, which no archive tells from a level
LOG_2PI = float(np.log(2.0 * np.pi))
SMALL = 1e-10  # share of a column's own variance that counts as none


@dataclass(frozen=True, eq=False)
class Memory:
    """What a law leaves of W, as a sum of parts that persist; m = parts * w_dim.

    u_t = W_t - mu_hat(S_1:t) = sum over parts of z_t,    z_t = keep z_{t-1} + N(0, shock).

    Attributes
    ----------
    kind : "ar": z is u itself. "level": each unit's own level (keep 1, no shock), then white noise
        (keep 0). "level+ar": level, then noise that fades.
    keep : (m,) what stays of each z from one step to the next.
    shock : (m, m) covariance of what is added at each step.
    start : (m, m) covariance of z at a unit's first row.
    rows, units : how many taught it.
    log_likelihood, memoryless : of the residuals under it, and under independent normal rows of
        mean 0; the former is never smaller, since independent rows are a special case.

    No ball is valid once residuals have memory, with or without a filter (GUARD 5): a radius that
    was calibrated for the law's mean is a heuristic then. Only where ``serial`` is quiet about
    what the filter leaves may that label be lifted, for the target E[Phi | S_1:t, past rewards].

    Not covered: memory of other shapes (seasons, longer lags, one W driving another through keep),
    noise that changes with S, how unsure keep and the covariances are.
    """

    kind: MemoryKind
    keep: Float1
    shock: Float2
    start: Float2
    rows: int
    units: int
    log_likelihood: float
    memoryless: float

    def __post_init__(self) -> None:
        known_kind(self.kind, "Memory")
        m, parts = np.size(self.keep), 1 if self.kind == "ar" else 2
        for name, shape in (("keep", (m,)), ("shock", (m, m)), ("start", (m, m))):
            value = np.array(getattr(self, name), np.float64)
            if value.shape != shape or m % parts or not m or not np.isfinite(value).all():
                raise SettingError(
                    f"Memory: {name} of kind {self.kind!r} must be {shape} finite numbers, "
                    f"{parts} for each W, but got shape {value.shape}."
                )
            value.flags.writeable = False
            object.__setattr__(self, name, value)
        if (np.abs(self.keep) > 1.0).any():
            raise SettingError(f"Memory: keep must lie within -1 and 1, but got {self.keep}.")

    @property
    def arrays(self) -> tuple[Float1, Float2, Float2]:
        """keep, shock and start: all that a filter needs."""
        return self.keep, self.shock, self.start

    @property
    def parts(self) -> int:
        """How many z make up what is left of one W: 1 or 2."""
        return 1 if self.kind == "ar" else 2

    @property
    def w_dim(self) -> int:
        """Columns of W."""
        return len(self.keep) // self.parts

    @property
    def left(self) -> Float2:
        """(w_dim, w_dim) covariance of what one-step prediction leaves of W in the long run.

        That is where W is seen at every step: levels are known by then, the last part's shock is
        left.
        """
        out: Float2 = self.shock[-self.w_dim :, -self.w_dim :]
        return out

    @property
    def variance(self) -> Float2:
        """(w_dim, w_dim) covariance of what the law leaves, at a row of a unit nothing is known of.

        The same at all its rows.
        """
        return self.level + self.start[-self.w_dim :, -self.w_dim :]

    @property
    def level(self) -> Float2:
        """(w_dim, w_dim) covariance of units' levels, zeros without any."""
        q = self.w_dim
        return np.zeros((q, q)) if self.kind == "ar" else self.start[:q, :q].copy()

    def innovations(self, residual: Float2, unit: Int, step: Int) -> Float2:
        """Return what is left of residuals once each is predicted from the unit's earlier ones.

        Parameters
        ----------
        residual : (n, w_dim) W minus the law's mean; a row with a NaN is a gap, and NaN is returned
            for it.
        unit, step : (n,) where the rows stand, in order of unit and step.

        W is taken as seen at every row before; online, where rewards tell of it, more is left.
        """
        return innovations_and_covariances(self, residual, unit, step)[0]

    def __repr__(self) -> str:
        fading = self.keep[-self.w_dim :]
        gain = (self.log_likelihood - self.memoryless) / self.rows
        words = []
        if self.kind != "ar":
            share = np.diag(self.level) / np.diag(self.variance)
            words.append(f"units differ in level ({_shares(share)} of its variance)")
        if self.kind != "level":
            words.append(f"it has lag-1 memory {_numbers(fading)}")
        left, total = np.sqrt(np.diag(self.left)), np.sqrt(np.diag(self.variance))
        return (
            f"Memory {self.kind!r}: of what the law leaves of W, {' and '.join(words)}\n"
            f"  sd {_numbers(total)}, and {_numbers(left)} once earlier W are known\n"
            f"  {self.rows} rows of {self.units} units; log likelihood {gain:+.3g} a row against "
            "none\n  no ball is valid where residuals have memory: ask serial what the filter "
            "leaves"
        )


def _numbers(values: Float1) -> str:
    return ", ".join(f"{value:.3g}" for value in values)


def _shares(values: Float1) -> str:
    return ", ".join(f"{100 * value:.0f} %" for value in values)


def known_kind(kind: object, where: str) -> MemoryKind:
    """Return a kind of memory, or say which there are."""
    for known in KINDS:
        if kind == known:
            return known
    raise SettingError(f"{where}: there is no memory of kind {kind!r}{nearest(str(kind), KINDS)}")


# Rows as the likelihood wants them: each with the one before it, and sums of those alike.


class Steps(NamedTuple):
    """Rows that count, n of them, each with the one before it in its unit.

    at : (n,) which of the rows handed in. now, before : (n, w_dim), before is 0 at first rows. gap
    : (n,) steps since the row before, 0 at first rows. unit : (n,) 0, 1, ... without gaps.
    """

    at: Int
    now: Float2
    before: Float2
    gap: Int
    unit: Int


def steps_of(residual: Float2, unit: Int, step: Int) -> Steps:
    """Pair the complete rows of residual (n, w_dim) with those before; see Memory.innovations."""
    at = np.flatnonzero(np.isfinite(residual).all(-1))
    now, whose = residual[at], np.unique(unit[at], return_inverse=True)[1]
    first = np.diff(whose, prepend=-1) != 0
    gap = np.where(first, 0, np.diff(step[at], prepend=0))
    before = np.zeros_like(now)
    before[1:] = now[:-1]
    before[first] = 0.0
    return Steps(at, now, before, gap, whose)


class Sums(NamedTuple):
    """All that the likelihood needs of the rows.

    Attributes
    ----------
    gap : (g,) the gaps there are, 0 for first rows. rows_of_gap : (g,) rows of each.
    now, cross, before : (g, w_dim, w_dim) sums of u_l u_l', u_l u_k' and u_k u_k' of each gap.
    code, unit : (p,) which gap and which unit each pair of both is, in order of unit; rows :
        (p,) how many, now_of, before_of : (p, w_dim) sums of u_l and u_k.
    by_gap : (p,) the pairs in order of gap. first_of_unit, first_of_gap : where each begins.
    """

    gap: Int
    rows_of_gap: Float1
    now: Float3
    cross: Float3
    before: Float3
    code: Int
    rows: Float1
    now_of: Float2
    before_of: Float2
    by_gap: Int
    first_of_unit: Int
    first_of_gap: Int
    unit: Int


def sums_of(steps: Steps) -> Sums:
    """Sum products by gap, and values by unit and gap."""
    gap, code = np.unique(steps.gap, return_inverse=True)
    order = np.argsort(code, kind="stable")
    start = _starts(code[order])
    now, before = steps.now[order], steps.before[order]

    def products(one: Float2, two: Float2) -> Float3:
        parts = zip(np.split(one, start[1:]), np.split(two, start[1:]), strict=True)
        return np.stack([a.T @ b for a, b in parts])

    pair, which = np.unique(steps.unit * len(gap) + code, return_inverse=True)
    by_pair = np.argsort(which, kind="stable")
    begin = _starts(which[by_pair])
    code_of, unit_of = pair % len(gap), pair // len(gap)
    by_gap = np.argsort(code_of, kind="stable")
    return Sums(
        gap=gap,
        rows_of_gap=np.bincount(code).astype(np.float64),
        now=products(now, now),
        cross=products(now, before),
        before=products(before, before),
        code=code_of,
        rows=np.bincount(which).astype(np.float64),
        now_of=np.add.reduceat(steps.now[by_pair], begin),
        before_of=np.add.reduceat(steps.before[by_pair], begin),
        by_gap=by_gap,
        first_of_unit=_starts(unit_of),
        first_of_gap=_starts(code_of[by_gap]),
        unit=unit_of,
    )


def _starts(code: Int) -> Int:
    """Return where each value of a sorted (n,) begins."""
    return np.flatnonzero(np.diff(code, prepend=-1))


# The likelihood with its gradient, in closed form.


class Moves(NamedTuple):
    """How u goes on over each gap: D (g, q) and its slope in keep, Q / shock (g, q, q) and its.

    spread_slope : of Q / shock in the product k_i k_j.
    """

    fade: Float2
    fade_slope: Float2
    spread: Float3
    spread_slope: Float3


def moves(keep: Float1, gap: Int) -> Moves:
    """Return D_n and Q_n / shock for gaps (g,), 0 : a first row, D = 0 and Q stationary."""
    n, first = gap[:, None].astype(np.float64), gap[:, None] == 0
    fade = np.where(first, 0.0, keep**n)
    fade_slope = np.where(first, 0.0, n * keep ** np.maximum(n - 1.0, 0.0))
    product = np.outer(keep, keep)
    n3, first3 = n[..., None], first[..., None]
    power = np.where(first3, 0.0, product**n3)
    power_slope = np.where(first3, 0.0, n3 * product ** np.maximum(n3 - 1.0, 0.0))
    rest = 1.0 - product
    spread = (1.0 - power) / rest
    return Moves(fade, fade_slope, spread, (spread - power_slope) / rest)


class Likelihood(NamedTuple):
    """A log likelihood and its gradients: keep (q,), shock (q, q) and root (q, q) of the level."""

    value: float
    keep: Float1
    shock: Float2
    root: Float2


def likelihood(sums: Sums, keep: Float1, shock: Float2, root: Float2) -> Likelihood:
    """Return log p of all rows; the level's covariance is root root', zeros for none."""
    fade, fade_slope, spread, spread_slope = moves(keep, sums.gap)
    q, eye = len(keep), np.eye(len(keep))
    noise = shock * spread
    precise = np.linalg.inv(noise)
    down = fade[:, :, None]  # D as a column: D X is down * X
    across = fade[:, None, :]
    rest = eye - down * eye
    squares = sums.now - sums.cross * across - down * np.swapaxes(sums.cross, 1, 2)
    squares = squares + down * sums.before * across
    logdet = np.linalg.slogdet(noise)[1]
    total = float((sums.rows_of_gap * (q * LOG_2PI + logdet)).sum() + (precise * squares).sum())
    value = -0.5 * total
    wrt_precise = 0.5 * (sums.rows_of_gap[:, None, None] * noise - squares)
    wrt_fade = _diagonal(precise @ (sums.cross - down * sums.before))

    # the level of every unit: what its rows tell of it
    own = rest @ precise
    ahead = sums.now_of - fade[sums.code] * sums.before_of
    tell = _by_unit(sums, sums.rows[:, None, None] * (own @ rest)[sums.code])
    lean = _by_unit(sums, np.einsum("pij,pj->pi", own[sums.code], ahead))
    inner = eye + root.T @ tell @ root
    open_level = root @ np.linalg.solve(inner, np.broadcast_to(root.T, inner.shape))
    level = np.einsum("uij,uj->ui", open_level, lean)
    value += 0.5 * float((lean * level).sum() - np.linalg.slogdet(inner)[1].sum())

    wrt_tell = -0.5 * (open_level + level[:, :, None] * level[:, None, :])
    told = _by_gap(sums, sums.rows[:, None, None] * wrt_tell[sums.unit])
    at = level[sums.unit][:, :, None]
    with_ahead = _by_gap(sums, at * ahead[:, None, :])
    with_before = _by_gap(sums, at * sums.before_of[:, None, :])
    moved = rest @ with_ahead
    wrt_precise += rest @ told @ rest + 0.5 * (moved + np.swapaxes(moved, 1, 2))
    wrt_fade -= 2.0 * _diagonal(precise @ rest @ told) + _diagonal(with_ahead @ precise)
    wrt_fade -= _diagonal(own.swapaxes(1, 2) @ with_before)
    short = lean - np.einsum("uij,uj->ui", tell, level)
    wrt_level = 0.5 * (short.T @ short - (tell - tell @ open_level @ tell).sum(0))

    wrt_noise = -precise @ wrt_precise @ precise
    wrt_keep = (wrt_fade * fade_slope).sum(0)
    wrt_keep = wrt_keep + 2.0 * ((wrt_noise * spread_slope).sum(0) * shock) @ keep
    return Likelihood(value, wrt_keep, (wrt_noise * spread).sum(0), 2.0 * wrt_level @ root)


def _diagonal(matrices: Float3) -> Float2:
    out: Float2 = np.diagonal(matrices, axis1=1, axis2=2).copy()
    return out


def _by_unit(sums: Sums, values: Float) -> Float:
    return np.add.reduceat(values, sums.first_of_unit)


def _by_gap(sums: Sums, values: Float) -> Float:
    return np.add.reduceat(values[sums.by_gap], sums.first_of_gap)


# Maximum likelihood: keep as tanh, covariances by Cholesky factors with logarithms on the diagonal.


class Shape(NamedTuple):
    """Which numbers a kind of memory is made of, for q columns of W."""

    kind: MemoryKind
    q: int

    def parameters(self, numbers: Float1) -> tuple[Float1, Float2, Float2]:
        """Return keep (q,), the root of the shock and that of the level, (q, q) each."""
        q, size = self.q, self.q * (self.q + 1) // 2
        keep, level = np.zeros(q), np.zeros((q, q))
        if self.kind != "level":
            keep, numbers = np.tanh(numbers[:q]), numbers[q:]
        if self.kind != "ar":
            level = _triangle(numbers[size:], q)
        return keep, _triangle(numbers[:size], q), level

    def slopes(self, numbers: Float1, found: Likelihood) -> Float1:
        """Return the gradient in the numbers."""
        keep, shock, level = self.parameters(numbers)
        parts = [] if self.kind == "level" else [found.keep * (1.0 - keep**2)]
        parts.append(_triangle_slope(2.0 * found.shock @ shock, shock))
        if self.kind != "ar":
            parts.append(_triangle_slope(found.root, level))
        return np.concatenate(parts)

    def numbers(self, keep: Float1, shock: Float2, level: Float2) -> Float1:
        """Return the numbers of keep and of covariances."""
        parts = [] if self.kind == "level" else [np.arctanh(keep)]
        parts.append(_numbers_of(shock))
        if self.kind != "ar":
            parts.append(_numbers_of(level))
        return np.concatenate(parts)

    @property
    def bounds(self) -> list[tuple[float, float]]:
        """What each number is kept within; units of W are standardised."""
        log, any_number = (-14.0, 5.0), (-100.0, 100.0)
        triangle = [log if i == j else any_number for i in range(self.q) for j in range(i + 1)]
        keep = [] if self.kind == "level" else [(-FARTHEST, FARTHEST)] * self.q
        return keep + triangle + ([] if self.kind == "ar" else triangle)


def _triangle(numbers: Float1, q: int) -> Float2:
    out = np.zeros((q, q))
    out[np.tril_indices(q)] = numbers
    out[np.diag_indices(q)] = np.exp(np.diag(out))
    return out


def _triangle_slope(slope: Float2, root: Float2) -> Float1:
    """Return d/d numbers from d/d root."""
    out = slope.copy()
    out[np.diag_indices(len(root))] *= np.diag(root)
    picked: Float1 = out[np.tril_indices(len(root))]
    return picked


def _numbers_of(covariance: Float2) -> Float1:
    out: Float2 = np.linalg.cholesky(covariance).astype(np.float64)
    root = out.copy()
    out[np.diag_indices(len(root))] = np.log(np.diag(root))
    picked: Float1 = out[np.tril_indices(len(root))]
    return picked


def fit_memory(
    residual: Float2, unit: Int, step: Int, kind: MemoryKind, where: str = "fit_memory"
) -> Memory:
    """Return the memory of residuals by maximum likelihood, for any number of rows a unit.

    Parameters
    ----------
    residual : (n, w_dim) W minus the law's mean. A row that has a NaN is a gap: what else it may
        hold is not used.
    unit, step : (n,) where the rows stand, in order of unit and step; steps without a row count.
    kind : "ar", "level" or "level+ar".
    where : for messages.

    Not covered: a mean of the residuals other than 0 (units' levels are around 0), local maxima of
    "level+ar" other than those reached from two starts.
    """
    kind = known_kind(kind, where)
    steps = steps_of(residual, unit, step)
    scale = _usable(residual, steps, kind, where)
    standard = steps._replace(now=steps.now / scale, before=steps.before / scale)
    sums, shape = sums_of(standard), Shape(kind, residual.shape[1])
    n = len(steps.at)

    def cost(numbers: Float1) -> tuple[float, Float1]:
        keep, shock, level = shape.parameters(numbers)
        found = likelihood(sums, keep, shock @ shock.T, level)
        return -found.value / n, -shape.slopes(numbers, found) / n

    found = [
        optimize.minimize(
            cost,
            start,
            jac=True,
            method="L-BFGS-B",
            bounds=shape.bounds,
            options={"maxiter": 2000, "ftol": 1e-13, "gtol": 1e-8},
        )
        for start in _first_guesses(standard, shape)
    ]
    best = min(found, key=lambda result: float(result.fun))
    if not np.isfinite(best.fun):
        raise ConvergenceError(
            f"{where}: the likelihood of memory {kind!r} is not finite; are columns of W copies of "
            "each other? Leave one out."
        )
    keep, shock, level = shape.parameters(best.x)
    units = np.outer(scale, scale)
    shift = float(n * np.log(scale).sum())  # back to the units of W
    return _memory(
        kind,
        keep,
        shock @ shock.T * units,
        level @ level.T * units,
        rows=n,
        units=int(steps.unit[-1]) + 1,
        log_likelihood=-float(best.fun) * n - shift,
        memoryless=_memoryless(standard.now) - shift,
    )


def _memory(
    kind: MemoryKind,
    keep: Float1,
    shock: Float2,
    level: Float2,
    *,
    rows: int,
    units: int,
    log_likelihood: float,
    memoryless: float,
) -> Memory:
    """Return a memory with its level, if it has one, as the first part."""
    start = shock / (1.0 - np.outer(keep, keep))
    if kind != "ar":
        none = np.zeros_like(shock)
        keep = np.concatenate([np.ones_like(keep), keep])
        shock, start = (
            np.block([[a, none], [none, b]]) for a, b in ((none, shock), (level, start))
        )
    return Memory(kind, keep, shock, start, rows, units, log_likelihood, memoryless)


def _first_guesses(steps: Steps, shape: Shape) -> list[Float1]:
    """Return where to begin: the correlation of neighbours for "ar", else two ways to share it."""
    spread = steps.now.T @ steps.now / len(steps.now)
    q = shape.q
    spread = 0.9 * spread + 0.1 * np.diag(np.diag(spread))  # away from the singular
    next_to = steps.gap == 1 if (steps.gap == 1).any() else steps.gap > 0
    now, before = steps.now[next_to], steps.before[next_to]
    alike = (now * before).mean(0) / np.sqrt((now**2).mean(0) * (before**2).mean(0) + 1e-300)
    alike = np.clip(alike, -0.98, 0.98)
    if shape.kind == "ar":
        ways = [(alike, 0.0)]
    elif shape.kind == "level":
        ways = [(np.zeros(q), float(np.clip(alike.mean(), 0.05, 0.95)))]
    else:
        ways = [(np.clip(alike, -0.9, 0.9), 0.1), (0.3 * alike, 0.5)]
    return [
        shape.numbers(
            keep,
            (1.0 - share) * spread * (1.0 - np.outer(keep, keep)),
            max(share, 1e-6) * spread,
        )
        for keep, share in ways
    ]


def _memoryless(now: Float2) -> float:
    """Return the log likelihood of independent rows N(0, their mean square)."""
    n, q = now.shape
    logdet = float(np.linalg.slogdet(now.T @ now / n)[1])
    return float(-0.5 * n * (q * LOG_2PI + q + logdet))


def _usable(residual: Float2, steps: Steps, kind: MemoryKind, where: str) -> Float1:
    """Return the root mean square of each column, or say why there is nothing to be learned."""
    if not len(steps.at):
        raise DataError(
            f"{where}: memory {kind!r} was asked of {len(residual)} rows, but at none of them are "
            "W and all the law looks at known; look for NaN in W, or use fewer lags."
        )
    units = int(steps.unit[-1]) + 1
    if not (steps.gap > 0).any():
        raise DataError(
            f"{where}: memory {kind!r} was asked of {units} units of one usable row each, and one "
            "row tells nothing of the next; use units of two rows or more, or no memory."
        )
    if kind != "ar" and units < 2:
        raise DataError(
            f"{where}: memory {kind!r} was asked of one unit, but how levels of units vary takes "
            "two units at least, and better twenty; use 'ar'."
        )
    scale: Float1 = np.sqrt((steps.now**2).mean(0))
    away = np.abs(steps.now).max(0)
    if (away <= 0.0).any():
        raise DataError(
            f"{where}: memory {kind!r} was asked of residuals that are all 0 in column "
            f"{int(np.flatnonzero(away <= 0.0)[0])} of W: the law repeats its archive, or W does "
            "not vary; teach the memory by units the law was not fitted on, or drop the column."
        )
    standard = steps.now / scale
    least = float(np.linalg.eigvalsh(standard.T @ standard / len(standard))[0])
    constant = np.flatnonzero(standard.std(0) <= SMALL**0.5)
    if least <= SMALL or len(constant):
        what = f"do not vary in column {constant[0]}" if len(constant) else "repeat each other"
        raise DataError(
            f"{where}: memory {kind!r} was asked of residuals whose columns of W {what}; leave "
            "out a column that is determined by the others, or that does not vary around the law."
        )
    return scale


# What is left once each row is predicted from those before.


def innovations_and_covariances(
    memory: Memory, residual: Float2, unit: Int, step: Int
) -> tuple[Float2, Float3]:
    """Return what one-step prediction leaves, (n, w_dim), and its covariance (n, w_dim, w_dim).

    See :meth:`Memory.innovations`. The level is known as well as a unit's earlier rows tell it.
    """
    q = memory.w_dim
    values = np.asarray(residual, np.float64)
    if values.shape != (len(unit), q) or len(unit) != len(step):
        raise DataError(
            f"Memory: residual must be (n, {q}) with unit and step (n,), but got "
            f"{values.shape}, {np.shape(unit)} and {np.shape(step)}."
        )
    left, cov = np.full(values.shape, np.nan), np.full((len(values), q, q), np.nan)
    steps = steps_of(values, np.asarray(unit), np.asarray(step))
    if not len(steps.at):
        return left, cov
    gap, code = np.unique(steps.gap, return_inverse=True)
    move = moves(memory.keep[-q:], gap)
    noise = memory.left * move.spread
    rest = np.eye(q) - move.fade[:, :, None] * np.eye(q)
    own = rest @ np.linalg.inv(noise)
    ahead = steps.now - move.fade[code] * steps.before
    tell = _so_far((own @ rest)[code], steps.gap == 0)
    lean = _so_far(np.einsum("nij,nj->ni", own[code], ahead), steps.gap == 0)
    # (I + level A)^-1 level, which needs no inverse of the level's covariance
    level = memory.level
    open_level = np.linalg.solve(np.eye(q) + level @ tell, np.broadcast_to(level, tell.shape))
    known = np.einsum("nij,nj->ni", open_level, lean)
    left[steps.at] = ahead - np.einsum("nij,nj->ni", rest[code], known)
    cov[steps.at] = noise[code] + rest[code] @ open_level @ rest[code]
    return left, cov


def _so_far(values: Float, first: Float1) -> Float:
    """Return sums over the rows before each within its unit; rows where ``first`` begin one."""
    before = np.cumsum(values, axis=0) - values
    start = np.flatnonzero(first)
    out: Float = before - np.repeat(before[start], np.diff(np.append(start, len(values))), axis=0)
    return out
