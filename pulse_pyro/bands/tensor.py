"""Bands for a function of two or three inputs that interact: tensor-product splines."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy import linalg, sparse, stats
from scipy.interpolate import BSpline
from scipy.spatial import cKDTree

from pulse_pyro._core.arrays import Array, Bool, Float1, Float2, Int
from pulse_pyro._core.errors import DataError, SettingError
from pulse_pyro.bands import critical
from pulse_pyro.bands.additive import check_apart
from pulse_pyro.bands.band import BandFit, BandMethod, Sample, Values, consecutive
from pulse_pyro.bands.basis import (
    PROBES,
    STUDENTISED,
    BasisFit,
    BasisShape,
    basis_band,
    dense,
    fit_basis,
    membership,
    quadratic,
    skewed_reach,
    times_rows,
)
from pulse_pyro.bands.kinks import GATE
from pulse_pyro.bands.spline import DEGREE, inverse, uniform_knots
from pulse_pyro.bands.support import Support

SEGMENTS = {2: (1, 2, 4, 8, 16), 3: (1, 2, 4)}  # pieces a side: J = (pieces + 3)^p functions
LATTICE = {2: 25, 3: 9}  # points a side of the box that suprema are taken over
EACH = 30  # rows a function of the smallest basis needs: below, its variance cannot be judged
FINE = 12  # rows a function of any larger one
FAR = 0.5  # largest b(x)' (B'B)^-1 b(x) that is inside: two rows' worth of knowledge
WHOLE = 0.8  # share of the smallest basis' domain that a larger one must still reach
LEPSKI_DRAWS = 1000
SLACK = 1.1  # by which a contrast may exceed theta*
HINGES = 9  # ridges a direction
MANY_GROUPS = 5000  # of independent rows or units, that a test of ridges looks at


@dataclass(frozen=True, eq=False)
class SplineProduct:
    """Products of one B-spline an input, on the part of a box where there are rows.

    box : (2, p) lower and upper ends. knots : (p, m), of each input. inner : (J, J) (B'B)^-1, by
    which far is far. support : near archived contexts. anchors : (a, p) contexts inside, to the
    nearest of which one outside is moved.
    """

    box: Float2
    knots: Float2
    inner: Float2
    support: Support
    anchors: Float2

    def design(self, x: Float2) -> Float2:
        """Return b(x), (n, J), at x (n, p)."""
        out: Float2 = spline_product(np.clip(x, *self.box), self.knots).toarray()
        return out

    def reach(self, x: Float2) -> tuple[Float2, Bool, Float2]:
        """Move what is outside to the nearest anchor, in widths of the box."""
        inside = self._holds(x)
        moved = x.copy()
        if not inside.all():
            width = self.box[1] - self.box[0]
            _, at = cKDTree(self.anchors / width).query(x[~inside] / width)
            moved[~inside] = self.anchors[at]
        return moved, inside, np.abs(x - moved)

    def _holds(self, x: Float2) -> Bool:
        inside: Bool = ((x >= self.box[0]) & (x <= self.box[1])).all(1)
        some = x[inside]
        b = spline_product(some, self.knots)
        inside[inside] = self.support.inside(some) & (quadratic(b, self.inner) <= FAR)
        return inside


@dataclass(frozen=True, eq=False)
class TensorShape:
    """half = max(c se(x), z se(x) + bias) in a tensor basis; outside, it grows as ``smooth`` does.

    smooth : centre and c se(x), c the inflated critical value. share : (q,) z / c, the part of c
    that is noise; the rest is for bias. bias : (q,) what the basis may miss of the sharpest ridge
    the rows allow; 0 where none shows.
    """

    smooth: BasisShape
    share: Float1
    bias: Float1

    @property
    def domain(self) -> str:
        """Where the band is uniform."""
        return self.smooth.domain

    def at(self, x: Float2) -> Values:
        """Evaluate at x (n, p)."""
        centre, half, inside = self.smooth.at(x)
        return Values(centre, np.maximum(half, self.share * half + self.bias), inside)


def spline_product(x: Float2, knots: Float2) -> sparse.csr_array:
    """Return the products of one B-spline an input, (n, J): 4^p of each row's are not 0."""
    n, p = x.shape
    size = (knots.shape[1] - DEGREE - 1) ** p
    if not n:
        return sparse.csr_array((0, size))
    value, at = np.ones((n, 1)), np.zeros((n, 1), dtype=np.int64)
    for column, line in zip(x.T, knots, strict=True):
        one = sparse.csr_array(BSpline.design_matrix(column, line, DEGREE))
        each = one.data.reshape(n, DEGREE + 1)
        where = one.indices.reshape(n, DEGREE + 1)
        value = (value[:, :, None] * each[:, None]).reshape(n, -1)
        at = (at[:, :, None] * one.shape[1] + where[:, None]).reshape(n, -1)
    starts = np.arange(n + 1) * at.shape[1]
    return sparse.csr_array((value.ravel(), at.ravel(), starts), shape=(n, size))


class Sieve(NamedTuple):
    """One dimension of the sieve: its knots, its fit, and where on the lattice it can be judged.

    at : (m, J) the basis on the lattice. good : (m,) near rows, and two rows' worth of knowledge.
    """

    knots: Float2
    fit: BasisFit
    at: sparse.csr_array
    good: Bool

    @property
    def size(self) -> int:
        """J, the number of functions."""
        return len(self.fit.coef)


class Chosen(NamedTuple):
    """The chosen step of each coordinate (q,), z* and theta* (q,), and theta*'s level."""

    step: Int
    z: Float1
    theta: Float1


def tensor(sample: Sample, method: BandMethod, level: float, rng: np.random.Generator) -> BandFit:
    """Make a band for any smooth function of two or three inputs, interactions included.

    Least squares on products of cubic B-splines, (1, 2, 4, ... pieces a side). The dimension J is
    the smallest whose estimate differs from every larger one's by at most 1.1 theta* standard
    errors, theta* the bootstrap quantile of those differences (Lepski's choice), and
    half(x) = (z* + log log J theta*) se(x), z* the quantile of the supremum over x and all J
    (Chen, Christensen and Kankanala, Review of Economic Studies 2024): the second part allows for
    the bias that the choice leaves. Noise by rows (HC3) or by units, Gaussian multipliers, both
    quantiles mapped to Student's t with the local degrees of freedom; Bonferroni over coordinates.
    Where ridges |x'd - k| show in what is left (p < 0.2), the next larger J is taken, and what it
    misses of the sharpest of them is allowed for: half(x) >= z* se(x) + that.

    Domain: the box of central ranges, as far as rows are near and know the function (two rows'
    worth). Not covered: functions that no J of the grid follows and whose roughness is too fine or
    too rare to be seen, for example a step or a spike between rows; contexts outside, where the
    half-width grows by the largest slope inside.
    """
    p = sample.x.shape[1]
    _check(sample, method)
    tail = (1.0 - method.domain) / 2.0
    box = np.quantile(sample.x, [tail, 1.0 - tail], axis=0)
    if not (box[1] > box[0]).all():
        name = sample.x_names[int(np.argmin(box[1] - box[0]))]
        raise DataError(f"bands: input {name!r} hardly varies; leave it out of the summary.")
    check_apart(sample)
    inside = ((sample.x >= box[0]) & (sample.x <= box[1])).all(1)
    kept = sample.take(inside)
    _check(kept, method)
    support = Support.of(kept.x, kept.unit)
    lattice = _lattice(box, len(kept.x))
    steps = _steps(kept, method, box, lattice, support)
    chosen = choose_step(steps, kept, method, level, rng)
    last = int(chosen.step.max())
    ridges = ridge_test(steps[last], kept, box, rng)
    shows = ridges.p < GATE
    if shows and last + 1 < len(steps):
        last += 1
    step = steps[last]
    q = kept.y.shape[1]
    bias = np.zeros(q)
    if shows:
        bias = ridge_bias(ridges, step, kept, lattice)
    c = chosen.z + np.log(np.log(step.size)) * chosen.theta
    nu = np.array([_freedom(step, j) for j in range(q)])
    some = dense(step.at[step.good])
    reach = skewed_reach(step.fit, some, replace(method, coordinates="bonferroni"), level, rng)
    noise = critical.student(chosen.z, nu) if reach is None else chosen.z * reach
    mapped = noise + np.log(np.log(step.size)) * critical.student(chosen.theta, nu)
    basis = SplineProduct(box, step.knots, step.fit.inner[0], support, lattice[step.good])
    span = ", ".join(
        f"{name} in [{low:.3g}, {high:.3g}]"
        for name, (low, high) in zip(sample.x_names, box.T, strict=True)
    )
    smooth = BasisShape(
        domain=f"{span}, where rows are near",
        basis=basis,
        coef=step.fit.coef,
        cov=np.stack([step.fit.cov[j, :, j] for j in range(q)]),
        critical=mapped,
        beyond=mapped,
        steep=_steepest(step, box, lattice, mapped),
    )
    made = (
        f"tensor product of {p} cubic splines, {step.size} functions of up to {steps[-1].size}, "
        f"critical value {chosen.z.max():.2f} + {np.log(np.log(step.size)):.2f} x "
        f"{chosen.theta.max():.2f}"
    )
    made += "" if reach is None else STUDENTISED
    made += ", a ridge shows: one step further, its bias allowed for" if shows else ""
    shape = TensorShape(smooth, noise / mapped, bias)
    found = basis_band("tensor", made, kept, step.fit, shape=shape, level=level, critical=c)
    return replace(found, kept=inside, roughness=ridges.p)


def _steps(
    kept: Sample, method: BandMethod, box: Float2, lattice: Float2, support: Support
) -> list[Sieve]:
    """Fit every dimension the rows allow; noise is judged by what the largest leaves."""
    n, p = kept.x.shape
    near = support.inside(lattice)
    made: list[tuple[Float2, sparse.csr_array, Float2, sparse.csr_array, Bool]] = []
    for pieces in SEGMENTS[p]:
        size = (pieces + DEGREE) ** p
        if made and size * FINE > n:
            break
        knots = np.stack([uniform_knots(low, high, pieces + DEGREE) for low, high in box.T])
        b, at = spline_product(kept.x, knots), spline_product(lattice, knots)
        gram = (b.T @ b).toarray()
        # a hair of ridge: empty corners leave functions without rows
        inner = inverse(gram + np.diag(1e-10 * np.diag(gram) + 1e-13 * np.trace(gram) / size))
        good = near & (quadratic(at, inner) <= FAR)
        if made and good.sum() < WHOLE * made[0][-1].sum():
            break
        made.append((knots, b, inner, at, good))
    if not made[0][-1].any():
        raise DataError(
            f"bands: no part of the box of {', '.join(kept.x_names)} holds enough of the {n} "
            "held-out rows for a tensor band; hold out more units, or use fewer inputs."
        )
    steps: list[Sieve] = []
    for knots, b, inner, at, good in reversed(made):
        # a basis is local: few units decide any one value, however many functions there are
        fit = fit_basis(b, kept.y, kept.unit, (inner,) * kept.y.shape[1], method, 0)
        method = replace(method, noise=fit.noise)
        steps.insert(0, Sieve(knots, fit, at, good))
    return steps


def choose_step(
    steps: list[Sieve], kept: Sample, method: BandMethod, level: float, rng: np.random.Generator
) -> Chosen:
    """Choose the dimension of each coordinate, and find z* and theta*."""
    q = kept.y.shape[1]
    each = 1.0 - (1.0 - level) / q
    draws = max(method.draws, int(np.ceil(10.0 / (1.0 - each))))
    most = steps[-1].size
    share = max(0.5, 1.0 - np.sqrt(np.log(most) / most))
    chosen, z, theta = np.zeros(q, np.int64), np.zeros(q), np.zeros(q)
    for j in range(q):
        root = _root(steps, kept, j)
        sups, contrasts = np.zeros(draws), np.zeros(min(draws, LEPSKI_DRAWS))
        parts = [step.at @ r for step, r in zip(steps, root, strict=True)]  # (m, r) each
        centre = [np.asarray(step.at @ step.fit.coef[:, j]) for step in steps]
        normal = rng.standard_normal((root[0].shape[1], draws)).astype(np.float32)
        used = max(len(steps) - 1, 1)  # the largest is there to be compared with
        for step, part in zip(steps[:used], parts[:used], strict=True):
            np.maximum(sups, _sups(part[step.good], normal), out=sups)
        reach = np.zeros((len(steps), len(steps)))
        for a in range(len(steps)):
            for b in range(a + 1, len(steps)):
                both = steps[a].good & steps[b].good
                gap = (parts[a] - parts[b])[both]
                sd = np.sqrt((gap**2).sum(1))
                reach[a, b] = (np.abs(centre[a] - centre[b])[both] / sd).max()
                np.maximum(contrasts, _sups(gap, normal[:, : len(contrasts)]), out=contrasts)
        z[j] = critical.quantile(sups, each)
        theta[j] = np.quantile(contrasts, share) if len(steps) > 1 else z[j]
        allowed = SLACK * critical.student(theta[j], _freedom(steps[-1], j))
        chosen[j] = int(np.argmax(reach.max(1) <= allowed))  # the last compares with none
    return Chosen(chosen, z, theta)


def _root(steps: list[Sieve], kept: Sample, j: int) -> list[Float2]:
    """Return R_J (J, r) with R R' the joint covariance of the coefficients of all dimensions."""
    member = None
    factor = 1.0
    if steps[0].fit.noise == "units":
        code, units = consecutive(kept.unit)
        member, factor = membership(code, units), (units - 1.0) / units
    scores = []
    for step in steps:
        assert step.fit.scaled is not None
        score = times_rows(step.fit.b, step.fit.scaled[:, j])
        scores.append(score if member is None else member @ score)
    ends = np.cumsum([0, *(step.size for step in steps)])
    joint = np.empty((ends[-1], ends[-1]))
    for a, one in enumerate(steps):
        for b in range(a, len(steps)):
            other = steps[b]
            meat = dense(scores[a].T @ scores[b]) * factor
            block = one.fit.inner[j] @ meat @ other.fit.inner[j].T
            joint[ends[a] : ends[a + 1], ends[b] : ends[b + 1]] = block
            joint[ends[b] : ends[b + 1], ends[a] : ends[a + 1]] = block.T
    # coefficients without rows have a huge variance, which must not hide the others'
    scale = np.sqrt(np.maximum(np.diag(joint), 1e-300))
    values, vectors = linalg.eigh(joint / scale[:, None] / scale)
    live = values > 1e-10 * values[-1]
    root = vectors[:, live] * np.sqrt(values[live]) * scale[:, None]
    return [root[ends[a] : ends[a + 1]] for a in range(len(steps))]


def _sups(factor: Float2, normal: Array) -> Float1:
    """Return max over points of |F g| / sd for each column of draws g (r, draws): (draws,)."""
    sd = np.sqrt((factor**2).sum(1))
    unit = (factor[sd > 0] / sd[sd > 0, None]).astype(np.float32)  # quantiles need no more digits
    out = np.zeros(normal.shape[1])
    if not len(unit):
        return out
    block = max(critical.VALUES // len(unit), 1)
    for start in range(0, len(out), block):
        part = unit @ normal[:, start : start + block]
        out[start : start + block] = np.maximum(part.max(0), -part.min(0))
    return out


def _freedom(step: Sieve, j: int) -> float:
    """Return the local degrees of freedom of a step: a quarter of its domain has fewer."""
    places = np.flatnonzero(step.good)
    places = places[np.unique(np.linspace(0, len(places) - 1, PROBES).astype(np.int64))]
    return float(np.quantile(step.fit.freedom(dense(step.at[places]), j), 0.25))


# Ridges: a change of slope along a line that the chosen basis cannot follow.


class Hinges(NamedTuple):
    """Candidates |u'd_k - place_k|, u = (x - lower) / width of the box.

    direction : (p, K). place : (K,).
    """

    box: Float2
    direction: Float2
    place: Float1

    def at(self, x: Float2, which: Int) -> Float2:
        """Return some of the candidates at x (n, p): (n, len(which))."""
        u = (x - self.box[0]) / (self.box[1] - self.box[0])
        out: Float2 = np.abs(u @ self.direction[:, which] - self.place[which])
        return out


class Ridges(NamedTuple):
    """p-value of "no ridge is left", each coordinate's strongest candidate, and its sharpness.

    slope : (q,) half the change of slope of the strongest candidate, two standard errors up.
    """

    p: float
    hinges: Hinges
    top: Int
    slope: Float1


def find_hinges(x: Float2, box: Float2) -> Hinges:
    """Lay nine candidates across each of eight directions (two inputs) or thirteen (three)."""
    p = x.shape[1]
    if p == 2:
        angle = np.arange(8) * np.pi / 8
        lines = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    else:
        grid = np.array(list(itertools.product((-1.0, 0.0, 1.0), repeat=p)))
        first = [np.flatnonzero(row) for row in grid]
        lines = np.array([r for r, at in zip(grid, first, strict=True) if len(at) and r[at[0]] > 0])
        lines /= np.sqrt((lines**2).sum(1))[:, None]
    u = (x - box[0]) / (box[1] - box[0])
    shares = np.linspace(0.0, 1.0, HINGES + 2)[1:-1]
    places = [np.quantile(u @ line, shares) for line in lines]
    return Hinges(box, np.repeat(lines, HINGES, axis=0).T, np.concatenate(places))


def ridge_test(step: Sieve, kept: Sample, box: Float2, rng: np.random.Generator) -> Ridges:
    """Test whether ridges are left in any coordinate (Bonferroni).

    Each candidate is freed of what the basis can follow; scores of the residuals with it over their
    robust standard deviation, supremum by multiplier draws. What this cannot see: kinks along
    curves that no straight ridge resembles, and those the noise hides.
    """
    fit = step.fit
    assert fit.scaled is not None
    q = kept.y.shape[1]
    hinges = find_hinges(kept.x, box)
    member = _groups(fit)
    groups = member.shape[0]
    energy, score = [], []
    psi: list[list[Float2]] = [[] for _ in range(q)]
    for which in np.array_split(np.arange(len(hinges.place)), len(hinges.place) // HINGES):
        z = hinges.at(kept.x, which)
        free = z - fit.b @ (fit.inner[0] @ (fit.b.T @ z))
        energy.append((free**2).sum(0))
        score.append(free.T @ fit.residual)
        for j in range(q):
            psi[j].append(np.asarray(member @ (free * fit.scaled[:, j, None])))
    norm, sums = np.concatenate(energy), np.concatenate(score)
    live = norm > 1e-8 * max(float(norm.max()), 1e-300)
    least, top, slope = 1.0, np.zeros(q, np.int64), np.zeros(q)
    for j in range(q):
        each = np.concatenate(psi[j], axis=1)
        each = each - each.mean(0)
        sd = np.sqrt((each**2).sum(0))
        t = np.where(live, np.abs(sums[:, j]) / np.maximum(sd, 1e-300), 0.0)
        top[j] = int(t.argmax())
        slope[j] = (np.abs(sums[top[j], j]) + 2.0 * sd[top[j]]) / norm[top[j]]
        sups = critical.sup_draws(each[:, live].T @ each[:, live], LEPSKI_DRAWS, rng)
        # few groups make a studentised score a t; its normal equivalent meets a normal supremum
        found = stats.norm.isf(max(float(stats.t.sf(t.max(), groups - 1.0)), 1e-300))
        least = min(least, q * float((1 + (sups >= found).sum()) / (1 + len(sups))))
    return Ridges(min(least, 1.0), hinges, top, slope)


def _groups(fit: BasisFit) -> sparse.csr_array:
    """Return (groups, n): units, or rows; several of either together where there are many."""
    assert fit.code is not None
    code = fit.code if fit.noise == "units" else np.arange(len(fit.code))
    groups = int(code.max()) + 1
    if groups > MANY_GROUPS:
        code, groups = code % MANY_GROUPS, MANY_GROUPS
    return membership(code, groups)


def ridge_bias(ridges: Ridges, step: Sieve, kept: Sample, lattice: Float2) -> Float1:
    """Return slope times the largest part of the strongest ridge that the step misses, (q,)."""
    z = ridges.hinges.at(kept.x, ridges.top)
    known = step.at @ (step.fit.inner[0] @ (step.fit.b.T @ z))
    missed = np.abs(ridges.hinges.at(lattice, ridges.top) - known)[step.good]
    out: Float1 = ridges.slope * missed.max(0)
    return out


def _steepest(step: Sieve, box: Float2, lattice: Float2, mapped: Float1) -> Float2:
    """Return the largest average slope over a tenth of the box the band allows, (p, q)."""
    p = lattice.shape[1]
    width = box[1] - box[0]
    out = []
    for k in range(p):
        there = lattice[step.good].copy()
        moved = there.copy()
        moved[:, k] += np.where(there[:, k] > box.mean(0)[k], -0.1, 0.1) * width[k]
        rise = spline_product(moved, step.knots) - step.at[step.good]
        each = []
        for j, c in enumerate(mapped):
            se = np.sqrt(np.maximum(quadratic(rise, step.fit.cov[j, :, j]), 0.0))
            # towards the middle, but maybe where there are no rows: there the noise is no slope
            known = se <= 4.0 * np.median(se)
            each.append((np.abs(rise @ step.fit.coef[:, j]) + c * se)[known].max())
        out.append(np.array(each) / (0.1 * width[k]))
    return np.stack(out)


def _lattice(box: Float2, n: int) -> Float2:
    p = box.shape[1]
    most = max(s for s in SEGMENTS[p] if s == 1 or (s + DEGREE) ** p * FINE <= n)
    side = max(LATTICE[p], 2 * most + 1)
    axes = np.meshgrid(*(np.linspace(low, high, side) for low, high in box.T), indexing="ij")
    return np.stack([a.ravel() for a in axes], axis=1)


def fewest_rows(p: int) -> int:
    """Return how many rows inside the box a tensor band of p inputs needs."""
    return int(EACH * (SEGMENTS[p][0] + DEGREE) ** p)


def _check(sample: Sample, method: BandMethod) -> None:
    n, p = sample.x.shape
    if p not in SEGMENTS:
        raise DataError(
            f"bands: the tensor band is for 2 or 3 inputs, but got {p}; for one use "
            'band="auto", for more band="linear" or band="single_index".'
        )
    if method.critical not in ("auto", "simulate"):
        raise SettingError(
            f'BandMethod: critical="{method.critical}" is not made for kind="tensor"; use '
            '"simulate".'
        )
    if n < fewest_rows(p):
        raise DataError(
            f"bands: the tensor band of {p} inputs needs at least {fewest_rows(p)} held-out rows "
            f'in its box, but got {n}; hold out more units, or use band="additive".'
        )
