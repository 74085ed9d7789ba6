"""Run a program with a state, prior(), first(p) and step(p, z, s_past), site by site; check it.

All axes a filter adds stand to the left of what the program writes: (draw, series, particle). A
global site of event shape E is handed to the program as (draw, 1, 1, *E), the state as (draw,
series, particle, *its event), and s_past as (series, 1, memory, s_dim), so that they broadcast.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
import pyro
import pyro.poutine as poutine
import torch
from pyro.poutine.messenger import Messenger

from pulse_pyro._core.arrays import Float
from pulse_pyro._core.errors import ModelError, PulseError, nearest
from pulse_pyro._pyro.answers import Values, site_mean
from pulse_pyro._pyro.handmade import check_handmade
from pulse_pyro._pyro.predict import has_mean
from pulse_pyro._pyro.sandbox import sandbox
from pulse_pyro._pyro.sites import kind_of, support_of
from pulse_pyro.base import ModelCard, Site

StateKind = Literal["discrete", "gaussian", "particles"]
MOST_STATES = 256
PROBES = 4  # particles, and prior draws, a program is looked at with
MOST_VALUES = 256  # of a W column that are gone through one by one
LONGEST = 300  # steps a program is run for, to see whether its state explodes
WRITE = (
    "write the step so that it broadcasts: (x * b).sum(-1) for x @ b, Vindex(level)[..., z] "
    "(pyro.ops.indexing) for level[z], torch.stack([a, b], -1) for torch.tensor([a, b]), and no "
    "if on a tensor"
)


class _Enough(Exception):
    """The state has been seen, the rest of the step is not needed."""


class Seen(NamedTuple):
    """What one run of a step, or of first, has sampled.

    state : distribution of the next z. value : z itself. columns : column -> its distribution.
    """

    state: Any
    value: torch.Tensor
    columns: dict[str, Any]


class _Reader(Messenger):  # type: ignore[misc]
    """Keep the distribution of every site; z is put where it is asked for, columns are NaN.

    A column's value is NaN so that whatever is computed from it shows that it was.
    """

    def __init__(
        self, value: torch.Tensor | None, shape: tuple[int, ...] | None, state_only: bool
    ) -> None:
        super().__init__()
        self.value, self.shape, self.state_only = value, shape, state_only
        self.state: Any = None
        self.found: list[str] = []
        self.columns: dict[str, Any] = {}

    def _pyro_sample(self, msg: Any) -> None:
        if msg["infer"] and msg["infer"].get("_deterministic"):
            msg["stop"] = True
            return
        name, fn = msg["name"], msg["fn"]
        self.found.append(name)
        if name == "z":
            self.state = fn
            if self.state_only:  # and no random number is used up
                raise _Enough
            if self.value is None:
                if self.shape is not None and tuple(fn.batch_shape) != self.shape:
                    fn = fn.expand(torch.Size(self.shape))
                self.value = fn.sample()
            msg["value"] = self.value
        else:
            self.columns[name] = fn
            msg["value"] = torch.full(fn.batch_shape + fn.event_shape, float("nan"))
        msg["done"] = msg["stop"] = True

    def _pyro_param(self, msg: Any) -> None:
        raise ModelError(
            f"{msg['name']!r} is a pyro.param in first or step, but only sample sites of prior() "
            "leave a fit; give it a prior there."
        )


@dataclass(frozen=True, eq=False)
class Program:
    """Three functions and the columns they speak of.

    prior() samples global sites and returns p; first(p) samples "z" before the first row; and
    step(p, z, s_past) samples the next "z", then columns of S (``sampled``, those that may be
    unseen) and all columns of W. s_past (..., memory, s_dim), the newest row last.

    w_names : W columns of the table, a site each. values : for each of them what Phi sees of the
    codes 0, 1, ... that its site takes: the numbers of an ordinal column, a row of 0 and 1 of a
    category; () where a site takes what Phi sees.
    """

    prior: Callable[[], Any]
    first: Callable[[Any], Any]
    step: Callable[[Any, torch.Tensor, torch.Tensor], Any]
    s_names: tuple[str, ...]
    w_names: tuple[str, ...]
    memory: int
    label: str
    sampled: tuple[str, ...] = ()
    z_shape: tuple[int, ...] = ()
    values: tuple[Values, ...] = ()

    def parameters(self, draws: Mapping[str, torch.Tensor]) -> Any:
        """Return p at draws (draw, *site shape) of the global sites, ready to broadcast."""
        padded = {name: v.reshape(len(v), 1, 1, *v.shape[1:]) for name, v in draws.items()}
        return poutine.block(poutine.condition(self.prior, padded))()

    def start(self, p: Any, shape: tuple[int, ...] | None = None) -> Seen:
        """Run first(p): the state before the first row, of a batch shape if one is named."""
        return self._read(lambda: self.first(p), None, shape, state_only=shape is None)

    def run(
        self,
        p: Any,
        z: torch.Tensor,
        s_past: torch.Tensor,
        *,
        value: torch.Tensor | None = None,
        shape: tuple[int, ...] | None = None,
        state_only: bool = False,
    ) -> Seen:
        """Run the step once; the next state is ``value``, or drawn with batch shape ``shape``."""
        return self._read(lambda: self.step(p, z, s_past), value, shape, state_only=state_only)

    def _read(
        self,
        call: Callable[[], Any],
        value: torch.Tensor | None,
        shape: tuple[int, ...] | None,
        *,
        state_only: bool,
    ) -> Seen:
        reader = _Reader(value, shape, state_only)
        try:
            with reader:
                call()
        except _Enough:
            pass
        return Seen(reader.state, reader.value, reader.columns)  # type: ignore[arg-type]

    def windows(self, s: Float) -> Float:
        """Return s_past of every row, (..., time, memory, s_dim), of s (..., time, s_dim).

        Rows before the start are NaN, and so is the newest of every column that the step samples:
        the step says what it is, it may not look.
        """
        gap = np.full((*s.shape[:-2], self.memory - 1, s.shape[-1]), np.nan)
        padded = np.concatenate([gap, s], axis=-2)
        rows = np.lib.stride_tricks.sliding_window_view(padded, self.memory, axis=-2)
        out: Float = np.swapaxes(rows, -1, -2).copy()
        out[..., -1, self.sampled_at] = np.nan
        return out

    @cached_property
    def widths(self) -> tuple[int, ...]:
        """How many numbers Phi sees of each W column."""
        return tuple(len(values[0]) if values else 1 for values in self.values)

    def encoded(self, w: Float) -> Float:
        """Return W (..., w_dim) as sites see it, (..., columns); -1 is none of a column's values.

        NaN stays.
        """
        cuts = np.cumsum(self.widths)[:-1]
        own = zip(np.split(w, cuts, axis=-1), self.values, strict=True)
        return np.stack([_codes(each, values) for each, values in own], axis=-1)

    @cached_property
    def sampled_at(self) -> list[int]:
        """Which columns of S the step samples."""
        return [self.s_names.index(name) for name in self.sampled]


def _codes(w: Float, values: Values) -> Float:
    """Return which of a column's values w (..., width) is, (...,); w itself where it has none."""
    if not values:
        out: Float = w[..., 0]
        return out
    same = (w[..., None, :] == np.array(values)).all(-1)
    code = np.where(same.any(-1), same.argmax(-1), -1.0)
    return np.where(np.isnan(w).any(-1), np.nan, code)


