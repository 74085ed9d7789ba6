"""Robust PULSE-UCB: rounds that stand out count less, so that no single bad imputation hurts much.

Confidence-weighted ridge regression (CW-OFUL) on the expected features. With u the width of the
round's features under Sigma BEFORE the update,

    w = min{1, alpha / u},   Sigma += w x x',   b += w r x,
    sqrt(gamma_t) = sqrt(lambda) S + sigma sqrt(logdet_t + 2 log(1/delta)) + B_t,
    B_t = min{ sqrt(sum w e^2),  sum e w u / sqrt(1 + w u^2),  alpha C },   C >= sum_t e_t.

Weights are an ordinary round with x, r and e scaled by sqrt(w), so the one core plays it. It pays
only if errors are concentrated on few rounds (fewer than about 1/d of them); where they are spread
evenly the plain corrected radius is better.
"""

from __future__ import annotations

import math
from dataclasses import replace

from pulse_pyro._core.arrays import positive, whole
from pulse_pyro.radius import Radius, corrected, gamma_paper


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
