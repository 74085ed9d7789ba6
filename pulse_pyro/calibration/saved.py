"""Calibrations as plain values and arrays, and back: bands, targets, and the laws they speak of."""

from __future__ import annotations

import sys
from dataclasses import is_dataclass
from typing import Any

import numpy as np

from pulse_pyro._core.arrays import Float, Float2
from pulse_pyro._core.errors import BundleError
from pulse_pyro._core.packed import Packed, pack_value, unpack_value
from pulse_pyro._core.registry import named
from pulse_pyro._core.seeds import stream
from pulse_pyro.bands import BANDS
from pulse_pyro.bands.band import Band
from pulse_pyro.bands.basis import BasisShape
from pulse_pyro.bands.curve import GridShape
from pulse_pyro.bands.support import Support
from pulse_pyro.base import Check, Column, Schema, is_exact
from pulse_pyro.calibration import RUNGS
from pulse_pyro.calibration.calibration import Calibration
from pulse_pyro.calibration.cross_fitting import AverageLaw, BothHalves
from pulse_pyro.calibration.groups import GroupRule
from pulse_pyro.calibration.part import BandInputs, Part
from pulse_pyro.calibration.repaired import Correction, RepairedLaw
from pulse_pyro.calibration.rung import Rung
from pulse_pyro.calibration.targets import FeatureTargets, MissingTargets
from pulse_pyro.calibration.uniform import UniformBounds
from pulse_pyro.data.history import History
from pulse_pyro.features import pack_features, unpack_features
from pulse_pyro.laws.adapter import LawAdapter, as_law
from pulse_pyro.laws.fitted import PosteriorLaw
from pulse_pyro.laws.saved import pack_law, unpack_law

# Laws of any kind: stored whole where they can be, else handed back in and compared.


REPAIRS = (Correction, GroupRule)
PROBES = 5  # rows of a series at which a law of another make is compared


def pack_average_law(law: AverageLaw) -> Packed:
    """Write both halves of an averaged law."""
    one, two = (pack_any_law(half, half.schema.contexts) for half in (law.one, law.two))
    return Packed({}, {}).holding("one", one).holding("two", two)


def unpack_average_law(packed: Packed, law: object = None, features: object = None) -> AverageLaw:
    """Make an averaged law anew; ``law`` : the Law of a custom model, or the averaged law."""
    one, two = _halves(law)
    return AverageLaw(
        unpack_any_law(packed.part("one"), one), unpack_any_law(packed.part("two"), two)
    )


def _halves(law: object) -> tuple[object, object]:
    """Return what is handed in for either half of an averaged law."""
    return (law.one, law.two) if isinstance(law, AverageLaw) else (law, law)


def pack_repaired_law(law: RepairedLaw) -> Packed:
    """Write the law that was repaired, and what is added to it."""
    about = {"units": list(law.units), "schema": law.schema.to_plain(), "law_id": law.id}
    packed = Packed(about, {}).holding("law", pack_any_law(law.law, law.schema.contexts))
    return packed.holding("corrections", pack_value(law.corrections, REPAIRS))


def unpack_repaired_law(packed: Packed, law: object = None, features: object = None) -> RepairedLaw:
    """Make a repaired law anew; ``law`` : the Law of a custom model, or the repaired law."""
    before = law.law if isinstance(law, RepairedLaw) else law
    repaired = RepairedLaw(
        unpack_any_law(packed.part("law"), before),
        unpack_value(packed.part("corrections"), tuple, REPAIRS),
        tuple(packed.manifest["units"]),
        Schema.from_plain(packed.manifest["schema"]),
    )
    if repaired.id != packed.manifest["law_id"]:
        raise BundleError("it does not carry the law its manifest names.")
    return repaired


def pack_any_law(law: Any, contexts: Float2) -> Packed:
    """Write a law that a calibration or a policy holds, whatever its kind.

    contexts : (2, s_dim) mean and sd of S, around which a law of another make is asked.
    """
    if isinstance(law, PosteriorLaw):
        return Packed({"is": "law"}, {}).holding("law", pack_law(law))
    if isinstance(law, AverageLaw):
        return Packed({"is": "average"}, {}).holding("law", pack_average_law(law))
    if isinstance(law, RepairedLaw):
        return Packed({"is": "repaired"}, {}).holding("law", pack_repaired_law(law))
    about = {
        "is": "other",
        "type": type(law).__name__,
        "law_id": getattr(law, "id", None),
        "w_names": list(law.schema.w_names),
    }
    noise = stream(0, "probe").standard_normal((PROBES, contexts.shape[1]))
    s = contexts[0] + contexts[1] * noise
    return Packed(about, {"s": s, "mean": _answers(law, s)})


