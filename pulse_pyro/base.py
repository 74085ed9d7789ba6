"""Contracts and values that every part of the package shares: the page to read first.

A law is a Pyro program plus what it may see of the past (:class:`UnfittedLaw`); fitted, it is a
:class:`FittedLaw`, which answers at any rows with a :class:`Conditional`. Any object with
``__call__`` and ``schema`` is a law for ``diagnose``, ``calibrate`` and policies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from importlib import import_module
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

import numpy as np

from pulse_pyro._core.arrays import Float, Float1, Float2, Float3, positive
from pulse_pyro._core.errors import DataError, SettingError, nearest
from pulse_pyro._core.registry import named

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import ArrayLike
    from pandas import DataFrame

# The law of W given the past of S, at the rows that are asked for.


@dataclass(frozen=True, eq=False)
class Expectation:
    """Expected features phihat = E[Phi((S_t, W), a) | S_1:t] under a law.

    Attributes
    ----------
    mean : (..., action, d).
    mcse : Monte Carlo standard error, same shape; exactly 0 where ``exact``.
    exact : Phi is affine in w and the law's mean is closed form, or W takes finitely many values.
    size : Monte Carlo draws used (0 when exact).
    """

    mean: Float
    mcse: Float
    exact: bool
    size: int


class FeatureMap(Protocol):
    """Phi: (s (n, s_dim), w (n, w_dim), action) -> (n, d), see ``features.Features``."""

    @property
    def actions(self) -> int:
        """Number of actions."""

    @property
    def names(self) -> tuple[str, ...]:
        """The d feature names."""

    def __call__(self, s: Float2, w: Float2, action: int) -> Float2:
        """Return Phi((s, w), action)."""


class Conditional(Protocol):
    """p^(W | S_1:t) at n rows; NaN wherever the law does not answer (an input is not seen).

    Where W takes finitely many values it may also have ``support``, (cells, w_dim), and
    ``probabilities()``, (n, cells): E[Phi] is then the exact sum over them. ``closed_cdf`` : True
    where :meth:`cdf` carries no Monte Carlo error, so that a PIT is taken from it.
    """

    @property
    def exact(self) -> bool:
        """Whether :meth:`mean` carries no Monte Carlo error."""

    def mean(self) -> Float2:
        """Return E[W | S_1:t], (n, w_dim)."""

    def covariance(self) -> Float3:
        """Return what the law says W varies by, (n, w_dim, w_dim), its parameters included."""

    def draws(self, size: int, *, rng: np.random.Generator) -> Float3:
        """Draw W, (size, n, w_dim); draw m of all rows shares one draw of the parameters."""

    def mean_draws(self, size: int, *, rng: np.random.Generator) -> Float3:
        """Draw E[W | S_1:t] from the posterior of the parameters, (size, n, w_dim)."""

    def expect(self, features: FeatureMap, *, size: int, rng: np.random.Generator) -> Expectation:
        """Return E[Phi], mean and mcse (n, action, d)."""

    def cdf(self, w: Float2) -> Float2:
        """Return P(W_j <= w_j | S_1:t), (n, w_dim), column by column."""

    def log_density(self, w: Float2) -> Float2 | None:
        """Return log p(W_j = w_j | S_1:t), (n, w_dim), column by column; None where not known."""

    def joint_log_density(self, w: Float2) -> Float1 | None:
        """Return log p(W = w | S_1:t), (n,), of all columns together; None without a density."""


@runtime_checkable
class Summary(Protocol):
    """What a law may see of the past: a causal map (..., time, s_dim) -> (..., time, p)."""

    @property
    def names(self) -> tuple[str, ...]:
        """One name per filter; p = len(names) * s_dim."""

    @property
    def memory(self) -> int:
        """How many rows, the current one included, row t looks at."""

    def __call__(self, s: Float) -> Float:
        """Map (..., time, s_dim) to (..., time, p); rows before the start count as NaN."""

    def last(self, past: Float) -> Float:
        """Return the last row of ``self(past)`` alone, (p,), for past (memory, s_dim)."""


class Follower(Protocol):
    """One series as it unfolds: as much of its past is kept as the law needs."""

    @property
    def now(self) -> Float1:
        """The newest S_t, (s_dim,)."""

    @property
    def conditional(self) -> Conditional:
        """The law of W_t given all that was taken in, at one row."""

    def push(self, s: Float1, w: Float1 | None = None) -> Conditional:
        """Take in S_t, (s_dim,), NaN where it is not seen, and return the law of W_t."""

    def inputs(self) -> Float1:
        """Return x_t, (p,): what the law looks at now, in raw units."""

    def state(self) -> dict[str, Float]:
        """Return all that has been taken in, as arrays."""

    def restore(self, state: Mapping[str, Float]) -> None:
        """Go on from where :meth:`state` was taken."""


@runtime_checkable
class FittedLaw(Protocol):
    """A law that can be asked. ``id`` tells it from others; ``units`` are those it has seen."""

    @property
    def id(self) -> str:
        """Fingerprint."""

    @property
    def units(self) -> tuple[str, ...]:
        """Independent pieces (units, or their clusters) it was fitted on."""

    @property
    def schema(self) -> Schema:
        """Columns of S and W."""

    @property
    def summary(self) -> Summary:
        """What of the past of S it looks at."""

    def __call__(self, source: Any, at: ArrayLike | None = None) -> Conditional:
        """Return the law of W at the rows of a History, or of s (batch, time[, action], s_dim).

        at : which rows, True or False for each or their numbers; all by default, in order, (batch,
        time[, action]) read row by row. Each action's S is a series of its own.
        """

    def follow(self, unit: str | None = None) -> Follower:
        """Start to follow a series of which nothing has been seen yet."""


def is_exact(law: FittedLaw) -> bool:
    """Tell whether a law's means carry no Monte Carlo error."""
    return law(np.full((1, 1, len(law.schema.s_names)), np.nan)).exact


