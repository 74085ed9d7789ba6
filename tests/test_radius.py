import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from pulse_pyro._core.errors import SettingError
from pulse_pyro.policies.linear import decide, init, update
from pulse_pyro.radius import bias_part, constant, corrected, gamma_paper, noise_scale

GOLDEN = {"dim": 4, "ridge": 1.0, "rounds": 1000, "logdet": 27.6350191173}
SEED, DIM, ROUNDS = st.integers(0, 2**32 - 1), st.integers(1, 6), st.integers(1, 25)
RIDGE = st.floats(1e-2, 1e2)
PROPERTY = settings(deadline=None, derandomize=True, max_examples=50)


def rows(seed, dim, rounds, bound=2.0):
    """Features with ||x|| <= bound, and error bounds e."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rounds, dim))
    x *= bound * rng.random((rounds, 1)) / np.linalg.norm(x, axis=1, keepdims=True)
    return x, rng.exponential(size=rounds), rng


def learned(x, e, ridge):
    """The library's running sums after learning from rows x with error bounds e."""
    state = init(x.shape[1], ridge)
    for row, error in zip(x, e, strict=True):
        state = update(state, decide(state, row[None], constant(0.0), error=error), 0.0)
    return state


def norm(vector, matrix):
    return math.sqrt(vector @ np.linalg.solve(matrix, vector))


@pytest.mark.parametrize(("sum_d", "gamma"), [(0, 1158.6679073541), (1, 1206.6679073541)])
def test_the_paper_radius_has_its_worked_value(sum_d, gamma):
    radius = gamma_paper(noise_sd=0.05, delta=0.05, feature_bound=2.0)
    assert radius.at(**GOLDEN, sum_e2=4.0 * sum_d) ** 2 == pytest.approx(gamma, abs=1e-9)


# L = logdet + 2 log 20 = 33.6264836644: 1 + sigma sqrt(L), and sqrt(1 + sigma^2 L)
@pytest.mark.parametrize(
    ("sigma", "sums", "added", "sharp"),
    [
        (1.0, (0.0, 0.0), 6.7988346816, 5.8844272163),
        (noise_scale(reward_sd=0.05, context_sd=1.0), (0.0, 0.0), 6.8060787003, 5.8915659950),
        (1.0, (4.0, 9.0), 8.7988346816, 7.8844272163),
        (1.0, (9.0, 2.0), 8.7988346816, 7.8844272163),
    ],
)
def test_the_corrected_radius_has_its_worked_value(sigma, sums, added, sharp):
    at = GOLDEN | {"sum_e2": sums[0], "sum_tri": sums[1]}
    assert corrected(sigma=sigma).at(**at) == pytest.approx(sharp, abs=1e-9)
    assert corrected(sigma=sigma, form="sharp") == corrected(sigma=sigma)
    assert corrected(sigma=sigma, form="sum").at(**at) == pytest.approx(added, abs=1e-9)


@pytest.mark.parametrize("form", ["sharp", "sum"])
def test_before_any_reward_the_corrected_ball_is_exact(form):
    radius = corrected(sigma=3.0, theta_bound=2.0, form=form)
    assert radius.at(dim=3, ridge=9.0, rounds=0, logdet=0.0) == 6.0


def test_before_any_reward_the_paper_radius_is_finite():
    found = gamma_paper(noise_sd=1.0, feature_bound=1.0, delta=0.05).at(
        dim=2, ridge=1.0, rounds=0, logdet=0.0
    )
    assert found == pytest.approx(math.sqrt(3 + 54 * math.log(80)), rel=1e-14)


def test_a_constant_radius_is_constant():
    assert constant(2.0).at(**GOLDEN, sum_e2=5.0, sum_tri=5.0) == 2.0


@PROPERTY
@given(SEED, DIM, ROUNDS, RIDGE)
def test_errors_move_the_ball_by_at_most_their_length(seed, dim, rounds, ridge):
    x, _, rng = rows(seed, dim, rounds)
    b = rng.standard_normal(rounds)
    sigma = ridge * np.eye(dim) + x.T @ x
    assert norm(x.T @ b, sigma) <= np.linalg.norm(b) * (1 + 1e-12)


@PROPERTY
@given(SEED, DIM, ROUNDS, RIDGE)
def test_the_running_triangle_sum_bounds_the_exact_one(seed, dim, rounds, ridge):
    x, e, rng = rows(seed, dim, rounds)
    sigma = ridge * np.eye(dim) + x.T @ x
    exact = sum(error * norm(row, sigma) for row, error in zip(x, e, strict=True))
    b = e * rng.uniform(-1, 1, rounds)
    running = learned(x, e, ridge).sums[3]
    assert running >= exact * (1 - 1e-9)
    assert exact >= norm(x.T @ b, sigma) * (1 - 1e-9)


@PROPERTY
@given(SEED, DIM, ROUNDS, RIDGE)
def test_no_arm_is_moved_by_more_than_the_bias_times_its_width(seed, dim, rounds, ridge):
    """B_t ||x_a|| bounds the sum over the past, what errors can do to the estimate of an arm."""
    x, e, rng = rows(seed, dim, rounds)
    bias = bias_part(corrected(sigma=1.0).array, *learned(x, e, ridge).sums[2:4])
    sigma = ridge * np.eye(dim) + x.T @ x
    for arm in rng.standard_normal((4, dim)):
        moved = e @ np.abs(x @ np.linalg.solve(sigma, arm))
        assert moved <= bias * norm(arm, sigma) * (1 + 1e-9)


