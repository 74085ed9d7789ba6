"""Notebooks run from top to bottom, without a warning, and are committed with what they printed."""

import os
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests.paper.helpers import folder
from tests.pictures import FOLDER as GALLERY
from tests.pictures import PICTURES, picture

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
every_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


@every_notebook
def test_it_runs_without_a_warning(path, monkeypatch):
    if path.stem == "06_real_data":
        for name in ("beijing_multisite", "heartsteps_v1", "oulad", "open_bandit_sample"):
            folder(name)  # skips where the data are not at hand
    monkeypatch.setenv("PULSE_SMOKE", "1")
    monkeypatch.setenv("PYTHONWARNINGS", "default")
    # a kernel's own start-up is not ours to judge: debugpy warns about frozen modules
    monkeypatch.setenv("PYDEVD_DISABLE_FILE_VALIDATION", "1")
    notebook = nbformat.read(path, as_version=4)
    where = {"metadata": {"path": str(FOLDER)}}
    NotebookClient(notebook, timeout=300, resources=where).execute(env=dict(os.environ))
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            assert output.get("name") != "stderr", output["text"]


@every_notebook
def test_it_is_committed_with_its_outputs(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell.outputs]
    assert not any(output.output_type == "error" for output in outputs)
    assert not any(output.get("name") == "stderr" for output in outputs)
    assert sum(output.output_type == "display_data" for output in outputs)


@pytest.mark.parametrize("name", PICTURES)
def test_pictures_are_the_notebooks_own_and_shown(name):
    assert (GALLERY / name).read_bytes() == picture(name), "run: make pictures"
    pages = [ROOT / "README.md", *(FOLDER / "guide").glob("*.md")]
    assert any(f"pictures/{name})" in page.read_text() for page in pages)