@runtime_checkable
class UnfittedLaw(Protocol):
    """A law that has not been fitted: built in, of a regressor, or your own (``pp.Law``)."""

    @property
    def name(self) -> str:
        """For messages and reports."""

    @property
    def summary(self) -> Summary:
        """What of the past of S it looks at."""

    @property
    def engines(self) -> tuple[type, ...]:
        """Engines it can be fitted by, its own first; none if it fits itself."""

    def check(self, history: Any) -> ModelCard:
        """Look at the model on a few rows, or say which rule it breaks."""

    def fit(self, history: Any, how: Any = None, *, seed: int, warm: Any = None) -> Any:
        """Fit on an archive and return a :class:`FittedLaw`, whose class is the law's own affair.

        how : an engine, or None for its own. warm : an earlier fit to start from.
        """


# Columns: what they are called, which are seen online, and what kind of values they hold.

Kind = Literal["real", "count", "binary", "ordinal", "categorical", "clock"]
KINDS: tuple[Kind, ...] = ("real", "count", "binary", "ordinal", "categorical", "clock")
OTHER = "other"


def is_missing(value: Any) -> bool:
    """Tell whether one value is not there: None, NaN, pandas' NA and NaT."""
    try:
        return value is None or bool(value != value)
    except TypeError:  # pandas' NA is neither equal to itself nor not
        return True
    except ValueError:  # several values
        return False


def as_numbers(values: Any) -> Float:
    """Return values as an array of numbers, NaN where one is not there."""
    try:
        return np.asarray(values, np.float64)
    except TypeError:  # pandas' NA is not a number; an array without it is not searched
        cells = np.asarray(values, dtype=object)
        known = [np.nan if is_missing(cell) else cell for cell in cells.ravel()]
        return np.array(known, np.float64).reshape(cells.shape)


def level_text(value: Any) -> str:
    """Return a level as text: 1.0 is "1", which a column of numbers with a gap turns 1 into."""
    whole_number = isinstance(value, float | np.floating) and float(value).is_integer()
    return str(int(value)) if whole_number else str(value)


