"""Committees in the tables: members as they play alone, and beside the best of them."""

from dataclasses import replace

import numpy as np
import pytest

import pulse_pyro as pp
from pulse_pyro._core.errors import SettingError
from pulse_pyro._core.registry import named
from pulse_pyro.envs.simulation import Run
from pulse_pyro.paper import EXPERIMENTS
from pulse_pyro.paper.agents import COMMITTEES
from pulse_pyro.paper.committees import at_radius, seated, table_committee
from pulse_pyro.paper.paired import beside_best, paired
from pulse_pyro.paper.result import Result
from pulse_pyro.paper.runner import run_experiment
from pulse_pyro.paper.setting import Experiment


@pytest.fixture(scope="module")
def world():
    return pp.envs.w_times_action().world(runs=2, horizon=80, rng=pp.stream(0, "online"))


def run_of(**finals):
    """A Run whose final regret per agent and run is given."""
    final = np.array(list(finals.values()), float)[..., None]
    return Run(tuple(finals), np.zeros(final.shape, int), final, final, np.zeros(2))


def test_a_member_alone_plays_as_the_agent_it_is(world):
    agent = pp.envs.oful(world)
    alone = replace(seated(agent, guess=0.1), name="alone")
    one = table_committee([agent], guess=0.1)
    run = pp.simulate(world, [agent, alone, one])
    np.testing.assert_array_equal(run.action[0], run.action[1])
    np.testing.assert_array_equal(run.action[0], run.action[2])


def test_all_members_take_another_radius(world):
    agents = [pp.envs.oful(world), pp.envs.oful_full(world)]
    team = at_radius(table_committee(agents, guess=0.1), pp.constant(0.5))
    assert [each.alpha for each in team.learners] == [0.5, 0.5]
    assert team.advisor == "committee"
    assert at_radius(seated(agents[0], guess=0.1), pp.constant(0.5)).advisor == pp.constant(0.5)


def test_members_have_constant_radii(world):
    agent = pp.envs.oful(world, radius=pp.thompson(1.0))
    with pytest.raises(SettingError, match="'oful' must have a constant radius"):
        seated(agent, guess=0.1)
    team = table_committee([pp.envs.oful(world)], guess=0.1)
    with pytest.raises(SettingError, match="constant radius"):
        at_radius(team, pp.thompson(1.0))


def test_differences_are_paired():
    run = run_of(one=[3.0, 7.0], two=[1.0, 4.0])
    found = paired(run, "one", "two")  # differences 2 and 3
    assert found.difference == pytest.approx(2.5)
    assert found.se == pytest.approx(0.5)


def test_committees_stand_beside_the_best_single_agent():
    curves = {"x": run_of(a=[2.0, 4.0], b=[1.0, 3.0], w=[0.0, 0.0], committee=[1.5, 3.5])}
    experiment = Experiment("x", "X", "", (), 2, {}, extra=beside_best(["committee"], ["a", "b"]))
    (row,) = Result(experiment, (), 0.0, 0, curves).extra.to_dict("records")
    assert (row["setting"], row["agent"], row["best"]) == ("x", "committee", "b")
    assert row["times_best"] == pytest.approx(1.25)
    assert (row["difference"], row["se"]) == pytest.approx((0.5, 0.0))


@pytest.mark.parametrize(
    ("name", "committees"),
    [("sweep-n", tuple(COMMITTEES.values())), ("masking", ("committee",))],
)
def test_tables_have_committees(name, committees):
    experiment = named(EXPERIMENTS, name)
    setting = replace(experiment.settings[1], horizon=60)
    if name == "masking":
        setting = replace(setting, units=10, length=30)
    result = run_experiment(replace(experiment, settings=(setting,)), runs=2, seed=0)
    rows = result.table.set_index("agent")
    assert set(committees) <= set(rows.index)
    assert rows.loc[list(committees), "why"].str.startswith("not published").all()
    assert list(result.extra["agent"]) == list(committees)
    assert (result.extra["best_regret"] > 0).all()
