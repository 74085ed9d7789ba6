"""The band behind rung U covers where its form is true: every kind of W and of noise.

Laws are fixed functions, nothing is fitted. One input: the automatic curve, whose truth is
E[W | s] less the forecast. Five inputs: a linear band of an error that is a line. PULSE_REPS:
replications. The worlds are those of rungs F and G but for dropout, whose truth is no function of s
(and rare events and forecasts with atoms, which a curve is not for).
"""

import os

import numpy as np
import pytest

from pulse_pyro import stream
from pulse_pyro.bands.auto import make_band
from pulse_pyro.bands.band import BandMethod, Sample
from tests.studies.replications import in_parallel
from tests.studies.test_ladder_coverage import WORLDS, Draw, least, logistic

REPS = int(os.environ.get("PULSE_REPS", "400"))
LEVELS = (0.95, 0.90)
FORMS = {"curve": 1, "line": 5}  # inputs
NODE, WEIGHT = np.polynomial.hermite_e.hermegauss(40)


def mixed(function, sd):
    """Return s -> E[function(s + sd z)], z standard normal."""
    return lambda s: (function(s[:, None] + sd * NODE) @ WEIGHT) / WEIGHT.sum()


def levels(latent):
    """E of the ordinal W given its latent mean."""
    cuts = np.array([-2.0, -0.5, 1.0, 2.5])
    return logistic(latent[..., None] - cuts).sum(-1)


# E[W | s] of each world
TRUTHS = {
    "binary": logistic,
    "binary, intercepts": mixed(logistic, 1.0),
    "ordinal": mixed(levels, 0.7),
    "count": lambda s: np.exp(0.5 * s - 0.5 + 0.125),
    "skewed": lambda s: s,
    "log-normal": lambda s: np.exp(0.5 * s + 0.125 + 0.245),
    "heavy-tailed": lambda s: s,
    "AR noise": np.sin,
    "random intercepts": np.sin,
    "power-law lengths": np.sin,
    "power-law lengths, binary": mixed(logistic, 1.0),
}


def line(x):
    """A law's error that is a line in five inputs."""
    return 0.1 * x[:, 0] - 0.05 * x[:, 1] - 0.1


def contexts(draw):
    """Return s and four more columns (n, 5), of which only the line band sees more than s."""
    rest = draw.rng.standard_normal((len(draw.s), 4))
    return np.column_stack([draw.s, rest])


def once(job):
    """(covered, mean half-width in sds of W) at each level."""
    world, form, clusters, seed = job
    law, sizes = WORLDS[world]
    d = Draw(clusters, stream(seed, "archive", world, clusters), sizes)
    w, forecast = law(d)
    w, forecast = np.asarray(w, float), np.broadcast_to(forecast, len(d.s))
    x = contexts(d)
    fresh = contexts(Draw(40, stream(seed, "fresh", world)))
    if form == "line":
        y, truth = w - TRUTHS[world](d.s) + line(x), line(fresh)
    else:
        # the forecast as a function of s, which the laws of these worlds are
        order = np.unique(d.s, return_index=True)[1]
        x, fresh = x[:, :1], np.linspace(*np.quantile(d.s, [0.005, 0.995]), 999)[:, None]
        y = w - forecast
        truth = TRUTHS[world](fresh[:, 0]) - np.interp(fresh[:, 0], d.s[order], forecast[order])
    names = tuple(f"x{k}" for k in range(x.shape[1]))
    sample = Sample(x, y[:, None], d.unit, names, ("error of w",))
    kind = "linear" if form == "line" else "auto"
    found = []
    for level in LEVELS:
        band = make_band(sample, BandMethod(kind), level, stream(seed, "band", world)).fit.band
        centre, half, inside = band.at(fresh)
        wrong = np.abs(centre[:, 0] - truth)
        found.append(((wrong <= half[:, 0])[inside].all(), half[inside].mean() / w.std()))
    return found


@pytest.mark.parametrize("clusters", [20, 200])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("world", TRUTHS)
def test_the_band_covers_where_its_form_is_true(world, form, clusters):
    jobs = [(world, form, clusters, seed) for seed in range(REPS)]
    found = np.array(in_parallel(once, jobs), float)  # (archive, level, what)
    covered, width = found.mean(0).T
    told = ", ".join(
        f"{level:.0%}: {share:.1%} (mean half-width {size:.2f} sd)"
        for level, share, size in zip(LEVELS, covered, width, strict=True)
    )
    print(f"\n{world:26} {form:5} {clusters:4} clusters  {told}, {REPS} archives", flush=True)
    for level, share in zip(LEVELS, covered, strict=True):
        assert share >= max(least(level, REPS), level - 0.025)
