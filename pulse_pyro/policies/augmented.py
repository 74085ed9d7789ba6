"""Adaptive PULSE with a frequentist ball: the archive's ellipsoid as features.

With E[W_i | S] = centre + psi_i' v_i, ||v_i|| <= chi_i (see ``laws.ellipsoid``) and
Phi = c_a(s) + M_a(s) w,

    theta' E[Phi | S] = theta' phihat + sum_(i,j) M_a,ij psi_i' (theta_j v_i),

j over the features that W_i enters, phihat at the ellipsoid's own centre: linear again, in
(phihat, M_a,ij psi_i), with the parameter (theta, theta_j v_i). With a ridge lambda on theta and
lambda_psi on the rest,

    r^2 = lambda ||theta||^2 + lambda_psi sum_j theta_j^2 sum_(i enters j) chi_i^2
          + sigma(theta)^2 (logdet + 2 log(1/delta)),

with probability >= 1 - delta - (1 - level): there is no bias to sum up, and sqrt(T) regret against
the best policy on S. The compiled loop has one ridge, so psi is multiplied by
g = sqrt(lambda / lambda_psi), which changes neither r nor the scores.

NOT covered: E[W | S] of another form than the ellipsoid's; sigma and S; see ``ball``. As plain UCB
it can lose: it is played guarded.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from pulse_pyro._core.arrays import Float1, Float2, Float3, Float4, Int, positive
from pulse_pyro._core.errors import SettingError
from pulse_pyro.base import FittedLaw, Follower
from pulse_pyro.data.history import Source
from pulse_pyro.features import Features, slopes
from pulse_pyro.laws.ellipsoid import Ellipsoid
from pulse_pyro.laws.fitted import PosteriorLaw
from pulse_pyro.policies.balls import RewardNoise, open_part, with_memory_note
from pulse_pyro.policies.guard import Ball, BiasMap

PSI_RIDGE = 0.3  # lambda_psi (S / sigma)^2; chosen on exploration seeds


@dataclass(frozen=True, eq=False)
class Augmented:
    """Scores (phihat, g M_a,ij psi_i): the features of a law's ellipsoid.

    pairs : (m, 2) which W i enters which feature j. scale : g.
    """

    ellipsoid: Ellipsoid
    law: PosteriorLaw
    bias: BiasMap
    pairs: Int
    scale: float

    @property
    def features(self) -> Features:
        """Phi."""
        return self.bias.features

    @property
    def w_names(self) -> tuple[str, ...]:
        """Columns of W."""
        return self.law.schema.w_names

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the d + m P scored features."""
        plain, inputs = self.features.names, range(self.ellipsoid.centre.shape[1])
        extra = (f"{plain[j]}~{self.w_names[i]}.{k}" for i, j in self.pairs for k in inputs)
        return (*plain, *extra)

    def rows(self, s: Float2, w: Float2, psi: Float3, action: int) -> Float2:
        """Return the features of an arm, (n, d + m P), at s (n, s_dim), w (n, w), psi (n, w, P)."""
        base = np.broadcast_to(self.bias.base, w.shape)
        slope = slopes(self.features, s, base, self.bias.step, (action,))[0]  # (n, w, d)
        parts = [self.features.unchecked(s, w, action)]
        parts += [self.scale * slope[:, i, j, None] * psi[:, i] for i, j in self.pairs]
        return np.concatenate(parts, axis=1)

    def horizon(self, source: Source, lead: int = 0) -> Float4:
        """Return the features of whole series, (batch, time - lead, action, d + m P).

        source : s (batch, time, s_dim), each from its beginning; the first ``lead`` rows only fill
        lags. NaN where an input is not seen.
        """
        s = np.asarray(source, np.float64)
        z, mean = self.ellipsoid.at(self.law, s)
        flat, psi = s.reshape(-1, s.shape[-1]), self.ellipsoid.psi(z)
        arms = [self.rows(flat, mean, psi, a) for a in range(self.features.actions)]
        out = np.stack(arms, axis=1).reshape(*s.shape[:2], len(arms), -1)
        return np.ascontiguousarray(out[:, lead:])

    def fill(self, past: list[Follower], arms: list[int], out: Float4) -> None:
        """Fill x, (1, 1, K, d + m P), of these arms; NaN elsewhere."""
        out[:] = np.nan
        known: tuple[Float2, Float3] | None = None
        for a in arms:
            own = past[0] if len(past) == 1 else past[a]
            if known is None or len(past) > 1:
                z, mean = self.ellipsoid.now(self.law, own)
                known = mean, self.ellipsoid.psi(z)
            out[0, 0, a] = self.rows(own.now[None], *known, a)[0]

    def follow(self, unit: str | None = None) -> Follower:
        """Return a follower of a unit of which nothing has been seen yet."""
        return self.law.follow(unit)

    def taught(self, s: Float2, w: Float2, action: int, x: Float1) -> Float1:
        """Return (Phi, 0): of a round whose W is known nothing is left to learn along psi."""
        plain: Float1 = self.features(s, w, action)[0]
        return np.concatenate([plain, np.zeros(len(self.names) - len(plain))])

    def swap(self, law: FittedLaw) -> None:
        """Refuse: what rewards taught along the old ellipsoid would mean something else."""
        raise SettingError(
            "AdaptivePulseUCB: its law cannot be swapped, what it has learned is about the old "
            "law's ellipsoid; use PulseUCB with a growing archive."
        )


