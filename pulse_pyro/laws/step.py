"""A law with a state that moves from row to row: prior(), first(p) and step(p, z, s_past)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from pulse_pyro._core.arrays import Float, Int, whole
from pulse_pyro._core.errors import (
    ConvergenceError,
    DataError,
    SettingError,
)
from pulse_pyro._pyro.inference import Inference, Laplace, Nuts, Svi, choose_engine
from pulse_pyro.base import Column, Schema
from pulse_pyro.data.history import History, Source, series_of
from pulse_pyro.data.summary import Lags
from pulse_pyro.laws.fitted import FitRecord, by_action, chosen

if TYPE_CHECKING:
    from pandas import DataFrame

    from pulse_pyro._pyro.answers import Values
    from pulse_pyro._pyro.filters import Blocked
    from pulse_pyro._pyro.program import Program, StepCard
    from pulse_pyro._pyro.step_draws import ProgramDraws
    from pulse_pyro.laws.step_conditional import StepConditional
    from pulse_pyro.laws.step_series import StepFollower

State = Literal["auto", "discrete", "gaussian", "particles"]
LEAST, MOST = 128, 8192  # particles of a draw, where the fit chooses them
WANTED = 0.1  # error of a draw's E[W], in predictive sds
TRIED = (8, 60)  # units, and rows of each, that it is judged by
STATES: tuple[State, ...] = ("auto", "discrete", "gaussian", "particles")


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
        column of W, by their names, each without an event axis. The site of an ordinal or
        categorical column takes codes 0, 1, ...; Phi sees the declared numbers, and 0/1 columns
        of a category. s_past (..., memory, s_dim) holds S of the last rows, the newest last, NaN
        before the start and wherever S is not seen. The newest value of a column that the step
        samples is hidden (NaN): the step says what it is.
    memory : rows in s_past.
    state : how the state is handled. "auto": the forward algorithm where "z" has finitely many
        values; a Kalman filter where it is linear and Gaussian, as far as probes can tell (see
        ``why_not_gaussian``); particles otherwise. Or say which.
    particles : of each posterior draw, where there is no exact filter, in four filters that are
        independent of each other: how they differ tells their error. "auto": the fit doubles them,
        from 128 to at most 8,192, until a draw's E[W] is known to a tenth of the predictive sd of W
        (root mean square over up to 480 rows of the archive; see ``record.quality``).
    draws : posterior draws, evenly spaced, that predictions are mixed over.
    name : for messages and reports.

    All tensors broadcast: p holds (draw, 1, 1, *site), z is (draw, series, particle, *event), and
    s_past[..., -1, j] is (series, 1). So (x * b).sum(-1) for x @ b, Vindex(level)[..., z] for
    level[z]. Columns depend on the new z and s_past alone: what they share belongs into z.

    What is guaranteed: with an exact filter the fit's likelihood and, given the stored draws,
    E[W_t | S_1:t] are exact, and so is E[Phi] where W takes finitely many values. NOT covered: the
    parameters are those of the archive, a new series does not teach them; without an exact filter
    fit and prediction carry Monte Carlo error, and Svi, which then has a site for every state,
    calls the posterior too narrow; an unseen S that the step does not sample leaves the row without
    an answer, and loses the state if z needs it.

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
    particles: int | Literal["auto"] = "auto"
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
        if self.particles != "auto":
            whole(self.particles, 'StepLaw: particles, where it is not "auto",', 8)
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

        columns = schema.w_columns
        return Program(
            self.prior,
            self.first,
            self.step,
            schema.s_names,
            tuple(column.name for column in columns),
            self.memory,
            self.label,
            values=tuple(_declared(column) for column in columns),
        )

    def check(self, history: History) -> StepCard:
        """Run the program on a few rows and say how it is filtered, or which rule it breaks."""
        program, card = self._checked(history)
        self._refuse_outside(history, program, card)
        return card

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

    def _refuse_outside(self, history: History, program: Program, card: StepCard) -> None:
        """Refuse a value that its site cannot have."""
        from pulse_pyro._pyro.program import outside

        y = np.concatenate([history.s[:, program.sampled_at], program.encoded(history.w)], axis=-1)
        sites = [site.name for site in card.globals]
        odd = outside(program, sites, history.s[None, : self.memory + 1], y)
        if odd is None:
            return
        row, name, distribution = odd
        both = dict(zip(history.s_names, history.s[row], strict=True))
        both |= dict(zip(history.w_names, history.w[row], strict=True))
        column = next(each for each in history.schema.columns if each.name == name)
        value = ", ".join(f"{both[own]:g}" for own in column.names)
        raise DataError(
            f"{self.label}: column {name!r} is {value} in row {row} of the archive (unit "
            f"{history.units[history.unit_of[row]]!r}, step {history.step[row]}), which its site, "
            f"{distribution}, cannot have; correct it, declare its levels, or give the column "
            "another distribution."
        )

    def simulate(self, history: History, draws: int, *, seed: int) -> SimulatedSteps:
        """Run the program from its prior along the S of the archive, ``draws`` times.

        Returns the parameters, and archives whose W, and whose S where the step samples it, are
        the program's own, (draw, units, time, ...). S that the step does not sample stays as it is.
        """
        import torch

        from pulse_pyro._pyro.program import prior_draws
        from pulse_pyro._pyro.sandbox import quiet

        program, card = self._checked(history)
        s, out = history.grid.s, []
        units, time = s.shape[:2]
        with quiet(seed, "simulate"):
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
                each = zip(program.w_names, program.values, strict=True)
                parts = [_numbers(drawn[name], values) for name, values in each]
                out.append(np.concatenate(parts, axis=-1))
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
        self._refuse_outside(history, program, card)
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
            seconds=fit.seconds,
        )
        fitted = FittedStepLaw(self, fit.draws, card, record, history.clusters, history.schema)
        return fitted if fitted.filtered_exactly else fitted.with_enough(history)


def _declared(column: Column) -> Values:
    """Return what Phi sees of the levels 0, 1, ... of a W column; () where none are declared."""
    if column.kind == "ordinal":
        return tuple((number,) for number in column.numbers)
    if column.kind == "categorical":
        return tuple(map(tuple, np.eye(len(column.levels))[:, 1:].tolist()))
    return ()


def _numbers(codes: Float, values: Values) -> Float:
    """Return what Phi sees of a column's codes (...,): (..., width)."""
    out: Float = np.array(values)[codes.astype(np.int64)] if values else codes[..., None]
    return out


