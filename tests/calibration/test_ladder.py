"""The ladder of claims: what stands, what is conditional, what fails and then says no number."""

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.signal import lfilter

import pulse_pyro as pp
from pulse_pyro.calibration.halving import halvings
from pulse_pyro.calibration.rung import ON_FORECAST, ON_S, rounded_up
from tests.calibration.helpers import W_FEATURES, split_archive

NAMES = ["uniform", "forecast", "groups", "average", "free"]
WS = pp.Features(lambda s, w, a: np.column_stack([s[:, 0], w[:, 0] * a]), 2, ("S", "Wa"))


def crossed(units=100, rows=30, size=0.6, seed=0):
    """W = S1 + size S1 S2 + noise: a linear law is wrong by an interaction."""
    rng = np.random.default_rng(seed)
    s = rng.standard_normal((units, rows, 5))
    w = s[..., :1] + size * s[..., :1] * s[..., 1:2] + 0.5 * rng.standard_normal((units, rows, 1))
    fit, held_out = pp.History.from_arrays(s, w).split(seed=0)
    return pp.linear_lags(1).fit(fit, seed=0), held_out


@pytest.fixture(scope="module")
def right():
    law, held_out, _ = split_archive(lags=4, units=60)
    return law, held_out, pp.calibrate(law, held_out, W_FEATURES, seed=0, groups=["forecast"])


@pytest.fixture(scope="module")
def wrong():
    law, held_out = crossed()
    return law, held_out, pp.calibrate(law, held_out, W_FEATURES, seed=0)


def test_every_rung_is_there_in_order_and_the_highest_that_stands_is_told(right):
    calibration = right[2]
    assert [rung.name for rung in calibration.rungs] == NAMES
    verdicts = [rung.verdict for rung in calibration.rungs]
    assert verdicts == ["conditional", "stands", "stands", "stands", "stands"]
    assert calibration.standing.name == "forecast"
    assert calibration.claim == calibration.rung("forecast").claim
    assert calibration.verdict == "pass"
    assert calibration.feeds.name == "uniform"
    assert calibration.usable
    with pytest.raises(pp.errors.SettingError, match="did you mean 'uniform'"):
        calibration.rung("unifrom")


def test_the_uniform_rung_is_conditional_with_one_input_too(right):
    uniform = right[2].rung("uniform")
    assert "linear" in uniform.rests_on
    assert uniform.claim.startswith("If ")
    law, held_out, _ = split_archive(lags=1, units=120)
    one = pp.calibrate(law, held_out, W_FEATURES, seed=0).rung("uniform")
    assert one.verdict == "conditional"
    assert "linear" not in one.rests_on
    assert "nothing else of S" in one.rests_on  # it may depend on rows that no test looks back to


def test_a_rung_that_fails_states_no_number(wrong):
    _, held_out, calibration = wrong
    uniform = calibration.rung("uniform")
    assert uniform.verdict == "fails"
    assert np.isnan(uniform.size)
    assert uniform.remedy
    assert not re.search(r"\d\.\d", uniform.claim)
    assert calibration.verdict == "pass"  # the forecast's rung stands
    assert calibration.standing.name == calibration.feeds.name == "forecast"
    with pytest.raises(pp.errors.SettingError, match="does not hold"):
        calibration.error_at(held_out, rung="uniform")
    with pytest.raises(pp.errors.SettingError, match="no errors at single contexts"):
        calibration.error_at(held_out, rung="average")


def test_a_failed_rung_that_still_feeds_a_policy_is_no_bound():
    law, held_out = crossed()
    everything = pp.Features(
        lambda s, w, a: np.column_stack([s[:, :4], w[:, 0] * a]), 2, ("a", "b", "c", "d", "Wa")
    )
    calibration = pp.calibrate(law, held_out, everything, seed=0)
    assert calibration.feeds.name == "uniform"
    assert not calibration.usable
    with pytest.raises(pp.errors.SettingError, match="does not hold"):
        calibration.error_at(held_out, rung="uniform")
    with pytest.warns(UserWarning, match="check of this calibration failed"):
        policy = pp.PulseUCB(
            law, everything, calibration=calibration, reward_sd=0.1, theta_bound=1.0
        )
    assert "heuristic" in repr(policy)


@pytest.mark.parametrize("name", ["products of inputs", "hunting"])
def test_an_interaction_is_seen_and_named(wrong, name):
    found = next(check for check in wrong[2].checks if check.name == name)
    assert found.verdict == "fail"
    assert "s0.lag0" in found.text
    assert "s1.lag0" in found.text


