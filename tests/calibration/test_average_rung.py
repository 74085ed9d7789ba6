"""The average error: the U-statistic by hand, its limit, and what it must not be taken for."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from pulse_pyro import stream
from pulse_pyro._core.errors import DataError, SettingError
from pulse_pyro.calibration.average import PieceSums, average_rung, seen_square
from pulse_pyro.calibration.rung import Ask, ErrorRows, rounded_up


def rows_of(x, error, cluster, forecast=None):
    n = len(x)
    error = np.asarray(error, float).reshape(n, -1)
    q = error.shape[1]
    forecast = np.zeros((n, q)) if forecast is None else forecast
    names, step = tuple(f"w{j}" for j in range(q)), np.arange(n)
    x_names = tuple(f"x{j}" for j in range(x.shape[1]))
    return ErrorRows(
        names,
        error + forecast,
        forecast,
        x,
        x_names,
        x[:, :1],
        ("s",),
        cluster,
        cluster,
        step,
        step,
    )


def world(seed, clusters=120, each=20, p=3, bias=None, noise=0.5):
    """Normal inputs, noise of its own; bias(x) is the law's error."""
    rng = stream(seed, "average test")
    n = clusters * each
    x = rng.standard_normal((n, p))
    y = noise * rng.standard_normal(n)
    y = y if bias is None else y + bias(x)
    forecast = x[:, :1].copy()
    return rows_of(x, y, np.repeat(np.arange(clusters), each), forecast)


def bound(rows, **how):
    return average_rung(rows, Ask(0.95, 0), **how).details


def sums_of(b, y, cluster):
    """The sums over clusters, one row at a time."""
    n, k = b.shape
    count = cluster.max() + 1
    share, gram, score = np.zeros(count), np.zeros((count, k, k)), np.zeros((count, k, y.shape[1]))
    for i, c in enumerate(cluster):
        share[c] += 1 / n
        gram[c] += np.outer(b[i], b[i]) / n
        score[c] += np.outer(b[i], y[i]) / n
    return PieceSums(share, gram, score)


def square_of(sums):
    gram = sums.gram.sum(0)
    return seen_square(sums, gram, np.linalg.solve(gram, sums.score.sum(0)))


# the statistic


def test_three_clusters_by_hand():
    # b = 1; cluster means 1, 2 and 4: (1*2 + 1*4 + 2*4) * 2 / (3 * 2) = 14 / 3
    y = np.array([0.0, 2.0, 2.0, 2.0, 5.0, 3.0])[:, None]
    u, moved = square_of(sums_of(np.ones((6, 1)), y, np.array([0, 0, 1, 1, 2, 2])))
    assert u[0] == pytest.approx(14 / 3)
    # the mean 7/3 less that of the two others: 3, 2.5 and 1.5
    assert moved[:, 0, 0] == pytest.approx([7 / 3 - 3, 7 / 3 - 2.5, 7 / 3 - 1.5])


def test_where_every_cluster_has_the_same_gram_it_is_the_plain_double_sum():
    """sum over c != d of g_c'g_d / (N (N - 1)), b white in each cluster."""
    rng = stream(1, "white")
    n_clusters, each, k = 5, 8, 3
    b = np.concatenate(
        [np.sqrt(each) * np.linalg.qr(rng.standard_normal((each, k)))[0] for _ in range(n_clusters)]
    )
    cluster = np.repeat(np.arange(n_clusters), each)
    y = rng.standard_normal((len(b), 1))
    g = [b[cluster == c].T @ y[cluster == c, 0] / each for c in range(n_clusters)]
    double = sum(g[c] @ g[d] for c in range(n_clusters) for d in range(n_clusters) if c != d)
    u, _ = square_of(sums_of(b, y, cluster))
    assert u[0] == pytest.approx(double / (n_clusters * (n_clusters - 1)))


def test_unequal_clusters_against_least_squares_without_each():
    rng = stream(2, "unequal")
    cluster = np.repeat(np.arange(4), [3, 9, 5, 14])
    b, y = rng.standard_normal((31, 2)), rng.standard_normal((31, 1))
    expected = 0.0
    for c in range(4):
        out = cluster != c
        beta = np.linalg.lstsq(b[out], y[out], rcond=None)[0]
        expected += float((y[~out] * (b[~out] @ beta)).sum()) / 31
    u, _ = square_of(sums_of(b, y, cluster))
    assert u[0] == pytest.approx(expected)


