"""A site per W column, and latents of rows: summed over, not drawn, wherever that can be done.

For each row, with z the row's latents and the W columns that others are conditioned on,

    p(w_j | x, draw) = sum_z p(z | x, draw) p(w_j | z, x, draw).

Discrete sites are summed over their support, normal latents by Gauss-Hermite quadrature; every
one has an axis of its own to the left of the draws, so that one run of the model gives all terms.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyro
import pyro.distributions as dist
import pyro.poutine as poutine
import torch
from pyro.poutine.messenger import Messenger

from pulse_pyro._core.arrays import Bool, Float, Float2, Float3
from pulse_pyro._pyro.codes import Coding, codings_of
from pulse_pyro._pyro.predict import (
    CHUNK,
    LOCAL_REPEATS,
    flat_means,
    has_mean,
    padded,
    written_down,
)
from pulse_pyro._pyro.sandbox import sandbox
from pulse_pyro.base import ModelCard

NODES = 32  # of the quadrature over a normal latent
NODES_OF_TWO = 16  # over each of two of a unit
MOST_CELLS = 4096  # values of all sites that are summed over together
MOST_TERMS = 2**16  # of these and the cells of W, for the chances of cells
DENSITY_REPEATS = 256  # redraws of what cannot be summed over, for a density


def kind_of(fn: Any) -> str:
    """Return the name of a distribution as it was written, without the axes put around it."""
    while type(fn).__name__ in ("Independent", "ExpandedDistribution", "MaskedDistribution"):
        fn = fn.base_dist
    return type(fn).__name__


def support_of(fn: Any) -> torch.Tensor | None:
    """Return the values (k,) of a distribution of finite support, None of any other."""
    if not getattr(fn, "has_enumerate_support", False) or fn.event_shape:
        return None
    try:
        return torch.as_tensor(fn.enumerate_support(expand=False)).reshape(-1)
    except NotImplementedError:  # counts out of totals that differ from row to row
        return None


def is_normal(fn: Any) -> bool:
    """Tell whether quadrature is made for this latent."""
    return isinstance(fn, dist.Normal) and not fn.event_shape


class SumOver(Messenger):  # type: ignore[misc]  # Pyro has no types
    """Give sites all their values at once, each along an axis of its own.

    names : the sites. first : the first free axis, counted from the right, e.g. -2. points : sites
    that get these values instead, together along the first axis, equally weighted. nodes : of the
    quadrature over normal sites, by name; NODES where nothing is said. Afterwards
    ``axes`` tells which axis a site got, ``log_weight`` the quadrature's weights along it.
    """

    def __init__(
        self,
        names: tuple[str, ...],
        first: int,
        points: Mapping[str, torch.Tensor] | None = None,
        nodes: Mapping[str, int] | None = None,
    ) -> None:
        super().__init__()
        self.names, self.points, self.nodes = names, points or {}, nodes or {}
        self.first = first - bool(self.points)
        self.axes: dict[str, int] = dict.fromkeys(self.points, first)
        self.log_weight: dict[str, torch.Tensor] = {}
        for i, (name, value) in enumerate(self.points.items()):
            weight = torch.full((len(value),), -math.log(len(value)) if i == 0 else 0.0)
            self.log_weight[name] = weight.reshape((-1,) + (1,) * (-first - 1))

    def _pyro_sample(self, msg: Any) -> None:
        if msg["name"] in self.points:
            msg["value"] = self.points[msg["name"]]
        if msg["name"] not in self.names or msg["value"] is not None:
            return
        axis = self.first - len(self.axes) + len(self.points)
        along = (-1,) + (1,) * (-axis - 1)
        fn = msg["fn"]
        values = support_of(fn)
        if values is None:
            nodes, weight = np.polynomial.hermite_e.hermegauss(self.nodes.get(msg["name"], NODES))
            log_weight = torch.as_tensor(np.log(weight / weight.sum()))
            self.log_weight[msg["name"]] = log_weight.reshape(along)
            msg["value"] = fn.loc + fn.scale * torch.as_tensor(nodes).reshape(along)
        else:
            value = values.reshape(along)
            plate = [frame for frame in msg["cond_indep_stack"] if frame.name == "units"]
            # rows pick their unit, so there must be as many as there are
            msg["value"] = value.expand(*value.shape[:-1], plate[0].size) if plate else value
        self.axes[msg["name"]] = axis


class SeenOnly(Messenger):  # type: ignore[misc]  # Pyro has no types
    """Leave rows out of the likelihood of a W column: seen, column -> (n,) True where it counts."""

    def __init__(self, seen: Mapping[str, torch.Tensor]) -> None:
        super().__init__()
        self.seen = seen

    def _pyro_sample(self, msg: Any) -> None:
        seen = self.seen.get(msg["name"])
        if seen is not None and msg["is_observed"]:
            msg["mask"] = seen if msg["mask"] is None else msg["mask"] & seen


def summed_model(
    model: Callable[..., Any], names: tuple[str, ...], nesting: int
) -> Callable[..., Any]:
    """Return the model with discrete latents of rows summed out: only the other latents are left.

    names : the sites inside plate "rows" to sum over. nesting : axes that plates use.
    """

    def summed(*args: Any, **extras: Any) -> None:
        hidden: set[str] = set()

        def hide(msg: Any) -> bool:
            # noted here, before whoever runs this model holds its parameters at values
            own = msg["type"] == "sample" and (msg["is_observed"] or msg["name"] in names)
            if own:
                hidden.add(msg["name"])
            return bool(own)

        with poutine.block(hide_fn=hide), poutine.trace() as tracer:
            SumOver(names, -nesting - 1)(model)(*args, **extras)
        trace = tracer.trace
        trace.compute_log_prob(site_filter=lambda name, _: name in hidden)
        rows, rest = torch.zeros(()), torch.zeros(())
        for name in hidden:
            node = trace.nodes[name]
            if any(frame.name == "rows" for frame in node["cond_indep_stack"]):
                rows = rows + node["log_prob"]
            else:
                rest = rest + node["log_prob_sum"]
        per_row = _log_sum(rows, nesting)
        pyro.factor("_summed_over_rows", per_row.sum() + rest)

    return summed


def _log_sum(terms: torch.Tensor, width: int) -> torch.Tensor:
    """Log of the sum of exp over all axes but the last ``width``."""
    extra = terms.ndim - width
    return torch.logsumexp(terms, dim=tuple(range(extra))) if extra > 0 else terms


@dataclass
class SiteRun:
    """One run of a model with sites summed over: all that is needed of its sites.

    shape : (draws, 1, ..., rows), the axes that are not summed over.
    """

    nodes: Mapping[str, Any]
    axes: Mapping[str, int]
    log_weight: dict[str, torch.Tensor]
    shape: tuple[int, ...]
    _weights: dict[str, torch.Tensor] = field(default_factory=dict)

    def log_prob_of(self, name: str) -> torch.Tensor:
        """Log weight of every value of a site that is summed over."""
        if name not in self._weights:
            node = self.nodes[name]
            known = self.log_weight.get(name)
            self._weights[name] = node["fn"].log_prob(node["value"]) if known is None else known
        return self._weights[name]

    def _above(self, *terms: torch.Tensor) -> dict[str, torch.Tensor]:
        """Log weights of the summed sites that some terms vary with, and of those above them."""
        found: dict[str, torch.Tensor] = {}
        waiting = list(terms)
        while waiting:
            term = waiting.pop()
            for name, axis in self.axes.items():
                if name not in found and term.ndim >= -axis and term.shape[axis] > 1:
                    found[name] = self.log_prob_of(name)
                    waiting.append(found[name])
        return found

    def flat(self, value: torch.Tensor) -> torch.Tensor:
        """Return (draws, rows)."""
        return value.broadcast_to(self.shape).reshape(math.prod(self.shape[:-1]), -1)

    def log_total(self, *terms: torch.Tensor) -> torch.Tensor:
        """Log of the sum over z of p(z) exp(terms), (draws, rows)."""
        every = torch.zeros(())
        for term in (*terms, *self._above(*terms).values()):
            every = every + term
        return self.flat(_log_sum(every, len(self.shape)))

    def average(self, term: torch.Tensor) -> torch.Tensor:
        """Sum over z of p(z) term, (draws, rows)."""
        weight = torch.zeros(())
        for each in self._above(term).values():
            weight = weight + each
        total = weight.exp() * term
        extra = total.ndim - len(self.shape)
        return self.flat(total.sum(dim=tuple(range(extra))) if extra > 0 else total)

    def by_cell(self, names: tuple[str, ...], term: torch.Tensor | None = None) -> torch.Tensor:
        """Sum over z of p(z, cell) term, (draws, rows, cells), where ``names`` have each value.

        Cells are the values these sites take together, the first moving slowest. term : 1, if none.
        """
        own = {name: self.log_prob_of(name) for name in names}
        terms = (*own.values(), *(() if term is None else (term,)))
        weight = torch.zeros(())
        for each in (self._above(*terms) | own).values():
            weight = weight + each
        total = weight.exp() if term is None else weight.exp() * term
        width, axes = len(self.shape), [total.ndim + self.axes[name] for name in names]
        others = tuple(i for i in range(total.ndim - width) if i not in axes)
        total = total.sum(dim=others, keepdim=True) if others else total
        total = total.movedim(axes, list(range(-len(axes), 0)))
        sizes = total.shape[total.ndim - len(axes) :]
        total = total.reshape(total.shape[len(others) :]).broadcast_to((*self.shape, *sizes))
        return total.reshape(math.prod(self.shape[:-1]), self.shape[-1], -1)


def has_known_mean(fn: Any) -> bool:
    """Tell whether a distribution has a mean, or a support to take one over."""
    return support_of(fn) is not None or has_mean(fn)


def known_mean(fn: Any, coded: Coding | None) -> torch.Tensor:
    """Return the mean of a distribution that has one, (..., width); no value decides what is done.

    coded : the column it is of; None of a site of vectors.
    """
    if coded is None:
        return torch.as_tensor(fn.mean)
    if support_of(fn) is None:
        return torch.as_tensor(fn.mean)[..., None]
    numbers, chance = _table(fn, coded)
    return (numbers * chance).sum(0)


def site_cdf(fn: Any, w: torch.Tensor, coded: Coding) -> torch.Tensor:
    """Return P(W_j <= w_j) of a column that says it, (..., width), for w (n, width)."""
    if support_of(fn) is None:
        return torch.as_tensor(fn.cdf(w[..., 0]))[..., None]
    numbers, chance = _table(fn, coded)
    return torch.where(numbers <= w, chance, 0.0).sum(0)


def _table(fn: Any, coded: Coding) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the numbers of all values of a column, and their chances, along the first axis."""
    values = support_of(fn)
    assert values is not None
    each = values.reshape(-1, *(1,) * len(fn.batch_shape))
    return coded.of(each), fn.log_prob(each).exp()[..., None]


