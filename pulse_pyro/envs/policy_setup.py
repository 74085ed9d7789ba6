"""Policies that are played by name: each is made from a :class:`PolicySetup`, nothing else."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

from pulse_pyro._core.errors import PulseError
from pulse_pyro.base import FittedLaw
from pulse_pyro.calibration.calibration import Calibration
from pulse_pyro.calibration.stakes import Stakes
from pulse_pyro.data.history import History
from pulse_pyro.data.summary import Lags
from pulse_pyro.envs.agents import oful, oful_full, oful_lags, pulse, pulse_adaptive
from pulse_pyro.envs.simulation import Agent
from pulse_pyro.envs.world import World
from pulse_pyro.laws.filtering import Filtered


@dataclass(frozen=True, eq=False)
class PolicySetup:
    """Everything a policy that is played by name is handed; see ``envs.POLICIES``.

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


def make_pulse(setup: PolicySetup) -> Agent:
    """PULSE-UCB with the constant radius 2, which nothing guarantees."""
    return pulse(setup.world, setup.law, seed=setup.seed)


def make_pulse_calibrated(setup: PolicySetup) -> Agent:
    """PULSE-UCB with the corrected radius and the errors of the calibration."""
    world, stakes, bound = setup.world, setup.stakes, setup.stakes.theta_bound
    radius = setup.calibration.radius(sigma=stakes.sigma, delta=stakes.delta, theta_bound=bound)
    error = setup.calibration.reward_error(world.s, theta_bound=bound)
    return pulse(
        world,
        setup.law,
        name="pulse_calibrated",
        radius=radius,
        error=error[:, world.lead :],
        seed=setup.seed,
    )


def make_pulse_adaptive(setup: PolicySetup) -> Agent | None:
    """PULSE-UCB whose law is repaired by rewards; not every law can be."""
    bound = setup.stakes.theta_bound
    try:
        return pulse_adaptive(
            setup.world, setup.law, setup.archive, theta_bound=bound, seed=setup.seed
        )
    except PulseError as refusal:  # the others still play
        warnings.warn(f"pulse_adaptive is left out: {refusal}", stacklevel=2)
        return None


def make_oful(setup: PolicySetup) -> Agent:
    """OFUL without W."""
    return oful(setup.world)


def make_oful_lags(setup: PolicySetup) -> Agent | None:
    """OFUL on the raw lags the law looks at, where there is more than the current row."""
    summary = setup.law.summary
    raw = summary.window if isinstance(summary, Filtered) else summary
    return oful_lags(setup.world, raw) if isinstance(raw, Lags) and raw.memory > 1 else None


def make_oful_full(setup: PolicySetup) -> Agent:
    """OFUL that sees W."""
    return oful_full(setup.world)
