"""A law, not yet fitted: a Pyro model of W given a causal summary of S, and its rows."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any, Literal, Protocol

import numpy as np

from pulse_pyro._core.arrays import Float, Float1, Float2, Float3, Int
from pulse_pyro._core.errors import ConvergenceError, DataError, ModelError, SettingError
from pulse_pyro._pyro.inference import (
    Fit,
    Inference,
    Laplace,
    Nuts,
    Svi,
    choose_engine,
)
from pulse_pyro.base import Column, ModelCard, Summary
from pulse_pyro.data.history import History, Rows
from pulse_pyro.laws.conjugate import gram
from pulse_pyro.laws.ellipsoid import LeastSquares, scaled_squares
from pulse_pyro.laws.fitted import FitRecord, PosteriorLaw
from pulse_pyro.laws.memory import MemoryKind
from pulse_pyro.laws.remembering import RememberingLaw
from pulse_pyro.laws.scaling import GaussianInputs, Scaler
from pulse_pyro.laws.units import widened

# The rows a law is fitted on, in its own units, and how they reach an engine.


@dataclass(frozen=True, eq=False)
class FitData:
    """Rows of an archive, their moments, and the units the law works in.

    mean : (p + w_dim,) raw column means of [x, w]; moments : their centred Gram matrix. count :
    rows behind the moments, where the rows themselves are not kept. columns, units : what W holds,
    and what the units of the archive are called, where that is known.
    """

    rows: Rows
    mean: Float1
    moments: Float2
    scaler: Scaler
    count: int | None = None
    columns: tuple[Column, ...] = ()
    units: tuple[str, ...] = ()

    @classmethod
    def raw(
        cls, rows: Rows, columns: tuple[Column, ...] = (), units: tuple[str, ...] = ()
    ) -> FitData:
        """Take rows in their own units; where rows have holes, moments are of what is seen."""
        x, w = rows.x, rows.w
        mean, moments = gram(x, w)
        if np.isnan(mean).any():
            mean, moments = _gram_with_holes(x, w)
        scaler = Scaler.raw(x.shape[1], w.shape[1])
        return cls(rows, mean, moments, scaler, columns=columns, units=units)

    def standardised(self, kinds: list[str]) -> FitData:
        """Change to standard units; columns of x of one kind share one scale."""
        return replace(self, scaler=Scaler.standard(self.mean, self.moments, self.n, kinds))

    @property
    def n(self) -> int:
        """Rows."""
        return len(self.rows.x) if self.count is None else self.count

    @property
    def w_dim(self) -> int:
        """Columns of w."""
        return int(self.rows.w.shape[1])

    @cached_property
    def x(self) -> Float2:
        """(n, p) in the law's units."""
        return self.scaler.x_in(self.rows.x)

    @cached_property
    def w(self) -> Float2:
        """(n, w_dim) in the law's units."""
        return self.scaler.w_in(self.rows.w)

    @property
    def unit(self) -> Int:
        """(n,) units of the rows, numbered 0, 1, ... without gaps."""
        return np.unique(self.rows.unit, return_inverse=True)[1]

    @property
    def full(self) -> Float2:
        """Gram matrix of (1, x, w) in the law's units, (1 + p + w_dim, 1 + p + w_dim)."""
        scaler = self.scaler
        scale = np.concatenate([scaler.x_scale, scaler.w_scale])
        mean = (self.mean - np.concatenate([scaler.x_mean, scaler.w_mean])) / scale
        ones = np.concatenate([[1.0], mean])
        out = self.n * np.outer(ones, ones)
        out[1:, 1:] += self.moments / np.outer(scale, scale)
        return out

    def squares(self, cluster: Int) -> LeastSquares | None:
        """Return least squares of raw w on (1, x) in the law's units, rows being complete.

        cluster : (rows of the archive,) the cluster of each.
        """
        units = self.scaler.x_mean, self.scaler.x_scale
        return scaled_squares(self.rows.x, self.rows.w, cluster[self.rows.at], units)

    @property
    def inputs(self) -> GaussianInputs:
        """Mean and covariance of the raw inputs."""
        p = self.rows.x.shape[1]
        return GaussianInputs(self.mean[:p], self.moments[:p, :p] / self.n)


def _gram_with_holes(x: Float2, w: Float2) -> tuple[Float1, Float2]:
    """Means and Gram matrix over what is seen: spreads are right, products are shrunk towards 0."""
    both = np.concatenate([x, w], axis=1)
    seen = ~np.isnan(both)
    count = np.maximum(seen.sum(0), 1)
    mean = np.where(seen, both, 0.0).sum(0) / count
    filled = np.where(seen, both - mean, 0.0) * np.sqrt(len(both) / count)
    return mean, filled.T @ filled