def test_unbiased_with_leverage_and_dependent_noise():
    """4,000 noises around one fixed error inside the basis: U is its mean square on average."""
    rng = stream(3, "unbiased")
    cluster = np.repeat(np.arange(9), [2, 3, 4, 5, 6, 7, 8, 20, 30])
    b = np.column_stack([np.ones(85), rng.standard_normal((85, 3))])
    error = b @ np.array([0.2, 0.5, -0.3, 0.0])
    noise = rng.standard_normal((85, 4000)) + rng.standard_normal((9, 4000))[cluster]
    sums = sums_of(b, error[:, None] + noise, cluster)
    u, _ = square_of(sums)
    z = (u.mean() - (error**2).mean()) / (u.std() / np.sqrt(len(u)))
    assert abs(z) < stats.norm.isf(0.5e-5)
    # the plain sum of squares of the fit is far too high: the noise is in it
    plain = np.einsum(
        "kq,kq->q", sums.score.sum(0), np.linalg.solve(sums.gram.sum(0), sums.score.sum(0))
    )
    assert plain.mean() > (error**2).mean() + 0.2


# its limit


def test_a_bend_is_seen_and_covered():
    reps, inside = 30, 0
    size = 0.3
    for rep in range(reps):
        rows = world(rep, bias=lambda x: size * (np.minimum(x[:, 0] ** 2, 9) - 1) / np.sqrt(2))
        found = bound(rows)
        inside += found.bound[1, 0] >= 0.98 * size
        assert found.bound[1, 0] < 1.6 * size
    assert inside >= stats.binom.ppf(1e-5, reps, 0.95)


def test_a_law_without_error_is_told_little():
    few, many = bound(world(0, clusters=100, p=5)), bound(world(0, clusters=400, p=5))
    assert (many.in_sds[: len(few.k)] < few.in_sds).all()
    # noise of 1 / sqrt(5) sd on 8,000 rows: T = t sqrt(2 k + 4 T) / 40,000, t = 2.13 with k = 106
    assert many.in_sds[-1, 0] < 1.3 * np.sqrt(40 / 40_000)


def test_an_interaction_outside_the_basis_is_not_covered():
    """Must fail as a bound of the whole error: lines and splines do not see x1 x2."""
    rows = world(1, bias=lambda x: 0.6 * np.sign(x[:, 0] * x[:, 1]))
    found = bound(rows)
    splines = list(found.k).index(10 + 3) if 13 in found.k else 1
    assert found.bound[splines, 0] < 0.3
    assert "interactions" in found.table["cannot_see"][splines]
    # products see a part of it
    assert found.bound[-1, 0] > 0.3


def test_a_jump_in_a_product_of_three_is_not_seen_by_any():
    rows = world(2, clusters=400, bias=lambda x: 0.5 * np.sign(np.prod(np.sin(9 * x), axis=1)))
    assert (bound(rows).bound < 0.35).all()  # of .5: not a bound of the whole error


def test_clusters_taken_for_rows_must_fail():
    """With rows pretended to be clusters, intercepts of clusters look like error seen exactly."""
    inside = 0
    for rep in range(20):
        rng = stream(rep, "pretended")
        x = rng.standard_normal((2000, 1))
        own = rng.standard_normal(20)
        y = np.repeat(own, 100) - 0.7 + 0.1 * rng.standard_normal(2000)
        found = bound(rows_of(x, y, np.arange(2000)))  # the mean of the intercepts is 0
        inside += found.bound[0, 0] >= 0.7
    assert inside < 17


def test_smaller_bases_are_never_told_more():
    found = bound(world(3))
    assert (np.diff(found.bound, axis=0) >= 0).all()
    assert (np.diff(found.k) > 0).all()


def test_many_targets_at_once():
    rows = world(4)
    three = replace(
        rows,
        names=("a", "b", "c"),
        target=np.tile(rows.target, 3),
        forecast=np.tile(rows.forecast, 3),
    )
    one, all_three = bound(rows), bound(three)
    assert all_three.bound.shape == (len(one.k), 3)
    assert (all_three.bound[:, 0] >= one.bound[:, 0]).all()
    assert len(all_three.table) == 3 * len(one.k)


# what must not matter


def test_units_of_x_and_w_do_not_matter():
    rows = world(5, bias=lambda x: 0.2 * x[:, 1])
    other = replace(
        rows,
        x=rows.x * np.array([1e6, 1e-6, 3.0]) + np.array([5e6, 0.0, -7.0]),
        target=1e4 * rows.target,
        forecast=1e4 * rows.forecast,
    )
    assert bound(other).in_sds == pytest.approx(bound(rows).in_sds, rel=1e-5)
    assert bound(other).bound == pytest.approx(1e4 * bound(rows).bound, rel=1e-5)


