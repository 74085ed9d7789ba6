"""Bands for a sum of smooth functions of two or three inputs."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.interpolate import BSpline

from pulse_pyro._core.arrays import Bool, Float1, Float2
from pulse_pyro._core.errors import DataError
from pulse_pyro.bands.band import BandFit, BandMethod, Sample
from pulse_pyro.bands.basis import (
    PROBES,
    BasisFit,
    BasisShape,
    basis_band,
    fit_basis,
    skewed_critical,
)
from pulse_pyro.bands.spline import (
    DEGREE,
    UNDERSMOOTH,
    difference_penalty,
    inverse,
    reml,
    uniform_knots,
)

FEWEST, MOST = 10, 40  # coefficients an input
LATTICE = {2: 60, 3: 22}  # points a side of the box the critical value is simulated over
MOST_INPUTS = 3
TOGETHER = 0.02  # of an input's variance, not explained by the others


@dataclass(frozen=True, eq=False)
class SplineSum:
    """1 and the B-splines of every input but their first, on a box.

    box : (2, p) lower and upper ends. knots : (p, m), of each input.
    """

    box: Float2
    knots: Float2

    def design(self, x: Float2) -> Float2:
        """Return b(x), (n, K), at x (n, p)."""
        parts = [np.ones((len(x), 1))]
        for column, knots in zip(np.clip(x, *self.box).T, self.knots, strict=True):
            parts.append(BSpline.design_matrix(column, knots, DEGREE).toarray()[:, 1:])
        return np.concatenate(parts, axis=1)

    def reach(self, x: Float2) -> tuple[Float2, Bool, Float2]:
        """Move x to the box."""
        moved = np.clip(x, *self.box)
        return moved, (moved == x).all(1), np.abs(x - moved)


def additive(sample: Sample, method: BandMethod, level: float, rng: np.random.Generator) -> BandFit:
    """Make a band for f_1(x_1) + ... + f_p(x_p), p = 2 or 3.

    One spline an input, fitted jointly with one penalty (REML / 4) and twiced; the critical value
    is that of the sum over a lattice of the box of central ranges, so all inputs and coordinates
    are covered at once. Outside the box the half-width grows by the largest slope inside. Valid if
    E[y | S_1:t] is a sum of functions of single inputs: interactions are for the lack-of-fit test.
    """
    n, p = sample.x.shape
    if not 2 <= p <= MOST_INPUTS:
        raise DataError(
            f"bands: the additive band is for 2 or {MOST_INPUTS} inputs, but got {p}; for one use "
            'band="auto", for more band="linear" or band="single_index".'
        )
    each = int(np.clip(np.ceil(3.0 * n**0.25), FEWEST, MOST))
    if n < 3 * p * each:
        raise DataError(
            f"bands: the additive band of {p} inputs needs at least {3 * p * each} held-out rows, "
            f"but got {n}; hold out more units."
        )
    tail = (1.0 - method.domain) / 2.0
    box = np.quantile(sample.x, [tail, 1.0 - tail], axis=0)
    if not (box[1] > box[0]).all():
        name = sample.x_names[int(np.argmin(box[1] - box[0]))]
        raise DataError(f"bands: input {name!r} hardly varies; leave it out of the summary.")
    check_apart(sample)
    basis = SplineSum(box, np.stack([uniform_knots(low, high, each) for low, high in box.T]))
    inside = ((sample.x >= box[0]) & (sample.x <= box[1])).all(1)
    kept = sample.take(inside)
    fit, edf = _fit(basis.design(kept.x), kept, p, each, method)
    if len(kept.x) < 4 * edf:
        raise DataError(
            f"bands: the additive band wants {edf:.0f} degrees of freedom of {len(kept.x)} "
            "held-out rows; hold out more units."
        )
    side = LATTICE[p]
    axes = np.meshgrid(*(np.linspace(low, high, side) for low, high in box.T), indexing="ij")
    lattice = np.stack([a.ravel() for a in axes], axis=1)
    at = basis.design(lattice)
    nu = _freedom(fit, at, edf)
    c, mapped, how = skewed_critical(fit, at, method, level, nu, rng)
    steep = np.stack([_steepest(basis, fit, mapped, k, side) for k in range(p)])  # (p, q)
    q = sample.y.shape[1]
    span = ", ".join(
        f"{name} in [{low:.3g}, {high:.3g}]"
        for name, (low, high) in zip(sample.x_names, box.T, strict=True)
    )
    shape = BasisShape(
        domain=span,
        basis=basis,
        coef=fit.coef,
        cov=np.stack([fit.cov[j, :, j] for j in range(q)]),
        critical=mapped,
        beyond=mapped,
        steep=steep,
    )
    made = f"sum of {p} undersmoothed, twiced splines, {edf:.1f} degrees of freedom{how}"
    box_fit = basis_band("additive", made, kept, fit, shape=shape, level=level, critical=c)
    return replace(box_fit, kept=inside)


def check_apart(sample: Sample) -> None:
    """Refuse inputs that move together: off their common curve nothing is known about the sum."""
    for k, name in enumerate(sample.x_names):
        rest = np.delete(sample.x, k, axis=1)
        rest = (rest - rest.mean(0)) / rest.std(0)
        b = np.concatenate([np.ones((len(rest), 1)), rest, rest**2], axis=1)
        x = sample.x[:, k] - sample.x[:, k].mean()
        residual = x - b @ np.linalg.lstsq(b, x, rcond=None)[0]
        if residual @ residual < TOGETHER * (x @ x):
            raise DataError(
                f"bands: input {name!r} follows from the other inputs in the held-out rows; leave "
                'one out, or use band="linear".'
            )


def _fit(b: Float2, kept: Sample, p: int, each: int, method: BandMethod) -> tuple[BasisFit, float]:
    """Fit all inputs jointly; return the fit and its largest number of degrees of freedom."""
    gram = b.T @ b
    block = difference_penalty(each, 2)[1:, 1:]  # the first coefficient went into the constant
    penalty = np.zeros_like(gram)
    for k in range(p):
        at = slice(1 + k * (each - 1), 1 + (k + 1) * (each - 1))
        penalty[at, at] = block
    # a hair of ridge: empty corners of the box leave coefficients without rows
    gram_safe = gram + 1e-9 * np.trace(gram) / len(gram) * np.eye(len(gram))
    inner, most = [], 0.0
    for j in range(kept.y.shape[1]):
        y = kept.y[:, j] - kept.y[:, j].mean()
        lam = reml(gram_safe, penalty, b.T @ y, float(y @ y), len(y), 1 + p) / UNDERSMOOTH
        once = inverse(gram_safe + lam * penalty)
        twiced = 2.0 * once - once @ gram @ once
        inner.append(twiced)
        most = max(most, float(np.trace(twiced @ gram)))
    # a value hangs on a few splines, however many there are: units are counted by input
    return fit_basis(b, kept.y, kept.unit, tuple(inner), method, p + 1), most


def _freedom(fit: BasisFit, at: Float2, edf: float) -> float:
    """Return n - edf, or by unit the median of the local degrees of freedom over the box."""
    if fit.noise == "rows":
        return len(fit.b) - edf
    some = at[np.unique(np.linspace(0, len(at) - 1, PROBES).astype(np.int64))]
    each = [np.median(fit.freedom(some, j)) for j in range(fit.coef.shape[1])]
    return float(min(each))


def _steepest(basis: SplineSum, fit: BasisFit, critical: Float1, k: int, side: int) -> Float1:
    """Return the largest slope the band allows along input k, (q,)."""
    box, middle = basis.box, basis.box.mean(0)
    points = np.repeat(middle[None], max(side, 50), axis=0)
    points[:, k] = np.linspace(box[0, k], box[1, k], len(points))
    step = points[1, k] - points[0, k]
    rise = np.diff(basis.design(points), axis=0) / step
    q = fit.coef.shape[1]
    se = np.stack(
        [np.sqrt(np.maximum(((rise @ fit.cov[j, :, j]) * rise).sum(1), 0.0)) for j in range(q)],
        axis=1,
    )
    out: Float1 = (np.abs(rise @ fit.coef) + critical * se).max(0)
    return out
