"""Adaptive PULSE-UCB: what a law is unsure of becomes features, so that rewards can repair it.

With psi_1, ..., psi_q the directions in which the law of W is unsure (see ``directions``) and
Phi = c_a(s) + M_a(s) w affine in w,

    theta' E[Phi | S] = theta' phihat + sum_jk (theta_j c_k) M_a,j psi_k(S) + remainder,

c_k of unit scale, so the model is linear again in (phihat, M psi): no bias is left along the
directions, what they leave out is e_t, and what the archive has settled has psi near 0 and costs
nothing. Many archived units: PULSE-UCB. None: Bayesian OFUL in the law's own function space.
"""

from __future__ import annotations

import warnings

import numpy as np

from pulse_pyro._core.arrays import Float1, Float2, Float3, Float4, positive
from pulse_pyro._core.errors import ModelError, SettingError
from pulse_pyro._core.seeds import stream
from pulse_pyro.base import FittedLaw, Follower
from pulse_pyro.data.history import Source
from pulse_pyro.features import Features, need_affine, slopes
from pulse_pyro.laws.adapter import as_law
from pulse_pyro.laws.fitted import PosteriorLaw
from pulse_pyro.policies.imputed import PROBES, Imputed, Scorer
from pulse_pyro.policies.streaming import Streaming
from pulse_pyro.policies.unsure_directions import Directions, directions
from pulse_pyro.radius import CORRECTED, SUM, Radius

DRAWS = 256  # a round, for laws whose E[W] has no closed form


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
    need_affine(features, flat_s, flat_w, "adaptive")
    found = slopes(features, flat_s, flat_w, _step(flat_w))  # (action, n, w_dim, d)
    used = np.argwhere((np.nan_to_num(found) != 0).any(axis=(0, 1)))
    parts = [phihat]
    for i, j in used:
        slope = np.moveaxis(found[..., i, j], 0, 1).reshape(phihat.shape[:3])
        parts.append(slope[..., None] * psi[:, :, None, i])
    return np.concatenate(parts, axis=-1)


def adaptive_error(features: Features, s: Float3, w: Float3, remainder: Float3) -> Float4:
    """Carry the remainder of E[W], (batch, time, w_dim), to the features: |M_a| remainder.

    Returns E_{t,a,j}, (batch, time, action, d): bounds on what the directions leave out.
    """
    flat_s, flat_w = s.reshape(-1, s.shape[-1]), w.reshape(-1, w.shape[-1])
    size = np.abs(slopes(features, flat_s, flat_w, _step(flat_w)))
    found = np.einsum("anij,ni->naj", size, remainder.reshape(len(flat_s), -1))
    out: Float4 = found.reshape(*s.shape[:2], features.actions, -1)
    return out


def theta_size(radius: Radius, theta_bound: float | None, where: str) -> float:
    """Return S >= ||theta*||: the one given, else that of the corrected radius, else 1."""
    if theta_bound is not None:
        return positive(theta_bound, f"{where}: theta_bound")
    return radius.params[0] if getattr(radius, "kind", -1) in (CORRECTED, SUM) else 1.0


def find_directions(
    law: object, reference: Source | Directions | None, seed: int, where: str
) -> Directions | None:
    """Return what rewards could repair of a law, or None, with a warning, if there is nothing.

    law : anything PULSE-UCB plays with; only a fitted law has posterior draws to go by.
    """
    if isinstance(reference, Directions):
        found = reference
        if found.law is not law:
            raise ModelError(f"{where}: the directions passed are those of another law.")
    elif isinstance(law, PosteriorLaw):
        found = directions(law, reference, seed=seed)
    else:
        warnings.warn(
            f"{where}: {type(law).__name__} is no fitted law with posterior draws, so there is "
            "nothing rewards could repair; it plays as PulseUCB.",
            stacklevel=3,
        )
        return None
    if found.law.record.inference.startswith("Ensemble"):
        warnings.warn(
            f"{where}: the spread of an ensemble of networks is no posterior; what it agrees on "
            "wrongly, rewards cannot repair.",
            stacklevel=3,
        )
    if found.counts.any():
        return found
    warnings.warn(
        f"{where}: the law has no posterior spread, so there is nothing rewards could repair; it "
        "plays as PulseUCB.",
        stacklevel=3,
    )
    return None


