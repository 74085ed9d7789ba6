"""Prediction of a model with latents of units: units of the archive, new ones, and in between.

A unit of the archive has its own posterior draws. A new one has latents z from the population,

    p(w | x, draw) = integral p(z | draw) p(w | z, x, draw) dz,

summed over (Gauss-Hermite quadrature for normal latents, the support of discrete ones) where that
takes at most 256 terms, else averaged over 32 stored draws of z for every posterior draw, so that
answers repeat. Of a unit whose w are revealed see :mod:`pulse_pyro._pyro.unit_posterior`.
"""

from collections.abc import Callable, Mapping
from functools import cached_property, partial
from typing import Any

import numpy as np
import pyro
import pyro.poutine as poutine
import torch
from torch.overrides import TorchFunctionMode

from pulse_pyro._core.arrays import Bool, Float, Float2, Float3, Int
from pulse_pyro._pyro.codes import codes_of
from pulse_pyro._pyro.compiled import flat_program
from pulse_pyro._pyro.predict import CHUNK, flat_means, padded, written_down
from pulse_pyro._pyro.sandbox import sandbox
from pulse_pyro._pyro.sites import SiteRun, SitesKernel, log_prob_of, runs_at
from pulse_pyro.base import ModelCard

POINTS = 32  # stored draws of a new unit's latents, for every posterior draw


