"""Simultaneous bands for a linear lag model, in any dimension, and a ridge law's own."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import stats
from scipy.linalg import qr

from pulse_pyro._core.arrays import Bool, Float1, Float2, Int, positive
from pulse_pyro._core.errors import DataError
from pulse_pyro.bands.band import Band, BandFit, BandMethod, Sample, check_level
from pulse_pyro.bands.basis import PROBES, BasisShape, basis_band, fit_basis, skewed_critical
from pulse_pyro.bands.bins import MANY_UNITS

# Inputs that repeat others: a linear band lives on what they span.


RANK = 1e-6  # of the largest pivot: the Gram matrix's condition number is then at most about 1e12
FLAT = 1e-12  # sd over mean, of a column that does not move
ROUNDING = 1e-9  # by which it may move all the same
BROKEN = 1e-3  # sds by which a repeated input may miss what the others say of it


@dataclass(frozen=True, eq=False)
class Span:
    """Independent columns of standardised inputs, and how the others follow from them.

    Attributes
    ----------
    mean, sd : (p,) of the rows it was found on; sd is 1 for a column that is constant there.
    kept, rest : positions of the columns that are kept, and of those that repeat them.
    still : positions of constant columns, which repeat the intercept.
    follow : (kept, rest) z_rest = z_kept @ follow, z = (x - mean) / sd.

    The lags of a clock (sine and cosine of the hour) are such columns: each is a mixture of the
    others, exactly. Whoever knows those kept knows them all.
    """

    mean: Float1
    sd: Float1
    kept: Int
    rest: Int
    still: Int
    follow: Float2

    @staticmethod
    def of(x: Float2) -> Span:
        """Find it in rows x (n, p), by QR with column pivoting."""
        mean, sd = x.mean(0), x.std(0)
        moves = sd > FLAT * (np.abs(mean) + 1e-300)
        sd = np.where(moves, sd, 1.0)
        z, (moving,) = (x - mean) / sd, np.nonzero(moves)
        still = np.flatnonzero(~moves)
        rank, order = 0, np.zeros(0, np.int64)
        if len(moving):
            r, order = qr(z[:, moving], mode="r", pivoting=True, check_finite=False)
            pivots = np.abs(np.diagonal(r))
            rank = int((pivots > RANK * pivots[0]).sum())
        kept, rest = (np.sort(moving[part]) for part in (order[:rank], order[rank:]))
        follow: Float2 = np.asarray(np.linalg.lstsq(z[:, kept], z[:, rest], rcond=None)[0], float)
        return Span(mean, sd, kept, rest, still, follow)

    def __call__(self, x: Float2) -> Float2:
        """Return the kept columns, standardised: (n, p) -> (n, kept)."""
        z: Float2 = ((x - self.mean) / self.sd)[:, self.kept]
        return z

    def holds(self, x: Float2) -> Bool:
        """Tell at which rows of x (n, p) the repeated columns are what the others say."""
        z = (x - self.mean) / self.sd
        near: Bool = np.abs(z[:, self.rest] - z[:, self.kept] @ self.follow) <= BROKEN
        stay: Bool = np.abs(z[:, self.still]) <= ROUNDING * np.abs(self.mean[self.still])
        return np.asarray(near.all(1) & stay.all(1))


# Simultaneous bands for a linear lag model, in any dimension.


CLOUD = 1000  # contexts the critical value is simulated over


@dataclass(frozen=True, eq=False)
class LinearBasis:
    """1 and the independent inputs, on the contexts that are not too far from the centre.

    inner : (1 + kept, 1 + kept) inverse Gram matrix, by which far is far. far : the largest
    b(x)' inner b(x) that is inside.
    """

    span: Span
    inner: Float2
    far: float

    def design(self, x: Float2) -> Float2:
        """Return b(x), (n, 1 + kept), at x (n, p)."""
        return np.concatenate([np.ones((len(x), 1)), self.span(x)], axis=1)

    def reach(self, x: Float2) -> tuple[Float2, Bool, Float2]:
        """Leave x where it is, and tell where repeated inputs do not repeat."""
        z = self.design(x)
        holds = self.span.holds(x)
        # off the span nothing was ever seen: no half-width is wide enough
        distance = np.where(holds[:, None], np.zeros_like(x), np.nan)
        return x, (((z @ self.inner) * z).sum(1) <= self.far) & holds, distance


@dataclass(frozen=True)
class RawBasis:
    """1 and all inputs, on every context."""

    def design(self, x: Float2) -> Float2:
        """Return (1, x), (n, 1 + p)."""
        return np.concatenate([np.ones((len(x), 1)), x], axis=1)

    def reach(self, x: Float2) -> tuple[Float2, Bool, Float2]:
        """Leave x where it is: all of it is inside."""
        return x, np.ones(len(x), dtype=np.bool_), np.zeros_like(x)


def linear(sample: Sample, method: BandMethod, level: float, rng: np.random.Generator) -> BandFit:
    """Make r(x) = c sqrt(x'Vx) around least squares on (1, x), V robust.

    c is simulated over a cloud of up to 1,000 held-out contexts, so it holds for about as many new
    contexts of the same kind at once; ``critical="scheffe"`` holds for every x at once and is also
    what contexts further out than 98 % (``domain``) of the cloud get. Student's t with rows (or
    units) less coefficients as freedom, or Satterthwaite's, if that is less and variances go by
    unit. Valid if E[y | S_1:t] is linear in x: see the lack-of-fit test. Inputs that repeat others
    (lags of a clock), or are constant, are left out: their part is played by those others, or by
    the intercept. Of a context where they do not, nothing is known: it is outside the domain and
    its half-width is NaN, as if an input were not seen.
    """
    n, p = sample.x.shape
    if n < 2 * (p + 1) + 20:
        raise DataError(
            f"bands: the linear band needs at least {2 * (p + 1) + 20} held-out rows for {p} "
            f"inputs, but got {n}; hold out more units or use fewer lags."
        )
    span = Span.of(sample.x)
    if not len(span.kept):
        raise DataError(
            f"bands: input {sample.x_names[0]!r} is constant in the held-out rows, and so is every "
            "other; a summary that never varies tells nothing of W: take other columns as observed."
        )
    repeats = len(span.rest) + len(span.still)
    p -= repeats
    b = np.concatenate([np.ones((n, 1)), span(sample.x)], axis=1)
    inner = np.linalg.inv(b.T @ b)
    fit = fit_basis(b, sample.y, sample.unit, (inner,) * sample.y.shape[1], method, p + 1)
    if fit.alone:
        raise DataError(
            f"bands: one of {sample.units} units decides a coefficient of the linear band alone "
            "(an input that only it has?), so nothing is known of its noise; leave that input out, "
            'declare other clusters, or say noise="rows" if rows are independent.'
        )
    clustered = fit.noise == "units"
    nu = float((sample.units if clustered else n) - p - 1)
    if clustered and sample.units < MANY_UNITS:
        # a few large units decide, however many small ones there are
        some = b[np.unique(np.linspace(0, n - 1, PROBES).astype(np.int64))]
        nu = min(nu, float(np.median(fit.freedom(some, 0))))
    q = sample.y.shape[1]
    every = scheffe(level, p + 1, q, sample.units - 1.0 if clustered else nu, clustered=clustered)
    everywhere = np.full(q, every)
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
        c, mapped, how = skewed_critical(fit, b[rows], method, level, nu, rng)
        everywhere = everywhere * mapped / c if how else everywhere  # skewed noise reaches further
        mapped = np.minimum(mapped, everywhere)
        made += f"critical value over {len(rows)} contexts{how}"
        scope = (
            f"{len(rows)} contexts at once, among the {method.domain:.0%} nearest the centre, "
            f"{p} inputs{only}"
        )
    shape = BasisShape(
        domain=scope,
        basis=LinearBasis(span, inner, far),
        coef=fit.coef,
        cov=np.stack([fit.cov[j, :, j] for j in range(q)]),
        critical=mapped,
        beyond=everywhere,
        steep=np.zeros((p + repeats, q)),
    )
    return basis_band("linear", made, sample, fit, shape=shape, level=level, critical=c)


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
    freedom = max(nu - regressors + 1.0, 1.0)
    return float(np.sqrt(regressors * nu / freedom * stats.f.ppf(each, regressors, freedom)))


# The band a ridge or least-squares law provides for itself: p0 = p^.


def ridge_band(
    sample: Sample, *, level: float, noise_sd: float, ridge: float = 1.0, size: float = 1.0
) -> Band:
    """Bound the error of the ridge fit y = (1, x)'b for all x at once, at every sample size.

    half(x) = ||x||_{G^-1} ( sqrt(ridge) size + noise_sd sqrt( log det(G / ridge)
              + 2 log(q / (1 - level)) ) ),   G = ridge I + sum x x',  x with a leading 1.

    ``size`` >= ||b|| of every coordinate and ``noise_sd``, the sub-Gaussian scale of y given x, are
    the caller's. Widest of all bands, but it needs no large sample and grows by itself where online
    contexts leave the archive. Valid if E[y | S_1:t] is linear in x and rows are independent of the
    past given x.
    """
    check_level(level, "ridge_band")
    lam = positive(ridge, "ridge_band: ridge")
    b = np.concatenate([np.ones((len(sample.x), 1)), sample.x], axis=1)
    q = sample.y.shape[1]
    gram = lam * np.eye(b.shape[1]) + b.T @ b
    inverse = np.linalg.inv(gram)
    grown = float(np.linalg.slogdet(gram / lam)[1]) + 2.0 * math.log(q / (1.0 - level))
    c = math.sqrt(lam) * positive(size, "ridge_band: size")
    c += positive(noise_sd, "ridge_band: noise_sd") * math.sqrt(grown)
    critical = np.full(q, c)
    shape = BasisShape(
        domain="every context",
        basis=RawBasis(),
        coef=inverse @ (b.T @ sample.y),
        cov=np.repeat(inverse[None], q, axis=0),
        critical=critical,
        beyond=critical,
        steep=np.zeros((sample.x.shape[1], q)),
    )
    return Band(
        kind="ridge",
        made=(f"ridge {lam:g}, self-normalised bound",) * q,
        level=level,
        critical=critical,
        noise="rows",
        x_names=sample.x_names,
        y_names=sample.y_names,
        rows=len(b),
        units=sample.units,
        shape=shape,
    )
