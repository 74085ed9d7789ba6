import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from pulse_pyro._core.errors import SettingError
from pulse_pyro._core.seeds import stream
from pulse_pyro.envs.hard import Bumps, HardWorld
from pulse_pyro.laws.linear import linear_lags
from tests.helpers import assert_mean, mean_at, z_bound

PLAIN = HardWorld(1500)  # M = 5: ten bins of width .2, bumps .2 high
ROUGH = HardWorld(1152, beta=0.5)  # M = 12
SQUARE = HardWorld(768, d_non=2)  # M = 2: 16 bins of width .5
INSTANCES = pytest.mark.parametrize("instance", [PLAIN, ROUGH, SQUARE], ids=["plain", "rough", "2"])


def draw(instance, runs=400, horizon=100, seed=0):
    return instance.world(runs, horizon, rng=stream(seed, "test"))


@pytest.mark.parametrize(
    ("instance", "m", "energy", "peak"),
    [(PLAIN, 5, 1 / 3, 0.2), (ROUGH, 12, 1 / 2, 12**-0.5), (SQUARE, 2, 1 / 6, 0.5)],
)
def test_number_energy_and_height_of_bumps_by_hand(instance, m, energy, peak):
    bumps = instance.bumps
    assert (bumps.m, bumps.bins) == (m, (2 * m) ** instance.d_non)
    assert bumps.energy == pytest.approx(energy)
    assert instance.peak == pytest.approx(peak)
    # N rows, half of them with Q = 0, one in `bins` of those in a bin
    per_bin = instance.rows / 2 / bumps.bins
    assert per_bin * energy * peak**2 == pytest.approx(1.0)


def test_m_is_the_nearest_whole_number_and_at_least_one():
    assert HardWorld(12 * 5**3 + 40).bumps.m == 5
    assert HardWorld(12 * 8 * 5**3).bumps.m == 10
    assert HardWorld(1).bumps.m == 1
    assert HardWorld(1500, snr=8.0).bumps.m == round((125 / 8) ** (1 / 3))
    assert HardWorld(1500, w_sd=2.0, height=2.0).bumps.m == 5


@INSTANCES
def test_f_at_centres_edges_and_outside(instance):
    m, d = instance.bumps.m, instance.d_non
    centres = instance.bumps.centres
    assert np.allclose(instance.f(centres), instance.omega * instance.peak)
    assert np.allclose(instance.f(centres + 0.5 / m), 0.0, atol=1e-7)
    assert np.allclose(instance.f(centres - 0.5 / m), 0.0, atol=1e-7)
    quarter = centres.copy()
    quarter[:, 0] += 0.25 / m
    half = instance.omega * instance.peak * 0.5**instance.beta
    assert np.allclose(instance.f(quarter), half)
    quarter[:, -1] = centres[:, -1] + (0.125 if d > 1 else 0.25) / m  # the farther axis decides
    assert np.allclose(instance.f(quarter), half)
    assert (instance.f(np.full((1, d), 2.0)) == 0.0).all()
    assert (instance.f(np.full((1, d), -1.0001)) == 0.0).all()


def test_bins_are_numbered_along_the_first_axis_first():
    index, height = SQUARE.bumps.locate(np.array([[-0.75, -0.75], [-0.25, -0.75], [0.75, 0.25]]))
    assert index.tolist() == [0, 1, 3 + 4 * 2]
    assert np.allclose(height, 1.0)
    assert np.allclose(
        SQUARE.bumps.centres[[0, 1, 11]], [[-0.75, -0.75], [-0.25, -0.75], [0.75, 0.25]]
    )


@INSTANCES
def test_hoelder_constant(instance):
    rng = stream(0, "pairs")
    o = rng.uniform(-1.2, 1.2, (20000, instance.d_non))
    near = o + rng.normal(size=o.shape) * 10.0 ** rng.uniform(-4, 0, (len(o), 1))
    change = np.abs(instance.f(o) - instance.f(near))
    apart = np.linalg.norm(o - near, axis=1)
    assert (change <= 2.0 * instance.height * apart**instance.beta + 1e-9).all()


def test_the_printed_constant_is_too_small_where_beta_is_below_one():
    centre = ROUGH.bumps.centres[:1]
    edge = centre + 0.5 / ROUGH.bumps.m
    printed = 0.5 * 2**0.5 * ROUGH.height * (0.5 / ROUGH.bumps.m) ** 0.5
    assert abs(ROUGH.f(centre) - ROUGH.f(edge))[0] > 1.5 * printed


