"""Certify, repair, certify again: a law corrected by the mean errors its groups have.

The clusters of an archive are split in two. On the first half the mean error of each group is
found, shrunk, and added to the law's mean (multiaccuracy); on the second half rung G judges the law
before and after. No row is used for both.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from pulse_pyro._core.arrays import Float, Float1, Float2, Float3
from pulse_pyro._core.errors import DataError, LeakageError, SettingError
from pulse_pyro.bands.band import check_level
from pulse_pyro.base import (
    Conditional,
    Expectation,
    FeatureMap,
    FittedLaw,
    Follower,
    Schema,
    Summary,
)
from pulse_pyro.calibration.clustered_means import LEAST_FREEDOM, Cells, cell_means
from pulse_pyro.calibration.groups import (
    TIME,
    Grouping,
    GroupRule,
    by_row,
    certify_groups,
    group_rules,
    named_choices,
)
from pulse_pyro.calibration.rung import ErrorRows, Groups, Rung
from pulse_pyro.data.history import History, Source, context_rows
from pulse_pyro.diagnostics.leaks import met_before
from pulse_pyro.features import expectation
from pulse_pyro.laws.adapter import as_law
from pulse_pyro.laws.fitted import by_action, chosen

if TYPE_CHECKING:
    from pandas import DataFrame

PASSES = 20  # over groupings that overlap, until their corrections agree


@dataclass(frozen=True, eq=False)
class Correction:
    """What is added to the law's mean in the groups of one rule.

    rule : K groups. shift : (K, w_dim), in the units of W.
    """

    rule: GroupRule
    shift: Float2

    def at(self, s: Float2, forecast: Float2) -> Float2:
        """Return what is added at rows s (n, s_dim), forecast (n, w_dim): (n, w_dim).

        Nothing where the rule's column is not seen.
        """
        code = self.rule.codes(s, forecast)
        out: Float2 = np.where(code[:, None] >= 0, self.shift[code], 0.0)
        return out


class RepairedConditional:
    """A conditional law at n rows, moved by ``shift`` (n, w_dim); s : (n, s_dim)."""

    def __init__(self, law: Conditional, shift: Float2, s: Float2) -> None:
        self.law, self.shift, self.s = law, shift, s

    @property
    def exact(self) -> bool:
        """Whether the mean is closed form."""
        return self.law.exact

    def mean(self) -> Float2:
        """Return E[W | S_1:t], (n, w_dim)."""
        out: Float2 = self.law.mean() + self.shift
        return out

    def covariance(self) -> Float3:
        """Return Cov(W | S_1:t), (n, w_dim, w_dim), that of the law that was repaired."""
        return self.law.covariance()

    def draws(self, size: int, *, rng: np.random.Generator) -> Float3:
        """Draw W, (size, n, w_dim)."""
        out: Float3 = self.law.draws(size, rng=rng) + self.shift
        return out

    def mean_draws(self, size: int, *, rng: np.random.Generator) -> Float3:
        """Return draws of the mean, (size, n, w_dim)."""
        out: Float3 = self.law.mean_draws(size, rng=rng) + self.shift
        return out

    def expect(self, features: FeatureMap, *, size: int, rng: np.random.Generator) -> Expectation:
        """Return E[Phi], mean and mcse (n, action, d)."""
        return expectation(self, features, self.s, size=size, rng=rng)

    def cdf(self, w: Float2) -> Float2:
        """Return P(W_j <= w_j | S_1:t), (n, w_dim)."""
        return self.law.cdf(np.asarray(w) - self.shift)

    def log_density(self, w: Float2) -> Float2 | None:
        """Return log p(W_j = w_j | S_1:t), (n, w_dim); None where the law has no density."""
        return self.law.log_density(np.asarray(w) - self.shift)

    def joint_log_density(self, w: Float2) -> Float1 | None:
        """Return log p(W = w | S_1:t), (n,); None where the law has no density."""
        return self.law.joint_log_density(np.asarray(w) - self.shift)


class RepairedFollower:
    """A series followed by the law that was repaired, each answer moved."""

    def __init__(self, law: RepairedLaw, inner: Follower) -> None:
        self._law, self._inner = law, inner

    @property
    def now(self) -> Float1:
        """The newest S_t."""
        return self._inner.now

    @property
    def conditional(self) -> RepairedConditional:
        """The law of W_t given all that was taken in."""
        return self._law.moved(self._inner.conditional, self._inner.now[None].copy())

    def push(self, s: Float1, w: Float1 | None = None) -> RepairedConditional:
        """Take in S_t and return the law of W_t."""
        asked = self._inner.push(s, w)
        return self._law.moved(asked, self._inner.now[None].copy())

    def inputs(self) -> Float1:
        """Return x_t."""
        return self._inner.inputs()

    def state(self) -> dict[str, Float]:
        """Return all that has been taken in."""
        return self._inner.state()

    def restore(self, state: Mapping[str, Float]) -> None:
        """Go on from where :meth:`state` was taken."""
        self._inner.restore(state)


@dataclass(frozen=True, eq=False)
class RepairedLaw:
    """A fitted law whose answers are moved by what groups were found to be off.

    Attributes
    ----------
    law : the law before. corrections : one for each grouping, added up.
    units : the pieces the law was fitted on and those it was repaired with: it cannot be judged by
        either (LeakageError).
    schema : of the law before, with all these units.

    The whole law of W is moved, so its spread and shape stay: a 0/1 or count W then has draws that
    are no 0, 1 or count, and means may leave the range of W; use the mean.
    """

    law: FittedLaw
    corrections: tuple[Correction, ...]
    units: tuple[str, ...]
    schema: Schema

    @property
    def id(self) -> str:
        """Fingerprint of the law before and all that is added to it."""
        digest = hashlib.sha256(f"repaired {self.law.id}".encode())
        for correction in self.corrections:
            rule = correction.rule
            digest.update(repr((rule.labels, rule.source, rule.columns, rule.how)).encode())
            digest.update(np.ascontiguousarray(rule.at).tobytes())
            digest.update(np.ascontiguousarray(correction.shift).tobytes())
        return digest.hexdigest()[:16]

    @property
    def summary(self) -> Summary:
        """What of the past of S it looks at."""
        return self.law.summary

    def __repr__(self) -> str:
        names = ", ".join(correction.rule.name for correction in self.corrections)
        return f"RepairedLaw of {self.law.id}, by groups of {names}"

    def moved(self, asked: Conditional, s: Float2) -> RepairedConditional:
        """Return an answer of the law before at rows with S_t (n, s_dim), moved."""
        mean = asked.mean()
        shift = np.sum([correction.at(s, mean) for correction in self.corrections], axis=0)
        return RepairedConditional(asked, shift, s)

    def __call__(self, source: Source, at: ArrayLike | None = None) -> RepairedConditional:
        """Return the law of W at the rows of a History, or of s (batch, time[, action], s_dim)."""
        source, at = by_action(source, at)
        _, s = context_rows(source, self.summary, self.schema, "RepairedLaw")
        return self.moved(self.law(source, at), s[chosen(at, len(s))])

    def follow(self, unit: str | None = None) -> RepairedFollower:
        """Start to follow a series of which nothing has been seen yet."""
        return RepairedFollower(self, self.law.follow(unit))


@dataclass(frozen=True, eq=False)
class Repair:
    """A repaired law, and what fresh clusters say of the law before and after.

    before, after : rung G on the same half of the clusters, each at its own level: the pair does
    not hold at once with that probability. w_names : the columns of W.
    """

    law: RepairedLaw
    before: Rung
    after: Rung
    w_names: tuple[str, ...]

    @property
    def better(self) -> bool:
        """Whether the certified mean error is smaller after: if not, keep the law before."""
        return bool(self.after.size < self.before.size)

    @property
    def table(self) -> DataFrame:
        """One line a group and W: what is added to the law's mean."""
        import pandas as pd

        lines = [
            (label, name, correction.shift[k, j])
            for correction in self.law.corrections
            for j, name in enumerate(self.w_names)
            for k, label in enumerate(correction.rule.labels)
        ]
        return pd.DataFrame(lines, columns=["group", "target", "added"])

    def __repr__(self) -> str:
        lines = ["Repair", f"  before: {self.before.claim}", f"  after: {self.after.claim}"]
        if self.after.remedy:
            halves = "Half of the clusters repair and half judge: bring twice as many."
            lines.append(f"  what would help: {self.after.remedy} {halves}")
        return "\n".join(lines)


