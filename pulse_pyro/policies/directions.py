"""In which directions a law is unsure, from its posterior.

A law with posterior draws mu^(m)(x) of E[W | x] varies, a posteriori, along functions psi_k:

    E[W | x] = mubar(x) + sum_k c_k psi_k(x) + remainder(x),   c_k of mean 0 and unit scale.

Linear laws have psi = L'(1, x) with L L' the posterior covariance of the coefficients, and no
remainder (see ``linear_directions``). Other laws have the main deviations of their draws at
reference contexts (SVD); what these leave out is bounded by other draws (by the same ones, and too
small, where a law has fewer than 20).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from pulse_pyro.arrays import Float1, Float2, Float3, Int, share, whole
from pulse_pyro.errors import DataError, ModelError, PulseError, SettingError
from pulse_pyro.laws.fitted import FittedLaw
from pulse_pyro.laws.linear_exact import LinearKernel
from pulse_pyro.policies.linear_directions import linear_directions
from pulse_pyro.seeds import stream

ENERGY = 0.99  # share of the posterior's variance the directions hold
LEVEL = 0.95  # of the remainder, over all reference contexts at once
FEW = 20  # draws below which none can be spared to judge the others
REFERENCE = 2000  # contexts at most that directions are found at
LEAST = 500  # different ones, at least
WIDE = 2.0  # spread of made-up contexts, over that of S in the archive


@runtime_checkable
class Directions(Protocol):
    """Where a law is unsure."""

    @property
    def counts(self) -> Int:
        """(w_dim,) number of directions of each W; all 0: the law has no posterior spread."""

    @property
    def law(self) -> FittedLaw:
        """Whose they are."""

    @property
    def sizes(self) -> Float1:
        """||c||^2 of posterior draws along the directions, over all W."""

    def at(self, x: Float2) -> Float3:
        """Return psi, (n, w_dim, q), at rows x (n, p) of the law's inputs."""

    def remainder(self, x: Float2) -> Float2:
        """Bound what the directions leave out of E[W | x], (n, w_dim)."""


@dataclass(frozen=True, eq=False)
class DrawDirections:
    """psi_k(x) = sum_m v_km (mu^(m)(x) - mubar(x)) / sqrt(M): the main deviations of the draws.

    index : (M,) the draws. vectors : (w_dim, M, q) right singular vectors of their deviations at
    the reference contexts, 0 beyond a W's own number. others : (M',) draws the remainder is judged
    by. coef : (w_dim, q, M') what of these the directions explain. critical : (w_dim,) sup over the
    reference contexts of |what is left of a draw| over the root mean square of what is left of the
    others, at level 95 % over draws.
    """

    law: FittedLaw
    index: Int
    vectors: Float3
    others: Int
    coef: Float3
    critical: Float1

    @property
    def sizes(self) -> Float1:
        """||c||^2 of each of the other draws, over all W."""
        found: Float1 = (self.coef**2).sum((0, 1))
        return found

    @property
    def counts(self) -> Int:
        """Directions of each W."""
        return np.asarray((self.vectors != 0).any(1).sum(1))

    def at(self, x: Float2) -> Float3:
        """Return psi, (n, w_dim, q)."""
        apart = _deviations(self.law, x, self.index) / np.sqrt(len(self.index))
        psi: Float3 = np.einsum("mnw,wmq->nwq", apart, self.vectors)
        return psi

    def remainder(self, x: Float2) -> Float2:
        """Bound the rest, (n, w_dim): a credible band of the law over the reference contexts."""
        left = _left(self.law, x, self.others, self.at(x), self.coef)
        out: Float2 = self.critical * np.sqrt((left**2).mean(0))
        return out


