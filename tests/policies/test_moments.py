import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

import pulse_pyro as pp
from pulse_pyro._core.errors import DataError, FeatureError, SettingError
from pulse_pyro.policies.clbbf_ucb import archive_moments, arm_vectors, shared_context
from pulse_pyro.policies.moments import (
    Moments,
    estimate,
    impute,
    leftover_root,
    nearest_psd,
    running,
    tally,
)
from tests.helpers import assert_mean, linear_history, z_bound

Z = np.array([[[1, 2], [0.5, -1]], [[2, 1], [-0.5, 0.5]]])[None]
M = np.array([[[1, 1], [1, 0]], [[0, 1], [1, 1]]], dtype=bool)[None]


def at(moments, *index):
    return Moments._make(part[index] for part in moments)


def test_golden_sums():
    found = at(running(Z, M), 0, 1)
    assert found.total == 4
    assert_array_equal(found.seen, [3, 3])
    assert_array_equal(found.pairs, [[3, 2], [2, 3]])
    assert_allclose(found.first, [1, 3.5])
    assert_allclose(found.second, [[1.5, 1.75], [1.75, 5.25]])


def test_golden_common_rate():
    found = estimate(at(running(Z, M), 0, 1), "common")
    assert_allclose(found.rate, 0.75)
    assert_allclose(found.mean, [1 / 3, 7 / 6])
    assert_allclose(found.cov, np.full((2, 2), 7 / 18), atol=1e-12)
    filled = impute(np.array([[0.5, np.nan]]), np.array([[True, False]]), found.mean, found.cov)
    assert_allclose(filled, [[0.5, 4 / 3]])


def test_golden_rate_of_each_coordinate_is_projected():
    sums = at(running(Z, M), 0, 1)
    found = estimate(sums)
    assert_allclose(found.mean, [1 / 3, 7 / 6])
    assert_allclose(found.rate, 0.75)
    # the raw matrix [[7/18, 35/72], [35/72, 7/18]] has eigenvalues 63/72 and -7/72
    assert_allclose(sums.second[0, 1] / 2 - 7 / 18, 35 / 72)
    assert_allclose(found.cov, np.full((2, 2), 63 / 144))


def test_the_first_round_has_only_its_own_vectors():
    found = at(running(Z, M), 0, 0)
    assert (found.total, *found.first, *found.seen) == (2, 1.5, 2.0, 2, 1)


@pytest.mark.parametrize("rates", ["each", "common"])
def test_without_gaps_both_are_the_sample_moments(rates):
    x = np.random.default_rng(0).standard_normal((3, 7, 4, 2)) + 1.0
    found = estimate(running(x, np.ones(x.shape, bool)), rates)
    for run, t in ((0, 0), (1, 3), (2, 6)):
        rows = x[run, : t + 1].reshape(-1, 2)
        assert_allclose(found.mean[run, t], rows.mean(0))
        assert_allclose(found.cov[run, t], np.cov(rows.T, bias=True), atol=1e-12)
    assert_array_equal(found.rate, 1.0)


@given(st.integers(0, 10_000))
def test_what_is_hidden_never_matters(seed):
    rng = np.random.default_rng(seed)
    x, mask = rng.standard_normal((2, 4, 3, 3)), rng.random((2, 4, 3, 3)) < 0.6
    other = np.where(mask, x, rng.choice([np.nan, np.inf, -np.inf, 1e300], x.shape))
    for rates in ("each", "common"):
        one, two = (estimate(running(v, mask), rates) for v in (x, other))
        for a, b in zip(one, two, strict=True):
            assert_array_equal(a, b)
        filled = impute(x, mask, one.mean, one.cov)
        assert_array_equal(filled, impute(other, mask, one.mean, one.cov))
        assert_array_equal(filled[mask], x[mask])
        assert np.isfinite(filled).all()


@given(st.integers(0, 10_000))
def test_the_projected_covariance_is_the_nearest_psd_matrix(seed):
    rng = np.random.default_rng(seed)
    a = rng.standard_normal((5, 4, 4))
    a = a + np.swapaxes(a, 1, 2)
    a[:, 2] = a[:, :, 2] = 0.0
    found = nearest_psd(a)
    assert not found[:, 2].any()  # not even by rounding
    assert not found[:, :, 2].any()
    scale = np.abs(a).max()
    assert np.linalg.eigvalsh(found).min() >= -1e-12 * scale
    # optimality: a - found is negative semidefinite and orthogonal to found
    assert np.linalg.eigvalsh(a - found).max() <= 1e-12 * scale
    assert_allclose(np.einsum("nij,nij->n", a - found, found), 0.0, atol=1e-11 * scale**2)


