"""From errors of features to rewards, to the radius, to theta* in the ball."""

from dataclasses import replace

import numpy as np
import pytest
from matplotlib.figure import Figure
from numpy.testing import assert_allclose, assert_array_equal

import pulse_pyro as pp
from pulse_pyro.report.plots import gamma_split
from tests.calibration.helpers import LINEAR, Shifted
from tests.helpers import binomial_floor

# --- from features to rewards -------------------------------------------------------------------


def test_reward_error_is_the_bound_on_theta_times_the_norm_of_the_errors(lagged):
    _, calibration, held_out = lagged
    s = held_out.grid.s[:3, :25]
    error = calibration.error_at(s)
    norm = np.sqrt(error[..., 2] ** 2 + error[..., 3] ** 2)
    assert_allclose(calibration.reward_error(s), norm, rtol=1e-12)
    assert_allclose(calibration.reward_error(s, theta_bound=2.5), 2.5 * norm, rtol=1e-12)


def test_coordinate_bounds_can_only_help(lagged):
    _, calibration, held_out = lagged
    s = held_out.grid.s[:3, :40]
    error = calibration.error_at(s)[:, 18:]
    plain = calibration.reward_error(s)[:, 18:]
    tight = calibration.reward_error(s, theta_bounds=[9, 9, 0.1, 0.2])[:, 18:]
    assert_allclose(tight, 0.1 * error[..., 2] + 0.2 * error[..., 3], rtol=1e-12)
    loose = calibration.reward_error(s, theta_bounds=[9, 9, 9, 9])[:, 18:]
    assert_allclose(loose, plain, rtol=1e-12)
    mixed = calibration.reward_error(s, theta_bounds=[0, 0, 1.2, 0])[:, 18:]
    assert_allclose(mixed[:, :, 0], plain[:, :, 0], rtol=1e-12)  # E1 = E, below 1.2 E
    assert_allclose(mixed[:, :, 1], 1.2 * error[:, :, 1, 2], rtol=1e-12)  # below sqrt(2) E


def test_a_coordinate_without_a_bound_is_refused_or_does_not_spoil_the_others(lagged):
    _, calibration, held_out = lagged
    s = held_out.grid.s[:2, :25]
    try:
        found = calibration.reward_error(s, theta_bounds=[np.inf, np.inf, 0.1, 0.1])[:, 18:]
    except pp.errors.SettingError:
        return
    assert_allclose(found, 0.1 * calibration.error_at(s)[:, 18:, :, 2:].sum(-1), rtol=1e-12)


@pytest.mark.parametrize("bounds", [[1.0, 1.0], 1.0, [1, 1, 1, -1], [1, 1, 1, np.nan]])
def test_coordinate_bounds_of_a_wrong_shape_or_sign_are_refused(lagged, bounds):
    with pytest.raises(pp.errors.SettingError, match="4 numbers >= 0, one per feature"):
        lagged[1].reward_error(lagged[2].grid.s[:1], theta_bounds=bounds)


@pytest.mark.parametrize("size", [0.0, -1.0, np.nan, np.inf, "big"])
def test_a_theta_bound_that_is_not_a_positive_number_is_refused(lagged, size):
    with pytest.raises(pp.errors.SettingError, match="theta_bound"):
        lagged[1].reward_error(lagged[2].grid.s[:1], theta_bound=size)


def test_the_radius_is_the_corrected_one(lagged):
    calibration = lagged[1]
    for how in ({"delta": 0.1, "theta_bound": 2.0}, {}):
        made = calibration.radius(sigma=0.2, **how)
        assert made.benchmark == "the best policy on S"
        assert replace(made, benchmark="") == pp.corrected(sigma=0.2, **how)
    with pytest.raises(pp.errors.SettingError, match="delta"):
        calibration.radius(sigma=0.2, delta=0.0)


# --- the parts of the radius --------------------------------------------------------------------


RADII = {
    "corrected": pp.corrected(sigma=0.3, theta_bound=1.5),
    "sum of roots": pp.corrected(sigma=0.3, theta_bound=1.5, form="sum"),
    "paper": pp.radius.gamma_paper(noise_sd=0.05, feature_bound=2.0),
    "constant": pp.constant(2.0),
}