def unpack_any_law(packed: Packed, law: Any) -> Any:
    """Make the law anew, or return the one that is handed in, compared with the one saved."""
    saved = packed.manifest
    if saved["is"] == "law":
        return unpack_law(packed.part("law"), law)
    if saved["is"] == "average":
        return unpack_average_law(packed.part("law"), law)
    if saved["is"] == "repaired":
        return unpack_repaired_law(packed.part("law"), law)
    if law is None:
        raise BundleError(
            f"its law, {saved['type']}, is none of this package and is not stored; pass it: "
            "load(path, law=law)."
        )
    if saved["type"] == LawAdapter.__name__ and callable(law) and hasattr(law, "schema"):
        law = as_law(law, "load")  # as it was when it was first handed in
    passed = {
        "type": type(law).__name__,
        "law_id": getattr(law, "id", None),
        "w_names": list(law.schema.w_names),
    }
    for name, value in passed.items():
        if saved[name] != value:
            raise BundleError(
                f"it was made with a law of {name} {saved[name]}, but the law passed has {value}."
            )
    before, now = packed.arrays["mean"], _answers(law, packed.shaped("s", PROBES, -1))
    if before.shape != now.shape or not np.allclose(before, now, rtol=1e-6, equal_nan=True):
        raise BundleError("the law passed gives other answers than when it was saved.")
    return law


def _answers(law: Any, s: Float2) -> Float:
    """E[W] after the rows s (time, s_dim); nothing where it would carry Monte Carlo error."""
    newest = law(s[None], [len(s) - 1])
    return np.asarray(newest.mean()[0], np.float64) if newest.exact else np.zeros(0)


# A calibration: everything but its laws and Phi is plain values.


CLASSES = (
    Calibration,
    Part,
    BandInputs,
    Support,
    Rung,
    UniformBounds,
    BothHalves,
    Check,
    MissingTargets,
    FeatureTargets,
    History,
    Schema,
    Column,
    Band,
    GridShape,
    BasisShape,
)
ROWS = 50  # of a unit, beyond the law's memory, at which what was loaded is asked


def stored_classes() -> tuple[type, ...]:
    """Return what a calibration may be made of: CLASSES, and the dataclasses of bands and rungs.

    Those are all that the module of a kind in BANDS or RUNGS defines or imports, so the shape of a
    new band, or the details of a new rung, need no line here. One that has the name of one of
    CLASSES is not stored.
    """
    every = [named(kinds, kind) for kinds in (BANDS, RUNGS) for kind in kinds]
    modules = [sys.modules[each.__module__] for each in every]
    members = [member for module in modules for member in vars(module).values()]
    found = [each for each in members if isinstance(each, type) and is_dataclass(each)]
    return (*found, *CLASSES)  # of two with one name the last counts


def pack_calibration(calibration: Calibration, own: Any = None) -> Packed:
    """Write a calibration with the laws it speaks of.

    own : a law that whoever holds the calibration stores itself.
    """
    phi, schema = calibration.features, calibration.contexts.schema
    laws = {f"law {i}": part.law for i, part in enumerate(calibration.parts)}
    stored = {name: law for name, law in laws.items() if law is not own}
    handed = {"features": phi, **stored, **({} if own is None else {"own": own})}
    packed = pack_value(calibration, stored_classes(), handed)
    contexts = schema.contexts
    packed = packed.holding("features", pack_features(phi, contexts, len(schema.w_names)))
    for name, law in stored.items():
        packed = packed.holding(name, pack_any_law(law, contexts))
    return packed


def unpack_calibration(
    packed: Packed, law: object = None, features: object = None, own: object = None
) -> Calibration:
    """Make a calibration anew; see :func:`pack_calibration`."""
    handed: dict[str, object] = {"own": own}
    handed["features"] = unpack_features(packed.part("features"), features)
    for name, half in zip(("law 0", "law 1"), _halves(law), strict=True):
        if name in packed.manifest:
            handed[name] = unpack_any_law(packed.part(name), half)
    calibration = unpack_value(packed, Calibration, stored_classes(), handed)
    _compare(calibration)
    return calibration


def _compare(calibration: Calibration) -> None:
    """Refuse a calibration whose parts do not fit together: its bounds are those it holds."""
    parts, contexts = calibration.parts, calibration.contexts
    if not parts:
        return
    rows = min(parts[0].law.summary.memory + ROWS, int(contexts.lengths[0]))
    some = contexts.where(np.arange(len(contexts.s)) < rows)
    error = np.mean([part.errors(some)[0] for part in parts], axis=0)
    before = calibration.error[:rows]
    exact = all(isinstance(p.targets, MissingTargets) and is_exact(p.law) for p in parts)
    same = error.shape == before.shape
    same = same and calibration.inside.shape == calibration.error.shape[:1]
    if not same or (exact and not np.allclose(error, before, rtol=1e-6, equal_nan=True)):
        raise BundleError("its bounds are not those it was saved with.")
