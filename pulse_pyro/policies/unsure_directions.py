"""In which directions a law is unsure, from its posterior.

A law with posterior draws mu^(m)(x) of E[W | x] varies, a posteriori, along functions psi_k:

    E[W | x] = mubar(x) + sum_k c_k psi_k(x) + remainder(x),   c_k of mean 0 and unit scale.

Linear laws have psi = L'(1, x) with L L' the posterior covariance of the coefficients, and no
remainder (see ``linear_directions``). Other laws have the main deviations of their draws at
reference contexts (SVD); what these leave out is bounded by other draws (by the same ones, and too
small, where a law has fewer than 20).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from pulse_pyro._core.arrays import Float1, Float2, Float3, Int, share, whole
from pulse_pyro._core.errors import DataError, ModelError, PulseError, SettingError
from pulse_pyro._core.seeds import stream
from pulse_pyro.data.history import Source, context_rows
from pulse_pyro.laws.conjugate import Conjugate, Flat, LinearKernel, inverse_root
from pulse_pyro.laws.fitted import PosteriorLaw
from pulse_pyro.laws.linear import LinearFamily

# Directions of linear laws: all of them, in closed form where the posterior has one.
#
# E[W_j | x] = (1, x) B_j, so psi = L'(1, x) with L L' the posterior covariance of B_j. Under Exact
# that is K E[Sigma_jj], K = (Gram matrix of (1, x) + prior precision)^-1, Sigma the covariance of
# the residuals: exact up to one number for each W, however few draws there are. Other engines have
# the covariance of their draws.


SIZES = 2000  # posterior draws of ||c||^2


@dataclass(frozen=True, eq=False)
class LinearDirections:
    """psi = L'(1, x) with L L' the posterior covariance of the coefficients: nothing is left out.

    root : (w_dim, 1 + p, q), for raw W and the law's own units of x, 0 beyond a W's own number.
    sizes : (M,) ||c||^2 of posterior draws, over all W.
    """

    law: PosteriorLaw
    root: Float3
    sizes: Float1

    @property
    def counts(self) -> Int:
        """Columns of L that are not 0."""
        return np.asarray((self.root != 0).any(1).sum(1))

    def at(self, x: Float2) -> Float3:
        """Return psi, (n, w_dim, q)."""
        z = self.law.scaler.x_in(self.law.inputs.fill(x))
        ones = np.concatenate([np.ones((len(z), 1)), z], axis=1)
        psi: Float3 = np.einsum("np,wpq->nwq", ones, self.root)
        return psi

    def remainder(self, x: Float2) -> Float2:
        """Return zeros."""
        return np.zeros((len(x), len(self.root)))


def linear_directions(law: PosteriorLaw, kernel: LinearKernel, seed: int) -> LinearDirections:
    """Return all directions of a linear law; none if its draws are all alike.

    Refuses a law without closed form and with too few draws to span its coefficients: what they
    miss would be called settled.
    """
    apart, scale = kernel.coef - kernel.mean_coef, law.scaler.w_scale
    count, size, w_dim = apart.shape
    if np.abs(apart).max() <= 1e-7 * max(np.abs(kernel.coef).max(), 1e-150):  # rounding
        return LinearDirections(law, np.zeros((w_dim, size, 0)), np.zeros(count))
    prior = _prior(law)
    if prior is not None:
        return _closed_form(law, kernel, prior, seed)
    if count <= size:
        raise ModelError(
            f"directions: {count} draws of {law.law.label} cannot span its {size} coefficients; "
            f"fit it with more than {size} draws, or use PulseUCB."
        )
    root = np.stack([_root(kernel.coef[:, :, j]) * scale[j] for j in range(w_dim)])
    root = root[..., : int((root != 0).any(1).sum(1).max())]
    back = np.linalg.pinv(root, rcond=1e-10)
    sizes = (np.einsum("mpw,wqp->mwq", apart * scale, back) ** 2).sum((1, 2))
    return LinearDirections(law, root, sizes)


def _prior(law: PosteriorLaw) -> Conjugate | Flat | None:
    """The prior of a law whose inputs and prior give the posterior: rows must count alike."""
    family = law.law.family
    exact = type(law) is PosteriorLaw and law.record.inference.startswith("Exact")
    return family.prior if exact and isinstance(family, LinearFamily) else None


def _closed_form(
    law: PosteriorLaw, kernel: LinearKernel, prior: Conjugate | Flat, seed: int
) -> LinearDirections:
    scaler, inputs = law.scaler, law.inputs
    ones = np.concatenate([[1.0], scaler.x_in(inputs.mean)])
    gram = np.outer(ones, ones)
    gram[1:, 1:] += inputs.cov / np.outer(scaler.x_scale, scaler.x_scale)
    shared = inverse_root(law.record.rows * gram, prior)  # (1 + p, q), widest first
    noise = np.sqrt((kernel.factor**2).sum(-1).mean(0))  # E[Sigma_jj]^(1/2)
    rng = stream(seed, "sizes")
    # c = K^(-1/2) (B - its mean) / noise, column by column; given Sigma, B is matrix-normal
    factor = kernel.factor[rng.integers(kernel.count, size=SIZES)] / noise[:, None]
    c = rng.standard_normal((SIZES, shared.shape[1], kernel.w_dim)) @ np.swapaxes(factor, 1, 2)
    root = shared * (noise * scaler.w_scale)[:, None, None]
    return LinearDirections(law, root, (c**2).sum((1, 2)))


def _root(coef: Float2) -> Float2:
    """Return L with L L' the covariance of coefficient draws (draw, 1 + p)."""
    value, vector = np.linalg.eigh(np.cov(coef.T))
    value = np.where(value > 1e-14 * max(float((coef**2).max()), 1e-300), value, 0.0)
    out: Float2 = (vector * np.sqrt(value))[:, ::-1]  # the widest first
    return out


