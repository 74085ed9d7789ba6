import numpy as np
import pytest

from pulse_pyro import features as module
from pulse_pyro._core.errors import FeatureError, SettingError
from pulse_pyro.features import Features, expected_features
from tests.helpers import assert_mean

S = np.linspace(-2.0, 2.0, 24).reshape(2, 12, 1)


class Sampler:
    """W_t = 1 + 2 (S_1 + ... + S_t) + sd * noise; it can only be sampled."""

    exact = False

    def __init__(self, sd=0.0):
        self.sd, self.sizes = sd, []

    def centre(self, s):
        return 1 + 2 * np.cumsum(s[..., :1], axis=-2)

    def sample(self, s, size, rng):
        self.sizes.append(size)
        return self.centre(s) + self.sd * rng.standard_normal((size, *s.shape[:-1], 1))

    def __call__(self, s, at=None):
        return Rows(self, s)


class Gaussian(Sampler):
    exact = True


class Rows:
    """What one of these laws says at the rows of s (batch, time, 1)."""

    def __init__(self, law, s):
        self.law, self.s, self.exact = law, s, law.exact

    def mean(self):
        assert self.exact
        return self.law.centre(self.s).reshape(-1, 1)

    def draws(self, size, *, rng):
        return self.law.sample(self.s, size, rng).reshape(size, -1, 1)


def phi(fn, names=("x",), actions=2):
    return Features(lambda s, w, a: np.column_stack(fn(s[:, 0], w[:, 0], a)), actions, names)


SQUARE = phi(lambda s, w, a: [w**2])
MIXED = phi(lambda s, w, a: [0 * s + 1, s, w, a * w, s * w], names=tuple("abcde"))


def expected(law, features, s=S, size=20):
    return expected_features(law, features, s, size=size, rng=np.random.default_rng(0))


AFFINE = {
    "affine": lambda s, w, a: [3 - 2 * w],
    "constant in w": lambda s, w, a: [s**2],
    "zero": lambda s, w, a: [0 * w],
    "w times action": lambda s, w, a: [w * a],
    "w times s": lambda s, w, a: [s * w + np.exp(s)],
}
CURVED = {
    "quadratic": lambda s, w, a: [w**2],
    "clipped": lambda s, w, a: [np.clip(w, -1, 1)],
    "loosely clipped": lambda s, w, a: [np.clip(w, -20, 20)],
    "small but curved": lambda s, w, a: [1e-15 * w**2],
    "abs": lambda s, w, a: [np.abs(w)],
    "threshold": lambda s, w, a: [np.where(w > 0.5, 1.0, 0.0)],
    "not defined everywhere": lambda s, w, a: [np.log(w)],
    "curved in one action": lambda s, w, a: [w if a == 0 else w**2],
    "slightly curved": lambda s, w, a: [s * w + 1e-3 * np.sin(w)],
}


@pytest.mark.parametrize("name", [*AFFINE, *CURVED])
def test_affinity_in_w_is_detected(name):
    features = phi((AFFINE | CURVED)[name])
    s, w = np.random.default_rng(1).standard_normal((2, 40, 1))
    assert features.affine_in_w(s, w) == (name in AFFINE)


def test_a_small_kink_is_seen_next_to_a_column_of_large_numbers():
    features = phi(lambda s, w, a: [1e12 * s, w > 0.5], names=("big", "small"))
    s, w = np.random.default_rng(1).standard_normal((2, 40, 1))
    assert not features.affine_in_w(s, w)


@pytest.mark.parametrize("rows", [1, 40])
def test_coordinates_that_involve_w_are_found(rows):
    features = phi(lambda s, w, a: [s, w, s + a * w, w > 0.5, 0 * w], names=tuple("abcde"))
    s, w = np.random.default_rng(1).standard_normal((2, rows, 1))
    assert features.involves_w(s, w).tolist() == [False, True, True, True, False]


def test_affine_features_are_expected_exactly():
    found = expected(Gaussian(sd=5.0), MIXED)
    s, w = S[..., 0], 1 + 2 * np.cumsum(S[..., 0], axis=1)
    for a in range(2):
        columns = np.stack([np.ones_like(s), s, w, a * w, s * w], axis=-1)
        np.testing.assert_allclose(found.mean[:, :, a], columns, rtol=1e-13)
    assert (found.exact, found.size, found.mcse.any()) == (True, 0, False)
    assert found.mean.shape == found.mcse.shape == (2, 12, 2, 5)


def test_a_law_that_can_only_be_sampled_is_averaged():
    found = expected(Sampler(sd=1.0), MIXED, s=np.zeros((500, 1, 1)), size=50)
    assert (found.exact, found.size) == (False, 50)
    assert_mean(found.mean[:, 0, 1, 2], 1.0)


def test_a_squared_gaussian_has_its_known_mean_and_error():
    sd, size, centre = 1.5, 8, np.array([1 + 2 * 0.5, 1 + 2 * 0.3])
    s = np.tile([[0.5], [-0.2]], (4000, 1, 1))
    found = expected(Gaussian(sd), SQUARE, s=s, size=size)
    assert not found.exact
    assert_mean(found.mean[:, :, 0, 0], centre**2 + sd**2)
    assert_mean(found.mcse[:, :, 0, 0] ** 2, (2 * sd**4 + 4 * centre**2 * sd**2) / size)