def test_the_claims_of_a_wrong_law_are_true_all_the_same(wrong):
    law, held_out, calibration = wrong
    s = held_out.s
    delta = s[:, :1] + 0.6 * s[:, :1] * s[:, 1:2] - law(held_out).mean()
    rms = np.sqrt((delta**2).mean()) / held_out.w.std()
    assert calibration.rung("free").size > rms
    assert calibration.rung("average").size > rms  # the product is among its functions
    assert "not seen" in calibration.rung("average").claim
    assert calibration.rung("forecast").size < rms  # there it averages out


def test_given_what_phi_sees_the_forecasts_rung_feeds_policies_and_says_against_whom():
    law, held_out = crossed()
    phi = pp.terms(["1", "w0", "a", "w0*a"], 2, observed=list(held_out.s_names), missing=["w0"])
    calibration = pp.calibrate(law, held_out, phi, seed=0)
    assert calibration.rung("uniform").verdict == "fails"
    assert calibration.feeds.name == "forecast"
    assert calibration.feeds.benchmark == ON_FORECAST
    assert "play with a band given all that Phi sees" in calibration.rung("forecast").claim
    part = calibration.parts[0]
    assert part.inputs.names == ("forecast of w0",)
    error = calibration.error_at(held_out, rung="forecast")
    mean = law(held_out).mean()
    half = part.band.at(mean)
    assert_allclose(error[:, 0, 1], (half.half + np.abs(half.centre))[:, 0], rtol=1e-9)
    policy = pp.PulseUCB(law, phi, calibration=calibration, reward_sd=0.1, theta_bound=1.0)
    assert "best policy on the forecast" in repr(policy)


def test_inputs_of_the_band_may_be_fewer_than_the_laws(right):
    law, held_out, _ = right
    calibration = pp.calibrate(law, held_out, WS, seed=0, inputs="forecast")
    names = calibration.parts[0].inputs.names
    assert names == (held_out.s_names[0], f"forecast of {held_out.w_names[0]}")
    named = pp.calibrate(law, held_out, WS, seed=0, inputs=[law_input(law, held_out, 0)])
    assert named.parts[0].inputs.names == (law_input(law, held_out, 0),)
    assert "depends on nothing else" in named.rung("uniform").rests_on or (
        named.rung("uniform").verdict == "fails"
    )
    for inputs in (["nothing"], [], ["forecast", "forecast"]):
        with pytest.raises(pp.errors.SettingError, match="input"):
            pp.calibrate(law, held_out, WS, seed=0, inputs=inputs)


def law_input(law, history, k):
    return history.rows(law.summary).x_names[k]


def test_errors_of_the_streaming_policy_are_those_of_the_batch_given_the_forecast(right):
    law, held_out, _ = right
    calibration = pp.calibrate(law, held_out, WS, seed=0, inputs="forecast")
    if not calibration.usable:
        pytest.skip("the smaller band was refuted here")
    series = held_out.grid.s[:1]
    batch = calibration.reward_error(series, theta_bound=2.0)[0]
    errors, follower = calibration.errors(theta_bound=2.0), law.follow()
    for t, s in enumerate(series[0]):
        follower.push(s)
        if np.isfinite(batch[t]).all():
            assert_allclose(errors.at([follower]), batch[t], rtol=1e-9)


def test_a_band_of_the_laws_own_error_is_that_of_w_for_a_linear_law(right):
    law, held_out, own = right
    method = pp.bands.BandMethod("linear", of="target")
    plain = pp.calibrate(law, held_out, W_FEATURES, seed=0, band=method)
    assert own.parts[0].own_error
    assert not plain.parts[0].own_error
    assert_allclose(own.error, plain.error, rtol=1e-6)


def test_all_units_and_regressors_smooth_w_itself(right):
    _, held_out, _ = right
    law = pp.linear_lags(4).fit(held_out, seed=0)
    whole = pp.calibration.all_units(law, held_out, W_FEATURES, seed=0)
    assert not whole.parts[0].own_error
    assert [rung.verdict for rung in whole.rungs[1:]] == ["not asked"] * 4
    with pytest.raises(pp.errors.SettingError, match="not fitted on"):
        pp.calibration.all_units(
            law, held_out, W_FEATURES, seed=0, band=pp.bands.BandMethod(of="error")
        )


