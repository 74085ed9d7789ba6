"""Reference values beside a calibration: the divergence route and the theoretical rates."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from scipy import stats

from pulse_pyro._core.arrays import Float, positive, whole
from pulse_pyro._core.errors import SettingError
from pulse_pyro.calibration.calibration import Calibration

if TYPE_CHECKING:
    from pandas import DataFrame


def kl_error(kl: Float | float, width: float = 2.0) -> Float:
    """Bound a feature's error by a divergence: width * TV.

    TV <= min{ sqrt(KL / 2), sqrt(1 - exp(-KL)) }: Pinsker for small, Bretagnolle-Huber for large
    divergences. ``width`` is the range of the feature: 2 for |Phi| <= 1, which gives 2 sqrt(D_t)
    with D_t = KL / 2.
    """
    kl = np.asarray(kl, dtype=np.float64)
    if not (kl >= 0).all():
        raise SettingError("kl_error: a divergence is >= 0.")
    tv = np.minimum(np.sqrt(kl / 2.0), np.sqrt(-np.expm1(-kl)))
    return positive(width, "kl_error: width") * tv


def gaussian_kl(gap: Float | float, sd: float) -> Float:
    """Return KL(N(mu, sd^2), N(mu + gap, sd^2)) = gap^2 / (2 sd^2)."""
    return np.asarray(gap, dtype=np.float64) ** 2 / (2.0 * positive(sd, "gaussian_kl: sd") ** 2)


def gaussian_tv(gap: Float | float, sd: float) -> Float:
    """Return the exact total variation 2 Phi(|gap| / (2 sd)) - 1 of two such normals."""
    z = np.abs(np.asarray(gap, dtype=np.float64)) / (2.0 * positive(sd, "gaussian_tv: sd"))
    return np.asarray(2.0 * stats.norm.cdf(z) - 1.0)


def parametric_rate(rows: int, inputs: int) -> float:
    """sqrt(p / n): order of the error of a well-specified model with p coefficients, per sd."""
    return math.sqrt(
        whole(inputs, "parametric_rate: inputs", 1) / whole(rows, "parametric_rate: rows", 1)
    )


def holder_rate(rows: int, smoothness: float, inputs: int = 1) -> float:
    """(log n / n)^(b / (2 b + p)): order of the uniform error for a b-smooth curve, per sd."""
    b = positive(smoothness, "holder_rate: smoothness")
    n = whole(rows, "holder_rate: rows", 2)
    return float((math.log(n) / n) ** (b / (2.0 * b + whole(inputs, "holder_rate: inputs", 1))))


def references(calibration: Calibration) -> DataFrame:
    """Return, per target, the calibrated bound beside the KL route and the rates.

    The KL route (Gaussian, equal variances) turns the same mean error into 2 sqrt(D) = error / sd:
    it is larger whenever the noise of the target has sd < 1 and features have range 2. Rates are
    orders, constants left out: they say how the bound should shrink, not how large it is.
    """
    import pandas as pd

    calibration.require_usable("references")
    rows = []
    for part, sd in zip(calibration.parts, calibration.noise_sd, strict=True):
        budget = part.budget(calibration.contexts)
        total = budget.total[budget.inside]
        n, p = part.band.rows, len(part.band.x_names)
        for j, name in enumerate(part.targets.names):
            mean = float(total[:, j].mean())
            rows.append(
                {
                    "target": name,
                    "noise sd": sd[j],
                    "bound mean": mean,
                    "KL route": float(kl_error(gaussian_kl(total[:, j], sd[j])).mean()),
                    "parametric rate": sd[j] * parametric_rate(n, p + 1),
                    "Hoelder rate (smoothness 2)": sd[j] * holder_rate(n, 2.0, p),
                    "Hoelder rate (smoothness 1)": sd[j] * holder_rate(n, 1.0, p),
                }
            )
    return pd.DataFrame(rows).set_index("target")
