"""Figures on fixed seeds are what they were when the goldens were made.

A change that means to alter a figure makes its goldens again, ``python -m tests.golden.generate
NAME ...``, and says which keys have moved and why. On the machine the goldens were made on not a
bit may differ, elsewhere 1 part in 10^9; see ``store``.
"""

import pytest

from tests.golden.generate import GOLDENS, make
from tests.golden.store import HOME, differences, read, same_machine

# what an optimiser, a network, a chain or a simulated critical value ends at is not rounding: under
# another processor's instructions these move by more than that, so they are compared here only
ONLY_HERE = {
    "demo",
    "sweep-n",
    "real-beijing",
    "plan",
    "bundles",
    "calibrate-additive",
    "calibrate-modes",
    "law-linear_laplace",
    "law-linear_svi",
    "law-linear_nuts",
    "law-student_t",
    "law-gaussian_process",
    "law-gaussian_process_sum",
    "law-neural_density",
    "law-neural_masked",
    "law-state_space",
    "law-state_space_arma",
    "law-own_laplace",
    "law-own_svi",
    "model-seasonal_lags",
    "model-student_t_lags",
    "model-zero_inflated_counts",
}


@pytest.mark.parametrize("name", GOLDENS)
def test_figures_are_as_before(name):
    exact = same_machine()
    if name in ONLY_HERE and not exact:
        pytest.skip("its last digits depend on the machine, which is another one")
    found = differences(read(name), make(name), exact=exact)
    if found:
        pytest.fail("\n".join([f"golden {name}: {len(found)} differ", *found]), pytrace=False)


def test_every_file_has_its_golden():
    assert {file.stem for file in HOME.glob("*.npz")} == set(GOLDENS)
    assert set(GOLDENS) >= ONLY_HERE