def test_a_psd_matrix_is_left_alone():
    a = np.array([[2.0, 1.0], [1.0, 2.0]])
    assert_array_equal(nearest_psd(a), a)


def test_coordinates_never_observed_and_pairs_never_seen_together_count_as_0():
    x = np.array([[1.0, 9.0, 4.0], [3.0, 9.0, 4.0], [9.0, 9.0, 6.0]])
    mask = np.array([[1, 0, 0], [1, 0, 0], [0, 0, 1]], dtype=bool)
    found = estimate(tally(x, mask))
    assert_allclose(found.mean, [2, 0, 6])
    assert_allclose(found.cov, np.diag([1.0, 0, 0]))
    assert_allclose(found.rate, 1 / 3)  # of the coordinates ever observed
    nothing = estimate(tally(x, np.zeros_like(mask)))
    assert not nothing.mean.any()
    assert not nothing.cov.any()
    assert_allclose(nothing.rate, 1 / 3)


def masked_normal(rates, n=400, reps=2000):
    rng = np.random.default_rng(5)
    mean, cov = np.array([1.0, -0.5]), np.array([[1.0, 0.6], [0.6, 2.0]])
    x = rng.multivariate_normal(mean, cov, size=(reps, n))
    return x, rng.random(x.shape) < rates, mean, cov


def test_unequal_rates_give_consistent_estimates_and_one_common_rate_does_not():
    x, mask, mean, cov = masked_normal((0.9, 0.3))
    sums = tally(x, mask)
    each, common = estimate(sums), estimate(sums, "common")
    assert_mean(each.mean, mean)
    # E[nu_i nu_j] is off by the covariance of the means: n_ij / (n_i n_j) Sigma_ij, known exactly
    pairs, seen = sums.pairs, sums.seen
    bias = pairs / (seen[:, :, None] * seen[:, None, :]) * cov
    assert_mean(each.cov + bias, cov)
    z = np.abs(common.mean.mean(0) - mean) / (common.mean.std(0) / np.sqrt(len(x)))
    assert z.min() > z_bound()


def test_equal_rates_give_a_mean_without_bias_under_one_common_rate():
    x, mask, mean, _ = masked_normal((0.6, 0.6))
    # given the masks nu_j = mu_j d n_j / n on average, and d n_j / n is 1 by symmetry: no bias
    assert_mean(estimate(tally(x, mask), "common").mean, mean)


def test_imputation_by_hand():
    cov = np.array([[4.0, 2.0, 1.0], [2.0, 5.0, 3.0], [1.0, 3.0, 6.0]])
    mean = np.array([1.0, 2.0, 3.0])
    x = np.array([[3.0, 0, 0], [0, 0, 0], [3, 4, 5], [3, 4, 0]])
    mask = np.array([[1, 0, 0], [0, 0, 0], [1, 1, 1], [1, 1, 0]], dtype=bool)
    last = 3 + np.array([1.0, 3.0]) @ np.linalg.solve(cov[:2, :2], [2.0, 2.0])
    expected = [[3, 3, 3.5], [1, 2, 3], [3, 4, 5], [3, 4, last]]
    assert_allclose(impute(x, mask, mean, cov), expected)
    root = leftover_root(mask, cov)
    assert_allclose(root[1] @ root[1], cov)
    assert_allclose((root[0] @ root[0])[1:, 1:], [[4.0, 2.5], [2.5, 5.75]])
    assert not root[0][0].any()
    assert not root[2].any()


def test_a_singular_block_is_handled_by_its_pseudo_inverse():
    cov = np.array([[1.0, 1.0, 0.5], [1.0, 1.0, 0.5], [0.5, 0.5, 1.0]])  # first two are one
    mask = np.array([[True, True, False]])
    found = impute(np.array([[0.8, 0.8, np.nan]]), mask, np.zeros(3), cov)
    assert_allclose(found[0, 2], 0.4)


