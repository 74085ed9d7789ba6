"""Several W columns of different kinds, each by lags of S and by the columns before it.

Columns of finitely many values (0/1, levels, categories) come first, then numbers, then counts and
shares; nothing is conditioned on a count or a share. Given the finite columns, a cell, the numbers
are jointly normal and the predictor of a count or share is normal too, so that means, distribution
functions and densities are sums over cells, and one-dimensional quadrature for counts and shares.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
from scipy import special

from pulse_pyro._core.arrays import Float, Float2, Float3, Float4, Int
from pulse_pyro._core.errors import DataError, ModelError, SettingError, nearest
from pulse_pyro._pyro.inference import Fit, Inference, Laplace, Nuts, Svi
from pulse_pyro.base import Column, ModelCard, Summary
from pulse_pyro.data.history import History
from pulse_pyro.data.summary import as_summary
from pulse_pyro.laws.generalised import (
    Line,
    check_kind,
    never_seen,
    response_from,
    response_of,
    response_spec,
    sample_own,
    sample_predictor,
)
from pulse_pyro.laws.law import FitData, Law, Unseen, run_model, with_unseen
from pulse_pyro.laws.responses import (
    FewValues,
    Number,
    Ordinal,
    Own,
    Response,
    ResponseKind,
)
from pulse_pyro.laws.scaling import CHUNK

MixedKind = Literal["normal"] | ResponseKind
MOST_CELLS = 4096  # values that the finite columns take together
SITES = ("slope", "intercept", "link", "share", "sd", "overdispersion", "precision")
NODES = 20  # of the quadrature over the numbers before a count or share


# One column, its place in w, and what later columns see of it.


@dataclass(frozen=True)
class Turn:
    """One W column. at : its first column in w; centre, scale : (width,) of what others see of it.

    parents : numbers of the parts it is conditioned on.
    """

    name: str
    response: Response
    at: int
    centre: tuple[float, ...]
    scale: tuple[float, ...]
    parents: tuple[int, ...] = ()

    @property
    def columns(self) -> slice:
        """Its columns in w."""
        return slice(self.at, self.at + len(self.centre))

    @property
    def rank(self) -> int:
        """Its turn: columns of finitely many values, numbers, then counts and shares."""
        if isinstance(self.response, FewValues):
            return 0
        return 1 if isinstance(self.response, Number) else 2

    def seen(self, w: Float) -> Float:
        """Return what later columns see, in standard units, of values (..., w_dim)."""
        out: Float = (w[..., self.columns] - np.array(self.centre)) / np.array(self.scale)
        return out

    def seen_coded(self, w: Any) -> Any:
        """Return the same in torch, of codes (..., w_dim)."""
        import torch

        value = w[..., self.columns]
        if isinstance(self.response, Ordinal):
            value = torch.tensor(self.response.numbers)[value.long()]
        return (value - torch.tensor(self.centre)) / torch.tensor(self.scale)

    def spec(self) -> dict[str, Any]:
        """Plain values that rebuild it."""
        return {
            "name": self.name,
            "response": response_spec(self.response),
            "at": self.at,
            "centre": list(self.centre),
            "scale": list(self.scale),
            "parents": list(self.parents),
        }

    @staticmethod
    def from_spec(spec: Mapping[str, Any]) -> Turn:
        """Rebuild from :meth:`spec`."""
        return Turn(
            spec["name"],
            response_from(spec["response"]),
            spec["at"],
            *(tuple(spec[name]) for name in ("centre", "scale", "parents")),
        )


def in_turn(parts: list[Turn], chain: bool) -> tuple[Turn, ...]:
    """Return the columns in turn, each with those it is conditioned on."""
    ordered = sorted(parts, key=lambda part: part.rank)
    return tuple(
        replace(part, parents=tuple(i for i in range(j) if chain and ordered[i].rank < 2))
        for j, part in enumerate(ordered)
    )


# The law as a Pyro model.


def mixed_model(p: int, w_dim: int, parts: tuple[Turn, ...]) -> Callable[..., None]:
    """Return model(x, w=None) for standardised x (n, p) and w (n, w_dim) in codes."""

    def model(x: Any, w: Any = None) -> None:
        import pyro
        import pyro.distributions as dist
        import torch

        from pulse_pyro._pyro.in_turn import InTurn

        def step(part: Turn, eta: Any, link: Any, own: Own) -> Callable[[Any], Any]:
            def law(values: Any) -> Any:
                if link is None:
                    return part.response.distribution(eta, own)
                seen = torch.cat([parts[i].seen_coded(values) for i in part.parents], -1)
                return part.response.distribution(eta + seen @ link, own)

            return law

        steps: list[Any] = []
        for part in parts:
            prefix = f"{part.name}_"
            eta = sample_predictor(x, p, part.response, prefix)
            link = None
            if part.parents:
                k = sum(len(parts[i].centre) for i in part.parents)
                each = torch.full((k, part.response.predictors), link_sd(part.response, k))
                link = pyro.sample(f"{prefix}link", dist.Normal(0.0, each).to_event(2))
                link = link.squeeze(-3) if link.dim() > 2 else link
            own = sample_own(part.response, prefix)
            steps.append((part.columns, step(part, eta, link, own)))
        batch = eta.shape[:-1]  # draws of all columns stand left of the rows alike
        with pyro.plate("rows", x.shape[-2], dim=-1):
            pyro.sample("w", InTurn(tuple(steps), batch, w_dim), obs=w)

    return model


def link_sd(response: Response, k: int) -> float:
    """Prior sd of the slopes on k standardised columns before: together as the inputs'."""
    return response.scales[1] / math.sqrt(k)


