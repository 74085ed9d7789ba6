"""A law: a Pyro model of W given a causal summary of S, not yet fitted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal, Protocol

import numpy as np

from pulse_pyro._pyro.card import ModelCard
from pulse_pyro._pyro.fit import Fit
from pulse_pyro._pyro.inference import Ensemble, Exact, Inference, Laplace, Nuts, Svi
from pulse_pyro.arrays import Float, Float2, Float3, Int
from pulse_pyro.errors import ConvergenceError, DataError, ModelError, SettingError
from pulse_pyro.history import History
from pulse_pyro.laws.data import FitData, run_model, wants
from pulse_pyro.laws.fitted import FittedLaw
from pulse_pyro.laws.record import FitRecord
from pulse_pyro.summary import Summary

EMPTY: Mapping[str, Any] = MappingProxyType({})


class Kernel(Protocol):
    """Prediction from stored draws, in model units."""

    count: int
    columns: int  # values in flight for each row that is asked for

    @property
    def exact_mean(self) -> bool:
        """Whether mean and mean_draws are closed form."""

    def mean(self, x: Float2) -> Float2:
        """Return E[w | x] over all draws, (n, w_dim)."""

    def mean_draws(self, x: Float2, index: Int) -> Float3:
        """Return E[w | x, draw], (len(index), n, w_dim)."""

    def sample(self, x: Float2, index: Int, rng: np.random.Generator) -> Float3:
        """Draw w once per entry of ``index``, (len(index), n, w_dim)."""

    def log_density(self, x: Float2, w: Float2, index: Int) -> Float2:
        """Return log p(w | x, draw), (len(index), n)."""


Unseen = Literal["conditioned on", "learned", "refused"]


class Family(Protocol):
    """What a built-in law knows beyond its Pyro model. It works in standardised units."""

    def spec(self) -> dict[str, Any]:
        """Plain values that rebuild the law; stored in bundles."""

    def resolve(self, data: FitData) -> Family:
        """Settle what depends on the data, such as the box a basis lives on."""

    def model(self, p: int, w_dim: int) -> Callable[..., Any]:
        """Return the Pyro model for p inputs."""

    def fit(self, data: FitData, how: Inference, seed: int) -> tuple[ModelCard | None, Fit]:
        """Return draws and quality figures, or raise if the engine does not suit the family."""

    def kernel(self, draws: Mapping[str, Float]) -> Kernel:
        """Return the NumPy form of prediction."""

    @property
    def default(self) -> Inference:
        """The engine that suits this family best."""

    @property
    def uses_holes(self) -> bool:
        """Whether rows whose x is not complete are of use to the fit."""

    @property
    def unseen(self) -> Unseen:
        """What becomes of inputs that are not seen at prediction time."""


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
    unseen : what a custom law does with inputs that are not seen at prediction time: "refused"
        (such rounds cannot be scored), or "conditioned on": averaged over given the seen ones,
        as if all inputs were jointly Gaussian.
    family : set by built-in laws.

    A model that names a third parameter is handed more of the archive while it is fitted:
    ``unit`` (n,), the unit of each row as 0, 1, ... (None at prediction: a new unit), and ``seen``
    (n, w_dim), which w were recorded: rows without w are then kept, and w is 0 there.
    """

    model: Callable[..., Any] | None
    summary: Summary
    name: str = ""
    dims: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    guide: Callable[..., Any] | None = None
    unseen: Unseen = "refused"
    family: Family | None = None

    def __post_init__(self) -> None:
        fits = callable(self.summary) and hasattr(self.summary, "memory")
        if not fits or isinstance(self.summary, type):
            raise SettingError(
                f"Law: summary must be a summary such as Lags(3), but {self.summary!r} came; the "
                "model is the first argument, the summary the second."
            )
        if self.unseen not in ("refused", "conditioned on") and self.family is None:
            raise SettingError(
                f"Law: unseen must be 'refused' or 'conditioned on' for a custom model, but "
                f"{self.unseen!r} came."
            )
        if self.family is not None:
            object.__setattr__(self, "unseen", self.family.unseen)

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

        data, law = self.prepare(history)
        model = law.model_for(data.rows.x.shape[1], data.w_dim)
        card = check_model(model, data.x, data.w, self.label)
        return replace(card, unseen=law.unseen)

    def fit(
        self, history: History, inference: Inference | None = None, *, seed: int,
        warm: FittedLaw | None = None,
    ) -> FittedLaw:  # fmt: skip
        """Fit on the rows of the archive: complete ones, unless the law can use others.

        Parameters
        ----------
        history : the archive; hold units back with ``history.split`` for calibration.
        inference : Exact(), Nuts(...), Svi(...), Laplace(...) or, for networks, Ensemble(...); by
            default the law's best: Exact where the law is conjugate, Laplace for other models.
        seed : two fits with one seed agree to the last bit on one machine.
        warm : an earlier fit of a custom law, to start the search from; built-in laws find a
            start of their own.
        """
        how = self.engine(inference)
        data, law = self.prepare(history)
        card, fit = law.fit_data(data, how, seed, warm)
        card = card and replace(card, unseen=law.unseen)
        seen = history.s[history.seen]
        if np.isnan(seen).any():  # ten times slower than the plain ones
            contexts = np.stack([np.nanmean(seen, axis=0), np.nanstd(seen, axis=0)])
        else:
            contexts = np.stack([seen.mean(0), seen.std(0)])
        record = FitRecord(
            repr(how), int(seed), data.n, data.rows.dropped, fit.quality,
            tuple(map(float, fit.losses)), fit.chains, fit.diverging,
        )  # fmt: skip
        return FittedLaw(
            law, fit.draws, card, data.scaler, data.inputs, contexts, record,
            history.units, history.s_names, history.w_names,
        )  # fmt: skip

    def engine(self, inference: Inference | None) -> Inference:
        """Return the engine asked for, or the law's own."""
        how: Inference = inference or (self.family.default if self.family else Laplace())
        if not isinstance(how, Exact | Nuts | Svi | Laplace | Ensemble):
            raise SettingError(
                f"{self.label}: inference must be Exact(), Nuts(), Svi(), Laplace() or Ensemble(), "
                f"but {how!r} came."
            )
        return how

    def fit_data(
        self, data: FitData, how: Inference, seed: int, warm: FittedLaw | None = None
    ) -> tuple[ModelCard | None, Fit]:
        """Fit on rows in the law's own units, as :meth:`fit` does and simulated data need it."""
        if self.family is not None:
            card, fit = self.family.fit(data, how, seed)
        elif isinstance(how, Exact | Ensemble):
            raise ModelError(
                f"{self.label}: {type(how).__name__}() needs a built-in law; use Laplace(), Nuts() "
                "or Svi() for a custom model."
            )
        else:
            model = self.model_for(data.x.shape[1], data.w_dim)
            start = None if warm is None else {n: v.mean(0) for n, v in warm.draws.items()}
            card, fit = run_model(
                model, data, how, seed, label=self.label, guide=self.guide, start=start
            )
        broken = [name for name, value in fit.draws.items() if not np.isfinite(value).all()]
        if broken:
            raise ConvergenceError(
                f"{self.label}: draws of site {broken[0]!r} are not finite after {how!r}; rescale "
                "the inputs, tighten the priors or try another engine."
            )
        return card, fit

    def prepare(self, history: History) -> tuple[FitData, Law]:
        """Return the rows in the law's units, and the law with what they settle about it."""
        data = self._data(history)
        if self.family is None:
            return data, self
        return data, replace(self, family=self.family.resolve(data))

    def _data(self, history: History) -> FitData:
        if not isinstance(history, History):
            raise DataError(
                f"{self.label}: a History was expected, {type(history).__name__} came; make one "
                "with History.from_frame, and pass one part of a split."
            )
        seen = history.s[history.seen]
        for name, column in zip(history.s_names, seen.T, strict=True):
            if np.isnan(column[:1]).any() and np.isnan(column).all():
                raise DataError(
                    f"{self.label}: column {name!r} is never seen in the archive; drop it from the "
                    "observed columns."
                )
        takes = self.family is not None and self.family.uses_holes
        holes: Literal["", "x", "w"] = "x" if takes else ""
        if wants(self.model, "seen"):
            holes = "w"
            if np.isnan(history.w).all():
                raise DataError(f"{self.label}: no W was recorded in the archive at all.")
        data = FitData.raw(history.rows(self.summary, holes=holes))
        if self.family is None:  # a custom model states its priors in the units of the data
            return data
        return data.standardised(self.kinds(history.s_names))

    def kinds(self, s_names: tuple[str, ...]) -> list[str]:
        """Return the kind of each input: lags of one column share one scale."""
        filters = [name.rstrip("0123456789") for name in self.summary.names]
        return [f"{s}.{part}" for part in filters for s in s_names]
