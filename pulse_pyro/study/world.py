"""Where the policies of a study are played: a world it makes up, or one that is known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from pulse_pyro._core.arrays import Float2
from pulse_pyro.calibration.calibration import Calibration
from pulse_pyro.calibration.stakes import Stakes
from pulse_pyro.envs.agents import pulse
from pulse_pyro.envs.simulation import Agent, Run
from pulse_pyro.envs.world import Contexts
from pulse_pyro.laws.fitted import PosteriorLaw


@dataclass(frozen=True, eq=False)
class Played:
    """What came of it.

    Attributes
    ----------
    run : of every policy.
    parts : (rounds, 3) of the radius of pulse_calibrated, see :func:`radius_parts`; None if it did
        not play.
    outside : share of the rounds beyond the calibrated domain.
    text, agents : for the reader of the page: what was played, and who played.
    truth_id : of the law W was drawn from; None if the world is known.
    notes : what went otherwise than meant.
    """

    run: Run
    parts: Float2 | None
    outside: float
    text: str
    agents: str
    truth_id: str | None = None
    notes: tuple[str, ...] = ()


class StudyWorld(Protocol):
    """Contexts, rewards and noise for the policies of a study.

    name : tells it from other worlds; a run of another name is made again.
    """

    @property
    def name(self) -> str:
        """What it is called in a stage's record."""

    def play(
        self, law: PosteriorLaw, calibration: Calibration, stakes: Stakes, *, seed: int
    ) -> Played:
        """Play policies that have this law and this bound on its error."""


def calibrated_agent(
    world: Contexts, law: PosteriorLaw, calibration: Calibration, stakes: Stakes, *, seed: int
) -> Agent:
    """Return PULSE-UCB with the corrected radius and the errors of the calibration."""
    size = stakes.theta_bound
    radius = calibration.radius(sigma=stakes.sigma, delta=stakes.delta, theta_bound=size)
    error = calibration.reward_error(world.s, theta_bound=size)[:, world.lead :]
    return pulse(world, law, name="pulse_calibrated", radius=radius, error=error, seed=seed)
