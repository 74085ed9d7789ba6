"""The whole bound, r + |difference|: coverage, tightness, data modes, joint against Bonferroni."""

import os
from unittest.mock import patch

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures

from pulse_pyro import Features, History, Lags, Window, calibrate, linear_lags, stream
from pulse_pyro.bands.band import BandMethod
from pulse_pyro.calibration.cross_fitting import crossfit
from pulse_pyro.calibration.ladder import all_units
from pulse_pyro.envs.arma import main_nonlinear, w_times_action
from pulse_pyro.laws import from_sklearn
from tests.helpers import mean_at
from tests.studies.replications import in_parallel
from tests.studies.truths import Moved

REPS = int(os.environ.get("PULSE_REPS", "500"))
LEVEL = 0.95


LAWS = {
    # environment, summary of the law, bias
    "good, one input": (main_nonlinear, None, 0.0),
    "misspecified, one input": (main_nonlinear, Window(3, np.mean), 0.0),
    "biased, one input": (main_nonlinear, None, 0.3),
    "good, 19 lags": (w_times_action, Lags(19), 0.0),
    "biased, 19 lags": (w_times_action, Lags(19), 0.3),
}


def curve():
    """Return a good law of one input: a polynomial of the mean of three lags."""
    model = make_pipeline(PolynomialFeatures(7), LinearRegression())
    return from_sklearn(model, Window(3, np.mean))


@pytest.fixture(autouse=True, scope="module")
def the_band_alone():
    """Neither checks nor other rungs, which cost most of the time and do not change the bound."""
    with (
        patch("pulse_pyro.calibration.uniform.band_checks", return_value=[]),
        patch("pulse_pyro.calibration.ladder.RUNGS", {}),
    ):
        yield


def truth_and_error(environment, calibration, law, rng):
    """|true - predicted| and its bound, at 1,000 new contexts of 20 units in the domain."""
    world = environment.world(20, 50, rng=rng)
    wrong = np.abs(world.phibar - _phihat(law, world))
    error = calibration.error_at(world.s)[:, world.lead :]
    inside = calibration.inside_at(world.s)[:, world.lead :]
    return wrong[inside], error[inside]


def _phihat(law, world):
    w = mean_at(law, world.s)[:, world.lead :]
    s = world.s[:, world.lead :]
    flat = [world.features(s.reshape(-1, 1), w.reshape(-1, 1), a) for a in range(2)]
    return np.stack(flat, axis=1).reshape(world.phibar.shape)


def bound_rep(job):
    name, units, rep = job
    make, summary, bias = LAWS[name]
    environment, rng = make(), stream(0, "bound", name, units, rep)
    history = environment.archive(units, 50 + environment.lead, rng=rng)
    fit, held_out = history.split(seed=rep)
    law = (curve() if summary is None else linear_lags(summary)).fit(fit, seed=rep)
    law = Moved(law, bias) if bias else law
    found = calibrate(law, held_out, environment.features, level=LEVEL, seed=rep)
    wrong, error = truth_and_error(environment, found, law, rng)
    return (wrong <= error).all(), error.max(-1).mean(), wrong.max()


@pytest.mark.parametrize("units", [40, 400])
@pytest.mark.parametrize("name", list(LAWS))
def test_the_bound_covers_every_law(name, units):
    found = np.array(in_parallel(bound_rep, [(name, units, r) for r in range(REPS)]))
    cover, bound, sup = found.mean(0)
    print(
        f"{name:24} {units // 2:3} held-out units: covered {cover:6.1%}, mean bound {bound:.4f}, "
        f"true sup error {sup:.4f}",
        flush=True,
    )
    assert cover >= LEVEL - 0.025


def tight_rep(job):
    units, rep = job
    environment, rng = main_nonlinear(), stream(0, "tight", units, rep)
    history = environment.archive(2 * units, 52, rng=rng)
    fit, held_out = history.split(seed=rep)
    law = curve().fit(fit, seed=rep)
    found = calibrate(law, held_out, environment.features, level=LEVEL, seed=rep)
    wrong, error = truth_and_error(environment, found, law, rng)
    return (wrong <= error).all(), error.max(-1).mean(), wrong.max(), found.bound.mean()


