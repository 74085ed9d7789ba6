"""From a file to a report on the command line: results on stdout, progress on stderr, codes."""

import json
import tomllib

import pytest

from pulse_pyro.cli import main
from pulse_pyro.study import worlds
from tests.study.helpers import edit, run_once, write_study

VERBS = ["fit", "diagnose", "calibrate", "simulate", "report"]


@pytest.fixture(scope="module", autouse=True)
def few_runs():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worlds, "RUNS", 2)
        yield


@pytest.fixture
def call(capsys):
    def run(*arguments):
        code = main([str(a) for a in arguments])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def refused(answer, *words):
    code, out, err = answer
    assert (code, out) == (2, "")
    assert err.startswith("pulse-pyro: ")
    assert len(err.strip().splitlines()) == 1
    for word in words:
        assert word in err


def test_a_new_study_runs_as_it_is(tmp_path, call):
    folder = tmp_path / "mystudy"
    code, out, err = call("new", folder)
    assert (code, err) == (0, "")
    assert out.endswith(f"next: pulse-pyro run {folder / 'study.toml'}\n")
    assert {p.name for p in folder.iterdir()} == {
        "study.toml",
        "my_law.py",
        "archive.csv",
        "README.md",
    }
    assert (folder / "archive.csv").read_text().count("\n") == 3601
    assert call("check", folder / "my_law.py")[0] == 0
    code, out, err = call("check", folder / "study.toml")
    assert (code, err) == (0, "")
    assert "pass; run makes fit, diagnose, calibrate, simulate, report" in out
    assert "ModelCard: ok, 4 inputs" in out
    edit(folder / "study.toml", ("horizon = 1000", "horizon = 60"))
    code, out, err = call("run", folder / "study.toml")
    assert code == 0
    assert [line.split(":")[0] for line in err.splitlines()] == VERBS
    assert out.startswith("Pass (the law on held-out units: pass; the bound on its error: pass).")
    assert "60 rounds" in out
    assert (folder / "results" / "report.html").stat().st_size > 100_000
    code, out, err = call("run", folder / "study.toml", "--json")
    assert json.loads(out)["verdict"] == "pass"
    assert err.splitlines() == [f"{verb}: up to date" for verb in VERBS]


def test_the_comments_of_a_new_study_show_keys_that_exist(tmp_path, call):
    path = tmp_path / "mystudy" / "study.toml"
    call("new", path.parent)
    edit(
        path,
        ('file = "my_law.py"                # a Pyro model of your own, ...\n# name', "name"),
        ("# lags", "lags"),
        ("# [inference]", "[inference]"),
        ('# kind = "nuts"', 'kind = "exact"'),
    )
    assert tomllib.loads(path.read_text())["law"] == {"name": "linear_lags", "lags": 2}
    code, out, _ = call("check", path, "--json")
    found = json.loads(out)
    assert (code, found["verdict"]) == (0, "pass")
    assert [check["name"] for check in found["checks"]] == ["units", "rows", "features", "policy"]


@pytest.mark.parametrize("name", ["study.toml", "law.txt", ".hidden", "a.b", "..", ""])
def test_new_wants_a_plain_name(tmp_path, call, name):
    refused(call("new", f"{tmp_path}/sub/{name}" if name else ""), "such as my_study")
    assert not list(tmp_path.iterdir())


def test_new_overwrites_nothing(tmp_path, call):
    (tmp_path / "mine").mkdir()
    refused(call("new", tmp_path / "mine"), "exists", "nothing was written")
    assert not list((tmp_path / "mine").iterdir())


def test_verb_by_verb_is_the_same_as_run_to_the_last_bit(tmp_path, tmp_path_factory, call):
    path = write_study(tmp_path / "mine")
    out_folder = tmp_path / "elsewhere"
    heads = dict(
        zip(
            VERBS,
            (
                "PosteriorLaw linear_lags",
                "Diagnostics: pass",
                "Calibration: With 95%",
                "Run: lowest",
                "Pass (",
            ),
            strict=True,
        )
    )
    for verb in VERBS:
        code, out, err = call(verb, path, "--out", out_folder)
        assert code == 0, err
        assert out.startswith(heads[verb])
        assert err == ("" if verb == "report" else f"written: {out_folder / verb}\n")
    assert not (path.parent / "results").exists()
    page = run_once(tmp_path_factory)[1].report.path
    assert (out_folder / "report.html").read_bytes() == page.read_bytes()
    assert call("run", path, "--out", out_folder)[2].count("up to date") == 5
    for verb in ("diagnose", "report"):
        code, out, _ = call(verb, path, "--out", out_folder, "--json")
        found = json.loads(out)
        assert (code, found["stage"], found["verdict"]) == (0, verb, "pass")


