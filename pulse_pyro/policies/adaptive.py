"""Adaptive PULSE-UCB: what a law is unsure of becomes features, so that rewards can repair it.

With psi_1, ..., psi_q the directions in which the law of W is unsure (see ``directions``) and
Phi = c_a(s) + M_a(s) w affine in w,

    theta' E[Phi | S] = theta' phihat + sum_jk (theta_j c_k) M_a,j psi_k(S) + remainder,

c_k of unit scale, so the model is linear again in (phihat, M psi): no bias is left along the
directions, what they leave out is e_t, and what the archive has settled has psi near 0 and costs
nothing. Many archived units: PULSE-UCB. None: Bayesian OFUL in the law's own function space.

Directions of the posterior make a ball that is credible, not one of confidence. With the archive's
own ellipsoid instead (``augmented``) it is one of confidence, conditional on the law's form.
"""

from __future__ import annotations

import warnings

import numpy as np

from pulse_pyro._core.arrays import Float1, Float2, Float3, Float4, positive
from pulse_pyro._core.errors import ModelError, SettingError
from pulse_pyro._core.seeds import stream
from pulse_pyro.base import FittedLaw, Follower
from pulse_pyro.data.history import Source, context_rows
from pulse_pyro.features import Features, need_affine, slopes
from pulse_pyro.laws.adapter import as_law
from pulse_pyro.laws.ellipsoid import Ellipsoid
from pulse_pyro.laws.fitted import PosteriorLaw
from pulse_pyro.policies.augmented import Augmented, augmented_ball
from pulse_pyro.policies.balls import ArchiveScale, RewardNoise, reward_noise
from pulse_pyro.policies.guard import Ball, bias_map, spread_at
from pulse_pyro.policies.imputed import PROBES, Imputed, Scorer
from pulse_pyro.policies.streaming import Streaming, bonus_core, one_of
from pulse_pyro.policies.streaming_guard import Advisor, StreamingGuard
from pulse_pyro.policies.unsure_directions import Directions, directions
from pulse_pyro.radius import CORRECTED, SUM, Radius, constant

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