def test_the_bound_shrinks_with_the_archive():
    sizes, means = (20, 200, 2000), []
    for units in sizes:
        reps = max(REPS // {20: 2, 200: 4, 2000: 20}[units], 5)
        found = np.array(in_parallel(tight_rep, [(units, r) for r in range(reps)]))
        means.append(found.mean(0))
        cover, bound, sup, d = means[-1]
        print(
            f"n = {units * 50:6} held-out rows: covered {cover:6.1%}, mean bound {bound:.4f}, true "
            f"sup error {sup:.4f}, ratio {bound / sup:.2f}, mean D {d:.2e} ({reps} reps)",
            flush=True,
        )
    slope = np.polyfit(np.log(sizes), np.log(np.array(means)[:, [1, 2, 3]]), 1)[0]
    print(f"log-log slopes: bound {slope[0]:.2f}, sup error {slope[1]:.2f}, D {slope[2]:.2f}")
    assert slope[0] < -0.3


def mode_rep(job):
    units, rep = job
    environment, rng = w_times_action(), stream(0, "modes", units, rep)
    history = environment.archive(units, 50 + environment.lead, rng=rng)
    fit, held_out = history.split(seed=rep)
    spec, out = linear_lags(19), []
    law, everywhere = spec.fit(fit, seed=rep), spec.fit(history, seed=rep)
    cross = crossfit(spec, history, environment.features, level=LEVEL, seed=rep)
    for mine, found in (
        (law, calibrate(law, held_out, environment.features, level=LEVEL, seed=rep)),
        (cross.law, cross.calibration),
        (everywhere, all_units(everywhere, history, environment.features, seed=rep)),
    ):
        wrong, error = truth_and_error(environment, found, mine, stream(0, "online", rep))
        out += [(wrong <= error).all(), error.max(-1).mean(), (error.max((1, 2)) ** 2).mean()]
    return out


@pytest.mark.parametrize("units", [100, 400])
def test_crossfit_and_all_cover_too(units):
    found = np.array(in_parallel(mode_rep, [(units, r) for r in range(REPS)])).mean(0)
    for k, mode in enumerate(("split", "crossfit", "all")):
        cover, bound, d = found[3 * k : 3 * k + 3]
        print(
            f"{units} units, {mode:8}: covered {cover:6.1%}, mean bound {bound:.4f} "
            f"({bound / found[1]:.2f} of split), mean D {d:.2e} ({d / found[2]:.2f} of split)",
            flush=True,
        )
        assert cover >= LEVEL - 0.025


FOUR = Features(lambda s, w, a: np.column_stack([np.ones(len(s)), w * (a + 1)]), 2, tuple("1abcd"))


def joint_rep(job):
    units, rep = job
    rng = stream(0, "joint", units, rep)
    made = main_nonlinear().archive(units, 52, rng=rng)
    x = Window(3, np.mean)(made.grid.s)[..., 0]
    curves = np.stack([np.sin(4 * x), np.sin(4 * x) + x, x, x**2], axis=-1)
    mix = 0.1 * (
        np.sqrt(0.7) * rng.standard_normal((*x.shape, 1))
        + np.sqrt(0.3) * rng.standard_normal(curves.shape)
    )
    w = np.where(np.isfinite(curves), curves + mix, np.nan)
    history = History.from_arrays(
        made.grid.s,
        w,
        seen=made.grid.seen,
        units=made.units,
        s_names=made.s_names,
        w_names=tuple("abcd"),
    )
    fit, held_out = history.split(seed=rep)
    law = linear_lags(Window(3, np.mean)).fit(fit, seed=rep)
    out = []
    for coordinates in ("joint", "bonferroni"):
        method = BandMethod("spline", coordinates=coordinates, of="target")
        found = calibrate(law, held_out, FOUR, level=LEVEL, seed=rep, band=method)
        band = found.parts[0].band
        grid = np.linspace(band.shape.grid[0], band.shape.grid[-1], 999)
        centre, half, _ = band.at(grid)
        true = np.stack([np.sin(4 * grid), np.sin(4 * grid) + grid, grid, grid**2], axis=-1)
        out += [(np.abs(centre - true) <= half).all(), half.mean()]
    return out


@pytest.mark.parametrize("units", [100])
def test_joint_bands_cover_and_are_narrower_than_bonferroni(units):
    found = np.array(in_parallel(joint_rep, [(units, r) for r in range(REPS)])).mean(0)
    joint, wide, apart, wider = found
    print(
        f"4 coordinates, noise correlation .7, {units // 2} held-out units: joint {joint:6.1%} r "
        f"{wide:.4f}, Bonferroni {apart:6.1%} r {wider:.4f}, width ratio {wide / wider:.3f}"
    )
    assert joint >= LEVEL - 0.025
    assert wide < wider
