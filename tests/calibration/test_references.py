"""Reference values beside the bound: divergences and rates."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy import optimize, stats

import pulse_pyro as pp

# --- the divergence route -----------------------------------------------------------------------


def test_small_divergences_use_pinsker_and_large_ones_bretagnolle_and_huber():
    assert pp.calibration.kl_error(0.0) == 0.0
    assert pp.calibration.kl_error(0.02) == pytest.approx(2 * np.sqrt(0.01))
    assert pp.calibration.kl_error(0.02, width=1.0) == pytest.approx(0.1)
    assert pp.calibration.kl_error(8.0) == pytest.approx(2 * np.sqrt(1 - np.exp(-8.0)))
    assert pp.calibration.kl_error(np.inf) == 2.0
    assert pp.calibration.kl_error(1e-18) == pytest.approx(2 * np.sqrt(0.5e-18))


def test_the_two_inequalities_cross_where_half_the_divergence_meets_1_minus_exp():
    at = optimize.brentq(lambda k: k / 2 + np.expm1(-k), 0.5, 3.0)
    assert at == pytest.approx(1.5936, abs=1e-4)
    below, above = at * 0.99, at * 1.01
    assert pp.calibration.kl_error(below) == pytest.approx(2 * np.sqrt(below / 2))
    assert pp.calibration.kl_error(below) < 2 * np.sqrt(-np.expm1(-below))
    assert pp.calibration.kl_error(above) == pytest.approx(2 * np.sqrt(-np.expm1(-above)))
    assert pp.calibration.kl_error(above) < 2 * np.sqrt(above / 2)


@given(st.floats(-100, 100), st.floats(0.01, 10))
def test_the_exact_variation_of_normals_is_below_both_inequalities(gap, sd):
    kl, tv = pp.calibration.gaussian_kl(gap, sd), pp.calibration.gaussian_tv(gap, sd)
    assert 0 <= tv <= 1
    assert tv <= np.sqrt(kl / 2) * (1 + 1e-12) + 1e-15
    assert tv <= pp.calibration.kl_error(kl, width=1.0) * (1 + 1e-12) + 1e-15


def test_divergence_and_variation_of_normals_by_hand():
    assert pp.calibration.gaussian_kl(3.0, 2.0) == pytest.approx(9 / 8)
    assert pp.calibration.gaussian_tv(1.0, 1.0) == pytest.approx(0.3829249225)
    assert_allclose(
        pp.calibration.gaussian_tv(np.array([-2.0, 0.0, 2.0]), 1.0), [0.6826894921, 0, 0.6826894921]
    )
    x = np.linspace(-12, 12, 200_001)
    density = np.abs(stats.norm.pdf(x, 0.7, 1.3) - stats.norm.pdf(x, -0.4, 1.3))
    assert pp.calibration.gaussian_tv(1.1, 1.3) == pytest.approx(
        np.trapezoid(density, x) / 2, abs=1e-8
    )


def test_the_counterexample_to_the_printed_lemma_is_bounded_with_the_factor_2():
    # P = N(.05, 1), Q = N(-.05, 1), g = sign
    difference = 2 * (stats.norm.cdf(0.05) - stats.norm.cdf(-0.05))
    kl = pp.calibration.gaussian_kl(0.1, 1.0)
    root = np.sqrt(kl / 2)
    assert difference == pytest.approx(0.0798, abs=5e-5)
    assert difference == pytest.approx(2 * float(pp.calibration.gaussian_tv(0.1, 1.0)))
    assert pp.calibration.kl_error(kl) == pytest.approx(2 * root) == pytest.approx(0.1)
    assert root < difference <= pp.calibration.kl_error(kl)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: pp.calibration.kl_error(-0.1), ">= 0"),
        (lambda: pp.calibration.kl_error(np.nan), ">= 0"),
        (lambda: pp.calibration.kl_error(0.1, width=0.0), "width"),
        (lambda: pp.calibration.gaussian_kl(1.0, 0.0), "sd"),
        (lambda: pp.calibration.gaussian_tv(1.0, -1.0), "sd"),
        (lambda: pp.calibration.parametric_rate(0, 3), "rows"),
        (lambda: pp.calibration.parametric_rate(10, 0), "inputs"),
        (lambda: pp.calibration.holder_rate(1, 2.0), "rows"),
        (lambda: pp.calibration.holder_rate(100, 0.0), "smoothness"),
        (lambda: pp.calibration.holder_rate(100, 1.0, 0), "inputs"),
    ],
)
def test_reference_values_refuse_what_makes_no_sense(call, words):
    with pytest.raises(pp.errors.SettingError, match=words):
        call()


# --- rates --------------------------------------------------------------------------------------


def test_the_parametric_rate_is_halved_by_four_times_the_rows():
    assert pp.calibration.parametric_rate(100, 4) == pytest.approx(0.2)
    assert pp.calibration.parametric_rate(400, 4) == pytest.approx(0.1)
    assert pp.calibration.parametric_rate(100, 16) == pytest.approx(0.4)


@pytest.mark.parametrize(("smooth", "inputs", "power"), [(2, 1, 0.4), (1, 1, 1 / 3), (2, 4, 0.25)])
def test_the_hoelder_rate_falls_with_the_right_power_of_log_n_over_n(smooth, inputs, power):
    small, large = 1_000, 64_000
    ratio = pp.calibration.holder_rate(large, smooth, inputs) / pp.calibration.holder_rate(
        small, smooth, inputs
    )
    assert ratio == pytest.approx((np.log(large) / np.log(small) / 64) ** power)
    assert pp.calibration.holder_rate(small, smooth, inputs) == pytest.approx(
        (np.log(1000) / 1000) ** power
    )


def test_the_reference_table_sets_the_bound_beside_its_kl_version_and_rates(made):
    calibration = made["linear"]
    line = pp.calibration.references(calibration).loc["w0"]
    error = calibration.error[:, 0, 0][calibration.inside]
    sd = calibration.noise_sd[0][0]
    assert line["bound mean"] == pytest.approx(error.mean())
    assert line["noise sd"] == sd
    assert (error / sd < 2).all()
    kl = np.minimum(error / sd, 2 * np.sqrt(-np.expm1(-(error**2) / (2 * sd**2))))
    assert line["KL route"] == pytest.approx(kl.mean())
    assert line["KL route"] > line["bound mean"]
    n = calibration.parts[0].band.rows
    assert line["parametric rate"] == pytest.approx(sd * np.sqrt(5 / n))
    assert line["Hoelder rate (smoothness 2)"] == pytest.approx(sd * (np.log(n) / n) ** 0.25)
    assert line["Hoelder rate (smoothness 1)"] == pytest.approx(sd * (np.log(n) / n) ** (1 / 6))


def test_the_reference_table_has_a_line_per_target_and_part(made):
    assert list(pp.calibration.references(made["bent"]).index) == list(
        made["bent"].parts[0].band.y_names
    )
    assert len(pp.calibration.references(made["bent"])) == 2
    assert len(pp.calibration.references(made["crossfit"])) == 2
