"""A law with a state that moves from row to row: prior(), first(p) and step(p, z, s_past)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from pulse_pyro._core.arrays import Float, Float1, Float2, Float3, Int, whole
from pulse_pyro._core.errors import (
    BundleError,
    ConvergenceError,
    DataError,
    SettingError,
)
from pulse_pyro._core.packed import Packed, pack_value, unpack_value
from pulse_pyro._core.progress import bar
from pulse_pyro._core.seeds import stream, torch_seed
from pulse_pyro._pyro.inference import Inference, Laplace, Nuts, Svi, choose_engine
from pulse_pyro.base import Expectation, FeatureMap, Schema, Site
from pulse_pyro.data.history import History, Source, series_of
from pulse_pyro.data.summary import Lags
from pulse_pyro.features import expectation
from pulse_pyro.laws.fitted import FitRecord, by_action, chosen, w_beside

if TYPE_CHECKING:
    from pandas import DataFrame

    from pulse_pyro._pyro.filters import Answer, Blocked, Filter, StateBelief
    from pulse_pyro._pyro.program import Program, StepCard

State = Literal["auto", "discrete", "gaussian", "particles"]
STATES: tuple[State, ...] = ("auto", "discrete", "gaussian", "particles")
LOG_2PI = float(np.log(2.0 * np.pi))
CHUNK = 2**21  # values in flight
KEPT = 64  # particles a draw keeps of each row of an archive
SHARES = 1000  # draws behind a distribution function, or covariance, without a closed form
COUNTS = 20_000  # largest count whose distribution function is summed up


@contextmanager
def _quiet(seed: int | None = None, *names: str | int) -> Iterator[None]:
    """Run a checked program: float64, no gradients, no validation, and its own random numbers.

    Nothing is left behind. It is entered at every step online, so it does without what only a fit
    needs; torch.manual_seed alone takes longer than a step.
    """
    import torch
    from pyro.distributions import enable_validation, is_validation_enabled

    dtype, validated = torch.get_default_dtype(), is_validation_enabled()
    before = None if seed is None else torch.default_generator.get_state()
    try:
        torch.set_default_dtype(torch.float64)
        enable_validation(False)
        if seed is not None:
            torch.default_generator.manual_seed(torch_seed(seed, *names))
        with torch.no_grad():
            yield
    finally:
        if before is not None:
            torch.default_generator.set_state(before)
        enable_validation(validated)
        torch.set_default_dtype(dtype)


class SimulatedSteps(NamedTuple):
    """truth : global site -> (draw, *site). s, w : (draw, units, time, columns)."""

    truth: dict[str, Float]
    s: Float
    w: Float


@dataclass(frozen=True)
class StepLaw:
    """A program with a state z_t: z_t given z_{t-1} and S, then columns of S and W given z_t.

    Attributes
    ----------
    prior : prior() samples the global sites and returns p, in any form. Vectors end with
        .to_event(1), so that no site has a batch shape.
    first : first(p) samples "z", the state before the first row, with any event shape.
    step : step(p, z, s_past) samples the next "z", then, if it likes, columns of S, and every
        column of W, by their names, each without an event axis. s_past (..., memory, s_dim) holds
        S of the last rows, the newest last, NaN before the start and wherever S is not seen. The
        newest value of a column that the step samples is hidden (NaN): the step says what it is.
    memory : rows in s_past.
    state : how the state is handled. "auto": the forward algorithm where "z" has finitely many
        values; a Kalman filter where it is linear and Gaussian, as far as probes can tell (see
        ``why_not_gaussian``); particles otherwise. Or say which.
    particles : of each posterior draw, where there is no exact filter.
    draws : posterior draws, evenly spaced, that predictions are mixed over.
    name : for messages and reports.

    All tensors broadcast: p holds (draw, 1, 1, *site), z is (draw, series, particle, *event), and
    s_past[..., -1, j] is (series, 1). So (x * b).sum(-1) for x @ b, Vindex(level)[..., z] for
    level[z]. Columns depend on the new z and s_past alone: what they share belongs into z.

    What is guaranteed: with an exact filter the fit's likelihood and, given the stored draws,
    E[W_t | S_1:t] are exact. NOT covered: the parameters are those of the archive, a new series
    does not teach them; without an exact filter fit and prediction carry Monte Carlo error, and
    Svi, which then has a site for every state, calls the posterior too narrow; an unseen S that
    the step does not sample leaves the row without an answer, and loses the state if z needs it.

    Examples
    --------
    >>> import pyro, pyro.distributions as dist
    >>> import pulse_pyro as pp
    >>> def prior():
    ...     return {"keep": pyro.sample("keep", dist.Beta(8.0, 2.0)),
    ...             "sd": pyro.sample("sd", dist.LogNormal(-1.0, 0.5))}
    >>> def first(p):
    ...     pyro.sample("z", dist.Normal(0.0, 1.0))
    >>> def step(p, z, s_past):
    ...     z = pyro.sample("z", dist.Normal(p["keep"] * z, 0.5))
    ...     pyro.sample("pulse", dist.Normal(z, 1.0))  # seen online, now and then
    ...     pyro.sample("stress", dist.Normal(z, p["sd"]))  # W
    >>> s = pp.stream(0, "s").standard_normal((4, 12, 1))
    >>> archive = pp.History.from_arrays(s, s, s_names=["pulse"], w_names=["stress"])
    >>> law = pp.StepLaw(prior, first, step, name="drift").fit(archive, seed=0)
    >>> law.card.state, law.follow().push([1.0]).mean().shape
    ('gaussian', (1, 1))
    """

    engines: ClassVar[tuple[type[Inference], ...]] = (Laplace, Nuts, Svi)
    prior: Callable[[], Any]
    first: Callable[[Any], Any]
    step: Callable[[Any, Any, Any], Any]
    memory: int = 1
    state: State = "auto"
    particles: int = 500
    draws: int = 50
    name: str = ""

    def __post_init__(self) -> None:
        for role in ("prior", "first", "step"):
            if not callable(getattr(self, role)):
                raise SettingError(
                    f"StepLaw: {role} must be a function, but got {getattr(self, role)!r}; "
                    "StepLaw(prior, first, step)."
                )
        if self.state not in STATES:
            raise SettingError(f"StepLaw: state must be one of {STATES}, but got {self.state!r}.")
        whole(self.memory, "StepLaw: memory", 1)
        whole(self.particles, "StepLaw: particles", 2)
        whole(self.draws, "StepLaw: draws", 1)

    @property
    def label(self) -> str:
        """The name, or "step law"."""
        return self.name or "step law"

    @property
    def summary(self) -> Lags:
        """The rows of S that one step looks at; the state remembers those before."""
        return Lags(self.memory)

    def program(self, schema: Schema) -> Program:
        """Return the three functions with the columns of an archive."""
        from pulse_pyro._pyro.program import Program

        names = (schema.s_names, schema.w_names)
        return Program(self.prior, self.first, self.step, *names, self.memory, self.label)

    def check(self, history: History) -> StepCard:
        """Run the program on a few rows and say how it is filtered, or which rule it breaks."""
        return self._checked(history)[1]

    def _checked(self, history: History) -> tuple[Program, StepCard]:
        from pulse_pyro._pyro.program import check_program

        if not isinstance(history, History):
            raise DataError(
                f"{self.label}: a History was expected, but got {type(history).__name__}; make one "
                "with History.from_frame, and pass one part of a split."
            )
        longest = history.unit(int(history.lengths.argmax()))
        time = max(self.memory + 1, len(longest.s))
        s = np.resize(longest.s, (1, time, longest.s.shape[1]))
        return check_program(self.program(history.schema), s, self.state)

    def simulate(self, history: History, draws: int, *, seed: int) -> SimulatedSteps:
        """Run the program from its prior along the S of the archive, ``draws`` times.

        Returns the parameters, and archives whose W, and whose S where the step samples it, are
        the program's own, (draw, units, time, ...). S that the step does not sample stays as it is.
        """
        import torch

        from pulse_pyro._pyro.program import prior_draws

        program, card = self._checked(history)
        s, out = history.grid.s, []
        units, time = s.shape[:2]
        with _quiet(seed, "simulate"):
            found = prior_draws(program, [site.name for site in card.globals], draws)
            p = program.parameters(found)
            shape = (draws, units, 1)
            rows = np.broadcast_to(s, (draws, *s.shape)).copy()
            z = program.start(p, shape).value
            for t in range(time):
                begin = max(t + 1 - self.memory, 0)
                past = program.windows(rows[:, :, begin : t + 1])[:, :, -1]
                tensor = torch.as_tensor(past)[:, :, None]
                seen = program.run(p, z, tensor, shape=shape)
                z = seen.value
                laws = {n: fn.expand(torch.Size(shape)) for n, fn in seen.columns.items()}
                drawn = {n: fn.sample()[..., 0].double().numpy() for n, fn in laws.items()}
                for name, j in zip(program.sampled, program.sampled_at, strict=True):
                    rows[:, :, t, j] = drawn[name]
                out.append(np.stack([drawn[name] for name in program.w_names], -1))
        truth = {name: value.numpy() for name, value in found.items()}
        return SimulatedSteps(truth, rows, np.stack(out, axis=2))

    def fit(
        self,
        history: History,
        how: Inference | None = None,
        *,
        seed: int,
        warm: FittedStepLaw | None = None,
    ) -> FittedStepLaw:
        """Fit on an archive: all its rows, what is NaN in W or in a sampled S being left out.

        Parameters
        ----------
        history : the archive; steps without a row are steps at which nothing is seen.
        how : Laplace(), Nuts() or Svi() of the global sites, the states being summed or integrated
            out; Laplace by default. Without an exact filter every state is a site: Svi by default,
            or Nuts for small archives.
        seed : two fits with one seed agree to the last bit on one machine.
        warm : an earlier fit to start the search from.
        """
        from pulse_pyro._pyro.engines import Problem, run_engine
        from pulse_pyro._pyro.filters import archive_model

        if isinstance(history, History):
            empty = np.isnan(history.w).all(0)
            if empty.any():
                name = history.w_names[int(empty.argmax())]
                raise DataError(f"{self.label}: W column {name!r} is never recorded; leave it out.")
        program, card = self._checked(history)
        engines = self.engines if card.state != "particles" else (Svi, Nuts)
        reason = "" if card.state != "particles" else f"every state is a site, since {card.why}"
        engine = choose_engine(how, engines, self.label, reason)
        assert isinstance(engine, Laplace | Nuts | Svi)
        blocks, left_out = _blocks(program, card, history)
        names = [site.name for site in card.globals]
        model = archive_model(program, names, card.state, blocks)
        start = None if warm is None else {name: v.mean(0) for name, v in warm.draws.items()}
        problem = Problem(model, (), replace(card, sites=card.globals), self.label, start=start)
        fit = run_engine(problem, engine, seed)
        broken = [name for name, value in fit.draws.items() if not np.isfinite(value).all()]
        if broken:
            raise ConvergenceError(
                f"{self.label}: draws of site {broken[0]!r} are not finite after {engine!r}; "
                "tighten the priors or try another engine."
            )
        record = FitRecord(
            inference=repr(engine),
            seed=int(seed),
            rows=len(history.s),
            dropped=left_out,
            quality=fit.quality,
            losses=tuple(map(float, fit.losses)),
            chains=fit.chains,
            diverging=fit.diverging,
            sampler={k: tuple(map(float, v)) for k, v in fit.sampler.items()},
        )
        return FittedStepLaw(self, fit.draws, card, record, history.clusters, history.schema)


def _blocks(program: Program, card: StepCard, history: History) -> tuple[list[Blocked], int]:
    """Return an archive's rows ready for gradients, and how many values of W do not count."""
    import torch

    from pulse_pyro._pyro.filters import StepRows, ready
    from pulse_pyro._pyro.program import prior_draws

    out, left_out = [], 0
    with _quiet(0, "rows"):
        names = [site.name for site in card.globals]
        p = program.parameters(prior_draws(program, names, 1))
        for block in history.blocks():
            y = np.concatenate([block.s[..., program.sampled_at], block.w], axis=-1)
            rows = StepRows(torch.as_tensor(program.windows(block.s)), torch.as_tensor(y))
            out.append(ready(program, p, rows, [history.units[i] for i in block.unit]))
            counts = out[-1].seen[..., len(program.sampled) :].all(-1).numpy()
            left_out += int((~counts & block.seen).sum())
    return out, left_out


