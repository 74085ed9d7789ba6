"""The mixture of a network, in torch and in NumPy, against densities written out by hand."""

import os

import numpy as np
import pyro
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import special, stats

import pulse_pyro as pp
from pulse_pyro._pyro import networks
from pulse_pyro._pyro.predict import PyroKernel
from pulse_pyro._pyro.sandbox import sandbox
from pulse_pyro.laws import neural
from pulse_pyro.laws.neural import NeuralFamily, NeuralKernel
from tests.helpers import FALSE_ALARM, assert_mean, z_bound


def parts(line, k, d):
    """Weights (k,), means (k, d), precisions (k, d, d) of one row of outputs, entry by entry."""
    root = np.zeros((k, d, d))
    lower = line[k + 2 * k * d :].reshape(k, -1)
    for j in range(k):
        entry = iter(lower[j])
        for a in range(d):
            for b in range(a):
                root[j, a, b] = next(entry)
            root[j, a, a] = np.exp(np.clip(line[k + k * d + j * d + a], -6.0, 7.0))
    precision = np.swapaxes(root, 1, 2) @ root
    return special.softmax(line[:k]), line[k : k + k * d].reshape(k, d), precision


def log_score(line, w, k):
    weight, mean, precision = parts(line, k, len(w))
    normal = [
        stats.multivariate_normal(m, stats.Covariance.from_precision(q)).logpdf(w)
        for m, q in zip(mean, precision, strict=True)
    ]
    return special.logsumexp(normal, b=weight)


def moments(line, k, d):
    """Mean and covariance of the whole mixture."""
    weight, mean, precision = parts(line, k, d)
    centre = weight @ mean
    off = mean - centre
    between = off[:, :, None] * off[:, None, :]
    return centre, np.einsum("k,kij->ij", weight, np.linalg.inv(precision) + between)


def random_weights(shape, members, rng, scale=1.0):
    out = {}
    for i, (before, after) in enumerate(shape.layers):
        out[f"weight{i}"] = scale * rng.standard_normal((members, before, after)) / before**0.5
        out[f"bias{i}"] = scale * rng.standard_normal((members, after))
    return out


def outputs(weights, x, member, depth):
    """A plain forward pass."""
    for i in range(depth + 1):
        x = x @ weights[f"weight{i}"][member] + weights[f"bias{i}"][member]
        x = np.maximum(x, 0.0) if i < depth else x
    return x


def constant(lines, k, d):
    """A kernel whose member e has outputs lines[e] at every x, of one column."""
    bias = np.atleast_2d(lines)
    weight = np.zeros((len(bias), 1, bias.shape[1]))
    return NeuralKernel({"weight0": weight, "bias0": bias}, k, d, ())


SIZES = st.tuples(st.integers(1, 3), st.integers(1, 5), st.integers(1, 4), st.integers(1, 3))


