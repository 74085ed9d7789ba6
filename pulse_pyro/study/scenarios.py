"""Environments a trial may turn out to be, each made from the archive.

A base, in which everything is as the fitted law and [policy] say, and variations of it, one thing
at a time, with the few combinations that matter. All of them share contexts, directions of theta*
and noise, so that what differs between two of them is what their names say.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np

from pulse_pyro._core.arrays import Bool, Int
from pulse_pyro._core.errors import DataError
from pulse_pyro._core.seeds import stream
from pulse_pyro._pyro.inference import Inference
from pulse_pyro.base import FittedLaw, UnfittedLaw
from pulse_pyro.calibration.recipe import StoredLaw, fit_law
from pulse_pyro.data.history import Block, History
from pulse_pyro.features import Features
from pulse_pyro.laws.linear import linear_lags
from pulse_pyro.laws.memory import Memory
from pulse_pyro.laws.regressor import from_sklearn
from pulse_pyro.laws.remembering import memory_of, with_memory
from pulse_pyro.study.worlds import UnseenContext, unseen_context

WhoseLaw = Literal["fitted", "rival", "family", "draw"]
KEPT = 0.01  # of the variance of what a law leaves: memory that explains less is none


@dataclass(frozen=True)
class Scenario:
    """One way a trial may turn out.

    Attributes
    ----------
    name : what a person would call it.
    law : whose W: "fitted", the policies' own; "rival", the same kind fitted on the held-out units;
        "family", another kind fitted on them; "draw", one posterior draw of the policies' law in
        each run, so that what is not known of its parameters is in it.
    memory : what the law leaves of W persists as it does in the archive.
    effect : theta* is so many times as large as stated.
    spread, shift : numeric S are so many times as far from their mean, and moved by so many sd.
    late : rewards come so many rounds later. lost : share of the rewards that never come.
    """

    name: str
    law: WhoseLaw = "fitted"
    memory: bool = False
    effect: float = 1.0
    spread: float = 1.0
    shift: float = 0.0
    late: int = 0
    lost: float = 0.0

    @property
    def judged_by(self) -> Literal["regret", "regret_cond"]:
        """Which regret compares policies.

        Against the best policy on S, but where rewards tell of W: pricing arms by S alone would
        charge a policy for knowing more.
        """
        return "regret" if self.memory else "regret_cond"


SCENARIOS = (
    Scenario("W from the fitted law"),
    Scenario("W from a rival law", law="rival"),
    Scenario("W from another kind of law", law="family"),
    Scenario("W from one posterior draw", law="draw"),
    Scenario("what the law leaves of W persists", memory=True),
    Scenario("effects half as large", effect=0.5),
    Scenario("effects twice as large", effect=2.0),
    Scenario("contexts spread 1.5 times as far", spread=1.5),
    Scenario("contexts moved by one sd", shift=1.0),
    Scenario("rewards five rounds late", late=5),
    Scenario("a fifth of the rewards lost", lost=0.2),
    Scenario("a rival law, contexts moved", law="rival", shift=1.0),
    Scenario("a rival law, rewards late and lost", law="rival", late=5, lost=0.2),
    Scenario("W persists, rewards five rounds late", memory=True, late=5),
)


# The rows a trial is played on.


class TrialRows(NamedTuple):
    """Held-out units as blocks, and which of their rows (unit, time) can be rounds.

    unit : number of the unit of each row, from 0 on over all blocks, (unit, time).
    """

    blocks: tuple[Block, ...]
    usable: tuple[Bool, ...]
    unit: tuple[Int, ...]

    def chosen(self, rounds: int, rng: np.random.Generator) -> tuple[list[Bool], list[Int]]:
        """Choose whole units at random, up to so many rounds.

        Returns of each block (unit, time) which rows are rounds, and when: one unit after the
        other, each in its own order of time.
        """
        units = sum(len(block.unit) for block in self.blocks)
        rank = rng.permutation(units)
        longest = max(block.row.shape[1] for block in self.blocks)
        place = [rank[unit] * longest + np.arange(unit.shape[1]) for unit in self.unit]
        at = np.sort(np.concatenate([p[u] for p, u in zip(place, self.usable, strict=True)]))
        last = at[min(rounds, len(at)) - 1]
        chosen = [u & (p <= last) for p, u in zip(place, self.usable, strict=True)]
        return chosen, place

    @property
    def total(self) -> int:
        """Rows that can be rounds."""
        return int(sum(usable.sum() for usable in self.usable))


def trial_rows(history: History, usable: Bool) -> TrialRows:
    """Lay the rows of a history out in blocks; usable (rows,)."""
    blocks = tuple(history.blocks())
    if not usable.any():
        raise DataError("design: no held-out row has all the inputs of the law; use fewer lags.")
    number, unit = 0, []
    for block in blocks:
        each = number + np.arange(len(block.unit))
        unit.append(np.broadcast_to(each[:, None], block.row.shape))
        number += len(each)
    inside = tuple(np.where(block.seen, usable[block.row], False) for block in blocks)
    return TrialRows(blocks, inside, tuple(unit))


def moved_contexts(history: History, scenario: Scenario) -> History:
    """Return a history whose numeric S are further from their mean, or elsewhere.

    Categories, levels, counts and clocks stay: half a category is none.
    """
    if scenario.spread == 1.0 and scenario.shift == 0.0:
        return history
    columns = history.schema.s_columns
    real = np.array([column.kind == "real" for column in columns for _ in column.names])
    s = history.s
    middle, sd = np.nanmean(s, axis=0), np.nanstd(s, axis=0)
    real &= np.array([len(np.unique(s[np.isfinite(s[:, j]), j])) > 2 for j in range(s.shape[1])])
    if not real.any():
        raise DataError("no column of S is a number with more than two values: none can be moved.")
    away = middle + scenario.spread * (s - middle) + scenario.shift * sd
    return replace(history, s=np.where(real, away, s))


# Where W comes from.


@dataclass(frozen=True, eq=False)
class Truths:
    """The laws W may be drawn from, each fitted when it is first asked for.

    Attributes
    ----------
    law : the policies' own. model, inference : the same, not fitted, and its engine.
    held_out : units it was not fitted on. features : Phi.
    """

    law: StoredLaw
    model: UnfittedLaw
    inference: Inference | None
    held_out: History
    features: Features
    seed: int

    @cached_property
    def rival(self) -> FittedLaw:
        """The same kind of law, fitted on the held-out units."""
        return fit_law(self.model, self.held_out, self.inference, self.seed)

    @cached_property
    def family(self) -> FittedLaw:
        """Another kind of law, cheap to fit: trees where the law is a line, else a line."""
        summary = self.law.summary
        if getattr(self.law, "line", None) is None:
            line: FittedLaw = linear_lags(summary).fit(self.held_out, seed=self.seed)
            return line
        from sklearn.ensemble import RandomForestRegressor

        trees = RandomForestRegressor(n_estimators=50, min_samples_leaf=10)
        return from_sklearn(trees, summary, residual="empirical").fit(self.held_out, seed=self.seed)

    @cached_property
    def memory(self) -> Memory | None:
        """What persists of what the law leaves on held-out units; None if next to nothing does."""
        found = memory_of(with_memory(self.law, self.held_out, "level+ar"))
        if found is None:
            return None
        told = 1.0 - np.trace(found.left) / np.trace(found.variance)
        numbers = len(found.keep) + found.w_dim * (found.w_dim + 1) / 2
        sure = found.log_likelihood - found.memoryless > 0.5 * numbers * np.log(found.rows)
        return found if sure and told >= KEPT else None

    def unseen(
        self, scenario: Scenario, blocks: tuple[Block, ...], runs: int
    ) -> tuple[tuple[UnseenContext, ...], ...]:
        """Return what W is drawn from at the contexts of each block: once, or for each run."""
        if scenario.law == "draw":
            count = len(next(iter(self.law.draws.values())))
            pick = stream(self.seed, "design", "posterior").permutation(count)
            every: list[FittedLaw] = [
                _one_draw(self.law, int(pick[r % len(pick)])) for r in range(runs)
            ]
        else:
            every = [getattr(self, "law" if scenario.law == "fitted" else scenario.law)]
        if scenario.memory and self.memory is None:
            raise DataError("what the law leaves of W on held-out units has next to no memory.")
        memory = self.memory if scenario.memory else None
        size = 1 if len(every) > 1 else 128
        return tuple(
            tuple(
                unseen_context(
                    law,
                    self.features,
                    block.s,
                    stream(self.seed, "design", "unseen", r, b),
                    pool=size,
                    memory=memory,
                )
                for b, block in enumerate(blocks)
            )
            for r, law in enumerate(every)
        )


def _one_draw(law: StoredLaw, i: int) -> StoredLaw:
    """Return the law as one posterior draw has it."""
    return replace(law, draws={name: value[i : i + 1] for name, value in law.draws.items()})
