"""Coverage of the average error and of the free line, in thirteen worlds: `make studies`."""

import os

import numpy as np
import pytest
from scipy import stats

from pulse_pyro import stream
from pulse_pyro.calibration import average
from pulse_pyro.calibration.free import free_rung
from pulse_pyro.calibration.rung import Ask, ErrorRows
from tests.studies.replications import in_parallel

REPS = int(os.environ.get("PULSE_REPS", "500"))
LEVELS = (0.95, 0.90)
SLACK = 0.025
INPUTS = ("ar", "by cluster", "iid", "0/1", "skewed")
POPULATION = 12_000  # clusters that truths are taken from
TRUTH_ROWS = 8_000  # rows of them that a projection is worked out on


def normal(rng, cluster):
    return rng.standard_normal(len(cluster))


def autoregressive(rng, cluster):
    """AR(.9) that starts anew in each cluster, sd 1."""
    return _ar(0.9, rng.standard_normal(len(cluster)), cluster)


def intercepts(rng, cluster):
    """Half of the variance is the cluster's."""
    own = rng.standard_normal(cluster.max() + 1)[cluster]
    return np.sqrt(0.5) * (own + rng.standard_normal(len(cluster)))


def skewed(rng, cluster):
    return rng.exponential(size=len(cluster)) - 1.0


def heavy(rng, cluster):
    return rng.standard_t(4, len(cluster)) / np.sqrt(2.0)


def bend(x):
    return 0.2 * (np.minimum(x[:, 0] ** 2, 6) - 1) / np.sqrt(2)


def nothing(x):
    return np.zeros(len(x))


def product(x):
    return 0.3 * x[:, 0] * x[:, 2]


def low(x):
    return 0.2 + 0.1 * x[:, 0]


NOISY = {
    "none": (nothing, normal),
    "bend": (bend, normal),
    "interaction": (product, normal),
    "skewed": (low, skewed),
    "heavy-tailed": (bend, heavy),
    "AR noise": (bend, autoregressive),
    "random intercepts": (bend, intercepts),
    "power-law sizes": (bend, intercepts),
    "inputs by cluster": (product, intercepts),
    "dropout": (bend, intercepts),
}
WORLDS = (*NOISY, "binary", "ordinal", "count")


def _ar(rho, shock, cluster):
    out = shock.copy()
    first = np.r_[True, np.diff(cluster) != 0]
    place = np.arange(len(cluster)) - np.maximum.accumulate(
        np.where(first, np.arange(len(first)), 0)
    )
    for t in range(1, place.max() + 1):
        at = np.flatnonzero(place == t)
        out[at] = rho * out[at - 1] + np.sqrt(1 - rho**2) * shock[at]
    return out


def draw(world, clusters, rng):
    """Return x (n, 5), cluster, forecast, delta and W: rows of an archive, or of a population."""
    if world == "power-law sizes":
        size = np.minimum(np.ceil(4 * (1 - rng.random(clusters)) ** (-1 / 1.5)), 400).astype(int)
    else:
        size = rng.integers(5, 36, clusters)
    cluster = np.repeat(np.arange(clusters), size)
    n = len(cluster)
    own = rng.standard_normal((clusters, 2))[cluster]
    x = rng.standard_normal((n, 5))
    x[:, 3] = rng.random(n) < 0.3
    x[:, 4] = rng.exponential(size=n)
    if world == "inputs by cluster":
        x[:, :2] = own
    elif world != "dropout":  # there inputs are independent, so that delta is known
        x[:, 0] = _ar(0.8, x[:, 0], cluster)
        x[:, 1] = np.sqrt(0.5) * (x[:, 1] + own[:, 0])
    if world in NOISY:
        forecast = 0.5 * x[:, 0] + 0.3 * x[:, 1]
        delta = NOISY[world][0](x)
        w = forecast + delta + NOISY[world][1](rng, cluster)
        if world == "dropout":
            stay = _before(w > 1.5, cluster) == 0
            x, forecast, delta, w = x[stay], forecast[stay], delta[stay], w[stay]
            cluster = np.unique(cluster[stay], return_inverse=True)[1]
        return x, cluster, forecast, delta, w
    score = -1.0 + 0.8 * x[:, 0] + 0.5 * x[:, 1]
    if world == "count":
        mean, forecast = np.exp(0.3 + 0.4 * x[:, 0]), np.exp(0.3 + 0.3 * x[:, 0])
        return x, cluster, forecast, mean - forecast, rng.poisson(mean).astype(float)
    cuts = np.array([0.0] if world == "binary" else [-1.5, 0.0, 1.5])
    above = 1 / (1 + np.exp(cuts - score[:, None]))
    w = (rng.logistic(size=n)[:, None] + score[:, None] > cuts).sum(1).astype(float)
    forecast = len(cuts) * (0.3 + 0.12 * x[:, 0])
    return x, cluster, forecast, above.sum(1) - forecast, w


