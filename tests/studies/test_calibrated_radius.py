"""Does the calibrated, corrected radius play as well as a constant tuned by hand?

Full grid of constants, at the published ridge 1 and at the ridge matched to the noise, beside the
corrected radius with errors from a calibration on the same archive; 60 runs, each with its own
archive. Printed, with the ratio to the best constant at the better of the two ridges.
"""

from dataclasses import replace

import numpy as np
import pytest

import pulse_pyro as pp
from tests.policies.helpers import always_inside

RUNS, ROUNDS = 60, 980
GRID = (0.1, 0.25, 0.5, 1.0, 2.0)
WORLDS = {
    "w_times_action": (pp.envs.w_times_action(), pp.Lags(19), 25),
    "main_linear": (pp.envs.main_linear(), pp.Window(3, np.mean), 100),
}


def scales(env):
    """S, and sigma from S alone: nothing a user would not know (the noise of W is estimated)."""
    size = float(np.linalg.norm(env.theta))
    moved = env.features(np.zeros((1, 1)), np.ones((1, 1)), 1) - env.features(
        np.zeros((1, 1)), np.zeros((1, 1)), 1
    )
    context = size * float(np.linalg.norm(moved)) * env.w_sd
    return size, pp.radius.noise_scale(reward_sd=env.reward_sd, context_sd=context)


def fitted(env, summary, units, length, world, size):
    """Law and e_{t,a} of each run, from its own archive."""
    laws, errors = [], []
    for r in range(RUNS):
        archive = env.archive(units, length, rng=pp.stream(0, "archive", r))
        law = pp.linear_lags(summary).fit(archive, seed=0)
        calibration = pp.calibration.all_units(law, archive, env.features, level=0.95, seed=0)
        s = world.s[r : r + 1]
        laws.append(law)
        errors.append(calibration.reward_error(s, theta_bound=size)[:, world.lead :])
    return laws, np.concatenate(errors)


@pytest.mark.parametrize("name", WORLDS)
@pytest.mark.parametrize("units", [50, 500])
def test_calibrated_radius_beside_every_constant(name, units):
    env, summary, length = WORLDS[name]
    size, sigma = scales(env)
    world = env.world(RUNS, ROUNDS, rng=pp.stream(0, "online"))
    laws, error = fitted(env, summary, units, length, world, size)
    matched = pp.radius.matched_ridge(sigma=sigma, theta_bound=size, dim=4)
    radius = pp.corrected(sigma=sigma, theta_bound=size)
    added = pp.corrected(sigma=sigma, theta_bound=size, form="sum")
    plain = pp.envs.pulse(world, laws)
    agents = [
        replace(
            plain, name=f"constant {a:g}, ridge {ridge:.2g}", radius=pp.constant(a), ridge=ridge
        )
        for ridge in (1.0, matched)
        for a in GRID
    ]
    for label, rule, e in (
        ("corrected", radius, error),
        ("sum of roots", added, error),
        ("no error", radius, None),
    ):
        agents += [
            replace(plain, name=f"{label}, ridge {ridge:.2g}", radius=rule, ridge=ridge, error=e)
            for ridge in (1.0, matched)
        ]
    table = pp.simulate(world, agents).table
    best = {
        r: table["regret"][[f"constant {a:g}, ridge {r:.2g}" for a in GRID]].min()
        for r in (1.0, matched)
    }
    print(
        f"\n{name}, N={units}: S {size:.3g}, sigma {sigma:.3g}, mean e {error[..., 1].mean():.3g}"
    )
    shown = table[["regret", "se", "regret_cond", "se_cond"]].copy()
    shown["x best constant, ridge 1"] = shown["regret"] / best[1.0]
    shown["x best constant, any ridge"] = shown["regret"] / min(best.values())
    print(shown.round(2).to_string())
    sharp = table["regret"][f"corrected, ridge {matched:.2g}"]
    assert sharp < table["regret"][f"sum of roots, ridge {1.0:.2g}"]


def test_theta_is_covered_in_400_runs_with_biased_laws():
    """Each run: its own archive, a law with E[W] too high by ``by``, its own calibration."""
    env, runs, rounds = pp.envs.w_times_action(), 400, 980
    size, sigma = scales(env)
    theta, radius = np.array(env.theta), pp.corrected(sigma=sigma, theta_bound=size)
    world = env.world(runs, rounds, rng=pp.stream(0, "online"))
    for by in (0.0, 0.2, 0.7):
        x, error = np.empty(world.phi.shape), np.empty(world.phi.shape[:3])
        for r in range(runs):
            fit, held_out = env.archive(60, 45, rng=pp.stream(0, "archive", r)).split(seed=r)
            law = pp.linear_lags(19).fit(fit, seed=0)
            step = np.zeros((20, 1))
            step[0] = by / law.scaler.w_scale[0]
            law = replace(law, draws={**law.draws, "coef": law.draws["coef"] + step})
            calibration = pp.calibrate(law, held_out, env.features, level=0.95, seed=r)
            s = world.s[r : r + 1]
            x[r] = pp.features.expected_features(
                law, env.features, s, size=2, rng=pp.stream(0, "exact")
            ).mean[0, world.lead :]
            error[r] = calibration.reward_error(s, theta_bound=size)[0, world.lead :]
        held = {}
        for name, e in (("calibrated", error), ("no error", np.zeros_like(error))):
            action, gamma, _ = pp.policies.play_horizon(x, world.reward, radius, error=e)
            held[name] = int(always_inside(x, world.reward, action, gamma, theta).sum())
        print(f"\nE[W] too high by {by}: runs of {runs} with theta* in every ball: {held}")
        assert held["calibrated"] >= 0.95 * runs
