"""A fitted law: posterior draws as arrays, and what can be asked of them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp

from pulse_pyro._core.arrays import Bool, Float, Float1, Float2, Float3, Float4, Int, whole
from pulse_pyro._core.errors import DataError, ModelError
from pulse_pyro._core.progress import bar
from pulse_pyro._core.seeds import stream
from pulse_pyro.base import Expectation, FeatureMap, ModelCard, Schema, Summary
from pulse_pyro.data.history import Source, context_rows
from pulse_pyro.features import enumerated, expectation, partly_enumerated
from pulse_pyro.laws.conjugate import LinearKernel
from pulse_pyro.laws.ellipsoid import (
    RANK,
    Ellipsoid,
    LeastSquares,
    Sieve,
    Variance,
    sieve_squares,
)
from pulse_pyro.laws.memory import Memory
from pulse_pyro.laws.responses import cdf_of, cells_of, covariance_of
from pulse_pyro.laws.scaling import CHUNK, GaussianInputs, Scaler, average

if TYPE_CHECKING:
    from pandas import DataFrame

    from pulse_pyro.data.history import History
    from pulse_pyro.laws.arviz_tree import Bounds
    from pulse_pyro.laws.law import Kernel, Law

# How a law was fitted, in plain values.


@dataclass(frozen=True)
class FitRecord:
    """Engine, seed, rows used and left out, quality figures, losses, chains.

    Draws stand chain after chain, equally many each (in saves of earlier versions the last chain
    may be shorter by one). ``diverging`` : draws at which NUTS diverged; None where no chain was
    run, or where draws no longer stand in the order of the chains. ``sampler`` : lp, energy,
    tree_depth, n_steps, acceptance_rate and step_size of each draw of NUTS. ``seconds`` : that NUTS
    took for warm-up and for sampling, all chains together (finding the mode comes before); two
    records are equal whatever these are.
    """

    inference: str
    seed: int
    rows: int
    dropped: int
    quality: Mapping[str, float]
    losses: tuple[float, ...] = ()
    chains: int = 1
    diverging: tuple[int, ...] | None = None
    sampler: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict, compare=False)

    def made(self, draws: int) -> str:
        """Say how many draws there are: in chains, where they stand in chains."""
        if self.diverging is None:
            return f"{draws} draws"
        return f"{self.chains} chains x {-(-draws // self.chains)} draws"


# Following one series online: take in S_t, ask for W_t, as much of the past kept as is needed.


class WindowFollower:
    """The last rows of a series, as many as the law looks at; rows before its first are NaN."""

    def __init__(self, law: PosteriorLaw) -> None:
        self._law = law
        self._rows = np.full((law.summary.memory, len(law.schema.s_names)), np.nan)
        self._conditional: PosteriorConditional | None = None

    @property
    def now(self) -> Float1:
        """The newest row."""
        row: Float1 = self._rows[-1]
        return row

    @property
    def conditional(self) -> PosteriorConditional:
        """The law of W_t given the window."""
        if self._conditional is None:
            x = np.array(self._law.newest(self._rows))  # a copy: the window moves on
            self._conditional = PosteriorConditional(self._law, x[None], self._rows[-1:].copy())
        return self._conditional

    def push(self, s: Float1, w: Float1 | None = None) -> PosteriorConditional:
        """Drop the oldest row, append the newest; W of earlier rows tells this law nothing more."""
        self._rows[:-1] = self._rows[1:]
        self._rows[-1] = s
        self._conditional = None
        return self.conditional

    def inputs(self) -> Float1:
        """Return x_t of the window."""
        row: Float1 = self.conditional.x[0]
        return row

    def state(self) -> dict[str, Float]:
        """Return the window."""
        return {"rows": self._rows.copy()}

    def restore(self, state: Mapping[str, Float]) -> None:
        """Take over a window."""
        self._rows[:] = state["rows"]
        self._conditional = None


# The rows that are asked for.


def chosen(at: ArrayLike | None, rows: int) -> Int | slice:
    """Return which of so many rows are asked for: all, by number, or True or False for each."""
    if at is None:
        return slice(None)
    index = np.asarray(at)
    if index.dtype == np.bool_:
        if index.size != rows:
            raise DataError(
                f"at must hold True or False for each of {rows} rows, but got {index.shape}."
            )
        return np.flatnonzero(index)
    if index.size and (index.dtype.kind not in "iu" or not _within(index, rows)):
        raise DataError(
            f"at must hold numbers of rows from 0 to {rows - 1}, or True or False for each, but "
            f"got {index.reshape(-1)[:5].tolist()}."
        )
    return index.reshape(-1).astype(np.int64)


def by_action(source: Source, at: ArrayLike | None) -> tuple[Source, ArrayLike | None]:
    """Return s (batch, time, action, s_dim) as series, one of each action, and their rows.

    at : rows of (batch, time, action) read row by row; what is returned are those of the series,
    (batch * action, time, s_dim). An archive, or s without actions, is returned as it is.
    """
    if not isinstance(source, np.ndarray) or source.ndim != 4:
        return source, at
    batch, time, actions, s_dim = source.shape
    rows = np.arange(source.size // max(s_dim, 1)).reshape(batch, actions, time)
    series = source.swapaxes(1, 2).reshape(batch * actions, time, s_dim)
    return series, rows.swapaxes(1, 2).reshape(-1)[chosen(at, rows.size)]


def w_beside(w: ArrayLike, shape: tuple[int, int], label: str) -> Float2:
    """Return w, or refuse what does not stand beside the rows: shape (n, w_dim)."""
    values = np.asarray(w, np.float64)
    if values.shape != shape:
        raise DataError(
            f"{label}: w must be {shape}, one row for each that is asked for, but its shape is "
            f"{values.shape}."
        )
    return values


def _within(index: Int, rows: int) -> bool:
    return bool(-rows <= index.min() and index.max() < rows)


# What a kernel may know beyond means and draws, in closed form given a posterior draw.


@runtime_checkable
class KnowsValues(Protocol):
    """W takes finitely many values, and their probabilities say everything about it."""

    @property
    def support(self) -> Float2 | None:
        """The values, (cells, w_dim), in model units; None of a law where they are not so few."""

    def probabilities(self, x: Float2) -> Float2:
        """Return P(w = cell | x), (n, cells), the average over all draws."""


@runtime_checkable
class KnowsCells(Protocol):
    """Some columns of W take finitely many values; given them the means of the others are known."""

    @property
    def fixed(self) -> Bool:
        """(w_dim,) columns of finitely many values; none of them, where this law has none."""

    @property
    def values(self) -> Float2:
        """(cells, fixed columns), what these take together."""

    def cells(self, x: Float2) -> Float3:
        """Return P(cell | x), then P(cell | x) E[w | cell, x] of the others, (n, cells, 1 + ..)."""


@runtime_checkable
class KnowsCdf(Protocol):
    """The distribution function of each column is closed form, unless ``closed_cdf`` is False."""

    def cdf_draws(self, x: Float2, w: Float2, index: Int) -> Float3:
        """Return P(w_j <= w | x, draw), (len(index), n, w_dim)."""


@runtime_checkable
class KnowsVariance(Protocol):
    """What W varies by around its mean is closed form."""

    def variance_draws(self, x: Float2, index: Int) -> Float4:
        """Return Cov(w | x, draw), (len(index), n, w_dim, w_dim)."""


def known_values(kernel: object) -> KnowsValues | None:
    """Return a kernel whose W takes finitely many values, or None."""
    return kernel if isinstance(kernel, KnowsValues) and kernel.support is not None else None


def known_cells(kernel: object) -> KnowsCells | None:
    """Return a kernel with columns of finitely many values, or None."""
    return kernel if isinstance(kernel, KnowsCells) and kernel.fixed.any() else None


def known_cdf(kernel: object) -> KnowsCdf | None:
    """Return a kernel whose distribution functions are closed form, or None."""
    closed = isinstance(kernel, KnowsCdf) and getattr(kernel, "closed_cdf", True)
    return kernel if closed and isinstance(kernel, KnowsCdf) else None


# The mixture over posterior draws at the rows that are asked for.

COVARIANCE_DRAWS = 1000  # where the covariance has no closed form here
CDF_DRAWS = 200  # posterior draws whose distribution functions are averaged


class PosteriorConditional:
    """p^(W | S_1:t) at n rows: the mixture over a law's posterior draws.

    x : (n, p) inputs, s : (n, s_dim) the current S_t of the rows. The law is as good as its
    model: nothing here checks that W given S really follows it.
    """

    def __init__(self, law: PosteriorLaw, x: Float2, s: Float2) -> None:
        self.law, self.x, self.s = law, x, s

    @property
    def exact(self) -> bool:
        """Whether the mean is closed form given the draws, free of further Monte Carlo."""
        return self.law.kernel.exact_mean

    def mean(self) -> Float2:
        """Return E[W | S_1:t], (n, w_dim).

        Rows with an unseen input are answered where the law allows it; otherwise they are NaN,
        here and in every method below.
        """
        line = self.law.line
        if line is not None and len(self.x) == 1:
            out: Float1 = line[0] + self.x[0] @ line[1]
            if out[0] == out[0]:  # NaN in, NaN out: only then is there something to condition on
                return out[None]
        return self.law.mean_at(self.x)

    def mean_draws(self, size: int, *, rng: np.random.Generator) -> Float3:
        """Return posterior draws of E[W | S_1:t], (size, n, w_dim)."""
        return self.law.mean_draws_at(self.x, self.law.pick(size, rng))

    def draws(self, size: int, *, rng: np.random.Generator) -> Float3:
        """Draw W, (size, n, w_dim): each draw uses one posterior draw.

        Unseen inputs are drawn given the seen ones.
        """
        return self.draws_of(self.law.pick(size, rng), rng)

    def draws_of(self, index: Int, rng: np.random.Generator) -> Float3:
        """Draw W once for each posterior draw in ``index``, (len(index), n, w_dim)."""
        return self.law.sample_at(self.x, index, rng)

    @property
    def support(self) -> Float2 | None:
        """The values W can take, (cells, w_dim), where they are finitely many; else None."""
        kernel = known_values(self.law.kernel)
        if kernel is None or kernel.support is None:
            return None
        return self.law.scaler.w_out(kernel.support)

    @cached_property
    def _chances(self) -> Float2:
        return self.law.probabilities_at(self.x)

    def probabilities(self) -> Float2:
        """Return P(W = value | S_1:t), (n, cells), of the values in :attr:`support`."""
        return self._chances

    @property
    def closed_cdf(self) -> bool:
        """Whether :meth:`cdf` is closed form given the draws, where every input is seen."""
        kernel = self.law.kernel
        return known_values(kernel) is not None or known_cdf(kernel) is not None

    def expect(self, features: FeatureMap, *, size: int, rng: np.random.Generator) -> Expectation:
        """Return E[Phi((S_t, W), a) | S_1:t], mean and mcse (n, action, d).

        Exact given the posterior draws, without an error, where W takes finitely many values, or
        where Phi is affine in w (in the columns of w that have not finitely many values) and the
        mean is closed form; otherwise by ``size`` draws.
        """
        support = self.support
        if support is not None:
            return enumerated(features, self.s, support, self.probabilities())
        if (kernel := known_cells(self.law.kernel)) is not None:
            points, chance = self.law.cells_at(self.x)
            found = partly_enumerated(features, self.s, kernel.fixed, points, chance)
            if found is not None:
                return found
        return expectation(self, features, self.s, size=size, rng=rng)

    def covariance(self) -> Float3:
        """Return Cov(W | S_1:t), (n, w_dim, w_dim): noise, posterior and unseen inputs together.

        Closed form given the draws for linear laws, and for others whose kernel knows it, but where
        an input is not seen; else the covariance of 1,000 draws, the same ones every time, whose
        error is that of 1,000 draws.
        """
        kernel, support = self.law.kernel, self.support
        if isinstance(kernel, LinearKernel):
            return self._linear_covariance(kernel)
        if support is not None:
            return covariance_of(support, self.probabilities())
        if isinstance(kernel, KnowsVariance) and not np.isnan(self.x).any():
            return self._mixture_covariance(kernel)
        drawn = self.draws(COVARIANCE_DRAWS, rng=stream(0, "covariance"))
        away = drawn - drawn.mean(0)
        out: Float3 = np.einsum("mni,mnj->nij", away, away) / (len(drawn) - 1)
        return out

    def _mixture_covariance(self, kernel: KnowsVariance) -> Float3:
        """Return the mean over draws of the covariance plus the covariance of the means."""
        scaler, every = self.law.scaler, np.arange(self.law.kernel.count)
        width = len(self.law.schema.w_names)
        out = np.empty((len(self.x), width, width))
        block = max(CHUNK // (len(every) * max(width**2, self.law.kernel.columns)), 1)
        for start in range(0, len(self.x), block):
            x = scaler.x_in(self.x[start : start + block])
            means = self.law.kernel.mean_draws(x, every)
            away = means - means.mean(0)
            between = np.einsum("mni,mnj->nij", away, away) / len(every)
            out[start : start + block] = kernel.variance_draws(x, every).mean(0) + between
        return out * np.outer(scaler.w_scale, scaler.w_scale)

    def cdf(self, w: Float2) -> Float2:
        """Return P(W_j <= w_j | S_1:t), (n, w_dim); see :attr:`closed_cdf`.

        Where it is not closed form, and where an input is not seen and W has not finitely many
        values, the share of 1,000 draws, the same ones every time. NaN where w is.
        """
        w, kernel = self._beside(w), self.law.kernel
        support = self.support
        if support is not None:
            return cdf_of(support, self.probabilities(), w)
        out = np.empty(w.shape)
        closed = np.zeros(len(w), np.bool_)
        if (own := known_cdf(kernel)) is not None:
            closed = ~np.isnan(self.x.sum(-1))
            out[closed] = self._closed_cdf(own, self.x[closed], w[closed])
        if not closed.all():
            index = self.law.pick(COVARIANCE_DRAWS, rng := stream(0, "cdf"))
            drawn = self.law.sample_at(self.x[~closed], index, rng)
            answered = ~(np.isnan(drawn[0]) | np.isnan(w[~closed]))
            out[~closed] = np.where(answered, (drawn <= w[~closed]).mean(0), np.nan)
        return out

    def _closed_cdf(self, kernel: KnowsCdf, x: Float2, w: Float2) -> Float2:
        """Return the average over draws of P(W_j <= w_j | x, draw), (n, w_dim)."""
        scaler, index = self.law.scaler, self.law.some(CDF_DRAWS)
        block = _block(index, x, w)
        parts = [
            kernel.cdf_draws(scaler.x_in(x[i : i + block]), scaler.w_in(w[i : i + block]), index)
            for i in range(0, len(x), block)
        ]
        return np.concatenate([part.mean(0) for part in parts]) if parts else np.empty(w.shape)

    def log_density(self, w: Float2, *, draws: int = 200) -> Float2 | None:
        """Return log p^(W_j = w_j | S_1:t), (n, w_dim), column by column, over stored draws.

        draws : how many of them are averaged over; all where W takes finitely many values.

        NaN where w is, or an input is not seen and the law has not learned to do without. None of
        a custom model of several W, which says no more than :meth:`joint_log_density`.
        """
        w, index, scaler = self._beside(w), self.law.some(draws), self.law.scaler
        support = self.support
        if support is not None:  # of all draws, as in every other answer
            same = (support[:, None] == w[None]).astype(np.float64)
            chance = np.einsum("nc,cnj->nj", self.probabilities(), same)
            with np.errstate(divide="ignore"):
                return np.where(np.isnan(w), np.nan, np.log(chance))
        rows = np.flatnonzero(self._scored)
        out = np.full(w.shape, np.nan)
        for start in range(0, len(rows), block := _block(index, self.x, w)):
            at = rows[start : start + block]
            each = self.law.kernel.column_log_density(
                scaler.x_in(self.x[at]), scaler.w_in(w[at]), index
            )
            if each is None:
                return None
            out[at] = logsumexp(each, axis=0) - np.log(len(index)) - np.log(scaler.w_scale)
        return out

    @property
    def _scored(self) -> Bool:
        """(n,) rows at which the law has a density."""
        if self.law.law.unseen == "learned":
            return np.ones(len(self.x), np.bool_)
        return np.asarray(~np.isnan(self.x.sum(-1)))

    def joint_log_density(self, w: Float2, *, draws: int = 200) -> Float1:
        """Return log p^(W = w | S_1:t), (n,), averaged over stored draws, all W together.

        The log score of the law at held-out w (n, w_dim). NaN where one of w is, or an input is
        not seen and the law has not learned to do without. draws : see :meth:`log_density`.
        """
        w, support = self._beside(w), self.support
        if support is not None:
            cell, chance = cells_of(support, w), self.probabilities()
            found = np.where(cell < 0, 0.0, chance[np.arange(len(w)), cell])
            with np.errstate(divide="ignore"):
                return np.where(np.isnan(w.sum(-1) + chance[:, 0]), np.nan, np.log(found))
        index = self.law.some(draws)
        out = np.full(len(self.x), np.nan)
        rows = np.flatnonzero(self._scored & ~np.isnan(w.sum(-1)))
        for at, each in _by_rows(self.law, self.x[rows], w[rows], index):
            out[rows[at]] = logsumexp(each, axis=0) - np.log(len(index))
        return out

    def log_densities(self, w: Float2, index: Int) -> Float2:
        """Return log p(W = w | S_1:t, draw), (len(index), n), of chosen posterior draws."""
        out = np.empty((len(index), len(self.x)))
        for at, each in _by_rows(self.law, self.x, self._beside(w), index):
            out[:, at] = each
        return out

    def column_log_densities(self, w: Float2, index: Int) -> Float3 | None:
        """Return log p(W_j = w_j | S_1:t, draw), (len(index), n, w_dim), of chosen draws.

        None of a custom model whose single site holds several W: see :meth:`log_densities`.
        """
        w, scaler = self._beside(w), self.law.scaler
        out = np.empty((len(index), *w.shape))
        for start in range(0, len(w), block := _block(index, self.x, w)):
            at = slice(start, start + block)
            x, own = scaler.x_in(self.x[at]), scaler.w_in(w[at])
            each = self.law.kernel.column_log_density(x, own, index)
            if each is None:
                return None
            out[:, at] = each - np.log(scaler.w_scale)
        return out

    def _beside(self, w: ArrayLike) -> Float2:
        return w_beside(w, (len(self.x), len(self.law.schema.w_names)), self.law.law.label)

    def _linear_covariance(self, kernel: LinearKernel) -> Float3:
        scaler = self.law.scaler
        tail = 1.0 if kernel.df is None else (kernel.df / (kernel.df - 2.0))[:, None, None]
        noise = (tail * (kernel.factor @ np.swapaxes(kernel.factor, 1, 2))).mean(0)
        x = scaler.x_in(self.law.inputs.fill(self.x))
        ones = np.concatenate([np.ones((len(x), 1)), x], axis=1)
        away = kernel.coef - kernel.coef.mean(0)
        out = np.empty((len(x), *noise.shape))
        for i in range(len(noise)):
            for j in range(i + 1):
                cov = away[:, :, i].T @ away[:, :, j] / (len(away) - 1)
                out[:, i, j] = out[:, j, i] = noise[i, j] + ((ones @ cov) * ones).sum(-1)
        out *= np.outer(scaler.w_scale, scaler.w_scale)
        short = np.flatnonzero(np.isnan(self.x.sum(-1)))
        line = self.law.line
        if len(short) and line is not None:
            unseen_cov = self.law.inputs.moments(self.x[short]).cov
            out[short] += np.swapaxes(line[1], 0, 1) @ unseen_cov @ line[1]
        return out


def _by_rows(law: PosteriorLaw, x: Float2, w: Float2, index: Int) -> Iterator[tuple[slice, Float2]]:
    """Yield log p(w | x, draw), (len(index), rows), block of rows by block."""
    kernel, scaler = law.kernel, law.scaler
    units = float(np.log(scaler.w_scale).sum())
    block = _block(index, x, w)
    for start in bar(range(0, len(x), block), label="log densities"):
        at = slice(start, start + block)
        yield at, kernel.log_density(scaler.x_in(x[at]), scaler.w_in(w[at]), index) - units


def _block(index: Int, x: Float2, w: Float2) -> int:
    """Rows whose densities are worked out at a time."""
    return max(CHUNK // (len(index) * (int(x.shape[1]) + int(w.shape[1]))), 1)


@dataclass(frozen=True, eq=False)
class PosteriorLaw:
    """p^(W_t | S_1:t): the mixture over stored posterior draws of a law.

    Attributes
    ----------
    law : the law that was fitted.
    draws : global site -> (draw, *site shape), in the law's own units.
    card : the contract check's findings (None after Exact, which runs no Pyro).
    scaler, inputs : units, and the moments used to condition on unseen inputs.
    record : engine, seed, quality.
    units : the units, or clusters of them, it has seen; calibration refuses to meet them again.
    schema : the columns of the archive, with mean and sd of S there.
    memory : how what the law leaves of W persists, where that was asked, see ``with_memory``; no
        answer of the law depends on it, nor does its ``id``.
    squares : least squares of W on the inputs of a linear law, as sums; see :meth:`ellipsoid`.

    The law is as good as its model: nothing here checks that W given S really follows it.
    """

    law: Law
    draws: Mapping[str, Float]
    card: ModelCard | None
    scaler: Scaler
    inputs: GaussianInputs
    record: FitRecord
    units: tuple[str, ...]
    schema: Schema
    memory: Memory | None = None
    squares: LeastSquares | None = None

    def __post_init__(self) -> None:
        kept = {name: np.array(value, np.float64) for name, value in self.draws.items()}
        for value in kept.values():
            value.flags.writeable = False
        object.__setattr__(self, "draws", MappingProxyType(kept))

    @property
    def summary(self) -> Summary:
        """What the law looks at: the summary of the past of S."""
        return self.law.summary

    @cached_property
    def kernel(self) -> Kernel:
        """Prediction in model units."""
        if self.law.family is not None:
            return self.law.family.kernel(self.draws)
        from pulse_pyro._pyro.predict import PyroKernel
        from pulse_pyro._pyro.sites import SitesKernel

        if self.card is None:
            raise ModelError(f"{self.law.label}: a custom law cannot predict without its card.")
        model = self.law.model_for(self.card.x_dim, self.card.w_dim)
        kernel = SitesKernel if self.card.by_site else PyroKernel
        return kernel(model, self.draws, self.card)

    @cached_property
    def id(self) -> str:
        """Fingerprint of the family, the summary, the columns, the units and every draw.

        A custom model's code is not part of it.
        """
        family = self.law.family.spec() if self.law.family is not None else self.law.unseen
        about = (family, self.law.summary.names, self.schema.s_names, self.schema.w_names)
        digest = hashlib.sha256(repr(about).encode())
        units = {f"units {key}": value for key, value in vars(self.scaler).items()}
        inputs = {f"inputs {key}": value for key, value in vars(self.inputs).items()}
        for name, value in sorted((dict(self.draws) | units | inputs).items()):
            digest.update(name.encode())
            digest.update(np.ascontiguousarray(value).tobytes())
        return digest.hexdigest()[:16]

    def __call__(self, source: Source, at: ArrayLike | None = None) -> PosteriorConditional:
        """Return the law of W at the rows of a History, or of s (batch, time, s_dim).

        Parameters
        ----------
        source : an archive, whose rows are asked for in order; or series of S, each from its
            beginning, whose (batch, time), or (batch, time, action) of s (batch, time, action,
            s_dim), are read row by row: n = batch * time * action.
        at : which of these rows, True or False for each or their numbers; all by default.
        """
        source, at = by_action(source, at)
        x, s = context_rows(source, self.summary, self.schema, self.law.label)
        rows = chosen(at, len(x))
        return PosteriorConditional(self, x[rows], s[rows])

    def follow(self, unit: str | None = None) -> WindowFollower:
        """Start to follow a series online; a law without memory of units is the same for all."""
        return WindowFollower(self)

    def mean_draws_at(self, x: Float2, index: Int) -> Float3:
        """Return E[W | x] of chosen draws, (len(index), n, w_dim), at rows x (n, p)."""
        if self.line is not None:
            x = self.inputs.fill(x)
        return self._at(x, lambda rows: self.kernel.mean_draws(rows, index), len(index))

    @property
    def conditions(self) -> bool:
        """Whether rows with unseen inputs are answered: see ``law.unseen``."""
        return self.law.unseen != "refused"

    @cached_property
    def line(self) -> tuple[Float1, Float2] | None:
        """Intercept (w_dim,) and slopes (p, w_dim) of E[W | x] in raw units, if it is affine."""
        if not isinstance(self.kernel, LinearKernel):
            return None
        coef = self.kernel.mean_coef
        slope = coef[1:] * self.scaler.w_scale / self.scaler.x_scale[:, None]
        return self.scaler.w_out(coef[0]) - self.scaler.x_mean @ slope, slope

    def ellipsoid(
        self,
        level: float = 0.95,
        variance: Variance = "cluster",
        *,
        sieve: Sieve | None = None,
        archive: History | None = None,
    ) -> Ellipsoid:
        """Return where the coefficients of E[W | S] can be, from the archive itself.

        beta = beta_hat + V^{1/2} v, ||v|| <= chi, with probability >= level for all W at once; see
        ``laws.ellipsoid`` for V and chi.

        Parameters
        ----------
        level : of the ellipsoid.
        variance : "cluster", which needs 3 clusters (or units) a coefficient, or "classical", which
            needs rows that are independent of each other, and rows of one unit rarely are.
        sieve : for a law that is not linear: a summary such as Lags(3), or a function of the law's
            inputs (n, p) -> (n, q), that what the law misses of E[W | S] is linear in.
        archive : with a sieve, a History of units the law has not seen.

        beta_hat is least squares, not the posterior mean: whoever uses it imputes with it. NOT
        covered: E[W | S] of another form. Nothing here tests that form; ``diagnose`` does.
        """
        if sieve is not None:
            own = sieve_squares(self, sieve, archive)
            return own.ellipsoid(level, variance=variance, law_id=self.id, sieve=sieve)
        if not isinstance(self.kernel, LinearKernel) or type(self) is not PosteriorLaw:
            raise ModelError(
                f"ellipsoid: {self.law.label} is not linear in inputs it has seen, so its archive "
                "has no ellipsoid of coefficients; declare what its error is linear in: "
                "law.ellipsoid(sieve=Lags(3), archive=held_out)."
            )
        if self.squares is None:
            raise ModelError(f"ellipsoid: {self.law.label} has none: {self._no_squares()}")
        return self.squares.ellipsoid(level, variance=variance, law_id=self.id)

    def _no_squares(self) -> str:
        """Say why least squares of the archive are not there."""
        size, scale = self.scaler.x_mean.size + 1, self.scaler.x_scale
        if self.record.rows <= size:
            return f"{self.record.rows} rows are too few for {size} coefficients; use fewer lags."
        value = np.linalg.eigvalsh(self.inputs.cov / np.outer(scale, scale))
        if value[0] <= 2.0 * RANK * max(float(value[-1]), 1.0):
            return (
                "its inputs do not tell their coefficients apart (one is constant, or follows from "
                "others); leave such columns or lags out."
            )
        return (
            "it was saved by an earlier version, or refitted from running sums; fit it again on "
            "the archive."
        )

    def mean_at(self, x: Float2) -> Float2:
        """Return E[W | x], (n, w_dim), at rows x (n, p)."""
        if self.line is not None:
            return self.line[0] + self.inputs.fill(x) @ self.line[1]
        mean: Float2 = self._at(x, lambda rows: self.kernel.mean(rows)[None], 1)[0]
        return mean

    def sample_at(self, x: Float2, index: Int, rng: np.random.Generator) -> Float3:
        """Draw W once for each posterior draw in ``index``, (len(index), n, w_dim)."""
        size = len(index)
        short = np.flatnonzero(np.isnan(x.sum(-1)))
        if self.law.unseen != "conditioned on" or not len(short):
            return self._at(x, lambda rows: self.kernel.sample(rows, index, rng), size)
        out = np.empty((size, len(x), len(self.schema.w_names)))
        seen = np.setdiff1d(np.arange(len(x)), short)
        if len(seen):
            out[:, seen] = self.kernel.sample(self.scaler.x_in(x[seen]), index, rng)
        block = max(CHUNK // (size * self.kernel.columns), 1)  # completions of a row: (size, p)
        for start in range(0, len(short), block):
            rows = short[start : start + block]
            filled = self.scaler.x_in(self.inputs.draw(x[rows], size, rng))
            out[:, rows] = self.kernel.sample(filled, index, rng)
        return self.scaler.w_out(out)

    def probabilities_at(self, x: Float2) -> Float2:
        """Return P(W = value | x), (n, cells), at rows x (n, p), for W of finitely many values."""
        kernel = known_values(self.kernel)
        if kernel is None or kernel.support is None:
            raise ModelError(f"{self.law.label}: its W does not take finitely many values.")
        cells = len(kernel.support)
        out: Float2 = self._predicted(x, lambda rows: kernel.probabilities(rows)[None], 1, cells)[0]
        return out

    def cells_at(self, x: Float2) -> tuple[Float3, Float2]:
        """Return E[W | cell, x], (n, cells, w_dim), and P(cell | x), (n, cells), in raw units.

        Cells are the values that the columns of finitely many values take together.
        """
        kernel = known_cells(self.kernel)
        if kernel is None:
            raise ModelError(f"{self.law.label}: no column of its W takes finitely many values.")
        cells, free = len(kernel.values), int((~kernel.fixed).sum())

        def flat(rows: Float2) -> Float3:
            return kernel.cells(rows).reshape(1, len(rows), -1)

        both = self._predicted(x, flat, 1, cells * (1 + free))[0].reshape(len(x), cells, 1 + free)
        chance: Float2 = both[..., 0]
        points = np.empty((len(x), cells, len(kernel.fixed)))
        points[..., kernel.fixed] = kernel.values
        # a cell without a chance has no mean: any number will do, it is not counted
        points[..., ~kernel.fixed] = both[..., 1:] / np.where(chance > 0.0, chance, 1.0)[..., None]
        return self.scaler.w_out(points), chance

    def _at(self, x: Float2, predict: Callable[[Any], Float3], size: int) -> Float3:
        """Predict (size, n, w_dim) in raw units from rows x (n, p), some of which may hold NaN."""
        return self.scaler.w_out(self._predicted(x, predict, size, len(self.schema.w_names)))

    def _predicted(
        self, x: Float2, predict: Callable[[Any], Float3], size: int, width: int
    ) -> Float3:
        """Predict (size, n, width) from rows x (n, p), averaged over what is not seen of them."""
        hole = np.isnan(x.sum(-1))
        if self.law.unseen == "learned" or not hole.any():
            return predict(self.scaler.x_in(x))
        out = np.full((size, len(x), width), np.nan)
        if not hole.all():
            out[:, ~hole] = predict(self.scaler.x_in(x[~hole]))
        if getattr(self.kernel, "takes_moments", False):
            rows = np.flatnonzero(hole)
            block = max(CHUNK // x.shape[1] ** 2, 1)  # a covariance for each row
            for start in range(0, len(rows), block):
                at = rows[start : start + block]
                unseen = self.scaler.moments_in(self.inputs.moments(x[at]))
                out[:, at] = predict(unseen)
        elif self.law.unseen == "conditioned on":
            out[:, hole] = average(
                x[hole],
                self.inputs,
                lambda rows: predict(self.scaler.x_in(rows)),
                size,
                self.kernel.columns,
            )
        return out

    def newest(self, past: Float2) -> Float1:
        """Return x (p,) of the last row of past (time, s_dim); rows before its first are unseen."""
        short = self.law.summary.memory - len(past)
        if short > 0:
            past = np.concatenate([np.full((short, past.shape[1]), np.nan), past])
        return self.law.summary.last(past)

    def pick(self, size: int, rng: np.random.Generator) -> Int:
        """Choose posterior draws: each equally often, in random order."""
        whole(size, f"{self.law.label}: the number of draws", 1)
        count = self.kernel.count
        return np.concatenate([rng.permutation(count) for _ in range(-(-size // count))])[:size]

    def some(self, count: int) -> Int:
        """Choose so many posterior draws, evenly spaced."""
        return np.unique(np.linspace(0, self.kernel.count - 1, count).astype(np.int64))

    @property
    def table(self) -> DataFrame:
        """Posterior mean and sd of the parameters, see :func:`laws.table.parameters`."""
        from pulse_pyro.laws.table import parameters

        return parameters(self)

    def to_arviz(
        self,
        history: History | None = None,
        *,
        seed: int = 0,
        size: int = 500,
        calibration: Bounds | None = None,
    ) -> Any:
        """Return the posterior for ArviZ, and predictions of a history's W."""
        from pulse_pyro.laws.arviz_tree import to_tree

        return to_tree(self, history, seed=seed, size=size, calibration=calibration)

    def __repr__(self) -> str:
        quality = ", ".join(f"{k} {v:.3g}" for k, v in self.record.quality.items())
        shapes = ", ".join(f"{k}{list(v.shape[1:])}" for k, v in self.draws.items())
        return (
            f"{type(self).__name__} {self.law.label}: {', '.join(self.schema.w_names)} given "
            f"{', '.join(self.schema.s_names)} ({', '.join(self.law.summary.names[:4])}"
            f"{', ...' if len(self.law.summary.names) > 4 else ''})\n"
            f"  {self.record.inference}, seed {self.record.seed}: {self.record.rows} rows of "
            f"{len(self.units)} independent units or clusters, {self.record.dropped} incomplete "
            f"rows left out\n"
            f"  {self.record.made(self.kernel.count)}: {shapes}"
            + (f"\n  quality: {quality}" if quality else "")
            + (f"\n{self.memory!r}" if self.memory is not None else "")
        )

    def _repr_html_(self) -> str:
        return f"<pre>{self!r}</pre>{self.table.to_html(float_format='{:.4g}'.format)}"
