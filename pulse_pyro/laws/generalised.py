"""Generalised linear lags: W_t a 0/1, a level, a category, a count or a share, by its lags."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol

import numpy as np

from pulse_pyro._core.arrays import Bool, Float, Float1, Float2, Float3, Float4, Int
from pulse_pyro._core.errors import DataError, ModelError, SettingError, nearest
from pulse_pyro._pyro.inference import Fit, Inference, Laplace, Nuts, Svi
from pulse_pyro.base import Column, ModelCard, Summary
from pulse_pyro.data.history import History, Rows
from pulse_pyro.data.summary import as_summary
from pulse_pyro.laws.law import FitData, Law, Unseen, run_model, with_unseen
from pulse_pyro.laws.responses import (
    RESPONSE_KINDS,
    Bernoulli,
    Beta,
    Categories,
    FewValues,
    NegativeBinomial,
    Number,
    Ordinal,
    Own,
    Poisson,
    Response,
    ResponseKind,
)
from pulse_pyro.laws.scaling import CHUNK

# Which kind of W a column is, and whether it holds what it says.


DECLARED: Mapping[ResponseKind, tuple[str, ...]] = {  # how a column of each kind may be declared
    "bernoulli": ("real", "binary"),
    "ordinal": ("real", "ordinal"),
    "categorical": ("categorical",),
    "poisson": ("real", "count"),
    "negative_binomial": ("real", "count"),
    "beta": ("real",),
}
DEFAULT: Mapping[str, ResponseKind] = {  # what a declared column is taken for
    "binary": "bernoulli",
    "ordinal": "ordinal",
    "categorical": "categorical",
    "count": "negative_binomial",
}
MOST_LEVELS = 20  # of a column that is not declared ordinal: more are no levels


def check_kind(kind: object, where: str) -> ResponseKind:
    """Return a kind of W, or refuse what is none."""
    if kind not in RESPONSE_KINDS:
        raise SettingError(
            f"{where}: there is no kind {kind!r}{nearest(str(kind), RESPONSE_KINDS)} Kinds are "
            f"{', '.join(RESPONSE_KINDS)}."
        )
    return kind


def declared(history: History) -> bool:
    """Tell whether the archive's one W column is declared to be no plain number."""
    columns = history.schema.w_columns
    return len(columns) == 1 and columns[0].kind in DEFAULT


def response_of(
    kind: ResponseKind | None, column: Column, w: Float2, rows: Rows, history: History, where: str
) -> Response:
    """Return how one W column is distributed, or say what of it does not suit the kind.

    kind : as asked for; None: as the column is declared. w : (n, numeric columns) its values at
    ``rows``, complete.
    """
    name = column.name
    if kind is None:
        if column.kind not in DEFAULT:
            raise SettingError(
                f"{where}: W column {name!r} is not declared, so its kind must be said: "
                f"{where}(..., kind='bernoulli'), or declare it, kinds={{{name!r}: 'binary'}}."
            )
        kind = DEFAULT[column.kind]
    if column.kind not in DECLARED[kind]:
        should = " or ".join(DECLARED[kind])
        hint = DEFAULT.get(column.kind)
        raise DataError(
            f"{where}: kind={kind!r} needs W column {name!r} to be declared {should}, but it is "
            f"{column.kind}; "
            + (f"use kind={hint!r} or " if hint else "")
            + f"declare it in History.from_frame: kinds={{{name!r}: {DECLARED[kind][-1]!r}}}."
        )
    if kind == "categorical":
        return Categories(len(column.levels))
    values = w[:, 0]
    if kind == "ordinal":
        return Ordinal(_levels(column, values, where))
    if kind == "bernoulli":
        _refuse_values((values != 0) & (values != 1), values, "0 or 1", name, rows, history, where)
        return Bernoulli()
    if kind == "beta":
        wrong = ~((values > 0) & (values < 1))
        wanted = "between 0 and 1, neither of them included"
        _refuse_values(wrong, values, wanted, name, rows, history, where)
        return Beta()
    wrong = (values < 0) | (values != np.round(values))
    _refuse_values(wrong, values, "a count, 0, 1, 2, ...", name, rows, history, where)
    return Poisson() if kind == "poisson" else NegativeBinomial()


