"""Leaks: has the law seen the held-out units, if under other names; is one unit there twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pulse_pyro._core.arrays import Float
from pulse_pyro._core.errors import LeakageError
from pulse_pyro.base import Check, FittedLaw
from pulse_pyro.data.history import History
from pulse_pyro.laws.fitted import PosteriorLaw

if TYPE_CHECKING:
    from pulse_pyro.diagnostics.case import HeldOut

# Leaks: has the law seen the held-out units, if under other names.
#
# A law keeps no rows, but the mean and sd of S in its archive, and of W if it is built in. If the
# held-out rows have the same to nine digits, they are the archive. If the archive itself is handed
# over, every unit is compared with every unit. NOT noticed without it: an archive reused in part.
# No
# check of calibration can notice it either: on its own units a law looks better, not worse.


DIGITS = 1e-9
LEAST = 2  # rows a unit must have to be known by its values


def refuse_leaks(fitted: FittedLaw, held_out: History, archive: History | None) -> None:
    """Raise LeakageError if a unit was fitted on, by its name or, given the archive, its values."""
    leaked = sorted(set(fitted.units) & set(held_out.clusters))
    if leaked:
        raise LeakageError(
            f"diagnose: unit {leaked[0]!r} (and {len(leaked) - 1} more) was fitted on; pass the "
            "held-out part of History.split."
        )
    if archive is None:
        return
    known = {unit_values(archive, i): name for i, name in enumerate(archive.units)}
    known.pop(None, None)
    for i, name in enumerate(held_out.units):
        twin = name if name in archive.units else known.get(unit_values(held_out, i))
        if twin is not None:
            raise LeakageError(
                f"diagnose: held-out unit {name!r} has the values of unit {twin!r} of the archive; "
                "pass units that neither the law nor the baselines have seen."
            )


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


def unit_values(history: History, i: int) -> bytes | None:
    """Return the rows of unit i as bytes, NaN equal to themselves; None of a unit of one row.

    People who were met once and answered in whole numbers are alike by chance, not by copying.
    """
    here = slice(history.offsets[i], history.offsets[i + 1])
    if history.lengths[i] < LEAST:
        return None
    rows = np.concatenate([history.s[here], history.w[here]], axis=1)
    # -0.0 is 0.0, NaN is NaN
    return np.where(np.isnan(rows), np.nan, rows + 0.0).tobytes()


# Twins: one unit under two names, which would be fitted on and held out at once.


def refuse_duplicate_units(history: History, where: str) -> None:
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
