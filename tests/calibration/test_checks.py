"""The checks of a calibration, and how it shows them."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose

import pulse_pyro as pp
from tests.calibration.helpers import (
    BENT,
    CURVE,
    LINEAR,
    MAIN,
    W_FEATURES,
    Guess,
    band_values,
    check,
    one_input,
)
from tests.helpers import binomial_floor, linear_history

# --- checks -------------------------------------------------------------------------------------


def test_a_summary_that_drops_a_needed_lag_fails_and_says_what_to_do():
    history, coef = linear_history(units=40, time=20, lags=3, seed=1)
    assert abs(coef[2, 0]) > 0.5
    fit, held_out = history.split(seed=0)
    law = pp.linear_lags(2).fit(fit, seed=0)
    calibration = pp.calibrate(law, held_out, W_FEATURES, seed=0, band=LINEAR)
    found = check(calibration, "lack of fit")
    assert found.verdict == "fail"
    assert calibration.rung("uniform").verdict == "fails"
    assert found.value <= 0.001
    assert "add it to the summary" in found.text


def test_the_current_s_alone_is_not_enough_for_a_mean_of_three(curve):
    _, calibration, held_out = curve
    assert check(calibration, "lack of fit").verdict != "fail"
    law = Guess(pp.Lags(1))
    short = pp.calibrate(law, held_out, MAIN.features, seed=0, band=CURVE)
    assert check(short, "lack of fit").verdict == "fail"


def test_enough_lags_pass_as_often_as_the_level_says():
    runs, passed = 30, 0
    for seed in range(runs):
        history, _ = linear_history(units=24, time=15, lags=2, seed=300 + seed)
        fit, held_out = history.split(seed=0)
        law = pp.linear_lags(3).fit(fit, seed=0)
        calibration = pp.calibrate(law, held_out, W_FEATURES, seed=seed, band=LINEAR)
        found = check(calibration, "lack of fit")
        assert found.verdict == (
            "fail" if found.value <= 0.001 else "warn" if found.value < 0.05 else "pass"
        )
        passed += found.verdict == "pass"
    assert passed >= binomial_floor(runs, 0.95)


def test_dependence_within_few_units_fails_and_many_units_are_clustered():
    history = one_input(units=8, rows=40, seed=2, curve=lambda x: x)
    rng = np.random.default_rng(0)
    moved = replace(history, w=history.w + rng.standard_normal((8, 1))[history.unit_of])
    calibration = pp.calibrate(
        Guess(pp.Lags(1)),
        moved,
        W_FEATURES,
        seed=0,
        band=pp.bands.BandMethod("linear", noise="rows"),
    )
    found = check(calibration, "dependence within units")
    assert found.verdict == "fail"
    assert "8 units" in found.text
    assert calibration.rung("uniform").verdict == "fails"
    many = one_input(units=60, rows=10, seed=2, curve=lambda x: x)
    moved = replace(many, w=many.w + rng.standard_normal((60, 1))[many.unit_of])
    clustered = pp.calibrate(Guess(pp.Lags(1)), moved, W_FEATURES, seed=0, band=LINEAR)
    assert clustered.parts[0].band.noise == "units"
    assert check(clustered, "dependence within units").verdict == "pass"


def test_the_verdict_is_that_of_the_ladder(curve):
    _, calibration, _ = curve
    assert calibration.verdict == "pass"
    assert calibration.standing.verdict == "stands"
    every = [replace(rung, verdict="conditional", rests_on="luck") for rung in calibration.rungs]
    assert replace(calibration, rungs=tuple(every)).verdict == "warn"
    every = [replace(rung, verdict="fails") for rung in calibration.rungs]
    assert replace(calibration, rungs=tuple(every)).verdict == "fail"
    free = calibration.rungs[-1]  # the free line alone is no calibration
    assert replace(calibration, rungs=(*every[:-1], free)).verdict == "fail"


# --- what is shown ------------------------------------------------------------------------------


@pytest.mark.parametrize("which", ["curve", "lagged", "bent"])
def test_the_text_is_short_and_begins_with_the_verdict(which, request):
    calibration = request.getfixturevalue(which)[1]
    lines = repr(calibration).splitlines()
    assert len(lines) <= 14
    assert lines[0] == f"Calibration: {calibration.claim}"
    assert "95%" in lines[0].replace(" %", "%")
    page = calibration._repr_html_()
    assert "<table" in page
    assert page.startswith("<pre>")


def with_checks(calibration, checks):
    uniform, *others = calibration.rungs
    return replace(calibration, rungs=(replace(uniform, checks=checks), *others))


def test_the_worst_check_is_always_among_those_shown(curve):
    calibration = curve[1]
    bad = replace(calibration.checks[0], name="odd one", verdict="fail", text="Look here.")
    many = (*calibration.checks, *calibration.checks, bad)
    text = repr(with_checks(calibration, many))
    assert "Look here." in text
    assert len(text.splitlines()) <= 14


def test_the_table_sums_up_the_bound_inside_the_domain(bent, cross):
    law, _, held_out = bent
    untested = replace(CURVE, tested=False)
    calibration = pp.calibrate(law, held_out, BENT, seed=0, band=untested)
    table = calibration.table
    part = calibration.parts[0]
    assert list(table.index) == list(part.targets.names)
    inside = calibration.inside
    half = band_values(calibration, held_out.grid.s)[1]
    assert_allclose(table["half-width mean"], held_out.flat(half)[inside].mean(0), rtol=1e-12)
    error = calibration.error[:, 1, [1, 3]][inside]
    assert_allclose(table["bound mean"], error.mean(0), rtol=1e-12)
    assert_allclose(table["bound sup"], error.max(0), rtol=1e-12)
    assert_allclose(table["bound^2 mean"], (error**2).mean(0), rtol=1e-12)
    assert len(cross[1].calibration.table) == 2
    assert list(calibration.checks_table.index) == [c.name for c in calibration.checks]


def test_noise_sd_is_that_of_w_around_the_reference_fit(lagged, cross):
    calibration = lagged[1]
    assert calibration.noise_sd[0] == pytest.approx([0.1], rel=0.15)
    assert len(cross[1].calibration.noise_sd) == 2
