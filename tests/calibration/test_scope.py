"""What a calibration claims, and what it must not: found by trying to break it."""

import numpy as np
import pytest

import pulse_pyro as pp
from tests.calibration.helpers import Guess


def coin_history(units, rows, level, slope, seed):
    """W is 0 or 1 with a chance that depends on S."""
    rng = np.random.default_rng(seed)
    s = rng.standard_normal((units, rows, 1))
    chance = 1 / (1 + np.exp(-(level + slope * s)))
    w = (rng.random(s.shape) < chance).astype(float)
    seen = np.ones((units, rows), bool)
    return pp.History.from_arrays(
        s, w, seen=seen, units=tuple(f"u{i}" for i in range(units)), s_names=("s",), w_names=("w",)
    )


W_ONLY = pp.Features(lambda s, w, a: np.column_stack([np.ones(len(s)), w * (a + 1)]), 2, ("1", "w"))


@pytest.mark.parametrize("band", ["spline", "lipschitz"])
def test_a_w_that_hardly_ever_happens_somewhere_fails_its_check_or_is_refused(band):
    fit, held_out = coin_history(40, 50, -3.0, 1.5, 0).split(seed=0)
    law = pp.linear_lags(1).fit(fit, seed=0)
    try:
        found = pp.calibrate(law, held_out, W_ONLY, seed=0, band=band)
    except pp.errors.DataError:
        with pytest.raises(pp.errors.DataError, match="does not happen there"):
            pp.calibrate(law, held_out, W_ONLY, seed=0, band=band)
        return
    rare = next(c for c in found.checks if c.name == "rare values")
    assert rare.verdict == "fail"
    assert found.rung("uniform").verdict == "fails"


def test_a_fair_coin_passes_the_check_of_rare_values():
    fit, held_out = coin_history(120, 50, 0.0, 0.3, 0).split(seed=0)
    law = pp.linear_lags(1).fit(fit, seed=0)
    found = pp.calibrate(law, held_out, W_ONLY, seed=0)
    assert next(c for c in found.checks if c.name == "rare values").verdict == "pass"


def test_features_of_one_hour_of_the_day_are_not_overlooked():
    rng = np.random.default_rng(0)
    units, days = 100, 42
    slot = np.tile(np.arange(5.0), days)
    s = np.stack([rng.standard_normal((units, 5 * days)), np.tile(slot, (units, 1))], axis=-1)
    w = (s[..., :1] + rng.standard_normal((units, 5 * days, 1))) / 2
    names = tuple(f"u{i}" for i in range(units))
    history = pp.History.from_arrays(s, w, units=names, s_names=("s", "slot"), w_names=("w",))

    def evening(s, w, a):
        return np.column_stack([np.tanh(w), (s[:, 1:] == 3) * w])

    features = pp.Features(evening, 2, ("tanh", "evening"))
    fit, held_out = history.split(0.1, seed=0)
    law = pp.linear_lags(1).fit(fit, seed=0)
    found = pp.calibrate(law, held_out, features, seed=0, band="linear")
    at = held_out.grid.s[:3, :10]
    error = found.error_at(at)[..., 1]
    assert (error[:, at[0, :, 1] == 3] > 0).all()


def test_columns_of_w_that_no_feature_uses_cost_nothing():
    rng = np.random.default_rng(1)
    s = rng.standard_normal((40, 30, 1))
    w = s + 0.3 * rng.standard_normal((40, 30, 1))
    seen, names = np.ones((40, 30), bool), tuple(f"u{i}" for i in range(40))
    idle = np.concatenate([w, np.full_like(w, 7.0)], axis=-1)  # the second never changes
    one = pp.History.from_arrays(s, w, seen=seen, units=names, s_names=("s",), w_names=("w",))
    two = pp.History.from_arrays(
        s, idle, seen=seen, units=names, s_names=("s",), w_names=("w", "idle")
    )
    first = pp.Features(lambda s, w, a: w[:, :1] * (a + 1), 2, ("w",))
    bounds = []
    for history in (one, two):
        fit, held_out = history.split(seed=0)
        names, wide = (history.s_names, history.w_names), len(history.w_names)
        line = Guess(
            pp.Lags(1),
            units=fit.units,
            names=names,
            curve=lambda x, k=wide: x.repeat(k, 1),
        )
        bounds.append(pp.calibrate(line, held_out, first, seed=0).bound)
    np.testing.assert_allclose(bounds[0], bounds[1])