def _blocks(program: Program, card: StepCard, history: History) -> tuple[list[Blocked], int]:
    """Return an archive's rows ready for gradients, and how many values of W do not count."""
    import torch

    from pulse_pyro._pyro.filters import StepRows, ready
    from pulse_pyro._pyro.program import prior_draws
    from pulse_pyro._pyro.sandbox import quiet

    out, left_out = [], 0
    with quiet(0, "rows"):
        names = [site.name for site in card.globals]
        p = program.parameters(prior_draws(program, names, 1))
        for block in history.blocks():
            w = program.encoded(block.w)
            y = np.concatenate([block.s[..., program.sampled_at], w], axis=-1)
            rows = StepRows(torch.as_tensor(program.windows(block.s)), torch.as_tensor(y))
            out.append(ready(program, p, rows, [history.units[i] for i in block.unit]))
            counts = out[-1].seen[..., len(program.sampled) :].all(-1).numpy()
            left_out += int((~counts & block.seen).sum())
    return out, left_out


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
        return replace(
            self.law.program(self.schema),
            sampled=self.card.modelled,
            z_shape=shape,
            values=self.card.values,
        )

    @cached_property
    def mixed(self) -> Int:
        """Numbers of the posterior draws that predictions are mixed over."""
        count = len(next(iter(self.draws.values())))
        return np.unique(np.linspace(0, count - 1, min(self.law.draws, count)).astype(np.int64))

    @property
    def particles(self) -> int:
        """Particles of each draw: as asked for, or as the fit found them to be needed."""
        asked = self.law.particles
        return int(self.record.quality.get("particles", LEAST)) if asked == "auto" else asked

    def with_enough(self, history: History) -> FittedStepLaw:
        """Return the law with as many particles as an archive asks for, and what their error is.

        See :class:`StepLaw`; where their number was asked for, only their error is told.
        """
        every = np.linspace(0, len(history.units) - 1, min(TRIED[0], len(history.units)))
        some = history.take(np.unique(every.astype(np.int64)))
        some = some.where(some.step < TRIED[1])
        asked = self.law.particles
        count = LEAST if asked == "auto" else asked
        while True:
            quality = {**self.record.quality, "particles": float(count)}
            law = replace(self, record=replace(self.record, quality=quality))
            error = law.particle_error(some)
            if asked != "auto" or error <= WANTED or count >= MOST:
                break
            count *= 2
        quality["particle_error"] = error
        return replace(law, record=replace(law.record, quality=quality))

    def particle_error(self, history: History) -> float:
        """Return the error of a draw's E[W] in predictive sds, root mean square over rows.

        Of the worst column; infinite where all particles have weight zero.
        """
        try:
            asked = self(history)
            variance = np.diagonal(asked.covariance(), axis1=1, axis2=2)
            share = np.nanmean(asked.rough**2 / variance, axis=0)
        except ConvergenceError:
            return float("inf")
        return float(np.sqrt(share.max()))

    @property
    def filtered_exactly(self) -> bool:
        """Whether the state is summed or integrated out without Monte Carlo error."""
        return self.card.state != "particles"

    @cached_property
    def at_draws(self) -> ProgramDraws:
        """The program at the draws ``mixed``."""
        from pulse_pyro._pyro.step_draws import ProgramDraws

        values = {name: value[self.mixed] for name, value in self.draws.items()}
        seed = self.record.seed
        return ProgramDraws(self.program, self.card, values, self.particles, seed)

    @cached_property
    def id(self) -> str:
        """Fingerprint of the columns, the units and every draw; functions are not part of it."""
        about = (self.law.memory, self.card.state, self.schema.s_names, self.schema.w_names)
        digest = hashlib.sha256(repr((about, self.law.draws, self.particles)).encode())
        for name, value in sorted(self.draws.items()):
            digest.update(name.encode())
            digest.update(np.ascontiguousarray(value).tobytes())
        return digest.hexdigest()[:16]

    def __call__(self, source: Source, at: ArrayLike | None = None) -> StepConditional:
        """Return the law of W at the rows of a History, or of s (batch, time[, action], s_dim).

        Each row is answered given all of S seen up to it; W of an archive is not looked at. at :
        which rows, True or False for each or their numbers; all by default.
        """
        from pulse_pyro.laws.step_series import Gathered

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
        found = Gathered(self.at_draws, len(np.unique(wanted)))
        for each, row in blocks:
            found.take_in(each, place[row])
        return found.conditional(s[wanted], place[wanted])

    def follow(self, unit: str | None = None) -> StepFollower:
        """Start to follow a series online, at the same cost at every step."""
        from pulse_pyro.laws.step_series import StepFollower

        return StepFollower(self.at_draws)

    def holding(self, index: Int) -> FittedStepLaw:
        """Return the law with some of its draws alone, all of them mixed."""
        draws = {name: value[index] for name, value in self.draws.items()}
        # as many particles as before, whatever the number was found by
        law = replace(self.law, draws=len(index), particles=max(self.particles, 8))
        return replace(self, law=law, draws=draws)

    def to_arviz(self, history: History | None = None, *, seed: int = 0, size: int = 500) -> Any:
        """Return the posterior for ArviZ, and predictions of a history's W; see ``to_tree``.

        Scores are log p(w_t | S_1:t, draw): W of earlier rows are not looked at.
        """
        from pulse_pyro.laws.arviz_tree import to_tree

        return to_tree(self, history, seed=seed, size=size)  # type: ignore[arg-type]

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
