from dataclasses import replace

import numpy as np
import pytest

from pulse_pyro.envs.agents import pulse
from pulse_pyro.envs.arma import w_times_action
from pulse_pyro.laws.linear import linear_lags
from pulse_pyro.policies.horizon import play_horizon
from pulse_pyro.policies.linear import decide, init, update
from pulse_pyro.radius import corrected, gamma_paper, noise_scale
from tests.helpers import binomial_floor

RUNS, ROUNDS, DELTA = 400, 400, 0.05
ENV = w_times_action()
THETA = np.array(ENV.theta)
ENOUGH = binomial_floor(RUNS, 1 - DELTA)
# dPhi/dw is (0, 0, 1, a), so theta' Phi moves by (theta_W + a theta_Wa) times W's noise
SIGMA = noise_scale(reward_sd=0.05, context_sd=max(THETA[2], THETA[2] + THETA[3]) * 0.1)
CORRECTED = corrected(sigma=SIGMA, delta=DELTA, theta_bound=float(np.linalg.norm(THETA)))
PAPER = gamma_paper(noise_sd=0.05, delta=DELTA, feature_bound=2.0)


@pytest.fixture(scope="module")
def world():
    return ENV.world(RUNS, ROUNDS, rng=np.random.default_rng(1))


@pytest.fixture(scope="module")
def law():
    return linear_lags(19).fit(ENV.archive(200, 40, rng=np.random.default_rng(0)), seed=0)


def moved(law, by):
    """The same law with E[W] too high by ``by`` everywhere."""
    step = np.zeros((20, 1))
    step[0] = by / law.scaler.w_scale[0]
    return replace(law, draws={**law.draws, "coef": law.draws["coef"] + step})


def exact_error(world, x):
    return np.abs((world.phibar - x) @ world.theta)


def covered(world, x, error, radius):
    """Runs (bool) whose ball holds theta* at every t, and the final radius of each run."""
    action, _, _ = play_horizon(x, world.reward, radius, error=error)
    state, inside, each = init(4, 1.0, (RUNS,)), np.ones(RUNS, bool), np.arange(RUNS)
    for t in range(ROUNDS):
        choice = decide(state, x[:, t], radius, error=error[:, t])
        np.testing.assert_array_equal(choice.action, action[:, t])
        inside &= holds(state, choice.gamma)
        state = update(state, choice, world.reward[each, t, choice.action])
    last = decide(state, x[:, -1], radius).gamma
    return inside & holds(state, last), np.sqrt(last)


def holds(state, gamma):
    gap = THETA - state.theta
    distance = np.einsum("ri,rij,rj->r", gap, state.precision, gap)
    return distance <= gamma * (1 + 1e-12)


def test_the_corrected_ball_holds_theta_at_all_times(world, law):
    x = pulse(world, law).x
    error = exact_error(world, x)
    inside, radius = covered(world, x, error, CORRECTED)
    _, printed = covered(world, x, error, PAPER)
    print(
        f"\nball holds theta* at all t in {inside.sum()} of {RUNS} runs (delta {DELTA}); mean "
        f"final radius: corrected {radius.mean():.2f}, paper {printed.mean():.2f}, "
        f"ratio {radius.mean() / printed.mean():.3f}"
    )
    assert inside.sum() >= ENOUGH
    assert inside.mean() >= 1 - DELTA
    assert radius.mean() / printed.mean() < 0.5


def test_a_biased_law_is_covered_once_its_error_is_stated(world, law):
    x = pulse(world, moved(law, 0.5)).x
    inside, _ = covered(world, x, exact_error(world, x), CORRECTED)
    assert inside.sum() >= ENOUGH


def test_a_biased_law_that_claims_no_error_misses(world, law):
    x = pulse(world, moved(law, 0.5)).x
    inside, _ = covered(world, x, np.zeros(x.shape[:3]), CORRECTED)
    assert inside.sum() < ENOUGH
