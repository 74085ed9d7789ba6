"""Simulation-based calibration: the gallery under Laplace and NUTS, the built-in laws, broken fits.

Twenty archives are a job, kept when it is done (see ``replications``); PULSE_REPS archives each.
"""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pulse_pyro import (
    Exact,
    History,
    Laplace,
    Law,
    Nuts,
    gaussian_process,
    law_from_file,
    linear_lags,
    sbc,
)
from pulse_pyro.diagnostics import Sbc
from pulse_pyro.diagnostics.calibration_ranks import _uniform
from pulse_pyro.laws.files import check_law
from tests.studies.replications import in_parallel

EVERY = sorted((Path(__file__).parents[2] / "models").glob("*.py"))
FILES = {f.stem: f for f in EVERY if "\ndef model(" in f.read_text()}  # without a state
ARCHIVES = int(os.environ.get("PULSE_REPS", "60"))
BLOCK = 20  # archives of a job
ENGINES = {
    "Exact": Exact(),
    "Laplace": Laplace(draws=99),
    "Nuts": Nuts(draws=99, warmup=100, chains=1),
}


class FittedToOtherUnits(Law):
    """A law whose fit is handed W in half the units it is simulated in."""

    def fit_data(self, data, how, seed, warm=None):
        doubled = replace(data, rows=replace(data.rows, w=2.0 * data.rows.w))
        return super().fit_data(doubled, how, seed, warm)


class TooSure(Law):
    """A law whose draws lie half as far from their mean as they should."""

    def fit_data(self, data, how, seed, warm=None):
        card, fit = super().fit_data(data, how, seed, warm)
        drawn = {n: v.mean(0) + 0.5 * (v - v.mean(0)) for n, v in fit.draws.items()}
        return card, replace(fit, draws=drawn)


BUILT_IN = {
    "linear_lags": lambda: linear_lags(2),
    "gaussian_process": lambda: gaussian_process(1, basis=12),
}
BROKEN = {"other units": FittedToOtherUnits, "too sure": TooSure}


def law_called(name, broken=""):
    if name in BUILT_IN:
        return BUILT_IN[name]()
    law = law_from_file(FILES[name])
    return BROKEN[broken](**vars(law)) if broken else law


def inputs(units=10, time=22, w_names=("w",)):
    s = np.random.default_rng(0).standard_normal((units, time, 1))
    names = tuple(f"u{i}" for i in range(units))
    w = np.zeros((units, time, len(w_names)))
    return History.from_arrays(s, w, units=names, s_names=("s0",), w_names=w_names)


def block(job):
    """Ranks of the truth in 20 archives, and the names of the parameters."""
    name, engine, broken, seed = job
    columns = () if name in BUILT_IN else check_law(FILES[name]).card.columns
    rows = inputs(w_names=columns or ("w",))
    law = law_called(name, broken)
    found = sbc(law, rows, ENGINES[engine], replications=BLOCK, seed=seed)
    return found.ranks.tolist(), list(found.names)


def ranks(name, engine, broken="", archives=ARCHIVES):
    """Return the ranks of all archives, and print what they say."""
    seeds = range(max(archives // BLOCK, 1))
    found = in_parallel(block, [(name, engine, broken, seed) for seed in seeds])
    every = np.concatenate([np.array(each) for each, _ in found])
    out = Sbc(every, tuple(found[0][1]), _uniform(every, 0), repr(ENGINES[engine]), 0)
    print(
        f"\n{name} {broken}: p {out.p_value:.3g}, smallest of {len(out.names)} parameters times "
        f"their number, {len(every)} archives, {out.inference}"
    )
    print(out.table.to_string())
    return out


@pytest.mark.parametrize("engine", ["Laplace", "Nuts"])
@pytest.mark.parametrize("name", FILES)
def test_ranks_of_a_gallery_model_are_uniform(name, engine):
    assert ranks(name, engine).p_value > 1e-3


@pytest.mark.parametrize(
    ("name", "engine", "times"),
    [("linear_lags", "Exact", 10), ("linear_lags", "Laplace", 1), ("gaussian_process", "Nuts", 1)],
)
def test_ranks_of_a_built_in_law_are_uniform(name, engine, times):
    assert ranks(name, engine, archives=times * ARCHIVES).p_value > 1e-3


@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_fit_is_caught(broken):
    assert ranks("seasonal_lags", "Laplace", broken).check.verdict == "fail"
