"""A posterior looked at a few units at a time, for archives that are too long for a whole look.

With theta the global sites, z_u the sites of unit u (plate "units") and U units,

    -log p(theta, w) = -log p(theta) - sum_u log p(w_u | theta),
    gradient of log p(w_u | theta) = E[gradient of log p(w_u, z_u | theta)]     (Fisher),

the mean being over z_u given w_u and theta: a normal law around its mode, found by Newton's method
for the units at hand, two points m +- L r, r a row of random signs, standing for it. A sum over
b units counts U / b times. Its noise, of the order of U / b in units of the posterior, would drown
what there is to learn; so every batch is compared with itself at one fixed point a, where the sum
over all units is known:

    sum_u g_u(theta)  ~  sum_u g_u(a) + U / b sum_{u in batch} (g_u(theta) - g_u(a)),

which is unbiased too, and exact at a (control variates). a is reached from the mode of some units
by Newton steps on all of them.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
import pyro.poutine as poutine
import torch
from pyro.infer.autoguide.initialization import InitMessenger, init_to_median
from pyro.poutine.messenger import Messenger
from torch.distributions import biject_to

from pulse_pyro._core.arrays import Float, Int
from pulse_pyro._core.errors import ModelError
from pulse_pyro._core.progress import bar, tell
from pulse_pyro._pyro.modes import minimise, whitening_scale
from pulse_pyro._pyro.sites import SeenOnly

START_UNITS = 100  # least number of units that the first search looks at
FEW = 10  # units on each side when terms are told apart
NEWTON = 30  # steps for the sites of units
UNIT_NEAR = 1e-3  # sds of a unit's own posterior by which its mode may be missed
NEAR = 0.05  # posterior sds by which the mode over all units may be missed
PASSES = 12  # over all units, on the way there
MOST_WHITE = 400  # global numbers; beyond this the dense Hessian costs more than it saves


@dataclass(frozen=True, eq=False)
class Archive:
    """What a model is fitted on, to be had for some of the units.

    x (n, p) and w, a tensor (n, w_dim) or a mapping from column to (n,); unit (n,) as 0, 1, ...
    without gaps; extras by name, cut like w; counts : column -> (n,) rows in which it counts, none
    if all do; numbered : whether the model asks for ``unit``.
    """

    model: Callable[..., Any]
    x: torch.Tensor
    w: Any
    unit: Int
    extras: Mapping[str, Any] = field(default_factory=dict)
    counts: Mapping[str, torch.Tensor] = field(default_factory=dict)
    numbered: bool = False

    @property
    def units(self) -> int:
        """How many units there are."""
        return len(self._ends)

    @property
    def whole(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """The model bound to all that is beside its arguments, and the arguments."""
        return self._bound(self.x, self.w, self.extras, self.counts, torch.as_tensor(self.unit))

    def take(self, units: torch.Tensor) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """Return the same of some units (b,), numbered 0 to b - 1 in the order given."""
        chosen = units.numpy()
        length = self._lengths[chosen]
        stop = np.cumsum(length)
        place = np.arange(stop[-1]) + np.repeat(self._ends[chosen] - stop, length)
        at = torch.as_tensor(place if self._order is None else self._order[place])
        unit = torch.as_tensor(np.repeat(np.arange(len(chosen)), length))
        x, w, extras, counts = (
            _cut(part, at) for part in (self.x, self.w, self.extras, self.counts)
        )
        return self._bound(x, w, extras, counts, unit)

    def _bound(
        self, x: Any, w: Any, extras: Any, counts: Any, unit: torch.Tensor
    ) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        named = {**extras, "unit": unit} if self.numbered else extras
        model = partial(self.model, **named)
        whole = all(bool(each.all()) for each in counts.values())
        return model if whole else SeenOnly(counts)(model), (x, w)

    @cached_property
    def _lengths(self) -> Int:
        return np.bincount(self.unit)

    @cached_property
    def _ends(self) -> Int:
        return np.cumsum(self._lengths)

    @cached_property
    def _order(self) -> Int | None:
        """Rows sorted by unit; None if they are."""
        return None if (np.diff(self.unit) >= 0).all() else np.argsort(self.unit, kind="stable")


def _cut(part: Any, at: torch.Tensor) -> Any:
    """Return some rows of a tensor, or of all tensors of a mapping, however deep."""
    if isinstance(part, Mapping):
        return {name: _cut(each, at) for name, each in part.items()}
    return part[at]


class Scaled(Messenger):  # type: ignore[misc]  # Pyro has no types
    """Let some terms of a model, or of its guide, count ``factor`` times."""

    def __init__(self, names: frozenset[str], factor: float) -> None:
        super().__init__()
        self.names, self.factor = names, factor

    def _pyro_sample(self, msg: Any) -> None:
        if msg["name"] in self.names:
            msg["scale"] = msg["scale"] * self.factor


class Batches:
    """Units in random order, ``size`` at a time; after the last, the order is drawn anew."""

    def __init__(self, units: torch.Tensor, size: int) -> None:
        self.units, self.size = units, size
        self.factor = len(units) / self.size
        self._left = units[:0]

    def next(self) -> torch.Tensor:
        """Return the next units, (size,)."""
        if len(self._left) < self.size:  # a rest that is too short is dropped, whichever it is
            self._left = self.units[torch.randperm(len(self.units))]
        chosen, self._left = self._left[: self.size], self._left[self.size :]
        return chosen


def terms_of(trace: Any) -> dict[str, torch.Tensor]:
    """Return the log density of every site of a trace, summed over its axes."""
    trace.compute_log_prob()
    return {
        name: torch.as_tensor(node["log_prob_sum"])
        for name, node in trace.nodes.items()
        if node["type"] == "sample" and not poutine.util.site_is_subsample(node)
    }


def in_plates(trace: Any) -> frozenset[str]:
    """Return the sites of a trace that stand in plate "rows" or "units"."""
    return frozenset(
        name
        for name, node in trace.nodes.items()
        if node["type"] == "sample"
        and any(frame.name in ("rows", "units") for frame in node["cond_indep_stack"])
    )


def sums_over_units(
    some: tuple[dict[str, torch.Tensor], ...], inside: frozenset[str], label: str
) -> tuple[frozenset[str], frozenset[str]]:
    """Tell the terms that are sums over units from those that are free of them, by their values.

    some : the terms at some units, at as many others, and at both together, all else being equal.
    inside : those in plates of rows or units, sums even where nothing was seen of a column yet.
    """
    first, second, both = some
    sums, free = [], []
    for name, total in both.items():
        a, b, all_ = float(first[name]), float(second[name]), float(total)
        near = 1e-8 * (1.0 + abs(a) + abs(b))
        if name not in inside and abs(a - all_) <= near and abs(b - all_) <= near:
            free.append(name)
        elif abs(a + b - all_) <= near:
            sums.append(name)
        else:
            raise ModelError(
                f"{label}: Svi(batch=...) looks at some units at a time, but the term {name!r} is "
                "neither a sum over units nor free of them; keep each unit's rows apart (no means "
                "or sorting over all rows), split a term that is both, or leave batch out."
            )
    return frozenset(sums), frozenset(free)


class _EnergyPart(NamedTuple):
    """Energy of some units and its gradient: what is free of them, and the sum over them."""

    free: torch.Tensor
    free_slope: torch.Tensor
    summed: torch.Tensor
    summed_slope: torch.Tensor

    def total(self, factor: float) -> tuple[torch.Tensor, torch.Tensor]:
        """Return energy and gradient, the sum counting ``factor`` times."""
        slope = self.free_slope + factor * self.summed_slope
        return self.free + factor * self.summed, slope


class _Normal(NamedTuple):
    """Unit sites given the global ones: modes (b, k), scales L (b, k, k), sum of -log det L."""

    mode: torch.Tensor
    scale: torch.Tensor
    log_precision: torch.Tensor


class BatchPotential:
    """U of the global sites, looked at in batches of units: see the top of this file.

    Has what ``Potential`` has; ``energy`` is an unbiased guess, with its gradient.
    summing : what makes of a model one with discrete latents of rows summed out.
    """

    def __init__(
        self,
        archive: Archive,
        summing: Callable[[Callable[..., Any]], Callable[..., Any]],
        label: str,
        batch: int | None,
        holdout: float = 0.0,
        first: Mapping[str, Float] | None = None,
    ) -> None:
        self.archive, self.summing, self.label = archive, summing, label
        size = archive.units if batch is None else batch
        train, self.held = split_units(archive, size, holdout, label)
        self.batches = Batches(train, size)
        start = self._layout(dict(first or {}))
        self.dim = len(start)
        self.names = self._names(start)
        self._anchor: tuple[torch.Tensor, torch.Tensor, torch.Tensor, _Normal] | None = None
        self.mode, self.scale, self.whitened = self._centre(start)

    def from_white(self, z: torch.Tensor, scale: torch.Tensor | None = None) -> torch.Tensor:
        """Map z (..., dim) to u = mode + L z; scale : another L."""
        return self.mode + z @ (self.scale if scale is None else scale).T

    def draws(self, u: torch.Tensor) -> dict[str, Float]:
        """Map flat draws (m, dim) to constrained global sites, (m, *shape) each."""
        with torch.no_grad():
            return {
                name: self._transforms[name](value).numpy()
                for name, value in _unflatten(u, self._shapes).items()
            }

    def unit_draws(self, u: torch.Tensor) -> dict[str, Float]:
        """Draw the sites of all units, (m, units, *event) each, given flat global draws (m, dim).

        z_u = m_u + J_u (u - a) + L_u e, with m_u and L_u those at the mode a, J_u the derivative
        of m_u in u: exact where z_u is normal given w_u and linear in u.
        """
        every = torch.arange(self.archive.units)
        normal, columns = self._normal_at(self.mode, every), []
        for j in bar(range(self.dim), label="sites of units"):
            away = torch.zeros(self.dim)
            away[j] = 0.1 * torch.linalg.vector_norm(self.scale[j])
            ends = [self._normal_at(self.mode + each, every).mode for each in (away, -away)]
            columns.append((ends[0] - ends[1]) / (2.0 * away[j]))
        z = normal.mode + torch.einsum("juk,mj->muk", torch.stack(columns), u - self.mode)
        z = z + torch.einsum("ukl,mul->muk", normal.scale, torch.randn(z.shape))
        out, at = {}, 0
        for name, (_, _, event) in self._unit_shapes.items():
            free = z[..., at : at + event.numel()].reshape(*z.shape[:2], *event)
            out[name] = self._transforms[name](free).numpy()
            at += event.numel()
        return out

    def energy(self, u: torch.Tensor) -> torch.Tensor:
        """Guess U at one flat vector (dim,) from the next batch."""
        units, factor = self.batches.next(), self.batches.factor
        signs = self._signs(units)
        here = self._part(u, units, signs)
        if self._anchor is None:
            return _with_slope(u, *here.total(factor))
        at, summed, slope, normal = self._anchor
        there = self._part(at, units, signs, _chosen(normal, units))
        value = here.free + summed + factor * (here.summed - there.summed)
        grown = here.free_slope + slope + factor * (here.summed_slope - there.summed_slope)
        return _with_slope(u, value, grown)

    def held_out(self, u: torch.Tensor) -> float:
        """Return the mean energy of the units held out, at one flat vector."""
        return float(self._over(u, self.held).summed) / len(self.held)

    def _layout(self, first: dict[str, Float]) -> torch.Tensor:
        """Note shapes and transforms of the sites; return global ones to start from, flat."""
        units = self.batches.units[: self.batches.size]
        bound, args = self.archive.take(units)
        with InitMessenger(init_to_median(num_samples=15)):
            trace = poutine.trace(self.summing(bound)).get_trace(*args)
        self._inside = in_plates(trace)
        self._transforms: dict[str, Any] = {}
        self._shapes: dict[str, torch.Size] = {}
        self._unit_shapes: dict[str, tuple[int, int, torch.Size]] = {}
        start, own = [], [torch.zeros(len(units), 0)]
        for name, node in trace.nodes.items():
            if node["type"] != "sample" or node["is_observed"]:
                continue
            if poutine.util.site_is_subsample(node):
                continue
            frames = {frame.name: frame for frame in node["cond_indep_stack"]}
            if "rows" in frames:
                raise ModelError(
                    f"{self.label}: site {name!r} is a continuous latent of single rows, which "
                    "Svi(batch=...) does not take; integrate it out (a wider distribution of W), "
                    "let it belong to units, or leave batch out."
                )
            given = name in first and "units" not in frames
            value = torch.as_tensor(first[name]) if given else node["value"]
            transform = self._transforms[name] = biject_to(node["fn"].support)
            free = transform.inv(value)
            if "units" not in frames:
                self._shapes[name] = free.shape
                start.append(free.reshape(-1))
                continue
            lead = len(node["fn"].batch_shape)
            if math.prod(free.shape[:lead]) != len(units):
                raise ModelError(
                    f"{self.label}: site {name!r} in plate 'units' has shape "
                    f"{tuple(node['value'].shape)} for {len(units)} units; Svi(batch=...) takes "
                    "one value, or one event (.to_event(1)), a unit."
                )
            self._unit_shapes[name] = (lead, frames["units"].dim, free.shape[lead:])
            own.append(free.reshape(len(units), -1))
        self._own = torch.cat(own, -1).median(0).values.repeat(self.archive.units, 1)
        return torch.cat(start)

    def _values(self, u: torch.Tensor, z: torch.Tensor) -> tuple[dict[str, torch.Tensor], Any, Any]:
        """Return sites at u (dim,), z (b, k), and log Jacobians of the global and unit ones."""
        values, jacobian, own = {}, torch.zeros(()), torch.zeros(())
        for name, free in _unflatten(u, self._shapes).items():
            transform = self._transforms[name]
            values[name] = transform(free)
            jacobian = jacobian + transform.log_abs_det_jacobian(free, values[name]).sum()
        at = 0
        for name, (lead, dim, event) in self._unit_shapes.items():
            shape = [1] * lead
            shape[dim] = len(z)
            free = z[:, at : at + event.numel()].reshape(*shape, *event)
            transform = self._transforms[name]
            values[name] = transform(free)
            own = own + transform.log_abs_det_jacobian(free, values[name]).sum()
            at += event.numel()
        return values, jacobian, own

    def _terms(
        self, u: torch.Tensor, z: torch.Tensor, bound: Any, args: tuple[Any, ...]
    ) -> tuple[dict[str, torch.Tensor], Any, Any]:
        values, jacobian, own = self._values(u, z)
        fixed = poutine.condition(self.summing(bound), values)
        return terms_of(poutine.trace(fixed).get_trace(*args)), jacobian, own

    def _names(self, start: torch.Tensor) -> tuple[frozenset[str], frozenset[str]]:
        """Return the terms that are sums over units, and those that are free of them."""
        few = min(FEW, len(self.batches.units) // 2)
        units = self.batches.units[: 2 * few]
        z = self._own[units] + 0.1 * torch.randn(2 * few, self._own.shape[1])
        some = [slice(0, few), slice(few, 2 * few), slice(0, 2 * few)]
        with torch.no_grad():
            terms = tuple(
                self._terms(start, z[at], *self.archive.take(units[at]))[0] for at in some
            )
        lost = [name for name, term in terms[2].items() if not torch.isfinite(term)]
        if lost:
            raise ModelError(
                f"{self.label}: no starting point with finite posterior density was found: site "
                f"{lost[0]!r}; check priors, supports and NaN in the data."
            )
        return sums_over_units(terms, self._inside, self.label)

    def _energies(
        self, u: torch.Tensor, z: torch.Tensor, bound: Any, args: tuple[Any, ...]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return -log densities: of what is free of the units, and of what sums over them."""
        terms, jacobian, own = self._terms(u, z, bound, args)
        sums, free = self.names
        first = jacobian + sum((terms[name] for name in free), torch.zeros(()))
        return -first, -own - sum((terms[name] for name in sums), torch.zeros(()))

    def _signs(self, units: torch.Tensor) -> torch.Tensor:
        return 2.0 * torch.randint(0, 2, (len(units), self._own.shape[1])) - 1.0

    def _solve(self, u: torch.Tensor, units: torch.Tensor, bound: Any, args: Any) -> _Normal:
        """Find the normal law of the unit sites given the global ones; remember the modes."""
        z = self._own[units]
        for _ in range(NEWTON):
            z = z.requires_grad_()
            (slope,) = torch.autograd.grad(
                self._energies(u, z, bound, args)[1], z, create_graph=True
            )
            # units do not meet: the slope of a sum over units holds each one's own curvature
            columns = [
                torch.autograd.grad(each.sum(), z, retain_graph=True)[0]
                for each in slope.unbind(-1)
            ]
            curvature = torch.stack(columns, -1)
            level, axes = torch.linalg.eigh(0.5 * (curvature + curvature.mT))
            level = level.abs().clamp_min(1e-10)
            along = (axes.mT @ slope.detach()[..., None])[..., 0]
            step = (axes @ (along / level)[..., None])[..., 0]
            z = z.detach()
            most = 5.0 + z.abs()  # a bound against leaps where the curvature is small
            z = z - step.clamp(-most, most)
            if not (along**2 / level).sum(-1).max() > UNIT_NEAR**2:
                break
        self._own[units] = torch.nan_to_num(z)
        return _Normal(z, axes / level.sqrt()[:, None], 0.5 * level.log().sum(-1))

    def _part(
        self,
        u: torch.Tensor,
        units: torch.Tensor,
        signs: torch.Tensor,
        normal: _Normal | None = None,
    ) -> _EnergyPart:
        """Return energy and gradient at some units; normal : their sites given u, if known."""
        bound, args = self.archive.take(units)
        u = u.detach()
        if not self._own.shape[1]:
            points = [self._own[units]]
            entropy = torch.zeros(())
        else:
            normal = normal or self._solve(u, units, bound, args)
            apart = (normal.scale @ signs[..., None])[..., 0]
            points = [normal.mode + apart, normal.mode - apart]
            each = 0.5 * signs.shape[1] * (1.0 + math.log(2.0 * math.pi))
            entropy = each * len(units) - normal.log_precision.sum()
        out = [torch.zeros(()), torch.zeros_like(u), -entropy, torch.zeros_like(u)]
        for z in points:
            u = u.requires_grad_()
            energies = self._energies(u, z, bound, args)
            for i, energy in enumerate(energies):
                out[2 * i] = out[2 * i] + energy.detach() / len(points)
                if energy.requires_grad:
                    keep = i == 0
                    (slope,) = torch.autograd.grad(
                        energy, u, retain_graph=keep, allow_unused=True, materialize_grads=True
                    )
                    out[2 * i + 1] = out[2 * i + 1] + slope / len(points)
            u = u.detach()
        return _EnergyPart(*out)

    def _over(self, u: torch.Tensor, units: torch.Tensor) -> _EnergyPart:
        """Return energy and gradient summed over many units, a batch at a time."""
        total = None
        for piece in units.split(self.batches.size):
            part = self._part(u, piece, torch.ones(len(piece), self._own.shape[1]))
            if total is None:
                total = part
            else:
                slope = total.summed_slope + part.summed_slope
                total = _EnergyPart(*total[:2], total.summed + part.summed, slope)
        assert total is not None
        return total

    def _centre(self, start: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, bool]:
        """Return (a, L, True) near the mode over all units, or (start, I, False) without one."""
        units = self.batches.units
        some = units[: max(self.batches.size, START_UNITS)]
        factor = len(units) / len(some)

        def energy(u: torch.Tensor) -> torch.Tensor:
            return _with_slope(u, *self._over(u, some).total(factor))

        u, _ = minimise(energy, start, restarts=1, most=100)
        plain = u, torch.eye(self.dim), False
        if self.dim > MOST_WHITE:
            return plain
        enough = units[: max(self.batches.size, 20 * self.dim)]
        scale = whitening_scale(self._hessian(u, enough))
        if scale is None:
            return plain
        best, last = None, math.inf
        progress = bar(range(PASSES), label="all units, passes")
        step = torch.zeros_like(u)
        for i in progress:
            part = self._over(u, units)
            slope = part.total(1.0)[1]
            # |L' gradient| is the distance to the mode in posterior standard deviations
            far = float(torch.linalg.vector_norm(scale.T @ slope))
            tell(progress, f"{far:.2g} sds from the mode")
            if far < last:
                best, last, step = (u, part), far, scale @ (scale.T @ slope)
                if far <= NEAR:
                    break
            else:  # back half of the way
                step = 0.5 * step
            if best is None:  # nothing here is finite
                break
            u = best[0] - step
            if i == 0:  # far from the mode the curvature was another one
                again = whitening_scale(self._hessian(u, enough))
                scale = scale if again is None else again
        progress.close()
        if best is None:
            return plain
        u, part = best
        normal = self._normal_at(u, self.batches.units)
        self._anchor = (u, part.summed, part.summed_slope, normal)
        return u, scale, True

    def _normal_at(self, u: torch.Tensor, units: torch.Tensor) -> _Normal:
        """Return the normal law of the sites of units given the global ones, in their places."""
        k = self._own.shape[1]
        out = _Normal(
            torch.zeros_like(self._own),
            torch.zeros(len(self._own), k, k),
            torch.zeros(len(self._own)),
        )
        for piece in units.split(self.batches.size) if k else ():
            for whole, own in zip(
                out, self._solve(u, piece, *self.archive.take(piece)), strict=True
            ):
                whole[piece] = own
        return out

    def _hessian(self, u: torch.Tensor, units: torch.Tensor) -> torch.Tensor:
        """Return the curvature at u, (dim, dim), from some units, by differences of gradients."""
        factor = len(self.batches.units) / len(units)

        def slope(at: torch.Tensor) -> torch.Tensor:
            return self._over(at, units).total(factor)[1]

        columns, here = [], slope(u)
        for j in bar(range(self.dim), label="curvature"):
            axis = torch.zeros_like(u)
            axis[j] = probe = 1e-4 * max(1.0, abs(float(u[j])))
            bend = float((slope(u + axis) - here)[j]) / probe
            h = 0.1 / math.sqrt(bend) if bend > 0 else probe  # a tenth of a posterior sd
            axis[j] = h
            columns.append((slope(u + axis) - slope(u - axis)) / (2.0 * h))
        return torch.stack(columns)