def mixed_lags(
    summary: int | Summary,
    kinds: Mapping[str, MixedKind] | None = None,
    *,
    chain: bool = True,
) -> Law:
    """Return a law of several W columns of different kinds, by lags of S (or another summary).

    Parameters
    ----------
    summary : number of lags, the current S_t included, or a summary.
    kinds : column -> "normal" or a kind of ``generalised_lags``; columns it does not name are taken
        as they are declared: real: normal, binary: bernoulli, ordinal, categorical, count:
        negative_binomial.
    chain : whether columns are conditioned on each other, or independent given x.

    Every column is a regression as in ``generalised_lags``, with x (n, p) standardised; a normal
    one, standardised, has mean eta and sd ~ HalfNormal(1). In a chain

        eta_j = intercept_j + x'slope_j + sum_{i < j} link_ij z_i,

    z_i column i in standard units. Columns of finitely many values come first, then numbers, then
    counts and shares, each in the order of the archive; nothing is conditioned on counts or shares.
    Priors: as in ``generalised_lags``; normal: intercept ~ Normal(0, 2^2), slope ~ Normal(0, 2^2 /
    p); link as the slopes, with the columns before it for p. Sites are named ``mood_slope``,
    ``mood_link``, ... Laplace by default, Nuts and Svi fit the same model.

    Given the posterior draws, means, probabilities and densities are sums over all values of the
    finite columns together (at most 4,096); counts and shares behind numbers are integrated by
    quadrature with 20 nodes. E[Phi] is exact where Phi is affine in the columns that do not take
    finitely many values, whatever it does with the others; otherwise it is by draws, with its Monte
    Carlo error. The covariance is that of 1,000 draws unless every column is finite.

    Inputs that are NaN at prediction time are averaged over given the seen ones, as if all were
    jointly Gaussian. Rows are fitted on where every W is seen. Not covered: counts that depend on
    counts given the rest; a residual shared by columns other than through the chain; interactions.

    Examples
    --------
    >>> import numpy as np
    >>> import pulse_pyro as pp
    >>> rng = pp.stream(0, "archive")
    >>> s = rng.standard_normal((30, 20, 1))
    >>> slept = (rng.random(s.shape) < 1 / (1 + np.exp(-s))).astype(float)
    >>> mood = s + slept + rng.standard_normal(s.shape)
    >>> history = pp.History.from_arrays(s, np.concatenate([slept, mood], -1))
    >>> law = mixed_lags(1, {"w0": "bernoulli"}).fit(history, seed=0)
    >>> phi = pp.terms(["1", "w0*w1*a"], 2, observed=["s"], missing=["w0", "w1"])
    >>> law(s[:1]).expect(phi, size=2, rng=rng).exact  # affine in w1 at w0 = 0 and at w0 = 1
    True
    """
    named = dict(kinds or {})
    for column, kind in named.items():
        if kind != "normal":
            check_kind(kind, f"mixed_lags: {column!r}")
    if not isinstance(chain, bool):
        raise SettingError(f"mixed_lags: chain must be True or False, but got {chain!r}.")
    seen = as_summary(summary, "mixed_lags")
    return Law(None, seen, "mixed_lags", family=MixedFamily(tuple(named.items()), chain))