def path(rounds=25, dim=3, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((rounds, dim)), rng.uniform(0, 0.2, rounds)


@pytest.mark.parametrize("ridge", [0.5, 1.0, 4.0])
@pytest.mark.parametrize("name", list(RADII))
def test_the_parts_of_the_radius_add_up_to_it_in_every_round(name, ridge):
    x, error = path()
    parts = RADII[name].split(x, error, ridge)
    assert parts.shape == (25, 3)
    assert (parts >= 0).all()
    for t in range(1, 26):
        sigma = ridge * np.eye(3) + x[:t].T @ x[:t]
        before = [ridge * np.eye(3) + x[:k].T @ x[:k] for k in range(t)]
        u2 = np.array([x[k] @ np.linalg.solve(before[k], x[k]) for k in range(t)])
        whole = RADII[name].at(
            dim=3,
            ridge=ridge,
            rounds=t,
            logdet=np.linalg.slogdet(sigma / ridge)[1],
            sum_e2=float((error[:t] ** 2).sum()),
            sum_tri=float((error[:t] * np.sqrt(u2 / (1 + u2))).sum()),
        )
        assert parts[t - 1].sum() == pytest.approx(whole, rel=1e-10)


@pytest.mark.parametrize("form", ["sharp", "sum"])
def test_the_corrected_radius_splits_into_ridge_noise_and_errors_by_hand(form):
    x, error = np.array([[1.0, 0.0], [0.0, 2.0]]), np.array([0.3, 0.4])
    parts = pp.corrected(sigma=0.5, delta=0.1, theta_bound=2.0, form=form).split(x, error, 1.0)
    assert_allclose(parts[:, 0], 2.0)
    logs = np.log([2.0, 2.0 * 5.0]) + 2 * np.log(10)
    due = 0.5 * np.sqrt(logs) if form == "sum" else np.sqrt(4.0 + 0.25 * logs) - 2.0
    assert_allclose(parts[:, 1], due)
    triangle = 0.3 * np.sqrt(1 / 2) + 0.4 * np.sqrt(4 / 5)
    assert_allclose(parts[:, 2], [0.3 * np.sqrt(0.5), min(0.5, triangle)])


@pytest.mark.parametrize("name", list(RADII))
def test_without_errors_the_imputation_part_is_exactly_zero(name):
    x, error = path()
    clean = RADII[name].split(x, np.zeros(25))
    assert_array_equal(clean[:, 2], 0.0)
    assert_allclose(RADII[name].split(x, error)[:, :2], clean[:, :2], rtol=1e-12)


def test_the_parts_are_those_of_the_radius_that_was_played():
    x, error = path(rounds=30, dim=4, seed=2)
    radius = RADII["corrected"]
    arms, errors = x[None, :, None], error[None, :, None]
    reward = np.random.default_rng(0).standard_normal((1, 30, 1))
    _, gamma, state = pp.policies.play_horizon(arms, reward, radius, ridge=2.0, error=errors)
    total = radius.split(x, error, 2.0).sum(1)
    # a round is played with the radius of the rounds before it
    assert_allclose(total[:-1], np.sqrt(gamma[0, 1:]), rtol=1e-9)
    last = pp.policies.decide(state, arms[:, -1], radius).gamma
    assert total[-1] ** 2 == pytest.approx(float(last[0]), rel=1e-9)


def test_the_radius_plot_stacks_its_three_parts():
    x, error = path()
    parts = RADII["corrected"].split(x, error)
    ax = gamma_split(parts)
    tops = [c.get_paths()[0].vertices[:, 1].max() for c in ax.collections]
    assert_allclose(tops, np.cumsum(parts, axis=1).max(0), rtol=1e-12)
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert [label.split()[0] for label in labels] == ["ridge", "noise", "imputation"]
    own = Figure().add_subplot()
    assert gamma_split(parts, own) is own


# --- theta* stays in the ball -------------------------------------------------------------------


RUNS, ROUNDS = 10, 60
WORLD = pp.envs.w_times_action()
THETA = np.array(WORLD.theta)


def stays(world, x, radius, error):
    """Runs whose ball holds theta* after every round."""
    action, _, _ = pp.policies.play_horizon(x, world.reward, radius, error=error)
    state, inside = pp.policies.init(4, 1.0, (RUNS,)), np.ones(RUNS, bool)
    for t in range(ROUNDS):
        choice = pp.policies.decide(state, x[:, t], radius, error=error[:, t])
        assert_array_equal(choice.action, action[:, t])
        state = pp.policies.update(state, choice, world.reward[np.arange(RUNS), t, choice.action])
        gap = THETA - state.theta
        distance = np.einsum("ri,rij,rj->r", gap, state.precision, gap)
        gamma = pp.policies.decide(state, x[:, t], radius).gamma
        inside &= distance <= gamma * (1 + 1e-12)
    return inside


def test_theta_stays_in_the_ball_with_calibrated_errors_and_leaves_it_without():
    size = float(np.linalg.norm(THETA))
    sigma = pp.radius.noise_scale(reward_sd=0.05, context_sd=(THETA[2] + THETA[3]) * 0.1)
    kept, lost = [], []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        fit, held_out = WORLD.archive(60, 50, rng=rng).split(seed=seed)
        law = Shifted(pp.linear_lags(19).fit(fit, seed=0), 1.0 if seed % 2 else 0.0)
        calibration = pp.calibrate(law, held_out, WORLD.features, seed=seed, band=LINEAR)
        world = WORLD.world(RUNS, ROUNDS, rng=rng)
        x = pp.envs.pulse(world, law).x
        error = calibration.reward_error(world.s, theta_bound=size)[:, world.lead :]
        radius = calibration.radius(sigma=sigma, theta_bound=size)
        kept.append(stays(world, x, radius, error))
        if seed % 2:
            lost.append(stays(world, x, radius, np.zeros_like(error)))
    assert np.concatenate(kept).all()
    assert np.concatenate(lost).sum() < binomial_floor(2 * RUNS, 0.9)


def test_simulate_plays_what_play_horizon_plays_with_the_same_errors():
    rng = np.random.default_rng(9)
    fit, held_out = WORLD.archive(40, 45, rng=rng).split(seed=0)
    law = pp.linear_lags(19).fit(fit, seed=0)
    calibration = pp.calibrate(law, held_out, WORLD.features, seed=0, band=LINEAR)
    world = WORLD.world(3, 80, rng=rng)
    error = calibration.reward_error(world.s)[:, world.lead :]
    plain = pp.envs.pulse(world, law, radius=calibration.radius(sigma=0.15))
    run = pp.simulate(world, [plain, replace(plain, name="careful", error=error)])
    due, _, _ = pp.policies.play_horizon(plain.x, world.reward, plain.radius, error=error)
    assert_array_equal(run.action[1], due)
    assert (run.action[0] != run.action[1]).any()