def log_prob_of(fn: Any, w: torch.Tensor) -> torch.Tensor:
    """Return log p(w), -inf outside the support and NaN where w is NaN."""
    inside = fn.support.check(w)
    if fn.event_shape:  # of vectors: the support answers for the whole of one
        lost = torch.isnan(w).any(-1)
        inside = (inside if inside.ndim < w.ndim else inside.all(-1)) & ~lost
        safe = torch.where(inside[..., None], w, fn.sample())
    else:
        lost = torch.isnan(w)
        inside = inside & ~lost
        safe = torch.where(inside, w, fn.sample().to(w.dtype))
    out = torch.where(inside, fn.log_prob(safe), -torch.inf)
    return torch.where(lost, torch.nan, out)


def _column_terms(run: SiteRun, coded: Coding, w: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yield log p(w_j), (draws, rows), of the numeric columns of one W column; w (rows, w_dim)."""
    fn = run.nodes[coded.name]["fn"]
    if coded.width == 1:
        code = torch.as_tensor(coded.codes(w.numpy()))
        yield run.log_total(log_prob_of(fn, code))
        return
    for level, value in enumerate(w[:, coded.at].unbind(-1), start=1):  # the first level is all 0
        there = run.log_total(fn.log_prob(torch.tensor(float(level))))
        other = torch.log(-torch.expm1(there.clamp(max=0.0)))
        found = torch.where(value == 1.0, there, torch.where(value == 0.0, other, -torch.inf))
        yield torch.where(torch.isnan(value), torch.nan, found)


class SitesKernel:
    """Prediction for models with a site per W column, or with discrete latents of rows.

    Answers repeat: what is drawn, because it cannot be summed over, is drawn from one stream.
    """

    def __init__(
        self, model: Callable[..., Any], draws: Mapping[str, Float], card: ModelCard
    ) -> None:
        self.model, self.card = model, card
        self.draws = {name: torch.tensor(value) for name, value in draws.items()}
        self.count = len(next(iter(draws.values()))) if draws else 1
        self.coded = codings_of(card)
        sizes = card.supports
        few = tuple(coded for coded in self.coded if coded.name in sizes)
        over = dict.fromkeys((*card.summed, *(coded.name for coded in few)))
        terms = math.prod(sizes[name] for name in over)
        cells = math.prod(sizes[coded.name] for coded in few)
        exact = card.closed_mean and cells <= MOST_CELLS
        exact &= terms * max(card.unit_cells, 1) <= MOST_TERMS
        self._few, self._over = few if exact else (), tuple(over)
        self._terms = terms if self._few else card.cells
        self.columns = self.count * max(card.w_dim * card.cells, self._terms)

    @property
    def exact_mean(self) -> bool:
        """Whether nothing has to be drawn for a mean."""
        return self.card.closed_mean

    def mean(self, x: Float2) -> Float2:
        """Return E[w | x], (n, w_dim), the average over all draws."""
        rows = max(CHUNK // self.columns, 1)
        every = np.arange(self.count)
        parts = [
            self.mean_draws(x[start : start + rows], every).mean(0)
            for start in range(0, len(x), rows)
        ]
        return np.concatenate([np.empty((0, self.card.w_dim)), *parts])  # there may be no row

    def mean_draws(self, x: Float2, index: Any) -> Float3:
        """Return E[w | x, draw], (len(index), n, w_dim); latents of rows are summed out."""
        if len(x) == 1 and (known := flat_means(self.flat, x)) is not None:
            return known[index]

        def of(run: SiteRun, at: slice) -> torch.Tensor:
            return torch.stack([run.average(mean) for mean in self._means(run)], -1)

        return self._averaged(x, index, of)

    @cached_property
    def flat(self) -> Callable[..., torch.Tensor] | None:
        """Means of every draw at one row, (draws, 1, w_dim), without Pyro: as asked for online."""
        if self.card.draws_for_means:
            return None

        def means(x: torch.Tensor) -> torch.Tensor:
            (run,) = runs_at(self.model, x, self.draws, self.card, self.card.summed)
            # all means are known here, and asking would look at values
            each = [run.average(mean) for mean in self._means(run, lambda fn: True)]
            return torch.stack(each, -1)

        return written_down(means, self.card)

    @cached_property
    def fixed(self) -> Bool:
        """(w_dim,) columns of finitely many values, where their chances are sums without draws."""
        out = np.zeros(self.card.w_dim, np.bool_)
        for coded in self._few:
            out[coded.at] = True
        return out

    @cached_property
    def values(self) -> Float2:
        """(cells, fixed columns), what these take together, the first column moving slowest."""
        sizes = self.card.supports
        each = [coded.of(torch.arange(sizes[coded.name])).numpy() for coded in self._few]
        together = [np.concatenate([np.empty(0), *rows]) for rows in itertools.product(*each)]
        return np.array(together).reshape(len(together), -1)

    @property
    def support(self) -> Float2 | None:
        """The values w can take, (cells, w_dim), where they are finitely many; else None."""
        return self.values if self.fixed.all() else None

    def probabilities(self, x: Float2) -> Float2:
        """Return P(w = cell | x), (n, cells), the average over all draws."""
        out: Float2 = self.cells(x)[..., 0]
        return out

    def cells(self, x: Float2) -> Float3:
        """Return P(cell | x), then P(cell | x) E[w | cell, x] of the others, (n, cells, 1 + ..)."""
        if len(x) == 1 and (known := flat_means(self._flat_cells, x)) is not None:
            return known.mean(0)
        terms = self._terms * max(self.card.unit_cells, 1)
        rows, some = (max(CHUNK // size, 1) for size in (self.columns, terms))
        out = []
        for start in range(0, max(len(x), 1), rows):
            total: Any = 0.0
            for first in range(0, self.count, some):
                index = np.arange(first, min(first + some, self.count))
                block = x[start : start + rows]
                total = total + self._by_rows(block, index, self._by_cell, self._over, 0).sum(0)
            out.append(total / self.count)
        return np.concatenate(out)

    def _by_cell(self, run: SiteRun, at: Any) -> torch.Tensor:
        """Return what :meth:`cells` averages, (draws, rows, cells, 1 + ..)."""
        names = tuple(coded.name for coded in self._few)
        means = [
            mean
            for coded in self.coded
            if coded not in self._few
            for mean in known_mean(run.nodes[coded.name]["fn"], coded).unbind(-1)
        ]
        return torch.stack([run.by_cell(names, term) for term in (None, *means)], -1)

    @cached_property
    def _flat_cells(self) -> Callable[..., torch.Tensor] | None:
        """The same at one row for all draws, without Pyro: as asked for online."""
        if self.columns > CHUNK or self.card.by_unit:
            return None

        def found(x: torch.Tensor) -> torch.Tensor:
            (run,) = runs_at(self.model, x, self.draws, self.card, self._over)
            return self._by_cell(run, None)

        return written_down(found, self.card)

    def sample(self, x: Float2 | Float3, index: Any, rng: Any) -> Float3:
        """Draw w at x (n, p), or (len(index), n, p), once per entry of ``index``."""
        if x.ndim == 3:
            parts = [self.sample(own, [i], rng) for own, i in zip(x, index, strict=True)]
            return np.concatenate(parts)

        return self._by_rows(x, index, self.drawn, (), int(rng.integers(2**62)))

    def drawn(self, run: SiteRun, at: Any) -> torch.Tensor:
        """Return the w that a run drew, (draws, rows, w_dim), as declared numbers."""
        if not self.card.columns:
            value = run.nodes["w"]["value"]
            return value.reshape(-1, *value.shape[-2:])
        values = [
            value
            for coded in self.coded
            for value in coded.of(run.nodes[coded.name]["value"]).unbind(-1)
        ]
        return torch.stack([run.flat(value) for value in values], -1)

    def log_density(self, x: Float2, w: Float2, index: Any) -> Float2:
        """Return log p(w | x, draw), (len(index), n), of all columns together; NaN where w is."""
        each = {"w": torch.as_tensor(w)}
        if self.coded:
            each = {coded.name: torch.as_tensor(coded.codes(w)) for coded in self.coded}

        def of(run: SiteRun, at: slice) -> torch.Tensor:
            return run.log_total(
                *(log_prob_of(run.nodes[name]["fn"], value[at]) for name, value in each.items())
            )

        given = {name: torch.nan_to_num(value) for name, value in each.items()}
        return self._log_average(x, index, of, given)

    def column_log_density(self, x: Float2, w: Float2, index: Any) -> Float3 | None:
        """Return log p(w_j | x, draw), (len(index), n, w_dim), the other columns summed out.

        None of a single site of several W: what it makes of one of them is not asked of Pyro.
        """
        if not self.card.columns:
            return self.log_density(x, w, index)[..., None] if self.card.w_dim == 1 else None
        known = torch.tensor(np.asarray(w, np.float64))

        def of(run: SiteRun, at: slice) -> torch.Tensor:
            terms = [term for coded in self.coded for term in _column_terms(run, coded, known[at])]
            return torch.stack(terms, -1)

        return self._log_average(x, index, of, None)

    @cached_property
    def closed_cdf(self) -> bool:
        """Whether every column has a distribution function, or few values, and none is drawn."""
        if not self.coded or self.card.draws_for_means:
            return False
        if self.card.by_unit and not self.card.unit_cells:
            return False
        x = np.zeros((1, self.card.x_dim + self.card.by_unit))
        try:
            self.cdf_draws(x, np.zeros((1, self.card.w_dim)), np.arange(1))
        except (NotImplementedError, AttributeError):
            return False
        return True

    def cdf_draws(self, x: Float2, w: Float2, index: Any) -> Float3:
        """Return P(W_j <= w_j | x, draw), (len(index), n, w_dim); NaN where w is.

        Only where :attr:`closed_cdf`.
        """
        known = torch.tensor(np.asarray(w, np.float64))  # in numbers: it may lie between levels

        def of(run: SiteRun, at: slice) -> torch.Tensor:
            each = []
            for coded in self.coded:
                own = torch.nan_to_num(known[at, coded.at])
                found = site_cdf(run.nodes[coded.name]["fn"], own, coded)
                each += [run.average(one) for one in found.unbind(-1)]
            return torch.stack(each, -1)

        found = self._averaged(x, index, of)
        found[:, np.isnan(w)] = np.nan
        return found

    def _means(
        self, run: SiteRun, known: Callable[[Any], bool] = has_known_mean
    ) -> Iterator[torch.Tensor]:
        for coded in self.coded or (None,):
            fn = run.nodes["w" if coded is None else coded.name]["fn"]
            if known(fn):
                mean = known_mean(fn, coded)
            else:
                mean = torch.stack([fn.sample() for _ in range(64)]).mean(0)
                mean = mean if coded is None else mean[..., None]
            yield from mean.unbind(-1)

    def _averaged(
        self, x: Float2, index: Any, of: Callable[[SiteRun, slice], torch.Tensor]
    ) -> Float3:
        repeats = LOCAL_REPEATS if self.card.draws_for_means else 1
        parts = [self._by_rows(x, index, of, self.card.summed, r) for r in range(repeats)]
        out: Float3 = np.mean(parts, axis=0)
        return out

    def _log_average(
        self,
        x: Float2,
        index: Any,
        of: Callable[[SiteRun, slice], torch.Tensor],
        given: dict[str, torch.Tensor] | None,
    ) -> Any:
        """Average densities over redraws of what cannot be summed over."""
        sums = self.card.summed if given is None else self.card.summed_latents
        drawn = self.card.draws_for_means if given is None else bool(self.card.sampled)
        repeats = DENSITY_REPEATS if drawn else 1
        total = self._by_rows(x, index, of, sums, 0, given)
        for r in range(1, repeats):
            total = np.logaddexp(total, self._by_rows(x, index, of, sums, r, given))
        return total - math.log(repeats)

    def _by_rows(
        self,
        x: Float2,
        index: Any,
        of: Callable[[SiteRun, slice], torch.Tensor],
        sums: tuple[str, ...],
        seed: int,
        given: dict[str, torch.Tensor] | None = None,
    ) -> Any:
        """Run at blocks of rows; given : W by site, where it is to be observed."""
        chosen = {name: value[index] for name, value in self.draws.items()}
        block = max(CHUNK // (len(index) * self.card.w_dim * self.card.cells), 1)
        tensor, parts = torch.tensor(x), []
        with sandbox(seed, "predict"), torch.no_grad(), pyro.validation_enabled(False):
            for start in range(0, max(len(x), 1), block):
                at = slice(start, start + block)
                w: Any = None if given is None else {name: v[at] for name, v in given.items()}
                if w is not None and not self.card.columns:
                    w = w["w"]
                runs = runs_at(self.model, tensor[at], chosen, self.card, sums, w)
                parts.append(torch.cat([of(run, at) for run in runs]))
            return torch.cat(parts, dim=1).numpy()


def runs_at(
    model: Callable[..., Any],
    x: torch.Tensor,
    draws: Mapping[str, torch.Tensor],
    card: ModelCard,
    sums: tuple[str, ...],
    w: Any = None,
    points: Mapping[str, torch.Tensor] | None = None,
) -> Iterator[SiteRun]:
    """Run a model at draws (m, *site shape): once for all of them, or once for each.

    sums : the sites to sum over. w : given, as the model wants it, or None. points : sites to
    average over stored values, see :class:`SumOver`; only where all draws run at once.
    """
    args = (x,) if w is None else (x, w)
    count = len(next(iter(draws.values()))) if draws else 1
    if card.vectorised:
        fixed = poutine.condition(model, padded(draws, card, count))
        over = SumOver(sums, -card.nesting - 2, points, card.supports)
        with pyro.plate("_draws", count, dim=-card.nesting - 1):
            nodes = poutine.trace(over(fixed)).get_trace(*args).nodes
        shape = (count, *(1,) * (card.nesting - 1), len(x))
        yield SiteRun(nodes, over.axes, over.log_weight, shape)
        return
    for i in range(count):
        fixed = poutine.condition(model, {name: value[i] for name, value in draws.items()})
        over = SumOver(sums, -card.nesting - 2, nodes=card.supports)
        nodes = poutine.trace(over(fixed)).get_trace(*args).nodes
        yield SiteRun(nodes, over.axes, over.log_weight, (1,) * card.nesting + (len(x),))