def split_units(
    archive: Archive, size: int, holdout: float, label: str
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the units to fit on, in random order, and those held out."""
    order = torch.randperm(archive.units)
    held = round(holdout * archive.units)
    if holdout:
        held = max(held, 1)
    if len(order) - held < 2:
        raise ModelError(
            f"{label}: Svi(batch={size}, holdout={holdout}) needs two units or more to fit on, but "
            f"the archive has {archive.units}; leave batch out."
        )
    if size > len(order) - held:
        raise ModelError(
            f"{label}: Svi(batch={size}) asks for more units a step than there are to fit on, "
            f"{len(order) - held}{' without those held out' if held else ''}; a batch counts "
            "units, not rows: make it smaller, or leave it out to look at all rows."
        )
    return order[held:], order[:held]


def _chosen(normal: _Normal, units: torch.Tensor) -> _Normal:
    return _Normal(*(each[units] for each in normal))


def _unflatten(u: torch.Tensor, shapes: Mapping[str, torch.Size]) -> dict[str, torch.Tensor]:
    """Cut (..., dim) into sites (..., *shape)."""
    out, at = {}, 0
    for name, shape in shapes.items():
        out[name] = u[..., at : at + shape.numel()].reshape(u.shape[:-1] + shape)
        at += shape.numel()
    return out


def _with_slope(u: torch.Tensor, value: torch.Tensor, slope: torch.Tensor) -> torch.Tensor:
    """Return a value whose gradient with respect to u is the one given."""
    return value.detach() + (slope.detach() * (u - u.detach())).sum()
