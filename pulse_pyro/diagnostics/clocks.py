"""Which inputs run by the clock: their values are given by time alone, so they cannot drift.

A stream that lasts six hours has other hours of the day than one that lasts a week, and units that
all start at midnight agree in them to the last digit: means and spreads of such inputs tell of when
one looked, not of whom. They are judged by whether their values are among those the archive has.
"""

from __future__ import annotations

import numpy as np
from scipy.spatial import cKDTree

from pulse_pyro._core.arrays import Bool, Float1, Float2, Int
from pulse_pyro.base import Schema

LONGEST = 400  # steps after which a clock that was not declared may come again
PAIRS = 20  # rows that must agree with an earlier one, at least
OTHERS = 5  # of them with another value than the commonest, or agreement says little
POINTS = 2000  # of a clock, at most, that are kept
NEAR = 1.5  # times the usual distance of neighbouring values: then a value counts as seen


def clock_groups(
    schema: Schema, parts: int, x: Float2, unit: Int, step: Int
) -> tuple[tuple[int, ...], ...]:
    """Return groups of columns of x (n, p) that run by the clock, each judged as one.

    schema : columns of S; parts : what the summary makes of each, so that p = parts s_dim. unit,
    step : (n,) where rows stand, in order. Sine and cosine of a declared clock make a group; other
    columns are one each if they vary within units and either have the same value in all units at
    every step, or come again after some number of steps, everywhere. NOT found: a calendar whose
    period is longer than units, or than 400 steps; declare it a clock.
    """
    names = schema.s_names
    groups = []
    for part in range(parts):
        for column in schema.s_columns:
            if column.kind == "clock":
                groups.append(tuple(part * len(names) + names.index(n) for n in column.names))
    taken = {j for group in groups for j in group}
    for j in range(x.shape[1]):
        if j not in taken and runs_by_clock(x[:, j], unit, step):
            groups.append((j,))
    return tuple(groups)


def runs_by_clock(value: Float1, unit: Int, step: Int) -> bool:
    """Tell whether a column (n,) is a function of time, as far as can be seen."""
    code = np.unique(np.round(value / (np.abs(value).max() or 1.0), 9), return_inverse=True)[1]
    same_unit = unit[1:] == unit[:-1]
    if not (code[1:] != code[:-1])[same_unit].any():
        return False  # what does not change within a unit tells units apart
    common = int(np.bincount(code).argmax())
    if _same_at_each_step(code, step, common):
        return True
    if code.max() + 1 > len(code) / 3:
        return False  # values hardly come again
    key = unit.astype(np.int64) * (int(step.max()) + 1) + step
    return any(
        _comes_again(code, key, step, period, common)
        for period in range(2, min(LONGEST, int(step.max())) + 1)
    )


def _same_at_each_step(code: Int, step: Int, common: int) -> bool:
    """Tell whether all units agree at every step, and enough of them to say so."""
    first = np.full(int(step.max()) + 1, -1, np.int64)
    first[step[::-1]] = code[::-1]
    again = len(code) - len(np.unique(step))
    if again < PAIRS or not bool((first[step] == code).all()):
        return False
    return int((code != common).sum() - (first[first >= 0] != common).sum()) >= OTHERS


def _comes_again(code: Int, key: Int, step: Int, period: int, common: int) -> bool:
    """Tell whether each row has the value of its unit's row ``period`` steps before."""
    some = slice(None, 50 * period) if len(key) > 100 * period else slice(None)
    for rows in (some, slice(None)):  # most columns are told by their first rows
        k, at = key[rows], np.searchsorted(key, key[rows] - period)
        there = (step[rows] >= period) & (key[np.minimum(at, len(key) - 1)] == k - period)
        if not bool((code[rows][there] == code[at[there]]).all()):
            return False
    agree = code[there]
    return len(agree) >= max(PAIRS, len(code) // 4) and int((agree != common).sum()) >= OTHERS


def seen_values(archive: Float2, online: Float2) -> Bool:
    """Tell which rows of online (m, k) have values among those of the archive's rows (n, k).

    A value counts as seen within one and a half times the usual distance between neighbouring
    values of the archive: half past eight is seen where eight and nine are. NaN is not seen.
    """
    scale = np.abs(archive).max() or 1.0
    points = np.unique(np.round(archive / scale, 9), axis=0)
    points = points[:: -(-len(points) // POINTS)]
    tree = cKDTree(points)
    near = 1e-6
    if len(points) > 1:
        apart = np.asarray(tree.query(points, k=2)[0])[:, 1]
        near = max(near, NEAR * float(np.quantile(apart, 0.9)))
    known = np.isfinite(online).all(-1)
    out = np.zeros(len(online), np.bool_)
    if known.any():
        out[known] = tree.query(online[known] / scale)[0] <= near
    return out
