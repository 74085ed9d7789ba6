import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from pulse_pyro._core.errors import SettingError
from pulse_pyro.laws.conjugate import Conjugate, Flat, LinearKernel, exact_draws, gram, reduced_form
from tests.helpers import FALSE_ALARM, assert_mean

CHECK = settings(deadline=None, derandomize=True)
PRIOR = Conjugate(slope=2.0, intercept=3.0, residual=0.7)


def data(n, p, q, seed=0):
    """Centred x (n, p), and w (n, q) that depends on x and whose residuals are correlated."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, p)) @ (np.eye(p) + 0.4)
    noise = rng.standard_normal((n, q)) @ (np.tril(np.ones((q, q))) * [1.0, 0.5, 2.0][:q]).T
    w = x @ rng.standard_normal((p, q)) + noise
    return x - x.mean(0), w - w.mean(0)


def posterior(x, w, prior=PRIOR, draws=20_000, seed=1):
    rows = np.column_stack([np.ones(len(x)), x, w])
    return exact_draws(rows.T @ rows, w.shape[1], prior, draws, np.random.default_rng(seed))


def covariance(draws):
    """Sigma = T^-1 diag(v) T^-T of every draw."""
    inverse = np.linalg.inv(reduced_form(draws)[1])
    return inverse * draws["variance"][:, None, :] @ np.swapaxes(inverse, 1, 2)


class Oracle:
    """Matrix-normal inverse-Wishart posterior of w = (1, x) B + noise, prior df q + 1."""

    def __init__(self, x, w, prior=PRIOR):
        n, p, q = len(x), x.shape[1], w.shape[1]
        design = np.column_stack([np.ones(n), x])
        precision = np.diag([prior.intercept**-2] + [prior.slope_sd(p) ** -2] * p)
        self.lam = design.T @ design + precision
        self.mean = np.linalg.solve(self.lam, design.T @ w)
        self.df = q + 1 + n
        self.psi = prior.residual**2 * np.eye(q) + w.T @ w - self.mean.T @ self.lam @ self.mean
        self.sigma = self.psi / (self.df - q - 1)


@pytest.fixture(scope="module")
def one():
    x, w = data(15, 2, 1)
    return posterior(x, w), Oracle(x, w)


def test_one_w_has_the_inverse_gamma_variance_of_the_textbook(one):
    draws, oracle = one
    law = stats.invgamma(1 + 15 / 2, scale=oracle.psi[0, 0] / 2)
    assert stats.kstest(draws["variance"][:, 0], law.cdf).pvalue > FALSE_ALARM


def test_one_w_has_the_student_coefficients_of_the_textbook(one):
    (draws, oracle), df = one, 2 + 15
    scale = np.sqrt(oracle.psi[0, 0] / df * np.diag(np.linalg.inv(oracle.lam)))
    for j in range(3):
        law = stats.t(df, loc=oracle.mean[j, 0], scale=scale[j])
        assert stats.kstest(draws["coef"][:, j, 0], law.cdf).pvalue > FALSE_ALARM / 3


def test_coefficients_scatter_as_variance_times_inverse_design(one):
    draws, oracle = one
    centred = draws["coef"][..., 0] - oracle.mean[:, 0]
    white = centred[:, :, None] * centred[:, None, :] / draws["variance"][..., None]
    assert_mean(white, np.linalg.inv(oracle.lam))


def test_one_observation_by_hand():
    # x = 0, w = 0: v ~ InverseGamma(3/2, psi/2), intercept | v ~ N(0, v / (1 + 1/9))
    draws = posterior(np.zeros((1, 1)), np.zeros((1, 1)))
    law = stats.invgamma(1.5, scale=0.49 / 2)
    assert stats.kstest(draws["variance"][:, 0], law.cdf).pvalue > FALSE_ALARM
    z = draws["coef"][:, :, 0] / np.sqrt(draws["variance"])
    assert_mean(z**2, [0.9, 4.0])


@pytest.fixture(scope="module")
def three():
    x, w = data(60, 2, 3)
    return x, w, posterior(x, w), Oracle(x, w)


@pytest.mark.parametrize("count", [2, 50, 20_000])
def test_several_w_have_the_exact_posterior_mean(three, count):
    x, w, _, oracle = three
    draws = posterior(x, w, draws=count)
    np.testing.assert_allclose(reduced_form(draws)[0].mean(0), oracle.mean, rtol=0, atol=1e-10)
    np.testing.assert_allclose(LinearKernel(draws).mean_coef, oracle.mean, rtol=0, atol=1e-10)


def test_several_w_have_the_inverse_wishart_mean_and_mean_precision(three):
    sigma, oracle = covariance(three[2]), three[3]
    assert_mean(sigma, oracle.sigma)
    assert_mean(np.linalg.inv(sigma), oracle.df * np.linalg.inv(oracle.psi))


def test_coefficients_of_several_w_have_the_kronecker_covariance(three):
    _, _, draws, oracle = three
    centred = (reduced_form(draws)[0] - oracle.mean).reshape(len(draws["coef"]), -1)
    expected = np.kron(np.linalg.inv(oracle.lam), oracle.sigma)
    assert_mean(centred[:, :, None] * centred[:, None, :], expected)


def test_the_order_of_the_w_columns_does_not_matter(three):
    x, w, _, oracle = three
    order = [2, 0, 1]
    draws = posterior(x, w[:, order], seed=7)
    np.testing.assert_allclose(LinearKernel(draws).mean_coef, oracle.mean[:, order], atol=1e-10)
    assert_mean(covariance(draws), oracle.sigma[np.ix_(order, order)])
    for j, k in enumerate(order):
        law = stats.invgamma((oracle.df - 2) / 2, scale=oracle.psi[k, k] / 2)
        assert stats.kstest(covariance(draws)[:, j, j], law.cdf).pvalue > FALSE_ALARM / 3


def test_sampled_w_has_the_mean_and_covariance_of_its_draw(three):
    kernel, index = LinearKernel(three[2]), np.full(20_000, 5)
    x = np.array([[0.3, -1.0], [2.0, 0.0]])
    sample = kernel.sample(x, index, np.random.default_rng(0))
    mean = np.column_stack([np.ones(2), x]) @ kernel.coef[5]
    assert_mean(sample, mean)
    np.testing.assert_allclose(kernel.mean_draws(x, index[:1])[0], mean)
    centred = sample - mean
    assert_mean(centred[..., :, None] * centred[..., None, :], [covariance(three[2])[5]] * 2)


def least_squares(x, w):
    return np.linalg.lstsq(np.column_stack([np.ones(len(x)), x]), w, rcond=None)[0]


@pytest.mark.parametrize("q", [1, 3])
def test_flat_is_least_squares(q):
    x, w = data(30, 3, q)
    kernel = LinearKernel(posterior(x, w, Flat(), draws=50))
    np.testing.assert_allclose(kernel.mean_coef, least_squares(x, w), atol=1e-10)


@pytest.mark.parametrize("q", [1, 3])
@pytest.mark.parametrize("shape", ["twin column", "fewer rows than columns", "constant column"])
def test_flat_has_minimum_norm_when_the_rows_do_not_span(q, shape):
    x, w = data(4 if shape.startswith("fewer") else 30, 6, q)
    if shape.startswith("twin"):
        x[:, 1] = x[:, 0]
    if shape.startswith("constant"):
        x[:, 2] = 0.0
    kernel = LinearKernel(posterior(x, w, Flat(), draws=50))
    np.testing.assert_allclose(kernel.mean_coef, least_squares(x, w), atol=1e-8)


def test_flat_has_the_textbook_variance_and_standard_errors():
    x, w = data(12, 2, 1)
    draws = posterior(x, w, Flat())
    design = np.column_stack([np.ones(12), x])
    rest = ((w - design @ least_squares(x, w)) ** 2).sum()
    law = stats.invgamma((12 - 3) / 2, scale=rest / 2)
    assert stats.kstest(draws["variance"][:, 0], law.cdf).pvalue > FALSE_ALARM
    centred = draws["coef"][..., 0] - least_squares(x, w)[:, 0]
    expected = np.diag(np.linalg.inv(design.T @ design))
    assert_mean(centred**2 / draws["variance"], expected)


@CHECK
@given(st.integers(1, 40), st.integers(0, 99), st.sampled_from([0.0, 1e3, 1e6]))
def test_gram_is_the_centred_gram(n, seed, shift):
    z = np.random.default_rng(seed).standard_normal((n, 4)) + shift
    centred = z - z.mean(0)
    mean, moment = gram(z[:, :3], z[:, 3:])
    np.testing.assert_allclose(mean, z.mean(0), rtol=1e-14, atol=1e-14)
    np.testing.assert_allclose(moment, centred.T @ centred, rtol=0, atol=1e-7)


def test_gram_holds_over_many_blocks_with_a_drift():
    drift = np.linspace(1e6, 1e6 + 5, 20_001)[:, None]
    z = drift + np.random.default_rng(0).standard_normal((20_001, 2))
    centred = z - z.mean(0)
    mean, moment = gram(z[:, :1], z[:, 1:])
    np.testing.assert_allclose(mean, z.mean(0), rtol=1e-14)
    np.testing.assert_allclose(moment, centred.T @ centred, rtol=1e-9)


@pytest.mark.parametrize("name", ["slope", "intercept", "residual"])
@pytest.mark.parametrize("value", [0.0, -1.0, np.nan, np.inf])
def test_a_prior_scale_must_be_positive(name, value):
    with pytest.raises(SettingError, match=f"Conjugate: {name}"):
        Conjugate(**{name: value})


def test_a_prior_scale_must_be_a_number():
    with pytest.raises(SettingError, match="slope must be a number"):
        Conjugate(slope="x")