class AdaptivePulseUCB(Streaming):
    """PULSE-UCB whose law is repaired by rewards, one decision at a time.

    Parameters
    ----------
    law : a fitted law with posterior draws. A law without any spread, or of another kind (then one
        that PulseUCB takes), has nothing to repair: it warns and plays as PulseUCB.
    features : Phi, affine in w (checked at once).
    radius : rule for sqrt(gamma_t); ``corrected`` with ``augmented_bound`` as its theta_bound.
    reference : (batch, time, s_dim) contexts to find the directions at, S alone, or an archive;
        linear laws need none (None). Or Directions found before.
    theta_bound : S >= ||theta*||; carries the remainder to rewards, e_t = S ||E_t||. By default
        that of the corrected radius, else 1.
    ridge : lambda; the directions are scaled by the posterior, so that 1 suits them.
    seed : of the choice of posterior draws.

    Relies on the posterior being honest, and on the truth being one of the law's curves: no reward
    can repair a law along directions it does not know.
    """

    def __init__(
        self,
        law: FittedLaw,
        features: Features,
        radius: Radius,
        reference: Source | Directions | None = None,
        *,
        theta_bound: float | None = None,
        ridge: float = 1.0,
        seed: int = 0,
    ) -> None:
        law = as_law(law, "AdaptivePulseUCB")
        if not isinstance(features, Features):
            raise ModelError(f"AdaptivePulseUCB: features must be Features, not {features!r}.")
        found = find_directions(law, reference, seed, "AdaptivePulseUCB")
        size = theta_size(radius, theta_bound, "AdaptivePulseUCB")
        scorer: Scorer = (
            Imputed(law, features, DRAWS, seed)
            if found is None
            else Adapted(found, features, size, seed)
        )
        super().__init__(scorer, radius, ridge)


class Adapted:
    """Scores (phihat, M psi) for one decision at a time."""

    def __init__(
        self, found: Directions, features: Features, theta_bound: float, seed: int
    ) -> None:
        law = found.law
        self.law, self.features, self.found = law, features, found
        self.theta_bound, self.w_names = theta_bound, law.schema.w_names
        mean, sd = law.schema.contexts
        rng = stream(0, "contexts")
        s: Float2 = mean + 2.0 * sd * rng.standard_normal((PROBES, len(mean)))
        w: Float2 = law.scaler.w_mean + law.scaler.w_scale * rng.standard_normal(
            (PROBES, len(law.schema.w_names))
        )
        need_affine(features, s, w, "AdaptivePulseUCB")
        self._step = law.scaler.w_scale
        self._used = np.argwhere((slopes(features, s, w, self._step) != 0).any(axis=(0, 1)))
        most = int(found.counts.max())
        self.names = features.names + tuple(
            f"{features.names[j]}~{law.schema.w_names[i]}.{k}"
            for i, j in self._used
            for k in range(most)
        )
        self.inner = Imputed(law, features, DRAWS, seed)
        self.inner.affine = True

    def fill(self, past: list[Follower], arms: list[int], out: Float4) -> Float1:
        """Fill x, (1, 1, K, d), of these arms; return e, (K,), what the directions leave out."""
        d = len(self.features.names)
        plain = np.full((1, 1, self.features.actions, d), np.nan)
        self.inner.fill(past, arms, plain)
        out[:] = np.nan
        out[..., :d] = plain
        error = np.zeros(self.features.actions)
        for a in arms:
            own = past[0] if len(past) == 1 else past[a]
            x = own.inputs()[None]
            w, s = own.conditional.mean(), own.now[None]
            slope = slopes(self.features, s, w, self._step, (a,))[0, 0]  # (w_dim, d)
            psi, rest = self.found.at(x)[0], self.found.remainder(x)[0]
            parts = [slope[i, j] * psi[i] for i, j in self._used]
            out[0, 0, a, d:] = np.concatenate(parts) if parts else ()
            error[a] = self.theta_bound * np.linalg.norm(np.abs(slope.T) @ rest)
        return error

    def taught(self, s: Float2, w: Float2, action: int) -> Float1:
        """Refuse: the true features teach nothing about the directions."""
        raise SettingError(
            "AdaptivePulseUCB: a revealed W teaches nothing along the law's directions; let it "
            "refit the law instead, PulseUCB(..., archive=GrowingArchive(...)), or leave w out."
        )

    def swap(self, law: FittedLaw) -> None:
        """Refuse: what rewards taught along the old directions would mean something else."""
        raise SettingError(
            "AdaptivePulseUCB: its law cannot be swapped, the directions it has learned along are "
            "the old law's; use PulseUCB with a growing archive."
        )


def _step(w: Float2) -> Float1:
    """A step of the size of W, 1 where it is always 0."""
    known = np.abs(w[np.isfinite(w).all(1)])
    size: Float1 = known.mean(0) if len(known) else np.ones(w.shape[1])
    return np.where(size > 0, size, 1.0)
