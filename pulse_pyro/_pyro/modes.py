"""The mode of a density that is known by its energy, and the scale that whitens it there."""

from collections.abc import Callable

import torch

from pulse_pyro._core.progress import bar, tell

RESTARTS = 20


def minimise(
    energy: Callable[[torch.Tensor], torch.Tensor],
    start: torch.Tensor,
    *,
    restarts: int | None = None,
    most: int = 300,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Search the mode, restarting while it helps; return it and the gradient there, (dim,) each.

    restarts : at most so many. most : iterations between two of them.
    """
    u = start.clone().requires_grad_(True)
    progress = bar(label="posterior mode, evaluations")

    def closure() -> torch.Tensor:
        search.zero_grad()
        loss = energy(u)
        loss.backward()
        progress.update()
        tell(progress, f"loss {loss.item():.6g}")
        return loss

    before = float(energy(start).detach())
    for _ in range(
        restarts or RESTARTS
    ):  # a restart drops the curvature gathered far from the mode
        search = torch.optim.LBFGS(
            [u],
            max_iter=most,
            history_size=30,
            tolerance_grad=1e-8,
            tolerance_change=1e-13,
            line_search_fn="strong_wolfe",
        )
        search.step(closure)
        level = float(closure().detach())
        gained, before = before - level, level
        if not gained > 1e-9 * abs(level):
            break
    progress.close()
    slope = torch.zeros_like(start) if u.grad is None else u.grad.detach()
    found = u.detach()
    return (found, slope) if torch.isfinite(found).all() else (start, slope)


def whitening_scale(hessian: torch.Tensor) -> torch.Tensor | None:
    """Return L with L L' the inverse of a Hessian (dim, dim); None if it is not that of a mode."""
    if not torch.isfinite(hessian).all():
        return None
    factor, failed = torch.linalg.cholesky_ex(0.5 * (hessian + hessian.T))
    if failed:
        return None
    # H = F F'  =>  H^-1 = F^-T F^-1, so L = F^-T
    return torch.linalg.solve_triangular(factor, torch.eye(len(hessian)), upper=False).T