def test_a_failed_verdict_is_code_1_and_a_report_all_the_same(tmp_path, call):
    changes = [("lags = 3", "window = 1"), ("level = 0.95", 'level = 0.95\nband = "linear"')]
    path = write_study(tmp_path / "mine", *changes, curved=3.0, units=60)
    path.write_text(path.read_text().split("[policy]")[0])
    code, out, err = call("run", path)
    assert code == 1, err
    assert out.startswith("Fail (")
    assert "Look first at:" in out
    assert "lack of fit" in out
    assert "No bound holds at every context" in out
    assert (path.parent / "results" / "report.html").is_file()
    assert call("run", path)[0] == 1
    assert call("diagnose", path, "--json")[0] == 1
    assert call("calibrate", path, "--json")[0] == 0  # a rung above the free line stands
    assert json.loads(call("report", path, "--json")[1])["verdict"] == "fail"


LAW = 'name = "linear_lags"\nlags = 3'
BAD = [
    ('"archive.csv"', '"archiv.csv"', "did you mean 'archive.csv'"),
    ('unit = "unit"', 'unit = "unti"', "no column 'unti'; did you mean 'unit'"),
    ('missing = ["w0"]', 'missing = ["s"]', "'w0' in term"),
    ("lags = 3", "lags = 30", "No complete row is left"),
    ("lags = 3", "lags = 18", "held-out rows are complete"),
    ("level = 0.95", "fit = 0.9", "2 of 24 units are held out"),
    ("[features]", '[inference]\nkind = "ensemble"\n[features]', "does not suit linear_lags"),
    (LAW, 'name = "neural_density"\nlags = 1\n[inference]\nkind = "nuts"', "suit neural_density"),
    (LAW, 'name = "state_space"\nlags = 2\n[inference]\nkind = "nuts"', "suit state_space"),
    (LAW, 'file = "broken.py"\n[inference]\nkind = "exact"', "does not suit broken"),
    (LAW, 'file = "bad.py"', "raised when it was loaded"),
    (LAW, 'file = "broken.py"', "plate 'rows'"),
    ('terms = ["1", "s", "w0", "w0*a"]\nactions = 2', 'file = "phi.py"', "fn must be finite"),
    ('"w0", "w0*a"', '"a"', "no feature"),
    ("horizon = 40", "horizon = 0", "horizon must be"),
]


@pytest.mark.parametrize(("old", "new", "words"), BAD)
def test_every_slip_is_seen_before_anything_is_fitted(tmp_path, call, old, new, words):
    path = write_study(tmp_path / "mine", (old, new))
    (path.parent / "bad.py").write_text("1 / 0\n")
    main(["new", str(path.parent / "broken.py")])
    edit(path.parent / "broken.py", ('pyro.plate("rows"', 'pyro.plate("data"'))
    (path.parent / "phi.py").write_text(
        "import numpy as np\nACTIONS, NAMES = 2, ('x',)\n"
        "def phi(s, w, a):\n    return np.full((len(s), 1), np.inf) * (1 + w * a)\n"
    )
    call("models", tmp_path)  # drops what new has printed
    refused(call("check", path), words)
    refused(call("run", path), words)
    assert not (path.parent / "results").exists()


def test_a_study_that_is_not_there_and_options_that_do_not_fit(tmp_path, call):
    path = write_study(tmp_path / "mine")
    for verb in ("check", "run", *VERBS):
        refused(call(verb, path.with_name("studdy.toml")), "did you mean 'study.toml'")
    refused(call("check", path, "--data", path), "a study names its own data")
    refused(call("run", path, "--out", path), "which is a file")
    refused(call("fit", path.parent / "archive.csv"), "not valid TOML")
    refused(call("diagnose", path), "pulse-pyro fit", "not made yet")
    (path.parent / "archive.csv").write_text("")
    refused(call("run", path), "archive.csv cannot be read as CSV")


def test_few_rows_are_a_warning(tmp_path, call):
    path = write_study(tmp_path / "mine", ("lags = 3", "lags = 12"))
    code, out, _ = call("check", path)
    assert code == 0
    assert "warn rows" in out
    assert "That is few" in out


@pytest.mark.parametrize("verb", ["run", "check", "fit", "report"])
def test_the_folder_of_a_study_is_not_its_file(tmp_path, call, verb):
    path = write_study(tmp_path / "mine")
    refused(call(verb, path.parent), f"did you mean {path}?")
