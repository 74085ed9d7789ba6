"""Directions of linear laws: all of them, in closed form where the posterior has one.

E[W_j | x] = (1, x) B_j, so psi = L'(1, x) with L L' the posterior covariance of B_j. Under Exact
that is K E[Sigma_jj], K = (Gram matrix of (1, x) + prior precision)^-1, Sigma the covariance of
the residuals: exact up to one number for each W, however few draws there are. Other engines have
the covariance of their draws.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pulse_pyro.arrays import Float1, Float2, Float3, Int
from pulse_pyro.errors import ModelError
from pulse_pyro.laws.fitted import FittedLaw
from pulse_pyro.laws.linear import LinearFamily
from pulse_pyro.laws.linear_exact import Conjugate, Flat, LinearKernel, inverse_root
from pulse_pyro.seeds import stream

SIZES = 2000  # posterior draws of ||c||^2


@dataclass(frozen=True, eq=False)
class LinearDirections:
    """psi = L'(1, x) with L L' the posterior covariance of the coefficients: nothing is left out.

    root : (w_dim, 1 + p, q), for raw W and the law's own units of x, 0 beyond a W's own number.
    sizes : (M,) ||c||^2 of posterior draws, over all W.
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


def linear_directions(law: FittedLaw, kernel: LinearKernel, seed: int) -> LinearDirections:
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


def _prior(law: FittedLaw) -> Conjugate | Flat | None:
    """The prior of a law whose inputs and prior give the posterior: rows must count alike."""
    family = law.law.family
    exact = type(law) is FittedLaw and law.record.inference.startswith("Exact")
    return family.prior if exact and isinstance(family, LinearFamily) else None


def _closed_form(
    law: FittedLaw, kernel: LinearKernel, prior: Conjugate | Flat, seed: int
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
