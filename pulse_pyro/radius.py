"""Confidence radii sqrt(gamma_t): constant, as printed in the paper, and corrected.

The ball {theta : ||theta - theta_hat_t||_{Sigma_t} <= sqrt(gamma_t)} is what PULSE-UCB is
optimistic over. All radii are one compiled function of running sums, so kernels and Python share
one formula. Theoretical radii are conservative: a small constant often plays better.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numba import njit

from pulse_pyro._core.arrays import Float1, Float2, positive, whole
from pulse_pyro._core.errors import SettingError

CONSTANT, PAPER, CORRECTED, GIVEN, SAMPLED, SUM = range(6)
WEIGHT, CAP = 3, 4  # places in the compiled parameters

# fastmath=False is said, not left out: a compiled caller that has it would pass it on, and the last
# bit of the radius would depend on who was compiled first


@njit(cache=True, error_model="numpy", fastmath=False)
def bias_part(p: Float1, sum_e2: float, sum_tri: float) -> float:
    """Return B_t of the corrected radius; sums are infinite once a round was told no error."""
    return min(math.sqrt(sum_e2), sum_tri, p[CAP])


@njit(cache=True, error_model="numpy", fastmath=False)
def sqrt_gamma(
    kind: int,
    p: Float1,
    dim: int,
    ridge: float,
    rounds: int,
    logdet: float,
    sum_e2: float,
    sum_tri: float,
) -> float:
    """Return sqrt(gamma_t) after ``rounds`` updates; see the constructors for the formulas."""
    if kind in (CONSTANT, SAMPLED):
        return p[0]
    if kind == PAPER:
        noise, delta, bound = p[0], p[1], p[2]
        t = max(rounds, 1)
        grown = math.log(4.0 * t * t / delta) + dim * math.log(
            1.0 + rounds * bound * bound / (dim * ridge)
        )
        bias = 3.0 * dim * dim * sum_e2 / 4.0  # e = 2 sqrt(D), so sum D = sum e^2 / 4
        if p[CAP] < math.inf:
            bias = 3.0 * p[CAP] * p[CAP]
        return math.sqrt(3.0 * ridge + 6.0 * (noise + 2.0) ** 2 * grown + bias)
    size, sigma, delta = p[0], p[1], p[2]
    if rounds == 0:
        return math.sqrt(ridge) * size  # theta_hat_0 = 0: exact, no noise yet
    grown = logdet + 2.0 * math.log(1.0 / delta)
    bias = bias_part(p, sum_e2, sum_tri)
    if kind == SUM:
        return math.sqrt(ridge) * size + sigma * math.sqrt(grown) + bias
    return math.sqrt(ridge * size * size + sigma * sigma * grown) + bias


@dataclass(frozen=True)
class Radius:
    """A rule for sqrt(gamma_t); see constant, gamma_paper, corrected, robust, thompson.

    weight : rounds count w = min(1, weight / u), u = ||x||_{Sigma^{-1}}; infinite: all count 1.
    seed : of a rule that draws. dim : number of scored features a rule was made for, if it matters.
    cap : bound on the imputation part that is known beforehand, alpha C. benchmark : whom the
    bound on regret speaks of, where a calibration made the rule.
    """

    name: str
    kind: int
    params: tuple[float, ...]
    weight: float = math.inf
    seed: int = 0
    dim: int | None = None
    cap: float = math.inf
    benchmark: str = ""

    @property
    def default_error(self) -> float:
        """What e of a round counts as if none is handed over.

        Infinite where the rule has a budget, whose cap alpha C then stands for all errors; else 0.
        """
        return 0.0 if self.cap == math.inf else math.inf

    def at(
        self,
        *,
        dim: int,
        ridge: float,
        rounds: int,
        logdet: float,
        sum_e2: float | None = None,
        sum_tri: float | None = None,
    ) -> float:
        """Return sqrt(gamma_t).

        Parameters
        ----------
        dim, ridge : d and lambda.
        rounds : t, the number of rewards learned from.
        logdet : log det Sigma_t - d log lambda.
        sum_e2, sum_tri : sum of e^2 and of e u / sqrt(1 + u^2) over those rounds; by default no
            error was handed over, see :attr:`default_error`.
        """
        return float(
            sqrt_gamma(
                self.kind,
                self.array,
                int(dim),
                float(ridge),
                int(rounds),
                float(logdet),
                self.default_error if sum_e2 is None else float(sum_e2),
                self.default_error if sum_tri is None else float(sum_tri),
            )
        )

    def split(self, x: Float2, error: Float1 | None = None, ridge: float = 1.0) -> Float2:
        """Split sqrt(gamma_t) along a path: (rounds, 3) ridge, noise and imputation parts.

        x : (rounds, d) features learned from, in order. error : (rounds,) e_t of those rounds; by
        default none was handed over. The three add up to sqrt(gamma_t); the middle one is what is
        left without errors and without a budget for them.
        """
        rounds, dim = x.shape
        e_t = np.full(rounds, self.default_error) if error is None else error
        inverse = np.eye(dim) / ridge
        logdet = squares = triangle = 0.0
        bare = replace(self, cap=math.inf)
        start = bare.at(dim=dim, ridge=ridge, rounds=0, logdet=0.0)
        out = np.empty((rounds, 3))
        for t in range(rounds):
            reach = inverse @ x[t]
            u2 = float(x[t] @ reach)
            w = min(1.0, self.weight / math.sqrt(u2)) if u2 > 0 else 1.0
            e, u2 = float(e_t[t]) * math.sqrt(w), w * u2
            inverse -= np.outer(reach, reach) * (w / (1.0 + u2))
            logdet += math.log1p(u2)
            squares += e**2
            triangle += e * math.sqrt(u2 / (1.0 + u2)) if u2 > 0 else 0.0
            at = {"dim": dim, "ridge": ridge, "rounds": t + 1, "logdet": logdet}
            clean = bare.at(**at)
            whole = self.at(**at, sum_e2=squares, sum_tri=triangle)
            out[t] = start, clean - start, whole - clean
        return out

    @property
    def plain(self) -> bool:
        """Whether the bonus of an arm is sqrt(gamma) times its width, and every round counts 1."""
        return self.kind != SAMPLED and self.weight == math.inf and self.cap == math.inf

    @property
    def array(self) -> Float1:
        """Parameters as the compiled functions want them, (5,)."""
        return np.array([*(*self.params, 0.0, 0.0)[:3], self.weight, self.cap])

    def __repr__(self) -> str:
        form = ", form='sum'" if self.kind == SUM else ""
        against = f", against {self.benchmark}" if self.benchmark else ""
        return f"{self.name}({', '.join(f'{p:g}' for p in self.params)}{form}){against}"


def constant(alpha: float) -> Radius:
    """sqrt(gamma_t) = alpha, what the paper's experiments ran (alpha = 2). No guarantee.

    Examples
    --------
    >>> constant(2.0).at(dim=4, ridge=1.0, rounds=10, logdet=3.0)
    2.0
    """
    return Radius("constant", CONSTANT, (positive(alpha, "constant: alpha", zero=True),))


def gamma_paper(*, noise_sd: float, feature_bound: float, delta: float = 0.05) -> Radius:
    """The radius as printed, with its index slip mended (D_tau in the sum, not D_t).

    gamma_t = 3 lambda + 6 (sd + 2)^2 [log(4 t^2 / delta) + d log(1 + t B^2 / (d lambda))]
              + 3 d^2 sum_{tau <= t} D_tau,   max(t, 1) in the first log; D = (e / 2)^2.

    Parameters
    ----------
    noise_sd : sub-Gaussian scale of the reward noise.
    feature_bound : B >= ||Phi||_2.
    delta : the ball may miss theta* with probability delta.

    Assumes ||theta*|| <= 1 and rewards in [-1, 1]. Valid for d >= 4, about 5 times too wide.
    """
    params = (
        positive(noise_sd, "gamma_paper: noise_sd", zero=True),
        _level(delta, "gamma_paper"),
        positive(feature_bound, "gamma_paper: feature_bound"),
    )
    return Radius("paper", PAPER, params)


def corrected(
    *,
    sigma: float,
    delta: float = 0.05,
    theta_bound: float = 1.0,
    form: Literal["sharp", "sum"] = "sharp",
) -> Radius:
    """The radius we stand behind (the corrected theorem).

    sqrt(gamma_t) = sqrt(lambda S^2 + sigma^2 (logdet_t + 2 log(1 / delta))) + B_t,
    B_t = min{ sqrt(sum e^2), sum e u / sqrt(1 + u^2) },   gamma_0 = lambda S^2.

    Parameters
    ----------
    sigma : sub-Gaussian scale of reward minus its mean given S_1:t: half the reward's range, or
        sqrt(noise variance + variance of theta' Phi given S); see :func:`noise_scale`.
    delta : the ball may miss theta* with probability delta, plus that of the error bounds e.
    theta_bound : S >= ||theta*||.
    form : "sharp", the root of the sum; "sum" is the textbook sum of roots, sqrt(lambda) S + sigma
        sqrt(logdet + 2 log(1 / delta)), never smaller. A guarded policy sharpens it further by what
        was learned of theta*, see ``policies.ball``.

    Holds for all t at once. Rewards may be late or lost if whether and when they arrive does not
    depend on their value; if low rewards are reported later, or less often, it fails. Nor can it
    check S, sigma, that the e handed to the policy bound the law's error, or that W_t given S_1:t
    is free of the earlier W.

    Examples
    --------
    >>> radius = corrected(sigma=0.5, theta_bound=2.0)
    >>> radius
    corrected(2, 0.5, 0.05)
    >>> radius.split(np.eye(2), error=np.array([0.1, 0.1])).round(1)  # ridge, noise, imputation
    array([[2. , 0.4, 0.1],
           [2. , 0.4, 0.1]])
    """
    params = (
        positive(theta_bound, "corrected: theta_bound"),
        positive(sigma, "corrected: sigma", zero=True),
        _level(delta, "corrected"),
    )
    if form not in ("sharp", "sum"):
        raise SettingError(f"corrected: form must be 'sharp' or 'sum', but got {form!r}.")
    return Radius("corrected", CORRECTED if form == "sharp" else SUM, params)


def thompson(scale: float = 1.0, *, seed: int = 0) -> Radius:
    """Return the rule theta~ ~ N(theta_hat, scale^2 Sigma^{-1}), A_t = argmax_a x_a' theta~.

    Parameters
    ----------
    scale : v; the sd of what is left of the reward for a posterior under Gaussian noise, more to
        explore more.
    seed : of the draws; a streaming policy and a single run of a whole horizon draw the same.

    On expected features it is PULSE with posterior sampling; on observed features (the agent
    ``oful``) it is the baseline that does not impute. No guarantee is implemented.
    """
    number = whole(seed, "thompson: seed", 0)
    return Radius("thompson", SAMPLED, (positive(scale, "thompson: scale"),), seed=number)


# Robust PULSE-UCB: rounds that stand out count less, so that no single bad imputation hurts much.
#
# Confidence-weighted ridge regression (CW-OFUL) on the expected features. With u the width of the
# round's features under Sigma BEFORE the update,
#
#     w = min{1, alpha / u},   Sigma += w x x',   b += w r x,
#     sqrt(gamma_t) = sqrt(lambda S^2 + sigma^2 (logdet_t + 2 log(1/delta))) + B_t,
#     B_t = min{ sqrt(sum w e^2),  sum e w u / sqrt(1 + w u^2),  alpha C },   C >= sum_t e_t.
#
# Weights are an ordinary round with x, r and e scaled by sqrt(w), so the one core plays it. It
# pays only if errors are concentrated on few rounds (fewer than about 1/d of them); where they are
# spread evenly the plain corrected radius is better.


def robust(
    *,
    sigma: float,
    budget: float,
    dim: int,
    delta: float = 0.05,
    theta_bound: float = 1.0,
    alpha: float | None = None,
) -> Radius:
    """Return the rule of robust PULSE-UCB.

    Parameters
    ----------
    sigma, delta, theta_bound : as in :func:`corrected`.
    budget : C >= sum of |theta*'(phibar - phihat)| over all rounds that will be learned from, see
        ``Calibration.budget``. Nothing checks it. Large budgets make every round count little: from
        about sigma sqrt(d T) on it hardly learns, and ``corrected`` is the better rule.
    dim : d, number of scored features. alpha : weight scale, sigma sqrt(d) / C by default.

    With e_t handed to the policy (``errors=``, ``error=``) for every round that was learned from,
    B_t is the smallest of the three bounds above; once a round has none, it is alpha C.

    The paper's own form uses alpha = sqrt(d) / C without the noise scale and sum sqrt(D) with a
    factor missing; see :func:`robust_paper`.
    """
    total = positive(budget, "robust: budget")
    d = whole(dim, "robust: dim", 1)
    scale = positive(sigma, "robust: sigma")
    plain = corrected(sigma=scale, delta=delta, theta_bound=theta_bound)
    weight = positive(scale * math.sqrt(d) / total if alpha is None else alpha, "robust: alpha")
    return replace(plain, name="robust", weight=weight, cap=weight * total, dim=d)


def robust_paper(
    *, noise_sd: float, feature_bound: float, budget: float, dim: int, delta: float = 0.05
) -> Radius:
    """The robust radius as printed: gamma_t = gamma^(0)_t + 3 (alpha C)^2, alpha = sqrt(d) / C.

    gamma^(0) is :func:`gamma_paper` without errors. Kept to reproduce; its proof has gaps.
    """
    total = positive(budget, "robust_paper: budget")
    d = whole(dim, "robust_paper: dim", 1)
    weight = math.sqrt(d) / total
    plain = gamma_paper(noise_sd=noise_sd, feature_bound=feature_bound, delta=delta)
    return replace(plain, name="robust_paper", weight=weight, cap=weight * total, dim=d)


def noise_scale(
    *,
    low: float | None = None,
    high: float | None = None,
    reward_sd: float = 0.0,
    context_sd: float = 0.0,
) -> float:
    """Return sigma: (high - low) / 2 for bounded rewards, else sqrt(reward_sd^2 + context_sd^2).

    ``context_sd`` is the sub-Gaussian scale of theta*' Phi(Y_t, a) given S_1:t; for affine Phi and
    Gaussian residuals of W it is S max_a ||M_a C_W^(1/2)||.

    Examples
    --------
    >>> noise_scale(low=0.0, high=1.0), noise_scale(reward_sd=0.3, context_sd=0.4)
    (0.5, 0.5)
    """
    if low is not None and high is not None:
        return positive(high - low, "noise_scale: high - low") / 2.0
    if low is not None or high is not None:
        raise SettingError("noise_scale: give both low and high, or neither.")
    return math.hypot(
        positive(reward_sd, "noise_scale: reward_sd", zero=True),
        positive(context_sd, "noise_scale: context_sd", zero=True),
    )


def check_dim(radius: Radius, dim: int) -> None:
    """Refuse a rule made for another number of features."""
    if radius.dim is not None and radius.dim != dim:
        raise SettingError(
            f"{radius.name}: the rule was made for dim={radius.dim} features, but {dim} are scored."
        )


def matched_ridge(*, sigma: float, theta_bound: float, dim: int) -> float:
    """Return lambda = d (sigma / S)^2: the ridge of a N(0, S^2 / d) prior under noise sigma.

    The corrected radius holds for every lambda fixed beforehand; this one weighs its ridge part
    against its noise part without tuning. The published experiments all use 1.
    """
    scale = positive(sigma, "matched_ridge: sigma") / positive(theta_bound, "matched_ridge: S")
    return float(whole(dim, "matched_ridge: dim", 1) * scale**2)


def _level(delta: float, where: str) -> float:
    if not 0 < delta < 1:
        raise SettingError(f"{where}: delta must lie between 0 and 1, but got {delta!r}.")
    return float(delta)