@dataclass(frozen=True)
class Column:
    """One column of a table.

    Attributes
    ----------
    name : as in the table.
    role : "S" (also seen online) or "W" (only the archive has it).
    kind : "real", "count", "binary", "ordinal", "categorical" or "clock".
    levels : of a categorical or ordinal column, in order; text always, so "01" is not "1"; a
        number that is whole is read without its point, 1.0 as "1", and so is the text "1.0" where
        there is no such level.
    period : of a clock: after how much it starts again, e.g. 24.
    unknown : "refuse" a level that is not among ``levels``, or count it as "other".
    unit : of measure, for reports.

    A categorical column becomes a 0/1 column for each level but the first, ``city[Paris]``; a clock
    two, ``hour[sin]`` and ``hour[cos]``; an ordinal the numbers its levels are, if they are numbers
    that rise, else 0, 1, ...: see :attr:`numbers`.
    """

    name: str
    role: Literal["S", "W"] = "S"
    kind: Kind = "real"
    levels: tuple[str, ...] = ()
    period: float = 0.0
    unknown: Literal["refuse", "other"] = "refuse"
    unit: str = ""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise SettingError(
                f"Column {self.name!r}: there is no kind {self.kind!r}{nearest(self.kind, KINDS)}"
            )
        if self.role not in ("S", "W") or self.unknown not in ("refuse", "other"):
            raise SettingError(
                f"Column {self.name!r}: role must be 'S' or 'W' and unknown 'refuse' or 'other', "
                f"but got {self.role!r} and {self.unknown!r}."
            )
        levels = tuple(level_text(level) for level in self.levels)
        if len(set(levels)) < len(levels):
            raise SettingError(f"Column {self.name!r}: the levels {levels} are not distinct.")
        if self.unknown == "other" and levels and OTHER not in levels:
            levels = (*levels, OTHER)
        if self.kind == "categorical" and len(levels) == 1:
            raise SettingError(
                f"Column {self.name!r}: a categorical column needs two levels or more, but got "
                f"only {levels[0]!r}, which tells nothing; leave the column out, or declare the "
                "levels it may have."
            )
        object.__setattr__(self, "levels", levels)
        if self.kind == "clock":
            period = positive(self.period, f"clock {self.name!r}: period")
            object.__setattr__(self, "period", period)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the numeric columns it becomes."""
        if self.kind == "categorical":
            return tuple(f"{self.name}[{level}]" for level in self.levels[1:])
        if self.kind == "clock":
            return (f"{self.name}[sin]", f"{self.name}[cos]")
        return (self.name,)

    @property
    def numbers(self) -> tuple[float, ...]:
        """What each level of an ordinal stands as: 1, 2, 3 if they are "1", "2", "3"; else 0, 1, 2.

        Its levels count as numbers if all are, as they would be written ("01" is a name), and rise.

        >>> Column("mood", kind="ordinal", levels=(1, 2, 4)).numbers
        (1.0, 2.0, 4.0)
        >>> Column("mood", kind="ordinal", levels=("low", "high")).numbers
        (0.0, 1.0)
        """
        places = tuple(float(i) for i in range(len(self.levels)))
        try:
            found = tuple(float(level) for level in self.levels)
        except ValueError:
            return places
        written = all(level_text(n) == level for n, level in zip(found, self.levels, strict=True))
        rising = all(low < high for low, high in pairwise(found))
        return found if written and rising and np.isfinite(found).all() else places

    @property
    def meaning(self) -> str:
        """What its numbers stand for, in words: kind, levels in order, period."""
        if self.kind == "clock":
            return f"clock {self.period:.12g}"
        return f"{self.kind} {list(self.levels)}" if self.levels else self.kind

    def encode(
        self,
        values: Sequence[Any] | Float,
        where: str,
        place: Callable[[int], str] | None = None,
    ) -> Float2:
        """Return the numeric columns, (n, len(names)), of n values; NaN where a value is missing.

        where, place : for the message about a value that is not of the column's kind: who was
        asked, and where the i-th value stands.
        """
        if self.kind in ("categorical", "ordinal"):
            code = self._codes(values, where, place)
            missing = np.isnan(code)[:, None]
            if self.kind == "ordinal":
                known = np.array([*self.numbers, np.nan])
                return known[np.where(missing[:, 0], -1, code).astype(np.int64), None]
            ones = code[:, None] == np.arange(1, len(self.levels))
            return np.where(missing, np.nan, ones.astype(np.float64))
        numbers = as_numbers(values)
        if numbers.ndim != 1:
            raise DataError(f"{where}: {self.name!r} must be one number a row, not several.")
        self.check(numbers, where, place)
        if self.kind == "clock":
            angle = 2.0 * np.pi * numbers / self.period
            return np.stack([np.sin(angle), np.cos(angle)], axis=1)
        return numbers[:, None]

    def check(self, numbers: Float1, where: str, place: Callable[[int], str] | None = None) -> None:
        """Refuse numbers, (n,), that are infinite, or not counts or 0 and 1 where that is declared.

        NaN, a value that is missing, is of every kind.
        """
        if np.isinf(numbers).any():
            raise DataError(f"{where}: {self.name!r} is infinite; use NaN for not seen.")
        if self.kind not in ("count", "binary"):
            return
        top = 1.0 if self.kind == "binary" else np.inf
        wrong = (numbers < 0) | (numbers > top) | (numbers != np.round(numbers))
        wrong &= ~np.isnan(numbers)
        if wrong.any():
            i = int(wrong.argmax())
            raise DataError(
                f"{where}: column {self.name!r} is declared {self.kind}, but it holds "
                f"{numbers[i]:g}{f' in {place(i)}' if place else ''}; correct it, or declare the "
                "column as it is."
            )

    def _codes(
        self,
        values: Sequence[Any] | Float,
        where: str,
        place: Callable[[int], str] | None = None,
    ) -> Float1:
        """Return the number of each value's level, NaN where it is missing."""
        codes = {level: float(i) for i, level in enumerate(self.levels)}
        out = np.full(len(values), np.nan)
        for i, value in enumerate(values):
            if is_missing(value):
                continue
            level = level_text(value)
            code = codes.get(level, codes.get(str(value)))
            if code is None and level.endswith(".0"):  # 1 in a file whose column has an empty cell
                code = codes.get(level.removesuffix(".0"))
            if code is None and self.unknown == "other":
                code = codes[OTHER]
            if code is None:
                raise DataError(
                    f"{where}: {self.name!r} has no level {level!r}"
                    f"{f', which stands in {place(i)}' if place else ''}"
                    f"{nearest(level, self.levels)} Declare it with unknown='other' if new "
                    "levels may come."
                )
            out[i] = code
        return out


