"""Families and summaries as plain values, and back: what a saved law says of itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from pulse_pyro.errors import BundleError, nearest
from pulse_pyro.laws.filtered import Filtered
from pulse_pyro.laws.gp import GPFamily
from pulse_pyro.laws.law import Family
from pulse_pyro.laws.linear import LinearFamily
from pulse_pyro.laws.neural import NeuralFamily
from pulse_pyro.laws.varma import Process
from pulse_pyro.summary import Identity, Lags, Stack, Summary, Window

FAMILIES: Mapping[str, Any] = {
    "linear_lags": LinearFamily, "gaussian_process": GPFamily, "neural_density": NeuralFamily,
}  # fmt: skip
REDUCTIONS = ("mean", "median", "sum", "min", "max", "std", "var", "ptp",
              "nanmean", "nanmedian", "nansum", "nanmin", "nanmax", "nanstd", "nanvar")  # fmt: skip


def family_from(spec: Mapping[str, Any]) -> Family:
    """Rebuild a built-in family from its ``spec()``."""
    name = spec["family"]
    if name not in FAMILIES:
        raise BundleError(f"load_law: there is no law family {name!r}{nearest(name, FAMILIES)}")
    family: Family = FAMILIES[name].from_spec(spec)
    return family


def summary_spec(summary: Summary) -> dict[str, Any]:
    """Describe a summary in plain values; a custom one by its names alone."""
    if isinstance(summary, Lags):
        return {"kind": "Lags", "count": summary.count, "start": summary.start}
    if isinstance(summary, Identity):
        return {"kind": "Identity"}
    if isinstance(summary, Stack):
        return {"kind": "Stack", "parts": [summary_spec(part) for part in summary.parts]}
    if isinstance(summary, Filtered):
        parts = {**vars(summary.process), "mean": summary.mean, "scale": summary.scale}
        return {
            "kind": "Filtered",
            "window": summary_spec(summary.window),
            **{name: value.tolist() for name, value in parts.items()},
        }
    if isinstance(summary, Window):
        known = [name for name in REDUCTIONS if getattr(np, name) is summary.fn]
        if known:
            return {"kind": "Window", "count": summary.count, "fn": known[0]}
    return {"kind": "custom", "names": list(summary.names), "memory": summary.memory}


def summary_from(spec: dict[str, Any]) -> Summary | None:
    """Rebuild a summary, or None if it is custom."""
    if spec["kind"] == "Lags":
        return Lags(spec["count"], spec["start"])
    if spec["kind"] == "Identity":
        return Identity()
    if spec["kind"] == "Window" and spec["fn"] in REDUCTIONS:
        return Window(spec["count"], getattr(np, spec["fn"]))
    if spec["kind"] == "Filtered":
        mean, scale = np.array(spec["mean"]), np.array(spec["scale"])
        d = len(mean)
        ar, ma = (np.array(spec[name]).reshape(-1, d, d) for name in ("ar", "ma"))
        window = Lags(spec["window"]["count"], spec["window"]["start"])
        return Filtered(window, Process(ar, ma, np.array(spec["noise"])), mean, scale)
    if spec["kind"] == "Stack":
        parts = [summary_from(part) for part in spec["parts"]]
        found = [part for part in parts if part is not None]
        return Stack(*found) if len(found) == len(parts) else None
    return None
