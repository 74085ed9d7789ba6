"""Figures on fixed seeds are what they were when the goldens were made.

A change that means to alter a figure makes its goldens again, ``python -m tests.golden.generate
NAME ...``, and says which keys have moved and why. On the machine the goldens were made on not a
bit may differ, elsewhere 1 part in 10^9; see ``store``.
"""

import pytest

from tests.golden.generate import GOLDENS, make
from tests.golden.store import HOME, differences, read, same_machine


@pytest.mark.parametrize("name", GOLDENS)
def test_figures_are_as_before(name):
    found = differences(read(name), make(name), exact=same_machine())
    if found:
        pytest.fail("\n".join([f"golden {name}: {len(found)} differ", *found]), pytrace=False)


def test_every_file_has_its_golden():
    assert {file.stem for file in HOME.glob("*.npz")} == set(GOLDENS)
