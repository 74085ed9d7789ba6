"""Rung G: the law's mean error in each of some declared groups, all at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from pulse_pyro._core.arrays import Array, Bool, Float1, Float2, Int
from pulse_pyro._core.errors import DataError, SettingError, nearest
from pulse_pyro._core.seeds import stream
from pulse_pyro.bands.band import check_level
from pulse_pyro.base import Check, Checks, Column, Schema, level_text
from pulse_pyro.calibration.clustered_means import (
    Cells,
    clustered_means,
    clusters_needed,
)
from pulse_pyro.calibration.forecast import cluster_check
from pulse_pyro.calibration.rung import Ask, ErrorRows, Groups, Rung, no_rung, percent, rounded_up

if TYPE_CHECKING:
    from pandas import DataFrame

FORECAST, TIME = "forecast", "time"  # names that are no columns
QUANTILES = 5  # groups of a real column, and of the forecast
PARTS = 3  # of a unit's steps
QUARTERS = 4  # of a clock
MOST_EDGES = 100  # an array of more numbers holds labels
FEW_VALUES = 8  # up to which a column is taken value by value


@dataclass(frozen=True, eq=False)
class GroupErrors:
    """Mean error of a law in declared groups; all groups and targets at once.

    With probability ``level``, for every group k and target j that is judged::

        low <= E[W_j - mu_hat_j(S) | group k] <= high

    Attributes
    ----------
    names : of the q targets. spread : (q,) their standard deviations.
    group : (M,) what each line speaks of, in words; lines stand grouping after grouping, in each
        target after target. target : (M,) which target.
    error, low, high : (M,) mean error and limits, in the units of the target; NaN limits where a
        group is not judged.
    rows, clusters, df : (M,) what they were made from. judged : (M,) whether the clusters were
        enough (df >= 4).

    Not covered: groups that nobody declared, single contexts within a group, groups chosen by
    looking at these errors, another mix of contexts online.
    """

    level: float
    names: tuple[str, ...]
    spread: Float1
    group: tuple[str, ...]
    target: Int
    error: Float1
    low: Float1
    high: Float1
    rows: Int
    clusters: Int
    df: Float1
    judged: Bool

    @property
    def bound(self) -> Float1:
        """(M,) max(|low|, |high|) in the units of the target; NaN where a group is not judged."""
        out: Float1 = np.maximum(np.abs(self.low), np.abs(self.high))
        return out

    @property
    def sizes(self) -> Float1:
        """(q,) mean bound over the rows of judged groups, in sds of each target; NaN without."""
        at, q = self.judged, len(self.names)
        total = np.bincount(self.target[at], (self.rows * self.bound)[at], q)
        count = np.bincount(self.target[at], self.rows[at], q)
        mean = np.divide(total, count, out=np.full(q, np.nan), where=count > 0)
        out: Float1 = mean / self.spread
        return out

    @property
    def largest_bound(self) -> Float1:
        """(q,) bound of the group where it is largest, in the units of each target.

        NaN for a target of which no group is judged: nothing bounds its error.
        """
        out = np.full(len(self.names), np.nan)
        np.fmax.at(out, self.target[self.judged], self.bound[self.judged])
        return out

    @property
    def verdicts(self) -> tuple[str, ...]:
        """(M,) "within +-x" in the units of the target and in its sds, or why there is none."""
        out = []
        for i, size in enumerate(self.bound):
            if self.judged[i]:
                sds = rounded_up(size / self.spread[self.target[i]])
                out.append(f"within +-{rounded_up(size, 3)} ({sds} sd)")
            else:
                few = f"clusters of such sizes are too few ({self.clusters[i]})"
                why = "no rows" if self.rows[i] == 0 else few
                out.append(f"not judged: {why}")
        return tuple(out)

    @property
    def table(self) -> DataFrame:
        """One line a group and target."""
        import pandas as pd

        return pd.DataFrame(
            {
                "group": list(self.group),
                "target": [self.names[j] for j in self.target],
                "rows": self.rows,
                "clusters": self.clusters,
                "mean error": self.error,
                "low": self.low,
                "high": self.high,
                "df": self.df,
                "verdict": list(self.verdicts),
            }
        )


def groups_rung(rows: ErrorRows, ask: Ask) -> Rung:
    """Bound the mean error in every declared group, for every target at once (rung G).

    Parameters
    ----------
    rows : held-out rows (n, q) of clusters the law was not fitted on.
    ask.groups : names, or a mapping name -> choice. A name is an S column (categorical
        and few-valued columns are taken value by value, clocks by quarter of their period, real
        ones by quintile), "forecast" (quintiles of each target's forecast) or "time" (early, middle
        and late steps of each unit). A choice is None (as a name alone), how many quantile groups,
        rising edges (fewer than 100 numbers), an array of labels, one for each row of the held-out
        archive, or a mapping label -> True or False for each row of it; masks under one name must
        not overlap or be empty. None: nothing was asked.
    ask.schema, ask.rows : of the archive, which say what its S columns are, and how many labels or
        masks there must be.
    ask.level : probability that the limits of all groups and targets hold. ask.seed : of the
        simulated critical value.

    Groups must be declared before looking at the errors. In each the mean error has limits as in
    :func:`clustered_means`; a group with too few clusters (df < 4) is said to be not judged. Needs
    independent clusters, and nothing else. Not covered: see :class:`GroupErrors`.
    """
    if ask.groups is None:
        return no_rung("groups", "not asked", "No groups were declared: groups=[...] names them.")
    level = check_level(ask.level, "groups_rung")
    groupings = sort_into_groups(rows, ask.groups, ask.schema, ask.rows)
    return certify_groups(rows, groupings, level=level, seed=ask.seed)


class Grouping(NamedTuple):
    """Rows sorted into groups that do not overlap: cells, and what each is called."""

    name: str
    labels: tuple[str, ...]
    cells: Cells


def certify_groups(
    rows: ErrorRows, groupings: Sequence[Grouping], *, level: float, seed: int
) -> Rung:
    """Return rung G of rows that are already sorted into groups."""
    found = clustered_means(
        rows.error,
        rows.forecast,
        rows.cluster,
        [grouping.cells for grouping in groupings],
        level=level,
        rng=stream(seed, "groups rung"),
    )
    details = GroupErrors(
        level=level,
        names=rows.names,
        spread=rows.spread,
        group=tuple(
            groupings[part].labels[cell] for part, cell in zip(found.part, found.cell, strict=True)
        ),
        target=found.column,
        error=found.mean,
        low=found.low,
        high=found.high,
        rows=found.rows,
        clusters=found.clusters,
        df=found.df,
        judged=found.judged,
    )
    if not details.judged.any():
        needed = clusters_needed(float(details.df.max()), int(details.clusters.max()))
        return no_rung(
            "groups",
            "fails",
            f"None of {len(details.group)} groups has clusters enough for a mean with limits.",
            f"Hold out about {needed} clusters or more for each group, or declare larger groups.",
        )
    left_out = sorted(
        {name for name, ok in zip(details.group, found.judged, strict=True) if not ok}
    )
    return Rung(
        name="groups",
        verdict="stands",
        claim=_claim(details, len(left_out)),
        sizes=details.sizes,
        remedy=_remedy(details) if left_out else "",
        checks=Checks([cluster_check(rows.clusters), _judged_check(details, left_out)]),
        details=details,
    )


def _claim(found: GroupErrors, left_out: int) -> str:
    relative = found.bound / found.spread[found.target]
    worst = int(np.nanargmax(relative))
    judged = len({name for name, ok in zip(found.group, found.judged, strict=True) if ok})
    known = np.isfinite(found.sizes)
    named = [name for name, ok in zip(found.names, known, strict=True) if ok]
    unknown = [name for name in found.names if name not in named]
    targets = " and ".join(named) if len(named) < 4 else f"{len(named)} targets"
    size = rounded_up(float(np.nanmax(found.sizes)))
    text = (
        f"{percent(found.level)}, the law's mean error is within {size} "
        f"sd (mean over rows; at worst {rounded_up(relative[worst])} sd, {found.group[worst]}) in "
        f"{'each of ' if judged > 1 else ''}{judged} declared group{'s' * (judged > 1)}, for "
        f"{targets}{' at once' * (len(named) > 1)}"
    )
    text += f"; not judged: {left_out} more" if left_out else ""
    return f"{text}; nothing is said of {' and '.join(unknown)}." if unknown else f"{text}."


def _remedy(found: GroupErrors) -> str:
    hard = np.flatnonzero(~found.judged)
    needed = max(clusters_needed(float(found.df[i]), int(found.clusters[i])) for i in hard)
    return f"Groups that are not judged need about {needed} clusters or more each."


def _judged_check(found: GroupErrors, left_out: list[str]) -> Check:
    share = float(found.judged.mean())
    shown = ", ".join(left_out[:4]) + (" and more" if len(left_out) > 4 else "")
    text = f"Too few clusters to judge: {shown}." if left_out else "Every group is judged."
    return Check("groups judged", "warn" if left_out else "pass", share, 1.0, text)


# From names and choices to groups.


@dataclass(frozen=True, eq=False)
class GroupRule:
    """How rows are sorted by numeric columns of S, or by the forecast: known to any new row.

    name, labels : of the grouping and its groups. source : "S" or "forecast". columns : which of
    its columns are looked at. how : "level" (contrasts of a category), "clock" (sine and cosine),
    "value" (the nearest of ``at``) or "cut" (``at`` are the borders, each in the lower group).
    """

    name: str
    labels: tuple[str, ...]
    source: Literal["S", "forecast"]
    columns: tuple[int, ...]
    how: Literal["level", "clock", "value", "cut"]
    at: Float1

    def codes(self, s: Float2, forecast: Float2) -> Int:
        """Return the group of each row of s (n, s_dim), forecast (n, q); -1 where it is NaN."""
        values = (s if self.source == "S" else forecast)[:, self.columns]
        seen = np.isfinite(values.sum(1))
        return np.where(seen, self._codes(np.where(seen[:, None], values, 0.0)), -1)

    def _codes(self, values: Float2) -> Int:
        if self.how == "level":
            return np.where(values.max(1) > 0.5, values.argmax(1) + 1, 0)
        if self.how == "clock":
            turn = np.arctan2(values[:, 0], values[:, 1]) / (2.0 * np.pi) % 1.0
            # 6 o'clock is in the quarter that begins there, whatever its sine is rounded to
            return np.floor(turn * QUARTERS + 1e-9).astype(np.int64) % QUARTERS
        cuts = (self.at[1:] + self.at[:-1]) / 2.0 if self.how == "value" else self.at
        return np.searchsorted(cuts, values[:, 0], side="left")


def sort_into_groups(
    rows: ErrorRows, groups: Groups, schema: Schema, archived: int = 0
) -> list[Grouping]:
    """Sort rows into the declared groups; see :func:`groups_rung`.

    archived : how many rows the held-out archive has; 0 where not told.
    """
    out: list[Grouping] = []
    archive = _Archived(archived, int(rows.history_row.max(initial=-1)) + 1)
    every = tuple(range(len(rows.names)))
    for name, choice in named_choices(groups).items():
        if by_row(choice, archive.told or archive.least):
            labels, code = _declared(rows, name, choice, archive)
            out.append(Grouping(name, labels, Cells(code, len(labels), every)))
        elif name == TIME:
            parts = PARTS if choice is None else _how_many(choice, name)
            code, labels = _time_codes(rows, parts), _time_labels(parts)
            out.append(Grouping(name, labels, Cells(code, parts, every)))
        else:
            for columns, rule in group_rules(rows, name, choice, schema):
                code = rule.codes(rows.s, rows.forecast)
                out.append(Grouping(rule.name, rule.labels, Cells(code, len(rule.labels), columns)))
    return out


def named_choices(groups: Groups) -> dict[str, Any]:
    """Return name -> choice, None where there is only a name; refuses what is neither."""
    if isinstance(groups, Mapping):
        found = dict(groups)
    elif isinstance(groups, str) or not isinstance(groups, Sequence):
        raise SettingError(
            f"groups must be a list of names such as ['city', 'forecast'], or a mapping from names "
            f"to choices, but got {groups!r}."
        )
    else:
        found = {str(name): None for name in groups}
        if len(found) < len(groups):
            raise SettingError(f"groups: a name stands twice in {list(groups)}; leave one out.")
    if not found:
        raise SettingError("groups: no group is named; pass None if none is wanted.")
    return found


def group_rules(
    rows: ErrorRows, name: str, choice: Any, schema: Schema
) -> list[tuple[tuple[int, ...], GroupRule]]:
    """Return rules for a name, each with the targets (columns of q) it is meant for.

    One rule for all targets by S; by the forecast, one for each target.
    """
    if name == FORECAST:
        many = len(rows.names) > 1
        return [
            (
                (j,),
                _cut_rule(
                    f"forecast of {target}" if many else FORECAST,
                    "forecast",
                    j,
                    rows.forecast[:, j],
                    QUANTILES if choice is None else choice,
                ),
            )
            for j, target in enumerate(rows.names)
        ]
    every = tuple(range(len(rows.names)))
    place = {numeric: j for j, numeric in enumerate(rows.s_names)}
    column = next((c for c in schema.s_columns if c.name == name), None)
    if column is None and name in place:
        column = Column(name)  # one numeric column of a category or clock
    if column is None or not set(column.names) <= set(place):
        known = [*(c.name for c in schema.s_columns), FORECAST, TIME]
        raise DataError(
            f"groups: there is no S column {name!r}{nearest(name, known)} Other groups are "
            "declared by a label, as text, for each row of the held-out archive: "
            "groups={'kind': labels}."
        )
    at = tuple(place[numeric] for numeric in column.names)
    values = rows.s[:, at]
    if choice is not None:
        if len(at) > 1:
            raise SettingError(
                f"groups: {name!r} is {column.kind} and is sorted by itself; pass its name alone, "
                "or a label for each row."
            )
        return [(every, _cut_rule(name, "S", at[0], values[:, 0], choice))]
    return [(every, _column_rule(column, at, values))]


def _column_rule(column: Column, at: tuple[int, ...], values: Float2) -> GroupRule:
    """Return the usual groups of a column."""
    name, nothing = column.name, np.zeros(0)
    if column.kind == "categorical":
        labels = tuple(f"{name} = {level}" for level in column.levels)
        return GroupRule(name, labels, "S", at, "level", nothing)
    if column.kind == "clock":
        ends = np.arange(QUARTERS + 1) * column.period / QUARTERS
        labels = tuple(f"{name} {a:g} to {b:g}" for a, b in pairwise(ends))
        return GroupRule(name, labels, "S", at, "clock", nothing)
    seen = values[np.isfinite(values[:, 0]), 0]
    distinct = _few_distinct(seen)
    if column.kind == "ordinal" and column.levels:
        distinct = np.array(column.numbers)
        labels = tuple(f"{name} = {level}" for level in column.levels)
        return GroupRule(name, labels, "S", at, "value", distinct)
    if distinct is not None:
        labels = tuple(f"{name} = {value:.6g}" for value in distinct)
        return GroupRule(name, labels, "S", at, "value", distinct)
    return _cut_rule(name, "S", at[0], seen, QUANTILES)


def _few_distinct(values: Float1) -> Float1 | None:
    """Return the values of a column that has few, else None."""
    some = values[:: max(len(values) // 1000, 1)]  # most columns are told from a thousand rows
    if len(np.unique(some)) > FEW_VALUES:
        return None
    every = np.unique(values)
    return every if len(every) <= FEW_VALUES else None


def _cut_rule(
    name: str, source: Literal["S", "forecast"], column: int, values: Float1, choice: Any
) -> GroupRule:
    """Return quantile groups, so many, or groups between rising edges."""
    seen = values[np.isfinite(values)]
    if isinstance(choice, int | np.integer) and not isinstance(choice, bool):
        many = _how_many(choice, name)
        cuts = np.unique(np.quantile(seen, np.arange(1, many) / many)) if len(seen) else np.zeros(0)
        cuts = cuts[cuts < seen.max()] if len(seen) else cuts
        return GroupRule(name, _cut_labels(name, cuts), source, (column,), "cut", cuts)
    try:
        edges = np.asarray(choice, np.float64)
    except (TypeError, ValueError):
        edges = np.zeros((0, 0))
    if (
        edges.ndim != 1
        or not len(edges)
        or not np.isfinite(edges).all()
        or (np.diff(edges) <= 0).any()
    ):
        raise SettingError(
            f"groups: the choice for {name!r} must be a number of groups, rising edges, a label "
            f"for each row of the held-out archive, or label -> mask, but got {_short(choice)}. "
            f"Fewer than {MOST_EDGES} numbers are edges, unless there is one for each row: write "
            "labels as text."
        )
    rule = GroupRule(name, _cut_labels(name, edges), source, (column,), "cut", edges)
    count = np.bincount(np.searchsorted(edges, seen, side="left"), minlength=len(edges) + 1)
    if not count.all():
        empty = rule.labels[int(count.argmin())]
        raise DataError(
            f"groups: no held-out row has {empty}; the values of {name!r} run from "
            f"{seen.min():g} to {seen.max():g}: choose edges between them."
        )
    return rule


def _short(choice: Any) -> str:
    text = repr(choice)
    return text if len(text) <= 100 else f"{text[:97]}..."


def _cut_labels(name: str, cuts: Float1) -> tuple[str, ...]:
    if not len(cuts):
        return (f"{name}, all",)
    text = [f"{cut:.4g}" for cut in cuts]
    between = [f"{name} {a} to {b}" for a, b in pairwise(text)]
    return (f"{name} up to {text[0]}", *between, f"{name} above {text[-1]}")


def _how_many(choice: Any, name: str) -> int:
    whole = isinstance(choice, int | np.integer) and not isinstance(choice, bool)
    if not whole or not 2 <= choice <= 100:
        raise SettingError(
            f"groups: the number of groups of {name!r} must be 2 to 100, but got {choice!r}."
        )
    return int(choice)


def _time_codes(rows: ErrorRows, parts: int) -> Int:
    """Return which part of its unit's steps each row is in, (n,)."""
    many = int(rows.unit.max()) + 1 if len(rows.unit) else 0
    first, last = np.full(many, np.iinfo(np.int64).max), np.full(many, -1)
    np.minimum.at(first, rows.unit, rows.time)
    np.maximum.at(last, rows.unit, rows.time)
    done = rows.time - first[rows.unit]
    out: Int = done * parts // (last - first + 1)[rows.unit]
    return out


