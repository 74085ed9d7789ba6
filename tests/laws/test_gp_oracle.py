"""The Gaussian process law against the exact process: kernels and rows, no basis, no Gram matrix.

Composite kernel: constant (sd 3) + straight line (slopes sd 3) + squared-exponential + noise.
"""

import math
import os

import numpy as np
import pyro.poutine as poutine
import pytest
import torch
from scipy import stats

from pulse_pyro import Laplace, Nuts
from pulse_pyro._pyro.potential import Potential
from pulse_pyro._pyro.sandbox import sandbox
from pulse_pyro.data.history import History
from pulse_pyro.laws.gp import gaussian_process
from pulse_pyro.laws.gp_weights import (
    draw_weights,
    gp_model,
    marginal_energy,
    marginal_model,
    solve,
)
from pulse_pyro.laws.hilbert import Hilbert
from tests.helpers import FALSE_ALARM, z_bound

WIDE = 3.0  # prior sd of intercept, slopes and links
FLOOR = 1e-6  # noise the law adds to the site, so that matrices stay definite
PRIORS = {"amplitude": (-0.5, 1.0), "length": (0.0, 0.7), "variance": (-2.0, 2.0)}  # of the logs


def kernel(x, z, amplitude, length):
    """Covariance of b_0 + b'x + f(x) between rows x (n, p) and z (k, p)."""
    apart = (((x[:, None] - z) / length) ** 2).sum(-1)
    return WIDE**2 * (1 + x @ z.T) + amplitude**2 * np.exp(-0.5 * apart)


def exact(x, y, z, amplitude, length, variance):
    """Mean and covariance of b_0 + b'z + f(z) given y = b_0 + b'x + f(x) + noise."""
    noisy = kernel(x, x, amplitude, length) + (variance + FLOOR) * np.eye(len(x))
    cross = np.linalg.solve(noisy, kernel(x, z, amplitude, length)).T
    return cross @ y, kernel(z, z, amplitude, length) - cross @ kernel(x, z, amplitude, length)


def world(n, p=1, w_dim=1, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2, 2, (n, p))
    w = np.sin(2.5 * x[:, :1]) + 0.4 * x.sum(1, keepdims=True) + np.arange(w_dim) * x[:, -1:] ** 2
    return x, w + 0.3 * rng.standard_normal((n, w_dim)) @ np.tril(np.ones((w_dim, w_dim))).T


def fixed(count, **sites):
    return {k: np.broadcast_to(np.array(v), (count, *np.shape(v))) for k, v in sites.items()}


# half-range 2, box 5: at l >= 0.6 the functions left out weigh exp(-(40 pi l / 10)^2 / 2) < 1e-12,
# at l <= 0.9 the walls exp(-(6 / l)^2 / 2) < 1e-9; for two inputs (16 functions, box 4) both < 3e-5
@pytest.mark.parametrize(
    ("n", "p", "length", "close"),
    [(1000, 1, [0.7], 1e-6), (60, 1, [0.9], 1e-6), (600, 2, [0.75, 0.8], 1e-3)],
    ids=str,
)
def test_at_fixed_parameters_the_function_has_the_exact_mean_and_sd(n, p, length, close):
    x, w = world(n, p)
    basis = Hilbert.around(x, None)
    count = 2000
    given = fixed(count, amplitude=[[0.8]], length=[length], variance=[0.1])
    found = draw_weights(basis, basis.gram(x, w), given, np.random.default_rng(1))
    z = np.concatenate([np.random.default_rng(2).uniform(-2, 2, (25, p)), x[:3]])
    f = (np.column_stack([np.ones(len(z)), basis.design(z)]) @ found["coef"])[..., 0]
    mean, cov = exact(x, w[:, 0], z, 0.8, np.array(length), 0.1)
    sd = np.sqrt(np.diag(cov))
    # the draws are centred at their conditional mean, so their average carries no noise
    assert np.abs(f.mean(0) - mean).max() < close * sd.min() + 1e-9
    # a basis that is off by `close` may move a variance by as much, beside chi-square noise
    low, high = stats.chi2.ppf([FALSE_ALARM / 56, 1 - FALSE_ALARM / 56], count - 1) / (count - 1)
    ratio = f.var(0, ddof=1) / sd**2
    assert (1 - close) * low < ratio.min()
    assert ratio.max() < (1 + close) * high
    # a difference between two places comes out right only if the draws covary as they should
    apart = np.eye(len(z))[0] - np.eye(len(z))[25]
    step = (f @ apart).var(ddof=1) / (apart @ cov @ apart)
    assert (1 - close) * low < step < (1 + close) * high


