"""Bayesian linear regression of several W on x, in closed form from sufficient statistics.

Coordinate j of w is regressed on (1, x, w_1, ..., w_{j-1}):

    w_j = c_j' (1, x) + sum_{k<j} g_jk w_k + sqrt(v_j) noise.

With the prior below this is the matrix-normal inverse-Wishart model in triangular form: the
residuals of several W are correlated, and the order of the W columns does not matter.
    v_j ~ InverseGamma((j + 1) / 2, psi / 2),  j = 1, 2, ...
    c_j | v_j ~ N(0, v_j diag(intercept^2, slope^2, ...)),   g_jk | v_j ~ N(0, v_j / psi).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy import special
from scipy.special import gammaln

from pulse_pyro._core.arrays import Float1, Float2, Float3, Int, positive

BLOCK = 4096
SLOPES = 10.0  # prior sd of E[W | x], over the residual sd
LOG_2PI = float(np.log(2.0 * np.pi))
RANK = 1e-11  # eigenvalues below this share of the largest count as zero


@dataclass(frozen=True)
class Conjugate:
    """Weak proper prior, in standardised units of x and w and multiples of the residual sd.

    slope, intercept : prior sd of a coefficient over the residual sd. By default slopes share
        a prior sd of 10 between them, 10 / sqrt(p) each, whatever the number p of inputs: E[W | x]
        does not vary more, a priori, because more lags are looked at.
    residual : prior guess of the residual sd (psi = residual^2), worth about one observation.
    """

    slope: float | None = None
    intercept: float = 100.0
    residual: float = 0.1

    def __post_init__(self) -> None:
        for name in ("slope", "intercept", "residual"):
            if name != "slope" or self.slope is not None:
                value = positive(getattr(self, name), f"Conjugate: {name}")
                object.__setattr__(self, name, value)

    def slope_sd(self, p: int) -> float:
        """Return the prior sd of a slope, over the residual sd, among p inputs."""
        return SLOPES / math.sqrt(max(p, 1)) if self.slope is None else self.slope


@dataclass(frozen=True)
class Flat:
    """The improper prior p(c, v) ~ 1/v: ordinary least squares, of minimum norm if rank-deficient.

    With fewer rows than coefficients the posterior is improper in the directions the rows do not
    span; draws then carry NO uncertainty there. Use it to reproduce, not to decide.
    """


def gram(x: Float2, w: Float2) -> tuple[Float1, Float2]:
    """Return the column means of [x, w] and the Gram matrix of its centred rows.

    One pass in blocks: memory beyond the data is a block, and centring on the first block's mean
    avoids the cancellation of raw moments.
    """
    n, p = x.shape
    dim = p + w.shape[1]
    pilot = np.concatenate([x[:BLOCK].mean(0), w[:BLOCK].mean(0)])
    z = np.ones((min(BLOCK, n), dim + 1))  # the column of ones makes the product carry the sums
    full = np.zeros((dim + 1, dim + 1))
    for start in range(0, n, BLOCK):
        part = z[: min(BLOCK, n - start)]
        np.subtract(x[start : start + BLOCK], pilot[:p], out=part[:, :p])
        np.subtract(w[start : start + BLOCK], pilot[p:], out=part[:, p:dim])
        full += part.T @ part
    shift = full[dim, :dim] / n
    return pilot + shift, full[:dim, :dim] - n * np.outer(shift, shift)


def exact_draws(
    full: Float2,
    w_dim: int,
    prior: Conjugate | Flat,
    draws: int,
    rng: np.random.Generator,
    n: int | None = None,
) -> dict[str, Float3]:
    """Draw from the posterior given the Gram matrix of (1, x, w) over n rows.

    n is read off the Gram matrix unless its rows are weighted.

    Returns coef (draws, 1 + p, w_dim), variance (draws, w_dim) and, for several W, link
    (draws, w_dim (w_dim - 1) / 2), the rows of g below the diagonal. Draws are shifted so that
    their average regression of w on x is the exact posterior mean.
    """
    p, n = len(full) - w_dim - 1, n or round(full[0, 0])
    flat = isinstance(prior, Flat)
    psi = 0.0 if isinstance(prior, Flat) else prior.residual**2
    precision = np.zeros(1 + p + w_dim)
    if isinstance(prior, Conjugate):
        precision[0], precision[1 : 1 + p] = prior.intercept**-2, prior.slope_sd(p) ** -2
        precision[1 + p :] = psi
    coef, link, variance = np.empty((draws, 1 + p, w_dim)), [], np.empty((draws, w_dim))
    for j in range(w_dim):
        m = 1 + p + j
        value, vector = np.linalg.eigh(full[:m, :m] + np.diag(precision[:m]))
        spanned = value > RANK * value[-1] if flat else np.ones(m, dtype=np.bool_)
        root = vector[:, spanned] / np.sqrt(value[spanned])
        cross = full[:m, m]
        mean = root @ (root.T @ cross)
        rest = max(float(full[m, m] + psi - cross @ mean), 0.0)
        shape = max(n - int(spanned.sum()), 1) / 2 if flat else (j + 2 + n) / 2
        variance[:, j] = rest / 2 / rng.gamma(shape, size=draws)
        noise = rng.standard_normal((draws, root.shape[1])) @ root.T
        column = mean + np.sqrt(variance[:, j, None]) * noise
        coef[:, :, j] = column[:, : 1 + p]
        link.append(column[:, 1 + p :])
    out = {"coef": coef, "variance": variance}
    if w_dim > 1:
        out["link"] = np.concatenate(link, axis=1)
    return _match_mean(out, full[: 1 + p, : 1 + p] + np.diag(precision[: 1 + p]), full, flat)


def inverse_root(design: Float2, prior: Conjugate | Flat) -> Float2:
    """Return L (1 + p, q), L L' = (design + prior precision)^-1, its widest columns first.

    design : Gram matrix of (1, x). Under Flat only the q directions that the rows span.
    """
    p, precision = len(design) - 1, np.zeros(len(design))
    if isinstance(prior, Conjugate):
        precision[0], precision[1:] = prior.intercept**-2, prior.slope_sd(p) ** -2
    value, vector = np.linalg.eigh(design + np.diag(precision))
    spanned = value > (RANK * value[-1] if isinstance(prior, Flat) else 0.0)
    out: Float2 = vector[:, spanned] / np.sqrt(value[spanned])
    return out


def _match_mean(
    draws: dict[str, Float3], design: Float2, full: Float2, flat: bool
) -> dict[str, Float3]:
    """Shift coefficients so that their average in reduced form is the posterior mean exactly."""
    p1 = len(design)
    inverse = np.linalg.pinv(design, rcond=RANK, hermitian=True) if flat else np.linalg.inv(design)
    exact = inverse @ full[:p1, p1:]
    reduced, mix = reduced_form(draws)
    reduced += exact - reduced.mean(0)
    return {**draws, "coef": reduced @ np.swapaxes(mix, 1, 2)}


def reduced_form(draws: Mapping[str, Float3]) -> tuple[Float3, Float3]:
    """Return B (draws, 1 + p, w_dim) with E[w | x] = (1, x) B, and T = I - g (draws, w_dim, w_dim).

    T w = coef' (1, x) + noise, hence B = coef T^{-T} and cov(w | x) = T^{-1} diag(v) T^{-T}.
    """
    coef = draws["coef"]
    count, _, w_dim = coef.shape
    mix = np.broadcast_to(np.eye(w_dim), (count, w_dim, w_dim)).copy()
    if w_dim == 1:
        return coef.copy(), mix
    row, column = np.tril_indices(w_dim, -1)
    mix[:, row, column] = -draws["link"]
    return np.swapaxes(np.linalg.solve(mix, np.swapaxes(coef, 1, 2)), 1, 2), mix


class LinearKernel:
    """E[w | x] and draws of w for a linear law, in NumPy from its stored draws.

    ``mean_coef`` (1 + p, w_dim) is the posterior mean of the regression: E[w | x] = (1, x) coef.
    """

    exact_mean = True

    def __init__(self, draws: Mapping[str, Float3]) -> None:
        self.coef, mix = reduced_form(draws)
        self.count, self.columns, self.w_dim = self.coef.shape
        self.mean_coef = self.coef.mean(0)
        scale = np.sqrt(draws["variance"])[:, None, :] * np.eye(self.w_dim)
        self.factor = np.linalg.solve(mix, scale)  # noise = factor @ standard noise
        excess = draws.get("df_excess")
        self.df: Float1 | None = None if excess is None else 2.0 + np.asarray(excess)

    def mean(self, x: Float2) -> Float2:
        """Return E[w | x]: (n, w_dim)."""
        out: Float2 = self.mean_coef[0] + x @ self.mean_coef[1:]
        return out

    def mean_draws(self, x: Float2, index: Int) -> Float3:
        """Return E[w | x, draw]: (len(index), n, w_dim)."""
        return self.coef[index, :1] + x @ self.coef[index, 1:]

    def sample(self, x: Float2 | Float3, index: Int, rng: np.random.Generator) -> Float3:
        """Draw w at x (n, p), or (len(index), n, p), once per entry of ``index``."""
        mean = self.mean_draws(x, index)
        noise = rng.standard_normal(mean.shape)
        if self.df is not None:
            df = self.df[index, None]
            noise *= np.sqrt(df / rng.chisquare(df, size=mean.shape[:2]))[..., None]
        return mean + noise @ np.swapaxes(self.factor[index], 1, 2)

    def cdf_draws(self, x: Float2, w: Float2, index: Int) -> Float3:
        """Return P(w_j <= w | x, draw), (len(index), n, w_dim)."""
        sd = np.sqrt((self.factor[index] ** 2).sum(-1))
        away = (w - self.mean_draws(x, index)) / sd[:, None]
        if self.df is None:
            normal: Float3 = special.ndtr(away)
            return normal
        out: Float3 = special.stdtr(self.df[index, None, None], away)
        return out

    def log_density(self, x: Float2, w: Float2, index: Int) -> Float2:
        """Return log p(w | x, draw), (len(index), n)."""
        inverse = np.linalg.inv(self.factor[index])
        z = (w - self.mean_draws(x, index)) @ np.swapaxes(inverse, 1, 2)
        log_det = np.linalg.slogdet(inverse)[1][:, None]
        square = (z**2).sum(-1)
        if self.df is None:
            normal: Float2 = log_det - 0.5 * (square + self.w_dim * LOG_2PI)
            return normal
        df, d = self.df[index, None], self.w_dim
        scale = gammaln((df + d) / 2) - gammaln(df / 2) - 0.5 * d * np.log(df * np.pi)
        out: Float2 = log_det + scale - 0.5 * (df + d) * np.log1p(square / df)
        return out

    def column_log_density(self, x: Float2, w: Float2, index: Int) -> Float3:
        """Return log p(w_j | x, draw), (len(index), n, w_dim): a column of a t is a t."""
        sd = np.sqrt((self.factor[index] ** 2).sum(-1))[:, None]
        square = ((w - self.mean_draws(x, index)) / sd) ** 2
        if self.df is None:
            normal: Float3 = -0.5 * (square + LOG_2PI) - np.log(sd)
            return normal
        df = self.df[index, None, None]
        scale = gammaln((df + 1) / 2) - gammaln(df / 2) - 0.5 * np.log(df * np.pi)
        out: Float3 = scale - np.log(sd) - 0.5 * (df + 1) * np.log1p(square / df)
        return out
