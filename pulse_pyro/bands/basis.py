"""Bands for an estimate that is linear in a finite basis: linear lags, sums of splines."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

import numpy as np
from scipy import linalg, sparse

from pulse_pyro._core.arrays import Bool, Float1, Float2, Float3, Float4, Int
from pulse_pyro._core.errors import DataError, SettingError
from pulse_pyro.bands import critical
from pulse_pyro.bands.band import Band, BandFit, BandMethod, BandShape, Sample, Values, consecutive
from pulse_pyro.bands.bins import MOST_ROWS, SKEWED
from pulse_pyro.bands.curve import WILD
from pulse_pyro.bands.dependence import choose_noise

Design: TypeAlias = Float2 | sparse.csr_array  # (n, K): splines of several inputs are mostly 0
BLOCK = 2_000_000  # numbers held at a time
PROBES = 100  # rows at which the local sample size is looked at
RESAMPLED = 500  # points a studentised bootstrap is run over
STEPS = 3_000_000_000  # multiplications it may take
STUDENTISED = ", critical value by bootstrap t"
EASY = 0.8  # leverage of a unit up to which its residuals are found by iteration
HIGHEST = 0.95  # leverage that a row or a unit may have: beyond, its residual says nothing
ALONE = 1e-6  # below 1, from which on a unit decides something alone
CLOSE, STEPS_MOST = 1e-10, 100  # of the largest residual, and steps, of that iteration
SPREADS = (0.25, 4.0)  # of the noise around a row, over its mean


class Basis(Protocol):
    """The functions b(x), and the domain they were fitted on: plain values, so it can be saved."""

    def design(self, x: Float2) -> Float2:
        """Return b(x), (n, K), at x (n, p)."""

    def reach(self, x: Float2) -> tuple[Float2, Bool, Float2]:
        """Return x moved to the domain, inside (n,), and the distance moved (n, p)."""


@dataclass(frozen=True, eq=False)
class BasisShape:
    """centre = b(x)'coef and half = c sqrt(b(x)' V b(x)) for a basis b(x) of length K.

    Attributes
    ----------
    basis : b(x), and where it was fitted.
    coef, cov : (K, q) and (q, K, K).
    critical, beyond : (q,) critical values inside the domain and outside it.
    steep : (p, q) largest slopes inside; outside, the half-width grows by them per distance.
    """

    domain: str
    basis: Basis
    coef: Float2
    cov: Float2
    critical: Float1
    beyond: Float1
    steep: Float2

    def at(self, x: Float2) -> Values:
        """Evaluate at x (n, p)."""
        moved, inside, distance = self.basis.reach(x)
        b = self.basis.design(moved)
        se = np.stack([np.sqrt(np.maximum(((b @ v) * b).sum(1), 0.0)) for v in self.cov], axis=1)
        c = np.where(inside[:, None], self.critical, self.beyond)
        return Values(b @ self.coef, c * se + distance @ self.steep, inside)


@dataclass(frozen=True, eq=False)
class BasisFit:
    """coef_j = inner_j b'y_j on rows b (n, K): what is left, and its robust covariance.

    Attributes
    ----------
    residual, scaled : (n, q) what is left, and what would be if a row (noise "rows") or a unit
        (noise "units") were left out.
    leverage : (n, q). code : (n,) unit of each row, 0 .. units - 1. noise : "rows" or "units".
    cov : (q, K, q, K) of coef. alone : whether one unit by itself decides some combination of
        coefficients, of whose noise nothing is then known.
    """

    b: Design
    inner: tuple[Float2, ...]
    coef: Float2
    residual: Float2
    noise: Literal["rows", "units"]
    cov: Float4
    scaled: Float2 | None = None
    leverage: Float2 | None = None
    code: Int | None = None
    alone: bool = False

    def factor(self, points: Float2) -> Float2:
        """Return F (q m, r) with F F' the covariance of the estimate at b (m, K), all q."""
        q, k = self.coef.shape[1], self.coef.shape[0]
        values, vectors = linalg.eigh(self.cov.reshape(q * k, q * k))
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        return np.concatenate([points @ root[j * k : (j + 1) * k] for j in range(q)])

    @cached_property
    def skewness(self) -> float:
        """|skewness| of the noise over the root of the local sample size, the worst coordinate's.

        The order of the error a normal critical value makes. Residuals are divided by the spread
        around them first; of |skewness| only what exceeds two standard errors counts. The local
        sample size is the median of :meth:`freedom` over some of the rows.
        """
        if self.scaled is None or not len(self.scaled):
            return 0.0
        n = len(self.scaled)
        worst, rows = 0.0, np.unique(np.linspace(0, n - 1, PROBES).astype(np.int64))
        for j in range(self.scaled.shape[1]):
            standard = self.scaled[:, j] / self.spread(j)
            standard = np.clip(standard - standard.mean(), -1e6, 1e6)
            moment = float((standard**3).mean() / (standard**2).mean() ** 1.5)
            sure = max(abs(moment) - 2.0 * np.sqrt(6.0 / n), 0.0)
            if sure > 0:
                local = max(float(np.median(self.freedom(dense(self.b[rows]), j))), 1.0)
                worst = max(worst, sure / np.sqrt(local))
        return worst

    def spread(self, j: int) -> Float1:
        """Return the noise's spread at each row, as the basis follows it, (n,).

        From absolute residuals: of squares a single far row would decide, and hide itself.
        """
        assert self.scaled is not None
        size = np.abs(self.scaled[:, j])
        level = max(float(size.mean()), 1e-300)
        smooth = np.asarray(self.b @ (self.inner[j] @ (self.b.T @ size)))
        rms = float(np.sqrt((size**2).mean()))
        out: Float1 = np.clip(smooth / level, *SPREADS) * rms
        return np.maximum(out, 1e-300)

    def freedom(self, points: Float2, j: int) -> Float1:
        """Satterthwaite degrees of freedom of coordinate j's variance at b (m, K): (m,).

        (sum_g w_g)^2 / sum_g w_g^2, w_g the sum of squared weights l_i(x)^2 over the rows of g: a
        row, or a unit where noise depends within units; less 1 for units.
        """
        assert self.code is not None
        right = points @ self.inner[j]  # (m, K)
        n, units = self.b.shape[0], int(self.code.max()) + 1
        clustered = self.noise == "units" and units < n
        total, fourth = np.zeros(len(points)), np.zeros(len(points))
        by_unit = np.zeros((units, len(points))) if clustered else None
        for at in row_blocks(n, max(self.b.shape[1], len(points))):
            square = np.asarray(self.b[at] @ right.T) ** 2
            total += square.sum(0)
            if by_unit is None:
                fourth += (square**2).sum(0)
            else:
                by_unit += membership(self.code[at], units) @ square
        if by_unit is not None:
            fourth = (by_unit**2).sum(0)
        out: Float1 = total**2 / np.maximum(fourth, 1e-300) - float(self.noise == "units")
        return out


