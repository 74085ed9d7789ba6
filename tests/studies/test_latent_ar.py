"""Regret where the paper's Assumption 3 fails: W has autoregressive noise that S does not tell.

Policies that learn from past rewards can earn more than the best policy that sees only S. What
they gain is full regret minus that of ``cond_oracle`` (column ``beside``): NEGATIVE means better
than every policy that sees only S. Conditional regret prices each arm by S alone; it is never
negative, and in this world it charges a policy for knowing more than S.
"""

import numpy as np
import pytest
from scipy import stats

import pulse_pyro as pp
from pulse_pyro.diagnostics.serial import serial_check, serial_dependence
from pulse_pyro.envs.latent_world import latent_ar
from pulse_pyro.policies.kalman_oracle import kalman
from pulse_pyro.policies.larl_ucb import larl
from tests.helpers import FALSE_ALARM, mean_at, z_bound

RUNS, HORIZON, MEMORY = 60, 1000, 5
SETTINGS = {
    "AR .9, sd .1, half of W from S": {},
    "AR .9, sd .1, S tells nothing": {"share": 0.0},
    "AR .9, sd .1, arm 0 better on average": {"mu": (0.1, 0.0)},
    "AR .5, sd .2, arm 0 better on average": {"ar": (0.5,), "sigma_z": 0.2, "mu": (0.1, 0.0)},
    "AR .99, sd .02, arm 0 better on average": {"ar": (0.99,), "sigma_z": 0.02, "mu": (0.1, 0.0)},
    "no AR, sd .2: Assumption 3 holds": {"ar": (0.0,), "sigma_z": 0.2, "mu": (0.1, 0.0)},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_regret(name):
    env = latent_ar(**SETTINGS[name])
    world = env.world(RUNS, HORIZON, rng=pp.stream(0, "online", name))
    fitted = pp.linear_lags(1).fit(env.archive(100, 60, rng=pp.stream(0, "archive")), seed=0)
    known = env.slope * world.s[..., 0]
    oracle = kalman(
        world.reward, env.latent, mu=env.mu, beta=env.beta, reward_sd=env.reward_sd, offset=known
    )
    run = pp.simulate(
        world,
        [
            pp.envs.pulse(world, fitted),
            pp.envs.Fixed("larl", larl(world.reward, memory=MEMORY)),
            pp.envs.Fixed("larl_bic", larl(world.reward)),
            pp.envs.Fixed("larl_s", larl(world.reward, memory=MEMORY, context=world.s)),
            pp.envs.Fixed(
                "larl_s, alpha .1",
                larl(world.reward, memory=MEMORY, context=world.s, alpha=0.1),
            ),
            pp.envs.Fixed("kalman", oracle.action),
            pp.envs.cond_oracle(world),
            pp.envs.oful_full(world),
        ],
    )
    table = run.table[["regret", "se", "regret_cond", "se_cond"]]
    table.insert(2, "beside", table["regret"] - table.loc["cond_oracle", "regret"])
    held = env.archive(100, 60, rng=pp.stream(0, "held"))
    residual = held.w[..., 0] - mean_at(fitted, held.s)[..., 0]
    check = serial_check("w", serial_dependence(residual, fitted.summary(held.s)))
    print(f"\n{name}: {RUNS} runs, T = {HORIZON}; {check.name}: {check.verdict} {check.value:.2f}")
    print(table.to_string(float_format="{:.1f}".format), flush=True)

    assert check.verdict == ("pass" if env.latent.ar == (0.0,) else "fail")
    # both arms tell equally much of z here, so no policy that sees S and rewards beats the filter
    others = [n for n in run.names if n not in ("kalman", "oful_full")]
    best = run.of("kalman")[:, -1]
    for other in others:
        lead = run.of(other)[:, -1] - best
        if lead.any():
            assert lead.mean() >= -z_bound() * lead.std(ddof=1) / np.sqrt(RUNS), other


@pytest.mark.parametrize("share", [0.0, 0.5])
@pytest.mark.parametrize("g", [0.0, 0.5, 0.9, 0.99])
def test_the_confidence_ball(g, share):
    """Misses of the corrected radius, fed the true E[Phi | S] and the true noise scale.

    z has the same variance, 0.05, whatever g: only its serial dependence differs.
    """
    runs, delta, spread = 400, 0.05, np.sqrt(0.05)
    env = latent_ar(ar=(g,), sigma_z=spread * np.sqrt(1 - g**2), share=share, mu=(0.1, 0.0))
    world = env.world(runs, HORIZON, rng=pp.stream(1, "ball", str(g), str(share)))
    bound = float(np.linalg.norm(world.theta))
    sigma = pp.radius.noise_scale(reward_sd=env.reward_sd, context_sd=0.5 * spread)
    radius = pp.corrected(sigma=sigma, delta=delta, theta_bound=bound)
    missed = []
    for horizon in (100, HORIZON):
        past = slice(horizon)
        _, _, state = pp.policies.play_horizon(world.phibar[:, past], world.reward[:, past], radius)
        gap = state.theta - world.theta
        apart = np.sqrt(np.einsum("ri,rij,rj->r", gap, state.precision, gap))
        missed.append(apart > bound + sigma * np.sqrt(state.logdet - 2 * np.log(delta)))
    shares = [one.mean() for one in missed]
    print(
        f"AR {g:.2f}, S tells {share:.0%} of W: ball of level {1 - delta:.0%} misses theta* after "
        f"100 rounds in {shares[0]:.1%}, after {HORIZON} in {shares[1]:.1%} of runs",
        flush=True,
    )
    if g == 0:
        assert max(one.sum() for one in missed) <= stats.binom.isf(FALSE_ALARM, runs, delta)
    if g == 0.99:
        assert missed[1].sum() > stats.binom.isf(FALSE_ALARM, runs, delta)