@dataclass(frozen=True)
class StepCard(ModelCard):
    """A program with a state that meets the contract.

    state : how it is filtered: "discrete" (forward algorithm), "gaussian" (Kalman) or "particles".
    modelled : columns of S that the step samples, which may be unseen. why : why no exact filter
    suits the state. values : of each W column, see :class:`Program`. closed_mean : the mean of W is
    closed form given the state.
    """

    state: StateKind = "particles"
    modelled: tuple[str, ...] = ()
    states: int = 0
    why: str = ""
    values: tuple[Values, ...] = ()

    def role(self, site: Site) -> str:
        """Return what becomes of a site, in words."""
        if site.kind == "local":
            return f"state: {self.how}"
        if site.name in self.modelled:
            return "S, weighted on where it is seen"
        return super().role(site)

    def terms(self, site: Site) -> int:
        """Return the cost of a site: how many values of the state are gone through at a step."""
        return max(self.states, 1) if site.kind == "local" else 1

    @property
    def how(self) -> str:
        """What becomes of the state."""
        return {
            "discrete": f"{self.states} values, summed out exactly (forward algorithm)",
            "gaussian": "linear and Gaussian, integrated exactly (Kalman filter)",
            "particles": f"particle filter: {self.why}",
        }[self.state]

    def __repr__(self) -> str:
        shown = ", ".join(f"{s.name}{list(s.shape)}" for s in self.globals)
        columns = ", ".join(
            f"{s.name} {s.distribution}" for s in self.sites if s.kind == "observed"
        )
        return (
            f"StepCard: ok, state z{list(self.locals[0].shape)}, {self.how}\n"
            f"  global sites: {shown}\n  columns: {columns}\n"
            f"  unseen S: not weighted on where the step samples it "
            f"({', '.join(self.modelled) or 'no column'})"
        )


