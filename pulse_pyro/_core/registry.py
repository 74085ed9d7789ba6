"""Registries: plain dicts of names, whose entries are loaded when they are asked for."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any


def named(registry: Mapping[str, Any], name: str) -> Any:
    """Return what a registry has under a name.

    An entry is the thing itself, or "module:attribute", which is imported now: so a package's
    table of contents can list what it offers without loading any of it.
    """
    entry = registry[name]
    if not isinstance(entry, str):
        return entry
    module, _, attribute = entry.partition(":")
    return getattr(import_module(module), attribute)
