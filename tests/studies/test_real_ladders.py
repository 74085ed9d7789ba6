"""Which rungs stand on real archives, by law, cross-fitted, and over 20 random splits.

Needs the data sets beside the repository, or where PULSE_DATA says. Sizes are in sds of W.
"""

import numpy as np
import pytest

import pulse_pyro as pp
from pulse_pyro.calibration.recipe import Recipe
from pulse_pyro.paper import beijing, heartsteps, oulad
from pulse_pyro.paper.judge import GROUPS
from tests.paper.helpers import folder

CASES = {
    "beijing": (beijing.load_beijing, "beijing_multisite", beijing.IMPUTERS),
    "heartsteps": (heartsteps.load_heartsteps, "heartsteps_v1", heartsteps.IMPUTERS),
    "oulad": (oulad.load_oulad, "oulad", oulad.IMPUTERS),
}


def archive(name):
    """The pieces of a data set in standard units, its features, and its laws by name."""
    load, where, imputers = CASES[name]
    data = load(folder(where))
    if name == "heartsteps":
        data = data.dataset(seed=0)
    features = next(iter(data.replays.values())).features
    return data.scale(data.pieces), features, {each.name: each.law for each in imputers}


def told(rungs):
    """One line a rung: verdict, and sizes where it holds."""
    for rung in rungs:
        size = f" at most {rung.size:.3f} sd, by W {np.round(rung.sizes, 3)}" if rung.holds else ""
        print(f"  {rung.name}: {rung.verdict}{size}")


@pytest.mark.parametrize("law", ["linear", "neural"])
@pytest.mark.parametrize("name", CASES)
def test_one_split(name, law):
    history, features, laws = archive(name)
    fit, held_out = history.split(seed=0)
    fitted = laws[law].fit(fit, seed=0)
    found = pp.calibrate(fitted, held_out, features, seed=0, groups=GROUPS)
    rows = len(held_out.s)
    print(f"\n{name}, {law}: {len(held_out.clusters)} clusters, {rows:,} rows held out")
    told(found.rungs)
    print("  failed:", ", ".join(c.name for c in found.checks if c.verdict == "fail") or "nothing")
    assert found.rung("free").holds


def test_heartsteps_cross_fitted():
    _, features, laws = archive("heartsteps")
    trial = heartsteps.load_heartsteps(folder("heartsteps_v1"))
    history = trial.dataset(seed=0).scale(trial.history())  # everybody
    made = pp.calibration.crossfit(laws["linear"], history, features, seed=0, groups=GROUPS)
    print(f"\nheartsteps, cross-fitted over {len(history.clusters)} people")
    told(made.calibration.rungs)
    assert made.calibration.rung("free").holds


def test_oulad_by_runs_of_courses():
    """Other students of the same nine runs, which are the clusters: fewer than most rungs want."""
    _, features, laws = archive("oulad")
    frame = oulad.load_oulad(folder("oulad")).archive.to_frame()
    names = frame["unit"].str.rsplit(" ", n=1)
    frame["course"], student = names.str[0], names.str[1].astype(int)
    roles = {"unit": "unit", "time": "time", "missing": [oulad.W], "observed": list(oulad.S)}
    own = pp.History.from_frame(frame[student % 2 == 0], **roles)
    others = pp.History.from_frame(frame[student % 2 == 1], cluster="course", **roles)
    found = pp.calibrate(laws["linear"].fit(own, seed=0), others, features, seed=0, groups=GROUPS)
    print(f"\noulad, linear, clusters are {len(others.clusters)} runs of courses")
    told(found.rungs)
    assert found.rung("free").holds


@pytest.mark.parametrize("name", CASES)
def test_over_splits(name):
    history, features, laws = archive(name)
    found = pp.calibration.stability(
        laws["linear"], history, features, recipe=Recipe(groups=GROUPS), splits=20, seed=0
    )
    print(f"\n{name}, linear, 20 splits\n{found.table.round(3).to_string()}")
    print(found.gates.round(3).to_string())
    assert len(found.verdicts) == 20
