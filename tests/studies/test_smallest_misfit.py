"""The smallest misfit the uniform rung's tests see, by kind, noise and number of clusters."""

import numpy as np
import pytest

import pulse_pyro as pp
from pulse_pyro import stream
from tests.studies.replications import in_parallel

ROWS, NOISE = 30, 0.5
PHI = pp.Features(lambda s, w, a: np.column_stack([w[:, 0], w[:, 0] * a]), 2, ("W", "Wa"))
ARCHIVES = [(noise, units) for noise in ("iid", "intercepts") for units in (60, 200)]


def planted(job):
    """Size in sds of W, by kind of misfit, that 80 % of plants show; NaN where none does."""
    noise, units = job
    rng = stream(0, "smallest misfit", noise, units)
    s = rng.standard_normal((units, ROWS, 5))
    level = rng.standard_normal((units, 1, 1)) if noise == "intercepts" else 0.0
    w = (s @ np.linspace(0.5, -0.2, 5))[..., None]
    w = w + NOISE * (rng.standard_normal((units, ROWS, 1)) + level)
    found = pp.calibration.smallest_misfit(
        pp.linear_lags(1), pp.History.from_arrays(s, w), PHI, reps=20, seed=0, seconds=400
    )
    return dict(zip(found.kinds, map(float, found.size), strict=True)), found.false_alarms


@pytest.mark.long
def test_more_clusters_see_smaller_misfits():
    found = dict(zip(ARCHIVES, in_parallel(planted, ARCHIVES), strict=True))
    for (noise, units), (sizes, false_alarms) in found.items():
        told = ", ".join(f"{kind} {size:.2g}" for kind, size in sizes.items())
        print(f"{noise}, {units} units of {ROWS}: {told}; false alarms {false_alarms:.0%}")
    for noise in ("iid", "intercepts"):
        few, many = found[noise, 60][0], found[noise, 200][0]
        larger = [kind for kind in few if many[kind] > few[kind]]
        assert not larger, (noise, larger)