def _levels(column: Column, values: Float1, where: str) -> tuple[float, ...]:
    """Return the numbers of an ordinal's levels: as declared, or those that occur."""
    if column.levels:
        numbers: tuple[float, ...] = column.numbers
    else:
        numbers = tuple(float(v) for v in np.unique(values))
        if len(numbers) > MOST_LEVELS:
            raise DataError(
                f"{where}: W column {column.name!r} has {len(numbers)} distinct values, too many "
                f"for levels that are not declared (limit {MOST_LEVELS}); declare its levels, "
                f"Column({column.name!r}, kind='ordinal', levels=...), or use a law of numbers."
            )
    if len(numbers) < 2:
        raise DataError(
            f"{where}: W column {column.name!r} has one level only, {numbers[0]:g}, so there is "
            "nothing to learn; declare the levels it may have."
        )
    absent = ~np.isin(values, numbers)
    if absent.any():
        raise DataError(
            f"{where}: W column {column.name!r} holds {values[absent][0]:g}, which is none of its "
            f"levels {[f'{n:g}' for n in numbers]}."
        )
    return numbers


def _refuse_values(
    wrong: Bool,
    values: Float1,
    wanted: str,
    name: str,
    rows: Rows,
    history: History,
    where: str,
) -> None:
    """Name the first value that is not of its kind, its row and its unit."""
    if not wrong.any():
        return
    i = int(np.flatnonzero(wrong)[0])
    raise DataError(
        f"{where}: W column {name!r} must be {wanted}, but it holds {values[i]:g} at row "
        f"{rows.at[i]}, unit {history.units[rows.unit[i]]!r}, step {rows.time[i]}; correct it, or "
        "choose another kind."
    )


# The law as a Pyro model.


def sample_predictor(x: Any, p: int, response: Response, prefix: str = "") -> Any:
    """Sample intercept (q,) and slope (p, q) and return eta, (..., n, q), at x (n, p)."""
    import pyro
    import pyro.distributions as dist
    import torch

    q = response.predictors
    level, together = response.scales
    each = torch.full((p, q), together / math.sqrt(max(p, 1)))
    slope = pyro.sample(f"{prefix}slope", dist.Normal(0.0, each).to_event(2))
    # draws stand left of the rows: (m, 1, p, q)
    eta = x @ (slope.squeeze(-3) if slope.dim() > 2 else slope)
    if response.intercept:
        wide = torch.full((q,), level)
        eta = eta + pyro.sample(f"{prefix}intercept", dist.Normal(0.0, wide).to_event(1))
    return eta


def sample_own(response: Response, prefix: str = "") -> dict[str, Any]:
    """Sample the sites a kind has beside its predictor, in Pyro."""
    import pyro

    return {name: pyro.sample(f"{prefix}{name}", law) for name, law in response.priors().items()}


def generalised_model(p: int, response: Response) -> Callable[..., None]:
    """Return model(x, w=None) for standardised x (n, p) and w (n, w_dim) in codes."""

    def model(x: Any, w: Any = None) -> None:
        import pyro

        eta = sample_predictor(x, p, response)
        own = sample_own(response)
        with pyro.plate("rows", x.shape[-2], dim=-1):
            pyro.sample("w", response.distribution(eta, own), obs=w)

    return model


