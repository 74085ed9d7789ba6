"""A fitted law with latents of units: each unit of the archive is known, others are met anew."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from pulse_pyro._core.arrays import Float, Float1, Float2, Int
from pulse_pyro._core.errors import DataError, ModelError
from pulse_pyro.data.history import History, Source, context_rows
from pulse_pyro.laws.fitted import (
    PosteriorConditional,
    PosteriorLaw,
    WindowFollower,
    by_action,
    chosen,
)
from pulse_pyro.laws.scaling import GaussianInputs

if TYPE_CHECKING:
    from pulse_pyro._pyro.unit_posterior import UnitPosterior


@dataclass(frozen=True, eq=False, repr=False)
class UnitLaw(PosteriorLaw):
    """p^(W_t | S_1:t, unit): the mixture over posterior draws of a law with plate "units".

    members : units of the archive, in the order of the draws of a unit's sites, (draw, units, ...).
    A unit called like one of them has its posterior; any other, and series without names, is new:
    its latents come from the population (:mod:`pulse_pyro._pyro.units` says how), until W of it are
    revealed, ``follow(unit).push(s, w)``. Rows of one unit share its latents in ``draws``.

    The number of a row's unit stands behind its inputs, in the last column of x. NOT covered: W
    that are revealed move what is believed of this unit alone, not of the others; and a band that
    was calibrated on new units says nothing of the error for those of the archive.
    """

    members: tuple[str, ...] = ()

    @cached_property
    def kernel(self) -> Any:
        """Prediction in model units."""
        from pulse_pyro._pyro.units import UnitKernel

        if self.card is None:
            raise ModelError(f"{self.law.label}: a custom law cannot predict without its card.")
        model = self.law.model_for(self.card.x_dim, self.card.w_dim)
        return UnitKernel(model, self.draws, self.card)

    @cached_property
    def _places(self) -> Mapping[str, int]:
        return {name: i for i, name in enumerate(self.members)}

    def number(self, unit: str | None) -> int:
        """Return the place of a unit among ``members``; the one after the last if it is new."""
        return len(self.members) if unit is None else self._places.get(unit, len(self.members))

    def __call__(self, source: Source, at: ArrayLike | None = None) -> PosteriorConditional:
        """Return the law of W at the rows of a History, by its units' names, or of new units.

        source, at : as for any law; of s (batch, time[, action], s_dim) every series is a new unit.
        """
        if isinstance(source, History):
            x, s = context_rows(source, self.summary, self.schema, self.law.label)
            new = len(self.members) + np.arange(len(source.units))
            place = [self._places.get(u, new[i]) for i, u in enumerate(source.units)]
            number = np.array(place)[source.unit_of]
        else:
            given = np.asarray(source)
            series, at = by_action(given, at)
            x, s = context_rows(series, self.summary, self.schema, self.law.label)
            each = len(x) // max(len(given), 1)  # arms of one series are one unit
            number = len(self.members) + np.repeat(np.arange(len(given)), each)
        rows = chosen(at, len(x))
        return PosteriorConditional(self, _with_number(x[rows], number[rows]), s[rows])

    def follow(self, unit: str | None = None) -> UnitFollower:
        """Start to follow a unit: one of the archive by its name, or a new one."""
        return UnitFollower(self, unit)

    def told(self, known: UnitPosterior) -> UnitLaw:
        """Return the law as it is for one unit, which is its number 0."""
        law = replace(self, draws=known.draws(), members=("",))
        law.__dict__["kernel"] = self.kernel.with_draws(law.draws)  # programs are written once
        return law


def _with_number(x: Float2, number: Int) -> Float2:
    return np.column_stack([x, number.astype(np.float64)])


def widened(law: PosteriorLaw, members: tuple[str, ...]) -> UnitLaw:
    """Return a fitted law whose last input is the number of the unit, which is not scaled."""
    scaler, inputs = law.scaler, law.inputs
    wide = replace(
        law,
        scaler=replace(
            scaler, x_mean=np.append(scaler.x_mean, 0.0), x_scale=np.append(scaler.x_scale, 1.0)
        ),
        inputs=GaussianInputs(np.append(inputs.mean, 0.0), np.pad(inputs.cov, (0, 1))),
    )
    return of_units(wide, members)


def of_units(law: PosteriorLaw, members: tuple[str, ...]) -> UnitLaw:
    """Return a law that knows its units' names; its last input is their number already."""
    return UnitLaw(**{f.name: getattr(law, f.name) for f in fields(law)}, members=members)


class Acquaintance(NamedTuple):
    """How well a unit is known. member : of the archive. revealed : rows of W told since then.

    ess : effective number of particles behind its latents.
    """

    member: bool
    revealed: int
    ess: float


