"""A study says what it used and how far its bound reaches; no unit judges its own fit."""

import json
import os
import shutil

import numpy as np
import pandas as pd
import pytest

import pulse_pyro as pp
from pulse_pyro.calibration.planted import PLANTS
from pulse_pyro.cli import main
from pulse_pyro.report.calibration import calibration_verdict
from pulse_pyro.study import demo, stages, worlds
from pulse_pyro.study.workspace import Workspace, digest, open_workspace
from tests.helpers import with_failure
from tests.study.helpers import edit, run_once, write_study


@pytest.fixture(scope="module", autouse=True)
def few_runs():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worlds, "RUNS", 2)
        yield


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return run_once(tmp_path_factory)[0]


@pytest.fixture
def study(made, tmp_path):
    shutil.copytree(made.parent, tmp_path / "mine")
    return tmp_path / "mine" / "study.toml"


def test_people_under_two_names_are_refused_by_check(tmp_path, capsys):
    path = pp.study.new_study(tmp_path / "mine")
    archive = path.parent / "archive.csv"
    frame = pd.read_csv(archive)
    some = frame[frame["person"].isin(sorted(frame["person"].unique())[:60])]
    again = some.assign(person="q" + some["person"])
    pd.concat([frame, again]).to_csv(archive, index=False)
    capsys.readouterr()
    assert main(["check", str(path)]) == 2
    said = capsys.readouterr().err
    assert "'p000' and 'qp000' have the same values in every row (and 59 more" in said
    assert len(said.strip().splitlines()) == 1


def test_no_stage_takes_twins_and_one_other_value_is_no_twin(tmp_path):
    path = write_study(tmp_path / "mine")
    archive = path.parent / "archive.csv"
    frame = pd.read_csv(archive)
    first = frame[frame["unit"] == frame["unit"].iloc[0]].assign(unit="copy")
    pd.concat([frame, first]).to_csv(archive, index=False)
    for mode in ("split", "all"):
        edit(path, ("level = 0.95", f'level = 0.95\nmode = "{mode}"'))
        with pytest.raises(pp.errors.LeakageError, match="'copy'"):
            pp.study.fit_study(path)
        edit(path, (f'\nmode = "{mode}"', ""))
    assert not (path.parent / "results").exists()
    first.iloc[3, first.columns.get_loc("w0")] += 1e-6
    pd.concat([frame, first]).to_csv(archive, index=False)
    assert len(open_workspace(path).history.units) == 25


def test_diagnose_is_handed_the_units_of_the_fit(study, monkeypatch):
    asked = []
    real = stages.diagnose

    def spy(fitted, held_out, **how):
        asked.append(how["archive"])
        return real(fitted, held_out, **how)

    monkeypatch.setattr(stages, "diagnose", spy)
    pp.study.diagnose_study(study)
    assert set(asked[0].units) == set(pp.load(study.parent / "results/fit/law").units)


MAKERS = {
    "fit": (stages, "fit_law", "archive.csv"),
    "diagnose": (stages, "diagnose", "archive.csv"),
    "calibrate": (stages, "stage_sections", "phi.py"),
    "simulate": (worlds, "fit_law", "archive.csv"),
}
VERBS = {
    "fit": pp.study.fit_study,
    "diagnose": pp.study.diagnose_study,
    "calibrate": pp.study.calibrate_study,
    "simulate": pp.study.simulate_study,
}
PHI = """import numpy as np
ACTIONS, NAMES = 2, ('w', 'wa')
def phi(s, w, a):
    return np.column_stack([w, w * a])
"""


@pytest.mark.parametrize("stage", MAKERS)
def test_a_file_edited_meanwhile_is_not_recorded_as_used(study, monkeypatch, stage):
    module, name, file = MAKERS[stage]
    if stage == "calibrate":
        (study.parent / "phi.py").write_text(PHI)
        edit(study, ('terms = ["1", "s", "w0", "w0*a"]\nactions = 2', 'file = "phi.py"'))
    real, folder = getattr(module, name), study.parent / "results" / stage
    before = (folder / "stage.json").read_bytes()

    def slow(*given, **how):
        with (study.parent / file).open("a") as stream:
            stream.write("\n")
        return real(*given, **how)

    monkeypatch.setattr(module, name, slow)
    with pytest.raises(
        pp.errors.BundleError, match=r"file changed while it was .*ed; run again"
    ) as said:
        VERBS[stage](study)
    assert str(said.value).startswith(f"{stage}: the ")
    assert (folder / "stage.json").read_bytes() == before


