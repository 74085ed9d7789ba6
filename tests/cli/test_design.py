"""pulse-pyro design: the recommendation on stdout, files on demand, one sentence for slips."""

import json

import pytest

from pulse_pyro.cli import main
from tests.study.helpers import edit, write_study


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    few = ("horizon = 40", 'horizon = 40\nagents = ["pulse", "oful", "oful_full"]')
    return write_study(tmp_path_factory.mktemp("design") / "mine", few)


def design(study, *words):
    return main(["design", str(study), "--runs", "2", "--workers", "1", *words])


def test_recommendation_and_page(study, tmp_path, capsys):
    assert design(study, "--out", str(tmp_path / "out")) == 0
    out, err = capsys.readouterr()
    assert out.startswith("Design: Play ")
    assert "written" in err
    assert "written" not in out
    kept = json.loads((tmp_path / "out" / "design.json").read_text())
    assert kept["recommended"] in out
    page = (tmp_path / "out" / "design.html").read_text()
    assert kept["recommendation"].split(":")[0] in page
    assert "rewards five rounds late" in page
    assert "<svg" in page


def test_json_is_strict_and_whole(study, capsys):
    def strict(word):
        raise AssertionError(f"{word} is not JSON")

    assert design(study, "--json") == 0
    found = json.loads(capsys.readouterr().out, parse_constant=strict)
    assert {"recommendation", "ranking", "table", "environments", "left_out"} <= set(found)
    assert found["runs"] == 2


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("theta_bound = 1.1\n", "", "[policy] needs 'theta_bound'"),
        ('"oful_full"]', '"oful_fool"]', "did you mean 'oful_full'"),
        ("[features]", "[feature]", "did you mean 'features'"),
        ("lags = 3", "lags = 21", "21"),
    ],
)
def test_slips_are_one_sentence_and_nothing_is_written(study, tmp_path, capsys, old, new, words):
    wrong = study.with_name("wrong.toml")
    edit(wrong, (old, new), text=study.read_text())
    assert design(wrong, "--out", str(tmp_path / "out")) == 2
    out, err = capsys.readouterr()
    assert words in err
    assert err.startswith("pulse-pyro: ")
    assert "Traceback" not in err + out
    assert not list((tmp_path / "out").iterdir())


def test_runs_that_cannot_be(study, capsys):
    assert main(["design", str(study), "--runs", "1"]) == 2
    assert "runs" in capsys.readouterr().err
