"""The corrected regret bound before anything is played: what noise costs, what imputation costs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from pulse_pyro._core.arrays import positive, share, whole
from pulse_pyro._core.errors import SettingError
from pulse_pyro.radius import corrected

MOST_ROUNDS = 10**12  # beyond that rounds are no longer counted exactly by what is summed over them


class Parts(NamedTuple):
    """A bound on regret: what it is without imputation error, and what that error adds."""

    statistical: float
    imputation: float


@dataclass(frozen=True)
class Stakes:
    """What a policy plays for: a horizon, and the constants of the corrected theorem.

    Attributes
    ----------
    horizon : T, rounds to be played.
    sigma : sub-Gaussian scale of a reward minus its mean given S, see :func:`noise_scale`.
    theta_bound : S >= ||theta*||.
    ridge, delta : lambda, and the probability with which the ball may miss theta*.
    reward_sd : sd of a reward given the full context, where it is known apart from what W adds.

    With d features of norm at most B, L = d log(1 + T B^2 / (d lambda)) >= logdet_T, and e the root
    mean square over rounds of the imputation error e_t = max_a e_{t,a}, equations (8)-(11) give

        regret(e) <= 2 sqrt(2 L T) max(1, g + sqrt(T) e) + 2 T e,
        g = sqrt(lambda S^2 + sigma^2 (L + 2 log(1 / delta))),

    since B_T <= sqrt(sum e_t^2) = sqrt(T) e, and sum_t (e_{t,A'_t} + e_{t,A_t}) <= 2 T e.
    The statistical part is regret(0), the imputation part regret(e) - regret(0).

    Not covered: it is a bound, 3 to 100 times what policies usually lose, and where it exceeds 2 T
    it says nothing; it is about regret against the best policy that sees only S, with mean rewards
    in [-1, 1]; sigma and S are taken on trust.
    """

    horizon: int
    sigma: float
    theta_bound: float = 1.0
    ridge: float = 1.0
    delta: float = 0.05
    reward_sd: float | None = None

    def __post_init__(self) -> None:
        whole(self.horizon, "Stakes: horizon", 1)
        if self.horizon > MOST_ROUNDS:
            raise SettingError(
                f"Stakes: horizon must be at most {MOST_ROUNDS:,}, but got {self.horizon:,}."
            )
        positive(self.sigma, "Stakes: sigma", zero=True)
        positive(self.theta_bound, "Stakes: theta_bound")
        positive(self.ridge, "Stakes: ridge")
        share(self.delta, "Stakes: delta")
        if self.reward_sd is not None:
            positive(self.reward_sd, "Stakes: reward_sd", zero=True)

    def parts(self, e: float, *, dim: int, norm: float) -> Parts:
        """Split the bound at imputation error ``e``; dim is d, norm is B."""
        grown = self.logdet(dim, norm)
        slope = 2.0 * math.sqrt(2.0 * grown * self.horizon)
        clean = slope * max(1.0, self._sqrt_gamma(0.0, dim, grown))
        whole_bound = slope * max(1.0, self._sqrt_gamma(e, dim, grown)) + 2.0 * self.horizon * e
        return Parts(clean, whole_bound - clean)

    def balance(self, *, dim: int, norm: float) -> float:
        """Return the e at which the imputation part equals the statistical part.

        With c = 2 sqrt(2 L T): c g / (c sqrt(T) + 2 T) where g >= 1. Where g < 1 the maximum is
        flat at first: c / (2 T), unless that is beyond the kink at (1 - g) / sqrt(T), then
        c (2 - g) / (c sqrt(T) + 2 T). It falls as T grows, once T B^2 >= 2 d lambda.
        """
        grown, rounds = self.logdet(dim, norm), float(self.horizon)
        c = 2.0 * math.sqrt(2.0 * grown * rounds)
        g = self._sqrt_gamma(0.0, dim, grown)
        steep = c * math.sqrt(rounds) + 2.0 * rounds
        if g >= 1.0:
            return c * g / steep
        flat = c / (2.0 * rounds)
        return flat if flat <= (1.0 - g) / math.sqrt(rounds) else c * (2.0 - g) / steep

    def logdet(self, dim: int, norm: float) -> float:
        """Return L = d log(1 + T B^2 / (d lambda)), which logdet_T cannot exceed."""
        whole(dim, "Stakes: dim", 1)
        b = positive(norm, "Stakes: norm")
        return dim * math.log1p(self.horizon * b * b / (dim * self.ridge))

    def _sqrt_gamma(self, e: float, dim: int, logdet: float) -> float:
        rule = corrected(sigma=self.sigma, delta=self.delta, theta_bound=self.theta_bound)
        # the triangle sum of the radius depends on the path: beforehand only (B1) is known
        return rule.at(
            dim=dim,
            ridge=self.ridge,
            rounds=self.horizon,
            logdet=logdet,
            sum_e2=self.horizon * e * e,
            sum_tri=math.inf,
        )