def _time_labels(parts: int) -> tuple[str, ...]:
    if parts == PARTS:
        return ("time: early", "time: middle", "time: late")
    return tuple(f"time: part {k + 1} of {parts}" for k in range(parts))


# Groups declared row by row.


class _Archived(NamedTuple):
    """How many rows the held-out archive has: as told, 0 where it was not, and at least."""

    told: int
    least: int

    def __str__(self) -> str:
        return str(self.told) if self.told else f"at least {self.least}"

    def fits(self, shape: tuple[int, ...]) -> bool:
        """Tell whether an array of this shape holds one value for each row."""
        if len(shape) != 1:
            return False
        return shape[0] == self.told if self.told else shape[0] >= self.least


def by_row(choice: Any, archived: int = 0) -> bool:
    """Tell whether a choice is labels or masks, one for each row of the archive.

    archived : how many rows it has. Few numbers are edges; many are labels, and so are few that do
    not rise if there are as many as rows.
    """
    if isinstance(choice, Mapping):
        return True
    if choice is None or isinstance(choice, int | float | str | np.number):
        return False
    try:
        values = np.asarray(choice)
    except ValueError:  # lists of different lengths are neither
        return False
    if values.dtype.kind not in "iuf" or values.size >= MOST_EDGES:
        return True
    rising = values.ndim == 1 and bool((np.diff(values) > 0).all())
    return values.shape == (archived,) and not rising


