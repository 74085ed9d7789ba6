"""Where the coefficients of a linear law can be: a confidence ellipsoid from the archive itself.

Least squares of W_i on z = (1, x) gives beta_hat with variance V; with probability >= level, for
all W at once,

    beta_i = beta_hat_i + V_i^{1/2} v_i,   ||v_i|| <= chi_i,

    classical:  V = s^2 (Z'Z)^{-1},                      chi^2 = P F_{P, n-P},
    cluster:    V = (Z'Z)^{-1} (sum_c g_c g_c') (Z'Z)^{-1},  chi^2 = P (G-1)/(G-P) F_{P, G-P},

g_c the sum of z times residual over cluster c, G clusters, P = 1 + p coefficients. Classical needs
rows that are independent of each other, which rows of one unit rarely are; cluster needs G >= 3 P.

A law that is not linear has one for a declared sieve q(s): z = (1, q) then explains what the law
leaves, E[W | S] = mu_hat(S) + beta' z, and beta is estimated on units the law has not seen.

NOT covered: E[W | S_1:t] that is not linear in z (with a sieve: an error of the law that is not).
The ellipsoid is conditional on that form, and says nothing of rows whose inputs are not all seen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from pulse_pyro._core.arrays import Float1, Float2, Float3, Int, share
from pulse_pyro._core.errors import DataError, LeakageError, ModelError, SettingError
from pulse_pyro.base import Conditional, Follower, Schema, Summary
from pulse_pyro.data.history import History, Source, context_rows

Variance = Literal["cluster", "classical"]
Sieve = Summary | Callable[[Float2], Float2]
CLUSTERS_EACH = 3  # clusters a coefficient, at least
RANK = 1e-10
BLOCK = 4096  # rows at a time


class AboutW(Protocol):
    """What an ellipsoid asks of the law it belongs to."""

    @property
    def id(self) -> str:
        """Fingerprint."""

    @property
    def summary(self) -> Summary:
        """What the law looks at."""

    @property
    def schema(self) -> Schema:
        """Its columns."""

    @property
    def units(self) -> tuple[str, ...]:
        """Units or clusters it has seen."""

    def __call__(self, source: Source, at: ArrayLike | None = None) -> Conditional:
        """Return the law of W at rows."""

    def follow(self, unit: str | None = None) -> Follower:
        """Start to follow a series online."""


@dataclass(frozen=True, eq=False)
class Ellipsoid:
    """beta_i = centre_i + root_i v, ||v|| <= chi_i, for every W at once.

    centre : (w, P). root : (w, P, P) V^{1/2}. chi : (w,). residual : (w, w) covariance of what the
    line leaves of W. level, variance, clusters : how it was made.
    shift, scale : (P - 1,) z = (1, (q - shift) / scale). law_id : whose it is. sieve : what q is, a
    summary or a function of the law's inputs (n, p) -> (n, P - 1); None: these inputs themselves.
    """

    centre: Float2
    root: Float3
    chi: Float1
    residual: Float2
    level: float
    variance: Variance
    clusters: int
    shift: Float1
    scale: Float1
    law_id: str = ""
    sieve: Sieve | None = None

    def at(self, law: AboutW, source: Source) -> tuple[Float2, Float2]:
        """Return z (n, P) and E[W] at the centre (n, w), at every row of an archive or of series.

        source : an archive, or s (batch, time, s_dim), n = batch * time. NaN where an input is not
        seen.
        """
        q, _ = context_rows(source, law.summary, law.schema, "ellipsoid")
        if self.sieve is None:
            z = self.z(q)
            return z, self.mean(z)
        if isinstance(self.sieve, Summary):
            q, _ = context_rows(source, self.sieve, law.schema, "ellipsoid: sieve")
        else:
            q = sieve_values(self.sieve, q)
        z = self.z(q)
        return z, law(source).mean() + self.mean(z)

    def now(self, law: AboutW, follower: Follower) -> tuple[Float2, Float2]:
        """Return z (1, P) and E[W] at the centre (1, w) of a series that is followed online."""
        if self.sieve is None:
            z = self.z(follower.inputs()[None])
            return z, self.mean(z)
        if isinstance(self.sieve, Summary):
            q = self.sieve.last(follower.state()["rows"][-self.sieve.memory :])[None]
        else:
            q = sieve_values(self.sieve, follower.inputs()[None])
        z = self.z(q)
        return z, follower.conditional.mean() + self.mean(z)

    def z(self, q: Float2) -> Float2:
        """Return (1, (q - shift) / scale), (n, P), of q (n, P - 1)."""
        return np.concatenate([np.ones((len(q), 1)), (q - self.shift) / self.scale], axis=1)

    def mean(self, z: Float2) -> Float2:
        """Return centre' z, (n, w), for z (n, P): E[W], or with a sieve what it adds to the law."""
        out: Float2 = z @ self.centre.T
        return out

    def psi(self, z: Float2) -> Float3:
        """Return V^{1/2}' z, (n, w, P): E[W] is that at the centre plus psi' v, ||v|| <= chi."""
        out: Float3 = np.einsum("np,wpq->nwq", z, self.root)
        return out

    @property
    def rests_on(self) -> tuple[str, ...]:
        """What it is conditional on, in words."""
        line = "E[W | S] is linear in the law's inputs"
        if self.sieve is not None:
            line = "what the law misses of E[W | S] is linear in the declared sieve"
        if self.variance == "classical":
            return (line, "rows of the archive are independent of each other")
        return (line, f"the {self.clusters} clusters of the archive are independent")


