"""Stages refuse what is missing, out of date, damaged or mixed, in one sentence."""

import shutil
from pathlib import Path

import pytest

import pulse_pyro as pp
from pulse_pyro.study import worlds
from pulse_pyro.study.workspace import read_record, write_stage
from tests.study.helpers import edit, run_once, write_study

STAGES = ["fit", "diagnose", "calibrate", "simulate"]
VERBS = {
    "diagnose": pp.study.diagnose_study,
    "calibrate": pp.study.calibrate_study,
    "simulate": pp.study.simulate_study,
    "report": pp.study.report_study,
}


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


def refused(call, *words):
    with pytest.raises(pp.PulseError) as caught:
        call()
    text = str(caught.value)
    assert "\n" not in text
    for word in words:
        assert word in text


@pytest.mark.parametrize("verb", VERBS)
def test_nothing_is_made_before_what_it_needs(tmp_path, verb):
    path = write_study(tmp_path / "mine")
    refused(
        lambda: VERBS[verb](path),
        f"{verb}: it needs the result of fit",
        "not made yet",
        f"pulse-pyro run {path}",
    )
    assert not (path.parent / "results").exists()


@pytest.mark.parametrize("verb", VERBS)
def test_what_is_out_of_date_is_named(study, verb):
    edit(study, ("lags = 3", "lags = 2"))
    refused(lambda: VERBS[verb](study), "fit", "[law] changed", "pulse-pyro fit")


def test_a_report_waits_for_the_stage_that_changed(study):
    edit(study, ("horizon = 40", "horizon = 30"))
    before = (study.parent / "results" / "report.html").read_bytes()
    refused(
        lambda: pp.study.report_study(study), "needs the result of simulate", "[policy] changed"
    )
    assert (study.parent / "results" / "report.html").read_bytes() == before
    pp.study.simulate_study(study)
    assert pp.study.report_study(study).verdict == "pass"


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("damage", ["cut", "edited", "record", "empty record", "gone"])
def test_damaged_artefacts_are_refused(study, stage, damage):
    folder = study.parent / "results" / stage
    file = folder / ("stage.json" if "record" in damage else "sections.json")
    text = file.read_text()
    if damage == "gone":
        file.unlink()
    else:
        file.write_text(
            {
                "cut": text[:-9],
                "edited": text.replace("a", "b", 1),
                "record": text.replace('"seal"', '"sael"'),
                "empty record": "[]",
            }[damage]
        )
    refused(lambda: pp.study.report_study(study), str(folder), "incomplete")


def test_a_damaged_stage_is_made_again_and_what_follows_from_it_is_not(study):
    file = study.parent / "results" / "diagnose" / "diagnostics.json"
    good = file.read_bytes()
    file.write_bytes(good[:40])
    run = pp.run_study(study)
    assert [step.done for step in run.steps] == ["up to date", "made again"] + ["up to date"] * 3
    assert "damaged" in run.steps[1].why
    assert file.read_bytes() == good


def test_artefacts_of_two_laws_are_not_mixed(study, tmp_path):
    other = write_study(tmp_path / "other", ("seed = 3", "seed = 4"))
    pp.study.fit_study(other)
    pp.study.calibrate_study(other)
    mine = study.parent / "results" / "calibrate"
    shutil.rmtree(mine)
    shutil.copytree(other.parent / "results" / "calibrate", mine)
    refused(lambda: pp.study.report_study(study), "law_id mismatch", str(mine))
    assert {step.stage for step in pp.run_study(study).steps if step.done == "made again"} == {
        "calibrate"
    }
    assert read_record(mine / "stage.json").law_id == pp.study.report_study(study).law_id


def test_a_law_in_another_place_is_not_taken_for_it(study, tmp_path):
    other = write_study(tmp_path / "other", ("seed = 3", "seed = 4"))
    pp.study.fit_study(other)
    mine = study.parent / "results" / "fit"
    shutil.rmtree(mine)
    shutil.copytree(other.parent / "results" / "fit", mine)
    refused(lambda: pp.study.report_study(study), "law_id mismatch")
    refused(lambda: pp.study.diagnose_study(study), "seed changed")


