"""The exact fit of 100,000 rows by 20 lags against the normal equations on the same arrays."""

import tracemalloc
from dataclasses import replace

import numpy as np

from pulse_pyro._pyro.inference import Exact
from pulse_pyro.data.history import History
from pulse_pyro.laws.law import FitData
from pulse_pyro.laws.linear import linear_lags
from tests.benchmarks.timing import best_of

LAGS, UNITS, ROWS = 20, 100, 1000
LAW = linear_lags(LAGS)


def archive():
    rng = np.random.default_rng(0)
    s = rng.standard_normal((UNITS, ROWS + LAGS - 1, 1))
    x = LAW.summary(s)
    w = np.nan_to_num(x) @ rng.standard_normal((LAGS, 1)) + 0.1 * rng.standard_normal(s.shape)
    names = tuple(f"u{i}" for i in range(UNITS))
    return History.from_arrays(s, w, units=names, s_names=("s",), w_names=("w",))


HISTORY = archive()
DATA = HISTORY.rows(LAW.summary)
X = np.ascontiguousarray((DATA.x - DATA.x.mean(0)) / DATA.x.std(0))
Y = np.ascontiguousarray((DATA.w - DATA.w.mean(0)) / DATA.w.std(0))


def normal_equations():
    return np.linalg.solve(X.T @ X, X.T @ Y)


def exact():
    data = FitData.raw(replace(DATA, x=X, w=Y))
    return LAW.family.fit(data, Exact(), 0)[1].draws


def whole():
    return LAW.fit(HISTORY, Exact(), seed=0)


def test_the_exact_fit_takes_at_most_three_times_the_normal_equations():
    assert X.shape == (UNITS * ROWS, LAGS)
    ridge = LAW.family.prior.slope_sd(LAGS) ** -2 * np.eye(LAGS)
    by_hand = np.linalg.solve(X.T @ X + ridge, X.T @ Y)
    np.testing.assert_allclose(exact()["coef"].mean(0)[1:], by_hand, rtol=1e-8)
    least = best_of(30, exact=exact, whole=whole, normal=normal_equations)
    ratio = {name: seconds / least["normal"] for name, seconds in least.items()}
    print(
        f"\nexact fit of {len(X)} rows x {LAGS} lags: normal equations "
        f"{1e3 * least['normal']:.1f} ms; LinearFamily.exact with its sums "
        f"{1e3 * least['exact']:.1f} ms, {ratio['exact']:.2f} times (bar 3); Law.fit from a "
        f"History {1e3 * least['whole']:.1f} ms, {ratio['whole']:.2f} times"
    )
    assert ratio["exact"] <= 3


def test_the_exact_fit_needs_less_than_three_times_the_memory_of_its_data():
    whole()
    tracemalloc.start()
    try:
        whole()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    ratio = peak / (X.nbytes + Y.nbytes)
    print(
        f"\nexact fit: peak memory of Law.fit {peak / 1e6:.1f} MB, X and y "
        f"{(X.nbytes + Y.nbytes) / 1e6:.1f} MB: {ratio:.2f} times the data (bar 3)"
    )
    assert ratio < 3