@dataclass(frozen=True)
class MixedFamily:
    """What the law of mixed columns knows beyond its Pyro model; numbers alone are standardised."""

    engines: ClassVar[tuple[type[Inference], ...]] = (Laplace, Nuts, Svi)
    engine_reason: ClassVar[str] = "its posterior has no closed form, and no networks to train"
    linear: ClassVar[bool] = False
    uses_holes: ClassVar[bool] = False
    unseen: ClassVar[Unseen] = "conditioned on"
    kinds: tuple[tuple[str, MixedKind], ...]
    chain: bool
    parts: tuple[Turn, ...] = ()

    @property
    def dims(self) -> dict[str, tuple[str, ...]]:
        """Names of the axes of its sites."""
        out: dict[str, tuple[str, ...]] = {}
        for part in self.parts:
            own = f"{part.name}_predictor"
            out[f"{part.name}_slope"] = ("input", own)
            out[f"{part.name}_intercept"] = (own,)
            out[f"{part.name}_link"] = (f"{part.name}_given", own)
            out[f"{part.name}_share"] = (f"{part.name}_level",)
        return out

    def spec(self) -> dict[str, Any]:
        """Plain values that rebuild the law."""
        return {
            "family": "mixed_lags",
            "kinds": dict(self.kinds),
            "chain": self.chain,
            "parts": [part.spec() for part in self.parts],
        }

    @staticmethod
    def from_spec(spec: Mapping[str, Any]) -> MixedFamily:
        """Rebuild from :meth:`spec`."""
        parts = tuple(Turn.from_spec(part) for part in spec["parts"])
        return MixedFamily(tuple(spec["kinds"].items()), spec["chain"], parts)

    def settle(self, data: FitData, history: History) -> tuple[FitData, MixedFamily]:
        """Standardise numbers, turn the others into codes, and settle kinds and turns."""
        columns = history.schema.w_columns
        names = [column.name for column in columns]
        for name, _ in self.kinds:
            if name not in names:
                raise SettingError(
                    f"mixed_lags: kinds names {name!r}, which is no W column{nearest(name, names)} "
                    f"W columns are {', '.join(names)}."
                )
        rows, scaler, at = data.rows, data.scaler, 0
        w, mean, scale = rows.w.copy(), scaler.w_mean.copy(), scaler.w_scale.copy()
        parts = []
        for column in columns:
            own = slice(at, at + len(column.names))
            response = self._response(column, rows.w[:, own], data, history)
            if isinstance(response, Number):
                parts.append(Turn(column.name, response, at, (0.0,), (1.0,)))
            else:
                centre, width = tuple(map(float, mean[own])), tuple(map(float, scale[own]))
                parts.append(Turn(column.name, response, at, centre, width))
                w[:, own], mean[own], scale[own] = response.encode(rows.w[:, own]), 0.0, 1.0
            at = own.stop
        turns = in_turn(parts, self.chain)
        cells = math.prod(len(support) for _, support in finite(turns))
        if cells > MOST_CELLS:
            raise DataError(
                f"mixed_lags: its columns of finitely many values take {cells} values together "
                f"(limit {MOST_CELLS}); leave some out, or join levels."
            )
        units = replace(scaler, w_mean=mean, w_scale=scale)
        coded = replace(data, rows=replace(rows, w=w), scaler=units)
        return coded, replace(self, parts=turns)

    def _response(self, column: Column, w: Float2, data: FitData, history: History) -> Response:
        """Return how one column is distributed: as asked for, or as it is declared."""
        kind = dict(self.kinds).get(column.name)
        if kind == "normal" or (kind is None and column.kind == "real"):
            if len(column.names) > 1:
                raise DataError(
                    f"mixed_lags: W column {column.name!r} is {column.kind}, which is no number; "
                    "leave it out of kinds."
                )
            return Number()
        return response_of(kind, column, w, data.rows, history, "mixed_lags")

    def resolve(self, data: FitData) -> MixedFamily:
        """Nothing more depends on the data: see :meth:`settle`."""
        return self

    @property
    def settled(self) -> tuple[Turn, ...]:
        """The columns in turn, once they are known."""
        if not self.parts:
            raise ModelError("mixed_lags: its columns are known only once it has met data.")
        return self.parts

    def model(self, p: int, w_dim: int) -> Callable[..., Any]:
        """Return the Pyro model."""
        return mixed_model(p, w_dim, self.settled)

    def fit(self, data: FitData, how: Inference, seed: int) -> tuple[ModelCard | None, Fit]:
        """Run the engine; levels that never occur are counted among the figures of quality."""
        model = self.model(data.x.shape[1], data.w_dim)
        card, fit = run_model(model, data, how, seed, label="mixed_lags")
        absent = sum(never_seen(part.response, data.w[:, part.columns]) for part in self.settled)
        return card, with_unseen(fit, absent)

    def kernel(self, draws: Mapping[str, Float]) -> MixedKernel | CellKernel | CellsKernel:
        """NumPy prediction."""
        ranks = {part.rank for part in self.settled}
        kind = CellsKernel if ranks == {0} else CellKernel if 0 in ranks else MixedKernel
        return kind(self.settled, draws)


