"""Plain values and arrays: what can be packed comes back as it was, what cannot is named."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from pulse_pyro._core.errors import BundleError
from pulse_pyro._core.packed import Packed, pack_value, unpack_value


@dataclass(frozen=True)
class Box:
    inside: Any


class Pair(NamedTuple):
    one: Any
    two: Any


class Many(tuple):
    __slots__ = ()


CLASSES = (Box, Pair)
VALUES = [
    None,
    True,
    3,
    2**80,
    0.1,
    float("inf"),
    "text",
    (),
    (1, (2.0, "x")),
    [1, [2]],
    {"a": (1,)},
    Box((1, 2)),
    Pair(Box(None), [Box(1)]),
    Box({"array": 1, "tuple": 2}),
    {"class": "Box"},
]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_value_comes_back_as_it_was(value):
    back = unpack_value(pack_value(value, CLASSES), object, CLASSES)
    assert back == value
    assert type(back) is type(value)


@pytest.mark.parametrize(
    ("before", "after"),
    [(np.float64(0.5), 0.5), (np.int64(3), 3), (np.bool_(True), True), (Many((1, 2)), (1, 2))],
    ids=repr,
)
def test_values_of_numpy_and_kinds_of_tuples_become_plain(before, after):
    back = unpack_value(pack_value(before, CLASSES), object, CLASSES)
    assert back == after
    assert type(back) is type(after)


@pytest.mark.parametrize("dtype", ["float64", "float32", "int64", "int32", "uint8", "bool"])
def test_arrays_keep_their_numbers(dtype):
    value = np.array([[0, 1], [1, 0]], dtype)
    packed = pack_value(Box(value), CLASSES)
    assert {array.dtype.name for array in packed.arrays.values()} <= {"float64", "int64", "bool"}
    assert_array_equal(unpack_value(packed, Box, CLASSES).inside, value)


@pytest.mark.parametrize(
    "value",
    [object(), {1}, {1: 2}, np.array([object()]), lambda: 1, Box, 1j],
    ids=["object", "set", "mapping", "array of objects", "function", "class", "complex"],
)
def test_what_is_not_plain_is_named(value):
    with pytest.raises(BundleError, match="no plain value"):
        pack_value(Box(value), CLASSES)


def test_a_class_that_is_not_listed_is_neither_written_nor_made():
    with pytest.raises(BundleError, match="Box"):
        pack_value(Box(1), (Pair,))
    with pytest.raises(BundleError, match="'Box', which this version does not know"):
        unpack_value(pack_value(Box(1), CLASSES), Box, (Pair,))
    with pytest.raises(BundleError, match="Box, but Pair is needed"):
        unpack_value(pack_value(Box(1), CLASSES), Pair, CLASSES)


def test_what_is_handed_in_is_not_stored():
    code = {"f": len}
    packed = pack_value(Box((len, len)), CLASSES, code)
    assert not packed.arrays
    assert unpack_value(packed, Box, CLASSES, {"f": max}).inside == (max, max)


def test_packed_things_hold_others_and_know_the_shapes_they_want():
    inner = Packed({"n": 1}, {"a": np.zeros((2, 3))})
    outer = Packed({"m": 2}, {"a": np.ones(4)}).holding("in", inner)
    back = outer.part("in")
    assert back.manifest == {"n": 1}
    assert back.shaped("a", 2, -1).shape == (2, 3)
    with pytest.raises(BundleError, match=r"'a' is \(2, 3\), but \(3, 2\)"):
        back.shaped("a", 3, 2)
    with pytest.raises(BundleError, match="'a'"):
        back.shaped("a", 6)
