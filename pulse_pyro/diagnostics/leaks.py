"""Leaks: has the law seen the held-out units, if under other names.

A law keeps no rows, but the mean and sd of S in its archive, and of W if it is built in. If the
held-out rows have the same to nine digits, they are the archive. If the archive itself is handed
over, every unit is compared with every unit. NOT noticed without it: an archive reused in part. No
check of calibration can notice it either: on its own units a law looks better, not worse.
"""

from __future__ import annotations

import numpy as np

from pulse_pyro.arrays import Float
from pulse_pyro.errors import LeakageError
from pulse_pyro.history import History
from pulse_pyro.laws.fitted import FittedLaw
from pulse_pyro.verdicts import Check

DIGITS = 1e-9
LEAST = 2  # rows a unit must have to be known by its values


def refuse_leaks(fitted: FittedLaw, held_out: History, archive: History | None) -> None:
    """Raise LeakageError if a unit was fitted on, by its name or, given the archive, its values."""
    leaked = sorted(set(fitted.fit_units) & set(held_out.units))
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


def leak_check(fitted: FittedLaw, held_out: History) -> Check | None:
    """Return a failing check if the held-out rows have the archive's moments; None otherwise.

    For a custom law, which records S alone, it warns: units may share S by design.
    """
    s = held_out.s[held_out.seen]
    if np.isnan(s).all(0).any():
        return None
    moments = np.stack([np.nanmean(s, axis=0), np.nanstd(s, axis=0)])
    if not _same(moments, fitted.contexts):
        return None
    built_in = fitted.law.family is not None
    if built_in:
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
    seen = history.seen[i]
    if seen.sum() < LEAST:
        return None
    rows = np.concatenate([history.s[i][seen], history.w[i][seen]], axis=1)
    # -0.0 is 0.0, NaN is NaN
    return np.where(np.isnan(rows), np.nan, rows + 0.0).tobytes()
