import numpy as np
import pytest
from numpy.testing import assert_array_equal

from pulse_pyro.envs.arma import main_linear, w_times_action
from pulse_pyro.features import Features
from pulse_pyro.policies.oful import interactions, oful_features, oful_paper_features

S = np.random.default_rng(0).standard_normal((2, 5, 1))


def columns(*values):
    return np.stack(np.broadcast_arrays(*values), axis=-1)


def test_observed_features_that_tell_the_arms_apart_are_used_as_they_are():
    found, s = oful_features(main_linear().features, S, 1), S[..., 0]
    assert found.shape == (2, 5, 2, 3)
    for a in range(2):
        assert_array_equal(found[:, :, a], columns(1.0, s, s * a))


def test_otherwise_every_observed_column_meets_every_action():
    found, s = oful_features(w_times_action().features, S, 1), S[..., 0]
    assert found.shape == (2, 5, 2, 4)
    for a in range(2):
        assert_array_equal(found[:, :, a], columns(1.0, s, float(a), s * a))


def test_an_unseen_s_does_not_change_which_features_are_used():
    s = S.copy()
    s[0, 2] = np.nan
    found = oful_features(w_times_action().features, s, 1)
    assert_array_equal(found, interactions(s, 2))


def test_arms_that_look_alike_in_pairs_are_told_apart():
    def fn(s, w, a):
        return np.column_stack([np.ones(len(s)), s * (a == 1), w * (a == 2)])

    found = oful_features(Features(fn, 3, ("1", "S[a=1]", "W[a=2]")), S, 1)
    assert (found[:, :, 0] != found[:, :, 2]).any(-1).all()


@pytest.mark.parametrize("w_dim", [1, 2, 5])
def test_the_missing_columns_may_be_taken_whole(w_dim):
    def fn(s, w, a):
        return np.column_stack([s, s * a, w, w * a])

    names = tuple(f"x{j}" for j in range(2 + 2 * w_dim))
    assert oful_features(Features(fn, 2, names), S, w_dim).shape == (2, 5, 2, 2)


@pytest.mark.parametrize("w_dim", [2, 5])
def test_the_missing_columns_may_be_mixed_by_a_matrix(w_dim):
    mix = np.ones((w_dim, 3))
    features = Features(lambda s, w, a: np.column_stack([s * a, w @ mix]), 2, tuple("abcd"))
    assert_array_equal(oful_features(features, S, w_dim)[:, :, 1], S)


def test_interactions_give_every_later_action_its_own_block():
    found = interactions(np.array([[[2.0, 3.0]]]), 3)
    assert_array_equal(
        found[0, 0],
        [[1, 2, 3, 0, 0, 0, 0, 0, 0], [1, 2, 3, 1, 2, 3, 0, 0, 0], [1, 2, 3, 0, 0, 0, 1, 2, 3]],
    )


def test_the_published_baseline_drops_the_main_effect():
    found = oful_paper_features(S, 3)
    for a in range(3):
        assert_array_equal(found[:, :, a], columns(1.0, a * S[..., 0]))