def repair(
    fitted: FittedLaw, history: History, groups: Groups, *, level: float = 0.95, seed: int
) -> Repair:
    """Correct a law by the mean errors of groups, and certify it on clusters it has not seen.

    Parameters
    ----------
    fitted : a law; none of its units may be in ``history`` (LeakageError).
    history : an archive with (S, W). Half of its clusters repair, the other half judge.
    groups : names of S columns or "forecast", or a mapping from these to a number of quantile
        groups or rising edges, as in :func:`groups_rung`. What cannot be known of a new row from S
        and the forecast (labels, masks, "time") cannot repair.
    level : of each certificate. seed : of the split, and of simulated critical values.

    In group k the mean error m_k, with standard error se_k over clusters, is shrunk to
    m_k tau^2 / (tau^2 + se_k^2), tau^2 = mean of m_k^2 - se_k^2 over groups if that is positive,
    else 0; where groupings overlap, each is fitted to what the others leave, until they agree. A
    group of too few clusters (df < 4) is left as it is. Forecast groups go by the law before.

    Not covered: contexts within a group, groups that were not named, shift, and the spread of W,
    which stays as it was. That it is better is not promised but measured: see ``Repair.better``.
    """
    level = check_level(level, "repair")
    law = as_law(fitted, "repair")
    if not isinstance(history, History):
        raise DataError(
            f"repair: a History was expected, but got {type(history).__name__}; make one with "
            "History.from_frame."
        )
    law.schema.expect(history.schema, "repair", "the history has")
    choices = _known_online(groups)
    leaked = met_before(law, history)
    if leaked:
        raise LeakageError(
            f"repair: {leaked[0]} (and {len(leaked) - 1} more) was fitted on; errors there are too "
            "small. Pass units the law has not seen."
        )
    learn, judge = history.split(seed=seed)
    rows = _error_rows(law, learn)
    rules = [
        rule
        for name, choice in choices.items()
        for rule in group_rules(rows, name, choice, history.schema)
    ]
    corrections = _corrections(rows, rules)
    repaired = RepairedLaw(law, corrections, *_met(law, learn))
    fresh, again = _error_rows(law, judge), _error_rows(repaired, judge)
    # the groups are those of the law before, in both: the same rows are compared
    groupings = [
        Grouping(
            rule.name,
            rule.labels,
            Cells(rule.codes(fresh.s, fresh.forecast), len(rule.labels), columns),
        )
        for columns, rule in rules
    ]
    before, after = (
        certify_groups(each, groupings, level=level, seed=seed) for each in (fresh, again)
    )
    return Repair(repaired, before, after, history.w_names)


