"""Every entry of every registry can be loaded, by the name it says."""

import pytest

from pulse_pyro._core.registry import named
from pulse_pyro.bands import BANDS
from pulse_pyro.diagnostics import CHECKS, LAW_CHECKS
from pulse_pyro.envs import ENVS, POLICIES
from pulse_pyro.laws import LAWS
from pulse_pyro.paper import DATASETS, EXPERIMENTS
from pulse_pyro.report import PLOTS, SECTIONS

REGISTRIES = {
    "LAWS": LAWS,
    "BANDS": BANDS,
    "CHECKS": CHECKS,
    "LAW_CHECKS": LAW_CHECKS,
    "ENVS": ENVS,
    "POLICIES": POLICIES,
    "PLOTS": PLOTS,
    "EXPERIMENTS": EXPERIMENTS,
    "DATASETS": DATASETS,
} | {f"SECTIONS of {stage}": sections for stage, sections in SECTIONS.items()}


def test_every_entry_loads():
    for registry in REGISTRIES.values():
        assert all(named(registry, name) is not None for name in registry)


def test_an_entry_is_a_place_or_the_thing_itself():
    assert named({"a": "json:dumps", "b": len}, "a")([1]) == "[1]"
    assert named({"a": "json:dumps", "b": len}, "b") is len
    with pytest.raises(KeyError):
        named({"a": len}, "c")