@PROPERTY
@given(SEED, DIM, ROUNDS, RIDGE)
def test_the_running_sums_are_what_they_are_called(seed, dim, rounds, ridge):
    x, e, _ = rows(seed, dim, rounds)
    state = learned(x, e, ridge)
    direct = np.linalg.slogdet(np.eye(dim) + x.T @ x / ridge)[1]
    assert_allclose(state.logdet, direct, rtol=1e-9, atol=1e-12)
    assert_allclose(state.sums[2], (e**2).sum(), rtol=1e-12)
    assert state.rounds == rounds


@PROPERTY
@given(SEED, DIM, ROUNDS, RIDGE, st.floats(1e-3, 0.5))
def test_without_errors_the_corrected_radius_is_that_of_oful(seed, dim, rounds, ridge, delta):
    x, _, _ = rows(seed, dim, rounds)
    logdet = learned(x, np.zeros(rounds), ridge).logdet
    det = math.exp(logdet / 2)
    oful = 0.7 * math.sqrt(2 * math.log(det / delta)) + math.sqrt(ridge) * 1.5
    at = {"dim": dim, "ridge": ridge, "rounds": rounds, "logdet": logdet}
    added = corrected(sigma=0.7, delta=delta, theta_bound=1.5, form="sum").at(**at)
    assert added == pytest.approx(oful, rel=1e-9)
    root = math.sqrt(ridge * 1.5**2 + 0.7**2 * 2 * math.log(det / delta))
    sharp = corrected(sigma=0.7, delta=delta, theta_bound=1.5).at(**at)
    assert sharp == pytest.approx(root, rel=1e-9)
    assert added / math.sqrt(2) * (1 - 1e-12) <= sharp <= added * (1 + 1e-12)


@PROPERTY
@given(SEED, st.integers(2, 6), ROUNDS, RIDGE, st.floats(0, 3), st.floats(1e-3, 0.5))
def test_the_paper_radius_contains_the_corrected_ones(seed, dim, rounds, ridge, noise, delta):
    x, e, _ = rows(seed, dim, rounds)
    sums = learned(x, e, ridge).sums
    at = {"dim": dim, "ridge": ridge, "rounds": rounds, "logdet": sums[1], "sum_e2": sums[2]}
    wide = gamma_paper(noise_sd=noise, delta=delta, feature_bound=2.0).at(**at)
    for form in ("sharp", "sum"):
        tight = corrected(sigma=noise + 2, delta=delta, form=form)
        assert wide >= tight.at(**at, sum_tri=np.inf)


@PROPERTY
@given(SEED, DIM, ROUNDS)
def test_radii_never_shrink(seed, dim, rounds):
    x, e, _ = rows(seed, dim, rounds)
    both = (corrected(sigma=1.0, form=form) for form in ("sharp", "sum"))
    for radius in (*both, gamma_paper(noise_sd=0.1, feature_bound=1.0)):
        path = []
        for t in range(rounds + 1):
            _, logdet, e2, tri, _ = learned(x[:t], e[:t], 1.0).sums
            at = {"logdet": logdet, "sum_e2": e2, "sum_tri": tri}
            path.append(radius.at(dim=dim, ridge=1.0, rounds=t, **at))
        assert np.all(np.diff(path) >= 0)


def test_noise_scales_come_from_bounds_or_standard_deviations():
    assert noise_scale(low=-1.0, high=1.0) == 1.0
    assert noise_scale(low=0.0, high=1.0) == 0.5
    assert noise_scale(reward_sd=3.0, context_sd=4.0) == 5.0
    assert noise_scale() == 0.0


BAD = {
    "constant: alpha must be a finite number >= 0, but got -1": lambda: constant(-1.0),
    "constant: alpha": lambda: constant(math.nan),
    "gamma_paper: noise_sd": lambda: gamma_paper(noise_sd=-0.1, feature_bound=1.0),
    "gamma_paper: delta must lie between 0 and 1, but got 0": lambda: gamma_paper(
        noise_sd=1.0, feature_bound=1.0, delta=0.0
    ),
    "gamma_paper: feature_bound": lambda: gamma_paper(noise_sd=1.0, feature_bound=0.0),
    "corrected: sigma": lambda: corrected(sigma=math.inf),
    "corrected: theta_bound": lambda: corrected(sigma=1.0, theta_bound=0.0),
    "corrected: delta must lie between 0 and 1, but got 1.5": lambda: corrected(sigma=1, delta=1.5),
    "corrected: delta": lambda: corrected(sigma=1.0, delta=math.nan),
    "corrected: form": lambda: corrected(sigma=1.0, form="wide"),
    "high - low": lambda: noise_scale(low=1.0, high=-1.0),
    "give both low and high": lambda: noise_scale(low=0.0),
    "noise_scale: reward_sd": lambda: noise_scale(reward_sd=-1.0),
    "noise_scale: context_sd": lambda: noise_scale(context_sd=-1.0),
}


@pytest.mark.parametrize("says", BAD)
def test_a_setting_out_of_range_is_named(says):
    with pytest.raises(SettingError, match=says):
        BAD[says]()
