"""The demo is a study: the same stages, artefacts and page, played in a world that is known."""

import json
import warnings
from dataclasses import replace

import numpy as np
import pytest

import pulse_pyro as pp
from pulse_pyro._core.registry import named
from pulse_pyro.study import demo as showing
from pulse_pyro.study import worlds
from pulse_pyro.study.stages import make_calibrate, make_fit, make_simulate
from pulse_pyro.study.workspace import STAGES, open_workspace, stage_status
from pulse_pyro.study.worlds import KnownWorld, StudySimulation
from tests.helpers import with_failure
from tests.study.helpers import write_study


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shown") / "demo"
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"UNITS": 40, "RUNS": 3, "HORIZON": 60}.items():
            patch.setattr(showing, name, value)
        return folder, showing.run_demo(folder, seed=2)


def artefact(folder, stage, file):
    return json.loads((folder / stage / file).read_text())


def test_what_the_demo_says_is_what_its_stages_wrote(made):
    folder, demo = made
    said = json.loads((folder / "results.json").read_text())
    assert said["checks"] == artefact(folder, "diagnose", "diagnostics.json")["checks"]
    bound = artefact(folder, "calibrate", "calibration.json")
    assert (said["calibration"], said["calibration_checks"]) == (bound["table"], bound["checks"])
    assert said["agents"] == artefact(folder, "simulate", "run.json")["table"]
    assert demo.report == folder / "report.html"
    assert pp.load(folder / "fit" / "law").id == demo.calibration.law_id


def test_its_stages_are_up_to_date_in_its_world_and_in_no_other(made):
    folder, _ = made
    path = folder / "study.toml"
    known = KnownWorld("w_times_action", pp.envs.w_times_action(), 3)
    work = open_workspace(path, folder, world=known)
    assert [stage_status(work, stage).why for stage in STAGES] == [""] * 5
    for world in (None, replace(known, name="another")):
        other = open_workspace(path, folder, world=world)
        assert stage_status(other, "simulate").why == "the world changed"
        assert stage_status(other, "calibrate").why == ""


def test_its_page_says_that_the_world_is_known(made):
    folder, demo = made
    page = demo.report.read_text()
    assert "Played in a known world, 60 rounds" in page
    assert "no forecast" not in page
    assert artefact(folder, "simulate", "run.json")["truth_id"] is None


def test_its_policies_play_in_the_true_world(made):
    _, demo = made
    world = pp.envs.w_times_action().world(3, 60, rng=pp.stream(2, "online"))
    again = pp.simulate(world, [pp.envs.oful(world), pp.envs.cond_oracle(world)])
    np.testing.assert_array_equal(again.of("oful"), demo.run.of("oful"))
    np.testing.assert_array_equal(again.info_gap, demo.run.info_gap)


def test_its_policies_are_those_of_every_study(made):
    """pulse_calibrated is one policy, wherever it is played: by the registry."""
    folder, demo = made
    work = open_workspace(folder / "study.toml", folder)
    world = pp.envs.w_times_action().world(3, 60, rng=pp.stream(2, "online"))
    setup = pp.envs.PolicySetup(
        world, work.fitted, work.parts[0], work.calibration, work.study.stakes(), seed=2
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # 20 units are too few for adaptive_guarded
        made_here = [named(pp.envs.POLICIES, name)(setup) for name in work.study.agents()]
    agents = [agent for agent in made_here if agent is not None]
    [calibrated] = [agent for agent in agents if agent.name == "pulse_calibrated"]
    assert calibrated.radius.name == "corrected"
    again = pp.simulate(world, agents)
    assert (*again.names, "cond_oracle") == demo.run.names
    np.testing.assert_array_equal(again.regret, demo.run.regret[:-1])


def test_its_verdict_tells_what_the_guard_did(made):
    _, demo = made
    table = demo.run.table
    assert f"inside its guard {table['regret']['guarded']:.1f}" in demo.verdict
    assert f"overruled in {table['overruled']['committee']:.1%} of rounds" in demo.verdict
    worse = replace(demo, calibration=with_failure(demo.calibration))
    assert "its guard, a heuristic here" in worse.verdict
    assert "off by at most" not in worse.verdict
    assert demo.calibration.claim in worse.verdict  # what stands is told all the same


def test_its_page_shows_guards_and_the_votes_of_the_committee(made):
    folder, demo = made
    found = {
        section["title"]: section
        for section in json.loads((folder / "simulate" / "sections.json").read_text())
    }
    guards = found["Guards"]["table"]
    assert guards["columns"] == ["agent", "overruled", "radius", "held", "benchmark"]
    assert {row[-1] for row in guards["rows"]} == {"the best policy on S"}
    assert "conditional on: the calibration's band" in found["Guards"]["text"]
    assert [row[0] for row in guards["rows"]] == ["committee", "guarded"]  # 20 units are few
    radius = demo.run.radius[demo.run.names.index("guarded")].mean()
    assert guards["rows"][1][2] == pytest.approx(radius)
    assert "At the end: " in found["Committee"]["text"]
    assert artefact(folder, "simulate", "run.json")["heuristic"] == {}


def test_the_law_is_saved_once(made):
    folder, _ = made
    assert [path.parent.name for path in folder.rglob("law/manifest.json")] == ["law"]
    assert not (folder / "law").exists()


def test_its_study_runs_like_any_other(made, tmp_path, monkeypatch):
    folder, _ = made
    monkeypatch.setattr(worlds, "RUNS", 1)
    run = pp.run_study(folder / "study.toml", tmp_path / "again")
    assert [step.done for step in run.steps] == ["made"] * 5
    assert "on real contexts with made-up rewards" in run.report.text


class OneAgent:
    """A world of somebody else's: one run of one policy."""

    name = "somebody's"

    def play(self, policies):
        ids = (policies.law.id, policies.calibration.law_id)
        self.handed = (*ids, policies.stakes.horizon, policies.seed)
        none = np.zeros((1, 1, 5))
        run = pp.envs.Run(("only",), none.astype(int), none, none, np.zeros(1))
        return StudySimulation(run, np.ones((5, 3)), 0.25, "Somebody's world.", "only is alone.")


def test_the_stage_plays_in_the_world_it_is_handed(tmp_path):
    path, world = write_study(tmp_path / "mine"), OneAgent()
    work = open_workspace(path, world=world)
    law_id = make_fit(work).id
    make_calibrate(work)
    assert make_simulate(work).names == ("only",)
    assert world.handed == (law_id, law_id, 40, 3)
    found = artefact(work.out, "simulate", "run.json")
    assert (found["runs"], found["rounds"], found["outside_share"]) == (1, 5, 0.25)
    assert "Somebody's world." in (work.folder("simulate") / "sections.json").read_text()