def take_groups(groups: Groups, rows: Int, archived: int) -> Groups:
    """Return declared groups for some rows, by number, of an archive of so many rows.

    Labels and masks are cut to these rows; what goes by name stays as it is.
    """
    if not isinstance(groups, Mapping):
        return groups
    whole = _Archived(archived, archived)
    out: dict[str, Any] = {}
    for name, choice in groups.items():
        if isinstance(choice, Mapping):
            masks = {label: _mask(mask, name, label, whole) for label, mask in choice.items()}
            out[name] = {label: mask[rows] for label, mask in masks.items()}
        elif by_row(choice, archived):
            # as objects: what is left of many numbers must not be taken for edges
            out[name] = _labels(choice, name, whole).astype(object)[rows]
        else:
            out[name] = choice
    return out


def _labels(choice: Any, name: str, archive: _Archived) -> Array:
    try:
        # a list as objects: beside text, NaN would become the text "nan"
        values = np.asarray(choice, object if isinstance(choice, Sequence) else None)
    except ValueError:  # lists of different lengths
        values = np.zeros(0)
    if not archive.fits(values.shape):
        raise DataError(
            f"groups: {name!r} must hold a label for each row of the held-out archive, {archive}, "
            f"but its shape is {values.shape}; where the archive was split, take the labels of "
            "the rows that are held out, or make them a column of S."
        )
    return values


