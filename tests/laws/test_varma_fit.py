"""Maximum likelihood: as likely as the truth, and no further above it than chance allows."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats
from scipy.signal import lfilter

from pulse_pyro.data.history import History
from pulse_pyro.laws.varma import Process, fit_process, log_likelihood
from tests.helpers import FALSE_ALARM, z_bound


def scalar(ar, ma, noise):
    flat = [np.reshape(np.array(part, float), (-1, 1, 1)) for part in (ar, ma)]
    return Process(*flat, np.array([[float(noise)]]))


def arma(ar, ma, shape, seed, burn=3000):
    """(units, time, 1) series of variance about 1, and the process they come from."""
    noise = np.random.default_rng(seed).standard_normal((shape[0], shape[1] + burn))
    s = lfilter([1, *ma], [1, *(-a for a in ar)], noise, axis=1)[:, burn:, None]
    return s / s.std(), scalar(ar, ma, 1 / s.var())


def var(seed, shape=(40, 60), burn=300):
    """A VARMA(1, 1) of two columns that drive each other, with correlated noise."""
    rng = np.random.default_rng(seed)
    ar, ma = np.array([[[0.6, 0.3], [-0.2, 0.4]]]), np.array([[[0.3, 0.0], [0.2, -0.4]]])
    root = np.array([[0.7, 0.0], [0.3, 0.6]])
    e = rng.standard_normal((shape[0], shape[1] + burn, 2)) @ root.T
    s = np.zeros_like(e)
    for t in range(1, e.shape[1]):
        s[:, t] = s[:, t - 1] @ ar[0].T + e[:, t] + e[:, t - 1] @ ma[0].T
    return s[:, burn:], Process(ar, ma, root @ root.T)


def fit(s, ar, ma, seed):
    """The process of highest likelihood for series s (units, time, d)."""
    archive = History.from_arrays(s, np.zeros((*s.shape[:2], 1)))
    return fit_process(archive, ar, ma, seed)


def hide(s, rate, seed=0):
    return np.where(np.random.default_rng([seed, 1]).random(s.shape) < rate, np.nan, s)


def gain(s, truth, ar, ma):
    """Twice what the fit's log-likelihood is above that of the truth, and the fit."""
    found, level = fit(s, ar, ma, 0)
    steps = (~np.isnan(s)).any(-1).sum()
    assert_allclose(log_likelihood(found, s).sum(), level * steps, rtol=1e-9)
    assert found.radius < 1
    return 2 * (level * steps - log_likelihood(truth, s).sum()), found


TRUTHS = {
    "the paper's": ([0.75, -0.25], [0.65, 0.35]),
    "nearly white": ([0.5], [-0.4]),
    "moving average": ([], [0.5, 0.3]),
    "slow wave": ([1.6, -0.7], []),
    "alternating": ([-0.95], []),
    "near unit root": ([0.995], []),
    "persistent": ([1.4, -0.41], []),  # roots .98 and .42
    "smooth": ([1.899, -0.8991], []),  # roots .999 and .9
    "smoother": ([1.98, -0.9801], []),  # a double root at .99
    "noninvertible edge": ([0.2], [0.99]),
}


@pytest.mark.parametrize("rate", [0.0, 0.5])
@pytest.mark.parametrize("name", TRUTHS)
def test_the_fit_is_as_likely_as_the_truth_and_a_chi_square_above_it(name, rate):
    # 2 (l(fit) - l(truth)) is chi-square with one degree a parameter: coefficients and noise
    ar, ma = TRUTHS[name]
    s, truth = arma(ar, ma, (20, 100), seed=1)
    above, _ = gain(hide(s, rate), truth, len(ar), len(ma))
    assert -1e-6 <= above <= stats.chi2.isf(FALSE_ALARM, len(ar) + len(ma) + 1)


@pytest.mark.parametrize("rate", [0.0, 0.4])
def test_two_columns_that_drive_each_other(rate):
    s, truth = var(0)
    above, found = gain(hide(s, rate), truth, 1, 1)
    assert -1e-6 <= above <= stats.chi2.isf(FALSE_ALARM, 4 + 4 + 3)
    assert_allclose(found.noise, found.noise.T, atol=1e-14)
    assert np.linalg.eigvalsh(found.noise).min() > 0


@pytest.mark.parametrize("phi", [0.0, 0.5, -0.9, 0.99])
def test_an_ar1_coefficient_has_its_textbook_standard_error(phi):
    s, _ = arma([phi], [], (50, 200), seed=5)
    found, _ = fit(s, 1, 0, 0)
    error = np.sqrt((1 - phi**2) / s.size)
    assert abs(found.ar[0, 0, 0] - phi) <= z_bound() * error