def test_the_linear_band_says_of_how_many_contexts_it_speaks():
    world = pp.envs.w_times_action()
    fit, held_out = world.archive(60, 60, rng=pp.stream(0, "a")).split(seed=0)
    law = pp.linear_lags(19).fit(fit, seed=0)
    cloud = pp.calibrate(law, held_out, world.features, seed=0)
    every = pp.calibrate(
        law,
        held_out,
        world.features,
        seed=0,
        band=pp.bands.BandMethod("linear", critical="scheffe"),
    )
    assert "1000 contexts at once" in repr(cloud)
    assert "every context" in repr(every)
    inside = cloud.inside & np.isfinite(cloud.error).all((1, 2))
    assert (every.error[inside][..., 2] > cloud.error[inside][..., 2]).all()


def test_errors_reach_agents_with_a_law_per_run():
    world = pp.envs.w_times_action()
    law = pp.linear_lags(19).fit(world.archive(20, 60, rng=pp.stream(0, "a")), seed=0)
    online = world.world(2, 30, rng=pp.stream(0, "o"))
    error = np.full((2, 30, 2), 0.1)
    agent = pp.envs.pulse(online, [law, law], error=error)
    np.testing.assert_array_equal(agent.error, error)


def test_a_level_that_needs_more_draws_gets_them_or_is_refused():
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, 600)
    y = x + 0.1 * rng.standard_normal(600)
    sample = pp.bands.Sample(x[:, None], y[:, None], np.repeat(np.arange(30), 20), ("x",), ("w",))
    method = pp.bands.BandMethod("spline", critical="simulate", noise="rows", grid=50, draws=100)
    low, high = (
        pp.bands.make_band(sample, method, level, pp.stream(0, "b")).fit.band.critical[0]
        for level in (0.95, 0.9995)
    )
    assert high > low
    with pytest.raises(pp.errors.SettingError, match="draws of the supremum"):
        pp.bands.make_band(sample, method, 1 - 1e-9, pp.stream(0, "b"))


def test_a_fitted_law_cannot_be_studied_again():
    world = pp.envs.w_times_action()
    history = world.archive(20, 60, rng=pp.stream(0, "a"))
    fitted = pp.linear_lags(19).fit(history, seed=0)
    with pytest.raises(pp.errors.ModelError, match="can be fitted again"):
        pp.calibration.calibration_study(fitted, history, world.features, reps=2, seed=0)


def test_a_curve_in_one_of_several_inputs_is_not_passed_as_linear():
    rng = np.random.default_rng(0)
    s = rng.standard_normal((100, 60, 4))
    w = np.sin(4 * s[..., :1]) + 0.3 * rng.standard_normal((100, 60, 1))
    names = tuple(f"u{i}" for i in range(100))
    history = pp.History.from_arrays(s, w, units=names, s_names=tuple("abcd"), w_names=("w",))
    fit, held_out = history.split(seed=0)
    found = pp.calibrate(pp.linear_lags(1).fit(fit, seed=0), held_out, W_ONLY, seed=0)
    assert found.rung("uniform").verdict == "fails"
    assert "a.lag0, curved" in next(c for c in found.checks if c.name == "lack of fit").text


def test_an_infinite_s_is_not_seen():
    world = pp.envs.main_nonlinear()
    fit, held_out = world.archive(40, 40, rng=pp.stream(0, "a")).split(seed=0)
    law = pp.linear_lags(pp.Window(3, np.mean)).fit(fit, seed=0)
    found = pp.calibrate(law, held_out, world.features, seed=0)
    s = held_out.grid.s[:1].copy()
    s[0, 10] = np.inf
    error = found.error_at(s)[0, :, 0, 2]
    assert np.isnan(error[10:13]).all()
    assert np.isfinite(error[13:]).all()