def finite(parts: tuple[Turn, ...]) -> Iterator[tuple[Turn, Float2]]:
    """Yield the columns of finitely many values, with these, (levels, width)."""
    for part in parts:
        if part.response.support is not None:
            yield part, part.response.support


# Prediction in NumPy. m : draws, n : rows, c : cells, the values the finite columns take together.


class _Told:
    """One column's posterior: eta = line(x) + link'seen, and the sites of its own."""

    def __init__(self, part: Turn, draws: Mapping[str, Float]) -> None:
        prefix = f"{part.name}_"
        site = {name: draws[prefix + name] for name in SITES if prefix + name in draws}
        self.part, self.response = part, part.response
        self.line = Line(site.pop("slope"), site.pop("intercept", None))
        self.link: Float3 | None = site.pop("link", None)
        self.own = part.response.prepare(site)

    def own_at(self, index: Int) -> Own:
        """Return its own sites at chosen draws."""
        return {name: value[index] for name, value in self.own.items()}

    def eta(self, x: Float2 | Float3, index: Int, seen: Float | None) -> Float3:
        """Return eta, (m, n, q), given the columns before it, seen (n, k) or (m, n, k)."""
        eta = self.line(x, index)
        return eta if self.link is None or seen is None else eta + seen @ self.link[index]


