"""Measured and expected contexts in one table."""

from dataclasses import replace

from pulse_pyro._core.registry import named
from pulse_pyro.paper import EXPERIMENTS
from pulse_pyro.paper.runner import run_experiment


def test_correcting_an_expectation_makes_it_worse():
    experiment = named(EXPERIMENTS, "meb")
    short = tuple(replace(s, units=20, horizon=800) for s in experiment.settings)
    result = run_experiment(replace(experiment, settings=short), runs=4, seed=0)
    table = result.table.set_index(["setting", "agent"])
    late = result.extra.set_index(["setting", "agent"])["late_regret"]
    assert table.loc[("berkson", "meb"), "regret"] > table.loc[("berkson", "meb_plain"), "regret"]
    assert late["berkson", "meb"] > late["berkson", "ridge"]
    assert late["classical", "meb"] < late["classical", "meb_plain"]
    assert table["why"].str.startswith("not published").all()
