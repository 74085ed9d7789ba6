"""In which directions a law is unsure, from its posterior.

A law with posterior draws mu^(m)(x) of E[W | x] varies, a posteriori, along functions psi_k:

    E[W | x] = mubar(x) + sum_k c_k psi_k(x) + remainder(x),   c_k of mean 0 and unit scale.

Linear laws have psi = L'(1, x) with L L' the posterior covariance of the coefficients, and no
remainder. Other laws have the main deviations of their draws at reference contexts (SVD); what
these leave out is bounded by other draws (by the same ones, and too small, where a law has fewer
than 20).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from pulse_pyro.arrays import Float1, Float2, Float3, Int, share, whole
from pulse_pyro.errors import DataError, ModelError
from pulse_pyro.laws.fitted import FittedLaw
from pulse_pyro.laws.linear_exact import LinearKernel
from pulse_pyro.seeds import stream

ENERGY = 0.99  # share of the posterior's variance the directions hold
LEVEL = 0.95  # of the remainder, over all reference contexts at once
FEW = 20  # draws below which none can be spared to judge the others
REFERENCE = 2000  # contexts at most that directions are found at


@runtime_checkable
class Directions(Protocol):
    """Where a law is unsure."""

    @property
    def counts(self) -> Int:
        """(w_dim,) number of directions of each W; all 0: the law has no posterior spread."""

    @property
    def law(self) -> FittedLaw:
        """Whose they are."""

    @property
    def sizes(self) -> Float1:
        """||c||^2 of posterior draws along the directions, over all W."""

    def at(self, x: Float2) -> Float3:
        """Return psi, (n, w_dim, q), at rows x (n, p) of the law's inputs."""

    def remainder(self, x: Float2) -> Float2:
        """Bound what the directions leave out of E[W | x], (n, w_dim)."""


@dataclass(frozen=True, eq=False)
class LinearDirections:
    """psi = L'(1, x) with L L' the posterior covariance of the coefficients: nothing is left out.

    root : (w_dim, 1 + p, q), for raw W and the law's own units of x, 0 beyond a W's own number.
    sizes : (M,) ||c||^2 of each draw, over all W. As many draws as coefficients, at least, are
    needed to know the covariance: directions that fewer do not span are missing.
    """

    law: FittedLaw
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


@dataclass(frozen=True, eq=False)
class DrawDirections:
    """psi_k(x) = sum_m v_km (mu^(m)(x) - mubar(x)) / sqrt(M): the main deviations of the draws.

    index : (M,) the draws. vectors : (w_dim, M, q) right singular vectors of their deviations at
    the reference contexts, 0 beyond a W's own number. others : (M',) draws the remainder is judged
    by. coef : (w_dim, q, M') what of these the directions explain. critical : (w_dim,) sup over the
    reference contexts of |what is left of a draw| over the root mean square of what is left of the
    others, at level 95 % over draws.
    """

    law: FittedLaw
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
    law: FittedLaw, reference: Float3, *, most: int = 8, draws: int = 64, seed: int = 0
) -> Directions:
    """Find the directions in which a law is unsure.

    Parameters
    ----------
    law : fitted; linear laws get all directions in closed form.
    reference : (batch, time, s_dim) contexts like those to come, e.g. the archive's S; not used by
        linear laws.
    most, draws : at most so many directions for each W, from so many posterior draws; as many as
        hold 99 % of their variance.
    seed : of the choice of draws.

    Relies on the posterior being honest: diagnose the law first. The remainder is a statement of
    the posterior about contexts like the reference, not a confidence band: calibration is. A law
    whose draws are all alike (or that has only one) has no directions: ``counts`` is 0.
    """
    if not isinstance(law, FittedLaw):
        raise ModelError(
            f"directions: a fitted law with draws was expected, {type(law).__name__} came."
        )
    whole(most, "directions: most", 1)
    whole(draws, "directions: draws", 2)
    kernel = law.kernel
    if isinstance(kernel, LinearKernel):
        scale = law.scaler.w_scale
        root = np.stack([_root(kernel.coef[:, :, j]) * scale[j] for j in range(len(scale))])
        root = root[..., : int((root != 0).any(1).sum(1).max())]
        apart = (kernel.coef - kernel.mean_coef) * scale
        back = np.linalg.pinv(root, rcond=1e-10)
        sizes = (np.einsum("mpw,wqp->mwq", apart, back) ** 2).sum((1, 2))
        return LinearDirections(law, root, sizes)
    order = stream(seed, "directions").permutation(kernel.count)
    half = min(draws, kernel.count // 2)
    index, others = order[:half], order[half : 2 * half]
    if kernel.count < FEW:
        index = others = order
    x = _reference(law, reference, seed)
    w_dim = len(law.w_names)
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


def _reference(law: FittedLaw, reference: Float3, seed: int) -> Float2:
    """Return complete input rows of the reference contexts, a random choice if there are many."""
    s = np.asarray(getattr(reference, "s", reference), np.float64)  # an archive has its S
    if s.ndim != 3 or s.shape[-1] != len(law.s_names):
        raise DataError(
            f"directions: reference must be (batch, time, {len(law.s_names)}) with columns "
            f"{law.s_names}, such as archive.s, but its shape is {s.shape}."
        )
    x = law.summary(s)
    rows = x.reshape(-1, x.shape[-1])
    rows = rows[np.isfinite(rows).all(1)]
    if not len(rows):
        raise DataError(
            "directions: no reference context has all inputs of the law; pass series with the "
            "lags it looks at, such as the archive's s."
        )
    some: Float2 = rows[stream(seed, "reference").permutation(len(rows))[:REFERENCE]]
    return some


def _deviations(law: FittedLaw, x: Float2, index: Int) -> Float3:
    """Return mu^(m) - mean over these draws, (M, n, w_dim)."""
    found = law.mean_draws_at(x, index)
    return np.asarray(found - found.mean(0))


def _left(law: FittedLaw, x: Float2, others: Int, psi: Float3, coef: Float3) -> Float3:
    out: Float3 = _deviations(law, x, others) - np.einsum("nwq,wqm->mnw", psi, coef)
    return out


def _root(coef: Float2) -> Float2:
    """Return L with L L' the covariance of coefficient draws (draw, 1 + p), 0 if they are alike."""
    if len(coef) < 2:
        return np.zeros((coef.shape[1],) * 2)
    value, vector = np.linalg.eigh(np.cov(coef.T))
    value = np.where(value > 1e-14 * max(float((coef**2).max()), 1e-300), value, 0.0)
    out: Float2 = (vector * np.sqrt(value))[:, ::-1]  # the widest first
    return out
