"""The filter against brute force: write down the joint normal, condition on what is seen."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

from pulse_pyro.laws.varma import Process, advance, filtered, log_likelihood, observe

ORDERS = [(0, 0), (1, 0), (0, 2), (2, 2), (3, 1)]


def process(d, p, q, seed=0, radius=0.7):
    """Coefficients drawn at random, A_i shrunk until the companion matrix has that radius."""
    rng = np.random.default_rng([seed, d, p, q])
    ar, ma = rng.standard_normal((p, d, d)), 0.7 * rng.standard_normal((q, d, d))
    root = np.tril(rng.standard_normal((d, d)), -1) + np.diag(rng.uniform(0.3, 1.5, d))
    if p:
        companion = np.eye(p * d, k=-d)
        companion[:d] = np.hstack(ar)
        # A_i c^i has the eigenvalues of A_i times c
        ar *= (radius / np.abs(np.linalg.eigvals(companion)).max()) ** np.arange(1, p + 1)[
            :, None, None
        ]
    return Process(ar, ma, root @ root.T)


def autocovariance(model, lag, terms=250):
    """E[S_t S_{t-lag}'] from the moving-average form: no state, no Lyapunov equation."""
    psi = []
    for j in range(terms + lag):
        now = np.eye(len(model.noise)) if j == 0 else np.zeros_like(model.noise)
        if 1 <= j <= len(model.ma):
            now = now + model.ma[j - 1]
        for i, a in enumerate(model.ar, 1):
            if i <= j:
                now = now + a @ psi[j - i]
        psi.append(now)
    return sum(psi[j + lag] @ model.noise @ psi[j].T for j in range(terms))


def joint(model, times):
    """Covariance of (S_0, ..., S_{times-1}), time by time."""
    gamma = [autocovariance(model, lag) for lag in range(times)]
    return np.block(
        [[gamma[i - j] if i >= j else gamma[j - i].T for j in range(times)] for i in range(times)]
    )


def conditioned(model, s, first, count, coef):
    """What ``filtered`` must return for one series s (time, d), by Gaussian conditioning."""
    time, d = s.shape
    before = first + count  # rows of the past that the first windows reach into
    cov = joint(model, before + time)
    flat = np.concatenate([np.full(before * d, np.nan), s.ravel()])
    means, left = [], []
    for t in range(time):
        now = before + t
        seen = np.flatnonzero(~np.isnan(flat[: (now + 1) * d]))
        lags = [now - first - j for j in range(count)]
        at = np.concatenate([np.arange(lag * d, lag * d + d) for lag in lags])
        gain = np.linalg.solve(cov[np.ix_(seen, seen)], cov[np.ix_(seen, at)]).T
        means.append(gain @ flat[seen])
        left.append(coef.T @ (cov[np.ix_(at, at)] - gain @ cov[np.ix_(seen, at)]) @ coef)
    return np.array(means), np.array(left)


def masked(model, shape, rng, rate):
    s = rng.standard_normal(shape) @ np.linalg.cholesky(autocovariance(model, 0)).T
    s[rng.random(shape) < rate] = np.nan
    return s


@pytest.mark.parametrize(("first", "count"), [(0, 1), (0, 5), (1, 2), (4, 1)])
@pytest.mark.parametrize("orders", ORDERS, ids=str)
@pytest.mark.parametrize("d", [1, 2, 3])
def test_the_filter_is_gaussian_conditioning(d, orders, first, count):
    model, rng = process(d, *orders), np.random.default_rng(0)
    s = masked(model, (2, 9, d), rng, 0.4)
    coef = rng.standard_normal((count * d, 2))
    mean, var = filtered(model, s, first, count, coef)
    for b in range(2):
        expected, left = conditioned(model, s[b], first, count, coef)
        assert_allclose(mean[b], expected, rtol=0, atol=1e-9)
        assert_allclose(var[b], left, rtol=0, atol=1e-9)


@given(
    st.integers(1, 3),
    st.sampled_from(ORDERS),
    st.integers(0, 3),
    st.integers(1, 5),
    st.integers(1, 8),
    st.sampled_from([0.0, 0.3, 0.7, 1.0]),
    st.integers(0, 999),
)
def test_the_filter_is_gaussian_conditioning_whatever_is_missing(
    d, orders, first, count, time, rate, seed
):
    model, rng = process(d, *orders, seed=seed), np.random.default_rng(seed)
    s, coef = masked(model, (1, time, d), rng, rate), rng.standard_normal((count * d, 1))
    mean, var = filtered(model, s, first, count, coef)
    expected, left = conditioned(model, s[0], first, count, coef)
    assert_allclose(mean[0], expected, rtol=0, atol=1e-8)
    assert_allclose(var[0], left, rtol=0, atol=1e-8 * (1 + np.abs(left).max()))


@pytest.mark.parametrize("rate", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("orders", ORDERS, ids=str)
@pytest.mark.parametrize("d", [1, 2, 3])
def test_the_likelihood_is_the_density_of_what_is_seen(d, orders, rate):
    model = process(d, *orders)
    s = masked(model, (3, 8, d), np.random.default_rng(1), rate)
    cov, expected = joint(model, 8), np.zeros(3)
    for b in range(3):
        seen = ~np.isnan(s[b].ravel())
        if seen.any():
            law = stats.multivariate_normal(cov=cov[np.ix_(seen, seen)])
            expected[b] = law.logpdf(s[b].ravel()[seen])
    assert_allclose(log_likelihood(model, s), expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("lags", [0, 1, 2, 6])
@pytest.mark.parametrize("orders", ORDERS, ids=str)
@pytest.mark.parametrize("d", [1, 3])
def test_the_start_solves_its_lyapunov_equation(d, orders, lags):
    (p, q), model = orders, process(d, *orders)
    top, cov = model.start(lags)
    k = max(lags, p, 1)
    assert cov.shape == (d * (k + q), d * (k + q))
    move, shock = np.zeros_like(cov), np.zeros((len(cov), d))
    shock[:d] = np.eye(d)
    for i in range(p):
        move[:d, i * d : (i + 1) * d] = model.ar[i]
    for j in range(q):
        move[:d, (k + j) * d : (k + j + 1) * d] = model.ma[j]
    assert_array_equal(top, move[:d])
    for i in range(1, k):
        move[i * d : (i + 1) * d, (i - 1) * d : i * d] = np.eye(d)
    for j in range(1, q):
        move[(k + j) * d : (k + j + 1) * d, (k + j - 1) * d : (k + j) * d] = np.eye(d)
    if q:
        shock[k * d : (k + 1) * d] = np.eye(d)
    assert_allclose(cov, move @ cov @ move.T + shock @ model.noise @ shock.T, rtol=0, atol=1e-10)
    for lag in range(k):
        assert_allclose(cov[:d, lag * d : (lag + 1) * d], autocovariance(model, lag), atol=1e-10)


def test_the_autocovariances_of_the_papers_arma_by_hand():
    # g0 - .75 g1 + .25 g2 = 1 + .65 psi1 + .35 psi2, with psi1 = 1.4, psi2 = 1.15
    # g1 - .75 g0 + .25 g1 = .65 + .35 psi1,  g2 - .75 g1 + .25 g0 = .35
    left = [[1, -0.75, 0.25], [-0.75, 1.25, 0], [0.25, -0.75, 1]]
    gamma = list(np.linalg.solve(left, [1 + 0.65 * 1.4 + 0.35 * 1.15, 0.65 + 0.35 * 1.4, 0.35]))
    for _ in range(5):
        gamma.append(0.75 * gamma[-1] - 0.25 * gamma[-2])
    ar, ma = np.array([0.75, -0.25]), np.array([0.65, 0.35])
    model = Process(ar[:, None, None], ma[:, None, None], np.eye(1))
    assert_allclose(model.start(8)[1][0, :8], gamma, rtol=1e-12)
    assert_allclose(model.radius, 0.5, rtol=1e-12)  # roots of z^2 - .75 z + .25: modulus sqrt(.25)


def test_one_gap_in_an_ar1_by_hand():
    model = Process(np.array([[[0.5]]]), np.empty((0, 1, 1)), np.eye(1))
    mean, var = filtered(model, np.array([[[2.0], [np.nan], [1.0]]]), 0, 2, np.array([[1.0], [0]]))
    # S_1 | S_0, S_2 has mean .5 (S_0 + S_2) / 1.25 and variance 1 / 1.25
    assert_allclose(mean[0], [[2, 1], [1, 2], [1, 1.2]], rtol=1e-12)
    assert_allclose(var[0, :, 0, 0], [0, 1, 0], atol=1e-12)
    _, lag = filtered(model, np.array([[[2.0], [np.nan], [1.0]]]), 1, 1, np.eye(1))
    assert_allclose(lag[0, :, 0, 0], [1, 0, 0.8], atol=1e-12)  # 4/3 - (2/3)^2 / (4/3) = 1


@given(st.sampled_from(ORDERS), st.integers(0, 99), st.integers(0, 7))
def test_the_filter_does_not_look_ahead(orders, seed, t):
    model, rng = process(2, *orders), np.random.default_rng(seed)
    s, coef = masked(model, (1, 8, 2), rng, 0.3), rng.standard_normal((6, 1))
    other = s.copy()
    other[:, t + 1 :] = masked(model, (1, 7 - t, 2), rng, 0.5)
    both = zip(filtered(model, s, 0, 3, coef), filtered(model, other, 0, 3, coef), strict=True)
    for one, two in both:
        assert_array_equal(one[:, : t + 1], two[:, : t + 1])


@given(st.sampled_from(ORDERS), st.integers(0, 99), st.floats(0.01, 100))
def test_units_and_the_order_of_columns_do_not_matter(orders, seed, scale):
    model, rng = process(3, *orders), np.random.default_rng(seed)
    s, coef = masked(model, (1, 7, 3), rng, 0.4), np.eye(3)
    order = np.array([2, 0, 1])
    change = scale * np.eye(3)[order]
    twin = Process(
        change @ model.ar @ change.T / scale**2,
        change @ model.ma @ change.T / scale**2,
        change @ model.noise @ change.T,
    )
    mean, var = filtered(model, s, 0, 1, coef)
    moved, left = filtered(twin, s[..., order] * scale, 0, 1, coef)
    assert_allclose(moved, mean[..., order] * scale, rtol=1e-7, atol=1e-9 * scale)
    assert_allclose(left, var[..., order, :][..., order] * scale**2, rtol=0, atol=1e-8 * scale**2)
    shift = (~np.isnan(s)).sum() * np.log(scale)
    assert_allclose(log_likelihood(twin, s[..., order] * scale), log_likelihood(model, s) - shift)


def test_a_copy_of_a_column_stands_in_for_it():
    # noise of rank one: both columns are the same process
    model = Process(0.6 * np.eye(2)[None], np.empty((0, 2, 2)), np.ones((2, 2)))
    s = np.random.default_rng(0).standard_normal((1, 30, 1)) * [[1.0, np.nan]]
    mean, var = filtered(model, s, 0, 1, np.eye(2))
    assert_allclose(mean[..., 1], s[..., 0], rtol=1e-12)
    assert_allclose(var, 0, atol=1e-12)


def test_a_long_gap_ends_in_the_stationary_law_and_a_long_run_stays_a_covariance():
    model, rng = process(2, 2, 2, radius=0.99), np.random.default_rng(0)
    s = masked(model, (1, 20_000, 2), rng, 0.5)
    s[:, 12_000:16_000] = np.nan
    mean, var = filtered(model, s, 0, 3, np.eye(6))
    assert_allclose(mean[0, 15_999], 0, atol=1e-12)
    assert_allclose(var[0, 15_999], model.start(3)[1][:6, :6], rtol=1e-8)
    assert np.linalg.eigvalsh(var[0]).min() >= -1e-9
    # what was before has been forgotten: the tail is as if the series began there
    fresh, _ = filtered(model, s[:, 19_000:], 0, 3, np.eye(6))
    assert_allclose(mean[0, -1], fresh[0, -1], atol=1e-9)


def test_step_by_step_is_the_batch_and_the_input_is_left_alone():
    model = process(3, 3, 1)
    s = masked(model, (1, 12, 3), np.random.default_rng(3), 0.5)
    kept = s.copy()
    mean, var = filtered(model, s, 0, 4, np.eye(12))
    top, cov = model.start(4)
    x, total = np.zeros(len(cov)), 0.0
    for t in range(12):
        if t:
            advance(x, cov, top, model.noise, 4)
        total += observe(x, cov, s[0, t])
        assert_array_equal(x[:12], mean[0, t])
        assert_allclose(cov, cov.T, atol=1e-12)
        assert_allclose(cov[:12, :12], var[0, t], atol=1e-12)
    assert_allclose(total, log_likelihood(model, s)[0], rtol=1e-12)
    assert_array_equal(s, kept)


@pytest.mark.parametrize("noise", [1e-11, 1e-13])
def test_data_the_model_rules_out_are_not_likely(noise):
    # a maximiser of the likelihood must never be paid for calling the data impossible
    s = np.random.default_rng(0).standard_normal((1, 20, 1))

    def at(q):
        return log_likelihood(Process(np.empty((0, 1, 1)), np.empty((0, 1, 1)), q * np.eye(1)), s)

    assert at(noise)[0] < at(1.0)[0]
