"""What halves a bound: closed form, and laws that are right and wrong."""

import math
import re

import numpy as np
import pytest
from numpy.testing import assert_allclose

import pulse_pyro as pp
from pulse_pyro.calibration.halving import Halving, halving_table, halvings, round_up
from tests.calibration.helpers import LINEAR, W_FEATURES, Guess, one_input, split_archive


def halving(half=3.0, difference=1.0, monte_carlo=0.0, leaves=0.0, rate=0.5):
    return Halving("w", half, difference, monte_carlo, leaves, rate, 100)


def test_units_needed_have_a_closed_form():
    one = halving()  # 4 -> 2: all of it by 4 times the units, or r alone from 3 to 1 by 9 times
    assert_allclose(one.units_at_best, 400)
    assert_allclose(one.units_if_it_stays, 900)
    assert_allclose(halving(difference=0.0, rate=1 / 3).units_at_best, 800)
    assert_allclose(halving(3.0, 0.0, 1.0).units_at_best, 900)
    assert math.isinf(halving(1.0, 1.0).units_if_it_stays)
    assert math.isinf(halving(1.0, 0.0, 1.0).units_at_best)


@pytest.mark.parametrize(
    ("one", "said"),
    [
        (halving(), "about 400 units instead of 100 halve the bound; if the difference stays, 900"),
        (halving(1.0, 2.0), "if the difference stays, only a better law does"),
        (
            halving(leaves=0.4),
            "leaves the band at 40% .* about 400 .* a better law does, or about 900",
        ),
        (halving(1.0, 2.0, leaves=0.4), "if its form is wrong, only a better law does"),
        (halving(1.0, 0.0, 2.0), "Monte Carlo error makes the rest, which no units take away"),
    ],
)
def test_the_sentence_says_what_to_do(one, said):
    assert re.search(said, one.sentence)
    assert re.match(r"w: r makes \d+% of the mean bound", one.sentence)


def test_figures_are_rounded_up():
    assert [round_up(x) for x in (99.2, 400.0, 401.0, 12_345, 7.0, math.inf)] == [
        "100",
        "400",
        "410",
        "13,000",
        "7",
        "none do",
    ]


def test_a_law_that_is_off_is_told_from_one_that_is_right():
    held_out = one_input(curve=lambda x: x)
    found = []
    for intercept in (0.0, 1.0):
        law = Guess(pp.Lags(1), intercept=intercept, slope=4.0)
        found += halvings(pp.calibrate(law, held_out, W_FEATURES, seed=0, band=LINEAR))
    right, off = found
    assert right.leaves == 0
    assert "may be chance" in right.sentence
    assert off.leaves == 1
    assert "only a better law does" in off.sentence


def test_pieces_are_those_of_the_calibration():
    law, held_out, _ = split_archive(lags=2)
    calibration = pp.calibrate(law, held_out, W_FEATURES, seed=0, band=LINEAR)
    (one,) = halvings(calibration)
    row = calibration.table.iloc[0]
    assert_allclose(one.half, row["half-width mean"])
    assert_allclose(one.difference, row["difference mean"])
    assert_allclose(one.bound, row["bound mean"])
    table = halving_table([one])
    assert table["units now"].iloc[0] == len(held_out.units)
    assert "share of Monte Carlo" not in table
    assert "share of Monte Carlo" in halving_table([halving(monte_carlo=0.5)])
    assert np.isclose(one.rate, 0.5)
