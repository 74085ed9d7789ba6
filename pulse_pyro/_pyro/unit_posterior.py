"""What is known of one unit after W of it were revealed: weighted particles (draw, z).

The target is p(draw, z | archive, w_1, ..., w_k). Particles of a new unit start from the population
and are weighted by p(w_1, ..., w_k | z, draw), which is all there is to do as long as enough of
them stay alive. Where the effective number falls under 100, because the unit is unlike the others
or because much was revealed, the latents are drawn anew: given each draw, and each value of
discrete latents, Newton's method finds the mode of p(z | w_1, ..., w_k, draw), a Student t with its
curvature proposes, and weights target / proposal keep the answer exact as particles get many,
whatever the proposal. The draws of the global sites stay, weighted by p(w_1, ..., w_k | draw).

NOT covered: a second mode of p(z | w, draw) far from the first, which the proposal may miss without
a sign; units of the archive, whose particles are one a draw and can be weighted only.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyro
import torch

from pulse_pyro._core.arrays import Float, Float1, Float2
from pulse_pyro._pyro.sandbox import sandbox
from pulse_pyro._pyro.sites import support_of
from pulse_pyro._pyro.unit_potential import factor_of
from pulse_pyro._pyro.units import POINTS, UnitKernel

PARTICLES = 2**14  # of a new unit whose W are revealed, at least so many
ENOUGH = 100.0  # effective number of particles under which latents are drawn anew
STEPS, HALVINGS = 50, 20  # of Newton's method, and of one of its steps
CLOSE = 1e-6  # what a step could still gain, in log density: the weights mend what is left
TAILS = 5.0  # degrees of freedom of the proposal


@dataclass(frozen=True, eq=False)
class UnitPosterior:
    """What is known of one unit: particles, and how much each weighs.

    values : latents, (m, k, ...), of k particles for each of m draws. log_weight : (m, k). x, w :
    rows (n, p), (n, w_dim) that were told. population : whether the latents are the population's
    before these rows, so that they can be drawn anew. reached : effective number of particles when
    they last were; draws that W themselves leave few of are not searched again at every row.
    """

    kernel: UnitKernel
    values: Mapping[str, torch.Tensor]
    log_weight: Float2
    x: Float2
    w: Float2
    population: bool
    reached: float = math.inf

    @classmethod
    def of(cls, kernel: UnitKernel, number: int) -> "UnitPosterior":
        """Start from a unit of the archive, or, beyond them, from the population."""
        new = number >= kernel.units
        if new:
            size = max(-(-PARTICLES // kernel.count), POINTS)
            values = kernel.population(np.arange(kernel.count), size, 1)
        else:
            size = 1
            values = {name: value[:, [number]] for name, value in kernel.own.items()}
        none = np.empty((0, kernel.card.x_dim)), np.empty((0, kernel.card.w_dim))
        return cls(kernel, values, np.zeros((kernel.count, size)), *none, population=new)

    def told(self, x: Float1, w: Float1) -> "UnitPosterior":
        """Return what is known once w (w_dim,) is seen at x (p,)."""
        with torch.no_grad():
            more = self.kernel.log_likelihood(x[None], w[None], self.values).numpy()
        out = replace(
            self,
            log_weight=self.log_weight + more,
            x=np.vstack([self.x, x]),
            w=np.vstack([self.w, w]),
        )
        if out.ess >= min(ENOUGH, 0.5 * self.reached) or not self.population:
            return out
        anew = drawn_anew(out)
        best = anew if anew is not None and anew.ess > out.ess else out
        return replace(best, reached=best.ess)

    @cached_property
    def weight(self) -> Float2:
        """(m, k), sum 1."""
        out = np.exp(self.log_weight - self.log_weight.max())
        return out / out.sum()

    @cached_property
    def ess(self) -> float:
        """Effective number of particles; 0 if none can have the w that were told."""
        if not np.isfinite(self.log_weight.max()):
            return 0.0
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


# Particles drawn anew around the modes, in unconstrained coordinates of the continuous latents.


def drawn_anew(known: UnitPosterior) -> UnitPosterior | None:
    """Return particles around the modes of p(z | w, draw), weighted; None where it cannot be."""
    laws, count = known.kernel.laws(), known.kernel.count
    supports = {n: support_of(fn) for n, fn in laws.items() if fn.support.is_discrete}
    rough = bool(known.kernel.card.sampled)  # latents of rows that are drawn, not summed over
    if rough or any(values is None for values in supports.values()):
        return None
    with sandbox(1, "drawn anew"), pyro.validation_enabled(False):
        target = _Target.of(known, laws, supports)
        cells, width = target.count, target.width
        mode, factor = _modes(target, target.start().expand(count, cells, width))
        size = max(known.log_weight.shape[1] // cells, 4) if width else 1
        normal = torch.randn(count, size, cells, width, 1)
        tail = torch.distributions.Chi2(TAILS).sample((count, size, cells)) / TAILS
        away = torch.linalg.solve_triangular(factor.mT[:, None], normal, upper=True)[..., 0]
        z = mode[:, None] + away / tail.sqrt()[..., None]
        square = normal.square().sum((-2, -1)) / tail
        log_scale = factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)[:, None]
        proposal = log_scale - 0.5 * (TAILS + width) * torch.log1p(square / TAILS)
        z = z.reshape(count, size * cells, width)
        with torch.no_grad():
            log_weight = target(z) - proposal.reshape(count, -1)
            values = target.values(z)
    safe = torch.where(torch.isfinite(log_weight), log_weight, -torch.inf)
    return replace(known, values=values, log_weight=safe.numpy())


@dataclass(frozen=True, eq=False)
class _Target:
    """log p(z, w_1, ..., w_n | draw), z in unconstrained coordinates.

    maps : site -> from the line to its support. shapes : shape of one latent on the line. cells :
    discrete sites -> their values (m, cells), which the particles of a draw have in turn.
    """

    known: UnitPosterior
    maps: Mapping[str, Any]
    shapes: Mapping[str, tuple[int, ...]]
    cells: Mapping[str, torch.Tensor]

    @classmethod
    def of(
        cls, known: UnitPosterior, laws: Mapping[str, Any], supports: Mapping[str, Any]
    ) -> "_Target":
        grid = torch.meshgrid(*supports.values(), indexing="ij") if supports else ()
        cells = {
            name: each.reshape(1, -1).to(known.values[name].dtype).expand(known.kernel.count, -1)
            for name, each in zip(supports, grid, strict=True)
        }
        maps = {
            n: torch.distributions.biject_to(fn.support) for n, fn in laws.items() if n not in cells
        }
        shapes = {n: tuple(to.inverse_shape(known.values[n].shape[2:])) for n, to in maps.items()}
        return cls(known, maps, shapes, cells)

    @property
    def count(self) -> int:
        """Values of the discrete latents together."""
        return next((value.shape[1] for value in self.cells.values()), 1)

    @property
    def width(self) -> int:
        """Coordinates of the continuous ones."""
        return sum(math.prod(shape) for shape in self.shapes.values())

    def start(self) -> torch.Tensor:
        """Return z of the heaviest particle of each draw, (m, 1, width)."""
        heaviest = self.known.log_weight.argmax(1)
        every = torch.arange(len(heaviest))
        parts = [
            to.inv(self.known.values[name][every, heaviest]).reshape(len(heaviest), 1, -1)
            for name, to in self.maps.items()
        ]
        return torch.cat([torch.empty(len(heaviest), 1, 0), *parts], -1)

    def _split(self, z: torch.Tensor) -> dict[str, torch.Tensor]:
        parts = z.split([math.prod(shape) for shape in self.shapes.values()], -1)
        named = zip(self.shapes.items(), parts, strict=True)
        return {name: part.reshape(*z.shape[:2], *shape) for (name, shape), part in named}

    def values(self, z: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return the sites at z (m, k, width)."""
        own = {name: self.maps[name](part) for name, part in self._split(z).items()}
        turns = {
            n: value.repeat(1, z.shape[1] // value.shape[1]) for n, value in self.cells.items()
        }
        return own | turns

    def __call__(self, z: torch.Tensor) -> torch.Tensor:
        """Return the log density, (m, k), at z (m, k, width)."""
        kernel, values = self.known.kernel, self.values(z)
        out = kernel.log_prior(values)
        out = out + kernel.log_likelihood(self.known.x, self.known.w, values)
        for name, part in self._split(z).items():
            stretch = self.maps[name].log_abs_det_jacobian(part, values[name])
            out = out + stretch.reshape(*z.shape[:2], -1).sum(-1)
        return out

    def slopes(self, z: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return -log density (m, k), its gradient and its Hessian; 0 and 1 where there is none."""
        z = z.detach().requires_grad_(True)
        with torch.enable_grad():
            energy = -self(z)
            (slope,) = torch.autograd.grad(energy.sum(), z, create_graph=True)
            rows = [
                torch.autograd.grad(slope[..., j].sum(), z, retain_graph=True)[0]
                for j in range(self.width)
            ]
        hessian = torch.stack(rows, -2)
        whole = torch.isfinite(energy + slope.sum(-1) + hessian.sum((-2, -1)))
        slope = torch.where(whole[..., None], slope, 0.0)
        hessian = torch.where(whole[..., None, None], hessian, torch.eye(self.width))
        return energy.detach(), slope.detach(), hessian


def _modes(target: _Target, z: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the modes (m, cells, width) by Newton's method, and factors of the precision there."""
    if not target.width:
        return z, torch.empty(*z.shape, 0)
    for _ in range(STEPS):
        energy, slope, hessian = target.slopes(z)
        factor = factor_of(hessian)
        move = torch.cholesky_solve(slope[..., None], factor)[..., 0]
        gain = (move * slope).sum(-1)
        if not float(gain.max()) > CLOSE:
            break
        part = torch.ones_like(energy)
        with torch.no_grad():
            for _ in range(HALVINGS):  # where the step is too long
                worse = ~(-target(z - part[..., None] * move) <= energy)
                if not worse.any():
                    break
                part = torch.where(worse, 0.5 * part, part)
            else:
                part = torch.where(worse, 0.0, part)
        z = z - part[..., None] * move
    return z, factor