def _known_online(groups: Groups) -> dict[str, Any]:
    """Return name -> choice, or refuse groups that a new row does not tell."""
    if groups is None:
        raise SettingError("repair: groups must be named, such as ['city', 'forecast'].")
    choices = named_choices(groups)
    for name, choice in choices.items():
        if name == TIME or by_row(choice):
            raise SettingError(
                f"repair: whether a new row is in a group of {name!r} is not known from S and the "
                "forecast; name S columns or 'forecast', with a number of groups or edges."
            )
    return choices


def _met(law: FittedLaw, learn: History) -> tuple[tuple[str, ...], Schema]:
    """Return all pieces the repaired law has met, and the schema that says what they are."""
    mine, theirs = law.schema.cluster, learn.schema.cluster
    if law.units and mine != theirs and (law.schema.by_time or learn.schema.by_time):
        raise DataError(
            f"repair: the law was fitted on pieces by {mine or 'unit'}, but the history has them "
            f"by {theirs or 'unit'}; leaks could not be told. Declare the same cluster= in both."
        )
    members = law.units if mine is None else law.schema.units
    if mine is None and theirs is None:
        return law.units + learn.units, law.schema
    schema = replace(law.schema, cluster=mine or theirs, units=members + learn.units)
    return law.units + learn.clusters, schema


def _error_rows(law: FittedLaw, history: History) -> ErrorRows:
    """Return what the law leaves of every W in the complete rows of an archive."""
    found = history.rows(law.summary)
    seen = np.isfinite(history.s[found.at]).all(1)
    at = found.at[seen]
    if not len(at):
        raise DataError("repair: S_t is not seen in any complete row of the history.")
    forecast = law(history, at).mean()
    if not np.isfinite(forecast).all():
        raise DataError(
            "repair: the law gives no mean at a row whose inputs and S are complete; what does it "
            "do there?"
        )
    return ErrorRows(
        names=history.w_names,
        target=history.w[at],
        forecast=forecast,
        x=found.x[seen],
        x_names=found.x_names,
        s=history.s[at],
        s_names=history.s_names,
        cluster=np.unique(history.cluster[at], return_inverse=True)[1],
        unit=found.unit[seen],
        time=found.time[seen],
        history_row=at,
    )


def _corrections(
    rows: ErrorRows, rules: Sequence[tuple[tuple[int, ...], GroupRule]]
) -> tuple[Correction, ...]:
    """Return the shrunken mean errors of every rule's groups."""
    codes = [rule.codes(rows.s, rows.forecast) for _, rule in rules]
    shifts = [np.zeros((len(rule.labels), len(rows.names))) for _, rule in rules]
    for j in range(len(rows.names)):
        own = [i for i, (columns, _) in enumerate(rules) if j in columns]
        left = rows.error[:, j].copy()
        for _ in range(PASSES if len(own) > 1 else 1):
            for i in own:
                code, shift = codes[i], shifts[i][:, j]
                inside = code >= 0
                left[inside] += shift[code[inside]]
                shift[:] = _shrunken(
                    *cell_means(left[inside], rows.cluster[inside], code[inside], len(shift))
                )
                left[inside] -= shift[code[inside]]
    return tuple(Correction(rule, shift) for (_, rule), shift in zip(rules, shifts, strict=True))


def _shrunken(mean: Float1, se: Float1, df: Float1) -> Float1:
    """Shrink means (K,) towards 0, the law as it is; 0 where clusters are too few."""
    judged = df >= LEAST_FREEDOM
    if not judged.any():
        return np.zeros(len(mean))
    between = max(float((mean[judged] ** 2 - se[judged] ** 2).mean()), 0.0)
    total = between + se**2
    keep = np.divide(between, total, out=np.zeros(len(mean)), where=judged & (total > 0))
    return np.where(judged, np.nan_to_num(mean) * keep, 0.0)
