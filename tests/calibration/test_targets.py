"""Features that are not affine in w: their targets and Monte Carlo error."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

import pulse_pyro as pp
from pulse_pyro.calibration.part import draws_check
from pulse_pyro.calibration.targets import find_targets
from tests.calibration.helpers import (
    BENT,
    CURVE,
    W_FEATURES,
    Guess,
    band_values,
    check,
    one_input,
    triangle,
)
from tests.helpers import mean_at, z_bound


def test_proportional_features_are_one_target_and_keep_their_factor(bent):
    _, calibration, held_out = bent
    error = calibration.error_at(held_out.grid.s[:3])
    assert len(calibration.parts[0].band.y_names) == 2
    assert (error[:, :, 0, 1] > 0).all()
    assert_array_equal(error[:, :, 1, 1], error[:, :, 0, 1])
    assert_allclose(error[:, :, 1, 2], 3 * error[:, :, 1, 1], rtol=1e-12)


def test_a_feature_that_involves_w_for_one_action_only_is_exact_for_the_other(bent):
    _, calibration, held_out = bent
    error = calibration.error_at(held_out.grid.s[:3])
    assert_array_equal(error[:, :, 0, 2:], 0.0)
    assert (error[:, :, 1, 3] > 0).all()
    assert_array_equal(error[..., [0, 4]], 0.0)


def test_targets_are_the_features_at_the_recorded_w(bent):
    _, calibration, _ = bent
    s, w = np.zeros((4, 1)), np.array([[-2.0], [0.0], [0.5], [3.0]])
    columns = calibration.parts[0].targets.observed(s, w)
    assert_allclose(columns, np.column_stack([w**2, np.tanh(w)]), rtol=1e-12)


def test_monte_carlo_error_takes_its_share_of_the_allowed_failures(bent, curve):
    assert curve[1].parts[0].band.level == 0.95
    assert curve[1].parts[0].failures == 0.0
    part = bent[1].parts[0]
    assert part.failures > 0
    assert part.band.level == pytest.approx(0.95 + part.failures)
    assert part.band.level < 1
    assert bent[1].level == 0.95


def test_the_bound_counts_the_distance_to_the_laws_own_expectation(bent):
    law, calibration, held_out = bent
    part, s = calibration.parts[0], held_out.grid.s[:4]
    x = s.reshape(-1, 1)
    centre, half, _ = part.band.at(x)
    found = pp.features.expected_features(
        law, BENT, s, size=part.size, rng=pp.stream(part.seed, "calibration")
    )
    total = half + np.abs(centre - found.mean[:, :, 1, [1, 3]].reshape(-1, 2))
    budget = part.budget(s)
    assert (budget.monte_carlo > 0).all()
    assert_allclose(
        calibration.error_at(s)[:, :, 1, [1, 3]].reshape(-1, 2),
        total + budget.monte_carlo,
        rtol=1e-12,
    )


def test_monte_carlo_error_is_large_enough_at_all_contexts_at_once(bent):
    law, calibration, held_out = bent
    exact = mean_at(law, held_out.grid.s) ** 2 + law.sd**2  # E[w^2] under the law
    centre, half = band_values(calibration, held_out.grid.s)
    due = (half + np.abs(centre - exact))[..., 0]
    error = calibration.error_at(held_out.grid.s)[:, :, 0, 1]
    assert (error >= due).all()
    extra = calibration.parts[0].budget(held_out).monte_carlo[:, 0]
    spared = error - held_out.on_grid(extra)
    assert (spared < due).any()


def test_a_law_without_a_closed_mean_pays_for_its_draws():
    history = one_input(seed=4)
    exact, drawn = (
        pp.calibrate(
            Guess(pp.Lags(1), slope=1.0, sd=2.0, exact=e), history, W_FEATURES, seed=0, band=CURVE
        )
        for e in (True, False)
    )
    assert drawn.parts[0].band.level > exact.parts[0].band.level == 0.95
    budget = drawn.parts[0].budget(history.grid.s)
    size = drawn.parts[0].size
    # standard errors are 2 / sqrt(size), up to their own estimation: enough for all at once, twice
    multiple = budget.monte_carlo / (2.0 / np.sqrt(size))
    one = stats.norm.isf(drawn.parts[0].failures / (2 * multiple.size))
    slack = z_bound() / np.sqrt(2 * size * multiple.size) + 1 / size
    assert multiple.mean() / one >= 2 * (1 - slack)
    law = Guess(pp.Lags(1), slope=1.0)
    assert (
        drawn.error_at(history.grid.s)[:, :, 0, 0] >= triangle(drawn, law, history.grid.s)[..., 0]
    ).all()


@settings(max_examples=20)
@given(st.integers(0, 2**32 - 1))
def test_distinct_targets_and_their_multiples_are_told_apart(seed):
    rng = np.random.default_rng(seed)
    scale = rng.standard_normal((3, 4))
    scale[rng.random((3, 4)) < 0.3] = 0.0
    scale[0, 0] = 1.5
    kind = rng.integers(0, 2, 4)
    kind[0] = 0
    base = (lambda w: w**2, np.exp)
    features = pp.Features(
        lambda s, w, a: np.column_stack([scale[a, j] * base[kind[j]](w[:, 0]) for j in range(4)]),
        3,
        tuple("abcd"),
    )
    s, w = np.zeros((60, 1)), rng.standard_normal((60, 1))
    targets = find_targets(features, s, w, ("w",))
    live = scale != 0
    kinds = {int(k) for a in range(3) for j, k in enumerate(kind) if live[a, j]}
    assert len(targets.names) == len(kinds)
    eps = rng.random((60, len(kinds)))
    for a in range(3):
        found = targets.errors(s, eps, a)
        for j in range(4):
            if not live[a, j]:
                assert_array_equal(found[:, j], 0.0)
                continue
            k = targets.source[a, j]
            first = scale[targets.action[k], targets.column[k]]
            assert kind[targets.column[k]] == kind[j]
            assert_allclose(found[:, j], abs(scale[a, j] / first) * eps[:, k], rtol=1e-9)


def switched(first):
    """(w^2, 1{w > 2}) in either order: no held-out w is ever above 2."""

    def fn(s, w, a):
        square, step = w[:, 0] ** 2, (w[:, 0] > 2).astype(float)
        return np.column_stack([step, square] if first else [square, step])

    return pp.Features(fn, 2, ("one", "two"))


@pytest.mark.parametrize("first", [False, True])
def test_a_feature_that_is_zero_in_every_held_out_row_is_not_declared_exact(first):
    history = one_input(seed=6)  # |w| <= 1.1, so E[1{w > 2} | S] = 0
    law = Guess(pp.Lags(1), intercept=1.0, sd=1.0)  # which says 0.16
    try:
        calibration = pp.calibrate(law, history, switched(first), seed=0, band=CURVE)
    except pp.PulseError:
        return
    error = calibration.error_at(history.grid.s)[:, :, 0, 0 if first else 1]
    assert (error >= stats.norm.sf(1.0)).all()


def test_monte_carlo_error_that_makes_much_of_a_bound_is_warned_of(bent):
    _, calibration, held_out = bent
    found = check(calibration, "Monte Carlo")
    budget = calibration.parts[0].budget(held_out)
    shares = budget.monte_carlo[budget.inside].mean(0) / budget.total[budget.inside].mean(0)
    assert found.value == pytest.approx(shares.max(), rel=0.05)  # of the same rows, drawn anew
    assert found.verdict == ("warn" if found.value > 0.1 else "pass")
    half = np.ones((4, 2))
    much = draws_check(np.array([[0.0, 0.3]] * 4), half, ("v", "w"), 512)
    assert (much.verdict, much.value) == ("warn", pytest.approx(0.3))
    assert "mean bound of w that is Monte Carlo error, of 512 draws here" in much.text
    assert draws_check(0.05 * half, half, ("v", "w"), 512).verdict == "pass"
    assert draws_check(0.0 * half, half, ("v", "w"), 512) is None
