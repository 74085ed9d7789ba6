"""The Hilbert-space basis against closed forms that know nothing of sines."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

from pulse_pyro import Laplace
from pulse_pyro.base import worst_verdict
from pulse_pyro.data.history import History
from pulse_pyro.diagnostics import diagnose
from pulse_pyro.laws.gp import gaussian_process
from pulse_pyro.laws.hilbert import BLOCK, Hilbert
from tests.helpers import assert_mean, mean_at, mean_draws_at

REACHES = {1: 2.5, 2: 2.0, 3: 1.5, 4: 2.5, 6: 2.5}  # half-width of the box over that of the data


def points(p, n=30, seed=0):
    """Rows that touch both ends of an uneven box in every input."""
    rng = np.random.default_rng(seed)
    low, high = -1.0 - np.arange(p), 2.0 + 0.5 * np.arange(p)
    x = rng.uniform(low, high, (n, p))
    x[0], x[1] = low, high
    return x


def squared_exponential(apart, length):
    return np.exp(-0.5 * (apart / length) ** 2)


def images(x, z, centre, half, length):
    """Squared-exponential covariance held at 0 on both walls of a box, by mirror images.

    Poisson summation turns the infinite sine series into this sum; no basis function appears.
    """
    gap, total = x[:, None] - z, x[:, None] + z - 2 * centre + 2 * half
    shifts = 4 * half * np.arange(-4, 5)[:, None, None]
    return (
        squared_exponential(gap + shifts, length) - squared_exponential(total + shifts, length)
    ).sum(0)


def prior_covariance(basis, x, amplitude, length):
    weighted = basis(x) * basis.spread(np.array(amplitude), np.array(length), np)
    return weighted @ weighted.T


def walls(x):
    p = x.shape[1]
    low, high = x.min(0), x.max(0)
    return (low + high) / 2, REACHES[p] * (high - low) / 2


@pytest.mark.parametrize("p", [1, 2, 3])
def test_a_large_joint_basis_is_the_process_mirrored_at_the_walls(p):
    x = points(p)
    centre, half = walls(x)
    length = (0.9 + 0.4 * np.arange(p))[:p]
    found = prior_covariance(Hilbert.around(x, 25), x, [1.7], length)
    expected = 1.7**2 * np.prod(
        [images(x[:, d], x[:, d], centre[d], half[d], length[d]) for d in range(p)], axis=0
    )
    assert_allclose(found, expected, atol=1e-9)


@pytest.mark.parametrize("p", [4, 6])
def test_beyond_three_inputs_each_has_a_process_of_its_own_and_they_add_up(p):
    x = points(p)
    centre, half = walls(x)
    amplitude, length = 0.3 + 0.2 * np.arange(p), 0.9 + 0.2 * np.arange(p)
    found = prior_covariance(Hilbert.around(x, 60), x, amplitude, length)
    expected = sum(
        amplitude[d] ** 2 * images(x[:, d], x[:, d], centre[d], half[d], length[d])
        for d in range(p)
    )
    assert_allclose(found, expected, atol=1e-9)


def test_with_the_default_size_the_process_is_not_told_from_the_free_one():
    """l = 0.4 half-ranges: mirror images 3 half-ranges away weigh exp(-28), the tail exp(-50)."""
    x = points(1, 200)
    length = 0.4 * (x.max() - x.min()) / 2
    found = prior_covariance(Hilbert.around(x, None), x, [1.3], [length])
    assert_allclose(found, 1.69 * squared_exponential(x - x.T, length), atol=1e-9)


@pytest.mark.parametrize("p", [1, 2])
def test_functions_are_orthonormal_on_the_box_and_called_as_written(p):
    """Trapezes are exact for products of these sines as long as the grid resolves them."""
    low, high, reach = np.array([-1.0, 0.5])[:p], np.array([2.0, 1.0])[:p], REACHES[p]
    basis = Hilbert(tuple(low), tuple(high), 6, (REACHES[p],) * p)
    middle, half = (low + high) / 2, reach * (high - low) / 2

    def written(x):
        angle = basis.frequency * (x[:, None] - middle + half)
        return np.prod(np.sin(angle) / np.sqrt(half), axis=-1)

    def grid(width):
        lines = np.linspace(middle - width, middle + width, 65).T
        return np.stack(np.meshgrid(*lines, indexing="ij"), -1).reshape(-1, p)

    phi = written(grid(half))
    assert_allclose(phi.T @ phi * np.prod(2 * half / 64), np.eye(6**p), atol=1e-10)
    # the call keeps to the data's range, the box is wider
    assert_allclose(basis(grid(half / reach)), written(grid(half / reach)), atol=1e-12)


@pytest.mark.parametrize(
    ("p", "columns"), [(1, 40), (2, 256), (3, 512), (4, 96), (10, 240)], ids=str
)
def test_default_sizes_and_shapes(p, columns):
    x = np.random.default_rng(0).standard_normal((7, p))
    basis = Hilbert.around(x, None)
    assert basis.columns == columns
    assert basis(x).shape == (7, columns)
    assert basis(x[None, :, None]).shape == (1, 7, 1, columns)
    assert basis.design(x).shape == (7, p + columns)
    assert basis.frequency.shape == (columns, p)
    assert basis.process.shape == (columns,)
    assert basis.processes == (1 if p <= 3 else p) == len(np.unique(basis.process))
    assert_array_equal(basis.design(x)[:, :p], x)


@given(st.floats(0.01, 100), st.floats(-50, 50), st.sampled_from([1, 2, 5]))
def test_units_do_not_matter(scale, shift, p):
    """The covariance of a rescaled input with a rescaled length is the same covariance."""
    x = points(p, 8)
    ones = np.ones(p)
    amplitude = ones[: 1 if p <= 3 else p]
    one = prior_covariance(Hilbert.around(x, 5), x, amplitude, ones)
    moved = x * scale + shift
    two = prior_covariance(Hilbert.around(moved, 5), moved, amplitude, ones * scale)
    assert_allclose(one, two, atol=1e-8)


@pytest.mark.parametrize("p", [1, 3, 5])
def test_halfway_from_the_data_to_the_wall_the_value_is_kept(p):
    x = points(p)
    basis = Hilbert.around(x, 5)
    side = np.where(np.arange(p) % 2, 1.0, -1.0)
    edge = basis.centre + side * (basis.half + (x.max(0) - x.min(0)) / 2) / 2
    kept = np.broadcast_to(basis(edge), (len(x), basis.columns))
    assert_allclose(basis(x + 1e3 * side), kept, atol=1e-12)
    assert_array_equal(basis.design(x + 1e3 * side)[:, :p], x + 1e3 * side)
    # just outside the data the functions still move
    assert np.abs(basis(np.where(side > 0, x.max(0), x.min(0))) - kept[0]).max() > 0.01


@pytest.mark.parametrize("p", [1, 2, 5])
def test_the_gram_matrix_in_blocks_is_the_one_of_all_rows(p):
    rng = np.random.default_rng(1)
    x, w = rng.standard_normal((2 * BLOCK + 17, p)), rng.standard_normal((2 * BLOCK + 17, 2))
    basis = Hilbert.around(x, 4)
    z = np.column_stack([np.ones(len(x)), x, basis(x), w])
    assert_allclose(basis.gram(x, w), z.T @ z, atol=1e-8)


@pytest.mark.parametrize("p", [1, 3, 5])
def test_one_formula_serves_numpy_and_torch_and_stacks_of_draws(p):
    basis = Hilbert.around(points(p), 4)
    rng = np.random.default_rng(2)
    length = rng.uniform(0.5, 2, (6, 2, p))
    amplitude = rng.uniform(0.5, 2, (6, 2, basis.processes))
    stacked = basis.spread(amplitude, length, np)
    assert stacked.shape == (6, 2, basis.columns)
    tensors = torch.as_tensor(amplitude), torch.as_tensor(length)
    assert_allclose(basis.spread(*tensors, torch).numpy(), stacked, rtol=1e-13)
    alone = [[basis.spread(amplitude[i, j], length[i, j], np) for j in (0, 1)] for i in range(6)]
    assert_array_equal(stacked, np.array(alone))


def test_a_constant_input_still_gets_a_box():
    x = np.column_stack([np.full(5, 3.0), np.arange(5.0)])
    basis = Hilbert.around(x, 4)
    assert np.isfinite(basis(x)).all()
    assert_array_equal(np.array(basis.half) > 0, True)


def test_the_strain_follows_the_published_rules():
    """m >= 1.75 L / l and L >= 3.2 l, L the half-width of the box (Riutort-Mayol et al. 2023)."""
    basis = Hilbert((-2.0,), (2.0,), 40, (2.5,))
    assert_allclose(basis.strain(np.array([0.1])), 1.75 * 5.0 / 0.1 / 40)
    assert_allclose(basis.strain(np.array([1.8])), 3.2 * 1.8 / 5.0)
    # beyond the half-width of the data, 2, a length scale asks for no more
    for length, half in ((1.0, 5.0), (1.2, 3.2 * 1.8), (30.0, 6.4)):
        assert_allclose(basis.widened(np.array([length])).half, half)


@pytest.mark.parametrize("p", [1, 2, 3, 5])
def test_expected_functions_are_averages_over_gaussian_inputs(p):
    rng = np.random.default_rng(4)
    basis = Hilbert.around(points(p), 5)
    mean = 0.2 * rng.standard_normal((1, p))
    root = 0.15 * np.tril(rng.uniform(0.5, 1, (p, p)))
    x = mean + rng.standard_normal((200_000, p)) @ root.T
    found = basis.expected(mean, (root @ root.T)[None])[0]
    assert_mean(basis.design(x), found)
    assert_allclose(basis.expected(x[:9], np.zeros((9, p, p))), basis.design(x[:9]), atol=1e-12)


def wave(fn, p=1, seed=0):
    """600 standard normal rows, W = fn(S) + a fifth of noise."""
    rng = np.random.default_rng(seed)
    s = rng.standard_normal((30, 20, p))
    w = fn(s)[..., None] + 0.2 * rng.standard_normal((30, 20, 1))
    names = tuple(f"u{i}" for i in range(30)), tuple(f"s{i}" for i in range(p)), ("w",)
    return History.from_arrays(s, w, units=names[0], s_names=names[1], w_names=names[2])


def verdict(archive, size=None):
    """The check of the basis as diagnose() states it, and what the law leaves unexplained."""
    fitted = gaussian_process(1, basis=size).fit(archive, Laplace(50), seed=0)
    held = tuple(f"h{u}" for u in archive.units)
    checks = diagnose(fitted, replace(archive, units=held, clusters=held), seed=0)
    left = np.mean((mean_at(fitted, archive.grid.s) - archive.grid.w) ** 2)
    verdicts = {c.name: c.verdict for c in checks.checks}
    return worst_verdict((verdicts["basis"], verdicts["finer"])), left


@pytest.mark.parametrize(("rate", "size"), [(6, None), (4, 6), (10, 10), (14, None)], ids=str)
def test_the_check_fires_where_the_basis_is_too_small_for_a_wave(rate, size):
    """The rows show these waves plainly: what the exact process makes of them is tested below."""
    assert verdict(wave(lambda s: np.sin(rate * s[..., 0])), size)[0] in ("warn", "fail")


SMOOTH = {
    "line": lambda s: s.sum(-1),
    "bend": lambda s: np.sin(s[..., 0]),
    "nothing": lambda s: 0 * s[..., 0],
}


CASES = [(name, p) for name in SMOOTH for p in (1, 2)] + [("bend", 3)]


@pytest.mark.parametrize(("name", "p"), CASES, ids=str)
def test_the_check_is_quiet_for_a_smooth_function(name, p):
    # eight functions an input are few where the other two do not matter: a warning is fair there
    quiet = ("pass", "warn") if p == 3 else ("pass",)
    assert verdict(wave(SMOOTH[name], p))[0] in quiet


@pytest.mark.parametrize(("rate", "size"), [(4, None), (6, 80), (8, 80), (14, 100)], ids=str)
def test_a_wave_within_the_basis_is_not_taken_for_noise(rate, size):
    """The exact process prefers the wave by hundreds of nats; the fit must find that mode."""
    archive = wave(lambda s: np.sin(rate * s[..., 0]))
    x, y = (
        a.reshape(-1) / a.std() for a in (archive.grid.s, archive.grid.w - archive.grid.w.mean())
    )
    apart = x[:, None] - x

    def evidence(length, noise):
        cov = 9 * (1 + np.outer(x, x)) + squared_exponential(apart, length) + noise * np.eye(600)
        prior = stats.norm.logpdf(np.log(length), 0.0, 0.7) + stats.norm.logpdf(
            np.log(noise), -2, 2
        )
        return stats.multivariate_normal(np.zeros(600), cov).logpdf(y) + prior

    assert evidence(1.2 / rate, 0.08) > evidence(1.0, 1.0) + 100
    assert verdict(archive, size)[1] < 0.1  # the noise is 0.04, wave and noise 0.54


@pytest.mark.parametrize("rows", [1, 2, 20])
def test_few_rows_leave_much_doubt(rows):
    s, w = np.random.default_rng(0).standard_normal((2, 1, rows, 1))
    archive = History.from_arrays(s, w, units=("u",), s_names=("s",), w_names=("w",))
    fitted = gaussian_process(1).fit(archive, Laplace(100), seed=0)
    assert mean_draws_at(fitted, s[:, :1] + 5, 100, rng=np.random.default_rng(0)).std() > 0.3