def test_without_a_band_there_is_a_ladder_and_no_error():
    law, held_out, _ = split_archive(lags=2, units=12, time=6)
    calibration = pp.calibrate(law, held_out, W_FEATURES, seed=0)
    if calibration.parts:
        pytest.skip("a band was to be had")
    assert calibration.rung("uniform").verdict == "fails"
    assert "No uniform band" in calibration.rung("uniform").claim
    assert not calibration.inside_at(held_out).any()
    with pytest.raises(pp.errors.SettingError, match="no error at single contexts"):
        calibration.error_at(held_out)
    with pytest.raises(pp.errors.SettingError, match="no error at single contexts"):
        pp.PulseUCB(law, W_FEATURES, calibration=calibration, reward_sd=0.1, theta_bound=1.0)


def test_budgets_of_rungs_add_up_one_bound_for_every_context(right):
    calibration = right[2]
    for name in ("average", "free"):
        bound = calibration.rung(name).details.largest_bound[0]
        # Phi = (W, W a): both features of arm 1 are off by as much
        assert_allclose(calibration.budget(rounds=10, rung=name), 10 * np.sqrt(2) * bound)
    with pytest.raises(pp.errors.SettingError, match="no bound to add up"):
        calibration.budget(rounds=10, rung="forecast")
    with pytest.raises(pp.errors.SettingError, match=r"'groups' bounds mean errors.*rung='free'"):
        calibration.budget(rounds=10, rung="groups")


def test_what_was_saved_has_the_same_ladder(right, tmp_path):
    calibration = right[2]
    again = pp.load(pp.save(calibration, tmp_path / "c"), features=W_FEATURES)
    assert again.claim == calibration.claim
    assert repr(again) == repr(calibration)
    for one, two in zip(again.rungs, calibration.rungs, strict=True):
        assert [check.text for check in one.checks] == [check.text for check in two.checks]
        assert_array_equal(one.sizes, two.sizes)
        if two.details is not None:
            assert one.details.table.equals(two.details.table)


def test_crossfitting_puts_both_halves_together():
    history = split_archive(lags=2, units=80)[1]
    made = pp.calibration.crossfit(pp.linear_lags(2), history, W_FEATURES, seed=0).calibration
    assert [rung.name for rung in made.rungs] == NAMES
    assert "First:" in made.claim
    assert made.rung("forecast").benchmark == ""
    assert made.rung("uniform").benchmark == ON_S
    assert len(made.rung("free").details.table) == 2


def test_a_committee_around_a_ball_given_the_forecast_is_a_heuristic():
    from pulse_pyro.policies.balls import with_advisor_note
    from pulse_pyro.policies.guard import no_fence

    ball = replace(no_fence(2), benchmark=ON_FORECAST)
    assert with_advisor_note(ball, True).heuristic
    assert not with_advisor_note(ball, False).heuristic
    assert not with_advisor_note(replace(ball, benchmark=ON_S), True).heuristic


# What is easily claimed although it is false.


def dated(units, rows, w_of, seed=0):
    """Units on the same days; w_of(s, rng) : (units, rows) -> W."""
    rng = np.random.default_rng(seed)
    s = rng.standard_normal((units, rows))
    frame = pd.DataFrame({"who": np.repeat([f"p{i:03d}" for i in range(units)], rows)})
    frame["day"] = np.tile(pd.date_range("2026-01-01", periods=rows), units)
    frame["s"], frame["w"] = s.ravel(), w_of(s, rng).ravel()
    roles = {"unit": "who", "time": "day", "observed": ["s"], "missing": ["w"]}
    return pp.History.from_frame(frame, **roles).split(seed=seed)


def climbed(fit, held_out, **more):
    law = pp.linear_lags(1).fit(fit, seed=0)
    return pp.calibrate(law, held_out, W_FEATURES, seed=0, **more)


def test_clusters_that_share_days_and_move_together_carry_no_claim():
    shocked = dated(120, 30, lambda s, rng: s + rng.standard_normal(s.shape[1]) + 0 * s)
    found = climbed(*shocked)
    told = [rung.verdict for rung in found.rungs]
    assert told == ["fails", "fails", "not asked", "fails", "fails"]  # no groups were declared
    asked = [rung for rung in found.rungs[1:] if rung.verdict == "fails"]
    assert all("larger clusters" in rung.remedy for rung in asked)
    plain = dated(120, 30, lambda s, rng: s + rng.standard_normal(s.shape))
    assert climbed(*plain).standing.name == "forecast"