def directions(
    law: FittedLaw, reference: Float3 | None = None, *, most: int = 8, draws: int = 64,
    seed: int = 0,
) -> Directions:  # fmt: skip
    """Find the directions in which a law is unsure.

    Parameters
    ----------
    law : fitted; linear laws get all directions in closed form. E[W] given a draw must have a
        closed form: Monte Carlo noise would pass for spread.
    reference : (batch, time, s_dim) contexts like those to come, S alone, e.g. archive.s; not used
        by linear laws, which need none.
    most, draws : at most so many directions for each W, from so many posterior draws; as many as
        hold 99 % of their variance.
    seed : of the choice of draws, and of made-up contexts.

    Where the law was fitted it is sure of itself, so that few archived rows alone would show none
    of the directions that matter elsewhere. Fewer than 500 different reference contexts are
    therefore joined by made-up ones, normal around the archive's mean of S with twice its sd, some
    with steady and some with jumping lags, until there are as many. Of an archive too small to know
    the spread of S they are a guess: contexts like those to come, where there are any, are better.

    Relies on the posterior being honest: diagnose the law first. The remainder is a statement of
    the posterior about contexts like these, not a confidence band: calibration is. A law whose
    draws are all alike (or that has only one) has no directions: ``counts`` is 0.
    """
    if not isinstance(law, FittedLaw):
        raise ModelError(
            f"directions: a fitted law with draws was expected, {type(law).__name__} came."
        )
    whole(most, "directions: most", 1)
    whole(draws, "directions: draws", 2)
    kernel = law.kernel
    if isinstance(kernel, LinearKernel):
        return linear_directions(law, kernel, seed)
    if not law.exact_mean:
        raise ModelError(
            f"directions: E[W] of {law.law.label} has no closed form given a draw, so that its "
            "directions would be Monte Carlo noise; use PulseUCB."
        )
    if reference is None:
        raise SettingError(
            f"directions: {law.law.label} is not linear, so reference contexts are needed: pass "
            "archive.s, or contexts like those to come; S alone is enough."
        )
    x, w_dim = _reference(law, reference, seed), len(law.w_names)
    if kernel.count < 2:
        alone, none = np.zeros(1, np.int64), np.zeros((w_dim, 1, 0))
        return DrawDirections(law, alone, none, alone, np.zeros((w_dim, 0, 1)), np.zeros(w_dim))
    order = stream(seed, "directions").permutation(kernel.count)
    half = min(draws, kernel.count // 2)
    index, others = order[:half], order[half : 2 * half]
    if kernel.count < FEW:
        index = others = order
    apart = _deviations(law, x, index) / np.sqrt(len(index))
    vectors = np.zeros((w_dim, len(index), most))
    for j in range(w_dim):
        value, vector = np.linalg.eigh(apart[..., j] @ apart[..., j].T)
        value, vector = np.maximum(value[::-1], 0.0), vector[:, ::-1]
        if value[0] <= 1e-20 * float(law.scaler.w_scale[j]) ** 2 * len(x):  # rounding
            continue
        held = np.cumsum(value) / value.sum()
        q = min(int(np.searchsorted(held, ENERGY)) + 1, most)
        vectors[j, :, :q] = vector[:, :q]
    vectors = vectors[..., : int((vectors != 0).any(1).sum(1).max())]
    psi = np.einsum("mnw,wmq->nwq", apart, vectors)
    beyond = _deviations(law, x, others)
    coef = np.stack(
        [np.linalg.lstsq(psi[:, j], beyond[..., j].T, rcond=1e-10)[0] for j in range(w_dim)]
    )
    left = beyond - np.einsum("nwq,wqm->mnw", psi, coef)
    count = len(others)
    rest = np.sqrt(np.maximum((left**2).sum(0) - left**2, 0.0) / (count - 1))
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = np.sort(np.where(rest > 0, np.abs(left) / rest, 0.0).max(1), axis=0)
    # the rank a further draw stays below with this probability
    rank = min(int(np.ceil(LEVEL * (count + 1))), count) - 1
    return DrawDirections(law, index, vectors, others, coef, ratio[rank])


def augmented_bound(theta_bound: float, found: Directions, *, delta: float = 0.05) -> float:
    """Bound the augmented parameter (theta, theta_j c_k), given ||theta|| <= theta_bound.

    ||(theta, theta c)|| <= S sqrt(1 + ||c||^2), and ||c||^2 over all W is below its quantile among
    the posterior's own draws with probability 1 - delta. Cautious where each feature involves one
    W only.
    """
    share(delta, "augmented_bound: delta")
    sizes = np.sort(found.sizes)
    rank = min(int(np.ceil((1.0 - delta) * (len(sizes) + 1))), len(sizes)) - 1
    return float(theta_bound * np.sqrt(1.0 + sizes[rank]))


def _reference(law: FittedLaw, reference: Float3, seed: int) -> Float2:
    """Return complete input rows of the reference contexts: some of many, more if they are few."""
    s = np.asarray(getattr(reference, "s", reference), np.float64)  # an archive has its S
    if s.ndim != 3 or s.shape[-1] != len(law.s_names):
        raise DataError(
            f"directions: reference must be (batch, time, {len(law.s_names)}) with columns "
            f"{law.s_names}, such as archive.s, but its shape is {s.shape}."
        )
    x = law.summary(s)
    rows = x.reshape(-1, x.shape[-1])
    rows = rows[np.isfinite(rows).all(1)]
    if not len(rows):
        raise DataError(
            "directions: no reference context has all inputs of the law; pass series with the "
            "lags it looks at, such as the archive's s."
        )
    some: Float2 = rows[stream(seed, "reference").permutation(len(rows))[:REFERENCE]]
    missing = LEAST - len(np.unique(some, axis=0))
    return some if missing <= 0 else np.concatenate([some, _made_up(law, missing, seed)])


def _made_up(law: FittedLaw, size: int, seed: int) -> Float2:
    """Return input rows (size, p) of short series around the archive's S, where the law answers."""
    rng, (mean, sd) = stream(seed, "made up"), law.contexts
    sd = np.where(sd > 1e-10 * np.abs(mean), sd, 1.0)  # a constant column has no spread
    shape = size, law.summary.memory, len(mean)
    steady = rng.random((size, 1, 1))  # correlation of the rows of a series
    level, jump = rng.standard_normal((size, 1, len(mean))), rng.standard_normal(shape)
    z = np.sqrt(steady) * level + np.sqrt(1.0 - steady) * jump
    x: Float2 = law.summary(mean + WIDE * sd * z)[:, -1]
    try:
        known = law.mean_draws_at(x, np.zeros(1, np.int64))[0]
    except (PulseError, ValueError):  # a custom model need not be defined at every context
        return x[:0]
    answered: Float2 = x[np.isfinite(known).all(1)]
    return answered


def _deviations(law: FittedLaw, x: Float2, index: Int) -> Float3:
    """Return mu^(m) - mean over these draws, (M, n, w_dim)."""
    found = law.mean_draws_at(x, index)
    return np.asarray(found - found.mean(0))


def _left(law: FittedLaw, x: Float2, others: Int, psi: Float3, coef: Float3) -> Float3:
    out: Float3 = _deviations(law, x, others) - np.einsum("nwq,wqm->mnw", psi, coef)
    return out