@given(SIZES, st.integers(0, 2**20))
def test_torch_and_numpy_agree_with_scipy(sizes, seed):
    p, d, k, depth = sizes
    rng, shape = np.random.default_rng(seed), networks.NetworkShape(p, d, k, 5, depth)
    weights = random_weights(shape, 2, rng)
    x, w = rng.standard_normal((3, p)), rng.standard_normal((3, d))
    lines = [outputs(weights, x, e, depth) for e in range(2)]
    found = networks.mixture(
        shape, {n: torch.as_tensor(v) for n, v in weights.items()}, torch.as_tensor(x)
    )
    assert found.mean.shape == (2, 3, k, d)
    density = networks.log_density(found, torch.as_tensor(w)).numpy()
    wanted = [[log_score(line, v, k) for line, v in zip(of, w, strict=True)] for of in lines]
    assert_allclose(density, wanted, rtol=1e-7, atol=1e-7)
    kernel = NeuralFamily(k, 5, depth, 0.0).kernel(weights)
    assert (kernel.w_dim, kernel.count) == (d, 2)
    means = np.array([[moments(line, k, d)[0] for line in of] for of in lines])
    assert_allclose(kernel.mean(x), means.mean(0), rtol=1e-9, atol=1e-12)
    order = np.array([1, 0, 1])
    assert_allclose(kernel.mean_draws(x, order), means[order], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("masked", [False, True])
def test_the_kernel_is_the_pyro_model_in_numpy(masked):
    """Two implementations that share no code: the Pyro model at given weights, and the kernel."""
    rng = np.random.default_rng(1)
    s, w = rng.standard_normal((4, 6, 2)), rng.standard_normal((4, 6, 3))
    history = pp.History.from_arrays(
        s, w, units=tuple("abcd"), s_names=tuple("st"), w_names=tuple("uvw")
    )
    law = pp.neural_density(pp.data.Identity(), components=3, width=4, masking=0.5 * masked)
    card, family = (
        law.check(history),
        NeuralFamily(3, 4, 2, 0.5 * masked, (masked, masked), 2 * masked),
    )
    assert card.vectorised
    assert card.unseen == ("learned" if masked else "refused")
    draws = random_weights(family.shape(2, 3), 4, rng)
    model, kernel = PyroKernel(family.model(2, 3), draws, card), family.kernel(draws)
    x, index = rng.standard_normal((7, 2)), np.arange(4)
    if masked:
        x[2], x[3, 1] = np.nan, np.nan
    assert_allclose(kernel.mean_draws(x, index), model.mean_draws(x, index), rtol=1e-9, atol=1e-12)
    assert_allclose(kernel.mean(x), model.mean(x), rtol=1e-9, atol=1e-12)


# three components in 3-D, correlated in different directions, too far apart to be confused
LINE = np.concatenate(
    [
        np.log([0.6, 0.3, 0.1]) + 40.0,
        [0, 0, 0, 99, 0, -99, -99, 99, 99],
        np.log([1, 2, 0.5, 1, 1, 3, 2, 1, 1]),
        [1.5, -1, 0.7, -2, 0, 1, 0.3, 3, -0.5],
    ]
)
SIZE = 40_000


@pytest.fixture(scope="module")
def drawn():
    kernel, rng = constant(LINE, 3, 3), np.random.default_rng(2)
    return kernel.sample(np.zeros((1, 1)), np.zeros(SIZE, int), rng)[:, 0]


def test_components_are_chosen_by_their_weights(drawn):
    weight, mean, _ = parts(LINE, 3, 3)
    chosen = np.linalg.norm(drawn[:, None] - mean, axis=-1).argmin(1)
    count = np.bincount(chosen, minlength=3)
    assert stats.chisquare(count, SIZE * weight).pvalue > FALSE_ALARM


def test_every_component_has_its_own_full_covariance(drawn):
    _, mean, precision = parts(LINE, 3, 3)
    chosen = np.linalg.norm(drawn[:, None] - mean, axis=-1).argmin(1)
    for j in range(3):
        own = drawn[chosen == j] - mean[j]
        assert_mean(own, 0.0)
        assert_mean(own[:, :, None] * own[:, None, :], np.linalg.inv(precision[j]))
        # Gaussian, not just of the right moments
        length = np.einsum("ni,ij,nj->n", own, precision[j], own)
        assert stats.kstest(length, stats.chi2(3).cdf).pvalue > FALSE_ALARM


def test_each_row_and_each_member_is_drawn_from_its_own_mixture():
    shape, rng = networks.NetworkShape(2, 2, 3, 6, 2), np.random.default_rng(3)
    weights = random_weights(shape, 3, rng)
    kernel = NeuralKernel(weights, 3, 2, ())
    x, index = rng.standard_normal((4, 2)), np.arange(30_000) % 3
    sample = kernel.sample(x, index, rng)
    for e in range(3):
        own = sample[index == e]
        for row, line in enumerate(outputs(weights, x, e, 2)):
            centre, covariance = moments(line, 3, 2)
            assert_mean(own[:, row], centre)
            off = own[:, row] - centre
            assert_mean(off[:, :, None] * off[:, None, :], covariance)


def test_rows_and_draws_are_independent_of_each_other():
    kernel, rng = constant(LINE, 3, 3), np.random.default_rng(4)
    first, second = kernel.sample(np.zeros((2, 1)), np.zeros(SIZE, int), rng).swapaxes(0, 1)
    for one, two in ((first, second), (first[1:], first[:-1])):
        both = np.corrcoef(one.T, two.T)[:3, 3:]
        assert np.abs(both).max() < z_bound(9) / np.sqrt(SIZE)


def test_the_same_generator_gives_the_same_draws():
    kernel, x, index = constant(LINE, 3, 3), np.zeros((5, 1)), np.zeros(7, int)
    one, two, three = (kernel.sample(x, index, np.random.default_rng(i)) for i in (0, 0, 1))
    assert_array_equal(one, two)
    assert not np.any(one == three)


@pytest.mark.parametrize(("log_root", "sd"), [(60.0, np.exp(-7.0)), (-60.0, np.exp(6.0))])
def test_spikes_and_spills_are_bounded_alike_in_training_and_in_draws(log_root, sd):
    line = np.array([1000.0, -1000.0, 0.0, 5.0, log_root, 0.0])  # logits that overflow exp
    sample = constant(line, 2, 1).sample(
        np.zeros((1, 1)), np.zeros(SIZE, int), np.random.default_rng(5)
    )
    assert_mean((sample / sd) ** 2, 1.0)
    assert constant(line, 2, 1).mean(np.zeros((1, 1))) == 0.0
    weights = {"weight0": torch.zeros(1, 6).double(), "bias0": torch.as_tensor(line)}
    found = networks.mixture(
        networks.NetworkShape(1, 1, 2, 1, 0), weights, torch.zeros(1, 1).double()
    )
    density = networks.log_density(found, torch.full((1, 1), sd, dtype=torch.float64))
    assert_allclose(density, stats.norm(0, sd).logpdf(sd), rtol=1e-12)
    assert (neural.FLOOR, neural.CEILING) == (networks.FLOOR, networks.CEILING)


def test_long_inputs_are_answered_block_by_block(monkeypatch):
    shape, rng = networks.NetworkShape(2, 2, 2, 4, 1), np.random.default_rng(6)
    kernel, x = NeuralKernel(random_weights(shape, 2, rng), 2, 2, ()), rng.random((10, 2))
    whole = kernel.mean(x)
    monkeypatch.setattr(neural, "BLOCK", 3)
    assert_allclose(kernel.mean(x), whole, rtol=1e-12)


def test_the_prior_of_the_pyro_model_is_the_stated_one():
    shape = networks.NetworkShape(3, 2, 2, 5, 2)
    model = networks.network_model(shape, lambda x: x)
    with sandbox(0, "test"):
        trace = pyro.poutine.trace(model).get_trace(torch.zeros(4, 3))
    for i, (before, after) in enumerate(((3, 5), (5, 5), (5, 2 * (1 + 2 + 3)))):
        weight, bias = trace.nodes[f"weight{i}"]["fn"], trace.nodes[f"bias{i}"]["fn"]
        assert weight.event_shape == (before, after)
        assert_allclose(weight.variance, 2.0 / before)
        assert_allclose(bias.variance, 1.0)


@pytest.mark.skipif(not os.environ.get("PULSE_FULL"), reason="20,000 rows: set PULSE_FULL=1")
def test_a_bimodal_law_scores_within_a_fiftieth_of_a_nat_of_the_truth():
    def world(rng):
        s = rng.standard_normal((200, 100, 1))
        side = np.where(rng.random(s.shape) < special.expit(s), 1.0, -1.0)
        return s, side * (1 + 0.5 * np.sin(2 * s)) + 0.3 * rng.standard_normal(s.shape)

    s, w = world(np.random.default_rng(0))
    seen, names = np.ones((200, 100), bool), tuple(map(str, range(200)))
    history = pp.History.from_arrays(s, w, seen=seen, units=names, s_names=("s",), w_names=("w",))
    fitted = pp.neural_density(pp.data.Identity()).fit(history, seed=0)
    s, w = (part.reshape(-1, 1) for part in world(np.random.default_rng(1)))
    up, at = special.expit(s[:, 0]), 1 + 0.5 * np.sin(2 * s[:, 0])
    hill = [stats.norm(side * at, 0.3).logpdf(w[:, 0]) for side in (1, -1)]
    truth = special.logsumexp(hill, axis=0, b=[up, 1 - up])
    x, v, k = fitted.scaler.x_in(s), fitted.scaler.w_in(w), 6
    score = []
    for member in range(fitted.kernel.count):
        out = fitted.kernel._run(x, member)
        scale = np.exp(-np.clip(out[:, 2 * k :], -6.0, 7.0))
        each = stats.norm(out[:, k : 2 * k], scale).logpdf(v)
        score.append(special.logsumexp(each + special.log_softmax(out[:, :k], 1), 1))
    ours = special.logsumexp(score, axis=0) - np.log(len(score)) - np.log(fitted.scaler.w_scale)
    gap = truth - ours
    assert gap.mean() + z_bound() * gap.std() / np.sqrt(len(gap)) < 0.02
