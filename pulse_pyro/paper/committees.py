"""Committees at the radius and ridge a table's own agents play with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pulse_pyro._core.errors import SettingError
from pulse_pyro.envs.simulation import Agent, Team
from pulse_pyro.envs.teams import committee
from pulse_pyro.policies.guard import Learner
from pulse_pyro.radius import CONSTANT, Radius, constant


def seated(agent: Agent, *, guess: float) -> Team:
    """Return an agent as a member: its own features, ridge and constant radius.

    guess : sd of a reward a priori, worth two rewards, for its evidence.
    """
    if agent.radius.kind != CONSTANT:
        raise SettingError(f"committee: {agent.name!r} must have a constant radius to be a member.")
    one = Learner(agent.x, agent.ridge, agent.radius.params[0], guess)
    return Team(agent.name, (one,), (agent.name,), advisor=agent.radius)


def table_committee(
    agents: Sequence[Agent], *, guess: float, votes: str = "tempered", name: str = "committee"
) -> Team:
    """Let agents of a table vote, each as it plays alone; see ``envs.committee``.

    NOT covered: measured, not guaranteed, as every constant radius is.
    """
    return committee([seated(each, guess=guess) for each in agents], name=name, votes=votes)


def at_radius(team: Team, radius: Radius) -> Team:
    """Return a team all of whose members play one constant radius."""
    if radius.kind != CONSTANT:
        raise SettingError("committee: its members play a constant radius.")
    learners = tuple(replace(each, alpha=radius.params[0]) for each in team.learners)
    advisor = constant(radius.params[0]) if isinstance(team.advisor, Radius) else team.advisor
    return replace(team, learners=learners, advisor=advisor)
