"""Leaks: has the law seen the held-out units, if under other names; is one unit there twice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from pulse_pyro._core.arrays import Float, Int
from pulse_pyro._core.errors import LeakageError
from pulse_pyro.base import Check, FittedLaw, Schema
from pulse_pyro.data.history import History
from pulse_pyro.laws.fitted import PosteriorLaw

if TYPE_CHECKING:
    from pulse_pyro.diagnostics.case import HeldOut

# Leaks: has the law seen the held-out units, if under other names.
#
# A law keeps no rows, but the mean and sd of S in its archive, and of W if it is built in. If the
# held-out rows have the same to nine digits, they are the archive. If the archive itself is handed
# over, every unit is compared with every unit; where both are cut into periods of time, what a unit
# has in one period. NOT noticed without it: an archive reused in part. No check of calibration can
# notice it either: on its own units a law looks better, not worse.


DIGITS = 1e-9
LEAST = 2  # rows a unit must have to be known by its values


def refuse_leaks(fitted: FittedLaw, held_out: History, archive: History | None) -> None:
    """Raise LeakageError if a unit was fitted on, by its name or, given the archive, its values."""
    leaked = met_before(fitted, held_out)
    if leaked:
        raise LeakageError(
            f"diagnose: {leaked[0]} (and {len(leaked) - 1} more) was fitted on; pass the "
            "held-out part of History.split."
        )
    if archive is None:
        return
    leaked = _common(archive.units, archive.clusters, archive.schema, held_out)
    if not leaked:
        leaked = _copies(archive, held_out)
    if leaked:
        raise LeakageError(
            f"diagnose: held-out {leaked[0]} is in the archive; pass units that neither the law "
            "nor the baselines have seen."
        )


def met_before(fitted: FittedLaw, held_out: History) -> list[str]:
    """Return the units, or clusters, of ``held_out`` that a law was fitted on, in words.

    Units are compared with units and clusters with clusters. One unit may be on both sides only
    where both are cut into the same periods of time. A law that says nothing of the pieces it was
    fitted on (``FittedLaw.units``) has met none.
    """
    schema = fitted.schema
    units = fitted.units if schema.cluster is None else schema.units
    return _common(units, fitted.units, schema, held_out) if fitted.units else []


def _common(
    units: tuple[str, ...], clusters: tuple[str, ...], schema: Schema, held_out: History
) -> list[str]:
    """Return what is on both sides: clusters, and units unless periods of time cut them."""
    other, found = held_out.schema, []
    if schema.cluster is not None and other.cluster is not None:
        both = set(clusters) & set(held_out.clusters)
        found = [f"cluster {name!r}" for name in sorted(both)]
    if not schema.by_time or schema.cluster != other.cluster:
        found += [f"unit {name!r}" for name in sorted(set(units) & set(held_out.units))]
    return found


def _copies(archive: History, held_out: History) -> list[str]:
    """Return the held-out units, in words, that have the values of others in the archive.

    Periods of time make many short pieces, some of which are alike by chance where values are
    coarse: if the archive repeats any of its own, likeness is no sign of copying, and none is
    returned.
    """
    in_time = archive.schema.by_time and held_out.schema.by_time
    known: dict[bytes, str] = {}
    for name, key in _values(archive, in_time):
        if in_time and key in known:
            return []
        known[key] = name
    return [
        f"unit {name} has the values of unit {known[key]}, which"
        for name, key in _values(held_out, in_time)
        if key in known
    ]


def _values(history: History, in_time: bool) -> Iterator[tuple[str, bytes]]:
    """Yield each unit, or what it has in one period of time, with its rows as bytes."""
    for i, name in enumerate(history.units):
        rows = np.arange(history.offsets[i], history.offsets[i + 1])
        period = history.cluster[rows] if in_time else np.zeros(len(rows), np.int64)
        for k in np.unique(period):
            key = _row_bytes(history, rows[period == k])
            label = f"{name!r} in {history.clusters[k]!r}" if in_time else repr(name)
            if key is not None:
                yield label, key


def ask_leak(case: HeldOut) -> list[Check]:
    """Ask whether the held-out units are the archive's, under other names."""
    found = leak_check(case.fitted, case.history)
    return [] if found is None else [found]


def leak_check(fitted: FittedLaw, held_out: History) -> Check | None:
    """Return a failing check if the held-out rows have the archive's moments; None otherwise.

    For a custom law, which records S alone, it warns: units may share S by design.
    """
    s = held_out.s
    if np.isnan(s).all(0).any():
        return None
    moments = np.stack([np.nanmean(s, axis=0), np.nanstd(s, axis=0)])
    if not _same(moments, fitted.schema.contexts):
        return None
    built_in = isinstance(fitted, PosteriorLaw) and fitted.law.family is not None
    if isinstance(fitted, PosteriorLaw) and built_in:
        w = held_out.rows(fitted.summary).w
        stored = np.stack([fitted.scaler.w_mean, fitted.scaler.w_scale])
        if not _same(np.stack([w.mean(0), w.std(0)]), stored):
            return None
    seen = "S and W" if built_in else "S"
    text = (
        f"Mean and sd of {seen} equal those of the fitted archive to nine digits: these are its "
        "units under other names. Every other check then flatters the law; hold out other units."
    )
    return Check("leak", "fail" if built_in else "warn", 1.0, 0.0, text)


def _same(one: Float, other: Float) -> bool:
    return bool((np.abs(one - other) <= DIGITS * (np.abs(other).max(0) + 1e-300)).all())


def _row_bytes(history: History, rows: Int) -> bytes | None:
    """Return some rows as bytes, NaN equal to themselves; None of a single row.

    People who were met once and answered in whole numbers are alike by chance, not by copying.
    """
    if len(rows) < LEAST:
        return None
    values = np.concatenate([history.s[rows], history.w[rows]], axis=1)
    # -0.0 is 0.0, NaN is NaN
    return np.where(np.isnan(values), np.nan, values + 0.0).tobytes()


# Twins: one unit under two names, which would be fitted on and held out at once.


def refuse_duplicate_units(history: History, where: str) -> None:
    """Raise LeakageError if two units have the same rows, value by value, in the same order.

    where : for the message, e.g. "study.toml [data]". Within one part of a split, too: a band takes
    units for independent. NOT noticed: copies that were rounded, cut or changed in one value, and
    units of one row, which may be alike by chance.
    """
    first: dict[bytes, str] = {}
    twins = []
    for name, key in _values(history, in_time=False):
        if key in first:
            twins.append((first[key], name))
        first.setdefault(key, name)
    if twins:
        one, other = twins[0]
        more = f" (and {len(twins) - 1} more such pairs)" if len(twins) > 1 else ""
        raise LeakageError(
            f"{where}: units {one} and {other} have the same values in every row{more}; one "
            "unit under two names would be fitted on and judge the fit: keep one of each."
        )
