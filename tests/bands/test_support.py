"""Which contexts are near archived ones."""

import time

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from pulse_pyro._core.errors import DataError, SettingError
from pulse_pyro.bands.support import POINTS, Support
from tests.helpers import binomial_floor


def pairs(n, correlation, rng):
    """Two standard normal columns of that correlation, (n, 2)."""
    z = rng.standard_normal((n, 2))
    rest = np.sqrt(1 - correlation**2)
    return np.stack([z[:, 0], correlation * z[:, 0] + rest * z[:, 1]], axis=1)


def units(n, each=30):
    return np.arange(n) // each


def test_a_correlation_that_flips_is_mostly_outside_and_the_archives_own_inside():
    rng = np.random.default_rng(0)
    support = Support.of(pairs(3000, 0.95, rng), units(3000))
    # most of those left inside lie near the centre, where both clouds are
    assert support.inside(pairs(4000, -0.95, rng)).mean() < 0.45
    assert support.inside(pairs(4000, 0.95, rng)).sum() >= binomial_floor(4000, 0.985)


def test_five_lags_whose_correlation_flips_are_further_outside():
    rng = np.random.default_rng(1)
    power = np.abs(np.subtract.outer(np.arange(5), np.arange(5)))
    one, other = (np.linalg.cholesky(r**power) for r in (0.95, -0.95))
    support = Support.of(rng.standard_normal((3000, 5)) @ one.T, units(3000))
    assert support.inside(rng.standard_normal((2000, 5)) @ other.T).mean() < 0.25
    assert support.inside(rng.standard_normal((2000, 5)) @ one.T).mean() > 0.98


def test_a_hole_in_the_middle_of_the_archive_is_outside():
    rng = np.random.default_rng(2)
    angle = rng.uniform(0, 2 * np.pi, 2000)
    ring = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    support = Support.of(ring + 0.02 * rng.standard_normal(ring.shape), units(2000))
    assert_array_equal(support.inside(np.array([[0.0, 0.0], [0.3, -0.2], [1.0, 0.0]])), [0, 0, 1])


def mixed(n, rng):
    """A clock, a rare flag, a constant, a number and the same number in other units."""
    hour, number = rng.integers(0, 24, n) * np.pi / 12, rng.standard_normal(n)
    flag, still = rng.random(n) < 0.05, np.full(n, 0.1)
    return np.column_stack([np.sin(hour), np.cos(hour), flag, still, number, 2 * number + 1])


def test_clocks_flags_constants_and_repeats_do_not_put_an_archives_own_rows_outside():
    rng = np.random.default_rng(3)
    support = Support.of(mixed(3000, rng), units(3000))
    new = mixed(3000, rng)
    assert support.inside(new).mean() > 0.98
    for column, step in ((3, 1e-3), (5, 0.1), (4, -0.1)):
        moved = new.copy()
        moved[:, column] += step
        assert not support.inside(moved).any()
    between = new.copy()
    between[:, :2] = 0.0  # no time of day
    assert support.inside(between).mean() < 0.5


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_units_of_measurement_do_not_matter(scale):
    rng = np.random.default_rng(4)
    x, new = pairs(600, 0.5, rng), 2 * pairs(400, 0.5, rng)
    plain = Support.of(x, units(600)).inside(new)
    moved = Support.of(x * [scale, 1.0] + 5.0, units(600)).inside(new * [scale, 1.0] + 5.0)
    assert (plain == moved).mean() > 0.99
    assert 0.3 < plain.mean() < 0.95


def test_rows_of_units_that_differ_are_judged_against_other_units():
    rng = np.random.default_rng(5)
    level = 3 * rng.standard_normal((400, 3))
    x = level[units(6000)] + 0.01 * rng.standard_normal((6000, 3))
    support = Support.of(x[:3000], units(3000))
    # rows of one unit lie within .01 of each other: judged against those, new units are strangers
    own_rows = Support.of(x[:3000], np.arange(3000))
    assert support.inside(x[3000:]).mean() > 0.95
    assert own_rows.inside(x[3000:]).mean() < 0.5


def test_steps_beyond_the_longest_unit_and_nan_are_outside():
    rng = np.random.default_rng(6)
    x = pairs(500, 0.2, rng)
    support = Support.of(x, units(500), longest=40)
    at = np.zeros((3, 2))
    assert_array_equal(support.inside(at, np.array([0, 39, 40])), [1, 1, 0])
    assert_array_equal(support.inside(np.array([[0.0, np.nan], [0.0, 0.0]])), [0, 1])


def test_large_archives_are_kept_as_few_points_and_one_query_is_quick():
    rng = np.random.default_rng(7)
    x = rng.standard_normal((60_000, 10))
    support = Support.of(x, units(60_000))
    assert len(support.points) <= POINTS
    query = x[:1]
    spent = []
    for _ in range(300):
        start = time.perf_counter()
        support.inside(query)
        spent.append(time.perf_counter() - start)
    assert min(spent) < 2e-4  # half of that on a machine with nothing else to do
    assert_array_equal(support.inside(x[:200]), [support.inside(row[None])[0] for row in x[:200]])


def test_many_rows_and_few_give_the_same_answers():
    rng = np.random.default_rng(8)
    support = Support.of(pairs(5000, 0.0, rng), units(5000))
    new = 3 * rng.standard_normal((1000, 2))
    parts = [support.inside(part) for part in np.split(new, 50)]
    assert_array_equal(support.inside(new), np.concatenate(parts))


def test_one_unit_is_cut_into_runs():
    rng = np.random.default_rng(9)
    support = Support.of(pairs(400, 0.3, rng), np.zeros(400, np.int64))
    assert support.inside(pairs(400, 0.3, rng)).mean() > 0.95


def test_bad_archives_and_queries_are_refused():
    x = np.zeros((20, 2))
    with pytest.raises(DataError, match="at least 10 rows"):
        Support.of(x[:5], units(5))
    with pytest.raises(SettingError, match="share"):
        Support.of(x, units(20), 1.5)
    x[3, 1] = np.inf
    with pytest.raises(DataError, match="column 1 is inf in row 3"):
        Support.of(x, units(20))
    with pytest.raises(DataError, match=r"\(n, 2\), but its shape is \(4, 3\)"):
        Support.of(np.random.default_rng(0).random((20, 2)), units(20)).inside(np.zeros((4, 3)))
