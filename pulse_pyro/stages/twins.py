"""Twins: one unit under two names, which would be fitted on and held out at once."""

from __future__ import annotations

from pulse_pyro.diagnostics.leaks import unit_values
from pulse_pyro.errors import LeakageError
from pulse_pyro.history import History


def refuse_twins(history: History, where: str) -> None:
    """Raise LeakageError if two units have the same rows, value by value, in the same order.

    where : for the message, e.g. "study.toml [data]". Within one part of a split, too: a band takes
    units for independent. NOT noticed: copies that were rounded, cut or changed in one value, and
    units of one row, which may be alike by chance.
    """
    first: dict[bytes, str] = {}
    twins = []
    for i, name in enumerate(history.units):
        key = unit_values(history, i)
        if key is None:
            continue
        if key in first:
            twins.append((first[key], name))
        first.setdefault(key, name)
    if twins:
        one, other = twins[0]
        more = f" (and {len(twins) - 1} more such pairs)" if len(twins) > 1 else ""
        raise LeakageError(
            f"{where}: units {one!r} and {other!r} have the same values in every row{more}; one "
            "unit under two names would be fitted on and judge the fit: keep one of each."
        )