@dataclass(frozen=True)
class Schema:
    """The columns of an archive: travels with laws, saves and reports, and reads what is seen.

    columns : as in the table, S before W. moments : (2, s_dim) mean and sd of the numeric S
    columns in the archive, which says what sizes are usual. cluster : what the archive's
    independent pieces are: a column, whose clusters hold whole units, or a period of time,
    ("week",), which may cut units; None: its units. units : names of the units that clusters are
    made of; the clusters' own names are in ``History.clusters`` and ``FittedLaw.units``.
    """

    columns: tuple[Column, ...]
    moments: Float2 | None = field(default=None, compare=False, repr=False)
    cluster: str | tuple[str] | None = field(default=None, compare=False, repr=False)
    units: tuple[str, ...] = field(default=(), compare=False, repr=False)

    def __post_init__(self) -> None:
        every = [*self.s_names, *self.w_names]
        if len(set(every)) < len(every):
            twice = next(name for name in every if every.count(name) > 1)
            raise DataError(
                f"Schema: two columns would be called {twice!r}; a category becomes a column "
                "name[level] for each level but the first, and a clock name[sin] and name[cos]: "
                "rename the other."
            )

    @classmethod
    def of(cls, s_names: Sequence[str], w_names: Sequence[str]) -> Schema:
        """Return the schema of real columns."""
        seen = tuple(Column(str(name), "S") for name in s_names)
        return cls((*seen, *(Column(str(name), "W") for name in w_names)))

    @cached_property
    def s_columns(self) -> tuple[Column, ...]:
        """Columns that are seen online."""
        return tuple(column for column in self.columns if column.role == "S")

    @cached_property
    def w_columns(self) -> tuple[Column, ...]:
        """Columns that only the archive has."""
        return tuple(column for column in self.columns if column.role == "W")

    @cached_property
    def s_names(self) -> tuple[str, ...]:
        """Names of the numeric S columns, (s_dim,)."""
        return tuple(name for column in self.s_columns for name in column.names)

    @cached_property
    def w_names(self) -> tuple[str, ...]:
        """Names of the numeric W columns, (w_dim,)."""
        return tuple(name for column in self.w_columns for name in column.names)

    @cached_property
    def w_declared(self) -> tuple[Column, ...]:
        """The column of the table that each numeric W column comes from, (w_dim,)."""
        return tuple(column for column in self.w_columns for _ in column.names)

    @cached_property
    def plain(self) -> bool:
        """Whether every S column is a number as it stands in the table."""
        return all(
            column.kind not in ("categorical", "clock", "ordinal") for column in self.s_columns
        )

    @property
    def contexts(self) -> Float2:
        """(2, s_dim) mean and sd of S in the archive; 0 and 1 where they are not known."""
        if self.moments is not None:
            return self.moments
        return np.stack([np.zeros(len(self.s_names)), np.ones(len(self.s_names))])

    @property
    def by_time(self) -> bool:
        """Whether the pieces are periods of time, so that one unit has rows in several."""
        return isinstance(self.cluster, tuple)

    def with_moments(self, moments: Float2) -> Schema:
        """Return the schema with mean and sd of S, (2, s_dim)."""
        return replace(self, moments=moments)

    @cached_property
    def revealed(self) -> Schema:
        """The W columns as if they were S: reads W that is revealed later."""
        return Schema(tuple(replace(column, role="S") for column in self.w_columns))

    @cached_property
    def _whole_numbers(self) -> tuple[tuple[int, Column], ...]:
        """Numeric S columns that are declared counts or 0 and 1, and where they stand."""
        each = [column for column in self.s_columns for _ in column.names]
        return tuple((j, c) for j, c in enumerate(each) if c.kind in ("count", "binary"))

    def check(self, s: Float, where: str) -> None:
        """Refuse numbers s (..., s_dim) that are not counts, or 0 and 1, where that is declared."""
        for j, column in self._whole_numbers:
            column.check(s[..., j].reshape(-1), where)

    def encode(self, row: Mapping[str, Any], where: str) -> Float1:
        """Return S_t, (s_dim,), from values by the names of the table's columns."""
        columns = self.s_columns
        known, values = [column.name for column in columns], {str(k): v for k, v in row.items()}
        if set(known) != set(values):
            raise DataError(f"{where} is labelled {list(values)}, but {known} are needed.")
        try:
            return np.concatenate(
                [column.encode([values[column.name]], where)[0] for column in columns]
            )
        except (TypeError, ValueError) as cause:
            raise DataError(f"{where} must hold numbers for {known}: {cause}.") from cause

    def expect(self, other: Schema, where: str, who: str) -> None:
        """Refuse an archive whose S or W are other columns, or mean something else.

        See :meth:`expect_s`.
        """
        self.expect_s(other, where, who)
        _expect(self.w_columns, other.w_columns, where, who)

    def expect_s(self, other: Schema, where: str, who: str) -> None:
        """Refuse an archive whose S is of other columns, or of the same with another meaning.

        where, who : for the message, e.g. "calibrate" and "the held-out units have". Kind, levels
        (their order and so the base level too) and period must agree where both archives declare a
        column; a plain number agrees with every kind, since archives made from arrays declare
        nothing.
        """
        _expect(self.s_columns, other.s_columns, where, who)

    def to_plain(self) -> dict[str, Any]:
        """Return plain values, for saves."""
        return {
            "columns": [asdict(column) for column in self.columns],
            "moments": None if self.moments is None else self.moments.tolist(),
            "cluster": list(self.cluster) if isinstance(self.cluster, tuple) else self.cluster,
            "units": list(self.units),
        }

    @classmethod
    def from_plain(cls, values: Mapping[str, Any]) -> Schema:
        """Rebuild from :meth:`to_plain`."""
        columns = tuple(
            Column(**{**column, "levels": tuple(column["levels"])}) for column in values["columns"]
        )
        moments, cluster = values["moments"], values["cluster"]
        return cls(
            columns,
            None if moments is None else np.array(moments),
            (cluster[0],) if isinstance(cluster, list) else cluster,
            tuple(values["units"]),
        )


