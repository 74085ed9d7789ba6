"""Rungs F and G cover their own targets: every kind of W and of noise, few and many clusters.

Laws are fixed functions, nothing is fitted. The truth of a bin or group is the mean error there in
a population of the same world. PULSE_REPS: replications.
"""

import os
from functools import cache

import numpy as np
import pytest
from scipy import stats

from pulse_pyro import stream
from pulse_pyro.base import Column, Schema
from pulse_pyro.calibration.forecast import forecast_rung
from pulse_pyro.calibration.groups import group_rules, groups_rung
from pulse_pyro.calibration.rung import Ask, ErrorRows
from tests.studies.replications import in_parallel

REPS = int(os.environ.get("PULSE_REPS", "500"))
POPULATION = 100_000  # clusters
SCHEMA = Schema((Column("s"), Column("sex", kind="binary"), Column("w", "W")))
GROUPS = ("s", "sex", "time", "forecast")


# Worlds: contexts, W, and the forecast of a law that is wrong on purpose.


def logistic(z):
    return 1.0 / (1.0 + np.exp(-z))


def lengths(count, rng):
    return np.full(count, 25)


def power_law(count, rng):
    return np.minimum(5.0 * (1.0 - rng.random(count)) ** (-1.0 / 1.2), 400).astype(int)


class Draw:
    """Rows of so many clusters: context s (n,), sex, unit, step; helpers for noise."""

    def __init__(self, count, rng, sizes=lengths):
        self.rng, size = rng, sizes(count, rng)
        self.count = count
        self.unit = np.repeat(np.arange(count), size)
        self.time = np.arange(len(self.unit)) - np.repeat(np.cumsum(size) - size, size)
        # contexts of a unit are alike
        level = rng.standard_normal(count)
        self.s = 0.7 * level[self.unit] + 0.7 * rng.standard_normal(len(self.unit))
        self.sex = (rng.random(count) < 0.5).astype(float)[self.unit]

    def intercept(self, sd, draw=None):
        draw = draw or (lambda n: self.rng.standard_normal(n))
        return sd * draw(self.count)[self.unit]

    def normal(self):
        return self.rng.standard_normal(len(self.unit))

    def ar(self, keep):
        """AR(1) noise with variance 1 along each unit; units are of equal length."""
        shock = self.normal().reshape(self.count, -1) * np.sqrt(1.0 - keep**2)
        shock[:, 0] /= np.sqrt(1.0 - keep**2)
        for t in range(1, shock.shape[1]):
            shock[:, t] += keep * shock[:, t - 1]
        return shock.ravel()


def binary(d):
    return d.rng.random(len(d.s)) < logistic(d.s), logistic(0.7 * d.s + 0.3)


def binary_intercepts(d):
    p = logistic(d.s + d.intercept(1.0))
    return d.rng.random(len(p)) < p, logistic(0.8 * d.s)


def binary_rare(d):
    p = logistic(d.s - 4.0 + d.intercept(0.7))
    return d.rng.random(len(p)) < p, logistic(0.7 * d.s - 3.5)


def binary_atoms(d):
    """A forecast with three values."""
    p = logistic(d.s + d.intercept(0.5))
    return d.rng.random(len(p)) < p, np.choose(np.digitize(d.s, [-0.5, 0.5]), [0.2, 0.5, 0.7])


def ordinal(d):
    latent = d.s + d.intercept(0.7) + d.rng.logistic(size=len(d.s))
    return np.digitize(latent, [-2.0, -0.5, 1.0, 2.5]), 2.0 + 0.5 * d.s


def count(d):
    return d.rng.poisson(np.exp(0.5 * d.s - 0.5 + d.intercept(0.5))), np.exp(0.4 * d.s - 0.4)


def skewed(d):
    noise = d.rng.exponential(size=len(d.s)) - 1.0
    lasting = d.intercept(0.5, lambda n: d.rng.exponential(size=n) - 1.0)
    return d.s + noise + lasting, 0.9 * d.s + 0.1


def log_normal(d):
    return np.exp(0.5 * d.s + 0.5 * d.intercept(1.0) + 0.7 * d.normal()), np.exp(0.4 * d.s)


def heavy(d):
    noise = d.rng.standard_t(3, len(d.s))
    return d.s + noise + d.intercept(0.5, lambda n: d.rng.standard_t(3, n)), 0.9 * d.s + 0.1


def ar_noise(d):
    return np.sin(d.s) + d.ar(0.9), 0.8 * d.s


def intercepts(d):
    return np.sin(d.s) + d.intercept(1.0) + 0.5 * d.normal(), 0.8 * d.s


WORLDS = {
    "binary": (binary, lengths),
    "binary, intercepts": (binary_intercepts, lengths),
    "binary, rare": (binary_rare, lengths),
    "binary, atoms": (binary_atoms, lengths),
    "ordinal": (ordinal, lengths),
    "count": (count, lengths),
    "skewed": (skewed, lengths),
    "log-normal": (log_normal, lengths),
    "heavy-tailed": (heavy, lengths),
    "AR noise": (ar_noise, lengths),
    "random intercepts": (intercepts, lengths),
    "power-law lengths": (intercepts, power_law),
    "power-law lengths, binary": (binary_intercepts, power_law),
    "dropout": (intercepts, lengths),
    "dropout, binary": (binary_intercepts, lengths),
}


