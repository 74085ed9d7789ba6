"""What the tests of this folder share: rectangles (unit, time) as rows, for checks of rows."""

import numpy as np

from pulse_pyro.diagnostics.by_unit import Place
from pulse_pyro.diagnostics.by_unit import unit_mean as unit_mean_of_rows
from pulse_pyro.diagnostics.pit import coverage_check as coverage_of_rows
from pulse_pyro.diagnostics.pit import pit_check as pit_of_rows
from pulse_pyro.diagnostics.replicates import replicate_check as replicates_of_rows
from pulse_pyro.diagnostics.trend import spread_check as spread_of_rows
from pulse_pyro.diagnostics.trend import trend_check as trend_of_rows


def _rows(*grids):
    """The rectangles as rows where the first is known, and where these stand."""
    here = np.isfinite(grids[0])
    return [grid[here] for grid in grids], Place(*np.nonzero(here))


def unit_mean(d, **more):
    (rows,), place = _rows(d)
    return unit_mean_of_rows(rows, place.unit, **more)


def coverage_check(name, pit, extra):
    (rows,), place = _rows(pit)
    return coverage_of_rows(name, rows, place.unit, extra)


def pit_check(name, pit, extra):
    (rows,), place = _rows(pit)
    return pit_of_rows(name, rows, place.unit, extra)


def trend_check(name, w, mean, extra):
    (w, mean), place = _rows(w, mean)
    return trend_of_rows(name, w, mean, place.unit, extra)


def spread_check(name, pit, mean, extra):
    (pit, mean), place = _rows(pit, mean)
    return spread_of_rows(name, pit, mean, place.unit, extra)


def replicate_check(name, w, draws, extra):
    (rows,), place = _rows(w)
    return replicates_of_rows(name, rows, draws, place, extra)
