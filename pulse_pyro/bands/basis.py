"""Bands for an estimate that is linear in a finite basis: linear lags, sums of splines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy import linalg, sparse

from pulse_pyro._core.arrays import Bool, Float1, Float2, Float4, Int
from pulse_pyro._core.errors import DataError, SettingError
from pulse_pyro.bands import critical
from pulse_pyro.bands.band import Band, BandFit, BandMethod, Sample, Values, consecutive
from pulse_pyro.bands.dependence import choose_noise


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
    """coef_j = inner_j b'y_j on rows b (n, K): what is left, and its robust covariance."""

    b: Float2
    inner: tuple[Float2, ...]
    coef: Float2
    residual: Float2
    noise: str
    cov: Float4

    def factor(self, points: Float2) -> Float2:
        """Return F (q m, r) with F F' the covariance of the estimate at b (m, K), all q."""
        q, k = self.coef.shape[1], self.coef.shape[0]
        values, vectors = linalg.eigh(self.cov.reshape(q * k, q * k))
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        return np.concatenate([points @ root[j * k : (j + 1) * k] for j in range(q)])


def fit_basis(
    b: Float2, y: Float2, unit: Int, inner: tuple[Float2, ...], method: BandMethod, free: int
) -> BasisFit:
    """Estimate and its sandwich covariance (q, K, q, K): HC3 by row or clustered by unit.

    ``free`` is the number of coefficients that a cluster variance must be able to span.
    """
    coef = np.stack([a @ (b.T @ y[:, j]) for j, a in enumerate(inner)], axis=1)
    residual = y - b @ coef
    if not (np.abs(residual).max(0) > 1e-12 * np.abs(y).max(0)).all():
        raise DataError(
            "bands: a target has no noise around its fit; is it a copy of the summary, or constant?"
        )
    leverage = np.stack([((b @ a) * b).sum(1).clip(0.0, 1.0) for a in inner], axis=1)
    # a row that decides its own fit leaves no residual to judge it by: the others' size stands in
    scaled = np.where(
        leverage < 0.95, residual / (1.0 - np.minimum(leverage, 0.95)), _rms(residual, leverage)
    )
    noise = choose_noise(residual, unit, method.noise, free)
    q, k = len(inner), b.shape[1]
    cov = np.empty((q, k, q, k))
    if noise == "units":
        code, units = consecutive(unit)
        member = sparse.csr_array((np.ones(len(code)), (code, np.arange(len(code)))))
        score = [np.asarray(member @ (b * e[:, None])) for e in scaled.T]
    for j in range(q):
        for m in range(j, q):
            if noise == "rows":
                meat = b.T @ (b * (scaled[:, j] * scaled[:, m])[:, None])
            else:
                meat = score[j].T @ score[m] * (units / (units - 1.0))
            block = inner[j] @ meat @ inner[m].T
            cov[j, :, m], cov[m, :, j] = block, block.T
    return BasisFit(b, inner, coef, residual, noise, cov)


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


def basis_band(
    kind: str,
    made: str,
    sample: Sample,
    fit: BasisFit,
    *,
    shape: BasisShape,
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
        out: Float2 = fit.b @ (fit.inner[j] @ (fit.b.T @ columns))
        return out

    return BandFit(band, np.ones(len(sample.x), dtype=np.bool_), fit.residual, smooth)