def _before(event, cluster):
    """How often it happened earlier in the same cluster."""
    total = np.cumsum(event) - event
    first = np.r_[True, np.diff(cluster) != 0]
    return total - np.maximum.accumulate(np.where(first, total, 0))


_KNOWN = {}


def population(world):
    """Return x, delta and forecast of rows, and the mean square of W - forecast."""
    if world not in _KNOWN:
        x, _, forecast, delta, w = draw(world, POPULATION, stream(0, "population", world))
        y = w - forecast
        if world == "dropout":  # those who stay have lower intercepts, whatever their inputs
            delta = delta + (y - delta).mean()
        step = len(x) // TRUTH_ROWS
        _KNOWN[world] = x[::step], delta[::step], forecast[::step], (y**2).mean()
    return _KNOWN[world]


def one(job):
    """Return, for both levels: A covers for all k, R covers rms(y), A's size; and A's truth."""
    world, clusters, rep = job
    x, cluster, forecast, _, w = draw(world, clusters, stream(0, "average", world, clusters, rep))
    n = len(x)
    step = np.arange(n)
    rows = ErrorRows(
        ("w",), w[:, None], forecast[:, None], x, INPUTS, x[:, :1], ("s",),
        cluster, cluster, step, step,
    )  # fmt: skip
    px, delta, known, square = population(world)
    out, truth = [], None
    measured = average._measure(rows, rep, None)  # once for both levels
    for level in LEVELS:
        a = average._stated(rows, measured, level).details
        if truth is None:
            seen = {len(INPUTS): px, 1: known[:, None], 0: px[:, :0]}[len(a.functions.mean)]
            b = a.functions.design(seen)
            root = np.linalg.cholesky(b.T @ b / len(b))
            part = np.linalg.solve(root, b.T @ delta / len(b))
            truth = np.sqrt(np.cumsum(part**2)[a.k - 1])
        free = free_rung(rows, Ask(level, rep))
        upper = free.details.upper[0] if free.holds else np.nan  # refused: nothing is claimed
        held = upper >= np.sqrt(square) if free.holds else np.nan
        out += [(a.bound[:, 0] >= truth).all(), held, a.bound[-1, 0]]
    return [*out, truth[-1], a.k[-1], upper]


def coverage(world, clusters, reps):
    """Run one cell: a dictionary of shares and sizes."""
    found = np.array(in_parallel(one, [(world, clusters, rep) for rep in range(reps)]))
    c95, r95, size, c90, r90, _, truth, k, upper = np.nanmean(found, axis=0)
    return {
        "A95": c95, "A90": c90, "R95": r95, "R90": r90, "k": k, "truth": truth, "bound": size,
        "R": upper, "stated": int(np.isfinite(found[:, 1]).sum()),
    }  # fmt: skip


@pytest.mark.parametrize("clusters", [20, 200])
@pytest.mark.parametrize("world", WORLDS)
def test_average_and_free_cover(world, clusters):
    cell = coverage(world, clusters, REPS)
    print(
        f"{world:18} N={clusters:3} A 95: {cell['A95']:6.1%} 90: {cell['A90']:6.1%}  R 95: "
        f"{cell['R95']:6.1%} 90: {cell['R90']:6.1%}  k {cell['k']:.0f}, truth {cell['truth']:.3f}, "
        f"bound {cell['bound']:.3f}, free {cell['R']:.3f} (stated {cell['stated']} of {REPS})",
        flush=True,
    )
    short = []
    for name in ("A", "R"):
        for level in LEVELS:
            share = cell[f"{name}{level * 100:.0f}"]
            reps = cell["stated"] if name == "R" else REPS
            allowed = stats.binom.ppf(1e-3, reps, level) / reps
            if share < max(allowed, level - SLACK):
                short.append((name, level, share))
    assert not short