@dataclass(frozen=True, eq=False)
class LeastSquares:
    """Least squares of W on z, as sums: what every ellipsoid of it is made from.

    centre : (w, P). inverse : (P, P) of Z'Z. meat : (w, P, P) sum over clusters of g g'.
    residual : (w, w) covariance of the residuals, by n - P. rows, clusters : n and G.
    shift, scale : (P - 1,) units of z, see :class:`Ellipsoid`.
    """

    centre: Float2
    inverse: Float2
    meat: Float3
    residual: Float2
    rows: int
    clusters: int
    shift: Float1
    scale: Float1

    def ellipsoid(
        self,
        level: float = 0.95,
        *,
        variance: Variance = "cluster",
        law_id: str = "",
        sieve: Sieve | None = None,
    ) -> Ellipsoid:
        """Return the confidence ellipsoid; see the module.

        law_id, sieve : whose it is, and of what.

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
            shift=self.shift,
            scale=self.scale,
            law_id=law_id,
            sieve=sieve,
        )


def least_squares(z: Float2, w: Float2, cluster: Int) -> LeastSquares | None:
    """Fit by least squares; None where z has no full rank, or no more rows than columns.

    z : (n, P) with its column of ones. w : (n, w). cluster : (n,) number of each row's cluster.
    """
    units = np.zeros(z.shape[1] - 1), np.ones(z.shape[1] - 1)
    return scaled_squares(z[:, 1:], w, cluster, units)


def scaled_squares(
    q: Float2, w: Float2, cluster: Int, units: tuple[Float1, Float1]
) -> LeastSquares | None:
    """Fit by least squares on z = (1, (q - shift) / scale), of q (n, P - 1) in blocks of rows.

    units : shift and scale, (P - 1,) each.
    """
    (n, size), (shift, scale) = (len(q), q.shape[1] + 1), units
    blocks = [slice(start, start + BLOCK) for start in range(0, n, BLOCK)]

    def z_of(rows: slice) -> Float2:
        z: Float2 = (q[rows] - shift) / scale
        return np.concatenate([np.ones((len(z), 1)), z], axis=1)

    gram, cross = np.zeros((size, size)), np.zeros((size, w.shape[1]))
    for rows in blocks:
        z = z_of(rows)
        gram += z.T @ z
        cross += z.T @ w[rows]
    value, vector = np.linalg.eigh(gram)
    if n <= size or value[0] <= RANK * value[-1]:
        return None
    inverse = (vector / value) @ vector.T
    centre = inverse @ cross
    groups, place = np.unique(cluster, return_inverse=True)
    scores = np.zeros((w.shape[1], len(groups), size))  # g of each cluster
    square = np.zeros((w.shape[1], w.shape[1]))
    for rows in blocks:
        z = z_of(rows)
        rest = w[rows] - z @ centre
        square += rest.T @ rest
        for j in range(w.shape[1]):
            np.add.at(scores[j], place[rows], z * rest[:, j : j + 1])
    return LeastSquares(
        centre=centre.T,
        inverse=inverse,
        meat=np.swapaxes(scores, 1, 2) @ scores,
        residual=square / (n - size),
        rows=n,
        clusters=len(groups),
        shift=shift,
        scale=scale,
    )


def sieve_values(sieve: Callable[[Float2], Float2], x: Float2) -> Float2:
    """Return q, (n, P - 1), of a function of the law's inputs x (n, p)."""
    q = np.asarray(sieve(x), np.float64)
    if q.ndim != 2 or len(q) != len(x):
        raise SettingError(
            f"ellipsoid: the sieve must turn inputs {x.shape} into one row of numbers each, but "
            f"returned {q.shape}."
        )
    return q


