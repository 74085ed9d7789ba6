"""The ladder over many splits: gates by the median p, steady for a right law."""

import numpy as np
import pytest

import pulse_pyro as pp
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


def test_a_fitted_law_is_refused():
    law, held_out = crossed(units=20)
    with pytest.raises(pp.errors.ModelError, match="not fitted"):
        pp.calibration.stability(law, held_out, W_FEATURES, seed=0)