# The law of W at rows.


class FlatSteps(NamedTuple):
    """Flat programs, None where there is none: see ``flat_program``.

    step : (first, second, past (1, 1, memory, s_dim), y (1, 1, columns)) -> what is known then;
    means : (first, second, past (1, memory, s_dim)) -> (draw, 1, w_dim).
    """

    step: Callable[..., Any] | None
    means: Callable[..., Any] | None


class StepConditional:
    """p^(W | S_1:t) at n rows: a mixture over posterior draws and over what is known of the state.

    belief : of the state at the rows. past : (n, memory, s_dim). s : (n, s_dim). means : (draw, n,
    w_dim), where they are known better than from ``belief``, which may hold fewer particles.
    """

    def __init__(
        self,
        law: FittedStepLaw,
        belief: StateBelief,
        past: Float3,
        s: Float2,
        means: Float3 | None = None,
    ) -> None:
        self.law, self.s = law, s
        self._belief, self._past, self._means = belief, past, means

    @property
    def exact(self) -> bool:
        """Whether the mean is closed form given the stored draws."""
        return self.law.card.closed_mean and self.law.card.state != "particles"

    def mean(self) -> Float2:
        """Return E[W | S_1:t], (n, w_dim); NaN where an S that W needs is not seen."""
        out: Float2 = self._draw_means.mean(0)
        return out

    @cached_property
    def _draw_means(self) -> Float3:
        """(draw, n, w_dim) E[W | S_1:t, draw]."""
        if self._means is not None:
            return self._means
        if len(self.s) == 1 and self.law.flat.means is not None:
            import torch

            found: Float3 = self.law.flat.means(*self._belief, torch.tensor(self._past)).numpy()
            return found
        return self._each(_means)

    def mean_draws(self, size: int, *, rng: np.random.Generator) -> Float3:
        """Return posterior draws of E[W | S_1:t], (size, n, w_dim)."""
        out: Float3 = self._draw_means[self.law.pick(size, rng)]
        return out

    def draws(self, size: int, *, rng: np.random.Generator) -> Float3:
        """Draw W, (size, n, w_dim): each draw uses one posterior draw, and one state a row."""
        index = self.law.pick(size, rng)
        seed, block = int(rng.integers(2**62)), max(CHUNK // (len(index) * self._cells), 1)
        parts = []
        with _quiet(seed, "draws"):
            chosen_filter = self.law.filter_at(index)
            for start in range(0, len(self.s), block):
                belief, past = self._rows(slice(start, start + block), index)
                parts.append(_sampled(chosen_filter, belief, past))
        return np.concatenate(parts, axis=1) if parts else np.empty((size, 0, self._w_dim))

    def expect(self, features: FeatureMap, *, size: int, rng: np.random.Generator) -> Expectation:
        """Return E[Phi((S_t, W), a) | S_1:t], mean and mcse (n, action, d)."""
        return expectation(self, features, self.s, size=size, rng=rng)

    def covariance(self) -> Float3:
        """Return Cov(W | S_1:t), (n, w_dim, w_dim): noise, state and posterior together.

        Where a distribution does not know its variance: of 1,000 draws, the same ones every time.
        """
        try:
            within = self._each(_covariances).mean(0)
        except NotImplementedError:
            drawn = self.draws(SHARES, rng=stream(0, "covariance"))
            away = drawn - drawn.mean(0)
            return np.asarray(np.einsum("mni,mnj->nij", away, away) / (len(drawn) - 1))
        away = self._draw_means - self._draw_means.mean(0)
        return np.asarray(within + np.einsum("mni,mnj->nij", away, away) / len(away))

    def cdf(self, w: Float2) -> Float2:
        """Return P(W_j <= w_j | S_1:t), (n, w_dim); NaN where w is.

        Closed form given draws and states for distributions with a distribution function, a finite
        support, or counts; for others the share of 1,000 draws, the same ones every time.
        """
        w = self._beside(w)
        try:
            out: Float2 = self._each(_cdfs, w).mean(0)
        except NotImplementedError:
            drawn = self.draws(SHARES, rng=stream(0, "cdf"))
            out = np.where(np.isnan(drawn[0]), np.nan, (drawn <= w).mean(0))
        return np.where(np.isnan(w), np.nan, out)

    def log_density(self, w: Float2) -> Float2:
        """Return log p^(W_j = w_j | S_1:t), (n, w_dim), column by column; NaN where w is."""
        each = self._each(_log_densities, self._beside(w))
        out: Float2 = special.logsumexp(each, axis=0) - np.log(len(each))
        return out

    def joint_log_density(self, w: Float2) -> Float1:
        """Return log p^(W = w | S_1:t), (n,), all columns together; NaN where one of w is."""
        each = self._each(_joint_log_densities, self._beside(w))
        out: Float1 = special.logsumexp(each, axis=0) - np.log(len(each))
        return out

    @property
    def effective_size(self) -> float:
        """Particles that count, the least of any row and draw; infinite with an exact filter."""
        if self.law.card.state != "particles":
            return float("inf")
        from pulse_pyro._pyro.filters import effective

        return float(effective(self._belief.second).min())

    @property
    def _w_dim(self) -> int:
        return len(self.law.schema.w_names)

    @property
    def _cells(self) -> int:
        """Values a draw has in flight at a row."""
        shape = (
            self._belief.first.shape
            if self.law.card.state != "particles"
            else (self._belief.second.shape)
        )
        return int(shape[-1]) ** (2 if self.law.card.state == "gaussian" else 1) * self._w_dim

    def _beside(self, w: ArrayLike) -> Float2:
        return w_beside(w, (len(self.s), self._w_dim), self.law.law.label)

    def _rows(self, at: slice, index: Int | None = None) -> tuple[StateBelief, Any]:
        """Return what is known at some rows, of some draws, and their past as tensors."""
        import torch

        def part(values: Any) -> Any:
            if values.ndim < 2:
                return values
            return values[:, at] if index is None else values[:, at][torch.as_tensor(index)]

        belief = type(self._belief)(*(part(values) for values in self._belief))
        return belief, torch.as_tensor(self._past[at])

    def _each(self, ask: Callable[..., Any], w: Float2 | None = None) -> Float:
        """Ask the law of W block of rows by block, (draw, n, ...)."""
        import torch

        block = max(CHUNK // (self.law.mixed.size * self._cells), 1)
        parts = []
        with _quiet():
            for start in range(0, max(len(self.s), 1), block):
                at = slice(start, start + block)
                belief, past = self._rows(at)
                given = () if w is None else (torch.tensor(w[at]),)
                answer = self.law.filter.answer(belief, past)
                parts.append(ask(answer, *given).numpy())
        return np.concatenate(parts, axis=1)


# What an answer of a filter says, draw by draw, in torch.


def _mix(answer: Answer, values: list[Any]) -> Any:
    """Average values of each column over the cells: (draw, rows, w_dim)."""
    import torch

    assert answer.log_weight is not None
    weight = torch.exp(answer.log_weight)
    return torch.stack([(weight * value).sum(-1) for value in values], dim=-1)


def _mean_of(fn: Any) -> Any:
    """Return a distribution's mean, of one without a closed form by 64 draws."""
    import torch

    from pulse_pyro._pyro.predict import has_mean

    if has_mean(fn) or torch.isnan(getattr(fn, "mean", torch.zeros(()))).any():
        return fn.mean
    return torch.stack([fn.sample() for _ in range(64)]).double().mean(0)


def _means(answer: Answer) -> Any:
    if answer.mean is not None:
        return answer.mean
    return _mix(answer, [_mean_of(fn) for fn in answer.columns])


def _alike(values: Iterable[Any]) -> list[Any]:
    """Return tensors broadcast to one shape."""
    every = list(values)
    shape = np.broadcast_shapes(*(tuple(value.shape) for value in every))
    return [value.expand(shape) for value in every]


def _covariances(answer: Answer) -> Any:
    import torch

    if answer.cov is not None:
        return answer.cov
    assert answer.log_weight is not None
    weight = torch.exp(answer.log_weight)
    means = torch.stack(_alike(_mean_of(fn) for fn in answer.columns), -1)
    spread = torch.stack(_alike(fn.variance for fn in answer.columns), -1)
    centre = (weight[..., None] * means).sum(-2, keepdim=True)
    away = means - centre
    between = torch.einsum(
        "...c,...ci,...cj->...ij",
        weight,
        away.expand(*weight.shape, -1),
        away.expand(*weight.shape, -1),
    )
    return between + torch.diag_embed((weight[..., None] * spread).sum(-2))


def _cdf_of(fn: Any, w: Any) -> Any:
    """Return P(W <= w) of one column's distributions (draw, rows, cell), w (rows, 1)."""
    import torch

    base = fn
    while type(base).__name__ == "ExpandedDistribution":
        base = base.base_dist
    known = torch.nan_to_num(w)
    if type(base).__name__ == "StudentT":
        away = (known - base.loc) / base.scale
        df, away = _alike((base.df, away))
        return torch.as_tensor(special.stdtr(df.numpy(), away.numpy()))
    if not fn.support.is_discrete:
        return fn.cdf(known)
    if getattr(fn, "has_enumerate_support", False):
        levels = fn.enumerate_support(expand=False).reshape(-1).double()
    elif float(known.max()) <= COUNTS and hasattr(fn.support, "lower_bound"):
        levels = torch.arange(float(fn.support.lower_bound), float(known.max()) + 1.0)
    else:
        raise NotImplementedError
    total = torch.zeros(())
    for level in levels:
        total = total + torch.where(known >= level, torch.exp(fn.log_prob(level)), torch.zeros(()))
    return total


def _cdfs(answer: Answer, w: Any) -> Any:
    import torch

    if answer.mean is not None and answer.cov is not None:
        sd = torch.sqrt(torch.diagonal(answer.cov, dim1=-2, dim2=-1))
        return torch.special.ndtr((w - answer.mean) / sd)
    return _mix(answer, [_cdf_of(fn, w[:, j, None]) for j, fn in enumerate(answer.columns)])


def _log_densities(answer: Answer, w: Any) -> Any:
    import torch

    if answer.mean is not None and answer.cov is not None:
        variance = torch.diagonal(answer.cov, dim1=-2, dim2=-1)
        return -0.5 * ((w - answer.mean) ** 2 / variance + torch.log(variance) + LOG_2PI)
    assert answer.log_weight is not None
    return torch.stack(
        [
            torch.logsumexp(answer.log_weight + fn.log_prob(w[:, j, None]), -1)
            for j, fn in enumerate(answer.columns)
        ],
        dim=-1,
    )


def _joint_log_densities(answer: Answer, w: Any) -> Any:
    import torch

    if answer.mean is not None and answer.cov is not None:
        off = (w - answer.mean)[..., None]
        square = (off * torch.linalg.solve(answer.cov, off))[..., 0].sum(-1)
        return -0.5 * (square + torch.logdet(answer.cov) + w.shape[-1] * LOG_2PI)
    assert answer.log_weight is not None
    log = answer.log_weight
    for j, fn in enumerate(answer.columns):
        log = log + fn.log_prob(w[:, j, None])
    return torch.logsumexp(log, -1)


def _sampled(filters: Filter, belief: StateBelief, past: Any) -> Float3:
    """Draw a state for each draw and row, then W: (draw, rows, w_dim)."""
    import torch

    answer = filters.answer(belief, past)
    if answer.mean is not None and answer.cov is not None:
        root = torch.linalg.cholesky(answer.cov)
        noise = torch.randn(*answer.mean.shape, 1)
        return np.asarray((answer.mean + (root @ noise)[..., 0]).numpy())
    assert answer.log_weight is not None
    weight = torch.exp(torch.nan_to_num(answer.log_weight))
    cell = torch.multinomial(weight.reshape(-1, weight.shape[-1]), 1).reshape(*weight.shape[:2], 1)
    shape = weight.shape
    parts = [torch.gather(fn.expand(shape).sample(), -1, cell)[..., 0] for fn in answer.columns]
    return np.asarray(torch.stack(parts, -1).double().numpy())


# A fitted law, and one series as it unfolds.


@dataclass(frozen=True, eq=False)
class FittedStepLaw:
    """p^(W_t | S_1:t) of a program with a state, mixed over posterior draws.

    Attributes
    ----------
    law : the program. draws : global site -> (draw, *site shape).
    card : its sites, and how its state is filtered. record : engine, seed, quality.
    units, schema : what it was fitted on.

    ``law.draws`` of the draws, evenly spaced, are carried along every series, weighted alike: a
    series does not teach the parameters. The law is as good as its program.
    """

    law: StepLaw
    draws: Mapping[str, Float]
    card: StepCard
    record: FitRecord
    units: tuple[str, ...]
    schema: Schema

    def __post_init__(self) -> None:
        kept = {name: np.array(value, np.float64) for name, value in self.draws.items()}
        for value in kept.values():
            value.flags.writeable = False
        object.__setattr__(self, "draws", MappingProxyType(kept))

    @property
    def summary(self) -> Lags:
        """The rows of S that one step looks at; the state remembers those before."""
        return self.law.summary

    @cached_property
    def program(self) -> Program:
        """The functions, with what the check found."""
        shape = self.card.locals[0].event_shape
        return replace(self.law.program(self.schema), sampled=self.card.modelled, z_shape=shape)

    @cached_property
    def mixed(self) -> Int:
        """Numbers of the posterior draws that predictions are mixed over."""
        count = len(next(iter(self.draws.values())))
        return np.unique(np.linspace(0, count - 1, min(self.law.draws, count)).astype(np.int64))

    @cached_property
    def filter(self) -> Filter:
        """The filter at these draws."""
        with _quiet():
            return self.filter_at(np.arange(len(self.mixed)))

    @cached_property
    def flat(self) -> FlatSteps:
        """One step and one mean without Pyro, as they are asked for online."""
        import torch

        from pulse_pyro._pyro.compiled import flat_program
        from pulse_pyro._pyro.filters import StateBelief, StepRows

        if self.card.state == "particles":
            return FlatSteps(None, None)
        every, columns = np.arange(len(self.mixed)), self.program.sampled

        def met(first: Any, second: Any, past: Any, y: Any) -> Any:
            rows = StepRows(past, y)
            return tuple(self.filter_at(every).go(StateBelief(first, second), rows, columns)[0][0])

        def means(first: Any, second: Any, past: Any) -> Any:
            answer = self.filter_at(every).answer(StateBelief(first, second), past)
            if answer.mean is not None:
                return answer.mean
            return _mix(answer, [fn.mean for fn in answer.columns])

        with _quiet(0, "flat"):
            known = [value.clone() for value in self.filter.start(1)]
            shape = (1, 1, self.law.memory, len(self.schema.s_names))
            past = [torch.randn(shape) for _ in range(2)]
            y = [torch.randn(1, 1, len(columns)) for _ in range(2)]
            for each in past:
                each[..., -1, self.program.sampled_at] = torch.nan
            y[1][..., :1] = torch.nan  # not seen
            step = flat_program(met, (*known, past[0], y[0]), (*known, past[1], y[1]))
            if not self.card.closed_mean:
                return FlatSteps(step, None)
            one, two = ((*known, each[0]) for each in past)
            return FlatSteps(step, flat_program(means, one, two))

    def filter_at(self, index: Int) -> Filter:
        """Return the filter at some of the draws ``mixed``, by their places."""
        import torch

        from pulse_pyro._pyro.filters import make_filter

        picked = {n: torch.tensor(value[self.mixed[index]]) for n, value in self.draws.items()}
        p = self.program.parameters(picked)
        return make_filter(self.program, p, len(index), self.card.state, self.law.particles)

    @cached_property
    def id(self) -> str:
        """Fingerprint of the columns, the units and every draw; functions are not part of it."""
        about = (self.law.memory, self.card.state, self.schema.s_names, self.schema.w_names)
        digest = hashlib.sha256(repr((about, self.law.draws, self.law.particles)).encode())
        for name, value in sorted(self.draws.items()):
            digest.update(name.encode())
            digest.update(np.ascontiguousarray(value).tobytes())
        return digest.hexdigest()[:16]

    def randomness(self, *names: str | int) -> tuple[Any, ...]:
        """Return what seeds a filter's random numbers; nothing where it needs none."""
        return (self.record.seed, *names) if self.card.state == "particles" else ()

    def pick(self, size: int, rng: np.random.Generator) -> Int:
        """Choose among the draws ``mixed``: each equally often, in random order."""
        whole(size, f"{self.law.label}: the number of draws", 1)
        count = len(self.mixed)
        return np.concatenate([rng.permutation(count) for _ in range(-(-size // count))])[:size]

    def __call__(self, source: Source, at: ArrayLike | None = None) -> StepConditional:
        """Return the law of W at the rows of a History, or of s (batch, time[, action], s_dim).

        Each row is answered given all of S seen up to it; W of an archive is not looked at. at :
        which rows, True or False for each or their numbers; all by default.
        """
        source, at = by_action(source, at)
        if isinstance(source, History):
            self.schema.expect_s(source.schema, self.law.label, "the history has")
            rows, s = len(source.s), source.s
            blocks = [(block.s, block.row) for block in source.blocks()]
        else:
            series = series_of(source, self.schema.s_names, self.law.label)
            rows, s = series.shape[0] * series.shape[1], series.reshape(-1, series.shape[-1])
            blocks = [(series, np.arange(rows).reshape(series.shape[:2]))]
        wanted = np.arange(rows)[chosen(at, rows)]
        place = np.full(rows + 1, -1)
        place[np.unique(wanted)] = np.arange(len(np.unique(wanted)))
        found = _Gathered(self, len(np.unique(wanted)))
        for each, row in blocks:
            found.take_in(each, place[row])
        return found.conditional(s[wanted], place[wanted])

    def follow(self, unit: str | None = None) -> StepFollower:
        """Start to follow a series online, at the same cost at every step."""
        return StepFollower(self)

    @property
    def table(self) -> DataFrame:
        """Posterior mean and sd of every parameter."""
        import pandas as pd

        rows = {}
        for name, value in self.draws.items():
            for at in np.ndindex(value.shape[1:]):
                label = f"{name}[{', '.join(map(str, at))}]" if at else name
                rows[label] = (value[(slice(None), *at)].mean(), value[(slice(None), *at)].std())
        frame = pd.DataFrame.from_dict(rows, orient="index", columns=["mean", "sd"])
        return frame.rename_axis("parameter")

    def __repr__(self) -> str:
        quality = ", ".join(f"{k} {v:.3g}" for k, v in self.record.quality.items())
        shapes = ", ".join(f"{k}{list(v.shape[1:])}" for k, v in self.draws.items())
        return (
            f"FittedStepLaw {self.law.label}: {', '.join(self.schema.w_names)} given "
            f"{', '.join(self.schema.s_names)}, state {self.card.state}\n"
            f"  {self.record.inference}, seed {self.record.seed}: {self.record.rows} rows of "
            f"{len(self.units)} independent units or clusters, {self.record.dropped} without all "
            f"of W\n  {self.record.made(len(next(iter(self.draws.values()))))}: {shapes}; "
            f"{len(self.mixed)} of them are mixed over"
            + (f"\n  quality: {quality}" if quality else "")
        )


class _Gathered:
    """What is known of the state at the rows asked for, put together block by block."""

    def __init__(self, law: FittedStepLaw, count: int) -> None:
        self.law, self.count = law, count
        self.parts: list[Any] = [None, None]
        self.means: Any = None
        self.past = np.empty((count, law.law.memory, len(law.schema.s_names)))

    def take_in(self, s: Float3, place: Int) -> None:
        """Filter series s (series, time, s_dim); place : (series, time) of its rows, -1: unused."""
        import torch

        from pulse_pyro._pyro.filters import StepRows

        law, program = self.law, self.law.program
        past, y = program.windows(s), s[..., program.sampled_at]
        particles = law.card.state == "particles"
        cells = law.law.particles if particles else max(law.card.states, 4)
        width = max(CHUNK // (len(law.mixed) * cells * (1 if particles else s.shape[1])), 1)
        # up to the last row that is asked for: what comes later tells it nothing
        used = np.flatnonzero((place >= 0).any(0))
        last = int(used[-1]) + 1 if len(used) else 0
        for start in bar(range(0, len(s) if last else 0, width), label="series"):
            at = slice(start, start + width)
            rows = StepRows(torch.as_tensor(past[at, :last]), torch.as_tensor(y[at, :last]))
            with _quiet(law.record.seed, "filter", start):
                belief = law.filter.start(len(rows.y))
                for t, known in enumerate(self._beliefs(belief, rows)):
                    self._keep(known, place[at, t], past[at, t])

    def _beliefs(self, belief: StateBelief, rows: Any) -> Iterator[StateBelief]:
        """Yield what is known after each row; particles are kept for one row at a time."""
        program = self.law.program
        if self.law.card.state != "particles":
            yield from self.law.filter.go(belief, rows, program.sampled)[0]
            return
        for t in range(rows.y.shape[1]):
            one = type(rows)(rows.past[:, t : t + 1], rows.y[:, t : t + 1])
            belief = self.law.filter.go(belief, one, program.sampled)[0][0]
            yield belief

    def _keep(self, known: StateBelief, place: Int, past: Float3) -> None:
        import torch

        from pulse_pyro._pyro.filters import StateBelief, systematic

        at = np.flatnonzero(place >= 0)
        if not len(at):
            return
        to = place[at]
        self.past[to] = past[at]
        if self.law.card.state == "particles":
            known = StateBelief(known.first[:, at], known.second[:, at])
            answer = self.law.filter.answer(known, torch.as_tensor(past[at]))
            means = _means(answer)
            if self.means is None:
                self.means = np.empty((means.shape[0], self.count, means.shape[-1]))
            self.means[:, to] = means.numpy()
            if self.count > 1:
                index = systematic(known.second, KEPT)
                extra = known.first.dim() - 3
                wide = index.reshape(*index.shape, *(1,) * extra)
                wide = wide.expand(*index.shape, *known.first.shape[3:])
                known = StateBelief(torch.gather(known.first, 2, wide), torch.zeros(index.shape))
        else:
            known = StateBelief(*(v[:, at] if v.dim() > 1 else v for v in known))
        for k, values in enumerate(known):
            if values.dim() < 2:
                self.parts[k] = values
                continue
            if self.parts[k] is None:
                shape = (values.shape[0], self.count, *values.shape[2:])
                self.parts[k] = torch.empty(shape, dtype=values.dtype)
            self.parts[k][:, to] = values

    def conditional(self, s: Float2, place: Int) -> StepConditional:
        """Return the law of W at rows, by their places."""
        import torch

        from pulse_pyro._pyro.filters import StateBelief

        if self.parts[0] is None:  # no row is asked for
            with _quiet(0, "none"):
                self.parts = [v if v.dim() < 2 else v[:, :0] for v in self.law.filter.start(1)]
        index = torch.as_tensor(place)
        belief = StateBelief(*(v if v.dim() < 2 else v[:, index] for v in self.parts))
        means = None if self.means is None else self.means[:, place]
        return StepConditional(self.law, belief, self.past[place], s, means)


class StepFollower:
    """One series as it unfolds: what is known of its state, draw by draw."""

    def __init__(self, law: FittedStepLaw) -> None:
        self._law = law
        self._rows = np.full((law.law.memory, len(law.schema.s_names)), np.nan)
        self._count = 0
        with _quiet(law.record.seed, "follow"):
            self._belief = law.filter.start(1)
        self._shown: StateBelief | None = None

    @property
    def now(self) -> Float1:
        """The newest S_t."""
        row: Float1 = self._rows[-1]
        return row

    @property
    def conditional(self) -> StepConditional:
        """The law of W_t given all taken in before W_t itself; before any row, of the first."""
        shown = self._shown
        if shown is None:
            shown = self._met(np.full(self._rows.shape[1], np.nan), self._rows)
        return StepConditional(
            self._law, shown, self._window(self._rows)[None], self._rows[-1:].copy()
        )

    def push(self, s: Float1, w: Float1 | None = None) -> StepConditional:
        """Take in S_t, (s_dim,), and return the law of W_t given S_1:t and the W revealed so far.

        w : (w_dim,) W_t itself, NaN where it is not known, if it is revealed: it counts from the
        next row on.
        """
        import torch

        rows = np.concatenate([self._rows[1:], np.asarray(s, np.float64)[None]])
        shown = self._met(rows[-1], rows)
        self._rows, self._shown, self._belief = rows, shown, shown
        self._count += 1
        if w is not None:
            given = torch.tensor(np.asarray(w, np.float64))[None]
            past = torch.as_tensor(self._window(rows))[None]
            with _quiet():
                self._belief = self._law.filter.reveal(shown, past, given)
        return self.conditional

    def _met(self, s: Float1, rows: Float2) -> StateBelief:
        """Return what is known of the state once S_t has been met."""
        import torch

        from pulse_pyro._pyro.filters import StateBelief, StepRows

        law = self._law
        past = torch.as_tensor(self._window(rows))[None, None]
        y = torch.as_tensor(s[law.program.sampled_at])[None, None]
        if law.flat.step is not None:
            return StateBelief(*law.flat.step(*self._belief, past, y))
        with _quiet(*law.randomness("follow", self._count)):
            return law.filter.go(self._belief, StepRows(past, y), law.program.sampled)[0][0]

    def _window(self, rows: Float2) -> Float2:
        out = rows.copy()
        out[-1, self._law.program.sampled_at] = np.nan
        return out

    def inputs(self) -> Float1:
        """Return x_t: S of the last rows, the newest first."""
        return self._law.summary.last(self._rows)

    def state(self) -> dict[str, Float]:
        """Return all that has been taken in, as arrays."""
        shown = self._belief if self._shown is None else self._shown
        out = {"rows": self._rows.copy(), "count": np.array([float(self._count)])}
        for name, belief in (("known", self._belief), ("shown", shown)):
            out |= {f"{name}{k}": v.double().numpy().copy() for k, v in enumerate(belief)}
        return out

    def restore(self, state: Mapping[str, Float]) -> None:
        """Go on from where :meth:`state` was taken."""
        import torch

        def belief(name: str) -> StateBelief:
            return type(self._belief)(
                *(
                    torch.tensor(state[f"{name}{k}"]).to(now.dtype)
                    for k, now in enumerate(self._belief)
                )
            )

        known, shown = belief("known"), belief("shown")
        self._rows, self._count = np.array(state["rows"]), int(state["count"][0])
        self._belief, self._shown = known, shown if self._count else None


# To be saved: draws and what the check found; the functions are handed back in.


def pack_step_law(fitted: FittedStepLaw) -> Packed:
    """Write a fitted program's draws; its three functions are left to be handed back in."""
    from pulse_pyro._pyro.program import StepCard

    law = fitted.law
    manifest: dict[str, Any] = {
        "settings": {
            "memory": law.memory,
            "state": law.state,
            "particles": law.particles,
            "draws": law.draws,
            "name": law.name,
        },
        "units": list(fitted.units),
        "schema": fitted.schema.to_plain(),
        "law_id": fitted.id,
        "probe": _probe(fitted),
    }
    packed = Packed(manifest, {f"draw.{name}": value for name, value in fitted.draws.items()})
    return packed.holding(
        "fit", pack_value((fitted.record, fitted.card), (FitRecord, StepCard, Site))
    )


def unpack_step_law(packed: Packed, law: object = None) -> FittedStepLaw:
    """Make a fitted program anew; ``law`` : the StepLaw it was made with, or the fitted law."""
    from pulse_pyro._pyro.program import StepCard

    saved = packed.manifest
    if isinstance(law, FittedStepLaw):
        law = law.law
    if not isinstance(law, StepLaw):
        raise BundleError(
            "it holds a program with a state, whose functions are not stored; pass the StepLaw it "
            f"was made with: load(path, law=law), but got {type(law).__name__}."
        )
    settings = {name: getattr(law, name) for name in saved["settings"]}
    if settings != saved["settings"]:
        raise BundleError(
            f"it was made with {saved['settings']}, but the StepLaw passed has {settings}."
        )
    record, card = unpack_value(packed.part("fit"), tuple, (FitRecord, StepCard, Site))
    draws = {name[5:]: value for name, value in packed.arrays.items() if name.startswith("draw.")}
    schema = Schema.from_plain(saved["schema"])
    fitted = FittedStepLaw(law, draws, card, record, tuple(saved["units"]), schema)
    if fitted.id != saved["law_id"]:
        raise BundleError("it does not carry the law its manifest names.")
    try:
        same = np.allclose(_probe(fitted), saved["probe"], rtol=1e-6, equal_nan=True)
    except Exception as cause:  # whatever other functions do at these draws
        raise BundleError(
            f"the StepLaw passed does not run at the stored draws: {type(cause).__name__}: {cause}"
        ) from cause
    if not same:
        raise BundleError(
            f"{law.label} gives other answers than when it was saved; its functions have changed "
            "since."
        )
    return fitted


def _probe(fitted: FittedStepLaw) -> list[float]:
    """Answers at the rows of a made-up series, to recognise the functions by."""
    mean, sd = np.nan_to_num(fitted.schema.contexts, nan=1.0)
    s = mean + sd * stream(0, "probe").standard_normal((1, fitted.law.memory + 4, len(mean)))
    return [float(v) for v in fitted(np.round(s)).mean().ravel()]
