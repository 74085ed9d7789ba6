"""Errors of E[W], and apart from them how they reach the features."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pulse_pyro.arrays import Float, Float3
from pulse_pyro.calibration.part import Part
from pulse_pyro.calibration.targets import MissingTargets
from pulse_pyro.errors import SettingError

if TYPE_CHECKING:
    from pulse_pyro.calibration.calibration import Calibration


class Sensitivity(NamedTuple):
    """Errors of E[W] and how they reach the features, for e_{t,a} that learns what W is worth.

    eps : (run, time, q) >= |mu_t - mu^_t|_i. slopes : (run or 1, time or 1, action, q, d), the
    columns M_a of Phi = c_a(s) + M_a(s) w. Where they are the same in all contexts (lengths 1),
    what has been learned about theta*' M_a is never lost again.
    """

    eps: Float3
    slopes: Float


def single_part(calibration: Calibration, where: str) -> tuple[Part, MissingTargets]:
    """Return the one part of a calibration whose Phi is affine, or say why there is none."""
    if len(calibration.parts) != 1:
        raise SettingError(f"{where}: a cross-fitted calibration speaks of two laws, not of one.")
    part = calibration.parts[0]
    if not isinstance(part.targets, MissingTargets):
        raise SettingError(f"{where}: Phi is not affine in w, so errors of E[W] do not reach it.")
    return part, part.targets


def sensitivity(calibration: Calibration, s: Float3) -> Sensitivity:
    """Return the calibrated errors of E[W] and the slopes of Phi at contexts s.

    s : (batch, time, s_dim), as in ``Calibration.error_at``; every context must be complete, so
    drop the rows that only fill lags from eps and, where they vary, from the slopes afterwards.
    Hand the result to ``play_horizon`` or an Agent as its error, with the corrected radius.
    """
    part, targets = single_part(calibration, "sensitivity")
    contexts = np.asarray(s, np.float64)
    eps = part.budget(contexts).total
    actions = range(targets.features.actions)
    found = targets.slopes(contexts.reshape(-1, contexts.shape[-1]), actions)
    known = found[:, np.isfinite(found).all((0, 2, 3))]
    if known.shape[1] and np.allclose(known, known[:, :1], rtol=1e-9, atol=0.0):
        return Sensitivity(eps, known[None, None, :, 0])
    moved = np.moveaxis(found, 0, 1)
    return Sensitivity(eps, moved.reshape(*contexts.shape[:2], *moved.shape[1:]))
