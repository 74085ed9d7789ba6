"""The verbs for laws: models, new, check. Results on stdout, one sentence on stderr, code 2."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pulse_pyro.cli import main
from pulse_pyro.laws import LAWS
from pulse_pyro.laws.files import gallery

ROOT = Path(__file__).parents[2]
COLUMNS = ["--unit", "person", "--time", "day", "--observed", "s", "--missing", "w"]


@pytest.fixture
def run(capsys):
    def call(*arguments):
        code = main([str(a) for a in arguments])
        said = capsys.readouterr()
        return code, said.out, said.err

    return call


@pytest.fixture
def mine(tmp_path, run):
    assert run("new", tmp_path / "mine.py")[0] == 0
    return tmp_path / "mine.py"


def refused(answer, *says):
    code, out, err = answer
    assert code == 2
    assert out == ""
    assert err.startswith("pulse-pyro: ")
    assert len(err.strip().splitlines()) == 1
    for word in says:
        assert word in err


def csv(folder, extra=0, name="rows.csv"):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"person": np.repeat(["a", "b", "c"], 10), "day": np.tile(range(10), 3)})
    for column in ["s", "w", *(f"s{i}" for i in range(extra))]:
        frame[column] = rng.standard_normal(30)
    frame.to_csv(folder / name, index=False)
    return folder / name


GALLERY = sorted(file.stem for file in (ROOT / "models").glob("*.py"))


def test_models_lists_built_in_laws_the_gallery_and_files(run, mine):
    code, out, err = run("models", mine.parent)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert [line.split()[0] for line in lines] == [*LAWS, *GALLERY, str(mine)]
    assert all(len(line.split(maxsplit=1)[1]) > 20 for line in lines)


def test_models_without_a_folder_looks_for_one_named_models(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, _ = run("models")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == [*LAWS, *GALLERY, "a"]
    assert "pulse-pyro new my_law.py --from NAME" in out
    run("new", "models/mine.py")
    assert run("models")[1].splitlines()[-1].split()[0] == "models/mine.py"


def test_models_lists_the_gallery_once(run, monkeypatch):
    monkeypatch.chdir(ROOT)
    for words in ((), ("models",), (ROOT / "models",)):
        out = run("models", *words, "--json")[1]
        assert [row["law"] for row in json.loads(out)] == [*LAWS, *GALLERY]


def test_models_as_json(run, mine):
    code, out, _ = run("models", mine.parent, "--json")
    found = json.loads(out)
    assert code == 0
    kinds = [row["kind"] for row in found]
    assert kinds == ["built in"] * len(LAWS) + ["gallery"] * len(GALLERY) + ["file"]
    assert all(set(row) == {"law", "kind", "story"} for row in found)


def test_a_column_of_text_is_declared_in_a_study(run, mine, tmp_path):
    file = csv(tmp_path)
    frame = pd.read_csv(file).assign(s="home")
    frame.to_csv(file, index=False)
    refused(run("check", mine, "--data", file, *COLUMNS), "column 's'", "[data.kinds] in a study")


def test_models_runs_no_file_and_survives_bad_ones(run, tmp_path):
    (tmp_path / "explodes.py").write_text('"""A loud one."""\nraise SystemExit(3)\n')
    (tmp_path / "syntax.py").write_text("def (\n")
    (tmp_path / "bytes.py").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "silent.py").write_text("x = 1\n")
    code, out, _ = run("models", tmp_path)
    assert code == 0
    assert "A loud one." in out
    assert out.count("cannot be read: ") == 2
    assert len(out.splitlines()) == len(LAWS) + len(GALLERY) + 4


def test_models_without_files_says_how_to_start(run, tmp_path):
    code, out, _ = run("models", tmp_path / "nowhere")
    assert code == 0
    assert f"no files in {tmp_path / 'nowhere'}; pulse-pyro new" in out


@pytest.mark.parametrize("name", GALLERY)
def test_new_from_the_gallery_is_a_copy(run, tmp_path, name):
    code, out, err = run("new", tmp_path / "mine.py", "--from", name)
    assert (code, err) == (0, "")
    assert f"pulse-pyro check {tmp_path / 'mine.py'}" in out
    copied = (tmp_path / "mine.py").read_bytes()
    assert copied == (ROOT / "models" / f"{name}.py").read_bytes()


def test_new_from_linear_lags_is_what_new_writes_anyway(run, mine):
    other = mine.parent / "deeper" / "mine.py"
    assert run("new", other, "--from", "linear_lags")[0] == 0
    assert other.read_text() == mine.read_text()


def test_new_from_refuses_in_one_sentence(run, tmp_path, mine):
    file, before = tmp_path / "new.py", mine.read_text()
    refused(run("new", file, "--from", "regime_mixtur"), "did you mean 'regime_mixture'")
    refused(run("new", file, "--from", "regime_mixture.py"), "did you mean 'regime_mixture'")
    refused(run("new", file, "--from", "xyz"), "there is no law 'xyz'", "ordinal_mood")
    refused(run("new", file, "--from", ""), "there is no law ''")
    refused(run("new", file, "--from", "state_space"), "built in", "regime_mixture")
    refused(run("new", mine, "--from", "regime_mixture"), "exists")
    refused(run("new", tmp_path / "my-law.py", "--from", "regime_mixture"), "plain name")
    refused(run("new", tmp_path / "folder", "--from", "regime_mixture"), "--from", "folder")
    assert [path.name for path in tmp_path.iterdir()] == ["mine.py"]
    assert mine.read_text() == before


def test_the_gallery_of_an_installed_package_lies_inside_it(tmp_path, monkeypatch):
    for folder in ("pulse_pyro/models", "models"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "pulse_pyro" / "models" / "shipped.py").write_text("")
    (tmp_path / "models" / "of_another_package.py").write_text("")
    monkeypatch.setattr("pulse_pyro.laws.files.files", lambda package: tmp_path / package)
    assert list(gallery()) == ["shipped"]


def test_the_wheel_names_every_package():
    """In a list, because the gallery's folder lies elsewhere; what is not in it is not shipped."""
    named = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    there = {".".join(f.relative_to(ROOT).parts[:-1]) for f in ROOT.glob("pulse_pyro/**/*.py")}
    assert set(named) == there | {"pulse_pyro.models"}


