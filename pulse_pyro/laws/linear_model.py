"""The linear law as a Pyro model, and its likelihood through sufficient statistics."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from pulse_pyro.arrays import Float2
from pulse_pyro.laws.linear_exact import Conjugate, gram

DF_SHAPE, DF_RATE = 2.0, 0.1  # prior of (degrees of freedom - 2): mean 20, favouring 5 to 40


def _priors(p: int, w_dim: int, prior: Conjugate) -> tuple[Any, Any, Any]:
    """Sample coef (1 + p, w_dim), link and variance (w_dim,); see linear_exact for the law."""
    import pyro
    import pyro.distributions as dist
    import torch

    psi = prior.residual**2
    shape = (torch.arange(w_dim) + 2.0) / 2.0
    variance = pyro.sample(
        "variance", dist.InverseGamma(shape, torch.full((w_dim,), psi / 2)).to_event(1)
    )
    scale = torch.full((1 + p, 1), prior.slope_sd(p))
    scale[0] = prior.intercept
    sd = variance.sqrt().unsqueeze(-2)
    coef = pyro.sample("coef", dist.Normal(torch.zeros(()), scale * sd).to_event(2))
    link = None
    if w_dim > 1:
        row = torch.tril_indices(w_dim, w_dim, -1)[0]
        spread = variance[..., row].sqrt() / prior.residual
        link = pyro.sample("link", dist.Normal(torch.zeros(()), spread).to_event(1))
    return coef, link, variance


def _mix(link: Any, w_dim: int) -> Any:
    """Return T = I - g, (..., w_dim, w_dim)."""
    import torch

    if link is None:
        return torch.eye(w_dim)
    row, column = torch.tril_indices(w_dim, w_dim, -1)
    lower = torch.zeros(*link.shape[:-1], w_dim, w_dim)
    lower[..., row, column] = link
    return torch.eye(w_dim) - lower


def observe_linear(z: Any, w: Any, coef: Any, link: Any, variance: Any, df: Any = None) -> None:
    """Sample site w: T w = coef' (1, z) + sqrt(variance) noise, for z (n, q), in plate rows."""
    import pyro
    import pyro.distributions as dist
    import torch

    mix = _mix(link, variance.shape[-1])
    structural = coef[..., 0, :] + (z.unsqueeze(-2) @ coef[..., 1:, :]).squeeze(-2)
    loc = torch.linalg.solve_triangular(
        mix, structural.unsqueeze(-1), upper=False, unitriangular=True
    ).squeeze(-1)
    tril = torch.linalg.solve_triangular(
        mix, torch.diag_embed(variance.sqrt()), upper=False, unitriangular=True
    )
    with pyro.plate("rows", z.shape[-2], dim=-1):
        if df is None:
            law: Any = dist.MultivariateNormal(loc, scale_tril=tril)
        else:
            law = dist.MultivariateStudentT(df, loc, tril)
        pyro.sample("w", law, obs=w)


def linear_model(p: int, w_dim: int, prior: Conjugate, student: bool) -> Callable[..., None]:
    """Return model(x, w=None) for x (n, p) and w (n, w_dim) in standardised units."""

    def model(x: Any, w: Any = None) -> None:
        import pyro
        import pyro.distributions as dist

        coef, link, variance = _priors(p, w_dim, prior)
        df = None
        if student:
            df = 2.0 + pyro.sample("df_excess", dist.Gamma(DF_SHAPE, DF_RATE))
        observe_linear(x, w, coef, link, variance, df)

    return model


def reduced_model(x: Float2, w: Float2, prior: Conjugate) -> Callable[[], None]:
    """Return the same posterior without rows: the Gaussian likelihood through its Gram matrix.

    log L = sum_j -n/2 log(2 pi v_j) - (t_j' G t_j) / (2 v_j), with G the Gram matrix of (1, x, w)
    and t_j the row of (-coef_j, T_j) that turns a row into the residual of coordinate j.
    """
    import torch

    n, p, w_dim = len(x), x.shape[1], w.shape[1]
    mean, centred = gram(x, w)
    full = np.zeros((1 + p + w_dim, 1 + p + w_dim))
    full[0, 0] = n
    full[0, 1:] = full[1:, 0] = n * mean
    full[1:, 1:] = centred + n * np.outer(mean, mean)
    moments = torch.as_tensor(full)

    def model() -> None:
        import pyro

        coef, link, variance = _priors(p, w_dim, prior)
        rows = torch.cat([-coef.T, _mix(link, w_dim)], dim=-1)
        rest = ((rows @ moments) * rows).sum(-1)
        loglik = -0.5 * (n * (math.log(2 * math.pi) + variance.log()) + rest / variance).sum()
        pyro.factor("likelihood", loglik)

    return model
