"""Values that every part shares: checks and their verdict."""

import itertools
from dataclasses import replace

import pytest

from pulse_pyro.base import Check, Checks, verdict, worst_verdict

ORDER = ("info", "pass", "warn", "fail")


def made(*verdicts):
    return Checks(Check(f"c{i}", v, float(i), 1.0, "Text.") for i, v in enumerate(verdicts))


@pytest.mark.parametrize(("mild", "serious"), list(itertools.combinations(ORDER, 2)))
def test_the_worst_verdict_counts_wherever_it_stands(mild, serious):
    assert made(mild, serious).verdict == made(serious, mild).verdict == serious
    assert worst_verdict([mild, serious, mild]) == serious


def test_worst_comes_first_and_those_alike_in_the_order_made():
    found = made("pass", "fail", "info", "warn", "fail")
    assert [check.name for check in found.worst()] == ["c1", "c4", "c3", "c0", "c2"]
    assert found.worst(2) == (found[1], found[4])
    assert found.worst(2).verdict == "fail"
    assert found.worst(9) == found.worst()


def test_checks_are_a_tuple_with_a_table():
    found = made("pass", "warn")
    assert len(found) == 2
    assert list(found) == [found[0], found[1]]
    assert list(found.table.index) == ["c0", "c1"]
    assert list(found.table.columns) == ["verdict", "value", "threshold", "text"]
    assert Checks((*found, replace(found[0], verdict="fail"))).verdict == "fail"


def test_no_checks_say_nothing():
    assert made().verdict == "info"
    assert made().table.empty
    assert made().worst(3) == ()


@pytest.mark.parametrize(
    ("p", "size", "word"),
    [
        (0.0009, 0.1, "fail"),
        (0.0009, 0.07, "warn"),
        (0.0009, 0.04, "pass"),
        (0.001, 0.1, "warn"),
        (0.01, 0.1, "pass"),
        (float("nan"), 0.1, "fail"),
    ],
)
def test_a_verdict_needs_a_small_p_and_a_large_deviation(p, size, word):
    assert verdict(p, size, (0.05, 0.1)) == word


def test_a_verdict_by_other_limits():
    assert [verdict(p, limits=(0.05, 0.01)) for p in (0.009, 0.04, 0.05)] == [
        "fail",
        "warn",
        "pass",
    ]
