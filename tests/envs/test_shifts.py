"""Online contexts under a shift: only S moves, and by as much as is said."""

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from pulse_pyro._core.errors import SettingError
from pulse_pyro._core.seeds import stream
from pulse_pyro.envs.arma import w_times_action
from pulse_pyro.envs.series import Arma, subspace_similarity
from pulse_pyro.envs.shifts import deformation, rotation, translation, variance_shift
from tests.helpers import assert_mean

BASE = w_times_action(scale=1.5, current=False)
SHIFTS = {
    "variance": variance_shift(BASE, 2.0),
    "rotation": rotation(BASE, 0.7),
    "translation": translation(BASE, 4.0),
    "deformation": deformation(BASE, 1.8),
}
every_shift = pytest.mark.parametrize("env", SHIFTS.values(), ids=SHIFTS)


def rng(seed=0):
    return np.random.default_rng(seed)


def test_the_variance_of_an_autoregression_is_the_textbooks():
    assert_allclose(Arma((0.5,), (), sd=2.0).covariance(3)[0], 4 / 0.75 * np.array([1, 0.5, 0.25]))
    assert_allclose(Arma((), (0.5,), sd=1.0).covariance(3)[0], [1.25, 0.5, 0.0], atol=1e-12)


@pytest.mark.parametrize("process", [Arma(), Arma((-0.8, -0.2), mean=3.0), Arma((0.5,), (), 2.0)])
def test_draws_have_the_stated_moments(process):
    s = process.draw(20_000, 4, rng=rng())[..., 0]
    cov = process.covariance(4)
    assert_mean(s, process.mean)
    for lag in range(4):
        assert_mean((s[:, 0] - process.mean) * (s[:, lag] - process.mean), cov[0, lag])


def test_heavy_tails_are_students():
    """Without memory S is sd * t(3): compare quantiles, its fourth moment does not exist."""
    s = Arma((), (), sd=0.5, df=3.0).draw(40_000, 1, rng=rng()).ravel() / 0.5
    beyond = 3.182446305284263  # the 97.5 % point of t(3)
    assert_mean(s > beyond, 0.025)
    assert_mean(s < -beyond, 0.025)


@every_shift
def test_the_archive_is_not_shifted(env):
    one, two = (e.archive(5, 30, rng=stream(1, "archive")) for e in (env, BASE))
    assert_array_equal(one.s, two.s)
    assert_array_equal(one.w, two.w)


@every_shift
def test_w_given_the_past_of_s_stays_as_it_was(env):
    world = env.world(50, 200, rng=rng())
    mean = env._mean(world.s)[:, world.lead :]
    assert_array_equal(mean, BASE._mean(world.s)[:, world.lead :])
    assert_mean((world.w[..., 0] - mean).ravel(), 0.0)
    assert_mean(((world.w[..., 0] - mean) ** 2).ravel(), 0.01)


def test_the_shifts_are_of_the_stated_size():
    plain = BASE.world(300, 5, rng=rng()).s
    assert_allclose(SHIFTS["variance"].world(300, 5, rng=rng()).s, 20 * plain, rtol=1e-9)
    assert_allclose(SHIFTS["translation"].world(300, 5, rng=rng()).s, 4 + plain, rtol=1e-9)
    assert_allclose(SHIFTS["rotation"].online.ar, (0.3 * 0.75 - 0.56, -0.3 * 0.25 - 0.14))
    assert SHIFTS["deformation"].online.sd == pytest.approx(0.18)
    assert SHIFTS["deformation"].online.df == 3.0


def test_similarity_of_axes():
    assert subspace_similarity(Arma(), Arma(sd=3.0)) == pytest.approx(1.0)
    two = [Arma((0.9,), ()), Arma((-0.9,), ())]  # slow against fast: no axis in common
    assert subspace_similarity(*two, lags=10, top=2) < 0.2
    assert subspace_similarity(*two, lags=10, top=10) == pytest.approx(1.0)
    along = [subspace_similarity(Arma(), rotation(BASE, a).online) for a in (0.0, 0.9, 1.0)]
    assert along[0] > along[1] > along[2]


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: variance_shift(BASE, 0.0), "variance_shift: sd"),
        (lambda: variance_shift(BASE, math.nan), "variance_shift: sd"),
        (lambda: rotation(BASE, 1.2), "between 0 and 1, but got 1.2"),
        (lambda: translation(BASE, math.inf), "mean finite"),
        (lambda: deformation(BASE, -1.0), "deformation: scale"),
        (lambda: deformation(BASE, 1.0, df=math.inf), "df must be finite"),
        (lambda: deformation(BASE, 1.0, df=0.0), "df must be > 0"),
        (lambda: Arma((1.1,)), "not stationary"),
    ],
)
def test_what_does_not_fit_is_named(call, says):
    with pytest.raises(SettingError, match=says):
        call()
