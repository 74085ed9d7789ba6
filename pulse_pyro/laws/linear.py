"""Bayesian linear lags: W_t linear in a summary of S_1:t, Gaussian or Student-t noise."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from pulse_pyro._core.arrays import Float, Float2
from pulse_pyro._core.errors import ModelError, SettingError
from pulse_pyro._core.seeds import stream
from pulse_pyro._pyro.inference import Exact, Fit, Inference, Laplace, Nuts, Svi
from pulse_pyro.base import ModelCard, Summary
from pulse_pyro.data.summary import as_summary
from pulse_pyro.laws.conjugate import RANK, Conjugate, Flat, LinearKernel, exact_draws, gram
from pulse_pyro.laws.law import FitData, Law, Unseen, run_model

# The linear law as a Pyro model, and its likelihood through sufficient statistics.


DF_SHAPE, DF_RATE = 2.0, 0.1  # prior of (degrees of freedom - 2): mean 20, favouring 5 to 40


def _priors(p: int, w_dim: int, prior: Conjugate) -> tuple[Any, Any, Any]:
    """Sample coef (1 + p, w_dim), link and variance (w_dim,); see laws.conjugate for the law."""
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


Noise = Literal["normal", "student_t"]


def linear_lags(
    summary: int | Summary, *, noise: Noise = "normal", prior: Conjugate | Flat | None = None
) -> Law:
    """Return a Bayesian linear law of W_t given lags of S (or any other summary).

    Parameters
    ----------
    summary : number of lags, the current S_t included, or a summary.
    noise : "normal", or "student_t" with unknown degrees of freedom above 2.
    prior : Conjugate() by default; Flat() is ordinary least squares (Exact only).

    Several W are modelled jointly: matrix-normal inverse-Wishart, in triangular form (see
    ``laws.conjugate``), so their residuals may be correlated. Exact for normal noise; Nuts, Svi and
    Laplace fit the same model. Inputs that are NaN at prediction time are conditioned on the seen
    ones. Not covered: residuals that depend on x or, within a unit, on each other.

    Examples
    --------
    >>> import pulse_pyro as pp
    >>> history = pp.envs.w_times_action().archive(units=60, length=60, rng=pp.stream(0, "archive"))
    >>> law = linear_lags(19).fit(history, seed=0)
    >>> law.record.inference, law.record.rows
    ('Exact(draws=1000)', 2400)
    >>> law.table["mean"].round(1).head(2).to_dict()
    {'w ~ 1': 0.5, 'w ~ s.lag0': -1.4}
    """
    if noise not in ("normal", "student_t"):
        raise SettingError(
            f"linear_lags: noise must be 'normal' or 'student_t', but got {noise!r}."
        )
    if isinstance(prior, Flat) and noise != "normal":
        raise SettingError("linear_lags: the Flat prior is least squares; it needs normal noise.")
    seen = as_summary(summary, "linear_lags")
    return Law(None, seen, "linear_lags", family=LinearFamily(noise, prior or Conjugate()))


@dataclass(frozen=True)
class LinearFamily:
    """The conjugate shortcuts and NumPy prediction of the linear law."""

    linear: ClassVar[bool] = True
    uses_holes: ClassVar[bool] = False
    unseen: ClassVar[Unseen] = "conditioned on"  # exactly: the mean is affine in x
    noise: Noise
    prior: Conjugate | Flat

    def spec(self) -> dict[str, Any]:
        """Plain values that rebuild the law."""
        prior = None if isinstance(self.prior, Flat) else asdict(self.prior)
        return {"family": "linear_lags", "noise": self.noise, "prior": prior}

    @staticmethod
    def from_spec(spec: Mapping[str, Any]) -> LinearFamily:
        """Rebuild from :meth:`spec`."""
        prior = Flat() if spec["prior"] is None else Conjugate(**spec["prior"])
        return LinearFamily(spec["noise"], prior)

    @property
    def engines(self) -> tuple[type[Inference], ...]:
        """Exact for normal noise, and alone for a Flat prior; Laplace first for Student-t."""
        if isinstance(self.prior, Flat):
            return (Exact,)
        sampled = (Laplace, Nuts, Svi)
        return (Exact, *sampled) if self.noise == "normal" else sampled

    @property
    def engine_reason(self) -> str:
        """Where its closed form ends."""
        if isinstance(self.prior, Flat):
            return "the Flat prior is improper and has a closed form alone (others: Conjugate())"
        if self.noise != "normal":
            return "its closed form is for normal noise only, and it has no networks to train"
        return "it has no networks to train"

    def model(self, p: int, w_dim: int) -> Callable[..., Any]:
        """Return the Pyro model."""
        return linear_model(p, w_dim, self._proper(), self.noise == "student_t")

    def resolve(self, data: FitData) -> LinearFamily:
        """Nothing depends on the data."""
        return self

    def fit(self, data: FitData, how: Inference, seed: int) -> tuple[ModelCard | None, Fit]:
        """Draw from the conjugate posterior, or run an engine on the sufficient statistics."""
        if isinstance(how, Exact):
            return None, self._exact(data, how, stream(seed, "exact"))
        model = self.model(data.x.shape[1], data.w_dim)
        normal = self.noise == "normal"
        short = reduced_model(data.x, data.w, self._proper()) if normal else None
        return run_model(model, data, how, seed, label="linear_lags", short=short)

    def _exact(self, data: FitData, how: Exact, rng: np.random.Generator) -> Fit:
        full = data.full
        draws = exact_draws(full, data.w_dim, self.prior, how.draws, rng)
        if not isinstance(self.prior, Flat):
            return Fit(draws, {})
        p = len(full) - 1 - data.w_dim
        rank = int(np.linalg.matrix_rank(full[1 : 1 + p, 1 : 1 + p], rtol=RANK, hermitian=True))
        return Fit(draws, {"improper": float(p - rank)})

    def kernel(self, draws: Mapping[str, Float]) -> LinearKernel:
        """NumPy prediction."""
        return LinearKernel(draws)

    def _proper(self) -> Conjugate:
        if isinstance(self.prior, Flat):
            raise ModelError(
                "linear_lags: the Flat prior is improper and fits with Exact() only; use "
                "Conjugate() for Pyro engines."
            )
        return self.prior
