"""Bayesian linear lags: W_t linear in a summary of S_1:t, Gaussian or Student-t noise."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from pulse_pyro._pyro.card import ModelCard
from pulse_pyro._pyro.fit import Fit
from pulse_pyro._pyro.inference import Ensemble, Exact, Inference, Laplace
from pulse_pyro.arrays import Float
from pulse_pyro.errors import ModelError, SettingError
from pulse_pyro.laws.data import FitData, run_model
from pulse_pyro.laws.law import Law, Unseen
from pulse_pyro.laws.linear_exact import RANK, Conjugate, Flat, LinearKernel, exact_draws
from pulse_pyro.laws.linear_model import linear_model, reduced_model
from pulse_pyro.seeds import stream
from pulse_pyro.summary import Summary, as_summary

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
    ``linear_exact``), so their residuals may be correlated. Exact for normal noise; Nuts, Svi and
    Laplace fit the same model. Inputs that are NaN at prediction time are conditioned on the seen
    ones. Not covered: residuals that depend on x or, within a unit, on each other.

    Examples
    --------
    >>> import pulse_pyro as pp
    >>> history = pp.w_times_action().archive(units=60, length=60, rng=pp.stream(0, "archive"))
    >>> law = linear_lags(19).fit(history, seed=0)
    >>> law.record.inference, law.record.rows
    ('Exact(draws=1000)', 2400)
    >>> law.table["mean"].round(1).head(2).to_dict()
    {'w ~ 1': 0.5, 'w ~ s.lag0': -1.4}
    """
    if noise not in ("normal", "student_t"):
        raise SettingError(f"linear_lags: noise must be 'normal' or 'student_t', {noise!r} came.")
    if isinstance(prior, Flat) and noise != "normal":
        raise SettingError("linear_lags: the Flat prior is least squares; it needs normal noise.")
    seen = as_summary(summary, "linear_lags")
    return Law(None, seen, "linear_lags", family=LinearFamily(noise, prior or Conjugate()))


@dataclass(frozen=True)
class LinearFamily:
    """The conjugate shortcuts and NumPy prediction of the linear law."""

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
    def default(self) -> Inference:
        """Exact for normal noise, Laplace for Student-t."""
        return Exact() if self.noise == "normal" else Laplace()

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
        if isinstance(how, Ensemble):
            raise ModelError("linear_lags: Ensemble() trains networks; use Exact() or Laplace().")
        model = self.model(data.x.shape[1], data.w_dim)
        normal = self.noise == "normal"
        short = reduced_model(data.x, data.w, self._proper()) if normal else None
        return run_model(model, data, how, seed, label="linear_lags", short=short)

    def _exact(self, data: FitData, how: Exact, rng: np.random.Generator) -> Fit:
        if self.noise != "normal":
            raise ModelError(
                "linear_lags: Exact() exists for normal noise only; for student_t use Laplace(), "
                "Nuts() or Svi()."
            )
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
