"""Simultaneous bands for a linear lag model, in any dimension."""

from __future__ import annotations

import numpy as np
from scipy import stats

from pulse_pyro.arrays import Bool, Float2
from pulse_pyro.bands.band import BandFit
from pulse_pyro.bands.basis import BasisShape, basis_band, basis_critical, fit_basis
from pulse_pyro.bands.sample import BandMethod, Sample
from pulse_pyro.bands.span import Span
from pulse_pyro.errors import DataError

CLOUD = 1000  # contexts the critical value is simulated over


def linear(
    sample: Sample, method: BandMethod, level: float, rng: np.random.Generator
) -> BandFit:  # fmt: skip
    """Make r(x) = c sqrt(x'Vx) around least squares on (1, x), V robust.

    c is simulated over a cloud of up to 1,000 held-out contexts, so it holds for about as many new
    contexts of the same kind at once; ``critical="scheffe"`` holds for every x at once and is also
    what contexts further out than 98 % (``domain``) of the cloud get. Student's t with n - p, or
    units - 1, degrees of freedom. Valid if E[y | S_1:t] is linear in x; see the lack-of-fit test.
    Inputs that repeat others (lags of a clock), or are constant, are left out: their part is played
    by those others, or by the intercept. Of a context where they do not, nothing is known: it is
    outside the domain and its half-width is NaN, as if an input were not seen.
    """
    n, p = sample.x.shape
    if n < 2 * (p + 1) + 20:
        raise DataError(
            f"bands: the linear band needs at least {2 * (p + 1) + 20} held-out rows for {p} "
            f"inputs, {n} came; hold out more units or use fewer lags."
        )
    span = Span.of(sample.x)
    if not len(span.kept):
        raise DataError(
            f"bands: input {sample.x_names[0]!r} is constant in the held-out rows, and so is every "
            "other; a summary that never varies tells nothing of W: take other columns as observed."
        )
    repeats = len(span.rest) + len(span.still)
    p -= repeats

    def design(x: Float2) -> Float2:
        return np.concatenate([np.ones((len(x), 1)), span(x)], axis=1)

    b = design(sample.x)
    inner = np.linalg.inv(b.T @ b)
    fit = fit_basis(b, sample.y, sample.unit, (inner,) * sample.y.shape[1], method, p + 1)
    nu = float(n - p - 1 if fit.noise == "rows" else sample.units - 1)
    q = sample.y.shape[1]
    everywhere = np.full(q, scheffe(level, p + 1, q, nu, clustered=fit.noise == "units"))
    far = float(np.quantile(((b @ inner) * b).sum(1), method.domain))
    left_out = f" ({repeats} more repeat them)" if repeats else ""
    only = ", where repeated inputs repeat" if repeats else ""
    made = f"least squares on {p} inputs{left_out}, "
    if method.critical == "scheffe":
        c, mapped = everywhere, everywhere
        made += "Scheffe"
        scope, far = f"every context, {p} inputs{only}", np.inf
    else:
        rows = rng.permutation(n)[:CLOUD]
        c, mapped = basis_critical(fit, b[rows], method, level, nu, rng)
        mapped = np.minimum(mapped, everywhere)
        made += f"critical value over {len(rows)} contexts"
        scope = (
            f"{len(rows)} contexts at once, among the {method.domain:.0%} nearest the centre, "
            f"{p} inputs{only}"
        )

    def reach(x: Float2) -> tuple[Float2, Bool, Float2]:
        z = design(x)
        holds = span.holds(x)
        # off the span nothing was ever seen: no half-width is wide enough
        distance = np.where(holds[:, None], np.zeros_like(x), np.nan)
        return x, (((z @ inner) * z).sum(1) <= far) & holds, distance

    shape = BasisShape(
        scope, design, reach,
        fit.coef, np.stack([fit.cov[j, :, j] for j in range(q)]), mapped, everywhere,
        np.zeros((p + repeats, q)),
    )  # fmt: skip
    return basis_band("linear", made, sample, fit, shape, level, c)


def scheffe(
    level: float, regressors: int, coordinates: int, nu: float, clustered: bool = False
) -> float:
    """Return the critical value for all x at once, Bonferroni over coordinates.

    sqrt(K F(K, nu)); for a variance of nu = units - 1 clusters Hotelling's
    sqrt(K nu / (nu - K + 1) F(K, nu - K + 1)), which knows that all of it is estimated.
    """
    each = 1.0 - (1.0 - level) / coordinates
    if not clustered:
        return float(np.sqrt(regressors * stats.f.ppf(each, regressors, max(nu, 2.0))))
    left = max(nu - regressors + 1.0, 1.0)
    return float(np.sqrt(regressors * nu / left * stats.f.ppf(each, regressors, left)))
