"""Is a better law rewarded? Three laws of one nonlinear world, by their true errors."""

import os

import numpy as np
import pytest

import pulse_pyro as pp
from tests.studies.replications import in_parallel

ARCHIVES = int(os.environ.get("PULSE_REPS", "50"))
UNITS, ROWS = 120, 25
PHI = pp.Features(lambda s, w, a: np.column_stack([w[:, 0], w[:, 0] * a]), 2, ("W", "Wa"))
LAWS = {
    "linear": lambda: (pp.linear_lags(1), None),
    "gp": lambda: (pp.gaussian_process(1), None),
    "neural": lambda: (pp.neural_density(1), None),
}


def mean(s):
    """Bends in two inputs and an interaction, which sums of curves cannot follow."""
    bends = np.sin(2 * s[..., 0]) + 0.5 * s[..., 1] ** 2
    return (bends + 0.6 * s[..., 2] * s[..., 3])[..., None]


def judged(job):
    """(true rms error, size of rungs forecast, average and free, uniform verdict) by law."""
    (seed,) = job
    rng = np.random.default_rng(seed)
    s = rng.standard_normal((UNITS, ROWS, 5))
    w = mean(s) + 0.5 * rng.standard_normal((UNITS, ROWS, 1))
    fit, held_out = pp.History.from_arrays(s, w).split(seed=seed)
    found = {}
    for name, make in LAWS.items():
        law, how = make()
        fitted = law.fit(fit, how, seed=seed)
        calibration = pp.calibrate(fitted, held_out, PHI, seed=seed)
        true = np.sqrt(((fitted(held_out).mean() - mean(held_out.s)) ** 2).mean())
        sizes = [calibration.rung(rung).size for rung in ("forecast", "average", "free")]
        found[name] = (true / held_out.w.std(), *sizes, calibration.rung("uniform").verdict)
    return found


@pytest.mark.long
def test_sizes_stand_in_the_order_of_the_true_errors():
    every = in_parallel(judged, [(seed,) for seed in range(ARCHIVES)])
    right = 0
    for found in every:
        order = sorted(found, key=lambda name: found[name][0])
        sizes = [found[name][2] for name in order]  # the average error, whose target it is
        right += sizes == sorted(sizes)
    for name in LAWS:
        middle = [np.median([found[name][k] for found in every]) for k in range(4)]
        fails = np.mean([found[name][4] == "fails" for found in every])
        print(
            f"\n{name}: true rms {middle[0]:.3f} sd; forecast {middle[1]:.3f}, average "
            f"{middle[2]:.3f}, free {middle[3]:.3f}; uniform fails {fails:.0%}"
        )
    print(f"in the order of the true errors: {right} of {len(every)}")
    assert right >= 0.9 * len(every)
