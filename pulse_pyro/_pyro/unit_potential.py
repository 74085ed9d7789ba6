"""The posterior of a model with latents of units, in coordinates in which they are noise.

With theta the global sites and z_u the latents of unit u, unconstrained, every engine works on
(theta, e) with

    z_u = m_u(theta) + L_u(theta) e_u,   L_u L_u' = H_u(theta)^-1,

m_u and H_u one Newton step, and the Hessian, of the energy of unit u at a fixed point z0. Where z
is Gaussian given theta, e_u is N(0, I) whatever theta and the data are, so neither few nor many
rows a unit make a funnel (centred and non-centred are the two ends of this map). The mode in theta
is that of the marginal posterior, U(theta, z*(theta)) + 1/2 sum_u log det H_u, not that of all
sites together, which goes astray as units get many. NOT covered: latents of different units that
depend on each other given theta; draws of NUTS stay right then, those of Laplace do not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from pulse_pyro._core.arrays import Float
from pulse_pyro._pyro.modes import minimise, whitening_scale
from pulse_pyro._pyro.potential import NEAR, WHITEN_LIMIT, Potential

NEWTON = 50  # steps towards z*(theta)
STEP = 1e-4  # of the difference quotient of a gradient


class UnitPotential(Potential):
    """U(theta, e) of a model with sites of plate "units"; names : these sites."""

    def __init__(
        self,
        model: Callable[..., Any],
        args: tuple[Any, ...],
        label: str,
        names: tuple[str, ...],
        first: Mapping[str, Float] | None = None,
    ) -> None:
        self.names = names
        super().__init__(model, args, label, first=first, last=names)

    def from_white(self, z: torch.Tensor, scale: torch.Tensor | None = None) -> torch.Tensor:
        """Map z (..., dim) to (theta, e): theta = mode + L z, e as it is; scale : another L."""
        theta = super().from_white(z[..., : self.size], scale)
        return torch.cat([theta, z[..., self.size :]], -1)

    def energy(self, u: torch.Tensor) -> torch.Tensor:
        """Return U at one flat vector (theta, e), Jacobian of the map included."""
        theta = u[: self.size]
        with torch.enable_grad():
            z, log_scale = self._placed(theta, u[self.size :])
            out = self._joint(theta, z) - log_scale
        return out if torch.is_grad_enabled() else out.detach()

    def draws(self, u: torch.Tensor) -> dict[str, Float]:
        """Map draws (m, dim) of (theta, e) to constrained sites, (m, *shape) each."""
        with torch.enable_grad():
            z = [self._placed(row[: self.size], row[self.size :])[0].detach() for row in u]
        sites = [self._sites(row[: self.size], each) for row, each in zip(u, z, strict=True)]
        return self._constrained({n: torch.stack([s[n] for s in sites]) for n in self.shapes})

    def _whiten(self, start: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, bool]:
        self.units = self.shapes[self.names[0]][0]
        own = sum(self.shapes[name].numel() for name in self.names)
        self.size, self.width = self.dim - own, own // self.units
        theta = start[: self.size]
        sites = self.unflatten(start)
        z = torch.cat([sites[name].reshape(self.units, -1) for name in self.names], -1)
        self.anchor = self._solved(theta, z)
        plain = theta, torch.eye(self.size), False
        if self.size > WHITEN_LIMIT:
            return plain
        mode, slope = minimise(self._marginal, theta)
        scale = whitening_scale(self._curvature(mode))
        if scale is None:
            return plain
        if not torch.linalg.vector_norm(scale.T @ slope) <= NEAR:
            return plain
        self.anchor = self._solved(mode, self.anchor)
        return mode, scale, True

    def _curvature(self, mode: torch.Tensor) -> torch.Tensor:
        """Hessian of the marginal energy, (size, size), by differences of its gradient."""

        def slope(at: torch.Tensor) -> torch.Tensor:
            own = at.clone().requires_grad_(True)
            return torch.autograd.grad(self._marginal(own), own)[0]

        rows = []
        for i in range(self.size):
            away = torch.zeros(self.size)
            away[i] = STEP
            rows.append((slope(mode + away) - slope(mode - away)) / (2 * STEP))
        return torch.stack(rows)

    def _sites(self, theta: torch.Tensor, z: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return unconstrained sites from theta (size,) and z (units, width)."""
        out, at = {}, 0
        for name, shape in self.shapes.items():
            if name in self.names:
                continue
            out[name] = theta[at : at + shape.numel()].reshape(shape)
            at += shape.numel()
        at = 0
        for name in self.names:
            wide = self.shapes[name].numel() // self.units
            out[name] = z[:, at : at + wide].reshape(self.shapes[name])
            at += wide
        return out

    def _joint(self, theta: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        return self._potential(self._sites(theta, z))

    def _slopes(
        self, theta: torch.Tensor, z: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Energy, its gradient (units, width) and Hessians (units, width, width) in z."""
        energy = self._joint(theta, z)
        (slope,) = torch.autograd.grad(energy, z, create_graph=True)
        rows = [
            torch.autograd.grad(slope[:, j].sum(), z, create_graph=True)[0]
            for j in range(self.width)
        ]
        return energy, slope, torch.stack(rows, 1)

    def _solved(self, theta: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        """Return z*(theta) by Newton's method from z, without its derivatives."""
        theta, z = theta.detach(), z.detach()
        with torch.enable_grad():
            for _ in range(NEWTON):
                energy, slope, hessian = self._slopes(theta, z.requires_grad_(True))
                factor = factor_of(hessian.detach())
                move = torch.cholesky_solve(slope.detach()[..., None], factor)[..., 0]
                gain = float((move * slope.detach()).sum())
                z = z.detach()
                if not gain > 1e-12 * self.units:
                    break
                part, before = 1.0, float(energy.detach())
                while part > 1e-4 and not float(self._joint(theta, z - part * move)) <= before:
                    part /= 2
                z = z - part * move
        return z

    def _placed(
        self, theta: torch.Tensor, noise: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return z (units, width) = m + L e, and log det L."""
        _, slope, hessian = self._slopes(theta, self.anchor.clone().requires_grad_(True))
        factor = factor_of(hessian)
        centre = self.anchor - torch.cholesky_solve(slope[..., None], factor)[..., 0]
        away = torch.linalg.solve_triangular(
            factor.mT, noise.reshape(self.units, self.width, 1), upper=True
        )[..., 0]
        return centre + away, -factor.diagonal(dim1=-2, dim2=-1).log().sum()

    def _marginal(self, theta: torch.Tensor) -> torch.Tensor:
        """Return -log p(theta, data), z integrated out by Laplace's method."""
        found = self._solved(theta, self.anchor).requires_grad_(True)
        _, slope, hessian = self._slopes(theta, found)
        # one more step, with derivatives: that of z* with respect to theta
        z = found.detach() - torch.cholesky_solve(slope[..., None], factor_of(hessian))[..., 0]
        energy, _, hessian = self._slopes(theta, z)
        return energy + factor_of(hessian).diagonal(dim1=-2, dim2=-1).log().sum()


def factor_of(hessian: torch.Tensor) -> torch.Tensor:
    """Cholesky factors (units, d, d); directions of no or negative curvature are turned round."""
    hessian = 0.5 * (hessian + hessian.mT)
    factor, failed = torch.linalg.cholesky_ex(hessian)
    if not failed.any():
        return factor
    value, vector = torch.linalg.eigh(hessian)
    safe = vector * value.abs().clamp_min(1e-3)[..., None, :] @ vector.mT
    return torch.linalg.cholesky(safe)