ENERGY = 0.99  # share of the posterior's variance the directions hold
LEVEL = 0.95  # of the remainder, over all reference contexts at once
FEW = 20  # draws below which none can be spared to judge the others
REFERENCE = 2000  # contexts at most that directions are found at
LEAST = 500  # different ones, at least
WIDE = 2.0  # spread of made-up contexts, over that of S in the archive


@runtime_checkable
class Directions(Protocol):
    """Where a law is unsure."""

    @property
    def counts(self) -> Int:
        """(w_dim,) number of directions of each W; all 0: the law has no posterior spread."""

    @property
    def law(self) -> PosteriorLaw:
        """Whose they are."""

    @property
    def sizes(self) -> Float1:
        """||c||^2 of posterior draws along the directions, over all W."""

    def at(self, x: Float2) -> Float3:
        """Return psi, (n, w_dim, q), at rows x (n, p) of the law's inputs."""

    def remainder(self, x: Float2) -> Float2:
        """Bound what the directions leave out of E[W | x], (n, w_dim)."""


@dataclass(frozen=True, eq=False)
class DrawDirections:
    """psi_k(x) = sum_m v_km (mu^(m)(x) - mubar(x)) / sqrt(M): the main deviations of the draws.

    index : (M,) the draws. vectors : (w_dim, M, q) right singular vectors of their deviations at
    the reference contexts, 0 beyond a W's own number. others : (M',) draws the remainder is judged
    by. coef : (w_dim, q, M') what of these the directions explain. critical : (w_dim,) sup over the
    reference contexts of |what is left of a draw| over the root mean square of what is left of the
    others, at level 95 % over draws.
    """

    law: PosteriorLaw
    index: Int
    vectors: Float3
    others: Int
    coef: Float3
    critical: Float1

    @property
    def sizes(self) -> Float1:
        """||c||^2 of each of the other draws, over all W."""
        found: Float1 = (self.coef**2).sum((0, 1))
        return found

    @property
    def counts(self) -> Int:
        """Directions of each W."""
        return np.asarray((self.vectors != 0).any(1).sum(1))

    def at(self, x: Float2) -> Float3:
        """Return psi, (n, w_dim, q)."""
        apart = _deviations(self.law, x, self.index) / np.sqrt(len(self.index))
        psi: Float3 = np.einsum("mnw,wmq->nwq", apart, self.vectors)
        return psi

    def remainder(self, x: Float2) -> Float2:
        """Bound the rest, (n, w_dim): a credible band of the law over the reference contexts."""
        left = _left(self.law, x, self.others, self.at(x), self.coef)
        out: Float2 = self.critical * np.sqrt((left**2).mean(0))
        return out


