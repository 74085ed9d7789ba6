"""Values that every part shares: checks and their verdict."""

import itertools
from dataclasses import replace

import pytest

from pulse_pyro.base import Check, Checks, worst_verdict

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