def test_too_few_clusters_to_see_that_they_move_together_leave_conditional_claims():
    few = climbed(*dated(24, 40, lambda s, rng: s + rng.standard_normal(s.shape)))  # 12 held out
    assert {rung.verdict for rung in few.rungs[1:]} <= {"conditional", "not asked", "fails"}
    assert "12 clusters are too few to see it" in few.rung("forecast").rests_on
    enough = climbed(*dated(48, 40, lambda s, rng: s + rng.standard_normal(s.shape)))
    assert enough.standing.name == "forecast"


def test_a_w_that_never_varies_is_not_said_to_be_forecast_without_error():
    first = np.where(np.arange(60) == 0, 1.0, 0.0)[:, None]
    fit, held_out = dated(60, 10, lambda s, _: first + 0 * s)
    law = pp.linear_lags(1).fit(fit if fit.w.any() else held_out, seed=0)
    found = pp.calibrate(law, held_out if fit.w.any() else fit, W_FEATURES, seed=0)
    assert {rung.verdict for rung in found.rungs[1:]} == {"fails", "not asked"}
    assert "does not vary" in found.claim


def test_errors_given_the_forecast_feed_no_policy_where_rounds_hang_on_earlier_ones():
    def lagging(s, rng):
        return 0.5 * s + np.roll(s, 2, axis=1) + 0.3 * rng.standard_normal(s.shape)

    rng = np.random.default_rng(0)
    s = lfilter([1.0], [1.0, -0.9], rng.standard_normal((120, 90)), axis=1)[:, 50:, None]
    fit, held_out = pp.History.from_arrays(s, lagging(s[..., 0], rng)[..., None]).split(seed=0)
    found = climbed(fit, held_out, inputs="forecast")
    assert found.rung("forecast").holds
    assert not found.rung("forecast").benchmark
    with pytest.raises(pp.errors.SettingError, match="reliability is all"):
        found.errors("forecast")


def test_errors_given_the_forecast_can_be_asked_for_beside_the_uniform_ones():
    fit, held_out = dated(160, 20, lambda s, rng: s + 0.5 * rng.standard_normal(s.shape))
    found = climbed(fit, held_out, inputs="forecast")
    assert found.feeds.name == "uniform"
    assert found.radius(sigma=0.1, rung="forecast").benchmark == ON_FORECAST
    assert found.radius(sigma=0.1).benchmark == ON_S


def test_a_band_of_another_laws_error_is_refused():
    fit, held_out = dated(160, 20, lambda s, rng: s + 0.5 * rng.standard_normal(s.shape))
    band = climbed(fit, held_out).parts[0].band
    other = pp.linear_lags(1).fit(fit.take(np.arange(40)), seed=0)
    with pytest.raises(pp.errors.DataError, match="the band is for"):
        pp.calibrate(other, held_out, W_FEATURES, seed=0, band=band)


def test_a_budget_is_not_made_of_errors_that_bound_nothing(wrong):
    _, held_out = crossed()
    found = pp.calibrate(wrong[0], held_out, W_FEATURES, seed=0, band="linear")
    assert not found.usable
    with pytest.raises(pp.errors.SettingError, match="bound nothing"):
        found.budget(rounds=10)
    assert found.budget(rounds=10, rung="average") > 0


def test_inputs_that_are_no_names_are_refused(right):
    with pytest.raises(pp.errors.SettingError, match="names of columns"):
        pp.calibrate(right[0], right[1], W_FEATURES, seed=0, inputs=3)


def test_claims_are_rounded_up():
    assert rounded_up(0.3701) == "0.38"
    assert rounded_up(0.37) == "0.37"


def biased(observed=("s0", "s1"), rows=30):
    """W = S2 + noise and a law that says .4 of it: the error is a function of its forecast."""
    rng = np.random.default_rng(0)
    s = rng.standard_normal((120, rows, 2))
    w = s[..., 1:] + 0.5 * rng.standard_normal((120, rows, 1))
    names = {"s_names": observed, "w_names": ("w",)}
    fit, held_out = pp.History.from_arrays(s, w, **names).split(seed=0)
    smaller = replace(fit, w=0.4 * fit.w)
    phi = pp.terms(["1", "s0", "w", "w*a"], 2, observed=list(observed), missing=["w"])
    return pp.linear_lags(1).fit(smaller, seed=0), held_out, phi


@pytest.mark.parametrize("part", [["s0"], ["forecast of w"]])
def test_a_band_given_part_of_what_phi_sees_feeds_no_policy(part):
    law, held_out, phi = biased()
    found = pp.calibrate(law, held_out, phi, seed=0, inputs=part)
    forecast = found.rung("forecast")
    assert forecast.verdict == "stands"  # reliability is a claim of its own
    assert forecast.benchmark == ""
    with pytest.raises(pp.errors.SettingError, match="all that Phi sees"):
        found.error_at(held_out, rung="forecast")
    whole = pp.calibrate(law, held_out, phi, seed=0, inputs=["forecast", "s0"])
    assert whole.rung("forecast").benchmark == ON_FORECAST


