"""Stages of a study: what is made, what is skipped, and nothing half-written or mixed."""

import json
import shutil

import pytest

import pulse_pyro as pp
from pulse_pyro.study import run as running
from pulse_pyro.study import worlds
from pulse_pyro.study.workspace import (
    Record,
    digest,
    inputs_of,
    open_workspace,
    read_record,
    stage_status,
    write_record,
    write_stage,
)
from tests.study.helpers import edit, run_once

ALL = ["fit", "diagnose", "calibrate", "simulate", "report"]
ARTEFACTS = {
    "fit": ["fit.json", "law/arrays.npz", "law/manifest.json", "sections.json"],
    "diagnose": ["diagnostics.json", "diagnostics/arrays.npz", "diagnostics/manifest.json"],
    "calibrate": ["calibration.json", "calibration/arrays.npz", "calibration/manifest.json"],
    "simulate": ["run.json", "run/arrays.npz", "run/manifest.json"],
}


@pytest.fixture(scope="module", autouse=True)
def few_runs():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worlds, "RUNS", 2)
        yield


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A study that was run once, for real; tests work on copies."""
    return run_once(tmp_path_factory)


@pytest.fixture
def study(made, tmp_path):
    shutil.copytree(made[0].parent, tmp_path / "mine")
    return tmp_path / "mine" / "study.toml"


@pytest.fixture
def cheap(monkeypatch):
    """Stages that do no work but write, so that only the bookkeeping is tested."""
    above = {
        "fit": [],
        "diagnose": ["fit"],
        "calibrate": ["fit"],
        "simulate": ["calibrate"],
        "report": ALL[:-1],
    }

    def make(stage):
        def write(work):
            records = {name: read_record(work.record(name)) for name in above[stage]}
            inputs = inputs_of(work, stage, records)
            law = (
                digest(json.dumps(inputs))
                if stage == "fit"
                else next(iter(records.values())).law_id
            )
            if stage == "report":
                (work.out / "report.html").write_text("page")
                write_record(
                    work.record(stage), Record(stage, law, inputs, {"report.html": digest("page")})
                )
            else:
                kept = work.folder(stage)
                texts = {
                    p.name: p.read_text() for p in kept.glob("*.json") if p.name != "stage.json"
                }
                write_stage(kept, stage, law, inputs, texts)

        return write

    for stage in ALL:
        monkeypatch.setitem(running.MAKE, stage, make(stage))


def again(path, **how):
    """Run once more: the stages that were not skipped."""
    return [s.stage for s in pp.run_study(path, **how).steps if s.done.startswith("made")]


def test_the_first_run_makes_everything_and_passes(made):
    path, run, lines = made
    assert [step.done for step in run.steps] == ["made"] * 5
    assert [line.split(":")[0] for line in lines] == ALL
    assert run.report.verdicts == {"diagnose": "pass", "calibrate": "pass"}
    assert repr(run).startswith("Pass (")
    assert len(repr(run).splitlines()) <= 12
    out = path.parent / "results"
    for stage, names in ARTEFACTS.items():
        found = {p.relative_to(out / stage).as_posix() for p in (out / stage).rglob("*.*")}
        assert found == {*names, "sections.json", "stage.json"}
    assert not list(out.rglob(".*"))  # nothing aside is left


def test_artefacts_say_what_was_found(made):
    out = made[0].parent / "results"

    def strict(word):
        raise AssertionError(f"{word} is not JSON")

    found = {
        stage: json.loads((out / stage / names[0]).read_text(), parse_constant=strict)
        for stage, names in ARTEFACTS.items()
    }
    assert len({each["law_id"] for each in found.values()}) == 1
    assert {each["seed"] for each in found.values()} == {3}
    d = found["calibrate"]["D"]
    assert 0 < d["q05"] <= d["median"] <= d["q95"] <= d["largest"]
    assert found["calibrate"]["level"] == 0.95
    agents = [row["agent"] for row in found["simulate"]["table"]]
    assert agents == [*pp.envs.POLICIES, "cond_oracle"]
    assert found["simulate"]["rounds"] == 40
    assert found["simulate"]["truth_id"] != found["fit"]["law_id"]
    assert pp.load(out / "fit" / "law").id == found["fit"]["law_id"]


def test_stages_store_what_they_found(made):
    work = open_workspace(made[0])
    out = work.out
    diagnostics, run = pp.load(out / "diagnose" / "diagnostics"), pp.load(out / "simulate" / "run")
    calibration = pp.load(out / "calibrate" / "calibration", features=work.features)
    found = {
        name: json.loads((out / file).read_text())
        for name, file in (
            ("diagnose", "diagnose/diagnostics.json"),
            ("calibrate", "calibrate/calibration.json"),
            ("simulate", "simulate/run.json"),
        )
    }
    assert [check.name for check in diagnostics.checks] == [
        check["name"] for check in found["diagnose"]["checks"]
    ]
    assert calibration.bound.max() == found["calibrate"]["D"]["largest"]
    assert run.table["regret"].tolist() == [row["regret"] for row in found["simulate"]["table"]]


def test_a_later_stage_makes_nothing_that_was_stored(study, monkeypatch):
    def refuse(*args, **more):
        raise AssertionError("it was stored")

    before = (study.parent / "results" / "simulate" / "run.json").read_text()
    for module, name in (
        ("calibration.ladder", "_climb"),
        ("diagnostics.held_out", "predictions"),
    ):
        monkeypatch.setattr(f"pulse_pyro.{module}.{name}", refuse)
    edit(study, ("horizon = 40", "horizon = 30"))
    steps = {step.stage: step.done for step in pp.run_study(study).steps}
    assert steps["simulate"] == "made again"
    assert steps["calibrate"] == "up to date"
    edit(study, ("horizon = 30", "horizon = 40"))
    pp.run_study(study)
    assert (study.parent / "results" / "simulate" / "run.json").read_text() == before


def test_the_page_holds_every_stage_and_says_what_is_made_up(made):
    page = made[1].report.path.read_text()
    for title in (
        "Data",
        "Law",
        "Diagnostics",
        "Calibration of D_t",
        "What was played",
        "Radius",
        "Regret",
        "Provenance",
    ):
        assert f">{title}</h2>" in page
    assert page.count("<svg") >= 6
    assert "no forecast" in page
    assert "Made up, since an archive holds no rewards" in page
    assert digest((made[0].parent / "archive.csv").read_bytes()) in page


def test_the_second_run_makes_nothing(made, study):
    before = {p: p.read_bytes() for p in study.parent.rglob("*") if p.is_file()}
    run = pp.run_study(study)
    assert [str(step) for step in run.steps] == [f"{stage}: up to date" for stage in ALL]
    assert run.report.text == made[1].report.text
    assert {p: p.read_bytes() for p in study.parent.rglob("*") if p.is_file()} == before


EDITS = [
    ("seed = 3", "seed = 4", ALL),
    ("# nothing", "", ["report"]),
    ("lags = 3", "lags = 3   # as before", ["report"]),
    ("lags = 3", "lags = 2", ALL),
    ("[features]", '[inference]\nkind = "exact"\ndraws = 50\n[features]', ALL),
    ("level = 0.95", "level = 0.95\nfit = 0.4", ALL),
    ('missing = ["w0"]', 'missing = "w0"', ALL),
    ("level = 0.95", "level = 0.9", ["calibrate", "simulate", "report"]),
    ("level = 0.95", 'level = 0.95\nmode = "all"', ["calibrate", "simulate", "report"]),
    ("level = 0.95", 'level = 0.95\nband = "linear"', ["calibrate", "simulate", "report"]),
    ('"w0*a"', '"a", "w0*a"', ["calibrate", "simulate", "report"]),
    ("horizon = 40", "horizon = 30", ["simulate", "report"]),
    ("theta_bound = 1.1", "theta_bound = 1.2", ["calibrate", "simulate", "report"]),
    ("level = 0.95", "level = 0.95\nsplits = 5", ["calibrate", "simulate", "report"]),
    ("level = 0.95", "level = 0.95\nmisfit = true", ["calibrate", "simulate", "report"]),
]


@pytest.mark.parametrize(("old", "new", "stages"), EDITS)
def test_an_edit_makes_exactly_what_depends_on_it(study, cheap, old, new, stages):
    edit(study, (old, new)) if not old.startswith("#") else edit(study, ("seed", f"{old}\nseed"))
    assert again(study) == stages
    assert again(study) == []


def test_the_reason_is_told(study, cheap):
    edit(study, ("horizon = 40", "horizon = 30"))
    work = open_workspace(study)
    assert stage_status(work, "simulate").why == "[policy] changed"
    assert stage_status(work, "calibrate").why == ""
    edit(study, ("lags = 3", "lags = 2"))
    assert stage_status(open_workspace(study), "fit").why == "[law] changed"
    lines = []
    pp.run_study(study, tell=lines.append)
    assert lines[0].startswith("fit: made again, [law] changed (")


def test_a_changed_value_in_a_file_counts_a_new_name_does_not(study, cheap):
    data = study.parent / "archive.csv"
    data.rename(study.parent / "renamed.csv")
    edit(study, ("archive.csv", "renamed.csv"))
    assert again(study) == ["report"]  # which names the file
    text = (study.parent / "renamed.csv").read_text()
    (study.parent / "renamed.csv").write_text(text.replace("0.", "1.", 1))
    assert again(study) == ALL


def test_files_of_law_and_features_count(study, cheap):
    pp.laws.new_law(study.parent / "law.py")
    phi = "import numpy as np\nACTIONS, NAMES = 2, ('w', 'wa')\n"
    phi += "def phi(s, w, a):\n    return np.column_stack([w, w * a])\n"
    (study.parent / "phi.py").write_text(phi)
    edit(
        study,
        ('name = "linear_lags"\nlags = 3', 'file = "law.py"'),
        ('terms = ["1", "s", "w0", "w0*a"]\nactions = 2', 'file = "phi.py"'),
    )
    assert again(study) == ALL
    (study.parent / "phi.py").write_text(phi + "# edited\n")
    assert again(study) == ["calibrate", "simulate", "report"]
    law = study.parent / "law.py"
    law.write_text(law.read_text() + "# edited\n")
    assert again(study) == ALL


def test_another_version_makes_everything_again(study, cheap, monkeypatch):
    monkeypatch.setattr("pulse_pyro.study.workspace.version", lambda name: "99")
    assert again(study) == ALL


def test_force_makes_everything_again(study, cheap):
    assert again(study, force=True) == ALL
