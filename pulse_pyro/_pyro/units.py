"""Prediction of a model with latents of units: units of the archive, new ones, and in between.

A unit of the archive has its own posterior draws. A new one has latents z from the population,

    p(w | x, draw) = integral p(z | draw) p(w | z, x, draw) dz,

summed over (Gauss-Hermite quadrature for normal latents, the support of discrete ones) where that
takes at most 256 terms, else averaged over 32 stored draws of z for every posterior draw, so that
answers repeat. Of a unit whose w_1, ..., w_k are revealed, the particles (draw, z) are weighted by
their density at these; see :class:`UnitPosterior`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import pyro
import pyro.poutine as poutine
import torch

from pulse_pyro._core.arrays import Float, Float1, Float2, Float3, Int
from pulse_pyro._pyro.predict import CHUNK, padded
from pulse_pyro._pyro.sandbox import sandbox
from pulse_pyro._pyro.sites import SiteRun, SitesKernel, log_prob_of, runs_at
from pulse_pyro.base import ModelCard

POINTS = 32  # stored draws of a new unit's latents, for every posterior draw
PARTICLES = 2**14  # of a unit whose W are revealed, at least so many


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

    @property
    def flat(self) -> None:
        """Nothing: what is run depends on whose row it is."""

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
        chosen = {name: value[index] for name, value in self.draws.items()}
        model = partial(self.model, unit=torch.arange(size))
        fixed = poutine.condition(model, padded(chosen, self.card, len(index)))
        every = pyro.plate("_draws", len(index), dim=-self.card.nesting - 1)
        quiet = pyro.validation_enabled(False)
        with sandbox(seed, "population"), torch.no_grad(), quiet, every:
            nodes = poutine.trace(fixed).get_trace(torch.zeros(size, self.card.x_dim)).nodes
        out = {}
        for site in self.card.unit_sites:
            value = nodes[site.name]["value"]
            full = (len(index), *(1,) * (self.card.nesting - 1), size, *site.event_shape)
            out[site.name] = value.expand(full).reshape(len(index), size, *site.event_shape)
        return out

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

    def log_weight(self, x: Float1, w: Float1, values: Mapping[str, torch.Tensor]) -> Float2:
        """Return log p(w | x, draw, z), (m, k), at one row x (p,), w (w_dim,), NaN where not seen.

        values : z of k units, (m, k, ...) each.
        """
        size = next(iter(values.values())).shape[1]
        names = self.card.columns
        each = {coded.name: coded.codes(w[None]) for coded in self.coded} or {"w": w[None]}
        seen = {n: torch.as_tensor(code) for n, code in each.items() if not np.isnan(code).any()}
        if not seen:
            return np.zeros((self.count, size))

        def of(run: SiteRun, at: Any) -> torch.Tensor:
            terms = [
                log_prob_of(run.nodes[n]["fn"], v.expand(size, *v.shape[1:])[at])
                for n, v in seen.items()
            ]
            return run.log_total(*terms)

        given = None
        if not names or len(seen) == len(names):
            given = {n: v.expand(size, *v.shape[1:]) for n, v in seen.items()}
        sums = self.card.summed if given is None else self.card.summed_latents
        rows, every = np.tile(x, (size, 1)), np.arange(self.count)
        found: Float2 = self._known(rows, every, of, sums, 0, given, np.arange(size), values)
        return found


@dataclass(frozen=True, eq=False)
class UnitPosterior:
    """What is known of one unit: particles (draw, z), and how much each weighs.

    log_weight : (m, k), of k latents for each of m draws; values : these latents, (m, k, ...).
    """

    kernel: UnitKernel
    values: Mapping[str, torch.Tensor]
    log_weight: Float2

    @classmethod
    def of(cls, kernel: UnitKernel, number: int) -> "UnitPosterior":
        """Start from a unit of the archive, or, beyond them, from the population."""
        if number < kernel.units:
            values = {name: value[:, [number]] for name, value in kernel.own.items()}
            return cls(kernel, values, np.zeros((kernel.count, 1)))
        size = max(-(-PARTICLES // kernel.count), POINTS)
        values = kernel.population(np.arange(kernel.count), size, 1)
        return cls(kernel, values, np.zeros((kernel.count, size)))

    def told(self, x: Float1, w: Float1) -> "UnitPosterior":
        """Return what is known once w (w_dim,) is seen at x (p,)."""
        more = self.kernel.log_weight(x, w, self.values)
        return UnitPosterior(self.kernel, self.values, self.log_weight + more)

    @property
    def weight(self) -> Float2:
        """(m, k), sum 1."""
        out = np.exp(self.log_weight - self.log_weight.max())
        return out / out.sum()

    @property
    def ess(self) -> float:
        """Effective number of particles."""
        return float(1.0 / (self.weight**2).sum())

    def draws(self) -> dict[str, Float]:
        """Return m draws of all sites, the unit being number 0: particles by their weight.

        Evenly spaced on the line of weights, so the same ones every time.
        """
        count, size = self.log_weight.shape
        line = np.cumsum(self.weight.reshape(-1))
        spaced = (np.arange(count) + 0.5) / count
        # the order of particles is that of draws; np.minimum: the line may end below 1 by rounding
        at = np.minimum(np.searchsorted(line, spaced), count * size - 1)
        draw, place = at // size, at % size
        out = {name: value.numpy()[draw] for name, value in self.kernel.draws.items()}
        own = {name: value.numpy()[draw, place][:, None] for name, value in self.values.items()}
        return out | own