@INSTANCES
def test_half_of_the_signs_are_positive_and_they_belong_to_the_instance(instance):
    assert set(instance.omega) == {-1.0, 1.0}
    assert instance.omega.sum() == 0.0
    assert (instance.omega == replace(instance, reward_sd=1.0).omega).all()
    assert (instance.omega != replace(instance, seed=1).omega).any()


@INSTANCES
def test_contexts(instance):
    s = draw(instance).s
    linear = instance.linear(s)
    q, o = s[..., : instance.d_lin], s[..., instance.d_lin :]
    assert_mean(linear.ravel(), 0.5)
    assert (q[~linear] == 0.0).all()
    assert (o[linear] == 2.0).all()
    assert (q[linear].sum(-1) == 1.0).all()
    assert set(np.unique(q)) == {0.0, 1.0}
    assert_mean(q[linear][:, 0], 1 / instance.d_lin)
    inside = o[~linear]
    assert (np.abs(inside) <= 1.0).all()
    assert_mean(inside, np.zeros(instance.d_non))
    assert_mean(inside**2, np.full(instance.d_non, 1 / 3))
    lag = (linear[:, 1:] - 0.5) * (linear[:, :-1] - 0.5)
    assert_mean(lag.mean(1), 0.0)


@INSTANCES
def test_w_has_mean_f_given_o(instance):
    history = instance.archive(400, 1000, rng=stream(0, "archive"))
    o, w = history.grid.s[..., instance.d_lin :], history.grid.w[..., 0]
    linear = instance.linear(history.grid.s)
    assert_mean(w[linear], 0.0)
    rest = (w - instance.f(o))[~linear]
    assert_mean(rest, 0.0)
    assert_mean(rest**2, instance.w_sd**2)
    index, _ = instance.bumps.locate(o)
    d, beta = instance.d_non, instance.beta  # E[phi] = d B(d, beta + 1)
    average = d * math.gamma(d) * math.gamma(beta + 1) / math.gamma(d + beta + 1)
    for j in (0, 3):
        inside = w[~linear & (index == j)]
        z = (inside.mean() - instance.omega[j] * instance.peak * average) / inside.std()
        assert abs(z) * math.sqrt(len(inside)) <= z_bound(2)
    assert history.s_names == instance.features.names[:-1]


def test_the_best_test_of_a_sign_errs_as_often_as_the_signal_to_noise_says():
    wrong, expected = 0, []
    for r in range(200):
        history = PLAIN.archive(12, 125, rng=stream(r, "archive"))
        index, bump = PLAIN.bumps.locate(history.grid.s[..., PLAIN.d_lin :])
        w = history.grid.w[..., 0]
        score = np.bincount(index.ravel(), (bump * w).ravel(), PLAIN.bumps.bins)
        signal = np.bincount(index.ravel(), (bump**2).ravel(), PLAIN.bumps.bins) * PLAIN.peak**2
        wrong += (score * PLAIN.omega < 0).sum()
        expected.append(stats.norm.sf(np.sqrt(signal)))
    chance = np.concatenate(expected)
    assert chance.mean() == pytest.approx(stats.norm.sf(1.0), rel=0.05)
    sd = math.sqrt((chance * (1 - chance)).sum())
    assert abs(wrong - chance.sum()) <= z_bound() * sd


@INSTANCES
def test_rewards(instance):
    world = draw(instance)
    d_lin, s = instance.d_lin, world.s
    assert world.theta.tolist() == instance.theta(100).tolist()
    assert np.abs(world.theta[:d_lin]) == pytest.approx(math.sqrt(d_lin / 100))
    assert (world.theta[d_lin:-1] == 0.0).all()
    assert world.theta[-1] == 0.5
    assert np.linalg.norm(world.theta) == pytest.approx(math.sqrt(0.25 + d_lin**2 / 100))
    assert (world.phi[..., 1, :] == np.concatenate([s, world.w], -1)).all()
    assert (world.phi[..., 0, :d_lin] == -s[..., :d_lin]).all()
    assert (world.phi[..., 0, d_lin:] == 0.0).all()
    assert (world.phibar[..., :-1] == world.phi[..., :-1]).all()
    assert np.allclose(world.phibar[..., 1, -1], instance.f(s[..., d_lin:]))
    assert_mean((world.phi - world.phibar)[..., 1, -1].ravel(), 0.0)
    linear = instance.linear(s)
    gap = world.mean_cond[..., 1] - world.mean_cond[..., 0]
    assert np.allclose(np.abs(gap[linear]), 2 * math.sqrt(d_lin / 100))
    assert np.allclose(gap[~linear], 0.5 * instance.f(s[~linear][:, d_lin:]))
    assert_mean(world.noise.ravel(), 0.0)
    assert_mean(world.noise.ravel() ** 2, 0.5)
    blur = world.w[..., 0] - instance.f(s[..., d_lin:])
    assert_mean((blur * world.noise).ravel(), 0.0)
    assert world.features.affine_in_w(s[0], world.w[0])