def shaken():
    """W follows S and a shock that all units share at equal steps, which are plain numbers."""
    rng = np.random.default_rng(0)
    units, rows = 60, 60
    s = rng.standard_normal((units, rows))
    shared = lfilter([np.sqrt(1 - 0.81)], [1, -0.9], rng.standard_normal(rows))
    w = s + 0.5 * shared + np.sqrt(0.75) * rng.standard_normal((units, rows))
    frame = pd.DataFrame(
        {
            "unit": np.repeat([f"u{i}" for i in range(units)], rows),
            "t": np.tile(np.arange(rows), units),
            "s0": s.ravel(),
            "w": w.ravel(),
        }
    )
    history = pp.History.from_frame(frame, unit="unit", time="t", observed=["s0"], missing=["w"])
    return history.split(seed=0)


def test_units_that_move_together_at_times_that_are_no_dates_leave_conditional_claims():
    fit, held_out = shaken()
    law = pp.linear_lags(1).fit(fit, seed=0)
    untested = pp.bands.BandMethod("linear", tested=False)
    phi = pp.terms(["1", "w"], 2, observed=["s0"], missing=["w"])
    found = pp.calibrate(law, held_out, phi, seed=0, band=untested, groups=["time"])
    told = {rung.name: rung.verdict for rung in found.rungs}
    assert told == dict.fromkeys(NAMES, "conditional")
    assert "not the same date" in found.rung("groups").claim
    assert found.verdict == "warn"


def test_a_time_course_and_units_that_stay_long_bar_errors_given_the_forecast():
    law, held_out, phi = biased()
    step = np.arange(30) / 29
    moved = replace(held_out, w=held_out.w + 0.8 * np.tile(step, len(held_out.units))[:, None])
    found = pp.calibrate(law, moved, phi, seed=0, inputs="forecast")
    assert found.rung("forecast").verdict == "stands"
    assert found.rung("forecast").benchmark == ""


def test_rows_of_a_unit_that_depend_on_each_other_are_told_of_in_what_a_ball_rests_on():
    law, held_out, phi = biased()
    level = np.random.default_rng(1).standard_normal(len(held_out.units))
    lasting = replace(held_out, w=held_out.w + 0.7 * np.repeat(level, 30)[:, None])
    found = pp.calibrate(law, lasting, phi, seed=0, inputs="forecast")
    assert "past rewards of a unit" in found.rung("uniform").rests_on
    assert "past rewards of a unit" in found.rung("forecast").rests_on
    clean = pp.calibrate(law, held_out, phi, seed=0, inputs="forecast")
    assert "past rewards of a unit" not in clean.rung("uniform").rests_on


@pytest.mark.parametrize("lags", [1, 4])
def test_time_beyond_the_longest_unit_is_outside(lags):
    law, held_out, _ = split_archive(lags=lags, units=60)
    found = pp.calibrate(law, held_out, W_FEATURES, seed=0)
    longest = int(held_out.lengths.max())
    s = np.concatenate([held_out.grid.s[:4], held_out.grid.s[:4]], axis=1)
    inside = found.inside_at(s)
    assert inside[:, lags:longest].mean() > 0.8
    assert not inside[:, longest:].any()


def test_summaries_of_a_band_that_failed_are_not_to_be_had():
    law, held_out = crossed()
    everything = pp.Features(
        lambda s, w, a: np.column_stack([s[:, :4], w[:, 0] * a]), 2, ("a", "b", "c", "d", "Wa")
    )
    failed = pp.calibrate(law, held_out, everything, seed=0)
    for ask in (
        lambda: failed.table,
        lambda: failed.bound,
        lambda: pp.calibration.references(failed),
        lambda: halvings(failed),
    ):
        with pytest.raises(pp.errors.SettingError, match="bound nothing"):
            ask()


def test_groups_that_were_not_asked_for_do_not_fail():
    law, held_out, _ = split_archive(lags=1, units=60)
    still = replace(held_out, w=np.zeros_like(held_out.w))
    found = pp.calibrate(law, still, W_FEATURES, seed=0)
    assert found.rung("groups").verdict == "not asked"
    assert found.rung("forecast").verdict == "fails"
