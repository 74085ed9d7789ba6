"""How often ``diagnose`` alarms where the law is right: ten kinds of clean archives.

Each archive is split by cluster in two halves, the law fitted on one and diagnosed on the other.
Verdicts count that are about what the law claims: with autoregressive noise, or levels of units,
the mean and the spread are right and rows of a unit do depend, so dependence is not counted there.
"""

import os
from collections import Counter

import numpy as np
import pandas as pd
import pytest
from scipy import special, stats
from scipy.signal import lfilter
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import SplineTransformer

import pulse_pyro as pp
from tests.helpers import FALSE_ALARM
from tests.studies.replications import in_parallel

REPS = int(os.environ.get("PULSE_REPS", "400"))
WARNED, FAILED = 0.06, 0.02  # most archives of a kind that may be warned of, or worse; that fail
DEPENDENCE = ("serial", "dependence", "replicates")
UNITS, TIME = 80, 25


def contexts(rng, units=UNITS, time=TIME, width=3):
    """S: a unit's level and an autoregression, (units, time, width)."""
    shock = rng.standard_normal((units, time + 50, width))
    moving = lfilter([1.0], [1.0, -0.6], shock, axis=1)[:, 50:]
    return moving + 0.5 * rng.standard_normal((units, 1, width))


def signal(s):
    return s @ np.array([1.0, -0.6, 0.3])[: s.shape[-1]]


class DrawsOfValues:
    """A law that draws 0 and 1, or counts: a generalised linear model fitted by Newton's method."""

    def __init__(self, history, kind):
        self.kind, self.schema, self.units = kind, history.schema, history.units
        x = np.column_stack([np.ones(len(history.s)), history.s])
        self.coef = np.zeros(x.shape[1])
        for _ in range(30):
            mean = self._mean(x)
            weight = mean * (1 - mean) if kind == "binary" else mean
            step = np.linalg.solve((x.T * weight) @ x, x.T @ (history.w[:, 0] - mean))
            self.coef = self.coef + step

    def _mean(self, x):
        eta = np.clip(x @ self.coef, -20, 5 if self.kind == "count" else 20)
        return special.expit(eta) if self.kind == "binary" else np.exp(eta)

    def __call__(self, source, at=None):
        s = source.s if isinstance(source, pp.History) else np.asarray(source).reshape(-1, 3)
        s = s if at is None else s[at]
        return ValuesAt(self._mean(np.column_stack([np.ones(len(s)), s])), self.kind)


class ValuesAt:
    exact = True

    def __init__(self, mean, kind):
        self._mean, self.kind = mean, kind

    def mean(self):
        return self._mean[:, None]

    def draws(self, size, *, rng):
        shape = (size, len(self._mean))
        if self.kind == "binary":
            return (rng.random(shape) < self._mean).astype(float)[..., None]
        return rng.poisson(self._mean, shape).astype(float)[..., None]


def plain(law, s, w, **more):
    fit, held_out = pp.History.from_arrays(s, w, **more).split(seed=0)
    return law.fit(fit, seed=0), held_out


def linear(rng):
    s = contexts(rng)
    return plain(pp.linear_lags(1), s, (signal(s) + rng.standard_normal(s.shape[:2]))[..., None])


def curved(rng):
    s = contexts(rng, width=1)
    w = np.sin(1.5 * s) + 0.5 * rng.standard_normal(s.shape)
    regressor = make_pipeline(SplineTransformer(n_knots=8), LinearRegression())
    return plain(pp.laws.from_sklearn(regressor), s, w)


def values(kind):
    def made(rng):
        s = contexts(rng)
        if kind == "binary":
            w = (rng.random(s.shape[:2]) < special.expit(signal(s))).astype(float)
        else:
            w = rng.poisson(np.exp(0.3 + 0.3 * signal(s))).astype(float)
        fit, held_out = pp.History.from_arrays(s, w[..., None]).split(seed=0)
        return DrawsOfValues(fit, kind), held_out

    return made


def autoregressive(rng):
    s = contexts(rng)
    noise = lfilter([0.6], [1.0, -0.8], rng.standard_normal((UNITS, TIME + 50)), axis=1)[:, 50:]
    return plain(pp.linear_lags(1), s, (signal(s) + noise)[..., None])