def test_one_seed_one_world_and_longer_horizons_go_on():
    short, again, long = draw(PLAIN, 5, 60), draw(PLAIN, 5, 60), draw(PLAIN, 5, 200)
    for name in ("s", "w", "noise"):
        value = getattr(short, name)
        assert (value == getattr(again, name)).all()
        assert (value == getattr(long, name)[:, :60]).all()
        assert (value[0] != value[1]).any()
    assert (short.s != draw(PLAIN, 5, 60, seed=1).s).any()
    first = PLAIN.archive(3, 40, rng=stream(0, "archive"))
    assert (first.w == PLAIN.archive(3, 40, rng=stream(0, "archive")).w).all()


@INSTANCES
def test_bumps_are_a_summary(instance):
    bumps, s = instance.bumps, draw(instance, 3, 50).s
    x = bumps(s)
    assert x.shape == (3, 50, len(bumps.names) * s.shape[-1])
    assert x.shape[-1] - bumps.bins in range(s.shape[-1])
    assert (x[..., bumps.bins :] == 0.0).all()
    assert np.allclose(
        x[..., : bumps.bins] @ instance.omega * instance.peak, instance.f(s[..., instance.d_lin :])
    )
    assert (bumps.last(s[0, :7]) == x[0, 6]).all()
    s[0, 3, -1] = np.nan
    assert np.isnan(bumps(s)[0, 3]).any()
    assert not np.isnan(bumps(s)[0, 4]).any()


@INSTANCES
def test_a_linear_law_on_the_bumps_finds_f_from_many_rows(instance):
    history = instance.archive(100, 2000, rng=stream(0, "archive"))
    law = linear_lags(instance.bumps).fit(history, seed=0)
    at = np.concatenate(
        [np.zeros((instance.bumps.bins, instance.d_lin)), instance.bumps.centres], axis=1
    )
    off = mean_at(law, at[None])[0, :, 0] - instance.f(instance.bumps.centres)
    per_bin = 100_000 / instance.bumps.bins * instance.bumps.energy  # sum of phi^2 in a bin
    sd = instance.w_sd / math.sqrt(0.8 * per_bin)  # rows of a bin vary, and so does the intercept
    assert np.abs(off).max() <= z_bound(len(off)) * sd


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"rows": 0}, "rows must be a whole number >= 1"),
        ({"rows": 10.5}, "rows must be a whole number"),
        ({"d_lin": 0}, "d_lin must be a whole number >= 1"),
        ({"d_non": 0}, "d_non must be a whole number >= 1"),
        ({"beta": 0.0}, "beta must be a finite number > 0"),
        ({"beta": 1.5}, "beta must be at most 1"),
        ({"height": -1.0}, "height must be a finite number > 0"),
        ({"snr": math.inf}, "snr must be a finite number > 0"),
        ({"w_sd": 0.0}, "w_sd must be a finite number > 0"),
        ({"reward_sd": "much"}, "reward_sd must be a number"),
        ({"seed": -1}, "seed must be an integer >= 0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(change, words):
    with pytest.raises(SettingError, match=words):
        replace(PLAIN, **change)


def test_sizes_that_make_no_sense_are_refused():
    rng = stream(0, "test")
    with pytest.raises(SettingError, match="d_lin = 2 needs more than 5 rounds"):
        PLAIN.world(3, 5, rng=rng)
    assert np.linalg.norm(PLAIN.theta(6)) < 1.0
    with pytest.raises(SettingError, match="horizon must be a whole number"):
        PLAIN.world(3, 0, rng=rng)
    with pytest.raises(SettingError, match="runs must be a whole number"):
        PLAIN.world(0, 50, rng=rng)
    with pytest.raises(SettingError, match="units must be a whole number"):
        PLAIN.archive(0, 5, rng=rng)
    with pytest.raises(SettingError, match="length must be a whole number"):
        PLAIN.archive(5, 0, rng=rng)
    with pytest.raises(SettingError, match="m must be a whole number"):
        Bumps(1, 1, 0, 1.0)