def generalised_lags(summary: int | Summary, kind: ResponseKind | None = None) -> Law:
    """Return a law of one W column that is no plain number, by lags of S (or another summary).

    Parameters
    ----------
    summary : number of lags, the current S_t included, or a summary.
    kind : how W is distributed; None, the default, as its column is declared (binary: bernoulli,
        ordinal, categorical, count: negative_binomial).

    With x (n, p) standardised, W in its own units, and eta = intercept + x'slope:

    - "bernoulli" : P(W = 1) = logistic(eta).
    - "ordinal" : P(W <= level k) = logistic(c_k - x'slope), c_k = logit(share_1 + ... + share_k);
      share, of the levels at average x, ~ Dirichlet(1, ..., 1). The mean is the sum of a level's
      number times its probability: numbers as declared, 0, 1, ... where levels are names.
    - "categorical" : P(level k) proportional to exp(eta_k), eta of the first level 0; Phi sees W as
      a 0/1 column for each level but the first, ``ad[video]``, and so w_dim = levels - 1.
    - "poisson" : mean exp(eta). "negative_binomial" : that mean mu, variance mu + overdispersion
      mu^2, overdispersion ~ Exponential(1). The exponent is held at 30.
    - "beta" : W between 0 and 1, mean logistic(eta), variance mu (1 - mu) / (1 + precision),
      precision ~ LogNormal(2, 1.5).

    Priors: intercept ~ Normal(0, 2.5^2), slope_j ~ Normal(0, 2.5^2 / p); for counts 5^2 and 1 / p:
    x'slope does not vary more, a priori, because more lags are looked at. Laplace by default, Nuts
    and Svi fit the same model.

    W of finitely many values (bernoulli, ordinal, categorical): E[Phi] is the exact sum over them
    given the posterior draws, for any Phi, also one that is not affine in w.

    Inputs that are NaN at prediction time are averaged over given the seen ones, as if all were
    jointly Gaussian. Not covered: a link other than these; slopes that differ by level (ordinal);
    more zeros than the law has; within a unit, residuals that depend on each other. Several W
    columns: ``laws.mixed_lags``.

    Examples
    --------
    >>> import numpy as np
    >>> import pulse_pyro as pp
    >>> rng = pp.stream(0, "archive")
    >>> s = rng.standard_normal((30, 20, 1))
    >>> w = (rng.random(s.shape) < 1 / (1 + np.exp(-s))).astype(float)
    >>> law = generalised_lags(1, "bernoulli").fit(pp.History.from_arrays(s, w), seed=0)
    >>> phi = pp.Features(lambda s, w, a: a * np.exp(w), actions=2, names=("exp(w)*a",))
    >>> law(s[:1]).expect(phi, size=2, rng=rng).exact  # not affine in w: summed over 0 and 1
    True
    """
    if kind is not None:
        check_kind(kind, "generalised_lags")
    seen = as_summary(summary, "generalised_lags")
    return Law(None, seen, "generalised_lags", family=GeneralisedFamily(kind))


def in_codes(
    kind: ResponseKind | None, data: FitData, history: History, where: str
) -> tuple[FitData, Response]:
    """Return the rows with the one W column in codes, in its own units, and its response."""
    columns = history.schema.w_columns
    if len(columns) != 1:
        raise DataError(
            f"{where}: it is a law of one W column, but the archive has "
            f"{[column.name for column in columns]}; use laws.mixed_lags."
        )
    rows, w_dim = data.rows, data.w_dim
    response = response_of(kind, columns[0], rows.w, rows, history, where)
    units = replace(data.scaler, w_mean=np.zeros(w_dim), w_scale=np.ones(w_dim))
    coded = replace(rows, w=response.encode(rows.w))
    return replace(data, rows=coded, scaler=units), response


def response_spec(response: Response) -> dict[str, Any]:
    """Plain values that rebuild a response."""
    made: dict[type, str] = {
        Number: "normal",
        Bernoulli: "bernoulli",
        Ordinal: "ordinal",
        Categories: "categorical",
        Poisson: "poisson",
        NegativeBinomial: "negative_binomial",
        Beta: "beta",
    }
    kind = made[type(response)]
    levels: Any = None
    if isinstance(response, Ordinal):
        levels = list(response.numbers)
    elif isinstance(response, Categories):
        levels = response.levels
    return {"kind": kind, "levels": levels}


def response_from(spec: Mapping[str, Any]) -> Response:
    """Rebuild a response from :func:`response_spec`."""
    kind, levels = spec["kind"], spec["levels"]
    if kind == "ordinal":
        return Ordinal(tuple(float(v) for v in levels))
    if kind == "categorical":
        return Categories(int(levels))
    plain: dict[str, Callable[[], Response]] = {
        "normal": Number,
        "bernoulli": Bernoulli,
        "poisson": Poisson,
        "negative_binomial": NegativeBinomial,
        "beta": Beta,
    }
    return plain[kind]()