def entered(bias: BiasMap) -> Int:
    """Return which W enters which feature, (m, 2)."""
    found = {
        (int(i), int(j))
        for i, m in zip(bias.of, bias.directions, strict=True)
        for j in m.nonzero()[0]
    }
    return np.array(sorted(found), np.int64).reshape(-1, 2)


def augmented_ball(
    ellipsoid: Ellipsoid,
    law: PosteriorLaw,
    bias: BiasMap,
    noise: RewardNoise,
    *,
    theta_bound: float,
    delta: float = 0.05,
    spread: Float3 | None = None,
    ridge: float | None = None,
) -> tuple[Augmented, Ball, float]:
    """Return the features, their ball and their ridge.

    Parameters
    ----------
    ellipsoid : ``law.ellipsoid(...)``. bias : how W enters Phi, ``guard.bias_map``.
    noise : what is taken on trust of rewards. theta_bound : S >= ||theta*||. delta : of the ball.
    spread : (action, d, q) of ``guard.spread_at``; not used where sigma is given.
    ridge : lambda, d (sigma / S)^2 by default.
    """
    pairs = entered(bias)
    d, inputs = bias.directions.shape[1], ellipsoid.centre.shape[1]
    extra = len(pairs) * inputs
    wide = open_part(noise, spread)
    if wide is not None:  # what W varies by reaches the plain features alone
        wide = np.concatenate([wide, np.zeros((len(wide), extra, wide.shape[2]))], axis=1)
    plain = Ball(
        theta_bound=theta_bound,
        delta=delta,
        noise=noise.value,
        spread=wide,
        directions=np.zeros((0, d + extra)),
        of=np.zeros(0, np.int64),
        rests_on=(*ellipsoid.rests_on, noise.rests_on, "||theta*|| <= theta_bound"),
        level=ellipsoid.level,
    )
    lam = positive(plain.ridge(d) if ridge is None else ridge, "guard: the ridge d (sigma / S)^2")
    psi_ridge = PSI_RIDGE * (plain.sigma / theta_bound) ** 2
    weights = np.zeros(d + extra)
    weights[:d] = 1.0
    for i, j in pairs:
        weights[j] += psi_ridge / lam * ellipsoid.chi[i] ** 2
    scored = Augmented(ellipsoid, law, bias, pairs, math.sqrt(lam / psi_ridge))
    return scored, with_memory_note(replace(plain, weights=weights), law), lam