def left_out(history: History, summary: Summary, data: FitData) -> dict[str, float]:
    """Return the share of rows with some of W that a fit on complete cases does without, if any."""
    if history.w.shape[1] < 2 or np.isnan(data.rows.w).any():
        return {}
    lost = history.partly_seen(summary)
    return {"partly_seen": lost / (lost + data.n)} if lost else {}


def level_numbers(column: Column) -> tuple[float, ...]:
    """Return the numbers that the codes 0, 1, ... of an ordinal W column stand for."""
    return column.numbers if column.kind == "ordinal" else ()


def wants(model: Callable[..., Any] | None, name: str) -> bool:
    """Tell whether a model asks for ``unit`` or ``seen`` by naming it as a parameter."""
    try:
        return model is not None and name in inspect.signature(model).parameters
    except (TypeError, ValueError):
        return False


def run_model(
    model: Callable[..., Any],
    data: FitData,
    how: Inference,
    seed: int,
    *,
    label: str,
    guide: Callable[..., Any] | None = None,
    short: Callable[[], Any] | None = None,
    energy: Callable[..., Any] | None = None,
    start: Mapping[str, Float] | None = None,
) -> tuple[ModelCard, Fit]:
    """Check a Pyro model on the rows and fit it.

    short : the same posterior without rows. energy : its -log density at unconstrained sites, for
    a family that can do without tracing the model at every step. start : sites to begin at.
    """
    import torch

    from pulse_pyro._pyro.batches import Archive
    from pulse_pyro._pyro.contract import check_values
    from pulse_pyro._pyro.engines import Problem, run_engine

    assert isinstance(how, Nuts | Svi | Laplace), f"{label}: {how!r} was not refused"
    card = checked(model, data, label)
    if short is not None:
        problem = Problem(short, (), card, label, guide=guide, energy=energy, start=start)
        return card, run_engine(problem, how, seed)
    x: Any = torch.as_tensor(data.x)
    w: Any = torch.as_tensor(data.w)
    extras: dict[str, Any] = {}
    counts: dict[str, Any] = {}
    if card.columns:
        w, counts = _by_column(model, data, card, label, extras)
    elif wants(model, "seen"):
        extras["seen"] = ~torch.isnan(w)
        w = torch.nan_to_num(w)
    archive = Archive(model, x, w, data.unit, extras, counts, wants(model, "unit"))
    bound, args = archive.whole
    if card.columns or data.columns:
        there = dict(zip(_numeric(data), ~torch.isnan(torch.as_tensor(data.w)).T, strict=True))
        coded = tuple(column.name for column in data.columns if column.levels)
        check_values(bound, x, w, counts or there, label, partial(_place, data), coded)
    problem = Problem(
        bound,
        args,
        card,
        label,
        guide=guide,
        start=start,
        archive=archive,
        unit=torch.as_tensor(data.unit) if archive.numbered else None,
    )
    absent = sum(
        site.support - len(torch.unique(w[site.name][counts[site.name]]))
        for site in card.sites
        if site.name in counts and site.support
    )
    return card, with_unseen(run_engine(problem, how, seed), absent)


def with_unseen(fit: Fit, absent: int) -> Fit:
    """Add to the figures of quality how many values that W may take never occur, if any."""
    return replace(fit, quality=fit.quality | {"unseen_levels": float(absent)}) if absent else fit


def _numeric(data: FitData) -> tuple[str, ...]:
    """Names of the numeric columns of W."""
    return tuple(name for column in data.columns for name in column.names)


def _place(data: FitData, row: int) -> str:
    """Tell where a row stands."""
    rows = data.rows
    unit = int(rows.unit[row])
    name = repr(data.units[unit]) if data.units else f"number {unit}"
    return f"row {int(rows.at[row])}, unit {name}, step {int(rows.time[row])}"


def checked(model: Callable[..., Any], data: FitData, label: str) -> ModelCard:
    """Check a model on the rows, and note what the codes of its W columns stand for."""
    from pulse_pyro._pyro.codes import codes_of, codings
    from pulse_pyro._pyro.contract import check_model

    names = tuple(column.name for column in data.columns)
    levels = tuple(level_numbers(column) for column in data.columns)
    widths = tuple(len(column.names) for column in data.columns)
    codes = codes_of(data.w, codings(names, levels, widths)) if names else None
    card = check_model(model, data.x, data.w, label, names, codes)
    if (card.by_unit or wants(model, "unit")) and len(np.unique(data.rows.unit)) < 2:
        _say_one_unit(card, label)
    if not card.columns:
        return card
    for column in data.columns:
        _check_levels(card, column, label)
    return replace(card, levels=levels, widths=widths)


