"""Where the coefficients of a linear law can be: a confidence ellipsoid from the archive itself.

Least squares of W_i on z = (1, x) gives beta_hat with variance V; with probability >= level, for
all W at once,

    beta_i = beta_hat_i + V_i^{1/2} v_i,   ||v_i|| <= chi_i,

    classical:  V = s^2 (Z'Z)^{-1},                      chi^2 = P F_{P, n-P},
    cluster:    V = (Z'Z)^{-1} (sum_c g_c g_c') (Z'Z)^{-1},  chi^2 = P (G-1)/(G-P) F_{P, G-P},

g_c the sum of z times residual over cluster c, G clusters, P = 1 + p coefficients. Classical needs
rows that are independent of each other, which rows of one unit rarely are; cluster needs G >= 3 P.

NOT covered: E[W | S_1:t] that is not linear in z. The ellipsoid is conditional on that form.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import stats

from pulse_pyro._core.arrays import Float1, Float2, Float3, Int, share
from pulse_pyro._core.errors import ModelError, SettingError

Variance = Literal["cluster", "classical"]
CLUSTERS_EACH = 3  # clusters a coefficient, at least
RANK = 1e-10


@dataclass(frozen=True, eq=False)
class Ellipsoid:
    """beta_i = centre_i + root_i v, ||v|| <= chi_i, for every W at once.

    centre : (w, P). root : (w, P, P) V^{1/2}. chi : (w,). residual : (w, w) covariance of what the
    line leaves of W. level, variance, clusters : how it was made.
    """

    centre: Float2
    root: Float3
    chi: Float1
    residual: Float2
    level: float
    variance: Variance
    clusters: int

    def mean(self, z: Float2) -> Float2:
        """Return E[W] at the centre, (n, w), for z (n, P)."""
        out: Float2 = z @ self.centre.T
        return out

    def psi(self, z: Float2) -> Float3:
        """Return V^{1/2}' z, (n, w, P): E[W] is its centre plus psi' v."""
        out: Float3 = np.einsum("np,wpq->nwq", z, self.root)
        return out

    @property
    def rests_on(self) -> tuple[str, ...]:
        """What it is conditional on, in words."""
        line = "E[W | S] is linear in the law's inputs"
        if self.variance == "classical":
            return (line, "rows of the archive are independent of each other")
        return (line, f"the {self.clusters} clusters of the archive are independent")


@dataclass(frozen=True, eq=False)
class LeastSquares:
    """Least squares of W on z, as sums: what every ellipsoid of it is made from.

    centre : (w, P). inverse : (P, P) of Z'Z. meat : (w, P, P) sum over clusters of g g'.
    residual : (w, w) covariance of the residuals, by n - P. rows, clusters : n and G.
    """

    centre: Float2
    inverse: Float2
    meat: Float3
    residual: Float2
    rows: int
    clusters: int

    def ellipsoid(self, level: float = 0.95, *, variance: Variance = "cluster") -> Ellipsoid:
        """Return the confidence ellipsoid; see the module.

        Refuses fewer than 3 clusters a coefficient (or no more rows than coefficients): with so few
        its level would not be kept.
        """
        count, (w_dim, size) = self.clusters, self.centre.shape
        each = 1.0 - (1.0 - share(level, "ellipsoid: level")) / w_dim
        if variance not in ("cluster", "classical"):
            raise SettingError(
                f"ellipsoid: variance must be 'cluster' or 'classical', but got {variance!r}."
            )
        if variance == "cluster":
            if count < CLUSTERS_EACH * size:
                raise ModelError(
                    f"ellipsoid: {count} clusters are too few for {size} coefficients, "
                    f"{CLUSTERS_EACH * size} are needed; use fewer lags, more units, or, if rows "
                    "of a unit are independent of each other, variance='classical'."
                )
            square = self.inverse @ self.meat @ self.inverse
            wide = size * (count - 1) / (count - size) * stats.f.ppf(each, size, count - size)
        else:
            if self.rows <= size:
                raise ModelError(
                    f"ellipsoid: {self.rows} rows are too few for {size} coefficients; use fewer "
                    "lags or more units."
                )
            square = np.diagonal(self.residual)[:, None, None] * self.inverse
            wide = size * stats.f.ppf(each, size, self.rows - size)
        value, vector = np.linalg.eigh(square)
        root = vector * np.sqrt(np.maximum(value, 0.0))[:, None, :]
        chi = np.full(w_dim, np.sqrt(wide))
        return Ellipsoid(
            centre=self.centre,
            root=root,
            chi=chi,
            residual=self.residual,
            level=level,
            variance=variance,
            clusters=count,
        )


def least_squares(z: Float2, w: Float2, cluster: Int) -> LeastSquares | None:
    """Fit by least squares; None where z has no full rank, or no more rows than columns.

    z : (n, P) with its column of ones. w : (n, w). cluster : (n,) number of each row's cluster.
    """
    n, size = z.shape
    gram = z.T @ z
    value, vector = np.linalg.eigh(gram)
    if n <= size or value[0] <= RANK * value[-1]:
        return None
    inverse = (vector / value) @ vector.T
    centre = inverse @ (z.T @ w)
    rest = w - z @ centre
    groups, place = np.unique(cluster, return_inverse=True)
    meat = np.empty((w.shape[1], size, size))
    order = np.argsort(place, kind="stable")
    starts = np.flatnonzero(np.diff(place[order], prepend=-1))
    for j in range(w.shape[1]):
        scores = np.add.reduceat((z * rest[:, j : j + 1])[order], starts, axis=0)
        meat[j] = scores.T @ scores
    return LeastSquares(
        centre=centre.T,
        inverse=inverse,
        meat=meat,
        residual=rest.T @ rest / (n - size),
        rows=n,
        clusters=len(groups),
    )