def directions(
    law: PosteriorLaw,
    reference: Source | None = None,
    *,
    most: int = 8,
    draws: int = 64,
    seed: int = 0,
) -> Directions:
    """Find the directions in which a law is unsure.

    Parameters
    ----------
    law : fitted; linear laws get all directions in closed form. E[W] given a draw must have a
        closed form: Monte Carlo noise would pass for spread.
    reference : (batch, time, s_dim) contexts like those to come, S alone, or an archive; not used
        by linear laws, which need none.
    most, draws : at most so many directions for each W, from so many posterior draws; as many as
        hold 99 % of their variance.
    seed : of the choice of draws, and of made-up contexts.

    Where the law was fitted it is sure of itself, so that few archived rows alone would show none
    of the directions that matter elsewhere. Fewer than 500 different reference contexts are
    therefore joined by made-up ones, normal around the archive's mean of S with twice its sd, some
    with steady and some with jumping lags, until there are as many. Of an archive too small to know
    the spread of S they are a guess: contexts like those to come, where there are any, are better.

    Relies on the posterior being honest: diagnose the law first. The remainder is a statement of
    the posterior about contexts like these, not a confidence band: calibration is. A law whose
    draws are all alike (or that has only one) has no directions: ``counts`` is 0.
    """
    if not isinstance(law, PosteriorLaw):
        raise ModelError(
            f"directions: a fitted law with draws was expected, but got {type(law).__name__}, "
            "whose posterior is not there to say where it is unsure; use PulseUCB."
        )
    whole(most, "directions: most", 1)
    whole(draws, "directions: draws", 2)
    kernel = law.kernel
    if isinstance(kernel, LinearKernel):
        return linear_directions(law, kernel, seed)
    if not law.kernel.exact_mean:
        raise ModelError(
            f"directions: E[W] of {law.law.label} has no closed form given a draw, so that its "
            "directions would be Monte Carlo noise; use PulseUCB."
        )
    if reference is None:
        raise SettingError(
            f"directions: {law.law.label} is not linear, so reference contexts are needed: pass "
            "the archive, or contexts like those to come; S alone is enough."
        )
    x, w_dim = _reference(law, reference, seed), len(law.schema.w_names)
    if kernel.count < 2:
        alone, none = np.zeros(1, np.int64), np.zeros((w_dim, 1, 0))
        return DrawDirections(law, alone, none, alone, np.zeros((w_dim, 0, 1)), np.zeros(w_dim))
    order = stream(seed, "directions").permutation(kernel.count)
    half = min(draws, kernel.count // 2)
    index, others = order[:half], order[half : 2 * half]
    if kernel.count < FEW:
        index = others = order
    apart = _deviations(law, x, index) / np.sqrt(len(index))
    vectors = np.zeros((w_dim, len(index), most))
    for j in range(w_dim):
        value, vector = np.linalg.eigh(apart[..., j] @ apart[..., j].T)
        value, vector = np.maximum(value[::-1], 0.0), vector[:, ::-1]
        if value[0] <= 1e-20 * float(law.scaler.w_scale[j]) ** 2 * len(x):  # rounding
            continue
        held = np.cumsum(value) / value.sum()
        q = min(int(np.searchsorted(held, ENERGY)) + 1, most)
        vectors[j, :, :q] = vector[:, :q]
    vectors = vectors[..., : int((vectors != 0).any(1).sum(1).max())]
    psi = np.einsum("mnw,wmq->nwq", apart, vectors)
    beyond = _deviations(law, x, others)
    coef = np.stack(
        [np.linalg.lstsq(psi[:, j], beyond[..., j].T, rcond=1e-10)[0] for j in range(w_dim)]
    )
    left = beyond - np.einsum("nwq,wqm->mnw", psi, coef)
    count = len(others)
    rest = np.sqrt(np.maximum((left**2).sum(0) - left**2, 0.0) / (count - 1))
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = np.sort(np.where(rest > 0, np.abs(left) / rest, 0.0).max(1), axis=0)
    # the rank a further draw stays below with this probability
    rank = min(int(np.ceil(LEVEL * (count + 1))), count) - 1
    return DrawDirections(law, index, vectors, others, coef, ratio[rank])


def augmented_bound(theta_bound: float, found: Directions, *, delta: float = 0.05) -> float:
    """Bound the augmented parameter (theta, theta_j c_k), given ||theta|| <= theta_bound.

    ||(theta, theta c)|| <= S sqrt(1 + ||c||^2), and ||c||^2 over all W is below its quantile among
    the posterior's own draws with probability 1 - delta. Cautious where each feature involves one
    W only.
    """
    share(delta, "augmented_bound: delta")
    sizes = np.sort(found.sizes)
    rank = min(int(np.ceil((1.0 - delta) * (len(sizes) + 1))), len(sizes)) - 1
    return float(theta_bound * np.sqrt(1.0 + sizes[rank]))


def _reference(law: PosteriorLaw, reference: Source, seed: int) -> Float2:
    """Return complete input rows of the reference contexts: some of many, more if they are few."""
    rows, _ = context_rows(reference, law.summary, law.schema, "directions: reference")
    rows = rows[np.isfinite(rows).all(1)]
    if not len(rows):
        raise DataError(
            "directions: no reference context has all inputs of the law; pass series with the "
            "lags it looks at, such as the archive's s."
        )
    some: Float2 = rows[stream(seed, "reference").permutation(len(rows))[:REFERENCE]]
    missing = LEAST - len(np.unique(some, axis=0))
    return some if missing <= 0 else np.concatenate([some, _made_up(law, missing, seed)])


def _made_up(law: PosteriorLaw, size: int, seed: int) -> Float2:
    """Return input rows (size, p) of short series around the archive's S, where the law answers."""
    rng, (mean, sd) = stream(seed, "made up"), law.schema.contexts
    sd = np.where(sd > 1e-10 * np.abs(mean), sd, 1.0)  # a constant column has no spread
    shape = size, law.summary.memory, len(mean)
    steady = rng.random((size, 1, 1))  # correlation of the rows of a series
    level, jump = rng.standard_normal((size, 1, len(mean))), rng.standard_normal(shape)
    z = np.sqrt(steady) * level + np.sqrt(1.0 - steady) * jump
    x: Float2 = law.summary(mean + WIDE * sd * z)[:, -1]
    try:
        known = law.mean_draws_at(x, np.zeros(1, np.int64))[0]
    except (PulseError, ValueError):  # a custom model need not be defined at every context
        return x[:0]
    answered: Float2 = x[np.isfinite(known).all(1)]
    return answered


def _deviations(law: PosteriorLaw, x: Float2, index: Int) -> Float3:
    """Return mu^(m) - mean over these draws, (M, n, w_dim)."""
    found = law.mean_draws_at(x, index)
    return np.asarray(found - found.mean(0))


def _left(law: PosteriorLaw, x: Float2, others: Int, psi: Float3, coef: Float3) -> Float3:
    out: Float3 = _deviations(law, x, others) - np.einsum("nwq,wqm->mnw", psi, coef)
    return out
