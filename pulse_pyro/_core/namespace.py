"""Names of a package that are loaded when first used, so that importing it costs nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

Lazy = tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]


def lazy_names(package: str, homes: Mapping[str, str]) -> Lazy:
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` of a package.

    homes : module of the package, or a whole path -> the names it brings, separated by blanks; a
    module that brings none is itself a name.
    """
    where = {name: home for home, names in homes.items() for name in names.split()}
    modules = [home for home, names in homes.items() if not names]
    public = sorted([*where, *modules])

    def load(name: str) -> Any:
        if name in where:
            home = where[name]
            whole = home if home.startswith("pulse_pyro.") else f"{package}.{home}"
            return getattr(import_module(whole), name)
        if name in modules:
            return import_module(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return load, lambda: public, public