def _declared(
    rows: ErrorRows, name: str, choice: Any, archive: _Archived
) -> tuple[tuple[str, ...], Int]:
    """Return names and (n,) codes of groups that are declared row by row."""
    if isinstance(choice, Mapping):
        masks = {str(label): _mask(mask, name, label, archive) for label, mask in choice.items()}
        if not masks:
            raise DataError(f"groups: {name!r} maps no label to a mask.")
        if len({len(mask) for mask in masks.values()}) > 1:
            raise DataError(f"groups: the masks of {name!r} are not all of the same length.")
        stacked = np.stack(list(masks.values()))
        twice = np.flatnonzero(stacked.sum(0) > 1)
        if len(twice):
            both = [label for label, mask in masks.items() if mask[twice[0]]][:2]
            raise DataError(
                f"groups: {both[0]!r} and {both[1]!r} of {name!r} overlap, in row {twice[0]} and "
                f"{len(twice) - 1} more; declare groups that overlap under names of their own: "
                f"groups={{{both[0]!r}: {{...}}, {both[1]!r}: {{...}}}}."
            )
        code = np.where(stacked.any(0), stacked.argmax(0), -1)
        return tuple(f"{name}: {label}" for label in masks), code[rows.history_row]
    import pandas as pd

    labels = _labels(choice, name, archive)
    try:
        number, distinct = pd.factorize(labels)  # -1 where a label is missing
    except TypeError as error:
        raise DataError(
            f"groups: the labels of {name!r} must be text or numbers, but some are not ({error})."
        ) from error
    here = number[rows.history_row]
    met = np.bincount(here[here >= 0], minlength=len(distinct)) > 0
    text = [level_text(label) for label in distinct]
    known = sorted({label for label, there in zip(text, met, strict=True) if there})
    if not known:
        raise DataError(f"groups: every label of {name!r} is missing.")
    place = {label: i for i, label in enumerate(known)}
    codes = np.array([*(place.get(label, -1) for label in text), -1])  # the last is for -1
    return tuple(f"{name} = {label}" for label in known), codes[here]


def _mask(mask: Any, name: str, label: Any, archive: _Archived) -> Bool:
    try:
        values = np.asarray(mask)
    except ValueError:  # lists of different lengths
        values = np.asarray(mask, object)
    if values.dtype != np.bool_ or not archive.fits(values.shape):
        raise DataError(
            f"groups: the mask of {label!r} in {name!r} must hold True or False for each row of "
            f"the held-out archive, {archive}, but it is {values.dtype} of shape {values.shape}."
        )
    if not values.any():
        raise DataError(
            f"groups: {label!r} of {name!r} is empty: no row of the archive is in it. Leave it "
            "out, or hold out units that have such rows."
        )
    return values
