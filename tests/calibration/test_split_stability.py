"""The ladder over many splits: gates by the median p, steady for a right law."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import pulse_pyro as pp
from pulse_pyro.calibration.checks import GATES
from pulse_pyro.calibration.split_stability import SplitResult
from tests.calibration.helpers import W_FEATURES
from tests.calibration.test_ladder import NAMES, crossed
from tests.helpers import linear_history


def test_a_right_law_holds_on_most_splits_and_a_wrong_one_on_none():
    history = linear_history(units=60, time=15, lags=2)[0]
    found = pp.calibration.stability(pp.linear_lags(2), history, W_FEATURES, splits=4, seed=0)
    assert list(found.table.index) == NAMES
    assert found.p.shape == (4, len(found.tests))
    assert found.verdict != "fail"
    assert found.table.loc["forecast", "stands"] == 1.0
    assert "median p" in repr(found)
    law, held_out = crossed(units=80)
    wrong = pp.calibration.stability(law.law, held_out, W_FEATURES, splits=3, seed=0)
    assert wrong.verdict == "fail"
    assert wrong.table.loc["uniform", "fails"] == 1.0
    assert np.isnan(wrong.table.loc["uniform", "size, median"])


def result(verdict, p, refused=False):
    return SplitResult(("uniform", "free"), (verdict, "stands"), (np.nan, 1.0), p, refused)


def stable(monkeypatch, results):
    """What stability says of splits that gave these results."""
    given = iter(results)
    monkeypatch.setattr("pulse_pyro.calibration.split_stability._split", lambda _: next(given))
    law, history = pp.linear_lags(1), linear_history(units=4, time=5, lags=1)[0]
    return pp.calibration.stability(law, history, W_FEATURES, splits=len(results), seed=0)


@pytest.mark.parametrize(("failing", "word"), [(4, "fail"), (2, "fail"), (1, "pass")])
def test_a_rung_that_fails_in_half_of_the_splits_fails_whatever_its_tests_say(
    monkeypatch, failing, word
):
    quiet = dict.fromkeys(GATES, 0.6)
    words = ["fails"] * failing + ["conditional"] * (4 - failing)
    found = stable(monkeypatch, [result(each, quiet) for each in words])
    assert found.verdict == word
    said = f"uniform fail as its rung fails in {failing / 4:.0%} of them"
    assert (said in repr(found)) == (word == "fail")


def test_a_rung_that_fails_over_all_splits_has_no_size_of_those_in_which_it_held(monkeypatch):
    quiet, loud = dict.fromkeys(GATES, 0.6), dict.fromkeys(GATES, 1e-4)
    for failing, p in ((2, quiet), (1, loud), (1, quiet)):
        words = ["fails"] * failing + ["conditional"] * (4 - failing)
        found = stable(
            monkeypatch, [result(word, p)._replace(sizes=(0.1234, 1.0)) for word in words]
        )
        fails = failing == 2 or p is loud
        assert found.fails("uniform") == fails
        assert np.isnan(found.table.loc["uniform", "smallest"]) == fails
        assert ("0.123" in repr(found)) == (not fails)
        assert found.table.loc["free", "smallest"] == 1.0
        assert not found.fails("free")


@pytest.mark.filterwarnings("error")
def test_splits_without_a_band_or_a_test_count_as_not_a_number(monkeypatch):
    one, two, *_ = GATES
    some = [result("conditional", {one: p, two: 0.5}) for p in (0.2, 0.4)]
    some += [result("conditional", {one: 0.9}), result("fails", {}, refused=True)]
    found = stable(monkeypatch, some)
    assert found.tests == (one, two)
    assert_array_equal(np.isnan(found.p), [[0, 0], [0, 0], [0, 1], [1, 1]])
    assert found.gates.loc[one, "median p"] == 0.4
    assert found.refused.tolist() == [False, False, False, True]
    assert found.verdict == "pass"
    assert "no uniform band was to be had in 25% of splits" in repr(found)


@pytest.mark.filterwarnings("error")
def test_an_archive_without_any_band_fails_and_the_other_rungs_are_told(monkeypatch):
    found = stable(monkeypatch, [result("fails", {}, refused=True)] * 3)
    assert found.verdict == "fail"
    assert found.p.shape == (3, 0)
    assert found.gates.empty
    assert found.table.loc["free", "stands"] == 1.0
    assert "no uniform band was to be had in 100% of splits" in repr(found)


def test_a_fitted_law_is_refused():
    law, held_out = crossed(units=20)
    with pytest.raises(pp.errors.ModelError, match="not fitted"):
        pp.calibration.stability(law, held_out, W_FEATURES, seed=0)