def test_a_file_edited_between_reading_and_the_fit_is_seen(study):
    work = open_workspace(study)
    assert work.history.units  # as check reads it, before the fit begins
    with (study.parent / "archive.csv").open("a") as stream:
        stream.write("\n")
    with pytest.raises(
        pp.errors.BundleError, match="the archive's file changed while it was fitted"
    ):
        stages.make_fit(work)


def test_the_headline_is_the_claim_and_the_page_says_where_its_bound_holds(study):
    stored = json.loads((study.parent / "results/calibrate/calibration.json").read_text())
    calibration = Workspace.calibration.func(open_workspace(study))
    said = calibration_verdict(calibration)
    assert said in pp.study.report_study(study).text
    assert calibration.claim in said
    assert calibration.usable
    found = stored["D"]
    assert 0 < found["outside_share"] < 1
    inside = np.floor(1000 * (1 - found["outside_share"])) / 10
    text = next(
        s.text
        for s in pp.report.calibration_sections(calibration)
        if s.title == "Calibration of D_t"
    )
    assert f"inside the calibrated domain ({inside:g}% of" in text
    assert f"up to {np.sqrt(calibration.bound.max()):.3g}" in text


def test_the_demo_says_it_too(study):
    work = open_workspace(study)
    names = ["committee", "guarded", "pulse", "pulse_calibrated"]
    names += ["oful", "oful_lags", "oful_lags_rewards", "oful_full"]
    zeros = np.zeros((len(names), 1, 1))
    run = pp.envs.Run(tuple(names), zeros.astype(int), zeros, zeros, np.zeros(1))
    checked = stages.diagnose(work.fitted, work.parts[1], seed=0)
    text = demo._verdict(checked, work.calibration, run)
    assert work.calibration.claim in text
    assert work.calibration.rung("uniform").claim in text
    failed = demo._verdict(checked, with_failure(work.calibration), run)
    assert work.calibration.claim in failed
    assert "at most" not in failed


def test_a_domain_that_holds_all_contexts_has_no_beyond():
    from pulse_pyro.report.calibration import beyond_domain, in_domain

    assert "(all of" in in_domain(0.0)
    assert beyond_domain(0.0, 3.0) == ""
    assert "(99.9% of" in in_domain(1e-5)
    assert "no held-out context" in in_domain(1.0)


def test_a_comment_makes_the_page_again_and_nothing_else(study):
    edit(study, ("lags = 3", "lags = 3   # three days"))
    run = pp.run_study(study)
    assert [s.stage for s in run.steps if s.done == "made again"] == ["report"]
    assert "the study's file changed" in run.steps[-1].why
    assert digest(study.read_bytes()) in run.report.path.read_text()


def test_the_page_follows_the_files_of_its_stages(study):
    from pulse_pyro.study.workspace import read_record, stage_status, write_stage

    folder = study.parent / "results" / "diagnose"
    old = read_record(folder / "stage.json")
    texts = {name: (folder / name).read_text() + " " for name in old.files if "/" not in name}
    write_stage(folder, "diagnose", old.law_id, old.inputs, texts)
    assert stage_status(open_workspace(study), "report").why == "files of diagnose changed"


def test_two_files_of_one_name_are_two_lines(tmp_path):
    path = write_study(tmp_path / "mine", ("archive.csv", "data/same.csv"))
    (path.parent / "data").mkdir()
    os.rename(path.parent / "archive.csv", path.parent / "data" / "same.csv")
    pp.laws.new_law(path.parent / "a" / "it.py")
    (path.parent / "b").mkdir()
    (path.parent / "b" / "it.py").write_text(PHI)
    edit(
        path,
        ('name = "linear_lags"\nlags = 3', 'file = "a/it.py"'),
        ('terms = ["1", "s", "w0", "w0*a"]\nactions = 2', 'file = "b/it.py"'),
    )
    from pulse_pyro.study.report import _hashes

    assert list(_hashes(open_workspace(path), {})) == [
        "study.toml",
        "data/same.csv",
        "a/it.py",
        "b/it.py",
    ]