@dataclass(frozen=True)
class GeneralisedFamily:
    """What the generalised linear law knows beyond its Pyro model; w is not standardised."""

    engines: ClassVar[tuple[type[Inference], ...]] = (Laplace, Nuts, Svi)
    engine_reason: ClassVar[str] = "its posterior has no closed form, and no networks to train"
    linear: ClassVar[bool] = False
    uses_holes: ClassVar[bool] = False
    unseen: ClassVar[Unseen] = "conditioned on"
    dims: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "intercept": ("output",),
        "slope": ("input", "output"),
        "share": ("level",),
    }
    kind: ResponseKind | None
    response: Response | None = None

    def spec(self) -> dict[str, Any]:
        """Plain values that rebuild the law."""
        settled = None if self.response is None else response_spec(self.response)
        return {"family": "generalised_lags", "kind": self.kind, "response": settled}

    @staticmethod
    def from_spec(spec: Mapping[str, Any]) -> GeneralisedFamily:
        """Rebuild from :meth:`spec`."""
        settled = spec["response"]
        return GeneralisedFamily(spec["kind"], None if settled is None else response_from(settled))

    def settle(self, data: FitData, history: History) -> tuple[FitData, GeneralisedFamily]:
        """Leave W in its own units, as codes, and settle its kind and levels."""
        coded, response = in_codes(self.kind, data, history, "generalised_lags")
        return coded, replace(self, response=response)

    def resolve(self, data: FitData) -> GeneralisedFamily:
        """Nothing more depends on the data: see :meth:`settle`."""
        return self

    @property
    def settled(self) -> Response:
        """The kind of W, once it is known."""
        if self.response is None:
            raise ModelError("generalised_lags: its kind is known only once it has met data.")
        return self.response

    def model(self, p: int, w_dim: int) -> Callable[..., Any]:
        """Return the Pyro model."""
        return generalised_model(p, self.settled)

    def fit(self, data: FitData, how: Inference, seed: int) -> tuple[ModelCard | None, Fit]:
        """Run the engine; a level that never occurs is counted among the figures of quality."""
        model = self.model(data.x.shape[1], data.w_dim)
        card, fit = run_model(model, data, how, seed, label="generalised_lags")
        return card, with_unseen(fit, never_seen(self.settled, data.w))

    def kernel(self, draws: Mapping[str, Float]) -> GeneralisedKernel | FiniteKernel:
        """NumPy prediction."""
        response = self.settled
        own = {k: v for k, v in draws.items() if k not in ("slope", "intercept")}
        return linked_kernel(response, Line(draws["slope"], draws.get("intercept")), own)


def linked_kernel(
    response: Response, predictor: Predictor, own: Own
) -> GeneralisedKernel | FiniteKernel:
    """Return the NumPy form of prediction through a link."""
    finite = isinstance(response, FewValues)
    return (FiniteKernel if finite else GeneralisedKernel)(response, predictor, own)


def never_seen(response: Response, codes: Float2) -> int:
    """Count the values of a finite support that never occur; codes : (n, w_dim)."""
    if response.support is None:
        return 0
    cells = len(response.support)
    if isinstance(response, Ordinal | Bernoulli):
        return cells - len(np.unique(codes))
    return int((codes.sum(0) == 0).sum() + (codes.sum(1) > 0).all())


class Predictor(Protocol):
    """What stands behind a link: eta at rows, from stored draws."""

    count: int
    columns: int  # values in flight for each row that is asked for

    def __call__(self, x: Float2 | Float3, index: Int | None) -> Float3:
        """Return eta, (len(index), n, q), at x (n, p) or (len(index), n, p); None: all draws."""


