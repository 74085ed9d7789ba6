"""A law: a Pyro model of W given a causal summary of S, not yet fitted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from pulse_pyro._pyro.card import ModelCard
from pulse_pyro._pyro.inference import Exact, Inference, Laplace, Nuts, Svi
from pulse_pyro.arrays import Float, Float1, Float2, Float3, Int
from pulse_pyro.errors import DataError, ModelError, SettingError
from pulse_pyro.history import History, Rows
from pulse_pyro.laws.fitted import FitRecord, FittedLaw
from pulse_pyro.laws.linear_exact import gram
from pulse_pyro.laws.scaling import GaussianInputs, Scaler
from pulse_pyro.seeds import stream
from pulse_pyro.summary import Summary

if TYPE_CHECKING:
    from pulse_pyro._pyro.engines import Fit

EMPTY: Mapping[str, Any] = MappingProxyType({})


class Kernel(Protocol):
    """Prediction from stored draws, in model units."""

    count: int

    @property
    def exact_mean(self) -> bool:
        """Whether mean_draws is closed form."""

    def mean_draws(self, x: Float2, index: Int) -> Float3:
        """Return E[w | x, draw], (len(index), n, w_dim)."""

    def sample(self, x: Float2, index: Int, rng: np.random.Generator) -> Float3:
        """Draw w once per entry of ``index``, (len(index), n, w_dim)."""


class Family(Protocol):
    """What a built-in law knows beyond its Pyro model. It works in standardised units."""

    def spec(self) -> dict[str, Any]:
        """Plain values that rebuild the law; stored in bundles."""

    def model(self, p: int, w_dim: int) -> Callable[..., Any]:
        """Return the Pyro model for p inputs."""

    def exact(
        self, moments: Float2, n: int, w_dim: int, how: Exact, rng: np.random.Generator
    ) -> tuple[dict[str, Float], dict[str, float]]:
        """Draw from the posterior given the Gram matrix of n centred rows [x, w], or raise.

        Returns draws and quality figures.
        """

    def reduced(self, x: Float2, w: Float2) -> Callable[[], Any] | None:
        """Return an equivalent model without rows, or None."""

    def kernel(self, draws: Mapping[str, Float]) -> Kernel:
        """Return the NumPy form of prediction."""

    @property
    def default(self) -> Inference:
        """The engine that suits this family best."""


@dataclass(frozen=True)
class Law:
    """A Pyro model of W_t given a causal summary of S_1:t.

    Attributes
    ----------
    model : model(x, w=None) with x (n, p), w (n, w_dim); samples "w" inside plate "rows" on
        dim -1 and broadcasts over leading dimensions of its global sites (use (x * b).sum(-1)
        rather than x @ b). Built-in laws leave it None: it then depends on p and w_dim.
    summary : what of the past the model sees.
    name : for messages and reports.
    dims : names of site axes, for labelled results.
    guide : variational guide with the model's signature, for Svi.
    family : set by built-in laws.
    """

    model: Callable[..., Any] | None
    summary: Summary
    name: str = ""
    dims: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    guide: Callable[..., Any] | None = None
    family: Family | None = None

    def __post_init__(self) -> None:
        if not callable(self.summary) or not hasattr(self.summary, "memory"):
            raise SettingError(
                f"Law: summary must be a summary such as Lags(3), but {self.summary!r} came; the "
                "model is the first argument, the summary the second."
            )

    @property
    def label(self) -> str:
        """The name, or the model function's own."""
        return self.name or getattr(self.model, "__name__", "law")

    def model_for(self, p: int, w_dim: int) -> Callable[..., Any]:
        """Return the Pyro model for p inputs and w_dim outputs."""
        if self.family is not None:
            return self.family.model(p, w_dim)
        if self.model is None:
            raise ModelError("Law: model is missing; pass a function model(x, w=None).")
        return self.model

    def check(self, history: History) -> ModelCard:
        """Run the model on a few rows and describe its sites, or say which rule it breaks."""
        from pulse_pyro._pyro.contract import check_model

        rows = self._rows(history)
        scaler = self._scaler(*gram(rows.x, rows.w), len(rows.x), history)
        model = self.model_for(rows.x.shape[1], rows.w.shape[1])
        return check_model(model, scaler.x_in(rows.x[:8]), scaler.w_in(rows.w[:8]), self.label)

    def fit(self, history: History, inference: Inference | None = None, *, seed: int) -> FittedLaw:
        """Fit on the complete rows of the archive.

        Parameters
        ----------
        history : the archive; hold units back with ``history.split`` for calibration.
        inference : Exact(), Nuts(...), Svi(...) or Laplace(...); by default the law's best:
            Exact where the law is conjugate, Laplace otherwise.
        seed : two fits with one seed agree to the last bit on one machine.
        """
        how: Inference = inference or (self.family.default if self.family else Laplace())
        if not isinstance(how, Exact | Nuts | Svi | Laplace):
            raise SettingError(
                f"{self.label}: inference must be Exact(), Nuts(), Svi() or Laplace(), but {how!r} "
                "came."
            )
        rows = self._rows(history)
        n, p = rows.x.shape
        mean, moments = gram(rows.x, rows.w)
        scaler = self._scaler(mean, moments, n, history)
        card: ModelCard | None = None
        losses: tuple[float, ...] = ()
        if not isinstance(how, Exact):
            card, fit = self._engine(rows, scaler, how, seed)
            draws, quality, losses = fit.draws, fit.quality, tuple(map(float, fit.losses))
        elif self.family is None:
            raise ModelError(
                f"{self.label}: Exact() needs a conjugate built-in law; use Laplace(), Nuts() "
                "or Svi() for a custom model."
            )
        else:
            draws, quality = self.family.exact(
                scaler.moments_in(moments), n, rows.w.shape[1], how, stream(seed, "exact")
            )
        broken = [name for name, value in draws.items() if not np.isfinite(value).all()]
        if broken:
            raise ModelError(
                f"{self.label}: draws of site {broken[0]!r} are not finite after {how!r}; rescale "
                "the inputs, tighten the priors or try another engine."
            )
        seen = history.s[history.seen]
        if np.isnan(seen).any():  # ten times slower than the plain ones
            contexts = np.stack([np.nanmean(seen, axis=0), np.nanstd(seen, axis=0)])
        else:
            contexts = np.stack([seen.mean(0), seen.std(0)])
        return FittedLaw(
            self, draws, card, scaler, GaussianInputs(mean[:p], moments[:p, :p] / n), contexts,
            FitRecord(repr(how), int(seed), n, rows.dropped, quality, losses),
            history.units, history.s_names, history.w_names,
        )  # fmt: skip

    def _rows(self, history: History) -> Rows:
        if not isinstance(history, History):
            raise DataError(
                f"{self.label}: a History was expected, {type(history).__name__} came; make one "
                "with History.from_frame, and pass one part of a split."
            )
        return history.rows(self.summary)

    def _engine(self, rows: Rows, scaler: Scaler, how: Any, seed: int) -> tuple[ModelCard, Fit]:
        import torch

        from pulse_pyro._pyro.contract import check_model
        from pulse_pyro._pyro.engines import Problem, run_engine

        x, w = scaler.x_in(rows.x), scaler.w_in(rows.w)
        model = self.model_for(x.shape[1], w.shape[1])
        card = check_model(model, x, w, self.label)
        short = self.family.reduced(x, w) if self.family is not None else None
        args = () if short is not None else (torch.as_tensor(x), torch.as_tensor(w))
        problem = Problem(short or model, args, card, self.label, self.guide)
        return card, run_engine(problem, how, seed)

    def _scaler(self, mean: Float1, moments: Float2, n: int, history: History) -> Scaler:
        if self.family is None:  # a custom model states its priors in the units of the data
            return Scaler.raw(len(mean) - len(history.w_names), len(history.w_names))
        filters = [name.rstrip("0123456789") for name in self.summary.names]
        kinds = [f"{s}.{part}" for part in filters for s in history.s_names]
        return Scaler.standard(mean, moments, n, kinds)