def test_the_simulation_says_that_it_does_not_test_the_bound(made):
    page = (made.parent / "results" / "report.html").read_text()
    assert "same held-out units as the calibration" in page
    assert "by construction" in page


def ladder_of(folder):
    sections = json.loads((folder / "calibrate" / "sections.json").read_text())
    return next(s for s in sections if s["title"] == "Ladder of claims"), sections[0]["text"]


def test_a_study_tells_sizes_in_units_of_the_reward(study):
    folder = study.parent / "results"
    stored = json.loads((folder / "calibrate" / "calibration.json").read_text())
    assert stored["theta_bound"] == 1.1
    ladder, first = ladder_of(folder)
    at = ladder["table"]["columns"].index("in units of the reward")
    assert [row[at] for row in ladder["table"]["rows"]] == [
        rung["in units of the reward"] for rung in stored["rungs"]
    ]
    assert "misfit = true" in first
    assert (stored["stability"], stored["smallest_misfit"]) == (None, None)
    text = study.read_text()
    study.write_text(text[: text.index("[policy]")])
    pp.study.calibrate_study(study)
    ladder, _ = ladder_of(folder)
    assert "in units of the reward, times theta_bound" in ladder["table"]["columns"]
    assert "theta_bound is not known here" in ladder["text"]


def test_splits_and_misfits_that_are_asked_for_are_stored_and_shown(study, monkeypatch):
    edit(study, ("level = 0.95", "level = 0.95\nsplits = 2\nmisfit = true"))
    real = stages.smallest_misfit

    def quick(*given, **how):
        return real(*given, **how, reps=1, seconds=1.0)

    monkeypatch.setattr(stages, "smallest_misfit", quick)
    calibration = pp.study.calibrate_study(study)
    folder = study.parent / "results"
    stored = json.loads((folder / "calibrate" / "calibration.json").read_text())
    assert calibration.rung("uniform").verdict == "conditional"
    assert stored["stability"]["splits"] == 2
    rungs = {row["rung"]: row for row in stored["stability"]["rungs"]}
    assert rungs["forecast"]["stands"] == 1.0
    assert [row["misfit"] for row in stored["smallest_misfit"]["misfits"]] == list(PLANTS)
    ladder, first = ladder_of(folder)
    assert "The smallest misfit its tests would have seen 80% of the time" in first
    assert "Over 2 random splits" in first
    assert "Not asked" not in first
    assert len(ladder["more"]) == 1


def test_no_misfits_are_looked_for_behind_a_claim_that_fails(study, monkeypatch):
    frame = pd.read_csv(study.parent / "archive.csv")
    frame["w0"] += 3.0 * np.square(frame["s"])
    frame.to_csv(study.parent / "archive.csv", index=False)
    edit(study, ("level = 0.95", 'level = 0.95\nband = "linear"\nsplits = 2\nmisfit = true'))

    def refuse(*given, **how):
        raise AssertionError("the claim fails")

    monkeypatch.setattr(stages, "smallest_misfit", refuse)
    pp.study.fit_study(study)
    calibration = pp.study.calibrate_study(study)
    assert calibration.rung("uniform").verdict == "fails"
    folder = study.parent / "results"
    stored = json.loads((folder / "calibrate" / "calibration.json").read_text())
    assert stored["smallest_misfit"] is None
    (uniform,) = [row for row in stored["stability"]["rungs"] if row["rung"] == "uniform"]
    assert (uniform["smallest"], uniform["size, median"], uniform["largest"]) == (None,) * 3
    assert [r["in units of the reward"] for r in stored["rungs"] if r["rung"] == "uniform"] == [
        None
    ]
    assert "D" not in stored