def log_marginal(basis, x, w, amplitude, length, variance):
    """The factor that the law's engine sees, at given parameters."""
    values = {"amplitude": amplitude, "length": length, "variance": variance}
    with sandbox(0):
        tensors = {k: torch.tensor(v, dtype=torch.float64) for k, v in values.items()}
        model = marginal_model(basis, basis.gram(x, w), w.shape[1])
        trace = poutine.trace(poutine.condition(model, tensors)).get_trace()
        return float(trace.nodes["marginal"]["fn"].log_factor)


@pytest.mark.parametrize("amplitude", [0.3, 2.0])
@pytest.mark.parametrize("variance", [0.02, 0.5])
@pytest.mark.parametrize("length", [0.6, 0.9])
def test_the_marginal_likelihood_is_that_of_the_exact_process(amplitude, variance, length):
    x, w = world(150)
    found = log_marginal(Hilbert.around(x, None), x, w, [[amplitude]], [[length]], [variance])
    cov = kernel(x, x, amplitude, length) + (variance + FLOOR) * np.eye(len(x))
    expected = stats.multivariate_normal(np.zeros(len(x)), cov).logpdf(w[:, 0])
    assert found == pytest.approx(expected, abs=1e-5)


def test_several_w_are_exact_processes_one_after_another():
    """p(w_1, w_2 | x) = p(w_1 | x) p(w_2 | x, w_1), w_1 entering the second as one more slope."""
    x, w = world(120, w_dim=2)
    at = [[0.7], [1.1]], [[0.6], [0.9]], [0.1, 0.2]
    found = log_marginal(Hilbert.around(x, None), x, w, *at)
    expected = 0.0
    for j in range(2):
        cov = kernel(x, x, at[0][j][0], at[1][j][0]) + (at[2][j] + FLOOR) * np.eye(len(x))
        cov += WIDE**2 * w[:, :j] @ w[:, :j].T
        expected += stats.multivariate_normal(np.zeros(len(x)), cov).logpdf(w[:, j])
    assert found == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(("p", "w_dim", "size"), [(1, 1, 6), (2, 3, 3), (4, 2, 3)], ids=str)
def test_the_pyro_model_integrated_over_its_weights_is_the_marginal_model(p, w_dim, size):
    """log p is quadratic in (coef, link), so mode and Hessian give its integral exactly."""
    x, w = world(40, p, w_dim)
    basis = Hilbert.around(x, size)
    rng = np.random.default_rng(3)
    at = {
        "amplitude": rng.uniform(0.5, 1.5, (w_dim, basis.processes)),
        "length": rng.uniform(0.8, 1.5, (w_dim, p)),
        "variance": rng.uniform(0.1, 0.5, w_dim),
    }
    rows, links = 1 + p + basis.columns, w_dim * (w_dim - 1) // 2
    with sandbox(0):
        given = {k: torch.as_tensor(v) for k, v in at.items()}
        tx, tw = torch.as_tensor(x), torch.as_tensor(w)
        model = gp_model(basis, w_dim)

        def energy(flat):
            sites = given | {"coef": flat[: rows * w_dim].reshape(rows, w_dim)}
            if links:
                sites["link"] = flat[rows * w_dim :]
            trace = poutine.trace(poutine.condition(model, sites)).get_trace(tx, tw)
            return -trace.log_prob_sum()

        zero = torch.zeros(rows * w_dim + links)
        hessian = torch.autograd.functional.hessian(energy, zero)
        slope = torch.autograd.functional.jacobian(energy, zero)
        mode = -torch.linalg.solve(hessian, slope)
        joint = -energy(mode) + 0.5 * len(mode) * math.log(2 * math.pi)
        joint = float(joint - 0.5 * torch.linalg.slogdet(hessian)[1])
        short = poutine.condition(marginal_model(basis, basis.gram(x, w), w_dim), given)
        marginal = float(poutine.trace(short).get_trace().log_prob_sum())
    assert joint == pytest.approx(marginal, abs=1e-7)


def test_parameter_draws_are_used_from_all_over_the_sample():
    """Draws of a sampler come chain after chain; a large basis may thin them, not cut them off."""
    x, w = world(50, 2)
    basis = Hilbert.around(x, None)
    assert basis.columns > 128
    given = fixed(400, amplitude=[[0.8]], length=[[0.8, 0.8]])
    given["variance"] = np.repeat([0.1, 0.2], 200)[:, None]  # two chains, each with its own mean
    found = draw_weights(basis, basis.gram(x, w), given, np.random.default_rng(1))
    assert found["variance"].mean() == pytest.approx(given["variance"].mean(), rel=0.02)


