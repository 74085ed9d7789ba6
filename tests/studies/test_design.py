"""Does a design from the archive alone rank policies as the world does that made the archive?

For each archive of a known world, ``pp.design`` ranks the candidates by simulation from the archive
alone; then the same candidates, with the law fitted on that archive, are played in fresh rounds of
the world itself. Printed are Spearman's correlations of the two rankings, for a design that tries
the fitted law alone and for one that tries all environments, and what the candidate recommended
loses in the world beside the best one there: as a ratio with the design's own floor, a hundredth of
what playing at random costs, and without it, where regrets near zero make large ratios of little.
"""

import time

import numpy as np
import pytest
from scipy import stats

import pulse_pyro as pp
from pulse_pyro.calibration.recipe import fit_law
from pulse_pyro.study.design import NEGLIGIBLE
from pulse_pyro.study.rehearsal import CEILING, constants
from pulse_pyro.study.scenarios import SCENARIOS
from pulse_pyro.study.worlds import StudyPolicies

ARCHIVES, RUNS, HORIZON = 20, 32, 600
UNITS, LENGTH = 40, 60
THETA_BOUND = 1.1  # >= ||(.1, .1, .1, 1)||
BASE = {"fitted law": SCENARIOS[:1], "all environments": SCENARIOS}


def truly(history, settings, stakes, seed):
    """Regret a round in the world itself, by name, and at random: the law is the design's."""
    env, law = pp.envs.w_times_action(), pp.linear_lags(19)
    own, held_out = history.split(settings.recipe.fit, seed=seed)
    fitted = fit_law(law, own, None, seed)
    calibration = settings.recipe.bound(fitted, history, held_out, env.features, seed=seed)
    names = tuple(name for name in settings.names if name != CEILING)
    policies = StudyPolicies(names, fitted, own, calibration, stakes, seed)
    world = env.world(RUNS, HORIZON, rng=pp.stream(seed, "fresh"))
    agents = policies.agents(world, []) | constants(policies, world, settings.constants)
    regret = pp.simulate(world, list(agents.values())).table["regret_cond"] / HORIZON
    return regret, float((world.mean_cond.max(-1) - world.mean_cond.mean(-1)).mean())


@pytest.mark.parametrize("tried", BASE)
def test_rankings_agree(tried):
    env = pp.envs.w_times_action()
    sigma = pp.radius.noise_scale(reward_sd=env.reward_sd, context_sd=THETA_BOUND * 2**0.5 * 0.1)
    stakes = pp.calibration.Stakes(HORIZON, sigma, THETA_BOUND, reward_sd=env.reward_sd)
    settings = pp.study.DesignSettings(scenarios=BASE[tried], runs=RUNS)
    alike, plain, lost, of_random, chosen, seconds = [], [], [], [], [], []
    for seed in range(ARCHIVES):
        history = env.archive(UNITS, LENGTH, rng=pp.stream(seed, "archive"))
        started = time.perf_counter()
        found = pp.design(
            history, pp.linear_lags(19), env.features, stakes=stakes, settings=settings, seed=seed
        )
        seconds.append(time.perf_counter() - started)
        truth, random = truly(history, settings, stakes, seed)
        by_design = found.ranking["worst ratio"].dropna()
        names = [name for name in by_design.index if name in truth.index]
        alike.append(float(stats.spearmanr(by_design[names], truth[names]).statistic))
        floor = NEGLIGIBLE * random  # as in the design itself
        plain.append(float(truth[found.recommended] / truth[names].min()))
        lost.append(float((truth[found.recommended] + floor) / (truth[names].min() + floor)))
        of_random.append(float((truth[found.recommended] - truth[names].min()) / random))
        chosen.append(found.recommended)
    print(
        f"\n{tried}: {ARCHIVES} archives of {UNITS} units x {LENGTH}, {len(names)} candidates; "
        f"rank correlation mean {np.mean(alike):.2f}, least {np.min(alike):.2f}\n  the one "
        f"recommended beside the best in the world: ratio {np.median(lost):.2f} in the middle, "
        f"{np.max(lost):.2f} at worst (without the "
        f"floor {np.median(plain):.2f} and {np.max(plain):.2f}); it loses "
        f"{np.median(of_random):.1%} of what playing at random costs, "
        f"{np.max(of_random):.1%} at worst; {np.mean(seconds):.1f} s a design\n  "
        + ", ".join(f"{name} {chosen.count(name)}" for name in dict.fromkeys(chosen)),
        "\n  rank correlations: " + ", ".join(f"{value:.2f}" for value in alike),
        flush=True,
    )
    assert np.mean(alike) > 0.5
