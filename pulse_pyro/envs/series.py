"""The observed process S: ARMA(p, q), with Gaussian or heavy-tailed innovations."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.linalg import toeplitz
from scipy.signal import lfilter

from pulse_pyro._core.arrays import Float1, Float2, Float3, positive
from pulse_pyro._core.errors import SettingError

AR, MA = (0.75, -0.25), (0.65, 0.35)
BURN_IN = 200
REACH = 2000  # terms of the moving average form; more than any root used here needs


@dataclass(frozen=True)
class Arma:
    """S_t - mean = sum_j ar_j (S_{t-j} - mean) + sd (e_t + sum_j ma_j e_{t-j}).

    ar, ma : coefficients; the published process by default. sd, mean : of the innovations and of S.
    df : e_t is Student-t with so many degrees of freedom, NOT rescaled to variance 1; infinite:
    standard normal.
    """

    ar: tuple[float, ...] = AR
    ma: tuple[float, ...] = MA
    sd: float = 0.1
    mean: float = 0.0
    df: float = math.inf

    def __post_init__(self) -> None:
        positive(self.sd, "Arma: sd")
        if not self.df > 0 or not math.isfinite(self.mean):
            raise SettingError(
                f"Arma: df must be > 0 and mean finite, but got {self.df!r} and {self.mean!r}."
            )
        roots = np.roots([1.0, *(-a for a in self.ar)])
        if not (np.abs(roots) < 1).all():
            raise SettingError(f"Arma: ar={self.ar} is not stationary; take smaller coefficients.")

    def draw(self, runs: int, length: int, *, rng: np.random.Generator) -> Float3:
        """Draw (runs, length, 1), each run on its own, after a burn-in."""
        shape = (runs, length + BURN_IN)
        normal = math.isinf(self.df)
        shocks = rng.standard_normal(shape) if normal else rng.standard_t(self.df, shape)
        path = lfilter([1.0, *self.ma], [1.0, *(-a for a in self.ar)], self.sd * shocks, axis=1)
        return np.ascontiguousarray(self.mean + path[:, BURN_IN:, None])

    @property
    def weights(self) -> Float1:
        """psi_0, psi_1, ...: S_t - mean = sd sum_j psi_j e_{t-j}."""
        impulse = np.eye(1, REACH)[0]
        out: Float1 = lfilter([1.0, *self.ma], [1.0, *(-a for a in self.ar)], impulse)
        return out

    def covariance(self, lags: int) -> Float2:
        """Covariance (lags, lags) of S_t, S_{t-1}, ... for innovations of variance sd^2."""
        psi = self.weights
        found: Float2 = toeplitz([self.sd**2 * (psi[: REACH - k] @ psi[k:]) for k in range(lags)])
        return found


PUBLISHED_SERIES = Arma()


def subspace_similarity(one: Arma, two: Arma, *, lags: int = 19, top: int = 5) -> float:
    """Mean cosine of the angles between the leading principal axes of two lag windows, 0 to 1.

    The mean singular value of U_1' U_2, U (lags, top) the eigenvectors of the windows' covariances
    of largest variance. Of the processes themselves: covariances of short series give other values.
    """
    axes = [np.linalg.eigh(each.covariance(lags))[1][:, -top:] for each in (one, two)]
    return float(np.linalg.svd(axes[0].T @ axes[1], compute_uv=False).mean())
