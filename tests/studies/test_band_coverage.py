"""Uniform coverage of the one-dimensional and linear bands: `make studies` prints the tables."""

import os

import numpy as np
import pytest

from pulse_pyro import stream
from pulse_pyro.bands.auto import make_band
from pulse_pyro.bands.band import BandMethod, Sample
from tests.studies.replications import in_parallel
from tests.studies.truths import ROWS, TRUTHS, one_input, series

REPS = int(os.environ.get("PULSE_REPS", "500"))
SLACK = 0.025
# short of nominal - 2.5 points is allowed here and nowhere else; the table marks it
MAY_FALL_SHORT = {("kink |x|", "auto")}


def curve_rep(job):
    truth, units, kind, rep = job
    sample = one_input(truth, units, stream(0, "coverage", truth, units, rep))
    out = []
    for level in (0.95, 0.90):
        rng = stream(0, "band", truth, units, rep)
        band = make_band(sample, BandMethod(kind), level, rng).fit.band
        x = np.linspace(band.shape.grid[0], band.shape.grid[-1], 999)
        centre, half, _ = band.at(x)
        wrong = np.abs(centre[:, 0] - TRUTHS[truth][0](x))
        pointwise = half[:, 0] * 1.96 / band.critical[0]
        covers = (wrong <= half[:, 0]).all(), (wrong <= pointwise).all()
        out += [covers[0], half.mean(), covers[1], pointwise.mean()]
    return [*out, band.kind == "lipschitz"]


@pytest.mark.parametrize("units", [20, 200])
@pytest.mark.parametrize("truth", list(TRUTHS))
def test_curves_cover_uniformly(truth, units):
    short = []
    for kind in ("auto", "lipschitz"):
        found = np.array(in_parallel(curve_rep, [(truth, units, kind, r) for r in range(REPS)]))
        c95, r95, p95, rp, c90, _, _, _, lipschitz = found.mean(0)
        ok = c95 >= 0.95 - SLACK and c90 >= 0.90 - SLACK
        allowed = (truth, kind) in MAY_FALL_SHORT
        print(
            f"{truth:16} N={units:3}x{ROWS} {kind:9} 95: {c95:6.1%}  90: {c90:6.1%}  r {r95:.4f}  "
            f"pointwise {p95:5.1%} r {rp:.4f}"
            f"  Lipschitz used {lipschitz:4.0%}{'' if ok else '  SHORT'}",
            flush=True,
        )
        if not ok and not allowed:
            short.append((kind, c95, c90))
    assert not short


NOISES = ("iid", "heteroscedastic", "AR(1)")
LAGS = 20


def linear_sample(units, noise, rng):
    s = series(units, ROWS + LAGS - 1, rng)
    x = np.lib.stride_tricks.sliding_window_view(s, LAGS, axis=1)
    beta = stream(0, "beta").standard_normal(LAGS) / np.sqrt(LAGS)
    shock = rng.standard_normal((units, ROWS))
    if noise == "heteroscedastic":
        shock = shock * (0.3 + 4 * np.abs(x[..., -1]))
    if noise == "AR(1)":
        for t in range(1, ROWS):
            shock[:, t] = 0.5 * shock[:, t - 1] + np.sqrt(0.75) * shock[:, t]
    y = 0.5 + x @ beta + 0.1 * shock
    names = tuple(f"lag{j}" for j in range(LAGS))
    unit = np.repeat(np.arange(units), ROWS)
    return Sample(x.reshape(-1, LAGS), y.reshape(-1, 1), unit, names, ("w",)), beta


def linear_rep(job):
    units, noise, critical, rep = job
    rng = stream(0, "linear", units, noise, rep)
    sample, beta = linear_sample(units, noise, rng)
    fresh, _ = linear_sample(20, "iid", rng)
    x = fresh.x
    out = []
    for level in (0.95, 0.90):
        method = BandMethod("linear", critical=critical)
        band = make_band(sample, method, level, stream(0, "band", units, rep)).fit.band
        centre, half, inside = band.at(x)
        wrong = np.abs(centre[:, 0] - 0.5 - x @ beta)
        pointwise = half[:, 0] * 1.96 / band.critical[0]
        out += [(wrong <= half[:, 0]).all(), half[inside].mean(), (wrong <= pointwise).all()]
    return [*out, band.noise == "units"]


@pytest.mark.parametrize("units", [20, 200])
@pytest.mark.parametrize("noise", NOISES)
def test_linear_bands_cover_a_thousand_new_contexts_at_once(noise, units):
    short = []
    for critical in ("auto", "scheffe"):
        jobs = [(units, noise, critical, r) for r in range(REPS)]
        c95, r95, p95, c90, _, _, clustered = np.array(in_parallel(linear_rep, jobs)).mean(0)
        ok = c95 >= 0.95 - SLACK and c90 >= 0.90 - SLACK
        print(
            f"linear, {LAGS + 1} regressors, {noise:15} N={units:3}x{ROWS} {critical:7} "
            f"95: {c95:6.1%}  90: {c90:6.1%}  r {r95:.4f}  pointwise {p95:5.1%}  clustered "
            f"{clustered:4.0%}{'' if ok else '  SHORT'}",
            flush=True,
        )
        # 20 units cannot carry a cluster variance of 21 coefficients: the band warns instead
        if not ok and not (units == 20 and noise == "AR(1)"):
            short.append((critical, c95, c90))
    assert not short