def _expect(mine: tuple[Column, ...], theirs: tuple[Column, ...], where: str, who: str) -> None:
    """Refuse columns that are others, or mean something else; see Schema.expect_s."""
    own = {name: column for column in mine for name in column.names}
    got = {name: column for column in theirs for name in column.names}
    if tuple(own) != tuple(got):
        odd = sorted(set(own) ^ set(got)) or [next(iter(got))]
        raise DataError(
            f"{where}: the law was fitted on columns {tuple(own)}, but {who} {tuple(got)}; "
            f"{odd[0]!r} does not match, name and order must agree."
        )
    for name, column in own.items():
        if "real" in (column.kind, got[name].kind):
            continue
        if column.meaning != got[name].meaning:
            raise DataError(
                f"{where}: the law was fitted on column {column.name!r} as {column.meaning}, "
                f"but {who} it as {got[name].meaning}; declare it alike with kinds=."
            )


# What every check has to say: a verdict, the number behind it, a sentence.


Verdict = Literal["pass", "warn", "fail", "info"]
RANK: tuple[Verdict, ...] = ("info", "pass", "warn", "fail")


def picture(name: str) -> Callable[..., Axes]:
    """Return the plot of that name: results have a ``.plot()``, and ``report`` lists all plots.

    The one place where an early part of the package reaches for a late one, when it is called.
    """
    plot: Callable[..., Axes] = named(import_module("pulse_pyro.report").PLOTS, name)
    return plot