class Line:
    """eta = intercept + x'slope, from slope (m, p, q) and intercept (m, q)."""

    def __init__(self, slope: Float3, intercept: Float2 | None = None) -> None:
        self.count, self.columns, q = slope.shape
        self.slope = slope
        self.intercept = np.zeros((self.count, 1, q)) if intercept is None else intercept[:, None]
        # one product for all draws: a thousand small ones take ten times as long
        self._flat = np.ascontiguousarray(np.moveaxis(slope, 1, 0).reshape(self.columns, -1))

    def __call__(self, x: Float2 | Float3, index: Int | None) -> Float3:
        """Return eta, (len(index), n, q)."""
        if index is None:
            each = (x @ self._flat).reshape(-1, *self.intercept.shape[::2])
            out: Float3 = self.intercept + each.swapaxes(0, 1)
            return out
        eta: Float3 = self.intercept[index] + x @ self.slope[index]
        return eta


class GeneralisedKernel:
    """Prediction through a link, from draws of a predictor and a kind's own sites.

    Beside what every kernel has: ``cdf_draws`` and ``variance_draws``, closed form given a draw.
    """

    exact_mean = True

    def __init__(self, response: Response, predictor: Predictor, own: Own) -> None:
        self.response, self.predictor, self.count = response, predictor, predictor.count
        self.own = response.prepare(own)
        cells = 1 if response.support is None else len(response.support)
        self.columns = max(predictor.columns, cells)

    def _at(self, x: Float2 | Float3, index: Int | None) -> tuple[Float3, Own]:
        """Return eta, (len(index), n, q), and a kind's own sites at these draws; None: at all."""
        if index is None:
            return self.predictor(x, None), self.own
        return self.predictor(x, index), {name: value[index] for name, value in self.own.items()}

    def over_rows(self, x: Float2, average: Callable[[Float2], Float2]) -> Float2:
        """Return averages over all draws, (n, ...), for rows x (n, p), a block at a time."""
        block = max(CHUNK // (self.count * self.columns), 1)
        if len(x) <= block:
            return average(x)
        return np.concatenate([average(x[i : i + block]) for i in range(0, len(x), block)])

    def mean(self, x: Float2) -> Float2:
        """Return E[w | x], (n, w_dim), the average over all draws."""
        return self.over_rows(x, lambda rows: self.response.mean(*self._at(rows, None)).mean(0))

    def mean_draws(self, x: Float2, index: Int) -> Float3:
        """Return E[w | x, draw], (len(index), n, w_dim)."""
        return self.response.mean(*self._at(x, index))

    def variance_draws(self, x: Float2, index: Int) -> Float4:
        """Return Cov(w | x, draw), (len(index), n, w_dim, w_dim)."""
        return self.response.variance(*self._at(x, index))

    def sample(self, x: Float2 | Float3, index: Int, rng: np.random.Generator) -> Float3:
        """Draw w at x (n, p), or (len(index), n, p), once per entry of ``index``."""
        eta, own = self._at(x, index)
        lost = np.isnan(eta).any(-1, keepdims=True)  # of which nothing can be drawn
        return np.where(lost, np.nan, self.response.sample(np.where(lost, 0.0, eta), own, rng))

    def log_density(self, x: Float2, w: Float2, index: Int) -> Float2:
        """Return log p(w | x, draw), (len(index), n)."""
        return self.response.log_density(*self._at(x, index), w)

    def column_log_density(self, x: Float2, w: Float2, index: Int) -> Float3:
        """Return log p(w_j | x, draw), (len(index), n, w_dim)."""
        return self.response.column_log_density(*self._at(x, index), w)

    def cdf_draws(self, x: Float2, w: Float2, index: Int) -> Float3:
        """Return P(w_j <= w | x, draw), (len(index), n, w_dim)."""
        return self.response.cdf(*self._at(x, index), w)


class FiniteKernel(GeneralisedKernel):
    """The same for W of finitely many values: their probabilities say everything."""

    response: FewValues  # type: ignore[assignment]

    @property
    def support(self) -> Float2:
        """The values w can take, (cells, w_dim)."""
        return self.response.support

    def probabilities(self, x: Float2) -> Float2:
        """Return P(w = cell | x), (n, cells), the average over all draws."""
        return self.over_rows(
            x, lambda rows: self.response.probabilities(*self._at(rows, None)).mean(0)
        )

    def mean(self, x: Float2) -> Float2:
        """Return the sum of value times probability, (n, w_dim)."""
        out: Float2 = self.probabilities(x) @ self.support
        return out
