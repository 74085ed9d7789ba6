"""Means in cells over clusters: numbers worked by hand, rare values, and what the repair is for."""

import time

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats

from pulse_pyro._core.errors import DataError
from pulse_pyro.bands.critical import quantile, student, sup_draws
from pulse_pyro.calibration.clustered_means import (
    Cells,
    cell_means,
    clopper_pearson,
    clustered_means,
    clusters_needed,
    freedom_by_cell,
)
from tests.helpers import FALSE_ALARM, binomial_floor


def rng(seed=0):
    return np.random.default_rng(seed)


def one_cell(y, cluster, forecast=0.0, level=0.95):
    """All rows in one cell; y is the error."""
    y = np.asarray(y, float)[:, None]
    forecast = np.broadcast_to(np.asarray(forecast, float).reshape(-1, 1), y.shape)
    everyone = Cells(np.zeros(len(y), int), 1, (0,))
    return clustered_means(y, forecast, np.asarray(cluster), [everyone], level=level, rng=rng())


def test_freedom_by_hand():
    """Clusters of 1, 2 and 3 rows: (1 + 4 + 9)^2 / (1 + 16 + 81) - 1 = 1."""
    cluster, code = np.array([0, 1, 1, 2, 2, 2, 0, 1]), np.array([0, 0, 0, 0, 0, 0, 1, 1])
    df, rows = freedom_by_cell(cluster, code, 3)
    assert_allclose(df, [1.0, 1.0, -1.0])
    assert_allclose(rows, [6, 2, 0])


def test_limits_by_hand():
    """Rows 1, 3, 5, 7, 9, 11, each a cluster: mean 6, se^2 = sum r^2 / (n - 1)^2 = 70 / 25."""
    found = one_cell([1, 3, 5, 7, 9, 11], range(6))
    assert_allclose(found.mean, 6.0)
    assert_allclose(found.df, 5.0)
    # symmetric: no skewness to allow for
    reach = student(found.critical, 5.0) * np.sqrt(70 / 25)
    assert_allclose([found.low[0], found.high[0]], [6 - reach, 6 + reach])
    assert found.critical == pytest.approx(stats.norm.isf(0.025), abs=0.12)


def test_a_large_cluster_is_undone_by_its_share():
    """Clusters of 2 and 1, 1, 1, 1, 1 rows; residual sums over 1 - n_c / n."""
    y = np.array([3.0, 5.0, 0.0, 1.0, 2.0, 3.0, 0.0])
    cluster = np.array([0, 0, 1, 2, 3, 4, 5])
    away = y - 2.0
    sums = np.array([away[:2].sum(), *away[2:]]) / np.array([5 / 7, *[6 / 7] * 5]) / 7
    mean, se, df = cell_means(y, cluster, np.zeros(7, int), 1)
    assert_allclose(mean, 2.0)
    assert_allclose(se, np.sqrt((sums**2).sum()))
    assert_allclose(df, (4 + 5) ** 2 / (16 + 5) - 1)


def test_the_limit_on_the_long_side_is_pushed_out():
    y = np.array([0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 9.0])
    found = one_cell(y, range(8))
    mirror = one_cell(-y, range(8))
    assert found.high[0] - found.mean[0] > 1.2 * (found.mean[0] - found.low[0])
    assert_allclose([mirror.low[0], mirror.high[0]], [-found.high[0], -found.low[0]])


def test_clopper_pearson_is_that_of_scipy():
    for events, n, alpha in ((0, 20, 0.05), (3, 50, 0.01), (20, 20, 0.1), (7, 9, 0.05)):
        exact = stats.binomtest(events, n).proportion_ci(1 - alpha, method="exact")
        low, high = clopper_pearson(np.array([events]), np.array([n]), np.array([alpha]))
        assert_allclose([low[0], high[0]], [exact.low, exact.high], rtol=1e-9)


def test_rare_events_of_single_rows_are_clopper_pearson():
    """4 events in 60 clusters of one row, forecast .1: no design effect, no loss of freedom."""
    w = np.r_[np.ones(4), np.zeros(56)]
    found = one_cell(w - 0.1, range(60), 0.1)
    exact = stats.binomtest(4, 60).proportion_ci(0.95, method="exact")
    assert found.counted.all()
    assert_allclose([found.low[0], found.high[0]], [exact.low - 0.1, exact.high - 0.1])


def test_two_values_need_not_be_nought_and_one():
    w = np.r_[np.ones(4), np.zeros(56)]
    plain = one_cell(w - 0.1, range(60), 0.1)
    other = one_cell(-2.0 * (w - 0.1), range(60), 5.0 - 2.0 * 0.1)
    assert_allclose([other.low[0], other.high[0]], [-2 * plain.high[0], -2 * plain.low[0]])


def test_clusters_of_equal_rows_count_once_each():
    """No event at all: nothing tells how alike rows are, so 30 clusters of 10 count as 30 rows."""
    cluster = np.repeat(np.arange(30), 10)
    found = one_cell(np.full(300, -0.2), cluster, 0.2)
    n = 30 * (stats.t.isf(0.025, 299) / stats.t.isf(0.025, 29)) ** 2
    # constant everywhere: there is no other value it could have had
    assert found.counted.all()
    assert_allclose(found.high[0], -0.2)
    w = np.zeros(600)
    w[300:340] = 1.0
    both = np.stack([np.repeat([0, 1], 300)]).ravel()
    found = clustered_means(
        (w - 0.2)[:, None],
        np.full((600, 1), 0.2),
        np.r_[cluster, 30 + cluster],
        [Cells(both, 2, (0,))],
        level=0.9,
        rng=rng(),
    )
    assert found.counted.tolist() == [True, False]
    # ones came in four whole clusters: rows of a cluster are alike
    assert_allclose(found.high[0], 1 - 0.025 ** (1 / n) - 0.2, rtol=0.01)