def prior_draws(program: Program, names: Sequence[str], count: int) -> dict[str, torch.Tensor]:
    """Draw the global sites from the prior, (count, *site shape) each."""
    traces = [poutine.trace(program.prior).get_trace() for _ in range(count)]
    return {name: torch.stack([t.nodes[name]["value"] for t in traces]) for name in names}


# The contract, checked by running the program.


def check_program(program: Program, s: Float, state: str = "auto") -> tuple[Program, StepCard]:
    """Run a program on a few rows s (series, time, s_dim) and describe it, or say what is wrong.

    state : "auto", or what the user says it is. Checked: sites, their shapes, that the next state
    depends on nothing but (p, z, s_past) and columns on nothing but (p, next z, s_past), that all
    draws can run at once, and that the state stays finite over so many steps under the prior. NOT
    checked: that the program is a sensible description of the data.
    """
    with sandbox(0, "contract"), torch.no_grad(), pyro.validation_enabled(True):
        draws, sites = _globals(program)
        p = program.parameters({name: value[:1] for name, value in draws.items()})
        program, z_site = _first(program, p)
        rows = torch.as_tensor(np.nan_to_num(s))
        program, columns = _step(program, p, rows)
        past = _pasts(program, s)
        _columns_alone(program, p, past)
        _broadcasts(program, draws, past)
        _explodes(program, draws, s)
        kind, states, why = _kind(program, draws, past, state)
        _answers(program, draws, past)
        closed = _means(program, p, past)
    return program, StepCard(
        sites=(*sites, z_site, *columns),
        x_dim=program.memory * len(program.s_names),
        w_dim=sum(program.widths),
        vectorised=True,
        nesting=2,
        closed_mean=closed,
        unseen="conditioned on, where the step samples them",
        state=kind,
        modelled=program.sampled,
        states=states,
        why=why,
        values=program.values,
    )


def _called(program: Program, what: str, call: Callable[[], Any]) -> Any:
    """Run a user's function; say in a sentence what went wrong in it."""
    try:
        return call()
    except PulseError:
        raise
    except Exception as cause:
        said = str(cause).strip().splitlines()
        raise ModelError(
            f"{program.label}: {what} failed: {type(cause).__name__}: {said[0] if said else ''}; "
            f"{WRITE}."
        ) from cause


def _globals(program: Program) -> tuple[dict[str, torch.Tensor], list[Site]]:
    """Return PROBES prior draws of the global sites, and the sites."""
    traces = [
        _called(program, "prior()", lambda: poutine.trace(program.prior).get_trace())
        for _ in range(PROBES)
    ]
    nodes = {
        name: node
        for name, node in traces[0].nodes.items()
        if node["type"] in ("sample", "param") and not poutine.util.site_is_subsample(node)
    }
    sites = []
    for name, node in nodes.items():
        if node["type"] == "param":
            raise ModelError(
                f"{program.label}: {name!r} is a pyro.param, but only sample sites leave a fit; "
                "give it a prior with pyro.sample."
            )
        if node["is_observed"]:
            continue
        fn = node["fn"]
        if name == "z" or name in (*program.s_names, *program.w_names):
            raise ModelError(
                f"{program.label}: prior() samples a site {name!r}, which is the state's or a "
                "column's name; sample it in step, or call the parameter something else."
            )
        if tuple(fn.batch_shape):
            raise ModelError(
                f"{program.label}: site {name!r} of prior() has batch shape "
                f"{tuple(fn.batch_shape)}; end it with .to_event({len(fn.batch_shape)})."
            )
        if fn.support.is_discrete:
            raise ModelError(
                f"{program.label}: site {name!r} of prior() is discrete, and every engine needs "
                "continuous parameters; a regime that never changes is a state z' = z."
            )
        event = tuple(fn.event_shape)
        sites.append(Site(name, "global", (), event, kind_of(fn), False))
    if not sites:
        raise ModelError(
            f"{program.label}: prior() samples nothing, so nothing can be learned from the "
            "archive; give the parameters priors with pyro.sample."
        )
    draws = {
        site.name: torch.stack([trace.nodes[site.name]["value"] for trace in traces])
        for site in sites
    }
    return draws, sites


