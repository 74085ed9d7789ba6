"""Figures on fixed seeds are what they were when the goldens were made.

A change that means to alter a figure makes its goldens again, ``python -m tests.golden.generate
NAME ...``, and says which keys have moved and why. On the machine the goldens were made on not a
bit may differ, elsewhere 1 part in 10^9, or in 10^3 of the largest value; see ``store``.
"""

import numpy as np
import pytest

from tests.golden.generate import GOLDENS, make
from tests.golden.store import (
    EXACT,
    HOME,
    ROUNDING,
    SEARCHED,
    SIMULATED,
    differences,
    read,
    same_machine,
)

# what an optimiser or a network ends at is not rounding: a search stops within its tolerance of the
# optimum, where exactly depends on the processor. With OpenBLAS, torch and Numba held to the
# instructions of 2008 these moved by 1.4e-5 of an array's largest value at most
FOUND_BY_SEARCH = {
    "bundles",
    "law-linear_laplace",
    "law-linear_svi",
    "law-student_t",
    "law-gaussian_process",
    "law-gaussian_process_sum",
    "law-neural_density",
    "law-neural_masked",
    "law-state_space",
    "law-state_space_arma",
    "law-own_laplace",
    "law-own_svi",
    "model-hierarchical_units",  # 7e-7 on another processor
    "model-seasonal_lags",
    "model-student_t_lags",
    "model-zero_inflated_counts",
}
# and simulated critical values, or regret once an arm is chosen otherwise, by 1.1e-2
BY_SIMULATION = {
    "calibrate-additive",
    "calibrate-linear",
    "calibrate-modes",
    "comparison-linear",
    "demo",
    "policies",
    "sweep-n",
}
# a chain is another one once a rounding has turned a trajectory round; a plan extrapolates from
# simulated bounds, its units moved by a tenth and its sentences print them; what is closed of a
# gap is a ratio of two small differences, and one arm chosen otherwise doubles it
ONLY_HERE = {"law-linear_nuts", "plan", "real-beijing"}
ELSEWHERE = dict.fromkeys(FOUND_BY_SEARCH, SEARCHED) | dict.fromkeys(BY_SIMULATION, SIMULATED)


@pytest.mark.parametrize("name", GOLDENS)
def test_figures_are_as_before(name):
    here = same_machine()
    if name in ONLY_HERE and not here:
        pytest.skip("its figures depend on the machine, which is another one")
    allowed = EXACT if here else ELSEWHERE.get(name, ROUNDING)
    found = differences(read(name), make(name), allowed)
    if found:
        pytest.fail("\n".join([f"golden {name}: {len(found)} differ", *found]), pytrace=False)


def test_every_file_has_its_golden():
    assert {file.stem for file in HOME.glob("*.npz")} == set(GOLDENS)
    assert set(GOLDENS) >= ONLY_HERE.union(ELSEWHERE)


@pytest.mark.parametrize(
    ("allowed", "least"), [(EXACT, 1e-15), (ROUNDING, 2e-9), (SEARCHED, 3e-3), (SIMULATED, 0.2)]
)
def test_a_figure_that_moved_is_told(allowed, least):
    old = {"draws": np.array([1.0, -0.5, np.nan, 0.0]), "said": np.array(["pass"])}
    moved = old | {"draws": old["draws"] * (1 + np.r_[least, 0, 0, 0])}
    assert differences(old, old, allowed) == []
    assert len(differences(old, moved, allowed)) == 1
    assert len(differences(old, old | {"said": np.array(["fail"])}, allowed)) == 1
    assert len(differences(old, {"draws": np.zeros(4)}, allowed)) == 2