@pytest.mark.parametrize("w_dim", [1, 2])
def test_moments_of_an_archive_impute_like_least_squares(w_dim):
    history, _ = linear_history(units=60, lags=3, w_dim=w_dim)
    rows = history.rows(pp.Lags(3))
    design = np.column_stack([np.ones(len(rows.x)), rows.x])
    fitted = design @ np.linalg.lstsq(design, rows.w)[0]
    found = estimate(archive_moments(history, pp.Lags(3)))
    y = np.concatenate([rows.x, np.full_like(rows.w, np.nan)], -1)[None]
    filled = impute(y, ~np.isnan(y), found.mean, found.cov)[0, :, 3:]
    assert_allclose(filled, fitted, rtol=1e-8, atol=1e-9)


def test_sums_that_start_from_an_archive_are_the_sums_of_everything():
    rng = np.random.default_rng(1)
    x, mask = rng.standard_normal((2, 5, 1, 3)), rng.random((2, 5, 1, 3)) < 0.7
    old = rng.standard_normal((2, 8, 3))
    start = tally(old, np.ones(old.shape, bool))
    both = np.concatenate([old[:, None], x.reshape(2, 1, 5, 3)], 2)
    known = np.concatenate([np.ones((2, 1, 8, 3), bool), mask.reshape(2, 1, 5, 3)], 2)
    for one, two in zip(running(x, mask, start), running(both, known), strict=True):
        assert_allclose(one[:, -1], two[:, -1])


def test_a_shared_context_has_s_its_past_and_a_hidden_w():
    s = np.arange(12.0).reshape(2, 6, 1)
    found = shared_context(s, 2, 3, pp.Lags(2))  # lag0 repeats S_t and is left out
    assert_array_equal(found.y[0, :, :2], [[3, 2], [4, 3], [5, 4]])
    assert_array_equal(found.mask[0, 0], [True, True, False, False])
    later = shared_context(s, 1, 3, pp.Lags(2, start=1))
    assert_array_equal(later.y[0, :, :3], [[3, 2, 1], [4, 3, 2], [5, 4, 3]])
    assert shared_context(s, 1, 3).y.shape == (2, 3, 2)


def test_arm_vectors_hide_every_function_of_w():
    s = np.random.default_rng(0).standard_normal((2, 5, 1))
    s[1, 2] = np.nan
    x, mask = arm_vectors(pp.envs.main_linear().features, s, 1)
    seen = np.isfinite(s[..., 0])
    assert_array_equal(mask, np.stack([seen, seen & False, seen], -1)[:, :, None].repeat(2, 2))
    assert_array_equal(x[0, :, 1, 2], s[0, :, 0])
    _, mask = arm_vectors(pp.envs.w_times_action().features, s, 1)
    assert_array_equal(mask[0], np.broadcast_to([True, False, False], (5, 2, 3)))


def test_bad_input_gets_a_sentence():
    x, mask = np.ones((2, 3, 2)), np.ones((2, 3, 2), dtype=bool)
    for bad in ((x, mask[:1]), (x, mask * 1.0), (x[0, 0], mask[0, 0]), (x[:, :0], mask[:, :0])):
        with pytest.raises(FeatureError, match="True = observed"):
            tally(*bad)
    with pytest.raises(FeatureError, match=r"x\[0, 1, 0\] is nan but is marked observed"):
        tally(np.where(np.arange(12).reshape(2, 3, 2) == 2, np.nan, x), mask)
    with pytest.raises(FeatureError, match="rescale"):
        tally(x * 1e200, mask)
    with pytest.raises(SettingError, match="'each'"):
        estimate(tally(x, mask), "Each")
    with pytest.raises(SettingError, match="need a mean"):
        impute(x, mask, np.zeros((1, 2)), np.zeros((2, 2, 2)))
    with pytest.raises(SettingError, match=r"start\.total"):
        running(x[None], mask[None], tally(x, mask))
    with pytest.raises(SettingError, match="nothing to freeze"):
        running(x[None], mask[None], frozen=True)
    with pytest.raises(SettingError, match="rounds that are played"):
        shared_context(x, 1, 4)
    with pytest.raises(DataError, match="No complete row"):
        archive_moments(linear_history(units=2, time=3)[0], pp.Lags(9))
    constant = pp.Features(lambda s, w, a: np.ones((len(s), 1)), 2, ("1",))
    with pytest.raises(FeatureError, match="besides the constant"):
        arm_vectors(constant, x, 1)
    infinite = pp.Features(lambda s, w, a: 1 / (s - 1) + a, 2, ("1", "2"))
    with pytest.raises(FeatureError, match="not finite at a finite s"):
        arm_vectors(infinite, x, 1)
