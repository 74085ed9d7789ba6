"""A study says which of its guards promise something, and which do not."""

from dataclasses import replace

import numpy as np
import pytest

import pulse_pyro as pp
from pulse_pyro.study import worlds
from pulse_pyro.study.stages import make_calibrate, make_diagnose, make_fit, make_simulate
from pulse_pyro.study.workspace import open_workspace, read_json
from pulse_pyro.study.worlds import KnownWorld, StudyPolicies, heuristics, memory_left, who_plays
from tests.helpers import linear_history, with_failure
from tests.study.helpers import write_study

GUARDS = ["committee", "guarded", "adaptive_guarded"]


@pytest.fixture(scope="module")
def made():
    """Policies of a small study whose law is right, and a world to play in."""
    environment = pp.envs.w_times_action()
    history = environment.archive(130, 60, rng=pp.stream(0, "archive"))
    fit, held_out = history.split(seed=0)
    law = pp.linear_lags(19).fit(fit, seed=0)
    world = environment.world(2, 30, rng=pp.stream(0, "online"))
    calibration = pp.calibrate(law, held_out, world.features, seed=0)
    stakes = pp.calibration.Stakes(30, 0.2, 1.1, reward_sd=0.05)
    names = (*GUARDS, "memory", "pulse", "oful")
    return StudyPolicies(names, law, fit, calibration, stakes, 0), world, held_out


def test_a_sound_study_has_no_heuristic(made):
    policies, world, held_out = made
    assert memory_left(policies.law, held_out) == ""
    agents = policies.agents(world, [])
    assert heuristics(agents) == {}
    text = who_plays(agents)
    assert "No guarantee here" not in text
    for name in (*policies.names, "cond_oracle"):
        assert f"{name} " in text
    assert "oful_lags" not in text


def test_a_failed_calibration_makes_its_guards_heuristics(made):
    policies, world, _ = made
    worse = with_failure(policies.calibration, "odd")
    agents = replace(policies, calibration=worse).agents(world, [])
    found = heuristics(agents)
    assert set(found) == {"committee", "guarded"}  # the third has a ball of its own
    assert "odd" in found["guarded"]
    assert "the guard of committee, guarded is a heuristic" in who_plays(agents)


def test_a_refuted_form_makes_the_guard_that_rests_on_it_a_heuristic(made):
    policies, world, _ = made
    worse = with_failure(policies.calibration, "jumps")
    found = heuristics(replace(policies, calibration=worse).agents(world, []))
    assert found["adaptive_guarded"] == "E[W | S] is not of the law's form (jumps)"


def test_a_run_tells_whom_balls_are_against_and_what_they_rest_on(made):
    policies, world, _ = made
    names = ("guarded", "pulse_calibrated", "pulse")
    agents = replace(policies, names=names).agents(world, [])
    run = pp.simulate(world, list(agents.values()))
    feeds = policies.calibration.feeds
    assert feeds.verdict == "conditional"
    for bound in run.bounds[:2]:
        assert bound.benchmark == feeds.benchmark
        assert f"that {feeds.rests_on}" in bound.rests_on
        assert bound.heuristic == ""
    assert run.bounds[2] == ("", "", "")
    assert f"that {feeds.rests_on}" in repr(run)
    doubted = replace(policies, names=names, memory="W remembers").agents(world, [])
    assert [agent.heuristic for agent in (doubted["pulse_calibrated"], doubted["pulse"])] == [
        "W remembers",
        "",
    ]


def test_memory_makes_every_guard_a_heuristic(made):
    policies, world, _ = made
    agents = replace(policies, memory="W remembers").agents(world, [])
    assert heuristics(agents) == dict.fromkeys(GUARDS, "W remembers")
    remembering = pp.laws.with_memory(policies.law, policies.archive, "ar")
    why = memory_left(remembering, policies.archive)
    agents = replace(policies, law=remembering, memory=why).agents(world, [])
    assert heuristics(agents) == dict.fromkeys(GUARDS, why)


def test_a_committee_without_a_guard_is_said_to_have_none(made):
    policies, world, _ = made
    agents = policies.agents(world, [])
    alone = {"committee": replace(agents["committee"], ball=None, rounds=None)}
    assert "without a guard" in who_plays(alone)


def remembering_history(keep):
    """W of which the law leaves noise with a memory; keep: of one step."""
    history, _ = linear_history(units=60, time=20, lags=3)
    noise = np.random.default_rng(1).standard_normal((60, 20))
    for t in range(1, 20):
        noise[:, t] += keep * noise[:, t - 1]
    frame = history.to_frame()
    frame["w0"] += 0.3 * noise.ravel()
    return frame


def test_the_stage_asks_for_memory_itself(tmp_path, monkeypatch):
    monkeypatch.setattr(worlds, "RUNS", 1)
    path = write_study(
        tmp_path / "mine",
        ("horizon = 40", 'horizon = 40\nagents = ["guarded", "pulse_calibrated"]'),
        ("level = 0.95", 'level = 0.95\nband = "linear"'),
    )
    remembering_history(0.8).to_csv(path.parent / "archive.csv", index=False)
    work = open_workspace(path)
    make_fit(work)
    found = make_diagnose(work)
    assert found.table.loc["serial w0", "verdict"] == "fail"
    make_calibrate(work)
    make_simulate(work)
    why = read_json(work.folder("simulate") / "run.json")["heuristic"]
    assert why == {"guarded": "what the law leaves of w0 has memory"}
    said = pp.study.report_study(path).text
    assert "The guard is a heuristic here, no guarantee: what the law leaves of w0" in said
    sections = {s["title"]: s for s in read_json(work.folder("simulate") / "sections.json")}
    assert sections["Guards"]["table"]["columns"] == ["agent", "overruled"]
    assert sections["Radius"]["text"].startswith("Not shown: what the law leaves of w0")
    assert sections["Radius"]["figure"] is None


def test_votes_are_the_mean_over_runs(made):
    policies, world, _ = made
    known = KnownWorld("here", pp.envs.w_times_action(), 2)
    played = known.play(policies)
    team = policies.agents(world, [])["committee"]
    assert played.votes.labels == team.labels
    assert played.votes.weights.shape == (30, len(team.labels))
    np.testing.assert_allclose(played.votes.weights.sum(1), 1.0)
    alone = known.play(replace(policies, names=("pulse",)))
    assert alone.votes is None
