"""Values as a manifest and plain arrays, and back: what a saved thing consists of.

A manifest holds what JSON knows; ``{"array": n}`` stands for array n, ``{"tuple": [...]}`` and
``{"map": {...}}`` for a tuple and a mapping, ``{"class": name, ...}`` for a dataclass or named
tuple, by its fields, and ``{"handed": name}`` for what is handed back in when it is read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np

from pulse_pyro._core.arrays import Array
from pulse_pyro._core.errors import BundleError

T = TypeVar("T")
STORED = {"f": np.float64, "i": np.int64, "u": np.int64, "b": np.bool_}  # by kind of dtype


class Packed(NamedTuple):
    """A manifest of plain values, and arrays by name: float64, int64 or bool."""

    manifest: dict[str, Any]
    arrays: dict[str, Array]

    def holding(self, name: str, part: Packed) -> Packed:
        """Return this with another packed thing inside, under a name of its own."""
        inner = {f"{name}/{key}": value for key, value in part.arrays.items()}
        return Packed({**self.manifest, name: part.manifest}, {**self.arrays, **inner})

    def part(self, name: str) -> Packed:
        """Return the packed thing of that name."""
        start = f"{name}/"
        inner = {k[len(start) :]: v for k, v in self.arrays.items() if k.startswith(start)}
        return Packed(self.manifest[name], inner)

    def shaped(self, name: str, *shape: int) -> Array:
        """Return an array, or say that it has not the shape it should have; -1: any length."""
        found = self.arrays[name]
        fits = found.ndim == len(shape) and all(
            want in (-1, got) for want, got in zip(shape, found.shape, strict=True)
        )
        if not fits:
            raise BundleError(f"its array {name!r} is {found.shape}, but {shape} is needed.")
        return found


def pack_value(
    value: object, classes: Sequence[type], handed: Mapping[str, object] | None = None
) -> Packed:
    """Write a value as a manifest and arrays.

    classes : the dataclasses and named tuples it may be made of. handed : name -> what is not
    stored but handed back in when the value is read, recognised by identity.
    """
    arrays: dict[str, Array] = {}
    names = {id(thing): name for name, thing in (handed or {}).items()}
    known = {each.__name__: each for each in classes}

    def plain(value: Any) -> Any:
        if id(value) in names:
            return {"handed": names[id(value)]}
        if isinstance(value, np.ndarray) and value.dtype.kind in STORED:
            arrays[name := str(len(arrays))] = value.astype(STORED[value.dtype.kind], copy=False)
            return {"array": name}
        if isinstance(value, np.generic):
            value = value.item()
        if value is None or isinstance(value, bool | int | float | str):
            return value
        name = type(value).__name__
        if known.get(name) is type(value):
            return {"class": name, "fields": {k: plain(getattr(value, k)) for k in _fields(value)}}
        if isinstance(value, tuple) and not hasattr(value, "_fields"):
            return {"tuple": [plain(each) for each in value]}
        if isinstance(value, list):
            return [plain(each) for each in value]
        if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
            return {"map": {key: plain(each) for key, each in value.items()}}
        raise BundleError(
            f"it holds {type(value).__module__}.{name}, which is no plain value and cannot be "
            "stored."
        )

    return Packed({"value": plain(value)}, arrays)


def unpack_value(
    packed: Packed,
    wanted: type[T],
    classes: Sequence[type],
    handed: Mapping[str, object] | None = None,
) -> T:
    """Make the value anew, of class ``wanted``; see :func:`pack_value`."""
    known = {each.__name__: each for each in classes}

    def value_of(plain: Any) -> Any:
        if isinstance(plain, list):
            return [value_of(each) for each in plain]
        if not isinstance(plain, dict):
            return plain
        if set(plain) == {"array"}:
            return packed.arrays[plain["array"]]
        if set(plain) == {"handed"}:
            return (handed or {})[plain["handed"]]
        if set(plain) == {"tuple"}:
            return tuple(value_of(each) for each in plain["tuple"])
        if set(plain) == {"map"}:
            return {key: value_of(each) for key, each in plain["map"].items()}
        if plain["class"] not in known:
            raise BundleError(f"it holds a {plain['class']!r}, which this version does not know.")
        return known[plain["class"]](
            **{key: value_of(each) for key, each in plain["fields"].items()}
        )

    found = value_of(packed.manifest["value"])
    if not isinstance(found, wanted):
        raise BundleError(f"it holds {type(found).__name__}, but {wanted.__name__} is needed.")
    return found


def _fields(value: Any) -> tuple[str, ...]:
    if is_dataclass(value):
        return tuple(each.name for each in fields(value) if each.init)
    return tuple(value._fields)
