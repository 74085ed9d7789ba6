"""The posterior of a model as one function of a flat, whitened vector.

Raw-scale samplers crawl and raw-scale variational fits go astray when posterior scales differ by
orders of magnitude. So every engine works on z with u = mode + L z, where L L' is the inverse
Hessian of the potential at the posterior mode: the posterior of z is close to N(0, I).
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from pyro.infer.autoguide.initialization import init_to_median
from pyro.infer.mcmc.util import initialize_model

from pulse_pyro._core.arrays import Float
from pulse_pyro._core.errors import ModelError
from pulse_pyro._pyro.modes import minimise, whitening_scale

NEAR = 0.05  # posterior sds by which the mode may be missed
WHITEN_LIMIT = 400  # parameters; beyond this the dense Hessian costs more than it saves


class Potential:
    """U(u) = -log p(u, data) on unconstrained parameters, flattened and whitened."""

    def __init__(
        self,
        model: Callable[..., Any],
        args: tuple[Any, ...],
        label: str,
        energy: Callable[..., Any] | None = None,
        first: Mapping[str, Float] | None = None,
        last: tuple[str, ...] = (),
    ) -> None:
        try:
            start, self._potential, self._transforms, _ = initialize_model(
                model, args, init_strategy=init_to_median(num_samples=15)
            )
        except (ValueError, RuntimeError, NotImplementedError) as cause:
            raise ModelError(
                f"{label}: no starting point with finite posterior density was found "
                f"({cause}); check priors, supports and NaN in the data."
            ) from cause
        self._potential = energy or self._potential
        for name, value in (first or {}).items():
            there = torch.as_tensor(value)
            if name in last and there.shape[:1] != start[name].shape[:1]:
                continue  # of other units
            start[name] = self._transforms[name](there) if name in self._transforms else there
        order = sorted(start, key=lambda name: name in last)
        self.shapes = {name: start[name].shape for name in order}
        flat = torch.cat([start[name].reshape(-1) for name in self.shapes])
        self.dim = len(flat)
        self.mode, self.scale, self.whitened = self._whiten(flat)

    def unflatten(self, u: torch.Tensor) -> dict[str, torch.Tensor]:
        """Cut (..., dim) into unconstrained sites (..., *shape)."""
        out, at = {}, 0
        for name, shape in self.shapes.items():
            out[name] = u[..., at : at + shape.numel()].reshape(u.shape[:-1] + shape)
            at += shape.numel()
        return out

    def energy(self, u: torch.Tensor) -> torch.Tensor:
        """Return U at one flat vector (dim,)."""
        return self._potential(self.unflatten(u))

    def from_white(self, z: torch.Tensor, scale: torch.Tensor | None = None) -> torch.Tensor:
        """Map z (..., dim) to u = mode + L z; scale : another L."""
        return self.mode + z @ (self.scale if scale is None else scale).T

    def draws(self, u: torch.Tensor) -> dict[str, Float]:
        """Map flat draws (m, dim) to constrained sites, (m, *shape) each, as NumPy arrays."""
        return self._constrained(self.unflatten(u))

    def _constrained(self, sites: Mapping[str, torch.Tensor]) -> dict[str, Float]:
        with torch.no_grad():
            return {
                name: self._transforms[name].inv(value).numpy()
                if name in self._transforms
                else value.numpy()
                for name, value in sites.items()
            }

    def _whiten(self, start: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, bool]:
        """Return (mode, L, True), or (start, I, False) where no proper mode is found."""
        plain = start, torch.eye(self.dim), False
        if self.dim > WHITEN_LIMIT:
            return plain
        mode, slope = minimise(self.energy, start)
        scale = whitening_scale(torch.autograd.functional.hessian(self.energy, mode))
        if scale is None:
            return plain
        # |L' gradient| is the distance to the mode in posterior standard deviations
        if not torch.linalg.vector_norm(scale.T @ slope) <= NEAR:
            return plain
        return mode, scale, True
