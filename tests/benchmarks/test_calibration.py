"""Cost of a one-dimensional calibration and how it grows with the archive."""

import subprocess
import sys

import numpy as np

import pulse_pyro as pp
from pulse_pyro.bands.critical import multiplier_sup
from tests.benchmarks.timing import best_of

METHOD = pp.bands.BandMethod(grid=50, draws=1000)


def archive(units):
    world = pp.envs.main_nonlinear()
    made = world.archive(2 * units, 52, rng=pp.stream(0, "bench", units))
    fit, held_out = made.split(seed=0)
    law = pp.linear_lags(pp.Window(3, np.mean)).fit(fit, seed=0)
    rows = held_out.rows(law.summary)
    sample = pp.bands.Sample(rows.x, rows.w, rows.unit, rows.x_names, ("w",))
    return law, held_out, world.features, sample


def cost(units):
    law, held_out, features, sample = archive(units)
    return best_of(
        5 if units < 5_000 else 2,
        band=lambda: pp.bands.make_band(sample, METHOD, 0.95, pp.stream(0, "b")),
        calibrate=lambda: pp.calibrate(law, held_out, features, seed=0, band=METHOD),
        default=lambda: pp.calibrate(law, held_out, features, seed=0),
    )


def test_band_and_calibration_grow_nearly_linearly():
    base = cost(200)
    for units in (200, 2_000, 20_000):
        found = base if units == 200 else cost(units)
        told = ", ".join(f"{k} {1e3 * v:.0f} ms ({v / base[k]:.1f}x)" for k, v in found.items())
        print(f"\nn = {50 * units:8}, 50 points, 1,000 draws (default: 400, 4,000): {told}")
    assert found["calibrate"] / base["calibrate"] < 1.5 * 100  # a hundred times the rows


def test_drawing_through_the_correlation_beats_explicit_weights():
    _, _, _, sample = archive(200)
    psi = np.random.default_rng(0).standard_normal((len(sample.x), 50))
    found = best_of(
        3,
        quick=lambda: pp.bands.make_band(sample, METHOD, 0.95, pp.stream(0, "b")),
        slow=lambda: multiplier_sup(psi, 1000, np.random.default_rng(0)),
    )
    quick, slow = found["quick"], found["slow"]
    print(
        f"\nwhole band {1e3 * quick:.1f} ms; explicit weights alone {1e3 * slow:.0f} ms: "
        f"{slow / quick:.1f}x"
    )
    assert slow > quick


def test_linear_band():
    world = pp.envs.w_times_action()
    made = world.archive(400, 70, rng=pp.stream(0, "bench"))
    fit, held_out = made.split(seed=0)
    law = pp.linear_lags(19).fit(fit, seed=0)
    found = best_of(
        3,
        fit=lambda: pp.linear_lags(19).fit(fit, seed=0),
        calibrate=lambda: pp.calibrate(law, held_out, world.features, seed=0),
    )
    ratio = found["calibrate"] / found["fit"]
    print(
        f"\n19 lags, 10,000 rows: calibrate {1e3 * found['calibrate']:.0f} ms, {ratio:.0f}x the fit"
    )


SIZES = (10_000, 100_000, 1_000_000)  # held-out rows
ALL_RUNGS = """
import resource, sys, time
import numpy as np
import pulse_pyro as pp

rows, time_steps = int(sys.argv[1]), 50
rng = pp.stream(0, "bench", rows)
s = rng.standard_normal((2 * rows // time_steps, time_steps, 5))
w = s[..., :1] + 0.5 * rng.standard_normal((*s.shape[:2], 1))
phi = pp.Features(lambda s, w, a: np.column_stack([w[:, 0], w[:, 0] * a]), 2, ("W", "Wa"))
history = pp.History.from_arrays(s, w)
del s, w
fit, held_out = history.split(seed=0)
law = pp.linear_lags(1).fit(fit, seed=0)
start, used = time.perf_counter(), time.process_time()
found = pp.calibrate(law, held_out, phi, seed=0, groups=["s0", "forecast"])
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
print(time.perf_counter() - start, time.process_time() - used, peak)
print(*(f"{rung.name} {rung.verdict}" for rung in found.rungs), sep=", ")
"""


def test_all_rungs_of_five_inputs():
    """Each size in a process of its own, whose largest memory is then its own too."""
    wall = []
    for rows in SIZES:
        command = [sys.executable, "-W", "ignore", "-c", ALL_RUNGS, str(rows)]
        told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        numbers, rungs = told.strip().splitlines()
        seconds, used, peak = map(float, numbers.split())
        wall.append(seconds)
        print(f"\n{rows:8} rows: {seconds:.1f} s ({used:.1f} s of CPU), {peak:.2f} GiB; {rungs}")
    slope = np.polyfit(np.log(SIZES), np.log(wall), 1)[0]
    print(f"growth exponent {slope:.2f}")
    assert slope < 1.1
