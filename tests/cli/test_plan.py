"""pulse-pyro plan: the study of the guide as it stands, and one sentence for what goes wrong."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

import pulse_pyro as pp
from pulse_pyro.cli import main

GUIDE = (Path(__file__).parents[2] / "notebooks" / "guide" / "study.md").read_text()
STUDY = re.search(r"```toml\n(.*?)```", GUIDE, re.DOTALL).group(1)


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plan")
    history = pp.envs.w_times_action().archive(96, 45, rng=pp.stream(0, "archive"))
    history.to_frame().to_csv(folder / "archive.csv", index=False)
    (folder / "study.toml").write_text(STUDY)
    return folder / "study.toml"


def test_the_study_of_the_guide(study, tmp_path, capsys):
    assert main(["plan", str(study), "--out", str(tmp_path / "out")]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("Plan: about ")
    assert "root_mean_D" in out
    assert "clusters for half of each bound, 96 now" in out
    assert "free" in out
    assert "written" in err
    kept = json.loads((tmp_path / "out" / "plan.json").read_text())
    assert kept["answer"] == "reachable"
    assert [size["units"] for size in kept["sizes"]] == [12, 24, 48, 96]
    picture = (tmp_path / "out" / "plan.svg").read_text()
    assert picture.startswith("<svg")
    assert "units in the archive" in picture


def test_json_is_the_plan_itself(study, capsys):
    short = study.with_name("short.toml")
    short.write_text(STUDY.replace("horizon = 10000", "horizon = 10"))
    assert main(["plan", str(short), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found == json.loads(json.dumps(pp.study.plan_study(short).to_json()))
    assert found["stakes"]["horizon"] == 10
    assert {"needed_units", "rate_sqrt_D_interval", "bound", "sizes", "seed"} <= set(found)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("horizon = 10000", "", "[policy] needs 'horizon'"),
        ("[policy]", "[polic]", "did you mean 'policy'"),
        ('missing = ["w"]', 'missing = ["v"]', "[data] missing: there is no column 'v'"),
        ('observed = ["s"]', 'observed = ["w"]', "'s' in term 's'"),
        ('unit = "unit"', 'unit = "unti"', "no column 'unti'; did you mean 'unit'"),
        ("lags = 19", "lags = 59", "whole archive of 96 units"),
    ],
)
def test_slips_are_one_sentence_and_nothing_is_written(study, tmp_path, capsys, old, new, words):
    assert old in STUDY
    wrong = study.with_name("wrong.toml")
    wrong.write_text(STUDY.replace(old, new))
    assert main(["plan", str(wrong), "--out", str(tmp_path / "out")]) == 2
    out, err = capsys.readouterr()
    assert words in err
    assert err.startswith("pulse-pyro: ")
    assert "Traceback" not in err + out
    assert not list((tmp_path / "out").iterdir())


def test_a_study_that_is_not_there(study, capsys):
    assert main(["plan", str(study.with_name("studdy.toml"))]) == 2
    assert "did you mean 'study.toml'" in capsys.readouterr().err


def test_a_plan_without_a_uniform_bound_still_counts_clusters_and_says_so(study, tmp_path, capsys):
    rng = np.random.default_rng(0)
    wrong = study.with_name("curved.toml")
    wrong.write_text(STUDY.replace("archive.csv", "curved.csv"))
    frame = pp.envs.w_times_action().archive(96, 45, rng=pp.stream(0, "archive")).to_frame()
    frame["w"] = frame["s"] ** 2 + 0.1 * rng.standard_normal(len(frame))
    frame.to_csv(study.with_name("curved.csv"), index=False)
    assert main(["plan", str(wrong), "--out", str(tmp_path / "out")]) == 1
    out, err = capsys.readouterr()
    assert out.startswith("Plan: refused; ")
    assert "clusters for half of each bound, 96 now" in out
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["plan.json"]
    assert err.rstrip().endswith("plan.json")
