"""Real contexts and residuals with effects that are known: what each action would have earned."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pulse_pyro.arrays import Bool, Float1, Float2
from pulse_pyro.errors import DataError
from pulse_pyro.offpolicy.logged import Logged


@dataclass(frozen=True, eq=False)
class Effects:
    """Least squares of the reward on (1, z) and a (1, z), z the centred context, a = 0 or 1.

    Attributes
    ----------
    z : (n, 1 + p), a one first. base : (n,) fitted mean of action 0.
    effect : (1 + p,) of action 1 at the mean context, then how it changes with each column.
    residual : (n,) what the fit leaves of each recorded reward.

    The fit becomes the truth of a semi-synthetic world. Its effects are estimates: with a weak
    signal their spread is mostly noise of estimation, and so larger than the real one.
    """

    z: Float2
    base: Float1
    effect: Float1
    residual: Float1

    def utility(self, factor: float) -> Float2:
        """Return base + a (effect_0 + factor z' effect_1..p) + residual, (n, 2).

        The residual is the row's own and the same for both actions; with factor 1 the action that
        was taken is worth exactly its recorded reward. The mean effect is kept.
        """
        moved = np.concatenate([self.effect[:1], factor * self.effect[1:]])
        none = self.base + self.residual
        return np.column_stack([none, none + self.z @ moved])

    def gap(self, factor: float, seen: Bool) -> float:
        """Return how much the best policy that knows the effects loses by seeing few columns.

        seen : (p,) the columns it sees; it plays by the projection of the effect on a line in them.
        What no policy that leaves the other columns out can gain back.
        """
        none, sent = self.utility(factor).T
        effect = sent - none
        line = self.z[:, np.concatenate([[True], seen])]
        guess = line @ np.linalg.lstsq(line, effect, rcond=None)[0]
        return float((np.maximum(effect, 0.0) - effect * (guess > 0)).mean())


def fit_effects(logged: Logged) -> Effects:
    """Fit the reward of a log with two actions by least squares."""
    if logged.actions != 2:
        raise DataError(f"fit_effects: a log of two actions is needed, not {logged.actions}.")
    x = logged.context
    z = np.column_stack([np.ones(len(x)), x - x.mean(0)])
    design = np.column_stack([z, logged.action[:, None] * z])
    fitted, *_ = np.linalg.lstsq(design, logged.reward, rcond=None)
    base, effect = np.split(fitted, 2)
    return Effects(z, z @ base, effect, logged.reward - design @ fitted)