@dataclass(frozen=True)
class Check:
    """One question put to a law: verdict, the number behind it, its threshold, a sentence."""

    name: str
    verdict: Verdict
    value: float
    threshold: float
    text: str


WARN, FAIL = 0.01, 0.001  # nominal sizes: a check warns, or fails, a right law this often at most


def verdict(
    p: float,
    size: float = float("inf"),
    margins: tuple[float, float] = (0.0, 0.0),
    *,
    limits: tuple[float, float] = (WARN, FAIL),
) -> Verdict:
    """Return "fail" at p < limits[1] and size >= margins[1], "warn" at those [0], else "pass".

    p : a p-value, or another figure that is worse the smaller it is; one that is not a number
    fails. size : how large the deviation is; a small one passes, however surely it is there.
    """
    if not p >= limits[1] and size >= margins[1]:
        return "fail"
    return "warn" if not p >= limits[0] and size >= margins[0] else "pass"


def worst_verdict(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the most serious of some verdicts; "info" if there are none."""
    return max(verdicts, key=RANK.index, default="info")


class Checks(tuple[Check, ...]):
    """Checks in the order they were made; a tuple that knows its verdict.

    >>> found = Checks([Check("rows", "info", 9, 9, "All."), Check("pit w", "warn", 0.1, 0.05, "")])
    >>> found.verdict, [check.name for check in found.worst(1)]
    ('warn', ['pit w'])
    """

    __slots__ = ()

    @property
    def verdict(self) -> Verdict:
        """The worst verdict among the checks."""
        return worst_verdict(check.verdict for check in self)

    @property
    def table(self) -> DataFrame:
        """One line per check."""
        import pandas as pd

        columns = [field.name for field in fields(Check)]
        return pd.DataFrame([asdict(check) for check in self], columns=columns).set_index("name")

    def worst(self, n: int | None = None) -> Checks:
        """Return the n most serious checks, all by default; those alike in the order made."""
        return Checks(sorted(self, key=lambda check: -RANK.index(check.verdict))[:n])


# What the contract check found out about a model. Nothing here imports torch.


SLOW = "\n  slow because the model does not broadcast over draws: "
BROADCAST = "write (x * b).sum(-1) for x @ b, sd[..., None], and .to_event(1) on vector sites"
FEW_VALUES = ("Bernoulli", "Categorical", "OrderedLogistic")
ONE_SITE = (
    "\n  w takes few values but is one site, so its expectations are drawn; with a site named like "
    'each column, w = w or {{}} and pyro.sample("mood", dist.{0}(...), obs=w.get("mood")), they '
    "are exact sums"
)
DISCRETE = (
    "\n  site {0!r} is discrete and not summed out: no engine fits it; give it finite support and "
    'a place inside plate "rows", pyro.sample("{0}", dist.Categorical(logits=...)), or bring a '
    "guide of your own for Svi"
)


MOST_UNIT_CELLS = 256  # of the latents of a new unit; beyond that they are drawn


@dataclass(frozen=True)
class Site:
    """One sample site of a model.

    ``global`` sites stand outside plate "rows" and make up the posterior; ``unit`` ones stand in
    plate "units" and belong to single units: they are kept for those of the archive, and come from
    the population for new ones, if the model is given ``unit`` at prediction too; ``local`` ones
    stand inside "rows", are redrawn for new rows and never stored; ``observed`` is the site w, or
    that of a W column. support : how many values the site is summed over, 0 if it is not: a
    discrete one over all it has, a normal latent over the nodes of a quadrature (at prediction
    only). parents : W columns that this one is conditioned on.
    """

    name: str
    kind: Literal["global", "unit", "local", "observed"]
    batch_shape: tuple[int, ...]
    event_shape: tuple[int, ...]
    distribution: str
    discrete: bool
    support: int = 0
    parents: tuple[str, ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one draw."""
        return self.batch_shape + self.event_shape


@dataclass(frozen=True)
class ModelCard:
    """A model that meets the contract: its sites and how fast it can be run.

    Attributes
    ----------
    sites : every sample site, in order.
    x_dim, w_dim : width of the inputs and of w.
    vectorised : the model gives the same law when all draws run at once (fast prediction);
        otherwise prediction loops over draws.
    closed_mean : w has a closed-form mean given the global sites.
    nesting : plate dimensions the model uses; draws go to the left of them.
    unseen : what becomes of inputs that are not seen at prediction time.
    columns : the W columns, where each has a site of its own; none where "w" is one site.
    levels : for each of these the numbers its codes 0, 1, ... stand for, () where it has none: the
        model sees codes of an ordinal column, whoever asks sees the declared numbers.
    widths : numeric columns of w that each of these takes, if not one: a categorical of k levels is
        k - 1 columns of 0 and 1, and one of codes to the model.
    slow : what to write so that all draws can run at once, where it is known.
    by_unit : the model has sites of plate "units" and is given ``unit`` at prediction too.
    """

    sites: tuple[Site, ...]
    x_dim: int
    w_dim: int
    vectorised: bool
    nesting: int
    closed_mean: bool
    unseen: str = "refused"
    columns: tuple[str, ...] = ()
    levels: tuple[tuple[float, ...], ...] = ()
    widths: tuple[int, ...] = ()
    slow: str = ""
    by_unit: bool = False

    @property
    def globals(self) -> tuple[Site, ...]:
        """Sites that make up the posterior."""
        return tuple(site for site in self.sites if site.kind == "global")

    @property
    def locals(self) -> tuple[Site, ...]:
        """Latent sites of single rows."""
        return tuple(site for site in self.sites if site.kind == "local")

    @property
    def unit_sites(self) -> tuple[Site, ...]:
        """Latents of units that are kept, where the model is given ``unit`` at prediction too."""
        return tuple(site for site in self.sites if site.kind == "unit") if self.by_unit else ()

    @property
    def supports(self) -> dict[str, int]:
        """Over how many values a site is summed, by its name; those that are."""
        return {site.name: site.support for site in self.sites if site.support}

    @property
    def unit_cells(self) -> int:
        """Values over which the latents of a new unit are summed; 0 where they are drawn."""
        cells = prod(site.support for site in self.unit_sites)
        return cells if 0 < cells <= MOST_UNIT_CELLS else 0

    @property
    def enumerated(self) -> tuple[Site, ...]:
        """Discrete latents of rows, summed out of the fit and of predictions."""
        return tuple(site for site in self.locals if site.discrete and site.support)

    @property
    def enumerated_units(self) -> tuple[Site, ...]:
        """Discrete latents of units: summed out of the fit, then drawn for those of the archive."""
        return tuple(site for site in self.unit_sites if site.discrete and site.support)

    @property
    def sampled(self) -> tuple[Site, ...]:
        """Latents of rows that cannot be summed over: they are drawn at prediction."""
        return tuple(site for site in self.locals if not site.support)

    @property
    def summed_latents(self) -> tuple[str, ...]:
        """Names of the latents of rows that are summed over at prediction."""
        return tuple(site.name for site in self.locals if site.support)

    @property
    def summed(self) -> tuple[str, ...]:
        """Those, and the W columns that others are conditioned on, for means and densities."""
        columns = tuple(site.name for site in self._parents if site.support)
        return self.summed_latents + columns

    @property
    def draws_for_means(self) -> bool:
        """Whether a mean of W needs draws of what cannot be summed over."""
        return bool(self.sampled) or not all(site.support for site in self._parents)

    @property
    def by_site(self) -> bool:
        """Whether there is something to sum over, or a site per W column."""
        return bool(self.columns or self.enumerated)

    @property
    def cells(self) -> int:
        """Values of all summed sites together: what one row costs against a model without."""
        return prod(site.support for site in self.sites if site.name in self.summed)

    @property
    def _parents(self) -> tuple[Site, ...]:
        above = {name for site in self.sites for name in site.parents}
        return tuple(site for site in self.sites if site.name in above)

    @property
    def table(self) -> DataFrame:
        """One line per site."""
        import pandas as pd

        rows = [
            (s.name, s.kind, s.shape, s.distribution, s.discrete, self.role(s), self.terms(s))
            for s in self.sites
        ]
        names = ["site", "kind", "shape", "distribution", "discrete", "role", "terms"]
        return pd.DataFrame(rows, columns=names)

    def role(self, site: Site) -> str:
        """Return what becomes of a site, in words."""
        if site.kind == "global":
            return "global: drawn from the posterior"
        if site.kind == "unit":
            if not self.by_unit:
                return "per unit: fitted, not stored"
            new = "summed over" if self.unit_cells else "drawn, which no guard takes"
            own = "enumerated in the fit" if site in self.enumerated_units else "its own posterior"
            return f"per unit: {own}; of a new unit {new}"
        if site.kind == "observed":
            given = f" given {', '.join(site.parents)}" if site.parents else ""
            return f"W{given}"
        if not self.by_site or not site.support:
            return "per row: drawn anew"
        if site.discrete:
            return "per row, enumerated: summed out of fit and prediction"
        return "per row: fitted, integrated out of predictions"

    def terms(self, site: Site) -> int:
        """Return the cost of a site: over how many values it is summed in every row."""
        return site.support or 1

    def __repr__(self) -> str:
        speed = "all draws at once" if self.vectorised else "draw by draw (slow)"
        latent = ", ".join(f"{s.name}{list(s.shape)}" for s in self.globals) or "none"
        local = ", ".join(s.name for s in self.locals) or "none"
        missing = {
            "refused": "rounds that lack one are refused",
            "learned": "learned, for inputs training saw missing; refused for others",
        }
        return (
            f"ModelCard: ok, {self.x_dim} inputs -> w[{self.w_dim}], predicts {speed}\n"
            f"  global sites: {latent}\n  local sites: {local}\n"
            + (f"  per unit: {', '.join(s.name for s in self.unit_sites)}\n" * self.by_unit)
            + self._summary()
            + f"  unseen inputs: {missing.get(self.unseen, self.unseen)}"
            + "".join(
                DISCRETE.format(s.name)
                for s in self.sites
                if s.discrete and not s.support and s.kind != "observed"
            )
            + "".join(
                ONE_SITE.format(s.distribution)
                for s in self.sites
                if s.kind == "observed" and not self.columns and s.distribution in FEW_VALUES
            )
            + ("" if self.vectorised else SLOW + (self.slow or BROADCAST))
        )

    def _summary(self) -> str:
        """Lines on the W columns and on what is summed over, if there are any."""
        lines = []
        if self.columns:
            each = [f"{s.name} ({s.distribution})" for s in self.sites if s.kind == "observed"]
            lines.append(f"  a site per W column: {', '.join(each)}\n")
        if self.summed:
            sizes = {s.name: s.support for s in self.sites}
            each = [f"{name} ({sizes[name]})" for name in self.summed]
            lines.append(f"  summed over: {', '.join(each)}, {self.cells} terms a row\n")
        for site in self.sites:
            # global ones stand in a line of their own, and so does a single site w
            if site.kind != "global" and (site.kind != "observed" or self.columns):
                cost = f", {site.support} values" if site.support else ""
                lines.append(f"    {site.name}: {self.role(site)}{cost}\n")
        return "".join(lines)

    def _repr_html_(self) -> str:
        return f"<pre>{self!r}</pre>{self.table.to_html(index=False)}"