def test_order_of_rows_does_not_matter():
    rows = world(6)
    # the planted noise decides only which bases are shown
    order = stream(0, "order").permutation(len(rows.x))
    assert bound(rows.take(order)).bound == pytest.approx(bound(rows).bound, rel=1e-6)


def test_constant_repeated_binary_and_clock_columns():
    rows = world(7, clusters=150)
    n = len(rows.x)
    hour = 2 * np.pi * (np.arange(n) % 24) / 24
    extra = np.column_stack(
        [
            np.full(n, 0.1),
            np.zeros(n),
            rows.x[:, 0],
            -2 * rows.x[:, 1] + 1,
            rows.x[:, 2] > 0,
            np.sin(hour),
            np.cos(hour),
        ]
    )
    x = np.column_stack([rows.x, extra])
    found = bound(replace(rows, x=x, x_names=tuple(f"x{j}" for j in range(10))))
    assert found.k[0] == 1 + 3 + 3  # a constant, three inputs, 0/1, sine and cosine
    assert np.isfinite(found.bound).all()
    assert found.bound[0, 0] < 0.1


def test_only_constant_inputs_leave_the_mean():
    rows = world(8)
    found = bound(replace(rows, x=np.ones_like(rows.x)))
    assert list(found.k) == [1]
    assert "mean" in found.table["holds"][0]


def test_an_input_that_only_one_cluster_has():
    rows = world(9)
    alone = (rows.cluster == 0).astype(float)
    found = bound(replace(rows, x=np.column_stack([rows.x, alone]), x_names=("a", "b", "c", "d")))
    assert found.k[0] == 4
    assert found.bound[0, 0] < 0.15


def test_moments_of_the_fit_half_may_be_given():
    rows = world(10)
    own = np.stack([rows.x.mean(0), rows.x.std(0)])
    assert bound(rows, moments=own).bound == pytest.approx(bound(rows).bound)
    with pytest.raises(DataError, match="moments"):
        bound(rows, moments=own[:, :2])


# few clusters


def test_more_functions_than_clusters_are_refused():
    assert list(bound(world(11, clusters=8)).k) == [4]
    wide = bound(world(11, clusters=8, p=20))
    assert wide.kinds == ("the forecasts",)
    assert list(wide.k) == [2]
    assert "21 clusters" in average_rung(world(11, clusters=8, p=20), Ask(0.95, 0)).remedy


@pytest.mark.parametrize("clusters", [1, 4])
def test_too_few_clusters_state_nothing(clusters):
    rung = average_rung(world(12, clusters=clusters), Ask(0.95, 0))
    assert rung.verdict == "fails"
    assert np.isnan(rung.size)
    assert "5 clusters" in rung.remedy


def test_the_claim_can_be_quoted():
    rung = average_rung(world(13), Ask(0.95, 0))
    assert (rung.name, rung.verdict, rung.benchmark) == ("average", "stands", "")
    size, k = f"{rounded_up(rung.size)} sd", str(rung.details.k[-1])
    for word in (size, k, "splines", "waves", "not seen"):
        assert word in rung.claim
    assert rung.sizes == pytest.approx(rung.details.in_sds[-1])


def test_the_same_seed_gives_the_same_numbers():
    assert (bound(world(14)).bound == bound(world(14)).bound).all()


def test_a_law_that_is_always_right():
    rows = world(15)
    assert (bound(replace(rows, target=rows.forecast)).bound == 0).all()


@pytest.mark.parametrize("what", ["x", "error"])
def test_values_that_are_not_finite_are_refused(what):
    rows = world(16)
    getattr(rows, what)[7, 0] = np.nan
    with pytest.raises(DataError, match=what):
        bound(rows)


def test_levels_outside_0_and_1_are_refused():
    with pytest.raises(SettingError, match="level"):
        average_rung(world(17), Ask(1.0, 0))


def test_a_million_rows():
    rng = stream(0, "million")
    n = 1_000_000
    cluster = np.r_[np.arange(20_000), rng.integers(0, 20_000, n - 20_000)]
    x = rng.standard_normal((n, 10))
    rows = rows_of(x, rng.standard_normal(n), cluster, x[:, :1].copy())
    tracemalloc.start()
    found = bound(rows)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.k[-1] > 100
    assert found.in_sds[-1, 0] < 0.01
    assert peak < 2**30
