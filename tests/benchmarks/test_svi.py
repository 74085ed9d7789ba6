"""Svi in batches of units beside Svi on all rows: time and memory, measured in one run.

Every fit has a process of its own, whose largest memory is then its own too.
"""

import json
import resource
import subprocess
import sys
import time

import numpy as np
import pandas as pd

import pulse_pyro as pp

UNITS, STEPS, INPUTS, LEVELS = 20_000, 50, 10, 5
FEW = 20  # steps of the optimiser in which both sides are timed


def moods(units):
    """An archive of ordinal W, units differing in their level."""
    rng = pp.stream(0, "moods")
    x = rng.standard_normal((units * STEPS, INPUTS))
    unit = np.repeat(np.arange(units), STEPS)
    line = x @ np.linspace(-1, 1, INPUTS) + rng.standard_normal(units)[unit]
    hidden = line + rng.logistic(size=len(line))
    frame = pd.DataFrame(x, columns=[f"x{j}" for j in range(INPUTS)])
    frame["mood"] = np.searchsorted([-2.0, -0.7, 0.5, 1.8], hidden)
    frame["unit"], frame["step"] = unit, np.tile(np.arange(STEPS), units)
    return pp.History.from_frame(
        frame,
        observed=[f"x{j}" for j in range(INPUTS)],
        missing=["mood"],
        unit="unit",
        time="step",
        kinds={"mood": pp.base.Column("mood", kind="ordinal", levels=tuple(range(LEVELS)))},
    )


def model_of(levels):
    """An ordinal regression; levels : whether each unit has one of its own."""
    import pyro
    import pyro.distributions as dist
    import torch

    def model(x, w=None, unit=None):
        w = w or {}
        b = pyro.sample("b", dist.Normal(torch.zeros(INPUTS), 1.0).to_event(1))
        first = pyro.sample("first", dist.Normal(-1.5, 1.0))
        step = pyro.sample("step", dist.LogNormal(torch.zeros(LEVELS - 2), 0.5).to_event(1))
        cuts = torch.cat([first[..., None], first[..., None] + step.cumsum(-1)], -1)
        line = (x * b).sum(-1)
        if levels:
            between = pyro.sample("between", dist.LogNormal(-0.5, 0.7))
            of = torch.arange(len(x)) if unit is None else unit
            with pyro.plate("units", int(of.max()) + 1, dim=-1):
                level = pyro.sample("level", dist.Normal(0.0, 1.0))
            line = line + between * level[..., of]
        with pyro.plate("rows", x.shape[-2], dim=-1):
            pyro.sample("mood", dist.OrderedLogistic(line, cuts), obs=w.get("mood"))

    return model


def run(units, levels, settings):
    """Fit once; print seconds, GiB before and at most, and posterior means and sds."""
    history = moods(units)
    law = pp.Law(model_of(levels), pp.Lags(1))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    start = time.perf_counter()
    fitted = law.fit(history, pp.Svi(**settings), seed=0)
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    flat = np.concatenate([v.reshape(len(v), -1) for _, v in sorted(fitted.draws.items())], 1)
    told = {"seconds": seconds, "before": before, "peak": peak}
    print(json.dumps(told | {"mean": flat.mean(0).tolist(), "sd": flat.std(0).tolist()}))


def apart(units, levels, **settings):
    """Run one fit in a process of its own."""
    code = f"from tests.benchmarks.test_svi import run; run({units}, {levels}, {settings})"
    command = [sys.executable, "-W", "ignore", "-c", code]
    out = subprocess.run(command, capture_output=True, text=True, check=False)
    assert out.returncode == 0, out.stderr[-2000:]
    return json.loads(out.stdout.strip().splitlines()[-1])


def say(what, found):
    print(
        f"\n{what}: {found['seconds']:.1f} s, {found['peak']:.2f} GiB at most "
        f"({found['before']:.2f} with the archive alone)",
        end="",
    )


def off(found, other):
    """Largest distance of posterior means in sds of the other, and of sds, as a share."""
    mean, sd = np.array(found["mean"]), np.array(found["sd"])
    return np.abs((mean - other["mean"]) / other["sd"]).max(), np.abs(sd / other["sd"] - 1).max()


def test_a_million_rows_in_batches_against_all_at_once():
    whole = apart(UNITS, False, steps=FEW)
    part = apart(UNITS, False, steps=FEW, batch=500)
    long = apart(UNITS, False, batch=500)
    say(f"10^6 rows, all rows, {FEW} steps", whole)
    say(f"10^6 rows, batch=500 units, {FEW} steps", part)
    say("10^6 rows, batch=500 units, 800 steps", long)
    extra = [each["peak"] - each["before"] for each in (whole, part)]
    mean, sd = off(long, whole)
    print(
        f"\n{whole['seconds'] / part['seconds']:.1f} x the time and {extra[0] / extra[1]:.1f} x "
        f"the memory beyond the archive; means {mean:.3f} sds apart, sds {sd:.1%}"
    )
    assert whole["peak"] > part["peak"]


def test_a_million_rows_of_twenty_thousand_units_with_levels():
    found = apart(UNITS, True, batch=500)
    say("10^6 rows, a level for each of 20000 units, batch=500, 800 steps", found)
    whole = apart(UNITS // 20, True, guide="structured", draws=4000)
    part = apart(UNITS // 20, True, batch=50, draws=4000)
    say("a twentieth of it, all rows", whole)
    say("a twentieth of it, batch=50", part)
    mean, sd = off(part, whole)
    print(f"\nthere means are {mean:.3f} sds apart, sds {sd:.1%}")
    assert mean < 0.2
