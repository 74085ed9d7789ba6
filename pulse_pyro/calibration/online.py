"""What a policy asks of a calibration before it plays with its errors."""

from __future__ import annotations

import warnings
from typing import Protocol

import numpy as np

from pulse_pyro._core.arrays import Float1
from pulse_pyro._core.errors import SettingError
from pulse_pyro._core.seeds import stream
from pulse_pyro.base import FittedLaw, Follower, is_exact
from pulse_pyro.calibration.calibration import NO_ERRORS, CalibratedErrors, Calibration
from pulse_pyro.calibration.part import POLICY_DRAWS, Part
from pulse_pyro.calibration.targets import MissingTargets
from pulse_pyro.features import Features
from pulse_pyro.laws.filtering import Filtered
from pulse_pyro.radius import CORRECTED, SUM, Radius


def single_part(calibration: Calibration, where: str) -> tuple[Part, MissingTargets]:
    """Return the one part of a calibration whose Phi is affine, or say why there is none."""
    if not calibration.parts:
        raise SettingError(f"{where}: {NO_ERRORS.format(claim=calibration.claim)}")
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
    feeds = calibration.feeds
    if feeds is not None and not feeds.holds:
        warnings.warn(
            "a check of this calibration failed: its bound, and the guarantee that rests on it, "
            "need not hold; see calibration.ladder and calibration.checks_table.",
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
        if part.own_error:
            raise SettingError(
                "calibrated errors of the law's own error do not survive a refit; smooth W itself: "
                "calibrate(..., band=BandMethod(of='target')), or calibration.all_units."
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
