"""Size and power of the test of serial dependence, on residuals of a law fitted to other units."""

import os

import numpy as np
import pytest
from scipy import stats
from scipy.signal import lfilter

from pulse_pyro import stream
from pulse_pyro.diagnostics.serial import serial_check, serial_dependence
from tests.helpers import FALSE_ALARM
from tests.studies.replications import in_parallel
from tests.studies.truths import series

REPS = max(int(os.environ.get("PULSE_REPS", "1000")), 1000)
LEVELS = (0.05, 0.01, 0.001)
UNITS, TIMES = (10, 30, 100), (10, 50)
POWERS = (0.1, 0.2, 0.3, 0.5, 0.7)
NOISES = {
    "normal": lambda x, rng: rng.standard_normal(x.shape),
    "t(3)": lambda x, rng: rng.standard_t(3, x.shape),
    "skewed": lambda x, rng: rng.exponential(size=x.shape) - 1,
    "lognormal": lambda x, rng: rng.lognormal(size=x.shape) - np.exp(0.5),
    "sd of x": lambda x, rng: (0.3 + 8 * np.abs(x)) * rng.standard_normal(x.shape),
    "skewed, sd of x": lambda x, rng: (0.3 + 8 * np.abs(x)) * (rng.exponential(size=x.shape) - 1),
    "sd of unit": lambda x, rng: (
        np.exp(rng.standard_normal((len(x), 1))) * rng.standard_normal(x.shape)
    ),
}
SIZE_CELLS = [(n, g, t, 1) for n in NOISES for g in UNITS for t in TIMES]
SIZE_CELLS += [("normal", 10, 200, 1), ("skewed", 10, 200, 1), ("normal", 200, 10, 1)]
SIZE_CELLS += [(n, g, t, 19) for n in ("normal", "skewed") for g, t in ((10, 10), (30, 50))]
SIZE_CELLS += [("bent mean", g, t, 1) for g in UNITS for t in TIMES]


def inputs(units, time, lags, rng):
    s = series(units, time + lags - 1, rng)
    return np.stack([s[:, lags - 1 - j : lags - 1 - j + time] for j in range(lags)], axis=-1)


def draw(kind, units, time, lags, rng):
    """x and W; a number instead of a kind of noise is the coefficient of an autoregression."""
    x = inputs(units, time, lags, rng)
    now = x[..., 0]
    if kind == "bent mean":
        return x, np.sin(4 * now) + 0.5 * rng.standard_normal(now.shape)
    if isinstance(kind, str):
        return x, NOISES[kind](now, rng)
    shock = rng.standard_normal((units, time + 100))
    return x, lfilter([1.0], [1.0, -kind], shock, axis=1)[:, 100:]


def one(job):
    kind, units, time, lags, rep = job
    rng = stream(0, "serial", str(kind), units, time, lags, rep)
    x, w = draw(kind, 30, 20, lags, rng)
    design = np.concatenate([np.ones((600, 1)), x.reshape(600, lags)], axis=1)
    coef = np.linalg.lstsq(design, w.ravel(), rcond=None)[0]
    x, w = draw(kind, units, time, lags, rng)
    test = serial_dependence(w - coef[0] - x @ coef[1:], x)
    verdict = serial_check("w", test).verdict
    return test.p, test.correlation, verdict in ("warn", "fail"), verdict == "fail"


def cell(kind, units, time, lags):
    found = np.array(in_parallel(one, [(kind, units, time, lags, r) for r in range(REPS)]))
    counts = [int((found[:, 0] < level).sum()) for level in LEVELS]
    print(
        f"{kind!s:16} G={units:3} T={time:3} p={lags:2}  "
        + "  ".join(f"{c / REPS:6.1%}" for c in counts)
        + f"   warn or fail {found[:, 2].mean():6.1%}  fail {found[:, 3].mean():6.1%}"
        + f"   correlation {found[:, 1].mean():+.3f}",
        flush=True,
    )
    return counts


@pytest.mark.parametrize(("kind", "units", "time", "lags"), SIZE_CELLS)
def test_size(kind, units, time, lags):
    """Shares of p below 5 %, 1 % and 0.1 % where rows are independent given x."""
    for level, count in zip(LEVELS, cell(kind, units, time, lags), strict=True):
        assert count <= stats.binom.isf(FALSE_ALARM, REPS, level), level


@pytest.mark.parametrize("units", UNITS)
@pytest.mark.parametrize("time", TIMES)
def test_power(units, time):
    """Shares of p below the levels under autoregressive noise; they grow with the coefficient."""
    shares = [cell(g, units, time, 1)[1] / REPS for g in POWERS]
    slack = 2 * stats.norm.isf(FALSE_ALARM) * np.sqrt(0.25 / REPS)
    assert (np.diff(shares) >= -slack).all()
    if units * time >= 1000:
        assert shares[-1] >= 0.99
