"""A log of decisions: context, action, reward, and how likely the action was."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pulse_pyro._core.arrays import Array, Float1, Float2, Int, whole
from pulse_pyro._core.errors import DataError, FeatureError, nearest


@dataclass(frozen=True, eq=False)
class Logged:
    """n recorded decisions among K actions.

    Attributes
    ----------
    context : (n, p) what was known when the action was drawn.
    action : (n,) 0 .. K-1. reward : (n,).
    propensity : (n,) probability with which the logging policy drew the action that was taken.
    unit : (n,) whole numbers, rows of one unit (a person) may depend on each other.
    actions : K. names : of the columns of the context; x0, x1, ... by default.

    Propensities are taken as known: nothing here can tell whether they are right, but a mean
    weight (``Value.mean_weight``) far from 1 says that they, or overlap, are not.
    """

    context: Float2
    action: Int
    reward: Float1
    propensity: Float1
    unit: Int
    actions: int
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        whole(self.actions, "Logged: actions", 2)
        context = np.array(self.context, np.float64)
        if context.ndim != 2 or not len(context):
            raise DataError(
                f"Logged.context must be (n, p) with n >= 1, but it is {context.shape}."
            )
        n, p = context.shape
        kept: dict[str, Array] = {"context": context}
        for name in ("action", "unit"):
            kept[name] = _whole_numbers(getattr(self, name), name)
        for name in ("reward", "propensity"):
            kept[name] = np.array(getattr(self, name), np.float64)
        for name, array in kept.items():
            if name != "context" and array.shape != (n,):
                raise DataError(f"Logged.{name} must be (n,) = ({n},), but it is {array.shape}.")
            if not np.isfinite(array).all():
                raise DataError(f"Logged.{name} holds a value that is not finite; drop such rows.")
        action, propensity = kept["action"], kept["propensity"]
        if action.min() < 0 or action.max() >= self.actions:
            raise DataError(
                f"Logged.action must lie in 0 .. {self.actions - 1}, but it runs from "
                f"{action.min()} to {action.max()}."
            )
        if propensity.min() <= 0 or propensity.max() > 1:
            raise DataError(
                "Logged.propensity must lie in (0, 1], but it runs from "
                f"{propensity.min():.4g} to {propensity.max():.4g}: an action that was taken had a "
                "positive probability."
            )
        names = tuple(self.names) or tuple(f"x{j}" for j in range(p))
        if len(names) != p or len(set(names)) < p:
            raise DataError(f"Logged.names must be {p} distinct names, but got {names}.")
        object.__setattr__(self, "names", names)
        for name, array in kept.items():
            array.flags.writeable = False  # a log never changes under an estimate
            object.__setattr__(self, name, array)

    @property
    def rows(self) -> int:
        """How many decisions."""
        return len(self.action)

    @property
    def units(self) -> int:
        """How many units."""
        return len(np.unique(self.unit))

    def columns(self, names: tuple[str, ...]) -> Float2:
        """Return the columns of the context by name, (n, len(names))."""
        for name in names:
            if name not in self.names:
                raise FeatureError(
                    f"Logged.columns: there is no column {name!r}{nearest(name, self.names)}"
                )
        columns: Float2 = self.context[:, [self.names.index(name) for name in names]]
        return columns

    def __repr__(self) -> str:
        return (
            f"Logged: {self.rows:,} decisions of {self.units} units among {self.actions} actions, "
            f"mean reward {self.reward.mean():.4g}, propensities "
            f"{self.propensity.min():.3g} to {self.propensity.max():.3g}"
        )


def _whole_numbers(values: Array, name: str) -> Int:
    array = np.array(values)
    numeric = np.issubdtype(array.dtype, np.number) and not np.iscomplexobj(array)
    if not numeric or not np.isfinite(array).all() or not (array == np.round(array)).all():
        raise DataError(f"Logged.{name} must hold whole numbers; number the labels 0, 1, 2, ...")
    return array.astype(np.int64)
