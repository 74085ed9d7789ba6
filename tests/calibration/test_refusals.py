"""What a calibration refuses."""

from dataclasses import replace

import numpy as np
import pytest

import pulse_pyro as pp
from pulse_pyro.base import Schema
from tests.calibration.helpers import (
    BY_ACTION,
    CURVE,
    LINEAR,
    MAIN,
    W_FEATURES,
    Guess,
    check,
    one_input,
)
from tests.helpers import linear_history


@pytest.mark.parametrize("level", [0.0, 1.0, 95, -0.5, np.nan, "high", True])
@pytest.mark.parametrize("make", [pp.calibrate, pp.calibration.all_units, pp.calibration.crossfit])
def test_a_level_outside_0_and_1_is_refused(lagged, level, make):
    law, _, held_out = lagged
    law = law.law if make is pp.calibration.crossfit else law
    with pytest.raises(pp.errors.SettingError, match="level must lie between 0 and 1"):
        make(law, held_out, BY_ACTION.features, seed=0, level=level)


@pytest.mark.parametrize("make", [pp.calibrate, pp.calibration.all_units])
def test_what_is_not_a_fitted_law_a_history_or_features_is_refused(lagged, make):
    law, _, held_out = lagged
    with pytest.raises(pp.errors.ModelError, match=r"got Law; fit it first"):
        make(pp.linear_lags(19), held_out, BY_ACTION.features, seed=0)
    with pytest.raises(pp.errors.DataError, match="a History was expected, but got DataFrame"):
        make(law, held_out.to_frame(), BY_ACTION.features, seed=0)
    with pytest.raises(pp.errors.FeatureError, match="got function"):
        make(law, held_out, BY_ACTION.features.fn, seed=0)


@pytest.mark.parametrize(("names", "name"), [(("t", "w"), "t"), (("s", "v"), "v")])
def test_other_columns_than_the_law_was_fitted_on_are_refused(lagged, names, name):
    law, _, held_out = lagged
    assert (*held_out.s_names, *held_out.w_names) == ("s", "w")
    other = replace(held_out, schema=Schema.of(names[:1], names[1:]))
    with pytest.raises(pp.errors.DataError, match=rf"fitted on columns .* have \('{name}',\)"):
        pp.calibrate(law, other, BY_ACTION.features, seed=0)


def test_the_order_of_columns_must_agree():
    history, _ = linear_history(units=30, time=10, lags=1, w_dim=2, seed=0)
    swapped = replace(history, schema=Schema.of(("s",), ("w1", "w0")))
    law = pp.linear_lags(1).fit(history.take(range(15)), seed=0)
    with pytest.raises(pp.errors.DataError, match="name and order must agree"):
        pp.calibrate(law, swapped.take(range(15, 30)), W_FEATURES, seed=0)


@pytest.mark.parametrize(
    ("band", "family", "words"),
    [
        ("splin", pp.errors.SettingError, "did you mean 'spline'"),
        ("bonkers", pp.errors.SettingError, "'bonkers' is not known; known: 'auto'"),
        (3, pp.errors.SettingError, "a name or a BandMethod, but got 3"),
        (None, pp.errors.SettingError, "a name or a BandMethod, but got None"),
        ("spline", pp.errors.DataError, "'spline' is for one input, the summary has 19"),
        ("local_polynomial", pp.errors.DataError, "is for one input"),
        (pp.bands.BandMethod("spline", critical="scheffe"), pp.PulseError, "one input"),
    ],
)
def test_a_band_that_cannot_be_made_is_refused(lagged, band, family, words):
    law, _, held_out = lagged
    with pytest.raises(family, match=words):
        pp.calibrate(law, held_out, BY_ACTION.features, seed=0, band=band)


def test_too_few_units_are_refused_with_their_number(curve, lagged):
    law, _, held_out = curve
    for units, kind, words in (
        ([0, 1, 2], "spline", r"at least 5 held-out units .* got 3"),
        ([0, 1], "local_polynomial", r"50 held-out rows .* at least 60"),
    ):
        few = held_out.take(units)
        with pytest.raises(pp.errors.DataError, match=words):
            pp.calibrate(law, few, MAIN.features, seed=0, band=kind)
        uniform = pp.calibrate(law, few, MAIN.features, seed=0).rung("uniform")
        assert uniform.verdict == "fails"  # the ladder goes on without it
        assert "held-out" in uniform.remedy
    law, _, held_out = lagged
    with pytest.raises(
        pp.errors.DataError, match="at least 60 held-out rows for 19 inputs, but got 50"
    ):
        pp.calibrate(law, held_out.take([0, 1]), BY_ACTION.features, seed=0, band="linear")


