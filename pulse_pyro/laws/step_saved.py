"""A fitted program with a state as a saved thing: its draws and what the check found."""

from __future__ import annotations

from typing import Any

import numpy as np

from pulse_pyro._core.errors import BundleError
from pulse_pyro._core.packed import Packed, pack_value, unpack_value
from pulse_pyro._core.seeds import stream
from pulse_pyro.base import Schema, Site
from pulse_pyro.laws.fitted import FitRecord
from pulse_pyro.laws.step import FittedStepLaw, StepLaw


def pack_step_law(fitted: FittedStepLaw) -> Packed:
    """Write a fitted program's draws; its three functions are left to be handed back in."""
    from pulse_pyro._pyro.program import StepCard

    law = fitted.law
    manifest: dict[str, Any] = {
        "settings": {
            "memory": law.memory,
            "state": law.state,
            "particles": law.particles,
            "draws": law.draws,
            "name": law.name,
        },
        "units": list(fitted.units),
        "schema": fitted.schema.to_plain(),
        "law_id": fitted.id,
        "probe": _probe(fitted),
    }
    packed = Packed(manifest, {f"draw.{name}": value for name, value in fitted.draws.items()})
    return packed.holding(
        "fit", pack_value((fitted.record, fitted.card), (FitRecord, StepCard, Site))
    )


def unpack_step_law(packed: Packed, law: object = None) -> FittedStepLaw:
    """Make a fitted program anew; ``law`` : the StepLaw it was made with, or the fitted law."""
    from pulse_pyro._pyro.program import StepCard

    saved = packed.manifest
    if isinstance(law, FittedStepLaw):
        law = law.law
    if not isinstance(law, StepLaw):
        raise BundleError(
            "it holds a program with a state, whose functions are not stored; pass the StepLaw it "
            f"was made with: load(path, law=law), but got {type(law).__name__}."
        )
    settings = {name: getattr(law, name) for name in saved["settings"]}
    if settings != saved["settings"]:
        raise BundleError(
            f"it was made with {saved['settings']}, but the StepLaw passed has {settings}."
        )
    record, card = unpack_value(packed.part("fit"), tuple, (FitRecord, StepCard, Site))
    draws = {name[5:]: value for name, value in packed.arrays.items() if name.startswith("draw.")}
    schema = Schema.from_plain(saved["schema"])
    fitted = FittedStepLaw(law, draws, card, record, tuple(saved["units"]), schema)
    if fitted.id != saved["law_id"]:
        raise BundleError("it does not carry the law its manifest names.")
    try:
        same = np.allclose(_probe(fitted), saved["probe"], rtol=1e-6, equal_nan=True)
    except Exception as cause:  # whatever other functions do at these draws
        raise BundleError(
            f"the StepLaw passed does not run at the stored draws: {type(cause).__name__}: {cause}"
        ) from cause
    if not same:
        raise BundleError(
            f"{law.label} gives other answers than when it was saved; its functions have changed "
            "since."
        )
    return fitted


def _probe(fitted: FittedStepLaw) -> list[float]:
    """Answers at the rows of a made-up series, to recognise the functions by."""
    mean, sd = np.nan_to_num(fitted.schema.contexts, nan=1.0)
    s = mean + sd * stream(0, "probe").standard_normal((1, fitted.law.memory + 4, len(mean)))
    return [float(v) for v in fitted(np.round(s)).mean().ravel()]