def _first(program: Program, p: Any) -> tuple[Program, Site]:
    seen = _called(program, "first(p)", lambda: program.start(p, (1, 1, PROBES)))
    if seen.state is None:
        raise ModelError(
            f"{program.label}: first(p) samples no site 'z'{nearest('z', list(seen.columns))} "
            'Write pyro.sample("z", ...) in it: the state before the first row.'
        )
    if seen.columns:
        raise ModelError(
            f"{program.label}: first(p) samples {next(iter(seen.columns))!r}, but the state 'z' is "
            "all there is before the first row; columns belong into step."
        )
    fn = seen.state
    event = tuple(fn.event_shape)
    site = Site("z", "local", (), event, kind_of(fn), bool(fn.support.is_discrete))
    return replace(program, z_shape=event), site


def _pasts(program: Program, s: Float) -> torch.Tensor:
    """Return s_past of a few rows without NaN but for what the step samples, (rows, 1, ...)."""
    full = np.where(np.isnan(s), 0.0, s)
    windows = program.windows(full)[:, program.memory - 1 :]
    flat = windows.reshape(-1, 1, *windows.shape[-2:])
    return torch.as_tensor(flat[:PROBES])


def _step(program: Program, p: Any, rows: torch.Tensor) -> tuple[Program, list[Site]]:
    """Run the step once; return the program with the S columns it samples, and its columns."""
    z = program.start(p, (1, 1, PROBES)).value
    past = torch.zeros(1, 1, program.memory, rows.shape[-1])
    past[0, 0] = rows[0, : program.memory] if rows.shape[1] >= program.memory else 0.0
    with pyro.validation_enabled(False):  # what is NaN is looked at below
        seen = _called(
            program,
            "step(p, z, s_past)",
            lambda: program.run(p, z, past, shape=(1, 1, PROBES)),
        )
    label, known = program.label, (*program.s_names, *program.w_names)
    if seen.state is None:
        raise ModelError(
            f"{label}: step samples no site 'z'{nearest('z', list(seen.columns))} Write "
            'z = pyro.sample("z", ...) first: the next state, given z.'
        )
    if tuple(seen.state.event_shape) != program.z_shape:
        raise ModelError(
            f"{label}: the state 'z' has event shape {tuple(seen.state.event_shape)} in step but "
            f"{program.z_shape} in first; both must be alike, end both with the same .to_event()."
        )
    odd = [name for name in seen.columns if name not in known]
    if odd:
        raise ModelError(
            f"{label}: step samples {odd[0]!r}, which is neither the state 'z' nor a column"
            f"{nearest(odd[0], known)} A latent of the step is a coordinate of 'z'."
        )
    absent = [name for name in program.w_names if name not in seen.columns]
    if absent:
        raise ModelError(
            f"{label}: W column {absent[0]!r} has no site in step; write "
            f'pyro.sample("{absent[0]}", ...) after the state.'
        )
    sites = []
    for name, fn in seen.columns.items():
        event = tuple(fn.event_shape)
        if event:
            raise ModelError(
                f"{label}: the site of column {name!r} has event shape {event}; a column is one "
                "number a row: leave .to_event() out, and sample each column on its own."
            )
        sites.append(Site(name, "observed", (), (), kind_of(fn), False))
    sampled = tuple(name for name in program.s_names if name in seen.columns)
    declared = zip(program.w_names, program.values, strict=True)
    values = tuple(_values(label, name, seen.columns[name], own) for name, own in declared)
    return replace(program, sampled=sampled, values=values), sites