def theta_size(radius: Radius | None, theta_bound: float | None, where: str) -> float:
    """Return S >= ||theta*||: the one given, else that of the corrected radius, else 1."""
    if theta_bound is not None:
        return positive(theta_bound, f"{where}: theta_bound")
    known = isinstance(radius, Radius) and radius.kind in (CORRECTED, SUM)
    return radius.params[0] if isinstance(radius, Radius) and known else 1.0


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

    With ``prior=law.ellipsoid(...)``: what the archive leaves open of a linear law (or of a
    declared sieve) becomes features, and the ball is one of confidence,

        r^2 = lambda ||theta||^2 + lambda_psi chi^2 sum_j theta_j^2
              + sigma(theta)^2 (logdet + 2 log(1/delta)),

    with probability >= 1 - delta - (1 - level), conditional on E[W | S] being linear in the law's
    inputs. It is played as a guard around an advisor, the constant radius sigma by default.
    Without: what the law's posterior leaves open, at any law with draws; that ball is credible,
    not one of confidence, and its radius a bonus without a guard.

    Parameters
    ----------
    law : a fitted law with posterior draws. A law without any spread, or of another kind (then one
        that PulseUCB takes), has nothing to repair: it warns and plays as PulseUCB.
    features : Phi, affine in w (checked at once).
    radius : rule for sqrt(gamma_t); ``corrected`` with ``augmented_bound`` as its theta_bound.
    reference : (batch, time, s_dim) contexts to find the directions at, S alone, or an archive;
        linear laws need none (None). Or Directions found before. With a prior, contexts at which
        Phi's slopes in w are found, needed only if these vary with S.
    prior : the law's ellipsoid.
    reward_sd, reward_range, sigma, delta, advisor, slack : with a prior, as in PulseUCB.
    theta_bound : S >= ||theta*||. Without a prior it carries the remainder to rewards, e_t =
        S ||E_t||, and is by default that of the corrected radius, else 1.
    ridge : lambda; 1 suits directions scaled by the posterior; d (sigma / S)^2 with a prior.
    seed : of the choice of posterior draws.

    Without a prior it relies on the posterior being honest, and on the truth being one of the law's
    curves: no reward can repair a law along directions it does not know. With one it refuses rounds
    whose inputs are not all seen; NOT covered: see ``policies.augmented``.
    """

    def __init__(
        self,
        law: FittedLaw,
        features: Features,
        radius: Radius | None = None,
        reference: Source | Directions | None = None,
        *,
        prior: Ellipsoid | None = None,
        reward_sd: float | None = None,
        reward_range: tuple[float, float] | None = None,
        sigma: float | None = None,
        theta_bound: float | None = None,
        delta: float = 0.05,
        advisor: Advisor | None = None,
        slack: float = 3.0,
        ridge: float | None = None,
        seed: int = 0,
    ) -> None:
        where = "AdaptivePulseUCB"
        law = as_law(law, where)
        if not isinstance(features, Features):
            raise ModelError(f"{where}: features must be Features, not {features!r}.")
        guard = {
            "reward_sd": reward_sd,
            "reward_range": reward_range,
            "sigma": sigma,
            "advisor": advisor,
        }
        one_of(radius, prior, guard, where, "prior=law.ellipsoid()")
        if prior is not None:
            noise = reward_noise(reward_sd, reward_range, sigma)
            scored, ball, lam = ellipsoid_prior(
                law,
                features,
                prior,
                reference,
                noise=noise,
                theta_bound=theta_bound,
                delta=delta,
                ridge=ridge,
            )
            core = StreamingGuard(
                ball,
                None,
                features.actions,
                len(scored.names),
                lam,
                constant(ball.sigma) if advisor is None else advisor,
                slack,
            )
            super().__init__(scored, core)
            return
        found = find_directions(law, reference, seed, where)
        scorer: Scorer = Imputed(law, features, DRAWS, seed)
        if found is not None:
            scorer = Adapted(found, features, theta_size(radius, theta_bound, where), seed)
        super().__init__(scorer, bonus_core(radius, ridge, scorer, None, where))

    def __repr__(self) -> str:
        said = super().__repr__()
        if isinstance(self.scorer, Adapted):
            said += "\n  credible, not confidence: it rests on the law's posterior"
        return said


def ellipsoid_prior(
    law: FittedLaw,
    features: Features,
    prior: Ellipsoid,
    reference: Source | Directions | None = None,
    *,
    noise: RewardNoise | None,
    theta_bound: float | None,
    delta: float = 0.05,
    ridge: float | None = None,
) -> tuple[Augmented, Ball, float]:
    """Return the features of a law's ellipsoid, their ball and their ridge, all asked for checked.

    reference : contexts like those to come, needed where slopes of Phi in w vary with S; by default
    contexts made up around the archive's.
    """
    where = "AdaptivePulseUCB"
    if not isinstance(prior, Ellipsoid) or not isinstance(law, PosteriorLaw):
        raise ModelError(
            f"{where}: prior must be the ellipsoid of a fitted law, law.ellipsoid(), but got "
            f"{type(prior).__name__} of {type(law).__name__}."
        )
    if prior.law_id != law.id:
        raise ModelError(
            f"{where}: the ellipsoid is that of law {prior.law_id}, but {law.id} plays; pass "
            "prior=law.ellipsoid()."
        )
    if isinstance(reference, Directions):
        raise SettingError(f"{where}: with a prior, reference must be contexts, not directions.")
    if reference is None:
        s, w = made_up_rows(law)
    else:
        _, s = context_rows(reference, law.summary, law.schema, where)
        w = prior.at(law, reference)[1]
        seen = np.isfinite(s).all(-1) & np.isfinite(w).all(-1)
        if not seen.any():
            raise SettingError(f"{where}: no reference context has all inputs of the law.")
        s, w = s[seen], w[seen]
    bias = bias_map(features, s, w)
    residual = np.broadcast_to(prior.residual, (len(s), *prior.residual.shape))
    spread = spread_at(features, s, w, residual)
    scale = ArchiveScale.of(features, s, w, spread)
    trusted, size = scale.trusted(noise, theta_bound, where)
    if bias.fixed is None and reference is None and not trusted.whole:
        raise SettingError(
            f"{where}: slopes of Phi in w vary with S, so what W adds to the noise is bounded at "
            "contexts like those to come only: pass reference=archive, or sigma= instead of "
            "reward_sd=."
        )
    return augmented_ball(
        prior,
        law,
        bias,
        trusted,
        theta_bound=size,
        delta=delta,
        spread=spread,
        ridge=ridge,
    )


def made_up_rows(law: PosteriorLaw) -> tuple[Float2, Float2]:
    """Return S and W like the archive's, (PROBES, dim) each, twice as wide in S."""
    mean, sd = law.schema.contexts
    rng = stream(0, "contexts")
    s: Float2 = mean + 2.0 * sd * rng.standard_normal((PROBES, len(mean)))
    w: Float2 = law.scaler.w_mean + law.scaler.w_scale * rng.standard_normal(
        (PROBES, len(law.schema.w_names))
    )
    return s, w


class Adapted:
    """Scores (phihat, M psi) for one decision at a time."""

    def __init__(
        self, found: Directions, features: Features, theta_bound: float, seed: int
    ) -> None:
        law = found.law
        self.law, self.features, self.found = law, features, found
        self.theta_bound, self.w_names = theta_bound, law.schema.w_names
        s, w = made_up_rows(law)
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

    def follow(self, unit: str | None = None) -> Follower:
        """Return a follower of a unit of which nothing has been seen yet."""
        return self.law.follow(unit)

    def taught(self, s: Float2, w: Float2, action: int, x: Float1) -> Float1:
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