def test_one_set_of_draws_serves_every_action():
    law = Gaussian(sd=1.0)
    found = expected(law, phi(lambda s, w, a: [w**2], actions=5), size=30)
    assert law.sizes.count(30) == 1
    for a in range(1, 5):
        np.testing.assert_array_equal(found.mean[:, :, a], found.mean[:, :, 0])


def test_chunks_do_not_change_the_answer(monkeypatch):
    whole = expected(Gaussian(1.0), SQUARE)
    monkeypatch.setattr(module, "CHUNK", 60)
    parts = expected(Gaussian(1.0), SQUARE)
    np.testing.assert_allclose(parts.mean, whole.mean, rtol=1e-12)
    np.testing.assert_allclose(parts.mcse, whole.mcse, rtol=1e-12)


@pytest.mark.parametrize("power", [1, 2])
def test_each_action_may_have_a_context_series_of_its_own(power):
    s = np.random.default_rng(2).standard_normal((2, 5, 3, 1))
    features = phi(lambda s, w, a: [s, (a + 1) * w**power], names=("s", "w"), actions=3)
    found = expected(Gaussian(sd=0.0), features, s=s)
    assert found.exact == (power == 1)
    np.testing.assert_allclose(found.mean[..., 0], s[..., 0], rtol=1e-13)
    w = 1 + 2 * np.cumsum(s[..., 0], axis=1)
    np.testing.assert_allclose(found.mean[..., 1], [1, 2, 3] * w**power, rtol=1e-13)


LATE = np.where(np.arange(100) < 90, -1.0, 1.0)
BOTH = [-1, 1]
PLACES = {"series": ((2, 1, 1), BOTH), "time": ((1, 100, 1), LATE), "action": ((1, 1, 2, 1), BOTH)}


@pytest.mark.parametrize("place", PLACES)
def test_features_that_are_curved_only_at_some_contexts_are_not_called_affine(place):
    shape, values = PLACES[place]
    features = phi(lambda s, w, a: [np.where(s > 0, w**2, w)])
    assert not expected(Gaussian(1.0), features, s=np.reshape(values, shape)).exact


def test_a_map_that_only_takes_possible_w_is_averaged():
    class Coin(Gaussian):
        def sample(self, s, size, rng):
            return rng.integers(0, 2, (size, *s.shape[:-1], 1)).astype(float)

    look_up = Features(lambda s, w, a: np.eye(2)[w[:, 0].astype(int)], 2, ("tails", "heads"))
    found = expected(Coin(), look_up, s=np.zeros((500, 1, 1)))
    assert_mean(found.mean[:, 0, 0], 0.5)


@pytest.mark.parametrize("power", [1, 2], ids=["exact", "Monte Carlo"])
def test_an_unseen_s_stays_nan_and_touches_nothing_else(power):
    features, s = phi(lambda s, w, a: [a * w**power]), S.copy()
    s[1, -1] = np.nan
    holed, full = expected(Gaussian(0.5), features, s=s), expected(Gaussian(0.5), features)
    assert np.isnan(holed.mean[1, -1]).all()
    holed.mean[1, -1] = full.mean[1, -1]
    np.testing.assert_array_equal(holed.mean, full.mean)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_value_that_is_not_finite_is_laid_at_the_door_of_fn(value):
    features = phi(lambda s, w, a: [s, np.where(a * w > 0, value, w)], names=("ok", "bad"))
    with pytest.raises(FeatureError, match=f"'bad' is {value} for action 1"):
        expected(Gaussian(1.0), features)


@pytest.mark.parametrize("fn", [lambda s, w, a: w[:, 0], lambda s, w, a: np.hstack([w, w, w])])
def test_a_wrong_shape_is_refused(fn):
    with pytest.raises(FeatureError, match=r"fn returned shape .* it must be \(\d+, 2\)"):
        expected(Gaussian(), Features(fn, 2, ("x", "y")))


@pytest.mark.parametrize("actions", [1, 0, -1, 2.0, True, "2"])
def test_fewer_than_two_actions_are_refused(actions):
    with pytest.raises(SettingError, match="Features: actions"):
        Features(SQUARE.fn, actions, ("x",))


def test_settings_out_of_range_are_refused():
    with pytest.raises(SettingError, match="names is empty"):
        Features(SQUARE.fn, 2, ())
    with pytest.raises(SettingError, match="size"):
        expected(Gaussian(), SQUARE, size=1)


@pytest.mark.parametrize("shape", [(3, 1), (2, 3, 5, 1), (1, 2, 3, 2, 1)])
def test_contexts_of_a_wrong_shape_are_refused(shape):
    with pytest.raises(FeatureError, match="s must be"):
        expected(Gaussian(), SQUARE, s=np.zeros(shape))


def test_a_feature_that_looks_at_other_rows_is_refused():
    with pytest.raises(FeatureError, match="rows one by one"):
        expected(Gaussian(), phi(lambda s, w, a: [s - s.mean(0) + w * a]))