def _values(label: str, name: str, fn: Any, declared: Values) -> Values:
    """Return what Phi sees of the values a site can take; () where they are not a few."""
    found = support_of(fn)
    few = found is not None and len(found) <= MOST_VALUES
    if found is None or not few or not torch.equal(found.double(), torch.arange(float(len(found)))):
        if declared and len(declared[0]) != 1:
            raise ModelError(
                f"{label}: column {name!r} is a category of {len(declared)} levels, but its site "
                f"is {kind_of(fn)}; write pyro.sample({name!r}, dist.Categorical(logits=...)), the "
                "levels being 0, 1, ..."
            )
        return ()
    if declared and len(declared) != len(found):
        raise ModelError(
            f"{label}: column {name!r} is declared with {len(declared)} levels, but its site, "
            f"{kind_of(fn)}, takes {len(found)} values; give it as many (logits of a Categorical, "
            "cuts of an OrderedLogistic plus 1), or declare the levels it can take."
        )
    return declared or tuple((float(code),) for code in found)


def _columns_alone(program: Program, p: Any, past: torch.Tensor) -> None:
    """Refuse columns that depend on the state before, on each other, or on an S that is sampled."""
    shape = (1, len(past), PROBES)
    one, two = (program.start(p, shape).value for _ in range(2))
    with pyro.validation_enabled(False):  # what is NaN is said better here
        seen = program.run(p, one, past, shape=shape)
        again = program.run(p, two, past, value=seen.value)
        _finite(program, seen)
        for name, fn in seen.columns.items():
            try:
                value = fn.sample()
                first, second = fn.log_prob(value), again.columns[name].log_prob(value)
            except (RuntimeError, ValueError):  # torch draws no Bernoulli of chance NaN
                first = second = torch.full((1,), float("nan"))
            _column_alone(program, name, first, second)


def _column_alone(program: Program, name: str, first: torch.Tensor, second: torch.Tensor) -> None:
    """Judge a column by its log density after one state before the step, and after another."""
    if torch.isnan(first).any():
        raise ModelError(
            f"{program.label}: the law of column {name!r} is NaN although all of s_past is "
            "seen; it may depend on the next z and on s_past, but neither on another sampled "
            f"column nor on the newest {list(program.sampled)}, which step samples itself: put "
            "what columns share into z."
        )
    if not torch.allclose(first, second.expand_as(first), rtol=1e-8):
        raise ModelError(
            f"{program.label}: the law of column {name!r} changes with the state before the "
            "step; let it depend on the z that step samples (z = pyro.sample('z', ...)), and "
            "make the earlier one a coordinate of z if both are needed."
        )


def _finite(program: Program, seen: Seen) -> None:
    if torch.isfinite(seen.value.double()).all():
        return
    raise ModelError(
        f"{program.label}: the state is not finite after one step from first(p), all of s_past "
        f"being seen but for the newest {list(program.sampled)}; the next z may not depend on a "
        "column that step samples itself."
    )


def _broadcasts(program: Program, draws: dict[str, torch.Tensor], past: torch.Tensor) -> None:
    """Refuse a program that gives something else when draws, rows and particles run at once."""
    shape = (PROBES, len(past), PROBES)

    def agrees() -> bool:
        p = program.parameters(draws)
        z = program.start(p, shape).value
        seen = program.run(p, z, past, value=z)
        laws = {"z": seen.state, **seen.columns}
        values = {name: fn.expand(torch.Size(shape)).sample() for name, fn in laws.items()}
        whole = {name: fn.log_prob(values[name]).expand(shape) for name, fn in laws.items()}
        for m in range(PROBES):
            one = program.parameters({name: value[m : m + 1] for name, value in draws.items()})
            for r in range(len(past)):
                at = (slice(m, m + 1), slice(r, r + 1), slice(m, m + 1))  # one particle too
                alone = program.run(one, z[at], past[r : r + 1], value=z[at])
                for name, fn in {"z": alone.state, **alone.columns}.items():
                    part = fn.log_prob(values[name][at]).expand(1, 1, 1)
                    if not torch.allclose(part, whole[name][at], rtol=1e-8, equal_nan=True):
                        return False
        return True

    if not _called(program, "the program at several draws, rows and particles at once", agrees):
        raise ModelError(
            f"{program.label}: the program gives another law when several draws, rows and "
            f"particles run at once than one by one; {WRITE}."
        )


