"""Files of models/ with a state keep the promises of the gallery too."""

import ast
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from pulse_pyro import History, Laplace, StepLaw, law_from_file
from pulse_pyro._core.errors import ModelError
from pulse_pyro._core.saved import load, save
from pulse_pyro.laws.files import check_law, list_laws, new_law

FOLDER = Path(__file__).parents[2] / "models"
FILES = [file for file in sorted(FOLDER.glob("*.py")) if "\ndef step(" in file.read_text()]
EXACT = {"hidden_regimes": "discrete", "drifting_level": "gaussian", "ar_errors": "gaussian"}
UNITS, TIME = 10, 12


@cache
def made(file):
    """A law, an archive drawn from its prior, its fit and the truth."""
    law = law_from_file(file)
    s = np.random.default_rng(0).standard_normal((UNITS, TIME, 1))
    blank = History.from_arrays(s, np.zeros_like(s), s_names=["s"], w_names=["w"])
    drawn = law.simulate(blank, 3, seed=1)
    history = History.from_arrays(drawn.s[2], drawn.w[2], s_names=["s"], w_names=["w"])
    truth = {name: value[2] for name, value in drawn.truth.items()}
    return law, history, law.fit(history, Laplace(draws=60), seed=0), truth


def test_those_that_were_promised_are_there():
    assert set(EXACT) == {file.stem for file in FILES}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
class TestFile:
    """What holds for each file."""

    def test_it_is_short_and_tells_its_story(self, file):
        text = file.read_text()
        assert len(text.splitlines()) <= 80
        told = ast.get_docstring(ast.parse(text))
        assert told.split("\n")[0].endswith(".")
        assert all(word in told for word in ("Use it", "W_t", "Not covered"))
        assert list_laws(FOLDER).loc[file.stem, "story"] == told.split("\n")[0]

    def test_it_meets_the_contract_and_is_filtered_exactly(self, file, tmp_path):
        found = check_law(file)
        assert found.name == file.stem
        assert found.card.state == EXACT[file.stem]
        assert found.card.closed_mean
        assert (np.diff(found.prior, axis=0) > 0).all()
        assert found.to_json()["ok"]
        copied = new_law(tmp_path / "mine.py", like=file.stem)
        assert isinstance(law_from_file(copied), StepLaw)

    def test_it_is_fitted_asked_and_saved(self, file, tmp_path):
        _, history, fitted, truth = made(file)
        assert set(fitted.draws) == set(truth)
        for name, value in truth.items():
            drawn = fitted.draws[name]
            assert (np.abs(drawn.mean(0) - value) < 6.0 * drawn.std(0)).all(), name
        mean = fitted(history).mean()
        assert np.isfinite(mean).all()
        path = save(fitted, tmp_path / "law")
        assert_array_equal(load(path, law=law_from_file(file))(history).mean(), mean)


def test_a_file_without_all_three_functions_is_refused(tmp_path):
    file = tmp_path / "half.py"
    file.write_text("def prior():\n    pass\n\n\ndef step(p, z, s_past):\n    pass\n")
    with pytest.raises(ModelError, match="'first'"):
        law_from_file(file)