def intercepts(rng):
    """People in clinics of two, each clinic with a level of its own, clinics declared."""
    units = 2 * UNITS
    s = contexts(rng, units)
    level = np.repeat(0.6 * rng.standard_normal(units // 2), 2)[:, None]
    w = signal(s) + level + rng.standard_normal(s.shape[:2])
    frame = pd.DataFrame(s.reshape(-1, 3), columns=["a", "b", "c"])
    frame["who"] = np.repeat([f"p{i:03d}" for i in range(units)], TIME)
    frame["clinic"] = np.repeat([f"c{i // 2:03d}" for i in range(units)], TIME)
    frame["day"], frame["w"] = np.tile(np.arange(TIME), units), w.ravel()
    history = pp.History.from_frame(
        frame, unit="who", time="day", observed=["a", "b", "c"], missing=["w"], cluster="clinic"
    )
    fit, held_out = history.split(seed=0)
    return pp.linear_lags(1).fit(fit, seed=0), held_out


def unequal(rng):
    s = contexts(rng, time=60)
    w = (signal(s) + rng.standard_normal(s.shape[:2]))[..., None]
    lengths = np.minimum(5 + rng.geometric(0.06, UNITS), 60)
    return plain(pp.linear_lags(1), s, w, seen=np.arange(60) < lengths[:, None])


def masked(rng):
    s = contexts(rng)
    w = (signal(s) + rng.standard_normal(s.shape[:2]))[..., None]
    s[rng.random(s.shape) < 0.1] = np.nan
    return plain(pp.linear_lags(1), s, w)


def clocks(rng):
    """Hours of the day among S, every unit from a midnight on."""
    time = 36
    s = contexts(rng, time=time, width=1)
    hour = np.tile(np.arange(time) % 24, UNITS)
    w = s.ravel() + np.sin(2 * np.pi * hour / 24) + 0.7 * rng.standard_normal(UNITS * time)
    frame = pd.DataFrame({"hour": hour.astype(float), "s": s.ravel(), "w": w})
    frame["who"] = np.repeat([f"p{i:03d}" for i in range(UNITS)], time)
    frame["at"] = np.tile(np.arange(time), UNITS)
    roles = {"unit": "who", "time": "at", "observed": ["s", "hour"], "missing": ["w"]}
    history = pp.History.from_frame(frame, **roles, kinds={"hour": "clock 24"})
    fit, held_out = history.split(seed=0)
    return pp.linear_lags(1).fit(fit, seed=0), held_out


def eight(rng):
    s = contexts(rng)
    mix = np.tril(np.full((8, 8), 0.4)) + 0.6 * np.eye(8)
    w = signal(s)[..., None] + rng.standard_normal((*s.shape[:2], 8)) @ mix.T
    return plain(pp.linear_lags(1), s, w)


WORLDS = {  # how it is made, and which checks speak of something that is indeed there
    "linear": (linear, ()),
    "curved 1-D": (curved, ()),
    "binary": (values("binary"), ()),
    "counts": (values("count"), ()),
    "AR noise": (autoregressive, DEPENDENCE),
    "intercepts, clusters declared": (intercepts, DEPENDENCE),
    "unequal units": (unequal, ()),
    "masks": (masked, ()),
    "clocks": (clocks, ()),
    "eight W": (eight, ()),
}


def one(job):
    """Verdicts of one archive: {kind of check: worst verdict}, and the domain's."""
    name, rep = job
    make, there = WORLDS[name]
    law, held_out = make(pp.stream(0, "false alarms", name, rep))
    found = {}
    for check in pp.diagnose(law, held_out, seed=rep, size=200).checks:
        kind = check.name
        for w in held_out.w_names:
            kind = kind.replace(f" {w}", "")
        if kind not in there and check.verdict in ("warn", "fail"):
            found[kind] = pp.base.worst_verdict([check.verdict, found.get(kind, "pass")])
    return found


def shares(name, reps=REPS):
    """Return the shares of archives that are warned of or worse, that fail, and by which check."""
    found = in_parallel(one, [(name, rep) for rep in range(reps)])
    warned = sum(bool(each) for each in found)
    failed = sum("fail" in each.values() for each in found)
    which = Counter(kind for each in found for kind in each)
    print(
        f"{name:30} {reps:4} archives: warn or fail {warned / reps:6.1%}  fail {failed / reps:6.1%}"
        f"  {dict(which.most_common())}",
        flush=True,
    )
    return warned, failed


@pytest.mark.parametrize("name", WORLDS)
def test_right_laws_are_left_alone(name):
    warned, failed = shares(name)
    assert warned <= stats.binom.isf(FALSE_ALARM, REPS, WARNED)
    assert failed <= stats.binom.isf(FALSE_ALARM, REPS, FAILED)