@pytest.mark.parametrize("band", [CURVE, LINEAR])
def test_a_summary_that_does_not_vary_is_refused_by_name(band):
    history = one_input(units=20, rows=10)
    flat = replace(history, s=np.full_like(history.s, 3.0))
    with pytest.raises(pp.errors.DataError, match=r"'s\.lag0' is"):
        pp.calibrate(Guess(pp.Lags(1)), flat, W_FEATURES, seed=0, band=band)


@pytest.mark.parametrize("value", [0.0, 1.0])
@pytest.mark.parametrize("band", [CURVE, LINEAR])
def test_a_w_that_never_changes_is_refused(band, value):
    history = one_input(units=20, rows=10)
    flat = replace(history, w=np.full_like(history.w, value))
    with pytest.raises(pp.errors.DataError, match="constant"):
        pp.calibrate(Guess(pp.Lags(1)), flat, W_FEATURES, seed=0, band=band)


def test_features_that_are_not_finite_at_held_out_rows_are_refused(curve):
    law, _, held_out = curve
    broken = pp.Features(
        lambda s, w, a: np.column_stack([w[:, 0], np.where(s[:, 0] > 0.3, np.nan, a)]),
        2,
        ("W", "odd"),
    )
    with pytest.raises(pp.errors.FeatureError, match="'odd' is nan for action 0"):
        pp.calibrate(law, held_out, broken, seed=0)


def test_features_that_are_not_finite_where_the_law_draws_w_are_refused():
    history = one_input(seed=12)
    history = replace(history, w=history.w + 5)
    log = pp.Features(
        lambda s, w, a: np.log(w, where=w > 0, out=np.full_like(w, np.nan)), 2, ("l",)
    )
    with pytest.raises(pp.errors.FeatureError, match="'l' is nan"):
        pp.calibrate(Guess(pp.Lags(1), intercept=0.0), history, log, seed=0, band=CURVE)


def test_features_without_w_leave_nothing_to_calibrate(curve):
    law, _, held_out = curve
    only_s = pp.Features(lambda s, w, a: np.column_stack([s[:, 0] * a, s[:, 0]]), 2, ("Sa", "S"))
    with pytest.raises(pp.errors.FeatureError, match="nothing to calibrate"):
        pp.calibrate(law, held_out, only_s, seed=0)


def test_features_that_look_at_other_rows_are_refused(curve):
    law, _, held_out = curve
    ranked = pp.Features(lambda s, w, a: w - w.mean(0), 2, ("centred",))
    with pytest.raises(pp.errors.FeatureError, match="rows one by one"):
        pp.calibrate(law, held_out, ranked, seed=0)


@pytest.mark.parametrize("seed", [-1, 1.5, None, True])
def test_a_seed_that_is_not_a_whole_number_is_refused(lagged, seed):
    law, _, held_out = lagged
    with pytest.raises(pp.errors.SettingError, match="seed"):
        pp.calibrate(law, held_out, BY_ACTION.features, seed=seed, band=LINEAR)


def test_crossfit_needs_two_units(lagged):
    law, _, held_out = lagged
    with pytest.raises(pp.errors.DataError, match="at least 2 units"):
        pp.calibration.crossfit(law.law, held_out.take([0]), BY_ACTION.features, seed=0)


def test_one_row_per_unit_is_enough_if_there_are_many_units():
    history, _ = linear_history(units=200, time=1, lags=1, seed=3)
    fit, held_out = history.split(seed=0)
    law = pp.linear_lags(1).fit(fit, seed=0)
    calibration = pp.calibrate(law, held_out, W_FEATURES, seed=0, band=LINEAR)
    assert (calibration.parts[0].band.rows, calibration.parts[0].band.units) == (100, 100)
    assert (calibration.error[:, 0, 0] > 0).all()
    assert check(calibration, "dependence within units").verdict == "pass"
    with pytest.raises(
        pp.errors.DataError, match="at least 24 held-out rows for 1 inputs, but got 20"
    ):
        pp.calibrate(law, held_out.take(range(20)), W_FEATURES, seed=0, band=LINEAR)
    with pytest.raises(pp.errors.DataError, match="No complete row is left"):
        pp.calibrate(Guess(pp.Lags(2), names=(("s",), ("w0",))), held_out, W_FEATURES, seed=0)
