"""Rung F: bins of the forecast, its claim, and the bound it gives."""

import time

import numpy as np
import pytest
from numpy.testing import assert_allclose

from pulse_pyro._core.errors import DataError, SettingError
from pulse_pyro.calibration.forecast import forecast_bins, forecast_rung
from tests.calibration.rung_helpers import error_rows, world


def test_bins_have_equal_mass():
    forecast = np.random.default_rng(0).random(4000)
    cluster = np.repeat(np.arange(200), 20)
    cuts = forecast_bins(forecast, cluster, 200)
    assert len(cuts) + 1 == round(2 * 200 ** (1 / 3))
    rows = np.bincount(np.searchsorted(cuts, forecast))
    assert np.ptp(rows) <= 1


def test_repeated_forecasts_are_bins_of_their_own():
    cluster = np.tile(np.arange(100), 9)
    rest = np.linspace(0.21, 0.69, 450)
    forecast = np.r_[np.full(225, 0.2), rest, np.full(225, 0.7)]
    rung = forecast_rung(error_rows(forecast, forecast, cluster), level=0.9, seed=0)
    alone = rung.details.first == rung.details.last
    assert_allclose(rung.details.first[alone], [0.2, 0.7])
    assert alone[[0, -1]].all()
    assert rung.details.rows[alone].tolist() == [225, 225]
    assert len(alone) > 3


def test_few_values_are_one_bin_each():
    cluster = np.tile(np.arange(50), 6)
    forecast = np.repeat([0.1, 0.4, 0.9], 100)
    cuts = forecast_bins(forecast, cluster, 50)
    assert_allclose(cuts, [0.25, 0.65])


def test_bins_of_too_few_clusters_are_joined():
    """The largest forecasts all come from two clusters."""
    rng = np.random.default_rng(0)
    cluster = np.repeat(np.arange(40), 30)
    forecast = rng.random(1200) + (cluster < 2) * 5.0
    rows = error_rows(forecast + rng.standard_normal(1200), forecast, cluster)
    rung = forecast_rung(rows, level=0.9, seed=0)
    assert (rung.details.df >= 4).all()
    assert rung.details.rows.sum() == 1200
    assert rung.verdict == "stands"


def test_a_constant_forecast_is_one_bin():
    rng = np.random.default_rng(0)
    rung = forecast_rung(
        error_rows(rng.standard_normal(300), np.full(300, 0.5), np.repeat(np.arange(30), 10)),
        level=0.9,
        seed=0,
    )
    assert len(rung.details.table) == 1
    assert rung.details.start[0] == -np.inf
    assert rung.details.stop[0] == np.inf


def test_the_claim_can_be_quoted():
    rows = world(60, 30)
    two = error_rows(
        np.c_[rows.target, rows.target], np.c_[rows.forecast, rows.forecast], rows.cluster,
        names=("stress", "sleep"),
    )  # fmt: skip
    rung = forecast_rung(two, level=0.95, seed=0)
    assert rung.name == "forecast"
    assert rung.verdict == "stands"
    assert rung.benchmark == ""
    for word in ("95%", "stress", "sleep", "at once", "at worst"):
        assert word in rung.claim
    assert rung.sizes.shape == (2,)
    table = rung.details.table
    weighted = (table["bound"] * table["rows"]).groupby(table["target"]).sum() / len(two.cluster)
    assert_allclose(rung.sizes, weighted[["stress", "sleep"]] / two.spread)
    assert_allclose(table["outcome"], table["forecast"] + table["error"])


@pytest.mark.parametrize("binary", [False, True])
def test_the_bound_of_a_biased_law_exceeds_its_bias(binary):
    right = forecast_rung(world(60, 30, binary=binary), level=0.999, seed=0)
    wrong = forecast_rung(world(60, 30, bias=0.5, binary=binary), level=0.999, seed=0)
    inside = wrong.details.first > 0  # where the forecast is not cut off at 0
    assert (wrong.details.bound[inside] >= 0.5).all()
    assert wrong.size > right.size
    assert ((right.details.lower <= 0) & (right.details.upper >= 0)).all()


def test_bounds_are_read_off_by_bin():
    rows = world(60, 30)
    details = forecast_rung(rows, level=0.95, seed=0).details
    at = details.bound_at(rows.forecast)
    assert_allclose(at.mean() / rows.spread, details.sizes)
    far = details.bound_at(np.array([[-9.0], [9.0], [np.nan]]))[:, 0]
    assert_allclose(far, [details.bound[0], details.bound[-1], np.nan])
    assert_allclose(details.bound_at(details.stop[:-1, None])[:, 0], details.bound[:-1])
    with pytest.raises(DataError, match="forecast must be"):
        details.bound_at(np.zeros((3, 2)))


def test_too_few_clusters_fail_and_say_how_many_are_needed():
    rung = forecast_rung(world(3, 200), level=0.95, seed=0)
    assert rung.verdict == "fails"
    assert "5 clusters" in rung.remedy
    assert np.isnan(rung.size)
    assert "%" not in rung.claim
    single = forecast_rung(world(1, 200), level=0.95, seed=0)
    assert single.verdict == "fails"


def test_few_clusters_warn():
    few, many = (forecast_rung(world(n, 30), level=0.95, seed=0) for n in (20, 60))
    assert few.checks.verdict == "warn"
    assert many.checks.verdict == "pass"


def test_levels_and_nan_are_refused():
    with pytest.raises(SettingError, match="level"):
        forecast_rung(world(30, 10), level=95, seed=0)
    rows = world(30, 10)
    rows.error[5] = np.nan
    with pytest.raises(DataError, match="finite"):
        forecast_rung(rows, level=0.95, seed=0)


def test_the_same_seed_gives_the_same_limits():
    one, two = (forecast_rung(world(30, 10), level=0.95, seed=3) for _ in range(2))
    assert (one.details.upper == two.details.upper).all()


def test_a_million_rows():
    rows = world(20_000, 50)
    start = time.process_time()
    rung = forecast_rung(rows, level=0.95, seed=0)
    assert time.process_time() - start < 4.0
    assert rung.size < 0.05