def _explodes(program: Program, draws: dict[str, torch.Tensor], s: Float) -> None:
    """Run the prior forward over a series of the archive; refuse a state that becomes infinite."""
    full = np.where(np.isnan(s[:1]), 0.0, s[:1])
    windows = torch.as_tensor(program.windows(full))[:, :LONGEST, None]
    p = program.parameters(draws)
    shape = (PROBES, 1, PROBES)
    z = program.start(p, shape).value
    with pyro.validation_enabled(False):
        for t in range(max(program.memory - 1, 0), windows.shape[1]):
            z = program.run(p, z, windows[:, t], shape=shape).value
            if not torch.isfinite(z.double()).all():
                raise ModelError(
                    f"{program.label}: the state 'z' is no longer finite after {t + 1} steps under "
                    "a draw from the prior; it explodes: keep what stays of z from step to step "
                    "within -1 and 1 (Beta or Uniform priors), or bound the state."
                )


# Which filter suits the state.


def _kind(
    program: Program, draws: dict[str, torch.Tensor], past: torch.Tensor, asked: str
) -> tuple[StateKind, int, str]:
    p = program.parameters(draws)
    seen = program.start(p, (PROBES, len(past), PROBES))
    fn = program.run(p, seen.value, past, value=seen.value).state
    if asked in ("auto", "discrete"):
        finite = fn.support.is_discrete and getattr(fn, "has_enumerate_support", False)
        if finite:
            count = len(state_values(fn))
            if count <= MOST_STATES:
                return "discrete", count, ""
            why = f"its state has {count} values, more than {MOST_STATES}"
        else:
            why = f"its state is {kind_of(fn)}, which has no finite list of values"
        if asked == "discrete":
            raise ModelError(f"{program.label}: it is declared state='discrete', but {why}.")
    if asked == "particles":
        return "particles", 0, "as declared"
    if fn.support.is_discrete:
        return "particles", 0, why
    bent = why_not_gaussian(program, p, past)
    if not bent:
        return "gaussian", 0, ""
    if asked == "gaussian":
        raise ModelError(
            f"{program.label}: it is declared state='gaussian', but {bent}; let means be affine in "
            "z and scales free of it, or leave state= out."
        )
    return "particles", 0, bent


def state_values(fn: Any) -> torch.Tensor:
    """Return the values a discrete state can take, (states, *event)."""
    found = fn.enumerate_support(expand=False)
    return found.reshape(len(found), *fn.event_shape)


class NormalMoments(NamedTuple):
    """loc (..., d) and cov (..., d, d) of a normal distribution; a scalar counts as d = 1."""

    loc: torch.Tensor
    cov: torch.Tensor


def moments_of(fn: Any, batch: tuple[int, ...]) -> NormalMoments | None:
    """Return a normal distribution's moments, at least of a batch shape; None of any other."""
    shape = np.broadcast_shapes(tuple(fn.batch_shape), batch)
    base = fn
    while hasattr(base, "base_dist") and type(base).__name__ in (
        "Independent",
        "ExpandedDistribution",
    ):
        base = base.base_dist
    kind = type(base).__name__
    if kind == "Normal" and len(fn.event_shape) <= 1:
        width = tuple(fn.event_shape)
        loc, sd = (v.expand((*shape, *width)) for v in (base.loc, base.scale))
        if not width:
            return NormalMoments(loc[..., None], (sd**2)[..., None, None])
        return NormalMoments(loc, torch.diag_embed(sd**2))
    if kind == "MultivariateNormal":
        d = fn.event_shape[0]
        return NormalMoments(
            base.loc.expand((*shape, d)), base.covariance_matrix.expand((*shape, d, d))
        )
    return None