def _say_one_unit(card: ModelCard, label: str) -> None:
    """Refuse latents of units where there is one unit; warn where ``unit`` may be for less."""
    if card.by_unit:
        own = ", ".join(repr(site.name) for site in card.unit_sites)
        raise DataError(
            f"{label}: {own} is drawn for every unit, but the archive holds one unit with "
            "complete rows, which cannot tell how units differ; add units, or leave plate 'units' "
            "out of the model."
        )
    warnings.warn(
        f"{label}: the model asks for the unit of each row, but the archive holds one unit with "
        "complete rows, which cannot tell how units differ: what the law says of that (a scale "
        "between units, the spread of a new unit) is its prior's word alone; add units, or leave "
        "unit out of the model.",
        stacklevel=4,  # whoever checks or fits the law, give or take
    )


def _check_levels(card: ModelCard, column: Column, label: str) -> None:
    """Refuse a site whose values are no codes of the levels that its column is declared with."""
    if column.kind not in ("ordinal", "categorical"):
        return
    site = next(site for site in card.sites if site.name == column.name)
    count, kind = len(column.levels), site.distribution
    if 0 < site.support <= count:
        return
    found = f"{site.support} values" if site.support else "no few values"
    better = {"ordinal": "OrderedLogistic(line, cuts)", "categorical": "Categorical(logits=...)"}
    raise ModelError(
        f"{label}: column {column.name!r} is declared {column.kind} with {count} levels, "
        f"{', '.join(column.levels)}, but its site, {kind}, takes {found}; write pyro.sample("
        f'"{column.name}", dist.{better[column.kind]}, ...) over {count} codes, or declare the '
        "column as it is."
    )