def sieve_squares(law: AboutW, sieve: Sieve, archive: History | None) -> LeastSquares:
    """Regress what a law leaves of W on a sieve, on units it has not seen."""
    label = "ellipsoid"
    if not callable(sieve):
        raise SettingError(
            f"{label}: a sieve is a summary such as Lags(3) or a function of the law's inputs, but "
            f"got {sieve!r}."
        )
    if not isinstance(archive, History):
        raise SettingError(
            f"{label}: with a sieve, archive= must be a History of units the law has not seen, "
            f"but got {type(archive).__name__}; fit on one part of history.split, pass the other."
        )
    known = sorted(set(archive.clusters) & set(law.units))
    if known:
        raise LeakageError(
            f"{label}: the law was fitted on {known[0]!r}, so what it leaves there is too small; "
            "pass units it has not seen, the other part of history.split."
        )
    if isinstance(sieve, Summary) and sieve.memory > law.summary.memory:
        raise SettingError(
            f"{label}: the sieve looks back {sieve.memory} rows, but online only the "
            f"{law.summary.memory} rows are kept that the law looks at; use a shorter sieve."
        )
    if isinstance(sieve, Summary) and "rows" not in law.follow().state():
        raise SettingError(
            f"{label}: this law filters the past and keeps no rows of it for a summary; use a "
            "function of its inputs as the sieve."
        )
    asked = law(archive)
    if not asked.exact:
        raise ModelError(f"{label}: E[W] of this law carries Monte Carlo error; no sieve mends it.")
    x, _ = context_rows(archive, law.summary, law.schema, label)
    if isinstance(sieve, Summary):
        q, _ = context_rows(archive, sieve, law.schema, label)
    else:
        q = sieve_values(sieve, x)
    rest = archive.w - asked.mean()
    known_rows = np.isfinite(q).all(1) & np.isfinite(rest).all(1)
    if not known_rows.any():
        raise DataError(f"{label}: no row of the archive has W and all that the sieve looks at.")
    q, rest = q[known_rows], rest[known_rows]
    sd = q.std(0)
    shift, scale = q.mean(0), np.where(sd > 0, sd, 1.0)
    found = scaled_squares(q, rest, archive.cluster[known_rows], (shift, scale))
    if found is None:
        raise ModelError(
            f"{label}: {len(q)} rows do not tell the {1 + q.shape[1]} coefficients of the sieve "
            "apart; leave out columns that are constant or repeat others."
        )
    return found