def why_not_gaussian(program: Program, p: Any, past: torch.Tensor) -> str:
    """Say why a step is not linear and Gaussian; nothing where it is, as far as probes can tell.

    The step is asked at points 1, 10 and 1,000 away from 0, in random directions, and compared
    with the affine function through 0 and the unit vectors. A bend that none of them meets is not
    noticed.
    """
    if len(program.z_shape) > 1:
        return f"its state has event shape {program.z_shape}"
    if moments_of(program.start(p).state, ()) is None:
        return f"first(p) draws z from a {kind_of(program.start(p).state)}"
    d = program.z_shape[0] if program.z_shape else 1
    far = torch.randn(1, 1, 9, d) * torch.tensor([1.0, 10.0, 1e3]).repeat(3)[:, None]
    points = torch.cat([torch.zeros(1, 1, 1, d), torch.eye(d)[None, None], far], dim=2)
    z = points if program.z_shape else points[..., 0]
    try:
        with pyro.validation_enabled(False):
            seen = program.run(p, z, past, value=z)
    except Exception as cause:
        return f"the step cannot be run at z = 0 and far from it ({type(cause).__name__})"
    for name, fn in {"z": seen.state, **seen.columns}.items():
        batch = (1, z.shape[2])
        found = moments_of(fn, batch)
        if found is None:
            return f"{name!r} is {kind_of(fn)} given z"
        zero = found.loc[..., :1, :]
        slope = found.loc[..., 1 : d + 1, :] - zero  # (..., d, out)
        line = zero + points[0, 0] @ slope
        size = 1.0 + points.abs().amax(-1)[0, 0, :, None] * (
            1.0 + slope.abs().amax((-1, -2))[..., None, None]
        )
        if not ((found.loc - line).abs() <= 1e-8 * size).all():
            return f"the mean of {name!r} is not affine in z"
        if not torch.allclose(found.cov, found.cov[..., :1, :, :].expand_as(found.cov), rtol=1e-8):
            return f"the scale of {name!r} changes with z"
    return ""


def _means(program: Program, p: Any, past: torch.Tensor) -> bool:
    z = program.start(p, (1, len(past), PROBES)).value
    seen = program.run(p, z, past, value=z)
    columns = zip(program.w_names, program.values, strict=True)
    return all(bool(values) or has_mean(seen.columns[name]) for name, values in columns)


def _answers(program: Program, draws: dict[str, torch.Tensor], past: torch.Tensor) -> None:
    """Ask every W column for its mean, a draw and its density, as a fit will; refuse NaN.

    A mean that is NaN at all of the prior's draws is one the column does not have; at some of them
    it may be a matter of the prior.
    """
    p = program.parameters(draws)
    shape = (PROBES, len(past), PROBES)
    z = program.start(p, shape).value
    with pyro.validation_enabled(False):
        seen = program.run(p, z, past, value=z)
        for name, values in zip(program.w_names, program.values, strict=True):
            fn = seen.columns[name]
            try:
                drawn = fn.sample()
                found = {
                    "a draw": drawn.double(),
                    "the density": fn.log_prob(drawn),
                    "the mean": site_mean(fn, values),
                }
            except (NotImplementedError, RuntimeError, ValueError) as cause:
                said = str(cause).strip().splitlines()
                raise ModelError(
                    f"{program.label}: the site of column {name!r}, {kind_of(fn)}, gives no mean, "
                    f"draw or density: {type(cause).__name__}: {said[0] if said else ''}"
                ) from cause
            lost = [what for what, value in found.items() if torch.isnan(value).all()]
            if lost:
                raise ModelError(
                    f"{program.label}: {lost[0]} of column {name!r}, {kind_of(fn)}, is NaN under "
                    "draws from the prior; give it parameters that are finite, and a distribution "
                    "that has a mean (a StudentT of more than 1 degree of freedom, no Cauchy)."
                )
            check_handmade(program.label, name, fn)


def outside(
    program: Program, sites: Sequence[str], s: Float, y: Float
) -> tuple[int, str, str] | None:
    """Return (row, column, distribution) of a value that its site can never have, if there is one.

    sites : the global ones. s (series, time, s_dim) : rows to run the step at. y : (n, columns that
    are sampled, then W) as sites see them. A support that moves with parameters is not judged.
    """
    names = (*program.sampled, *program.w_names)
    few = (*(False for _ in program.sampled), *(bool(values) for values in program.values))
    with sandbox(0, "support"), torch.no_grad(), pyro.validation_enabled(False):
        p = program.parameters(prior_draws(program, sites, 1))
        past = _pasts(program, s)
        z = program.start(p, (1, len(past), 1)).value
        columns = program.run(p, z, past, value=z).columns
        for name, coded, value in zip(names, few, torch.as_tensor(y).unbind(-1), strict=True):
            support = columns[name].support
            if not coded and any(isinstance(end, torch.Tensor) for end in vars(support).values()):
                continue
            odd = torch.nonzero((value < 0.0 if coded else ~support.check(value)) & ~value.isnan())
            if len(odd):
                return int(odd[0, 0]), name, kind_of(columns[name])
    return None