@pytest.mark.parametrize("every", [2, 3, 7])
def test_a_series_seen_every_other_row_still_has_its_memory(every):
    # no two neighbours are ever seen: what is seen is an AR(1) of its own, with phi^every
    s, truth = arma([0.9], [], (50, 210), seed=6)
    s[:, np.arange(210) % every > 0] = np.nan
    above, found = gain(s, truth, 1, 0)
    assert -1e-6 <= above <= stats.chi2.isf(FALSE_ALARM, 2)
    power, pairs = 0.9**every, (~np.isnan(s)).sum()
    error = np.sqrt((1 - power**2) / pairs)
    assert abs(abs(found.ar[0, 0, 0]) ** every - power) <= z_bound() * error


@pytest.mark.parametrize("orders", [(1, 0), (0, 1), (1, 1)])
def test_white_noise_stays_white(orders):
    s = np.random.default_rng(7).standard_normal((6, 50, 2))
    above, found = gain(s, Process(np.empty((0, 2, 2)), np.empty((0, 2, 2)), np.eye(2)), *orders)
    assert above >= -1e-6
    cov = found.start(2)[1]
    assert np.abs(cov[:2, 2:4]).max() <= z_bound(4) / np.sqrt(s[..., 0].size)


def test_orders_beyond_the_truth_do_not_hurt_the_likelihood():
    s, truth = arma([0.7], [], (20, 100), seed=8)
    small, _ = gain(s, truth, 1, 0)
    large, _ = gain(s, truth, 2, 2)
    assert large >= small - 1e-3  # nested: a search that stops early would show here


@pytest.mark.parametrize("rate", [0.0, 0.3])
def test_a_constant_column_leaves_the_other_as_it_is(rate):
    # the same data twice: the fits must agree to well within what sampling alone would do
    s, _ = arma([0.7], [], (30, 60), seed=9)
    s = hide(s, rate)
    alone, _ = fit(s, 1, 0, 0)
    found, _ = fit(np.concatenate([s, np.zeros_like(s)], -1), 1, 0, 0)
    error = np.sqrt(2 * (1 + 0.49) / (1 - 0.49) / s.size)  # of a variance, by Bartlett
    off = np.abs(found.start(2)[1][0, [0, 2]] - alone.start(2)[1][0, :2])
    assert off.max() <= error


@pytest.mark.parametrize("spread", [0.0, 1e-5, 1e-2])
def test_a_copy_of_a_column_is_known_from_the_other(spread):
    s, _ = arma([0.7], [], (30, 60), seed=10)
    twin = s + spread * np.random.default_rng(0).standard_normal(s.shape)
    found, _ = fit(np.concatenate([s, twin], -1), 1, 0, 0)
    cov = found.start(1)[1]
    assert cov[0, 1] ** 2 / cov[0, 0] / cov[1, 1] > 0.99
    assert_allclose(np.sqrt(np.diag(cov)), 1, atol=z_bound() * np.sqrt(1.7 / 0.3 / 2 / s.size))


@pytest.mark.parametrize("time", [1, 2, 3, 4])
@pytest.mark.parametrize("ar", [0, 1, 2, 5])
def test_series_shorter_than_the_order(ar, time):
    s = np.random.default_rng(11).standard_normal((200, time, 1))
    found, _ = fit(s, ar, 0, 0)
    assert found.radius < 1
    assert found.ar.shape == (ar, 1, 1)
    spread = found.start(1)[1][0, 0]
    assert abs(spread - 1) <= z_bound() * np.sqrt(2 / s.size)


@pytest.mark.parametrize("units", [1, 3])
def test_one_value_in_all(units):
    s = np.full((units, 4, 2), np.nan)
    s[0, 1] = [0.5, -1.0]
    found, level = fit(s, 1, 1, 0)
    assert found.radius < 1
    assert np.isfinite(level)


def test_a_random_walk_is_kept_stationary():
    walk = np.cumsum(np.random.default_rng(12).standard_normal((5, 200, 1)), axis=1)
    found, level = fit(walk / walk.std(), 1, 0, 0)
    assert 0.9 < found.radius < 1
    assert np.isfinite(level)


def test_large_archives_are_judged_on_whole_units_drawn_by_the_seed():
    s, _ = arma([0.5], [], (60, 500), seed=13)
    one, again, other = (fit(s, 1, 0, seed)[0] for seed in (0, 0, 1))
    assert_array_equal(one.ar, again.ar)
    assert_array_equal(one.noise, again.noise)
    assert one.ar[0, 0, 0] != other.ar[0, 0, 0]
    for found in (one, other):
        assert abs(found.ar[0, 0, 0] - 0.5) <= z_bound(2) * np.sqrt(0.75 / 20_000)
    kept = s.copy()
    fit(s, 1, 0, 0)
    assert_array_equal(s, kept)
