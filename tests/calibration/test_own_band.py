"""Bands handed over to a calibration: made before, or the band of a ridge law."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

import pulse_pyro as pp
from tests.calibration.helpers import BENT, MAIN, W_FEATURES
from tests.helpers import binomial_floor, linear_history

# --- a band handed over -------------------------------------------------------------------------


def test_a_band_handed_over_is_used_as_it_is(curve):
    law, calibration, held_out = curve
    band = calibration.parts[0].band
    again = pp.calibrate(law, held_out, MAIN.features, seed=9, band=band)
    assert again.parts[0].band is band
    assert_array_equal(again.error, calibration.error)
    uniform = again.rung("uniform")
    assert uniform.verdict == "conditional"
    assert "nothing was checked" in uniform.checks[0].text
    assert [check.name for check in uniform.checks] == ["band", "clusters"]
    assert len(repr(again).splitlines()) <= 14
    lower = pp.calibrate(law, held_out, MAIN.features, seed=9, level=0.9, band=band)
    assert lower.parts[0].band.level == 0.95


@pytest.mark.parametrize(
    ("change", "family", "words"),
    [
        (
            {"x_names": ("s.lag0",)},
            pp.errors.DataError,
            r"given \('s.lag0',\), but .* \('s.mean3',\)",
        ),
        ({"y_names": ("v",)}, pp.errors.DataError, r"the band is for \('v',\)"),
        ({"level": 0.9}, pp.errors.SettingError, "made at level 0.9, 0.95 is needed here"),
    ],
)
def test_a_band_for_something_else_is_refused(curve, change, family, words):
    law, calibration, held_out = curve
    band = replace(calibration.parts[0].band, **change)
    with pytest.raises(family, match=words):
        pp.calibrate(law, held_out, MAIN.features, seed=0, band=band)


def test_a_band_handed_over_must_leave_room_for_monte_carlo_error(bent):
    law, calibration, held_out = bent
    band = calibration.parts[0].band
    again = pp.calibrate(law, held_out, BENT, seed=5, band=band)
    assert_array_equal(again.error, calibration.error)
    with pytest.raises(pp.errors.SettingError, match=r"made at level 0\.95,"):
        pp.calibrate(law, held_out, BENT, seed=5, band=replace(band, level=0.95))


# --- the band of a ridge law --------------------------------------------------------------------


def sample(x, y):
    x, y = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    x = x[:, None] if x.ndim == 1 else x
    y = y[:, None] if y.ndim == 1 else y
    names = tuple(f"x{i}" for i in range(x.shape[1])), tuple(f"y{j}" for j in range(y.shape[1]))
    return pp.bands.Sample(x, y, np.arange(len(x)) // 2, *names)


def test_the_ridge_band_by_hand():
    # (1, x) rows are orthogonal: G = (lambda + 4) I
    four = sample([-1, 1, -1, 1], [0, 2, 0, 2])
    band = pp.bands.ridge_band(four, level=0.95, noise_sd=0.5, ridge=1.0, size=3.0)
    centre, half, inside = band.at(np.array([2.0, 0.0, 100.0]))
    assert_allclose(centre[:, 0], [0.8 + 1.6, 0.8, 80.8])
    c = 3.0 + 0.5 * np.sqrt(np.log(25) + 2 * np.log(20))
    assert_allclose(half[:, 0], c * np.sqrt(np.array([5, 1, 10_001]) / 5))
    assert inside.all()
    assert (band.level, band.rows, band.units) == (0.95, 4, 2)
    heavy = pp.bands.ridge_band(four, level=0.9, noise_sd=0.5, ridge=4.0)
    c = 2.0 + 0.5 * np.sqrt(np.log(4) + 2 * np.log(10))
    assert_allclose(heavy.at(np.array([2.0])).half, c * np.sqrt(5 / 8))
    assert_allclose(heavy.at(np.array([2.0])).centre, 0.5 + 1.0)


@settings(max_examples=25)
@given(st.integers(0, 2**32 - 1))
def test_the_ridge_band_follows_the_self_normalised_formula(seed):
    rng = np.random.default_rng(seed)
    n, p, q = rng.integers(3, 30), rng.integers(1, 5), rng.integers(1, 4)
    ridge, sd, size, level = *rng.uniform(0.1, 3, 3), rng.uniform(0.5, 0.99)
    rows = sample(rng.standard_normal((n, p)), rng.standard_normal((n, q)))
    band = pp.bands.ridge_band(rows, level=level, noise_sd=sd, ridge=ridge, size=size)
    design = np.column_stack([np.ones(n), rows.x])
    padded = np.vstack([design, np.sqrt(ridge) * np.eye(p + 1)])
    coef = np.linalg.lstsq(padded, np.vstack([rows.y, np.zeros((p + 1, q))]), rcond=None)[0]
    gram = padded.T @ padded
    at = rng.standard_normal((7, p)) * 3
    b = np.column_stack([np.ones(7), at])
    centre, half, _ = band.at(at)
    assert_allclose(centre, b @ coef, rtol=1e-7, atol=1e-9)
    logdet = np.log(np.linalg.eigvalsh(gram) / ridge).sum()
    c = np.sqrt(ridge) * size + sd * np.sqrt(logdet + 2 * np.log(q / (1 - level)))
    norm = np.sqrt(np.einsum("ni,ni->n", b, np.linalg.solve(gram, b.T).T))
    assert_allclose(half, np.repeat((c * norm)[:, None], q, 1), rtol=1e-7)


def ridge_hits(noise_sd, runs=200, level=0.9):
    """Runs in which the ridge band holds a line, near the data and far from them."""
    rng = np.random.default_rng(0)
    true, held = np.array([0.6, -0.8]), 0
    at = np.concatenate([np.linspace(-3, 3, 61), [-1e4, 1e4]])
    for _ in range(runs):
        x = rng.uniform(-1, 1, 12)
        y = true[0] + true[1] * x + rng.standard_normal(12)
        band = pp.bands.ridge_band(sample(x, y), level=level, noise_sd=noise_sd, ridge=0.5)
        centre, half, _ = band.at(at)
        held += bool((np.abs(centre[:, 0] - true[0] - true[1] * at) <= half[:, 0]).all())
    return held


def test_the_ridge_band_covers_everywhere_at_once_and_not_with_too_small_a_noise():
    assert ridge_hits(1.0) >= binomial_floor(200, 0.9)
    assert ridge_hits(0.01) < binomial_floor(200, 0.9)


def test_the_ridge_band_grows_away_from_its_rows():
    rng = np.random.default_rng(1)
    band = pp.bands.ridge_band(
        sample(rng.uniform(2, 4, 50), rng.standard_normal(50)), level=0.95, noise_sd=1.0
    )
    for side in (-1, 1):
        half = band.at(3.0 + side * np.array([0.5, 1.5, 5.0, 50.0, 500.0])).half[:, 0]
        assert (np.diff(half) > 0).all()
        assert half[-1] / half[-2] == pytest.approx(10, rel=0.1)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"level": 1.0}, "level"),
        ({"noise_sd": 0.0}, "noise_sd"),
        ({"ridge": 0.0}, "ridge"),
        ({"size": -1.0}, "size"),
        ({"noise_sd": np.nan}, "noise_sd"),
    ],
)
def test_the_ridge_band_refuses_settings_that_make_no_sense(change, words):
    settings = {"level": 0.95, "noise_sd": 1.0} | change
    with pytest.raises(pp.errors.SettingError, match=words):
        pp.bands.ridge_band(sample([0, 1, 2], [0, 1, 1]), **settings)


def test_a_least_squares_law_that_provides_its_own_band_differs_from_it_by_the_ridge_alone():
    history, coef = linear_history(units=30, time=10, lags=2, seed=3)
    law = pp.linear_lags(2, prior=pp.laws.Flat()).fit(history, seed=0)
    rows = history.rows(law.summary)
    own = pp.bands.Sample(rows.x, rows.w, rows.unit, rows.x_names, history.w_names)
    design = np.column_stack([np.ones(len(rows.x)), rows.x])
    least = np.linalg.lstsq(design, rows.w, rcond=None)[0]
    for ridge in (1e-6, 1.0):
        band = pp.bands.ridge_band(own, level=0.95, noise_sd=0.1, ridge=ridge, size=5.0)
        calibration = pp.calibration.all_units(law, history, W_FEATURES, seed=0, band=band)
        found = calibration.parts[0].budget(history)
        gap = np.abs(found.centre - found.predicted)[rows.at, 0]
        gram = design.T @ design + ridge * np.eye(3)
        shrunk = ridge * np.abs(design @ np.linalg.solve(gram, least))[:, 0]
        # the law's stored draws have the least-squares mean up to their own number
        assert_allclose(gap, shrunk, atol=5 * 0.1 / np.sqrt(len(rows.x)))
        assert gap.max() <= found.half[rows.at].max()
        wrong = np.abs(0.3 + rows.x @ coef - law(history, rows.at).mean())[:, 0]
        assert (wrong <= calibration.error_at(history)[rows.at, 0, 0]).all()
        assert calibration.outside_share == 0.0
