"""Size and power of the tests of what a band leaves, hunting first, on errors of a fitted law."""

import os

import numpy as np
import pytest
from scipy import stats
from scipy.signal import lfilter

from pulse_pyro import stream
from pulse_pyro.bands.auto import make_band
from pulse_pyro.bands.band import BandMethod, Sample
from pulse_pyro.bands.form import form_of
from pulse_pyro.bands.hunting import hunt
from pulse_pyro.bands.misfits import RowTimes, misfit_tests
from tests.helpers import FALSE_ALARM
from tests.studies.replications import in_parallel

REPS = int(os.environ.get("PULSE_REPS", "1000"))
UNITS, TIME, NOISE, LEVEL = 100, 30, 0.5, 0.05
CLEAN = ("iid", "intercepts", "autoregressive", "sd of x", "skewed", "unequal units")
# world -> how many inputs its band has, and the least share seen that is asked for
POWER = {
    "three-way sign": (5, 0.2),
    "threshold": (5, 0.5),
    "corner step": (2, 0.5),
    "calendar": (5, 0.5),
    "jump": (1, 0.5),
    "pair product": (5, 0.5),
    "three-way sign, intercepts": (5, 0.1),
    "dropout": (5, 0.2),
}


def autoregressive(shape, rho, rng):
    shocks = rng.standard_normal((shape[0], shape[1] + 60, *shape[2:])) * np.sqrt(1 - rho**2)
    return lfilter([1.0], [1.0, -rho], shocks, axis=1)[:, 60:]


def noise(kind, x, rng):
    shape = x.shape[:2]
    if kind.endswith("intercepts"):
        return NOISE * (rng.standard_normal((shape[0], 1)) + rng.standard_normal(shape))
    if kind == "autoregressive":
        return NOISE * autoregressive(shape, 0.8, rng)
    if kind == "sd of x":
        return NOISE * (0.3 + x[..., 0] ** 2) * rng.standard_normal(shape)
    if kind == "skewed":
        return NOISE * (rng.exponential(size=shape) - 1)
    return NOISE * rng.standard_normal(shape)


def misfit(world, x, date):
    one, two = x[..., 0], x[..., min(1, x.shape[-1] - 1)]
    if world.startswith("three-way sign"):
        return 0.3 * np.sign(one * two * x[..., 2])
    return {
        "threshold": lambda: 0.6 * ((one > 0.5) & (two > 0.5)),
        "corner step": lambda: 1.0 * ((one > 0.8) & (two > 0.8)),
        "calendar": lambda: 0.25 * np.sin(2 * np.pi * date / 40),
        "jump": lambda: 1.5 * (one > 0.3),
        "pair product": lambda: 0.15 * one * two,
    }.get(world, lambda: 0.0)()


def held_out(world, rep):
    """Rows of the held-out half: the law's error, inputs, further columns, and times."""
    rng = stream(0, "hunting", world, rep)
    inputs = POWER.get(world, (5, 0.0))[0]
    x = autoregressive((UNITS, TIME, inputs), 0.5, rng)
    start = rng.integers(0, 60, UNITS)
    date = start[:, None] + np.arange(TIME)
    w = x @ np.linspace(0.5, -0.2, inputs) + misfit(world, x, date) + noise(world, x, rng)
    seen = np.ones((UNITS, TIME), bool)
    if world == "unequal units":
        length = np.clip(np.round(4 * rng.pareto(1.2, UNITS) + 4), 4, TIME).astype(int)
        seen = np.arange(TIME) < length[:, None]
    if world == "dropout":  # whoever has a high W leaves with probability 1/2 after it
        high = (w - x @ np.linspace(0.5, -0.2, inputs) > 0.5) & (rng.random(w.shape) < 0.5)
        seen = np.cumsum(high, axis=1) - high == 0
    before = np.concatenate([np.full((UNITS, 1, inputs), np.nan), x[:, :-1]], axis=1)
    unit, time = np.nonzero(seen)
    fit = unit < UNITS // 2
    b = np.column_stack([np.ones(len(unit)), x[seen]])
    error = w[seen] - b @ np.linalg.lstsq(b[fit], w[seen][fit], rcond=None)[0]
    rest = ~fit
    names = tuple(f"x{k}" for k in range(inputs))
    sample = Sample(x[seen][rest], error[rest, None], unit[rest] - UNITS // 2, names, ("w",))
    times = RowTimes(sample.unit, time[rest], date[seen][rest], 1.0)
    return sample, before[seen][rest], tuple(f"{k}.lag1" for k in names), times


def p_values(job):
    """One archive: p-values by test; of the hunt alone where ``every`` is False."""
    world, every, rep = job
    sample, omitted, names, times = held_out(world, rep)
    rng = stream(1, "hunting", world, rep)
    kind = {1: "auto", 2: "additive"}.get(sample.x.shape[1], "linear")
    fit = make_band(sample, BandMethod(kind, draws=200), 0.95, rng).fit
    if every:
        found = misfit_tests(fit, sample, omitted.__getitem__, names, rng, times=times, draws=400)
        return {each.name: each.p for each in found}
    kept = fit.kept
    x = sample.x[kept]
    length = np.bincount(sample.unit)[sample.unit]
    columns = np.column_stack([sample.x, omitted, times.time, times.date, length])[kept]
    labels = (*sample.x_names, *names, "row", "date", "unit length")
    own = sample.take(kept)
    return {"hunting": hunt(own, form_of(fit.band, x), columns, labels, rng).p}


def shares(world, reps, every):
    """Share of archives with p < .05, by test."""
    rows = in_parallel(p_values, [(world, every, rep) for rep in range(reps)])
    out = {k: float(np.mean([row[k] < LEVEL for row in rows])) for k in rows[0]}
    print(world, reps, {k: round(v, 3) for k, v in out.items()}, flush=True)
    return out


@pytest.mark.parametrize("world", CLEAN)
def test_a_clean_archive_is_blamed_as_rarely_as_stated(world):
    share = shares(world, REPS, every=False)["hunting"]
    assert share * REPS <= stats.binom.isf(FALSE_ALARM, REPS, 0.06)


@pytest.mark.parametrize("world", POWER)
def test_a_misfit_is_seen_by_some_test(world):
    reps = min(REPS, 200)
    found = shares(world, reps, every=True)
    assert max(found.values()) >= POWER[world][1]