def dense(b: Any) -> Float2:
    """Return a matrix, sparse or not, in full."""
    out: Float2 = np.asarray(b.todense() if hasattr(b, "todense") else b)
    return out


def row_blocks(n: int, width: int) -> list[slice]:
    """Return runs of rows of which so many columns fit into memory."""
    each = max(BLOCK // max(width, 1), 1)
    return [slice(start, min(start + each, n)) for start in range(0, n, each)]


def quadratic(b: Design, inner: Float2) -> Float1:
    """Return b_i' inner b_i of every row of b (n, K): (n,)."""
    if not sparse.issparse(b):
        out: Float1 = ((b @ inner) * b).sum(1)
        return out
    parts = [
        np.asarray(b[at].multiply(np.asarray(b[at] @ inner)).sum(1)).ravel()
        for at in row_blocks(b.shape[0], b.shape[1])
    ]
    return np.concatenate([np.zeros(0), *parts])


def times_rows(b: Design, values: Float1) -> Design:
    """Return b (n, K) with row i times values_i."""
    if sparse.issparse(b):
        return sparse.csr_array(sparse.diags_array(values) @ b)
    out: Float2 = b * values[:, None]
    return out


def membership(code: Int, units: int) -> sparse.csr_array:
    """Return (units, n) with 1 where a row belongs to a unit."""
    n = len(code)
    return sparse.csr_array((np.ones(n), (code, np.arange(n))), shape=(units, n))


def fit_basis(
    b: Design, y: Float2, unit: Int, inner: tuple[Float2, ...], method: BandMethod, free: int
) -> BasisFit:
    """Estimate and its sandwich covariance (q, K, q, K): HC3 by row, or the jackknife over units.

    By unit it is (C - 1)/C sum_c d_c d_c', d_c = coef - coef without unit c = A X_c' u_c, u_c from
    :func:`without_units` (CR3): inputs that are constant within a unit leave rows next to no
    leverage and the unit a lot. ``free`` is the number of coefficients that a cluster variance must
    be able to span.
    """
    coef = np.stack([a @ (b.T @ y[:, j]) for j, a in enumerate(inner)], axis=1)
    residual = y - b @ coef
    if not (np.abs(residual).max(0) > 1e-12 * np.abs(y).max(0)).all():
        raise DataError(
            "bands: a target has no noise around its fit; is it a copy of the summary, or constant?"
        )
    leverage = np.stack([quadratic(b, a).clip(0.0, 1.0) for a in inner], axis=1)
    # a row that decides its own fit leaves no residual to judge it by: the others' size stands in
    scaled = np.where(
        leverage < 0.95, residual / (1.0 - np.minimum(leverage, 0.95)), _rms(residual, leverage)
    )
    noise = choose_noise(residual, unit, method.noise, free)
    q, k = len(inner), b.shape[1]
    cov = np.empty((q, k, q, k))
    code, units = consecutive(unit)
    alone = False
    if noise == "units":
        left_out = [
            without_units(b, a, residual[:, j], leverage[:, j], code) for j, a in enumerate(inner)
        ]
        scaled = np.stack([each.residual for each in left_out], axis=1)
        alone = max(each.most for each in left_out) > 1.0 - ALONE
        member = membership(code, units)
        score = [member @ times_rows(b, e) for e in scaled.T]
    for j in range(q):
        for m in range(j, q):
            if noise == "rows":
                meat = dense(b.T @ times_rows(b, scaled[:, j] * scaled[:, m]))
            else:
                meat = dense(score[j].T @ score[m]) * ((units - 1.0) / units)
            block = inner[j] @ meat @ inner[m].T
            cov[j, :, m], cov[m, :, j] = block, block.T
    return BasisFit(b, inner, coef, residual, noise, cov, scaled, leverage, code, alone)


class WithoutUnits(NamedTuple):
    """Residuals (n,) of fits without the row's own unit, and the largest leverage of any unit."""

    residual: Float1
    most: float


def without_units(
    b: Design, inner: Float2, residual: Float1, leverage: Float1, code: Int
) -> WithoutUnits:
    """Return u_c = (I - H_cc)^-1 e_c for every unit c, H_cc = X_c A X_c'.

    b (n, K) and A = ``inner`` (K, K) symmetric; residual, leverage, code (n,). The leverage of a
    unit is the largest eigenvalue of H_cc, at most the sum of its rows'. Most units' is small, and
    u = e + H_cc u is iterated for all of them at once, O(nK) a step; the few (at most K / .8)
    others are solved one by one, in the smaller of their rows and K. A leverage beyond .95 counts
    as .95, so that nothing is divided by 0: a unit that decides something alone leaves no residual
    of it, and the caller must not speak of it.
    """
    units = int(code.max()) + 1
    hard = np.bincount(code, leverage, units) > EASY
    order = np.argsort(code, kind="stable")
    ends = np.concatenate([[0], np.cumsum(np.bincount(code, minlength=units))])
    out, most = residual.copy(), 0.0
    for c in np.flatnonzero(hard):
        rows = order[ends[c] : ends[c + 1]]
        out[rows], worst = _without(b[rows], inner, residual[rows])
        most = max(most, worst)
    easy = order[~hard[code[order]]]
    local, found = consecutive(code[easy])
    rows_until = np.cumsum(np.bincount(local, minlength=found))
    piece = (rows_until * b.shape[1] // (4 * BLOCK))[local]  # whole units, as many as fit
    for at in np.split(np.arange(len(easy)), np.flatnonzero(np.diff(piece)) + 1):
        if len(at):
            rows, own = easy[at], local[at] - local[at[0]]
            out[rows] = _iterated(_apart(b[rows], own), inner, residual[rows])
    return WithoutUnits(out, most)


def _apart(b: Any, code: Int) -> sparse.csr_array:
    """Return b (n, K) with columns of its own for every unit, (n, units K); rows stand by unit."""
    (n, k), units = b.shape, int(code[-1]) + 1
    if not sparse.issparse(b):
        b = sparse.csr_array((b.ravel(), np.tile(np.arange(k), n), np.arange(n + 1) * k), (n, k))
    rows: Any = sparse.csr_array(b)
    at = rows.indices + np.repeat(code * k, np.diff(rows.indptr))
    return sparse.csr_array((rows.data, at, rows.indptr), shape=(n, units * k))


def _iterated(apart: sparse.csr_array, inner: Float2, e: Float1) -> Float1:
    """Iterate u = e + H_cc u over units of small leverage."""
    u, enough = e, CLOSE * max(float(np.abs(e).max()), 1e-300)
    for _ in range(STEPS_MOST):
        inside = (apart.T @ u).reshape(-1, len(inner)) @ inner
        new: Float1 = e + apart @ inside.ravel()
        moved = float(np.abs(new - u).max())
        u = new
        if moved <= enough:
            break
    return u


def _without(x: Design, inner: Float2, e: Float1) -> tuple[Float1, float]:
    """Return (I - H_cc)^-1 e_c of one unit's rows x (n_c, K), and its leverage or a bound on it.

    In the smaller of rows and K: with M = H_cc, or e + X_c A (I - M)^-1 X_c' e with M = G_c A.
    """
    few = x.shape[0] <= len(inner)
    m = dense(x @ inner @ x.T) if few else dense(x.T @ x) @ inner
    most = float(np.sqrt(max((m * m.T).sum(), 0.0)))  # root of the sum of squared eigenvalues
    if most > HIGHEST:
        most = float(np.linalg.eigvals(m).real.max())
    share = min(1.0, HIGHEST / most)
    start = e if few else x.T @ e
    found = np.asarray(np.linalg.solve(np.eye(len(m)) - share * m, start), np.float64)
    out: Float1 = found if few else e + share * (x @ (inner @ found))
    return out, most


def _rms(residual: Float2, leverage: Float2) -> Float1:
    fair = leverage < 0.95
    out: Float1 = np.sqrt((residual**2 * fair).sum(0) / np.maximum(fair.sum(0), 1))
    return out


def basis_critical(
    fit: BasisFit,
    points: Float2,
    method: BandMethod,
    level: float,
    nu: float,
    rng: np.random.Generator,
) -> tuple[Float1, Float1]:
    """Return critical values (q,) over the points b (m, K), before and after the t map."""
    if method.critical not in ("auto", "simulate"):
        raise SettingError(
            f'BandMethod: critical="{method.critical}" is not made for kind="{method.kind}"; use '
            '"simulate" (or "scheffe" for kind="linear").'
        )
    q = fit.coef.shape[1]
    factor = fit.factor(points)
    if method.coordinates == "joint":
        sups = critical.factor_draws(factor, method.draws, rng)
        c = np.full(q, critical.quantile(sups, level))
    else:
        each = 1.0 - (1.0 - level) / q
        parts = factor.reshape(q, len(points), -1)
        c = np.array(
            [critical.quantile(critical.factor_draws(f, method.draws, rng), each) for f in parts]
        )
    return c, critical.student(c, nu)


class BasisCritical(NamedTuple):
    """Critical values (q,), before and after the t map, and in words how, if by bootstrap-t."""

    normal: Float1
    mapped: Float1
    how: str


def skewed_critical(
    fit: BasisFit,
    points: Float2,
    method: BandMethod,
    level: float,
    nu: float,
    rng: np.random.Generator,
) -> BasisCritical:
    """Return critical values over the points b (m, K), by bootstrap-t where noise is skewed.

    See :func:`skewed_reach`; for rows the value then knows about small samples, and Student's t is
    left out. Redrawn units do not know what the fit took of their freedom: the larger value is it.
    """
    c, mapped = basis_critical(fit, points, method, level, nu, rng)
    reach = skewed_reach(fit, points, method, level, rng)
    if reach is None:
        return BasisCritical(c, mapped, "")
    further = c * reach
    return BasisCritical(
        c, further if fit.noise == "rows" else np.maximum(further, mapped), STUDENTISED
    )


def skewed_reach(
    fit: BasisFit, points: Float2, method: BandMethod, level: float, rng: np.random.Generator
) -> Float1 | None:
    """Return how much further studentised suprema reach than normal ones, (q,) >= 1, or None.

    None unless ``critical="auto"`` and skewness over the root of the local sample size matters
    (:attr:`BasisFit.skewness`). Both quantiles are over up to 500 of the points b (m, K). Redrawn
    noise keeps its shape and may change its scale with x (rows), or keeps all it has within a unit
    (units). More than 2.5 times as far is not believed: then redrawn noise has no variance to
    divide somewhere.
    """
    if method.critical != "auto" or fit.skewness <= SKEWED or len(fit.residual) > MOST_ROWS:
        return None
    some = points[np.unique(np.linspace(0, len(points) - 1, RESAMPLED).astype(np.int64))]
    normal, _ = basis_critical(fit, some, method, level, np.inf, rng)
    reach = studentised_critical(fit, some, method, level, rng) / normal
    further: Float1 = np.maximum(reach, 1.0)
    return further if (reach <= WILD).all() else None


def studentised_critical(
    fit: BasisFit, points: Float2, method: BandMethod, level: float, rng: np.random.Generator
) -> Float1:
    """Return quantiles (q,) of sup |m*(x) - m(x)| / se*(x) over b (m, K), se* re-estimated.

    Skewed noise errs to one side, and a law's bias may make just that side count: each side gets
    half of the failures, and the further one is returned.
    """
    q = fit.coef.shape[1]
    each = level if method.coordinates == "joint" else 1.0 - (1.0 - level) / q
    draws = max(1000, int(np.ceil(20.0 / (1.0 - each))))
    draw = _redrawn_units if fit.noise == "units" else _redrawn_rows
    cost = len(points) * len(fit.residual) * q * 2 * draws
    if cost > STEPS:  # fewer points, so that time stays bounded
        keep = max(len(points) * STEPS // cost, 10)
        points = points[np.unique(np.linspace(0, len(points) - 1, keep).astype(np.int64))]
    sides = draw(fit, points, draws, rng)  # two of (draws, q)
    one = (1.0 + each) / 2.0
    if method.coordinates == "joint":
        furthest = max(critical.quantile(side.max(1), one) for side in sides)
        return np.full(q, furthest)
    out: Float1 = np.array([[critical.quantile(s, one) for s in side.T] for side in sides]).max(0)
    return out


def _redrawn_rows(fit: BasisFit, points: Float2, draws: int, rng: np.random.Generator) -> Float3:
    """Draw suprema above and below, 2 of (draws, q); residuals are redrawn, whole rows together."""
    assert fit.scaled is not None
    assert fit.leverage is not None
    n, q = fit.residual.shape
    spread = np.stack([fit.spread(j) for j in range(q)], axis=1)
    standard = fit.scaled / spread
    standard -= standard.mean(0)
    weights = [np.asarray(fit.b @ (points @ a).T).T for a in fit.inner]  # (m, n) each
    out = np.zeros((2, draws, q))
    step = max(min(draws, BLOCK // n), 1)
    for start in range(0, draws, step):
        stop = min(start + step, draws)
        pick = rng.integers(n, size=(n, stop - start))
        for j, (a, w) in enumerate(zip(fit.inner, weights, strict=True)):
            noise = standard[:, j][pick] * spread[:, j, None]
            coef = a @ (fit.b.T @ noise)
            left = (noise - fit.b @ coef) / (1.0 - np.minimum(fit.leverage[:, j], 0.95))[:, None]
            se = np.sqrt(w**2 @ left**2)
            t = (points @ coef) / np.maximum(se, 1e-300)
            out[:, start:stop, j] = t.max(0), -t.min(0)
    return out


def _redrawn_units(fit: BasisFit, points: Float2, draws: int, rng: np.random.Generator) -> Float3:
    """Draw suprema above and below, 2 of (draws, q); units are redrawn, the Gram matrix held."""
    assert fit.scaled is not None
    assert fit.code is not None
    q, units = fit.coef.shape[1], int(fit.code.max()) + 1
    member = membership(fit.code, units)
    psi = []
    for j, a in enumerate(fit.inner):
        score = member @ times_rows(fit.b, fit.scaled[:, j])
        each = np.asarray(score @ (points @ a).T)  # (units, m)
        psi.append(each - each.mean(0))
    out = np.zeros((2, draws, q))
    step = max(min(draws, BLOCK // units), 1)
    for start in range(0, draws, step):
        stop = min(start + step, draws)
        times = rng.multinomial(units, np.full(units, 1.0 / units), size=stop - start)
        for j, each in enumerate(psi):
            total = times @ each
            var = (times @ each**2 - total**2 / units) * (units / (units - 1.0))
            t = total / np.sqrt(np.maximum(var, 1e-300))
            out[:, start:stop, j] = t.max(1), -t.min(1)
    return out


def basis_band(
    kind: str,
    made: str,
    sample: Sample,
    fit: BasisFit,
    *,
    shape: BandShape,
    level: float,
    critical: Float1,
) -> BandFit:
    """Put a basis fit and its shape together."""
    band = Band(
        kind=kind,
        made=(made,) * len(sample.y_names),
        level=level,
        critical=critical,
        noise=fit.noise,
        x_names=sample.x_names,
        y_names=sample.y_names,
        rows=len(sample.x),
        units=sample.units,
        shape=shape,
    )

    def smooth(columns: Float2, j: int) -> Float2:
        out: Float2 = np.asarray(fit.b @ (fit.inner[j] @ (fit.b.T @ columns)))
        return out

    kept = np.ones(len(sample.x), dtype=np.bool_)
    return BandFit(band, kept, fit.residual, smooth, skewness=fit.skewness)
