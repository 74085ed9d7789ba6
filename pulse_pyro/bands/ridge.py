"""The band a ridge or least-squares law provides for itself: p0 = p^."""

from __future__ import annotations

import math

import numpy as np

from pulse_pyro.arrays import Bool, Float2, positive
from pulse_pyro.bands.band import Band
from pulse_pyro.bands.basis import BasisShape
from pulse_pyro.bands.sample import Sample, check_level


def ridge_band(
    sample: Sample, *, level: float, noise_sd: float, ridge: float = 1.0, size: float = 1.0
) -> Band:  # fmt: skip
    """Bound the error of the ridge fit y = (1, x)'b for all x at once, at every sample size.

    half(x) = ||x||_{G^-1} ( sqrt(ridge) size + noise_sd sqrt( log det(G / ridge)
              + 2 log(q / (1 - level)) ) ),   G = ridge I + sum x x',  x with a leading 1.

    ``size`` >= ||b|| of every coordinate and ``noise_sd``, the sub-Gaussian scale of y given x, are
    the caller's. Widest of all bands, but it needs no large sample and grows by itself where online
    contexts leave the archive. Valid if E[y | S_1:t] is linear in x and rows are independent of the
    past given x.
    """
    check_level(level, "ridge_band")
    lam = positive(ridge, "ridge_band: ridge")
    b = np.concatenate([np.ones((len(sample.x), 1)), sample.x], axis=1)
    q = sample.y.shape[1]
    gram = lam * np.eye(b.shape[1]) + b.T @ b
    inverse = np.linalg.inv(gram)
    grown = float(np.linalg.slogdet(gram / lam)[1]) + 2.0 * math.log(q / (1.0 - level))
    c = math.sqrt(lam) * positive(size, "ridge_band: size")
    c += positive(noise_sd, "ridge_band: noise_sd") * math.sqrt(grown)

    def design(x: Float2) -> Float2:
        return np.concatenate([np.ones((len(x), 1)), x], axis=1)

    def reach(x: Float2) -> tuple[Float2, Bool, Float2]:
        return x, np.ones(len(x), dtype=np.bool_), np.zeros_like(x)

    critical = np.full(q, c)
    shape = BasisShape(
        "every context", design, reach, inverse @ (b.T @ sample.y),
        np.repeat(inverse[None], q, axis=0), critical, critical, np.zeros((sample.x.shape[1], q)),
    )  # fmt: skip
    made = (f"ridge {lam:g}, self-normalised bound",) * q
    return Band(
        "ridge", made, level, critical, "rows", sample.x_names, sample.y_names, len(b),
        sample.units, shape,
    )  # fmt: skip