def grid_posterior(x, y, axes):
    """Weights (a, l, v) of the exact process's posterior on a grid of log parameters."""
    out = np.empty([len(axis) for axis in axes])
    for i, a in enumerate(axes[0]):
        for j, le in enumerate(axes[1]):
            value, vector = np.linalg.eigh(kernel(x, x, np.exp(a), np.exp(le)))
            noisy = np.maximum(value, 0.0) + np.exp(axes[2])[:, None] + FLOOR
            out[i, j] = -0.5 * (np.log(noisy) + (vector.T @ y) ** 2 / noisy).sum(1)
    for d, name in enumerate(PRIORS):
        prior = stats.norm(*PRIORS[name]).logpdf(axes[d])
        out += prior.reshape([-1 if k == d else 1 for k in range(3)])
    out = np.exp(out - out.max())
    return out / out.sum()


@pytest.fixture(scope="module")
def small():
    """40 rows of one wiggly input, their history, and rows in the law's own units."""
    rng = np.random.default_rng(5)
    x = rng.uniform(-2, 2, (40, 1))
    w = 1.5 * np.sin(3.5 * x) + 0.3 * rng.standard_normal((40, 1))
    history = History.from_arrays(x[None], w[None], units=("u",), s_names=("s",), w_names=("w",))
    return history, (x - x.mean()) / x.std(), ((w - w.mean()) / w.std())[:, 0]


def logs_of(fitted):
    return np.column_stack([np.log(fitted.draws[k]).reshape(-1) for k in PRIORS])


FULL = 10 if os.environ.get("PULSE_FULL") else 1


@pytest.mark.parametrize("how", [Nuts(300 * FULL, 120, chains=1), Laplace(2000)], ids=repr)
def test_the_parameter_posterior_is_that_of_the_exact_process(small, how):
    history, x, y = small
    fitted = gaussian_process(1).fit(history, how, seed=0)
    draws, quality = logs_of(fitted), fitted.record.quality
    # importance resampling from a Student-t keeps about half of its proposals; a quarter is safe
    ess = min(quality.get("ess", how.draws / 4), how.draws)
    axes = [
        np.linspace(c - 7 * s, c + 7 * s, 36)
        for c, s in zip(draws.mean(0), draws.std(0), strict=True)
    ]
    weight = grid_posterior(x, y, axes)
    assert max(weight[[0, -1]].sum(), weight[:, [0, -1]].sum(), weight[..., [0, -1]].sum()) < 1e-4
    for d in range(3):
        one = weight.sum(tuple(k for k in range(3) if k != d))
        mean = one @ axes[d]
        sd = np.sqrt(one @ (axes[d] - mean) ** 2)
        assert abs(draws[:, d].mean() - mean) < z_bound(9) * sd / np.sqrt(ess)
        for level in (0.1, 0.9):
            edge = np.interp(level, one.cumsum() - one / 2, axes[d])
            off = (draws[:, d] < edge).mean() - level
            assert abs(off) < z_bound(9) * np.sqrt(level * (1 - level) / ess)


def test_the_engine_sees_the_posterior_pyro_sees():
    """The traced model and the plain formula are one function of the logs of the sites."""
    x, w = world(60, 2, 2)
    basis = Hilbert.around(x, 4)
    gram = basis.gram(x, w)
    with sandbox(0):
        traced = Potential(marginal_model(basis, gram, 2), (), "traced")
        plain = Potential(
            marginal_model(basis, gram, 2), (), "plain", marginal_energy(basis, gram, 2)
        )
        for _ in range(5):
            u = torch.randn(traced.dim)
            assert float(traced.energy(u)) == pytest.approx(float(plain.energy(u)), rel=1e-12)


def test_the_weights_come_with_the_marginal_likelihood_of_the_model():
    x, w = world(80, 1, 2)
    basis = Hilbert.around(x, 8)
    at = np.array([[0.7], [1.1]]), np.array([[0.6], [0.9]]), np.array([0.1, 0.2])
    gram = basis.gram(x, w)
    found = sum(solve(basis, gram, 2, j, at[0][j], at[1][j], at[2][j]).fit for j in range(2))
    assert found == pytest.approx(log_marginal(basis, x, w, *at), rel=1e-10)