class UnitFollower(WindowFollower):
    """A window, and what the W revealed so far tell of the unit.

    ess : effective number of particles behind the unit's latents. Where W of a new unit leave fewer
    than 100, its latents are drawn anew given the draws of all else; where fewer are left even so,
    a warning says it, and answers are rough. Kept are the rows whose W was revealed, and a weight
    for each particle (16,384 of a new unit, one a draw of a unit of the archive). W may come late:
    given the latents rows are independent, so a row tells the same whenever it does.
    """

    arms_alike = True  # a unit's latents are those of all arms

    def __init__(self, law: UnitLaw, unit: str | None) -> None:
        super().__init__(law)
        self._unit_law, self._asked, self._number = law, law, law.number(unit)
        self._asked_for, self._rough = unit, False
        self._known: UnitPosterior | None = None
        self._told = np.empty((0, law.scaler.x_mean.size - 1 + len(law.schema.w_names)))

    @property
    def ess(self) -> float:
        """Effective number of particles; that of the draws before any W was revealed."""
        return float(self._unit_law.kernel.count) if self._known is None else self._known.ess

    @property
    def acquaintance(self) -> Acquaintance:
        """How well the unit is known: a calibration on new units speaks of new ones alone."""
        member = self._number < len(self._unit_law.members)
        return Acquaintance(member, len(self._told), self.ess)

    @property
    def conditional(self) -> PosteriorConditional:
        """The law of W_t given the window, and W of earlier rows."""
        if self._conditional is None:
            number = self._number if self._known is None else 0
            x = np.append(self._unit_law.newest(self._rows), float(number))
            self._conditional = PosteriorConditional(self._asked, x[None], self._rows[-1:].copy())
        return self._conditional

    def push(self, s: Float1, w: Float1 | None = None) -> PosteriorConditional:
        """Take in S_t and, if it is seen, W_t; return the law of W_t before it was."""
        found = super().push(s)
        if w is not None:
            self.condition_on(w)
        return found

    def place(self) -> Float1:
        """Return x_t, (p,), by which W_t can be told of later."""
        return self.inputs().copy()

    def condition_on(self, w: ArrayLike, place: Float1 | None = None) -> bool:
        """Take in the W of a row, (w_dim,), NaN where it is not seen; it never comes too late.

        place : of the row, the newest by default. A row that lacks an input tells nothing, because
        the law has no density there.
        """
        from pulse_pyro._pyro.unit_posterior import UnitPosterior

        value = np.asarray(w, np.float64).reshape(-1)
        if value.shape != (len(self._unit_law.schema.w_names),):
            raise DataError(
                f"push: w must hold {len(self._unit_law.schema.w_names)} numbers, one a W column, "
                f"but its shape is {np.shape(w)}."
            )
        lost = np.isnan(value)
        if lost.any() and not lost.all() and not self._unit_law.kernel.card.columns:
            name = self._unit_law.schema.w_names[int(lost.argmax())]
            raise DataError(
                f"push: W column {name!r} is NaN in w = {value.tolist()}, but the model has one "
                "site for all of W, which cannot tell of a part of it; pass W when all of it is "
                "seen, or write a site for each W column."
            )
        x = self.inputs() if place is None else place
        if np.isnan(x).any() or np.isnan(value).all():
            return True
        known = self._known or UnitPosterior.of(self._unit_law.kernel, self._number)
        told = known.told(x, value)
        if not told.ess:
            raise DataError(
                f"push: the law cannot have w = {value.tolist()} for this unit; every particle has "
                "weight zero. Correct w, or give the model a wider distribution."
            )
        self._told = np.concatenate([self._told, np.append(x, value)[None]])
        self._take(told)
        self._warn()
        return True

    def _warn(self) -> None:
        """Say once that few particles are left."""
        from pulse_pyro._pyro.unit_posterior import ENOUGH

        rough = self.ess < ENOUGH
        if rough and not self._rough:
            who = "this unit" if self._asked_for is None else f"unit {self._asked_for!r}"
            warnings.warn(
                f"push: after {len(self._told)} rows of W, what is believed of {who} rests on "
                f"{self.ess:.0f} effective draws, fewer than {ENOUGH:.0f}, so its answers are "
                f"rough; {self._why_rough}.",
                stacklevel=4,  # whoever pushes, or lets a policy observe
            )
        self._rough = rough

    @property
    def _why_rough(self) -> str:
        if self.acquaintance.member:
            return (
                "a unit of the archive has one draw of its latents for each draw of the law: fit "
                "with more draws, or again with these rows in the archive"
            )
        return (
            "these W hardly agree with what the archive says of all units: correct them, or fit "
            "again with this unit in the archive"
        )

    def _take(self, known: UnitPosterior | None) -> None:
        self._known, self._conditional = known, None
        self._asked = self._unit_law if known is None else self._unit_law.told(known)

    def inputs(self) -> Float1:
        """Return x_t of the window, without the number of the unit."""
        row: Float1 = self._unit_law.newest(self._rows)
        return row

    def state(self) -> dict[str, Float]:
        """Return the window, and the rows (x, w) whose W was revealed."""
        return super().state() | {"told": self._told.copy()}

    def restore(self, state: Mapping[str, Float]) -> None:
        """Take over a window, and W that were revealed: under this law, whatever the one before."""
        from pulse_pyro._pyro.unit_posterior import UnitPosterior

        super().restore(state)
        self._told = np.array(state.get("told", self._told[:0]), np.float64)
        known, width = None, len(self._unit_law.schema.w_names)
        for row in self._told:
            known = known or UnitPosterior.of(self._unit_law.kernel, self._number)
            known = known.told(row[:-width], row[-width:])
        self._take(known)
