"""Policies that are played by name: each is made from the same seat, and nothing else."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

from pulse_pyro._core.errors import PulseError
from pulse_pyro.base import FittedLaw
from pulse_pyro.calibration.calibration import Calibration, reward_bound
from pulse_pyro.calibration.stakes import Stakes
from pulse_pyro.data.history import History
from pulse_pyro.data.summary import Lags
from pulse_pyro.envs.agents import oful, oful_full, oful_lags, pulse, pulse_adaptive
from pulse_pyro.envs.simulation import Agent
from pulse_pyro.envs.world import World
from pulse_pyro.laws.filtering import Filtered


@dataclass(frozen=True, eq=False)
class Seat:
    """What a policy that is played by name is handed; see ``envs.POLICIES``.

    Attributes
    ----------
    world : the rounds, (series, time, ...); a policy that is to be fair reads no W and no reward.
    law : of W given the past of S, fitted on other units.
    archive : the units it was fitted on.
    calibration : how wrong the law can be.
    stakes : sigma, theta_bound, ridge and delta, taken on trust.
    seed : of Monte Carlo.

    A policy that cannot play here returns None, and says why in a warning.
    """

    world: World
    law: FittedLaw
    archive: History
    calibration: Calibration
    stakes: Stakes
    seed: int


def seat_pulse(seat: Seat) -> Agent:
    """PULSE-UCB with the constant radius 2, which nothing guarantees."""
    return pulse(seat.world, seat.law, seed=seat.seed)


def seat_pulse_calibrated(seat: Seat) -> Agent:
    """PULSE-UCB with the corrected radius and the errors of the calibration."""
    stakes, bound = seat.stakes, seat.stakes.theta_bound
    radius = seat.calibration.radius(sigma=stakes.sigma, delta=stakes.delta, theta_bound=bound)
    return pulse(
        seat.world,
        seat.law,
        name="pulse_calibrated",
        radius=radius.refined(),
        error=reward_bound(seat.calibration.error_at(seat.world.s), bound),
        seed=seat.seed,
    )


def seat_pulse_adaptive(seat: Seat) -> Agent | None:
    """PULSE-UCB whose law is repaired by rewards; not every law can be."""
    bound = seat.stakes.theta_bound
    try:
        return pulse_adaptive(seat.world, seat.law, seat.archive, theta_bound=bound, seed=seat.seed)
    except PulseError as refusal:  # the others still play
        warnings.warn(f"pulse_adaptive is left out: {refusal}", stacklevel=2)
        return None


def seat_oful(seat: Seat) -> Agent:
    """OFUL without W."""
    return oful(seat.world)


def seat_oful_lags(seat: Seat) -> Agent | None:
    """OFUL on the raw lags the law looks at, where there is more than the current row."""
    summary = seat.law.summary
    raw = summary.window if isinstance(summary, Filtered) else summary
    return oful_lags(seat.world, raw) if isinstance(raw, Lags) and raw.memory > 1 else None


def seat_oful_full(seat: Seat) -> Agent:
    """OFUL that sees W."""
    return oful_full(seat.world)
