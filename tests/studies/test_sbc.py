"""Simulation-based calibration of every gallery model under NUTS, and of the built-in laws."""

import os
from pathlib import Path

import numpy as np
import pytest

from pulse_pyro import (
    Exact,
    History,
    Laplace,
    Nuts,
    gaussian_process,
    law_from_file,
    linear_lags,
    sbc,
)
from pulse_pyro.laws.files import check_law

EVERY = sorted((Path(__file__).parents[2] / "models").glob("*.py"))
FILES = [file for file in EVERY if "\ndef model(" in file.read_text()]  # without a state
ARCHIVES = int(os.environ.get("PULSE_REPS", "60"))
SHORT = Nuts(draws=99, warmup=100, chains=1)


def inputs(units=10, time=22, s_dim=1, w_names=("w",)):
    s = np.random.default_rng(0).standard_normal((units, time, s_dim))
    names = tuple(f"u{i}" for i in range(units))
    columns = tuple(f"s{i}" for i in range(s_dim))
    w = np.zeros((units, time, len(w_names)))
    return History.from_arrays(s, w, units=names, s_names=columns, w_names=w_names)


def show(name, found):
    print(
        f"\n{name}: p {found.p_value:.3g}, smallest of {len(found.names)} parameters times their "
        f"number, {len(found.ranks)} archives, {found.inference}"
    )
    print(found.table.to_string())


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_ranks_of_a_gallery_model_are_uniform(file):
    rows = inputs(w_names=check_law(file).card.columns or ("w",))
    found = sbc(law_from_file(file), rows, SHORT, replications=ARCHIVES, seed=0)
    show(file.stem, found)
    assert found.p_value > 1e-3


@pytest.mark.parametrize(
    ("name", "law", "how", "archives"),
    [
        ("linear, Exact", linear_lags(2), Exact(), 10 * ARCHIVES),
        ("linear, Laplace", linear_lags(2), Laplace(), ARCHIVES),
        ("Gaussian process, Nuts", gaussian_process(1, basis=12), SHORT, ARCHIVES),
    ],
)
def test_ranks_of_a_built_in_law_are_uniform(name, law, how, archives):
    found = sbc(law, inputs(), how, replications=archives, seed=0)
    show(name, found)
    assert found.p_value > 1e-3