class MixedKernel:
    """Prediction of columns in turn, from posterior draws; closed form but for one quadrature."""

    exact_mean = True

    def __init__(self, parts: tuple[Turn, ...], draws: Mapping[str, Float]) -> None:
        self.parts = parts
        self.told = [_Told(part, draws) for part in parts]
        self.count = self.told[0].line.count
        self.w_dim = sum(len(part.centre) for part in parts)
        supports = list(finite(parts))
        self.fixed = np.zeros(self.w_dim, np.bool_)
        grid = np.zeros((1, self.w_dim))
        for part, support in supports:  # the first column moves slowest, as in the loop below
            grid = np.repeat(grid, len(support), axis=0)
            grid[:, part.columns] = np.tile(support, (len(grid) // len(support), 1))
            self.fixed[part.columns] = True
        self.grid = grid  # (c, w_dim): 0 where a column is not finite
        self.values = grid[:, self.fixed]
        numbers = any(part.rank == 1 for part in parts)
        later = any(part.rank == 2 and part.parents for part in parts)
        self.node, self.weight = np.zeros(1), np.ones(1)
        if numbers and later:
            self.node, weight = special.roots_hermitenorm(NODES)
            self.weight = weight / weight.sum()
        self.columns = max(self.told[0].line.columns, len(grid) * (self.w_dim + len(self.node)))

    # Given a draw: chances of cells, numbers given cells, predictors of counts and shares.

    def chances(self, x: Float2, index: Int) -> Float3:
        """Return P(cell | x, draw), (m, n, c)."""
        out = np.ones((len(index), len(x), 1))
        for told in self.told:
            if told.part.rank:
                break
            before = out.shape[2]
            stride = len(self.grid) // before
            eta = self._at_cells(told, x, index, self.grid[::stride])
            assert isinstance(told.response, FewValues)
            each = told.response.probabilities(
                eta.reshape(len(index), -1, eta.shape[-1]), told.own_at(index)
            )
            out = (out[..., None] * each.reshape(*out.shape, -1)).reshape(*out.shape[:2], -1)
        return out

    def _seen(self, told: _Told, w: Float, rank: int) -> Float:
        """Return what a column sees of those before it that are finite (0) or numbers (1)."""
        before = [self.parts[i] for i in told.part.parents if self.parts[i].rank == rank]
        parts = [part.seen(w) for part in before]
        return np.concatenate(parts, -1) if parts else np.zeros((*w.shape[:-1], 0))

    def _links(self, told: _Told, index: Int) -> tuple[Float3, Float3]:
        """Return its links to the finite columns and to the numbers before it, (m, k, q) each."""
        if told.link is None:
            none = np.zeros((len(index), 0, told.response.predictors))
            return none, none
        cut = self._seen(told, self.grid[:1], 0).shape[-1]
        link = told.link[index]
        return link[:, :cut], link[:, cut:]

    def _at_cells(self, told: _Told, x: Float2, index: Int, grid: Float2) -> Float4:
        """Return eta, (m, n, c, q), without what numbers before it add."""
        link, _ = self._links(told, index)
        moved = self._seen(told, grid, 0) @ link  # (m, c, q)
        out: Float4 = told.line(x, index)[:, :, None] + moved[:, None]
        return out

    def numbers(self, x: Float2, index: Int) -> tuple[Float4, Float3]:
        """Return means, (m, n, c, k), and covariance, (m, k, k), of the numbers given the cell."""
        told = [each for each in self.told if each.part.rank == 1]
        k, m = len(told), len(index)
        mean = np.empty((m, len(x), len(self.grid), k))
        root = np.zeros((m, k, k))  # numbers = mean + root noise
        for j, each in enumerate(told):
            link = self._links(each, index)[1][..., 0]  # (m, j), or none of them
            mean[..., j] = self._at_cells(each, x, index, self.grid)[..., 0]
            if link.shape[1]:
                mean[..., j] += np.einsum("mnci,mi->mnc", mean[..., :j], link)
                root[:, j] = np.einsum("mi,mik->mk", link, root[:, :j])
            root[:, j, j] = each.own["sd"][index]
        return mean, root @ np.swapaxes(root, 1, 2)

    def _later(self, told: _Told, x: Float2, index: Int, numbers: Float4, cov: Float3) -> Float:
        """Return eta of a count or share, (m, n, c, nodes)."""
        link = self._links(told, index)[1][..., 0]
        eta = self._at_cells(told, x, index, self.grid)[..., 0]
        if not link.shape[1]:
            return np.repeat(eta[..., None], len(self.node), -1)
        eta = eta + np.einsum("mnci,mi->mnc", numbers, link)
        sd = np.sqrt(np.einsum("mi,mij,mj->m", link, cov, link))
        out: Float = eta[..., None] + sd[:, None, None, None] * self.node
        return out

    def cell_means(self, x: Float2, index: Int) -> Float4:
        """Return E[w | cell, x, draw], (m, n, c, w_dim)."""
        shape = (len(index), len(x), len(self.grid))
        out = np.empty((*shape, self.w_dim))
        out[...] = self.grid
        numbers, cov = self.numbers(x, index)
        j = 0
        for told in self.told:
            at = told.part.at
            if told.part.rank == 1:
                out[..., at], j = numbers[..., j], j + 1
            elif told.part.rank == 2:
                eta = self._later(told, x, index, numbers, cov).reshape(len(index), -1, 1)
                mean = told.response.mean(eta, told.own_at(index)).reshape(*shape, -1)
                out[..., at] = mean @ self.weight
        return out

    # What every kernel answers.

    def _blocks(self, x: Float2, index: Int) -> Iterator[slice]:
        """Cut rows so that not too many values are in flight."""
        block = max(CHUNK // (len(index) * self.columns), 1)
        for start in range(0, max(len(x), 1), block):
            yield slice(start, start + block)

    @cached_property
    def _every(self) -> Int:
        return np.arange(self.count)

    def mean(self, x: Float2) -> Float2:
        """Return E[w | x], (n, w_dim), the average over all draws."""
        every = self._every
        parts = [self._means(x[at], every).mean(0) for at in self._blocks(x, every)]
        return np.concatenate(parts)

    def mean_draws(self, x: Float2, index: Int) -> Float3:
        """Return E[w | x, draw], (len(index), n, w_dim)."""
        parts = [self._means(x[at], index) for at in self._blocks(x, index)]
        return np.concatenate(parts, axis=1)

    def _means(self, x: Float2, index: Int) -> Float3:
        out: Float3 = (self.chances(x, index)[..., None, :] @ self.cell_means(x, index))[..., 0, :]
        return out

    def sample(self, x: Float2 | Float3, index: Int, rng: np.random.Generator) -> Float3:
        """Draw w at x (n, p), or (len(index), n, p), column after column."""
        out = np.zeros((len(index), x.shape[-2], self.w_dim))
        for told in self.told:
            eta = told.eta(x, index, self._before(told, out))
            out[..., told.part.columns] = told.response.sample(eta, told.own_at(index), rng)
        return out

    def _before(self, told: _Told, w: Float) -> Float | None:
        """Return all that a column sees of those before it."""
        if not told.part.parents:
            return None
        return np.concatenate([self.parts[i].seen(w) for i in told.part.parents], -1)

    def log_density(self, x: Float2, w: Float2, index: Int) -> Float2:
        """Return log p(w | x, draw), (len(index), n), all columns together."""
        out = np.zeros((len(index), len(x)))
        for told in self.told:
            eta = told.eta(x, index, self._before(told, w))
            out += told.response.log_density(eta, told.own_at(index), w[:, told.part.columns])
        return out

    def column_log_density(self, x: Float2, w: Float2, index: Int) -> Float3:
        """Return log p(w_j | x, draw), (len(index), n, w_dim): over all values of the others."""
        parts = [self._by_column(x[at], w[at], index, True) for at in self._blocks(x, index)]
        with np.errstate(divide="ignore"):
            return np.log(np.concatenate(parts, axis=1))

    def cdf_draws(self, x: Float2, w: Float2, index: Int) -> Float3:
        """Return P(w_j <= w | x, draw), (len(index), n, w_dim)."""
        parts = [self._by_column(x[at], w[at], index, False) for at in self._blocks(x, index)]
        return np.concatenate(parts, axis=1)

    def _by_column(self, x: Float2, w: Float2, index: Int, density: bool) -> Float3:
        """Average over cells and nodes of p(w_j | ..), or of P(w_j <= w | ..)."""
        m, n, c = len(index), len(x), len(self.grid)
        chance = self.chances(x, index)
        numbers, cov = self.numbers(x, index)
        out = np.empty((m, n, self.w_dim))
        j = 0
        for told in self.told:
            at = told.part.columns
            if told.part.rank == 0:
                value, grid = w[:, None, at], self.grid[:, at]
                hit = np.where(np.isnan(value), np.nan, value == grid if density else value >= grid)
                out[..., at] = np.minimum(np.einsum("mnc,ncj->mnj", chance, hit), 1.0)
                continue
            if told.part.rank == 1:
                eta = numbers[..., j].reshape(m, -1, 1)
                own: Own = {"sd": np.sqrt(cov[:, j, j])}
                nodes, j = np.ones(1), j + 1
            else:
                eta = self._later(told, x, index, numbers, cov).reshape(m, -1, 1)
                own, nodes = told.own_at(index), self.weight
            tiled = np.repeat(w[:, at], c * len(nodes), axis=0)
            if density:
                each: Float = np.exp(told.response.log_density(eta, own, tiled))
            else:
                each = told.response.cdf(eta, own, tiled)
            given = each.reshape(m, n, c, len(nodes)) @ nodes
            out[..., at] = np.einsum("mnc,mnc->mn", chance, given)[..., None]
        return out


class CellKernel(MixedKernel):
    """The same where some columns are finite: chances of cells and the means of others there."""

    def cells(self, x: Float2) -> Float3:
        """Return P(cell | x), then P(cell | x) E[w | cell, x] of the others, (n, c, 1 + free)."""
        every, parts = self._every, []
        for at in self._blocks(x, every):
            chance = self.chances(x[at], every)[..., None]
            means = self.cell_means(x[at], every)[..., ~self.fixed]
            parts.append(np.concatenate([chance.mean(0), (chance * means).mean(0)], -1))
        return np.concatenate(parts)


class CellsKernel(MixedKernel):
    """The same where every column is finite: their chances together say everything."""

    @property
    def support(self) -> Float2:
        """The values w can take, (cells, w_dim)."""
        return self.grid

    def probabilities(self, x: Float2) -> Float2:
        """Return P(w = cell | x), (n, cells), the average over all draws."""
        every = self._every
        parts = [self.chances(x[at], every).mean(0) for at in self._blocks(x, every)]
        return np.concatenate(parts)
