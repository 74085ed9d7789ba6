"""The study of a recipe's coverage."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

import pulse_pyro as pp
from pulse_pyro.calibration import coverage as study_module
from tests.calibration.helpers import LINEAR, NOT_AFFINE, W_FEATURES, Shifted
from tests.helpers import binomial_floor, linear_history


@pytest.mark.parametrize("hits", [0, 1, 7, 19, 20])
def test_the_interval_of_the_coverage_is_clopper_and_pearsons(hits):
    covered = np.arange(20) < hits
    study = pp.calibration.CoverageStudy(0.95, covered, np.ones(20), ("linear",) * 20)
    low = stats.beta.ppf(0.025, hits, 21 - hits) if hits else 0.0
    high = stats.beta.ppf(0.975, hits + 1, 20 - hits) if hits < 20 else 1.0
    assert study.coverage == hits / 20
    assert_allclose(study.interval, (low, high), atol=1e-9)


def test_a_study_that_falls_short_says_so():
    bad = pp.calibration.CoverageStudy(0.95, np.arange(20) < 10, np.ones(20), ("linear",) * 20)
    good = pp.calibration.CoverageStudy(0.95, np.arange(20) < 19, np.ones(20), ("spline",) * 20)
    assert repr(bad).startswith("Study: falls short")
    assert repr(good).startswith("Study: not contradicted")
    line = bad.table.iloc[0]
    assert (line["coverage"], line["reps"], line["bands"]) == (0.5, 20, "linear 20")
    assert "<table" in bad._repr_html_()


@pytest.fixture(scope="module")
def study_input():
    history, _ = linear_history(units=20, time=12, lags=2, seed=5)
    method = pp.bands.BandMethod("linear", draws=500)
    return lambda **more: pp.calibration.calibration_study(
        pp.linear_lags(2), history, W_FEATURES, **({"reps": 12, "band": method} | more)
    )


def test_a_study_of_a_sound_recipe_holds_and_is_reproducible(study_input):
    one, two = study_input(seed=3), study_input(seed=3)
    assert one.covered.sum() >= binomial_floor(12, 0.95)
    assert one.kinds == ("linear",) * 12
    assert_array_equal(one.covered, two.covered)
    assert_array_equal(one.tightness, two.tightness)
    assert len(np.unique(one.tightness)) == 12
    assert (one.tightness > 0).all()
    other = study_input(seed=4, reps=2)
    assert (other.tightness != one.tightness[:2]).all()


def spoil(monkeypatch, where):
    """Make every calibration of a study claim no error at one of its contexts; keep the units."""
    seen = []

    def calibrate(law, held_out, *args, **more):
        found = pp.calibrate(law, held_out, *args, **more)
        seen.append(held_out)
        error = found.error.copy()
        complete = np.isfinite(error).all((1, 2))
        error[np.flatnonzero(complete & (found.inside == where))[0]] = 0.0
        return replace(found, error=error)

    monkeypatch.setattr(study_module, "calibrate", calibrate)
    return seen


def test_one_context_in_the_domain_that_is_not_covered_is_enough_to_fail(study_input, monkeypatch):
    before = study_input(seed=3, reps=3)
    spoil(monkeypatch, where=False)
    assert_array_equal(study_input(seed=3, reps=3).covered, before.covered)
    spoil(monkeypatch, where=True)
    assert not study_input(seed=3, reps=3).covered.any()


def test_every_run_of_a_study_draws_w_anew_and_keeps_s(study_input, monkeypatch):
    seen = spoil(monkeypatch, where=True)
    study_input(seed=3, reps=2)
    one, two = ({u: (h.grid.s[i], h.grid.w[i]) for i, u in enumerate(h.units)} for h in seen)
    shared = sorted(set(one) & set(two))
    assert shared
    assert one.keys() != two.keys()
    for unit in shared:
        assert_array_equal(one[unit][0], two[unit][0])
        assert (one[unit][1][1:] != two[unit][1][1:]).all()
        assert np.isnan(one[unit][1][0]).all()


def test_a_study_of_a_careless_level_falls_short(study_input):
    careless = study_input(seed=3, reps=25, level=0.02)
    assert careless.covered.sum() < binomial_floor(25, 0.95)
    assert careless.level == 0.02


def test_a_study_works_for_features_that_are_not_affine():
    history, _ = linear_history(units=30, time=10, lags=1, seed=6)
    method = pp.bands.BandMethod("spline", draws=500, grid=50)
    study = pp.calibration.calibration_study(
        pp.linear_lags(1), history, NOT_AFFINE, reps=2, seed=0, band=method, level=0.9
    )
    assert study.covered.shape == (2,)
    assert (study.tightness > 1).all()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"reps": 0}, "reps"),
        ({"reps": 2.5}, "reps"),
        ({"level": 1.0}, "level"),
        ({"seed": -1}, "seed"),
    ],
)
def test_a_study_refuses_settings_that_make_no_sense(study_input, change, words):
    with pytest.raises(pp.errors.SettingError, match=words):
        study_input(**({"seed": 0} | change))


def pointwise(band):
    """The same band with the critical value of a single context."""
    nu = band.rows - len(band.x_names) - 1
    single = np.full_like(band.critical, stats.t.ppf(0.5 + band.level / 2, nu))
    return replace(band, shape=replace(band.shape, critical=single, beyond=single))


def test_a_pointwise_band_covers_less_than_a_uniform_one():
    runs, hits = 40, np.zeros(2, dtype=int)
    for seed in range(runs):
        history, coef = linear_history(units=24, time=15, lags=8, seed=500 + seed)
        fit, held_out = history.split(seed=seed)
        law = Shifted(pp.linear_lags(8).fit(fit, seed=0), 0.5)
        uniform = pp.calibrate(law, held_out, W_FEATURES, seed=seed, band=LINEAR)
        narrow = pp.calibrate(
            law, held_out, W_FEATURES, seed=seed, band=pointwise(uniform.parts[0].band)
        )
        wrong = np.abs(0.3 + held_out.inputs(law.summary) @ coef - law(held_out).mean())[:, 0]
        use = uniform.inside
        hits += [bool((wrong <= c.error[:, 0, 0])[use].all()) for c in (uniform, narrow)]
    assert hits[0] >= binomial_floor(runs, 0.95)
    assert hits[1] < binomial_floor(runs, 0.95)


def test_a_study_without_a_band_says_why_there_is_none():
    history, _ = linear_history(units=40, time=13, lags=12)
    law = pp.linear_lags(12)
    with pytest.raises(pp.errors.DataError, match=r"no band to study.* at least 46 held-out rows"):
        pp.calibration.calibration_study(law, history, W_FEATURES, reps=1, seed=0)
