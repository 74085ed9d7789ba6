import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulse_pyro._core.errors import SettingError
from pulse_pyro._core.seeds import stream, torch_seed
from tests.helpers import assert_mean

PROPERTY = settings(deadline=None, derandomize=True)
NAMES = st.lists(st.text(max_size=4) | st.integers(0, 20), max_size=4).map(tuple)


def first(seed, *names):
    return stream(seed, *names).integers(2**63, size=4).tolist()


@PROPERTY
@given(st.integers(0, 2**70), NAMES)
def test_one_seed_and_name_give_one_stream(seed, names):
    assert first(seed, *names) == first(seed, *names)
    assert torch_seed(seed, *names) == torch_seed(seed, *names)


@PROPERTY
@given(NAMES, NAMES)
def test_other_names_give_another_stream(one, two):
    apart = [repr(name) for name in one] != [repr(name) for name in two]
    assert (first(0, *one) != first(0, *two)) == apart
    assert (torch_seed(0, *one) != torch_seed(0, *two)) == apart


@pytest.mark.parametrize(
    ("one", "two"),
    [((1,), ("1",)), ((1, 2), (12,)), (("ab",), ("a", "b")), ((), ("",)), (("a", "b"), ("b", "a"))],
)
def test_names_that_read_alike_are_kept_apart(one, two):
    assert first(0, *one) != first(0, *two)


def test_other_seeds_give_other_streams():
    assert len({tuple(first(seed, "fit")) for seed in range(500)}) == 500


def test_a_numpy_seed_is_the_python_seed():
    assert first(np.int64(7), "fit") == first(7, "fit")


def test_neighbouring_streams_are_uncorrelated():
    names = [("a",), ("b",), ("a", 0), ("a", 1)]
    draws = [stream(0, *name).standard_normal(20_000) for name in names]
    draws.append(stream(1, "a").standard_normal(20_000))
    products = [one * two for i, one in enumerate(draws) for two in draws[:i]]
    assert_mean(np.stack(products, axis=1), 0.0)


def test_drawing_elsewhere_does_not_move_a_stream():
    expected = first(3, "fit")
    stream(3, "split").standard_normal(100)
    assert first(3, "fit") == expected


def test_another_process_draws_the_same_numbers():
    code = (
        "from pulse_pyro._core.seeds import stream, torch_seed;"
        "print(stream(5, 'fit', 2).integers(2**63), torch_seed(5, 'fit', 2))"
    )
    runs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": salt},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for salt in ("1", "2")
    }
    assert runs == {f"{stream(5, 'fit', 2).integers(2**63)} {torch_seed(5, 'fit', 2)}\n"}


@PROPERTY
@given(st.integers(0, 10**6))
def test_a_torch_seed_fits_in_63_bits(seed):
    assert 0 <= torch_seed(seed, "nuts") < 2**63


@pytest.mark.parametrize("seed", [-1, 1.0, "1", None, True, np.float64(2)])
@pytest.mark.parametrize("use", [stream, torch_seed])
def test_a_seed_that_is_no_whole_number_is_refused(use, seed):
    with pytest.raises(SettingError, match="seed must be an integer >= 0"):
        use(seed, "fit")
