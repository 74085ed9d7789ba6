"""Adaptive PULSE-UCB: what a law is unsure of becomes features, so that rewards can repair it.

A law with posterior draws mu^(m)(s) of E[W | S] knows in which directions it may be wrong. With
psi_1, ..., psi_q those directions, scaled by the posterior's own standard deviation, and
Phi = c_a(s) + M_a(s) w affine in w,

    theta' E[Phi | S] = theta' phihat + sum_jk (theta_j c_k) M_a,j psi_k(S),   c_k of unit scale,

so the model is linear again in (phihat, M psi): no bias is left along the directions, and what the
archive has settled has psi near 0 and costs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from pulse_pyro.arrays import Float, Float2, Float3, Float4, whole
from pulse_pyro.errors import FeatureError, ModelError
from pulse_pyro.features import Features
from pulse_pyro.laws.fitted import FittedLaw
from pulse_pyro.laws.linear_exact import LinearKernel
from pulse_pyro.seeds import stream

ENERGY = 0.99  # share of the posterior's variance the directions hold


class Directions(Protocol):
    """Where a law is unsure."""

    def __call__(self, s: Float3) -> Float4:
        """Return psi, (batch, time, w_dim, q), at s (batch, time, s_dim)."""


@dataclass(frozen=True, eq=False)
class LinearDirections:
    """psi = L'(1, x) with L L' the posterior covariance of the coefficients: nothing is left out.

    root : (w_dim, 1 + p, 1 + p), for raw W and the law's own units of x.
    """

    law: FittedLaw
    root: Float3

    def __call__(self, s: Float3) -> Float4:
        """Return psi, (batch, time, w_dim, 1 + p)."""
        x = self.law.inputs_at(s)
        ones = np.concatenate([np.ones((*x.shape[:-1], 1)), x], axis=-1)
        psi: Float4 = np.einsum("btp,wpq->btwq", ones, self.root)
        return psi


@dataclass(frozen=True, eq=False)
class DrawDirections:
    """psi_k(s) = sum_m v_km (mu^(m)(s) - mubar(s)) / sqrt(M): the main deviations of the draws.

    vectors : (w_dim, M, q), right singular vectors of the deviations at reference contexts. seed :
    of the choice of the M draws.
    """

    law: FittedLaw
    vectors: Float3
    seed: int

    def __call__(self, s: Float3) -> Float4:
        """Return psi, (batch, time, w_dim, q)."""
        apart = _deviations(self.law, s, self.vectors.shape[1], self.seed)
        psi: Float4 = np.einsum("mbtw,wmq->btwq", apart, self.vectors)
        return psi


def directions(
    law: FittedLaw, reference: Float3, *, most: int = 8, draws: int = 64, seed: int = 0
) -> Directions:
    """Find the directions in which a law is unsure.

    Parameters
    ----------
    law : fitted; linear laws get all directions in closed form.
    reference : (batch, time, s_dim) contexts like those to come, e.g. the archive's; not used by
        linear laws.
    most, draws : at most so many directions for each W, from so many posterior draws; as many as
        hold 99 % of their variance. Fewer are padded by zeros.
    seed : of the choice of draws.

    Relies on the posterior being honest: diagnose the law first. A law whose draws are all alike
    has no directions, and adaptive PULSE-UCB is then PULSE-UCB.
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
        roots = [_root(np.cov(kernel.coef[:, :, j].T)) * scale[j] for j in range(len(scale))]
        return LinearDirections(law, np.stack(roots))
    apart = _deviations(law, np.asarray(reference, np.float64), draws, seed)
    count = apart.shape[0]
    vectors = np.zeros((apart.shape[-1], count, most))
    for j in range(apart.shape[-1]):
        rows = apart[..., j].reshape(count, -1)
        rows = rows[:, np.isfinite(rows).all(0)]
        value, vector = np.linalg.eigh(rows @ rows.T)
        value, vector = np.maximum(value[::-1], 0.0), vector[:, ::-1]
        if not value[0] > 0:
            continue
        held = np.cumsum(value) / value.sum()
        q = min(int(np.searchsorted(held, ENERGY)) + 1, most)
        vectors[j, :, :q] = vector[:, :q]
    return DrawDirections(law, vectors, seed)


def adaptive_features(
    phihat: Float4, features: Features, s: Float3, w: Float3, psi: Float4
) -> Float4:
    """Return (phihat, M_a,j psi_k), (batch, time, action, d + extra).

    Parameters
    ----------
    phihat : (batch, time, action, d) expected features. features : Phi, affine in w.
    s, w : (batch, time, dim) contexts and E[W]. psi : (batch, time, w_dim, q).

    One extra feature for each direction k of W_i and each coordinate j of Phi that W_i enters.
    """
    flat_s, flat_w = s.reshape(-1, s.shape[-1]), w.reshape(-1, w.shape[-1])
    if not features.affine_in_w(flat_s, flat_w):
        raise FeatureError(
            "adaptive: Phi must be affine in w, or directions of W do not carry over to it."
        )
    slopes = _slopes(features, flat_s, flat_w)  # (action, n, w_dim, d)
    used = np.argwhere((np.nan_to_num(slopes) != 0).any(axis=(0, 1)))
    lead = phihat.shape[:3]
    parts = [phihat]
    for i, j in used:
        slope = np.moveaxis(slopes[..., i, j], 0, 1).reshape(lead)
        parts.append(slope[..., None] * psi[:, :, None, i])
    return np.concatenate(parts, axis=-1)


def _slopes(features: Features, s: Float2, w: Float2) -> Float4:
    """Return M_a(s) = dPhi / dw, (action, n, w_dim, d)."""
    out = []
    for a in range(features.actions):
        base = features.unchecked(s, w, a)
        moved = []
        for i in range(w.shape[1]):
            step = w.copy()
            step[:, i] += 1.0
            change = features.unchecked(s, step, a) - base
            moved.append(np.where(np.abs(change) > 1e-9 * (1.0 + np.abs(base)), change, 0.0))
        out.append(np.stack(moved, axis=1))
    return np.stack(out)


def _deviations(law: FittedLaw, s: Float3, draws: int, seed: int) -> Float:
    """Return (mu^(m) - mubar) / sqrt(M), (M, batch, time, w_dim), always of the same draws."""
    found = law.mean_draws(s, min(draws, law.kernel.count), rng=stream(seed, "directions"))
    out: Float = (found - found.mean(0)) / np.sqrt(len(found))
    return out


def _root(cov: Float2) -> Float2:
    value, vector = np.linalg.eigh(cov)
    out: Float2 = vector * np.sqrt(np.maximum(value, 0.0))
    return out