def test_constant_counts_have_limits_from_the_range_seen():
    """W is 2 in the whole bin, forecast 2: zero variance is no proof that W is always 2."""
    w = np.r_[np.full(40, 2.0), np.tile([0.0, 1.0, 2.0, 5.0], 10)]
    code = np.repeat([0, 1], 40)
    found = clustered_means(
        (w - 2.0)[:, None],
        np.full((80, 1), 2.0),
        np.arange(80),
        [Cells(code, 2, (0,))],
        level=0.9,
        rng=rng(),
    )
    share = 1 - 0.025 ** (1 / 40)
    assert found.counted.tolist() == [True, False]
    assert_allclose([found.low[0], found.high[0]], [-2 * share, 3 * share])


def test_a_mean_forecast_that_varies_widens_rare_limits():
    w = np.r_[np.ones(4), np.zeros(56)]
    steady, moving = one_cell(w - 0.5, range(60), 0.5), np.tile([0.2, 0.8], 30)
    found = one_cell(w - moving, range(60), moving)
    assert found.low[0] < steady.low[0] - 0.05
    assert found.high[0] > steady.high[0] + 0.05


def test_one_cluster_is_not_judged():
    found = one_cell(rng().standard_normal(50), np.zeros(50, int))
    assert not found.judged.any()
    assert np.isnan(found.low).all()
    assert clusters_needed(0.0, 1) == 5
    assert clusters_needed(1.0, 4) == 10  # each of four counts as half a cluster


def test_rows_in_no_cell_do_not_count():
    y = np.r_[rng().standard_normal(50), 1e6]
    cluster = np.arange(51)
    code = np.r_[np.zeros(50, int), -1]
    args = {"level": 0.9}
    all_but = clustered_means(
        y[:50, None],
        np.zeros((50, 1)),
        cluster[:50],
        [Cells(code[:50], 1, (0,))],
        rng=rng(),
        **args,
    )
    found = clustered_means(
        y[:, None], np.zeros((51, 1)), cluster, [Cells(code, 1, (0,))], rng=rng(), **args
    )
    assert_allclose(found.low, all_but.low)


def test_parts_may_overlap_and_targets_are_in_order():
    y = rng().normal([0.0, 5.0], 1.0, (60, 2))
    parts = [Cells(np.arange(60) % 2, 2, (0, 1)), Cells(np.zeros(60, int), 1, (1,))]
    found = clustered_means(y, np.zeros((60, 2)), np.arange(60), parts, level=0.9, rng=rng())
    assert found.part.tolist() == [0, 0, 0, 0, 1]
    assert found.column.tolist() == [0, 0, 1, 1, 1]
    assert found.cell.tolist() == [0, 1, 0, 1, 0]
    assert_allclose(found.mean[[0, 3, 4]], [y[::2, 0].mean(), y[1::2, 1].mean(), y[:, 1].mean()])


def test_nan_is_refused_with_its_row():
    y = np.zeros((10, 1))
    y[3] = np.nan
    with pytest.raises(DataError, match="row 3"):
        clustered_means(
            y, np.zeros((10, 1)), np.arange(10), [Cells(np.zeros(10, int), 1, (0,))],
            level=0.9, rng=rng(),
        )  # fmt: skip


def plain_sup_t(y, cluster, code, cells, level):
    """Sup-t over clusters as it is usually done: no leverage, no freedom."""
    rows = np.bincount(code, minlength=cells)
    mean = np.bincount(code, y, cells) / rows
    psi = np.zeros((cluster.max() + 1, cells))
    np.add.at(psi, (cluster, code), (y - mean[code]) / rows[code])
    cov = psi.T @ psi
    reach = quantile(sup_draws(cov, 4000, rng()), level) * np.sqrt(np.diag(cov))
    return mean - reach, mean + reach


def test_the_repair_covers_where_plain_sup_t_does_not():
    """20 clusters of very unequal size, with intercepts: the mean error is 0 in every cell."""
    reps, plain, repaired = 300, 0, 0
    for seed in range(reps):
        r = rng(seed)
        size = np.minimum(5 * (1 - r.random(20)) ** -0.8, 200).astype(int)
        cluster = np.repeat(np.arange(20), size)
        y = r.normal(0, 1, 20)[cluster] + r.standard_normal(len(cluster))
        code = r.integers(0, 3, len(cluster))
        low, high = plain_sup_t(y, cluster, code, 3, 0.95)
        plain += ((low <= 0) & (high >= 0)).all()
        found = clustered_means(
            y[:, None], np.zeros((len(y), 1)), cluster, [Cells(code, 3, (0,))], level=0.95, rng=r
        )
        repaired += ((found.low <= 0) & (found.high >= 0))[found.judged].all()
    assert repaired >= binomial_floor(reps, 0.95)
    assert stats.binom.cdf(plain, reps, 0.95) < FALSE_ALARM


def test_a_million_rows():
    r = rng()
    n = 10**6
    forecast = r.random((n, 1))
    w = (r.random((n, 1)) < forecast).astype(float)
    code = np.minimum((20 * forecast[:, 0]).astype(int), 19)
    start = time.process_time()
    found = clustered_means(
        w - forecast, forecast, r.integers(0, 20_000, n), [Cells(code, 20, (0,))], level=0.95, rng=r
    )
    assert time.process_time() - start < 4.0
    assert (np.abs(found.mean) <= stats.norm.isf(FALSE_ALARM) * 0.5 / np.sqrt(n / 20)).all()
    assert found.bound.max() < 0.02
