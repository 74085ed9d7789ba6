"""Units are compared with units, clusters with clusters; periods of time cut units on purpose."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import Ridge

import pulse_pyro as pp
from pulse_pyro.diagnostics.by_unit import estimated

PHI = pp.terms(["1", "w*a"], 2, observed=["s"], missing=["w"])


def diary(units=24, days=28, seed=0):
    """W = S + noise of ``units`` people in clinics of three, over four weeks."""
    rng = np.random.default_rng(seed)
    s = rng.standard_normal(units * days)
    return pd.DataFrame(
        {
            "who": np.repeat([f"p{i:02d}" for i in range(units)], days),
            "day": np.tile(pd.date_range("2024-01-01", periods=days), units),
            "clinic": np.repeat([f"c{i // 3}" for i in range(units)], days),
            "s": s,
            "w": s + 0.3 * rng.standard_normal(len(s)),
        }
    )


def history(cluster=None, frame=None):
    roles = {"unit": "who", "time": "day", "observed": ["s"], "missing": ["w"]}
    return pp.History.from_frame(diary() if frame is None else frame, **roles, cluster=cluster)


def refused(law, held_out, says):
    with pytest.raises(pp.errors.LeakageError, match=says):
        pp.diagnose(law, held_out, seed=0)
    with pytest.raises(pp.errors.LeakageError, match=says):
        pp.calibrate(law, held_out, PHI, seed=0)


LAWS = {
    "linear": pp.linear_lags(1),
    "state space": pp.state_space(1, ar=1, ma=0),
    "regressor": pp.laws.from_sklearn(Ridge()),
}


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("fitted_by", [None, "clinic"])
@pytest.mark.parametrize("held_out_by", [None, "clinic", ("week",)])
def test_a_unit_that_was_fitted_on_is_refused_however_clusters_are_declared(
    name, fitted_by, held_out_by
):
    law = LAWS[name].fit(history(fitted_by), seed=0)
    refused(law, history(held_out_by), "'p00'|'c0'")


def test_a_saved_law_still_knows_the_units_of_its_clusters(tmp_path):
    law = pp.linear_lags(1).fit(history("clinic"), seed=0)
    pp.save(law, tmp_path / "law")
    refused(pp.load(tmp_path / "law"), history(), "'p00'")


def test_other_units_of_a_cluster_that_was_fitted_on_are_refused():
    whole = history("clinic")
    fit, other = whole.take(range(0, 24, 2)), whole.take(range(1, 24, 2))
    assert not set(fit.units) & set(other.units)
    refused(pp.linear_lags(1).fit(fit, seed=0), other, "cluster 'c0'")


def test_a_cluster_and_a_unit_may_share_a_name():
    frame = diary()
    fit = history("clinic", frame[frame["clinic"] < "c4"])
    held_out = history(None, frame[frame["clinic"] >= "c4"].replace({"who": {"p12": "c0"}}))
    law = pp.linear_lags(1).fit(fit, seed=0)
    assert "c0" in law.units
    assert "c0" in held_out.units
    pp.diagnose(law, held_out, seed=0)
    pp.calibrate(law, held_out, PHI, seed=0)


def test_weeks_may_cut_units_and_are_judged_apart():
    fit, held_out = history(("week",)).split(seed=0)
    assert fit.units == held_out.units
    law = pp.linear_lags(1).fit(fit, seed=0)
    assert pp.diagnose(law, held_out, archive=fit, seed=0).verdict != "fail"
    pp.calibrate(law, held_out, PHI, seed=0)
    refused(law, fit, r"cluster '2024")
    without_weeks = replace(held_out, cluster=None, clusters=())
    refused(law, without_weeks, "unit 'p00'")  # the same people


def test_other_periods_of_time_do_not_excuse_a_unit():
    frame = diary(days=56)
    law = pp.linear_lags(1).fit(history(("week",), frame), seed=0)
    refused(law, history(("month",), frame), "unit 'p00'")


@pytest.mark.parametrize("coarse", [False, True])
def test_a_week_copied_into_another_is_noticed_unless_weeks_are_alike_anyway(coarse):
    frame, values = diary(), ["s", "w"]
    if coarse:  # answers yes or no, most of them no
        frame[values] = (frame[values] > 1.5).astype(float)
    day = frame["day"].dt.day_of_year
    frame.loc[day > 21, values] = frame.loc[day <= 7, values].to_numpy()
    weeks = history(("week",), frame)
    fit, held_out = weeks.take_clusters([0, 1]), weeks.take_clusters([2, 3])
    law = pp.linear_lags(1).fit(fit, seed=0)
    if coarse:
        pp.diagnose(law, held_out, archive=fit, seed=0)
    else:
        with pytest.raises(pp.errors.LeakageError, match="values"):
            pp.diagnose(law, held_out, archive=fit, seed=0)


def test_fitted_units_are_counted_as_units_not_as_clusters():
    plain, clustered = history(), history("clinic")
    unit = np.repeat(np.arange(12), 5)
    laws = [pp.linear_lags(1).fit(each, seed=0) for each in (plain, clustered)]
    assert len(laws[1].units) == 8
    assert estimated(laws[0], unit) == estimated(laws[1], unit) == 1.0 + 12 / 24
