"""Confidence radii sqrt(gamma_t): constant, as printed in the paper, and corrected.

The ball {theta : ||theta - theta_hat_t||_{Sigma_t} <= sqrt(gamma_t)} is what PULSE-UCB is
optimistic over. All radii are one compiled function of running sums, so kernels and Python share
one formula. Theoretical radii are conservative: a small constant often plays better.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numba import njit

from pulse_pyro._core.arrays import Float1, Float2, positive, whole
from pulse_pyro._core.errors import SettingError

CONSTANT, PAPER, CORRECTED, GIVEN, SAMPLED = range(5)
WEIGHT, CAP, BIAS, RIDGE, OPTIMISTIC = range(3, 8)  # places in the compiled parameters

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
    noise_part = sigma * math.sqrt(logdet + 2.0 * math.log(1.0 / delta))
    return math.sqrt(ridge) * size + noise_part + bias_part(p, sum_e2, sum_tri)


@dataclass(frozen=True)
class Radius:
    """A rule for sqrt(gamma_t); see constant, gamma_paper, corrected, robust, thompson.

    weight : rounds count w = min(1, weight / u), u = ||x||_{Sigma^{-1}}; infinite: all count 1.
    seed : of a rule that draws. dim : number of scored features a rule was made for, if it matters.
    cap : bound on the imputation part that is known beforehand, alpha C. bias_per_arm,
    ridge_per_arm, optimistic : see :meth:`refined`.
    """

    name: str
    kind: int
    params: tuple[float, ...]
    weight: float = math.inf
    seed: int = 0
    dim: int | None = None
    cap: float = math.inf
    bias_per_arm: bool = False
    ridge_per_arm: bool = False
    optimistic: bool = False

    def refined(
        self, *, bias_per_arm: bool = True, ridge_per_arm: bool = True, optimistic: bool = False
    ) -> Radius:
        """Return the corrected radius with tighter bonuses of each arm; all keep the guarantee.

        bias_per_arm : sum_tau e_tau |x_a' Sigma^{-1} x_tau| instead of B_t ||x_a||_{Sigma^{-1}},
            never more; costs O(t d) an arm. ridge_per_arm : lambda S ||Sigma^{-1} x_a|| instead of
            sqrt(lambda) S ||x_a||_{Sigma^{-1}}, never more. optimistic : add e_{t,a} to the index;
            then only errors of arms that are played cost regret.
        """
        if self.kind != CORRECTED:
            raise SettingError(f"refined: only the corrected radius has refinements, not {self!r}.")
        return replace(
            self, bias_per_arm=bias_per_arm, ridge_per_arm=ridge_per_arm, optimistic=optimistic
        )

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
        flags = self.bias_per_arm or self.ridge_per_arm or self.optimistic
        budget = self.weight < math.inf or self.cap < math.inf
        return self.kind != SAMPLED and not flags and not budget

    @property
    def array(self) -> Float1:
        """Parameters as the compiled functions want them, (8,)."""
        flags = (self.bias_per_arm, self.ridge_per_arm, self.optimistic)
        own = (*self.params, 0.0, 0.0)[:3]
        return np.array([*own, self.weight, self.cap, *map(float, flags)])

    def __repr__(self) -> str:
        flags = [n for n in ("bias_per_arm", "ridge_per_arm", "optimistic") if getattr(self, n)]
        return f"{self.name}({', '.join([*(f'{p:g}' for p in self.params), *flags])})"


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


def corrected(*, sigma: float, delta: float = 0.05, theta_bound: float = 1.0) -> Radius:
    """The radius we stand behind (the corrected theorem).

    sqrt(gamma_t) = sqrt(lambda) S + sigma sqrt(logdet_t + 2 log(1 / delta)) + B_t,
    B_t = min{ sqrt(sum e^2), sum e u / sqrt(1 + u^2) },   gamma_0 = lambda S^2.

    Parameters
    ----------
    sigma : sub-Gaussian scale of reward minus its mean given S_1:t: half the reward's range, or
        sqrt(noise variance + variance of theta' Phi given S); see :func:`noise_scale`.
    delta : the ball may miss theta* with probability delta, plus that of the error bounds e.
    theta_bound : S >= ||theta*||.

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
    array([[2. , 1.3, 0.1],
           [2. , 1.4, 0.1]])
    """
    params = (
        positive(theta_bound, "corrected: theta_bound"),
        positive(sigma, "corrected: sigma", zero=True),
        _level(delta, "corrected"),
    )
    return Radius("corrected", CORRECTED, params)


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
