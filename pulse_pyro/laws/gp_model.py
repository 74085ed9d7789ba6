"""The Gaussian process law as a Pyro model, and its posterior with the weights integrated out.

In standardised units, for coordinate j of w,

    w_j = b_0 + b'x + f_j(x) + sum_{k<j} g_jk w_k + sqrt(v_j) noise,

with f_j in the Hilbert-space basis and v_j the site "variance" plus a floor. Given amplitude,
length scales and v_j this is a conjugate regression on the columns (1, x, phi, w_1, ...,
w_{j-1}), so only those few parameters need an engine: the weights follow in closed form.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from pulse_pyro.arrays import Float2
from pulse_pyro.laws.hilbert import Hilbert
from pulse_pyro.laws.linear_model import observe_linear

FIXED = 3.0  # prior sd of intercept, slopes and links
AMPLITUDE, LENGTH, VARIANCE = (-0.5, 1.0), (0.0, 0.7), (-2.0, 2.0)  # log-normal priors
FLOOR = 1e-6  # of the noise variance, in units of the variance of w: keeps matrices definite
LEAST = 1e-150  # of a prior sd: one that underflows is no distribution


def _parameters(basis: Hilbert, w_dim: int) -> tuple[Any, Any, Any]:
    """Sample amplitude (w_dim, processes), length (w_dim, p) and variance (w_dim,)."""
    import pyro
    import pyro.distributions as dist

    def positive(name: str, prior: tuple[float, float], *shape: int) -> Any:
        law = dist.LogNormal(*prior).expand(list(shape)).to_event(len(shape))
        return pyro.sample(name, law)

    return (
        positive("amplitude", AMPLITUDE, w_dim, basis.processes),
        positive("length", LENGTH, w_dim, basis.p),
        positive("variance", VARIANCE, w_dim),
    )


def prior_sd(basis: Hilbert, amplitude: Any, length: Any, ops: Any) -> Any:
    """Prior sd of the columns (1, x, phi): (..., 1 + p + M)."""
    weights = basis.spread(amplitude, length, ops) + LEAST
    shape = (*weights.shape[:-1], 1 + basis.p)
    return ops.concatenate([ops.full(shape, FIXED), weights], -1)


def gp_model(basis: Hilbert, w_dim: int) -> Callable[..., None]:
    """Return model(x, w=None) for x (n, p) and w (n, w_dim) in standardised units."""

    def model(x: Any, w: Any = None) -> None:
        import pyro
        import pyro.distributions as dist
        import torch

        amplitude, length, variance = _parameters(basis, w_dim)
        sd = prior_sd(basis, amplitude, length, torch)
        coef = pyro.sample("coef", dist.Normal(0.0, sd.transpose(-1, -2)).to_event(2))
        link = None
        if w_dim > 1:
            wide = torch.full((w_dim * (w_dim - 1) // 2,), FIXED)
            link = pyro.sample("link", dist.Normal(0.0, wide).to_event(1))
        z = torch.as_tensor(basis.design(x.numpy()))
        observe_linear(z, w, coef, link, variance + FLOOR)

    return model


def log_marginal(basis: Hilbert, gram: Float2, w_dim: int) -> Callable[[Any, Any, Any], Any]:
    """Return log p(w | amplitude, length, variance), weights integrated out, from the Gram matrix.

    For column j, -1/2 (n log 2 pi + (n - m) log v + log det A + (y'y - r' A^-1 r) / v) with
    A = v I + D G D, r = D Z'y, D the prior sds and G, Z'y, y'y blocks of the Gram matrix.
    """
    import torch

    full = torch.as_tensor(gram)
    n, base = float(gram[0, 0]), len(gram) - w_dim
    eyes = [torch.eye(base + j, dtype=full.dtype) for j in range(w_dim)]
    links = [torch.full((j,), FIXED, dtype=full.dtype) for j in range(w_dim)]

    def marginal(amplitude: Any, length: Any, variance: Any) -> Any:
        prior = prior_sd(basis, amplitude, length, torch)
        total = -0.5 * n * w_dim * math.log(2 * math.pi)
        for j in range(w_dim):
            m, v = base + j, variance[j] + FLOOR
            sd = torch.cat([prior[j], links[j]]) if j else prior[j]
            factor = torch.linalg.cholesky(sd[:, None] * full[:m, :m] * sd + v * eyes[j])
            right = torch.linalg.solve_triangular(factor, (sd * full[:m, m])[:, None], upper=False)
            quadratic = (full[m, m] - right.square().sum()) / v
            log_det = (n - m) * v.log() + 2.0 * factor.diagonal().log().sum()
            total = total - 0.5 * (log_det + quadratic)
        return total

    return marginal


def marginal_model(basis: Hilbert, gram: Float2, w_dim: int) -> Callable[[], None]:
    """Return the posterior of amplitude, length and variance as a Pyro model without rows."""
    marginal = log_marginal(basis, gram, w_dim)

    def model() -> None:
        import pyro

        pyro.factor("marginal", marginal(*_parameters(basis, w_dim)))

    return model


def marginal_energy(basis: Hilbert, gram: Float2, w_dim: int) -> Callable[[Mapping[str, Any]], Any]:
    """Return -log posterior of :func:`marginal_model` at the logs of its sites.

    What Pyro computes for that model, without tracing it: half the time of a gradient.
    """
    marginal = log_marginal(basis, gram, w_dim)
    priors = (("amplitude", AMPLITUDE), ("length", LENGTH), ("variance", VARIANCE))

    def energy(log: Mapping[str, Any]) -> Any:
        out = -marginal(*(log[name].exp() for name, _ in priors))
        for name, (mean, sd) in priors:
            constant = log[name].numel() * math.log(sd * math.sqrt(2 * math.pi))
            out = out + 0.5 * ((log[name] - mean) / sd).square().sum() + constant
        return out

    return energy
