"""The regret bound and the decay of the planner, against what can be worked out by hand."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq

import pulse_pyro as pp
from pulse_pyro.calibration.decay import fit_decay

SIZES = np.array([50.0, 100.0, 200.0, 400.0])
STAKES = st.builds(
    pp.calibration.Stakes,
    st.integers(1, 10**6),
    st.floats(0.0, 3.0),
    st.floats(0.01, 5.0),
    st.floats(1e-3, 10.0),
    st.floats(1e-4, 0.5),
)
DIM, NORM = st.integers(1, 40), st.floats(0.1, 20.0)


# -- the bound (8)-(11)


def test_the_bound_is_the_theorem_with_one_number_for_every_error():
    stakes = pp.calibration.Stakes(1000, 0.2, 1.1, ridge=2.0, delta=0.1)
    d, b, e = 4, 2.0, 0.03
    grown = d * math.log(1 + 1000 * b**2 / (d * 2.0))
    clean = math.sqrt(2.0 * 1.1**2 + 0.2**2 * (grown + 2 * math.log(10)))
    root = clean + math.sqrt(1000) * e
    whole = 2 * math.sqrt(2 * root**2 * 1000 * grown) + 2 * 1000 * e
    found = stakes.parts(e, dim=d, norm=b)
    assert found.statistical + found.imputation == pytest.approx(whole, rel=1e-12)
    assert stakes.parts(0.0, dim=d, norm=b).imputation == 0.0
    # what the theorem says of the imputation part, with sum D = T (e / 2)^2
    theory = (4 * math.sqrt(2 * grown) + 4) * math.sqrt(1000 * 1000 * (e / 2) ** 2)
    assert found.imputation == pytest.approx(theory, rel=1e-12)


@given(STAKES, DIM, NORM)
def test_the_balance_is_where_both_parts_are_equal(stakes, dim, norm):
    def gap(e):
        found = stakes.parts(e, dim=dim, norm=norm)
        return found.imputation - found.statistical

    high = 1.0
    while gap(high) < 0:
        high *= 2
    assert stakes.balance(dim=dim, norm=norm) == pytest.approx(
        brentq(gap, 0.0, high, xtol=1e-15, rtol=1e-12), rel=1e-6
    )


@given(STAKES, DIM, NORM, st.floats(1.01, 100.0), st.floats(0.05, 2.0))
def test_more_rounds_need_more_history(stakes, dim, norm, longer, rate):
    if stakes.horizon * norm**2 < 2 * dim * stakes.ridge:  # the bound is not yet logarithmic
        return
    later = replace(stakes, horizon=math.ceil(stakes.horizon * longer))
    decay = fit_decay(SIZES, np.stack([SIZES**-rate] * 2))
    needed, more = (decay.crossing(s.balance(dim=dim, norm=norm)).n for s in (stakes, later))
    assert more >= needed * (1 - 1e-9)


def test_no_path_of_a_policy_exceeds_the_bound_on_the_radius():
    rng = np.random.default_rng(0)
    stakes, rounds, b = pp.calibration.Stakes(300, 0.2, 1.1), 300, 1.5
    x = rng.standard_normal((rounds, 3))
    x *= b * rng.random((rounds, 1)) / np.linalg.norm(x, axis=1, keepdims=True)
    error = 0.1 * rng.random(rounds)
    path = pp.corrected(sigma=0.2, theta_bound=1.1).split(x, error).sum(1)[-1]
    e = math.sqrt((error**2).mean())
    grown = stakes.logdet(3, b)
    most = sum(stakes.parts(e, dim=3, norm=b)) - 2 * rounds * e
    assert max(1.0, path) * 2 * math.sqrt(2 * grown * rounds) <= most


# -- the regression


def test_the_line_by_hand():
    slopes, heights = np.array([-0.4, -0.6]), np.array([1.0, 1.2])
    z = np.log(SIZES) - np.log(SIZES).mean()
    found = fit_decay(SIZES, np.exp(heights[:, None] + slopes[:, None] * z))
    t = 12.706204736174698  # two orderings: one degree of freedom
    assert found.rate == pytest.approx(0.5)
    assert found.rate_interval == pytest.approx((0.5 - 0.1 * t, 0.5 + 0.1 * t))
    middle = math.exp(np.log(SIZES).mean())
    assert np.log(found.at(middle)) == pytest.approx([1.1 - 0.1 * t, 1.1, 1.1 + 0.1 * t])
    assert found.crossing(math.exp(0.6)).n == pytest.approx(middle * math.e)
    pooled = np.polyfit(np.tile(np.log(SIZES), 2), np.log(found.values).ravel(), 1)[0]
    assert -found.rate == pytest.approx(pooled)


@given(
    st.floats(-1.0, 0.3),
    st.floats(0.001, 0.1),
    st.floats(-4.0, 4.0),
    st.integers(0, 10**6),
    st.integers(3, 8),
)
def test_the_crossing_agrees_with_a_search_along_the_band(slope, noise, depth, seed, orderings):
    rng = np.random.default_rng(seed)
    y = slope * np.log(SIZES) + noise * rng.standard_normal((orderings, 4))
    found = fit_decay(SIZES, np.exp(y))
    target = float(found.at(SIZES[-1])[1] * math.exp(-depth))
    n, low, high = found.crossing(target)
    grid = np.exp(np.linspace(-40.0, 60.0, 20001))
    bottom, line, top = found.at(grid)
    holds, step = np.flatnonzero((bottom <= target) & (target <= top)), 1.0051
    if grid[0] * 2 < n < grid[-1] / 2:
        assert grid[line <= target][0] == pytest.approx(n, rel=step - 1)
    if low > 0 or high < np.inf:  # otherwise: cannot tell
        assert set(np.flatnonzero((grid > low * step) & (grid < high / step))) <= set(holds)
    falls, grows = found.rate_interval[0] > 0, found.rate_interval[1] < 0
    if falls and len(holds) and holds[0] > 0 and holds[-1] < len(grid) - 1:
        assert (low, high) == pytest.approx((grid[holds[0]], grid[holds[-1]]), rel=step - 1)
    if not falls and not grows:
        bottom, _, top = found.at(math.exp(found.centre))
        assert (low == 0 and high == np.inf) == (bottom <= target <= top)
    assert not grows or n in (0.0, np.inf)


@given(st.floats(0.05, 1.0), st.floats(1.01, 3.0), st.floats(0.01, 0.99))
def test_a_faster_decay_needs_less(rate, faster, share):
    n = SIZES / SIZES[-1]
    slow, fast = (
        fit_decay(SIZES, np.stack([n**-r] * 2)).crossing(share).n for r in (rate, rate * faster)
    )
    assert fast <= slow * (1 + 1e-9)


def test_a_decay_that_flattens_out_is_seen():
    rng = np.random.default_rng(0)
    noise = np.exp(0.01 * rng.standard_normal((8, 4)))
    assert fit_decay(SIZES, (SIZES**-0.5 + 0.1) * noise).flattening < 0.001
    assert fit_decay(SIZES, SIZES**-0.5 * noise).flattening > 0.01


@pytest.mark.parametrize("values", [np.ones((1, 4)), np.zeros((2, 4)), np.ones((2, 3))])
def test_too_little_for_a_line(values):
    with pytest.raises(pp.errors.DataError, match="fit_decay"):
        fit_decay(SIZES, values)