def draw(world, clusters, rng):
    """Rows of a world; in the worlds of dropout a unit leaves once W was high."""
    law, sizes = WORLDS[world]
    d = Draw(clusters, rng, sizes)
    w, forecast = law(d)
    w = np.asarray(w, float)
    keep = np.ones(len(w), bool)
    if world.startswith("dropout"):
        high = (w > 1.0 if "binary" not in world else (w == 1) & (rng.random(len(w)) < 0.3)) * 1
        high = high.reshape(clusters, -1)
        keep = (np.cumsum(high, axis=1) - high == 0).ravel()
    forecast = np.broadcast_to(forecast, w.shape)
    s = np.column_stack([d.s, d.sex])[keep]
    return ErrorRows(
        names=("w",),
        target=w[keep, None],
        forecast=forecast[keep, None],
        x=s,
        x_names=("s", "sex"),
        s=s,
        s_names=("s", "sex"),
        cluster=d.unit[keep],
        unit=d.unit[keep],
        time=d.time[keep],
        history_row=np.arange(keep.sum()),
    )


class Population:
    """A very large draw of a world: the mean error between any two forecasts, or contexts."""

    def __init__(self, world):
        rows = draw(world, POPULATION, stream(0, "population", world))
        self.y = rows.error[:, 0]
        self.by = {}
        for name, values in (("forecast", rows.forecast[:, 0]), ("s", rows.s[:, 0])):
            order = np.argsort(values)
            self.by[name] = values[order], np.append(0.0, np.cumsum(self.y[order]))
        female = rows.s[:, 1] == 1
        self.sex = np.array([self.y[~female].mean(), self.y[female].mean()])
        first, last = np.full(POPULATION, 10**9), np.full(POPULATION, -1)
        np.minimum.at(first, rows.unit, rows.time)
        np.maximum.at(last, rows.unit, rows.time)
        part = 3 * (rows.time - first[rows.unit]) // (last - first + 1)[rows.unit]
        self.time = np.array([self.y[part == k].mean() for k in range(3)])

    def between(self, name, cuts):
        """Mean error in each bin, cut k - 1 < value <= cut k; NaN where nobody is."""
        values, total = self.by[name]
        at = np.concatenate([[0], np.searchsorted(values, cuts, side="right"), [len(values)]])
        rows = np.diff(at)
        return np.where(rows > 0, np.diff(total[at]) / np.maximum(rows, 1), np.nan)


population = cache(Population)


def covered(job):
    """Draw one archive: do all limits of F hold, do all of G, and how large are both."""
    world, clusters, level, seed = job
    rows = draw(world, clusters, stream(seed, "archive", world, clusters))
    truth = population(world)
    f = forecast_rung(rows, Ask(level, seed))
    g = groups_rung(rows, Ask(level, seed, GROUPS, SCHEMA))
    inside_f = inside_g = True
    if f.holds:
        inside_f = _inside(f.details, truth.between("forecast", f.details.stop[:-1]))
    if g.holds:
        cuts = {name: group_rules(rows, name, None, SCHEMA)[0][1].at for name in ("s", "forecast")}
        wanted = [truth.between("s", cuts["s"]), truth.sex, truth.time]
        forecasts = truth.between("forecast", cuts["forecast"])
        inside_g = _inside(g.details, np.concatenate([*wanted, forecasts]))
    return inside_f, inside_g, f.size, g.size


def _inside(details, truth):
    low = details.lower if hasattr(details, "lower") else details.low
    high = details.upper if hasattr(details, "upper") else details.high
    outside = (truth < low) | (truth > high)  # NaN, not judged, is not outside
    return not outside.any()


def coverage(world, clusters, level, reps):
    """Return the share of archives in which all limits of F, and of G, hold; and mean sizes."""
    found = in_parallel(covered, [(world, clusters, level, rep) for rep in range(reps)])
    found = np.array(found, float)
    return found[:, 0].mean(), found[:, 1].mean(), *np.nanmean(found[:, 2:], axis=0)


def least(level, reps):
    """Return the smallest share that so many archives of true level may show (one-sided 1e-3)."""
    return stats.binom.ppf(1e-3, reps, level) / reps


@pytest.mark.parametrize("level", [0.95, 0.90])
@pytest.mark.parametrize("clusters", [20, 200])
@pytest.mark.parametrize("world", WORLDS)
def test_limits_of_forecast_and_groups_cover_their_means(world, clusters, level):
    forecast, groups, size_f, size_g = coverage(world, clusters, level, REPS)
    print(
        f"\n{world:28} {clusters:4} clusters, {level:.0%}: F {forecast:.1%} (mean bound "
        f"{size_f:.2f} sd), G {groups:.1%} ({size_g:.2f} sd), {REPS} archives"
    )
    goal = max(least(level, REPS), level - 0.025)
    assert forecast >= goal
    assert groups >= goal
