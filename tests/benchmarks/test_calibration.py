"""Cost of a one-dimensional calibration and how it grows with the archive."""

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
