"""Calibrated errors for one decision at a time."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from pulse_pyro._core.arrays import Float1, Float2, positive
from pulse_pyro._core.errors import SettingError
from pulse_pyro._core.seeds import stream
from pulse_pyro.base import FittedLaw, Follower, is_exact
from pulse_pyro.calibration.calibration import POLICY_DRAWS, Calibration, Part, reward_bound
from pulse_pyro.calibration.targets import MissingTargets
from pulse_pyro.features import Features
from pulse_pyro.laws.filtering import Filtered
from pulse_pyro.radius import CORRECTED, SUM, Radius


def single_part(calibration: Calibration, where: str) -> tuple[Part, MissingTargets]:
    """Return the one part of a calibration whose Phi is affine, or say why there is none."""
    if len(calibration.parts) != 1:
        raise SettingError(f"{where}: a cross-fitted calibration speaks of two laws, not of one.")
    part = calibration.parts[0]
    if not isinstance(part.targets, MissingTargets):
        raise SettingError(f"{where}: Phi is not affine in w, so errors of E[W] do not reach it.")
    return part, part.targets


class OnlineErrors(Protocol):
    """Where a policy gets e_{t,a} from."""

    @property
    def calibration(self) -> Calibration:
        """What it rests on."""

    def at(self, past: list[Follower]) -> Float1:
        """Return e_{t,a}, (K,), for one follower or one per arm."""


@dataclass(frozen=True, eq=False)
class CalibratedErrors:
    """e_{t,a} = S sqrt(sum_j E_{t,a,j}^2), from a calibration of the policy's law.

    theta_bound : S >= ||theta*||. theta_bounds : (d,) >= |theta*_j|, if known. unseen : e of rounds
    in which an input of the law is not seen, a bound of your own: no band can speak there. Without
    one such rounds are refused.
    """

    calibration: Calibration
    theta_bound: float = 1.0
    theta_bounds: ArrayLike | None = None
    unseen: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.calibration, Calibration):
            raise SettingError(f"CalibratedErrors: {self.calibration!r} is no Calibration.")
        error = self.calibration.error
        reward_bound(np.zeros((1, *error.shape[1:])), self.theta_bound, self.theta_bounds)
        if self.unseen is not None:
            positive(self.unseen, "CalibratedErrors: unseen", zero=True)

    def at(self, past: list[Follower]) -> Float1:
        """Return e_{t,a}, (K,); NaN where an input is not seen: no band can speak there."""
        if len(self.calibration.parts) != 1:
            raise SettingError("CalibratedErrors: a cross-fitted calibration speaks of two laws.")
        each = [self._errors(follower) for follower in past]
        # with a context per arm, each arm's own row
        error = each[0] if len(each) == 1 else np.stack([e[a] for a, e in enumerate(each)])
        bound: Float1 = reward_bound(error[None, None], self.theta_bound, self.theta_bounds)[0, 0]
        return bound if self.unseen is None else np.where(np.isnan(bound), self.unseen, bound)

    def _errors(self, follower: Follower) -> Float2:
        """Return E_{t,a,j}, (K, d), for the newest context of a series."""
        part = self.calibration.parts[0]
        if isinstance(part.targets, MissingTargets) and follower.conditional.exact:
            eps, s = missing_error(self.calibration, follower)[None], follower.now[None]
            actions = range(part.targets.features.actions)
            return np.concatenate([part.targets.errors(s, eps, a) for a in actions])
        rows = follower.state().get("rows")
        if rows is None:
            raise SettingError(
                "CalibratedErrors: a law with memory needs Phi affine in w to be bounded online."
            )
        found: Float2 = part.errors(rows[None])[0][-1]
        return found


def missing_error(calibration: Calibration, follower: Follower) -> Float1:
    """Return eps = r(x_t) + |m(x_t) - E_p^[W_t]|, (q,): the bound on E[W]'s error now."""
    part, targets = single_part(calibration, "calibrated errors")
    asked = follower.conditional
    if not asked.exact:
        raise SettingError("calibrated errors: E[W] of this law carries Monte Carlo error.")
    values = part.band.at(follower.inputs()[None])
    out: Float1 = (values.half + np.abs(values.centre - asked.mean()[:, targets.used]))[0]
    return out


def check_errors(
    errors: OnlineErrors, law: FittedLaw, features: Features, size: int, grows: bool
) -> None:
    """Refuse errors that were not calibrated for what a policy plays with.

    size : Monte Carlo draws a round of the policy. grows : whether its law will be refitted.
    """
    if not isinstance(errors, CalibratedErrors):
        raise SettingError(
            f"errors must be CalibratedErrors, but got {type(errors).__name__}; "
            "wrap a calibration: CalibratedErrors(calibration)."
        )
    about = errors.calibration
    warn_if_failed(about)
    known = getattr(law, "id", None)
    if about.law_id != known:
        raise SettingError(
            f"the errors are calibrated for law {about.law_id}, but the policy plays with {known}; "
            "calibrate the law that plays."
        )
    for part in about.parts:
        if not _same(part.targets.features, features, law):
            raise SettingError(
                "the errors are calibrated for other features than the policy plays with; "
                "calibrate(law, held_out, features) with the same Phi."
            )
        exact = isinstance(part.targets, MissingTargets) and is_exact(part.law)
        if not exact and size < POLICY_DRAWS:
            raise SettingError(
                f"calibrated errors allow for the noise of {POLICY_DRAWS} draws a round or more, "
                f"but size is {size}."
            )

    if grows:
        check_refit(about)


def warn_if_failed(calibration: Calibration) -> None:
    """Warn whoever builds a policy on a calibration whose checks failed, or loads such a one."""
    if calibration.verdict == "fail":
        warnings.warn(
            "a check of this calibration failed: its bound, and the guarantee that rests on it, "
            "need not hold; see calibration.checks_table.",
            stacklevel=4,
        )


def check_size_of_theta(errors: OnlineErrors, radius: Radius) -> None:
    """Refuse errors for a smaller S than the radius is made for: one of the two is wrong."""
    own = errors.theta_bound if isinstance(errors, CalibratedErrors) else np.inf
    if radius.kind in (CORRECTED, SUM) and own < radius.params[0] * (1.0 - 1e-12):
        raise SettingError(
            f"the radius allows ||theta*|| up to {radius.params[0]:g}, the errors only up to "
            f"{own:g}; give CalibratedErrors the same theta_bound."
        )


def check_refit(calibration: Calibration) -> None:
    """Refuse to go on with another law where the errors speak of the old one alone."""
    for part in calibration.parts:
        if not (isinstance(part.targets, MissingTargets) and is_exact(part.law)):
            raise SettingError(
                "calibrated errors stay valid for another law only if Phi is affine in w and E[W] "
                "has a closed form."
            )
        if isinstance(part.law.summary, Filtered):  # its inputs change with the law
            raise SettingError("calibrated errors of a state space law do not survive a refit.")


def _same(one: Features, two: Features, law: FittedLaw) -> bool:
    """Tell whether two Phi agree, at contexts like the archive's."""
    if one is two:
        return True
    if (one.actions, one.names) != (two.actions, two.names):
        return False
    rng, (mean, sd) = stream(0, "same"), law.schema.contexts
    s = mean + sd * rng.standard_normal((16, len(mean)))
    w = rng.standard_normal((16, len(law.schema.w_names)))
    with np.errstate(all="ignore"):
        return all(
            np.allclose(one.unchecked(s, w, a), two.unchecked(s, w, a), rtol=1e-9, equal_nan=True)
            for a in range(one.actions)
        )
