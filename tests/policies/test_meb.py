"""MEB: the correction by hand, exploration, and the error it is not for."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from pulse_pyro._core.errors import FeatureError, RewardError, SettingError
from pulse_pyro.policies.meb import corrected_least_squares, play_meb

NONE = np.zeros((1, 2, 1, 1))


def test_the_correction_by_hand():
    # x = 1, 2, 3 with error variance 2: sum x^2 - 3 * 2 = 8; rewards 2, 0, 2: sum x R = 8
    gram = np.array([[[14.0 - 6.0]]])
    assert_allclose(corrected_least_squares(gram, np.array([[8.0]])), [[1.0]])


def test_directions_of_which_nothing_positive_is_left_are_left_out():
    gram = np.array([np.diag([2.0, -1.0]), np.diag([-2.0, -1.0])])
    found = corrected_least_squares(gram, np.array([[4.0, 5.0], [4.0, 5.0]]))
    assert_allclose(found, [[2.0, 0.0], [0.0, 0.0]])


def test_an_inverse_where_all_is_positive():
    gram = np.array([[[3.0, 1.0], [1.0, 2.0]]])
    cross = np.array([[1.0, -2.0]])
    assert_allclose(
        corrected_least_squares(gram, cross), np.linalg.solve(gram, cross[..., None])[..., 0]
    )


def rounds(horizon=400, runs=3, seed=0):
    """Arm 1 pays W, arm 0 nothing: phi = (W a)."""
    rng = np.random.default_rng(seed)
    w = rng.normal(0.5, 1.0, (runs, horizon))
    x = np.zeros((runs, horizon, 2, 1))
    x[:, :, 1, 0] = w
    return x, np.stack([np.zeros_like(w), w], axis=-1)


def test_the_best_arm_is_played_once_it_is_known():
    x, reward = rounds()
    action = play_meb(x, reward, NONE, explore=0.3, seed=1)
    late = (action == reward.argmax(-1))[:, 200:]
    assert late.mean() > 0.95  # a coin of .05 decides otherwise in half of its rounds


def test_the_floor_falls_and_the_seed_decides():
    x, reward = rounds()
    one, two, other = (play_meb(x, reward, NONE, seed=seed) for seed in (0, 0, 1))
    assert_array_equal(one, two)
    assert not np.array_equal(one, other)
    wrong = one != reward.argmax(-1)
    assert wrong[:, :50].mean() > 2 * wrong[:, -200:].mean()


def test_the_correction_undoes_classical_error_and_spoils_berksons():
    rng = np.random.default_rng(0)
    n, theta = 200_000, 1.5
    truth = rng.standard_normal(n)
    seen = truth + rng.standard_normal(n)  # classical: variance 1 of the error
    expected = rng.standard_normal(n)  # Berkson: truth = expected + error of variance .5
    for x, phi, variance, plain, corrected in (
        (seen, truth, 1.0, theta / 2.0, theta),
        (expected, expected + np.sqrt(0.5) * rng.standard_normal(n), 0.5, theta, 2.0 * theta),
    ):
        cross = np.array([[x @ (theta * phi)]])
        gram = np.array([[[x @ x]]])
        assert_allclose(corrected_least_squares(gram, cross), [[plain]], rtol=0.02)
        fixed = corrected_least_squares(gram - n * variance, cross)
        assert_allclose(fixed, [[corrected]], rtol=0.03)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"x": np.zeros((2, 3, 2))}, FeatureError, "features must be finite"),
        ({"reward": np.zeros((3, 400, 3))}, RewardError, "reward must be"),
        ({"error": np.zeros((7, 2, 1, 1))}, FeatureError, "error must be"),
        ({"explore": -1.0}, SettingError, "explore"),
    ],
)
def test_bad_input_is_refused(change, error, words):
    x, reward = rounds()
    given = {"x": x, "reward": reward, "error": NONE} | change
    with pytest.raises(error, match=words):
        play_meb(**given)
