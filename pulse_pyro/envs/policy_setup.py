"""Policies that are played by name: each is made from a :class:`PolicySetup`, nothing else."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace

from pulse_pyro._core.errors import PulseError, SettingError
from pulse_pyro.base import FittedLaw
from pulse_pyro.calibration.calibration import Calibration
from pulse_pyro.calibration.stakes import Stakes
from pulse_pyro.data.history import History
from pulse_pyro.data.summary import Lags
from pulse_pyro.envs.agents import oful, oful_full, oful_lags, pulse, pulse_adaptive
from pulse_pyro.envs.simulation import Agent, Team
from pulse_pyro.envs.teams import (
    RewardScale,
    Trust,
    adaptive_guarded,
    committee,
    guarded,
    remembering,
    tuned,
    with_past_rewards,
)
from pulse_pyro.envs.world import World
from pulse_pyro.laws.ellipsoid import Ellipsoid
from pulse_pyro.laws.filtering import Filtered
from pulse_pyro.laws.fitted import PosteriorLaw
from pulse_pyro.laws.remembering import with_memory
from pulse_pyro.policies.balls import TRUST, RewardNoise, band_trust, reward_noise
from pulse_pyro.policies.carried import past_rewards


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

    @property
    def trust(self) -> Trust:
        """What a ball takes on trust: reward_sd where it is known apart, else sigma."""
        stakes = self.stakes
        noise = reward_noise(reward_sd=stakes.reward_sd) or RewardNoise(stakes.sigma, True)
        return Trust(noise, stakes.theta_bound, stakes.delta)

    @property
    def scale(self) -> RewardScale:
        """The same for agents without a ball."""
        known = self.stakes.reward_sd
        sigma = self.stakes.sigma
        return RewardScale(sigma, self.stakes.theta_bound, sigma if known is None else known)


def make_pulse(setup: PolicySetup) -> Agent:
    """PULSE-UCB with the constant radius 2, which nothing guarantees."""
    return pulse(setup.world, setup.law, seed=setup.seed)


def make_pulse_calibrated(setup: PolicySetup) -> Agent | None:
    """PULSE-UCB with the corrected radius and the errors of the calibration, where it has any."""
    if not setup.calibration.parts:
        warnings.warn(
            f"pulse_calibrated is left out: no band. {setup.calibration.why}", stacklevel=2
        )
        return None
    world, stakes, bound = setup.world, setup.stakes, setup.stakes.theta_bound
    radius = setup.calibration.radius(sigma=stakes.sigma, delta=stakes.delta, theta_bound=bound)
    error = setup.calibration.reward_error(world.s, theta_bound=bound)
    made = pulse(
        world,
        setup.law,
        name="pulse_calibrated",
        radius=radius,
        error=error[:, world.lead :],
        seed=setup.seed,
    )
    rests_on, heuristic = band_trust(setup.calibration)
    trusted = (*rests_on, TRUST, "||theta*|| <= theta_bound")
    return replace(made, rests_on=trusted, heuristic=heuristic)


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


def make_guarded(setup: PolicySetup) -> Team | None:
    """PULSE inside the ball of its calibration, advised by the constant radius sigma."""
    try:
        return guarded(
            setup.world,
            setup.law,
            setup.calibration,
            setup.trust,
            seed=setup.seed,
        )
    except PulseError as refusal:
        warnings.warn(f"guarded is left out: {refusal}", stacklevel=2)
        return None


def make_adaptive_guarded(setup: PolicySetup) -> Team | None:
    """PULSE that learns what the archive leaves open, guarded; for linear laws."""
    try:
        ellipsoid = _ellipsoid(setup.law)
        # the archive's contexts: blocks of one world must share one ball
        return adaptive_guarded(
            setup.world, setup.law, ellipsoid, setup.trust, reference=setup.archive
        )
    except PulseError as refusal:
        warnings.warn(f"adaptive_guarded is left out: {refusal}", stacklevel=2)
        return None


def _ellipsoid(law: FittedLaw) -> Ellipsoid:
    if not isinstance(law, PosteriorLaw):
        raise SettingError(f"{type(law).__name__} has no ellipsoid of coefficients.")
    return law.ellipsoid()


def make_memory(setup: PolicySetup) -> Team | None:
    """PULSE that tracks what the law leaves of W by each unit's own rewards."""
    try:
        law = setup.law
        if getattr(law, "memory", None) is None:
            law = with_memory(law, setup.archive, "ar")
        return remembering(setup.world, law, setup.scale, seed=setup.seed)
    except PulseError as refusal:
        warnings.warn(f"memory is left out: {refusal}", stacklevel=2)
        return None


def make_oful_rewards(setup: PolicySetup) -> Team:
    """OFUL on raw lags, where there are any, and the unit's last reward: no archive is needed."""
    plain = make_oful_lags(setup) or make_oful(setup)
    return with_past_rewards(plain, past_rewards(1), setup.scale, name="oful_lags_rewards")


def make_committee(setup: PolicySetup) -> Team:
    """Everything there is, by the evidence of rewards, inside the guard where there is one.

    The guard's own learner, adaptive and memory where the law has them, raw lags, with and without
    the last reward, and S alone.
    """
    scale = setup.scale
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # said where they play alone
        own = make_guarded(setup)
        extra = [make_adaptive_guarded(setup), make_memory(setup)]
    first = own or tuned(make_pulse(setup), scale)
    others = [replace(team, ball=None, rounds=None) for team in extra if team is not None]
    lags = make_oful_lags(setup)
    plain = [lags, make_oful(setup)] if lags is not None else [make_oful(setup)]
    others += [make_oful_rewards(setup), *(tuned(agent, scale) for agent in plain)]
    return committee([first, *others])


def make_oful_full(setup: PolicySetup) -> Agent:
    """OFUL that sees W."""
    return oful_full(setup.world)