def test_new_writes_what_check_accepts(run, tmp_path):
    file = tmp_path / "deeper" / "sleep.py"
    code, out, err = run("new", file)
    assert (code, err) == (0, "")
    assert f"pulse-pyro check {file}" in out
    assert file.read_text().startswith('"""sleep: ')
    code, out, err = run("check", file)
    assert (code, err) == (0, "")
    assert "sleep: ModelCard: ok, 2 inputs -> w[1], predicts all draws at once" in out
    assert "unseen inputs: rounds that lack one are refused" in out
    assert json.loads(run("new", tmp_path / "b.py", "--json")[1]) == {
        "written": str(tmp_path / "b.py")
    }


def test_new_overwrites_nothing(run, mine):
    before = mine.read_text() + "# precious\n"
    mine.write_text(before)
    refused(run("new", mine), "exists", "nothing was written")
    assert mine.read_text() == before
    assert [file.name for file in mine.parent.iterdir()] == ["mine.py"]


@pytest.mark.parametrize("name", ["law.txt", "my-law.py", "2nd.py", ".py", "a b.py"])
def test_new_wants_a_plain_name(run, tmp_path, name):
    refused(run("new", tmp_path / name), "plain name, such as my_law.py")
    assert not list(tmp_path.iterdir())


def test_new_below_a_file_is_one_sentence(run, mine):
    refused(run("new", mine / "sub.py"))


def test_check_as_json(run, mine):
    found = json.loads(run("check", mine, "--json")[1])
    assert (found["name"], found["ok"], found["vectorised"]) == ("mine", True, True)
    assert (found["inputs"], found["w_dim"], found["unseen"]) == (2, 1, "refused")
    assert ["b", "global", [2], "Normal"] in found["sites"]
    low, middle, high = (row[0] for row in found["prior"])
    assert low < middle < high
    # a + b'x + sd e at standard normal x: 90 % of it lies well inside +-10
    assert -10 < low < -1 < 1 < high < 10


def test_check_on_an_archive(run, mine, tmp_path):
    data = csv(tmp_path, extra=1)
    found = json.loads(run("check", mine, "--data", data, *COLUMNS, "--json")[1])
    assert (found["inputs"], found["rows"]) == (2, "3 units of the archive")
    wide = [*COLUMNS[:5], "s,s0", *COLUMNS[6:]]
    assert json.loads(run("check", mine, "--data", data, *wide, "--json")[1])["inputs"] == 4


def test_check_errors_are_one_sentence(run, mine, tmp_path):
    data = csv(tmp_path)
    refused(run("check", tmp_path / "mina.py"), "did you mean 'mine.py'")
    refused(run("check", tmp_path), "no file")
    refused(run("check", mine, *COLUMNS), "--data")
    refused(run("check", mine, "--data", data, *COLUMNS[:4]), "--observed and --missing")
    refused(run("check", mine, "--data", tmp_path / "no.csv", *COLUMNS), "no.csv")
    refused(run("check", mine, "--data", data, *COLUMNS[:-1], "v"), "'v'")
    (tmp_path / "empty.csv").write_text("")
    refused(run("check", mine, "--data", tmp_path / "empty.csv", *COLUMNS), "empty.csv")
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00\x01" * 50)
    refused(run("check", mine, "--data", tmp_path / "binary.csv", *COLUMNS), "binary.csv")
    refused(run("check", mine, "--data", tmp_path, *COLUMNS))


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('pyro.plate("rows"', 'pyro.plate("data"', "plate 'rows'"),
        ('pyro.sample("w"', 'pyro.sample("y"', "no site 'w'"),
        ("def model(", "def Model(", "did you mean 'model'"),
        ("import torch", "import torch\nraise ValueError('line one\\nline two')", "line one"),
        ("import torch", "import torch\nraise SystemExit(0)", "SystemExit"),
        ("SUMMARY = Lags(2)", "SUMMARY = Lags", "summary"),
    ],
)
def test_check_of_a_broken_file_is_one_sentence(run, mine, old, new, says):
    assert old in mine.read_text()
    mine.write_text(mine.read_text().replace(old, new))
    refused(run("check", mine), says)


def test_check_shows_the_cure_of_a_slow_model(run, mine):
    mine.write_text(mine.read_text().replace("(x * b).sum(-1)  #", "x @ b  #"))
    code, out, _ = run("check", mine)
    assert code == 0
    assert "write (x * b).sum(-1) for x @ b" in out


def test_the_module_runs_as_a_program_and_unknown_verbs_are_refused(tmp_path):
    with pytest.raises(SystemExit, match="2"):
        main(["chek", "x.py"])
    done = subprocess.run(
        [sys.executable, "-m", "pulse_pyro.cli", "models", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0
    assert "Traceback" not in done.stderr