def _by_column(
    model: Callable[..., Any], data: FitData, card: ModelCard, label: str, extras: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return w by column, and the rows where each column counts, for a model with a site for each.

    A column counts in rows where it is seen; one conditioned on others, where they are too.
    """
    import torch

    from pulse_pyro._pyro.codes import codes_of, codings_of

    codes = codes_of(data.w, codings_of(card))
    there = ~np.isnan(codes)
    sites = {site.name: site for site in card.sites}
    at = {name: j for j, name in enumerate(card.columns)}
    w, counts = {}, {}
    for name, j in at.items():
        if not there[:, j].any():
            raise DataError(f"{label}: W column {name!r} was never recorded in the archive.")
        known = codes[there[:, j], j]
        w[name] = torch.as_tensor(np.where(there[:, j], codes[:, j], known[0]))
        above = [there[:, at[parent]] for parent in sites[name].parents]
        together = np.logical_and.reduce([there[:, j], *above])
        if not together.any():
            row = int(there[:, j].argmax())
            absent = [each for each in sites[name].parents if not there[row, at[each]]]
            raise DataError(
                f"{label}: W column {name!r} is conditioned on {', '.join(sites[name].parents)}, "
                "but is never seen together with it, so how they go together cannot be learned: "
                f"{absent[0]!r} is NaN in {_place(data, row)}, the first with {name!r}; record "
                "both in the same rows, or let the model sample one without the other."
            )
        counts[name] = torch.as_tensor(together)
    if "seen" in inspect.signature(model).parameters:
        extras["seen"] = dict(zip(card.columns, torch.as_tensor(there).unbind(-1), strict=True))
    return w, counts


# A law: a Pyro model of W given a causal summary of S, not yet fitted.


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

    def column_log_density(self, x: Float2, w: Float2, index: Int) -> Float3 | None:
        """Return log p(w_j | x, draw), (len(index), n, w_dim); None where it is not known."""


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
        """Return draws and quality figures; ``how`` is one of ``engines``."""

    def kernel(self, draws: Mapping[str, Float]) -> Kernel:
        """Return the NumPy form of prediction."""

    @property
    def engines(self) -> tuple[type[Inference], ...]:
        """Engines it can be fitted by, the best first."""

    @property
    def engine_reason(self) -> str:
        """Why not every engine suits it."""

    @property
    def linear(self) -> bool:
        """Whether E[w | x] is linear in x, whatever the draws."""

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
        rather than x @ b). Or it has one site per W column, named like the column, without an
        event axis; w is then a mapping from column to (n,), with codes 0, 1, ... of an ordinal.
        Built-in laws leave it None: it then depends on p and w_dim.
    summary : what of the past the model sees.
    name : for messages and reports.
    dims : names of site axes, for labelled results.
    guide : variational guide with the model's signature, for Svi.
    unseen : what a custom law does with inputs that are not seen at prediction time: "refused"
        (such rounds cannot be scored), or "conditioned on": averaged over given the seen ones,
        as if all inputs were jointly Gaussian.
    family : set by built-in laws.

    A model that names a third parameter is handed more than x and w. ``unit`` (n,) is the unit of
    each row as 0, 1, ..., at prediction too: a model may sample latents of units inside
    ``pyro.plate("units", int(unit.max()) + 1, dim=-1)`` and give rows ``level[..., unit]``. Their
    draws are kept, see :class:`laws.units.UnitLaw`. (A model that runs without ``unit``, and then
    has no plate "units", is given none at prediction: it says itself what a new unit is.) ``seen``,
    only while it is fitted, is (n, w_dim), which w were recorded: rows without w are then kept, and
    w is 0 there. With a site per column ``seen`` is a mapping too; rows in which some W is seen are
    kept, and a column counts where it is seen, together with those it is conditioned on. Discrete
    latents of rows are summed out of fit and prediction, if their support is finite.
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
                f"Law: summary must be a summary such as Lags(3), but got {self.summary!r}; the "
                "model is the first argument, the summary the second."
            )
        if self.model is not None and not callable(self.model):
            raise SettingError(
                f"Law: model must be a function, def model(x, w=None): ..., but got "
                f"{self.model!r}; of a file, law_from_file makes a law."
            )
        if self.unseen not in ("refused", "conditioned on") and self.family is None:
            raise SettingError(
                f"Law: unseen must be 'refused' or 'conditioned on' for a custom model, but got "
                f"{self.unseen!r}."
            )
        if self.family is not None:
            object.__setattr__(self, "unseen", self.family.unseen)

    @property
    def label(self) -> str:
        """The name, or the model function's own."""
        return self.name or getattr(self.model, "__name__", "law")

    @property
    def engines(self) -> tuple[type[Inference], ...]:
        """Engines it can be fitted by, its own first."""
        return (Laplace, Nuts, Svi) if self.family is None else self.family.engines

    @property
    def engine_reason(self) -> str:
        """Why not every engine suits it."""
        if self.family is not None:
            return self.family.engine_reason
        return "closed forms and ensembles of networks are for built-in laws"

    def model_for(self, p: int, w_dim: int) -> Callable[..., Any]:
        """Return the Pyro model for p inputs and w_dim outputs."""
        if self.family is not None:
            return self.family.model(p, w_dim)
        if self.model is None:
            raise ModelError("Law: model is missing; pass a function model(x, w=None).")
        return self.model

    def check(self, history: History) -> ModelCard:
        """Run the model on a few rows and describe its sites, or say which rule it breaks."""
        data, law = self.prepare(history)
        model = law.model_for(data.rows.x.shape[1], data.w_dim)
        card = checked(model, data, self.label)
        return replace(card, unseen=law.unseen)

    def fit(
        self,
        history: History,
        how: Inference | None = None,
        *,
        seed: int,
        warm: PosteriorLaw | None = None,
    ) -> PosteriorLaw:
        """Fit on the rows of the archive: complete ones, unless the law can use others.

        Parameters
        ----------
        history : the archive; hold units back with ``history.split`` for calibration.
        how : Exact(), Nuts(...), Svi(...), Laplace(...) or, for networks, Ensemble(...); by
            default the law's best: Exact where the law is conjugate, Laplace for other models.
        seed : two fits with one seed agree to the last bit on one machine.
        warm : an earlier fit of a custom law, to start the search from; built-in laws find a
            start of their own.
        """
        how = self.engine(how)
        data, law = self.prepare(history)
        card, fit = law.fit_data(data, how, seed, warm)
        card = card and replace(card, unseen=law.unseen)
        record = FitRecord(
            inference=repr(how),
            seed=int(seed),
            rows=data.n,
            dropped=data.rows.dropped,
            quality={
                **fit.quality,
                **law._as_numbers(history),
                **left_out(history, law.summary, data),
            },
            losses=tuple(map(float, fit.losses)),
            chains=fit.chains,
            diverging=fit.diverging,
            sampler={k: tuple(map(float, v)) for k, v in fit.sampler.items()},
            seconds=fit.seconds,
        )
        fitted = PosteriorLaw(
            law=law,
            draws=fit.draws,
            card=card,
            scaler=data.scaler,
            inputs=data.inputs,
            record=record,
            units=history.clusters,
            schema=history.schema,
            squares=data.squares(history.cluster) if law._linear else None,
        )
        if card is None or not card.by_unit:
            return fitted
        return widened(fitted, tuple(history.units[i] for i in np.unique(data.rows.unit)))

    def with_memory(self, kind: MemoryKind = "ar") -> RememberingLaw:
        """Return the law whose fit also learns how what it leaves of W persists.

        See ``laws.with_memory``.
        """
        return RememberingLaw(self, kind)

    def _as_numbers(self, history: History) -> dict[str, float]:
        """Count the W columns that are declared another kind, but are plain numbers to this law."""
        if self.family is None or hasattr(self.family, "settle"):
            return {}
        others = sum(column.kind != "real" for column in history.schema.w_columns)
        return {"as_plain_numbers": float(others)} if others else {}

    @property
    def _linear(self) -> bool:
        return self.family is not None and self.family.linear

    def engine(self, how: Inference | None) -> Inference:
        """Return the engine asked for, or the law's own; refuse one that does not suit it."""
        engine = choose_engine(how, self.engines, self.label, self.engine_reason)
        assert engine is not None  # every law of this class has an engine
        return engine

    def fit_data(
        self, data: FitData, how: Inference, seed: int, warm: PosteriorLaw | None = None
    ) -> tuple[ModelCard | None, Fit]:
        """Fit on rows in the law's own units, as :meth:`fit` does and simulated data need it."""
        if self.family is not None:
            card, fit = self.family.fit(data, how, seed)
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
                "the inputs, tighten the priors or try another engine. A scale that the sites it "
                "belongs to let run to 0 has no mode: write effect = scale * pyro.sample(..., "
                "dist.Normal(0.0, 1.0)) for pyro.sample(..., dist.Normal(0.0, scale))."
            )
        return card, fit

    def prepare(self, history: History) -> tuple[FitData, Law]:
        """Return the rows in the law's units, and the law with what they settle about it."""
        data = self._data(history)
        if self.family is None:
            return data, self
        if hasattr(self.family, "settle"):  # W in units of its own, by how its column is declared
            data, family = self.family.settle(data, history)
            return data, replace(self, family=family)
        return data, replace(self, family=self.family.resolve(data))

    def _data(self, history: History) -> FitData:
        if not isinstance(history, History):
            raise DataError(
                f"{self.label}: a History was expected, but got {type(history).__name__}; make one "
                "with History.from_frame, and pass one part of a split."
            )
        for name, column in zip(history.s_names, history.s.T, strict=True):
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
            never = np.isnan(history.w).all(0)
            if never.any():
                name = history.w_names[int(never.argmax())]
                raise DataError(f"{self.label}: W column {name!r} is never recorded; leave it out.")
        rows = self._rows(history, holes)
        data = FitData.raw(rows, history.schema.w_columns, history.units)
        if self.family is None:  # a custom model states its priors in the units of the data
            return data
        return data.standardised(self.kinds(history.s_names))

    def _rows(self, history: History, holes: Literal["", "x", "w"]) -> Rows:
        """Return rows to fit on; where every W column has a site, one W that is seen is enough."""
        if holes or self.model is None or history.w.shape[1] == 1 or self.family is not None:
            return history.rows(self.summary, holes=holes)
        if not np.isnan(history.w).any():
            return history.rows(self.summary)
        from pulse_pyro._pyro.contract import samples_columns

        rows = history.rows(self.summary, holes="w")
        names = tuple(column.name for column in history.schema.w_columns)
        if not samples_columns(self.model, rows.x[:2], self.label, names):
            return history.rows(self.summary)
        keep = ~np.isnan(rows.w).all(-1)
        if not keep.any():
            raise DataError(f"{self.label}: no W was recorded in the archive at all.")
        return replace(
            rows,
            x=rows.x[keep],
            w=rows.w[keep],
            unit=rows.unit[keep],
            time=rows.time[keep],
            at=rows.at[keep],
            dropped=rows.dropped + int((~keep).sum()),
        )

    def kinds(self, s_names: tuple[str, ...]) -> list[str]:
        """Return the kind of each input: lags of one column share one scale."""
        filters = [name.rstrip("0123456789") for name in self.summary.names]
        return [f"{s}.{part}" for part in filters for s in s_names]