def test_a_stage_in_another_stages_folder_is_seen(study):
    out = study.parent / "results"
    shutil.rmtree(out / "diagnose")
    shutil.copytree(out / "calibrate", out / "diagnose")
    refused(lambda: pp.study.report_study(study), "holds a result of calibrate")


def test_a_folder_of_something_else_is_left_alone(tmp_path):
    path = write_study(tmp_path / "mine")
    precious = path.parent / "results" / "fit" / "notes.txt"
    precious.parent.mkdir(parents=True)
    precious.write_text("precious")
    refused(lambda: pp.study.fit_study(path), "exists and is not an earlier result of fit")
    assert precious.read_text() == "precious"
    refused(lambda: pp.study.fit_study(path, out=path), "which is a file")


def test_a_write_that_fails_leaves_the_earlier_stage(study):
    folder = study.parent / "results" / "fit"
    before = {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}

    def fail(aside):
        (aside / "half").write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_stage(folder, "fit", "id", {}, {"fit.json": "{}"}, also=fail)
    assert {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()} == before
    assert sorted(p.name for p in folder.parent.iterdir()) == sorted(
        [*STAGES, "report.html", "report.json"]
    )


def test_a_rename_that_fails_puts_the_earlier_stage_back(study, monkeypatch):
    folder = study.parent / "results" / "fit"
    before = sorted(p.name for p in folder.iterdir())
    rename = Path.rename

    def fail(self, target):
        if target == folder and not self.name.endswith(".old"):
            raise OSError("no space left")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fail)
    with pytest.raises(OSError, match="no space"):
        write_stage(folder, "fit", "id", {}, {"fit.json": "{}"})
    assert sorted(p.name for p in folder.iterdir()) == before
    assert not list(folder.parent.glob(".*"))


def test_stages_without_their_section_are_left_out(tmp_path):
    path = write_study(tmp_path / "mine")
    text = path.read_text()
    path.write_text(text.split("[policy]")[0])
    run = pp.run_study(path)
    assert [step.done for step in run.steps] == ["made", "made", "made", "left out", "made"]
    assert "no section [policy]" in str(run.steps[3])
    assert "Played on real contexts" not in run.report.text
    refused(lambda: pp.study.simulate_study(path), "no section [policy]")
    path.write_text(text.split("[features]")[0])
    run = pp.run_study(path)
    assert run.report.verdicts == {"diagnose": "pass"}
    assert run.steps[-1].done == "made again"
    refused(lambda: pp.study.calibrate_study(path), "no section [features]")


@pytest.mark.parametrize("key", ["unit", "time", "observed", "missing"])
def test_a_column_that_is_not_there_is_a_slip_of_data(tmp_path, key):
    path = write_study(tmp_path / "mine")
    lines = path.read_text().splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith(f"{key} ="))
    name = lines[at].split('"')[1]
    lines[at] = lines[at].replace(f'"{name}"', f'"{name}x"')
    path.write_text("\n".join(lines))
    words = (f"study.toml [data] {key}: there is no column '{name}x'", f"did you mean '{name}'")
    refused(lambda: pp.study.read_study(path), *(words if len(name) > 1 else words[:1]))


def test_the_bad_cell_is_named_not_the_first_one(tmp_path):
    path = write_study(tmp_path / "mine")
    archive = path.parent / "archive.csv"
    lines = archive.read_text().splitlines()
    cells = lines[8].split(",")
    at = lines[0].split(",").index("w0")
    lines[8] = ",".join("abc" if i == at else cell for i, cell in enumerate(cells))
    archive.write_text("\n".join(lines) + "\n")
    refused(lambda: pp.study.check_study(path), "column 'w0'", "'abc' at row 7")


def test_actions_beside_a_features_file(tmp_path):
    path = write_study(tmp_path / "mine", ('terms = ["1", "s", "w0", "w0*a"]', 'file = "phi.py"'))
    (path.parent / "phi.py").write_text("")
    refused(lambda: pp.study.check_study(path), "[features]", "remove actions")