class UnitKernel(SitesKernel):
    """Prediction from draws of global sites (m, ...) and of units (m, units, ...).

    The last column of x is the number of the row's unit: 0, 1, ... of the archive, and any larger
    number for a new one; rows with one number are rows of one unit.
    """

    def __init__(
        self, model: Callable[..., Any], draws: Mapping[str, Float], card: ModelCard
    ) -> None:
        super().__init__(model, draws, card)
        self.names = tuple(site.name for site in card.unit_sites)
        self.own = {name: self.draws.pop(name) for name in self.names}
        if card.enumerated_units:  # stored as floats, but a model may pick rows of a table by them
            kinds = {n: v.dtype for n, v in self.population([0], 1, 0).items()}
            self.own = {name: value.to(kinds[name]) for name, value in self.own.items()}
        self.units = self.own[self.names[0]].shape[1]
        self.columns *= card.unit_cells or POINTS
        self._written: dict[Any, Any] = {}  # flat programs, see ``_flat``

    def with_draws(self, draws: Mapping[str, Float]) -> "UnitKernel":
        """Return the same with other draws, as many; what was written down is shared."""
        other = UnitKernel(self.model, draws, self.card)
        other._written = self._written
        return other

    def mean_draws(self, x: Float2, index: Any) -> Float3:
        """Return E[w | x, draw], (len(index), n, w_dim); latents of rows are summed out."""
        if len(x) == 1 and (found := self._at_one(x)) is not None:
            return found[index]
        return super().mean_draws(x, index)

    @property
    def flat(self) -> None:
        """Nothing for rows of anybody: see ``_at_one``."""

    def _at_one(self, x: Float2) -> Float3 | None:
        """Return means of every draw at one row without Pyro, as asked for online."""
        row, number = x[:, :-1], int(x[0, -1])
        if number >= self.units:
            return flat_means(self._flat_new, row)
        if self.card.draws_for_means or not self.card.closed_mean:
            return None
        own = (value[:, number : number + 1] for value in self.own.values())
        sites = torch.tensor(row), *self.draws.values(), *own
        written = self._flat("means", lambda *at: self._means_of(*at), sites)
        found = None if written is None else written(*sites).numpy()
        return found if found is not None and np.isfinite(found).all() else None

    @cached_property
    def _flat_new(self) -> Callable[..., torch.Tensor] | None:
        """Means of every draw at one row of a new unit, its latents summed over."""
        if self.card.draws_for_means:
            return None
        return written_down(lambda x: self._means_of(x, *self.draws.values()), self.card)

    def _means_of(self, x: torch.Tensor, *sites: torch.Tensor) -> torch.Tensor:
        """Return means at one row given draws of all sites, or summed over those of units."""
        new = len(sites) == len(self.draws)
        draws = dict(zip((*self.draws, *self.own)[: len(sites)], sites, strict=True))
        sums = (*self.card.summed, *self.names) if new else self.card.summed
        with _Alone(1) as alone:
            model = partial(self.model, unit=alone.unit)
            (run,) = runs_at(model, x, draws, self.card, sums)
            return torch.stack(
                [run.average(mean) for mean in self._means(run, lambda fn: True)], -1
            )

    def _flat(
        self, key: Any, program: Callable[..., torch.Tensor], inputs: tuple[torch.Tensor, ...]
    ) -> Callable[..., torch.Tensor] | None:
        """Return a flat program of a row and of sites, written down once; None where it is not.

        It has to agree with the draws in another order too, which decide as much as the row.
        """
        if key not in self._written:
            row, *sites = inputs
            other = row, *(v.flip(0) for v in sites)
            with sandbox(0, "predict"), torch.no_grad(), pyro.validation_enabled(False):
                able = self.card.vectorised
                self._written[key] = flat_program(program, inputs, other) if able else None
        found: Callable[..., torch.Tensor] | None = self._written[key]
        return found

    def sample(self, x: Float2 | Float3, index: Any, rng: Any) -> Float3:
        """Draw w at x (n, p + 1), once per entry of ``index``; rows of a unit share its latents."""
        if x.ndim == 3:
            parts = [self.sample(own, [i], rng) for own, i in zip(x, index, strict=True)]
            return np.concatenate(parts)
        seeds = [int(seed) for seed in rng.integers(2**62, size=2)]
        number = x[:, -1].astype(np.int64)
        new, place = np.unique(number[number >= self.units], return_inverse=True)
        values = {name: value[index] for name, value in self.own.items()}
        if len(new):
            fresh = self.population(index, len(new), seeds[0])
            values = {name: torch.cat([value, fresh[name]], 1) for name, value in values.items()}
            number[number >= self.units] = self.units + place
        return self._known(x[:, :-1], index, self.drawn, (), seeds[1], None, number, values)

    def population(self, index: Any, size: int, seed: int) -> dict[str, torch.Tensor]:
        """Draw latents of ``size`` new units for chosen posterior draws, (m, size, ...) each."""
        with torch.no_grad():
            nodes = self._nodes(index, size, seed)
        out = {}
        for site in self.card.unit_sites:
            full = (*self._shape(len(index), size), *site.event_shape)
            value = nodes[site.name]["value"].expand(full)
            out[site.name] = value.reshape(len(index), size, *site.event_shape)
        return out

    def laws(self) -> dict[str, Any]:
        """Return the distribution of each latent of a new unit, given every posterior draw."""
        nodes = self._nodes(np.arange(self.count), 1, 0)
        return {name: nodes[name]["fn"] for name in self.names}

    def _shape(self, count: int, size: int) -> tuple[int, ...]:
        return count, *(1,) * (self.card.nesting - 1), size

    def _nodes(
        self, index: Any, size: int, seed: int, values: Mapping[str, torch.Tensor] | None = None
    ) -> Any:
        """Run at a row of each of ``size`` units; values : their latents, else drawn."""
        chosen = {name: value[index] for name, value in self.draws.items()} | dict(values or {})
        model = partial(self.model, unit=torch.arange(size))
        fixed = poutine.condition(model, padded(chosen, self.card, len(index)))
        every = pyro.plate("_draws", len(index), dim=-self.card.nesting - 1)
        quiet = pyro.validation_enabled(False)
        with sandbox(seed, "population"), quiet, every:
            return poutine.trace(fixed).get_trace(torch.zeros(size, self.card.x_dim)).nodes

    @cached_property
    def _stored(self) -> dict[str, torch.Tensor]:
        """Latents of new units for every posterior draw, (m, POINTS, ...)."""
        return self.population(np.arange(self.count), POINTS, 0)

    def _by_rows(
        self,
        x: Float2,
        index: Any,
        of: Callable[[SiteRun, Any], torch.Tensor],
        sums: tuple[str, ...],
        seed: int,
        given: dict[str, torch.Tensor] | None = None,
    ) -> Any:
        """Run at units of the archive, and at new ones averaged over the population."""
        number, x = x[:, -1].astype(np.int64), x[:, :-1]
        known = number < self.units
        if known.all():
            own = {name: value[index] for name, value in self.own.items()}
            return self._known(x, index, of, sums, seed, given, number, own)
        parts = []
        if known.any():
            own = {name: value[index] for name, value in self.own.items()}
            at = np.flatnonzero(known)
            parts.append((at, self._known(x, index, of, sums, seed, given, number, own, at)))
        at = np.flatnonzero(~known)
        parts.append((at, self._new(x, index, of, sums, seed, given, at)))
        out = np.empty((len(index), len(x), *parts[0][1].shape[2:]))
        for at, value in parts:
            out[:, at] = value
        return out

    def _known(
        self,
        x: Float2,
        index: Any,
        of: Callable[[SiteRun, Any], torch.Tensor],
        sums: tuple[str, ...],
        seed: int,
        given: dict[str, torch.Tensor] | None,
        number: Int,
        values: Mapping[str, torch.Tensor],
        rows: Int | None = None,
    ) -> Any:
        """Run where a unit's latents are known, values (m, units, ...); rows : which, or all."""
        chosen = {name: value[index] for name, value in self.draws.items()}

        def about(at: Int) -> tuple[Any, dict[str, torch.Tensor], tuple[str, ...], Any]:
            there, unit = np.unique(number[at], return_inverse=True)
            own = {name: value[:, there] for name, value in values.items()}
            model = partial(self.model, unit=torch.as_tensor(unit.reshape(-1)))
            return model, chosen | own, sums, None

        every = np.arange(len(x)) if rows is None else rows
        return self._in_blocks(x, every, len(index) * self.card.cells, of, seed, given, about)

    def _new(
        self,
        x: Float2,
        index: Any,
        of: Callable[[SiteRun, Any], torch.Tensor],
        sums: tuple[str, ...],
        seed: int,
        given: dict[str, torch.Tensor] | None,
        rows: Int,
    ) -> Any:
        """Run at new units: all rows may share one, because each is asked about by itself."""
        chosen = {name: value[index] for name, value in self.draws.items()}
        cells, points = self.card.unit_cells, None
        if not cells:
            cells, gap = POINTS, (1,) * self.card.nesting
            points = {
                site.name: self._stored[site.name][index]
                .movedim(1, 0)
                .reshape(POINTS, len(index), *gap, *site.event_shape)
                for site in self.card.unit_sites
            }

        def about(at: Int) -> tuple[Any, dict[str, torch.Tensor], tuple[str, ...], Any]:
            model = partial(self.model, unit=torch.zeros(len(at), dtype=torch.int64))
            return model, chosen, sums if points else (*sums, *self.names), points

        size = len(index) * self.card.cells * cells
        return self._in_blocks(x, rows, size, of, seed, given, about)

    def _in_blocks(
        self,
        x: Float2,
        rows: Int,
        size: int,
        of: Callable[[SiteRun, Any], torch.Tensor],
        seed: int,
        given: dict[str, torch.Tensor] | None,
        about: Callable[[Int], tuple[Any, dict[str, torch.Tensor], tuple[str, ...], Any]],
    ) -> Any:
        tensor, parts = torch.tensor(x), []
        block = max(CHUNK // (size * self.card.w_dim), 1)
        with sandbox(seed, "predict"), torch.no_grad(), pyro.validation_enabled(False):
            for start in range(0, max(len(rows), 1), block):
                at = rows[start : start + block]
                w: Any = None if given is None else {name: v[at] for name, v in given.items()}
                if w is not None and not self.card.columns:
                    w = w["w"]
                model, draws, sums, points = about(at)
                runs = runs_at(model, tensor[at], draws, self.card, sums, w, points)
                parts.append(torch.cat([of(run, at) for run in runs]))
            return torch.cat(parts, dim=1).numpy()

    def log_prior(self, values: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Return log p(z | draw), (m, k), of the latents of k units."""
        nodes = self._nodes(np.arange(self.count), _size(values), 0, values)
        total = torch.zeros((), dtype=torch.float64)
        for site in self.card.unit_sites:
            total = total + nodes[site.name]["fn"].log_prob(nodes[site.name]["value"])
        return total.expand(self._shape(self.count, _size(values))).reshape(self.count, -1)

    def log_likelihood(
        self, x: Float2, w: Float2, values: Mapping[str, torch.Tensor]
    ) -> torch.Tensor:
        """Return log p(w | x, draw, z), (m, k), of all rows x (n, p), w (n, w_dim) together.

        values : z of k units, (m, k, ...) each; derivatives with respect to them are those of the
        model. NaN of w is not seen.
        """
        size, code = _size(values), self._codes(w)
        seen = ~np.isnan(code)
        if len(x) == 1 and seen.all() and not torch.is_grad_enabled():
            found = self._weighed(x, code, values)
            if found is not None:
                return found
        total = torch.zeros(self.count, size, dtype=torch.float64)
        block = max(CHUNK // (self.count * size * self.card.w_dim * self.card.cells), 1)
        with sandbox(0, "predict"), pyro.validation_enabled(False):
            for kind in np.unique(seen, axis=0):
                rows = np.flatnonzero((seen == kind).all(-1))
                for start in range(0, len(rows), block):
                    at = rows[start : start + block]
                    total = total + self._alike(x[at], code[at], kind, values)
        return total

    def _codes(self, w: Float2) -> Float2:
        """Return w (n, w_dim) as the model sees it: a column for each site, or W as it is."""
        return codes_of(w, self.coded) if self.coded else w

    def _weighed(
        self, x: Float2, w: Float2, values: Mapping[str, torch.Tensor]
    ) -> torch.Tensor | None:
        """The same of one complete row, without Pyro; w as :meth:`_codes` has it."""
        if self.card.sampled:
            return None
        names, size = self.card.columns, _size(values)
        code = torch.tensor(w)
        valid = code.expand(size, -1)  # stands in for a later w outside the support

        def program(both: torch.Tensor, *sites: torch.Tensor) -> torch.Tensor:
            rows, known = both.expand(size, -1).split([x.shape[1], w.shape[1]], -1)
            seen = dict(zip(names, known.unbind(-1), strict=True)) if names else {"w": known}
            safe = dict(zip(names, valid.unbind(-1), strict=True)) if names else {"w": valid}
            draws = dict(zip((*self.draws, *self.own), sites, strict=True))
            given, sums = seen if names else known, self.card.summed_latents
            with _Alone(size) as alone:
                model = partial(self.model, unit=alone.unit)
                (run,) = runs_at(model, rows, draws, self.card, sums, given)
                terms = [_log_prob(run.nodes[n]["fn"], seen[n], safe[n]) for n in seen]
                return run.log_total(*terms)

        both = torch.cat([torch.tensor(x), code], -1)
        sites = both, *self.draws.values(), *(values[name] for name in self.own)
        written = self._flat(size, program, sites)
        return None if written is None else written(*sites)

    def _alike(
        self, x: Float2, code: Float2, kind: Bool, values: Mapping[str, torch.Tensor]
    ) -> torch.Tensor:
        """The same of rows in which the same columns are seen; those of all units stand in turn."""
        size, names = _size(values), self.card.columns
        known = torch.tensor(code).repeat_interleave(size, 0)
        if names:
            seen = {n: known[:, j] for j, n in enumerate(names) if kind[j]}
        else:
            seen = {"w": known} if kind.all() else {}
        if not seen:
            return torch.zeros(())
        given: Any = None
        if not names or len(seen) == len(names):
            given = seen if names else known
        sums = self.card.summed if given is None else self.card.summed_latents
        model = partial(self.model, unit=torch.arange(size).repeat(len(x)))
        rows = torch.tensor(x).repeat_interleave(size, 0)
        runs = runs_at(model, rows, self.draws | dict(values), self.card, sums, given)
        found = torch.cat(
            [
                run.log_total(*(log_prob_of(run.nodes[n]["fn"], v) for n, v in seen.items()))
                for run in runs
            ]
        )
        return found.reshape(self.count, len(x), size).sum(1)


class _Alone(TorchFunctionMode):
    """A row for each of ``size`` units, whose largest number is known while a program is written.

    ``int(unit.max())`` asks a tensor for its value, and what is written down has none.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.unit, self.last = torch.arange(size), np.int64(size - 1)

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func in (torch.max, torch.Tensor.max) and len(args) == 1 and args[0] is self.unit:
            return self.last
        return func(*args, **(kwargs or {}))


def _log_prob(fn: Any, w: torch.Tensor, safe: torch.Tensor) -> torch.Tensor:
    """Return log p(w), -inf outside the support; safe : a value inside, so that nothing fails."""
    inside = fn.support.check(w)
    whole = inside[..., None] if fn.event_shape and inside.ndim < w.ndim else inside
    log = fn.log_prob(torch.where(whole, w, safe))
    if fn.event_shape and inside.ndim == w.ndim:
        inside = inside.all(-1)
    return torch.where(inside, log, -torch.inf)


def _size(values: Mapping[str, torch.Tensor]) -> int:
    return int(next(iter(values.values())).shape[1])
