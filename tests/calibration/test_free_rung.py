"""The free line: what W - forecast amounts to, with an upper limit by cluster."""

import numpy as np
import pytest
from scipy import stats

from pulse_pyro import stream
from pulse_pyro._core.errors import DataError, SettingError
from pulse_pyro.calibration.free import free_rung, upper_ratio
from pulse_pyro.calibration.rung import Ask, ErrorRows


def rows_of(error, cluster, forecast=None):
    error = np.asarray(error, float).reshape(len(cluster), -1)
    n, q = error.shape
    forecast = np.zeros((n, q)) if forecast is None else forecast
    names = tuple(f"w{j}" for j in range(q))
    step, x = np.arange(n), np.zeros((n, 1))
    cluster = np.asarray(cluster)
    target = error + forecast
    return ErrorRows(names, target, forecast, x, ("x",), x, ("s",), cluster, cluster, step, step)


def noise(seed, clusters, each, q=1):
    rng = stream(seed, "free")
    cluster = np.repeat(np.arange(clusters), each)
    return rng.standard_normal((len(cluster), q)), cluster


def test_the_table_by_hand():
    error = np.tile([1.0, -1.0, 2.0, 0.0], 3)
    forecast = np.tile([[0.0], [2.0], [0.0], [0.0]], (3, 1))
    cluster = np.repeat(np.arange(6), 2)
    table = free_rung(rows_of(error, cluster, forecast), Ask(0.9, 0)).details.table
    w = np.array([1.0, 1.0, 2.0, 0.0])
    assert table["rms_error"][0] == pytest.approx(np.sqrt(6 / 4))
    assert table["explained"][0] == pytest.approx(1 - 1.5 / w.var())
    assert table["upper"][0] == pytest.approx(table["in_sds"][0] * w.std())
    assert table["upper"][0] > table["rms_error"][0]


def test_the_limit_by_hand():
    sums, size = np.array([1.0, 2.0, 9.0]), np.array([2.0, 2.0, 2.0])
    # one more like the third, half as large again: 13.5 of 3; mean 25.5 / 9
    mean = 25.5 / 9
    apart = (np.array([1.0, 2.0, 9.0, 13.5]) - mean * np.array([2.0, 2.0, 2.0, 3.0])) / 9
    se = np.sqrt((apart**2).sum() * 4 / 3)
    t = stats.t.ppf(0.9, 21**2 / 129 - 1)
    by_log = mean * np.exp(t * se / mean)
    skew = (apart**3).sum() / (apart**2).sum() ** 1.5
    x = min(np.roots([skew**2 / 27, skew / 3, 1.0, skew / 6 + t]).real)
    found = upper_ratio(sums, size, 0.9)
    assert found == pytest.approx(by_log) or found == pytest.approx(mean - se * x)
    assert found >= by_log * (1 - 1e-12)


def test_close_to_the_exact_limit_of_normal_errors():
    error, cluster = noise(0, 400, 10)
    upper = free_rung(rows_of(error, cluster), Ask(0.95, 0)).details.upper[0]
    exact = np.sqrt((error**2).sum() / stats.chi2.ppf(0.05, len(error)))
    assert exact <= upper <= 1.02 * exact


@pytest.mark.parametrize("kind", ["normal", "heavy", "binary", "intercepts", "power-law"])
def test_covers_twenty_clusters(kind):
    reps, inside = 300, 0
    for rep in range(reps):
        rng = stream(rep, "free", kind)
        size = rng.integers(5, 36, 20)
        if kind == "power-law":
            size = np.minimum(np.ceil(4 * (1 - rng.random(20)) ** (-1 / 1.5)), 400).astype(int)
        c = np.repeat(np.arange(20), size)
        e = rng.standard_normal(len(c))
        if kind == "heavy":
            e = rng.standard_t(5, len(c)) / np.sqrt(5 / 3)
        if kind == "binary":
            e = ((rng.random(len(c)) < 0.3) - 0.3) / np.sqrt(0.21)
        if kind in ("intercepts", "power-law"):
            e = 0.8 * e + 0.6 * rng.standard_normal(20)[c]
        found = free_rung(rows_of(e, c), Ask(0.95, 0))
        inside += not found.holds or found.details.upper[0] >= 1  # one cluster may be most of it
    # 2.5 points short is allowed with so few clusters; a false alarm in 10^5
    assert inside >= stats.binom.ppf(1e-5, reps, 0.925)


@pytest.mark.parametrize("size", [[20] * 5, [900, *([10] * 10)]])
def test_few_clusters_and_one_that_is_nearly_all_of_it_bound_nothing(size):
    cluster = np.repeat(np.arange(len(size)), size)
    error = stream(0, "few").standard_normal(len(cluster))
    found = free_rung(rows_of(error, cluster), Ask(0.95, 0))
    assert found.verdict == "fails"
    assert "10 clusters" in found.remedy


def test_too_few_and_dependent_clusters_must_fail():
    """Rows taken for clusters: the limit is too low when rows of a cluster move together."""
    inside = 0
    for rep in range(100):
        rng = stream(rep, "pretended")
        e = np.repeat(rng.standard_normal(10), 100)
        inside += free_rung(rows_of(e, np.arange(1000)), Ask(0.95, 0)).details.upper[0] >= 1
    assert inside < 80


def test_bounds_the_error_of_a_biased_law():
    error, cluster = noise(1, 50, 20)
    upper = free_rung(rows_of(0.01 * error + 0.7, cluster), Ask(0.95, 0)).details.upper[0]
    assert 0.7 <= upper < 0.72


def test_units_of_w_do_not_matter():
    error, cluster = noise(2, 30, 10)
    one = free_rung(rows_of(error, cluster), Ask(0.95, 0))
    other = free_rung(rows_of(1e6 * error, cluster), Ask(0.95, 3))
    assert other.sizes == pytest.approx(one.sizes)
    assert other.details.upper == pytest.approx(1e6 * one.details.upper)


def test_more_targets_widen_each_limit():
    error, cluster = noise(3, 30, 10, q=4)
    together = free_rung(rows_of(error, cluster), Ask(0.95, 0)).details
    alone = free_rung(rows_of(error[:, :1], cluster), Ask(0.95, 0)).details
    assert together.upper[0] > alone.upper[0]
    assert len(together.table) == 4


def test_the_claim_states_its_size():
    error, cluster = noise(4, 30, 10)
    rung = free_rung(rows_of(error, cluster), Ask(0.95, 0))
    assert rung.name == "free"
    assert rung.verdict == "stands"
    assert f"{rung.size:.2g}" in rung.claim


def test_one_cluster_states_nothing():
    rung = free_rung(rows_of([1.0, 2.0], [0, 0]), Ask(0.95, 0))
    assert rung.verdict == "fails"
    assert np.isnan(rung.size)
    assert rung.remedy


@pytest.mark.parametrize("value", [0.0, 2.0])
def test_errors_that_do_not_vary(value):
    rung = free_rung(rows_of(np.full(40, value), np.arange(40) // 4), Ask(0.95, 0))
    assert rung.details.upper[0] == pytest.approx(value)


def test_refusals():
    error, cluster = noise(5, 10, 5)
    with pytest.raises(SettingError, match="level"):
        free_rung(rows_of(error, cluster), Ask(95, 0))
    error[3] = np.nan
    with pytest.raises(DataError, match="finite"):
        free_rung(rows_of(error, cluster), Ask(0.95, 0))
